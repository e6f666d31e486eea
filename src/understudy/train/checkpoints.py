"""Checkpoints: the state of the training loop in one file, from which an interrupted or killed run resumes.

The file holds everything that the next round needs: the states of all runs, which runs are active, and the records of
all rounds so far. It belongs to one algorithm with its settings, one dataset and one list of seeds. The randomness of a
round depends only on the run's key and the round's index, so a resumed run ends with the same policies as one that was
never interrupted.
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

FORMAT = 2
CHECKPOINT, COMMAND = ".checkpoint.npz", ".command.json"
"""Suffixes of the files next to a run's directory until the run is saved: the checkpoint, and the command to resume."""


class SavedLoop(NamedTuple):
    """The contents of a checkpoint: arrays on the host, whose first axis is the run."""

    leaves: list[np.ndarray]
    """The arrays of the algorithm's states."""
    active: np.ndarray
    records: dict[str, np.ndarray]
    """The records of all rounds: name → (rounds, runs)."""
    seconds: float
    """Training time so far."""
    collector: list[np.ndarray] = []
    """The arrays of the collector: the state of unfinished episodes, and the replay buffer."""


class Checkpoint:
    """The checkpoint file at `path`. `identity` maps names, such as "seeds", to values that must not change.

    It is written at most every `every` seconds, less often if writing is slow, and when training is interrupted. If the
    file exists, it is also written at the end of training.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any], every: float = 30.0):
        self.path, self.every = Path(path), every
        check_place(self.path)
        self.identity = {name: digest(part) for name, part in identity.items()}
        self._saved, self._took = time.monotonic(), 0.0

    @property
    def resume_hint(self) -> str:
        """How to resume from the file; empty if there is no file."""
        if not self.path.exists():
            return ""
        run = str(self.path).removesuffix(CHECKPOINT)
        resume = f"`understudy train --resume {shlex.quote(run)}`"
        again = resume if Path(f"{run}{COMMAND}").exists() else "the same command"
        return f"the checkpoint {self.path} is kept, and {again} resumes from it"

    @property
    def due(self) -> bool:
        """Whether it is time to write the file again."""
        return time.monotonic() - self._saved >= max(self.every, 20 * self._took)

    def save(
        self,
        states: State,
        active: np.ndarray,
        records: dict[str, np.ndarray],
        seconds: float,
        collector: Sequence[np.ndarray] = (),
    ) -> None:
        """Write the file atomically."""
        began = time.monotonic()
        leaves = jax.device_get(jax.tree.leaves(states))
        about = {"format": FORMAT, "identity": self.identity, "seconds": seconds}
        arrays: dict[str, Any] = {f"state.{i}": leaf for i, leaf in enumerate(leaves)}
        arrays |= {f"records.{name}": column for name, column in records.items()}
        arrays |= {f"collector.{i}": leaf for i, leaf in enumerate(collector)}
        arrays |= {"active": active, "about.json": np.array(json.dumps(about))}
        with whole_file(self.path) as partial, partial.open("wb") as file:
            np.savez(file, **arrays)
        self._saved = time.monotonic()
        self._took = self._saved - began

    def load(self) -> SavedLoop | None:
        """The contents of the file, or None if there is no file."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(str(arrays["about.json"]))
            identity, seconds = about["identity"], float(about["seconds"])
            known = about["format"] == FORMAT
        except (ValueError, OSError, EOFError, KeyError, RuntimeError, TypeError, zipfile.BadZipFile) as error:
            raise RunError(f"'{self.path}' is not a checkpoint ({type(error).__name__}): remove it") from error
        if not known:
            raise RunError(f"'{self.path}' was written by another version of understudy: remove it")
        differ = [name for name, digest in self.identity.items() if identity.get(name) != digest]
        if differ:
            what = f"'{self.path}' is a checkpoint of a run with other {' and '.join(differ)}"
            raise RunError(f"{what}: remove it, or choose another path")

        def listed(part: str) -> list[np.ndarray]:
            return [arrays[f"{part}.{i}"] for i in range(sum(name.startswith(f"{part}.") for name in arrays))]

        records = {name.removeprefix("records."): x for name, x in arrays.items() if name.startswith("records.")}
        return SavedLoop(listed("state"), arrays["active"], records, seconds, listed("collector"))

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint that is no longer needed."""
        Path(path).unlink(missing_ok=True)


def digest(part: Any) -> str:
    """A SHA-256 digest of a pytree of arrays and plain values."""
    result = hashlib.sha256()
    for leaf in jax.tree.leaves(part):
        if isinstance(leaf, jax.Array | np.ndarray):
            array = np.asarray(leaf)
            result.update(f"{array.dtype}{array.shape}".encode())
            result.update(np.ascontiguousarray(array).tobytes())
        else:
            result.update(repr(leaf).encode())
        result.update(b"|")
    return result.hexdigest()
