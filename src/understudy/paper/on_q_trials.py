"""Trials of an on-Q learner: returns of each round's policy, and expert queries so far."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.core.statistics import Sample
from understudy.studies.curves import Curve
from understudy.studies.records import FINAL
from understudy.train.tables import provenance

PROVENANCE = ["command", "versions", "date"]
COLUMNS = ["env", "algorithm", "preset", "seed", "x_kind", "x", "mean_return", "std_return", "queries", *PROVENANCE]


def provenance_columns() -> list[str]:
    """The values of the columns `PROVENANCE`."""
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    return [made["command"], versions, made["date"]]


@dataclass(frozen=True)
class Trials:
    """The trials (seeds) of one learner."""

    algorithm: str
    preset: str
    returns: np.ndarray
    """(rounds, trials, episodes): returns of each round's policy."""
    queries: np.ndarray
    """(rounds, trials): expert queries up to each round."""
    final: np.ndarray | None = None
    """(trials,): returns of the final policies, if they were evaluated."""

    @property
    def curve(self) -> Curve:
        """Mean returns by round."""
        return Curve.from_arrays(self.algorithm, self.preset, dict(enumerate(self.returns.mean(axis=2))))

    @property
    def by_queries(self) -> dict[int, Sample]:
        """Mean number of queries → the trials' mean returns."""
        return {round(x): sample for x, sample in zip(self.queries.mean(1), self.curve.samples.values(), strict=True)}

    @property
    def last_three(self) -> np.ndarray:
        """Each trial's mean over its last three rounds."""
        return np.asarray(self.returns.mean(axis=2)[-3:].mean(axis=0))

    def rows(self, env: str) -> list[list[Any]]:
        """One row per round and trial, and one per final policy, in the order of `COLUMNS`."""
        rows, made = [], provenance_columns()
        for x, (returns, queries) in enumerate(zip(self.returns, self.queries, strict=True)):
            for seed, (episodes, count) in enumerate(zip(returns, queries, strict=True)):
                scores = [round(float(episodes.mean()), 3), round(float(episodes.std()), 3)]
                rows.append([env, self.algorithm, self.preset, seed, "round", x, *scores, int(count), *made])
        for seed, score in enumerate([] if self.final is None else self.final):
            learner = [env, self.algorithm, self.preset, seed, FINAL, len(self.returns) - 1]
            rows.append([*learner, round(float(score), 3), 0.0, int(self.queries[-1, seed]), *made])
        return rows
