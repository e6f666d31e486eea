"""The losses of SAC and the values of its critics, one function for each line of `rl.sac`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from understudy.policies.gaussian import Squashed
from understudy.policies.networks import MLP, NormedMLP
from understudy.rl.base import Batch
from understudy.rl.cloning import cloning_error
from understudy.rl.optimism import Combine


def target(
    batch: Batch,
    actor: Squashed,
    targets: MLP | NormedMLP,
    temperature: Float[Array, ""],
    discount: float | Array,
    noise: Float[Array, "n act"],
    bound_values: bool,
    combine: Combine,
) -> Float[Array, " n"]:
    """y = r + γ (c · (Q̄(s', a') − α log π(a' | s')) + v), with a' from `noise` and Q̄ = combine(Q̄_1, Q̄_2, ...)."""
    act, log_prob = actor.draw_from(batch.next_obs, noise)
    value = combine(values(targets, batch.next_obs, act)) - temperature * log_prob
    if bound_values:
        value = jnp.minimum(value, batch.value_bound + temperature * act.shape[-1] * jnp.log(2.0) / (1 - discount))
    return batch.reward + discount * (batch.bootstrap * value + batch.terminal_value)


def critics_loss(
    critics: MLP | NormedMLP, batch: Batch, y: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """½ Σ_i E (Q_i(s, a) − y)², and the mean Q-value."""
    q = values(critics, batch.obs, batch.act)
    return 0.5 * jnp.square(q - y).mean(1).sum(), q.mean()


def actor_loss(
    actor: Squashed,
    critics: MLP | NormedMLP,
    batch: Batch,
    temperature: Float[Array, ""],
    noise: Float[Array, "n act"],
    cloning_weight: float | Array,
    combine: Combine,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """E [ α log π(x | s) − combine(Q_1, ...)(s, x) ] + λ q̄ C(π), with x from `noise`, and E log π(x | s)."""
    act, log_prob = actor.draw_from(batch.obs, noise)
    q = combine(values(critics, batch.obs, act))
    size = jax.lax.stop_gradient(jnp.abs(q).mean())
    loss = (temperature * log_prob - q).mean() + cloning_weight * size * cloning_error(actor, batch)
    return loss, log_prob.mean()


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, ""], entropy: float | int | Array
) -> Float[Array, ""]:
    """−log α · (E log π(x | s) + H). α grows while the entropy is below H."""
    return -log_temperature * (log_prob + entropy)


def values(critics: MLP | NormedMLP, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Float[Array, "k n"]:
    """Q_1(s, a), Q_2(s, a), ..."""
    return critics(jnp.concatenate([obs, act], -1))[..., 0]
