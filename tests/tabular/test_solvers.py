"""Solvers: certified equilibria for all combinations of game and side, and the lemma behind the dual."""

import jax
import numpy as np
import pytest

from support.tabular import MOMENTS, moment_classes, random_game
from understudy.core.errors import SettingError, SpecError
from understudy.tabular import FiniteMDP, imitation_gap, uniform
from understudy.tabular.examples import cliff, loop, unicycle
from understudy.tabular.games import Game
from understudy.tabular.moments import q_box, reward_box, span
from understudy.tabular.solvers import (
    certificate,
    lemma_bound,
    payoff_range,
    proof_alpha,
    proof_delta,
    regularised_certificate,
    solve,
)

pytestmark = pytest.mark.slow  # solves games to a certificate


@pytest.mark.parametrize("side", ["primal", "dual"])
@pytest.mark.parametrize("moments", MOMENTS)
def test_every_game_is_solved_to_its_certificate(moments, side):
    """The payoff times 2T (reward) or 2T² (Q) bounds the gap."""
    mdp, expert, _, reward = random_game(1)
    game = Game(moments, mdp, expert)
    box = reward_box(mdp) if moments == "reward" else q_box(mdp)
    found = solve(game, box, side, delta=0.02)
    assert found.met, str(found)
    assert 0 <= found.payoff <= found.certificate <= 0.02
    gap, most = (float(x) for x in certificate(game, box, found.policy, found.f))
    assert (gap, most) == pytest.approx((found.certificate, found.payoff), abs=1e-12)
    scale = 2 * 6 if moments == "reward" else 2 * 6**2
    assert float(imitation_gap(mdp, reward, expert, found.policy)) <= scale * found.payoff + 1e-12
    assert found.proof_bound_label.startswith("FTRL" if side == "primal" else "1/δ'")
    assert found.certificates[-1, 1] == found.certificate
    assert "certified" in str(found)


@pytest.mark.parametrize("name", ["stationary", "induced", "span", "kernel"])
def test_other_classes_are_solved(name):
    mdp, expert, _, _ = random_game(2)
    moments = moment_classes(mdp, expert)[name]
    game = Game("on-Q" if name == "induced" else "reward", mdp, expert)
    for side in ("primal", "dual"):
        assert solve(game, moments, side, delta=0.03).met


@pytest.mark.parametrize(
    "make", [loop, pytest.param(cliff, marks=pytest.mark.slow), pytest.param(unicycle, marks=pytest.mark.slow)]
)
def test_the_examples_are_solved(make):
    example = make(6)
    for moments in MOMENTS:
        box = reward_box(example.mdp) if moments == "reward" else q_box(example.mdp)
        for side in ("primal", "dual"):
            found = solve(Game(moments, example.mdp, example.expert), box, side, delta=0.05)
            assert found.met, str(found)


def test_the_payoff_range_is_linear_in_the_size_of_the_class():
    """So the iterations of FTRL's bound, 2 G² T ln|A| / δ², are quadratic in it."""
    mdp, expert, _, _ = random_game(3)
    features = np.random.default_rng(0).normal(size=(mdp.states, mdp.actions, 2))
    game = Game("reward", mdp, expert)
    small, large = (payoff_range(game, span(mdp, features, radius)) for radius in (1, 100))
    assert large == pytest.approx(100 * small)
    found = solve(game, reward_box(mdp), delta=0.02)
    assert found.proof_bound == pytest.approx(2 * 0.5**2 * 6 * np.log(3) / 0.02**2)


def test_a_class_of_another_mdp_raises():
    mdp, expert, _, _ = random_game(3)
    with pytest.raises(SpecError, match="F_Q/2T"):
        solve(Game("off-Q", mdp, expert), q_box(random_game(0, 5, 2, 3)[0]))


def test_an_unmet_certificate_is_reported():
    mdp, expert, _, _ = random_game(3)
    found = solve(Game("reward", mdp, expert), reward_box(mdp), "primal", delta=1e-6, max_iterations=20)
    assert not found.met
    assert found.iterations == 20
    assert "NOT met" in str(found)
    with pytest.raises(SettingError, match="delta is 0"):
        solve(Game("reward", mdp, expert), reward_box(mdp), delta=0.0)


@pytest.mark.parametrize("moments", MOMENTS)
def test_the_entropy_regularisation_lemma(moments):
    """sup_f U(π̂, f) ≤ Q_M √(2δ/α) + α T (ln|A| + ln|S|), δ being π̂'s certificate in the regularised game.

    After enough iterations the right-hand side is below the payoff of the uniform policy.
    """
    mdp, expert, _, _ = random_game(4)
    game = Game(moments, mdp, expert)
    box = reward_box(mdp) if moments == "reward" else q_box(mdp)
    alpha, idle = 0.003, float(box.sup(game.difference(uniform(mdp))))
    bounds = []
    for requested in (0.1, 1e-9):
        found = solve(game, box, "dual", delta=requested, alpha=alpha)
        delta = float(regularised_certificate(game, box, found.policy, found.f, np.asarray(alpha)))
        assert delta >= -1e-12
        bounds.append(lemma_bound(game, max(delta, 0.0), alpha))
        assert found.payoff <= bounds[-1]
    assert bounds[1] < idle


def test_the_numbers_of_the_proofs():
    """1/δ' = 64 Q_M² T (ln|A| + ln|S|) / δ³, about 1.5e6 at δ = 0.1, T = 10, |S||A| = 10."""
    rng = np.random.default_rng(0)
    mdp = FiniteMDP(rng.dirichlet(np.ones(5), (5, 2)), np.ones(5) / 5, 10)
    game = Game("reward", mdp, np.full(mdp.shape, 0.5))
    assert 1 / proof_delta(game, 0.1) == pytest.approx(64 * 10 * np.log(10) / 1e-3, rel=1e-9)
    assert proof_alpha(game, 0.1) == pytest.approx(0.1 / (20 * np.log(10)), rel=1e-9)
    assert solve(game, reward_box(mdp), "dual", delta=0.1, alpha=proof_alpha(game, 0.1)).met


def test_solving_twice_gives_the_same_policy_bit_for_bit():
    mdp, expert, _, _ = random_game(6)
    game = Game("off-Q", mdp, expert)
    first, second = (solve(game, q_box(mdp), "dual", delta=0.05) for _ in range(2))
    np.testing.assert_array_equal(first.policy, second.policy)
    assert jax.numpy.zeros(()).dtype == np.float32
