"""AdRIL without each of its parts: learning curves on the paper's tasks, and where episodes fail.

The runs released with the paper used four components that its text does not mention (`RELEASED`). The preset `paper` is
trained with all of them, with none, with each alone, with each removed, and with the two that matter most, on the
indicator kernel of those runs. The preset `plain` is trained whole and without each of its parts.
`understudy reproduce ablation` runs it.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from understudy.core import display
from understudy.core.errors import DivergedError, NeedsError
from understudy.core.options import Names_, Path_, default
from understudy.evaluation import drawing
from understudy.paper import failures, figure_studies, reward
from understudy.paper.episodes import FIELDS, Episode, parse_episode
from understudy.paper.failure_summary import LEARNED, summarize
from understudy.paper.figure_studies import TASKS, TITLES, Rows, TaskName
from understudy.paper.formatting import with_error
from understudy.paper.reward import DEFAULTS, Options
from understudy.studies import Entry
from understudy.studies.curves import Curve, learner_name
from understudy.studies.groups import Group, load_demonstrations, make_environments, plan_groups
from understudy.studies.records import position
from understudy.studies.report import table
from understudy.studies.work import program_name

RELEASED = {
    "reset_each_round": "resets each round",
    "random_each_round": "random exploration each round",
    "restart_lr_schedule": "restarted learning rate",
    "truncation_is_terminal": "truncation as termination",
}
"""The four components of the released runs: setting → label in the figure."""
PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "indicator kernel": {"kernel": "indicator"},
    "initial temperature 1": {"sac": {"initial_temperature": 1.0}},
    "no averaging": {"average_rounds": 0.0},
    "none of the three": {"kernel": "indicator", "sac": {"initial_temperature": 1.0}, "average_rounds": 0.0},
    "no absorbing states": {"absorbing": False},
    "truncation as termination": {"truncation_is_terminal": True},
}
"""Label in the figure → settings that differ from the preset `plain`."""
PANELS = ("plain, without one part", "recipe, one component alone", "recipe, one component removed")
TRAJECTORIES = 20
STEPS = 300_000
EPISODE_COLUMNS = [*figure_studies.IDENTITY, "expert_return", *FIELDS]
"""Columns of the file of episodes. The file of returns has the command and versions of the same learner."""


def disable(*names: str) -> dict[str, Any]:
    """Settings that switch off some of the four components."""
    return dict.fromkeys(names, False)


TWO = disable("restart_lr_schedule", "truncation_is_terminal")
"""The released recipe with only the two components that matter most."""


def comparison_learners() -> list[Entry]:
    """All learners of the comparison."""
    settings = [("plain", changes) for changes in PARTS.values()]
    settings += [("paper", disable()), ("paper", disable(*RELEASED))]
    settings += [("paper", disable(*(other for other in RELEASED if other != name))) for name in RELEASED]
    settings += [("paper", disable(name)) for name in RELEASED]
    settings += [("paper", TWO)]
    return [figure_studies.parse_learner(_command_name(preset, changes)) for preset, changes in settings]


def _command_name(preset: str, settings: dict[str, Any]) -> str:
    """The learner's name for --learners."""
    changes = "".join(f",{name}={value!r}" for name, value in settings.items())
    return f"adril:{preset}@{TRAJECTORIES}{changes}"


def reproduce_ablation(
    task: TaskName,
    learners: Annotated[Names_, default("those still missing")] = None,
    options: Options = DEFAULTS,
    work: Annotated[Path_, default("runs/ablation")] = None,
    out: Annotated[Path_, default("docs/results/adril-ablation.csv")] = None,
) -> None:
    """Returns of AdRIL without each of its parts, where its episodes fail, and what its critic and payoff say there.

    Args:
        task: Task of the paper.
        learners: Learners to train: an algorithm with an optional preset, number of trajectories and settings, such as
            adril@20,absorbing=False. Without a name: train nothing, and print what the files have. Rows of other
            learners stay.
        work: Directory of checkpoints and finished learners; rerun the command to resume.
        out: CSV file of the returns; the figure, and the episodes in a file whose name ends in -episodes, are written
            next to it.
    """
    path = Path(out or "docs/results/adril-ablation.csv")
    episodes_path = path.with_stem(f"{path.stem}-episodes")
    figure_studies.check_out(path)
    figure_studies.check_out(episodes_path)
    rows, episodes = figure_studies.read_rows(path), figure_studies.read_rows(episodes_path, EPISODE_COLUMNS)
    entries = comparison_learners() if learners is None else figure_studies.parse_learners(learners)
    if entries:
        rows, episodes = _train(
            task, entries, options, Path(work or "runs/ablation"), path, rows, episodes, skip_finished=learners is None
        )
    curves = {name: reward.read([row for row in rows if row["env"] == env]) for name, env in TASKS.items()}
    if not curves[task]:
        raise NeedsError(f"'{path}' has no returns of {task}: name the learners to train with --learners")
    figure = path.with_suffix(".png")
    drawn = f" Figure: {figure}" if draw(curves, figure) else ""
    _print_returns(curves[task])
    _print_failures([row for row in episodes if row["env"] == TASKS[task]])
    print(f"\nReturns: {path}. Episodes: {episodes_path}.{drawn}")


