"""GAIL: the logistic loss and its rewards against numbers by hand, absorbing states, both players, both presets."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from test_adril import ENDS, FIRST_OWN, INIT, UPDATE, Watched, a_round, demonstrations, from_row, own_steps, side
from understudy.algorithms.reward.gail import FARTHEST, FORMS, UNSEEN, Discriminator, returns_spread, rewarded
from understudy.algorithms.reward.moments import Sides
from understudy.core.errors import SettingError
from understudy.core.types import Pair, Samples
from understudy.game.critics import LinearCritic, state_action
from understudy.policies import start
from understudy.policies.normalization import Normalization
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
    own, shown = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]), np.array([[0.5, 1.0, 0.0], [2.0, 0.0, -1.0]])
    d_own, d_shown = (1 / (1 + np.exp(-rows @ w)) for rows in (own, shown))
    wanted = -0.5 * np.log(1 - d_own).mean() - 1.5 * np.log(d_shown).mean()
    slope = 0.5 * (d_own[:, None] * own).mean(0) - 1.5 * ((1 - d_shown)[:, None] * shown).mean(0)
    value, gradient = jax.value_and_grad(us.gail().loss)(linear(*w), PAIR, jax.random.key(0))
    assert float(value) == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(gradient.weights, slope, rtol=1e-4)


def test_less_the_loss_is_the_payoff_less_a_regulariser_of_f():
    """f = log(1 − D), the learner's side of the loss: −L = U1 − E_E [ −f − log(1 − e^f) ]."""
    own, shown = np.log(1 - D[:7]), np.log(1 - D[7:])
    loss = -np.log(1 - D[:7]).mean() - np.log(D[7:]).mean()
    payoff, regulariser = own.mean() - shown.mean(), (-shown - np.log(1 - np.exp(shown))).mean()
    assert -loss == pytest.approx(payoff - regulariser)
    np.testing.assert_allclose(rewarded(jnp.array(G), "positive"), -np.log(1 - D), rtol=1e-5)


def test_rewards_grow_with_the_likeness_to_the_expert_and_have_the_sign_of_their_form():
    wanted = {"positive": -np.log(1 - D), "negative": np.log(D), "logit": np.log(D) - np.log(1 - D)}
    at_par = {"positive": np.log(2), "negative": -np.log(2), "logit": 0}
    for form in FORMS:
        found = np.asarray(rewarded(jnp.array(G), form))
        np.testing.assert_allclose(found, wanted[form], rtol=1e-4, atol=1e-5)
        assert (np.diff(found) > 0).all()
        assert found[6] == pytest.approx(at_par[form])
    assert (rewarded(jnp.array(G), "positive") > 0).all()
    assert (rewarded(jnp.array(G), "negative") < 0).all()


def test_the_gradient_penalty_asks_for_a_slope_of_its_target():
    key = jax.random.key(0)
    for weights, norm in (((0.6, 0.0, 0.8), 1.0), ((0.0, 3.0, 0.0), 3.0)):
        plain = us.gail(gradient_weight=0.0).loss(linear(*weights), PAIR, key)
        held = us.gail(gradient_weight=10.0, gradient_target=1.0).loss(linear(*weights), PAIR, key)
        assert float(held - plain) == pytest.approx(10 * (norm - 1) ** 2, abs=1e-4)


def test_rewards_are_divided_by_the_spread_of_returns_that_begin_anew_with_an_episode():
    reward, last = np.random.default_rng(0).normal(size=(2, 5)), np.zeros((2, 5), bool)
    last[0, 2] = True
    totals, running = np.zeros((2, 5)), np.zeros(2)
    for t in range(5):
        running = reward[:, t] + 0.9 * running
        totals[:, t] = running
        running = np.where(last[:, t], 0, running)
    assert float(returns_spread(jnp.array(reward), jnp.array(last), 0.9)) == pytest.approx(totals.std(), rel=1e-5)


# ------------------------------------------------------------------------------------------ f in a turn


@pytest.fixture(scope="module")
def shown():
    return demonstrations()


@pytest.fixture(scope="module")
def data(shown):
    return shown.split([4], 0.0)[0].of(0)


