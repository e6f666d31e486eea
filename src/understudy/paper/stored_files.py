"""The stored results themselves, as Markdown tables: what made every CSV file of a folder, and what is missing."""

import math
from pathlib import Path
from typing import Any

from understudy.game import DEFAULT
from understudy.paper import ablation, figure_studies, off_q, reward
from understudy.paper.comparison import TITLES, Rows, markdown, read
from understudy.studies.plan import BUNDLED

COMMANDS = 6
"""That a cell shows at most; a file made by more has them in its own column."""


def files_table(results: Path) -> str:
    """Every CSV file: what made it, on what, how long it trained, and when, from its own columns."""
    rows: list[list[object]] = []
    for path in sorted(results.rglob("*.csv")):
        whole = path.with_stem(path.stem.removesuffix("-episodes"))  # episodes are made by what made their returns
        lines = read(whole if whole.exists() else path)
        name, picture = path.relative_to(results).as_posix(), path.with_suffix(".png").relative_to(results)
        figure = f", [figure]({picture.as_posix()})" if (results / picture).exists() else ""
        device = "; ".join(_seen(lines, "device") or _seen(lines, "machine")) or "not recorded"
        commands = _seen(lines, "command")
        shown = [f"`{command}`" for command in commands[:COMMANDS]]
        if len(commands) > COMMANDS:
            shown.append(f"and {len(commands) - COMMANDS} more, in the file")
        dates = sorted({date[:10] for date in _seen(lines, "date")})
        days = " to ".join(dates[:: max(1, len(dates) - 1)])
        rows.append([f"[{name}]({name}){figure}", "<br>".join(shown), device, _seconds(lines), days])
    return markdown(["file", "command", "device", "seconds of training", "date"], rows)


def _seconds(lines: Rows) -> str:
    """Of all programs in the file: runs of one program share their time, and it is counted once.

    Exactly, since a set has them in another order every time, and a sum of half a second is rounded up or down by it.
    """
    programs = set()
    for line in lines:
        if line.get("train_seconds"):
            names = ("env", "algorithm", "preset", "settings", "demonstrations")
            programs.add((*(line.get(name, "") for name in names), float(line["train_seconds"])))
    return f"{math.fsum(program[-1] for program in programs):.0f}" if programs else ""


def _seen(lines: Rows, column: str) -> list[str]:
    """The values of a column, each once, in their order."""
    return [value for value in dict.fromkeys(line.get(column, "") for line in lines) if value]


def missing_table(results: Path) -> str:
    """What the figures' studies name and no file has yet, with the command for each."""
    rows: list[list[str]] = []
    for given in (True, False):
        source = "the paper's demonstrations" if given else "the bundled demonstrations"
        for task in reward.TASKS:
            for learners, staleness in _unmeasured(results, task, given):
                words = [
                    f"understudy reproduce reward --task {task}",
                    *["--demos FILE"][:given],
                    "--learners",
                    *learners,
                ]
                names = ", ".join(f"`{name}`" for name in learners)
                rows.append([f"Reward moments on {TITLES[task]}, {source}: {names}", " ".join([*words, *staleness])])
        for task in off_q.TASKS:
            learners = _without_returns(results, task, given)
            if learners:
                words = ["understudy reproduce off-q", f"--task {task}", *["--demos FILE"][:given]]
                names = ", ".join(f"`{name}`" for name in learners)
                command = " ".join([*words, "--learners", *learners])
                rows.append([f"Off-Q moments on {TITLES[task]}, {source}: {names}", command])
        for task, env in off_q.TASKS.items():
            lines = figure_studies.lines(results / "bc-table.csv")
            if not any(line["env"] == env and _given(line["demonstrations"]) == given for line in lines):
                command = f"understudy reproduce bc-table --task {task}{' --demos FILE' * given}"
                rows.append([f"The expert and its clone on {TITLES[task]}, {source}", command])
            rows += _unwatched(results, task, env, source) if given else []
        for figure, about in (("balanced", "The two samplings on Ant"), ("f-frequency", "How often f moves")):
            # With the paper's demonstrations both samplings are in the file of reward moments.
            lacking, wanted = (0, 2) if figure == "balanced" and given else _unfinished(results, figure, given)
            if lacking:
                part = f": {lacking} of {wanted} learners to their end" if lacking < wanted else ""
                command = f"understudy reproduce {figure}{' --demos FILE' * given} --staleness 1"
                rows.append([f"{about}, {source}{part}", command])
    return markdown(["what", "command"], [[what, f"`{command}`"] for what, command in rows] or [["nothing", ""]])


