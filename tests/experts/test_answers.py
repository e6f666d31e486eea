"""Experts that misbehave: each mistake is one line that names the expert, what it returned and what is needed."""

import threading

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SpecError, WorkerError
from understudy.core.types import Spec
from understudy.experts.expert import Expert

STEERING = Spec((4,), us.Discrete(2), 10)
PUSHING = Spec((4,), us.Continuous((-1.0,), (1.0,)), 10)
OBS = np.zeros((3, 4), np.float32)


def clumsy(answer):
    """An expert that returns this answer."""

    def clumsy(*given):
        return answer

    return clumsy


WRONG = {
    "None": (None, "returned None for its actions: real numbers of shape (3,) are needed"),
    "text": ("left", "returned the text 'left' for its actions"),
    "texts": (["a", "b", "c"], "returned an array of <U1 of shape (3,) for its actions"),
    "complex": (np.zeros(3, complex), "returned an array of complex128 of shape (3,) for its actions"),
    "objects": (np.array([None, 1, 2]), "returned an array of object of shape (3,) for its actions"),
    "masked": (np.ma.masked_array(np.zeros(3), np.ones(3)), "returned an array with masked values for its actions"),
    "generator": ((i for i in range(3)), "returned a generator for its actions"),
    "ragged": ([[1], [2, 3], []], "returned a list of 3 values for its actions"),
    "shape": (np.zeros((3, 1)), "returned actions of shape (3, 1) for 3 observations: (3,) is needed"),
    "NaN": (np.array([0, np.nan, 1]), "returned 1 actions that are NaN or infinite"),
    "range": (np.array([0, 1, 7]), "returned 1 actions that are out of range, the first is 7"),
    "fraction": (
        np.array([0, 0.5, 1]),
        "returned 1 actions that are out of range, the first is 0.5: actions must be whole numbers from 0 to 1",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_action_is_named_when_it_is_queried_and_when_it_is_recorded(wrong):
    answer, words = WRONG[wrong]
    with pytest.raises(SpecError) as queried:
        Expert(clumsy(answer)).query(OBS, STEERING, np.random.default_rng(0))
    with pytest.raises(SpecError) as recorded:
        us.record("CartPole-v1", clumsy(answer), 3, workers=0)
    for error in (queried, recorded):
        assert f"the expert clumsy {words}" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", ["None", "text", "complex", "shape", "NaN"])
def test_a_wrong_value_is_named(wrong):
    answer, words = WRONG[wrong]
    with pytest.raises(SpecError) as queried:
        Expert(clumsy(0), values=clumsy(answer)).query_values(OBS, np.zeros(3))
    assert f"the expert's values clumsy {words}".replace("actions", "values") in str(queried.value)


def test_a_continuous_action_out_of_range_is_named_with_the_bounds():
    with pytest.raises(
        SpecError, match=r"clumsy returned 3 actions that are out of range, the first is 2: .* -1 to 1$"
    ):
        Expert(clumsy(np.full((3, 1), 2.0))).query(OBS, PUSHING, np.random.default_rng(0))


def broken(*given):
    raise KeyError("gear\nbox")


def test_what_an_expert_raises_is_one_line_with_its_name():
    with pytest.raises(WorkerError, match=r"^the expert broken raised KeyError: .* for 3 observations$"):
        Expert(broken).query(OBS, STEERING, np.random.default_rng(0))
    with pytest.raises(WorkerError, match=r"^the expert's values broken raised KeyError: .* for 3 observations$"):
        Expert(broken, values=broken).query_values(OBS, np.zeros(3))


def leaving(obs):
    raise SystemExit


def test_an_expert_that_exits_does_not_end_the_program():
    with pytest.raises(WorkerError, match=r"^the expert leaving raised SystemExit for 3 observations$"):
        Expert(leaving).query(OBS, STEERING, np.random.default_rng(0))


def test_an_expert_cannot_change_the_observations():
    def overwriting(obs, act=None):
        obs[:] = np.nan
        return np.zeros(len(obs), int)

    expert, obs = Expert(overwriting, values=overwriting), np.ones((3, 4), np.float32)
    expert.query(obs, STEERING, np.random.default_rng(0))
    expert.query_values(obs, np.zeros(3))
    assert (obs == 1).all()


def test_an_array_is_no_expert():
    with pytest.raises(SpecError, match="expert is a ndarray"):
        us.record("CartPole-v1", np.zeros(3), 1, workers=0)


@pytest.fixture
def slow():
    """An expert that does not answer until the test is over."""
    over = threading.Event()

    def thinking(*given):
        over.wait()
        return np.zeros(len(given[0]), int)

    yield thinking
    over.set()


def test_a_slow_answer_ends_the_wait_and_not_before(slow):
    late = r"thinking did not answer 3 observations within 0.1 s: .*--expert-timeout"
    with pytest.raises(WorkerError, match=late):
        Expert(slow, timeout=0.1).query(OBS, STEERING, np.random.default_rng(0))
    with pytest.raises(WorkerError, match=late):
        Expert(slow, values=slow, timeout=0.1).query_values(OBS, np.zeros(3))
    with pytest.raises(WorkerError, match=late):
        us.record("CartPole-v1", slow, 3, workers=0, expert_timeout=0.1)
    answers = Expert(clumsy(np.ones(3)), timeout=60).query(OBS, STEERING, np.random.default_rng(0))
    assert answers.tolist() == [1, 1, 1]
    with pytest.raises(WorkerError, match=r"broken raised KeyError"):
        Expert(broken, timeout=60).query(OBS, STEERING, np.random.default_rng(0))


def test_training_with_an_expert_that_does_not_answer_keeps_its_rounds(slow, tmp_path):
    demos = us.record("CartPole-v1", lambda obs: (obs[:, 2] > 0).astype(int), 1, workers=0)
    learner = us.dagger(rounds=2, gradient_steps=2, batch_size=8, episodes_per_round=1, hidden=(4,))
    place, calls = tmp_path / "run.checkpoint.npz", []

    def tiring(obs):  # it answers the trial call
        calls.append(len(obs))
        return slow(obs) if len(calls) > 1 else np.zeros(len(obs), int)

    with pytest.raises(WorkerError, match=r"did not answer \d+ observations within 0.1 s.*; the checkpoint .* is kept"):
        us.imitate(learner, demos, "CartPole-v1", tiring, checkpoint=place, workers=0, expert_timeout=0.1)
    assert place.exists()
    with pytest.raises(WorkerError, match=r"did not answer 3 observations within 0.1 s"):  # before training
        us.imitate(learner, demos, "CartPole-v1", slow, checkpoint=place, workers=0, expert_timeout=0.1)
