"""A trained policy with NumPy inputs and outputs in the environment's units, saved as plain arrays."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from understudy.core.errors import SpecError
from understudy.core.parts import reordered
from understudy.core.paths import checked_path
from understudy.core.storage import write_npz
from understudy.core.text import quoted
from understudy.core.types import Continuous, Discrete, MultiDiscrete, Spec, action_kind
from understudy.deploy.files import read_file
from understudy.deploy.forward import clamp
from understudy.deploy.policy import FORMAT, STRUCTURE, batch_of, joined
from understudy.deploy.structure import describe_spec
from understudy.policies.base import Carry, Policy, step
from understudy.policies.combined import Tabular, TimeIndexed
from understudy.policies.structure import describe, rebuild
from understudy.policies.wrapped import Timed

if TYPE_CHECKING:
    from understudy.policies.export.checking import Written

CLOCKS = (TimeIndexed, Timed)
"""Policies that depend on the time step."""


class Actor:
    """A trained policy. Call it with one observation or a batch to get deterministic actions.

    `predict` has the signature of Stable-Baselines3. Its `state` is the memory of time-dependent policies within an
    episode.
    """

    def __init__(self, policy: Policy, spec: Spec, about: dict[str, Any] | None = None):
        self.policy: Policy = jax.tree.map(np.asarray, policy)
        self.spec = spec
        self.about = dict(about or {})
        """Where it comes from: algorithm, seed, episodes, environment."""
        self.stationary = not any(isinstance(node, CLOCKS) for node in _nodes(policy, CLOCKS))
        tables = [node.table for node in _nodes(self.policy, Tabular) if isinstance(node, Tabular)]
        self._states = tables[0].shape[-2] if tables else None
        space = spec.action
        bounds = (space.low, space.high) if isinstance(space, Continuous) else None
        self._bounds = None if bounds is None else tuple(np.array(x, np.float32) for x in bounds)

    def __call__(self, obs: Any) -> np.ndarray:
        """The deterministic action for one observation, or one action for each observation of a batch."""
        if not self.stationary:
            raise SpecError(
                "this policy has a memory within an episode (it is time-indexed): "
                "call predict(obs, state, episode_start) and pass the returned state to the next call"
            )
        return self.predict(obs)[0]

    def predict(
        self,
        observation: Any,
        state: Carry | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        random: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Carry | None]:
        """(actions, next state). `episode_start` marks observations that start an episode; samples use `random`.

        An observation with named parts may be a dictionary of them, and a batch a dictionary of batches.
        """
        flat = joined(observation, self.spec.obs_parts, SpecError)
        obs, single = batch_of(flat, self.spec.obs_shape, self._states, SpecError)
        source = np.random.default_rng() if random is None else random
        if state is None:
            state = self.policy.reset(source, (len(obs),))
        elif episode_start is not None:
            fresh = self.policy.reset(source, (len(obs),))
            begins = np.broadcast_to(np.asarray(episode_start, bool), (len(obs),))
            state = Carry(*(np.where(begins, new, old) for new, old in zip(fresh, state, strict=True)))
        actions = self.policy.mode(state, obs) if deterministic else self.policy.draw(state, obs, source)
        if self._bounds is None:
            actions = np.asarray(actions, np.int64)
        else:
            actions = clamp(np.asarray(actions, np.float32), *self._bounds)
        return (actions[0] if single else actions), (None if self.stationary else step(state))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one npz file: plain arrays, and a JSON text with the structure of the policy."""
        arrays: dict[str, np.ndarray] = {}
        structure = {
            "format": FORMAT,
            "policy": describe(self.policy, "policy", arrays),
            "spec": describe_spec(self.spec),
            "about": self.about,
        }
        write_npz(checked_path(path), {**arrays, STRUCTURE: np.array(json.dumps(structure))})

    def export(
        self,
        path: str | os.PathLike[str],
        to: str = "numpy",
        max_change: float | Sequence[float] | None = None,
        replace: bool = False,
    ) -> "Written":
        """Write the policy for programs without understudy: "numpy", "onnx" or "jax" (`policies.export.export`)."""
        from understudy.policies.export import export

        return export(self, path, to, max_change, replace=replace)

    def __repr__(self) -> str:
        about = ", ".join(
            f"{quoted(key)}={quoted(value)}" for key, value in self.about.items() if not isinstance(value, dict)
        )
        return f"Actor({about})"


def _nodes(policy: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """The leaves of a policy, with the nodes of these classes in place of their leaves."""
    return jax.tree.leaves(policy, is_leaf=lambda x: isinstance(x, kind))


def read_policy(path: Path, diverged: bool = False) -> Actor:
    """Read a policy file. Raises RunError unless the policy can act. If it `diverged`, its numbers may be anything."""
    structure, arrays, spec = read_file(path, diverged)
    return Actor(rebuild(structure["policy"], arrays), spec, structure["about"])


def check_fits(actor: Actor, env: Any) -> None:
    """Raise if the policy was trained on other observations or actions than the environment has."""
    spec = env.spec
    fits = type(spec.action) is type(actor.spec.action) and spec.action.shape == actor.spec.action.shape
    if isinstance(spec.action, Discrete) and isinstance(actor.spec.action, Discrete):
        fits = actor.spec.action.n <= spec.action.n
    if isinstance(spec.action, MultiDiscrete):
        fits = actor.spec.action == spec.action
    if spec.obs_shape != actor.spec.obs_shape or not fits:
        raise SpecError(f"the policy was trained for {_summary(actor.spec)}; {env.name} has {_summary(spec)}")
    if reordered(actor.spec.obs_parts, spec.obs_parts) is not None:
        names = [quoted(", ".join(name for name, _ in one.obs_parts)) for one in (actor.spec, spec)]
        raise SpecError(
            f"the policy takes the parts of an observation in the order {names[0]}; {env.name} has {names[1]}"
        )


def _summary(spec: Spec) -> str:
    return f"observations {spec.obs_shape} and {spec.action_size} {action_kind(spec.action)} actions"
