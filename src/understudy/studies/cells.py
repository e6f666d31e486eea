"""Where a study's results are kept: a file for each cell, written when it is finished and never changed.

    DIR/study.json               the format, and the study as it was last run
    DIR/cells/KEY.json           what was asked of a cell, its returns, how it ended and what made it
    DIR/cells/KEY.policy.npz     the policy that it handed over
    DIR/claims/KEY.lock          held by the process that trains a group
    DIR/quarantine/              cell files that were damaged

    KEY = the first 16 hex digits of sha256 of {"asked": ..., "format": 1}, as canonical JSON

A cell's file is whole or absent, and its checksum tells whether it is what was written. A damaged one is set aside and
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
from understudy.studies.claims import Claim, claim, waiting

FORMAT = 1
STUDY = "study.json"
FINAL = "final"
X_KINDS = ("env_steps", "round", FINAL)
ENDED = ("finished", "stopped", "diverged")
"""How the status of a cell that is over begins; one that was interrupted is not."""
FIELDS = ("format", "key", "asked", "shown", "rows", "status", "seconds", "together", "env_steps", "queries", "made")
LEFT_OVER = 3600.0
"""Seconds after which a file that was being written is one that a killed process left."""


def canonical(value: Any) -> str:
    """The one JSON text of a value; NaN and infinity have none."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(asked: dict[str, Any]) -> str:
    """The key of what is asked."""
    return hashlib.sha256(canonical({"format": FORMAT, "asked": asked}).encode()).hexdigest()[:16]


def checksum_of(record: dict[str, Any]) -> str:
    """Of everything in a cell's record but the checksum itself."""
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return hashlib.sha256(canonical(rest).encode()).hexdigest()


def check_record(record: dict[str, Any]) -> None:
    """Refuse a record that is not that of a finished cell."""
    missing = [name for name in FIELDS if name not in record]
    if missing:
        raise RunError(f"a cell's record lacks {', '.join(missing)}: nothing was stored")

    def refuse(why: str) -> RunError:
        return RunError(f"cell {record['key']} cannot be stored: {why}")

    if record["format"] != FORMAT or record["key"] != key_of(record["asked"]):
        raise refuse(f"its key or format ({record['format']}) is not that of what it asks")
    if not str(record["status"]).startswith(ENDED):
        raise refuse(f"its status is '{record['status']}', which does not begin with {', '.join(ENDED)}")
    for row in record["rows"]:
        if row["x_kind"] not in X_KINDS:
            raise refuse(f"x_kind is {row['x_kind']!r}, not one of {', '.join(X_KINDS)}")
        numbers = [row["x"], *row["returns"], *(row[name] for name in ("steps", "payoff") if row.get(name) is not None)]
        if not row["returns"] or not all(math.isfinite(number) for number in numbers):
            raise refuse(f"its numbers at {row['x_kind']} {row['x']} are not all finite, or no episode was played")
    handed = sum(row["x_kind"] == FINAL for row in record["rows"])
    diverged = str(record["status"]).startswith("diverged")
    if handed != (0 if diverged else 1):
        raise refuse(f"it has {handed} rows of the policy handed over, and its status is '{record['status']}'")


class Damaged(NamedTuple):
    """A cell file that was set aside."""

    path: Path
    """Where it is now."""
    why: str


