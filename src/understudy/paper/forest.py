"""Flights through the forest, round by round: DAgger, which matches the mean action, and DAeQuIL with chosen moments.

Ten trials on one forest, ten rounds of ten flights each after a start from behavioral cloning. A trial's score after a
round is how far its policy of that round flies, not the best of several. Beyond the paper: which moments it takes,
what a number of expert actions buys, and forests that no learner has seen.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.algorithms import daequil, dagger
from understudy.collect.recording import record
from understudy.collect.rollouts import play, rollout
from understudy.core.progress import Progress
from understudy.data import Demonstrations, load
from understudy.envs.forest import Forest, around, depth
from understudy.experts.expert import Expert
from understudy.game import Algorithm
from understudy.game.critics import Features
from understudy.paper.rounds import Trials
from understudy.policies import Policy
from understudy.studies.training import ProgressFactory
from understudy.train.imitate import imitate

DEMONSTRATIONS = 10
DAEQUIL = "swerve to where it is clear"
"""The moments of our own."""
EXPERT = "the expert"
Moments = Callable[[Forest], Features | None]


def swerve(obs: Array, act: Array) -> Float[Array, " 2"]:
    """The paper's two moments: the flag, and how far the proposed heading is from the current one."""
    return jnp.stack([obs[0], jnp.abs(act[0] - obs[3])])


def swerve_where(obs: Array, act: Array) -> Float[Array, " 5"]:
    """The five of the released run: the whole state, and how far the proposed heading is from the current one."""
    return jnp.stack([obs[0], obs[1], obs[2], obs[3], jnp.abs(act[0] - obs[3])])


def clear_swerve(forest: Forest) -> Features:
    """Three of our own: how far it swerves with a tree ahead, up to π/4; how far without; and whether it hits a tree.

    A hit counts 1 and its depth in metres: the 1 so that grazing a tree is no small thing, to the critic or to whoever
    picks the policy with the smallest payoff, and the depth so that there is a way out.

    The expert has π/4, 0 and, where any heading is clear, 0: the extremes, so that critics do not send the learner back
    and forth. What a policy cannot see, where the trees are, may still be a moment of what it does.
    """

    def moments(obs: Array, act: Array) -> Float[Array, " 3"]:
        turn = jnp.abs(act[0] - obs[3])
        inside = depth(around(forest.trees, obs), obs[1], obs[2], act[0])
        return jnp.stack([obs[0] * jnp.minimum(turn, jnp.pi / 4), (1 - obs[0]) * turn, inside + (inside > 0)])

    return moments


def some(chosen: list[int], moments: Moments) -> Moments:
    """Some of the moments, by their places."""

    def those(forest: Forest) -> Features:
        all_ = moments(forest)
        assert all_ is not None
        return lambda obs, act: all_(obs, act)[jnp.array(chosen)]

    return those


Learner = Callable[[Forest], Algorithm]


def _network(moments: Moments, **changes: Any) -> Learner:
    return lambda forest: daequil.preset("forest", moments=moments(forest), **changes)


def _linear(moments: Moments, **changes: Any) -> Learner:
    return lambda forest: daequil.preset("linear", moments=moments(forest), **changes)


def _paper(forest: Forest) -> Features:
    return swerve


LEARNERS: dict[str, Learner] = {
    "dagger, forest": lambda forest: dagger.preset("forest"),
    "daequil, the paper's two moments": _network(_paper),
    f"daequil, {DAEQUIL}": _linear(clear_swerve),
}
ABLATION: dict[str, Learner] = {
    "daequil, state and action": _network(lambda forest: None),
    "daequil, the paper's two moments": _network(_paper),
    "daequil, the released five": _network(lambda forest: swerve_where),
    "daequil, the flag alone": _network(some([0], _paper)),
    "daequil, the change of heading alone": _network(some([1], _paper)),
    "daequil, the paper's two, R": _network(_paper, anchor=3.0, gradient_weight=0.25),
    "daequil, the paper's two, linear": _linear(
        lambda forest: lambda obs, act: jnp.stack([obs[0], 1 - obs[0]]) * jnp.abs(act[0] - obs[3])
    ),
    f"daequil, {DAEQUIL}": _linear(clear_swerve),
    f"daequil, {DAEQUIL}, without R": _linear(clear_swerve, anchor=0.0),
    f"daequil, {DAEQUIL}, a network": _network(clear_swerve, anchor=1.0),
    "daequil, swerve alone": _linear(some([0, 1], clear_swerve)),
    "daequil, clear alone": _linear(some([2], clear_swerve)),
}
UNSEEN: dict[str, Learner] = {
    # Rounds enough for whoever asks least in each to spend the budget.
    "dagger, forest": lambda forest: dagger.preset("forest", rounds=61, episodes_per_round=20),
    "daequil, the paper's two moments": _network(_paper, rounds=61, episodes_per_round=20),
    f"daequil, {DAEQUIL}": _linear(clear_swerve, rounds=61, episodes_per_round=20),
}


