"""New policies for a task: the class follows from the action space, the sizes from the spec."""

from jaxtyping import Key

from understudy.core.arrays import Array
from understudy.core.types import MultiDiscrete, Spec
from understudy.policies.base import Categorical, Deterministic, Independent
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.mixture import Mixture
from understudy.policies.networks import Activation

NetworkPolicy = Deterministic | Categorical | Independent | Gaussian | Mixture | StateDependent
"""Policies with a single network, `net`."""


def deterministic_policy(
    key: Key[Array, ""],
    spec: Spec,
    hidden: tuple[int, ...],
    activation: Activation = "relu",
    gain: float | Array | None = None,
    squash: bool = True,
) -> Deterministic | Categorical:
    """`Deterministic` for continuous actions, `Categorical` for discrete ones."""
    sizes = (spec.obs_size, spec.action_size, hidden, activation, gain)
    if spec.num_actions is not None:
        return Categorical.init(key, *sizes, input_indices=spec.policy_obs)
    return Deterministic.init(key, *sizes, squash=squash, input_indices=spec.policy_obs)


def independent_policy(
    key: Key[Array, ""], spec: Spec, space: MultiDiscrete, hidden: tuple[int, ...], activation: Activation = "relu"
) -> Independent:
    """Independent categoricals, for multi-discrete actions."""
    return Independent.init(key, spec.obs_size, space.nvec, hidden, activation, input_indices=spec.policy_obs)


def stochastic_policy(
    key: Key[Array, ""],
    spec: Spec,
    hidden: tuple[int, ...],
    activation: Activation = "relu",
    gain: float | Array | None = None,
) -> Gaussian | Categorical:
    """`Gaussian` (under tanh) for continuous actions, `Categorical` for discrete ones."""
    kind = Categorical if spec.num_actions is not None else Gaussian
    return kind.init(key, spec.obs_size, spec.action_size, hidden, activation, gain, input_indices=spec.policy_obs)


def mixture_policy(
    key: Key[Array, ""], spec: Spec, hidden: tuple[int, ...], components: int, activation: Activation = "relu"
) -> Mixture | Categorical:
    """`Mixture` for continuous actions, `Categorical`, which has no need of components, for discrete ones."""
    if spec.num_actions is not None:
        return Categorical.init(key, spec.obs_size, spec.action_size, hidden, activation, input_indices=spec.policy_obs)
    sizes = (spec.obs_size, spec.action_size, hidden, components, activation)
    return Mixture.init(key, *sizes, input_indices=spec.policy_obs)