class Store:
    """The directory of a study. Nothing is made before something is written."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = Path(directory)
        self.cells = self.directory / "cells"
        self.quarantined: list[Damaged] = []
        """What this object has set aside."""
        if self.directory.exists() and not self.directory.is_dir():
            raise RunError(f"'{self.directory}' is a file, and a study's directory is needed: choose another name")
        self.about()

    def about(self) -> dict[str, Any] | None:
        """study.json: the format, and the study (`Study.of`). None where no study was begun."""
        path = self.directory / STUDY
        if not path.is_file():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            made = int(found["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"'{path}' is damaged: remove it, its cells stay, and run the study again") from error
        self._check_format(made)
        return found

    def begin(self, study: dict[str, Any]) -> None:
        """Keep the study as it is run now (`Study.plain`); its cells stay whatever it was before."""
        about = {"format": FORMAT, "study": json.loads(canonical(study))}
        self.check_own()
        self._clear_left_overs()
        if self.about() != about:
            with self.room(STUDY):
                write_json(self.directory / STUDY, about)

    def check_own(self) -> None:
        """Refuse a directory that holds something else."""
        if self.about() is None and self._foreign():
            raise RunError(f"the directory '{self.directory}' is not empty, and no study: choose another with --out")

    def path(self, key: str) -> Path:
        """A cell's file."""
        if re.fullmatch(r"[0-9a-f]{16}", key) is None:
            raise RunError(f"'{key}' is not a cell's key: 16 hex digits are needed")
        return self.cells / f"{key}.json"

    def policy_path(self, key: str) -> Path:
        """The file of the policy that a cell handed over (`actor.load_policy`)."""
        return self.path(key).with_suffix(".policy.npz")

    def has(self, key: str) -> bool:
        """Whether a cell is there and whole."""
        return self._read(key) is not None

    def read(self, key: str) -> dict[str, Any]:
        """A cell's record."""
        record = self._read(key)
        if record is None:
            raise RunError(f"no cell {key} in '{self.directory}': run the study again")
        return record

    def keys(self) -> list[str]:
        """Of all cell files, unread."""
        found = (re.fullmatch(r"([0-9a-f]{16})\.json", path.name) for path in self.cells.glob("*.json"))
        return sorted(match[1] for match in found if match)

    def all(self) -> list[dict[str, Any]]:
        """Every cell that is whole."""
        return [record for key in self.keys() if (record := self._read(key)) is not None]

    def write(self, record: dict[str, Any], policy: Actor | None = None) -> bool:
        """Store a finished cell, adding its checksum. One that is there already stays as it is: False."""
        try:
            check_record(record)
            plain = json.loads(canonical(record))
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"cell {record.get('key')} cannot be stored: {error}") from error
        key = plain["key"]
        text = json.dumps({**plain, "checksum": checksum_of(plain)}, ensure_ascii=False, allow_nan=False) + "\n"
        with self.room(f"cell {key}"), self._alone():
            if self._read(key, alone=True) is not None:
                return False
            try:
                if policy is not None:
                    policy.save(self.policy_path(key))
                with whole_file(self.path(key)) as beside:
                    _write(beside, text)
            except BaseException:
                self.policy_path(key).unlink(missing_ok=True)
                raise
        return True

    def claim(self, group_key: str) -> Claim | None:
        """The right to train a group, for as long as this process holds it; None while another does.

        with claim: ...   gives it back at the end. The kernel does when the process dies.
        """
        with self.room(f"the claim of group {group_key}"):
            return claim(self.directory / "claims" / f"{group_key}.lock")

    def _read(self, key: str, alone: bool = False) -> dict[str, Any] | None:
        """A whole cell, or None; a damaged one is set aside, by itself unless the caller is `alone` already."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        record, why = self._judged(key, data)
        if record is None:
            with nullcontext() if alone else self._alone():
                self._set_aside(path, data, why)
        return record

    def _judged(self, key: str, data: bytes) -> tuple[dict[str, Any] | None, str]:
        """The record of a file's bytes, or why it is none."""
        try:
            record = json.loads(data)
        except ValueError as error:
            return None, f"not JSON ({error})"
        if not isinstance(record, dict):
            return None, "not a record"
        if isinstance(record.get("format"), int) and record["format"] > FORMAT:
            self._check_format(record["format"])
        try:
            if record.get("checksum") != checksum_of(record):
                return None, "its checksum is wrong"
            if record["key"] != key or key_of(record["asked"]) != key:
                return None, "its key is not that of what it asks"
        except (ValueError, KeyError) as error:
            return None, f"it is not a cell ({error})"
        return record, ""

    def _set_aside(self, path: Path, data: bytes, why: str) -> None:
        """Move a damaged cell out of the way, unless another process has done so, or has written a whole one."""
        if not path.is_file() or path.read_bytes() != data:
            return
        folder = self.directory / "quarantine"
        folder.mkdir(exist_ok=True)
        place = folder / f"{path.stem}-{time.time_ns()}.json"
        path.replace(place)
        policy = path.with_suffix(".policy.npz")
        if policy.exists():
            policy.replace(place.with_suffix(".policy.npz"))
        self.quarantined.append(Damaged(place, why))
        print(f"warning: cell {path.stem} is damaged ({why}): moved to {place}, it will run again", file=sys.stderr)

    def _check_format(self, made: int) -> None:
        if made > FORMAT:
            raise RunError(
                f"'{self.directory}' was made by a newer version, with format {made}, and this one knows format "
                f"{FORMAT}: upgrade understudy"
            )

    @contextmanager
    def room(self, what: str) -> Iterator[None]:
        """Where the disk is full, say what is safe."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NoSpaceError(
                f"no space left for {what}: {len(self.keys())} finished cells are intact in '{self.directory}'; make "
                "room and run the study again"
            ) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes which cells there are in the meantime; a few milliseconds."""
        with waiting(self.directory / "claims" / "cells.lock"):
            yield

    def _foreign(self) -> bool:
        """Whether the directory holds something, and nothing of a study, which another process may just begin."""
        names = {path.name for path in self.directory.iterdir()} if self.directory.exists() else set()
        begun = {name for name in names if name == STUDY or name.startswith(f".{STUDY}.")}
        return bool(names) and not begun and not names & {"cells", "claims"}

    def _clear_left_overs(self) -> None:
        for path in (*self.cells.glob(".*"), *self.directory.glob(f".{STUDY}.*")):
            with suppress(FileNotFoundError):  # its process has just given it its name
                if time.time() - path.stat().st_mtime > LEFT_OVER:
                    path.unlink()


def _write(path: Path, text: str) -> None:
    """To the disk itself, so that a full one is known before the file has its name."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
