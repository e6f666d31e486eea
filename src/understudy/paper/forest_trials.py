"""Learners of the Forest figure, and their trials: DAgger, and DAeQuIL with different moments.

A figure has ten trials on one forest: ten rounds of ten episodes each, after behavioral cloning. A trial's score after
a round is the distance that this round's policy flies, not the best so far. Beyond the paper: other moments, the value
of expert actions compared with cloning, and evaluation in forests that were not seen in training.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.algorithms.on_q.daequil import DAeQuIL
from understudy.algorithms.on_q.dagger import DAgger
from understudy.collect.recording import record
from understudy.collect.rollouts import play, rollout
from understudy.core.progress import Progress
from understudy.data import Demonstrations, load
from understudy.envs.forest import Forest, depth, trees_of
from understudy.experts.expert import Expert
from understudy.game import Algorithm
from understudy.game.features import Features
from understudy.paper.on_q_trials import Trials
from understudy.policies import Policy
from understudy.studies.training import ProgressFactory
from understudy.train.imitate import imitate

DEMONSTRATIONS = 10
DAEQUIL = "swerve to where it is clear"
"""The name of this project's own moments, see `clear_swerve`."""
EXPERT = "the expert"
Moments = Callable[[Forest], Features | None]


def swerve(obs: Array, act: Array) -> Float[Array, " 2"]:
    """The paper's two moments: the flag (a tree is ahead), and the change of heading."""
    return jnp.stack([obs[0], jnp.abs(act[0] - obs[3])])


def swerve_where(obs: Array, act: Array) -> Float[Array, " 5"]:
    """The five moments of the released run: the whole state, and the change of heading."""
    return jnp.stack([obs[0], obs[1], obs[2], obs[3], jnp.abs(act[0] - obs[3])])


def clear_swerve(forest: Forest) -> Features:
    """Our three moments: the change of heading with a tree ahead, up to π/4; without one; and collision with a tree.

    A collision counts 1 plus its depth in meters. The 1 makes grazing a tree count for the critic and for the selection
    by payoff; the depth gives the policy a gradient away from the tree.

    The expert's values are π/4, 0 and, wherever any heading is free, 0. These are the extremes, so critics do not push
    the learner back and forth. The trees are part of the moments although the policy does not observe them.
    """

    def moments(obs: Array, act: Array) -> Float[Array, " 3"]:
        turn = jnp.abs(act[0] - obs[3])
        inside = depth(trees_of(forest.trees, obs), obs[1], obs[2], act[0])
        return jnp.stack([obs[0] * jnp.minimum(turn, jnp.pi / 4), (1 - obs[0]) * turn, inside + (inside > 0)])

    return moments


@cache
def _usual_forest() -> Forest:
    with jax.ensure_compile_time_eval():
        return Forest()


def clear_swerve_at_home(obs: Array, act: Array) -> Float[Array, " 3"]:
    """`clear_swerve` in the forest of the figure, which `--env Forest` is too: for `understudy console --moments`."""
    return clear_swerve(_usual_forest())(obs, act)


def select(indices: list[int], moments: Moments) -> Moments:
    """The moments with these indices."""

    def selected(forest: Forest) -> Features:
        features = moments(forest)
        assert features is not None
        return lambda obs, act: features(obs, act)[jnp.array(indices)]

    return selected


Learner = Callable[[Forest], Algorithm]


def _network(moments: Moments, **changes: Any) -> Learner:
    return lambda forest: DAeQuIL.preset("forest", moments=moments(forest), **changes)


def _linear(moments: Moments, **changes: Any) -> Learner:
    return lambda forest: DAeQuIL.preset("linear", moments=moments(forest), **changes)


def _paper(forest: Forest) -> Features:
    return swerve


