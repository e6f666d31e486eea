"""What watched episodes come to: how many fail once a policy has learned, where, and who could have known.

A seed has learned when its mean return first comes to nine tenths of the expert's. Episodes of later evaluations count;
those of that one are good because it was chosen by them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.paper.episodes import WINDOW, Episode

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
    both: int
    """Policies of which some episodes fail and others do not."""
    belief_failed: float | None
    """The critic's value where their episodes are lost, the mean over these policies."""
    belief_good: float | None
    """Of their other episodes, from start to end."""
    shown_failing: float | None
    """What the critics of policies with a failed episode believe of the demonstrated states."""
    shown_steady: float | None
    """The critics of all others."""
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
            counted += [episode for episode in own if episode.x > first]
    failed = [episode for episode in counted if episode.lost_at is not None]
    good = [episode for episode in counted if episode.lost_at is None]
    lost = [episode.lost_at for episode in failed if episode.lost_at is not None]
    policies: dict[tuple[int, int], list[Episode]] = {}
    for episode in counted:
        policies.setdefault((episode.seed, episode.x), []).append(episode)
    apart = [_apart(own) for own in policies.values()]
    both = [(bad, fine) for bad, fine in apart if bad and fine]
    return Summary(
        *(len(seeds), learned, len(counted), len(failed), sum(at < WINDOW for at in lost)),
        float(np.median(lost)) if lost else None,
        *(len(both), _mean(np.mean(bad) for bad, _ in both), _mean(np.mean(fine) for _, fine in both)),
        _mean(own[0].belief_shown for own, (bad, _) in zip(policies.values(), apart, strict=True) if bad),
        _mean(own[0].belief_shown for own, (bad, _) in zip(policies.values(), apart, strict=True) if not bad),
        *(_mean(episode.payoff for episode in failed), _mean(episode.payoff for episode in good)),
        _told_apart([episode.payoff for episode in failed], [episode.payoff for episode in good]),
    )


def _apart(episodes: Sequence[Episode]) -> tuple[list[float], list[float]]:
    """Beliefs in the episodes that failed, and in the others."""
    failed = [episode.belief for episode in episodes if episode.lost_at is not None]
    return failed, [episode.belief for episode in episodes if episode.lost_at is None]


def _learned(episodes: Sequence[Episode], expert: float) -> int | None:
    """When a seed's mean return first came near the expert's."""
    for x in sorted({episode.x for episode in episodes}):
        if np.mean([e.episode_return for e in episodes if e.x == x]) >= LEARNED * expert:
            return x
    return None


def _mean(values: Iterable[Any]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None


def _told_apart(failed: Sequence[float], good: Sequence[float]) -> float | None:
    if not failed or not good:
        return None
    difference = np.subtract.outer(np.asarray(failed), np.asarray(good))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))
