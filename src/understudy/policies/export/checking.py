"""What is exported, and whether its actions are those of `predict`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from understudy.core.errors import RunError
from understudy.core.paths import check_no_own_directory, check_own_file
from understudy.core.types import Continuous
from understudy.core.version import __version__
from understudy.deploy import Policy
from understudy.deploy.forward import Node, State, encode_obs, mixture, network, nodes, scores, split, with_time
from understudy.deploy.policy import FORMAT
from understudy.deploy.structure import describe_spec
from understudy.policies.actor import Actor
from understudy.policies.base import Carry
from understudy.policies.structure import as_nodes, describe

TOLERANCE = 1e-5
"""The largest difference of an action that is accepted, as a share of its range."""
TIE = 1e-5
"""Discrete actions may differ if their scores differ by at most this share of the largest score. So may the actions of
a mixture's components if their logits do.
"""
RANDOM, MOST_STATES = 256, 1000
"""Random observations of each size, and states of a table, that are tried."""


class Written(NamedTuple):
    """What was written, and how it compares with `predict`."""

    path: Path
    files: tuple[str, ...]
    difference: float
    """The largest difference of an action from that of `predict`, as a share of its range; 0: equal to the last bit."""
    observations: int
    """Observations that were compared."""
    inputs: tuple[str, ...] = ()
    """The arguments of the exported function."""


@dataclass(frozen=True)
class Export:
    """A policy to export."""

    actor: Actor
    max_change: list[float] | None
    training: dict[str, Any]
    replace: bool = False
    """Whether an older export may be replaced."""

    @cached_property
    def policy(self) -> Node:
        return as_nodes(self.actor.policy)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arguments of a function without memory: the time step and the last action, if it needs them."""
        extra = ("t",) * (not self.actor.stationary) + ("last_action",) * (self.max_change is not None)
        return ("observation", *extra)

    @property
    def states(self) -> int | None:
        """The number of states of a tabular policy, whose observations are their indices."""
        tables = [node.table for node in nodes(self.policy) if node.kind == "Tabular"]
        return int(tables[0].shape[-2]) if tables else None

    def structure(self, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """The contents of a policy file. The arrays of the policy are added to `arrays`."""
        return {
            "format": FORMAT,
            "policy": describe(self.actor.policy, "policy", arrays),
            "spec": describe_spec(self.actor.spec),
            "about": self.actor.about,
            "export": {"understudy": __version__, "max_change": self.max_change, **self.training},
        }

    @property
    def metadata(self) -> dict[str, Any]:
        """The same without the policy itself."""
        return {key: value for key, value in self.structure({}).items() if key not in ("format", "policy")}

    def replaceable(self, path: Path, files: tuple[str, ...], start: str) -> tuple[str, ...]:
        """The files that may be replaced in a directory: none, or these if the first begins with our text."""
        if not self.replace:
            check_no_own_directory(path, files[0], start)
            return ()
        if path.is_dir():
            check_own_file(path / files[0], start)
        return files

    def trials(self) -> dict[str, np.ndarray]:
        """Arguments for a comparison: random and extreme observations, time steps up to and past the horizon."""
        random = np.random.default_rng(0)
        obs = self._observations(random)
        trial = {"observation": obs}
        if "t" in self.inputs:
            trial["t"] = random.integers(0, self.actor.spec.horizon + 2, len(obs)).astype(np.int64)
        if "last_action" in self.inputs:
            space = self.actor.spec.action
            assert isinstance(space, Continuous)
            trial["last_action"] = random.uniform(space.low, space.high, (len(obs), len(space.low))).astype(np.float32)
        return trial

    def _observations(self, random: np.random.Generator) -> np.ndarray:
        if self.states is not None:
            return np.arange(min(self.states, MOST_STATES), dtype=np.int64)
        shape = self.actor.spec.obs_shape
        flat = [random.normal(size=(RANDOM, *shape)) * size for size in (0.1, 1.0, 5.0)]
        corners = np.where(random.random((RANDOM, *shape)) < 0.5, -10.0, 10.0)
        rows = np.concatenate([np.zeros((1, *shape)), *flat, corners])
        scale = next((node for node in nodes(self.policy) if node.kind == "Normalization"), None)
        if scale is not None:
            mean, std = (np.asarray(x, np.float64).reshape(-1, *shape)[0] for x in (scale.obs_mean, scale.obs_std))
            rows = mean + std * rows
        return rows.astype(np.float32)

    def expected(self, trial: dict[str, np.ndarray]) -> np.ndarray:
        """The actions of `predict`, limited in rate if asked for."""
        obs, zeros = trial["observation"], np.zeros(len(trial["observation"]), np.int32)
        if self.max_change is not None:
            arrays: dict[str, np.ndarray] = {}
            limited = Policy(self.structure(arrays), arrays)
            state = State(trial.get("t", zeros), zeros, trial["last_action"])
            return limited.predict(obs, state)[0]
        carry = None if "t" not in trial else Carry(trial["t"], zeros)
        return self.actor.predict(obs, carry)[0]

    def compare(self, call: Callable[[dict[str, np.ndarray]], np.ndarray], tolerance: float, what: str) -> float:
        """The largest difference from the actions of `predict`. Raises RunError above `tolerance`."""
        trial = self.trials()
        expected, got = self.expected(trial), np.asarray(call(trial))
        space = self.actor.spec.action
        if got.shape != expected.shape:
            raise RunError(f"the {what} file is refused: its actions have shape {got.shape}, not {expected.shape}")
        if isinstance(space, Continuous):
            width = np.subtract(space.high, space.low)
            # NaN counts as infinite: no comparison with it holds
            each = np.nan_to_num(np.abs(got.astype(np.float64) - expected) / width, nan=np.inf)
            for row in np.unique(np.nonzero(each > tolerance)[0]):
                if np.isfinite(each[row]).all() and self._tied(trial, row):
                    each[row] = 0
            difference = float(each.max())
        else:
            difference = self._disagreement(trial, expected, got)
        if not difference <= tolerance:
            raise RunError(
                f"the {what} file is refused: its actions differ by {difference:.1e} of their range from those of "
                f"`predict`, and at most {tolerance:g} is allowed; nothing was written"
            )
        return difference

    def _disagreement(self, trial: dict[str, np.ndarray], expected: np.ndarray, got: np.ndarray) -> float:
        """The share of discrete actions that differ, without those with equal scores."""
        wrong = 0
        for row in np.unique(np.nonzero(got != expected)[0]):
            inner, obs = self._inner(trial, row)
            out = network(inner.net, obs) if inner.kind == "Independent" else scores(inner, obs)
            parts = split(out, inner.nvec) if inner.kind == "Independent" else [out]
            pairs = zip(parts, np.atleast_1d(expected[row]), np.atleast_1d(got[row]), strict=True)
            wrong += not all(abs(one[0, a] - one[0, b]) <= TIE * np.abs(one).max() for one, a, b in pairs)
        return wrong / len(got)

    def _tied(self, trial: dict[str, np.ndarray], row: int) -> bool:
        """Whether two components of a mixture are the heaviest."""
        inner, obs = self._inner(trial, row)
        if inner.kind != "Mixture" or inner.components == 1:
            return False
        logits = np.sort(mixture(inner, obs)[0][0])
        return bool(logits[-1] - logits[-2] <= TIE * np.abs(logits).max())

    def _inner(self, trial: dict[str, np.ndarray], row: int) -> tuple[Any, np.ndarray]:
        """The policy that acts in a row of a trial, and the observation that it gets."""
        inner, obs = self.policy, trial["observation"][row : row + 1]
        while inner.kind in ("Normalized", "TimeIndexed", "Timed"):
            if inner.kind == "Normalized":
                obs = encode_obs(inner.normalization, obs)
                inner = inner.policy
            elif inner.kind == "Timed":
                obs = with_time(trial["t"][row : row + 1], obs, inner.horizon)
                inner = inner.policy
            else:
                inner = inner.policies.at(int(trial["t"][row]))
        return inner, obs
