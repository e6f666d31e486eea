"""The paper's figure of reward moments: return against environment steps, for everything that learns while it plays.

A learner trains all its seeds together. Every so many environment steps its policies, as they are then and not the best
so far, are kept and play ten episodes in other processes while training goes on. What was played is kept as it comes,
and training keeps its place: the same command goes on after an interruption.
"""

import csv
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from understudy import figures
from understudy.actor import Actor, load_policy
from understudy.checkpoints import Checkpoint, digest
from understudy.data import Demonstrations
from understudy.envs import HostEnvironment, make
from understudy.errors import RunError, SettingError
from understudy.evaluation import play_named
from understudy.experiments import published
from understudy.experiments.off_q import TASKS, Report, learner
from understudy.experiments.rounds import MADE, made
from understudy.front_door import imitate
from understudy.game import DEFAULT, Algorithm
from understudy.results import hyperparameters, provenance, write_csv
from understudy.rollouts import rollout
from understudy.statistics import Sample
from understudy.storage import write_json
from understudy.types import State

__all__ = ["TASKS", "Learner", "Report", "draw", "read", "run"]

COLUMNS = ["env", "algorithm", "preset", "seed", "x_kind", "x", "mean_return", "std_return"]
MORE = ["trajectories", "steps", "episodes", "payoff", "train_seconds", "device", *MADE]
HANDED = "handed_over"
"""The x_kind of the policy that a run hands over: that of smallest payoff, not the last."""