def _train(
    task: TaskName,
    entries: Sequence[Entry],
    options: Options,
    work: Path,
    path: Path,
    rows: Rows,
    episodes: Rows,
    skip_finished: bool,
) -> tuple[Rows, Rows]:
    """Train one learner after the other and merge each into the two files."""
    steps = STEPS if options.steps is None else options.steps
    study = replace(options, steps=steps).study(f"reward-{task}", TASKS[task], entries)
    demonstrations = load_demonstrations(study)
    envs = make_environments(study, demonstrations)
    planned = plan_groups(study, demonstrations)
    if skip_finished:
        planned = [group for group in planned if not _is_finished(group, rows, steps)]
    for group in planned:  # check all before training the first
        failures.check_group(group, demonstrations[group.task.env], envs[group.task.env])
    for group in planned:
        env, directory = group.task.env, work / program_name(group, group.cells)
        try:
            with display.progress_bar(group.name) as report:
                records, recorded = failures.train_and_record(
                    group, demonstrations[env], envs[env], directory, study.hardware.cpus, report
                )
        except DivergedError as error:  # train the other learners
            display.note(f"{group.name}: {error}")
            continue
        rows = figure_studies.merge_rows(rows, table.csv_rows(records), path)
        episodes_path = path.with_stem(f"{path.stem}-episodes")
        episodes = figure_studies.merge_rows(episodes, _episode_rows(group, recorded), episodes_path, EPISODE_COLUMNS)
    return rows, episodes


def _is_finished(group: Group, rows: Rows, steps: int) -> bool:
    """Whether the file has all seeds of a group's learner up to this many steps."""
    columns = table.learner_columns(group.cells[0].config, group.display)
    own = [row for row in rows if all(row[name] == str(columns[name]) for name in figure_studies.IDENTITY)]
    seeds = {row["seed"] for row in own if row["x_kind"] == "env_steps" and position(row) >= steps}
    return {str(cell.seed) for cell in group.cells} <= seeds


def _episode_rows(group: Group, episodes: Sequence[Episode]) -> Rows:
    """A learner's episodes as rows of the file."""
    learner = {**table.learner_columns(group.cells[0].config, group.display), "expert_return": group.expert_return}
    return [{name: _format(value) for name, value in {**learner, **asdict(one)}.items()} for one in episodes]


