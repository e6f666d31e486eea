"""A trained policy with NumPy inputs and outputs in the environment's units, saved as plain arrays."""

import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from understudy.core.errors import RunError, SpecError
from understudy.core.storage import write_npz
from understudy.core.types import ActionSpace, Continuous, Discrete, Spec
from understudy.policies.base import Carry, Categorical, Deterministic, Policy, step
from understudy.policies.combined import Ensemble, Normalized, Tabular, TimeIndexed
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization

FORMAT = 4
"""Version of the policy file. Only this one can be read."""
_CLASSES: dict[str, type[eqx.Module]] = {
    cls.__name__: cls
    for cls in (
        MLP,
        Normalization,
        Categorical,
        Ensemble,
        Deterministic,
        Normalized,
        Gaussian,
        StateDependent,
        Tabular,
        TimeIndexed,
    )
}


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
        actions = np.asarray(actions, np.int64 if isinstance(self.spec.action, Discrete) else np.float32)
        return (actions[0] if single else actions), (None if self.stationary else step(state))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one npz file: plain arrays, and a JSON text with the structure of the policy."""
        arrays: dict[str, np.ndarray] = {}
        structure = {
            "format": FORMAT,
            "policy": _describe(self.policy, "policy", arrays),
            "spec": describe_spec(self.spec),
            "about": self.about,
        }
        write_npz(Path(path), {**arrays, "structure.json": np.array(json.dumps(structure))})

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
        about = ", ".join(f"{key}={value}" for key, value in self.about.items() if not isinstance(value, dict))
        return f"Actor({about})"


def read_policy(path: Path) -> Actor:
    """Read a policy file."""
    if not path.exists():
        raise RunError(f"no policy at '{path}': give a policy file or a run directory")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        structure = json.loads(str(arrays.pop("structure.json")))
        if structure["format"] != FORMAT:
            version = "a newer" if structure["format"] > FORMAT else "an older"
            raise RunError(
                f"'{path}' was written by {version} version of understudy (format {structure['format']}, this version "
                f"reads {FORMAT}): use that version, or train again"
            )
        return Actor(_rebuild(structure["policy"], arrays), read_spec(structure["spec"]), structure["about"])
    except (ValueError, OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise RunError(f"'{path}' is not a policy saved by understudy ({type(error).__name__})") from error


def describe_spec(spec: Spec) -> dict[str, Any]:
    """A spec as JSON values; `read_spec` is the inverse."""
    return {**asdict(spec), "kind": type(spec.action).__name__}


def read_spec(values: dict[str, Any]) -> Spec:
    action = values["action"]
    space: ActionSpace = (
        Discrete(action["n"]) if values["kind"] == "Discrete" else Continuous(action["low"], action["high"])
    )
    return Spec(tuple(values["obs_shape"]), space, values["horizon"], values.get("policy_obs"))


def check_fits(actor: Actor, env: Any) -> None:
    """Raise if the policy was trained on other observations or actions than the environment has."""
    spec = env.spec
    fits = type(spec.action) is type(actor.spec.action) and spec.action.shape == actor.spec.action.shape
    if isinstance(spec.action, Discrete) and isinstance(actor.spec.action, Discrete):
        fits = actor.spec.action.n <= spec.action.n
    if spec.obs_shape != actor.spec.obs_shape or not fits:
        raise SpecError(f"the policy was trained for {_summary(actor.spec)}; {env.name} has {_summary(spec)}")


def _summary(spec: Spec) -> str:
    kind = "discrete" if isinstance(spec.action, Discrete) else "continuous"
    return f"observations {spec.obs_shape} and {spec.action_size} {kind} actions"


def _describe(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON value for a module: its class and fields. Arrays go into `arrays` under their path."""
    if isinstance(value, eqx.Module):
        if type(value).__name__ not in _CLASSES:
            raise RunError(f"a policy of class {type(value).__name__} cannot be saved: use {', '.join(_CLASSES)}")
        fields = {name: _describe(getattr(value, name), f"{path}.{name}", arrays) for name in vars(value)}
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [_describe(item, f"{path}.{i}", arrays) for i, item in enumerate(value)]}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays[path] = np.asarray(value)
        return {"array": path}
    return {"value": value}


def _rebuild(node: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `_describe`."""
    if "class" in node:
        return _CLASSES[node["class"]](**{name: _rebuild(field, arrays) for name, field in node["fields"].items()})
    if "tuple" in node:
        return tuple(_rebuild(item, arrays) for item in node["tuple"])
    return arrays[node["array"]] if "array" in node else node["value"]
