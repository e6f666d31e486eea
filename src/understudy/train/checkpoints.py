"""A training loop's place, kept in one file, so that a run that is killed goes on from there.

    with everything the next round needs: the states of all runs, which of them are still going, and the history so far

A checkpoint belongs to one algorithm, one set of demonstrations and one list of seeds. Since a round's randomness is a
function of the run's key and the round's number, a run that went on gives the same policies as one that never stopped.
"""

import hashlib
import json
import os
import shlex
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from understudy.core.errors import RunError
from understudy.core.storage import check_place, whole_file
from understudy.core.types import State

FORMAT = 1
CHECKPOINT, COMMAND = ".checkpoint.npz", ".command.json"
"""What `understudy train` keeps beside a run's directory until that is saved: its place, and the command's words."""


class Place(NamedTuple):
    """Where a loop was: all arrays lie on the host, and the first axis is the run."""

    leaves: list[np.ndarray]
    """The states' arrays."""
    active: np.ndarray
    history: dict[str, np.ndarray]
    """What the host read of each round: name → (rounds, runs)."""
    seconds: float
    """Time spent so far."""
    around: list[np.ndarray] = []
    """Of runs that learn while they play: where their episodes are, and the history's rows."""


class Checkpoint:
    """The file at `path`, for what `identity` describes: the name of each part, and anything that tells it apart.

    Written at most once in `every` seconds, less often where that takes long, and when training is interrupted; once it
    was, also when it is over.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any], every: float = 30.0):
        self.path, self.every = Path(path), every
        check_place(self.path)
        self.identity = {name: digest(part) for name, part in identity.items()}
        self._saved, self._took = time.monotonic(), 0.0

    @property
    def way_on(self) -> str:
        """How a person goes on from here, where there is something to go on from; else nothing."""
        if not self.path.exists():
            return ""
        run = str(self.path).removesuffix(CHECKPOINT)
        resume = f"`understudy train --resume {shlex.quote(run)}`"
        again = resume if Path(f"{run}{COMMAND}").exists() else "the same command"
        return f"training keeps its place in {self.path}, and {again} goes on from there"

    @property
    def due(self) -> bool:
        return time.monotonic() - self._saved >= max(self.every, 20 * self._took)

    def save(
        self,
        states: State,
        active: np.ndarray,
        history: dict[str, np.ndarray],
        seconds: float,
        around: Sequence[np.ndarray] = (),
    ) -> None:
        began = time.monotonic()
        leaves = jax.device_get(jax.tree.leaves(states))
        about = {"format": FORMAT, "identity": self.identity, "seconds": seconds}
        arrays: dict[str, Any] = {f"state.{i}": leaf for i, leaf in enumerate(leaves)}
        arrays |= {f"history.{name}": column for name, column in history.items()}
        arrays |= {f"around.{i}": leaf for i, leaf in enumerate(around)}
        arrays |= {"active": active, "about.json": np.array(json.dumps(about))}
        with whole_file(self.path) as beside, beside.open("wb") as file:
            np.savez(file, **arrays)
        self._saved = time.monotonic()
        self._took = self._saved - began

    def load(self) -> Place | None:
        """What was kept, or None if there is no file."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(str(arrays["about.json"]))
            found, seconds = about["identity"], float(about["seconds"])
            known = about["format"] == FORMAT
        except (ValueError, OSError, EOFError, KeyError, RuntimeError, TypeError, zipfile.BadZipFile) as error:
            raise RunError(f"'{self.path}' is not a checkpoint ({type(error).__name__}): remove it") from error
        differ = [name for name, digest in self.identity.items() if found.get(name) != digest]
        if differ or not known:
            what = f"other {' and '.join(differ)}" if differ else "another version of understudy"
            raise RunError(f"'{self.path}' is a checkpoint of {what}: remove it, or choose another place")

        def listed(part: str) -> list[np.ndarray]:
            return [arrays[f"{part}.{i}"] for i in range(sum(name.startswith(f"{part}.") for name in arrays))]

        history = {name.removeprefix("history."): x for name, x in arrays.items() if name.startswith("history.")}
        return Place(listed("state"), arrays["active"], history, seconds, listed("around"))

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint whose result is kept elsewhere now."""
        Path(path).unlink(missing_ok=True)


def digest(part: Any) -> str:
    """A fingerprint of arrays and of what JSON can say."""
    made = hashlib.sha256()
    for leaf in jax.tree.leaves(part):
        if isinstance(leaf, jax.Array | np.ndarray):
            array = np.asarray(leaf)
            made.update(f"{array.dtype}{array.shape}".encode())
            made.update(np.ascontiguousarray(array).tobytes())
        else:
            made.update(repr(leaf).encode())
        made.update(b"|")
    return made.hexdigest()
