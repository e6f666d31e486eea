"""The store of a study's results: one file per cell, written when the cell finishes and never changed.

    DIR/study.json               the format, and the study as it was last run
    DIR/cells/KEY.json           a cell's config, returns, status and provenance
    DIR/cells/KEY.policy.npz     its final policy
    DIR/claims/KEY.lock          locked by the process that trains a group
    DIR/quarantine/              damaged cell files

    KEY = the first 16 hex digits of the sha256 of {"config": ..., "format": FORMAT} as canonical JSON

A cell file is written atomically, and a checksum detects later damage. A damaged file moves to quarantine/ and its cell
counts as missing.
"""

import errno
import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from understudy.core.errors import NoSpaceError, RunError
from understudy.core.storage import whole_file, write_json
from understudy.policies.actor import Actor
from understudy.studies.claims import Claim, claim, wait_for_lock

FORMAT = 2
STUDY = "study.json"
FINAL = "final"
X_KINDS = ("env_steps", "round", FINAL)
ENDED = ("finished", "stopped", "diverged")
"""Prefixes of the status of a finished cell. An interrupted run is not finished."""
FIELDS = (
    *("format", "key", "config", "display", "evaluations", "status"),
    *("seconds", "runs_in_program", "env_steps", "queries", "provenance"),
)
STALE_AFTER = 3600.0
"""Seconds after which a temporary file is removed: the process that wrote it was killed."""


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces. NaN and infinity raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def cell_key(config: dict[str, Any]) -> str:
    """The key of a cell with this config."""
    return hashlib.sha256(canonical_json({"format": FORMAT, "config": config}).encode()).hexdigest()[:16]


def record_checksum(record: dict[str, Any]) -> str:
    """The sha256 of a cell's record without its checksum."""
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return hashlib.sha256(canonical_json(rest).encode()).hexdigest()


def check_record(record: dict[str, Any]) -> None:
    """Raise RunError if a record is not that of a finished cell."""
    missing = [name for name in FIELDS if name not in record]
    if missing:
        raise RunError(f"a cell's record has no {', '.join(missing)}: it was not stored")

    def invalid(reason: str) -> RunError:
        return RunError(f"cell {record['key']} cannot be stored: {reason}")

    if record["format"] != FORMAT or record["key"] != cell_key(record["config"]):
        raise invalid(f"its key does not match its config, or its format ({record['format']}) is not {FORMAT}")
    if not str(record["status"]).startswith(ENDED):
        raise invalid(f"its status is '{record['status']}': it must begin with {', '.join(ENDED)}")
    for row in record["evaluations"]:
        if row["x_kind"] not in X_KINDS:
            raise invalid(f"x_kind is {row['x_kind']!r}: it must be one of {', '.join(X_KINDS)}")
        numbers = [row["x"], *row["returns"], *(row[name] for name in ("steps", "payoff") if row.get(name) is not None)]
        if not row["returns"] or not all(math.isfinite(number) for number in numbers):
            raise invalid(
                f"its evaluation at {row['x_kind']} {row['x']} has no returns, or numbers that are not finite"
            )
    finals = sum(row["x_kind"] == FINAL for row in record["evaluations"])
    expected = 0 if str(record["status"]).startswith("diverged") else 1
    if finals != expected:
        raise invalid(f"it has {finals} final evaluations: status '{record['status']}' needs {expected}")


class QuarantinedFile(NamedTuple):
    """A damaged cell file that was moved to quarantine/."""

    path: Path
    """Its new path."""
    reason: str


