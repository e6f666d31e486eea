"""A better policy: whether a short search finds one that returns much more than the demonstrations.

The cross-entropy method searches simple policies, linear in standardized observations: a population of them plays one
episode each, the best tenth sets the mean and the spread of the next population. The best mean plays fresh episodes.
A good expert is hard to beat so; where it is beaten by far, the demonstrations are poor.
"""

from typing import Any

import numpy as np

from understudy.collect.rollouts import rollout
from understudy.core.errors import UnderstudyError
from understudy.core.types import Continuous, Discrete
from understudy.diagnosis.subject import Subject
from understudy.envs import Environment

STEPS = {True: 120_000, False: 60_000}
"""Environment steps of a search, at most: of JAX environments, and of others, whose steps take longer."""
POPULATION = (20, 100)
"""The least and the largest population."""
LEAST = 5
"""Generations that the steps must allow if all episodes last for the whole horizon."""
MOST = 12
ELITE = 0.1
KEPT = 0.3
"""Share of the old spread that a new generation keeps."""
MOST_WEIGHTS = 120


def returns(subject: Subject) -> np.ndarray | None:
    """Returns of fresh episodes of the best policy that the search finds. None: not searched."""
    env, demos = subject.env, subject.demos
    if env is None or demos is None:
        return None
    space, horizon = env.spec.action, env.spec.horizon
    if not isinstance(space, Continuous | Discrete):
        return None
    outputs = len(space.low) if isinstance(space, Continuous) else space.n
    played = [one.flat(np.asarray(one.steps.obs)) for one in subject.played.values()]
    if not played:
        return None
    seen = np.concatenate(played).astype(np.float64)
    mean, std = seen.mean(0), seen.std(0)
    std = np.where(std > 1e-9 * (1 + np.abs(mean)), std, 1.0)
    shape = (seen.shape[1] + 1, outputs)
    steps = STEPS[isinstance(env, Environment)]
    population = min(POPULATION[1], steps // (LEAST * horizon))
    if population < POPULATION[0] or shape[0] * shape[1] > MOST_WEIGHTS:
        return None
    rng = np.random.default_rng(subject.seeds(9)[8])

    def acting(weights: np.ndarray) -> Any:
        """One policy for each episode: (episodes, observations + 1, outputs)."""

        def act(obs: np.ndarray) -> np.ndarray:
            x = np.concatenate([np.clip((obs - mean) / std, -10, 10), np.ones((len(obs), 1))], axis=1)
            scores = np.einsum("ei,eio->eo", x, weights)
            if isinstance(space, Discrete):
                return scores.argmax(1).astype(np.int32)
            low, high = np.asarray(space.low), np.asarray(space.high)
            return ((low + high) / 2 + np.tanh(scores) * (high - low) / 2).astype(np.float32)

        return act

    centre, width = np.zeros(shape), np.ones(shape)
    try:
        for generation in range(MOST):
            tried = centre + width * rng.standard_normal((population, *shape))
            found = rollout(env, acting(tried), population, subject.seeds(10 + generation)[-1])
            best = tried[np.argsort(-found.returns)[: max(int(ELITE * population), 3)]]
            centre, width = best.mean(0), KEPT * width + (1 - KEPT) * best.std(0)
            steps -= int(found.lengths.sum())
            if steps <= 0:
                break
        whole = np.tile(centre, (subject.episodes, 1, 1))
        return rollout(env, acting(whole), subject.episodes, subject.seeds(1)[0]).returns
    except (UnderstudyError, ValueError, ArithmeticError):  # an environment may reject what a search tries
        return None
