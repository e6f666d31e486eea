"""The store of a study's results: one file per cell, written when the cell finishes and never changed.

    DIR/study.json               the format, and the study as it was last run
    DIR/cells/KEY.json           a cell's config, returns, status and provenance (`records`)
    DIR/cells/KEY.policy.npz     its final policy
    DIR/claims/KEY.lock          locked by the process that trains a group; it notes its rounds there
    DIR/quarantine/              damaged cell files, and their policies

A cell's policy is written first, then the cell, both atomically and synced to the disk. Checksums detect later damage.
A damaged file moves to quarantine/ and its cell counts as missing.
"""

import errno
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from understudy.core.errors import NoSpaceError, RunError
from understudy.core.locks import Claim, claim, read_note, wait_for_lock
from understudy.core.reader import FileReader
from understudy.core.storage import atomic_file, move_file, remove_stale, write_json
from understudy.core.text import quoted
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy
from understudy.studies.records import FORMAT, canonical_json, check_record, checksum, flaw, is_key, record_checksum

STUDY = "study.json"
LARGEST_POLICY = 1_000_000_000
"""Bytes of a policy file."""
FOLDERS = ("cells", "claims", "quarantine", "work", "failures", "logs")
"""Folders of a study's directory. None may be a link: in a directory from elsewhere it could lead to your own files."""
CANNOT_MOVE = (errno.EACCES, errno.EPERM, errno.EROFS)


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
        self._unmoved: set[str] = set()
        """Keys of damaged cells in a directory that this process may not change."""
        if self.directory.exists() and not self.directory.is_dir():
            raise RunError(f"'{quoted(self.directory)}' is a file: a study needs a directory, choose another name")
        for name in FOLDERS:
            if (self.directory / name).is_symlink():
                raise RunError(f"'{quoted(self.directory / name)}' is a link, and a directory is needed: remove it")
        self.read_study_file()

    def read_study_file(self) -> dict[str, Any] | None:
        """study.json: the format and the study (for `Study.from_dict`). None if there is no such file."""
        path = self.directory / STUDY
        if not os.path.lexists(path):
            return None
        reader = FileReader(path, "a study", "remove it and run the study again; finished cells stay")
        content: dict[str, Any] = reader.json({"format": int, "study": {str: object}})
        self._check_format(content["format"])
        with reader.guarded():
            intact = content.pop("checksum", None) == checksum(content)
        if not intact:
            raise reader.damaged("wrong checksum")
        return content

    def begin(self, study: dict[str, Any]) -> None:
        """Write study.json from `Study.to_dict()`. Cells of earlier versions of the study stay."""
        content = {"format": FORMAT, "study": json.loads(canonical_json(study))}
        self.check_directory()
        self._remove_stale_files()
        if self.read_study_file() != content:
            with self.explain_full_disk(STUDY):
                write_json(self.directory / STUDY, {**content, "checksum": checksum(content)})

    def check_directory(self) -> None:
        """Raise RunError if the directory holds something other than a study."""
        if self.read_study_file() is None and self._holds_other_files():
            raise RunError(
                f"directory '{self.directory}' is not empty and holds no study: run it with another --out; report and "
                "status take that directory in place of the study file"
            )

    def path(self, key: str) -> Path:
        """Path of a cell's file."""
        if not is_key(key):
            raise RunError(f"'{quoted(key)}' is not a cell key: 16 hex digits are needed")
        return self.cells / f"{key}.json"

    def policy_path(self, key: str) -> Path:
        """Path of a cell's final policy."""
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

    def load_policy(self, key: str) -> Actor:
        """The final policy of a stored cell. Raises if its file is damaged, or not the one that was stored."""
        self._check_policy(self.read(key))
        return load_policy(self.policy_path(key))

    def check_policies(self, keys: Iterable[str]) -> None:
        """Move stored cells whose policies are damaged to quarantine/. A missing policy is only reported."""
        absent = []
        for key in keys:
            with self._exclusive():
                record = self._read(key, locked=True)
                if record is None or "policy" not in record:
                    continue
                if not os.path.lexists(self.policy_path(key)):
                    absent.append(key)
                    continue
                try:
                    self._check_policy(record)
                except RunError as error:
                    self._quarantine(self.path(key), f"its policy: {quoted(error, 300)}")
        if absent:
            named = f"cell {absent[0]} has no policy file" + (f", nor have {len(absent) - 1} more" * (len(absent) > 1))
            hint = "remove the files of such cells to train them again"
            print(f"warning: {named} in {self.cells}: {hint}", file=sys.stderr)

    def _check_policy(self, record: dict[str, Any]) -> None:
        """Raise if a cell's policy file is not the one that was stored with it."""
        path = self.policy_path(record["key"])
        if record.get("policy", "") != hashlib.sha256(_bytes(path)).hexdigest():
            raise RunError(f"'{path}' is not the policy that was stored with its cell: run the study again")

    def keys(self) -> list[str]:
        """Keys of all cell files, without reading them."""
        return sorted(path.stem for path in self.cells.glob("*.json") if is_key(path.stem))

    def read_all(self) -> list[dict[str, Any]]:
        """The records of all stored cells whose files are intact."""
        return [record for key in self.keys() if (record := self._read(key)) is not None]

    def write(self, record: dict[str, Any], policy: Actor | None = None) -> bool:
        """Store a finished cell with its checksum. Returns False and changes nothing if the cell is already stored."""
        check_record(record)
        try:
            plain = json.loads(canonical_json(record))
        except (ValueError, TypeError) as error:
            raise RunError(f"cell {record['key']} cannot be stored: {error}") from error
        key = plain["key"]
        with self.explain_full_disk(f"cell {key}"), self._exclusive():
            if self._read(key, locked=True) is not None:
                return False
            try:
                if policy is not None:
                    policy.save(self.policy_path(key))
                    plain["policy"] = hashlib.sha256(_bytes(self.policy_path(key))).hexdigest()
                content = {**plain, "checksum": record_checksum(plain)}
                with atomic_file(self.path(key)) as temporary:
                    _write(temporary, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")
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

    def is_claimed(self, group_key: str) -> bool:
        """Whether another process trains a group."""
        if not (self.directory / "claims" / f"{group_key}.lock").exists():
            return False
        held = self.claim(group_key)
        if held is not None:
            held.release()
        return held is None

    def rounds(self, group_key: str) -> tuple[int, int] | None:
        """The rounds done and all rounds that the process that trains a group has noted in its lock; None: unknown."""
        done_and_total = read_note(self.directory / "claims" / f"{group_key}.lock")
        return (done_and_total[0], done_and_total[1]) if len(done_and_total) == 2 else None

    def _read(self, key: str, locked: bool = False) -> dict[str, Any] | None:
        """A cell's record, or None. A damaged file moves to quarantine/. `locked`: the caller is in `_exclusive`."""
        path = self.path(key)
        if key in self._unmoved or not os.path.lexists(path):
            return None
        seen = _identity(path)
        try:
            return self._parse(key, FileReader(path, "a cell", "it will run again"))
        except _DamagedCell as damage:
            reason = str(damage)
        try:
            with nullcontext() if locked else self._exclusive():
                if _identity(path) == seen:  # else another process has already moved or replaced it
                    self._quarantine(path, reason)
        except (OSError, RunError) as error:
            cause = error.__cause__ if isinstance(error, RunError) else error
            if not isinstance(cause, OSError) or cause.errno not in CANNOT_MOVE:
                raise
            self._unmoved.add(key)
            print(f"warning: cell {key} is damaged ({reason}), and counts as missing", file=sys.stderr)
        return None

    def _parse(self, key: str, reader: FileReader) -> dict[str, Any]:
        try:
            record: dict[str, Any] = reader.json({str: object})
            with reader.guarded():
                intact = record.get("checksum") == record_checksum(record)
        except RunError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise  # it cannot be read, which says nothing about its contents
            raise _DamagedCell(error) from error
        if not intact:
            raise _DamagedCell("wrong checksum")
        if isinstance(record.get("format"), int):
            self._check_format(record["format"])
        wrong = flaw(record) or (None if record["key"] == key else "it is another cell")
        if wrong is not None:
            raise _DamagedCell(quoted(wrong))
        return record

    def _quarantine(self, path: Path, reason: str) -> None:
        """Move a damaged cell and its policy to quarantine/."""
        target = self.directory / "quarantine" / f"{path.stem}-{time.time_ns()}.json"
        move_file(path, target)
        policy = path.with_suffix(".policy.npz")
        if os.path.lexists(policy):
            move_file(policy, target.with_suffix(".policy.npz"))
        self.quarantined.append(QuarantinedFile(target, reason))
        print(f"warning: cell {path.stem} is damaged ({reason}): moved to {target}, it will run again", file=sys.stderr)

    def _check_format(self, file_format: int) -> None:
        if file_format != FORMAT:
            age = "newer" if file_format > FORMAT else "older"
            hint = "upgrade understudy" if file_format > FORMAT else "choose another directory with --out"
            raise RunError(
                f"'{self.directory}' has format {quoted(file_format, 20)} of a {age} version, and this version reads "
                f"format {FORMAT}: {hint}"
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
        """Remove the temporary files of killed processes."""
        remove_stale(self.directory / STUDY)
        temporary = {path.name[1:17] for path in self.cells.glob(".*")}
        for key in filter(is_key, temporary):
            remove_stale(self.cells / key)


class _DamagedCell(Exception):
    """A cell file that moves to quarantine/."""


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _bytes(policy: Path) -> bytes:
    return FileReader(policy, "a policy", "run the study again").bytes(LARGEST_POLICY)


def _write(path: Path, text: str) -> None:
    """Write and sync, so that a full disk raises before the file is renamed."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
