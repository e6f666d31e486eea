"""benchmarks/hidden_cases.py: cases with a known cause build, and their data have the fault that they name."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def planted():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import hidden_cases
    finally:
        sys.path.remove(str(BENCHMARKS))
    return hidden_cases


def test_time_limits_are_recorded_as_terminals_where_nothing_terminates(planted):
    case = planted.CASES["thermostat-terminal-at-the-limit"]()
    assert case["cause"] == "time-limit-as-terminal"
    demos = case["subject"]
    assert demos.terminals.sum() == demos.episodes
    assert (demos.lengths == case["arguments"]["env"].spec.horizon).all()
    assert not planted.record(case["arguments"]["env"], case["arguments"]["expert"], 3).terminals.any()


def test_terminals_are_missing_where_every_episode_terminates(planted):
    case = planted.CASES["mountain-car-without-terminals"]()
    assert case["cause"] == "missing-terminals"
    assert not case["subject"].terminals.any()
    assert case["facts"]["real terminals"] == case["subject"].episodes
    assert case["subject"].lengths.max() < case["subject"].horizon


def test_joined_demonstrations_keep_their_episodes(planted):
    one = planted.record(planted.Cart(), planted.stop_cart, 2)
    both = planted.joined([one, one])
    assert both.episodes == 4
    np.testing.assert_array_equal(both.observations[one.steps :], one.observations)
    np.testing.assert_array_equal(both.next_observations[: one.steps], one.next_observations)
