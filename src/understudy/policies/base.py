"""π: what turns an observation into an action. Each is written for one observation and runs on JAX and on NumPy alike.

A policy's `carry` is what it remembers within an episode: the time step, for policies that change with it, and what was
drawn at its start, such as a mixture's component. Policies speak in the coordinates they were trained in; `Normalized` lets
one speak in the environment's own.

    reset(source)               the carry at the start of an episode
    mode(carry, obs)            the action it would pick without chance
    draw(carry, obs, source)    a ~ π(s)
    log_prob(carry, obs, act)   log π(a | s)
    support(carry, obs, source) actions and weights whose weighted sum of any f is E_{a ~ π(s)} f(s, a): exact where the
                                policy can be enumerated, one draw where it cannot
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Light, Source, categorical, namespace
from understudy.policies.networks import MLP, Activation


class Carry(NamedTuple):
    """What a policy remembers within an episode."""

    t: Int[Array, "..."]
    drawn: Int[Array, "..."]
    """At its start: a mixture's component, or the seed of what exploration tries."""


class Policy(Light):
    """Abstract: see the module's table of methods. Every subclass is final."""

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
    """The carry of a policy that draws nothing at the start of an episode."""
    return Carry(np.zeros(shape, np.int32), np.zeros(shape, np.int32))


def step(carry: Carry) -> Carry:
    """The carry one time step later."""
    return carry._replace(t=carry.t + 1)


class Deterministic(Policy):
    """a = net(s), or tanh(net(s)) where it is squashed: actions inside (-1, 1)."""

    net: MLP
    squash: bool = eqx.field(static=True, default=False)
    clip: float | None = eqx.field(static=True, default=None)
    """Keep the network's output within ± this before tanh."""

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
        reads: tuple[int, ...] | None = None,
    ) -> "Deterministic":
        return cls(MLP.init(key, obs, hidden, act, activation, gain, reads), squash)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        xp, out = namespace(obs), self.net(obs)
        if self.clip is not None:
            out = xp.clip(out, -self.clip, self.clip)
        return xp.tanh(out) if self.squash else out

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self.mode(carry, obs)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("a deterministic policy has no density: use a Gaussian policy for likelihoods")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.mode(carry, obs)[None], jnp.ones(1)


class Categorical(Policy):
    """π(a | s) = softmax(net(s))_a over finitely many actions."""

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
        reads: tuple[int, ...] | None = None,
    ) -> "Categorical":
        return cls(MLP.init(key, obs, hidden, act, activation, gain, reads))

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
