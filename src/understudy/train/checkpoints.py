"""Checkpoints: the state of the training loop in one file, from which an interrupted or killed run resumes.

The file holds everything that the next round needs: the states of all runs, which runs are active, and the records of
all rounds so far. It belongs to one algorithm with its settings, one dataset and one list of seeds. The randomness of a
round depends only on the run's key and the round's index, so a resumed run ends with the same policies as one that was
never interrupted.

    X.npz            the newest checkpoint
    X.previous.npz   the one before it, which is used if the newest is damaged or missing

The last member of a file, `commit`, is a digest of all others. A file is read with `core.reader`, and only if its
arrays have the shapes and types of the states that are being resumed.
"""

import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from understudy.core.errors import RunError
from understudy.core.locks import claim_output
from understudy.core.paths import check_file_path
from understudy.core.reader import NUMBERS, TEXT, Expected, FileReader
from understudy.core.storage import atomic_file, keep_copy, remove_stale
from understudy.core.text import quoted
from understudy.core.types import State

FORMAT = 3
ABOUT, COMMIT, METRIC = "about.json", "commit", "records.metrics."
REMEDY = "remove it to train from the beginning"
RECORDS = {"active": "b", "finite": "b", "stop": "iu", "undo": "b", "queries": "iu"}
"""Types of the records of a round, besides its metrics."""
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


class Leaf(NamedTuple):
    """An array that a checkpoint must hold."""

    shape: tuple[int, ...]
    dtype: np.dtype
    finite: bool = False
    """Whether it cannot hold NaN or infinity."""


class Layout(NamedTuple):
    """What a checkpoint of a run must hold: arrays, and the ranges of their numbers."""

    states: list[Leaf]
    collector: Callable[[int], list[Leaf]]
    """The arrays of the collector after some rounds."""
    runs: int
    rounds: int
    """Rounds of the whole training."""
    stop_reasons: int
    metrics: tuple[str, ...]
    """Some of the metrics."""


class Damaged(RunError):
    """A checkpoint cannot be read. The one before it may be."""


class Checkpoint:
    """The checkpoint file at `path`. `identity` maps names, such as "seeds", to values that must not change.

    It is written at most every `every` seconds, less often if writing is slow, and when training is interrupted. If the
    file exists, it is also written at the end of training.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any], every: float = 30.0):
        self.path, self.every = Path(path), every
        self.previous = previous_path(self.path)
        check_file_path(self.path)
        self.identity = {name: digest(part) for name, part in identity.items()}
        self.rounds: int | None = None
        """Rounds that the newest file holds; None if it does not exist, or is damaged."""
        self._saved, self._took = time.monotonic(), 0.0

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the file's lock. Raises at once if another process trains with this checkpoint."""
        with claim_output(self.path, "checkpoint file"):
            for path in (self.path, self.previous):
                remove_stale(path)
            yield

    @property
    def resume_hint(self) -> str:
        """How to resume from the file; empty if there is no file."""
        if not has_checkpoint(self.path):
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
        """Write the file atomically, and keep the one before it."""
        began = time.monotonic()
        leaves = jax.device_get(jax.tree.leaves(states))
        rounds = _rounds(records)
        about = {"format": FORMAT, "identity": self.identity, "seconds": seconds, "rounds": rounds}
        arrays: dict[str, Any] = {f"state.{i}": leaf for i, leaf in enumerate(leaves)}
        arrays |= {f"records.{name}": column for name, column in records.items()}
        arrays |= {f"collector.{i}": leaf for i, leaf in enumerate(collector)}
        arrays |= {"active": active, ABOUT: np.array(json.dumps(about))}
        arrays |= {COMMIT: np.array(_commit(arrays))}
        try:
            with atomic_file(self.path) as partial:
                with partial.open("wb") as file:
                    np.savez(file, **arrays)
                if self.rounds is not None and self.path.exists():  # a damaged file must not replace the one before it
                    keep_copy(self.path, self.previous)
            self.rounds = rounds
        finally:
            self._saved = time.monotonic()
            self._took = self._saved - began

    def load(self, layout: Callable[[], Layout] | None = None) -> SavedLoop | None:
        """The contents of the file, or None if there is no file. `layout` says what the run to resume needs.

        If the file is damaged or missing, the one before it is read, and standard error says so.
        """
        if not has_checkpoint(self.path):
            return None
        wanted = None if layout is None else layout()
        try:
            saved = self._read(self.path, wanted)
        except Damaged as error:
            if not self.previous.exists():
                raise
            reason = _reason(error)
            try:
                saved = self._read(self.previous, wanted)
            except Damaged as second:
                both = f"{reason}, and {_reason(second)}"
                raise RunError(f"{both}: remove both to train from the beginning") from second
            after = f"after round {_rounds(saved.records)}"
            print(f"{reason}: resuming from '{self.previous}', {after}", file=sys.stderr)
        else:
            self.rounds = _rounds(saved.records)
        return saved

    def _read(self, path: Path, layout: Layout | None) -> SavedLoop:
        reader = FileReader(path, "a checkpoint", REMEDY, Damaged)
        text = reader.npz(lambda name: Expected(TEXT, ()) if name == ABOUT else None, [ABOUT])[ABOUT]
        with reader.guarded():
            about = str(text.item())
        if reader.parse_json(about, {"format": int})["format"] != FORMAT:
            raise RunError(f"'{path}' was written by another version of understudy: remove it")
        pattern = {"identity": {str: str}, "seconds": _duration, "rounds": _count}
        identity, seconds, rounds = (reader.parse_json(about, pattern)[name] for name in pattern)
        differ = [name for name, digest in self.identity.items() if identity.get(name) != digest]
        if differ:
            _arrays(reader, rounds, None)  # is it damaged?
            what = f"'{path}' is a checkpoint of a run with other {' and '.join(differ)}"
            raise RunError(f"{what}: remove it, or choose another path")
        arrays = _arrays(reader, rounds, layout)
        records = {name.removeprefix("records."): x for name, x in arrays.items() if name.startswith("records.")}
        return SavedLoop(
            _listed(arrays, "state"), arrays["active"], records, float(seconds), _listed(arrays, "collector")
        )

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint that is no longer needed, and the one before it."""
        previous_path(Path(path)).unlink(missing_ok=True)
        Path(path).unlink(missing_ok=True)


def has_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint at `path`, or the one before it."""
    return Path(path).exists() or previous_path(Path(path)).exists()


