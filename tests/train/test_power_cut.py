"""Whatever a power cut leaves of a run's files, the run is complete or resumes from its last checkpoint."""

import json

import numpy as np
import pytest

import understudy as us
from support.power_cut import Journal, crashes
from support.training import EveryRound
from understudy.core.storage import atomic_file, remove_stale
from understudy.train import imitate
from understudy.train.checkpoints import Checkpoint

ROUNDS = 3
WORDS = ("train", "bc", "--demos", "Pendulum", "--episodes", "2", "--holdout", "0", "--out", "mine")
WORDS += ("--rounds", str(ROUNDS), "--gradient-steps", "1", "--hidden", "4", "--batch-size", "4")


@pytest.fixture
def recorded(request, understudy, interrupted_at, tmp_path, monkeypatch):
    """The journal of a training command with a checkpoint after each round, and its checkpoint object."""
    made = []

    class Marked(EveryRound):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

        def save(self, states, active, records, *rest):
            super().save(states, active, records, *rest)
            journal.mark(f"{len(records['active'])}")

    monkeypatch.setattr(imitate, "Checkpoint", Marked)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)
    journal = Journal(root)
    with journal.recording():
        if request.param:
            interrupted_at(1)
            assert understudy(*WORDS)[0] == 130
            interrupted_at(None)
        assert understudy(*WORDS)[0] == 0
        journal.mark("saved")
    return journal, made[0].identity


@pytest.mark.parametrize("recorded", [False, pytest.param(True, marks=pytest.mark.slow)], indirect=True)
def test_a_power_cut_at_any_operation_of_training_leaves_a_usable_state(recorded, tmp_path):
    """With one command, and with one that is interrupted, saves, resumes and then replaces the directory."""
    journal, identity = recorded
    found = {"nothing": 0, "checkpoint": 0, "run": 0}
    for crash in crashes(journal, tmp_path):
        folder, promised = crash.folder, [int(mark) for mark in crash.marks if mark != "saved"]
        remove_stale(folder / "mine")
        if (folder / "mine").exists():
            run = us.load_run(folder / "mine")
            if not run.interrupted:
                assert run.metrics["loss"].shape == (1, ROUNDS), crash.after
                found["run"] += 1
                continue
            assert (folder / "mine.checkpoint.npz").exists(), crash.after
        assert "saved" not in crash.marks, crash.after
        checkpoint = Checkpoint(folder / "mine.checkpoint.npz", {})
        checkpoint.identity = identity
        saved = checkpoint.load()
        rounds = 0 if saved is None else len(saved.records["active"])
        assert rounds >= max(promised, default=0), crash.after
        if saved is None:
            found["nothing"] += 1
        else:
            assert json.loads((folder / "mine.command.json").read_text())["command"] == list(WORDS[1:]), crash.after
            assert np.isfinite(saved.leaves[0]).all()
            found["checkpoint"] += 1
    assert min(found.values()) > 10, found


def contents_after(write, folder):
    """What a file that held "old" may hold after power cuts while it is written, and after it was promised."""
    (folder / "root").mkdir()
    path = folder / "root" / "file"
    path.write_text("old")
    journal = Journal(folder / "root")
    with journal.recording():
        write(path)
        journal.mark("written")
    before, after = set(), set()
    for crash in crashes(journal, folder):
        found = crash.folder / "file"
        (after if crash.marks else before).add(found.read_text() if found.exists() else None)
    return before, after


def test_the_simulation_finds_writes_that_are_not_atomic_or_not_synced(tmp_path):
    def in_place(path):
        path.write_text("new contents")

    def renamed_unsynced(path):
        path.with_name("other").write_text("new contents")
        path.with_name("other").replace(path)

    def atomic(path):
        with atomic_file(path) as partial:
            partial.write_text("new contents")

    found = {}
    for write in (in_place, renamed_unsynced, atomic):
        (tmp_path / write.__name__).mkdir()
        found[write.__name__] = contents_after(write, tmp_path / write.__name__)
    assert found["in_place"][1] == {"old", "new co", "new contents"}
    assert found["renamed_unsynced"][1] == {"old", "", "new co", "new contents"}
    assert found["atomic"] == ({"old", "new contents"}, {"new contents"})