LEARNERS: dict[str, Learner] = {
    "dagger, forest": lambda forest: DAgger.preset("forest"),
    "daequil, the paper's two moments": _network(_paper),
    f"daequil, {DAEQUIL}": _linear(clear_swerve),
}
ABLATION: dict[str, Learner] = {
    "daequil, state and action": _network(lambda forest: None),
    "daequil, the paper's two moments": _network(_paper),
    "daequil, the released five": _network(lambda forest: swerve_where),
    "daequil, the flag alone": _network(select([0], _paper)),
    "daequil, the change of heading alone": _network(select([1], _paper)),
    "daequil, the paper's two, R": _network(_paper, anchor=3.0, gradient_weight=0.25),
    "daequil, the paper's two, linear": _linear(
        lambda forest: lambda obs, act: jnp.stack([obs[0], 1 - obs[0]]) * jnp.abs(act[0] - obs[3])
    ),
    f"daequil, {DAEQUIL}": _linear(clear_swerve),
    f"daequil, {DAEQUIL}, without R": _linear(clear_swerve, anchor=0.0),
    f"daequil, {DAEQUIL}, a network": _network(clear_swerve, anchor=1.0),
    "daequil, swerve alone": _linear(select([0, 1], clear_swerve)),
    "daequil, clear alone": _linear(select([2], clear_swerve)),
}
UNSEEN: dict[str, Learner] = {
    # Enough rounds for every learner to use up the query budget.
    "dagger, forest": lambda forest: DAgger.preset("forest", rounds=61, episodes_per_round=20),
    "daequil, the paper's two moments": _network(_paper, rounds=61, episodes_per_round=20),
    f"daequil, {DAEQUIL}": _linear(clear_swerve, rounds=61, episodes_per_round=20),
}
ONE_FLIGHT = {"episodes_per_round": 1, "rounds": 121}
"""A deterministic policy flies one path, so one flight a round shows all of it. The budget ends the run."""
NOVEL = {**ONE_FLIGHT, "ask": "novel", "queries_per_round": 10}
ANSWERS: dict[str, Learner] = {
    "dagger, every state of one flight": lambda forest: DAgger.preset("forest", **ONE_FLIGHT),
    "dagger, ten novel states": lambda forest: DAgger.preset("forest", **NOVEL),
    "daequil, every state of ten flights": _linear(clear_swerve),
    "daequil, every state of one flight": _linear(clear_swerve, **ONE_FLIGHT),
    "daequil, ten novel states": _linear(clear_swerve, **NOVEL),
}


def run_trials(
    name: str,
    algorithm: Algorithm,
    forest: Forest,
    seeds: int,
    demonstrations: Demonstrations | None = None,
    progress: Progress | None = None,
) -> tuple[Trials, list[Policy]]:
    """A learner's trials and their final policies."""
    scores: list[np.ndarray] = []
    keys = jax.random.split(jax.random.key(0), 1)  # a deterministic policy always flies the same path

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
        raise KeyboardInterrupt("finished learners are saved")
    family, _, preset = name.partition(", ")
    queries = np.fmax.accumulate(result.metrics["queries"].T)
    policies = [actor.policy for actor in result.policies]
    final = np.array([float(rollout(forest, policy, 1).returns[0]) for policy in policies])
    return Trials(family, preset, np.stack(scores), queries, final), policies


def clone_by_flights(forest: Forest, counts: list[int], seeds: int, progress: ProgressFactory) -> dict[int, np.ndarray]:
    """Behavioral cloning (DAgger's first round): number of demonstrated expert actions → the trials' distances."""
    scores = {}
    for count in counts:
        demonstrations = record(forest, None, count, seed=count)
        with progress(f"cloning of {count} flights") as report:
            one, _ = run_trials("bc, forest", DAgger.preset("forest", rounds=1), forest, seeds, demonstrations, report)
        scores[demonstrations.steps] = one.returns[0].mean(axis=1)
    return scores


def fly_unseen(
    learners: dict[str, Learner], forest: Forest, others: Forest, queries: int, seeds: int, progress: ProgressFactory
) -> dict[str, np.ndarray]:
    """Learner → (trials, forests): distances of the final policies in other forests, after this many queries.

    The expert is one of the learners, with a different flight for each trial.
    """
    demonstrations = record(forest, None, 2 * len(forest.trees), seed=0)
    expert = Expert(forest.expert()).budget(queries)

    distances = {}
    for name, learner in learners.items():
        with progress(f"{name}, {len(forest.trees)} forests") as report:
            result = imitate(
                learner(forest), demonstrations, forest, expert, seeds=seeds, progress=report, policy_obs=(0, 1, 2, 3)
            )
        if result.interrupted:
            raise KeyboardInterrupt("finished learners are saved")
        distances[name] = np.concatenate([np.asarray(fly(others, actor.policy, 1)) for actor in result.policies])
    return {**distances, EXPERT: np.asarray(fly(others, None, seeds))}


@partial(jax.jit, static_argnames=("flights", "indexed"))
def fly(others: Forest, policy: Policy | None, flights: int, indexed: bool = True) -> Float[Array, "flights forests"]:
    """Distances in each of several forests, of a policy or of the expert (None).

    `indexed`: the policy was trained in several forests, whose observations end with the index of the forest.
    """
    keys = jax.random.split(jax.random.key(0), flights)

    def one(trees: Array) -> Array:
        other = Forest(trees[None] if indexed else trees)
        return play(other, policy or other.expert(), keys, policy is not None).rewards.sum(1)

    return jax.lax.map(one, others.trees).T
