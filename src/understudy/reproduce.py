"""`understudy reproduce FIGURE`: the paper's figures as commands, over `experiments`."""

import os
from pathlib import Path
from typing import Literal

from understudy import display
from understudy.commands import Path_
from understudy.data import load
from understudy.errors import SettingError
from understudy.experiments import off_q, published
from understudy.results import write_csv
from understudy.statistics import Sample
from understudy.storage import check_place


def reproduce_off_q(
    task: Literal["halfcheetah", "ant"],
    demos: Path_ = None,
    learners: tuple[str, ...] = off_q.LEARNERS,
    trajectories: tuple[int, ...] = published.TRAJECTORIES,
    seeds: int = published.SEEDS,
    episodes: int = 10,
    workers: int = 0,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """Return against the number of demonstrations for BC, ValueDICE and AdVIL, with the paper's points beside ours.

    Args:
        task: The paper's task.
        demos: An npz file of demonstrations. Default: the bundled ones.
        learners: Algorithms, each with a preset if it is not the default, such as advil:paper.
        trajectories: Numbers of demonstrated trajectories.
        seeds: Seeds for each.
        episodes: Episodes that each policy plays.
        workers: Processes for playing. Default: one for each core.
        work: Where runs are kept as they finish; the same command goes on from there. Default: runs/off-q-TASK.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/off-q-TASK.csv.
    """
    env = off_q.TASKS[task]
    path = Path(out or f"docs/results/off-q-{task}.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    check_place(path)
    for name in learners:
        off_q.learner(name)
    demonstrations = load(demos or env)
    header, rows = off_q.run(
        demonstrations,
        env,
        learners,
        trajectories,
        seeds,
        episodes,
        work or f"runs/off-q-{task}",
        workers or os.cpu_count() or 1,
        display.progress_bar,
    )
    write_csv(path, header, rows)
    found = off_q.curves(header, rows)
    expert = demonstrations.expert_return.mean if demonstrations.expert_return is not None else None
    off_q.draw(env, found, expert, path.with_suffix(".png"))
    counts = sorted(trajectories)
    lines: list[list[object]] = []
    for curve in found:
        theirs = published.off_q(env, curve.algorithm)
        lines.append([curve.name, "ours", *(with_error(curve.samples.get(count)) for count in counts)])
        lines.append(["", "published", *(with_error(theirs.get(count)) for count in counts)])
    known = "" if expert is None else f" (the expert: {expert:.0f})"
    title = f"{env}{known}: return, mean ± standard error over seeds, by demonstrated trajectories"
    display.show(("learner", "", *(f">{count}" for count in counts)), lines, title)
    print()
    for curve in found:
        verdict = off_q.compare(curve, env)
        if verdict is not None:
            below = f"at {', '.join(map(str, verdict.below))} trajectories" if verdict.below else "nowhere"
            print(
                f"{curve.name}: {verdict.ours:.0f} over the published sizes, published {verdict.theirs:.0f}; "
                f"significantly below the published {below} (95%, Holm)."
            )
    print(f"\nThe returns: {path}. The figure: {path.with_suffix('.png')}")


def with_error(sample: Sample | None) -> str:
    """Mean ± standard error; nothing where there is no sample."""
    if sample is None:
        return ""
    return f"{sample.mean:.0f}" if sample.size < 2 else f"{sample.mean:.0f} ± {sample.standard_error:.0f}"
