"""HyPE: the payoff of f against hand-computed numbers, the absorbing state as a point, hybrid minibatches."""

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
    RecordingSAC,
    demonstrations,
    learner_steps,
    round_data,
    row_of,
)
from understudy.core.errors import SettingError
from understudy.core.types import Pair, Samples
from understudy.game.critics import LinearCritic
from understudy.game.features import state_action


def linear(*weights):
    return LinearCritic(jnp.array(weights), state_action, None)


def points(rows):
    """Samples of one number of state, the mark of the absorbing state, and one action."""
    rows = jnp.array(rows)
    return Samples(jnp.zeros(len(rows), jnp.int32), rows[:, :2], rows[:, 2:], jnp.full(len(rows), 1 / len(rows)))


OWN, SHOWN = np.array([[1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]), np.array([[0.5, 0.0, 0.0], [0.0, 1.0, 0.0]])
PAIR = Pair(points(OWN), points(SHOWN))


def test_the_loss_is_the_experts_mean_minus_the_learners():
    """f is a cost, so f falls where the expert is; with a linear f the gradient is the difference of the means."""
    w = np.array([0.6, 0.0, 0.8])  # of norm 1, where the penalty is 0
    value, gradient = jax.value_and_grad(us.hype(gradient_weight=0.0).loss)(linear(*w), PAIR, jax.random.key(0))
    assert float(value) == pytest.approx((SHOWN @ w).mean() - (OWN @ w).mean(), rel=1e-5)
    np.testing.assert_allclose(gradient.weights, SHOWN.mean(0) - OWN.mean(0), rtol=1e-5)
    assert float(us.hype().loss(linear(*w), PAIR, jax.random.key(0))) == pytest.approx(float(value), abs=1e-4)


def test_the_gradient_penalty_has_its_weight_and_target():
    plain = us.hype(gradient_weight=0.0).loss(linear(0.0, 3.0, 0.0), PAIR, jax.random.key(0))
    for target, wanted in ((1.0, 4.0), (0.0, 9.0)):
        held = us.hype(gradient_weight=10.0, gradient_target=target).loss(
            linear(0.0, 3.0, 0.0), PAIR, jax.random.key(0)
        )
        assert float(held - plain) == pytest.approx(10 * wanted, rel=1e-4)


# ------------------------------------------------------------------------------------------------ f in a round


def algorithm(**settings):
    """One update per round, minibatches that are large enough to contain every row, and an f that moves fast."""
    given = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 2048}
    small = {"discriminator_hidden": (4,), "discriminator_steps": 60, "discriminator_lr": 0.03}
    small |= {"discriminator_batch_size": 64, "gradient_weight": 0.1, "obs_scaling": "none"}
    return us.hype(**given | small | settings, sac=RecordingSAC(hidden=(4,), discount=0.9))


@pytest.fixture(scope="module")
def demos():
    return demonstrations()


@pytest.fixture(scope="module")
def data(demos):
    return demos.split([4], 0.0)[0].of(0)


@pytest.fixture(scope="module")
def before(demos, data):
    return INIT(algorithm(), demos.spec, data)


@pytest.fixture(scope="module")
def rounds(before, data):
    """The states after rounds 0 and 2, each from the initial state, and what the player got in round 2."""
    first, _ = UPDATE(algorithm(), before, round_data(data, STEPS_WITH_ENDS, 0))
    third, info = UPDATE(algorithm(), before, round_data(data, STEPS_WITH_ENDS, 2))
    return first, third, info.metrics