def _unmeasured(results: Path, task: str, given: bool) -> list[tuple[list[str], list[str]]]:
    """Learners of a figure that its file lacks, with the option that the stored runs of their kind have."""
    study = figure_studies.paper(f"reward-{task}")
    found = reward.read(figure_studies.lines(results / f"reward-{task}.csv"))
    have = _whole(found, given, study.protocol.steps)
    groups: dict[bool, list[str]] = {}
    for entry in study.algorithms:
        for count in entry.trajectories or ():
            if (entry.name, entry.preset, {}, count) not in have:
                plain = (entry.name, entry.preset) == ("gail", "paper")
                groups.setdefault(plain, []).append(f"{entry.name}:{entry.preset}@{count}")
    return [(learners, [] if plain else ["--staleness 1"]) for plain, learners in groups.items()]


def _whole(found: list[reward.Curve], given: bool, steps: int | None) -> list[tuple[str, str, dict[str, Any], int]]:
    """The learners whose runs went to their end, on demonstrations that were given or on the bundled ones."""
    return [
        (c.algorithm, c.preset, c.settings, c.trajectories)
        for c in found
        if c.bundled != given and max(c.returns) >= (steps or 0)
    ]


def _unfinished(results: Path, figure: str, given: bool) -> tuple[int, int]:
    """Learners of a figure that its file does not have to the end of their runs, and how many there are."""
    study = figure_studies.paper(figure)
    task = study.tasks[0]
    lines = [line for line in figure_studies.lines(results / f"{figure}.csv") if line["env"] == task.env]
    have = _whole(reward.read(lines), given, study.protocol.steps)
    wanted = [
        (entry.name, entry.preset, entry.settings, count)
        for entry in study.algorithms
        for count in entry.trajectories or task.trajectories
    ]
    return sum(one not in have for one in wanted), len(wanted)


def _unwatched(results: Path, task: str, env: str, source: str) -> list[list[str]]:
    """Learners of the ablation that its file lacks."""
    lines = [line for line in figure_studies.lines(results / "adril-ablation.csv") if line["env"] == env]
    have = _whole(reward.read(lines), True, ablation.STEPS)
    wanted = ablation.learners()
    lacking = [
        entry for entry in wanted if (entry.name, entry.preset, entry.settings, ablation.TRAJECTORIES) not in have
    ]
    if not lacking:
        return []
    about = f"What AdRIL's stability rests on, {TITLES[task]}, {source}: {len(lacking)} of {len(wanted)} learners"
    return [[about, f"understudy reproduce ablation --task {task} --demos FILE --staleness 1"]]


def _without_returns(results: Path, task: str, given: bool) -> list[str]:
    """Learners of the offline figure that its file lacks, at some number of trajectories or at all."""
    found = off_q.curves(figure_studies.lines(results / f"off-q-{task}.csv"), "trajectories")
    have = {(c.algorithm, c.preset): set(c.returns) for c in found if c.bundled != given and not c.settings}
    study = figure_studies.paper("off-q")
    counts = set(study.tasks[0].trajectories)
    lacking = [entry for entry in study.algorithms if not counts <= have.get((entry.name, entry.preset), set())]
    return [entry.name if entry.preset == DEFAULT else f"{entry.name}:{entry.preset}" for entry in lacking]


def _given(demonstrations: str) -> bool:
    return demonstrations.partition("@")[0] != BUNDLED
