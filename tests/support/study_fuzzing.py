"""Attacks on the directory of a study: damage it, then show its status, write its report and run it."""

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.mutations import loaded
from support.study_directories import OWN, damage, make_directory, without_training
from understudy.cli.study_commands import report_command, status_command
from understudy.studies import Store, Study
from understudy.studies.running import Plan, run


def make_studies(folder: Path) -> list[Path]:
    """Two directories of the same study: with a program in progress, and with one that is trained but not stored."""
    folders = [folder / "in progress", folder / "trained"]
    for place, finished in zip(folders, (False, True), strict=True):
        place.mkdir()
        make_directory(place, finished)
    return folders


def quietly(call: Any, *names: str) -> tuple[object, str]:
    """The value of a call, or None for a named error, and what it printed. Warnings are single printable lines."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        value = loaded(call, *names)
    for line in err.getvalue().splitlines():
        assert line.isprintable(), repr(line)
        assert line.startswith(("warning: ", "two on ", "one on ")), line
    return value, out.getvalue() + err.getvalue()


def attack_study(valid: list[Path], folder: Path, seed: int) -> tuple[str, str]:
    """Damage a copy of a study, then show its status, write its report and run it.

    Returns the damage, and what happened. Sound cells and files of the user must stay as they are.
    """
    template, folder = valid[seed % len(valid)], folder / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    directory, names = folder / "study", ("study",)
    files = {path.name: path.read_bytes() for path in (directory / "cells").iterdir()}
    done = damage(folder, seed)
    sound = {
        name: data
        for name, data in files.items()
        if all(same(directory / "cells" / f"{name[:16]}{end}", files) for end in (".json", ".policy.npz"))
    }
    context = f"seed {seed}: {done}"
    try:
        shown, _ = quietly(lambda: status_command(str(directory)) or "shown", *names)
        written, _ = quietly(lambda: report_command(str(directory), clips=False) or "written", *names, "no run of")
        with without_training():
            summary, printed = quietly(lambda: run(Study.load(folder / "s.toml"), directory, progress=silent), *names)
        for name, data in sound.items():
            assert (directory / "cells" / name).read_bytes() == data, f"{name} was lost or changed"
        for name in OWN:
            assert (folder / name).read_text() == "mine", f"{name} was touched"
        if summary is not None and not summary.failed:
            plan, store = Plan.load(Study.load(folder / "s.toml")), Store(directory)
            assert not plan.missing(store), "a cell is missing after a run"
    except Exception as error:
        error.add_note(context)
        raise
    if summary is None:
        return done, "refused"
    if summary.failed:
        return done, "failed"
    went_on = "went on" if shown and written else "went on without a report"
    return done, "warned" if "warning: " in printed else went_on


def same(path: Path, files: dict[str, bytes]) -> bool:
    return path.is_file() and path.read_bytes() == files[path.name]


@contextlib.contextmanager
def silent(title: str) -> Iterator[Any]:
    yield lambda done, total, metrics: None
