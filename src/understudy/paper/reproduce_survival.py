"""`understudy reproduce survival`: what absorbing states do, on CartPole with an expert that soon drops the pole."""

from pathlib import Path

from understudy.cli.study_commands import records, told
from understudy.core import display
from understudy.core.errors import RunError, check_whole
from understudy.core.options import Path_
from understudy.core.storage import check_place
from understudy.paper import figure_studies, survival
from understudy.paper.reproduce import with_error
from understudy.studies import Store
from understudy.studies.report import table
from understudy.studies.running import run
from understudy.train.results import write_csv


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
        work: Where cells are kept as they finish; the same command goes on from there. Default: runs/survival.
        out: The CSV file of lengths; the figure goes beside it. Default: docs/results/survival.csv.
    """
    check_whole(1, trajectories=trajectories, steps=steps, seeds=seeds, episodes=episodes)
    path = Path(out or "docs/results/survival.csv")
    check_place(path)
    figure_studies.lines(path)  # a file of something else is refused before anything is trained
    place = Path(work or "runs/survival")
    demos = place.parent / f"{place.name}-{trajectories}-demos.npz"
    survival.demonstrations(trajectories).save(str(demos))
    study = survival.study(demos, steps, seeds, episodes)
    told(study, place, done := run(study, place, jobs=1))
    if done.failed:
        raise RunError(f"not all learners could be trained: {', '.join(done.failed)}")
    cells = records(study.groups(), Store(place))
    lines = [survival.expert_line(1000), *table.lines(cells)]
    write_csv(path, table.COLUMNS, (list(line.values()) for line in lines))
    survival.draw(lines, path.with_suffix(".png"))
    _tell(lines)
    print(f"\nThe lengths: {path}. The figure: {path.with_suffix('.png')}")


def _tell(found: list[dict[str, str]]) -> None:
    """A line for each learner: how long it lives at the end of training, and at its longest."""
    expert, curves = survival.lengths(found)
    lines: list[list[object]] = []
    for curve in curves:
        longest = max(means.max() for means in curve.returns.values())
        who, absorbing = survival.named(curve)
        after = "an absorbing state" if absorbing else "nothing"
        lines.append([who, after, with_error(curve.last_five, 1), f"{longest:.1f}", with_error(curve.handed_over, 1)])
    title = (
        f"{survival.ENV}: steps until the pole falls; the expert's are {expert.mean:.1f}. Mean ± standard error over "
        "seeds of the last five evaluations, the longest of any, and that of the policies that are handed over"
    )
    display.show(("learner", "after an end", ">last five", ">longest", ">handed over"), lines, title)
