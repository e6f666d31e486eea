"""The kept episodes of a console, and the demonstrations that training learns from."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.console.attempt import Attempt
from understudy.console.store import Store
from understudy.core.statistics import Sample
from understudy.data import Demonstrations
from understudy.data.details import Details

NEWEST = 20


class Episodes:
    """What the server shows of the kept episodes."""

    def __init__(self, store: Store, given: Demonstrations | None):
        self.given, self.discarded = given, store.discarded
        self._kept = [_summary(number, episode) for number, episode in store.episodes().items()]

    def add(self, attempt: Attempt) -> None:
        """An attempt that has been kept."""
        self._kept.append(
            {
                "id": attempt.number,
                "kind": "correction" if attempt.mode == "watch" else "demonstration",
                "steps": attempt.t,
                "return": attempt.total,
                "success": attempt.success,
                "interventions": attempt.interventions,
                "policy": attempt.policy,
            }
        )

    @property
    def count(self) -> int:
        return len(self._kept)

    @property
    def useful(self) -> bool:
        """Whether there is anything to learn from."""
        shown = any(one["kind"] == "demonstration" or one["interventions"] for one in self._kept)
        return self.given is not None or shown

    @property
    def expert_return(self) -> Sample | None:
        """The return of the demonstrations: those of the person, or else the given ones."""
        own = [one["return"] for one in self._kept if one["kind"] == "demonstration"]
        if own:
            return Sample.of(own)
        return None if self.given is None else self.given.expert_return

    def intervened(self, policy: int) -> float | None:
        """The share of steps at which the person took over from a policy."""
        rows = [one for one in self._kept if one["policy"] == policy and one["kind"] == "correction"]
        steps = sum(one["steps"] for one in rows)
        return sum(one["interventions"] for one in rows) / steps if steps else None

    def state(self) -> dict[str, Any]:
        return {
            "kept": len(self._kept),
            "steps": sum(one["steps"] for one in self._kept),
            "successes": sum(one["success"] is True for one in self._kept),
            "discarded": self.discarded,
            "corrections": sum(one["kind"] == "correction" for one in self._kept),
            "given": 0 if self.given is None else self.given.episodes,
            "newest": self._kept[: -NEWEST - 1 : -1],
        }


def _summary(number: int, episode: Demonstrations) -> dict[str, Any]:
    details = episode.details
    watched = details.interventions is not None
    policy = (details.origin or "").removeprefix("policy ") if watched else ""
    return {
        "id": number,
        "kind": "correction" if watched else "demonstration",
        "steps": episode.steps,
        "return": 0.0 if episode.returns is None else float(episode.returns[0]),
        "success": None if details.successes is None else bool(details.successes[0]),
        "interventions": 0 if details.interventions is None else int(details.interventions.sum()),
        "policy": int(policy) if policy.isdecimal() else None,
    }


def training_data(kept: Iterable[Demonstrations], given: Demonstrations | None) -> Demonstrations | None:
    """All that training learns from: given demonstrations, those of the person, and its corrections.

    Of a watched attempt only the steps at which the person acted are an expert's. Each run of them is an episode that
    was cut off, not one that ended. The expert's return is that of the whole demonstrations.
    """
    parts = [] if given is None else [given]
    returns = [] if given is None or given.returns is None else list(given.returns)
    for episode in kept:
        if episode.details.interventions is None:
            parts.append(episode)
            returns += [] if episode.returns is None else list(episode.returns)
        else:
            parts += corrected_parts(episode)
    if not parts:
        return None
    joined = join(parts)
    recorded = Sample.of(returns) if returns else None
    stated = None if recorded is None else (recorded.mean, 0.0 if recorded.size < 2 else recorded.std, recorded.size)
    return replace(joined, rewards=None, recorded_return=stated)


def corrected_parts(episode: Demonstrations) -> list[Demonstrations]:
    """The steps of an attempt at which the person acted, as one episode for each run of them."""
    assert episode.details.interventions is not None
    acted = np.concatenate([[False], episode.details.interventions, [False]])
    starts, ends = np.flatnonzero(~acted[:-1] & acted[1:]), np.flatnonzero(acted[:-1] & ~acted[1:])
    following = episode.next_observations
    assert following is not None
    assert episode.terminals is not None
    return [
        Demonstrations.from_arrays(
            episode.observations[start:end],
            episode.actions[start:end],
            [end - start],
            last_observations=following[end - 1 : end],
            terminals=episode.terminals[start:end],
            action_space=episode.action_space,
            horizon=episode.horizon,
            env=episode.env,
            obs_parts=episode.obs_parts,
            source="corrections",
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def join(parts: list[Demonstrations]) -> Demonstrations:
    """Demonstrations of one task end to end. Facts that not all of them have are left out."""
    following = [part.next_observations for part in parts]
    terminals = [part.transitions().terminal for part in parts]
    rewards = [part.rewards for part in parts]
    return Demonstrations.from_arrays(
        np.concatenate([part.observations for part in parts]),
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        next_observations=None if any(x is None for x in following) else np.concatenate([*following]),
        terminals=np.concatenate(terminals),
        rewards=None if any(x is None for x in rewards) else np.concatenate([*rewards]),
        action_space=parts[-1].action_space,
        horizon=max(part.horizon for part in parts),
        env=parts[-1].env,
        obs_parts=parts[-1].obs_parts,
        details=_joined_details(parts),
        source="the console's demonstrations",
    )


def _joined_details(parts: list[Demonstrations]) -> Details:
    """Success, where every part says it; interventions, where any part has some."""
    successes = [part.details.successes for part in parts]
    flags = [part.details.interventions for part in parts]
    intervened = None
    if any(flag is not None for flag in flags):
        intervened = np.concatenate(
            [np.zeros(part.steps, bool) if flag is None else flag for part, flag in zip(parts, flags, strict=True)]
        )
    known = None if any(x is None for x in successes) else np.concatenate([*successes])
    return Details(successes=known, interventions=intervened)
