"""Experts in files, recognised by looking at the contents.

a directory                       a run, or the output of `understudy expert train`
zip with structure.json           a policy that understudy saved
zip with w0, b0                   plain weights, as an npz file (`weights`)
zip with data and policy.pth      a model of Stable-Baselines3 (`sb3`)
NAME.onnx                         an ONNX model (`onnx_files`)
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import NeedsError, RunError
from understudy.core.paths import checked_path
from understudy.core.reader import FileReader
from understudy.core.text import quoted
from understudy.deploy.policy import STRUCTURE
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.experts.onnx_files import ENDING, OnnxPolicy
from understudy.experts.sb3 import HOW_TO_NORMALIZE, is_sb3, policy_from_sb3
from understudy.experts.weights import is_weights, policy_from_weights
from understudy.policies.actor import Actor
from understudy.policies.networks import Activation
from understudy.policies.saved import load_policy

KINDS = "a run or policy file, a Stable-Baselines3 zip, an npz file of weights, an ONNX file, or module:function"
"""What an expert can be, besides scripted and bundled, for messages."""
STARTS = {
    b"\x89HDF\r\n": "an HDF5 file",
    b"\x93NUMPY": "a single NumPy array",
    b"\x1f\x8b": "a gzip file",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"{": "a text file",
}
"""Kinds of other files, by their first bytes."""


def expert_file(
    path: str | os.PathLike[str],
    env: Environment | GymnasiumEnvironment,
    activation: Activation | None = None,
    normalization: str | os.PathLike[str] | None = None,
) -> Actor | Callable[[np.ndarray], np.ndarray]:
    """The expert in a file or directory. Raises RunError, which says what was found, if there is none."""
    path = checked_path(path)
    names = [] if path.is_dir() else _members(path)
    if normalization is not None and not is_sb3(names):
        raise NeedsError(
            f"expert_normalization (--expert-normalization) completes a Stable-Baselines3 zip, and '{quoted(path)}' is "
            f"none: leave it out; for a zip, {HOW_TO_NORMALIZE}"
        )
    if is_sb3(names):
        return policy_from_sb3(path, env, activation, normalization)
    if is_weights(names):
        return policy_from_weights(path, env, activation)
    if activation is not None:
        raise NeedsError(
            "expert_activation (--expert-activation) completes an npz file of w0, b0, ..., or a Stable-Baselines3 zip: "
            f"leave it out for '{quoted(path)}'"
        )
    if path.is_dir() or STRUCTURE in names:
        return load_policy(path)
    if path.suffix.lower() == ENDING:
        return OnnxPolicy(path, env.spec, env.name)
    raise RunError(f"'{quoted(path, 1000)}' is {_described(path, names)}: an expert is {KINDS}")


def _members(path: Path) -> list[str]:
    """The members of a zip archive; empty for another file."""
    reader = FileReader(path, "a file of an expert", f"an expert is {KINDS}")
    return reader.npz_names() if reader.start(2) == b"PK" else []


def _described(path: Path, names: list[str]) -> str:
    start: bytes = FileReader(path, "a file of an expert", "").start(16)
    if any(name.endswith("/data.pkl") for name in names):
        return (
            "a PyTorch file (pass the zip that model.save of Stable-Baselines3 writes, or its weights as an npz file)"
        )
    if names:
        return f"a zip archive with {quoted(', '.join(names))}"
    if start[:1] == b"\x80":
        return "a pickle, which is never read (pass the model itself, or its weights as an npz file)"
    found: Any = next((kind for first, kind in STARTS.items() if start.startswith(first)), None)
    return str(found or ("an empty file" if not start else "a file of an unknown kind"))
