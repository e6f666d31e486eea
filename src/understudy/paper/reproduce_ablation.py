"""`understudy reproduce ablation`: what AdRIL's stability rests on, where episodes fail, and who sees it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from understudy.core import display
from understudy.core.errors import DivergedError, NeedsError
from understudy.core.options import Path_
from understudy.core.storage import check_place
from understudy.paper import ablation, failures, figure_studies, reward
from understudy.paper.episodes import FIELDS, Episode, episode
from understudy.paper.failure_summary import LEARNED, summed_up
from understudy.paper.reproduce import with_error
from understudy.paper.reproduce_reward import AS_IT_IS, Options, Task
from understudy.studies.groups import Group, check_tasks, groups, load_demonstrations
from understudy.studies.report import table
from understudy.studies.training import called, named

COLUMNS = [*figure_studies.IDENTITY, "expert_return", *FIELDS]
"""Of the file of episodes. What made them is said once, in the file of returns, by the same learner."""


def reproduce_ablation(
    task: Task,
    learners: tuple[str, ...] | None = None,
    options: Options = AS_IT_IS,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """AdRIL with and without what it is made of: its returns, where its episodes fail, and who sees it.

    Args:
        task: The paper's task.
        learners: Who is trained: each an algorithm, with a preset, trajectories and settings that differ, as in
            adril@20,absorbing=False. Default: those of the eighteen of the table that the file does not have to that
            many steps. The option with no name after it: tell what the files have. Lines of others stay.
        work: Where training keeps its place; the same command goes on from there, and learners that are finished are
            not trained again. Default: runs/ablation.
        out: The CSV file of returns; that of episodes goes beside it, with -episodes in its name, and so does the
            figure. Default: docs/results/adril-ablation.csv.
    """
    path = Path(out or "docs/results/adril-ablation.csv")
    beside = path.with_stem(f"{path.stem}-episodes")
    check_place(path)
    check_place(beside)
    lines, played = figure_studies.lines(path), figure_studies.lines(beside, COLUMNS)
    entries = ablation.learners() if learners is None else figure_studies.entries(learners)
    if entries:
        steps = ablation.STEPS if options.steps is None else options.steps
        study = replace(options, steps=steps).study(f"reward-{task}", reward.TASKS[task], entries)
        shown, envs = load_demonstrations(study), check_tasks(study)
        planned = groups(study, shown)
        if learners is None:
            planned = [group for group in planned if not _whole(group, lines, steps)]
        for group in planned:  # all of them, before any is trained
            failures.check(group, shown[group.task.env], envs[group.task.env])
        for group in planned:
            env, place = group.task.env, Path(work or "runs/ablation") / named(group, group.cells)
            try:
                with display.progress_bar(called(group)) as report:
                    records, found = failures.watched(group, shown[env], envs[env], place, study.hardware.cpus, report)
            except DivergedError as error:  # the others go on
                display.note(f"{called(group)}: {error}")
                continue
            lines = figure_studies.merged(lines, table.lines(records), path)
            played = figure_studies.merged(played, _episodes(group, found), beside, COLUMNS)
    curves = {name: reward.read([line for line in lines if line["env"] == env]) for name, env in reward.TASKS.items()}
    if not curves[task]:
        raise NeedsError(f"'{path}' has no returns of {task}: name learners")
    picture = path.with_suffix(".png")
    drawn = f" The figure: {picture}" if ablation.draw(curves, picture) else ""
    _tell(curves[task])
    _tell_failures([line for line in played if line["env"] == reward.TASKS[task]])
    print(f"\nThe returns: {path}. The episodes: {beside}.{drawn}")


def _whole(group: Group, lines: list[dict[str, str]], steps: int) -> bool:
    """Whether the file has a group's learner to that many steps, with all its seeds."""
    asked = table.learner(group.cells[0].asked, group.shown)
    own = [line for line in lines if all(line[name] == str(asked[name]) for name in figure_studies.IDENTITY)]
    seeds = {line["seed"] for line in own if line["x_kind"] == "env_steps" and int(line["x"]) >= steps}
    return {str(cell.seed) for cell in group.cells} <= seeds


def _episodes(group: Group, found: list[Episode]) -> list[dict[str, str]]:
    """A learner's episodes as lines of the file."""
    about = {**table.learner(group.cells[0].asked, group.shown), "expert_return": group.expert_return}
    return [{name: _written(value) for name, value in {**about, **asdict(one)}.items()} for one in found]


def _written(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _tell(curves: list[reward.Curve]) -> None:
    """How each learner ends."""
    rows: list[list[object]] = []
    several = len({curve.demonstrations for curve in curves}) > 1
    for curve in curves:
        name = f"{curve.name} ({curve.demonstrations})" if several else curve.name
        ends = [with_error(curve.last_five), f"{curve.lowest:.0f}", with_error(curve.handed_over)]
        rows.append([name, f"{max(curve.returns) / 1000:g}k", *ends])
    header = ("learner", ">until", ">mean of last five", ">lowest of last ten", ">chosen by payoff")
    display.show(header, rows, "Return, mean ± standard error over seeds")
    for curve in curves:
        if curve.stopped:
            print(f"{curve.name}: {reward.stopped(curve)}")


def _tell_failures(lines: list[dict[str, str]]) -> None:
    """Where the episodes of each learner fail, once it has learned, and who sees it."""
    learners: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for line in lines:
        learners.setdefault(tuple(line[name] for name in figure_studies.IDENTITY), []).append(line)
    several = len({demonstrations.partition("@")[0] for *_, demonstrations in learners}) > 1
    where: list[list[object]] = []
    seen: list[list[object]] = []
    for (_, algorithm, preset, settings, count, demonstrations), own in learners.items():
        name = reward.named(algorithm, preset, json.loads(settings), int(count))
        name += f" ({demonstrations.partition('@')[0]})" * several
        told = summed_up([episode(line) for line in own], float(own[0]["expert_return"]))
        early = told.early if told.failed else ""
        learned = f"{told.learned} of {told.seeds}"
        where.append([name, learned, told.episodes, told.failed, early, _number(told.lost_at, 0)])
        if told.failed:
            beliefs = (told.belief_failed, told.belief_good, told.shown_failing, told.shown_steady)
            payoffs = (told.payoff_failed, told.payoff_good, told.told_apart)
            seen.append([name, told.both, *map(_number, (*beliefs, *payoffs))])
    header = ("learner", ">seeds", ">played", ">failed", ">by step 50", ">lost at")
    display.show(header, where, f"\nEpisodes after a seed first came to {LEARNED:.0%} of the expert's return")
    if seen:
        columns = (
            *("learner", ">both", ">where lost", ">elsewhere", ">shown: failing", ">others"),
            *(">payoff: failed", ">others", ">told apart"),
        )
        title = "Who sees it: critics of policies that do both, critics of the shown states, the payoff of an episode"
        display.show(columns, seen, f"\n{title}")


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
