"""A run that is interrupted, or dies, goes on from its checkpoint to the very same policies."""

import contextlib
import io
import itertools
import signal
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import test_cli
import test_loop
import understudy as us
from understudy.core import display
from understudy.core.errors import RunError
from understudy.train.checkpoints import Checkpoint

demonstrations, no_criterion, understudy = test_loop.demonstrations, test_loop.no_criterion, test_cli.understudy
Counting, counted = test_loop.Counting, test_loop.counted
TINY = {"rounds": 6, "steps": 2, "hidden": (8,), "batch_size": 8}
RUNS = {"seeds": 2, "episodes": [2, 5], "holdout": 0.0}


class EveryRound(Checkpoint):
    """The place is kept after each round, instead of now and then."""

    due = True


@pytest.fixture
def place(tmp_path):
    return tmp_path / "kept" / "place.npz"


@pytest.fixture
def every_round(monkeypatch):
    monkeypatch.setattr("understudy.train.imitate.Checkpoint", EveryRound)


def ctrl_c(at):
    """A progress callback that is interrupted once, when it is told of that round."""
    return lambda done, total, metrics: signal.raise_signal(signal.SIGINT) if done == at else None


def never(*args, **kwargs):
    pytest.fail("trained")


def assert_same(left, right):
    """Bitwise the same policies and metrics, and the same ends."""
    for ours, theirs in zip(left.policies, right.policies, strict=True):
        for a, b in zip(jax.tree.leaves(ours.policy), jax.tree.leaves(theirs.policy), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert {name: x.tobytes() for name, x in left.history.items()} == {
        name: x.tobytes() for name, x in right.history.items()
    }
    assert (left.runs, left.interrupted) == (right.runs, right.interrupted)


def test_an_interrupted_run_goes_on_to_the_same_policies(place):
    """In three sittings."""
    learn = partial(us.imitate, us.bc(**TINY), "Pendulum", **RUNS)
    first = learn(checkpoint=place, progress=ctrl_c(1))
    second = learn(checkpoint=place, progress=ctrl_c(3))
    assert (first.interrupted, second.interrupted) == (True, True)
    assert first.metrics["loss"].shape[1] < second.metrics["loss"].shape[1] < 6
    last = learn(checkpoint=place)
    assert_same(last, learn())
    assert last.history["loss"].shape == (4, 6)
    assert list(place.parent.iterdir()) == [place]


def test_the_time_of_earlier_sittings_counts(demonstrations, place, monkeypatch):
    """The first sitting's clock moves on with every look at it; the second's stands still."""
    ticks = itertools.count()
    monkeypatch.setattr("understudy.train.loop.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    us.imitate(Counting("never"), demonstrations, checkpoint=place, progress=ctrl_c(4))
    monkeypatch.setattr("understudy.train.loop.time", SimpleNamespace(perf_counter=lambda: 0.0))
    finished = us.imitate(Counting("never"), demonstrations, checkpoint=place)
    assert not finished.interrupted
    assert finished.config["seconds"] >= 1


def test_a_run_that_dies_goes_on_from_its_last_checkpoint(place, every_round):
    def dies(done, total, metrics):
        if done == 4:
            raise RuntimeError("no more power")

    learn = partial(us.imitate, us.bc(**TINY), "Pendulum", **RUNS)
    with pytest.raises(RuntimeError, match="no more power"):
        learn(checkpoint=place, progress=dies)
    told = []
    assert_same(learn(checkpoint=place, progress=lambda done, *_: told.append(done)), learn())
    assert told == [4, 5, 6]


def test_a_run_that_had_stopped_stays_as_it_was(demonstrations, place):
    learn = partial(us.imitate, Counting("done"), demonstrations, seeds=6)
    first = learn(checkpoint=place, progress=ctrl_c(5))
    stopped = [run.status.startswith("stopped") for run in first.runs]
    assert any(stopped)
    assert not all(stopped)
    assert all(
        run.status.startswith("interrupted after round") for run, s in zip(first.runs, stopped, strict=True) if not s
    )
    last = learn(checkpoint=place)
    rounds, limit = counted(last).T
    np.testing.assert_array_equal(rounds, limit)
    np.testing.assert_array_equal(counted(first)[stopped], counted(last)[stopped])
    assert_same(last, learn())


def test_a_run_that_had_diverged_keeps_its_last_good_round(demonstrations, place):
    learn = partial(us.imitate, Counting("nan"), demonstrations, seeds=6)
    learn(checkpoint=place, progress=ctrl_c(5))
    assert_same(learn(checkpoint=place), learn())


def test_a_finished_run_is_returned_at_once(demonstrations, place, every_round, monkeypatch):
    learn = partial(us.imitate, Counting("never"), demonstrations, seeds=3, checkpoint=place)
    finished = learn()
    monkeypatch.setattr("understudy.train.programs._round", never)
    assert_same(learn(progress=never), finished)


def test_a_short_run_leaves_no_checkpoint(demonstrations, place):
    us.imitate(Counting("never"), demonstrations, checkpoint=place)
    assert not place.exists()


def test_an_interruption_when_all_have_stopped_is_none(demonstrations, place):
    """Else the result would say interrupted, while no run's status does.

    `understudy train` then refuses to go on: the directory already holds a run.
    """
    seed = test_loop._seed_of_limit(5)
    result = us.imitate(Counting("done", earliest=1), demonstrations, seeds=[seed], progress=ctrl_c(5))
    assert result.runs[0].status == "stopped in round 5: it has counted far enough"
    assert not result.interrupted


def test_what_a_visit_keeps_of_a_round_outlives_it(demonstrations):
    """With a single lane, the states could be the very arrays that the next round donates."""
    kept = []
    us.imitate(Counting("never"), demonstrations, seeds=1, visit=lambda done, states: kept.append(states()))
    assert [float(state.rounds[0]) for state in kept] == list(range(1, 13))


OTHER = us.Demonstrations.from_arrays(np.ones((20, 1)), np.tile([0, 1], 10), [20])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"algorithm": Counting("never", rounds=13)}, "settings"),
        ({"algorithm": Counting("nan")}, "settings"),
        ({"seeds": [0, 2]}, "seeds"),
        # The demonstrations' sizes have an entry for each run, which must not count as other data.
        ({"seeds": 3}, "seeds"),
        ({"demonstrations": OTHER}, "demonstrations"),
        (
            {"algorithm": us.bc(**TINY), "demonstrations": OTHER, "seeds": [7, 8]},
            "settings and demonstrations and seeds",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_and_left_alone(changes, named, demonstrations, place):
    call = {"algorithm": Counting("never"), "demonstrations": demonstrations, "seeds": 2, "checkpoint": place}
    us.imitate(**call, progress=ctrl_c(4))
    before = place.read_bytes()
    with pytest.raises(RunError, match=rf"is a checkpoint of other {named}: remove it, or choose another place"):
        us.imitate(**(call | changes), progress=never)
    assert place.read_bytes() == before
    assert us.imitate(**call).history["loss"].shape == (2, 12)


@pytest.fixture
def kept(place):
    """A checkpoint as the loop would keep it."""
    checkpoint = Checkpoint(place, {"seeds": [1, 2]})
    checkpoint.save({"w": np.arange(6.0).reshape(2, 3)}, np.array([True, False]), {"active": np.ones((4, 2))}, 2.5)
    return checkpoint


def test_what_is_kept_is_what_is_found(kept):
    place = kept.load()
    assert place.leaves[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert place.active.tolist() == [True, False]
    assert (place.history["active"].shape, place.seconds) == ((4, 2), 2.5)


def test_another_version_of_the_format_is_refused(kept, monkeypatch):
    monkeypatch.setattr("understudy.train.checkpoints.FORMAT", 2)
    with pytest.raises(RunError, match="is a checkpoint of another version of understudy"):
        kept.load()


def archive(save, *args, **arrays):
    file = io.BytesIO()
    save(file, *args, **arrays)
    return file.getvalue()


def patched(data, offset, value):
    """The first entry of a zip's directory with another byte at that place of it."""
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
def test_a_damaged_file_is_a_named_error(damage, kept):
    kept.path.write_bytes(damage(kept.path.read_bytes()))
    with pytest.raises(RunError, match=r"place.npz' is not a checkpoint \(\w+\): remove it"):
        kept.load()


def test_a_half_written_file_never_appears(kept, monkeypatch):
    """The disk is full: the earlier checkpoint stays whole, and nothing lies beside it."""

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    before = kept.path.read_bytes()
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        kept.save({"w": np.zeros((2, 3))}, np.ones(2, bool), {}, 3.0)
    assert kept.path.read_bytes() == before
    assert list(kept.path.parent.iterdir()) == [kept.path]


def test_a_place_that_cannot_be_written_is_refused_before_training(demonstrations, tmp_path):
    with pytest.raises(RunError, match="is a directory, and a file is needed"):
        us.imitate(Counting("never"), demonstrations, checkpoint=tmp_path, progress=never)


WORDS = (
    *("train", "bc", "--demos", "Pendulum", "--seeds", "2", "--episodes", "2", "5", "--holdout", "0"),
    *("--rounds", "6", "--steps", "2", "--hidden", "8", "--batch-size", "8"),
)


@pytest.fixture
def interrupted_at(monkeypatch):
    def interrupt(at):
        @contextlib.contextmanager
        def bar(title):
            yield ctrl_c(at)

        monkeypatch.setattr(display, "progress_bar", bar)

    return interrupt


@pytest.mark.parametrize(
    "out",
    [
        "runs/mine",
        # The checkpoint must not go inside the directory, which would then not be free for the run.
        "runs/mine/",
    ],
)
def test_the_same_command_goes_on_after_ctrl_c(out, understudy, interrupted_at, tmp_path):
    words, runs = (*WORDS, "--out", out), tmp_path / "runs"
    interrupted_at(1)
    status, said, _ = understudy(*words)
    assert status == 130
    assert "to go on from there: understudy train --resume runs/mine\n" in said
    assert us.load_run("runs/mine").interrupted
    interrupted_at(3)
    assert understudy(*words)[0] == 130
    left = ["mine", "mine.checkpoint.npz", "mine.command.json", "mine.logs"]
    assert sorted(path.name for path in runs.iterdir()) == left
    interrupted_at(None)
    status, _, err = understudy(*words)
    assert (status, err) == (0, "Going on from runs/mine.checkpoint.npz\n")
    assert [path.name for path in runs.iterdir()] == ["mine"]
    assert [run.status for run in us.load_run("runs/mine").runs] == ["finished"] * 4
    assert understudy(*WORDS, "--out", "runs/whole")[0] == 0
    assert_same(us.load_run("runs/mine"), us.load_run("runs/whole"))


def test_another_command_does_not_go_on_and_takes_nothing_away(understudy, interrupted_at, tmp_path):
    interrupted_at(1)
    assert understudy(*WORDS)[0] == 130
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, out, err = understudy(*WORDS, "--lr", "0.1")
    assert (status, out) == (2, "")
    assert "error: 'runs/bc.checkpoint.npz' is a checkpoint of other settings" in err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    (tmp_path / "runs/bc.checkpoint.npz").unlink()
    status, _, err = understudy(*WORDS)
    assert status == 2
    assert "the directory 'runs/bc' already holds a run" in err
