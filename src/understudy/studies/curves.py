"""Returns of one learner over its seeds: the curve that study reports and the paper's figures share."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from understudy.core.errors import RunError
from understudy.core.statistics import Sample
from understudy.game import DEFAULT
from understudy.studies.plan import BUNDLED
from understudy.studies.records import FINAL, kind_of, position

LAST, LOWEST = 5, 10
"""How many of the last evaluations are averaged, and among how many the lowest is taken."""


@dataclass(frozen=True)
class Curve:
    """Mean returns of one learner, by seed and by x, and those of its final policies.

    x counts environment steps, rounds or demonstrated trajectories. A return is the mean of one evaluation's episodes.
    """

    algorithm: str
    preset: str
    seeds: Mapping[int, Mapping[int, float]]
    """Seed → x → mean return."""
    final: Mapping[int, float] = field(default_factory=dict)
    """Seed → mean return of the final policy."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters that differ from the preset's."""
    trajectories: int | None = None
    """Demonstrated trajectories; None if x counts them."""
    demonstrations: str = ""
    """Their source: "bundled", or a file's name."""
    expert: float | None = None
    """The demonstrator's return."""
    seconds: float = 0.0
    """Training time of all seeds."""
    device: str = ""
    stopped: tuple[int, ...] = ()
    """Seeds that stopped early, for example because a critic diverged; their last policy is evaluated from then on."""

    @classmethod
    def from_arrays(cls, algorithm: str, preset: str, returns: Mapping[int, Any], **fields: Any) -> "Curve":
        """A curve from x → one return per seed; seeds are numbered from 0."""
        seeds: dict[int, dict[int, float]] = {}
        for x, values in returns.items():
            for seed, value in enumerate(values):
                seeds.setdefault(seed, {})[x] = float(value)
        return cls(algorithm, preset, seeds, **fields)

    @property
    def name(self) -> str:
        return learner_name(self.algorithm, self.preset, self.settings, self.trajectories)

    @property
    def bundled(self) -> bool:
        return self.demonstrations == BUNDLED

    @cached_property
    def returns(self) -> dict[int, np.ndarray]:
        """x → the returns of the seeds that were evaluated there, in the order of x."""
        xs = sorted({x for points in self.seeds.values() for x in points})
        return {x: np.array([points[x] for points in self.seeds.values() if x in points]) for x in xs}

    @cached_property
    def samples(self) -> dict[int, Sample]:
        """x → mean and spread over seeds."""
        return {x: Sample.of(values) for x, values in self.returns.items()}

    def reached(self, x: int, within: int) -> int | None:
        """The first evaluation from x on, less than `within` later; None if there is none.

        Learners with different rounds are evaluated at different x. Tables compare them by the first evaluation after
        each reached a common x.
        """
        return next((at for at in self.returns if x <= at < x + within), None)

    def sample(self, x: int, within: int) -> Sample | None:
        """Mean and spread over seeds at `reached(x, within)`."""
        at = self.reached(x, within)
        return None if at is None else self.samples[at]

    @property
    def last(self) -> Sample | None:
        """Each finished seed's last evaluation."""
        return self._over_seeds(lambda values: values[-1])

    @property
    def last_five(self) -> Sample | None:
        """Each finished seed's mean over its last five evaluations."""
        return self._over_seeds(lambda values: float(np.mean(values[-LAST:])))

    @property
    def lowest(self) -> Sample | None:
        """Each finished seed's lowest of its last ten evaluations. Earlier ones are low for every learner."""
        return self._over_seeds(lambda values: min(values[-LOWEST:]))

    @property
    def lowest_of_any_seed(self) -> float:
        """The lowest of the last ten evaluations, over all seeds."""
        return min(float(values.min()) for values in list(self.returns.values())[-LOWEST:])

    @property
    def final_sample(self) -> Sample | None:
        """The final policies' returns; None if none was evaluated."""
        return Sample.of(list(self.final.values())) if self.final else None

    def _over_seeds(self, statistic: Callable[[list[float]], float]) -> Sample | None:
        """A statistic of each seed that finished, or of every seed if none has."""
        finished = self.final or self.seeds
        values = [
            statistic([points[x] for x in sorted(points)])
            for seed, points in self.seeds.items()
            if seed in finished and points
        ]
        return Sample.of(values) if values else None


def learner_name(algorithm: str, preset: str, settings: Mapping[str, Any], trajectories: int | None = None) -> str:
    """A learner as tables and legends name it: algorithm (preset), setting=value, N trajectories."""
    parts = [algorithm if preset == DEFAULT else f"{algorithm} ({preset})"]
    parts += [f"{name}={value}" for name, value in settings.items()]
    if trajectories is not None:
        parts.append(f"{trajectories} trajectories")
    return ", ".join(parts)


def read_curves(rows: Sequence[Mapping[str, str]], kind: str, x: str = "x") -> list[Curve]:
    """One curve per learner, in the order of the rows of a results file.

    Args:
        rows: The file's rows by column. Columns that a file does not have count as empty.
        kind: The `x_kind` of the rows that are points of the curve. Rows of the kind "final" (or "returned") are the
            final policies.
        x: The column that is the horizontal axis: "x", or "trajectories". Environment steps are exact (`position`).
    """
    identity = ["algorithm", "preset", "settings", "demonstrations", *(["trajectories"] if x == "x" else [])]
    learners: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    final: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        key = tuple(row.get(name, "") for name in identity)
        if kind_of(row) == kind:
            learners.setdefault(key, []).append(row)
        elif kind_of(row) == FINAL:
            final.setdefault(key, {})[int(row["seed"])] = float(row["mean_return"])
    return [_curve(own, final.get(key, {}), x) for key, own in learners.items()]


def read_levels(rows: Sequence[Mapping[str, str]]) -> list[Curve]:
    """One curve without points per learner whose final policies have no number of environment steps."""
    final = [row for row in rows if kind_of(row) == FINAL and not row.get("steps")]
    return [
        replace(curve, seeds={}, final={seed: next(iter(points.values())) for seed, points in curve.seeds.items()})
        for curve in read_curves(final, FINAL)
    ]


def _curve(rows: Sequence[Mapping[str, str]], final: Mapping[int, float], x: str) -> Curve:
    about = rows[-1]
    seeds: dict[int, dict[int, float]] = {}
    payoffs: dict[int, str] = {}
    for row in rows:
        seed, at = int(row["seed"]), position(row) if x == "x" else int(row[x])
        if at in seeds.setdefault(seed, {}):
            raise RunError(f"{about['algorithm']} has two rows of seed {seed} at {x} {at}: remove one of them")
        seeds[seed][at] = float(row["mean_return"])
        payoffs[seed] = row.get("payoff", "")
    measured = any(row.get("payoff") for row in rows)
    expert, count = about.get("expert_return", ""), about.get("trajectories", "")
    return Curve(
        *(about["algorithm"], about["preset"], seeds, final),
        settings=json.loads(about.get("settings") or "{}"),
        trajectories=int(count) if count and x != "trajectories" else None,
        demonstrations=about.get("demonstrations", "").partition("@")[0],
        expert=float(expert) if expert else None,
        seconds=float(about.get("train_seconds") or 0),
        device=about.get("device", ""),
        stopped=tuple(seed for seed, payoff in payoffs.items() if measured and not payoff),
    )
