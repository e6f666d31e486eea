"""The paper's offline figure: return against the number of demonstrations, for everything that needs nothing else.

Each learner is trained on 5 to 25 demonstrated trajectories, five seeds of each in one program, and every policy plays
ten episodes. A learner's runs and returns are kept as soon as they are there, and training keeps its place: the same
command goes on after an interruption.
"""

import csv
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy import figures
from understudy.algorithms import find
from understudy.checkpoints import Checkpoint
from understudy.data import Demonstrations
from understudy.envs import make
from understudy.errors import RunError, SettingError
from understudy.experiments import published
from understudy.front_door import imitate, summary
from understudy.game import DEFAULT, Algorithm
from understudy.results import Result, hyperparameters, load_run, result_rows, write_csv
from understudy.run import Progress, Visit
from understudy.statistics import Sample, holm, less

TASKS = {"halfcheetah": "HalfCheetahBulletEnv-v0", "ant": "AntBulletEnv-v0"}
LEARNERS = ("bc", "valuedice", "advil", "advil:released")
Report = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Curve:
    """One learner's returns: demonstrated trajectories → the seeds' means."""

    algorithm: str
    preset: str
    returns: dict[int, np.ndarray]

    @property
    def name(self) -> str:
        return self.algorithm if self.preset == DEFAULT else f"{self.algorithm} ({self.preset})"

    @property
    def samples(self) -> dict[int, Sample]:
        return {count: Sample.of(means) for count, means in self.returns.items()}


def learner(name: str) -> Algorithm:
    """The algorithm that "advil" or "advil:paper" names."""
    algorithm, _, preset = name.partition(":")
    return find(algorithm).preset(preset or DEFAULT)


def run(
    demonstrations: Demonstrations,
    env: Any,
    learners: Sequence[str],
    counts: Sequence[int],
    seeds: int,
    episodes: int,
    work: str | os.PathLike[str],
    workers: int,
    progress: Report,
) -> tuple[list[str], list[list[Any]]]:
    """Train and evaluate what is not in `work` yet; the rows of all, in the project's standard columns."""
    header: list[str] = []
    rows: list[list[Any]] = []
    algorithms = [learner(name) for name in learners]
    named = [(algorithm.card.name, algorithm.preset_name) for algorithm in algorithms]
    if len(set(named)) < len(named):
        raise SettingError(f"learners is {', '.join(learners)}: each can be given once")
    for name, algorithm in zip(learners, algorithms, strict=True):
        place = Path(work) / name.replace(":", "-")
        returns = place.with_name(f"{place.name}.csv")
        if not place.exists():
            returns.unlink(missing_ok=True)
        result = trained(algorithm, demonstrations, env, counts, seeds, place, progress)
        if not _played(returns, episodes):
            with progress(f"playing {len(result.policies)} policies of {name}") as report:
                evaluation = result.evaluate(env, episodes, seed=0, workers=workers, progress=report)
            write_csv(returns, *result_rows(result, evaluation))
        with returns.open(newline="", encoding="utf-8") as file:
            header, *lines = list(csv.reader(file))
        rows += lines
    return header, rows


def trained(
    algorithm: Algorithm,
    demonstrations: Demonstrations,
    env: Any,
    counts: Sequence[int],
    seeds: int,
    place: Path,
    progress: Report,
    visit: Visit | None = None,
) -> Result:
    """The learner's runs, from their directory or trained now."""
    if place.exists():
        result = load_run(place)
        made = make(env)
        data = summary(demonstrations.for_task(made.spec, made.name))
        asked = (hyperparameters(algorithm), list(range(seeds)), list(counts), 0.0, data["digest"])
        config = result.config
        found = (
            config["algorithm"]["hyperparameters"],
            config["seeds"],
            config["episodes"],
            config["holdout"],
            config["demonstrations"]["digest"],
        )
        if asked != found:
            raise RunError(f"'{place}' holds runs of other settings, seeds or data: remove it, or change --work")
        return result
    checkpoint = place.with_name(f"{place.name}.checkpoint.npz")
    with progress(f"{algorithm.card.title} ({algorithm.preset_name})") as report:
        result = imitate(
            # All steps train, as in the paper; nothing is selected here.
            algorithm,
            demonstrations,
            env,
            seeds=seeds,
            episodes=list(counts),
            holdout=0.0,
            progress=report,
            checkpoint=checkpoint,
            visit=visit,
        )
    if result.interrupted:
        raise KeyboardInterrupt(f"training keeps its place in {checkpoint}, and the same command goes on from there")
    result.save(place)
    Checkpoint.discard(checkpoint)
    return result


def _played(returns: Path, episodes: int) -> bool:
    """Whether the file has the returns of that many episodes a policy."""
    if not returns.exists():
        return False
    with returns.open(newline="", encoding="utf-8") as file:
        return all(int(row["episodes"]) == episodes for row in csv.DictReader(file))


def curves(header: list[str], rows: Sequence[Sequence[str]]) -> list[Curve]:
    """The rows of a results file, a curve for each algorithm and preset, in the order they stand there."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        cell = dict(zip(header, row, strict=True))
        points = found.setdefault((cell["algorithm"], cell["preset"]), {})
        points.setdefault(int(cell["x"]), []).append(float(cell["mean_return"]))
    return [Curve(*key, {count: np.array(means) for count, means in points.items()}) for key, points in found.items()]


@dataclass(frozen=True)
class Verdict:
    """A curve beside the published one: means over the data sizes both have, and where ours is significantly below."""

    ours: float
    theirs: float
    below: list[int]
    """Data sizes where ours is below the published at the 5% level (Welch, one-sided, Holm-corrected)."""


def compare(curve: Curve, env: str) -> Verdict | None:
    """None where nothing was published, or a single seed allows no test."""
    theirs = published.off_q(env, curve.algorithm)
    shared = [count for count, sample in curve.samples.items() if count in theirs and sample.size > 1]
    if not shared:
        return None
    chances = holm([less(curve.samples[count], theirs[count]) for count in shared])
    return Verdict(
        float(np.mean([curve.samples[count].mean for count in shared])),
        float(np.mean([theirs[count].mean for count in shared])),
        [count for count, chance in zip(shared, chances, strict=True) if chance < 0.05],
    )


def draw(env: str, found: Sequence[Curve], expert: float | None, path: Path) -> None:
    """The figure: ours as lines, published points dotted and hollow in the same colours, standard errors on both."""
    picture, (axis,) = figures.figure(1, width=6.4, height=4.2)
    drawn: set[str] = set()
    for index, curve in enumerate(found):
        color = figures.LINES[index % len(figures.LINES)]
        figures.draw_points(axis, curve.samples, color, curve.name)
        if curve.algorithm not in drawn:  # once, whatever its presets
            drawn.add(curve.algorithm)
            theirs = published.off_q(env, curve.algorithm)
            figures.draw_points(axis, theirs, color, f"{curve.algorithm}, published", published=True)
    if expert is not None:
        axis.axhline(expert, color=figures.EXPERT, linewidth=1.5)
        where = (axis.get_xlim()[1], expert)
        axis.annotate("the expert", where, xytext=(-2, 4), textcoords="offset points", ha="right", color=figures.EXPERT)
    counts = sorted({count for curve in found for count in curve.returns})
    axis.set(xticks=counts, title=env, xlabel="demonstrated trajectories", ylabel="return (mean ± standard error)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, ncols=2, frameon=False)
    figures.save(picture, path)
