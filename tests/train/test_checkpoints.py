"""A run that is interrupted, or dies, resumes from its checkpoint with bitwise the same result."""

import io
import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import understudy as us
from support.counting import Counting, counted, seed_with_limit
from support.training import assert_same, ctrl_c, fail_if_called
from understudy.core.errors import RunError
from understudy.train.checkpoints import FORMAT, Checkpoint

TINY = {"rounds": 6, "gradient_steps": 2, "hidden": (8,), "batch_size": 8}
RUNS = {"seeds": 2, "episodes": [2, 3], "holdout": 0.0}


@pytest.fixture
def demonstrations():
    return us.Demonstrations.from_arrays(np.zeros((20, 1)), np.tile([0, 1], 10), [20])


@pytest.fixture(autouse=True)
def no_selection(monkeypatch):
    """Skip the held-out payoff, which compares policies that learn."""
    monkeypatch.setattr("understudy.train.imitate.held_out_payoff", lambda actor, data: 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "checkpoint.npz"


@pytest.fixture(scope="module")
def uninterrupted():
    """Behavioral cloning that is never interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.train.imitate.held_out_payoff", lambda actor, data: 0.0)
        return us.imitate(us.bc(**TINY), "Pendulum", **RUNS)


def test_a_run_that_was_interrupted_twice_resumes_to_the_same_policies(path, uninterrupted):
    learn = partial(us.imitate, us.bc(**TINY), "Pendulum", **RUNS)
    first = learn(checkpoint=path, progress=ctrl_c(1))
    second = learn(checkpoint=path, progress=ctrl_c(3))
    assert (first.interrupted, second.interrupted) == (True, True)
    assert first.metrics["loss"].shape[1] < second.metrics["loss"].shape[1] < 6
    last = learn(checkpoint=path)
    assert_same(last, uninterrupted)
    assert last.metrics["loss"].shape == (4, 6)
    assert list(path.parent.iterdir()) == [path]


def test_training_time_before_an_interruption_counts(demonstrations, path, monkeypatch):
    """A clock that ticks with every reading until the interruption, and stands still after it."""
    ticks = itertools.count()
    monkeypatch.setattr("understudy.train.loop.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    us.imitate(Counting("never"), demonstrations, checkpoint=path, progress=ctrl_c(4))
    monkeypatch.setattr("understudy.train.loop.time", SimpleNamespace(perf_counter=lambda: 0.0))
    finished = us.imitate(Counting("never"), demonstrations, checkpoint=path)
    assert not finished.interrupted
    assert finished.config["seconds"] >= 1


def test_a_run_that_dies_resumes_from_its_last_checkpoint(path, every_round, uninterrupted):
    def dies(done, total, metrics):
        if done == 4:
            raise RuntimeError("no more power")

    learn = partial(us.imitate, us.bc(**TINY), "Pendulum", **RUNS)
    with pytest.raises(RuntimeError, match="no more power"):
        learn(checkpoint=path, progress=dies)
    rounds = []
    assert_same(learn(checkpoint=path, progress=lambda done, *_: rounds.append(done)), uninterrupted)
    assert rounds == [4, 5, 6]


def test_a_run_that_had_stopped_does_not_resume(demonstrations, path):
    learn = partial(us.imitate, Counting("done"), demonstrations, seeds=6)
    first = learn(checkpoint=path, progress=ctrl_c(5))
    stopped = [run.status.startswith("stopped") for run in first.runs]
    assert any(stopped)
    assert not all(stopped)
    assert all(
        run.status.startswith("interrupted after round") for run, s in zip(first.runs, stopped, strict=True) if not s
    )
    last = learn(checkpoint=path)
    rounds, limit = counted(last).T
    np.testing.assert_array_equal(rounds, limit)
    np.testing.assert_array_equal(counted(first)[stopped], counted(last)[stopped])
    assert_same(last, learn())


def test_a_run_that_had_diverged_keeps_its_last_good_round(demonstrations, path):
    learn = partial(us.imitate, Counting("nan"), demonstrations, seeds=6)
    learn(checkpoint=path, progress=ctrl_c(5))
    assert_same(learn(checkpoint=path), learn())


def test_a_finished_run_is_returned_without_training(demonstrations, path, every_round):
    learn = partial(us.imitate, Counting("never"), demonstrations, seeds=3, checkpoint=path)
    finished = learn()
    assert_same(learn(progress=fail_if_called), finished)


def test_a_short_run_leaves_no_checkpoint(demonstrations, path):
    us.imitate(Counting("never"), demonstrations, checkpoint=path)
    assert not path.exists()


def test_ctrl_c_after_all_runs_have_stopped_does_not_interrupt(demonstrations, path):
    """Else `understudy train` would refuse to resume: no run's status is interrupted."""
    seed = seed_with_limit(5)
    result = us.imitate(Counting("done", earliest=1), demonstrations, seeds=[seed], progress=ctrl_c(5))
    assert result.runs[0].status == "stopped in round 5: it has counted far enough"
    assert not result.interrupted


def test_states_kept_by_a_visit_stay_valid(demonstrations):
    """With a single program, the states could be the arrays that the next round donates."""
    states = []
    us.imitate(Counting("never"), demonstrations, seeds=1, visit=lambda done, get: states.append(get()))
    assert [float(state.rounds[0]) for state in states] == list(range(1, 13))


OTHER = us.Demonstrations.from_arrays(np.ones((20, 1)), np.tile([0, 1], 10), [20])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"algorithm": Counting("never", rounds=13)}, "settings"),
        ({"algorithm": Counting("nan")}, "settings"),
        ({"seeds": [0, 2]}, "seeds"),
        # The sizes of the demonstrations have an entry for each run; they must not count as other data.
        ({"seeds": 3}, "seeds"),
        ({"demonstrations": OTHER}, "demonstrations"),
        (
            {"algorithm": us.bc(**TINY), "demonstrations": OTHER, "seeds": [7, 8]},
            "settings and demonstrations and seeds",
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_not_changed(changes, named, demonstrations, path):
    call = {"algorithm": Counting("never"), "demonstrations": demonstrations, "seeds": 2, "checkpoint": path}
    us.imitate(**call, progress=ctrl_c(4))
    before = path.read_bytes()
    with pytest.raises(RunError, match=f"other {named}:"):
        us.imitate(**(call | changes), progress=fail_if_called)
    assert path.read_bytes() == before


@pytest.fixture
def checkpoint(path):
    """A checkpoint as the loop would write it."""
    checkpoint = Checkpoint(path, {"seeds": [1, 2]})
    checkpoint.save({"w": np.arange(6.0).reshape(2, 3)}, np.array([True, False]), {"active": np.ones((4, 2))}, 2.5)
    return checkpoint


def test_a_checkpoint_is_read_as_it_was_written(checkpoint):
    saved = checkpoint.load()
    assert saved.leaves[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert saved.active.tolist() == [True, False]
    assert (saved.records["active"].shape, saved.seconds) == ((4, 2), 2.5)


def test_another_version_of_the_format_is_refused(checkpoint, monkeypatch):
    monkeypatch.setattr("understudy.train.checkpoints.FORMAT", FORMAT + 1)
    with pytest.raises(RunError, match="another version"):
        checkpoint.load()


def archive(save, *args, **arrays):
    file = io.BytesIO()
    save(file, *args, **arrays)
    return file.getvalue()


def patched(data, offset, value):
    """A zip archive with another byte at this offset of the first entry of its directory."""
    at = data.index(b"PK\x01\x02") + offset
    return data[:at] + value + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"not an archive",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace("identity".encode("utf-32-le"), "identify".encode("utf-32-le")),
        lambda data: archive(np.save, np.zeros(3)),
        lambda data: archive(np.savez, x=np.zeros(3)),
        # zipfile raises NotImplementedError and RuntimeError for these.
        lambda data: patched(data, 10, b"\x63"),
        lambda data: patched(data, 8, b"\x01"),
    ],
    ids=["empty", "text", "half", "bit rot", "an array", "another archive", "unknown compression", "encrypted"],
)
def test_a_damaged_file_is_a_named_error(damage, checkpoint):
    checkpoint.path.write_bytes(damage(checkpoint.path.read_bytes()))
    with pytest.raises(RunError, match=r"checkpoint\.npz"):
        checkpoint.load()


