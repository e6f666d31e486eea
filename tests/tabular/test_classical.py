"""Classical reward matching: each algorithm matches the expert's moments and has the properties of its paper."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from understudy.core.errors import SettingError, SpecError
from understudy.game import NEEDS, payoffs
from understudy.game.critics import TableCritic
from understudy.tabular import (
    FiniteMDP,
    best_response,
    causal_entropy,
    imitation_gap,
    mixture,
    occupancy,
    samples,
    soft_response,
    uniform,
)
from understudy.tabular.classical import CARDS, abbeel_ng, feature_moments, learch, maxent, mmp, slack
from understudy.tabular.mdp import stack

pytestmark = pytest.mark.slow  # many finite MDPs

ALGORITHMS = [maxent, mmp, learch, abbeel_ng]
STATES, ACTIONS, HORIZON, FEATURES = 4, 3, 6, 5
each = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=[a.__name__ for a in ALGORITHMS])


def random_instance(seed, timed=False, deterministic=False):
    """An MDP, features in [-1, 1] and an expert."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP(rng.dirichlet(np.full(STATES, 0.5), (STATES, ACTIONS)), rng.dirichlet(np.ones(STATES)), HORIZON)
    features = rng.uniform(-1, 1, (*([HORIZON] if timed else []), STATES, ACTIONS, FEATURES))
    expert = rng.dirichlet(np.full(ACTIONS, 0.5), (HORIZON, STATES))
    if deterministic:
        expert = np.eye(ACTIONS)[expert.argmax(-1)]
    return mdp, features, expert


def batch(count, **kind):
    mdps, features, experts = zip(*(random_instance(seed, **kind) for seed in range(count)), strict=True)
    return stack(mdps), np.stack(features), np.stack(experts)


def numpy_moments(mdp, features, policy):
    """(1/T) Σ_t E φ_t(s_t, a_t), by loops."""
    state, total = np.asarray(mdp.initial), 0.0
    for t in range(mdp.horizon):
        visited = state[:, None] * np.asarray(policy)[t]
        total = total + np.einsum("sa,sak->k", visited, features[t] if features.ndim == 4 else features)
        state = np.einsum("sa,saz->z", visited, np.asarray(mdp.dynamics.probabilities))
    return total / mdp.horizon


def cost(mdp, features, weights):
    return np.broadcast_to(features @ np.asarray(weights), mdp.shape)


def distances(mdp, features, policies):
    """Distances between the policies' moments."""
    points = np.stack([feature_moments(mdp, features, policy) for policy in policies])
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def all_deterministic(mdp):
    rows = mdp.horizon * mdp.states
    for choice in itertools.product(range(mdp.actions), repeat=rows):
        yield np.eye(mdp.actions)[np.array(choice).reshape(mdp.horizon, mdp.states)]


@each
@pytest.mark.parametrize("timed", [False, True], ids=["stationary", "timed"])
def test_it_matches_the_experts_moments(algorithm, timed):
    """On ten random MDPs in one call, for stochastic and deterministic experts. The reported error is correct."""
    for deterministic in (False, True):
        mdps, features, experts = batch(10, timed=timed, deterministic=deterministic)
        found = algorithm(mdps, features, experts)
        assert found.policy.dtype == np.float64
        assert found.met.shape == (10,)
        assert found.met.all()
        for seed in range(10):
            mdp, phi, expert = random_instance(seed, timed, deterministic)
            apart = numpy_moments(mdp, phi, found.policy[seed]) - numpy_moments(mdp, phi, expert)
            assert np.linalg.norm(apart) == pytest.approx(float(found.error[seed]), abs=1e-12)
            assert np.linalg.norm(apart) <= float(found.tolerance[seed])


