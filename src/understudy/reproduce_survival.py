"""`understudy reproduce survival`: what absorbing states do, on CartPole with an expert that soon drops the pole."""

import shutil
from pathlib import Path
from typing import Any

from understudy import display
from understudy.commands import Path_
from understudy.errors import SettingError, check_whole
from understudy.experiments import reward, survival
from understudy.results import write_csv
from understudy.statistics import Sample
from understudy.storage import check_place


def reproduce_survival(
    trajectories: int = 20,
    steps: int = 20_480,
    seeds: int = 4,
    episodes: int = 20,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """How long AdRIL and SQIL live, with absorbing states and without, when they imitate an expert that does not.

    Args:
        trajectories: Demonstrated episodes that each learner is given.
        steps: Environment steps of each run.
        seeds: Seeds of each learner.
        episodes: Episodes that a policy plays in an evaluation.
        work: Where runs are kept until all have finished; the same command goes on from there. Default: runs/survival.
        out: The CSV file of lengths; the figure goes beside it. Default: docs/results/survival.csv.
    """
    check_whole(1, trajectories=trajectories, steps=steps, seeds=seeds, episodes=episodes)
    path = Path(out or "docs/results/survival.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    check_place(path)
    place = Path(work or "runs/survival") / f"{trajectories}-{steps}-{seeds}-{episodes}"
    shown = survival.demonstrations(trajectories)
    rows: list[list[Any]] = [[str(cell) for cell in survival.expert_row(1000)]]
    for who in survival.learners(steps, trajectories):
        rows += reward.run(
            who,
            shown,
            survival.ENV,
            seeds,
            survival.ROUND_STEPS,
            episodes,
            place,
            0,  # CartPole steps faster than a message travels
            display.progress_bar,
        )
        # Now, and not at the end: what follows may be interrupted.
        write_csv(path, [*reward.COLUMNS, *reward.MORE], rows)
    survival.draw(rows, path.with_suffix(".png"))
    shutil.rmtree(place, ignore_errors=True)  # else other settings of the learners would find it, and not be tried
    _tell(rows)
    print(f"\nThe lengths: {path}. The figure: {path.with_suffix('.png')}")


def _tell(rows: list[list[Any]]) -> None:
    """A line for each learner: how long it lives at the end of training, and at its longest."""
    expert, curves = survival.lengths(rows)
    handed = reward.read(rows, reward.HANDED)
    lines: list[list[object]] = []
    for curve, best in zip(curves, handed, strict=True):
        longest = max(means.max() for means in curve.returns.values())
        chosen = Sample.of(next(iter(best.returns.values())))
        who, absorbing = survival.named(curve)
        after = "an absorbing state" if absorbing else "nothing"
        lines.append([who, after, with_error(curve.last_five), f"{longest:.1f}", with_error(chosen)])
    title = (
        f"{survival.ENV}: steps until the pole falls; the expert's are {expert.mean:.1f}. Mean ± standard error over "
        "seeds of the last five evaluations, the longest of any, and that of the policies that are handed over"
    )
    display.show(("learner", "after an end", ">last five", ">longest", ">handed over"), lines, title)


def with_error(sample: Sample) -> str:
    """Mean ± standard error."""
    return f"{sample.mean:.1f}" if sample.size < 2 else f"{sample.mean:.1f} ± {sample.standard_error:.1f}"
