"""The stored results as Markdown tables: how each CSV file of a folder was made, and the runs that are missing."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison import markdown, read
from understudy.game import DEFAULT
from understudy.paper import ablation, figure_studies, off_q, reward
from understudy.paper.figure_studies import TASKS, TITLES, Rows
from understudy.studies.curves import Curve
from understudy.studies.plan import BUNDLED

MAX_COMMANDS = 6
"""Commands that a cell of the table shows. The file itself has all of them."""
Learner = tuple[str, str, Mapping[str, Any], int | None]
"""Algorithm, preset, settings, trajectories."""


def files_table(results: Path) -> str:
    """Every CSV file: its command, device, training time and date, from its own columns."""
    rows: list[list[object]] = []
    for path in sorted(results.rglob("*.csv")):
        returns = path.with_stem(path.stem.removesuffix("-episodes"))  # has the columns that a file of episodes lacks
        stored = read(returns if returns.exists() else path)
        name, figure = path.relative_to(results).as_posix(), path.with_suffix(".png").relative_to(results)
        link = f", [figure]({figure.as_posix()})" if (results / figure).exists() else ""
        device = "; ".join(_distinct(stored, "device") or _distinct(stored, "machine")) or "not recorded"
        commands = _distinct(stored, "command")
        cells = [f"`{command}`" for command in commands[:MAX_COMMANDS]]
        if len(commands) > MAX_COMMANDS:
            cells.append(f"and {len(commands) - MAX_COMMANDS} more, in the file")
        dates = sorted({date[:10] for date in _distinct(stored, "date")})
        days = " to ".join(dates[:: max(1, len(dates) - 1)])
        rows.append([f"[{name}]({name}){link}", "<br>".join(cells), device, _seconds(stored), days])
    return markdown(["file", "command", "device", "seconds of training", "date"], rows)


def fuzz_table(results: Path) -> str:
    """What became of damaged files."""
    return _columns(results / "fuzz.csv", ("kind", "damaged", "ways", "refused", "valid", "failures"))


def quick_table(results: Path) -> str:
    """Seconds and returns of the preset "quick"."""
    header = ["algorithm", "task", "seconds", "CPU seconds", "expert's return", "return", "lowest seed", "highest seed"]
    names = ("algorithm", "env", "train_seconds", "cpu_seconds", "expert_return", "return", "lowest", "highest")
    return markdown(header, [[row[name] for name in names] for row in read(results / "quick.csv")])


def soak_table(results: Path) -> str:
    """What became of commands under attack."""
    counts = ("tried", "commands", "kills", "survived", "refused", "lost", "accepted", "traceback", "hung", "touched")
    return _columns(results / "soak.csv", ("trial", *counts))


def _columns(path: Path, names: Sequence[str]) -> str:
    """Some columns of a file."""
    return markdown(list(names), [[row[name] for name in names] for row in read(path)])


def _seconds(rows: Rows) -> str:
    """Training time of all programs in a file. The runs of one program share its time, which counts once.

    fsum is exact, so the order of the set does not matter.
    """
    programs = set()
    for row in rows:
        if row.get("train_seconds"):
            names = ("env", "algorithm", "preset", "settings", "demonstrations")
            programs.add((*(row.get(name, "") for name in names), float(row["train_seconds"])))
    return f"{math.fsum(program[-1] for program in programs):.0f}" if programs else ""


def _distinct(rows: Rows, column: str) -> list[str]:
    """The distinct values of a column, in their order."""
    return [value for value in dict.fromkeys(row.get(column, "") for row in rows) if value]


def missing_table(results: Path) -> str:
    """The learners of the figures' studies that no file has yet, with the command that runs them."""
    rows: list[list[str]] = []
    for given in (True, False):
        source = "the paper's demonstrations" if given else "the bundled demonstrations"
        demos = " --demos FILE" if given else ""
        for task in TASKS:
            for learners, staleness in _missing_reward(results, task, given):
                command = f"understudy reproduce reward --task {task}{demos} --learners {' '.join(learners)}{staleness}"
                rows.append([f"Reward moments on {TITLES[task]}, {source}: {_code(learners)}", command])
        for task in TASKS:
            learners = _missing_off_q(results, task, given)
            if learners:
                command = f"understudy reproduce off-q --task {task}{demos} --learners {' '.join(learners)}"
                rows.append([f"Off-Q moments on {TITLES[task]}, {source}: {_code(learners)}", command])
        for task, env in TASKS.items():
            stored = figure_studies.read_rows(results / "bc-table.csv")
            if not any(row["env"] == env and _is_given(row["demonstrations"]) == given for row in stored):
                command = f"understudy reproduce bc-table --task {task}{demos}"
                rows.append([f"The expert and behavioral cloning on {TITLES[task]}, {source}", command])
            rows += _missing_ablation(results, task, env, source) if given else []
        for figure, about in (
            ("balanced", "Standard and balanced minibatches on Ant"),
            ("f-frequency", "Updates of f"),
        ):
            # With the paper's demonstrations both are in the file of reward moments.
            missing, total = (0, 2) if figure == "balanced" and given else _missing_figure(results, figure, given)
            if missing:
                part = f": {missing} of {total} learners are not finished" if missing < total else ""
                rows.append([f"{about}, {source}{part}", f"understudy reproduce {figure}{demos} --staleness 1"])
    return markdown(["what", "command"], [[what, f"`{command}`"] for what, command in rows] or [["nothing", ""]])


