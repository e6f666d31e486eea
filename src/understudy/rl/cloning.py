"""Cloning inside reinforcement learning: a policy that starts as a clone, and a term that keeps it near one.

    error(π) = E_{(s, a) ~ D_E} ‖tanh μ(s) − a‖²

The mean action is compared, since demonstrated actions may lie on their bounds, where a tanh-Gaussian has no density.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.policies.gaussian import Gaussian, Squashed, StateDependent
from understudy.rl.base import Batch

LR, WEIGHT_DECAY = 1e-3, 0.01
"""Of AdamW, for a policy that starts as a clone."""


def cloning_error(actor: Squashed, batch: Batch) -> Float[Array, ""]:
    """The mean squared error of the mean action over the demonstrated steps of a batch; 0 if it has none."""
    error = jnp.square(jnp.tanh(actor.parameters(batch.obs)[0]) - batch.act).sum(-1)
    return (batch.demonstrated * error).sum() / jnp.maximum(batch.demonstrated.sum(), 1)


def clone(
    actor: Squashed, sample: Callable[[Key[Array, ""]], Batch], steps: int, entropy: float | Array, key: Key[Array, ""]
) -> Squashed:
    """The policy after gradient steps on the cloning error. `sample` draws a batch of demonstrated steps.

    A Gaussian then has noise of the given entropy in every state; state-dependent noise stays as it is.
    """
    adam = optax.adamw(LR, weight_decay=WEIGHT_DECAY)

    def step(carry: tuple[Squashed, Any], k: Key[Array, ""]) -> tuple[tuple[Squashed, Any], None]:
        actor, memory = carry
        gradient = jax.grad(cloning_error)(actor, sample(k))
        updates, memory = adam.update(gradient, memory, actor)
        return (eqx.apply_updates(actor, updates), memory), None

    (cloned, _), _ = jax.lax.scan(step, (actor, adam.init(actor)), jax.random.split(key, steps))
    if isinstance(cloned, Gaussian):
        return _with_entropy(cloned, entropy)
    assert isinstance(actor, StateDependent)
    return eqx.tree_at(lambda a: a.log_std, cloned, actor.log_std)  # weight decay has moved it


def _with_entropy(actor: Gaussian, entropy: float | Array) -> Gaussian:
    """The policy with the same log σ everywhere, so that its Gaussian, before tanh, has the given entropy."""
    weight, bias = actor.net.weights[-1], actor.net.biases[-1]
    size = bias.shape[0] // 2
    log_std = entropy / size - 0.5 * jnp.log(2 * jnp.pi * jnp.e)
    last = weight.at[:, size:].set(0.0), bias.at[size:].set(log_std)
    return eqx.tree_at(lambda a: (a.net.weights[-1], a.net.biases[-1]), actor, last)
