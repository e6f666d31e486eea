"""Recoverability: constants of the paper's examples, brute force, and the lemma on classification errors."""

from itertools import product

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

from understudy.core.errors import SettingError, SpecError
from understudy.tabular import FiniteMDP, advantages, imitation_gap
from understudy.tabular.bounds import random_instances
from understudy.tabular.compiling import exact
from understudy.tabular.examples import cliff, loop, tree, unicycle
from understudy.tabular.mdp import stack
from understudy.tabular.recoverability import (
    Mistakes,
    advantage_error,
    all_rewards,
    classification_error,
    error_bound,
    plus_minus,
    recoverability,
    recovers_within,
    spanned,
    state_rewards,
)

T = 8
CONSTANTS = {
    "LOOP": (loop(T), {"all": 4, "state": 2, "the paper's": 1}, 2),
    "CLIFF": (cliff(T), {"all": 2 * T, "state": 2 * T - 2, "the paper's": T}, T),
    "UNICYCLE": (unicycle(T), {"all": 2 * T, "state": 2 * T - 2, "the paper's": T - 1}, T),
    "TREE": (tree(3, 2), {"all": 6, "the paper's": 3}, 3),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_constants_of_the_examples(name):
    """The paper: "LOOP is 1-recoverable", "CLIFF is not H-recoverable for any H < T". This depends on the class."""
    example, constants, within = CONSTANTS[name]
    classes = {"all": all_rewards(), "state": state_rewards(), "the paper's": plus_minus(example.reward)}
    found = {
        key: recoverability(example.mdp, example.expert, rewards)
        for key, rewards in classes.items()
        if key in constants
    }
    assert {key: float(one.constant) for key, one in found.items()} == pytest.approx(constants, abs=1e-12)
    assert recovers_within(example.mdp, example.expert) == within
    if name in ("CLIFF", "UNICYCLE"):
        assert {tuple(map(int, one[1:])) for one in found.values()} == {(0, 0, 1)}, "the first mistake costs the most"


def small(seed, horizon=2, states=2, actions=2):
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP(
        rng.dirichlet(np.ones(states), (states, actions)),
        rng.dirichlet(np.ones(states)),
        horizon,
        available=[[True, True], [True, False]],
    )
    expert = rng.dirichlet(np.ones(actions), (horizon, states))
    expert[:, 1] = [1, 0]
    return mdp, expert


@pytest.mark.parametrize(
    ("rewards", "shape"),
    [
        (all_rewards(), (2, 2, 2)),
        (all_rewards(stationary=True), (1, 2, 2)),
        (state_rewards(), (2, 2, 1)),
        (state_rewards(stationary=True), (1, 2, 1)),
    ],
    ids=lambda value: value.label if hasattr(value, "label") else "",
)
def test_the_supremum_is_the_maximum_over_all_corners(rewards, shape):
    """A convex function of r has its maximum at a corner of the box; there are at most 2^8."""
    mdp, expert = small(0)
    corners = np.array(list(product([-1.0, 1.0], repeat=int(np.prod(shape))))).reshape(-1, *shape)
    corners = np.broadcast_to(corners, (len(corners), 2, 2, 2))
    repeated = stack([mdp] * len(corners))
    found = np.abs(advantages(repeated, corners, np.tile(expert, (len(corners), 1, 1, 1)))) * np.asarray(mdp.available)
    best = recoverability(mdp, expert, rewards)
    assert float(best.constant) == pytest.approx(found.max(), abs=1e-12)
    assert found[:, best.time, best.state, best.action].max() == pytest.approx(found.max(), abs=1e-12)


def test_the_constant_of_a_span_is_attained_by_one_of_its_rewards():
    """The best θ points along ⟨φ, Δ⟩ at the worst mistake."""
    mdp, expert = small(1, horizon=3)
    features = np.random.default_rng(2).normal(size=(2, 2, 4))
    whole = recoverability(mdp, expert, spanned(features, radius=3.0))
    at = (whole.time, whole.state, whole.action)
    each = [np.broadcast_to(features[..., k], mdp.shape) for k in range(4)]
    theta = np.array([np.asarray(advantages(mdp, reward, expert))[at] for reward in each])
    theta *= 3 / np.linalg.norm(theta)
    one = recoverability(mdp, expert, plus_minus(np.broadcast_to(features @ theta, mdp.shape)))
    assert float(one.constant) == pytest.approx(float(whole.constant), rel=1e-12)
    in_time = recoverability(mdp, expert, spanned(np.broadcast_to(features, (3, 2, 2, 4)), radius=3.0))
    assert float(in_time.constant) == pytest.approx(float(whole.constant), rel=1e-12)


@pytest.mark.parametrize(
    "rewards", [all_rewards(), all_rewards(True), state_rewards(), state_rewards(True)], ids=lambda one: one.label
)
def test_a_stationary_expert_needs_only_mistakes_at_time_0(rewards):
    """The table of sup |A_t(s, a)| and H are the same with all mistakes."""
    mdp, expert = small(4, horizon=6)
    expert = np.broadcast_to(expert[:1], mdp.shape)
    first, every = Mistakes(mdp, expert), Mistakes(mdp, small(4, horizon=6)[1])
    assert (first.stationary, every.stationary, len(first.pairs)) == (True, False, 3)
    tables = [exact(rewards.largest)(mdp, expert, mistakes) for mistakes in (first, every)]
    np.testing.assert_allclose(*tables, rtol=0, atol=1e-12)
    assert float(recoverability(mdp, expert, rewards).constant) == pytest.approx(tables[1].max(), abs=1e-12)
    example = loop(6)
    changed = example.expert.copy()
    changed[-1, -1] = changed[-1, -1, ::-1]  # no longer stationary, but after the last step nothing follows
    assert recovers_within(example.mdp, changed) == recovers_within(example.mdp, example.expert) == 2


def test_cliff_with_a_long_horizon():
    """It has 33,024 possible mistakes."""
    example = cliff(128)
    found = recoverability(example.mdp, example.expert)
    assert (float(found.constant), int(found.time)) == (256, 0)
    assert recovers_within(example.mdp, example.expert) == 128


def test_a_batch_gives_the_results_of_its_mdps():
    pairs = [small(seed) for seed in range(3)]
    mdps, experts = stack([mdp for mdp, _ in pairs]), np.stack([expert for _, expert in pairs])
    rewards = np.random.default_rng(0).uniform(-1, 1, experts.shape)
    for together, alone in (
        (all_rewards(), lambda i: all_rewards()),
        (plus_minus(rewards), lambda i: plus_minus(rewards[i])),
    ):
        batch = recoverability(mdps, experts, together)
        for i, (mdp, expert) in enumerate(pairs):
            one = recoverability(mdp, expert, alone(i))
            np.testing.assert_allclose([part[i] for part in batch], one, atol=1e-12)
    assert recovers_within(mdps, experts).tolist() == [int(recovers_within(*pair)) for pair in pairs]


def test_recovering_within_H_steps_implies_2H_and_not_H():
    """Section 4.5's condition, on random deterministic MDPs."""
    rng = np.random.default_rng(0)
    count, horizon, states, actions = 60, 6, 4, 2
    mdps = stack(
        [FiniteMDP(rng.integers(states, size=(states, actions)), np.full(states, 0.25), horizon) for _ in range(count)]
    )
    experts = np.eye(actions)[rng.integers(actions, size=(count, horizon, states))]
    within = recovers_within(mdps, experts)
    of_all = recoverability(mdps, experts).constant
    of_state = recoverability(mdps, experts, state_rewards()).constant
    assert set(within) >= {3, 4, 5, 6}, "some recover and some do not"
    assert (of_all <= 2 * within + 1e-9).all()
    assert (of_state <= 2 * (within - 1) + 1e-9).all(), "the mistake itself does not change the state"
    assert (of_all > within).all(), "H is no bound"
    assert np.isclose(of_all, 2 * within).any(), "2H is attained"


@pytest.fixture(scope="module")
def random_results():
    """Gaps, constants and errors of 1,000 random instances, half of them with a deterministic expert."""
    mdp, expert, learner, reward = random_instances(3, 1000, 3, 3, 4)
    constant = recoverability(mdp, expert, plus_minus(reward)).constant
    gap = np.asarray(imitation_gap(mdp, reward, expert, learner))
    return mdp, expert, learner, gap, constant


def test_classification_errors_bound_the_gap(random_results):
    """J(π_E) − J(π) ≤ H Σ_t E_{s ~ π} e_t(s), and the bound is attained."""
    mdp, expert, learner, gap, constant = random_results
    bound = np.asarray(error_bound(mdp, expert, learner, constant))
    assert (gap <= bound + 1e-12).all()
    assert (gap / bound).max() == pytest.approx(1.0, abs=1e-6)
    certain = (expert.max(-1) == 1).all((1, 2))
    assert 0.6 < (gap / bound)[~certain].max() <= 1


def test_the_advantage_error_is_between_half_and_all_of_the_classification_error(random_results):
    _, expert, learner, *_ = random_results
    error, whole = np.asarray(advantage_error(expert, learner)), np.asarray(classification_error(expert, learner))
    assert (error >= whole / 2 - 1e-12).all()
    assert (error <= np.minimum(whole, 1) + 1e-12).all()
    certain = (expert.max(-1) == 1).all((1, 2))
    np.testing.assert_allclose(error[certain], whole[certain] / 2, atol=1e-12)


def test_the_advantage_error_solves_its_linear_program():
    """max −π·A over |A| ≤ 1 with π_E·A = 0."""
    rng = np.random.default_rng(0)
    experts, policies = rng.dirichlet(np.full(4, 0.5), (2, 20))
    experts[:5] = np.eye(4)[rng.integers(4, size=5)]
    policies[5:10, 0] = 0
    policies /= policies.sum(-1, keepdims=True)
    found = np.asarray(advantage_error(experts, policies))
    for expert, policy, error in zip(experts, policies, found, strict=True):
        program = linprog(policy, A_eq=expert[None], b_eq=[0], bounds=(-1, 1))
        assert error == pytest.approx(-program.fun, abs=1e-9)


def test_half_the_classification_error_is_not_enough_for_a_stochastic_expert():
    """The expert takes both actions with probability 1/2, the learner always the wrong one: the gap is H l."""
    mdp = FiniteMDP(np.zeros((1, 2), int), [1.0], 1)
    expert, learner, reward = np.array([[[0.5, 0.5]]]), np.array([[[0.0, 1.0]]]), np.array([[[1.0, -1.0]]])
    constant = recoverability(mdp, expert, plus_minus(reward)).constant
    gap = float(imitation_gap(mdp, reward, expert, learner))
    assert gap == constant * float(classification_error(expert, learner)[0, 0]) == 1
    assert float(error_bound(mdp, expert, learner, constant)) == gap


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda mdp, expert: recoverability(mdp, expert[:1]), SpecError, "the expert has shape"),
        (lambda mdp, expert: recovers_within(mdp, expert * 2), SpecError, "does not sum to one"),
        (lambda mdp, expert: recoverability(mdp, expert, plus_minus(expert[0])), SpecError, "the reward has shape"),
        (lambda mdp, expert: recoverability(mdp, expert, spanned(np.ones((3, 2, 1)))), SpecError, "features have"),
        (lambda mdp, expert: spanned(np.full((2, 2, 1), np.nan)), SpecError, r"features \[0, 0, 0\] are not finite"),
        (lambda mdp, expert: spanned([[[1.0], [1.0, 2.0]]]), SpecError, "features are not an array of numbers"),
        (lambda mdp, expert: recoverability(mdp, expert[..., ::-1]), SpecError, "is positive"),
        (lambda mdp, expert: error_bound(mdp, expert, 2 * expert, 1.0), SpecError, "does not sum to one"),
        (lambda mdp, expert: spanned(np.ones((2, 2, 1)), radius=0), SettingError, "radius is 0"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_raise(make, error, words):
    with pytest.raises(error, match=words):
        make(*small(0))


def test_the_precision_of_the_rest_of_the_program_does_not_change():
    assert jax.numpy.zeros(()).dtype == np.float32
    assert recoverability(*small(0)).constant.dtype == np.float64
