"""Replay estimation on finite MDPs: unbiased, exact where the clone is, and closer than demonstrations or clone."""

import numpy as np
import pytest

from understudy.core.errors import SettingError, SpecError
from understudy.tabular.mdp import FiniteMDP
from understudy.tabular.planning import occupancy, uniform
from understudy.tabular.replays import (
    Paths,
    cloned,
    draw_paths,
    empirical,
    ledge,
    moment_error,
    occupancy_of_members,
    replay_estimate,
)


@pytest.fixture(scope="module")
def small():
    return ledge(states=5, actions=3, horizon=12)


def mean_errors(example, count, draws=12):
    """Of the demonstrations, of the clone, of the halves and of ten folds."""
    mdp, expert = example
    errors = []
    for seed in range(draws):
        paths = draw_paths(mdp, expert, count, seed)
        clone = np.asarray(occupancy(mdp, cloned(mdp, paths)))
        found = (empirical(mdp, paths), clone, replay_estimate(mdp, paths), replay_estimate(mdp, paths, 10))
        errors.append([moment_error(mdp, one, expert) for one in found])
    return np.mean(errors, axis=0)


def test_drawn_paths_have_the_policys_occupancy(small):
    paths = draw_paths(small.mdp, small.expert, 20_000, 0)
    assert moment_error(small.mdp, empirical(small.mdp, paths), small.expert) < 0.03
    chain = FiniteMDP(np.array([[1, 0], [1, 1]]), [1.0, 0.0], 3)  # deterministic
    paths = draw_paths(chain, np.eye(2)[np.zeros((3, 2), int)], 4, 0)
    assert paths.states.tolist() == [[0, 1, 1]] * 4


def test_replay_estimation_is_unbiased_and_the_clone_is_not(small):
    """The mean over draws nears the expert's occupancy like 1 / √draws. The clone falls into the trap."""
    mdp, expert = small
    draws = [draw_paths(mdp, expert, 6, seed) for seed in range(400)]
    exact = np.asarray(occupancy(mdp, expert))
    for folds in (None, 3):
        estimates = np.stack([replay_estimate(mdp, paths, folds) for paths in draws])
        error = np.abs(estimates.mean(0) - exact)
        assert (error <= 5 * estimates.std(0) / np.sqrt(len(draws)) + 1e-12).all()
        np.testing.assert_allclose(estimates.sum((2, 3)).mean(0), 1, atol=0.05)
        assert estimates[:, :, -1].max() == 0  # never in the trap
    trapped = np.mean([np.asarray(occupancy(mdp, cloned(mdp, paths)))[:, -1].sum(-1).mean() for paths in draws])
    assert trapped > 0.2


def test_replay_estimation_is_exact_if_one_half_has_every_state():
    mdp, expert = ledge(states=2, actions=2, horizon=3)
    paths = draw_paths(mdp, expert, 400, 0)
    assert moment_error(mdp, replay_estimate(mdp, paths), expert) < 1e-14
    assert moment_error(mdp, empirical(mdp, paths), expert) > 0.01


def test_without_members_the_second_half_is_the_estimate():
    mdp, _ = ledge(states=2, actions=2, horizon=3)
    paths = Paths(np.array([[0, 0, 0], [1, 1, 1]]), np.zeros((2, 3), int))
    second = Paths(paths.states[1:], paths.actions[1:])
    clone = cloned(mdp, Paths(paths.states[:1], paths.actions[:1]))
    member = np.zeros((3, 3))
    member[:, 0] = 1
    replayed = occupancy_of_members(mdp, clone, member)
    chance = 1 / 1.25  # of state 0
    np.testing.assert_allclose(np.asarray(replayed)[:, 0, 0], chance ** np.arange(1, 4), rtol=1e-12)
    np.testing.assert_allclose(replay_estimate(mdp, paths), replayed + empirical(mdp, second), rtol=1e-12)


@pytest.mark.parametrize("count", [64, 256])
def test_replay_estimation_has_the_smallest_error_where_mistakes_last(count):
    demonstrations, clone, _, folds = mean_errors(ledge(states=10, horizon=20), count)
    assert folds < min(demonstrations, clone)


def test_unweighted_replays_are_worse_than_the_demonstrations_if_there_are_few():
    demonstrations, clone, halves, folds = mean_errors(ledge(states=10, horizon=20), 4)
    assert clone > 1.5 * demonstrations
    assert folds < 1.05 * demonstrations < halves  # half of the demonstrations are noisier than all


def test_bad_input_is_named(small):
    mdp, expert = small
    one = draw_paths(mdp, expert, 1, 0)
    with pytest.raises(SettingError, match="there is 1 episode: give two or more"):
        replay_estimate(mdp, one)
    with pytest.raises(SettingError, match="folds is 1"):
        replay_estimate(mdp, one, folds=1)
    with pytest.raises(SettingError, match="count is 0"):
        draw_paths(mdp, expert, 0, 0)
    with pytest.raises(SpecError, match="the policy has shape"):
        draw_paths(mdp, uniform(mdp)[1:], 1, 0)
    with pytest.raises(SpecError, match="the estimate has shape"):
        moment_error(mdp, np.zeros(3), expert)
