"""Early stopping without an environment: when to distrust a loss, and when a payoff is small enough.

Adversarial training that runs too long can collapse, and "this can easily be caught by watching for sudden and large
fluctuations in policy loss after a long period of steady decreases" (supplement of the paper). `CollapseDetector` is that check as
two running numbers: the level m of the loss and its usual deviation v from it, by round r,

    jump    if r > warm_up and |l_r − m| > jump · v
    m ← m + memory · (l_r − m),      v ← v + memory · (|l_r − m| − v)

A jump undoes the round (`Info.undo`): what is handed over is the policy from before it. `Target` is line 1 of AdVIL:
stop when the payoff, averaged over a window of rounds, falls below δ.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.core.errors import SettingError, check_positive, check_whole


class CollapseState(NamedTuple):
    """What the watch remembers: rounds seen, the level of the loss, its usual deviation."""

    rounds: Int[Array, ""]
    level: Float[Array, ""]
    spread: Float[Array, ""]


class CollapseDetector(eqx.Module):
    """Tells a sudden jump of the policy's loss from its usual fluctuation."""

    jump: float = 8.0
    """A deviation that many times the usual one is a jump; 0 never stops."""
    memory: float = 0.1
    """Weight of the newest round in the running level and deviation."""
    warm_up: int = eqx.field(static=True, default=20)
    """Rounds before the first alarm."""

    def __check_init__(self) -> None:
        if self.jump != 0:
            check_positive(jump=self.jump)
        check_positive(memory=self.memory)
        if float(self.memory) > 1:
            raise SettingError(f"memory is {self.memory!r}: a number from 0 to 1 is needed")
        check_whole(2, warm_up=self.warm_up)

    def init(self) -> CollapseState:
        return CollapseState(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(()))

    def look(self, seen: CollapseState, loss: Float[Array, ""]) -> tuple[CollapseState, Bool[Array, ""]]:
        """The memory after this round, and whether the loss has jumped in it."""
        first = seen.rounds == 0
        level = jnp.where(first, loss, seen.level)
        deviation = jnp.abs(loss - level)
        # A loss that never moved has no usual deviation: rounding is not a jump.
        usual = jnp.maximum(seen.spread, 1e-6 * jnp.abs(level))
        jumped = (self.jump > 0) & (seen.rounds >= self.warm_up) & (deviation > self.jump * usual)
        # A plain mean at first, so that the start does not linger.
        weight = jnp.maximum(self.memory, 1 / (seen.rounds + 1))
        spread = seen.spread + weight * (deviation - seen.spread)
        return CollapseState(seen.rounds + 1, level + weight * (loss - level), spread), jumped


class PayoffThreshold(eqx.Module):
    """Says when a payoff is small: its mean over the last `window` rounds is below δ."""

    delta: float | None = None
    """δ: stop when the payoff falls below it. Default: never."""
    window: int = eqx.field(static=True, default=10)
    """Rounds that the payoff is averaged over."""
    warm_up: int = eqx.field(static=True, default=20)
    """Rounds before the first look: a fresh critic's payoff is near zero."""

    def __check_init__(self) -> None:
        if self.delta is not None:
            check_positive(delta=self.delta)
        check_whole(1, window=self.window, warm_up=self.warm_up)

    def init(self) -> Float[Array, " window"]:
        return jnp.full(self.window, 1e30)  # above any payoff, and finite

    def look(
        self, seen: Float[Array, " window"], payoff: Float[Array, ""], rounds: Int[Array, ""]
    ) -> tuple[Float[Array, " window"], Bool[Array, ""]]:
        """The window with this round's payoff in it, and whether it is below δ after `rounds` rounds."""
        seen = jnp.roll(seen, 1).at[0].set(payoff)
        if self.delta is None:
            return seen, jnp.array(False)
        return seen, (rounds >= self.warm_up) & (seen.mean() < self.delta)
