"""The coordinates a learner works in: states standardised with the demonstrations it was given, actions in [-1, 1].

Fitted once, from the episodes actually used, and never from the learner's own data.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array, Light, namespace
from understudy.core.types import Continuous, Dataset, Spec, Transition


class Normalization(Light):
    """s ↦ (s − mean) / std and, for continuous actions, a ↦ (a − center) / half-range; discrete actions stay."""

    obs_mean: Float[Array, " obs"]
    obs_std: Float[Array, " obs"]
    act_center: Float[Array, " act"] | None
    act_scale: Float[Array, " act"] | None

    @classmethod
    def fit(cls, spec: Spec, demonstrations: Dataset, normalize_obs: bool = True) -> "Normalization":
        """Mean and standard deviation (+ 1e-3, so that a constant dimension stays finite) over the real steps."""
        obs = demonstrations.steps.obs
        if normalize_obs:
            weight = demonstrations.mask[:, None] / demonstrations.size
            mean = jnp.sum(weight * obs, axis=0)
            std = jnp.sqrt(jnp.sum(weight * jnp.square(obs - mean), axis=0)) + 1e-3
        else:
            mean, std = jnp.zeros(obs.shape[1]), jnp.ones(obs.shape[1])
        if not isinstance(spec.action, Continuous):
            return cls(mean, std, None, None)
        low, high = np.asarray(spec.action.low, np.float32), np.asarray(spec.action.high, np.float32)
        return cls(mean, std, jnp.asarray((low + high) / 2), jnp.asarray((high - low) / 2))

    def encode_obs(self, obs: Array) -> Array:
        return (obs - self.obs_mean) / self.obs_std

    def encode_act(self, act: Array) -> Array:
        return act if self.act_scale is None else (act - self.act_center) / self.act_scale

    def decode_act(self, act: Array) -> Array:
        """Back into the environment's range, clipped to it."""
        if self.act_center is None:
            return act
        xp = namespace(act)
        # NumPy's clip takes as long as a layer of the network, and this is once a step.
        return self.act_center + self.act_scale * xp.minimum(xp.maximum(act, -1), 1)

    def encode(self, steps: Transition) -> Transition:
        return steps._replace(
            obs=self.encode_obs(steps.obs),
            act=self.encode_act(steps.act),
            next_obs=self.encode_obs(steps.next_obs),
        )

    @property
    def log_volume(self) -> Array | float:
        """log |det| of the action map: densities divide by it."""
        return 0.0 if self.act_scale is None else namespace(self.act_scale).log(self.act_scale).sum()
