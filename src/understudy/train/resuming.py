"""`understudy train --resume DIR`: resume an interrupted or killed run, with the command stored next to it.

    DIR.checkpoint.npz, DIR.checkpoint.previous.npz     the state of the training loop (`train.checkpoints`)
    DIR.logs/               the metrics of each round (`train.logs`)
    DIR.command.json        the words of the command, and the working directory it was run in
    DIR.lock                locked by the process that trains

These files exist until the run is saved in DIR. The command may name files in its working directory. That directory is
stored relative to DIR's parent, so that a project that was moved can be resumed.

DIR may come from a stranger, so its files are data: nothing is imported from there. Code that the command names
(`module:name`) is used only if the person names its module with `--import` (`core.imports`).
"""

import hashlib
import os
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from understudy.core.errors import RunError, SettingError
from understudy.core.imports import allow_imports, check_import
from understudy.core.locks import LOCK, claim, claim_output
from understudy.core.reader import FileReader
from understudy.core.storage import atomic_file, remove_stale, write_json
from understudy.core.text import printable, quoted
from understudy.data.formats import FORMATS
from understudy.train.checkpoints import CHECKPOINT, COMMAND, Checkpoint, has_checkpoint
from understudy.train.logs import check_logs, discard, move_logs
from understudy.train.results import load_run

OPTION, IMPORT, REPLACE = "--resume", "--import", "--replace"
LONGEST_WORD, MOST_WORDS = 4096, 1000
SPLIT = (f"{OPTION}=", f"{IMPORT}=")
Parsed = TypeVar("Parsed")


class ResumedCommand(NamedTuple):
    """The command of the run to resume."""

    words: list[str]
    """The words after `understudy train`."""
    out: str
    """The run's directory."""
    file: Path
    """The file that the command is stored in."""
    directory: Path
    """The working directory of the command."""

    def parsed(self, parse: Callable[[Sequence[str]], Parsed]) -> Parsed:
        """The words as options. Whatever makes the parser exit, a mistake or --help, is an error of the file."""
        check_import(self.words[0], self.file)
        said = StringIO()
        try:
            with redirect_stdout(said), redirect_stderr(said):
                return parse(self.words)
        except SystemExit as error:
            reader = _command_reader(self.file)
            raise reader.damaged(f"understudy train {shlex.join(self.words)}") from error

    def located(self, name: str | None) -> str | None:
        """A name that the command gives: as a path, if there is such a file in the command's working directory."""
        if not name or not (self.directory / name).exists():
            check_import(name, self.file)
            return name
        return str(self.directory / name)

    def located_data(self, name: str | None) -> str | None:
        """As `located`, for demonstrations: "format:path" names no code."""
        prefix, colon, rest = (name or "").partition(":")
        if not colon or prefix not in FORMATS or (self.directory / str(name)).exists():
            return self.located(name)
        return f"{prefix}:{self.directory / rest}" if (self.directory / rest).exists() else name


@contextmanager
def claimed_output(out: str) -> Iterator[None]:
    """Hold the lock of a run's directory, and clean up after killed processes that wrote it."""
    with claim_output(out):
        remove_stale(out)
        yield


@contextmanager
def stored_command(out: str, words: Sequence[str]) -> Iterator[None]:
    """Store the command next to the run's directory during training.

    The file stays when training is killed or interrupted. After an error without a checkpoint, or with that of another
    command, the file of an earlier command is restored, or else the file is removed.
    """
    file = Path(f"{out}{COMMAND}")
    previous = None
    if file.exists():
        _read_command(file)  # another file of this name is not replaced
        previous = file.read_bytes()
    directory = os.path.relpath(os.getcwd(), os.path.realpath(file.parent))
    write_json(file, {"command": list(words), "directory": directory, "checksum": command_checksum(words, directory)})
    try:
        yield
    except BaseException as error:
        resumable = has_checkpoint(f"{out}{CHECKPOINT}")
        if not resumable:
            discard(out)
        if not resumable or isinstance(error, RunError):
            if previous is None:
                file.unlink(missing_ok=True)
            else:
                with atomic_file(file) as partial:
                    partial.write_bytes(previous)
        raise


def clean_up(out: str) -> None:
    """Remove the checkpoint and the command of a run that is saved, and move its logs into the run's directory."""
    Path(f"{out}{COMMAND}").unlink(missing_ok=True)  # first: a command with --replace would train again
    checkpoint = f"{out}{CHECKPOINT}"
    held = claim(Path(f"{checkpoint}{LOCK}"), remove=True)  # a killed process left its lock
    Checkpoint.discard(checkpoint)
    if held is not None:
        held.release()
    move_logs(out)


