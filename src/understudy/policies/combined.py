"""Tabular policies and policies built from others: time-indexed, ensemble, normalized."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array, Source, categorical, namespace
from understudy.deploy import forward
from understudy.policies.base import Carry, Categorical, Deterministic, Policy, start
from understudy.policies.normalization import Normalization


class Tabular(Policy):
    """π(a | s) = table[s, a] on a finite MDP; the observation is the index of the state."""

    table: Float[Array, "*stack s a"]

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return namespace(obs).argmax(self.table[obs], axis=-1)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        row = self.table[obs]
        return categorical(source, forward.log_weights(row, namespace(row)))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        return jnp.log(jnp.asarray(self.table)[obs, act])

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return jnp.arange(self.table.shape[-1]), jnp.asarray(self.table)[obs]


class TimeIndexed(Policy):
    """One policy π_t for each time step, stacked along the leading axis. Later time steps use the last one."""

    policies: Policy

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return _each(self.policies, carry.t, carry, obs, lambda policy, c, o: policy.mode(c, o))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return _each(self.policies, carry.t, carry, obs, lambda policy, c, o: policy.draw(c, o, source))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        return _pick(self.policies, carry.t).log_prob(carry, obs, act)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return _pick(self.policies, carry.t).support(carry, obs, source)


EnsembleMember = Deterministic | Categorical
"""The kinds of policies that an ensemble can have."""


class Ensemble(Policy):
    """The mean of the members' actions or, for discrete actions, of their probabilities.

    Members are deterministic or categorical policies, stacked along the leading axis.
    """

    members: EnsembleMember

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        if isinstance(self.members, Categorical):
            return namespace(obs).argmax(self._probabilities(obs), axis=-1)
        return self._mean(lambda member: member.mode(carry, obs))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        if isinstance(self.members, Categorical):
            return categorical(source, forward.log_weights(self._probabilities(obs), namespace(obs)))
        return self.mode(carry, obs)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        if not isinstance(self.members, Categorical):
            return self.members.log_prob(carry, obs, act)
        chosen = jnp.take_along_axis(self._probabilities(obs), jnp.asarray(act)[..., None], axis=-1)[..., 0]
        return jnp.log(chosen)

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        if isinstance(self.members, Categorical):
            probabilities = self._probabilities(obs)
            return jnp.arange(probabilities.shape[-1]), probabilities
        return self.mode(carry, obs)[None], jnp.ones(1)

    def _probabilities(self, obs: Array) -> Array:
        return self._mean(lambda member: forward.softmax(member.net(obs), namespace(obs)))

    def _mean(self, call: Callable[[Any], Array]) -> Array:
        count = self.members.net.weights[0].shape[0]
        return sum(call(_pick(self.members, np.asarray(i))) for i in range(count)) / count


def ensemble(members: Policy) -> Policy:
    """An ensemble of stacked policies. A stack of one becomes that policy."""
    if jax.tree.leaves(members)[0].shape[0] == 1:
        return _pick(members, np.asarray(0))
    if not isinstance(members, EnsembleMember):
        raise TypeError("members are Gaussian policies: an ensemble needs Deterministic or Categorical ones")
    return Ensemble(members)


class Normalized(Policy):
    """A policy in the environment's units: it normalizes observations, and maps actions to the environment's range and
    clips them to it.
    """

    policy: Policy
    normalization: Normalization

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return self.policy.reset(source, shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.normalization.decode_act(self.policy.mode(carry, self.normalization.encode_obs(obs)))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self.normalization.decode_act(self.policy.draw(carry, self.normalization.encode_obs(obs), source))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        log_prob = self.policy.log_prob(carry, self.normalization.encode_obs(obs), self.normalization.encode_act(act))
        return log_prob - self.normalization.log_volume

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        acts, weights = self.policy.support(carry, self.normalization.encode_obs(obs), source)
        return self.normalization.decode_act(acts), weights


def _pick(policies: Policy, index: Array) -> Policy:
    """The policy at `index` of a stack. An index past the end picks the last one."""

    def at(stack: Array) -> Array:
        return stack[namespace(index).clip(index, 0, stack.shape[0] - 1)]

    return jax.tree.map(at, policies)


def _each(
    policies: Policy, index: Array, carry: Carry, obs: Array, call: Callable[[Policy, Carry, Array], Array]
) -> Array:
    """Call the policy at `index`. With a NumPy batch of indices, call each distinct policy once."""
    if not (isinstance(index, np.ndarray) and index.ndim):
        return call(_pick(policies, index), carry, obs)
    rows = []
    for value in np.unique(index):
        chosen = index == value
        rows.append((chosen, call(_pick(policies, value), Carry(*(x[chosen] for x in carry)), obs[chosen])))
    out = np.empty((len(index), *rows[0][1].shape[1:]), rows[0][1].dtype)
    for chosen, acts in rows:
        out[chosen] = acts
    return out
