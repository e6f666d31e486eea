"""Early stopping without an environment: detect a collapse, or stop at a small payoff.

Adversarial training that runs too long can collapse, and "this can easily be caught by watching for sudden and large
fluctuations in policy loss after a long period of steady decreases" (supplement of the paper). `CollapseDetector` keeps
two running numbers, the level m of the loss and its mean absolute deviation v. In round r with loss l_r:

    jump    if r > warm_up and |l_r − m| > jump · v
    m ← m + memory · (l_r − m),      v ← v + memory · (|l_r − m| − v)

A jump stops the run and undoes the round (`Info.undo`), so that the policy from before it is returned.
`PayoffThreshold` is line 1 of AdVIL: stop when the payoff, averaged over a window of rounds, falls below δ.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.core.errors import SettingError, check_positive, check_whole


class CollapseState(NamedTuple):
    """The memory of a collapse detector: rounds so far, level of the loss, mean absolute deviation from it."""

    rounds: Int[Array, ""]
    level: Float[Array, ""]
    deviation: Float[Array, ""]


class CollapseDetector(eqx.Module):
    """Detects a sudden jump of the policy's loss."""

    jump: float = 8.0
    """Stop when the deviation exceeds this many times the mean deviation (0: never)."""
    memory: float = 0.1
    """Weight of the newest round in the running level and mean deviation."""
    warm_up: int = eqx.field(static=True, default=20)
    """Rounds before a jump can stop the run."""

    def __check_init__(self) -> None:
        if self.jump != 0:
            check_positive(jump=self.jump)
        check_positive(memory=self.memory)
        if float(self.memory) > 1:
            raise SettingError(f"memory is {self.memory!r}: give a number above 0 and at most 1")
        check_whole(2, warm_up=self.warm_up)

    def init(self) -> CollapseState:
        return CollapseState(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(()))

    def update(self, state: CollapseState, loss: Float[Array, ""]) -> tuple[CollapseState, Bool[Array, ""]]:
        """The state after this round, and whether the loss jumped in it."""
        first = state.rounds == 0
        level = jnp.where(first, loss, state.level)
        deviation = jnp.abs(loss - level)
        # For a loss that never moved the mean deviation is 0, and rounding must not count as a jump.
        usual = jnp.maximum(state.deviation, 1e-6 * jnp.abs(level))
        jumped = (self.jump > 0) & (state.rounds >= self.warm_up) & (deviation > self.jump * usual)
        # A plain mean over the first rounds, so that the first loss does not dominate.
        weight = jnp.maximum(self.memory, 1 / (state.rounds + 1))
        mean_deviation = state.deviation + weight * (deviation - state.deviation)
        return CollapseState(state.rounds + 1, level + weight * (loss - level), mean_deviation), jumped


class PayoffThreshold(eqx.Module):
    """Stops when the mean payoff of the last `window` rounds is below δ."""

    delta: float | None = None
    """δ: stop when the mean payoff falls below it. None: never."""
    window: int = eqx.field(static=True, default=10)
    """Rounds to average the payoff over."""
    warm_up: int = eqx.field(static=True, default=20)
    """Rounds before the first check: the payoff of a new critic is near zero."""

    def __check_init__(self) -> None:
        if self.delta is not None:
            check_positive(delta=self.delta)
        check_whole(1, window=self.window, warm_up=self.warm_up)

    def init(self) -> Float[Array, " window"]:
        return jnp.full(self.window, 1e30)  # above any payoff, and finite

    def update(
        self, payoffs: Float[Array, " window"], payoff: Float[Array, ""], rounds: Int[Array, ""]
    ) -> tuple[Float[Array, " window"], Bool[Array, ""]]:
        """The last payoffs with this round's added, and whether their mean is below δ after `rounds` rounds."""
        payoffs = jnp.roll(payoffs, 1).at[0].set(payoff)
        if self.delta is None:
            return payoffs, jnp.array(False)
        return payoffs, (rounds >= self.warm_up) & (payoffs.mean() < self.delta)
