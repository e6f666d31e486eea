"""What a run that diverged says: the quantity that was not finite, in how many rows, and where first."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.envs import Walk
from understudy.collect.base import Collected
from understudy.core.errors import DivergedError, SettingError
from understudy.core.types import ActionValues, Continuous, Dataset, Spec, Transition
from understudy.envs.base import Environment, Timestep
from understudy.policies import Deterministic, Normalization
from understudy.train.divergence import Data, cause
from understudy.train.records import RoundRecord

SPEC = Spec((2,), Continuous((-1.0,), (1.0,)), 10)
ALGORITHM = us.bc()
TINY = {"rounds": 3, "gradient_steps": 2, "batch_size": 8, "hidden": (8,), "episodes_per_round": 2}
CRITIC = {"critic_steps": 2, "critic_hidden": (8,)}


class State(NamedTuple):
    normalization: Normalization
    weights: np.ndarray


def steps_of(count, **changes):
    obs, flags, numbers = np.ones((count, 2), np.float32), np.zeros(count, bool), np.arange(count, dtype=np.int32)
    steps = Transition(numbers, obs, np.ones((count, 1), np.float32), obs, flags, flags, flags, numbers)
    return steps._replace(**changes)


def state_of(std=1.0, weights=0.0):
    ones = np.ones(2, np.float32)
    return State(Normalization(0 * ones, std * ones, np.zeros(1), np.ones(1)), np.full(3, weights, np.float32))


def words(data, algorithm=ALGORITHM, loss=np.nan, state=None, update=None):
    record = RoundRecord({"loss": np.array([loss])}, *[np.zeros(1)] * 5)
    return cause(algorithm, SPEC, state_of() if state is None else state, record, 0, data, update)


def nan_at(array, *rows):
    array = np.array(array, np.float32)
    array[list(rows)] = np.nan
    return array


def test_collected_numbers_that_are_not_finite_are_counted_and_the_earliest_kind_is_named():
    demonstrated = steps_of(4)
    broken = steps_of(6, obs=nan_at(np.ones((6, 2)), 3, 4), next_obs=nan_at(np.ones((6, 2)), 2, 3, 4))
    assert words(Data(demonstrated, broken)) == (
        "loss is NaN; the environment's next observations are not finite at 3 of 6 collected steps, the first at t = 2"
    )
    answers = Data(demonstrated, steps_of(6), nan_at(np.ones((4, 1)), 1))
    assert "the expert's actions are not finite at 1 of 4 collected steps, the first at t = 1" in words(answers)
    rewards = Data(demonstrated, steps_of(6), rewards=np.array([0, 0, np.inf, 0, 0, 0]))
    assert words(rewards, loss=np.inf).startswith(
        "loss is infinite; the environment's rewards are not finite at 1 of 6"
    )


def test_moments_and_their_gradients_are_measured_at_the_collected_steps():
    obs = np.ones((6, 2), np.float32)
    obs[4:] = 0
    data = Data(steps_of(4), steps_of(6, obs=obs), np.ones((6, 1), np.float32))
    unit = us.daequil(moments=lambda o, a: o / jnp.linalg.norm(o))
    expected = "are not finite at 2 of 6 collected steps, the first at t = 4, with the learner's action"
    assert words(data, unit) == f"loss is NaN; the moments {expected}"
    root = us.daequil(moments=lambda o, a: jnp.sqrt(o))
    assert words(data, root) == f"loss is NaN; the gradients of the moments {expected}"
    answers = np.array([[1], [1], [-1], [1], [1], [1]], np.float32)
    logarithm = us.daequil(moments=lambda o, a: jnp.log(a))
    told = words(data._replace(answers=answers), logarithm)
    assert "the moments are not finite at 1 of 6 collected steps, the first at t = 2, with the expert's action" in told


def test_without_a_cause_in_the_data_the_array_of_the_state_and_the_range_of_observations_are_named():
    demonstrated = steps_of(4, obs=np.array([[1, 2], [3, -8], [0, 0], [1, 1]], np.float32))
    finite = "normalized observations reach 8 in dimension 1"
    assert words(Data(demonstrated)) == f"loss is NaN; {finite}"
    after = words(Data(demonstrated), loss=1.0, update=lambda: state_of(weights=np.inf))
    assert after == f"state.weights is not finite after the update; {finite}"
    before = words(Data(demonstrated), state=state_of(weights=np.nan))
    assert "state.weights is not finite before the update" in before
    assert "reach 8e+06 in dimension 1" in words(Data(demonstrated), state=state_of(std=1e-6))


def test_without_a_cause_in_the_data_the_size_of_the_users_moments_is_named():
    far = us.daequil(moments=lambda o, a: 1e30 * o)
    told = words(Data(steps_of(4), steps_of(6), np.ones((6, 1), np.float32)), far)
    assert told == "loss is NaN; normalized observations reach 1 in dimension 0; the moments reach 1e+30"


def test_the_data_of_a_round_are_its_real_rows():
    steps = steps_of(6, obs=nan_at(np.ones((6, 2)), 5))
    answered = np.arange(6) < 3
    rollouts = Dataset(steps, np.int32(5))
    values = ActionValues(np.ones((6, 1)), nan_at(np.ones(6), 1, 4))
    found = Data.of_episodes(steps_of(2), Collected(rollouts, answered=answered, action_values=values))
    assert len(found.collected.obs) == 5
    assert np.isfinite(found.collected.obs).all()
    assert found.answers.tolist() == pytest.approx([1, np.nan, 1], nan_ok=True)
    assert "the expert's action values are not finite at 1 of 3" in words(found)
    nothing = Collected(rollouts._replace(size=np.int32(0)), answered=answered & False)
    assert Data.of_episodes(steps_of(2), nothing).collected is None


def test_moments_that_are_not_finite_at_demonstrated_steps_are_refused_before_training():
    obs = np.ones((12, 4), np.float32)
    obs[[7, 11]] = 0
    demonstrations = us.Demonstrations.from_arrays(obs, np.zeros(12, int), [5, 7], action_space=us.Discrete(3))
    walk = Walk(jnp.ones((3, 4)))
    for make in (us.daequil, us.aggrevate):
        algorithm = make(moments=lambda o, a: o / jnp.linalg.norm(o))
        with pytest.raises(SettingError, match=r"at 2 of 12 demonstrated steps, the first at step 2 of episode 1"):
            us.imitate(algorithm, demonstrations, walk, expert=walk.expert())


class Faulty(Environment):
    """Ten steps; the fifth observation is zero, or NaN."""

    value: float = eqx.field(static=True, default=0.0)
    name: ClassVar[str] = "Faulty"
    about: ClassVar[str] = "an environment that breaks"

    @property
    def spec(self):
        return Spec((3,), us.Continuous((-1.0,), (1.0,)), 10)

    def reset(self, key):
        state = jax.random.normal(key, (3,))
        return (state, jnp.array(0)), state

    def step(self, state, act, key):
        new, t = 0.9 * state[0] + act, state[1] + 1
        return Timestep((new, t), jnp.where(t == 5, self.value, new), -jnp.sum(new**2), jnp.array(False))

    def expert(self):
        return Deterministic.init(jax.random.key(0), 3, 1, (8,), squash=True)


def demonstrations_of_faulty():
    obs = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    act = np.clip(-obs[:, :1], -1, 1)
    return us.Demonstrations.from_arrays(obs, act, [10] * 4, action_space=us.Continuous((-1.0,), (1.0,)))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["program", "host"])
def test_a_run_in_an_environment_says_what_was_not_finite_in_its_round(where):
    env = Faulty()
    expert = env.expert() if where == "program" else lambda obs: np.clip(-obs[:, :1], -1, 1)
    algorithm = us.daequil(**TINY, **CRITIC, moments=lambda o, a: o / jnp.linalg.norm(o))
    result = us.imitate(algorithm, demonstrations_of_faulty(), env, expert=expert, seeds=3)
    assert {run.status for run in result.runs} == {
        "diverged in round 2: loss is NaN; the moments are not finite at 2 of 20 collected steps, the first at t = 5, "
        "with the learner's action; the policy of round 1 is kept"
    }


@pytest.mark.slow
def test_steps_in_the_replay_buffer_are_measured_too():
    sac = {"hidden": (8,), "gradient_steps": 1}
    algorithm = us.adril(rounds=2, round_steps=16, frequency=8, random_steps=4, batch_size=8, sac=sac)
    with pytest.raises(DivergedError, match=r"next observations are not finite at 8 of 16 collected steps.* at t = 4"):
        us.imitate(algorithm, demonstrations_of_faulty(), Faulty(float("nan")))