def trials(
    name: str,
    algorithm: Algorithm,
    forest: Forest,
    seeds: int,
    demonstrations: Demonstrations | None = None,
    progress: Progress | None = None,
) -> tuple[Trials, list[Policy]]:
    """A learner's trials, and the policies that they hand over."""
    scores: list[np.ndarray] = []
    keys = jax.random.split(jax.random.key(0), 1)  # a deterministic policy always flies the same way

    @jax.jit
    def score(states: Any) -> Array:
        return jax.vmap(lambda state: play(forest, algorithm.policy(state), keys, True).rewards.sum(1))(states)

    def visit(done: int, states: Any) -> None:
        scores.append(np.asarray(score(states())))

    result = imitate(
        algorithm,
        load(forest.name).first(DEMONSTRATIONS) if demonstrations is None else demonstrations,
        forest,
        Expert(forest.expert()),
        seeds=seeds,
        progress=progress,
        visit=visit,
    )
    if result.interrupted:
        raise KeyboardInterrupt("what had finished before is kept")
    family, _, preset = name.partition(", ")
    queries = np.fmax.accumulate(result.metrics["queries"].T)
    policies = [actor.policy for actor in result.policies]
    handed = np.array([float(rollout(forest, policy, 1).returns[0]) for policy in policies])
    return Trials(family, preset, np.stack(scores), queries, handed), policies


def cloning(forest: Forest, counts: list[int], seeds: int, progress: ProgressFactory) -> dict[int, np.ndarray]:
    """Behavioral cloning, DAgger's first round, by the number of expert actions it is shown → the trials' scores."""
    found = {}
    for count in counts:
        shown = record(forest, None, count, seed=count)
        with progress(f"cloning of {count} flights") as report:
            one, _ = trials("bc, forest", dagger.preset("forest", rounds=1), forest, seeds, shown, report)
        found[shown.steps] = one.returns[0].mean(axis=1)
    return found


def unseen(
    learners: dict[str, Learner], forest: Forest, others: Forest, queries: int, seeds: int, progress: ProgressFactory
) -> dict[str, np.ndarray]:
    """Learner → (trials, forests) scores in other forests, of the policies handed over after so many queries.

    The expert's own are among them, a flight of its own for each trial.
    """
    shown = record(forest, None, 2 * len(forest.trees), seed=0)
    expert = Expert(forest.expert()).budget(queries)

    @partial(jax.jit, static_argnames=("flights",))
    def fly(policy: Policy | None, flights: int) -> Array:
        keys = jax.random.split(jax.random.key(0), flights)

        def one(trees: Array) -> Array:
            there = Forest(trees[None])  # a policy that learned in several forests expects a forest's number
            return play(there, policy or there.expert(), keys, policy is not None).rewards.sum(1)

        return jax.lax.map(one, others.trees).T

    found = {}
    for name, learner in learners.items():
        with progress(f"{name}, {len(forest.trees)} forests") as report:
            result = imitate(
                learner(forest), shown, forest, expert, seeds=seeds, progress=report, policy_obs=(0, 1, 2, 3)
            )
        if result.interrupted:
            raise KeyboardInterrupt("what had finished before is kept")
        found[name] = np.concatenate([np.asarray(fly(actor.policy, 1)) for actor in result.policies])
    return {**found, EXPERT: np.asarray(fly(None, seeds))}
