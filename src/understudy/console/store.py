"""The output directory of a console: everything that a person has done, on the disk before the page is told.

    console.json              environment, algorithm and format; says that the directory is ours
    token                     of the printed address, readable by its owner only
    mapping.json              keys, mouse and gamepad
    attempt.jsonl             the unfinished attempt: its start, then a line for each step, undo and mark
    attempts/NUMBER.jsonl     the same of earlier attempts, with what was undone
    episodes/NUMBER.npz       kept attempts: demonstrations (`understudy.load`), with two more arrays: policy_actions
                              and person_acted
    discarded/NUMBER.npz      discarded attempts
    rounds/ROUND.npz          the learner's episodes of a round, and the states that are asked about
    rounds/ROUND.jsonl        what the person said: a line for each answer, skip and change of mind
    policies/NUMBER.npz       the policy after each round
    policies.jsonl            a line for each of them: round, data, returns
    preferences.jsonl         pairs of clips, and the choices
    run/                      the saved result of training
    demonstrations.npz        all kept attempts in one file, written when the person saves or ends

Lines are appended and synced. A line that a power cut has cut off is dropped.
"""

import os
import secrets
from pathlib import Path
from typing import IO, Any

from understudy.console.protocol import dumps
from understudy.core.errors import RunError
from understudy.core.locks import Claim, claim
from understudy.core.paths import checked_path
from understudy.core.reader import FileReader
from understudy.core.storage import (
    append_text,
    atomic_file,
    make_directory,
    move_file,
    no_follow,
    write_json,
    write_npz,
)
from understudy.core.text import quoted
from understudy.core.version import __version__
from understudy.data import Demonstrations, load
from understudy.data.formats.npz import members_of

FORMAT = 1
MARKER, LOCK, TOKEN = "console.json", ".console.lock", "token"
REMEDY = "choose another --out"
ABOUT = {"format": int, "understudy": str, "env": str, "algorithm": (str, None)}


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


STATE = {"obs": [float], "reward": float, "terminal": bool, "over": bool}
ATTEMPT = (
    {"number": _count, "mode": lambda mode: mode in ("demonstrate", "watch"), "seed": _count, "policy": (_count, None)}
    | STATE,
    {"action": (float, [float]), "person": bool} | STATE,
    {"undo": _count},
    {"success": (bool, None)},
)
SAID = (
    {"row": _count, "action": (float, [float])},
    {"row": _count, "skip": bool},
    {"row": _count, "reopen": bool},
    {"finish": bool},
)
POLICY = {
    **dict.fromkeys(("id", "round", "episodes", "answers"), _count),
    "returns": [float],
    "metrics": {str: (float, None)},
}
PREFERENCE = (
    {"pair": _count, "left": _count, "right": _count, "seed": _count},
    {"pair": _count, "choice": lambda choice: choice in ("left", "right", "same")},
)
"""The patterns of the lines. Somebody else may have written a directory."""


class Lines:
    """A file of JSON lines, each of which matches `pattern`. Only one process appends to it."""

    def __init__(self, path: Path, pattern: Any):
        self.path, self._pattern = path, pattern
        self._file: IO[str] | None = None

    def read(self) -> list[dict[str, Any]]:
        """All complete lines."""
        if not self.path.exists():
            return []
        reader = FileReader(self.path, "a file of a console", REMEDY)
        text = reader.text()
        lines, rest = text.splitlines(keepends=True), ""
        if lines and not lines[-1].endswith("\n"):
            rest = lines.pop()
        values = [reader.parse_json(line, self._pattern) for line in lines]
        if rest:  # it was being written when the machine stopped
            with atomic_file(self.path) as partial:
                partial.write_bytes("".join(lines).encode())
        return values

    def append(self, value: dict[str, Any]) -> None:
        """Append a line; it is on the disk when this returns."""
        make_directory(self.path.parent)
        append_text(self.path, dumps(value) + "\n")

    def append_soon(self, value: dict[str, Any]) -> None:
        """Append a line. It survives the death of this process; only after `sync` it survives that of the machine."""
        if self._file is None:
            self._file = open(self.path, "a", encoding="utf-8", newline="", opener=no_follow)  # noqa: SIM115 (kept)
        self._file.write(dumps(value) + "\n")
        self._file.flush()

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Before the file is moved or removed."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


