"""Supervised losses, and the entropy of a policy, at one state; callers vmap."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.core.types import Transition
from understudy.policies import Carry, Categorical, Deterministic, Policy, Squashed


def cloning_loss(policy: Policy, example: Transition) -> Float[Array, ""]:
    """The behavioral cloning loss ℓ_BC(π, s, a).

    ‖π(s) − a‖² for a deterministic policy, −log π(a | s) for any other.
    """
    carry = Carry(example.t, jnp.zeros_like(example.t))
    if isinstance(policy, Deterministic):
        return jnp.sum(jnp.square(policy.mode(carry, example.obs) - example.act))
    return -policy.log_prob(carry, example.obs, example.act)


def entropy(policy: Policy, obs: Array, key: Key[Array, ""]) -> Float[Array, ""]:
    """H(π(s)): exact for a categorical policy, else −log π(a | s) at one sample that gradients pass through.

    0 for a deterministic policy, whose entropy no gradient step changes.
    """
    if isinstance(policy, Categorical):
        log_prob = jax.nn.log_softmax(policy.net(obs))
        return -jnp.sum(jnp.exp(log_prob) * log_prob)
    if isinstance(policy, Squashed):
        noise = jax.random.normal(key, policy.parameters(obs)[0].shape)
        return -policy.draw_from(obs, noise)[1]
    if isinstance(policy, Deterministic):
        return jnp.zeros(())
    raise TypeError(f"a {type(policy).__name__} policy has no entropy here")
