"""iFAIL on finite MDPs: the metric goes to 0, the gap is the sum of its two parts, and the bound holds."""

import numpy as np
import pytest

from understudy.core.errors import SettingError, SpecError
from understudy.tabular import FiniteMDP, imitation_gap, occupancy, values
from understudy.tabular.examples import cliff, erring, loop, tree, unicycle
from understudy.tabular.ifail import best_moment, learn_forward, mismatch_cost, next_states

CLIFF, TREE = cliff(7), tree(4, 3)
FALLEN = -np.eye(CLIFF.mdp.states)[-1]
PATH = np.isin(np.arange(TREE.mdp.states), [3, 12, 39]).astype(float)
CASES = [(loop(8), None), (unicycle(8), None), (CLIFF, FALLEN), (TREE, PATH)]
each = pytest.mark.parametrize(("example", "seen"), CASES, ids=lambda x: getattr(x, "name", ""))
moments = pytest.mark.parametrize("moments", ["box", "ball"])


def random_task(seed=0, states=4, actions=3, horizon=5):
    random = np.random.default_rng(seed)
    mdp = FiniteMDP(random.dirichlet(np.ones(states), (states, actions)), random.dirichlet(np.ones(states)), horizon)
    expert, policy = (random.dirichlet(np.ones(actions), (horizon, states)) for _ in range(2))
    return mdp, expert, policy, random.normal(size=mdp.shape)


@moments
@each
def test_the_metric_goes_to_zero_with_the_iterations(example, seen, moments):
    few, many = (learn_forward(example.mdp, example.expert, moments, n).metric for n in (50, 1000))
    assert (few >= 0).all()
    assert many.max() < 2e-3
    assert many.max() < few.max() / 5 or few.max() < 1e-12


@moments
@each
def test_the_gap_is_what_next_states_show_and_what_they_do_not(example, seen, moments):
    for policy in (learn_forward(example.mdp, example.expert, moments, 200).policy, np.asarray(erring(example, 0.3))):
        cost = mismatch_cost(example.mdp, example.reward, example.expert, policy, moments, seen)
        reward, expert = np.asarray(example.reward), np.asarray(example.expert)
        assert cost.gap == pytest.approx(float(imitation_gap(example.mdp, reward, expert, policy)), abs=1e-10)
        assert cost.gap == pytest.approx(cost.matched + cost.unseen, abs=1e-10)
        assert cost.gap <= cost.bound + 1e-10


@moments
def test_the_gap_and_the_bound_hold_for_random_dynamics_experts_and_rewards(moments):
    for seed in range(5):
        mdp, expert, policy, reward = random_task(seed)
        cost = mismatch_cost(mdp, reward, expert, policy, moments, np.random.default_rng(seed).normal(size=4))
        assert cost.gap == pytest.approx(float(imitation_gap(mdp, reward, expert, policy)), abs=1e-10)
        assert cost.gap <= cost.bound + 1e-10


def test_with_rewards_of_states_alone_a_matched_policy_has_no_gap_although_its_actions_differ():
    """Two actions that lead to the same place: next states tell nothing of them, and nothing depends on it."""
    table = np.array([[1, 1, 0], [0, 0, 1]])
    mdp = FiniteMDP(table, [1.0, 0.0], 6)
    expert = np.broadcast_to(np.eye(3)[[0, 2]], mdp.shape)
    reward = np.broadcast_to(np.array([[0.0], [1.0]]), mdp.shape)
    found = learn_forward(mdp, expert, iterations=2000)
    cost = mismatch_cost(mdp, reward, expert, found.policy)
    assert abs(cost.unseen) < 1e-12
    assert abs(cost.gap) < 0.01
    np.testing.assert_allclose(found.policy[0, 0], [0.5, 0.5, 0], atol=0.01)  # the expert's is (1, 0, 0)


def test_it_reads_the_experts_next_states_and_not_its_actions():
    table = np.array([[1, 1, 0], [0, 0, 1]])
    mdp = FiniteMDP(table, [1.0, 0.0], 4)
    experts = [np.broadcast_to(np.eye(3)[acts], mdp.shape) for acts in ([0, 2], [1, 2])]
    one, two = (learn_forward(mdp, expert, iterations=100).policy for expert in experts)
    np.testing.assert_allclose(one, two, atol=1e-12)


def test_trees_last_action_cannot_be_seen_and_costs_one_minus_one_over_the_number_of_actions():
    found = learn_forward(TREE.mdp, TREE.expert, iterations=4000)
    cost = mismatch_cost(TREE.mdp, TREE.reward, TREE.expert, found.policy, seen=PATH)
    assert cost.unseen == pytest.approx(2 / 3, abs=5e-3)
    assert 0 <= cost.matched < 5e-3


def test_cliffs_gap_attains_the_bound_and_one_small_mismatch_costs_all_remaining_steps():
    cost = mismatch_cost(CLIFF.mdp, CLIFF.reward, CLIFF.expert, erring(CLIFF, 0.1, 0), seen=FALLEN)
    assert cost.gap == pytest.approx(0.1 * 7, abs=1e-12)
    assert cost.bound == pytest.approx(cost.gap, abs=1e-12)


def test_next_states_and_the_best_moment_are_those_of_the_definition():
    mdp, expert, policy, _ = random_task(3)
    visited = occupancy(mdp, policy)
    for t in range(mdp.horizon - 1):
        np.testing.assert_allclose(next_states(mdp, visited[t].sum(1), policy[t]), visited[t + 1].sum(1), atol=1e-12)
    difference = next_states(mdp, visited[1].sum(1), policy[1]) - next_states(mdp, visited[1].sum(1), expert[1])
    assert difference @ best_moment(difference, "box") == pytest.approx(np.abs(difference).sum(), abs=1e-7)
    assert difference @ best_moment(difference, "ball") == pytest.approx(np.linalg.norm(difference), abs=1e-7)
    np.testing.assert_array_equal(best_moment(np.zeros(3), "ball"), 0)


def test_the_expert_itself_costs_nothing():
    mdp, expert, _, reward = random_task(1)
    cost = mismatch_cost(mdp, reward, expert, expert)
    np.testing.assert_allclose(cost, 0, atol=1e-12)
    assert np.isfinite(values(mdp, reward, expert)).all()


def test_bad_input_is_named():
    mdp, expert, policy, reward = random_task()
    with pytest.raises(SettingError, match="moments is 'l1': choose one of 'box', 'ball'"):
        learn_forward(mdp, expert, "l1")
    with pytest.raises(SettingError, match="iterations is 0"):
        learn_forward(mdp, expert, iterations=0)
    with pytest.raises(SpecError, match=r"seen has shape \(3,\): one number for each of 4 states"):
        mismatch_cost(mdp, reward, expert, policy, seen=np.zeros(3))
    with pytest.raises(SpecError, match="the expert has shape"):
        learn_forward(mdp, expert[:2])