def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_partial_file(checkpoint, monkeypatch):

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    before = checkpoint.path.read_bytes()
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save({"w": np.zeros((2, 3))}, np.ones(2, bool), {}, 3.0)
    assert checkpoint.path.read_bytes() == before
    assert list(checkpoint.path.parent.iterdir()) == [checkpoint.path]


def test_a_path_that_cannot_be_written_is_refused_before_training(demonstrations, tmp_path):
    with pytest.raises(RunError, match="is a directory"):
        us.imitate(Counting("never"), demonstrations, checkpoint=tmp_path, progress=fail_if_called)


WORDS = (
    *("train", "bc", "--demos", "Pendulum", "--seeds", "2", "--episodes", "2", "3", "--holdout", "0"),
    *("--rounds", "6", "--gradient-steps", "2", "--hidden", "8", "--batch-size", "8"),
)


@pytest.mark.parametrize(
    "out",
    [
        "runs/mine",
        # The checkpoint must not be inside the directory, which would then not be free for the run.
        "runs/mine/",
    ],
)
def test_the_same_command_resumes_after_ctrl_c(out, understudy, interrupted_at, uninterrupted, tmp_path):
    words, runs = (*WORDS, "--out", out), tmp_path / "runs"
    for round_ in (1, 3):
        interrupted_at(round_)
        status, printed, _ = understudy(*words)
        assert status == 130
        assert "understudy train --resume runs/mine\n" in printed
        assert us.load_run("runs/mine").interrupted
    files = ["mine", "mine.checkpoint.npz", "mine.command.json", "mine.logs"]
    assert sorted(path.name for path in runs.iterdir()) == files
    interrupted_at(None)
    status, _, err = understudy(*words)
    assert status == 0
    assert "runs/mine.checkpoint.npz" in err
    assert [path.name for path in runs.iterdir()] == ["mine"]
    uninterrupted.save("whole")
    assert_same(us.load_run("runs/mine"), us.load_run("whole"))


def test_another_command_does_not_resume_and_changes_no_file(understudy, interrupted_at, tmp_path):
    interrupted_at(1)
    assert understudy(*WORDS)[0] == 130
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, out, err = understudy(*WORDS, "--lr", "0.1")
    assert (status, out) == (2, "")
    assert "'runs/bc.checkpoint.npz'" in err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    (tmp_path / "runs/bc.checkpoint.npz").unlink()
    status, _, err = understudy(*WORDS)
    assert status == 2
    assert "'runs/bc'" in err