def previous_path(path: Path) -> Path:
    """The file with the checkpoint before that at `path`."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _arrays(reader: FileReader, rounds: int, layout: Layout | None) -> dict[str, np.ndarray]:
    """The arrays of a file, which match its digest. With a layout, they are those of the run to resume."""
    fixed: dict[str, Expected] = {ABOUT: Expected(TEXT, ()), COMMIT: Expected(TEXT, ()), "active": Expected("b")}
    leaves: dict[str, Leaf] = {}
    shape: tuple[int | None, ...] = (rounds, None)
    if layout is not None:
        if not 1 <= rounds <= layout.rounds:
            raise reader.damaged(f"it has {rounds} rounds of {layout.rounds}")
        shape, fixed["active"] = (rounds, layout.runs), Expected("b", (layout.runs,))
        leaves = {f"state.{i}": leaf for i, leaf in enumerate(layout.states)}
        leaves |= {f"collector.{i}": leaf for i, leaf in enumerate(layout.collector(rounds))}
        fixed |= {name: Expected(leaf.dtype.kind, leaf.shape, leaf.finite) for name, leaf in leaves.items()}
        fixed |= {f"records.{name}": Expected(kinds, shape) for name, kinds in RECORDS.items()}
        fixed |= {f"{METRIC}{name}": Expected(NUMBERS, shape) for name in layout.metrics}

    def expected(name: str) -> Expected:
        if name in fixed:
            return fixed[name]
        if name.startswith(METRIC if layout is not None else "records.") and quoted(name) == name:
            return Expected(NUMBERS, shape)
        if layout is None and name.startswith(("state.", "collector.")):
            return Expected()
        raise reader.damaged(f"it has the unknown array '{name}'")

    arrays = reader.npz(expected, list(fixed))
    with reader.guarded():
        commit = str(arrays.pop(COMMIT).item())
    if commit != _commit(arrays):
        raise reader.damaged("its contents do not match its digest")
    for name, leaf in leaves.items():
        if arrays[name].dtype != leaf.dtype:
            raise reader.damaged(f"'{name}' has type {arrays[name].dtype}, not {leaf.dtype}")
    if layout is not None:
        if not any(name.startswith(METRIC) for name in arrays):
            raise reader.damaged("it has no metrics")
        stop, queries = arrays["records.stop"], arrays["records.queries"]
        if stop.min() < 0 or stop.max() > layout.stop_reasons:
            raise reader.damaged(f"'records.stop' has the values {stop.min()} to {stop.max()}")
        if queries.min() < 0 or queries.sum(axis=0, dtype=np.float64).max() > np.iinfo(np.int32).max:
            raise reader.damaged("'records.queries' has impossible numbers")
    return arrays


def _listed(arrays: dict[str, np.ndarray], part: str) -> list[np.ndarray]:
    return [arrays[f"{part}.{i}"] for i in range(sum(name.startswith(f"{part}.") for name in arrays))]


def _commit(arrays: dict[str, Any]) -> str:
    """The digest of the names and contents of a checkpoint's arrays."""
    return digest([(name, np.asarray(arrays[name])) for name in sorted(arrays)])


def _rounds(records: dict[str, np.ndarray]) -> int:
    return len(next(iter(records.values()), ()))


def _reason(error: Damaged) -> str:
    """The error without what to do."""
    return str(error).rpartition(": ")[0]


def _duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


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
