"""What the host reads of each round, and what it says about the runs."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from understudy.game import Algorithm


class RoundRecord(NamedTuple):
    """The record of a round for the host, with an entry for each run."""

    metrics: dict[str, Float[Array, " runs"]]
    active: Bool[Array, " runs"]
    """Runs that took part in the round."""
    finite: Bool[Array, " runs"]
    stop: Int[Array, " runs"]
    undo: Bool[Array, " runs"]
    queries: Int[Array, " runs"]
    """Queries to the expert in this round."""


def merged(updates: list[RoundRecord]) -> RoundRecord:
    """The record of a round from those of its updates, (updates, runs) each, on the host.

    Metrics are those of the last update that a run took part in. The return is the mean over the updates in which
    episodes ended.
    """
    together: RoundRecord = jax.tree.map(lambda *parts: np.concatenate(parts), *updates)
    last_active = np.maximum(together.active.sum(axis=0) - 1, 0)

    def last(values: Any) -> Any:
        return np.take_along_axis(values, last_active[None], axis=0)[0]

    metrics = {name: last(values) for name, values in together.metrics.items()}
    if "return" in metrics:
        known = np.isfinite(together.metrics["return"])
        total = np.where(known, together.metrics["return"], 0).sum(axis=0)
        metrics["return"] = np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)
    fine = together.finite | ~together.active
    stop, undo = (np.where(together.active, x, 0).max(axis=0) for x in (together.stop, together.undo))
    queries = together.queries.sum(axis=0)
    return RoundRecord(metrics, together.active[0], fine.all(axis=0), stop, undo.astype(bool), queries)


def finite_mean(values: Any) -> float:
    """The mean of the finite values. A return is NaN in a round in which no episode ended."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def packed(records: list[RoundRecord]) -> dict[str, np.ndarray]:
    """The records as plain arrays, (rounds, runs) each."""
    stacked = jax.tree.map(lambda *rounds: np.stack(rounds), *records)
    metrics = {f"metrics.{name}": x for name, x in stacked.metrics.items()}
    return metrics | {name: getattr(stacked, name) for name in RoundRecord._fields[1:]}


def unpacked(columns: dict[str, np.ndarray]) -> list[RoundRecord]:
    metrics: dict[str, Any] = {
        name.removeprefix("metrics."): x for name, x in columns.items() if name.startswith("metrics.")
    }
    rest: list[Any] = [columns[name] for name in RoundRecord._fields[1:]]
    stacked = RoundRecord(metrics, *rest)
    return [jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(len(stacked.active))]


def metrics_of(records: list[RoundRecord]) -> dict[str, np.ndarray]:
    """name → (runs, rounds); NaN after a run has ended."""
    return {
        name: np.stack(
            [np.where(record.active & record.finite, record.metrics[name], np.nan) for record in records], axis=1
        )
        for name in (records[0].metrics if records else ())
    }


def spent(records: list[RoundRecord], limit: int) -> np.ndarray:
    """Which runs have used up their budget of queries."""
    return np.asarray(np.sum([record.queries for record in records], axis=0) >= limit)


def diverged_in(records: list[RoundRecord], run: int) -> int | None:
    """The number of the round, from 0, in which a run's numbers were not finite; None if they always were."""
    rounds = (index for index, record in enumerate(records) if record.active[run] and not record.finite[run])
    return next(rounds, None)


def statuses_of(
    algorithm: Algorithm, records: list[RoundRecord], interrupted: bool, limit: int, causes: dict[int, str]
) -> list[str]:
    """How each run ended, in a few words. `causes` says what was not finite in runs that diverged."""
    statuses = []
    for run in range(len(records[0].active)):
        status = f"interrupted after round {len(records)} of {algorithm.rounds}" if interrupted else "finished"
        for index, record in enumerate(records):
            if not record.active[run]:
                break
            if not record.finite[run]:
                status = f"diverged in round {index + 1}: {causes[run]}; the policy of round {index} is kept"
            elif record.stop[run]:
                status = f"stopped in round {index + 1}: {algorithm.stop_reasons[int(record.stop[run]) - 1]}"
                status += f", so the policy of round {index} is kept" if record.undo[run] else ""
        if status == "finished" and spent(records, limit)[run]:
            last = max(index for index, record in enumerate(records) if record.active[run])
            if last + 1 < algorithm.rounds:
                status = f"stopped in round {last + 1}: the budget of {limit} queries is spent"
        statuses.append(status)
    return statuses