class Store:
    """An open directory, locked until `close`."""

    def __init__(self, path: Path, about: dict[str, Any], token: str, claimed: Claim | None):
        self.path, self.about, self.token, self._claim = path, about, token, claimed
        self.attempt = Lines(path / "attempt.jsonl", ATTEMPT)
        self.policies = Lines(path / "policies.jsonl", POLICY)
        self.preferences = Lines(path / "preferences.jsonl", PREFERENCE)

    @classmethod
    def open(cls, out: str | os.PathLike[str], env: str, algorithm: str | None) -> "Store":
        """Make the directory, or open one of an earlier session with the same environment and algorithm."""
        path = checked_path(out)
        marker = path / MARKER
        if path.exists() and not path.is_dir():
            raise RunError(f"'{path}' is not a directory: {REMEDY}")
        if path.is_dir() and not marker.exists() and any(entry.name != LOCK for entry in path.iterdir()):
            raise RunError(f"'{path}' is not the directory of a console: {REMEDY}")
        about = None
        if marker.exists():
            about = FileReader(marker, "the description of a console", REMEDY).json(ABOUT)
            _check_same(path, about, env, algorithm)
        make_directory(path)
        claimed = claim(path / LOCK)
        if claimed is None:
            raise RunError(f"'{path}' is in use by another console: end it first, or {REMEDY}")
        try:
            if about is None or about["algorithm"] != algorithm:
                about = {"format": FORMAT, "understudy": __version__, "env": env, "algorithm": algorithm}
                write_json(marker, about)
            return cls(path, about, _token(path / TOKEN), claimed)
        except BaseException:
            claimed.release()
            raise

    @classmethod
    def beside(cls, path: Path) -> "Store":
        """The directory as the training process sees it: the console holds the lock."""
        return cls(path, {}, "", None)

    def close(self) -> None:
        self.attempt.close()
        if self._claim is not None:
            self._claim.release()

    # Episodes

    def next_number(self) -> int:
        """The number of the next attempt."""
        folders = (self.path / name for name in ("episodes", "discarded", "attempts"))
        numbers = [
            int(file.stem) for folder in folders if folder.is_dir() for file in folder.iterdir() if _numbered(file)
        ]
        return max(numbers, default=0) + 1

    def finish_attempt(
        self, number: int, demonstrations: Demonstrations | None, more: dict[str, Any], kept: bool
    ) -> None:
        """Write an attempt that is kept or discarded (None: it has no steps), then set its lines aside."""
        if demonstrations is not None:
            folder = self.path / ("episodes" if kept else "discarded")
            write_npz(folder / f"{number:06}.npz", {**members_of(demonstrations), **more})
        self.attempt.close()
        if self.attempt.path.exists():
            move_file(self.attempt.path, self.path / "attempts" / f"{number:06}.jsonl")

    def episodes(self) -> dict[int, Demonstrations]:
        """The kept episodes, by their numbers."""
        folder = self.path / "episodes"
        files = sorted(folder.glob("*.npz")) if folder.is_dir() else []
        return {int(file.stem): load(file) for file in files if _numbered(file)}

    @property
    def discarded(self) -> int:
        folder = self.path / "discarded"
        return sum(_numbered(file) for file in folder.iterdir()) if folder.is_dir() else 0

    def drop_empty_attempt(self) -> None:
        """Remove the lines of an attempt without steps."""
        self.attempt.close()
        self.attempt.path.unlink(missing_ok=True)

    # Rounds, policies and the mapping

    def round_file(self, number: int) -> Path:
        return self.path / "rounds" / f"{number:04}.npz"

    def said(self, number: int) -> Lines:
        """What the person said about the states of a round."""
        return Lines(self.path / "rounds" / f"{number:04}.jsonl", SAID)

    def rounds(self) -> list[int]:
        """The rounds that have questions."""
        folder = self.path / "rounds"
        return sorted(int(file.stem) for file in folder.glob("*.npz") if _numbered(file)) if folder.is_dir() else []

    def policy_file(self, number: int) -> Path:
        return self.path / "policies" / f"{number:04}.npz"

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def demonstrations(self) -> Path:
        return self.path / "demonstrations.npz"

    def read_mapping(self) -> Any:
        path = self.path / "mapping.json"
        return FileReader(path, "a mapping", "remove it").json({}) if path.exists() else None

    def write_mapping(self, mapping: dict[str, Any]) -> None:
        write_json(self.path / "mapping.json", mapping)


def _check_same(path: Path, about: dict[str, Any], env: str, algorithm: str | None) -> None:
    if about["format"] > FORMAT:
        raise RunError(f"'{path}' was written by a newer understudy ({quoted(about['understudy'])}): update this one")
    if about["env"] != env:
        raise RunError(f"'{path}' holds a console of {quoted(about['env'])}, not of {quoted(env)}: {REMEDY}")
    known = about["algorithm"]
    if known is not None and algorithm is not None and known != algorithm:
        raise RunError(f"'{path}' holds a console that trains {quoted(known)}, not {quoted(algorithm)}: {REMEDY}")


def _token(path: Path) -> str:
    """The token of the directory; made at first."""
    if path.exists():
        token = FileReader(path, "a token", "remove it").text(200).strip()
        if len(token) >= 32 and token.isascii() and token.isalnum():
            return token
        raise RunError(f"'{path}' is not a token: remove it, and the next start makes another")
    token = secrets.token_hex(24)
    with atomic_file(path) as partial:
        os.chmod(partial, 0o600)
        partial.write_text(token + "\n")
    return token


def _numbered(file: Path) -> bool:
    return file.stem.isdecimal() and file.suffix in (".npz", ".jsonl")