def start_again(out: str) -> None:
    """Remove what an interrupted or killed run has left next to its directory, for a run that replaces it."""
    file = Path(f"{out}{COMMAND}")
    if file.exists():
        _read_command(file)  # another file of this name is not removed
    elif has_checkpoint(f"{out}{CHECKPOINT}"):
        raise RunError(f"'{out}{CHECKPOINT}' has no '{file}' with it: move it away, or choose another --out")
    check_logs(out)
    Checkpoint.discard(f"{out}{CHECKPOINT}")
    discard(out)
    file.unlink(missing_ok=True)


def requested(words: Sequence[str]) -> bool:
    """Whether the words after `understudy train` contain --resume."""
    return any(word == OPTION or word.startswith(f"{OPTION}=") for word in words)


def command_to_resume(words: Sequence[str]) -> ResumedCommand | None:
    """The command of the run in `--resume DIR --import MODULE`; None if the run is finished."""
    run, modules = _run_directory(words)
    file = Path(f"{run}{COMMAND}")
    replaces = file.exists() and REPLACE in _read_command(file)[0]  # the run in its place is the old one
    if interrupted(run) is False and not replaces:
        with claimed_output(str(run)):
            clean_up(str(run))  # it was killed after it was saved and before these files were removed
        print(f"{run} holds a finished run: there is nothing to resume.")
        return None
    if not file.exists():
        if has_checkpoint(f"{run}{CHECKPOINT}"):
            raise RunError(f"'{file}' is missing: rerun the command that trained '{run}', which resumes")
        raise RunError(f"nothing to resume at '{run}': pass the --out of a run that was interrupted or killed")
    command, directory = _read_command(file)
    if not directory.is_dir():
        gone = quoted(directory)
        raise RunError(f"'{file}' names the directory '{gone}', which does not exist: rerun the command elsewhere")
    if modules:
        allow_imports(modules)
    sys.argv = [sys.argv[0], "train", *command]  # `provenance` records the original command
    print(f"Resuming: understudy train {printable(shlex.join(command))}", file=sys.stderr)
    if not has_checkpoint(f"{run}{CHECKPOINT}"):
        print("There is no checkpoint yet: training starts from the beginning.", file=sys.stderr)
    return ResumedCommand(command, str(run), file, directory)


def interrupted(out: str | os.PathLike[str]) -> bool | None:
    """Whether the run saved in `out` was interrupted; None if there is no run."""
    return load_run(out).interrupted if (Path(out) / "config.json").exists() else None


def _run_directory(words: Sequence[str]) -> tuple[Path, list[str]]:
    """DIR of `--resume DIR`, and the modules of `--import MODULE`. Raises if there are other words."""
    given = [part for word in words for part in (word.split("=", 1) if word.startswith(SPLIT) else [word])]
    values: dict[str, list[str]] = {OPTION: [], IMPORT: []}
    rest = []
    while given:
        word = given.pop(0)
        if word not in values:
            rest.append(word)
        elif not given or not given[0] or given[0] in values:
            raise SettingError(
                f"{word} needs {'a directory: the --out of the run to resume' if word == OPTION else 'a module'}"
            )
        else:
            values[word].append(given.pop(0))
    if rest or len(values[OPTION]) > 1:
        left_out = shlex.join([*rest, *(f"{OPTION}={one}" for one in values[OPTION][1:])])
        raise SettingError(f"{OPTION} uses the settings of the run: leave out {left_out}, or start another run")
    return Path(values[OPTION][0]), values[IMPORT]


def _command_reader(file: Path) -> FileReader:
    return FileReader(file, "a stored command", "remove it, and train again")


def _read_command(file: Path) -> tuple[list[str], Path]:
    """The words of a stored command, and its working directory."""
    reader = _command_reader(file)
    about = reader.json({"command": [_is_word], "directory": _is_word, "checksum": str})
    command: list[str] = about["command"]
    with reader.guarded():
        checksum = command_checksum(command, about["directory"])
    if checksum != about["checksum"]:
        raise reader.damaged("wrong checksum")
    # tyro has options of its own, which write files: --tyro-write-completion.
    own = any(word.replace("_", "-").startswith("--tyro-") for word in command)
    if not 1 <= len(command) <= MOST_WORDS or command[0].startswith("-") or own:
        raise reader.damaged(f"understudy train {shlex.join(command)}")
    with reader.guarded():
        return command, (file.parent / about["directory"]).resolve()


def command_checksum(words: Sequence[str], directory: str) -> str:
    """The sha256 of a stored command, by which damage is seen."""
    return hashlib.sha256(os.fsencode("\0".join([directory, *words]))).hexdigest()


def _is_word(value: Any) -> bool:
    """Whether a value can be a word of a command: text without control characters."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_WORD
        and not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in value)
    )
