"""What an expert did, as arrays: episodes of any length, laid end to end, checked once when they come in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from understudy.errors import DemonstrationError
from understudy.types import ActionSpace, Continuous, Dataset, Discrete, Spec, Transition

Ends = Literal["time_limit", "terminal"]


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Episodes laid end to end. Make them with `from_arrays` or `understudy.load`, which check them."""

    observations: np.ndarray
    """(N, obs), float32."""
    actions: np.ndarray
    """(N, act), float32; or (N,), int32, for discrete actions."""
    lengths: np.ndarray
    """(episodes,): split the N steps by these."""
    action_space: ActionSpace
    horizon: int
    """T: the longest an episode can be."""
    next_observations: np.ndarray | None = None
    terminals: np.ndarray | None = None
    """(N,), True where the state after the step is absorbing. A time limit is not a terminal state."""
    rewards: np.ndarray | None = None
    """(N,). For reporting the expert's return; no algorithm sees them."""
    env: str | None = None
    """The environment they come from, if known."""
    ends: Ends = "time_limit"
    """How episodes end where `terminals` does not say."""
    recorded_return: tuple[float, float] | None = None
    """Mean and standard deviation of the expert's return, where a file states them instead of rewards."""
    bounds_from_data: bool = False
    """True where no action bounds were given: they are the data's own extremes."""

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any,
        lengths: Any = None,
        *,
        next_observations: Any = None,
        terminals: Any = None,
        rewards: Any = None,
        action_space: ActionSpace | None = None,
        horizon: int | None = None,
        env: str | None = None,
        ends: Ends = "time_limit",
        recorded_return: tuple[float, float] | None = None,
        source: str = "demonstrations",
    ) -> "Demonstrations":
        """Check the arrays and make them demonstrations.

        `lengths` splits the steps into episodes (default: one episode). Integer actions are discrete. Without
        `action_space`, the number of discrete actions is the largest seen plus one, and continuous bounds are the
        extremes of the data. `source` is what errors call the data.
        """
        observations = _numbers(source, "observations", observations)
        steps = observations.shape[0]
        observations = observations.reshape(steps, -1)
        lengths = np.atleast_1d(np.asarray([steps] if lengths is None else lengths))
        _check_lengths(source, lengths, steps)
        _check_finite(source, "observations", observations, lengths)
        actions = _numbers(source, "actions", actions, keep_integers=True)
        _check_steps(source, "actions", actions, steps)
        actions, space = _check_actions(source, actions, action_space, lengths)
        if next_observations is not None:
            next_observations = _numbers(source, "next_observations", next_observations)
            _check_steps(source, "next_observations", next_observations, steps)
            next_observations = next_observations.reshape(steps, -1)
            if next_observations.shape != observations.shape:
                raise DemonstrationError(
                    f"{source}: next_observations has shape {next_observations.shape}, "
                    f"observations {observations.shape}: they must agree"
                )
            _check_finite(source, "next_observations", next_observations, lengths)
        if terminals is not None:
            terminals = np.asarray(terminals).astype(bool).reshape(-1)
            _check_steps(source, "terminals", terminals, steps)
            final = np.cumsum(lengths) - 1
            inside = np.setdiff1d(np.flatnonzero(terminals), final)
            if inside.size:
                where = _where(int(inside[0]), lengths)
                raise DemonstrationError(f"{source}: terminals is True inside an episode, first at {where}")
        if rewards is not None:
            rewards = _numbers(source, "rewards", rewards).reshape(-1)
            _check_steps(source, "rewards", rewards, steps)
            _check_finite(source, "rewards", rewards, lengths)
        if ends not in ("time_limit", "terminal"):
            raise DemonstrationError(f"{source}: ends is '{ends}': choose 'time_limit' or 'terminal'")
        longest = int(lengths.max())
        if horizon is not None and horizon < longest:
            raise DemonstrationError(f"{source}: horizon is {horizon}, but an episode has {longest} steps")
        return cls(
            observations=observations,
            actions=actions,
            lengths=lengths.astype(np.int64),
            action_space=space,
            horizon=longest if horizon is None else int(horizon),
            next_observations=next_observations,
            terminals=terminals,
            rewards=rewards,
            env=env,
            ends=ends,
            recorded_return=recorded_return,
            bounds_from_data=action_space is None and isinstance(space, Continuous),
        )

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        return len(self.observations)

    @property
    def spec(self) -> Spec:
        return Spec((self.observations.shape[1],), self.action_space, self.horizon)

    @property
    def returns(self) -> np.ndarray | None:
        """The return of each episode, where rewards were recorded."""
        if self.rewards is None:
            return None
        return np.add.reduceat(self.rewards.astype(np.float64), np.cumsum(self.lengths) - self.lengths)

    def first(self, episodes: int) -> "Demonstrations":
        """The first `episodes` episodes."""
        if not 1 <= episodes <= self.episodes:
            raise DemonstrationError(
                f"episodes is {episodes}, but there {'is' if self.episodes == 1 else 'are'} {self.episodes}"
                f"{' in ' + self.env if self.env else ''}: ask for 1 to {self.episodes}"
            )
        steps = int(self.lengths[:episodes].sum())

        def head(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else array[:steps]

        return replace(
            self,
            observations=self.observations[:steps],
            actions=self.actions[:steps],
            lengths=self.lengths[:episodes],
            next_observations=head(self.next_observations),
            terminals=head(self.terminals),
            rewards=head(self.rewards),
        )

    def for_task(self, spec: Spec, name: str) -> "Demonstrations":
        """The same episodes with the bounds and horizon of an environment, checked against them."""
        if spec.obs_shape != self.spec.obs_shape:
            raise DemonstrationError(
                f"the demonstrations' observations have shape {self.spec.obs_shape}, those of {name} {spec.obs_shape}: "
                "they are not from this environment"
            )
        if type(spec.action) is not type(self.action_space):
            raise DemonstrationError(
                f"the demonstrations' actions are {type(self.action_space).__name__.lower()}, those of {name} "
                f"{type(spec.action).__name__.lower()}: they are not from this environment"
            )
        actions, space = _check_actions(f"demonstrations for {name}", self.actions, spec.action, self.lengths)
        horizon = max(spec.horizon, self.horizon)
        return replace(self, actions=actions, action_space=space, horizon=horizon, env=name, bounds_from_data=False)

    def transitions(self) -> Transition:
        """All steps as arrays on the host, in order."""
        t = np.concatenate([np.arange(length) for length in self.lengths]).astype(np.int32)
        last = np.zeros(self.steps, bool)
        last[np.cumsum(self.lengths) - 1] = True
        if self.next_observations is None:
            next_obs = np.concatenate([self.observations[1:], self.observations[-1:]])
            next_obs[last] = self.observations[last]
            known = ~last
        else:
            next_obs, known = self.next_observations, np.ones(self.steps, bool)
        terminal = self.terminals if self.terminals is not None else last & (self.ends == "terminal")
        round_ = np.full(self.steps, -1, np.int32)
        return Transition(t, self.observations, self.actions, next_obs, terminal, last, known, round_)  # type: ignore[arg-type]

    def split(self, counts: Sequence[int], holdout: float) -> tuple[Dataset, Dataset]:
        """Training and held-out steps for runs that use the first counts[i] episodes.

        Every k-th step is held out, k = 1/holdout: the same steps for every algorithm and seed. Where so few steps are
        used that none would be held out, or with holdout 0, all serve as both.
        """
        for count in counts:
            self.first(count)
        if not 0 <= holdout <= 0.5:
            raise DemonstrationError(f"holdout is {holdout}: choose a fraction from 0 to 0.5")
        stride = round(1 / holdout) if holdout else self.steps + 1
        held = np.arange(self.steps) % stride == stride - 1
        ends = np.cumsum(self.lengths)[np.asarray(counts) - 1]
        if held[: ends.min()].sum() == 0:
            held[:] = False
        steps = self.transitions()

        def part(chosen: np.ndarray) -> Dataset:
            count = np.cumsum(chosen)[ends - 1].astype(np.int32)
            keep = np.flatnonzero(chosen)[: count.max()]
            return Dataset(Transition(*(jnp.asarray(x[keep]) for x in steps)), jnp.asarray(count))

        return part(~held), part(held if held.any() else ~held)

    def save(self, path: str) -> None:
        """Write an npz of plain arrays, whole or not at all."""
        from understudy.data.files import save

        save(self, path)

    def __repr__(self) -> str:
        name = f"{self.env}, " if self.env else ""
        return f"Demonstrations({name}{self.episodes} episodes, {self.steps} steps, {self.spec})"


def _numbers(source: str, name: str, value: Any, keep_integers: bool = False) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise DemonstrationError(f"{source}: {name} has type {array.dtype}: it must be an array of plain numbers")
    if array.ndim == 0:
        raise DemonstrationError(f"{source}: {name} is a single number: it needs one row per step")
    if array.dtype.kind in "iub" and keep_integers:
        return array.astype(np.int32)
    return array.astype(np.float32)


def _check_lengths(source: str, lengths: np.ndarray, steps: int) -> None:
    if lengths.dtype.kind not in "iu":
        raise DemonstrationError(f"{source}: lengths has type {lengths.dtype}: it must hold whole numbers")
    if lengths.ndim != 1 or lengths.size == 0 or steps == 0:
        raise DemonstrationError(f"{source}: there are no episodes ({lengths.size} lengths, {steps} steps)")
    if (lengths < 1).any():
        first = int(np.flatnonzero(lengths < 1)[0])
        raise DemonstrationError(f"{source}: episode {first} has length {lengths[first]}: every episode needs a step")
    if lengths.sum() != steps:
        raise DemonstrationError(
            f"{source}: lengths add up to {int(lengths.sum())}, but there are {steps} observations: "
            "they must be the same number"
        )


def _check_steps(source: str, name: str, array: np.ndarray, steps: int) -> None:
    if array.shape[0] != steps:
        raise DemonstrationError(f"{source}: {name} has {array.shape[0]} rows, observations {steps}: they must agree")


def _where(step: int, lengths: np.ndarray) -> str:
    episode = int(np.searchsorted(np.cumsum(lengths), step, side="right"))
    return f"episode {episode}, step {step - int(lengths[:episode].sum())}"


def _check_finite(source: str, name: str, array: np.ndarray, lengths: np.ndarray) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        first = np.argwhere(bad)[0]
        dimension = f", dimension {first[1]}" if array.ndim > 1 else ""
        raise DemonstrationError(
            f"{source}: {name} has {int(bad.sum())} values that are NaN or infinite, the first at "
            f"{_where(int(first[0]), lengths)}{dimension}: repair or drop those steps"
        )


def _check_actions(
    source: str, actions: np.ndarray, space: ActionSpace | None, lengths: np.ndarray
) -> tuple[np.ndarray, ActionSpace]:
    """The actions in their canonical shape and type, and their space, checked against each other."""
    if actions.dtype.kind == "i" and not isinstance(space, Continuous):
        if actions.ndim == 2 and actions.shape[1] == 1:
            actions = actions[:, 0]
        if actions.ndim != 1:
            raise DemonstrationError(f"{source}: discrete actions have shape {actions.shape}: one index a step is needed")
        space = Discrete(int(max(actions.max() + 1, 1))) if space is None else space
        bad = (actions < 0) | (actions >= space.n)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            raise DemonstrationError(
                f"{source}: {int(bad.sum())} actions are out of range, the first {actions[first]} at "
                f"{_where(first, lengths)}: discrete actions run from 0 to {space.n - 1}"
            )
        return actions, space
    if isinstance(space, Discrete):
        raise DemonstrationError(f"{source}: actions are real numbers, but the action space has {space.n} discrete actions")
    actions = actions.astype(np.float32).reshape(len(actions), -1)
    _check_finite(source, "actions", actions, lengths)
    if space is None:
        low, high = actions.min(0), actions.max(0)
        flat = low == high
        low, high = np.where(flat, low - 1, low), np.where(flat, high + 1, high)
        return actions, Continuous(tuple(map(float, low)), tuple(map(float, high)))
    if actions.shape[1:] != space.shape:
        raise DemonstrationError(f"{source}: actions have {actions.shape[1]} dimensions, the action space {space.shape[0]}")
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    slack = 1e-5 * (high - low)
    bad = (actions < low - slack) | (actions > high + slack)
    if bad.any():
        step, dimension = np.argwhere(bad)[0]
        raise DemonstrationError(
            f"{source}: {int(bad.sum())} action values are outside the bounds, the first {actions[step, dimension]:g} at "
            f"{_where(int(step), lengths)}, dimension {dimension}: the bounds are "
            f"[{low[dimension]:g}, {high[dimension]:g}]"
        )
    return np.clip(actions, low, high), space
