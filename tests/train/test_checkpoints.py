"""A run that is interrupted, or dies, resumes from its checkpoint with bitwise the same result."""

import io
import itertools
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import understudy as us
from support.counting import Counting, counted, seed_with_limit
from support.mutations import loaded, mutated
from support.training import assert_same, ctrl_c, fail_if_called
from understudy.core.errors import RunError
from understudy.train.checkpoints import FORMAT, Checkpoint, _commit

TINY = {"rounds": 6, "gradient_steps": 2, "hidden": (8,), "batch_size": 8}
RUNS = {"seeds": 2, "episodes": [2, 3], "holdout": 0.0}


@pytest.fixture
def demonstrations():
    return us.Demonstrations.from_arrays(np.zeros((20, 1)), np.tile([0, 1], 10), [20])


@pytest.fixture(autouse=True)
def no_selection(monkeypatch):
    """Skip the held-out payoff, which compares policies that learn."""
    monkeypatch.setattr("understudy.train.final.held_out_payoff", lambda actor, data: 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "checkpoint.npz"


@pytest.fixture(scope="module")
def uninterrupted():
    """Behavioral cloning that is never interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.train.final.held_out_payoff", lambda actor, data: 0.0)
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
    assert sorted(path.parent.iterdir()) == [path, path.with_name("checkpoint.previous.npz")]


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


@pytest.fixture
def two_checkpoints(path, every_round):
    """A training call that was interrupted: its two checkpoints, of rounds 3 and 2."""
    learn = partial(us.imitate, us.bc(**TINY), "Pendulum", **RUNS, checkpoint=path)
    learn(progress=ctrl_c(3))
    return learn, path, path.with_name("checkpoint.previous.npz")


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(two_checkpoints, uninterrupted, capsys):
    learn, path, previous = two_checkpoints
    assert sorted(path.parent.iterdir()) == [path, previous]
    path.write_bytes(path.read_bytes()[:-100])
    before = previous.read_bytes()

    def stop(done, total, metrics):
        raise RuntimeError("no more power")

    with pytest.raises(RuntimeError, match="no more power"):  # before the next checkpoint is written
        learn(progress=stop)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"'{path}' is not a checkpoint (" in said
    assert f"resuming from '{previous}', after round 2" in said
    rounds = []
    result = learn(progress=lambda done, *_: rounds.append(done))
    assert rounds == [3, 4, 5, 6]
    assert_same(result, uninterrupted)
    assert previous.read_bytes() != before, "sound checkpoints are rotated again"


def test_a_lost_checkpoint_falls_back_to_the_one_before_and_says_so(two_checkpoints, uninterrupted, capsys):
    learn, path, previous = two_checkpoints
    path.unlink()
    rounds = []
    assert_same(learn(progress=lambda done, *_: rounds.append(done)), uninterrupted)
    assert rounds == [3, 4, 5, 6]
    assert f"no file '{path}': resuming from '{previous}', after round 2" in capsys.readouterr().err


def test_a_damaged_checkpoint_does_not_replace_the_one_before(two_checkpoints, monkeypatch):
    learn, path, previous = two_checkpoints
    path.write_bytes(b"damaged")
    before = previous.read_bytes()

    def dies(done, total, metrics):
        if done == 6:  # one checkpoint has been written, that of round 4 or 5
            raise RuntimeError("no more power")

    class Once(Checkpoint):
        due = property(lambda self: path.read_bytes() == b"damaged")

    monkeypatch.setattr("understudy.train.imitate.Checkpoint", Once)
    with pytest.raises(RuntimeError, match="no more power"):
        learn(progress=dies)
    assert path.read_bytes() != b"damaged"
    assert previous.read_bytes() == before


def test_two_damaged_checkpoints_are_one_error_that_says_what_to_do(two_checkpoints):
    learn, path, previous = two_checkpoints
    for file in (path, previous):
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(RunError, match="remove both to train from the beginning") as error:
        learn(progress=fail_if_called)
    assert f"'{path}'" in str(error.value)
    assert f"'{previous}'" in str(error.value)


def forged(data, **changes):
    """The checkpoint with other arrays and a digest that matches them; a function changes an array, None removes it."""
    arrays = dict(np.load(io.BytesIO(data)))
    del arrays["commit"]
    for name, change in changes.items():
        name = name.replace("__", ".")
        if change is None:
            del arrays[name]
        else:
            arrays[name] = change(arrays.get(name))
    arrays["commit"] = np.array(_commit(arrays))
    return archive(np.savez, **arrays)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"state__0": None}, "state.0"),
        ({"state__0": lambda x: x[:1]}, "state.0"),
        ({"state__0": lambda x: x.astype(np.float64)}, "float64"),
        ({"state__0": lambda x: x * np.nan}, "NaN"),
        ({"state__99": lambda _: np.zeros(3)}, "state.99"),
        ({"active": lambda x: np.ones(3, bool)}, "active"),
        ({"records__stop": lambda x: x + 99}, "records.stop"),
        ({"records__queries": lambda x: x - 1}, "records.queries"),
        ({"records__metrics__loss": None}, "metrics"),
        ({"records__metrics__loss": lambda x: x[:-1]}, "records.metrics.loss"),
        ({"records__metrics__loss": None, "records__metrics__lost": lambda _: np.zeros((3, 4), "f4")}, "metrics"),
        ({"about__json": lambda x: np.array(str(x).replace('"rounds": 3', '"rounds": 7'))}, "7 rounds of 6"),
    ],
)
def test_a_forged_checkpoint_does_not_fit_the_run(changes, named, two_checkpoints):
    """Its digest is correct, but its arrays are not those of the algorithm that resumes."""
    learn, path, previous = two_checkpoints
    path.write_bytes(forged(path.read_bytes(), **changes))
    previous.unlink()
    with pytest.raises(RunError, match=r"checkpoint\.npz") as error:
        learn()
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seed", range(24))
def test_a_mutated_checkpoint_resumes_correctly_or_is_a_named_error(seed, two_checkpoints, uninterrupted, capsys):
    learn, path, previous = two_checkpoints
    path.write_bytes(mutated(path.read_bytes(), "npz", seed)[1])
    if seed % 2:
        previous.unlink()
    result = loaded(learn, "checkpoint.npz")
    if result is None:
        assert seed % 2, "the one before was sound"
    else:
        assert_same(result, uninterrupted)


def test_a_checkpoint_is_refused_while_another_process_uses_it(path, demonstrations):
    path.parent.mkdir()
    script = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script, f"{path}.lock"], stdin=-1, stdout=-1) as other:
        other.stdout.readline()
        with pytest.raises(RunError, match=r"checkpoint\.npz' is in use by another process"):
            us.imitate(Counting("never"), demonstrations, checkpoint=path, progress=fail_if_called)
        other.kill()
    assert not us.imitate(Counting("never"), demonstrations, checkpoint=path).interrupted
    assert list(path.parent.iterdir()) == []


def test_a_checkpoint_that_cannot_be_written_does_not_end_training(
    path, every_round, uninterrupted, capsys, monkeypatch
):
    def full(file, **arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    result = us.imitate(us.bc(**TINY), "Pendulum", **RUNS, checkpoint=path)
    assert_same(result, uninterrupted)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"'{path}' cannot be written (No space left on device)" in said


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
    files = ["mine", "mine.checkpoint.npz", "mine.checkpoint.previous.npz", "mine.command.json", "mine.logs"]
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
