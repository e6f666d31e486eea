"""Atomic files and directories: whatever interrupts a write, the old contents or the new ones are there."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.core import paths, storage
from understudy.core.errors import RunError
from understudy.core.locks import claim_output
from understudy.core.storage import (
    append_text,
    atomic_directory,
    atomic_file,
    keep_copy,
    move_file,
    remove_files,
    remove_stale,
    write_json,
)

OWN = ("data.txt", "parts", "parts/*.txt")
# Replaces a directory with os.X replaced by a function that ends the process, or raises, at its n-th call. Prints how
# many calls there were.
INTERRUPTED = """
import os, sys
from pathlib import Path
from understudy.core import storage

target, step, how, exchange = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if exchange == "two-step":
    storage._LIBC = object()
calls = 0

def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == step:
            if how == "kill":
                os._exit(9)
            raise OSError(28, "No space left on device")
        return function(*arguments, **options)
    return call

for name in ("open", "mkdir", "rename", "replace", "fsync", "unlink", "rmdir", "link"):
    setattr(os, name, counted(getattr(os, name)))
try:
    with storage.atomic_directory(target, ("data.txt", "parts", "parts/*.txt")) as partial:
        (partial / "parts").mkdir()
        (partial / "data.txt").write_text("new")
        (partial / "parts" / "one.txt").write_text("new")
except OSError:
    pass
print(calls)
"""


def contents(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.rglob("*.txt")}


def old_run(folder: Path) -> Path:
    (folder / "parts").mkdir(parents=True)
    (folder / "data.txt").write_text("old")
    (folder / "parts" / "one.txt").write_text("old")
    return folder


def test_a_replaced_directory_survives_an_interruption_at_every_system_call(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    driver = tmp_path / "driver.py"
    # One interpreter imports understudy and forks a child for every step, which is quicker than an import for each.
    driver.write_text(
        f"""
import os, runpy, sys
import understudy.core.storage

def interrupted(folder, how, exchange):
    for step in range(1, 100):
        target = os.path.join(folder, f"run{{step}}")
        os.makedirs(os.path.join(target, "parts"))
        for name in ("data.txt", "parts/one.txt"):
            with open(os.path.join(target, name), "w") as file:
                file.write("old")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writing, 1)
            sys.argv = ["script", target, str(step), how, exchange]
            runpy.run_path({str(script)!r})
            sys.stdout.flush()
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        said = os.read(reading, 100).decode().strip()
        os.close(reading)
        if said and int(said) < step:
            break
    return step

for how in ("kill", "raise"):
    for exchange in ("one-step", "two-step"):
        folder = os.path.join({str(tmp_path)!r}, how, exchange)
        print(folder, interrupted(folder, how, exchange), flush=True)
