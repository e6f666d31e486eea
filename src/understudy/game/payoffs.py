"""The payoffs of the three imitation games. The learner minimises them, the moment function maximises them.

    payoff(π, f) = E f(learner pair) − E f(expert pair),        E = (1/T) Σ_t over the horizon

The sign convention of the whole library: **f is a cost**. An RL player gets the reward −f. With f = −r, −Q^π and
−Q^{π_E}, the three payoffs are all equal to (J(π_E) − J(π)) / T, by the performance difference lemma
(`tests/game/test_identities.py`).

The games differ only in the pair of samples that they compare:

    moments        learner's sample                  expert's sample
    reward (U1)    s, a ~ π                          s, a ~ demonstrations
    off-Q  (U2)    s ~ demonstrations, a ~ π(s)      s, a ~ demonstrations
    on-Q   (U3)    s, a ~ π                          s ~ π, a ~ π_E(s)

Off-Q and on-Q are the same operation, `relabel`, applied to one side or the other. Samples have weights, so that
minibatches and exact expectations on finite MDPs use the same code.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

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
    """U1: each side acts in its own states. Needs the environment."""
    return Pair(learner, expert)


def off_q(policy: Policy, expert: Samples, key: Key[Array, ""]) -> Pair:
    """U2: the learner acts in the demonstrated states. Needs demonstrations only."""
    return Pair(relabel(policy, expert, key), expert)


def off_q_vectors(policy: Policy, expert: Samples, actions: int | None, key: Key[Array, ""]) -> Pair:
    """U2 with one learner's sample for each of the expert's, and actions as vectors (`action_vector`)."""
    keys = jax.random.split(key, expert.weight.shape[0])
    acts = jax.vmap(action_vector, (None, 0, 0, None, 0))(policy, expert.t, expert.obs, actions, keys)
    expert_acts = jax.vmap(as_vector, (0, None))(expert.act, actions)
    return Pair(expert._replace(act=acts), expert._replace(act=expert_acts))


def action_vector(
    policy: Policy, t: Int[Array, ""], obs: Array, actions: int | None, key: Key[Array, ""]
) -> Float[Array, " a"]:
    """The policy's action in one state as a vector that gradients pass through.

    A continuous policy gives a sample. A categorical one over `actions` actions gives its probabilities; f of the
    probabilities then stands for the expectation of f, which is exact if f is linear in them.
    """
    return support_mean(policy, lambda act: as_vector(act, actions), t, obs, key)


def support_mean(
    policy: Policy, features: Callable[[Array], Array], t: Int[Array, ""], obs: Array, key: Key[Array, ""]
) -> Float[Array, " k"]:
    """E_{a ~ π(s)} φ(a) in one state: exact if the actions can be enumerated, else at one sample."""
    acts, weights = policy.support(Carry(t, jnp.zeros_like(t)), obs, key)
    return weights @ jax.vmap(features)(acts)


def on_q(learner: Samples, expert_policy: Policy, key: Key[Array, ""]) -> Pair:
    """U3: the expert acts in the learner's states. Needs the environment and a queryable expert."""
    return Pair(learner, relabel(expert_policy, learner, key))


def relabel(policy: Policy, samples: Samples, key: Key[Array, ""]) -> Samples:
    """The samples' states with the policy's actions: all of them, weighted, if enumerable, else one draw."""

    def one(t: Array, obs: Array, weight: Array, k: Array) -> Samples:
        acts, weights = policy.support(Carry(t, jnp.zeros_like(t)), obs, k)
        count = weights.shape[0]
        return Samples(jnp.repeat(t[None], count), jnp.repeat(obs[None], count, axis=0), acts, weight * weights)

    keys = jax.random.split(key, samples.weight.shape[0])
    relabelled = jax.vmap(one)(samples.t, samples.obs, samples.weight, keys)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), relabelled)
