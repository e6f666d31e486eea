"""Policies π: each maps an observation to an action, with the same code on JAX and NumPy.

A policy works in the coordinates that it was trained in; `Normalized` wraps one to take observations and return actions
in the environment's units. The `carry` is a policy's memory within an episode.

    reset(source)               the carry at the start of an episode
    mode(carry, obs)            the deterministic action
    draw(carry, obs, source)    a sample a ~ π(s)
    log_prob(carry, obs, act)   log π(a | s)
    support(carry, obs, source) actions and weights: the weighted sum of f over them estimates E_{a ~ π(s)} f(s, a).
                                Exact if the actions can be enumerated, else one sample
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Light, Source, categorical, namespace
from understudy.deploy import forward
from understudy.deploy.forward import MAX_SEED
from understudy.policies.networks import MLP, Activation


class Carry(NamedTuple):
    """A policy's memory within an episode."""

    t: Int[Array, "..."]
    """The time step."""
    drawn: Int[Array, "..."]
    """A number drawn at the start of the episode: the seed of its noise or of a fixed start, or if there is noise."""


class Policy(Light):
    """Abstract base class; the module docstring describes the methods. Subclasses are final."""

    @abstractmethod
    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry: ...

    @abstractmethod
    def mode(self, carry: Carry, obs: Array) -> Array: ...

    @abstractmethod
    def draw(self, carry: Carry, obs: Array, source: Source) -> Array: ...

    @abstractmethod
    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]: ...

    @abstractmethod
    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]: ...


def start(shape: tuple[int, ...] = ()) -> Carry:
    """The carry at the start of an episode, for policies that draw nothing there."""
    return Carry(np.zeros(shape, np.int32), np.zeros(shape, np.int32))


def start_with_number(source: Source, shape: tuple[int, ...] = ()) -> Carry:
    """The carry at the start of an episode, with a number drawn from 0 to MAX_SEED."""
    if isinstance(source, np.random.Generator):
        return start(shape)._replace(drawn=source.integers(MAX_SEED, size=shape, dtype=np.int32))
    return start(shape)._replace(drawn=jax.random.randint(source, shape, 0, MAX_SEED))


def step(carry: Carry) -> Carry:
    """The carry one time step later."""
    return carry._replace(t=carry.t + 1)


class Deterministic(Policy):
    """a = net(s), or a = tanh(net(s)) in (-1, 1) with `squash`."""

    net: MLP
    squash: bool = eqx.field(static=True, default=False)
    clip: float | None = eqx.field(static=True, default=None)
    """Clip the network's output to ± this before tanh. None: no clipping."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        obs: int,
        act: int,
        hidden: tuple[int, ...],
        activation: Activation = "relu",
        gain: float | Array | None = None,
        squash: bool = False,
        input_indices: tuple[int, ...] | None = None,
    ) -> "Deterministic":
        return cls(MLP.init(key, obs, hidden, act, activation, gain, input_indices), squash)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return forward.squashed(self, self.net(obs), namespace(obs))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self.mode(carry, obs)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("a deterministic policy has no density: use a Gaussian policy")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.mode(carry, obs)[None], jnp.ones(1)


class Independent(Policy):
    """π(a | s) = Π_i softmax(net_i(s))_{a_i}: independent categoricals, for multi-discrete actions."""

    net: MLP
    nvec: tuple[int, ...] = eqx.field(static=True)
    """The number of choices of each categorical. The network's outputs are theirs, one after the other."""

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        obs: int,
        nvec: tuple[int, ...],
        hidden: tuple[int, ...],
        activation: Activation = "relu",
        gain: float | Array | None = None,
        input_indices: tuple[int, ...] | None = None,
    ) -> "Independent":
        return cls(MLP.init(key, obs, hidden, sum(nvec), activation, gain, input_indices), nvec)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        xp = namespace(obs)
        return xp.stack([xp.argmax(logits, axis=-1) for logits in self._logits(obs)], axis=-1)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        logits, xp = self._logits(obs), namespace(obs)
        if isinstance(source, np.random.Generator):
            return np.stack([categorical(source, one) for one in logits], axis=-1)
        keys = jax.random.split(source, len(self.nvec))
        return xp.stack([categorical(key, one) for key, one in zip(keys, logits, strict=True)], axis=-1)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        act, total = jnp.asarray(act), jnp.zeros(())
        for i, logits in enumerate(self._logits(obs)):
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), act[..., i, None], axis=-1)
            total = total + chosen[..., 0]
        return total

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.draw(carry, obs, source)[None], jnp.ones(1)  # too many to enumerate

    def _logits(self, obs: Array) -> list[Array]:
        """The logits of each categorical."""
        return forward.split(self.net(obs), self.nvec)


class Categorical(Policy):
    """π(a | s) = softmax(net(s))_a, for discrete actions."""

    net: MLP

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
    ) -> "Categorical":
        return cls(MLP.init(key, obs, hidden, act, activation, gain, input_indices))

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return namespace(obs).argmax(self.net(obs), axis=-1)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return categorical(source, self.net(obs))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        return jnp.take_along_axis(jax.nn.log_softmax(self.net(obs)), jnp.asarray(act)[..., None], axis=-1)[..., 0]

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        logits = self.net(obs)
        return jnp.arange(logits.shape[-1]), jax.nn.softmax(logits)
