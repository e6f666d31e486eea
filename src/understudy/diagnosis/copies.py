"""Copies: episodes that repeat an earlier one, and whether the environment itself repeats."""

import hashlib

import numpy as np
from scipy.optimize import brentq

from understudy.collect.recorder import Episodes
from understudy.data import Demonstrations
from understudy.diagnosis.alike import spread
from understudy.diagnosis.subject import Subject

CLOSE = 1e-3
"""Copies differ by at most this share of the numbers' standard deviation (root mean square, at most 4 times as much
anywhere), and by at most `CHANCE` / episodes."""
CHANCE = 0.05
"""With one number that differs from start to start, chance then brings 6% of the episodes as close together: starts
count as close at twice this distance."""
CANDIDATES = 20
MOST_STATES = 1e4


def repeated(demos: Demonstrations) -> float:
    """The share of episodes that repeat an earlier one, up to small errors, a shorter one its first part."""
    obs = demos.observations.astype(np.float64) / spread(demos.observations.astype(np.float64))
    act = demos.actions.reshape(demos.steps, -1).astype(np.float64)
    act = act / spread(act)
    close = min(CLOSE, CHANCE / demos.episodes)
    starts = np.cumsum(demos.lengths) - demos.lengths
    first = obs[starts] / np.minimum(spread(obs[starts]), 1.0)  # starts may be much closer together than states
    again = 0
    own: list[int] = []
    seen: set[bytes] = set()
    for number, (start, length) in enumerate(zip(starts, demos.lengths, strict=True)):
        rows = slice(int(start), int(start + length))
        key = hashlib.sha256(demos.observations[rows].tobytes() + demos.actions[rows].tobytes()).digest()
        if key in seen:
            again += 1
            continue
        seen.add(key)
        near = np.abs(first[own] - first[number]).max(1) <= 2 * close
        for e in np.asarray(own, int)[near][:CANDIDATES]:
            common = int(min(length, demos.lengths[e]))
            if 2 * common < max(length, demos.lengths[e]):
                continue
            there = slice(int(starts[e]), int(starts[e]) + common)
            here = slice(int(start), int(start) + common)
            apart = np.concatenate([obs[there] - obs[here], act[there] - act[here]], axis=1)
            if np.sqrt(np.square(apart).mean()) <= close and np.abs(apart).max() <= 4 * close:
                again += 1
                break
        else:
            own.append(number)
    return again / demos.episodes


def branches(demos: Demonstrations) -> bool:
    """Whether the same observation and action are followed by different ones: then chance repeats no long episode."""
    steps = demos.transitions()
    rows = np.flatnonzero(steps.known_next)[:20_000]
    followed: dict[bytes, bytes] = {}
    act = demos.actions.reshape(demos.steps, -1)
    for i in rows:
        key = demos.observations[i].tobytes() + act[i].tobytes()
        after = steps.next_obs[i].tobytes()
        if followed.setdefault(key, after) != after:
            return True
    return False


def repeats_in_env(subject: Subject) -> float | None:
    """The share of as many fresh episodes as there are demonstrations that would repeat an earlier one. None: unknown.

    Episodes of a policy repeat whole; of random actions, their starts. The number of different ones in a few fresh
    episodes says how many there are in the environment.
    """
    demos = subject.demos
    policies = [subject.played[name] for name in ("expert", "clone", "learner") if name in subject.played]
    if demos is None or (not policies and subject.explored is None):
        return None
    distinct = [_distinct(one, whole=True) for one in policies]
    if not distinct:
        assert subject.explored is not None
        distinct = [_distinct(subject.explored, whole=False)]
    count, different = distinct[0]
    if count < 2:
        return None
    if different == count:
        return 0.0

    def expected(states: float, episodes: int) -> float:
        return states * (1 - (1 - 1 / states) ** episodes)

    states = 1.0
    if different > 1:
        states = float(brentq(lambda d: expected(d, count) - different, 1.0, MOST_STATES))
    return float(1 - expected(states, demos.episodes) / demos.episodes)


def _distinct(played: Episodes, whole: bool) -> tuple[int, int]:
    """How many episodes, and how many different ones."""
    obs = np.asarray(played.steps.obs)
    parts = [obs[i, : (length if whole else 1)].tobytes() for i, length in enumerate(played.lengths)]
    return len(parts), len(set(parts))
