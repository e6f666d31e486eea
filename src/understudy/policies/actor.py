"""A trained policy with NumPy inputs and outputs in the environment's units, saved as plain arrays."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from understudy.core.errors import RunError, SpecError
from understudy.core.paths import checked_path
from understudy.core.reader import TEXT, Expected, FileReader
from understudy.core.storage import write_npz
from understudy.core.text import quoted
from understudy.core.types import Continuous, Discrete, MultiDiscrete, Spec, action_kind
from understudy.policies.base import Carry, Policy, step
from understudy.policies.checks import check_policy
from understudy.policies.combined import TimeIndexed
from understudy.policies.structure import array_names, describe, describe_spec, read_spec, rebuild

FORMAT = 4
"""Version of the policy file. Only this one can be read."""
LONGEST_STRUCTURE = 4_000_000
"""Characters of the JSON text with a policy's structure."""
STRUCTURE = "structure.json"
"""Its name in the file."""


class Actor:
    """A trained policy. Call it with one observation or a batch to get deterministic actions.

    `predict` has the signature of Stable-Baselines3. Its `state` is the memory of time-indexed policies within an
    episode.
    """

    def __init__(self, policy: Policy, spec: Spec, about: dict[str, Any] | None = None):
        self.policy: Policy = jax.tree.map(np.asarray, policy)
        self.spec = spec
        self.about = dict(about or {})
        """Where it comes from: algorithm, seed, episodes, environment."""
        nodes = jax.tree.leaves(policy, is_leaf=lambda x: isinstance(x, TimeIndexed))
        self.stationary = not any(isinstance(node, TimeIndexed) for node in nodes)

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
        """(actions, next state). `episode_start` marks observations that start an episode; samples use `random`."""
        obs, single = self._observations(observation)
        source = np.random.default_rng() if random is None else random
        if state is None:
            state = self.policy.reset(source, (len(obs),))
        elif episode_start is not None:
            fresh = self.policy.reset(source, (len(obs),))
            begins = np.broadcast_to(np.asarray(episode_start, bool), (len(obs),))
            state = Carry(*(np.where(begins, new, old) for new, old in zip(fresh, state, strict=True)))
        actions = self.policy.mode(state, obs) if deterministic else self.policy.draw(state, obs, source)
        actions = np.asarray(actions, np.float32 if isinstance(self.spec.action, Continuous) else np.int64)
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

    def _observations(self, observation: Any) -> tuple[np.ndarray, bool]:
        obs = np.asarray(observation)
        if self.spec.obs_shape or obs.dtype.kind not in "iu":  # the index of a state stays an integer
            obs = obs.astype(np.float32)
        single = obs.shape == self.spec.obs_shape
        if single:
            obs = obs[None]
        if obs.shape[1:] != self.spec.obs_shape:
            raise SpecError(
                f"observation has shape {np.shape(observation)}: "
                f"the policy takes {self.spec.obs_shape}, or a batch of shape (n, *{self.spec.obs_shape})"
            )
        if not np.isfinite(obs).all():
            raise SpecError(f"observation has {int((~np.isfinite(obs)).sum())} values that are NaN or infinite")
        return obs, single

    def __repr__(self) -> str:
        about = ", ".join(
            f"{quoted(key)}={quoted(value)}" for key, value in self.about.items() if not isinstance(value, dict)
        )
        return f"Actor({about})"


def read_policy(path: Path, diverged: bool = False) -> Actor:
    """Read a policy file. Raises RunError unless the policy can act. If it `diverged`, its numbers may be anything."""
    if not path.exists():
        raise RunError(f"no policy at '{quoted(path, 1000)}': give a policy file or a run directory")
    file = FileReader(path, "a policy saved by understudy", "save it again, or train again")
    text = file.npz({STRUCTURE: Expected(TEXT, (), most=4 * LONGEST_STRUCTURE)}.get, (STRUCTURE,))[STRUCTURE].item()
    structure = file.parse_json(text, {"format": int, "policy": dict, "spec": dict, "about": dict})
    if structure["format"] != FORMAT:
        version = "a newer" if structure["format"] > FORMAT else "an older"
        raise RunError(
            f"'{file.name}' was written by {version} version of understudy (format {quoted(structure['format'])}, this "
            f"version reads {FORMAT}): use that version, or train again"
        )
    with file.guarded():
        try:
            names, spec = array_names(structure["policy"]), read_spec(structure["spec"])
            arrays = file.npz(dict.fromkeys(names, Expected("f")).get, sorted(names))
            policy = rebuild(structure["policy"], arrays)
            check_policy(policy, spec, diverged)
            actor = Actor(policy, spec, structure["about"])
            if not diverged:
                _try(actor)
        except ValueError as error:  # SpecError is one too, RunError is not
            raise file.damaged(error) from error
    return actor


def _try(actor: Actor) -> None:
    """Raise SpecError if the policy's actions for zero observations are not valid actions."""
    obs = np.zeros((2, *actor.spec.obs_shape), np.float32 if actor.spec.obs_shape else np.int64)
    with np.errstate(all="ignore"):
        actions, _ = actor.predict(obs, random=np.random.default_rng(0))
    shape = (2, *actor.spec.action.shape)
    if actions.shape != shape or not np.isfinite(actions).all():
        raise SpecError(f"its actions have shape {actions.shape} instead of {shape}, or are not finite")


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


def _summary(spec: Spec) -> str:
    return f"observations {spec.obs_shape} and {spec.action_size} {action_kind(spec.action)} actions"
