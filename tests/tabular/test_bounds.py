"""Section 4's bounds: exponents of the horizon, learners of the lower bounds, upper bounds on random MDPs."""

import numpy as np
import pytest

from understudy.core.errors import SettingError, SpecError
from understudy.tabular import imitation_gap
from understudy.tabular.bounds import (
    cliff_off_q,
    cliff_on_q,
    cliff_on_q_verbatim,
    cliff_reward,
    loop_classification,
    loop_off_q,
    loop_on_q,
    loop_reward,
    lower_bound,
    measure,
    random_instances,
    recoverable_bound,
    relative_error,
    slope,
    unicycle_classification,
    upper_bound,
)
from understudy.tabular.examples import cliff, erring, loop_gap, unicycle_gap
from understudy.tabular.games import Game
from understudy.tabular.mdp import FiniteMDP
from understudy.tabular.moments import induced, q_box, reward_box
from understudy.tabular.recoverability import all_rewards, classification_error, recoverability

SHORT, LONG = (16, 64, 128), (64, 256, 1024)
COUNT = 300


def _loop_error(epsilon, horizon):
    """The smaller root of p + (T − 1) (2p − p²) = T ε."""
    return np.roots([-(horizon - 1), 2 * horizon - 1, -horizon * epsilon]).min()


@pytest.mark.parametrize(
    ("construction", "horizons", "exponent", "payoff", "gap"),
    [
        (cliff_reward, SHORT, 1, lambda e, T: e, lambda e, T: e * T),
        (cliff_off_q, SHORT, 2, lambda e, T: e, lambda e, T: e * T**2),
        (cliff_on_q, SHORT, 2, lambda e, T: e, lambda e, T: e * T**2),
        (cliff_on_q_verbatim, SHORT, 1, lambda e, T: e / T, lambda e, T: e * T),
        (loop_reward, LONG, 1, lambda e, T: e, lambda e, T: _loop_error(e, T) * (T - 1)),
        (loop_off_q, LONG, 2, lambda e, T: e, lambda e, T: e * T * (T - 1)),
        (loop_on_q, LONG, 1, lambda e, T: e, lambda e, T: 2 * T * e / (T + 1) * (T - 1)),
    ],
)
def test_the_exponent_of_the_gap_at_a_fixed_payoff(construction, horizons, exponent, payoff, gap):
    """T for reward and T² for off-Q moments. For on-Q moments T² on CLIFF, where H is of order T, and T on LOOP."""
    epsilon = 1 / max(horizons)
    found = [construction(epsilon, horizon) for horizon in horizons]
    np.testing.assert_allclose([one.payoff for one in found], [payoff(epsilon, T) for T in horizons], rtol=1e-10)
    np.testing.assert_allclose([one.gap for one in found], [gap(epsilon, T) for T in horizons], rtol=1e-10)
    assert slope(horizons, [one.gap for one in found]) == pytest.approx(exponent, abs=0.02)
    for one, horizon in zip(found, horizons, strict=True):
        assert one.gap <= upper_bound(one.moments, one.payoff, horizon) * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.02, 1 / 8])
def test_the_lower_bounds_are_the_gaps_on_cliff_and_half_the_upper_bounds(epsilon):
    for construction in (cliff_reward, cliff_off_q, cliff_on_q):
        found = construction(epsilon, 8)
        assert found.payoff == pytest.approx(epsilon, rel=1e-12)
        assert lower_bound(found.moments, epsilon, 8) == pytest.approx(found.gap, rel=1e-12)
        assert lower_bound(found.moments, epsilon, 8) == pytest.approx(found.bound / 2, rel=1e-12)


def test_a_loop_of_one_step_has_no_gap_at_its_payoff():
    for construction in (loop_reward, loop_on_q):
        found = construction(0.25, 1)
        assert (found.payoff, found.gap) == (pytest.approx(0.25, rel=1e-12), 0)


def test_the_bound_of_a_construction_is_2T_squared_times_its_payoff():
    found = cliff_on_q(0.1, 8)
    assert (found.payoff, found.gap, found.bound) == pytest.approx((0.1, 6.4, 12.8))
    assert "12.8" in str(found)
    verbatim = cliff_on_q_verbatim(0.1, 8)
    assert (verbatim.payoff, verbatim.gap) == pytest.approx((0.0125, 0.8))


@pytest.mark.parametrize(
    ("construction", "exponent", "closed_form"),
    [(unicycle_classification, 2, unicycle_gap), (loop_classification, 1, loop_gap)],
)
def test_the_exponent_of_the_gap_at_a_fixed_classification_error(construction, exponent, closed_form):
    kappa = 2e-4
    found = [construction(kappa, horizon) for horizon in LONG]
    np.testing.assert_allclose([one.gap for one in found], [closed_form(kappa / 2, T) for T in LONG], rtol=1e-10)
    assert slope(LONG, [one.gap for one in found]) == pytest.approx(exponent, abs=0.02)
    errors = np.asarray(classification_error(found[0].example.expert, found[0].learner))
    np.testing.assert_allclose(errors.max(), kappa, rtol=1e-10)


def test_an_error_that_shrinks_with_the_horizon_gives_a_linear_gap():
    """Section 4.5: on UNICYCLE a gap of O(κT) needs a classification error of κ/T."""
    gaps = [unicycle_classification(0.5 / horizon, horizon).gap for horizon in LONG]
    assert slope(LONG, gaps) == pytest.approx(1, abs=0.02)
    fixed = [unicycle_gap(0.01, horizon) for horizon in LONG]
    assert slope(LONG, fixed) < 1.6, "at a large error the gap saturates"


