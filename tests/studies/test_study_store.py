"""Where a study's cells are kept: whole or absent, once, whatever happens to the process or the disk."""

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import understudy
from understudy.core.errors import RunError
from understudy.policies.actor import Actor, load_policy
from understudy.studies import Store, cells, checksum_of, claims, key_of

CELLS = 60


def record(seed: int = 0, **changes: Any) -> dict[str, Any]:
    asked = {
        "algorithm": {"name": "bc", "preset": "default", "settings": {}, "hyperparameters": {"lr": 3e-4}},
        "task": {"env": "Pendulum", "demonstrations": "ab", "trajectories": 1, "expert": None},
        "seed": seed,
        "protocol": {"steps": None, "every": None, "rounds_every": None, "episodes": 2, "holdout": None},
    }
    return {
        "format": 1,
        "key": key_of(asked),
        "asked": asked,
        "shown": {"label": "bc — cloning", "demos": "bundled", "expert_return": -150.5},
        "rows": [{"x_kind": "final", "x": 1, "steps": None, "payoff": 0.1, "returns": [-150.25, -0.1]}],
        "status": "finished",
        "seconds": 1.5,
        "together": 2,
        "env_steps": None,
        "queries": None,
        "made": {"command": "understudy study run x.toml", "versions": {}, "date": "2026-01-01", "device": "cpu"},
        **changes,
    }


def row(**changes: Any) -> dict[str, Any]:
    return {**record()["rows"][0], **changes}


def test_a_cell_is_read_as_it_was_written(tmp_path: Path) -> None:
    store, one = Store(tmp_path / "s"), record()
    assert (store.has(one["key"]), store.keys(), store.all()) == (False, [], [])
    assert store.write(one)
    assert store.has(one["key"])
    found = Store(tmp_path / "s").read(one["key"])
    assert found == {**one, "checksum": checksum_of(one)}
    assert [cell["key"] for cell in store.all()] == [one["key"]]
    with pytest.raises(RunError, match="no cell 0123456789abcdef"):
        store.read("0123456789abcdef")
    with pytest.raises(RunError, match="not a cell's key"):
        store.read("../../etc/passwd")


def test_nothing_is_stored_twice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.write(record(seconds=1.0))
    assert not store.write(record(seconds=2.0))
    assert store.read(record()["key"])["seconds"] == 1.0


def test_the_policy_handed_over_is_kept_beside_its_cell(tmp_path: Path) -> None:
    actor = understudy.experts.bundled.load_expert("CartPole-v1")
    store = Store(tmp_path)
    store.write(record(), actor)
    kept = load_policy(store.policy_path(record()["key"]))
    assert isinstance(kept, Actor)
    assert kept([0.0, 0.1, 0.0, 0.1]) == actor([0.0, 0.1, 0.0, 0.1])
    assert len(store.all()) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": []}, "0 rows of the policy handed over"),
        ({"rows": [row(), row()]}, "2 rows of the policy handed over"),
        ({"rows": [row()], "status": "diverged in round 3"}, "1 rows of the policy handed over"),
        ({"rows": [row(returns=[1.0, float("nan")])]}, "not all finite"),
        ({"rows": [row(returns=[])]}, "no episode was played"),
        ({"rows": [row(payoff=float("inf"))]}, "not all finite"),
        ({"rows": [row(x_kind="epoch")]}, "x_kind is 'epoch'"),
        ({"seconds": float("nan")}, "cannot be stored"),
        ({"key": "0" * 16}, "its key"),
        ({"status": "interrupted after round 2 of 9"}, "its status is 'interrupted after round 2 of 9'"),
    ],
)
def test_what_is_not_a_finished_cell_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    store = Store(tmp_path)
    with pytest.raises(RunError, match=words):
        store.write(record(**changes))
    assert not list(store.cells.glob("*"))