@each
def test_a_batch_gives_the_results_of_its_mdps(algorithm):
    found = algorithm(*batch(10))
    for seed in (0, 7):
        alone = algorithm(*random_instance(seed))
        assert int(alone.iterations) == int(found.iterations[seed])
        np.testing.assert_allclose(alone.policy, found.policy[seed], atol=1e-9)
        np.testing.assert_allclose(alone.weights, found.weights[seed], atol=1e-9, rtol=1e-9)


@each
def test_the_gap_is_bounded_under_every_reward_in_the_span(algorithm):
    """|J(π_E) − J(π)| ≤ T ‖θ‖ error for r = φ · θ, and the direction of the error attains it."""
    mdp, features, expert = random_instance(3)
    found = algorithm(mdp, features, expert)
    rng = np.random.default_rng(0)
    worst = np.asarray(feature_moments(mdp, features, found.policy)) - np.asarray(
        feature_moments(mdp, features, expert)
    )
    for theta in (*rng.normal(size=(20, FEATURES)), worst):
        gap = abs(float(imitation_gap(mdp, cost(mdp, features, theta), expert, found.policy)))
        bound = HORIZON * np.linalg.norm(theta) * float(found.error)
        assert gap <= bound + 1e-12
    assert gap == pytest.approx(bound, abs=1e-12)


@each
def test_an_mdp_with_unavailable_actions(algorithm):
    """A corridor with indexed transitions. The expert goes right and sometimes stays."""
    step = np.array([[0, 0, 1], [0, 1, 2], [1, 2, 2]])  # left, stay, right
    available = np.array([[0, 1, 1], [1, 1, 1], [1, 1, 0]], bool)
    mdp = FiniteMDP(step, [1.0, 0, 0], 5, available)
    expert = np.tile([[0, 0.25, 0.75], [0, 0.5, 0.5], [0, 1.0, 0]], (5, 1, 1))
    features = np.zeros((3, 3, 2))
    features[2, :, 0] = 1  # at the right end
    features[:, 1, 1] = 1  # staying
    found = algorithm(mdp, features, expert)
    assert bool(found.met)
    assert not np.asarray(found.policy)[:, ~available].any()
    visited = np.asarray(occupancy(mdp, found.policy))
    visits, stays = visited[:, 2].sum() / 5, visited[:, :, 1].sum() / 5
    expected = np.array([474, 791.75]) / 256 / 5  # computed by hand
    assert np.linalg.norm([visits, stays] - expected) <= float(found.tolerance) + 1e-12


@each
def test_an_unmet_tolerance_is_reported(algorithm):
    mdp, features, expert = random_instance(3)
    found = algorithm(mdp, features, expert, max_iterations=1, tolerance=1e-12)
    assert not bool(found.met)
    assert int(found.iterations) == 1
    assert float(found.error) > 1e-12


def test_the_error_is_the_largest_payoff_in_the_unit_ball():
    """sup over ‖θ‖ ≤ 1 of U1(π, φ · θ) = ‖μ(π) − μ_E‖, through the pairs that sampled games use."""
    mdp, features, expert = random_instance(5)
    learner = uniform(mdp)
    apart = np.asarray(feature_moments(mdp, features, learner)) - np.asarray(feature_moments(mdp, features, expert))
    with jax.enable_x64(True):
        f = TableCritic(jnp.asarray(cost(mdp, features, apart / np.linalg.norm(apart))))
        pair = payoffs.reward(samples(mdp, learner), samples(mdp, expert))
        assert float(payoffs.payoff(f, pair)) == pytest.approx(np.linalg.norm(apart), abs=1e-12)


# MaxEnt


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_maxent_recovers_the_policy_of_a_known_cost(temperature):
    mdp, features, _ = random_instance(1)
    theta = np.random.default_rng(0).normal(size=FEATURES)
    expert = soft_response(mdp, cost(mdp, features, theta), temperature)
    found = maxent(mdp, features, expert, temperature, tolerance=1e-12)
    assert bool(found.met)  # the gradient is zero
    np.testing.assert_allclose(found.policy, expert, atol=1e-9)
    np.testing.assert_allclose(found.weights, theta, atol=1e-8)
    np.testing.assert_allclose(
        found.policy, soft_response(mdp, cost(mdp, features, found.weights), temperature), atol=1e-14
    )


