"""The offline loop: runs that stop, diverge or are interrupted keep what they had, and the others go on."""

import signal

import numpy as np
import pytest

import understudy as us
from support.counting import Counting, counted, seed_with_limit
from understudy.core.errors import DivergedError


@pytest.fixture
def demonstrations():
    return us.Demonstrations.from_arrays(np.zeros((20, 1)), np.tile([0, 1], 10), [20])


@pytest.fixture(autouse=True)
def no_criterion(monkeypatch):
    """A counter is no policy to be judged."""
    monkeypatch.setattr("understudy.train.final.held_out_payoff", lambda actor, data: 0.0)


def test_runs_that_are_done_stop_while_the_others_go_on(demonstrations):
    result = us.imitate(Counting("done"), demonstrations, seeds=6)
    rounds, limit = counted(result).T
    np.testing.assert_array_equal(rounds, limit)
    assert len(set(limit)) > 1
    assert [run.status for run in result.runs] == [
        f"stopped in round {int(n)}: it has counted far enough" for n in limit
    ]
    assert result.metrics["loss"].shape[1] <= limit.max() + 1  # the loop ends when all are done
    for row, last in zip(result.metrics["loss"], limit.astype(int), strict=True):
        assert np.isfinite(row[:last]).all()
        assert np.isnan(row[last:]).all()


def test_a_run_that_diverges_keeps_its_last_good_round(demonstrations):
    result = us.imitate(Counting("nan"), demonstrations, seeds=6)
    rounds, limit = counted(result).T
    np.testing.assert_array_equal(rounds, limit - 1)
    for run, last in zip(result.runs, limit.astype(int), strict=True):
        assert run.status.startswith(f"diverged in round {last}: loss is NaN; ")
        assert run.status.endswith(f"; the policy of round {last - 1} is kept")


def test_if_nothing_ever_was_finite_it_is_an_error(demonstrations):
    with pytest.raises(DivergedError, match="every run diverged in round 1: loss is NaN"):
        us.imitate(Counting("nan", earliest=1, rounds=12), demonstrations, seeds=[seed_with_limit(1)])


def test_interruption_keeps_what_is_finished(demonstrations):
    def interrupt(done, total, metrics):
        if done == 4:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    result = us.imitate(Counting("never"), demonstrations, seeds=2, progress=interrupt)
    assert result.interrupted
    assert signal.getsignal(signal.SIGINT) is before
    rounds = counted(result)[:, 0]
    assert 4 <= rounds[0] < 12
    assert result.runs[0].status == f"interrupted after round {int(rounds[0])} of 12"
    assert result.metrics["loss"].shape == (2, int(rounds[0]))


def test_a_second_interruption_ends_it_at_once(demonstrations):
    def impatient(done, total, metrics):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        us.imitate(Counting("never"), demonstrations, progress=impatient)


def test_progress_is_told_every_round(demonstrations):
    told = []
    us.imitate(Counting("never"), demonstrations, seeds=2, progress=lambda *said: told.append(said))
    assert [done for done, _, _ in told] == list(range(1, 13))
    assert told[-1] == (12, 12, {"loss": 12.0})
