"""`understudy demo` (`make demo`): train on bundled demonstrations, measure the gap to the expert, draw a figure.

On Pendulum the expert is nearly deterministic, and behavioral cloning closes the gap as demonstrations are added. On
Forest the expert dodges trees left or right at random. Behavioral cloning learns the mean action and flies into a tree,
however many demonstrations there are. DAgger queries the expert and learns the same mean. DAeQuIL matches our own
moments (`paper.forest_trials.clear_swerve`), which see the tree map in training, and avoids most trees.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from understudy import data
from understudy.algorithms.off_q.bc import BC
from understudy.algorithms.on_q.daequil import DAeQuIL
from understudy.algorithms.on_q.dagger import DAgger
from understudy.collect.recorder import Episodes
from understudy.collect.rollouts import rollout
from understudy.core import display
from understudy.core.options import Directory
from understudy.core.progress import Progress
from understudy.core.reader import FileReader
from understudy.core.storage import atomic_directory, write_json
from understudy.envs import Forest, Pendulum
from understudy.evaluation import drawing
from understudy.evaluation.returns import Score
from understudy.game import Algorithm
from understudy.paper.forest_trials import DEMONSTRATIONS, clear_swerve
from understudy.train.imitate import imitate
from understudy.train.results import OWN_FILES as RUN_FILES
from understudy.train.tables import provenance, write_csv

EVALUATION_EPISODES = 200
SEEDS = 5
MADE_BY = "understudy demo"
CAPTION = (
    "Flights: one of each seed, and 12 of the expert; a cross is a crash. The expert often leaves the field sideways,\n"
    "which scores 0, so a policy can return more. DAeQuIL's moments are ours and see the tree map in training."
)
"""Under the picture."""
OWN_FILES = ("demo.png", "demo.json", "demo.csv", *(f"*-*/{name}" for name in RUN_FILES))
"""The files of the demo's directory: a directory that holds others is not replaced."""

Rows = list[tuple[str, str, Score]]
"""Task, algorithm, score."""
ProgressBar = Callable[[str], AbstractContextManager[Progress]]
"""Opens a progress bar with a title."""


def demo_command(out: Directory = "out/demo") -> None:
    """Train on bundled demonstrations, measure the gap to the expert, and draw a figure.

    Args:
        out: Directory for the figure and the policies.
    """
    rows = [
        (task, algorithm, score.episodes, score.expert, score.learner, score.gap)
        for task, algorithm, score in demo(out, display.progress_bar)
    ]
    headers = ("task", "algorithm", ">demos", ">expert's return", ">learner's return", ">imitation gap")
    title = (
        f"Mean ± 95% interval (Student's t over {SEEDS} seeds, {EVALUATION_EPISODES} episodes each); the expert acts "
        "from the same starting states"
    )
    display.show(headers, rows, title)
    print(
        f"\nFigure: {out}/demo.png. The policies are in {out}.\n"
        "Pendulum: more demonstrations close the gap.\n"
        "Forest: the expert dodges left or right at random. Behavioral cloning and DAgger learn the mean of both and\n"
        "fly into a tree. DAeQuIL avoids most of them: it matches our own moments, which see the tree map in training."
    )


def demo(out: str | os.PathLike[str], progress: ProgressBar) -> Rows:
    """Train and evaluate, write the directory `out`, and return the rows of the table."""
    out = Path(out)
    forest, pendulum = Forest(), Pendulum()
    rows: Rows = []
    paths: dict[str, list[Episodes]] = {}
    with atomic_directory(out, OWN_FILES if _is_demo(out) else ()) as partial:
        for algorithm, env, counts in _experiments(forest, pendulum):
            name, demonstrations, expert = algorithm.card.name, data.load(env.name), env.expert()
            with progress(f"{algorithm.card.title} on {env.name}") as report:
                result = imitate(algorithm, demonstrations, env, expert, SEEDS, counts, holdout=0.0, progress=report)
            if result.interrupted:
                raise KeyboardInterrupt
            acting: Any = "scripted"
            with progress(f"evaluating on {env.name}") as report:
                evaluation = result.evaluate(env, EVALUATION_EPISODES, 1, acting, progress=report)
            rows += [(env.name, name, score) for score in evaluation.scores()]
            result.save(partial / f"{env.name.lower()}-{name}")
            if env is forest:
                paths[name] = [rollout(forest, actor.policy, 1, seed=1) for actor in result.policies[-SEEDS:]]
        _draw(forest, paths, rows, partial / "demo.png")
        made = provenance()
        write_json(partial / "demo.json", {"made_by": MADE_BY, **made})
        write_csv(partial / "demo.csv", *_table(rows, made))
    return rows