def numpy_maxent(mdp, features, expert):
    """A root of the moments' difference, found by MINPACK over soft value iteration in NumPy loops."""
    transitions, target = np.asarray(mdp.dynamics.probabilities), numpy_moments(mdp, features, expert)

    def respond(theta):
        value, policy = np.zeros(mdp.states), np.zeros(mdp.shape)
        for t in reversed(range(mdp.horizon)):
            reward = -(features @ theta) + transitions @ value
            value = np.log(np.exp(reward).sum(1))
            policy[t] = np.exp(reward - value[:, None])
        return policy

    found = scipy.optimize.root(
        lambda theta: numpy_moments(mdp, features, respond(theta)) - target, np.zeros(features.shape[-1]), tol=1e-14
    )
    return found.x, respond(found.x)


def test_maxent_agrees_with_an_independent_implementation():
    for seed in range(3):
        mdp, features, expert = random_instance(seed)
        theta, policy = numpy_maxent(mdp, features, expert)
        found = maxent(mdp, features, expert, tolerance=1e-12)
        np.testing.assert_allclose(found.weights, theta, atol=1e-8)
        np.testing.assert_allclose(found.policy, policy, atol=1e-8)


def test_maxent_has_the_largest_entropy_of_the_matching_policies():
    """Neither the expert nor Abbeel-Ng's mixture has more causal entropy."""
    mdp, features, expert = random_instance(2)
    found = maxent(mdp, features, expert)
    other = abbeel_ng(mdp, features, expert, tolerance=1e-4)
    assert bool(other.met)
    entropy = float(causal_entropy(mdp, found.policy))
    assert entropy > float(causal_entropy(mdp, expert)) + 1e-3
    # By concave duality, an error in the moments allows at most T ‖θ‖ · error more entropy.
    assert entropy > float(causal_entropy(mdp, other.policy)) - HORIZON * np.linalg.norm(found.weights) * 1e-4


def test_maxent_matches_an_expert_on_the_boundary():
    """With indicators of every (s, a) only the deterministic expert matches: θ grows until the error is small."""
    mdp, _, _ = random_instance(4)
    expert = np.tile(np.eye(ACTIONS)[[0, 2, 1, 0]], (HORIZON, 1, 1))
    found = maxent(mdp, np.eye(STATES * ACTIONS).reshape(STATES, ACTIONS, -1), expert)
    assert bool(found.met)
    np.testing.assert_allclose(occupancy(mdp, found.policy), occupancy(mdp, expert), atol=1e-6)


# Abbeel-Ng


def test_abbeel_ngs_error_never_grows_and_is_within_the_frank_wolfe_bound():
    mdp, features, expert = random_instance(8, deterministic=True)
    rounds = np.arange(1, 31)
    errors = [float(abbeel_ng(mdp, features, expert, 1e-9, int(k)).error) for k in rounds]
    assert (np.diff(errors) <= 1e-15).all()
    assert errors[-1] < errors[0] / 10
    rng = np.random.default_rng(0)
    diameter = distances(
        mdp, features, [best_response(mdp, cost(mdp, features, theta)) for theta in rng.normal(size=(50, FEATURES))]
    ).max()
    assert (errors <= 2 * diameter / np.sqrt(rounds + 2)).all()