def _format(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def draw(curves: Mapping[str, Sequence[Curve]], path: Path) -> bool:
    """Draw returns by environment steps, one row of panels per task; False if there is nothing to draw.

    Only learners of the comparison are drawn, and of several sets of demonstrations only the one with most learners.
    """
    rows = {task: _panels(_same_demonstrations(own)) for task, own in curves.items()}
    rows = {task: panels for task, panels in rows.items() if any(panels)}
    if not rows:
        return False
    figure, axes = drawing.figure(len(PANELS), width=4.6, height=3.9, rows=len(rows))
    panels = [(task, *panel) for task, own in rows.items() for panel in zip(PANELS, own, strict=True)]
    for axis, (task, title, labeled) in zip(axes, panels, strict=True):
        for label, (color, curve) in labeled.items():
            samples = {x: sample for x, sample in curve.samples.items() if x < STEPS + reward.WITHIN}
            reward.draw_band(axis, samples, color, label)
        for expert in {curve.expert for _, curve in labeled.values() if curve.expert is not None}:
            axis.axhline(expert, color=drawing.EXPERT, linewidth=1.5, label="the expert")
        axis.set(
            title=f"{TITLES[task]}: {title}",
            xlabel="environment steps",
            ylabel="return\n(mean ± standard error over seeds)",
        )
        reward.label_thousands(axis)
        if labeled:
            axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    drawing.save(figure, path)
    return True


def _same_demonstrations(curves: Sequence[Curve]) -> list[Curve]:
    """The curves of the most common demonstrations; bundled ones only if there are no others."""
    candidates = [curve for curve in curves if not curve.bundled] or curves
    count = Counter(curve.demonstrations for curve in candidates)
    return [curve for curve in candidates if curve.demonstrations == max(count, key=lambda name: count[name])]


def _panels(curves: Sequence[Curve]) -> list[dict[str, tuple[str, Curve]]]:
    """Label → (color, curve) for each panel; a component has the same color in all panels."""

    def select(preset: str, labels: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, Curve]]:
        own = [curve for curve in curves if (curve.preset, curve.trajectories) == (preset, TRAJECTORIES)]
        colored = zip(drawing.LINES, labels.items(), strict=False)
        return {label: (color, curve) for color, (label, off) in colored for curve in own if curve.settings == off}

    ends = {"all four": disable(), "none of the four": disable(*RELEASED)}
    alone = {label: disable(*(other for other in RELEASED if other != name)) for name, label in RELEASED.items()}
    alone["random exploration and resets"] = TWO
    removed = {f"without {label}": disable(name) for name, label in RELEASED.items()}
    return [select("plain", PARTS), select("paper", ends | alone), select("paper", ends | removed)]


def _print_returns(curves: Sequence[Curve]) -> None:
    """Print how each learner ends."""
    rows: list[list[object]] = []
    several = len({curve.demonstrations for curve in curves}) > 1
    for curve in curves:
        name = f"{curve.name} ({curve.demonstrations})" if several else curve.name
        ends = [with_error(curve.last_five), f"{curve.lowest_of_any_seed:.0f}", with_error(curve.final_sample)]
        rows.append([name, f"{max(curve.returns) / 1000:g}k", *ends])
    header = ("learner", ">steps", ">mean of last five", ">lowest of last ten", ">final policy")
    display.show(header, rows, "Return, mean ± standard error over seeds")
    for curve in curves:
        if curve.stopped:
            print(f"{curve.name}: {reward.stopped_seeds(curve)}")


def _print_failures(rows: Rows) -> None:
    """Print where the episodes of each learner fail after it has learned, and what critics and payoffs say there."""
    learners: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        learners.setdefault(tuple(row[name] for name in figure_studies.IDENTITY), []).append(row)
    several = len({demonstrations.partition("@")[0] for *_, demonstrations in learners}) > 1
    counts: list[list[object]] = []
    diagnostics: list[list[object]] = []
    for (_, algorithm, preset, settings, count, demonstrations), own in learners.items():
        name = learner_name(algorithm, preset, json.loads(settings), int(count))
        name += f" ({demonstrations.partition('@')[0]})" * several
        summary = summarize([parse_episode(row) for row in own], float(own[0]["expert_return"]))
        early = summary.early if summary.failed else ""
        learned = f"{summary.learned} of {summary.seeds}"
        counts.append([name, learned, summary.episodes, summary.failed, early, _number(summary.failed_at, 0)])
        if summary.failed:
            values = [summary.value_failed, summary.value_succeeded]
            values += [summary.demonstrated_value_failing, summary.demonstrated_value_others]
            values += [summary.payoff_failed, summary.payoff_succeeded, summary.payoff_auc]
            diagnostics.append([name, summary.mixed_policies, *map(_number, values)])
    header = ("learner", ">seeds", ">episodes", ">failed", ">by step 50", ">median step of failure")
    display.show(header, counts, f"\nEpisodes after a seed first reaches {LEARNED:.0%} of the expert's return")
    if diagnostics:
        columns = (
            *("learner", ">mixed policies", ">value at failure", ">value elsewhere"),
            *(">demonstrated, failing", ">demonstrated, others"),
            *(">payoff, failed", ">payoff, others", ">AUC of the payoff"),
        )
        title = "Critic values where episodes fail and at demonstrated states, and the payoff of single episodes"
        display.show(columns, diagnostics, f"\n{title}")


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