class Moving(Watched):
    """Shows what it was given, and takes a step along a policy gradient of the rewards, as long as its rate."""

    def improve(self, state, experience, progress, key):
        state, seen = super().improve(state, experience, progress, key)
        batch = seen["sampled"]

        def loss(actor):
            return -(actor.log_prob(start(), batch.obs, 0.5 * batch.act) * batch.reward).mean()

        step = jax.tree.map(lambda slope: -self.lr * slope, jax.grad(loss)(state.actor))
        return state._replace(actor=eqx.apply_updates(state.actor, step)), seen


def off_policy(lr=1e-3, **settings):
    given = {"rounds": 4, "round_steps": 24, "frequency": 12, "random_steps": 0, "batch_size": 2048}
    small = {"discriminator_hidden": (4,), "discriminator_steps": 60, "discriminator_lr": 0.03, "gradient_weight": 0.1}
    sac = Moving(hidden=(4,), discount=0.9, lr=lr)
    return us.gail.preset("sac", **given | small | settings, sac=sac)


@pytest.fixture(scope="module")
def moved(shown, data):
    """The states before a turn and after it, and what the player saw."""
    before = INIT(off_policy(), shown.spec, data)
    after, info = UPDATE(off_policy(), before, a_round(data, ENDS, 1))
    return before, after, SimpleNamespace(**info.metrics)


def test_steps_that_look_like_the_experts_are_paid_more(moved):
    before, after, saw = moved
    row, reward = from_row(saw.sampled), np.asarray(saw.sampled.reward)
    assert reward[row < FIRST_OWN].min() > 0.3 > -0.3 > reward[row >= FIRST_OWN].max()
    assert float(saw.discriminator_loss) < 2 * np.log(2)
    # Labels are those of the f that has moved already, and the turn's own steps have them too.
    np.testing.assert_allclose(saw.rolled.reward[0], after.moments.reward(jax.tree.map(lambda x: x[12:24], ENDS)))
    assert not np.allclose(saw.rolled.reward[0], before.moments.reward(jax.tree.map(lambda x: x[12:24], ENDS)))


def test_f_moves_in_every_turn(moved, data):
    before, _, _ = moved
    later, _ = UPDATE(off_policy(), before, a_round(data, ENDS, 1)._replace(update=jnp.asarray(1)))
    assert not np.array_equal(later.moments.logit.net.weights[0], before.moments.logit.net.weights[0])


def test_the_discriminator_is_not_moved_by_the_policys_gradient(moved, data):
    """However far that carries the policy."""
    _, after, _ = moved
    farther, _ = UPDATE(off_policy(lr=1.0), moved[0], a_round(data, ENDS, 1))
    apart = farther.player.actor.net.weights[-1] - after.player.actor.net.weights[-1]
    assert np.abs(apart).max() > 0.01
    for one, other in zip(jax.tree.leaves(farther.moments), jax.tree.leaves(after.moments), strict=True):
        np.testing.assert_array_equal(one, other)