"""
    )
    done = subprocess.run([sys.executable, "-P", driver], capture_output=True, text=True, check=True)
    cases = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert len(cases) == 4
    for folder, steps in cases:
        assert_old_or_new(Path(folder), int(steps))


def assert_old_or_new(folder: Path, steps: int) -> None:
    assert 10 < steps < 99
    for step in range(1, steps + 1):
        target = folder / f"run{step}"
        remove_stale(target)
        assert contents(target) in ({"old"}, {"new"}), f"{folder}: interrupted at system call {step}"
        assert sorted(path.name for path in folder.glob(f".run{step}.*")) == []
    assert contents(folder / f"run{steps}") == {"new"}


def test_a_directory_with_files_of_others_is_not_replaced_and_named(tmp_path):
    folder = old_run(tmp_path / "run")
    (folder / "manuscript.tex").write_text("mine")
    with pytest.raises(RunError, match=r"manuscript\.tex"), atomic_directory(folder, OWN):
        pytest.fail("the body must not run")
    assert contents(folder) == {"old"}
    assert (folder / "manuscript.tex").read_text() == "mine"


def test_a_file_that_appears_while_the_new_directory_is_written_survives(tmp_path):
    folder = old_run(tmp_path / "run")

    def replaced() -> None:
        with atomic_directory(folder, OWN) as partial:
            (partial / "data.txt").write_text("new")
            (folder / "notes.md").write_text("mine")

    with pytest.raises(RunError, match="notes"):
        replaced()
    assert (folder / "notes.md").read_text() == "mine"
    assert contents(folder) == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_link_in_a_directory_is_neither_followed_nor_replaced(tmp_path):
    outside, folder = tmp_path / "outside", old_run(tmp_path / "run")
    outside.mkdir()
    (outside / "precious.txt").write_text("mine")
    (folder / "link").symlink_to(outside)
    with pytest.raises(RunError, match="link"), atomic_directory(folder, OWN):
        pytest.fail("the body must not run")
    assert (outside / "precious.txt").read_text() == "mine"


def test_a_new_file_does_not_replace_one_that_appeared_meanwhile(tmp_path):
    path = tmp_path / "demos.npz"

    def written() -> None:
        with atomic_file(path, replace=False) as partial:
            partial.write_text("new")
            path.write_text("mine")

    with pytest.raises(RunError, match="already exists"):
        written()
    assert path.read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["demos.npz"]


def test_temporary_files_of_running_processes_stay_and_those_of_killed_ones_go(tmp_path):
    path = tmp_path / "run.checkpoint.npz"
    with atomic_file(path) as partial:
        dead = partial.with_name(".run.checkpoint.npz.0123abcd.partial.npz")
        dead.write_text("half")
        mine = tmp_path / ".run.notes"
        mine.write_text("mine")
        remove_stale(tmp_path / "run")
        assert partial.exists()
        assert not dead.exists()
        assert mine.exists()
        partial.write_text("whole")
    assert path.read_text() == "whole"


def test_only_own_files_of_a_directory_are_removed(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    for name in ("cells.json", "a.policy.npz", "notes.txt"):
        (work / name).write_text("x")
    (work / "link.policy.npz").symlink_to(work / "notes.txt")
    assert not remove_files(work, ("*.policy.npz", "cells.json"))
    assert sorted(entry.name for entry in work.iterdir()) == ["link.policy.npz", "notes.txt"]
    (work / "link.policy.npz").unlink()
    assert remove_files(work, ("*.txt",))
    assert not work.exists()


def test_text_is_appended_and_files_are_moved(tmp_path):
    append_text(tmp_path / "rows.csv", "1\n")
    append_text(tmp_path / "rows.csv", "2\n")
    move_file(tmp_path / "rows.csv", tmp_path / "kept" / "rows.csv")
    assert (tmp_path / "kept" / "rows.csv").read_text() == "1\n2\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


def test_a_written_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "file.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "file.json").stat().st_mode & 0o777 == 0o640


def test_a_second_writer_of_an_output_is_refused_and_the_lock_file_goes_with_the_first(tmp_path):
    out = tmp_path / "run"
    with claim_output(out), pytest.raises(RunError, match=f"process {os.getpid()}"):
        claim_output(out)
    assert list(tmp_path.iterdir()) == []
    with claim_output(out):
        pass


def test_a_second_name_replaces_an_old_one_and_the_file_is_never_absent(tmp_path, monkeypatch):
    newest, previous = tmp_path / "x.npz", tmp_path / "x.previous.npz"
    newest.write_text("3")
    previous.write_text("2")
    keep_copy(newest, previous)
    assert (newest.read_text(), previous.read_text()) == ("3", "3")
    keep_copy(newest, previous)  # both are the same file already
    newest.unlink()
    newest.write_text("4")
    link = os.link

    def no_links(*arguments, **options):
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", no_links)
    keep_copy(newest, previous)
    monkeypatch.setattr(os, "link", link)
    assert (newest.read_text(), previous.read_text()) == ("4", "4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz", "x.previous.npz"]


@pytest.mark.parametrize("kind", ["text", "link", "pipe", "folder"])
def test_a_lock_that_is_not_ours_is_refused_and_left_alone(kind, tmp_path):
    lock, notes = tmp_path / "uv.lock", tmp_path / "notes"
    notes.write_text("12 of mine\n")
    {
        "text": lambda: lock.write_text("12 packages\n"),
        "link": lambda: lock.symlink_to(notes),
        "pipe": lambda: os.mkfifo(lock),
        "folder": lock.mkdir,
    }[kind]()
    with pytest.raises(RunError, match=r"uv\.lock"):
        claim_output(tmp_path / "uv")
    assert notes.read_text() == "12 of mine\n"
    assert lock.is_symlink() or lock.exists()
    assert kind != "text" or lock.read_text() == "12 packages\n"


def test_a_lock_is_removed_at_the_end_with_the_folders_made_for_it(tmp_path):
    with claim_output(tmp_path / "a" / "b" / "run"):
        assert (tmp_path / "a" / "b" / "run.lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(RunError, match="in use by another process"):
            claim_output(tmp_path / "a" / "b" / "run")
    assert list(tmp_path.iterdir()) == []
    with claim_output(tmp_path / "a" / "run"):
        (tmp_path / "a" / "run").mkdir()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["run"]


def test_a_file_name_that_is_not_utf8_is_kept_in_json(tmp_path):
    name = os.fsdecode(b"d\xff.npz")
    write_json(tmp_path / "x.json", {"file": name})
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["file"] == name


def test_a_link_to_a_directory_is_refused_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    with pytest.raises(RunError, match="is a link: name the directory"):
        paths.check_new_directory(tmp_path / "link")


def test_a_path_below_a_link_to_nothing_is_refused_at_once(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RunError, match="is a link to nothing"):
        paths.check_file_path(tmp_path / "loop" / "file")


@pytest.mark.parametrize("path", [None, 3, b"bytes", ["a"], "a\0b", "x" * 300, "x" * 245])
def test_what_cannot_be_a_path_is_a_run_error(path):
    with pytest.raises(RunError):
        paths.check_new_directory(path)
    with pytest.raises(RunError):
        paths.check_file_path(path)


def test_a_file_of_the_user_is_not_taken_for_a_temporary_one(tmp_path):
    notes = tmp_path / ".run.chapters.partial.txt"
    notes.write_text("mine")
    storage.remove_stale(tmp_path / "run")
    assert notes.read_text() == "mine"


def test_only_a_file_that_begins_like_ours_is_ours(tmp_path):
    file = tmp_path / "table.csv"
    for text in ("", "a,", "a,b\n1,2\n"):  # a killed process may have written a part
        file.write_text(text)
        paths.check_own_file(file, "a,b")
    file.write_text("mine")
    with pytest.raises(RunError, match="is not a file that this command wrote"):
        paths.check_own_file(file, "a,b")
    (tmp_path / "link.csv").symlink_to("nothing")
    with pytest.raises(RunError, match="is not a file that this command wrote"):
        paths.check_own_file(tmp_path / "link.csv", "a,b")
