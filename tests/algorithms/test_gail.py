"""GAIL: the loss and rewards against hand-computed numbers, absorbing states, both players, presets."""

from types import SimpleNamespace

import equinox as eqx
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
    side,
)
from understudy.algorithms.reward.discriminator import FORMS, MIN_SHARE, Discriminator, returns_std, reward_of
from understudy.algorithms.reward.moments import Counts
from understudy.core.errors import SettingError
from understudy.core.types import Pair, Samples
from understudy.game.critics import LinearCritic
from understudy.game.features import state_action
from understudy.policies import start
from understudy.policies.normalization import OBS_CLIP, Normalization
from understudy.rl import SAC

G = np.linspace(-6, 6, 13)
D = 1 / (1 + np.exp(-G))
REPLAYED = {
    "rounds": 2,
    "round_steps": 16,
    "frequency": 8,
    "expert_batch_size": 8,
    "discriminator_hidden": (8,),
    "random_steps": 4,
    "batch_size": 8,
    "discriminator_steps": 2,
    "sac": SAC(hidden=(8,), gradient_steps=2),
}


def linear(*weights):
    return LinearCritic(jnp.array(weights), state_action, None)


def points(rows, weight):
    """Samples of two numbers of state and one of action."""
    rows = jnp.array(rows)
    return Samples(jnp.zeros(len(rows), jnp.int32), rows[:, :2], rows[:, 2:], jnp.full(len(rows), weight / len(rows)))


PAIR = Pair(points([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]], 0.5), points([[0.5, 1.0, 0.0], [2.0, 0.0, -1.0]], 1.5))


# ------------------------------------------------------------------------------------------- loss and rewards


def test_the_loss_is_the_logistic_one_with_the_experts_steps_at_one():
    w = np.array([0.3, -0.2, 0.4])
    own, demos = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]), np.array([[0.5, 1.0, 0.0], [2.0, 0.0, -1.0]])
    d_own, d_shown = (1 / (1 + np.exp(-rows @ w)) for rows in (own, demos))
    wanted = -0.5 * np.log(1 - d_own).mean() - 1.5 * np.log(d_shown).mean()
    slope = 0.5 * (d_own[:, None] * own).mean(0) - 1.5 * ((1 - d_shown)[:, None] * demos).mean(0)
    value, gradient = jax.value_and_grad(us.gail().loss)(linear(*w), PAIR, jax.random.key(0))
    assert float(value) == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(gradient.weights, slope, rtol=1e-4)


def test_minus_the_loss_is_the_payoff_minus_a_regulariser_of_f():
    """f = log(1 − D), the learner's side of the loss: −L = U1 − E_E [ −f − log(1 − e^f) ]."""
    own, demos = np.log(1 - D[:7]), np.log(1 - D[7:])
    loss = -np.log(1 - D[:7]).mean() - np.log(D[7:]).mean()
    payoff, regulariser = own.mean() - demos.mean(), (-demos - np.log(1 - np.exp(demos))).mean()
    assert -loss == pytest.approx(payoff - regulariser)
    np.testing.assert_allclose(reward_of(jnp.array(G), "positive"), -np.log(1 - D), rtol=1e-5)


def test_rewards_increase_with_the_logit_and_have_the_sign_of_their_form():
    wanted = {"positive": -np.log(1 - D), "negative": np.log(D), "logit": np.log(D) - np.log(1 - D)}
    at_par = {"positive": np.log(2), "negative": -np.log(2), "logit": 0}
    for form in FORMS:
        found = np.asarray(reward_of(jnp.array(G), form))
        np.testing.assert_allclose(found, wanted[form], rtol=1e-4, atol=1e-5)
        assert (np.diff(found) > 0).all()
        assert found[6] == pytest.approx(at_par[form])
    assert (reward_of(jnp.array(G), "positive") > 0).all()
    assert (reward_of(jnp.array(G), "negative") < 0).all()


def test_the_gradient_penalty_is_zero_at_its_target():
    key = jax.random.key(0)
    for weights, norm in (((0.6, 0.0, 0.8), 1.0), ((0.0, 3.0, 0.0), 3.0)):
        plain = us.gail(gradient_weight=0.0).loss(linear(*weights), PAIR, key)
        held = us.gail(gradient_weight=10.0, gradient_target=1.0).loss(linear(*weights), PAIR, key)
        assert float(held - plain) == pytest.approx(10 * (norm - 1) ** 2, abs=1e-4)


def test_returns_restart_with_each_episode_in_the_reward_scale():
    reward, last = np.random.default_rng(0).normal(size=(2, 5)), np.zeros((2, 5), bool)
    last[0, 2] = True
    totals, running = np.zeros((2, 5)), np.zeros(2)
    for t in range(5):
        running = reward[:, t] + 0.9 * running
        totals[:, t] = running
        running = np.where(last[:, t], 0, running)
    assert float(returns_std(jnp.array(reward), jnp.array(last), 0.9)) == pytest.approx(totals.std(), rel=1e-5)


