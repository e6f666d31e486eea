"""How an algorithm that learns while it plays steps in its environment: collect some steps, then update."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from understudy.core.errors import SettingError, check_whole


@dataclass(frozen=True)
class Stepping:
    """How an algorithm steps in its environment."""

    turns: int
    """Turns in a round."""
    envs: int
    """Environments of a run, which step together."""
    steps: int
    """Steps of each of them in a turn."""
    room: int
    """Rows of history: as many steps of a run are remembered, then the oldest make way."""
    resets: bool = False
    """Each round begins with new episodes."""
    anything: int = 0
    """Steps of each environment that take any action, each alike, at the start of a run."""
    anything_rounds: bool = False
    """At the start of each round, not only of the first."""
    lag: int = 0
    """How many updates the policy that plays is behind: 0 plays and learns in turn, 1 lets both go on at once."""

    @property
    def rows(self) -> int:
        """Steps of a run in a turn."""
        return self.envs * self.steps

    @classmethod
    def of(
        cls,
        round_steps: int,
        frequency: int,
        envs: int,
        rounds: int,
        room: int | None = None,
        resets: bool = False,
        anything: int = 0,
        anything_rounds: bool = False,
        lag: int = 0,
    ) -> Stepping:
        """From what a person counts: a run's environment steps, in a round and between updates.

        A round has whole turns, so `round_steps` is rounded up to them.
        """
        check_whole(1, round_steps=round_steps, frequency=frequency, envs=envs, rounds=rounds)
        check_whole(0, random_steps=anything)
        if frequency % envs:
            raise SettingError(f"envs is {envs}, which does not divide the {frequency} steps between updates")
        if lag not in (0, 1):
            raise SettingError(f"lag is {lag!r}: choose 0 or 1")
        if room is not None:
            check_whole(frequency, history=room)
        turns = -(-round_steps // frequency)
        kept = rounds * turns if room is None else min(rounds * turns, -(-room // frequency))
        return cls(turns, envs, frequency // envs, kept * frequency, resets, -(-anything // envs), anything_rounds, lag)

    def begins(self, index: Int[Array, ""] | int, turn: Int[Array, ""] | int) -> Bool[Array, ""] | bool:
        """Whether this turn starts new episodes."""
        return (turn == 0) & ((index == 0) | self.resets)

    def random_left(self, index: Int[Array, ""] | int, turn: Int[Array, ""] | int) -> Int[Array, ""]:
        """How many steps of this turn take any action."""
        before = turn * self.steps if self.anything_rounds else (index * self.turns + turn) * self.steps
        return jnp.clip(self.anything - before, 0, self.steps)
