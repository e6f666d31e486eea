"""A trained policy on NumPy alone. `understudy export RUN --to numpy` copies this file next to a policy.npz:

    from policy import load

    policy = load()  # policy.npz next to this file
    action = policy(observation)  # one observation or a batch; deterministic
    action, state = policy.predict(observation, state, episode_start, deterministic=False)

    python policy.py                   # a summary
    python policy.py observations.npy  # actions; `-` reads standard input

Actions are clipped to their bounds. An observation or action that is NaN or infinite raises ValueError. A policy with a
memory (time-indexed, or exported with --max-change) needs `policy.reset()` at the start of every episode, or the state
that `predict` returned last. It needs Python 3.10 and NumPy, and nothing is unpickled.

Copyright: the understudy authors. SPDX-License-Identifier: MIT
"""

import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from understudy.deploy.forward import MAX_SEED, State, act, build, clamp, nodes

FORMAT = 5
"""Version of the policy file. Only this one can be read."""
STRUCTURE = "structure.json"
"""The member of the file with the structure of the policy."""


class Policy:
    """A policy that acts with NumPy. `predict` has the signature of Stable-Baselines3."""

    error: type[Exception] = ValueError
    """What is raised for an observation or a state that does not fit."""

    def __init__(self, structure: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.spec: dict[str, Any] = structure["spec"]
        """The task: shape and named parts of observations, bounds or number of actions, horizon."""
        self.about: dict[str, Any] = structure["about"]
        """Where the policy comes from: algorithm, seed, episodes, environment."""
        self.export: dict[str, Any] = structure.get("export") or {}
        """What the export added: versions, training, demonstrations, max_change."""
        self.random = np.random.default_rng()
        """The generator of samples."""
        self._policy = build(structure["policy"], arrays)
        self._shape, self._parts = tuple(self.spec["obs_shape"]), self.spec.get("obs_parts") or ()
        self._discrete = self.spec["kind"] != "Continuous"
        action = self.spec["action"]
        self._low: Any = None if self._discrete else np.array(action["low"], np.float32)
        self._high: Any = None if self._discrete else np.array(action["high"], np.float32)
        limit = self.export.get("max_change")
        self._limit = None if limit is None else np.array(limit, np.float32)
        found = {node.kind: node for node in nodes(self._policy)}
        self._states = found["Tabular"].table.shape[-2] if "Tabular" in found else None
        self.stateless = not {"TimeIndexed", "Timed"} & set(found) and self._limit is None
        """Whether it has no memory within an episode."""
        self._started, self._held = False, np.asarray(np.nan, np.float32)
        self._memory: State | None = None

    def __call__(self, observation: Any) -> np.ndarray:
        """The deterministic action for one observation, or one action for each observation of a batch."""
        if self.stateless:
            return self.predict(observation)[0]
        if not self._started:
            raise self.error("this policy has a memory within an episode: call reset() at the start of every episode")
        action, self._memory = self._step(observation, self._memory, None, None, self._held)
        return action

    def reset(self, last_action: Any = None) -> None:
        """Start an episode, for calls of the policy itself. `predict` gets its memory from its arguments.

        With --max-change, `last_action` is the one that the motors hold now. Without it, the first action is free.
        """
        self._started, self._memory, self._held = True, None, np.asarray(np.nan, np.float32)
        if last_action is not None and self._limit is not None:
            held = np.asarray(last_action, np.float32)
            if held.shape[-1:] != self._low.shape or not ((held >= self._low) & (held <= self._high)).all():
                raise self.error(
                    f"last_action is {last_action!r}: {len(self._low)} numbers within the bounds are needed"
                )
            self._held = held

    def predict(
        self,
        observation: Any,
        state: State | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        random: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, State | None]:
        """(actions, next state), as in Stable-Baselines3.

        Pass the returned state to the next call; `episode_start` marks observations that start an episode. Without a
        state all of them do. Samples use `random`, or the policy's own generator.
        """
        if deterministic and self.stateless:
            obs, single = self._observations(observation)
            actions = self._checked(act(self._policy, None, obs))
            return (actions[0] if single else actions), None
        source = None if deterministic else self.random if random is None else random
        return self._step(observation, state, episode_start, source, np.nan)

    def _step(
        self, observation: Any, state: State | None, episode_start: Any, random: np.random.Generator | None, held: Any
    ) -> tuple[np.ndarray, State | None]:
        obs, single = self._observations(observation)
        count = len(obs)
        if state is not None and len(state.t) != count:
            raise self.error(f"state is that of {len(state.t)} observations, and there are {count}")
        if state is None or episode_start is not None:
            begins = np.broadcast_to(np.asarray(True if state is None else episode_start, bool), (count,))
            state = self._begun(count, begins, state, self.random if random is None else random, held)
        actions = act(self._policy, state, obs, random)
        if self._limit is not None:
            change = clamp(actions - state.last, -self._limit, self._limit)
            actions = np.where(np.isnan(state.last), actions, state.last + change)
        actions = self._checked(actions)
        last = None if self._limit is None else actions.copy()  # the caller may change its own
        return (actions[0] if single else actions), None if self.stateless else State(state.t + 1, state.drawn, last)

    def _begun(
        self, count: int, begins: np.ndarray, old: State | None, random: np.random.Generator, held: Any
    ) -> State:
        """The state with new entries where an episode begins."""
        t, drawn, last = np.zeros(count, np.int32), np.zeros(count, np.int32), None
        inner = self._policy
        while inner.kind in ("Normalized", "Timed"):
            inner = inner.policy
        if inner.kind == "StateDependent":
            drawn = random.integers(MAX_SEED, size=count, dtype=np.int32)
        if self._limit is not None:
            last = np.broadcast_to(np.asarray(held, np.float32), (count, len(self._low)))
        if old is None:
            return State(t, drawn, last)
        if last is not None:
            last = np.where(begins[:, None], last, old.last)
        return State(np.where(begins, t, old.t), np.where(begins, drawn, old.drawn), last)

    def _observations(self, observation: Any) -> tuple[np.ndarray, bool]:
        return batch_of(joined(observation, self._parts, self.error), self._shape, self._states, self.error)

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        """Actions in their type, within their bounds, and finite."""
        if self._discrete:
            return actions.astype(np.int64, copy=False)
        actions = clamp(actions.astype(np.float32, copy=False), self._low, self._high)
        if not all_finite(actions):
            raise self.error("the policy's action is NaN: the observation is too large for it")
        return actions

    def __repr__(self) -> str:
        shown = {key: value for key, value in self.about.items() if not isinstance(value, dict)}
        return f"Policy({json.dumps(shown)[1:-1]})"


def joined(observation: Any, parts: Any, error: type[Exception]) -> Any:
    """An observation without its names: a dictionary of parts becomes a row, or rows if each part has a batch."""
    if not isinstance(observation, dict):
        return observation
    found = [np.asarray(observation.get(name, ())) for name, _ in parts]
    rows = len(found[0]) if found and found[0].ndim else 1
    batch = all(
        part.ndim and len(part) == rows and part.size == rows * size
        for part, (_, size) in zip(found, parts, strict=True)
    )
    if batch and (rows > 1 or all(part.ndim > 1 for part in found)):
        columns = [part.reshape(rows, -1) for part in found]
    else:
        columns = [part.reshape(-1) for part in found]
        batch = all(part.size == size for part, (_, size) in zip(columns, parts, strict=True))
    if not batch or not parts or len(observation) != len(parts):
        given = ", ".join(f"{name} {np.shape(part)}" for name, part in observation.items())
        wanted = ", ".join(f"{name} ({size} numbers)" for name, size in parts) or "an array"
        raise error(f"observation has the parts {given}: the policy takes {wanted}, or a batch of each")
    return np.concatenate(columns, axis=-1)


def batch_of(
    observation: Any, shape: tuple[int, ...], states: int | None, error: type[Exception]
) -> tuple[np.ndarray, bool]:
    """Observations as a batch, and whether one was given. A policy with a table of `states` takes their indices."""
    takes = f"the policy takes {shape}, or a batch of shape (n, *{shape})"
    try:
        obs = np.asarray(observation)
        if shape or obs.dtype.kind not in "iu":  # the index of a state stays an integer
            obs = obs.astype(np.float32, copy=False)
    except (TypeError, ValueError) as wrong:
        raise error(f"observation is no array of numbers ({wrong}): {takes}") from wrong
    single = obs.shape == shape
    if single:
        obs = obs[None]
    if obs.shape[1:] != shape or not obs.ndim:
        raise error(f"observation has shape {np.shape(observation)}: {takes}")
    if states is not None:
        if obs.dtype.kind not in "iu" or (obs < 0).any() or (obs >= states).any():
            raise error(f"observation is {observation!r}: a state is needed, a whole number from 0 to {states - 1}")
    elif not all_finite(obs):
        raise error(f"observation has {int((~np.isfinite(obs)).sum())} values that are NaN or infinite")
    return obs, single


def all_finite(array: np.ndarray) -> bool:
    """Whether no number is NaN or infinite. The sum of squares is faster, and enough if it does not overflow."""
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def load(path: str | Path | None = None) -> Policy:
    """The policy in a file that this version wrote; by default the npz file next to this one.

    Files from strangers: `understudy.deploy.load` also limits what is read, and checks each array.
    """
    path = Path(__file__).with_suffix(".npz") if path is None else Path(path)
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if STRUCTURE not in arrays:
        raise ValueError(f"'{path}' is not a policy of understudy: it has no {STRUCTURE}")
    structure = json.loads(arrays.pop(STRUCTURE).item())
    if structure["format"] != FORMAT:
        raise ValueError(f"'{path}' has format {structure['format']}, and this file reads {FORMAT}: export it again")
    wrong = [name for name, array in arrays.items() if array.dtype.kind != "f" or not np.isfinite(array).all()]
    if wrong:
        raise ValueError(f"'{path}' is damaged: {', '.join(wrong)} has values that are no finite numbers")
    return Policy(structure, arrays)


def main() -> None:
    """Print a summary of the policy, or its actions for the observations in a file."""
    policy = load()
    if len(sys.argv) < 2:
        print(json.dumps({"spec": policy.spec, "about": policy.about, "export": policy.export}, indent=2))
        return
    source = io.BytesIO(sys.stdin.buffer.read()) if sys.argv[1] == "-" else sys.argv[1]
    if not policy.stateless:
        policy.reset()
    print(json.dumps(policy(np.load(source, allow_pickle=False)).tolist()))


if __name__ == "__main__":
    main()