# ------------------------------------------------------------------------------------------ f in a turn


@pytest.fixture(scope="module")
def demos():
    return demonstrations()


@pytest.fixture(scope="module")
def data(demos):
    return demos.split([4], 0.0)[0].of(0)


class PolicyGradient(RecordingSAC):
    """Records its inputs, and takes one policy gradient step with its learning rate."""

    def improve(self, state, experience, progress, key):
        state, inputs = super().improve(state, experience, progress, key)
        batch = inputs["sampled"]

        def loss(actor):
            return -(actor.log_prob(start(), batch.obs, 0.5 * batch.act) * batch.reward).mean()

        step = jax.tree.map(lambda slope: -self.lr * slope, jax.grad(loss)(state.actor))
        return state._replace(actor=eqx.apply_updates(state.actor, step)), inputs


def off_policy(lr=1e-3, **settings):
    given = {"rounds": 4, "round_steps": 24, "frequency": 12, "random_steps": 0, "batch_size": 2048}
    small = {"discriminator_hidden": (4,), "discriminator_steps": 60, "discriminator_lr": 0.03, "gradient_weight": 0.1}
    sac = PolicyGradient(hidden=(4,), discount=0.9, lr=lr)
    return us.gail.preset("sac", **given | small | {"obs_scaling": "none"} | settings, sac=sac)


@pytest.fixture(scope="module")
def moved(demos, data):
    """The states before and after an update, and the inputs of the player."""
    before = INIT(off_policy(), demos.spec, data)
    after, info = UPDATE(off_policy(), before, round_data(data, STEPS_WITH_ENDS, 1))
    return before, after, SimpleNamespace(**info.metrics)


def test_steps_like_the_experts_have_a_higher_reward(moved):
    before, after, inputs = moved
    row, reward = row_of(inputs.sampled), np.asarray(inputs.sampled.reward)
    assert reward[row < FIRST_LEARNER_ROW].min() > 0.3 > -0.3 > reward[row >= FIRST_LEARNER_ROW].max()
    assert float(inputs.discriminator_loss) < 2 * np.log(2)
    # Labels are those of the f that has moved already, and the turn's own steps have them too.
    np.testing.assert_allclose(
        inputs.new_steps.reward[0], after.moments.reward(jax.tree.map(lambda x: x[12:24], STEPS_WITH_ENDS))
    )
    assert not np.allclose(
        inputs.new_steps.reward[0], before.moments.reward(jax.tree.map(lambda x: x[12:24], STEPS_WITH_ENDS))
    )


def test_f_moves_in_every_update(moved, data):
    before, _, _ = moved
    later, _ = UPDATE(off_policy(), before, round_data(data, STEPS_WITH_ENDS, 1)._replace(update=jnp.asarray(1)))
    assert not np.array_equal(later.moments.logit.net.weights[0], before.moments.logit.net.weights[0])


def test_the_discriminator_does_not_depend_on_the_policys_step(moved, data):
    _, after, _ = moved
    farther, _ = UPDATE(off_policy(lr=1.0), moved[0], round_data(data, STEPS_WITH_ENDS, 1))
    apart = farther.player.actor.net.weights[-1] - after.player.actor.net.weights[-1]
    assert np.abs(apart).max() > 0.01
    for one, other in zip(jax.tree.leaves(farther.moments), jax.tree.leaves(after.moments), strict=True):
        np.testing.assert_array_equal(one, other)


