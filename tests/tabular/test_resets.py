"""What a search costs in TREE: exponential without resets, polynomial from the expert's states."""

import numpy as np
import pytest

from understudy.core.errors import SettingError
from understudy.tabular.examples import Example, loop, tree, unicycle
from understudy.tabular.resets import expected_episodes, expert_states, goal, path_count, psdp_episodes

SIZES = [(1, 2), (4, 2), (8, 2), (3, 4)]


@pytest.mark.parametrize(("horizon", "actions"), SIZES)
def test_without_resets_the_search_is_exponential_in_the_horizon(horizon, actions):
    example = tree(horizon, actions)
    assert path_count(example) == actions**horizon
    assert expected_episodes(example) == pytest.approx(actions**horizon, rel=1e-12)


@pytest.mark.parametrize(("horizon", "actions"), SIZES)
def test_psdp_tries_each_edge_of_the_experts_states_once(horizon, actions):
    assert psdp_episodes(tree(horizon, actions)) == actions * horizon


def test_with_resets_the_search_is_polynomial():
    """Twice the horizon costs 2 to 6 times as many episodes, where it squares the number without resets."""
    for share in (0.3, 0.5, 1.0):
        short, long = (expected_episodes(tree(horizon, 2), share) for horizon in (6, 12))
        assert 2 < long / short < 6
    assert expected_episodes(tree(12, 2)) == 2**12


def test_two_steps_by_hand():
    """An episode reaches the goal from time 1 with probability 1/2, from time 0 with 1/4; 1/2 once the end is known."""
    share = 0.5
    first = share / 2 + 1 - share
    second = share / 2
    once_known = 1 / (first * 0.5)
    wanted = (1 + second * 0.5 * once_known) / (first * 0.25 + second * 0.5)
    assert expected_episodes(tree(2, 2), share) == pytest.approx(wanted, rel=1e-12)


def test_the_expectation_agrees_with_simulated_searches():
    example, share, rng = tree(4, 2), 0.5, np.random.default_rng(0)
    counts = []
    for _ in range(4000):
        known, episodes = 4, 0
        while known:
            episodes += 1
            start = int(rng.integers(4)) if rng.random() < share else 0
            if start < known and (rng.random(known - start) < 0.5).all():
                known = start
        counts.append(episodes)
    error = np.std(counts) / np.sqrt(len(counts))
    assert abs(np.mean(counts) - expected_episodes(example, share)) < 4 * error


def test_the_goal_is_the_experts_last_action():
    reward = goal(tree(3, 2))
    assert reward.sum() == 1
    assert reward[2, 6, 1] == 1
    np.testing.assert_array_equal(expert_states(tree(3, 2)), [0, 2, 6])


def test_unavailable_actions_are_not_tried():
    example = unicycle(4)
    assert psdp_episodes(example) == 8
    assert path_count(example) == 5  # at most one wrong action, at one of four times


def test_an_expert_in_several_states_is_named():
    example = loop(4)
    split = Example(*example)._replace(expert=np.full_like(example.expert, 0.5))
    with pytest.raises(SettingError, match="LOOP"):
        expert_states(split)


@pytest.mark.parametrize("share", [-0.1, 1.5, True])
def test_a_share_out_of_range_is_named(share):
    with pytest.raises(SettingError, match="start_share"):
        expected_episodes(tree(2, 2), share)
