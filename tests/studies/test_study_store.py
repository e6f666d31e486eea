"""The store of a study: atomic writes, damaged files, full disks, locks, several processes."""

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
from understudy.core.storage import atomic_file
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy
from understudy.studies import Store, cells
from understudy.studies.records import FORMAT, cell_key, record_checksum

CELLS = 30


def make_record(seed: int = 0, **changes: Any) -> dict[str, Any]:
    config = {
        "algorithm": {"name": "bc", "preset": "default", "settings": {}, "hyperparameters": {"lr": 3e-4}},
        "task": {"env": "Pendulum", "demonstrations": "ab", "trajectories": 1, "expert": None},
        "seed": seed,
        "protocol": {"steps": None, "eval_every": None, "eval_every_rounds": None, "eval_episodes": 2, "holdout": None},
    }
    return {
        "format": FORMAT,
        "key": cell_key(config),
        "config": config,
        "display": {"label": "bc — cloning", "demos": "bundled", "expert_return": -150.5},
        "evaluations": [{"x_kind": "final", "x": 1, "steps": None, "payoff": 0.1, "returns": [-150.25, -0.1]}],
        "status": "finished",
        "seconds": 1.5,
        "runs_in_program": 2,
        "env_steps": None,
        "queries": None,
        "provenance": {"command": "understudy study run x.toml", "versions": {}, "date": "2026-01-01", "device": "cpu"},
        **changes,
    }


def make_row(**changes: Any) -> dict[str, Any]:
    return {**make_record()["evaluations"][0], **changes}


def test_a_cell_reads_back_unchanged(tmp_path: Path) -> None:
    store, one = Store(tmp_path / "s"), make_record()
    assert (store.has(one["key"]), store.keys(), store.read_all()) == (False, [], [])
    assert store.write(one)
    assert store.has(one["key"])
    found = Store(tmp_path / "s").read(one["key"])
    assert found == {**one, "checksum": record_checksum(one)}
    assert [cell["key"] for cell in store.read_all()] == [one["key"]]
    with pytest.raises(RunError, match="no cell 0123456789abcdef"):
        store.read("0123456789abcdef")
    with pytest.raises(RunError, match="passwd"):
        store.read("../../etc/passwd")


def test_a_stored_cell_is_never_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.write(make_record(seconds=1.0))
    assert not store.write(make_record(seconds=2.0))
    assert store.read(make_record()["key"])["seconds"] == 1.0


def test_the_final_policy_is_stored_with_its_cell(tmp_path: Path) -> None:
    actor = understudy.experts.bundled.load_expert("CartPole-v1")
    store = Store(tmp_path)
    store.write(make_record(), actor)
    kept = load_policy(store.policy_path(make_record()["key"]))
    assert isinstance(kept, Actor)
    assert kept([0.0, 0.1, 0.0, 0.1]) == actor([0.0, 0.1, 0.0, 0.1])
    assert len(store.read_all()) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"evaluations": []}, "0 final evaluations"),
        ({"evaluations": [make_row(), make_row()]}, "2 final evaluations"),
        ({"evaluations": [make_row()], "status": "diverged in round 3"}, "1 final evaluations"),
        ({"evaluations": [make_row(returns=[1.0, float("nan")])]}, "'returns' is nan"),
        ({"evaluations": [make_row(returns=[])]}, "final 1"),
        ({"evaluations": [make_row(payoff=float("inf"))]}, "'payoff' is inf"),
        ({"evaluations": [make_row(x_kind="epoch")]}, "x_kind is 'epoch'"),
        ({"seconds": float("nan")}, "cannot be stored"),
        ({"key": "0" * 16}, "its key"),
        ({"status": "interrupted after round 2 of 9"}, "interrupted after round 2 of 9"),
    ],
)
def test_records_of_unfinished_cells_are_rejected(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    store = Store(tmp_path)
    with pytest.raises(RunError, match=named):
        store.write(make_record(**changes))
    assert not list(store.cells.glob("*"))


def test_a_diverged_cell_is_stored_without_a_final_evaluation(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.write(make_record(evaluations=[make_row(x_kind="env_steps", x=100)], status="diverged in round 3"))
    assert store.has(make_record()["key"])


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "renamed", "list", "bytes"])
def test_a_damaged_cell_is_quarantined_and_counts_as_missing(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, one, two = Store(tmp_path), make_record(0), make_record(1)
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
    }[damage]
    path.write_text(damaged)
    assert not store.has(one["key"])
    (file,) = store.quarantined
    assert file.path.parent == tmp_path / "quarantine"
    assert file.path.read_text() == damaged
    assert f"cell {one['key']} is damaged" in capsys.readouterr().err
    assert [cell["key"] for cell in store.read_all()] == [two["key"]]
    assert store.write(one)
    assert store.read(one["key"])["evaluations"] == one["evaluations"]


def test_writing_a_damaged_cell_again_replaces_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(make_record())
    store.path(make_record()["key"]).write_text("{")
    assert store.write(make_record())
    assert len(store.quarantined) == 1
    assert store.has(make_record()["key"])


