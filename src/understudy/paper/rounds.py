"""Trials of an on-Q learner: what the policy of each round returns, and what was asked of the expert until then."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.core.statistics import Sample
from understudy.paper.off_q import Curve
from understudy.train.results import provenance

COLUMNS = ["env", "algorithm", "preset", "seed", "x_kind", "x", "mean_return", "std_return", "queries"]
MADE = ["command", "versions", "date"]


def made() -> list[str]:
    """What made a row: the columns of `MADE`."""
    about = provenance()
    return [
        about["command"],
        " ".join(f"{name}={version}" for name, version in about["versions"].items()),
        about["date"],
    ]


@dataclass(frozen=True)
class Trials:
    """What a learner's trials came to."""

    algorithm: str
    preset: str
    returns: np.ndarray
    """(rounds, trials, episodes), of each round's own policy."""
    queries: np.ndarray
    """(rounds, trials): asked of the expert until then."""
    handed: np.ndarray | None = None
    """(trials,): what the policy that each hands over returns, where that was played."""

    @property
    def curve(self) -> Curve:
        """Round → the trials' means."""
        return Curve(self.algorithm, self.preset, dict(enumerate(self.returns.mean(axis=2))))

    @property
    def by_queries(self) -> dict[int, Sample]:
        """Queries, as the trials had asked on average, → the trials' means."""
        return {round(x): sample for x, sample in zip(self.queries.mean(1), self.curve.samples.values(), strict=True)}

    @property
    def last(self) -> np.ndarray:
        """Each trial's mean over its last three rounds."""
        return np.asarray(self.returns.mean(axis=2)[-3:].mean(axis=0))

    def rows(self, env: str) -> list[list[Any]]:
        """The project's standard columns, the expert's queries until then, and what made them."""
        rows, about = [], made()
        for x, (returns, queries) in enumerate(zip(self.returns, self.queries, strict=True)):
            for seed, (episodes, asked) in enumerate(zip(returns, queries, strict=True)):
                scores = [round(float(episodes.mean()), 3), round(float(episodes.std()), 3)]
                rows.append([env, self.algorithm, self.preset, seed, "round", x, *scores, int(asked), *about])
        for seed, score in enumerate([] if self.handed is None else self.handed):
            kind = [env, self.algorithm, self.preset, seed, "final", len(self.returns) - 1]
            rows.append([*kind, round(float(score), 3), 0.0, int(self.queries[-1, seed]), *about])
        return rows
