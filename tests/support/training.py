"""Interrupted and resumed training: callbacks, fixtures and a bitwise comparison of results."""

import contextlib
import signal

import jax
import numpy as np
import pytest

from understudy.core import display
from understudy.train.checkpoints import Checkpoint


class EveryRound(Checkpoint):
    """A checkpoint that is written after each round, instead of every 30 seconds."""

    due = True


@pytest.fixture
def every_round(monkeypatch):
    """Write a checkpoint after each round."""
    monkeypatch.setattr("understudy.train.imitate.Checkpoint", EveryRound)


def ctrl_c(at):
    """A progress callback that sends Ctrl-C once, after round `at`; never if it is None."""
    return lambda done, total, metrics: signal.raise_signal(signal.SIGINT) if done == at else None


@pytest.fixture
def interrupted_at(monkeypatch):
    """A function: commands that follow are interrupted after that round."""

    def interrupt(at):
        @contextlib.contextmanager
        def bar(title):
            yield ctrl_c(at)

        monkeypatch.setattr(display, "progress_bar", bar)

    return interrupt


def fail_if_called(*args, **kwargs):
    pytest.fail("trained")


def assert_same(left, right):
    """Results with bitwise equal policies and metrics, and equal runs."""
    for ours, theirs in zip(left.policies, right.policies, strict=True):
        for a, b in zip(jax.tree.leaves(ours.policy), jax.tree.leaves(theirs.policy), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert {name: x.tobytes() for name, x in left.metrics.items()} == {
        name: x.tobytes() for name, x in right.metrics.items()
    }
    assert (left.runs, left.interrupted) == (right.runs, right.interrupted)
