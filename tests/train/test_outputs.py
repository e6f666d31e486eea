"""Output directories: one process at a time, and a result that cannot be saved is kept at a second place."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy.core import rescue
from understudy.core.errors import NoSpaceError, RunError
from understudy.core.rescue import save_or_rescue

BC = (
    "train",
    "bc",
    "--demos",
    "Pendulum",
    "--episodes",
    "2",
    "--rounds",
    "2",
    "--gradient-steps",
    "1",
    "--hidden",
    "4",
)
EXPERT = ("expert", "train", "Pendulum", "--steps", "32", "--seeds", "1", "--evaluate", "1", "--frequency", "16")
EXPERT += ("--batch-size", "8", "--random-steps", "16", "--sac.hidden", "4", "--sac.gradient-steps", "1")
HOLD = "import fcntl, os, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); f.write(str(os.getpid()))"
HOLD += "; f.flush(); print(flush=True); input()"


@pytest.fixture
def holder(tmp_path):
    """A function: another process holds the lock of an output. Ends with the test."""
    started = []

    def hold(name):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        other = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / name], stdin=-1, stdout=-1)
        started.append(other)
        other.stdout.readline()
        return other

    yield hold
    for other in started:
        other.kill()
        other.communicate()


@pytest.mark.parametrize("words", [BC, pytest.param(EXPERT, marks=pytest.mark.slow)])
def test_a_second_process_with_the_same_out_is_refused_until_the_first_dies(words, holder, understudy, tmp_path):
    other = holder("runs/mine.lock")
    status, out, err = understudy(*words, "--out", "runs/mine")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: 'runs/mine' is in use by another process (process {other.pid})")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine.lock"]
    other.kill()
    other.wait()
    assert understudy(*words, "--out", "runs/mine")[0] == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_a_lock_file_of_another_tool_is_left_alone(understudy, tmp_path):
    (tmp_path / "uv.lock").write_text("version = 1\n")
    status, out, err = understudy(*BC, "--out", "uv")
    assert (status, out) == (2, "")
    assert "'uv.lock' is not a lock file of understudy" in err
    assert (tmp_path / "uv.lock").read_text() == "version = 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["uv.lock"]


def test_temporary_files_of_killed_processes_are_removed_at_the_next_start(understudy, tmp_path):
    (tmp_path / ".mine.0123abcd.partial").mkdir()
    (tmp_path / ".mine.0123abcd.partial" / "config.json").write_text("half")
    (tmp_path / ".mine.checkpoint.npz.0123abcd.partial.npz").write_text("half")
    (tmp_path / ".mine.notes").write_text("mine")
    assert understudy(*BC, "--out", "mine")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.notes", "mine"]


def test_a_recording_does_not_replace_one_that_another_process_wrote_meanwhile(understudy, tmp_path, monkeypatch):
    from understudy.cli import demos_commands

    demonstrations = us.record("Pendulum", episodes=2)

    def record(*arguments, **options):
        (tmp_path / "d.npz").write_text("of the other process")
        return demonstrations

    monkeypatch.setattr(demos_commands, "record", record)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    status, _, err = understudy("demos", "record", "Pendulum", "--out", "d.npz")
    assert status == 2
    assert (tmp_path / "d.npz").read_text() == "of the other process"
    kept = re.search(r"it is saved in '(.*?)'", err)[1]
    np.testing.assert_array_equal(us.load(kept).observations, demonstrations.observations)
    assert "cp -r" not in err, "a copy would replace the other recording"
    status, _, err = understudy("demos", "record", "Pendulum", "--out", "d.npz")
    assert (status, "already exists" in err) == (2, True)


def failing(monkeypatch, error, name="mine"):
    """Let every rename to `name` fail, as in a directory that became read-only while a run trained."""
    rename = os.rename

    def rename_or_fail(source, target, **options):
        if Path(target).name == name and "cache" not in str(target) and "second" not in str(target):
            raise OSError(error, os.strerror(error), str(target))
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", rename_or_fail)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("words", [BC, pytest.param(EXPERT, marks=pytest.mark.slow)])
def test_a_result_that_cannot_be_saved_is_kept_at_a_second_place(words, error, understudy, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    failing(monkeypatch, error)
    status, _, err = understudy(*words, "--out", "runs/mine")
    assert status == 2
    line = err.splitlines()[-1]
    assert line.startswith(f"error: 'runs/mine' cannot be written ({os.strerror(error)}): it is saved in '")
    kept = Path(re.search(r"saved in '(.*?)'", line)[1])
    assert kept.is_relative_to(tmp_path / "cache")
    assert us.load_policy(kept) is not None
    monkeypatch.undo()
    command = re.search(r"to copy it: (cp -r \S+ \S+)", line)[1]
    (tmp_path / "runs").mkdir(exist_ok=True)
    subprocess.run(command.split(), check=True, cwd=tmp_path)
    assert us.load_policy(tmp_path / "runs/mine") is not None


def test_if_the_second_place_is_full_too_the_checkpoint_is_named(understudy, tmp_path, monkeypatch, every_round):
    monkeypatch.setattr(rescue, "second_places", lambda: iter([tmp_path / "file" / "below"]))
    (tmp_path / "file").write_text("not a folder")
    with monkeypatch.context() as patch:
        failing(patch, errno.ENOSPC)
        status, _, err = understudy(*BC, "--out", "runs/mine")
    assert status == 2
    assert "nor can the cache and the temporary folder; or `understudy train --resume runs/mine`" in err
    assert understudy("train", "--resume", "runs/mine")[0] == 0
    assert us.load_run("runs/mine").runs[0].status == "finished"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_is_full_at_the_end_keeps_the_result_elsewhere(understudy, tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        status, _, err = understudy(*BC[:-2], "--hidden", "256", "256", "--out", str(disk / "mine"))
        assert status == 2
        assert "cannot be written (No space left on device): it is saved in" in err.splitlines()[-1]
        kept = re.search(r"saved in '(.*?)'", err)[1]
        assert us.load_run(kept).runs[0].status == "finished"
        assert not (disk / "mine").exists()
        assert [path.name for path in disk.iterdir() if path.name.startswith(".")] == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_the_temporary_folder_is_used_if_the_cache_is_not_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(rescue, "second_places", lambda: iter([tmp_path / "file" / "x", tmp_path / "second"]))
    (tmp_path / "file").write_text("")

    def save(path):
        if path.parent.parent.name != "second":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_text("result")

    with pytest.raises(NoSpaceError, match=r"'mine\.npz' cannot be written") as error:
        save_or_rescue(save, "mine.npz", "and a hint")
    kept = Path(re.search(r"saved in '(.*?)'", str(error.value))[1])
    assert kept.read_text() == "result"
    assert str(error.value).endswith("; and a hint")
    assert not isinstance(error.value, OSError)
    with pytest.raises(RunError, match="nor can"):
        save_or_rescue(lambda path: os.mkdir("/proc/no"), "mine.npz")