def _code(learners: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in learners)


def _missing_reward(results: Path, task: str, given: bool) -> list[tuple[list[str], str]]:
    """Missing learners of the figure of reward moments, with the option that the stored runs of their kind have."""
    study = figure_studies.load_study(f"reward-{task}")
    curves = reward.read(figure_studies.read_rows(results / f"reward-{task}.csv"))
    finished = _finished(curves, given, study.protocol.steps)
    groups: dict[bool, list[str]] = {}
    for entry in study.algorithms:
        for count in entry.trajectories or ():
            if (entry.name, entry.preset, {}, count) not in finished:
                is_gail = (entry.name, entry.preset) == ("gail", "paper")
                groups.setdefault(is_gail, []).append(f"{entry.name}:{entry.preset}@{count}")
    return [(learners, "" if is_gail else " --staleness 1") for is_gail, learners in groups.items()]


def _finished(curves: Sequence[Curve], given: bool, steps: int | None) -> list[Learner]:
    """Learners whose runs reached their last step, on given or on bundled demonstrations."""
    return [
        (curve.algorithm, curve.preset, curve.settings, curve.trajectories)
        for curve in curves
        if curve.bundled != given and max(curve.returns) >= (steps or 0)
    ]


def _missing_figure(results: Path, figure: str, given: bool) -> tuple[int, int]:
    """The number of a figure's learners that have not finished, and of all its learners."""
    study = figure_studies.load_study(figure)
    task = study.tasks[0]
    stored = [row for row in figure_studies.read_rows(results / f"{figure}.csv") if row["env"] == task.env]
    finished = _finished(reward.read(stored), given, study.protocol.steps)
    learners: list[Learner] = [
        (entry.name, entry.preset, entry.settings, count)
        for entry in study.algorithms
        for count in entry.trajectories or task.trajectories
    ]
    return sum(learner not in finished for learner in learners), len(learners)


def _missing_ablation(results: Path, task: str, env: str, source: str) -> list[list[str]]:
    stored = [row for row in figure_studies.read_rows(results / "adril-ablation.csv") if row["env"] == env]
    finished = _finished(reward.read(stored), True, ablation.STEPS)
    learners = ablation.comparison_learners()
    missing = [
        entry for entry in learners if (entry.name, entry.preset, entry.settings, ablation.TRAJECTORIES) not in finished
    ]
    if not missing:
        return []
    about = f"Ablation of AdRIL, {TITLES[task]}, {source}: {len(missing)} of {len(learners)} learners"
    return [[about, f"understudy reproduce ablation --task {task} --demos FILE --staleness 1"]]


def _missing_off_q(results: Path, task: str, given: bool) -> list[str]:
    """Learners of the offline figure that are missing at some number of trajectories."""
    curves = off_q.read(figure_studies.read_rows(results / f"off-q-{task}.csv"))
    stored = {(c.algorithm, c.preset): set(c.returns) for c in curves if c.bundled != given and not c.settings}
    study = figure_studies.load_study("off-q")
    counts = set(study.tasks[0].trajectories)
    missing = [entry for entry in study.algorithms if not counts <= stored.get((entry.name, entry.preset), set())]
    return [entry.name if entry.preset == DEFAULT else f"{entry.name}:{entry.preset}" for entry in missing]


def _is_given(demonstrations: str) -> bool:
    return demonstrations.partition("@")[0] != BUNDLED
