"""The schedule of an algorithm that updates while it collects: take some environment steps, then update."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.core.errors import SettingError, check_whole


@dataclass(frozen=True)
class Schedule:
    """A round is `updates` updates. Before each, every one of `envs` environments takes `steps_per_env` steps."""

    updates: int
    """Updates in a round."""
    envs: int
    """Environments of a run, which step together."""
    steps_per_env: int
    """Steps of each environment before an update."""
    capacity: int
    """Rows of the replay buffer; when it is full, new steps overwrite the oldest."""
    reset_each_round: bool = False
    """Start new episodes at the beginning of each round."""
    random_steps: int = 0
    """Random exploration steps of each environment at the start of a run."""
    random_each_round: bool = False
    """Take the random exploration steps at the start of each round, not only of the first."""
    staleness: int = 0
    """Updates by which the acting policy lags the learner. 0: collect, then update. 1: both at the same time."""

    @property
    def update_steps(self) -> int:
        """Steps of a run before an update, over all its environments."""
        return self.envs * self.steps_per_env

    @property
    def round_steps(self) -> int:
        """Steps of a run in a round."""
        return self.updates * self.update_steps

    @classmethod
    def of(
        cls,
        round_steps: int,
        frequency: int,
        envs: int,
        rounds: int,
        buffer_size: int | None = None,
        reset_each_round: bool = False,
        random_steps: int = 0,
        random_each_round: bool = False,
        staleness: int = 0,
    ) -> Schedule:
        """The schedule of a run that takes `round_steps` environment steps a round, `frequency` of them before each
        update. Rounds have whole updates, so `round_steps` is rounded up.
        """
        check_whole(1, round_steps=round_steps, frequency=frequency, envs=envs, rounds=rounds)
        check_whole(0, random_steps=random_steps)
        if frequency % envs:
            raise SettingError(
                f"frequency is {frequency} and envs is {envs}: frequency must be a multiple of envs, "
                "so that each environment takes the same number of steps"
            )
        if staleness not in (0, 1):
            raise SettingError(f"staleness is {staleness!r}: choose 0 or 1")
        if buffer_size is not None:
            check_whole(frequency, buffer_size=buffer_size)
        updates = -(-round_steps // frequency)
        kept = rounds * updates if buffer_size is None else min(rounds * updates, -(-buffer_size // frequency))
        return cls(
            updates,
            envs,
            frequency // envs,
            kept * frequency,
            reset_each_round,
            -(-random_steps // envs),
            random_each_round,
            staleness,
        )

    def begins(self, index: Int[Array, ""] | int, update: Int[Array, ""] | int) -> Bool[Array, ""] | bool:
        """Whether the steps of this update start new episodes."""
        return (update == 0) & ((index == 0) | self.reset_each_round)

    def number(self, index: Int[Array, ""] | int, update: Int[Array, ""] | int) -> Float[Array, ""]:
        """The number of an update in its run, from 1."""
        return jnp.asarray(index * self.updates + update + 1, jnp.float32)

    def random_steps_left(self, index: Int[Array, ""] | int, update: Int[Array, ""] | int) -> Int[Array, ""]:
        """How many of this update's steps of an environment take random actions."""
        before = update if self.random_each_round else index * self.updates + update
        return jnp.clip(self.random_steps - before * self.steps_per_env, 0, self.steps_per_env)