def test_a_cell_that_diverged_has_no_policy_to_play(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.write(record(rows=[row(x_kind="env_steps", x=100)], status="diverged: not finite in round 3"))
    assert store.has(record()["key"])


@pytest.mark.parametrize("how", ["cut", "empty", "changed", "renamed", "list", "bytes"])
def test_a_damaged_cell_is_set_aside_and_counts_as_missing(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, one, two = Store(tmp_path), record(0), record(1)
    store.write(one)
    store.write(two)
    path = store.path(one["key"])
    text = path.read_text()
    damaged = {
        "cut": text[:100],
        "empty": "",
        "changed": text.replace("-150.25", "-950.25"),
        "renamed": store.path(two["key"]).read_text(),
        "list": "[1]",
        "bytes": "\0",
    }[how]
    path.write_text(damaged)
    assert not store.has(one["key"])
    (aside,) = store.quarantined
    assert aside.path.parent == tmp_path / "quarantine"
    assert aside.path.read_text() == damaged
    assert capsys.readouterr().err.count("\n") == 1
    assert [cell["key"] for cell in store.all()] == [two["key"]]
    assert store.write(one)
    assert store.read(one["key"])["rows"] == one["rows"]


def test_a_damaged_cell_is_replaced_when_it_is_written_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    store.path(record()["key"]).write_text("{")
    assert store.write(record())
    assert len(store.quarantined) == 1
    assert store.has(record()["key"])


def test_a_full_disk_leaves_finished_cells_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    for seed in range(3):
        store.write(record(seed))
    before = sorted(os.listdir(store.cells))

    def full(path: Path, text: str) -> None:
        path.write_text(text[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cells, "_write", full)
    with pytest.raises(RunError, match=r"no space left for cell .*: 3 finished cells are intact in") as error:
        store.write(record(7), understudy.experts.bundled.load_expert("CartPole-v1"))
    assert str(tmp_path) in str(error.value)
    assert sorted(os.listdir(store.cells)) == before
    monkeypatch.undo()
    assert len(store.all()) == 3
    assert store.write(record(7))


def test_a_directory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin({"name": "small", "title": "A small one"})
    store.write(record())
    about = json.loads((tmp_path / "study.json").read_text())
    assert about == {"format": 1, "study": {"name": "small", "title": "A small one"}}
    (tmp_path / "study.json").write_text(json.dumps({**about, "format": 2}))
    with pytest.raises(RunError, match="format 2, and this one knows format 1: upgrade understudy"):
        Store(tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        Store(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps(about))
    newer = {**record(), "format": 2}
    store.path(record()["key"]).write_text(json.dumps({**newer, "checksum": checksum_of(newer)}))
    with pytest.raises(RunError, match="upgrade understudy"):
        Store(tmp_path).has(record()["key"])
    assert store.path(record()["key"]).exists()


def test_a_changed_study_goes_on_in_its_directory_and_others_are_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.begin({"name": "small", "title": "one"})
    store.write(record())
    store.begin({"name": "small", "title": "two"})
    assert store.about() == {"format": 1, "study": {"name": "small", "title": "two"}}
    assert store.has(record()["key"])
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty, and no study"):
        Store(tmp_path).begin({"name": "small", "title": "one"})
    with pytest.raises(RunError, match="choose another with --out"):
        Store(tmp_path).check_own()
    with pytest.raises(RunError, match="is a file"):
        Store(tmp_path / "thesis.txt")


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    old, new = (store.cells / f".{record()['key']}.json.{name}.json" for name in ("old", "new"))
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (0, time.time() - 2 * cells.LEFT_OVER))
    assert len(store.all()) == 1
    store.begin({"name": "small", "title": "one"})
    assert (old.exists(), new.exists()) == (False, True)


def test_a_group_is_claimed_once(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    claim = store.claim("abc")
    assert claim is not None
    assert other.claim("abc") is None
    with claim:
        elsewhere = other.claim("def")
        assert elsewhere is not None
        elsewhere.release()
    again = other.claim("abc")
    assert again is not None
    again.release()


def test_the_claim_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "abc.lock"
    program = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    path.parent.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        assert Store(tmp_path).claim("abc") is None
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        claim = Store(tmp_path).claim("abc")
        assert claim is not None
        claim.release()
    finally:
        holder.kill()
        holder.stdout.close()
        holder.wait()


def test_without_locks_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "fcntl", None)
    with pytest.raises(RunError, match="needs file locks"):
        Store(tmp_path).claim("abc")


WRITER = """
import json, sys
from understudy.studies import Store
cells = json.load(open(sys.argv[2]))
store = Store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for cell in cells:
    store.write(cell)
"""


def writers(directory: Path, count: int) -> list[subprocess.Popen[str]]:
    """Processes that are ready to write the same cells to the same directory."""
    listed = directory.with_suffix(".json")
    listed.write_text(json.dumps([record(seed) for seed in range(CELLS)]))
    words = [sys.executable, "-c", WRITER, str(directory), str(listed)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(words, **pipes) for _ in range(count)]
    for writer in started:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    return started


def begin(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("\n")
    writer.stdin.flush()


def end(writer: subprocess.Popen[str], kill: bool = False) -> int:
    if kill:
        writer.kill()
    writer.communicate(timeout=60)
    return writer.returncode


def test_processes_that_write_the_same_cells_leave_one_of_each_though_some_are_killed(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    *killed, first, second = writers(directory, 4)
    for moment, writer in zip((0.005, 0.02), killed, strict=True):
        begin(writer)
        time.sleep(moment)
        end(writer, kill=True)
        store = Store(directory)
        assert len(store.all()) == len(store.keys())
        assert not store.quarantined
    before = {cell["key"]: cell for cell in Store(directory).all()}
    begin(first)
    begin(second)
    assert (end(first), end(second)) == (0, 0)
    store = Store(directory)
    assert len(store.all()) == CELLS
    assert not store.quarantined
    assert before.items() <= {cell["key"]: cell for cell in store.all()}.items()


def test_a_record_is_not_changed_by_storing_it(tmp_path: Path) -> None:
    one = record()
    before = copy.deepcopy(one)
    Store(tmp_path).write(one)
    assert one == before


def test_a_study_may_begin_in_several_processes_at_once(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def begin_it(store: Store, together: threading.Barrier) -> None:
        together.wait()
        try:
            store.begin({"name": "small", "title": "one"})
        except BaseException as error:  # noqa: BLE001 (a thread's errors are not the test's)
            failed.append(error)

    for number in range(40):
        together = threading.Barrier(3)
        stores = [Store(tmp_path / str(number)) for _ in range(3)]
        threads = [threading.Thread(target=begin_it, args=(store, together)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stores[0].about() == {"format": 1, "study": {"name": "small", "title": "one"}}
    assert failed == []
