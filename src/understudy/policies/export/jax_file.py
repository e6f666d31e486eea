"""A directory with a function serialized by `jax.export`, and its metadata.

    function = jax.export.deserialize(bytearray(Path("policy.jax").read_bytes()))
    action = function.call(observation)

The arguments are positional, each with a leading axis of any length, the same for all:

    observation    float32 (batch, n); int32 (batch,) for a tabular policy, whose observation is the index of a state
    t              int32 (batch,), the time step of the episode from 0; time-indexed policies only
    last_action    float32 (batch, actions), the action before; with `max_change` only

It returns the deterministic actions, within their bounds: float32 (batch, actions), or int32 (batch,). If an
observation is NaN or infinite, its action is NaN, or -1 if actions are discrete. It runs on CPU, CUDA and TPU.
"""

from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from understudy.core.storage import atomic_directory, write_json
from understudy.core.types import Continuous
from understudy.core.version import __version__
from understudy.deploy.forward import clamp
from understudy.policies.base import Carry
from understudy.policies.export.checking import TOLERANCE, Export, Written

FUNCTION, ABOUT = "policy.jax", "policy.json"
START = '{\n  "understudy": '
"""How the metadata begins."""
PLATFORMS = ("cpu", "cuda", "tpu")


def write(path: Path, what: Export) -> Written:
    """Write the directory, after comparing the deserialized function with `predict`."""
    data = serialized(what)
    function = jax.export.deserialize(bytearray(data))
    kinds = [value.dtype for value in _arguments(what)]

    def call(trial: dict[str, np.ndarray]) -> np.ndarray:
        given = [jnp.asarray(trial[name], kind) for name, kind in zip(what.inputs, kinds, strict=True)]
        return np.asarray(function.call(*given))  # type: ignore[no-untyped-call]

    difference = what.compare(call, TOLERANCE, "JAX")
    files = (ABOUT, FUNCTION)
    with atomic_directory(path, what.replaceable(path, files, START)) as partial:
        (partial / FUNCTION).write_bytes(data)
        arguments = [
            {"name": name, **_described(value)} for name, value in zip(what.inputs, _arguments(what), strict=True)
        ]
        write_json(
            partial / ABOUT,
            {"understudy": __version__, **what.metadata, "arguments": arguments, "platforms": list(PLATFORMS)},
        )
    return Written(path, files, difference, len(what.trials()["observation"]), what.inputs)


def serialized(what: Export) -> bytes:
    """The deterministic policy as bytes of `jax.export`."""
    policy = jax.tree.map(jnp.asarray, what.actor.policy)
    space = what.actor.spec.action

    def act(observation: Any, *more: Any) -> Any:
        given = dict(zip(what.inputs[1:], more, strict=True))
        with jax.default_matmul_precision("highest"):
            if "t" in given:
                zero = jnp.zeros((), jnp.int32)
                action = jax.vmap(lambda t, obs: policy.mode(Carry(t, zero), obs))(given["t"], observation)
            else:
                action = policy.mode(Carry(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)), observation)
        if not isinstance(space, Continuous):
            if what.states is None:
                action = jnp.where(finite(observation), action, -1)
            return action.astype(jnp.int32)
        action = action.astype(jnp.float32)
        if "last_action" in given:
            limit = jnp.asarray(what.max_change, jnp.float32)
            action = given["last_action"] + clamp(action - given["last_action"], -limit, limit, jnp)
        action = clamp(action, jnp.asarray(space.low, jnp.float32), jnp.asarray(space.high, jnp.float32), jnp)
        return jnp.where(finite(observation), action, jnp.nan)

    def finite(observation: Any) -> Any:
        return jnp.isfinite(observation).all(-1).reshape(-1, *(1,) * len(space.shape))

    exported = jax.export.export(jax.jit(act), platforms=PLATFORMS)(*_arguments(what))
    return bytes(exported.serialize())


def _arguments(what: Export) -> list[jax.ShapeDtypeStruct]:
    (batch,) = jax.export.symbolic_shape("batch")
    spec = what.actor.spec
    types: dict[str, tuple[tuple[int, ...], Any]] = {
        "observation": (spec.obs_shape, jnp.float32 if what.states is None else jnp.int32),
        "t": ((), jnp.int32),
        "last_action": (spec.action.shape, jnp.float32),
    }
    shaped: Any = jax.ShapeDtypeStruct
    return [shaped((batch, *types[name][0]), types[name][1]) for name in what.inputs]


def _described(value: jax.ShapeDtypeStruct) -> dict[str, Any]:
    return {
        "shape": [str(length) if i == 0 else length for i, length in enumerate(value.shape)],
        "dtype": str(value.dtype),
    }