def _experiments(forest: Forest, pendulum: Pendulum) -> list[tuple[Algorithm, Forest | Pendulum, list[int]]]:
    """Algorithm, environment, and the numbers of demonstrated episodes."""
    cloning = BC(hidden=(64, 64), batch_size=128, lr=1e-3, rounds=20, gradient_steps=500)
    return [
        (cloning, pendulum, [2, 5, 10, 25]),
        (cloning, forest, [5, 25]),
        (DAgger.preset("forest"), forest, [DEMONSTRATIONS]),
        (DAeQuIL.preset("linear", moments=clear_swerve(forest)), forest, [DEMONSTRATIONS]),
    ]


def _draw(forest: Forest, paths: dict[str, list[Episodes]], rows: Rows, path: Path) -> None:
    """Four pictures of flights, the returns on Forest, and the gap on Pendulum."""
    picture, axes = drawing.figure(3, rows=2)
    expert = rollout(forest, forest.expert(), 12, 1, deterministic=False)
    drawing.draw_forest(axes[0], forest, [expert], drawing.EXPERT, "The expert dodges left or right")
    drawing.draw_forest(axes[1], forest, paths["bc"], drawing.LINES[0], "BC learns the mean and crashes")
    drawing.draw_forest(axes[2], forest, paths["dagger"], drawing.LINES[1], "DAgger does so too")
    drawing.draw_forest(axes[3], forest, paths["daequil"], drawing.LINES[2], "DAeQuIL, with moments of our own")
    _draw_returns(axes[4], [(name, score) for task, name, score in rows if task == forest.name])
    drawing.draw_gaps(axes[5], [score for task, _, score in rows if task == Pendulum.name], "BC on Pendulum")
    picture.supxlabel(CAPTION, fontsize=10)
    drawing.save(picture, path)


def _draw_returns(axis: Any, rows: list[tuple[str, Score]]) -> None:
    """The returns on Forest, with 95% intervals, and the expert's as a line."""
    names = [f"{name}\n{score.episodes} demos" for name, score in rows]
    colors = dict(zip(dict.fromkeys(name for name, _ in rows), drawing.LINES, strict=False))
    for x, (name, score) in enumerate(rows):
        mean, low, high = score.learner
        axis.errorbar(x, mean, yerr=[[mean - low], [high - mean]], color=colors[name], marker="o", capsize=4)
    expert = rows[0][1].expert
    assert expert is not None  # it acts from the same starting states
    axis.axhline(expert.mean, color=drawing.EXPERT, linewidth=1.5)
    axis.annotate("the expert", (1, expert.mean), (0, 5), textcoords="offset points", color=drawing.EXPERT, ha="center")
    axis.set(xticks=range(len(rows)), title="Returns in the forest", ylabel="return (mean, 95% t interval over seeds)")
    axis.set_xticklabels(names, fontsize=8)
    axis.set_ylim(0, None)
    axis.spines[["top", "right"]].set_visible(False)


def _table(rows: Rows, made: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """The header and rows of demo.csv, with command, versions, device and date."""
    header = ["task", "algorithm", "demonstrations", "seeds", "episodes"]
    header += [f"{what}_{which}" for what in ("expert", "learner", "gap") for which in ("mean", "low", "high")]
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    lines: list[list[object]] = []
    for task, algorithm, score in rows:
        numbers = [*(score.expert or ()), *score.learner, *(score.gap or ())]
        lines.append(
            [task, algorithm, score.episodes, score.runs, EVALUATION_EPISODES, *(round(x, 2) for x in numbers)]
        )
        lines[-1] += [made["command"], versions, made["device"], made["date"]]
    return [*header, "command", "versions", "device", "date"], lines


def _is_demo(path: Path) -> bool:
    """Whether an earlier demo wrote this directory, so that it can be replaced."""
    mark = path / "demo.json"
    if not mark.is_file():
        return False
    about = FileReader(mark, "a file of understudy demo", f"choose another --out, or move '{path}' away").json(
        {"made_by": str}
    )
    return bool(about["made_by"] == MADE_BY)