class Store:
    """The directory of a study. The first write creates it."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = Path(directory)
        self.cells = self.directory / "cells"
        self.quarantined: list[QuarantinedFile] = []
        """Files that this object moved to quarantine/."""
        if self.directory.exists() and not self.directory.is_dir():
            raise RunError(f"'{self.directory}' is a file: a study needs a directory, choose another name")
        self.read_study_file()

    def read_study_file(self) -> dict[str, Any] | None:
        """study.json: the format and the study (for `Study.from_dict`). None if there is no such file."""
        path = self.directory / STUDY
        if not path.is_file():
            return None
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            file_format = int(content["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"'{path}' is damaged: remove it and run the study again; finished cells stay") from error
        self._check_format(file_format)
        return content

    def begin(self, study: dict[str, Any]) -> None:
        """Write study.json from `Study.to_dict()`. Cells of earlier versions of the study stay."""
        content = {"format": FORMAT, "study": json.loads(canonical_json(study))}
        self.check_directory()
        self._remove_stale_files()
        if self.read_study_file() != content:
            with self.explain_full_disk(STUDY):
                write_json(self.directory / STUDY, content)

    def check_directory(self) -> None:
        """Raise RunError if the directory holds something other than a study."""
        if self.read_study_file() is None and self._holds_other_files():
            raise RunError(f"directory '{self.directory}' is not empty and holds no study: choose another with --out")

    def path(self, key: str) -> Path:
        """Path of a cell's file."""
        if re.fullmatch(r"[0-9a-f]{16}", key) is None:
            raise RunError(f"'{key}' is not a cell key: 16 hex digits are needed")
        return self.cells / f"{key}.json"

    def policy_path(self, key: str) -> Path:
        """Path of a cell's final policy, for `load_policy`."""
        return self.path(key).with_suffix(".policy.npz")

    def has(self, key: str) -> bool:
        """Whether a cell is stored and its file is intact."""
        return self._read(key) is not None

    def read(self, key: str) -> dict[str, Any]:
        """The record of a stored cell."""
        record = self._read(key)
        if record is None:
            raise RunError(f"no cell {key} in '{self.directory}': run the study again")
        return record

    def keys(self) -> list[str]:
        """Keys of all cell files, without reading them."""
        matches = (re.fullmatch(r"([0-9a-f]{16})\.json", path.name) for path in self.cells.glob("*.json"))
        return sorted(match[1] for match in matches if match)

    def read_all(self) -> list[dict[str, Any]]:
        """The records of all stored cells whose files are intact."""
        return [record for key in self.keys() if (record := self._read(key)) is not None]

    def write(self, record: dict[str, Any], policy: Actor | None = None) -> bool:
        """Store a finished cell with its checksum. Returns False and changes nothing if the cell is already stored."""
        try:
            check_record(record)
            plain = json.loads(canonical_json(record))
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"cell {record.get('key')} cannot be stored: {error}") from error
        key = plain["key"]
        text = json.dumps({**plain, "checksum": record_checksum(plain)}, ensure_ascii=False, allow_nan=False) + "\n"
        with self.explain_full_disk(f"cell {key}"), self._exclusive():
            if self._read(key, locked=True) is not None:
                return False
            try:
                if policy is not None:
                    policy.save(self.policy_path(key))
                with whole_file(self.path(key)) as temporary:
                    _write(temporary, text)
            except BaseException:
                self.policy_path(key).unlink(missing_ok=True)
                raise
        return True

    def claim(self, group_key: str) -> Claim | None:
        """Lock a group for training. None if another process has locked it.

        `with claim: ...` releases the lock at the end. The kernel releases it if the process dies.
        """
        with self.explain_full_disk(f"the lock of group {group_key}"):
            return claim(self.directory / "claims" / f"{group_key}.lock")

    def _read(self, key: str, locked: bool = False) -> dict[str, Any] | None:
        """A cell's record, or None. A damaged file moves to quarantine/. `locked`: the caller is in `_exclusive`."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        record, reason = self._parse(key, data)
        if record is None:
            with nullcontext() if locked else self._exclusive():
                self._quarantine(path, data, reason)
        return record

    def _parse(self, key: str, data: bytes) -> tuple[dict[str, Any] | None, str]:
        """The record in a file's bytes, or None and the reason."""
        try:
            record = json.loads(data)
        except ValueError as error:
            return None, f"not JSON ({error})"
        if not isinstance(record, dict):
            return None, "not a JSON object"
        if isinstance(record.get("format"), int):
            self._check_format(record["format"])
        try:
            if record.get("checksum") != record_checksum(record):
                return None, "wrong checksum"
            if record["key"] != key or cell_key(record["config"]) != key:
                return None, "its key does not match its config"
        except (ValueError, KeyError) as error:
            return None, f"not a cell ({error})"
        return record, ""

    def _quarantine(self, path: Path, data: bytes, reason: str) -> None:
        """Move a damaged file to quarantine/, unless another process has already moved or replaced it."""
        if not path.is_file() or path.read_bytes() != data:
            return
        folder = self.directory / "quarantine"
        folder.mkdir(exist_ok=True)
        target = folder / f"{path.stem}-{time.time_ns()}.json"
        path.replace(target)
        policy = path.with_suffix(".policy.npz")
        if policy.exists():
            policy.replace(target.with_suffix(".policy.npz"))
        self.quarantined.append(QuarantinedFile(target, reason))
        print(f"warning: cell {path.stem} is damaged ({reason}): moved to {target}, it will run again", file=sys.stderr)

    def _check_format(self, file_format: int) -> None:
        if file_format != FORMAT:
            age = "newer" if file_format > FORMAT else "older"
            hint = "upgrade understudy" if file_format > FORMAT else "choose another directory with --out"
            raise RunError(
                f"'{self.directory}' has format {file_format} of a {age} version, and this version reads format "
                f"{FORMAT}: {hint}"
            )

    @contextmanager
    def explain_full_disk(self, what: str) -> Iterator[None]:
        """Turn "no space left" into a NoSpaceError whose message says what is safe."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NoSpaceError(
                f"no space left for {what}: free some and run the study again; {len(self.keys())} finished cells are "
                f"safe in '{self.directory}'"
            ) from error

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep other processes from adding or removing cells. Held for a few milliseconds."""
        with wait_for_lock(self.directory / "claims" / "cells.lock"):
            yield

    def _holds_other_files(self) -> bool:
        """Whether the directory has files and none belongs to a study, not even to one that is just being created."""
        names = {path.name for path in self.directory.iterdir()} if self.directory.exists() else set()
        own = {name for name in names if name == STUDY or name.startswith(f".{STUDY}.")}
        return bool(names) and not own and not names & {"cells", "claims"}

    def _remove_stale_files(self) -> None:
        for path in (*self.cells.glob(".*"), *self.directory.glob(f".{STUDY}.*")):
            with suppress(FileNotFoundError):  # its process has just renamed it
                if time.time() - path.stat().st_mtime > STALE_AFTER:
                    path.unlink()


def _write(path: Path, text: str) -> None:
    """Write and sync, so that a full disk raises before the file is renamed."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
