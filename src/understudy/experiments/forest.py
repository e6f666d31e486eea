"""Flights through the forest, round by round: DAgger, which matches the mean action, and DAeQuIL with chosen moments.

Ten trials on one forest, ten rounds of ten flights each after a start from behavioral cloning. A trial's score after a
round is how far its policy of that round flies, not the best of several.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.algorithms import daequil, dagger
from understudy.data import load
from understudy.envs.forest import Forest
from understudy.experts import Expert
from understudy.front_door import imitate
from understudy.game import Algorithm
from understudy.results import Result
from understudy.rollouts import play
from understudy.run import Progress


def swerve(obs: Array, act: Array) -> Float[Array, " 2"]:
    """The paper's two moments: the flag, and how far the proposed heading is from the current one."""
    return jnp.stack([obs[0], jnp.abs(act[0] - obs[3])])


def swerve_where(obs: Array, act: Array) -> Float[Array, " 5"]:
    """The five of the released run: the whole state, and how far the proposed heading is from the current one."""
    return jnp.stack([obs[0], obs[1], obs[2], obs[3], jnp.abs(act[0] - obs[3])])


LEARNERS: dict[str, Algorithm] = {
    "dagger": dagger.preset("forest"),
    "daequil, 2 moments": daequil.preset("forest", moments=swerve),
    "daequil, 5 moments": daequil.preset("forest", moments=swerve_where),
    "daequil, 2 moments and R": daequil.preset("forest", moments=swerve, anchor=3.0, gradient_weight=0.25),
}


def trials(
    algorithm: Algorithm, forest: Forest, seeds: int, demonstrations: int = 10, progress: Progress | None = None
) -> tuple[np.ndarray, Result]:
    """(rounds, trials) scores of each round's policy, and the runs."""
    scores: list[np.ndarray] = []
    keys = jax.random.split(jax.random.key(0), 1)  # a deterministic policy always flies the same way

    @jax.jit
    def score(states: Any) -> Array:
        def one(state: Any) -> Array:
            return play(forest, algorithm.policy(state), keys, True)[1].sum(1).mean()

        return jax.vmap(one)(states)

    def visit(done: int, states: Any) -> None:
        scores.append(np.asarray(score(states())))

    expert = Expert(forest.expert())
    result = imitate(
        algorithm,
        load("Forest"),
        forest,
        expert,
        seeds=seeds,
        episodes=demonstrations,
        progress=progress,
        visit=visit,
    )
    return np.stack(scores), result


def rows(name: str, scores: np.ndarray, queries: np.ndarray) -> list[list[Any]]:
    """The project's standard columns, and the expert's queries until then."""
    algorithm, _, preset = name.partition(", ")
    made: Sequence[tuple[int, int]] = [(r, t) for r in range(len(scores)) for t in range(scores.shape[1])]
    return [
        ["Forest", algorithm, preset or "forest", t, "round", r, round(float(scores[r, t]), 2), 0.0, int(queries[t, r])]
        for r, t in made
    ]
