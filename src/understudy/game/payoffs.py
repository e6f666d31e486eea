"""The three imitation games: what the learner minimises and the moment function maximises.

    payoff(π, f) = E f(learner pair) − E f(expert pair),        E = (1/T) Σ_t over the horizon

The sign convention, stated here once and used everywhere: **f is a cost**. The policy minimises the payoff, the moment
function maximises it, and the reward handed to an RL player is −f. With f = −r, −Q^π, −Q^{π_E} in turn, the three
payoffs are the same number, (J(π_E) − J(π)) / T (the performance difference lemma; `tests/test_identities.py`).

The games differ only in the pair of samples they compare:

    moments        learner's sample                  expert's sample
    reward (U1)    s, a ~ π                          s, a ~ demonstrations
    off-Q  (U2)    s ~ demonstrations, a ~ π(s)      s, a ~ demonstrations
    on-Q   (U3)    s, a ~ π                          s ~ π, a ~ π_E(s)

so off-Q and on-Q are one operation, `relabel`, applied to the one side or the other. Samples carry weights: a minibatch
and an exact, enumerated expectation on a finite MDP go through the same code.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.core.types import Pair, Samples
from understudy.game.critics import Critic, as_vector
from understudy.policies import Carry, Policy


def payoff(critic: Critic, pair: Pair) -> Float[Array, ""]:
    """E f(learner) − E f(expert), in one pass of f over both sides."""
    sides = (pair.learner, pair.expert._replace(weight=-pair.expert.weight))
    return expectation(critic, jax.tree.map(lambda *parts: jnp.concatenate(parts), *sides))


def expectation(critic: Critic, samples: Samples) -> Float[Array, ""]:
    """Σ weight · f_t(s, a)."""
    return jnp.sum(samples.weight * jax.vmap(critic)(samples.t, samples.obs, samples.act))


def reward(learner: Samples, expert: Samples) -> Pair:
    """U1: both sides on their own states. Needs the environment."""
    return Pair(learner, expert)


def off_q(policy: Policy, expert: Samples, key: Key[Array, ""]) -> Pair:
    """U2: the learner acts on the demonstrations' states. Needs demonstrations only."""
    return Pair(relabel(policy, expert, key), expert)


def off_q_vectors(policy: Policy, expert: Samples, actions: int | None, key: Key[Array, ""]) -> Pair:
    """U2 with one learner's sample for each of the expert's, its action a vector that a gradient passes through.

    That is a draw of a continuous policy, and the probabilities of a categorical one over its `actions`; where f is not
    linear in them, f of the probabilities stands in for the expectation of f.
    """

    def one(t: Array, obs: Array, k: Array) -> Array:
        acts, weights = policy.support(Carry(t, jnp.zeros_like(t)), obs, k)
        return weights @ jax.vmap(as_vector, (0, None))(acts, actions)

    keys = jax.random.split(key, expert.weight.shape[0])
    learner = expert._replace(act=jax.vmap(one)(expert.t, expert.obs, keys))
    return Pair(learner, expert._replace(act=jax.vmap(as_vector, (0, None))(expert.act, actions)))


def on_q(learner: Samples, expert_policy: Policy, key: Key[Array, ""]) -> Pair:
    """U3: the expert acts on the learner's states. Needs the environment and a queryable expert."""
    return Pair(learner, relabel(expert_policy, learner, key))


def relabel(policy: Policy, samples: Samples, key: Key[Array, ""]) -> Samples:
    """The samples' states with the policy's actions: enumerated where the policy can be, drawn where it cannot.

    Samples that differ only in their action stand for the same state more than once, which the weights account for.
    """

    def one(t: Array, obs: Array, weight: Array, k: Array) -> Samples:
        acts, weights = policy.support(Carry(t, jnp.zeros_like(t)), obs, k)
        count = weights.shape[0]
        return Samples(jnp.repeat(t[None], count), jnp.repeat(obs[None], count, axis=0), acts, weight * weights)

    keys = jax.random.split(key, samples.weight.shape[0])
    relabelled = jax.vmap(one)(samples.t, samples.obs, samples.weight, keys)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), relabelled)