def test_f_gets_clipped_standardized_states_and_actions_as_vectors(moved, data):
    before, _, _ = moved
    own = before.moments.samples(learner_steps(1), weight=0.5)
    assert float(own.weight.sum()) == pytest.approx(0.5)
    np.testing.assert_array_equal(own.obs[:, 0], OBS_CLIP)  # far from the expert's states
    seen = before.moments.samples(data.steps)
    np.testing.assert_allclose(seen.obs.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(seen.act, data.steps.act / 2, atol=1e-6)


# ------------------------------------------------------------------------------------------ absorbing states


def test_the_logit_of_the_absorbing_state_minimises_the_loss():
    """The expert has 6 of 40 absorbing steps, the learner 14 of 50."""
    counts = Counts(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
    ours, theirs = 14 / 50 + MIN_SHARE, 6 / 40 + MIN_SHARE
    logit = np.log(theirs / ours)
    grid = logit + np.linspace(-1, 1, 201)
    assert np.argmin(ours * np.logaddexp(0, grid) + theirs * np.logaddexp(0, -grid)) == 100
    for form in FORMS:
        moments = Discriminator(None, None, None, jnp.asarray(2.0), jnp.zeros(()), form)
        wanted = float(reward_of(jnp.asarray(logit), form)) / 2
        assert float(moments.absorbing_reward(counts, False)) == pytest.approx(wanted, rel=1e-4)
    # The other steps are weighted by the remaining time of each side.
    learner, expert = counts.alive_weights
    assert float(learner / expert) == pytest.approx((36 / 50) / (34 / 40), rel=1e-5)
    assert float(learner + expert) == pytest.approx(2)


def test_the_value_of_the_absorbing_state_is_its_reward_over_one_minus_gamma(moved, data):
    _, after, inputs = moved
    counts = Counts.of(round_data(data, STEPS_WITH_ENDS, 1), after.horizon)
    ends = np.isin(row_of(inputs.sampled), [3, FIRST_LEARNER_ROW + 13])
    assert ends.any()
    logit = np.log(6 / 40 + MIN_SHARE) - np.log(6 / 30 + MIN_SHARE)
    assert float(after.moments.absorbing_reward(counts, False)) == pytest.approx(logit, rel=1e-4)
    np.testing.assert_allclose(inputs.sampled.terminal_value, np.where(ends, logit / (1 - 0.9), 0), rtol=1e-4)
    np.testing.assert_array_equal(inputs.sampled.bootstrap, np.where(ends, 0, 1))


# ---------------------------------------------------------------------------------------------- whole runs


@pytest.mark.slow
def test_a_run_with_sac_learns_from_both_sides(continuous):
    """test_protocol covers PPO and discrete actions."""
    result = us.imitate(us.gail.preset("sac", **REPLAYED), continuous, env=us.make("Pendulum"))
    assert result.runs[0].status == "finished"
    assert 0 < result.runs[0].payoff < 2
    assert (result.metrics["discriminator_loss"] > 0).all()
    assert (result.metrics["critic_loss"] > 0).all()


def test_the_player_depends_on_the_actions_only_with_sac(demos, data, discrete):
    steer = Normalization.fit(discrete.spec, discrete.split([4], 0.0)[0].of(0))
    swing = Normalization.fit(demos.spec, data)
    strong, plain = us.gail.preset("sac"), us.gail()
    assert [strong._player(normalization) for normalization in (steer, swing)] == [strong.soft_q, strong.sac]
    assert [plain._player(normalization) for normalization in (steer, swing)] == [plain.ppo, plain.ppo]


def test_the_presets_have_the_settings_of_the_paper_and_of_imitation():
    plain, paper, strong = (us.gail.preset(name) for name in ("default", "paper", "sac"))
    for algorithm in (plain, paper):
        assert (algorithm.player, algorithm.envs, algorithm.schedule.steps_per_env) == ("ppo", 8, 1024)
        assert algorithm.schedule.capacity == algorithm.schedule.update_steps  # f uses only the new steps
        assert (algorithm.expert_batch_size, algorithm.discriminator_steps) == (32, 2)
        assert algorithm.discriminator_lr == 1e-3
        assert (algorithm.reward_form, algorithm.normalize_rewards) == ("positive", True)
        assert (algorithm.gradient_weight, algorithm.ppo.hidden) == (0, (256, 256))
        assert algorithm.rounds * algorithm.schedule.update_steps >= 500_000
    assert (plain.discriminator_hidden, paper.discriminator_hidden) == ((32, 32), (256, 256))
    assert (plain.absorbing, plain.truncation_is_terminal) == (True, False)
    assert (paper.absorbing, paper.truncation_is_terminal) == (False, True)
    assert (strong.player, strong.absorbing, strong.gradient_weight, strong.gradient_target) == ("sac", True, 10, 1)
    assert (strong.reward_form, strong.normalize_rewards, strong.buffer_size) == ("logit", False, None)
    assert (strong.schedule.updates, strong.frequency, strong.sac) == (20, 64, us.sqil().sac)
    assert [a.preset_name for a in (plain, paper, strong)] == ["default", "paper", "sac"]


@pytest.mark.parametrize(
    "settings",
    [
        {"player": "trpo"},
        {"reward_form": "sigmoid"},
        {"discriminator_steps": 0},
        {"discriminator_lr": 0.0},
        {"gradient_weight": -1.0},
        {"random_steps": 100},
        {"staleness": 1},
        {"ppo": SAC()},
    ],
)
def test_invalid_settings_are_named(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        us.gail(**settings)


def test_settings_of_an_unused_player_are_refused():
    for settings, wanted in (
        ({"sac": {"lr": 1e-3}}, "sac is changed"),
        ({"soft_q": {"lr": 1e-3}}, "soft_q is changed"),
        ({"player": "sac", "ppo": {"lr": 1e-3}}, "ppo is changed"),
    ):
        with pytest.raises(SettingError, match=wanted):
            us.gail(**settings)
    assert us.gail(player="sac", sac={"lr": 1e-3}).sac.lr == 1e-3