def test_the_recoverable_bound_equals_the_upper_bound():
    """ε H T = 2T² sup U3 with ε = 2T sup U3 / H ≤ 1; on CLIFF with all rewards H = 2T."""
    example = cliff(8)
    learner = erring(example, 1.0, where=0)
    payoff = measure(example.mdp, example.expert, learner, example.reward)[3].payoff
    constant = recoverability(example.mdp, example.expert, all_rewards()).constant
    epsilon = relative_error(payoff, constant, 8)
    assert recoverable_bound(epsilon, constant, 8) == pytest.approx(upper_bound("on-Q", payoff, 8))
    assert epsilon == pytest.approx(1 / 8), "one mistake of the worst kind in eight steps"
    mdp, expert, policy, reward = random_instances(5, 30, 3, 3, 4)
    payoffs = measure(mdp, expert, policy, reward)[3].payoff
    assert (relative_error(payoffs, recoverability(mdp, expert).constant, 4) <= 1).all()


@pytest.mark.parametrize(("states", "actions", "horizon"), [(1, 1, 1), (2, 4, 8), (4, 3, 5)])
def test_every_upper_bound_holds_on_random_mdps(states, actions, horizon):
    count, seed = 500, 10 * states + horizon
    mdp, expert, policy, reward = random_instances(seed, count, states, actions, horizon)
    reports = measure(mdp, expert, policy, reward)
    assert [report.moments for report in reports] == ["reward", "off-Q", "on-Q", "on-Q", "on-Q"]
    gap = np.asarray(imitation_gap(mdp, reward, expert, policy))
    for report in reports:
        np.testing.assert_allclose(report.gap, gap, rtol=0, atol=1e-10)
        assert report.bound.shape == (count,)
        assert (report.gap <= report.bound + 1e-12).all(), report.label
        assert (report.ratio <= 1 + 1e-6).all(), report.label


def test_the_bounds_are_tight_for_the_worst_reward():
    """Every third reward is the sign of d^E − d^π. There the reward bound and the on-Q bound over F_QE are the gap."""
    reward, off_q, on_q, on_expert_q, errors = measure(*random_instances(0, COUNT, 3, 3, 4))
    np.testing.assert_allclose(reward.ratio[2::3], 1, rtol=1e-9)
    np.testing.assert_allclose(on_expert_q.ratio[2::3], 1, rtol=1e-9)
    assert 0.5 < off_q.ratio.max() < 1
    assert 0.5 < on_q.ratio.max() < 1
    assert 0.9 < errors.ratio.max() <= 1 + 1e-9
    np.testing.assert_allclose(on_expert_q.payoff * 4, reward.payoff, rtol=1e-10)


def test_a_single_mdp_has_the_same_bounds_as_in_a_batch():
    mdp, expert, policy, reward = random_instances(7, 2, 3, 2, 4)
    together = measure(mdp, expert, policy, reward)
    one = FiniteMDP(np.asarray(mdp.dynamics.probabilities)[1], np.asarray(mdp.initial)[1], 4)
    alone = measure(one, expert[1], policy[1], reward[1])
    for batch, single in zip(together, alone, strict=True):
        assert batch[:2] == single[:2]
        np.testing.assert_allclose([part[1] for part in batch[2:]], single[2:], atol=1e-13)
        assert batch.ratio[1] == pytest.approx(float(single.ratio))
    classes = [reward_box(one), q_box(one), q_box(one), induced(one, expert[1])]
    for report, functions in zip(alone, classes, strict=False):
        w = Game(report.moments, one, expert[1]).difference(policy[1])
        assert report.label == functions.label
        assert float(report.payoff) == pytest.approx(float(functions.sup(w)), rel=1e-12)


def test_for_the_expert_payoff_bound_and_gap_are_zero():
    example = cliff(8)
    for report in measure(example.mdp, example.expert, example.expert, example.reward):
        assert (report.payoff, report.bound, report.gap, report.ratio) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: cliff_off_q(0.2, 8), SettingError, "error is 0.2"),
        (lambda: cliff_reward(0.0, 8), SettingError, "error is 0.0"),
        (lambda: loop_reward(0.1, 0), SettingError, "horizon is 0"),
        (lambda: loop_reward(1.5, 8), SettingError, "error is 1.5"),
        (lambda: loop_on_q(0.75, 3), SettingError, "error is 0.75"),
        (lambda: lower_bound("on-Q", 0.2, 8), SettingError, "error is 0.2"),
        (lambda: lower_bound("on", 0.2, 8), SettingError, "moments is 'on'"),
        (lambda: lower_bound("reward", 0.2, 0), SettingError, "horizon is 0"),
        (lambda: random_instances(-1, 2, 2, 2, 2), SettingError, "seed is -1"),
        (lambda: upper_bound("off", 0.1, 8), SettingError, "moments is 'off'"),
        (lambda: slope([8], [1.0]), SettingError, "1 gaps"),
        (lambda: slope([8, 16], [1.0, 0.0]), SettingError, "gaps are"),
        (lambda: random_instances(0, 0, 2, 2, 2), SettingError, "count is 0"),
        (lambda: measure(cliff(2).mdp, cliff(2).expert, cliff(2).expert, np.full((2, 3, 2), -2.0)), SpecError, "is -2"),
        (lambda: measure(cliff(2).mdp, cliff(2).expert, np.full((2, 3, 2), 0.5), cliff(2).reward), SpecError, "action"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_raise(make, error, words):
    with pytest.raises(error, match=words):
        make()
