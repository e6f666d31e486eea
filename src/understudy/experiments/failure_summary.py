"""What watched episodes come to: how many fail once a policy has learned, where, and who could have known.

A seed has learned when its mean return first comes to nine tenths of the expert's; episodes from then on count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from understudy.experiments.episodes import WINDOW, Episode

LEARNED = 0.9


@dataclass(frozen=True)
class Summary:
    """Of one learner. Means are None where there is nothing to take them over."""

    seeds: int
    learned: int
    """Seeds that have."""
    episodes: int
    """Played since."""
    failed: int
    early: int
    """Of those, lost within the first 50 steps."""
    lost_at: float | None
    """The median."""
    belief_failed: float | None
    """The critic's value where an episode is lost."""
    belief_good: float | None
    """Of episodes that have not failed, from policies that also fail."""
    belief_shown: float | None
    """Of the demonstrated states, by the critics of the failed episodes."""
    payoff_failed: float | None
    payoff_good: float | None
    told_apart: float | None
    """How often a failed episode has a larger payoff than one that has not failed; 0.5 is chance."""


def summed_up(episodes: Sequence[Episode], expert: float) -> Summary:
    """One learner's episodes together."""
    counted: list[Episode] = []
    learned = 0
    seeds = sorted({episode.seed for episode in episodes})
    for seed in seeds:
        own = [episode for episode in episodes if episode.seed == seed]
        first = _learned(own, expert)
        if first is not None:
            learned += 1
            counted += [episode for episode in own if episode.x >= first]
    failed = [episode for episode in counted if episode.lost_at is not None]
    good = [episode for episode in counted if episode.lost_at is None]
    lost = [episode.lost_at for episode in failed if episode.lost_at is not None]
    failing = {(episode.seed, episode.x) for episode in failed}
    beside = [episode for episode in good if (episode.seed, episode.x) in failing]
    return Summary(
        *(len(seeds), learned, len(counted), len(failed), sum(at < WINDOW for at in lost)),
        float(np.median(lost)) if lost else None,
        *(_mean(episode.belief for episode in failed), _mean(episode.belief for episode in beside)),
        _mean(episode.belief_shown for episode in failed),
        *(_mean(episode.payoff for episode in failed), _mean(episode.payoff for episode in good)),
        _told_apart([episode.payoff for episode in failed], [episode.payoff for episode in good]),
    )


def _learned(episodes: Sequence[Episode], expert: float) -> int | None:
    """When a seed's mean return first came near the expert's."""
    for x in sorted({episode.x for episode in episodes}):
        if np.mean([e.episode_return for e in episodes if e.x == x]) >= LEARNED * expert:
            return x
    return None


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None


def _told_apart(failed: Sequence[float], good: Sequence[float]) -> float | None:
    if not failed or not good:
        return None
    difference = np.subtract.outer(np.asarray(failed), np.asarray(good))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))
