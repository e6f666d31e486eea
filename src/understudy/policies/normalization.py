"""The normalized coordinates a learner works in: scaled observations, actions in [-1, 1].

The statistics come from the training demonstrations of the run. They are fitted once and never updated. `obs_scaling`
says how observations are scaled:

    standardize   (s − mean) / max(std, floor), clipped to ± 10
    scale         s / typical size: one number for all
    paper         (s − mean) / (std + 1e-3), as in the released code of the paper
    none          s

The typical size of the observations is the median of the root mean squares of their numbers, without those that are
always 0. The floor of a number is 1e-3 of its own root mean square or of the typical size, whichever is larger. So a
number that never changes in the demonstrations is not blown up, and other units of all observations change nothing. A
number below its floor is nearly constant; `scale` subtracts its mean.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array, Light, namespace
from understudy.core.errors import check_choice
from understudy.core.types import Continuous, Dataset, Spec, Transition
from understudy.deploy import forward

Scaling = Literal["standardize", "scale", "paper", "none"]
FLOOR = 1e-3
"""The smallest standard deviation, as a fraction of the data's size."""
OBS_CLIP = 10.0
"""Standardized observations are clipped to ± this."""


def check_scaling(obs_scaling: Scaling) -> None:
    """Raise unless it is one of the four."""
    check_choice(("standardize", "scale", "paper", "none"), obs_scaling=obs_scaling)


class Statistics(NamedTuple):
    """Statistics of each number of an observation, on NumPy or JAX."""

    mean: Any
    std: Any
    floor: Any
    """A standard deviation below this is nearly that of a constant."""
    size: Any
    """The typical size of the observations: one number."""

    @classmethod
    def of(cls, spec: Spec, obs: Any, weight: Any) -> "Statistics":
        """From rows of observations and their weights (n, 1), whose sum is 1.

        Numbers that neither the policy nor the critics see take no part in the typical size.
        """
        xp = namespace(obs)
        mean = (weight * obs).sum(axis=0)
        std = xp.sqrt((weight * xp.square(obs - mean)).sum(axis=0))
        rms = xp.sqrt(xp.square(mean) + xp.square(std))
        varied = (rms > 0) & _seen(spec)
        size = xp.nanmedian(xp.where(varied, rms, xp.where(varied.any(), xp.nan, 1.0)))
        return cls(mean, std, FLOOR * xp.maximum(rms, size), size)

    @property
    def nearly_constant(self) -> Any:
        return self.std < self.floor

    @property
    def scale(self) -> Any:
        """The standard deviation, not below the floor."""
        return namespace(self.std).maximum(self.std, self.floor)


def _seen(spec: Spec) -> np.ndarray:
    """Which numbers of an observation the policy or the critics see."""
    if spec.policy_obs is None or spec.critic_obs is None:
        return np.ones(spec.obs_size, bool)
    return np.isin(np.arange(spec.obs_size), (*spec.policy_obs, *spec.critic_obs))


class Normalization(Light):
    """s ↦ (s − mean) / std and, for continuous actions, a ↦ (a − center) / half-range. Discrete actions stay."""

    obs_mean: Float[Array, " obs"]
    obs_std: Float[Array, " obs"]
    act_center: Float[Array, " act"] | None
    act_scale: Float[Array, " act"] | None
    obs_clip: float | None = eqx.field(static=True, default=None)
    """Clip standardized observations to ± this, as VecNormalize of Stable-Baselines3 does. None: no clipping."""

    @classmethod
    def fit(cls, spec: Spec, demonstrations: Dataset, obs_scaling: Scaling = "standardize") -> "Normalization":
        """The coordinates of a run, from its real steps."""
        check_scaling(obs_scaling)
        found = Statistics.of(spec, demonstrations.steps.obs, demonstrations.mask[:, None] / demonstrations.size)
        mean, std, zeros = found.mean, found.scale, jnp.zeros_like(found.mean)
        if obs_scaling == "paper":
            std = found.std + 1e-3
        elif obs_scaling == "scale":
            mean, std = jnp.where(found.nearly_constant, mean, 0), zeros + found.size
        elif obs_scaling == "none":
            mean, std = zeros, zeros + 1
        clip = OBS_CLIP if obs_scaling == "standardize" else None
        if not isinstance(spec.action, Continuous):
            return cls(mean, std, None, None, clip)
        low, high = np.asarray(spec.action.low, np.float32), np.asarray(spec.action.high, np.float32)
        return cls(mean, std, jnp.asarray((low + high) / 2), jnp.asarray((high - low) / 2), clip)

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