def test_abbeel_ngs_policy_has_the_occupancy_of_the_mixture():
    """The same rounds in NumPy, with every policy and its weight: their mixture is the returned policy."""
    mdp, features, expert = random_instance(8)
    found = abbeel_ng(mdp, features, expert, 1e-3, 12)
    target = numpy_moments(mdp, features, expert)
    policies, shares = [np.asarray(uniform(mdp))], np.ones(1)
    for _ in range(int(found.iterations)):
        points = np.stack([numpy_moments(mdp, features, policy) for policy in policies])
        average = shares @ points
        policies.append(np.asarray(best_response(mdp, cost(mdp, features, average - target))))
        step = numpy_moments(mdp, features, policies[-1]) - average
        eta = step @ (target - average) / (step @ step)
        assert 0 < eta <= 1
        shares = np.append((1 - eta) * shares, eta)
    np.testing.assert_allclose(found.policy, mixture(mdp, np.stack(policies), shares), atol=1e-10)
    visited = sum(share * np.asarray(occupancy(mdp, policy)) for share, policy in zip(shares, policies, strict=True))
    np.testing.assert_allclose(occupancy(mdp, found.policy), visited, atol=1e-12)


# Maximum margin planning


def test_mmps_error_follows_from_its_weights_and_is_within_its_bound():
    """error = λ ‖θ‖, and error² ≤ 2 λ m + D² (1 + ln k) / k."""
    for deterministic in (False, True):
        mdp, features, expert = random_instance(6, deterministic=deterministic)
        responses = [
            best_response(mdp, cost(mdp, features, theta))
            for theta in np.random.default_rng(0).normal(size=(50, FEATURES))
        ]
        diameter = distances(mdp, features, responses).max()
        for k in (1, 3, 10, 100, 1000):
            found = mmp(mdp, features, expert, 2.0, 1e-3, tolerance=1e-9, max_iterations=k)
            assert int(found.iterations) == k
            assert float(found.error) == pytest.approx(1e-3 * np.linalg.norm(found.weights), abs=1e-12)
            assert float(found.error) ** 2 <= 2 * 1e-3 * 2.0 + diameter**2 * (1 + np.log(k)) / k


def test_mmps_slack_is_the_largest_violation_of_the_margin():
    """Over all deterministic policies of a small MDP."""
    rng = np.random.default_rng(3)
    mdp = FiniteMDP(rng.dirichlet(np.ones(2), (2, 2)), [0.5, 0.5], 3)
    features = rng.normal(size=(2, 2, 2))
    expert = np.eye(2)[rng.integers(2, size=(3, 2))]
    for theta in (np.zeros(2), *rng.normal(size=(3, 2))):
        misses = []
        for policy in all_deterministic(mdp):
            loss = np.asarray(occupancy(mdp, policy))[np.asarray(occupancy(mdp, expert)) == 0].sum() / 3
            ahead = theta @ (numpy_moments(mdp, features, policy) - numpy_moments(mdp, features, expert))
            misses.append(loss - ahead)
        assert float(slack(mdp, features, expert, theta)) == pytest.approx(max(misses), abs=1e-12)


def test_mmp_keeps_the_margin_and_its_cost_reproduces_an_optimal_expert():
    mdp, features, _ = random_instance(9, timed=True)
    expert = best_response(mdp, cost(mdp, features, np.random.default_rng(0).normal(size=FEATURES)))
    found = mmp(mdp, features, expert)
    assert bool(found.met)
    assert float(slack(mdp, features, expert, found.weights)) == pytest.approx(0, abs=1e-9)
    np.testing.assert_array_equal(
        occupancy(mdp, best_response(mdp, cost(mdp, features, found.weights))), occupancy(mdp, expert)
    )
    of_expert = np.asarray(feature_moments(mdp, features, expert))
    for policy in np.random.default_rng(1).dirichlet(np.full(ACTIONS, 0.3), (20, HORIZON, STATES)):
        ahead = np.asarray(found.weights) @ (np.asarray(feature_moments(mdp, features, policy)) - of_expert)
        loss = np.asarray(occupancy(mdp, policy))[np.asarray(occupancy(mdp, expert)) == 0].sum() / HORIZON
        assert ahead >= loss - 1e-9


