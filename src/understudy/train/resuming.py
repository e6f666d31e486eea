"""`understudy train --resume DIR`: resume an interrupted or killed run, with the command stored next to it.

    DIR.checkpoint.npz      the state of the training loop (`train.checkpoints`)
    DIR.logs/               the metrics of each round (`train.logs`)
    DIR.command.json        the words of the command, and the working directory it was run in

These files exist until the run is saved in DIR. The command is run again in its working directory, since it may name
files there. The working directory is stored relative to DIR's parent, so that a project that was moved can be resumed.
"""

import glob
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from understudy.core.errors import RunError, SettingError
from understudy.core.storage import whole_file, write_json
from understudy.train.checkpoints import CHECKPOINT, COMMAND, Checkpoint
from understudy.train.logs import discard, move_logs
from understudy.train.results import load_run

OPTION = "--resume"


class ResumedCommand(NamedTuple):
    """The command of the run to resume."""

    words: list[str]
    """The words after `understudy train`."""
    out: str
    """The run's directory, relative to the command's working directory or absolute."""


@contextmanager
def stored_command(out: str, words: Sequence[str]) -> Iterator[None]:
    """Store the command next to the run's directory during training.

    The file stays when training is killed or interrupted. It is removed after an error without a checkpoint. When the
    checkpoint belongs to another command, that command's file is restored.
    """
    file = Path(f"{out}{COMMAND}")
    previous = file.read_bytes() if file.exists() else None
    new_folders = [folder for folder in file.parents if not folder.exists()]
    directory = os.path.relpath(os.getcwd(), os.path.realpath(file.parent))
    write_json(file, {"command": list(words), "directory": directory})
    try:
        yield
    except BaseException as error:
        resumable = Path(f"{out}{CHECKPOINT}").exists()
        if resumable and isinstance(error, RunError) and previous is not None:
            with whole_file(file) as partial:
                partial.write_bytes(previous)
        elif not resumable or isinstance(error, RunError):
            file.unlink(missing_ok=True)
            if not resumable:
                discard(out)
            for folder in new_folders:
                with suppress(OSError):  # it is not empty any more
                    folder.rmdir()
        raise


def clean_up(out: str) -> None:
    """Remove the checkpoint and the command of a run that is saved, and move its logs into the run's directory."""
    checkpoint = Path(f"{out}{CHECKPOINT}")
    Checkpoint.discard(checkpoint)
    # Partly written checkpoints of a killed process, as `whole_file` names them.
    for partial in checkpoint.parent.glob(f".{glob.escape(checkpoint.name)}.*{checkpoint.suffix}"):
        partial.unlink(missing_ok=True)
    move_logs(out)
    Path(f"{out}{COMMAND}").unlink(missing_ok=True)


def requested(words: Sequence[str]) -> bool:
    """Whether the words after `understudy train` contain --resume."""
    return any(word == OPTION or word.startswith(f"{OPTION}=") for word in words)


def command_to_resume(words: Sequence[str]) -> ResumedCommand | None:
    """The command of the run in `--resume DIR`; None if the run is finished. Changes to its working directory."""
    run = _run_directory(words)
    if interrupted(run) is False:
        clean_up(str(run))  # it was killed after it was saved and before these files were removed
        print(f"{run} holds a finished run: there is nothing to resume.")
        return None
    command, directory = _read_command(run)
    out = str(run)
    if directory != Path.cwd():
        out = str(run.absolute())
        os.chdir(directory)
    sys.argv = [sys.argv[0], "train", *command]  # `provenance` records the original command
    print(f"Resuming: understudy train {shlex.join(command)}", file=sys.stderr)
    if not Path(f"{out}{CHECKPOINT}").exists():
        print("There is no checkpoint yet: training starts from the beginning.", file=sys.stderr)
    return ResumedCommand(command, out)


def interrupted(out: str | os.PathLike[str]) -> bool | None:
    """Whether the run saved in `out` was interrupted; None if there is no run."""
    return load_run(out).interrupted if (Path(out) / "config.json").exists() else None


def _run_directory(words: Sequence[str]) -> Path:
    """DIR of `--resume DIR`. Raises if there are other words."""
    given = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{OPTION}=") else [word])]
    at = given.index(OPTION)
    if len(given) <= at + 1 or not given[at + 1]:
        raise SettingError(f"{OPTION} needs a directory: the --out of the run to resume")
    rest = given[:at] + given[at + 2 :]
    if rest:
        raise SettingError(f"{OPTION} uses the settings of the run: leave out {shlex.join(rest)}, or start another run")
    return Path(given[at + 1])


def _read_command(run: Path) -> tuple[list[str], Path]:
    """The words of the run's command, and its working directory."""
    file = Path(f"{run}{COMMAND}")
    if not file.exists():
        if Path(f"{run}{CHECKPOINT}").exists():
            raise RunError(f"'{file}' is missing: rerun the command that trained '{run}', which resumes")
        raise RunError(f"nothing to resume at '{run}': pass the --out of a run that was interrupted or killed")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        command, directory = [str(word) for word in about["command"]], (file.parent / about["directory"]).resolve()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"'{file}' is not a command ({type(error).__name__}): remove it, and train again") from error
    if not directory.is_dir():
        raise RunError(f"the command of '{run}' was run in '{directory}', which does not exist: rerun it elsewhere")
    return command, directory
