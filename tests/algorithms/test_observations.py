"""Matching observations alone: nothing depends on the expert's actions, and whatever needs them says so."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.reward import (
    FIRST_LEARNER_ROW,
    INIT,
    STEPS_WITH_ENDS,
    UPDATE,
    demonstrations,
    recording,
    round_data,
    row_of,
)
from understudy.algorithms.reward.averages import mean_features
from understudy.core.errors import DemonstrationError, NeedsError, SettingError
from understudy.core.types import Dataset
from understudy.rl import SAC
from understudy.train.selection import held_out, held_out_payoff

SHAPES = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 32}
SHAPES |= {"sac": {"hidden": (8,), "gradient_steps": 2}}
DISCRIMINATOR = {"discriminator_hidden": (8,), "discriminator_steps": 2}
LEARNERS = {
    "adril": lambda match: us.adril.preset("observations", match=match, features=32, **SHAPES),
    "adril gaussian": lambda match: us.adril.preset("observations", match=match, kernel="gaussian", **SHAPES),
    "gail": lambda match: us.gail.preset("observations", match=match, **SHAPES, **DISCRIMINATOR),
    "hype": lambda match: us.hype(match=match, balanced=False, **SHAPES, **DISCRIMINATOR),
}


def trained(algorithm, given):
    """The state after two updates, and the metrics of the second."""
    data = given.split([given.episodes], 0.0)[0].of(0)
    state = INIT(algorithm, given.spec, data)
    for index in (0, 1):
        state, info = UPDATE(algorithm, state, round_data(data, STEPS_WITH_ENDS, index))
    return state, info.metrics


def equal(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in leaves)


CASES = [("adril", "obs"), ("adril", "obs-next"), ("adril gaussian", "obs"), ("gail", "obs-next"), ("hype", "obs")]


@pytest.mark.parametrize(("name", "match"), CASES)
def test_nothing_that_is_learned_depends_on_the_experts_actions(name, match):
    given, algorithm = demonstrations(), LEARNERS[name](match)
    assert algorithm.needs_actions is None
    garbage = np.random.default_rng(2).uniform(-2, 2, given.actions.shape).astype(np.float32)
    whole = trained(algorithm, given)
    assert equal(whole, trained(algorithm, replace(given, recorded_actions=garbage)))
    assert equal(whole, trained(algorithm, given.without_actions()))


def test_with_actions_the_same_settings_depend_on_them():
    given, algorithm = demonstrations(), LEARNERS["adril"]("obs-act")
    assert not equal(trained(algorithm, given), trained(algorithm, replace(given, recorded_actions=-given.actions)))


@pytest.mark.parametrize("name", ["adril", "gail"])
def test_an_unknown_next_observation_is_not_used(name):
    """The last one of each episode is unknown. What stands in its place changes nothing."""
    given = demonstrations()
    data = given.split([given.episodes], 0.0)[0].of(0)
    other = jnp.where(data.steps.known_next[:, None], data.steps.next_obs, 77.0)
    changed = Dataset(data.steps._replace(next_obs=other), data.size)
    algorithm, states = LEARNERS[name]("obs-next"), []
    for one in (data, changed):
        state = INIT(algorithm, given.spec, one)
        for index in (0, 1):
            state, info = UPDATE(algorithm, state, round_data(one, STEPS_WITH_ENDS, index))
        states.append((state, info.metrics))
    assert not equal(data.steps, changed.steps)
    assert equal(*states)


def test_the_experts_mean_is_over_the_steps_with_a_known_next_observation():
    given = demonstrations()
    data = given.split([given.episodes], 0.0)[0].of(0)
    kernel = INIT(LEARNERS["adril"]("obs-next"), given.spec, data).kernel
    known = np.asarray(data.steps.known_next)
    assert 0 < known.sum() < len(known)
    obs, after = (np.asarray(kernel.normalization.encode_obs(x)) for x in (data.steps.obs, data.steps.next_obs))
    np.testing.assert_allclose(kernel.points(data.steps), np.concatenate([obs, after], axis=1), atol=1e-6)
    expected = np.asarray(kernel.features(kernel.points(data.steps)))[known].mean(0)
    np.testing.assert_allclose(mean_features(kernel, data), expected, atol=1e-6)


@pytest.mark.parametrize("match", ["obs", "obs-next"])
def test_minibatches_have_only_steps_of_the_learner(match):
    given = demonstrations()
    data = given.split([given.episodes], 0.0)[0].of(0)
    algorithm = recording(match=match, kernel="features", features=16)
    state = INIT(algorithm, given.spec, data)
    _, info = UPDATE(algorithm, state, round_data(data, STEPS_WITH_ENDS, 1))
    assert set(row_of(info.metrics["sampled"])) == set(FIRST_LEARNER_ROW + np.arange(24))


@pytest.mark.parametrize("match", ["obs", "obs-next"])
def test_the_criterion_that_selects_policies_sees_the_same_part_of_a_step(match):
    given = us.load("Pendulum", episodes=5)
    garbage = replace(given, recorded_actions=given.actions[::-1].copy())
    one, other = (held_out(d.spec, *d.split([5], 0.1), 0, match) for d in (given, garbage))
    assert one.bandwidth == other.bandwidth
    np.testing.assert_array_equal(one.points, other.points)
    obs = one.obs
    assert one.points.shape[1] == (obs.shape[1] if match == "obs" else 2 * obs.shape[1])
    np.testing.assert_array_equal(one.points[:, : obs.shape[1]], obs)


def test_a_whole_run_returns_the_same_policy_and_payoff_without_actions():
    given = us.load("Pendulum", episodes=5)
    settings = {"rounds": 2, "round_steps": 16, "frequency": 8, "features": 16, "batch_size": 8}
    learner = us.adril.preset("observations", **settings, sac={"hidden": (8,), "gradient_steps": 1})
    results = [us.imitate(learner, d, "Pendulum", progress=False) for d in (given, given.without_actions())]
    assert equal(*(result.policy.policy for result in results))
    assert results[0].runs == results[1].runs
    assert np.isfinite(results[0].runs[0].payoff)
    criterion = held_out(given.spec, *given.split([5], 0.05), 0, "obs")
    assert held_out_payoff(results[0].policy, criterion) == 0  # both sides share their states


ALL = "match='obs' or 'obs-next', balanced=False, clone_steps=0 and sac.cloning_weight=0: choose preset 'observations'"
NEEDS = {
    "adril": (us.adril(), f"adril with match='obs-act' and demonstrations without actions needs {ALL}"),
    "adril obs": (
        us.adril(match="obs"),
        "needs balanced=False, clone_steps=0 and sac.cloning_weight=0: choose preset 'observations'",
    ),
    "adril balanced": (us.adril.preset("observations", balanced=True), "needs balanced=False: choose preset"),
    "gail": (us.gail(), "needs match='obs' or 'obs-next': choose preset 'observations'"),
    "gail clone": (us.gail.preset("observations", sac=SAC(cloning_weight=1.0)), "needs sac.cloning_weight=0: choose"),
    "hype": (us.hype(match="obs"), "needs balanced=False: choose adril or gail with preset 'observations'"),
} | {
    name: (getattr(us, name)(), f"{name} learns from the expert's actions, and the demonstrations have none: choose")
    for name in ("bc", "advil", "valuedice", "sqil", "iqlearn", "iqlearn_offline", "dagger", "daequil", "aggrevate")
}


@pytest.mark.parametrize("case", NEEDS)
def test_whatever_needs_actions_says_so_and_names_the_way_out(case):
    algorithm, words = NEEDS[case]
    given = us.load("Pendulum", episodes=2).without_actions()
    with pytest.raises(NeedsError) as error:
        us.imitate(algorithm, given, "Pendulum", expert="scripted", progress=False)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_demonstrations_without_any_next_observation_are_refused_for_obs_next():
    single = us.Demonstrations.from_arrays(np.eye(2, 3), None, [1, 1], ends="terminal")
    with pytest.raises(DemonstrationError, match=r"have none: pass next_observations$"):
        us.imitate(us.gail.preset("observations"), single, "Pendulum", progress=False)


def test_the_indicator_kernel_labels_whole_steps():
    with pytest.raises(SettingError, match=r"match is 'obs' and kernel is 'indicator'.*choose another kernel"):
        us.adril.preset("paper", match="obs")
    with pytest.raises(SettingError, match="match is 'act'"):
        us.gail(match="act")
