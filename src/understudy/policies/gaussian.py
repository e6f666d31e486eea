"""Tanh-Gaussian policies, a = tanh u with u = μ(s) + σ(s) ξ, with two kinds of noise ξ.

`Gaussian` draws new noise at every step. `StateDependent` is generalized state-dependent exploration (gSDE; Raffin,
Kober and Stulp, "Smooth Exploration for Robotic Reinforcement Learning", 2021). Its noise is linear in the policy's
features φ(s), the last hidden layer:

    u_j = μ_j(s) + Σ_i φ_i(s) σ_ij ξ_ij,        ξ ~ N(0, I), redrawn every `hold` steps of an episode

Between redraws a state always gets the same noise, and similar states get similar noise. Over random ξ, the action in a
state is Gaussian with σ_j(s)² = Σ_i φ_i(s)² σ_ij². SAC uses this density in its gradient steps, with independent noise
for each state. μ is clipped to ± `clip`, as in Stable-Baselines3.

Deviations: Stable-Baselines3 redraws ξ at every rollout, regardless of episodes, and uses one ξ for all states of a
minibatch.
"""

import math
from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Source, namespace, normal
from understudy.deploy import forward
from understudy.policies.base import Carry, Policy, start, start_with_number
from understudy.policies.networks import MLP, Activation

MIN_VARIANCE = 1e-6
"""Added to the variance of state-dependent noise, which is 0 if all features are 0."""


class Squashed(Policy):
    """Abstract base class of tanh-Gaussian policies: actions in (-1, 1) that are Gaussian before tanh."""

    @abstractmethod
    def parameters(self, obs: Array) -> tuple[Array, Array]:
        """μ(s) and log σ(s), before tanh."""

    def mode(self, carry: Carry, obs: Array) -> Array:
        return namespace(obs).tanh(self.parameters(obs)[0])

    def draw_from(self, obs: Array, noise: Array) -> tuple[Array, Float[Array, "..."]]:
        """The action a = tanh u, u = μ + σ ξ, for given standard normal noise ξ, and log π(a | s).

        log π(a | s) = log N(u; μ, σ²) − Σ log(1 − tanh² u). The last term is computed as
        2 (log 2 − u − log(1 + e^{−2u})), which is finite even if a rounds to ± 1. `log_prob` gets only a and clips it.
        """
        xp = namespace(obs)
        mean, log_std = self.parameters(obs)
        u = mean + xp.exp(log_std) * noise
        log_slope = 2 * (math.log(2) - u - xp.logaddexp(0.0, -2 * u))
        log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - log_slope
        return xp.tanh(u), log_prob.sum(-1)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        """log N(u; μ, σ²) − Σ log(1 − a²), u = artanh a. |a| is clipped to 1 − 1e-4, because u is infinite at 1."""
        xp = namespace(obs)
        mean, log_std = self.parameters(obs)
        act = xp.clip(act, -1 + 1e-4, 1 - 1e-4)
        score = (xp.arctanh(act) - mean) / xp.exp(log_std)
        log_prob = -0.5 * score**2 - log_std - 0.5 * math.log(2 * math.pi) - xp.log1p(-(act**2))
        return log_prob.sum(-1)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.draw(carry, obs, source)[None], jnp.ones(1)


class Gaussian(Squashed):
    """a = tanh(μ(s) + σ(s) ξ), ξ ~ N(0, I). The network outputs μ and log σ."""

    net: MLP
    log_std_min: float = eqx.field(static=True, default=-5.0)
    log_std_max: float = eqx.field(static=True, default=2.0)
    bound: Literal["tanh", "clip"] = eqx.field(static=True, default="tanh")
    """How log σ is kept in its range: squashed with tanh, or clipped."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        obs: int,
        act: int,
        hidden: tuple[int, ...],
        activation: Activation = "relu",
        gain: float | Array | None = None,
        input_indices: tuple[int, ...] | None = None,
    ) -> "Gaussian":
        return cls(MLP.init(key, obs, hidden, 2 * act, activation, gain, input_indices))

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        return forward.gaussian(self, obs, namespace(obs))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        xp = namespace(obs)
        mean, log_std = self.parameters(obs)
        return xp.tanh(mean + xp.exp(log_std) * normal(source, mean))


class StateDependent(Squashed):
    """State-dependent exploration, a = tanh(μ(s) + (σ ∘ ξ)ᵀ φ(s)). The carry holds the seed of an episode's noise."""

    net: MLP
    log_std: Float[Array, "features act"]
    """log σ_ij."""
    clip: float = eqx.field(static=True, default=2.0)
    """Clip μ to ± this."""
    hold: int = eqx.field(static=True, default=64)
    """Steps between redraws of ξ."""

    @classmethod
    def init(cls, net: MLP, log_std: float | Array, hold: int) -> "StateDependent":
        return cls(net, jnp.full(net.weights[-1].shape, log_std), hold=hold)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start_with_number(source, shape)

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        xp, features = namespace(obs), self.net.features(obs)
        variance = features**2 @ xp.exp(2 * self.log_std)
        return self._mean(features), 0.5 * xp.log(variance + MIN_VARIANCE)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        xp, features = namespace(obs), self.net.features(obs)
        noise = xp.exp(self.log_std) * self._noise(carry)
        return xp.tanh(self._mean(features) + (features[..., None, :] @ noise)[..., 0, :])

    def _mean(self, features: Array) -> Array:
        return forward.clamp(self.net.output(features), -self.clip, self.clip, namespace(features))

    def _noise(self, carry: Carry) -> Float[Array, "... features act"]:
        """ξ at this time step of the episode."""
        shape = self.log_std.shape
        if isinstance(carry.drawn, jax.Array):

            def one(seed: Int[Array, ""], part: Int[Array, ""]) -> Float[Array, "features act"]:
                return jax.random.normal(jax.random.fold_in(jax.random.key(seed), part), shape)

            flat = jax.vmap(one)(carry.drawn.reshape(-1), (carry.t // self.hold).reshape(-1))
            return flat.reshape(*carry.drawn.shape, *shape)
        return forward.held_noise(shape, self.hold, carry.t, carry.drawn)
