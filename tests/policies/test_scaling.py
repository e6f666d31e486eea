"""Observations in other units: results of the default settings do not depend on them.

The factors are powers of two, near 1e-4 and 1e4: then float32 numbers scale exactly, and policies are equal to the bit.
"""

import numpy as np
import pytest

import understudy as us
from support.units import OtherUnits
from understudy.core.types import Dataset
from understudy.policies.normalization import FLOOR, OBS_CLIP, Normalization, Statistics

FACTORS = (2.0**-13, 2.0**13)
EPISODES = 4
SPACE = us.Continuous((-1.0,), (1.0,))
OFFLINE = {
    "bc": {"rounds": 2, "gradient_steps": 20, "hidden": (8,)},
    "advil": {"rounds": 2, "gradient_steps": 20, "hidden": (8,), "batch_size": 32},
    "valuedice": {"rounds": 2, "gradient_steps": 20, "hidden": (8,), "batch_size": 32},
}
ONLINE = {"rounds": 2, "round_steps": 64, "frequency": 16, "random_steps": 16, "batch_size": 32}


def fit(obs, scaling):
    demos = us.Demonstrations.from_arrays(obs, np.zeros((len(obs), 1)), action_space=SPACE)
    data = demos.split([1], 0.0).training
    return Normalization.fit(demos.spec, Dataset(data.steps, data.size[0]), scaling)


def rows(*columns):
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.float32)


NOISE = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("scaling", ["standardize", "scale"])
def test_a_change_of_units_changes_no_coordinate(scaling, factor):
    obs = rows(NOISE, 3 + 0.1 * NOISE[::-1], 5.0, 0.0)
    one, other = fit(obs, scaling).encode_obs(obs), fit(obs * factor, scaling).encode_obs(obs * factor)
    np.testing.assert_array_equal(one, other)


def test_standardized_numbers_have_unit_variance_and_constants_are_zero():
    obs = rows(NOISE, 100 + NOISE, 5.0, 0.0)
    found = np.asarray(fit(obs, "standardize").encode_obs(obs))
    np.testing.assert_allclose(found[:, :2].std(0), 1, rtol=1e-3)
    np.testing.assert_allclose(found[:, 2:], 0, atol=1e-3)


def test_noise_of_a_nearly_constant_number_is_not_blown_up():
    """Far below the other numbers, and far below its own size."""
    obs = rows(NOISE, 1e-7 * NOISE[::-1], 1000 + 1e-2 * NOISE[::-1])
    found = np.asarray(fit(obs, "standardize").encode_obs(obs))
    assert found[:, 1].std() < 1e-3
    assert found[:, 2].std() < 0.1


def test_where_the_expert_never_varied_the_learner_is_far_away_but_not_infinitely():
    obs = rows(NOISE, 0.0, 5.0)
    other = np.asarray([[0.0, 1.0, 6.0], [0.0, -1e9, 5.0]], np.float32)
    found = np.asarray(fit(obs, "standardize").encode_obs(other))[:, 1:]
    np.testing.assert_allclose(found, [[10, 10], [-10, 0]], atol=1e-3)
    assert OBS_CLIP == 10


def test_scale_divides_by_the_typical_size_and_removes_constants():
    obs = rows(2 * np.sign(NOISE), 4 * np.sign(NOISE), 8 * np.sign(NOISE), 1e6, 0.0)
    found = np.asarray(fit(obs, "scale").encode_obs(obs))
    # The root mean squares are 2, 4, 8 and 1e6, whose median is 6; a number that is always 0 does not count.
    np.testing.assert_allclose(np.abs(found[0]), [2 / 6, 4 / 6, 8 / 6, 0, 0], rtol=1e-6)


def test_the_papers_scaling_is_that_of_its_code():
    obs = rows(NOISE, 1e-4 * NOISE, 5.0)
    exact = obs.astype(np.float64)
    wanted = (exact - exact.mean(0)) / (exact.std(0) + 1e-3)
    np.testing.assert_allclose(fit(obs, "paper").encode_obs(obs), wanted, atol=2e-3)
    for algorithm in (us.advil, us.valuedice):
        assert algorithm.preset("paper").obs_scaling == "paper"
    for algorithm in (us.adril, us.sqil, us.gail):
        assert algorithm.preset("paper").obs_scaling == "none"


def test_statistics_of_zeros_are_finite():
    spec = us.Spec((2,), SPACE, 3)
    found = Statistics.of(spec, np.zeros((3, 2)), np.full((3, 1), 1 / 3))
    np.testing.assert_array_equal(found.scale, FLOOR)
    assert found.nearly_constant.all()


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", list(OFFLINE))
def test_offline_algorithms_learn_the_same_policy_in_other_units(name, factor):
    algorithm, obs = getattr(us, name)(**OFFLINE[name]), us.load("Pendulum").observations[:50]
    plain = us.imitate(algorithm, OtherUnits().demonstrations(EPISODES)).policy
    other = us.imitate(algorithm, OtherUnits(factor).demonstrations(EPISODES)).policy
    np.testing.assert_array_equal(plain(obs), other(obs * np.float32(factor)))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", ["adril", "sqil", "gail"])
def test_reward_algorithms_learn_the_same_policy_in_other_units(name, factor):
    settings = dict(ONLINE)
    algorithm = getattr(us, name)
    player = {"hidden": (8,), "gradient_steps": 2}
    if name == "gail":
        made = algorithm.preset("sac", **settings, sac=player, discriminator_hidden=(8,), expert_batch_size=8)
    else:
        made = algorithm(**settings, sac=player)
    obs, policies = us.load("Pendulum").observations[:50], []
    for units in (OtherUnits(), OtherUnits(factor)):
        result = us.imitate(made, units.demonstrations(EPISODES), env=units)
        policies.append(result.policy)
    np.testing.assert_array_equal(policies[0](obs), policies[1](obs * np.float32(factor)))
