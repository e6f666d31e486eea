"""Policies around others: one on a grid of actions, one that sees the time, one that probes actions, and one that is
deterministic in some episodes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Source, categorical, namespace
from understudy.deploy import forward
from understudy.deploy.forward import MAX_SEED
from understudy.policies.base import Carry, Policy, start, start_with_number
from understudy.policies.networks import MLP


class Binned(Policy):
    """π(a | s) = softmax(net(s))_i for the i-th point a of a grid in [-1, 1]^d, `bins` in each dimension."""

    net: MLP
    bins: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    """d, the dimensions of an action."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        obs: int,
        size: int,
        bins: int,
        hidden: tuple[int, ...],
        input_indices: tuple[int, ...] | None = None,
    ) -> "Binned":
        return cls(MLP.init(key, obs, hidden, bins**size, input_indices=input_indices), bins, size)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self._point(namespace(obs).argmax(self.net(obs), axis=-1))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self._point(categorical(source, self.net(obs)))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("a policy on a grid of actions has no density: use a Gaussian policy")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        logits = self.net(obs)
        return self._point(jnp.arange(logits.shape[-1])), jax.nn.softmax(logits)

    def _point(self, index: Array) -> Array:
        return forward.grid_point(index, self.bins, self.size, namespace(index))


class Timed(Policy):
    """A policy that gets t/T as one more number of the observation."""

    policy: Policy
    horizon: int = eqx.field(static=True)
    """T. Later time steps count as T."""

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return self.policy.reset(source, shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.policy.mode(carry, self._seen(carry, obs))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self.policy.draw(carry, self._seen(carry, obs), source)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        return self.policy.log_prob(carry, self._seen(carry, obs), act)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.policy.support(carry, self._seen(carry, obs), source)

    def _seen(self, carry: Carry, obs: Any) -> Any:
        return forward.with_time(carry.t, obs, self.horizon, namespace(obs))


class Probing(Policy):
    """A policy that acts uniformly at every `stride`-th step, from `first` on: iFAIL's probed steps."""

    policy: Policy
    uniform: Policy
    first: Int[Array, ""]
    stride: Int[Array, ""]

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return self.policy.reset(source, shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.policy.mode(carry, obs)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        other = source if isinstance(source, np.random.Generator) else jax.random.fold_in(source, 1)
        own, uniform = self.policy.draw(carry, obs, source), self.uniform.draw(carry, obs, other)
        return _where((carry.t - self.first) % self.stride == 0, uniform, own)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        return self.policy.log_prob(carry, obs, act)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.policy.support(carry, obs, source)


class PartlyDeterministic(Policy):
    """A policy that acts deterministically in a share of its episodes, and stochastically in the others.

    It draws the number of each episode, which the policy inside may use as the seed of its noise.
    """

    policy: Policy
    share: float | Float[Array, ""]

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start_with_number(source, shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.policy.mode(carry, obs)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        chosen = carry.drawn < self.share * MAX_SEED
        if isinstance(chosen, np.ndarray | np.bool_) and (chosen.all() or not chosen.any()):  # on the host, time counts
            return self.policy.mode(carry, obs) if chosen.all() else self.policy.draw(carry, obs, source)
        return _where(chosen, self.policy.mode(carry, obs), self.policy.draw(carry, obs, source))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        return self.policy.log_prob(carry, obs, act)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.policy.support(carry, obs, source)


def _where(chosen: Any, act: Any, other: Any) -> Any:
    """The actions `act` of the episodes that are `chosen`, `other` elsewhere."""
    return namespace(other).where(chosen.reshape(chosen.shape + (1,) * (other.ndim - chosen.ndim)), act, other)
