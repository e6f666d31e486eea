"""The normalized coordinates a learner works in: standardized observations, actions in [-1, 1].

The statistics come from the training demonstrations of the run. They are fitted once and never updated.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array, Light, namespace
from understudy.core.types import Continuous, Dataset, Spec, Transition
from understudy.deploy import forward


class Normalization(Light):
    """s ↦ (s − mean) / std and, for continuous actions, a ↦ (a − center) / half-range. Discrete actions stay."""

    obs_mean: Float[Array, " obs"]
    obs_std: Float[Array, " obs"]
    act_center: Float[Array, " act"] | None
    act_scale: Float[Array, " act"] | None
    obs_clip: float | None = eqx.field(static=True, default=None)
    """Clip standardized observations to ± this, as VecNormalize of Stable-Baselines3 does. None: no clipping."""

    @classmethod
    def fit(cls, spec: Spec, demonstrations: Dataset, normalize_obs: bool = True) -> "Normalization":
        """Mean and standard deviation over the real steps. 1e-3 is added to the latter for constant dimensions."""
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
        return forward.encode_obs(self, obs, namespace(obs))

    def encode_act(self, act: Array) -> Array:
        return act if self.act_scale is None else (act - self.act_center) / self.act_scale

    def decode_act(self, act: Array) -> Array:
        """The action in the environment's range, clipped to it."""
        return forward.decode_act(self, act, namespace(act))

    def decode_unclipped(self, act: Array) -> Array:
        """The inverse of `encode_act`."""
        return act if self.act_center is None else self.act_center + self.act_scale * act

    def encode(self, steps: Transition) -> Transition:
        return steps._replace(
            obs=self.encode_obs(steps.obs),
            act=self.encode_act(steps.act),
            next_obs=self.encode_obs(steps.next_obs),
        )

    @property
    def log_volume(self) -> Array | float:
        """log |det| of the map from normalized to environment actions; log densities subtract it."""
        return 0.0 if self.act_scale is None else namespace(self.act_scale).log(self.act_scale).sum()