def test_mmps_plan_is_the_expert_if_the_slack_is_below_the_smallest_loss():
    """One step in two states. θ = (1.015, 1) makes the expert the only best response, and an error in one state has
    the loss 1/2. The moments can match with a large slack and a wrong plan; with a slack below 1/2 the plan is right.
    """
    mdp = FiniteMDP(np.array([[0, 0], [1, 1]]), [0.5, 0.5], 1)
    features = np.array([[[0, 0], [1, -1]], [[0, 0], [-1, 1.03]]])
    expert = np.array([[[1.0, 0.0], [1.0, 0.0]]])

    def planned(weights):
        return best_response(mdp, cost(mdp, features, weights))

    np.testing.assert_array_equal(planned([1.015, 1.0]), expert)
    early = mmp(mdp, features, expert)
    assert bool(early.met)
    assert int(early.iterations) == 3
    assert float(slack(mdp, features, expert, early.weights)) == pytest.approx(200.5)
    np.testing.assert_array_equal(planned(early.weights)[0, 0], [0, 1])
    late = mmp(mdp, features, expert, regularisation=2.5e-5, tolerance=1e-9, max_iterations=1000)
    assert float(slack(mdp, features, expert, late.weights)) < 0.5
    np.testing.assert_array_equal(planned(late.weights), expert)
    below = 0
    for weights in np.random.default_rng(0).normal([68, 67], 2, (200, 2)):
        if float(slack(mdp, features, expert, weights)) < 0.5:
            below += 1
            np.testing.assert_array_equal(planned(weights), expert)
    assert 20 < below < 180


@pytest.mark.parametrize("margin", [0.5, 2.0])
def test_mmp_finds_the_smallest_cost_that_keeps_the_margin(margin):
    """With two actions, c(θ) = λ/2 θ² + max(0, m − θ) has its minimum at θ = m."""
    mdp = FiniteMDP(np.zeros((1, 2), int), [1.0], 1)
    features, expert = np.array([[[1.0], [0.0]]]), np.array([[[0.0, 1.0]]])
    found = mmp(mdp, features, expert, margin, 0.01, tolerance=1e-9, max_iterations=20_000)
    assert float(found.weights[0]) == pytest.approx(margin, abs=0.01)
    assert float(found.error) == pytest.approx(0.01 * margin, abs=1e-4)


# LEARCH


def test_learchs_error_follows_from_its_weights():
    """error = ‖θ‖ / ηk with η = step / B²."""
    mdp, features, expert = random_instance(6)
    found = learch(mdp, features, expert, step=0.5)
    eta = 0.5 / (features**2).sum(-1).max()
    assert float(found.error) == pytest.approx(np.linalg.norm(found.weights) / (eta * int(found.iterations)), rel=1e-9)


def test_learch_with_a_short_step_is_within_its_bound():
    """η = 1 / (e B² K): after K rounds the error is at most 2 B √((e − 1) / K)."""
    for seed in range(3):
        mdp, features, expert = random_instance(seed, deterministic=True)
        largest = np.sqrt((features**2).sum(-1).max())
        for rounds in (10, 1000):
            found = learch(mdp, features, expert, step=1 / (np.e * rounds), tolerance=1e-9, max_iterations=rounds)
            assert float(found.error) <= 2 * largest * np.sqrt((np.e - 1) / rounds)


def test_learch_with_a_long_step_can_fail_and_reports_it():
    """Path A has features 1 + 1, the expert's path B 2 − 1. exp(θ φ) prefers A if e^θ > (1 + √5) / 2."""
    transitions = np.array([[1, 2], [1, 1], [2, 2]])
    mdp = FiniteMDP(transitions, [1.0, 0, 0], 2, [[True, True], [True, False], [True, False]])
    features = np.array([[[1.0], [2.0]], [[1.0], [0.0]], [[-1.0], [0.0]]])
    expert = np.tile([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], (2, 1, 1))
    trapped = learch(mdp, features, expert, step=8.0, max_iterations=1000)
    assert not bool(trapped.met)
    assert float(trapped.error) == pytest.approx(0.5)
    assert np.isfinite(trapped.weights).all()
    assert bool(learch(mdp, features, expert).met)


