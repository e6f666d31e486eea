"""Reading policy files, which may come from a stranger."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import RunError, SpecError
from understudy.core.reader import TEXT, Expected, FileReader
from understudy.core.spec import Continuous, Spec
from understudy.core.text import quoted
from understudy.deploy import policy
from understudy.deploy.checks import check_policy
from understudy.deploy.forward import build
from understudy.deploy.policy import FORMAT, STRUCTURE
from understudy.deploy.runs import policy_path
from understudy.deploy.structure import array_names, read_spec

LONGEST_STRUCTURE = 4_000_000
"""Characters of the JSON text with a policy's structure."""
PATTERN = {
    "format": int,
    "policy": dict,
    "spec": dict,
    "about": dict,
    "export?": (None, {"max_change?": (None, [float])}),
}


class Policy(policy.Policy):
    """A policy that acts with NumPy alone. `predict` has the signature of Stable-Baselines3."""

    error = SpecError


def load(path: str | os.PathLike[str], policy: str | None = None) -> Policy:
    """Load a policy without JAX.

    `path` is a policy file, an exported npz file, a run directory, or a directory written by `understudy expert train`
    or `understudy export`. Of a run directory, `policy` names one, as in "episodes10-seed2"; by default the selected
    one is loaded.
    """
    structure, arrays, _ = read_file(policy_path(path, policy))
    return Policy(structure, arrays)


def read_file(path: Path, diverged: bool = False) -> tuple[dict[str, Any], dict[str, np.ndarray], Spec]:
    """The structure, the arrays and the spec in a policy file. Raises RunError unless the policy can act.

    If it `diverged`, its numbers may be anything.
    """
    if not path.exists():
        raise RunError(f"no policy at '{quoted(path, 1000)}': give a policy file or a run directory")
    file = FileReader(path, "a policy saved by understudy", "save it again, or train again")
    text = file.npz({STRUCTURE: Expected(TEXT, (), most=4 * LONGEST_STRUCTURE)}.get, (STRUCTURE,))[STRUCTURE].item()
    structure: dict[str, Any] = file.parse_json(text, PATTERN)
    if structure["format"] != FORMAT:
        version = "a newer" if structure["format"] > FORMAT else "an older"
        raise RunError(
            f"'{file.name}' was written by {version} version of understudy (format {quoted(structure['format'])}, this "
            f"version reads {FORMAT}): use that version, or train again"
        )
    with file.guarded():
        try:
            names, spec = array_names(structure["policy"]), read_spec(structure["spec"])
            check_max_change((structure.get("export") or {}).get("max_change"), spec)
            arrays = file.npz(dict.fromkeys(names, Expected("f")).get, sorted(names))
            check_policy(build(structure["policy"], arrays), spec, diverged)
            if not diverged:
                _try(Policy(structure, arrays), spec)
        except ValueError as error:  # SpecError is one too, RunError is not
            raise file.damaged(error) from error
    return structure, arrays, spec


def check_max_change(limits: list[float] | None, spec: Spec) -> None:
    """Raise SpecError unless the limits fit the actions."""
    if limits is None:
        return
    if not isinstance(spec.action, Continuous):
        raise SpecError(f"max_change is {quoted(limits)}: it is for continuous actions, and these are discrete")
    if len(limits) != spec.action_size or not all(0 < limit < float("inf") for limit in limits):
        raise SpecError(
            f"max_change is {quoted(limits)}: a number above 0 is needed for each of the {spec.action_size} action "
            "dimensions, or one for all"
        )


def _try(tried: Policy, spec: Spec) -> None:
    """Raise SpecError if the policy's actions for zero observations are not valid actions."""
    obs = np.zeros((2, *spec.obs_shape), np.float32 if spec.obs_shape else np.int64)
    with np.errstate(all="ignore"):
        actions, _ = tried.predict(obs)
    shape = (2, *spec.action.shape)
    if actions.shape != shape or not np.isfinite(actions).all():
        raise SpecError(f"its actions have shape {actions.shape} instead of {shape}, or are not finite")
