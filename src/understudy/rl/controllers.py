"""Linear-Gaussian controllers of several fixed starting states as one policy that acts in the environment."""

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from understudy.core.arrays import Array, Source, namespace, normal
from understudy.policies import Carry, Normalization, Policy, start
from understudy.policies.base import Deterministic


class StartControllers(Policy):
    """u = K_t x + k_t + L_t ξ, ξ ~ N(0, I), with the matrices of the state in which the episode has started.

    `Carry.drawn` is the start's seed. x and u are normalized; u is clipped to [-1, 1].
    """

    starts: Int[Array, " n"]
    gain: Float[Array, "n t u x"]
    offset: Float[Array, "n t u"]
    factor: Float[Array, "n t u u"]
    """L: a square root of the covariance."""
    normalization: Normalization
    network: Deterministic
    by_network: Bool[Array, ""]
    """Whether the network's action replaces K_t x + k_t."""

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.normalization.decode_act(self._mean(carry, self.normalization.encode_obs(obs)))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        mean = self._mean(carry, self.normalization.encode_obs(obs))
        noise = self.factor[self._row(carry)] @ normal(source, mean)[..., None]
        return self.normalization.decode_act(mean + noise[..., 0])

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("controllers' actions are clipped, so they have no density")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.draw(carry, obs, source)[None], jnp.ones(1)

    def _row(self, carry: Carry) -> tuple[Array, Array]:
        """The controller of the episode's start, and the time step."""
        xp = namespace(self.starts, carry.drawn)
        which = xp.argmax(xp.asarray(carry.drawn)[..., None] == self.starts, axis=-1)
        return which, xp.minimum(carry.t, self.offset.shape[1] - 1)

    def _mean(self, carry: Carry, state: Array) -> Array:
        row, xp = self._row(carry), namespace(state)
        linear = (self.gain[row] @ state[..., None])[..., 0] + self.offset[row]
        return xp.where(self.by_network, self.network.mode(carry, state), linear).astype(state.dtype)
