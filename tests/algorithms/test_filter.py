"""FILTER: f, its counts and the payoff see ordinary episodes alone, the RL player sees all; the two forms of f."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.envs import Drift
from support.reward import (
    FIRST_LEARNER_ROW,
    INIT,
    STEPS_WITH_ENDS,
    UPDATE,
    RecordingSAC,
    demonstrations,
    learner_steps,
    recording,
    round_data,
    row_of,
)
from understudy.algorithms.reward.moments import Counts, count_steps
from understudy.algorithms.reward.payoff import distance, feature_sum
from understudy.core.errors import SettingError

LATE = np.isin(np.arange(36), [*range(14, 22), *range(28, 36)])
"""The steps of two episodes that began at demonstrated steps: rows 14 to 21, of round 1, and 28 to 35, of round 2."""


def algorithm(**settings):
    """One update per round, minibatches that are large enough to contain every row, and an f that moves fast."""
    given = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 2048}
    small = {"discriminator_hidden": (4,), "discriminator_steps": 20, "discriminator_lr": 0.03}
    small |= {"discriminator_batch_size": 64, "gradient_weight": 0.1, "obs_scaling": "none"}
    return us.filter(**given | small | settings, sac=RecordingSAC(hidden=(4,), discount=0.9))


@pytest.fixture(scope="module")
def demos():
    return demonstrations()


@pytest.fixture(scope="module")
def data(demos):
    return demos.split([4], 0.0)[0].of(0)


def marked(data, steps=STEPS_WITH_ENDS, index=2, late=LATE):
    """The input of an update, with a mark of late episodes."""
    given, ordinary = round_data(data, steps, index), jnp.asarray(~late)
    rows = slice(12 * index, 12 * index + 12)
    return given._replace(replay=given.replay._replace(ordinary=ordinary), ordinary=ordinary[rows][None])


def weights(state):
    return np.asarray(state.moments.critic.net.weights[0])


def moved(learner, demos, data, row, index=2):
    """f after an update in which one of the learner's rows is another state."""
    obs = STEPS_WITH_ENDS.obs if row is None else STEPS_WITH_ENDS.obs.at[row, 1].add(5.0)
    state = INIT(learner, demos.spec, data)
    return weights(UPDATE(learner, state, marked(data, STEPS_WITH_ENDS._replace(obs=obs), index))[0])


def test_f_sees_the_ordinary_episodes_of_the_last_round(demos, data):
    plain = moved(algorithm(), demos, data, None)
    for row, seen in ((2, False), (13, True), (16, False), (22, True), (25, False), (30, False)):
        assert (not np.array_equal(plain, moved(algorithm(), demos, data, row))) == seen, row


def test_the_no_regret_form_sees_those_of_all_rounds_before(demos, data):
    learner = algorithm(f_rounds="all")
    plain = moved(learner, demos, data, None)
    for row, seen in ((2, True), (13, True), (16, False), (22, True), (25, False), (30, False)):
        assert (not np.array_equal(plain, moved(learner, demos, data, row))) == seen, row


def test_f_stays_as_it_is_if_no_ordinary_step_was_taken(demos, data):
    learner = algorithm()
    state = INIT(learner, demos.spec, data)
    after, info = UPDATE(learner, state, marked(data, late=np.ones(36, bool)))
    np.testing.assert_array_equal(weights(after), weights(state))
    assert np.isfinite(float(info.metrics["payoff"]))


def test_the_rl_player_learns_from_all_episodes(demos, data):
    learner = algorithm()
    _, info = UPDATE(learner, INIT(learner, demos.spec, data), marked(data))
    rows = set(row_of(info.metrics["sampled"]).tolist())
    assert rows >= {FIRST_LEARNER_ROW + row for row in range(36)}


def test_counts_are_those_of_ordinary_episodes(demos, data):
    """Row 13 terminates at time 3 of an ordinary episode. Row 21 ends a late one, and row 35 too."""
    learner = algorithm()
    state = INIT(learner, demos.spec, data)
    counts = Counts.of(marked(data), state.horizon)
    assert (counts.earlier.steps, counts.current.steps) == (24 - 8, 12 - 8)
    assert counts.earlier.absorbing_steps == 10 - 4
    late = learner_steps(3, terminal=[21])
    ended = marked(data, late)
    assert Counts.of(ended, state.horizon).earlier.absorbing_steps == 0
    assert count_steps(late, jnp.arange(36) < 24, 10).absorbing_steps != 0