def test_f_sees_standardised_states_within_bounds_and_actions_as_vectors(moved, data):
    before, _, _ = moved
    own = before.moments.samples(own_steps(1), weight=0.5)
    assert float(own.weight.sum()) == pytest.approx(0.5)
    np.testing.assert_array_equal(own.obs[:, 0], FARTHEST)  # a thousand steps from where the expert was
    seen = before.moments.samples(data.steps)
    np.testing.assert_allclose(seen.obs.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(seen.act, data.steps.act / 2, atol=1e-6)


# ------------------------------------------------------------------------------------------ absorbing states


def test_at_rest_the_logit_is_where_the_logistic_loss_is_smallest():
    """The expert is at rest for 6 of 40 steps, the learner for 14 of 50."""
    sides = Sides(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
    ours, theirs = 14 / 50 + UNSEEN, 6 / 40 + UNSEEN
    logit = np.log(theirs / ours)
    grid = logit + np.linspace(-1, 1, 201)
    assert np.argmin(ours * np.logaddexp(0, grid) + theirs * np.logaddexp(0, -grid)) == 100
    for form in FORMS:
        moments = Discriminator(None, None, None, jnp.asarray(2.0), jnp.zeros(()), form)
        wanted = float(rewarded(jnp.asarray(logit), form)) / 2
        assert float(moments.at_rest(sides, False)) == pytest.approx(wanted, rel=1e-4)
    # The other steps count by the time that is left of each side.
    alive, they_live = us.gail()._alive(sides)
    assert float(alive / they_live) == pytest.approx((36 / 50) / (34 / 40), rel=1e-5)
    assert float(alive + they_live) == pytest.approx(2)
    assert [float(x) for x in us.gail(absorbing=False)._alive(sides)] == [1, 1]


def test_an_absorbing_state_is_worth_its_reward_for_ever(moved, data):
    _, after, saw = moved
    sides = off_policy()._sides(after, a_round(data, ENDS, 1))
    ends = np.isin(from_row(saw.sampled), [3, FIRST_OWN + 13])
    assert ends.any()
    logit = np.log(6 / 40 + UNSEEN) - np.log(6 / 30 + UNSEEN)
    assert float(after.moments.at_rest(sides, False)) == pytest.approx(logit, rel=1e-4)
    np.testing.assert_allclose(saw.sampled.after, np.where(ends, logit / (1 - 0.9), 0), rtol=1e-4)
    np.testing.assert_array_equal(saw.sampled.continues, np.where(ends, 0, 1))


# ---------------------------------------------------------------------------------------------- whole runs


def test_a_run_with_sac_learns_from_both_sides(continuous):
    """With PPO, and with discrete actions, runs are those of test_protocol."""
    result = us.imitate(us.gail.preset("sac", **REPLAYED), continuous, env=us.make("Pendulum"))
    assert result.runs[0].status == "finished"
    assert 0 < result.runs[0].payoff < 2
    assert (result.metrics["discriminator_loss"] > 0).all()
    assert (result.metrics["critic_loss"] > 0).all()


def test_who_plays_depends_on_the_actions_only_with_sac(shown, data, discrete):
    steer = Normalization.fit(discrete.spec, discrete.split([4], 0.0)[0].of(0))
    swing = Normalization.fit(shown.spec, data)
    strong, plain = us.gail.preset("sac"), us.gail()
    assert [strong._player(frame) for frame in (steer, swing)] == [strong.soft_q, strong.sac]
    assert [plain._player(frame) for frame in (steer, swing)] == [plain.ppo, plain.ppo]


def test_the_presets_have_the_papers_numbers_and_the_defaults_of_imitation():
    plain, paper, strong = (us.gail.preset(name) for name in ("default", "paper", "sac"))
    for algorithm in (plain, paper):
        assert (algorithm.player, algorithm.envs, algorithm.schedule.steps_per_env) == ("ppo", 8, 1024)
        assert algorithm.schedule.capacity == algorithm.schedule.update_steps  # f looks at the turn's own steps alone
        assert (algorithm.expert_batch_size, algorithm.discriminator_steps) == (32, 2)
        assert (algorithm.discriminator_lr, algorithm.discriminator_hidden) == (1e-3, (32, 32))
        assert (algorithm.reward_form, algorithm.normalize_rewards) == ("positive", True)
        assert (algorithm.gradient_weight, algorithm.ppo.hidden) == (0, (256, 256))
        assert algorithm.rounds * algorithm.schedule.update_steps >= 500_000
    assert (plain.absorbing, plain.truncation_is_terminal) == (True, False)
    assert (paper.absorbing, paper.truncation_is_terminal) == (False, True)
    assert (strong.player, strong.absorbing, strong.gradient_weight, strong.gradient_target) == ("sac", True, 10, 1)
    assert (strong.reward_form, strong.normalize_rewards, strong.history) == ("logit", False, None)
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
def test_settings_that_make_no_sense_are_refused_by_name(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        us.gail(**settings)


def test_settings_of_who_does_not_play_are_refused():
    for settings, wanted in (
        ({"sac": {"lr": 1e-3}}, "sac is changed and player is 'ppo': choose player='sac'"),
        ({"soft_q": {"lr": 1e-3}}, "soft_q is changed and player is 'ppo'"),
        ({"player": "sac", "ppo": {"lr": 1e-3}}, "ppo is changed and player is 'sac': choose player='ppo'"),
    ):
        with pytest.raises(SettingError, match=wanted):
            us.gail(**settings)
    assert us.gail(player="sac", sac={"lr": 1e-3}).sac.lr == 1e-3
