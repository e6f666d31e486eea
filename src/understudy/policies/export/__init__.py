"""Policies as files for other programs: NumPy, ONNX, JAX. Each is compared with `predict` before it is written.

`export` writes one; `checking` makes the observations and compares the actions; `metadata` says where a policy comes
from.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from understudy.core.errors import SettingError, SpecError, check_choice
from understudy.core.paths import checked_path
from understudy.core.text import quoted
from understudy.core.types import Continuous
from understudy.deploy.files import check_max_change
from understudy.policies.actor import Actor
from understudy.policies.export import jax_file, numpy_file, onnx_file
from understudy.policies.export.checking import Export, Written
from understudy.policies.export.metadata import training_at, training_of

__all__ = ["Export", "Kind", "Written", "export", "limits", "training_at", "training_of"]

Kind = Literal["numpy", "onnx", "jax"]
WRITERS: dict[str, Callable[[Path, Export], Written]] = {
    "numpy": numpy_file.write,
    "onnx": onnx_file.write,
    "jax": jax_file.write,
}


def export(
    actor: Actor,
    path: str | os.PathLike[str],
    to: str = "numpy",
    max_change: float | Sequence[float] | None = None,
    training: dict[str, Any] | None = None,
    replace: bool = False,
) -> Written:
    """Write a policy for other programs, and return how much its actions differ from those of `predict`.

    Args:
        actor: The policy.
        path: The directory to write ("numpy": policy.py and policy.npz; "jax": policy.jax and policy.json), or the file
            ("onnx").
        to: "numpy" needs nothing but NumPy, "onnx" any ONNX runtime, "jax" JAX without understudy.
        max_change: The largest change of each action dimension between two calls, in action units: one number, or one
            for each dimension. None: no limit.
        training: How it was trained, as JSON values, for the file's metadata.
        replace: Whether an older export at the path may be replaced.
    """
    check_choice(get_args(Kind), to=to)
    return WRITERS[to](checked_path(path), Export(actor, limits(max_change, actor), training or {}, replace))


def limits(max_change: float | Sequence[float] | None, actor: Actor) -> list[float] | None:
    """The largest change of each action dimension."""
    if max_change is None:
        return None
    try:
        given = [float(limit) for limit in np.atleast_1d(np.asarray(max_change, float))]
        each = (
            given * actor.spec.action_size if len(given) == 1 and isinstance(actor.spec.action, Continuous) else given
        )
        check_max_change(each, actor.spec)
    except (TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise SettingError(str(error)) from error
        raise SettingError(f"max_change is {quoted(repr(max_change))}: a number above 0 is needed") from error
    return each