@dataclass(frozen=True)
class Learner:
    """An algorithm with a preset, and how many demonstrated trajectories it learns from: "adril:paper@20"."""

    name: str
    algorithm: Algorithm
    trajectories: int

    @classmethod
    def named(cls, name: str, steps: int, lag: int = 0) -> Self:
        """The learner that a name stands for, long enough for so many environment steps."""
        found = re.fullmatch(r"([^@]+)(?:@(\d+))?", name)
        if found is None:
            raise SettingError(f"learner '{name}': write it as adril, adril:paper or adril:paper@20")
        base = learner(found[1])
        if base.stepping is None:
            raise SettingError(f"learner '{name}' does not learn while it plays: choose adril or sqil")
        count = int(found[2] or published.REWARD_TRAJECTORIES.get(base.card.name, 20))
        rounds = -(-steps // (base.stepping.turns * base.stepping.rows))
        preset = found[1].partition(":")[2] or DEFAULT
        return cls(name, type(base).preset(preset, rounds=rounds, lag=lag), count)

    @property
    def preset(self) -> str:
        return self.name.partition("@")[0].partition(":")[2] or DEFAULT

    def place(self, work: Path) -> Path:
        return work / re.sub(r"\W", "-", self.name)


@dataclass(frozen=True)
class Curve:
    """A learner's returns: environment steps → the seeds' means."""

    algorithm: str
    preset: str
    trajectories: int
    returns: dict[int, np.ndarray]

    @property
    def name(self) -> str:
        preset = "" if self.preset == DEFAULT else f" ({self.preset})"
        return f"{self.algorithm}{preset}, {self.trajectories} trajectories"

    @property
    def published(self) -> str:
        return "adril-balanced" if self.preset == "paper-balanced" else self.algorithm

    @property
    def samples(self) -> dict[int, Sample]:
        return {x: Sample.of(means) for x, means in sorted(self.returns.items())}

    @property
    def last_five(self) -> Sample:
        """Of each seed's mean over its last five evaluations."""
        return Sample.of(np.mean([self.returns[x] for x in sorted(self.returns)[-5:]], axis=0))

    @property
    def lowest(self) -> float:
        """The lowest evaluation of any seed among the last ten."""
        return float(min(self.returns[x].min() for x in sorted(self.returns)[-10:]))


def run(
    who: Learner,
    demonstrations: Demonstrations,
    env: Any,
    seeds: int,
    every: int,
    episodes: int,
    work: str | os.PathLike[str],
    workers: int,
    progress: Report,
) -> list[list[Any]]:
    """Train a learner and play its policies as they come; its rows, in the project's standard columns."""
    host, place = make(env), who.place(Path(work))
    place.mkdir(parents=True, exist_ok=True)
    _check_same(place, who, demonstrations, seeds, every, episodes)
    finished = place / "returns.csv"
    if finished.exists():
        with finished.open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))[1:]
    checkpoint, stepping = place / "checkpoint.npz", who.algorithm.stepping
    assert stepping is not None
    a_round = stepping.turns * stepping.rows
    with _Evaluator(host, place, episodes, workers).working() as evaluator:

        def visit(rounds: int, states: Callable[[], State]) -> None:
            """After the first round that reaches a multiple of `every`, the policies as they are."""
            steps = rounds * a_round
            if steps // every == (steps - a_round) // every:
                return
            policies = jax.device_get(jax.vmap(who.algorithm.policy)(states()))
            for seed in range(seeds):
                actor = Actor(jax.tree.map(lambda x, i=seed: x[i], policies), demonstrations.spec)
                evaluator.add("env_steps", steps // every * every, steps, seed, actor)

        with progress(f"{who.algorithm.card.title} ({who.name})") as report:
            result = imitate(
                who.algorithm,
                demonstrations,
                host,
                seeds=seeds,
                episodes=who.trajectories,
                progress=report,
                checkpoint=checkpoint,
                visit=visit,
                workers=min(seeds, workers),
            )
        if result.interrupted:
            raise KeyboardInterrupt(f"training keeps its place in {checkpoint}, the same command goes on from there")
        total = who.algorithm.rounds * a_round
        for seed, actor in enumerate(result.policies):
            evaluator.add(HANDED, total // every * every, total, seed, actor)
        with progress("playing what is left") as report:
            returns = evaluator.returns(report)
    payoffs = result.history["payoff"]
    tail = [str(round(result.config["seconds"], 1)), provenance()["device"], *made()]
    rows: list[list[Any]] = []
    for (kind, x, steps, seed), scores in sorted(returns.items()):
        at = result.runs[seed].payoff if kind == HANDED else payoffs[seed, steps // a_round - 1]
        means = [round(float(scores.mean()), 3), round(float(scores.std()), 3)]
        about = [who.trajectories, steps, len(scores), round(float(at), 5)]
        rows.append([host.name, who.algorithm.card.name, who.preset, seed, kind, x, *means, *about, *tail])
    write_csv(finished, [*COLUMNS, *MORE], rows)
    Checkpoint.discard(checkpoint)
    return [[str(cell) for cell in row] for row in rows]


def _check_same(
    place: Path, who: Learner, demonstrations: Demonstrations, seeds: int, every: int, episodes: int
) -> None:
    """Refuse to go on in a place where something else was begun."""
    asked = {
        "settings": [who.algorithm.card.name, hyperparameters(who.algorithm)],
        "demonstrations": [digest(demonstrations.transitions()), who.trajectories],
        "seeds, every or episodes": [seeds, every, episodes],
    }
    path = place / "asked.json"
    if not path.exists():
        write_json(path, asked)
    found = json.loads(path.read_text(encoding="utf-8"))
    differ = [name for name, value in asked.items() if found.get(name) != value]
    if differ:
        raise RunError(f"'{place}' holds runs of other {' and '.join(differ)}: remove it, or change --work")


Point = tuple[str, int, int, int]
"""x_kind, x, environment steps, seed."""


class _Evaluator:
    """Plays policies in other processes as they come, and keeps what they return, a line each, in played.csv.

    Policies that came but had not played when the program ended play after a restart.
    """

    def __init__(self, env: Any, place: Path, episodes: int, workers: int):
        self.env, self.place, self.episodes, self.workers = env, place, episodes, workers
        self._played: dict[Point, np.ndarray] = {}
        self._waiting: dict[Point, Future[np.ndarray]] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._lines = threading.Lock()

    @contextmanager
    def working(self) -> Iterator[Self]:
        if isinstance(self.env, HostEnvironment) and self.env.registered and self.workers > 1:
            self._pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
        try:
            if self._log.exists():
                with self._log.open(newline="", encoding="utf-8") as file:
                    for kind, x, steps, seed, *returns in csv.reader(file):
                        if len(returns) == self.episodes:  # the last line may be half written
                            self._played[kind, int(x), int(steps), int(seed)] = np.array(returns, np.float64)
            for file_ in sorted(self.place.glob("*.policy.npz")):
                kind, x, steps, seed = file_.name.removesuffix(".policy.npz").split("-")
                self._play((kind, int(x), int(steps), int(seed)), load_policy(file_))
            yield self
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, kind: str, x: int, steps: int, seed: int, actor: Actor) -> None:
        actor.save(self.place / f"{kind}-{x}-{steps}-{seed}.policy.npz")
        self._play((kind, x, steps, seed), actor)

    def returns(self, progress: Any) -> dict[Point, np.ndarray]:
        """What every policy returned, once all have played."""
        for number, (point, waiting) in enumerate(self._waiting.items()):
            self._played[point] = waiting.result()
            progress(number + 1, len(self._waiting), {"return": float(self._played[point].mean())})
        return self._played

    @property
    def _log(self) -> Path:
        return self.place / "played.csv"

    def _play(self, point: Point, actor: Actor) -> None:
        if point in self._played or point in self._waiting:
            return
        # Starts of its own for each seed and time: with shared ones the means would move together.
        start = int(np.random.SeedSequence([point[3], point[2], 2]).generate_state(1)[0])
        job = (actor.policy, self.episodes, start)
        if self._pool is None:
            self._played[point] = self._kept(point, rollout(self.env, *job).returns)
            return
        waiting = self._pool.submit(play_named, self.env.name, self.env.spec.horizon, job)
        waiting.add_done_callback(lambda done: None if done.cancelled() else self._keep(point, done))
        self._waiting[point] = waiting

    def _keep(self, point: Point, done: Future[np.ndarray]) -> None:
        if done.exception() is None:  # `returns` raises it
            self._kept(point, done.result())

    def _kept(self, point: Point, returns: np.ndarray) -> np.ndarray:
        with self._lines, self._log.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow([*point, *returns.round(3)])
        return returns


def others(path: Path, chosen: Sequence[Learner]) -> list[list[Any]]:
    """The rows that a results file already has of other learners."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    if header != [*COLUMNS, *MORE]:
        raise SettingError(f"out is '{path}', which holds something else: choose another file")
    names = {(who.algorithm.card.name, who.preset, str(who.trajectories)) for who in chosen}
    return [row for row in rows if (row[1], row[2], row[len(COLUMNS)]) not in names]


def read(rows: Sequence[Sequence[str]], kind: str = "env_steps") -> list[Curve]:
    """A curve for each learner, in the order they stand in the rows."""
    found: dict[tuple[str, str, int], dict[int, list[float]]] = {}
    for row in rows:
        cell = dict(zip([*COLUMNS, *MORE], row, strict=True))
        if cell["x_kind"] == kind:
            points = found.setdefault((cell["algorithm"], cell["preset"], int(cell["trajectories"])), {})
            points.setdefault(int(cell["x"]), []).append(float(cell["mean_return"]))
    return [Curve(*key, {x: np.array(means) for x, means in points.items()}) for key, points in found.items()]


def draw(env: str, found: Sequence[Curve], expert: float, path: Path) -> None:
    """The figure: ours as lines with bands of a standard error, published curves dotted in the same colours."""
    picture, (axis,) = figures.figure(1, width=7.2, height=4.6)
    drawn: set[str] = set()
    for index, curve in enumerate(found):
        color = figures.LINES[index % len(figures.LINES)]
        _band(axis, curve.samples, color, curve.name, "-")
        if curve.published not in drawn:  # once, whatever its presets
            drawn.add(curve.published)
            theirs = published.reward(env, curve.published)
            count = published.REWARD_TRAJECTORIES.get(curve.published)
            _band(axis, theirs, color, f"{curve.published}, published ({count} trajectories)", ":")
    axis.axhline(expert, color=figures.EXPERT, linewidth=1.5, label="the expert")
    axis.set(title=env, xlabel="environment steps", ylabel="return (mean ± standard error over seeds)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, ncols=2, frameon=False)
    figures.save(picture, path)


def _band(axis: Any, samples: dict[int, Sample], color: str, label: str, style: str) -> None:
    if not samples:
        return
    x = sorted(samples)
    mean, error = (np.array([getattr(samples[i], name) for i in x]) for name in ("mean", "standard_error"))
    axis.plot(x, mean, color=color, linestyle=style, label=label, linewidth=1.8 if style == "-" else 1.4)
    if style == "-":
        axis.fill_between(x, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)
