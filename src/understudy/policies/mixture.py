"""A mixture of Gaussians that are clipped to the range of actions, for an expert with several ways to act in a state.

a = clip(u, −1, 1), where u is drawn from one of K Gaussians, the k-th with probability w_k(s):

    π(a | s) = Σ_k w_k(s) Π_i p_k(a_i),    p_k(a_i) = N(a_i; μ_ki(s), σ_ki(s)²)              inside
                                                      P(u_i ≤ −1) or P(u_i ≥ 1) under it     at a bound

So a bound has a probability, not a density, and together they are 1. An expert that saturates its actions needs no
infinite mean, as it would under tanh, and a mean beyond the bound costs nothing. Actions within `MARGIN` of a bound
count as the bound. σ has a floor: the likelihood of a component on a single action would be unbounded.

`mode` is the mean of the component with the largest weight, clipped. The mean of the mixture may lie between its
components, where the expert never acts, and the highest density may belong to a narrow component of small weight.

Reference: Bishop, "Mixture Density Networks" (1994). Deviation: the clipped (censored) Gaussians.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from understudy.core.arrays import Array, Source, categorical, namespace, normal
from understudy.deploy import forward
from understudy.policies.base import Carry, Policy, start
from understudy.policies.networks import MLP, Activation

MARGIN = 1e-4
"""Actions this close to a bound count as the bound."""


class Mixture(Policy):
    """The network outputs K logits of the weights, then K means, then K values of log σ before their bounds."""

    net: MLP
    components: int = eqx.field(static=True)
    """K."""
    log_std_min: float = eqx.field(static=True, default=-3.0)
    log_std_max: float = eqx.field(static=True, default=2.0)

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        obs: int,
        act: int,
        hidden: tuple[int, ...],
        components: int,
        activation: Activation = "relu",
        gain: float | Array | None = None,
        input_indices: tuple[int, ...] | None = None,
    ) -> "Mixture":
        """A new policy. The means start apart, at random: equal components would get equal gradients for ever."""
        net_key, means_key = jax.random.split(key)
        outputs, means = components * (1 + 2 * act), slice(components, components * (1 + act))
        net = MLP.init(net_key, obs, hidden, outputs, activation, gain, input_indices)
        apart = jax.random.uniform(means_key, (components * act,), minval=-1.0)
        biases = (*net.biases[:-1], net.biases[-1].at[means].set(apart))
        return cls(eqx.tree_at(lambda n: n.biases, net, biases), components)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def parameters(self, obs: Array) -> tuple[Float[Array, "... k"], Array, Array]:
        """Logits of the weights, then μ and log σ before clipping: (..., k, act)."""
        return forward.mixture(self, obs, namespace(obs))

    def mode(self, carry: Carry, obs: Array) -> Array:
        xp = namespace(obs)
        logits, means, _ = self.parameters(obs)
        return forward.clamp(forward.component(means, xp.argmax(logits, axis=-1), xp), -1, 1, xp)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        xp = namespace(obs)
        logits, means, log_stds = self.parameters(obs)
        first, second = (source, source) if isinstance(source, np.random.Generator) else jax.random.split(source)
        chosen = categorical(first, logits)
        mean, log_std = (forward.component(each, chosen, xp) for each in (means, log_stds))
        return forward.clamp(mean + xp.exp(log_std) * normal(second, mean), -1, 1, xp)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        logits, means, log_stds = self.parameters(obs)
        each = clipped_gaussian(means, log_stds, act[..., None, :]).sum(-1)
        return jax.nn.logsumexp(jax.nn.log_softmax(logits) + each, axis=-1)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.draw(carry, obs, source)[None], jnp.ones(1)


def clipped_gaussian(mean: Array, log_std: Array, act: Array) -> Array:
    """log p of clip(u, −1, 1), u ~ N(μ, σ²), for each number of an action."""
    edge = 1 - MARGIN
    score = (jnp.clip(act, -edge, edge) - mean) / jnp.exp(log_std)
    inside = -0.5 * score**2 - log_std - 0.5 * math.log(2 * math.pi)
    beyond = jax.scipy.special.log_ndtr(jnp.where(act > 0, -score, score))
    return jnp.where(jnp.abs(act) >= edge, beyond, inside)
