"""Demonstrations: an expert's episodes as concatenated arrays, checked when they are made."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from understudy.core.errors import DemonstrationError, check_whole
from understudy.core.parts import Parts
from understudy.core.statistics import Sample
from understudy.core.text import quoted
from understudy.core.types import ActionSpace, Continuous, Spec, Transition
from understudy.data.checks import Checker
from understudy.data.details import Details
from understudy.data.holdout import Split, check_holdout, split
from understudy.data.shifting import checked_next, shifted

Ends = Literal["time_limit", "terminal"]


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Concatenated episodes of an expert. Make them with `from_arrays` or `understudy.load`, which check them."""

    observations: np.ndarray
    """(N, obs), float32."""
    recorded_actions: np.ndarray | None
    """(N, act), float32; or (N,), int32, for discrete actions; or (N, numbers), int32, for multi-discrete ones. None:
    only observations were recorded."""
    lengths: np.ndarray
    """(episodes,): the number of steps of each episode."""
    recorded_space: ActionSpace | None
    """None: no actions were recorded, and no action space is known. An environment has one (`for_task`)."""
    horizon: int
    """T: the maximal length of an episode."""
    last_observations: np.ndarray | None = None
    """(episodes, obs): the observation after each episode's last step; None: unknown."""
    other_next: np.ndarray | None = None
    """(N, obs): the observation after each step, kept only if one inside an episode is not the next row."""
    terminals: np.ndarray | None = None
    """(N,), True if the state after the step is absorbing. Truncation by a time limit is not terminal."""
    rewards: np.ndarray | None = None
    """(N,). Used to report the expert's return. Algorithms do not see them."""
    env: str | None = None
    """The name of the environment, if known."""
    ends: Ends = "time_limit"
    """How episodes end if `terminals` is None."""
    recorded_return: tuple[float, float, int] | None = None
    """Mean, standard deviation and number of episodes of the expert's return, if there are no rewards."""
    bounds_from_data: bool = False
    """Whether the action bounds are the extremes of the data, because none were given."""
    horizon_from_data: bool = False
    """Whether the horizon is the length of the longest episode, because none was given."""
    obs_parts: Parts = ()
    """Names and sizes of the parts of an observation, in order; empty: no names."""
    details: Details = field(default_factory=Details)
    """Success, tasks, interventions and other facts that algorithms do not see."""

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any = None,
        lengths: Any = None,
        *,
        next_observations: Any = None,
        last_observations: Any = None,
        terminals: Any = None,
        rewards: Any = None,
        action_space: ActionSpace | None = None,
        horizon: int | None = None,
        env: str | None = None,
        ends: Ends = "time_limit",
        recorded_return: tuple[float, float, int] | None = None,
        obs_parts: Parts = (),
        details: Details | None = None,
        source: str = "demonstrations",
        copy: bool = True,
    ) -> "Demonstrations":
        """Check the arrays and make demonstrations from them.

        Without `actions` only algorithms that match observations alone can train on them (`has_actions`). `lengths`
        splits the steps into episodes (default: one episode). Integer actions are discrete. Without
        `action_space`, the number of discrete actions is the largest action plus one, and continuous bounds are the
        extremes of the data. `last_observations` (episodes, obs) holds the final observation of each episode. Pass it
        in place of `next_observations` if every other next observation is the next row. Errors begin with `source`.
        With `copy=False`, arrays that have the right type already are kept as they are: do not change them later.
        """
        check = Checker(source, copy)
        observations = check.numbers("observations", observations)
        lengths = check.lengths([len(observations)] if lengths is None else lengths, len(observations))
        observations = check.rows("observations", observations, lengths)
        space = check.space(action_space)
        if actions is not None:
            actions, space = check.actions(actions, space, lengths)
        last_observations, other_next = checked_next(check, next_observations, last_observations, observations, lengths)
        if terminals is not None:
            terminals = check.terminals(terminals, lengths)
        if rewards is not None:
            rewards = check.rows("rewards", check.one_per_step("rewards", rewards, lengths), lengths)[:, 0]
        if ends not in ("time_limit", "terminal"):
            raise check.error(f"ends is '{quoted(ends)}': choose 'time_limit' or 'terminal'")
        known, horizon = horizon, check.horizon(horizon, lengths)
        check.parts(obs_parts, observations.shape[1])
        return cls(
            observations=observations,
            recorded_actions=actions,
            lengths=lengths,
            recorded_space=space,
            horizon=horizon,
            last_observations=last_observations,
            other_next=other_next,
            terminals=terminals,
            rewards=rewards,
            env=env,
            ends=ends,
            recorded_return=recorded_return,
            bounds_from_data=action_space is None and isinstance(space, Continuous),
            horizon_from_data=known is None,
            obs_parts=tuple(obs_parts),
            details=(details or Details()).checked(check, lengths, None if space is None else space.shape),
        )

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        return len(self.observations)

    @property
    def has_actions(self) -> bool:
        """Whether actions were recorded."""
        return self.recorded_actions is not None

    @property
    def actions(self) -> np.ndarray:
        """The recorded actions. Raises if there are none."""
        if self.recorded_actions is None:
            raise DemonstrationError(
                "the demonstrations have no actions: record them with actions, or train adril or gail with preset "
                "'observations', which needs none"
            )
        return self.recorded_actions

    @property
    def action_space(self) -> ActionSpace:
        """The action space. Raises if it is unknown."""
        if self.recorded_space is None:
            raise DemonstrationError(
                "the demonstrations have neither actions nor an action space: pass the environment, env= or --env, or "
                "action_space= to Demonstrations.from_arrays"
            )
        return self.recorded_space

    def without_actions(self) -> "Demonstrations":
        """The same episodes without their actions. The action space stays if it was given."""
        space = None if self.bounds_from_data else self.recorded_space
        return replace(self, recorded_actions=None, recorded_space=space, bounds_from_data=False)

    @property
    def spec(self) -> Spec:
        return Spec((self.observations.shape[1],), self.action_space, self.horizon, obs_parts=self.obs_parts)

    @property
    def next_observations(self) -> np.ndarray | None:
        """(N, obs): the observation after each step, a new array; None if those after last steps are unknown."""
        if self.other_next is not None or self.last_observations is None:
            return self.other_next
        return shifted(self.observations, self.lengths, self.last_observations)

    @property
    def returns(self) -> np.ndarray | None:
        """The return of each episode, or None without rewards."""
        if self.rewards is None:
            return None
        return np.add.reduceat(self.rewards.astype(np.float64), np.cumsum(self.lengths) - self.lengths)

    @property
    def expert_return(self) -> Sample | None:
        """The expert's return, computed from the rewards or as recorded in the file; None if neither exists."""
        if self.returns is not None:
            return Sample.of(self.returns)
        return None if self.recorded_return is None else Sample(*self.recorded_return)

    def first(self, episodes: int) -> "Demonstrations":
        """The first `episodes` episodes."""
        check_whole(0, episodes=episodes)
        if not 1 <= episodes <= self.episodes:
            raise DemonstrationError(
                f"episodes is {episodes}, but the demonstrations{' of ' + self.env if self.env else ''} have "
                f"{self.episodes}: choose 1 to {self.episodes}"
            )
        steps = int(self.lengths[:episodes].sum())

        def head(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else array[:steps]

        return replace(
            self,
            observations=self.observations[:steps],
            recorded_actions=head(self.recorded_actions),
            lengths=self.lengths[:episodes],
            last_observations=None if self.last_observations is None else self.last_observations[:episodes],
            other_next=head(self.other_next),
            terminals=head(self.terminals),
            rewards=head(self.rewards),
            details=self.details.first(episodes, steps),
        )

    def after(self, episodes: int) -> "Demonstrations":
        """All but the first `episodes` episodes. Success, tasks and other details are left out."""
        self.first(episodes)
        if episodes == self.episodes:
            raise DemonstrationError(f"episodes is {episodes}: the demonstrations have no more, choose fewer")
        steps = int(self.lengths[:episodes].sum())

        def tail(array: np.ndarray | None, start: int) -> np.ndarray | None:
            return None if array is None else array[start:]

        return replace(
            self,
            observations=self.observations[steps:],
            recorded_actions=tail(self.recorded_actions, steps),
            lengths=self.lengths[episodes:],
            last_observations=tail(self.last_observations, episodes),
            other_next=tail(self.other_next, steps),
            terminals=tail(self.terminals, steps),
            rewards=tail(self.rewards, steps),
            details=Details(),
        )

    def for_task(self, spec: Spec, name: str) -> "Demonstrations":
        """The same episodes with an environment's action bounds and horizon. Raises if they do not fit.

        If both name the parts of an observation, in another order, the columns take the environment's order.
        """
        from understudy.data.fitting import for_task

        return for_task(self, spec, name)

    def with_keys(self, keys: Sequence[str]) -> "Demonstrations":
        """The same episodes with only these parts of an observation, in this order. Indices count as keys too."""
        from understudy.data.fitting import with_keys

        return with_keys(self, keys)

    def transitions(self) -> Transition:
        """All steps in order, as NumPy arrays. Without actions, `act` is 0 or the nearest bound to it."""
        t = np.concatenate([np.arange(length) for length in self.lengths]).astype(np.int32)
        last = np.zeros(self.steps, bool)
        last[np.cumsum(self.lengths) - 1] = True
        next_obs, known = self.next_observations, np.ones(self.steps, bool)
        if next_obs is None:
            next_obs, known = shifted(self.observations, self.lengths, self.observations[last]), ~last
        terminal = self.terminals if self.terminals is not None else last & (self.ends == "terminal")
        round_ = np.full(self.steps, -1, np.int32)
        act = (
            self.recorded_actions if self.recorded_actions is not None else _no_actions(self.steps, self.recorded_space)
        )
        return Transition(t, self.observations, act, next_obs, terminal, last, known, round_)

    def split(self, counts: Sequence[int], holdout: float) -> Split:
        """Training and held-out steps for runs that use the first counts[i] episodes (`data.holdout`)."""
        for count in counts:
            self.first(count)
        return split(self.transitions(), self.lengths, counts, check_holdout(holdout))

    def save(self, path: str | os.PathLike[str], replace: bool = True) -> None:
        """Write an npz file of plain arrays, or another format by its ending or "format:path".

        On an error no partial file is left. An old file is replaced; with `replace=False` it stays, and RunError is
        raised.
        """
        from understudy.data.files import save

        save(self, path, replace)

    def __repr__(self) -> str:
        name = f"{self.env}, " if self.env else ""
        if not self.has_actions:
            name += "no actions, "
        seen = f"observations of {self.observations.shape[1]}" if self.recorded_space is None else self.spec
        return f"Demonstrations({name}{self.episodes} episodes, {self.steps} steps, {seen})"


def _no_actions(steps: int, space: ActionSpace | None) -> np.ndarray:
    """Valid actions where none were recorded. Nothing that trains on such demonstrations reads them."""
    if isinstance(space, Continuous):
        zeros = np.clip(0.0, np.asarray(space.low, np.float32), np.asarray(space.high, np.float32))
        return np.tile(zeros.astype(np.float32), (steps, 1))
    return np.zeros((steps, 0), np.float32) if space is None else np.zeros((steps, *space.shape), np.int32)