def test_the_payoff_is_about_ordinary_episodes(demos, data):
    learner = algorithm()
    state = INIT(learner, demos.spec, data)
    given = marked(data)
    _, info = UPDATE(learner, state, given)
    kernel = state.payoff.kernel
    own = jax.tree.map(lambda x: x[None, 24:28], STEPS_WITH_ENDS)
    learner_mean = feature_sum(kernel, own) / 4
    expert = kernel.features(kernel.points(jax.tree.map(lambda x: x[data.evenly_spaced(512)], data.steps))).mean(0)
    shares = Counts.of(given, state.horizon)
    wanted = distance(learner_mean, expert, 0.0, shares.expert.absorbing_share)
    assert float(info.metrics["payoff"]) == pytest.approx(float(wanted), rel=1e-4)


def test_without_late_episodes_it_is_moment_matching(demos, data):
    """A mark on no step changes nothing."""
    learner = algorithm()
    state = INIT(learner, demos.spec, data)
    one, info = UPDATE(learner, state, marked(data, late=np.zeros(36, bool)))
    other, plain = UPDATE(learner, state, round_data(data, STEPS_WITH_ENDS, 2))
    np.testing.assert_allclose(weights(one), weights(other), rtol=1e-6)
    assert float(info.metrics["payoff"]) == pytest.approx(float(plain.metrics["payoff"]), rel=1e-6)


# ------------------------------------------------------------------------------------------ the other algorithms


@pytest.mark.parametrize("kernel", ["features", "gaussian"])
def test_adrils_f_sees_ordinary_episodes(demos, data, kernel):
    learner = recording(us.adril, kernel=kernel, start_share=0.5)
    state = INIT(learner, demos.spec, data)

    def reward(row):
        obs = STEPS_WITH_ENDS.obs.at[row, 1].add(5.0)
        after, _ = UPDATE(learner, state, marked(data, STEPS_WITH_ENDS._replace(obs=obs)))
        return np.asarray(after.moments.reward(data.steps))

    np.testing.assert_array_equal(reward(16), reward(30))
    assert not np.allclose(reward(16), reward(22))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gail", "sqil", "adril", "hype"])
def test_other_algorithms_take_a_start_share(name):
    learner = us.ALGORITHMS[name](**us.ALGORITHMS[name].small | {"start_share": 0.5})
    demos = us.record(Drift(), Drift().expert(), episodes=2)
    result = us.imitate(learner, demos, Drift(), progress=False)
    assert np.isfinite(result.metrics["payoff"]).all()


@pytest.mark.parametrize("index", [0, 2])
def test_gails_discriminator_stays_without_ordinary_steps(demos, data, index):
    learner = recording(us.gail, player="sac", envs=1, buffer_size=None, start_share=0.5, discriminator_hidden=(4,))
    state = INIT(learner, demos.spec, data)
    after, _ = UPDATE(learner, state, marked(data, index=index, late=np.ones(36, bool)))
    for a, b in zip(*(jax.tree.leaves(one.moments.logit) for one in (state, after)), strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan")])
def test_a_share_out_of_range_is_named(share):
    with pytest.raises(SettingError, match="start_share"):
        us.filter(start_share=share)


def test_algorithms_whose_f_cannot_tell_episodes_apart_refuse_it():
    with pytest.raises(SettingError, match=r"start_share.*IQ-Learn"):
        us.iqlearn(start_share=0.5)
    with pytest.raises(SettingError, match=r"start_share.*indicator"):
        us.adril(start_share=0.5, kernel="indicator")


def test_only_filter_begins_at_demonstrated_steps_by_default():
    shares = {name: getattr(cls(), "start_share", 0.0) for name, cls in us.ALGORITHMS.items()}
    assert {name for name, share in shares.items() if share} == {"filter"}
    assert us.filter.preset("no-regret").f_rounds == "all"
    assert us.filter().f_rounds == us.hype().f_rounds == "last"