def test_a_full_disk_keeps_stored_cells_and_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    for seed in range(3):
        store.write(make_record(seed))
    before = sorted(os.listdir(store.cells))

    def full(path: Path, text: str) -> None:
        path.write_text(text[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cells, "_write", full)
    with pytest.raises(RunError, match=r"no space left for cell .* 3 finished cells") as error:
        store.write(make_record(7), understudy.experts.bundled.load_expert("CartPole-v1"))
    assert str(tmp_path) in str(error.value)
    assert sorted(os.listdir(store.cells)) == before
    monkeypatch.undo()
    assert len(store.read_all()) == 3
    assert store.write(make_record(7))


def test_directories_of_other_format_versions_are_rejected(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin({"name": "small", "title": "A small one"})
    store.write(make_record())
    about = json.loads((tmp_path / "study.json").read_text())
    assert store.read_study_file() == {"format": FORMAT, "study": {"name": "small", "title": "A small one"}}
    (tmp_path / "study.json").write_text(json.dumps({**about, "format": FORMAT + 1}))
    with pytest.raises(RunError, match=f"format {FORMAT + 1} .* format {FORMAT}: upgrade"):
        Store(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps({**about, "format": FORMAT - 1}))
    with pytest.raises(RunError, match=f"format {FORMAT - 1} .* --out"):
        Store(tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(RunError, match=r"study\.json"):
        Store(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps(about))
    newer = {**make_record(), "format": FORMAT + 1}
    store.path(make_record()["key"]).write_text(json.dumps({**newer, "checksum": record_checksum(newer)}))
    with pytest.raises(RunError, match=f"format {FORMAT + 1}"):
        Store(tmp_path).has(make_record()["key"])
    assert store.path(make_record()["key"]).exists()


def test_a_changed_study_keeps_its_cells_and_other_directories_are_rejected(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.begin({"name": "small", "title": "one"})
    store.write(make_record())
    store.begin({"name": "small", "title": "two"})
    assert store.read_study_file() == {"format": FORMAT, "study": {"name": "small", "title": "two"}}
    assert store.has(make_record()["key"])
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="--out"):
        Store(tmp_path).begin({"name": "small", "title": "one"})
    with pytest.raises(RunError, match="--out"):
        Store(tmp_path).check_directory()
    with pytest.raises(RunError, match=r"thesis\.txt"):
        Store(tmp_path / "thesis.txt")


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(make_record())
    old, note = store.cells / f".{make_record()['key']}.json.0123abcd.partial.json", store.cells / ".note.json"
    for path in (old, note):
        path.write_text("{")
    assert len(store.read_all()) == 1
    with atomic_file(store.policy_path(make_record()["key"])) as running:
        running.write_text("of a process that runs")
        store.begin({"name": "small", "title": "one"})
        assert (old.exists(), note.exists(), running.exists()) == (False, True, True)


def test_a_group_can_be_claimed_once(tmp_path: Path) -> None:
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


def test_the_claim_of_a_killed_process_is_released(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_lock_that_is_no_regular_file_is_an_error_and_other_files_stay(tmp_path: Path, kind: str) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "s" / "claims").mkdir(parents=True)
    lock = tmp_path / "s" / "claims" / "abc.lock"
    if kind == "link":
        lock.symlink_to(tmp_path / "thesis.tex")
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(RunError, match=r"abc\.lock'"):
        Store(tmp_path / "s").claim("abc")
    assert (tmp_path / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("name", cells.FOLDERS)
def test_a_folder_of_a_study_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / name).symlink_to("../mine")
    with pytest.raises(RunError, match=f"{name}' is a link"):
        Store(tmp_path / "s")
    assert not any((tmp_path / "mine").iterdir())


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


def start_writers(directory: Path, count: int) -> list[subprocess.Popen[str]]:
    """Start processes that wait to write the same cells to the same directory."""
    listed = directory.with_suffix(".json")
    listed.write_text(json.dumps([make_record(seed) for seed in range(CELLS)]))
    command = [sys.executable, "-c", WRITER, str(directory), str(listed)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(count)]
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


@pytest.mark.slow
def test_concurrent_writers_store_each_cell_once_even_if_some_are_killed(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    *killed, first, second = start_writers(directory, 4)
    for moment, writer in zip((0.005, 0.02), killed, strict=True):
        begin(writer)
        time.sleep(moment)
        end(writer, kill=True)
        store = Store(directory)
        assert len(store.read_all()) == len(store.keys())
        assert not store.quarantined
    before = {cell["key"]: cell for cell in Store(directory).read_all()}
    begin(first)
    begin(second)
    assert (end(first), end(second)) == (0, 0)
    store = Store(directory)
    assert len(store.read_all()) == CELLS
    assert not store.quarantined
    assert before.items() <= {cell["key"]: cell for cell in store.read_all()}.items()


def test_storing_a_record_does_not_modify_it(tmp_path: Path) -> None:
    one = make_record()
    before = copy.deepcopy(one)
    Store(tmp_path).write(one)
    assert one == before


def test_several_threads_can_begin_a_study_at_once(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def begin_it(store: Store, together: threading.Barrier) -> None:
        together.wait()
        try:
            store.begin({"name": "small", "title": "one"})
        except BaseException as error:  # noqa: BLE001 (an error in a thread does not fail a test)
            failed.append(error)

    for number in range(10):
        together = threading.Barrier(3)
        stores = [Store(tmp_path / str(number)) for _ in range(3)]
        threads = [threading.Thread(target=begin_it, args=(store, together)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stores[0].read_study_file() == {"format": FORMAT, "study": {"name": "small", "title": "one"}}
    assert failed == []
