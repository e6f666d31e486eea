"""`understudy reproduce reward|balanced|f-frequency`: learning curves, with the paper's beside ours."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from understudy.core import display
from understudy.core.errors import NeedsError
from understudy.core.options import Path_
from understudy.core.storage import check_place
from understudy.paper import figure_studies, published, reward
from understudy.paper.reproduce import with_error
from understudy.studies import Entry, Study

SHOWN = (25_000, 50_000, 75_000, 100_000, 200_000, 300_000, 400_000, 500_000)
Task = Literal["halfcheetah", "ant"]


@dataclass(frozen=True)
class Online:
    """What is asked of every figure whose learners practise in the environment."""

    demos: Path_ = None
    """An npz file of demonstrations. Default: the bundled ones."""
    steps: int | None = None
    """Environment steps of each run. Default: 500,000; of the ablation 300,000."""
    every: int | None = None
    """Steps from one evaluation to the next, or from one move of f where that is more. Default: 25,000."""
    seeds: int | None = None
    """Seeds of each learner. Default: 5."""
    episodes: int | None = None
    """Episodes that a policy plays in an evaluation. Default: 10."""
    staleness: int = 0
    """Updates that the policies that play are behind; 1 steps and learns at once, which is faster."""
    workers: int = 0
    """Processes for schedule and playing. Default: one for each core."""

    def study(self, figure: str, env: str, entries: Sequence[Entry] = ()) -> Study:
        """The figure's study, with what was asked."""
        return figure_studies.adapted(
            figure_studies.paper(figure),
            *(env, self.demos, self.seeds, self.workers or os.cpu_count() or 1, entries),
            steps=self.steps,
            every=self.every,
            episodes=self.episodes,
            staleness=self.staleness,
        )


Options = Annotated[Online, tyro.conf.arg(name="")]
"""Without a prefix on the command line."""
AS_IT_IS = Online()


def reproduce_reward(
    task: Task,
    learners: tuple[str, ...] | None = None,
    options: Options = AS_IT_IS,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """AdRIL, SQIL and GAIL by environment steps, with the paper's curves beside ours.

    Args:
        task: The paper's task.
        learners: Others than the figure's: each an algorithm, with a preset, trajectories and settings that differ, as
            in adril:paper@20,round_steps=2500. None: draw what the file has. Lines of learners that are not named stay.
        work: Where cells are kept as they finish; the same command goes on from there. Default: runs/reward-TASK.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/reward-TASK.csv.
    """
    entries = None if learners is None else figure_studies.entries(learners)
    _reproduce(f"reward-{task}", task, options, work, out, entries)


def reproduce_balanced(options: Options = AS_IT_IS, work: Path_ = None, out: Path_ = None) -> None:
    """Standard against balanced sampling of AdRIL on Ant.

    Args:
        work: Where cells are kept; shared with the figure of reward moments. Default: runs/reward-ant.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/balanced.csv.
    """
    _reproduce("balanced", "ant", options, work, out)


def reproduce_f_frequency(
    task: Task = "halfcheetah", options: Options = AS_IT_IS, work: Path_ = None, out: Path_ = None
) -> None:
    """AdRIL with a moment function that moves every 1,250 to 50,000 environment steps.

    Args:
        task: The paper's task.
        work: Where cells are kept; shared with the figure of reward moments. Default: runs/reward-TASK.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/f-frequency.csv, or on Ant
            f-frequency-ant.csv.
    """
    _reproduce("f-frequency", task, options, work, out or f"docs/results/f-frequency{'-ant' * (task == 'ant')}.csv")


def _reproduce(
    figure: str,
    task: Task,
    options: Online,
    work: str | None,
    out: str | None,
    entries: Sequence[Entry] | None = None,
) -> None:
    env = reward.TASKS[task]
    path = Path(out or f"docs/results/{figure}.csv")
    check_place(path)
    if entries is not None and not entries:
        lines = figure_studies.lines(path)
    else:
        study = options.study(figure, env, entries or ())
        lines = figure_studies.measured(study, work or f"runs/reward-{task}", path, display.progress_bar)
    lines = [line for line in lines if line["env"] == env]
    if not lines:
        raise NeedsError(f"'{path}' has no returns to draw on {env}: name learners")
    found = reward.read(lines)
    pictures = reward.draw(env, found, path.with_suffix(".png"))
    _tell(env, found)
    print(f"\nThe returns: {path}. The figure: {', '.join(map(str, pictures))}")


def _tell(env: str, found: list[reward.Curve]) -> None:
    """The table by steps, ours and published, and how each ends."""
    evaluated = sorted({x for curve in found for x in curve.returns})
    columns = [x for x in SHOWN if x in evaluated] or evaluated[-len(SHOWN) :]
    rows: list[list[object]] = []
    for curve, name in zip(found, reward.told_apart(found), strict=True):
        shown = "bundled" if curve.bundled else ""
        rows.append([name, shown or "ours", *(with_error(curve.samples.get(x)) for x in columns)])
        if curve.papers:
            theirs = published.reward(env, curve.published)
            rows.append(["", "published", *(with_error(theirs.get(x)) for x in columns)])
    experts = sorted({round(curve.expert) for curve in found if curve.expert is not None})
    known = f" (the expert: {' or '.join(map(str, experts))})" if experts else ""
    title = f"{env}{known}: return, mean ± standard error over seeds, by environment steps"
    display.show(("learner", "", *(f">{x / 1000:g}k" for x in columns)), rows, title)
    print()
    for curve in found:
        chosen = f"; chosen by its payoff {with_error(curve.handed_over)}" if curve.handed_over is not None else ""
        print(
            f"{curve.name}{' (bundled demonstrations)' if curve.bundled else ''}: last evaluation "
            f"{with_error(curve.last)}, mean of the last five {with_error(curve.last_five)}, lowest of a seed in the "
            f"last ten {curve.lowest:.0f}{chosen}. {reward.stopped(curve)}"
            f"{len(next(iter(curve.returns.values())))} seeds, {curve.seconds:.0f} s on {curve.device}."
        )