def test_learch_with_a_margin_makes_the_experts_action_cheaper_by_the_margin():
    mdp = FiniteMDP(np.zeros((1, 2), int), [1.0], 1)
    features, expert = np.array([[[1.0], [0.0]]]), np.array([[[0.0, 1.0]]])
    costs = [
        np.exp(features[0] @ np.asarray(learch(mdp, features, expert, margin, 0.01, 1e-3).weights))
        for margin in (0.0, 0.5)
    ]
    assert costs[0][0] - costs[0][1] < 0.02
    assert costs[1][0] - costs[1][1] == pytest.approx(0.5, abs=0.02)


# Bad input


@each
def test_invalid_arguments_raise(algorithm):
    mdp, features, expert = random_instance(0)
    with pytest.raises(SpecError, match=r"features have shape \(4, 3\)"):
        algorithm(mdp, features[..., 0], expert)
    with pytest.raises(SpecError, match=r"features have shape \(4, 3, 0\)"):
        algorithm(mdp, features[..., :0], expert)
    broken = features.copy()
    broken[1, 2, 3] = np.inf
    with pytest.raises(SpecError, match=r"features \[1, 2, 3\] are not finite"):
        algorithm(mdp, broken, expert)
    broken[1, 2, 3] = np.nan
    with pytest.raises(SpecError, match=r"features \[1, 2, 3\] are not finite"):
        algorithm(mdp, broken, expert)
    with pytest.raises(SpecError, match="the features are not an array of numbers"):
        algorithm(mdp, [*features[:3].tolist(), [[1.0]]], expert)
    with pytest.raises(SpecError, match=r"the expert has shape \(4, 3\)"):
        algorithm(mdp, features, expert[0])
    lacking = FiniteMDP(mdp.dynamics.probabilities, mdp.initial, HORIZON, np.arange(12).reshape(4, 3) != 4)
    with pytest.raises(SpecError, match=r"the expert \[0, 1, 1\] is positive"):
        algorithm(lacking, features, expert)
    with pytest.raises(SettingError, match="tolerance is 0"):
        algorithm(mdp, features, expert, tolerance=0)
    with pytest.raises(SettingError, match="max_iterations is 0"):
        algorithm(mdp, features, expert, max_iterations=0)


@pytest.mark.parametrize(
    ("algorithm", "setting", "words"),
    [
        (maxent, {"temperature": 0.0}, "temperature is 0.0"),
        (mmp, {"margin": -1.0}, "margin is -1.0"),
        (mmp, {"regularisation": 0.0}, "regularisation is 0.0"),
        (learch, {"margin": -1.0}, "margin is -1.0"),
        (learch, {"step": 0.0}, "step is 0.0"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_a_setting_outside_its_range_raises(algorithm, setting, words):
    with pytest.raises(SettingError, match=words):
        algorithm(*random_instance(0), **setting)


@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_of_moments_and_slack_raise():
    mdp, features, expert = random_instance(0)
    with pytest.raises(SpecError, match=r"the policy.*does not sum to one"):
        feature_moments(mdp, features, 2 * expert)
    with pytest.raises(SpecError, match=r"features have shape \(3, 3, 5\)"):
        feature_moments(mdp, features[1:], expert)
    with pytest.raises(SpecError, match=r"the weights have shape \(4,\)"):
        slack(mdp, features, expert, np.ones(4))
    with pytest.raises(SpecError, match=r"the weights \[2\] are not finite"):
        slack(mdp, features, expert, [0, 0, np.nan, 0, 0])


def test_the_cards_are_those_of_the_papers_table():
    """All four match reward moments and are dual."""
    assert sorted(CARDS) == ["abbeel-ng", "learch", "maxent", "mmp"]
    for card in CARDS.values():
        assert (card.moments, card.solver, card.bound) == ("reward", "dual", "O(εT)")
        assert card.needs == NEEDS["reward"]
