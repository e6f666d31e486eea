"""Gaussian policies under tanh, u = μ(s) + σ(s) ξ and a = tanh u, and two ways of drawing their ξ.

`Gaussian` draws it anew in each step, so that what it tries shakes. `StateDependent` explores as Raffin, Kober and
Stulp do ("Smooth Exploration for Robotic Reinforcement Learning", 2021): the noise of an action is linear in the
policy's features φ(s), its last hidden layer,

    u_j = μ_j(s) + Σ_i φ_i(s) σ_ij ξ_ij,        ξ ~ N(0, I), drawn once in `hold` steps of an episode

so that for a while a state meets the same noise whenever it is visited, and near states meet nearly the same. Over ξ
the action of one state is as Gaussian as before, with σ_j(s)² = Σ_i φ_i(s)² σ_ij²: what SAC learns from, where every
state has a ξ of its own, is that. μ is kept within ± `clip`, as in Stable-Baselines3.

Deviations: there ξ is drawn anew with every rollout, wherever its episodes are, and a gradient step takes one for all
states of its minibatch.
"""

import math
from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Source, namespace, normal
from understudy.policies.base import Carry, Categorical, Deterministic, Policy, start
from understudy.policies.networks import MLP, Activation

LEAST = 1e-6
"""Added to a variance that features make, which may all be 0."""
SEEDS = 2**31 - 1
"""Of what exploration tries: as many as an int32 has."""


class Squashed(Policy):
    """Abstract: actions inside (-1, 1) that are Gaussian before tanh."""

    @abstractmethod
    def parameters(self, obs: Array) -> tuple[Array, Array]:
        """μ(s) and log σ(s), before the tanh."""

    def mode(self, carry: Carry, obs: Array) -> Array:
        return namespace(obs).tanh(self.parameters(obs)[0])

    def draw_from(self, obs: Array, noise: Array) -> tuple[Array, Float[Array, "..."]]:
        """a = tanh u, u = μ + σ ξ, for standard normal ξ drawn elsewhere, and log π(a | s).

        That is log N(u; μ, σ²) − Σ log(1 − tanh² u), the latter as 2 (log 2 − u − log(1 + e^{−2u})): finite however
        close to ± 1 the action is, as `log_prob`, which sees the action alone, cannot be.
        """
        xp = namespace(obs)
        mean, log_std = self.parameters(obs)
        inside = mean + xp.exp(log_std) * noise
        slope = 2 * (math.log(2) - inside - xp.logaddexp(0.0, -2 * inside))
        density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - slope
        return xp.tanh(inside), density.sum(-1)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        """log N(u; μ, σ²) − Σ log(1 − a²), u = artanh a. On the boundary u is not finite: |a| is kept to 1 − 1e-4."""
        xp = namespace(obs)
        mean, log_std = self.parameters(obs)
        act = xp.clip(act, -1 + 1e-4, 1 - 1e-4)
        score = (xp.arctanh(act) - mean) / xp.exp(log_std)
        density = -0.5 * score**2 - log_std - 0.5 * math.log(2 * math.pi) - xp.log1p(-(act**2))
        return density.sum(-1)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.draw(carry, obs, source)[None], jnp.ones(1)


class Gaussian(Squashed):
    """a = tanh(μ(s) + σ(s) ξ), ξ ~ N(0, I): actions inside (-1, 1), the width of each learned from the state."""

    net: MLP
    log_std_min: float = eqx.field(static=True, default=-5.0)
    log_std_max: float = eqx.field(static=True, default=2.0)
    bound: Literal["tanh", "clip"] = eqx.field(static=True, default="tanh")
    """How log σ is kept in its range: squashed smoothly into it, or cut off at its ends."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        obs: int,
        act: int,
        hidden: tuple[int, ...],
        activation: Activation = "relu",
        gain: float | Array | None = None,
        reads: tuple[int, ...] | None = None,
    ) -> "Gaussian":
        return cls(MLP.init(key, obs, hidden, 2 * act, activation, gain, reads))

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        xp = namespace(obs)
        out = self.net(obs)
        size = out.shape[-1] // 2
        mean, raw = out[..., :size], out[..., size:]  # a split costs NumPy as much as a small network
        if self.bound == "clip":
            return mean, xp.minimum(xp.maximum(raw, self.log_std_min), self.log_std_max)
        log_std = self.log_std_min + 0.5 * (self.log_std_max - self.log_std_min) * (xp.tanh(raw) + 1)
        return mean, log_std

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        xp = namespace(obs)
        mean, log_std = self.parameters(obs)
        return xp.tanh(mean + xp.exp(log_std) * normal(source, mean))


class StateDependent(Squashed):
    """a = tanh(μ(s) + (σ ∘ ξ)ᵀ φ(s)): see the module. What it tries in an episode comes from what its start drew."""

    net: MLP
    log_std: Float[Array, "features act"]
    """log σ_ij."""
    clip: float = eqx.field(static=True, default=2.0)
    """Keep μ within ± this."""
    hold: int = eqx.field(static=True, default=64)
    """Steps of an episode in which ξ stays."""

    @classmethod
    def init(cls, net: MLP, log_std: float | Array, hold: int) -> "StateDependent":
        return cls(net, jnp.full(net.weights[-1].shape, log_std), hold=hold)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        if isinstance(source, np.random.Generator):
            return start(shape)._replace(drawn=source.integers(SEEDS, size=shape, dtype=np.int32))
        return start(shape)._replace(drawn=jax.random.randint(source, shape, 0, SEEDS))

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        xp, features = namespace(obs), self.net.features(obs)
        variance = features**2 @ xp.exp(2 * self.log_std)
        return self._mean(features), 0.5 * xp.log(variance + LEAST)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        xp, features = namespace(obs), self.net.features(obs)
        tried = xp.exp(self.log_std) * self._held(carry)
        return xp.tanh(self._mean(features) + (features[..., None, :] @ tried)[..., 0, :])

    def _mean(self, features: Array) -> Array:
        return namespace(features).clip(self.net.output(features), -self.clip, self.clip)

    def _held(self, carry: Carry) -> Float[Array, "... features act"]:
        """ξ at this time of an episode."""
        shape, part = self.log_std.shape, carry.t // self.hold
        if isinstance(carry.drawn, jax.Array):

            def one(seed: Int[Array, ""], part: Int[Array, ""]) -> Float[Array, "features act"]:
                return jax.random.normal(jax.random.fold_in(jax.random.key(seed), part), shape)

            flat = jax.vmap(one)(carry.drawn.reshape(-1), part.reshape(-1))
            return flat.reshape(*carry.drawn.shape, *shape)
        pairs = zip(np.ravel(carry.drawn), np.ravel(part), strict=True)
        each = [np.random.default_rng(pair).standard_normal(shape, np.float32) for pair in pairs]
        return np.stack(each).reshape(*np.shape(carry.drawn), *shape)


NetworkPolicy = Deterministic | Categorical | Gaussian | StateDependent
"""The policies that are a network, `net`."""
