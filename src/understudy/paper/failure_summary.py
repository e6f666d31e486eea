"""Summary of recorded episodes: how many fail after a policy has learned, where, and whether its payoff shows it.

A seed has learned when its mean return first reaches 90% of the expert's. Only later evaluations count: that one is
good because it was selected by its return.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.paper.episodes import WINDOW, Episode

LEARNED = 0.9
"""Fraction of the expert's return at which a seed has learned."""


@dataclass(frozen=True)
class Summary:
    """The episodes of one learner. Means over nothing are None."""

    seeds: int
    learned: int
    """Seeds that have learned."""
    episodes: int
    """Episodes evaluated afterwards."""
    failed: int
    early: int
    """Failed episodes that fail within the first 50 steps."""
    failed_at: float | None
    """Median step of failure."""
    mixed_policies: int
    """Policies with failed and with successful episodes."""
    value_failed: float | None
    """Critic value where episodes fail, mean over the mixed policies."""
    value_succeeded: float | None
    """Critic value over their successful episodes."""
    demonstrated_value_failing: float | None
    """Critic value at demonstrated states, for policies with a failed episode."""
    demonstrated_value_others: float | None
    """The same for all other policies."""
    payoff_failed: float | None
    payoff_succeeded: float | None
    payoff_auc: float | None
    """Probability that a failed episode has a larger payoff than a successful one (0.5: uninformative)."""


def summarize(episodes: Sequence[Episode], expert: float) -> Summary:
    """Summarize one learner's episodes."""
    counted: list[Episode] = []
    learned = 0
    seeds = sorted({episode.seed for episode in episodes})
    for seed in seeds:
        own = [episode for episode in episodes if episode.seed == seed]
        first = _learned_at(own, expert)
        if first is not None:
            learned += 1
            counted += [episode for episode in own if episode.x > first]
    failed = [episode for episode in counted if episode.failed_at is not None]
    succeeded = [episode for episode in counted if episode.failed_at is None]
    failed_at = [episode.failed_at for episode in failed if episode.failed_at is not None]
    policies: dict[tuple[int, int], list[Episode]] = {}
    for episode in counted:
        policies.setdefault((episode.seed, episode.x), []).append(episode)
    values = [_critic_values(own) for own in policies.values()]
    mixed = [(bad, good) for bad, good in values if bad and good]
    demonstrated = [own[0].critic_value_demonstrated for own in policies.values()]
    return Summary(
        seeds=len(seeds),
        learned=learned,
        episodes=len(counted),
        failed=len(failed),
        early=sum(step < WINDOW for step in failed_at),
        failed_at=float(np.median(failed_at)) if failed_at else None,
        mixed_policies=len(mixed),
        value_failed=_mean(np.mean(bad) for bad, _ in mixed),
        value_succeeded=_mean(np.mean(good) for _, good in mixed),
        demonstrated_value_failing=_mean(x for x, (bad, _) in zip(demonstrated, values, strict=True) if bad),
        demonstrated_value_others=_mean(x for x, (bad, _) in zip(demonstrated, values, strict=True) if not bad),
        payoff_failed=_mean(episode.payoff for episode in failed),
        payoff_succeeded=_mean(episode.payoff for episode in succeeded),
        payoff_auc=_auc([episode.payoff for episode in failed], [episode.payoff for episode in succeeded]),
    )


def _critic_values(episodes: Sequence[Episode]) -> tuple[list[float], list[float]]:
    """Critic values of the failed episodes and of the successful ones."""
    failed = [episode.critic_value for episode in episodes if episode.failed_at is not None]
    return failed, [episode.critic_value for episode in episodes if episode.failed_at is None]


def _learned_at(episodes: Sequence[Episode], expert: float) -> int | None:
    """Environment steps at which a seed has learned."""
    for x in sorted({episode.x for episode in episodes}):
        if np.mean([episode.episode_return for episode in episodes if episode.x == x]) >= LEARNED * expert:
            return x
    return None


def _mean(values: Iterable[Any]) -> float | None:
    listed = list(values)
    return float(np.mean(listed)) if listed else None


def _auc(failed: Sequence[float], succeeded: Sequence[float]) -> float | None:
    """Area under the ROC curve of the payoff as a detector of failures."""
    if not failed or not succeeded:
        return None
    difference = np.subtract.outer(np.asarray(failed), np.asarray(succeeded))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))
