"""`understudy reproduce reward`: AdRIL and SQIL by environment steps, with the paper's curves beside ours."""

import os
from pathlib import Path
from typing import Literal

from understudy import display
from understudy.commands import Path_
from understudy.data import bundled, load
from understudy.errors import NeedsError, SettingError, check_whole
from understudy.experiments import published, reward
from understudy.reproduce import with_error
from understudy.results import write_csv
from understudy.statistics import Sample
from understudy.storage import check_place

LEARNERS = ("adril:paper@20", "sqil:paper@5")
SHOWN = (25_000, 50_000, 75_000, 100_000, 200_000, 300_000, 400_000, 500_000)


def reproduce_reward(
    task: Literal["halfcheetah", "ant"],
    demos: Path_ = None,
    learners: tuple[str, ...] = LEARNERS,
    steps: int = 500_000,
    every: int = published.REWARD_EVERY,
    seeds: int = published.SEEDS,
    episodes: int = 10,
    lag: int = 0,
    workers: int = 0,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """Return against environment steps for what matches reward moments, with the paper's curves beside ours.

    Args:
        task: The paper's task.
        demos: An npz file of demonstrations. Default: the bundled ones.
        learners: Algorithms, each with a preset if it is not the default and a number of trajectories: adril:paper@20.
            None: draw what the file has. Rows of learners that are not named stay in it.
        steps: Environment steps of each run.
        every: Steps from one evaluation to the next.
        seeds: Seeds of each learner.
        episodes: Episodes that a policy plays in an evaluation.
        lag: Updates that the policies that play are behind; 1 steps and learns at once, which is faster.
        workers: Processes for stepping and playing. Default: one for each core.
        work: Where runs are kept as they finish; the same command goes on from there. Default: runs/reward-TASK.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/reward-TASK.csv.
    """
    check_whole(1, steps=steps, every=every, seeds=seeds, episodes=episodes)
    env = reward.TASKS[task]
    path = Path(out or f"docs/results/reward-{task}.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    check_place(path)
    chosen = [reward.Learner.named(name, steps, lag) for name in learners]
    if chosen and demos is None and env not in bundled():
        raise NeedsError(f"no demonstrations of {env} are bundled: pass --demos, an npz file of them")
    rows = reward.others(path, chosen)
    for who in chosen:
        rows += reward.run(
            who,
            load(demos or env),
            env,
            seeds,
            every,
            episodes,
            work or f"runs/reward-{task}",
            workers or os.cpu_count() or 1,
            display.progress_bar,
        )
        # Now, and not at the end: what follows may fail or be interrupted.
        write_csv(path, [*reward.COLUMNS, *reward.MORE], rows)
    if not rows:
        raise NeedsError(f"'{path}' has no returns to draw: name learners")
    found, expert = reward.read(rows), published.EXPERT[env]
    reward.draw(env, found, expert, path.with_suffix(".png"))
    _tell(env, found, reward.read(rows, reward.HANDED), expert)
    print(f"\nThe returns: {path}. The figure: {path.with_suffix('.png')}")


def _tell(env: str, found: list[reward.Curve], handed: list[reward.Curve], expert: float) -> None:
    """The table by steps, ours and published, and how each ends."""
    columns = [x for x in SHOWN if any(x in curve.returns for curve in found)]
    lines: list[list[object]] = []
    for curve in found:
        theirs = published.reward(env, curve.published)
        lines.append([curve.name, "ours", *(with_error(curve.samples.get(x)) for x in columns)])
        lines.append(["", "published", *(with_error(theirs.get(x)) for x in columns)])
    title = f"{env} (the expert: {expert:.0f}): return, mean ± standard error over seeds, by environment steps"
    display.show(("learner", "", *(f">{x // 1000}k" for x in columns)), lines, title)
    print()
    for curve, best in zip(found, handed, strict=True):
        last = curve.samples[max(curve.samples)]
        chosen = Sample.of(next(iter(best.returns.values())))
        print(
            f"{curve.name}: last evaluation {with_error(last)}, mean of the last five {with_error(curve.last_five)}, "
            f"lowest of a seed in the last ten {curve.lowest:.0f}; chosen by its payoff {with_error(chosen)}."
        )
