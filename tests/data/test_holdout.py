"""Which demonstrated steps are held out."""

import numpy as np
import pytest

import understudy as us
from understudy.data.holdout import FEWEST, MAX_STEPS, kind_of


def numbered(lengths):
    """Every step has its own number as its observation."""
    total = int(np.sum(lengths))
    return us.Demonstrations.from_arrays(np.arange(total)[:, None], np.zeros((total, 1)), lengths)


def rows(split, run):
    """The numbers of the training and of the held-out steps of a run."""
    training, held = split.training, split.held_out
    own = np.asarray(training.steps.obs[: int(training.size[run]), 0]).astype(int)
    return own, np.asarray(held.steps.obs[run, : int(held.size[run]), 0]).astype(int)


LENGTHS = np.full(25, 10)


@pytest.mark.parametrize(("count", "holdout", "episodes"), [(4, 0.05, [3]), (25, 0.05, [3, 23]), (12, 0.2, [3, 8])])
def test_whole_episodes_are_held_out(count, holdout, episodes):
    training, held = rows(numbered(LENGTHS).split([count], holdout), 0)
    np.testing.assert_array_equal(held, np.concatenate([10 * e + np.arange(10) for e in episodes]))
    assert sorted([*training, *held]) == list(range(10 * count))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_fewer_than_four_episodes_a_block_within_the_first_is_held_out(count):
    lengths = np.full(5, 40)
    training, held = rows(numbered(lengths).split([count], 0.1), 0)
    np.testing.assert_array_equal(held, held[0] + np.arange(4))
    assert 0 < held[0] < held[-1] < 39  # the last step says how the episode ended
    assert sorted([*training, *held]) == list(range(40 * count))


@pytest.mark.parametrize("counts", [[1, 5, 25], [25, 1, 5], [2, 3], [3, 4, 24]])
def test_a_run_has_the_same_data_alone_and_beside_others(counts):
    """Also in the same order, so that it trains to the same policy."""
    demonstrations = numbered(LENGTHS)
    together = demonstrations.split(counts, 0.05)
    for run, count in enumerate(counts):
        alone = rows(demonstrations.split([count], 0.05), 0)
        short = rows(demonstrations.first(count).split([count], 0.05), 0)
        for one, two, three in zip(rows(together, run), alone, short, strict=True):
            np.testing.assert_array_equal(one, two)
            np.testing.assert_array_equal(one, three)


def test_without_a_holdout_both_parts_have_all_steps():
    split = numbered(LENGTHS).split([1, 25], 0.0)
    for run, size in enumerate((10, 250)):
        for part in rows(split, run):
            np.testing.assert_array_equal(part, np.arange(size))


@pytest.mark.parametrize("lengths", [[1], [2], [2, 1, 2]])
def test_an_episode_too_short_for_a_block_holds_nothing_out(lengths):
    assert kind_of(np.asarray(lengths), len(lengths), 0.05) == "training"
    training, held = rows(numbered(lengths).split([len(lengths)], 0.05), 0)
    np.testing.assert_array_equal(training, held)
    assert len(training) == sum(lengths)


def test_a_short_first_episode_does_not_mix_the_data_of_larger_numbers():
    split = numbered([2, 9, 9, 9, 9]).split([1, 5], 0.05)
    assert rows(split, 0)[0].tolist() == [0, 1]
    assert sorted(np.concatenate(rows(split, 1))) == list(range(38))


def test_many_held_out_steps_are_thinned():
    demonstrations = numbered(np.full(FEWEST, 10_000))
    _, held = rows(demonstrations.split([FEWEST], 0.05), 0)
    assert len(held) == MAX_STEPS
    assert (held[0], held[-1]) == (30_000, 39_999)
    assert set(np.diff(held)) <= {2, 3}


@pytest.mark.parametrize("holdout", [-0.1, 0.6, "half"])
def test_a_fraction_that_is_none_is_refused(holdout):
    with pytest.raises(us.UnderstudyError, match="holdout is"):
        numbered(LENGTHS).split([4], holdout)
