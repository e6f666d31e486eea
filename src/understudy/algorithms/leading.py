"""Settings of the duals of AdVIL and DAeQuIL: an f that follows the leader at every step, and the policy's network."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from understudy.core.errors import check_not_negative, check_positive, check_whole
from understudy.core.types import Spec
from understudy.game import Algorithm
from understudy.game.leader import StepLeaders
from understudy.policies import NetworkPolicy, deterministic_policy, stochastic_policy


class Leading(Algorithm):
    """Abstract base class of algorithms whose f follows the leader (`game.leader`)."""

    has_critic: ClassVar[bool] = False  # f has a value for each of the expert's steps, and does not see its state

    hidden: eqx.AbstractVar[tuple[int, ...]]
    bandwidth: float = 2.0
    """Bandwidth of the kernel between continuous actions in [-1, 1], in multiples of √d for d dimensions."""
    features: int = eqx.field(static=True, default=64)
    """Random features of that kernel."""
    entropy_weight: float = 1e-3
    """Weight of the policy's entropy, α: for discrete actions, and with `stochastic`."""
    stochastic: bool = eqx.field(static=True, default=False)
    """Continuous actions: train a tanh-Gaussian policy. It acts by its mode in evaluations."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: apply tanh to the network's output. (Always on with `stochastic`.)"""

    def __check_init__(self) -> None:
        check_positive(bandwidth=self.bandwidth)
        check_not_negative(entropy_weight=self.entropy_weight)
        check_whole(1, features=self.features)

    def new_policy(self, key: Key[Array, ""], spec: Spec) -> NetworkPolicy:
        """An untrained policy."""
        if self.stochastic:
            return stochastic_policy(key, spec, self.hidden)
        return deterministic_policy(key, spec, self.hidden, squash=self.squash)

    def new_leaders(self, key: Key[Array, ""], spec: Spec, steps: int) -> StepLeaders:
        """f = 0 at `steps` steps of the expert."""
        return StepLeaders.init(key, spec, steps, self.features, self.bandwidth)
