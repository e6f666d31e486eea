"""Which states a person is asked about."""

import numpy as np
import pytest

from understudy.console.choosing import choose_states
from understudy.core.types import Transition
from understudy.experts.respondent import AskedRound


def asked(obs: np.ndarray, candidates: np.ndarray) -> AskedRound:
    n = len(obs)
    flags, zeros = np.zeros(n, bool), np.zeros(n, np.int32)
    steps = Transition(zeros, obs, np.zeros((n, 1), np.float32), obs, flags, flags, flags, zeros)
    return AskedRound(1, steps, np.array([n]), np.zeros(n), candidates, False, 0)


KNOWN = np.array([[-1.0], [1.0]])
OBS = np.array([[0.9], [5.0], [5.1], [-4.0], [0.0]], np.float32)


def test_novelty_asks_far_from_known_and_from_chosen_states() -> None:
    chosen = choose_states(asked(OBS, np.arange(5)), KNOWN, 3, "novelty")
    assert chosen.rows.tolist() == [2, 3, 4]
    np.testing.assert_allclose(chosen.distances, [4.1, 3.0, 1.0], atol=1e-5)


@pytest.mark.parametrize("how", ["novelty", "spread"])
def test_only_candidates_are_asked_once_each(how: str) -> None:
    chosen = choose_states(asked(OBS, np.array([4, 0])), KNOWN, 10, how)
    assert sorted(chosen.rows.tolist()) == [0, 4]


def test_spread_asks_evenly() -> None:
    obs = np.arange(101, dtype=np.float32)[:, None]
    assert choose_states(asked(obs, np.arange(101)), KNOWN, 5, "spread").rows.tolist() == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("how", ["novelty", "spread"])
def test_nothing_is_asked_without_a_budget(how: str) -> None:
    assert len(choose_states(asked(OBS, np.arange(5)), KNOWN, 0, how).rows) == 0


def test_a_number_that_never_changes_counts_as_it_is() -> None:
    known = np.array([[0.0, 3.0], [1.0, 3.0]])
    obs = np.array([[0.5, 3.0], [0.5, 9.0]], np.float32)
    assert choose_states(asked(obs, np.arange(2)), known, 1, "novelty").rows.tolist() == [1]
