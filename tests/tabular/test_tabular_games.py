"""The exact games: payoffs equal those of the sampled games, and responses are best responses."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tabular import MOMENTS, moment_classes, random_game
from understudy.core.errors import SettingError, SpecError
from understudy.game import payoffs
from understudy.game.critics import TableCritic
from understudy.tabular import FiniteMDP, imitation_gap, mixture, occupancy, q_values
from understudy.tabular.games import Game
from understudy.tabular.moments import induced, kernel_ball, reward_box, span


@pytest.mark.parametrize("moments", MOMENTS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_payoffs_equal_those_of_the_sampled_games(moments, seed):
    """Σ w f and the payoff of the weighted pairs agree to 1e-12."""
    mdp, expert, learner, f = random_game(seed)
    game = Game(moments, mdp, expert)
    with jax.enable_x64(True):
        sampled = payoffs.payoff(TableCritic(jax.numpy.asarray(f)), game.pair(learner))
    assert float(game.payoff(learner, f)) == pytest.approx(float(sampled), abs=1e-12)
    assert abs(float(game.payoff(expert, f))) < 1e-12


@pytest.mark.parametrize("moments", MOMENTS)
def test_the_gap_is_a_payoff(moments):
    """U at f = −r, −Q^π, −Q^{π_E} is the gap over T."""
    mdp, expert, learner, reward = random_game(3)
    f = {"reward": reward, "off-Q": q_values(mdp, reward, learner), "on-Q": q_values(mdp, reward, expert)}[moments]
    gap = float(imitation_gap(mdp, reward, expert, learner))
    assert float(Game(moments, mdp, expert).payoff(learner, -np.asarray(f))) == pytest.approx(gap / 6, abs=1e-12)


@pytest.mark.parametrize("name", ["reward", "stationary", "q", "induced", "span", "kernel"])
def test_the_best_response_of_a_class_is_its_supremum(name):
    """`best` has the payoff `sup`, and no function of the class has a larger one."""
    mdp, expert, learner, _ = random_game(5)
    moments, w = moment_classes(mdp, expert)[name], Game("reward", mdp, expert).difference(learner)
    best = np.asarray(moments.best(w))
    assert (best * np.asarray(w)).sum() == pytest.approx(float(moments.sup(w)), abs=1e-12)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        for _ in range(50):
            theta = moments.project(rng.normal(size=moments.embed.shape) * rng.choice([0.1, 1, 10]))
            np.testing.assert_allclose(moments.project(theta), theta, atol=1e-12)
            assert float((np.asarray(moments.embed(theta)) * w).sum()) <= float(moments.sup(w)) + 1e-12


def test_functions_of_a_class_have_its_size_and_norm():
    mdp, expert, learner, _ = random_game(7)
    made = moment_classes(mdp, expert)
    w = Game("reward", mdp, expert).difference(learner)
    left = (mdp.horizon - np.arange(mdp.horizon)) / (2 * mdp.horizon)
    assert np.abs(made["reward"].best(w)).max() == 0.5
    assert (np.abs(made["q"].best(w)) <= left[:, None, None] + 1e-12).all()
    stationary = np.asarray(made["stationary"].best(w))
    np.testing.assert_array_equal(stationary, np.broadcast_to(stationary[0], stationary.shape))
    # Over a kernel's unit ball, sup is the distance of mean embeddings: √(w K w).
    points = np.random.default_rng(0).normal(size=(mdp.states * mdp.actions, 2))
    gram = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1))
    total = np.asarray(w).sum(0).ravel()
    assert float(made["kernel"].sup(w)) == pytest.approx(np.sqrt(total @ gram @ total), rel=1e-9)


def test_the_on_q_game_over_the_induced_class_is_the_reward_game_over_t():
    """U3(π, Q^{π_E}_r / 2T) = U1(π, r / 2) / T for every r, by the performance difference lemma."""
    mdp, expert, learner, _ = random_game(11)
    on_q = induced(mdp, expert).sup(Game("on-Q", mdp, expert).difference(learner))
    reward = reward_box(mdp).sup(Game("reward", mdp, expert).difference(learner))
    assert float(on_q) == pytest.approx(float(reward) / mdp.horizon, abs=1e-12)


@pytest.mark.parametrize("moments", MOMENTS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_no_policy_has_a_smaller_payoff_than_the_response(moments, seed):
    mdp, expert, learner, f = random_game(seed)
    game = Game(moments, mdp, expert)
    least = float(game.payoff(game.respond(f), f))
    assert least <= float(game.payoff(learner, f)) + 1e-12
    for alpha in (0.003, 0.1):
        soft = game.respond(f, alpha)

        def regularised(policy, alpha=alpha):
            return float(game.payoff(policy, f)) - alpha * float(game.entropy(policy))

        assert regularised(soft) <= regularised(learner) + 1e-12
        assert regularised(soft) <= regularised(np.asarray(game.respond(f))) + 1e-12
        assert (np.asarray(soft)[:, -1, 1:] == 0).all()  # unavailable actions have probability 0
    assert float(game.payoff(game.respond(f, 1e-6), f)) == pytest.approx(least, abs=1e-4)


@pytest.mark.parametrize("moments", MOMENTS)
def test_the_payoff_is_linear_in_the_strategy(moments):
    """An average of strategies has the average payoff, and so has the policy of that average."""
    mdp, expert, learner, f = random_game(13)
    game = Game(moments, mdp, expert)
    other = game.respond(f, 0.1)
    mean = (game.strategy(other) + game.strategy(learner)) / 2
    payoff = (float(game.payoff(other, f)) + float(game.payoff(learner, f))) / 2
    assert float((game.weights(mean) * f).sum()) == pytest.approx(payoff, abs=1e-12)
    assert float(game.payoff(game.policy(mean), f)) == pytest.approx(payoff, abs=1e-12)
    np.testing.assert_allclose(game.strategy(game.policy(mean)), mean, atol=1e-12)


def test_the_occupancy_of_a_collapsed_mixture_is_the_average_occupancy():
    mdp, expert, learner, _ = random_game(13)
    mean = (occupancy(mdp, expert) + occupancy(mdp, learner)) / 2
    np.testing.assert_allclose(occupancy(mdp, mixture(mdp, [expert, learner], [0.5, 0.5])), mean, atol=1e-12)


@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_raise():
    mdp, expert, _, _ = random_game(0)
    with pytest.raises(SettingError, match="moments"):
        Game("values", mdp, expert)
    with pytest.raises(SpecError, match=r"the expert \[0, 3, 1\] is positive"):
        Game("reward", mdp, np.full(mdp.shape, 1 / 3))
    with pytest.raises(SpecError, match="features have shape"):
        span(mdp, np.zeros((2, 2, 2)))
    with pytest.raises(SpecError, match="eigenvalue"):
        kernel_ball(mdp, -np.eye(12))
    with pytest.raises(SpecError, match="does not sum to one"):
        induced(mdp, expert * 0.5)
    with pytest.raises(SpecError, match="horizon is inf"):
        FiniteMDP(np.ones((1, 1, 1)), [1.0], float("inf"))
    with pytest.raises(SpecError, match=r"transitions \[0, 1\] is 2"):
        FiniteMDP(np.array([[0, 2], [1, 1]]), [1.0, 0.0], 3)