def test_f_moves_once_there_is_a_round_of_the_learner(before, rounds):
    first, third, metrics = rounds
    for one, other in zip(jax.tree.leaves(before.moments), jax.tree.leaves(first.moments), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(before.moments.critic.net.weights[0], third.moments.critic.net.weights[0])
    assert float(metrics["discriminator_loss"]) < 0


def test_half_of_a_minibatch_is_the_experts_and_all_of_it_has_the_reward_of_now(data, rounds):
    _, third, metrics = rounds
    sampled, rows = metrics["sampled"], row_of(metrics["sampled"])
    assert (rows < FIRST_LEARNER_ROW).sum() == (rows >= FIRST_LEARNER_ROW).sum() == 1024
    for steps, own in ((data.steps, rows < FIRST_LEARNER_ROW), (STEPS_WITH_ENDS, rows >= FIRST_LEARNER_ROW)):
        table = np.asarray(third.moments.reward(steps))
        np.testing.assert_allclose(np.asarray(sampled.reward)[own], table[rows[own] % FIRST_LEARNER_ROW], rtol=1e-4)
    reward = np.asarray(sampled.reward)
    assert reward[rows < FIRST_LEARNER_ROW].mean() > reward[rows >= FIRST_LEARNER_ROW].mean() + 0.5


def test_f_learns_from_the_last_round_alone(before, data):
    """Whatever the learner did two rounds ago, or does now, changes nothing."""
    moved = []
    for row in (None, 2, 26, 14):
        obs = STEPS_WITH_ENDS.obs if row is None else STEPS_WITH_ENDS.obs.at[row, 1].add(5.0)
        after, _ = UPDATE(algorithm(), before, round_data(data, STEPS_WITH_ENDS._replace(obs=obs), 2))
        moved.append(np.asarray(after.moments.critic.net.weights[0]))
    np.testing.assert_array_equal(moved[0], moved[1])
    np.testing.assert_array_equal(moved[0], moved[2])
    assert not np.array_equal(moved[0], moved[3])


def test_rewards_are_clipped(before):
    steps, plain = learner_steps(1), before.moments
    wide = np.asarray(plain.reward(steps))
    assert np.abs(wide).max() > 0.02
    tight = np.asarray(replace(plain, clip=jnp.asarray(0.02)).reward(steps))
    np.testing.assert_allclose(tight, np.clip(wide, -0.02, 0.02), rtol=1e-6)
    assert float(plain.bound()) == 40


# ------------------------------------------------------------------------------------------ absorbing states


def test_the_absorbing_state_is_a_point_with_a_mark(before):
    moments = before.moments
    absorbed = jnp.arange(12) % 3 == 0
    found = moments.samples(learner_steps(1), absorbed)
    np.testing.assert_array_equal(found.obs[:, -1], absorbed)
    np.testing.assert_array_equal(found.obs[::3, :-1], 0)
    np.testing.assert_array_equal(found.act[::3], 0)
    assert (np.asarray(found.obs)[1::3, 0] != 0).all()
    value = moments.critic(found.t[0], found.obs[0], found.act[0])
    assert float(moments.absorbing_reward(None, True)) == pytest.approx(-float(value), rel=1e-5)


def test_a_side_is_in_the_absorbing_state_for_its_share_of_the_minibatch(before, data):
    big = algorithm(discriminator_batch_size=20_000)
    for share in (0.0, 0.25):
        drawn = big._draw(before.moments, data.sample, share, jax.random.key(0))
        assert float(drawn.obs[:, -1].mean()) == pytest.approx(share, abs=0.01)
        assert float(drawn.weight.sum()) == pytest.approx(1, rel=1e-4)


def test_the_learner_is_rewarded_for_ending_as_often_as_the_expert(before, data):
    """In round 2 f has seen round 1, whose learner is absorbed in 6 of 18 steps, the expert in 6 of 40. A learner that
    never ends is punished for that."""
    often, _ = UPDATE(algorithm(), before, round_data(data, STEPS_WITH_ENDS, 2))
    never, _ = UPDATE(algorithm(), before, round_data(data, learner_steps(3, ended=[9, 19, 29]), 2))
    ends = [float(state.moments.absorbing_reward(None, True)) for state in (often, never)]
    assert ends[0] < ends[1]


def test_terminal_steps_have_the_value_of_the_absorbing_state(rounds):
    _, third, metrics = rounds
    sampled = metrics["sampled"]
    ends = np.isin(row_of(sampled), [3, FIRST_LEARNER_ROW + 13])
    value = float(third.moments.absorbing_reward(None, True)) / (1 - 0.9)
    np.testing.assert_allclose(sampled.terminal_value, np.where(ends, value, 0), rtol=1e-4)
    np.testing.assert_array_equal(sampled.bootstrap, np.where(ends, 0, 1))


# -------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "settings",
    [
        {"discriminator_lr": 0.0},
        {"clip": -1.0},
        {"gradient_weight": -1.0},
        {"discriminator_steps": 0},
        {"discriminator_batch_size": 0},
        {"discriminator_hidden": (0,)},
        {"buffer_size": 1300},
    ],
)
def test_invalid_settings_are_named(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        us.hype(**settings)


def test_hype_and_gails_sac_have_the_same_rl_player():
    assert us.hype().sac == us.gail.preset("sac").sac
    assert us.hype().balanced
