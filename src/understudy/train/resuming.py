"""`understudy train --resume DIR`: going on with a run that was killed, from the command that is kept beside it.

    DIR.checkpoint.npz      the training loop's place, from the first checkpoint until the run is saved (`checkpoints`)
    DIR.logs/               each round's numbers, until the run is saved (`logs`)
    DIR.command.json        the words of the command, from the start until the run is saved, and where they were given

The words mean what they meant: they are read in the directory in which they were given, whose files they name. It is
kept as the way there from DIR's folder, so that a project that is moved as a whole goes on as well.
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
from understudy.train.logs import discard, settle
from understudy.train.results import load_run

OPTION = "--resume"


class Resumed(NamedTuple):
    """A command to go on with."""

    words: list[str]
    """What followed `understudy train`."""
    out: str
    """The run's directory, as it is named from where the command is read."""


@contextmanager
def remembered(out: str, words: Sequence[str]) -> Iterator[None]:
    """Keep the command beside a run while it trains.

    It stays when training is killed or interrupted. An error that leaves no checkpoint leaves no command either, and
    one that refuses the checkpoint leaves the command that it belongs to.
    """
    file = Path(f"{out}{COMMAND}")
    before = file.read_bytes() if file.exists() else None
    made = [folder for folder in file.parents if not folder.exists()]
    way = os.path.relpath(os.getcwd(), os.path.realpath(file.parent))
    write_json(file, {"command": list(words), "directory": way})
    try:
        yield
    except BaseException as error:
        goes_on = Path(f"{out}{CHECKPOINT}").exists()
        if goes_on and isinstance(error, RunError) and before is not None:
            with whole_file(file) as beside:
                beside.write_bytes(before)
        elif not goes_on or isinstance(error, RunError):
            file.unlink(missing_ok=True)
            if not goes_on:
                discard(out)
            for folder in made:
                with suppress(OSError):  # something else is there by now
                    folder.rmdir()
        raise


def forget(out: str) -> None:
    """Remove what was kept to go on with, once the run itself is kept, and checkpoints that were never whole.

    What was logged moves into the run.
    """
    place = Path(f"{out}{CHECKPOINT}")
    Checkpoint.discard(place)
    for torn in place.parent.glob(f".{glob.escape(place.name)}.*{place.suffix}"):  # as `whole_file` names them
        torn.unlink(missing_ok=True)
    settle(out)
    Path(f"{out}{COMMAND}").unlink(missing_ok=True)


def asked(words: Sequence[str]) -> bool:
    """Whether the words after `understudy train` ask to resume."""
    return any(word == OPTION or word.startswith(f"{OPTION}=") for word in words)


def resumed(words: Sequence[str]) -> Resumed | None:
    """The command of the run that `--resume DIR` names, in the directory where it was given; None: it is finished."""
    place = _named(words)
    if interrupted(place) is False:
        forget(str(place))  # it was killed between being saved and being tidied up
        print(f"{place} holds a finished run: there is nothing to resume.")
        return None
    command, directory = _kept(place)
    out = str(place)
    if directory != Path.cwd():
        out = str(place.absolute())
        os.chdir(directory)
    sys.argv = [sys.argv[0], "train", *command]  # a run says which command made it: that one
    print(f"Resuming: understudy train {shlex.join(command)}", file=sys.stderr)
    if not Path(f"{out}{CHECKPOINT}").exists():
        print("No checkpoint was kept yet: it starts from the beginning.", file=sys.stderr)
    return Resumed(command, out)


def interrupted(out: str | os.PathLike[str]) -> bool | None:
    """Whether the run that is saved there did not reach its end; None where there is none."""
    return load_run(out).interrupted if (Path(out) / "config.json").exists() else None


def _named(words: Sequence[str]) -> Path:
    """DIR, which must be all there is."""
    given = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{OPTION}=") else [word])]
    at = given.index(OPTION)
    if len(given) <= at + 1 or not given[at + 1]:
        raise SettingError(f"{OPTION} needs a directory: the --out of the run to go on with")
    rest = given[:at] + given[at + 2 :]
    if rest:
        raise SettingError(
            f"{OPTION} goes on with the settings that the run began with: leave out {shlex.join(rest)}, or start "
            "another run"
        )
    return Path(given[at + 1])


def _kept(place: Path) -> tuple[list[str], Path]:
    """The words of the command, and the directory where they were given."""
    file = Path(f"{place}{COMMAND}")
    if not file.exists():
        if Path(f"{place}{CHECKPOINT}").exists():
            raise RunError(f"'{file}' is missing: give the command that trained '{place}' again, which goes on")
        raise RunError(f"nothing to resume at '{place}': give the --out of a run that was killed or interrupted")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        command, directory = [str(word) for word in about["command"]], (file.parent / about["directory"]).resolve()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"'{file}' is not a command ({type(error).__name__}): remove it, and train anew") from error
    if not directory.is_dir():
        raise RunError(f"the command of '{place}' was given in '{directory}', which is gone: give it again elsewhere")
    return command, directory
