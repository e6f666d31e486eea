"""Supervised losses at one (s, a); callers vmap."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from understudy.core.types import Transition
from understudy.policies import Carry, Deterministic, Policy


def cloning_loss(policy: Policy, example: Transition) -> Float[Array, ""]:
    """The behavioral cloning loss ℓ_BC(π, s, a).

    ‖π(s) − a‖² for a deterministic policy, −log π(a | s) for any other.
    """
    carry = Carry(example.t, jnp.zeros_like(example.t))
    if isinstance(policy, Deterministic):
        return jnp.sum(jnp.square(policy.mode(carry, example.obs) - example.act))
    return -policy.log_prob(carry, example.obs, example.act)
