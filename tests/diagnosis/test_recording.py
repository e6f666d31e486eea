"""What the measures of a recording see: other units, orders and rates, limits, copies, frozen columns, leaks."""

import numpy as np
import planted_cases
import pytest

import understudy as us
from understudy.diagnosis import better
from understudy.diagnosis.copies import branches, repeated
from understudy.diagnosis.environment_model import Model, Recorded, part_of
from understudy.diagnosis.gathering import gather
from understudy.diagnosis.hygiene import frozen
from understudy.diagnosis.leaks import leaked
from understudy.diagnosis.readings import found, searched
from understudy.diagnosis.survival import limit_ends

SPACE = us.Continuous((-2.0,) * 2, (2.0,) * 2)


def world(rng, steps, act):
    """States, actions and next states of a linear world with 3 columns and 2 actions."""
    a = np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.3], [-0.2, 0.0, 0.1]])
    b = np.array([[0.0, 0.0], [0.5, 0.0], [0.1, 0.4]])
    s = rng.normal(size=(steps, 3))
    chosen = act(s)
    return s, chosen, s + s @ a.T + chosen @ b.T


def expert(s):
    return np.tanh(np.stack([-s[:, 0] - s[:, 1] ** 2, s[:, 2] - s[:, 0]], axis=1))


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return Model(*world(rng, 3000, lambda s: rng.uniform(-2, 2, (len(s), 2))))


def recorded(change):
    """Demonstrated steps after a change of (states, actions, next states)."""
    s, a, after = change(*world(np.random.default_rng(1), 600, expert))
    return Recorded.of(s, a, after, part_of(np.full(10, 60)))


@pytest.mark.parametrize(
    ("kind", "reading", "change"),
    [
        ("scale", "scale 10 of action 1", lambda s, a, after: (s, a * np.array([1, 0.1]), after)),
        ("scale", "scale -1 of action 0", lambda s, a, after: (s, a * np.array([-1, 1]), after)),
        ("scale", "scale 2", lambda s, a, after: (s, a / 2, after)),
        ("columns", "actions 0 1", lambda s, a, after: (s, a[:, ::-1], after)),
        ("columns", "columns 0 2", lambda s, a, after: (s[:, ::-1], a, after[:, ::-1])),
        ("columns", "columns in the order 2 0 1", lambda s, a, after: (s[:, [1, 2, 0]], a, after[:, [1, 2, 0]])),
        ("rate", "rate 0.1", lambda s, a, after: (s, a, s + 0.1 * (after - s))),
    ],
)
def test_the_right_reading_explains_what_the_data_as_recorded_do_not(model, kind, reading, change):
    best = found(model, recorded(change), SPACE)[kind]
    assert best.name == reading
    assert best.gain > 0.05
    assert best.explained > 0.8
    assert best.t > 8


def test_no_reading_explains_more_of_sound_data(model):
    best = found(model, recorded(lambda *steps: steps), SPACE)
    assert all(one.gain < 0.02 for one in best.values())


def test_units_of_an_uneven_range_are_found():
    """Actions from 0 to 4 that are recorded as shares of the range from -1 to 1."""
    rng = np.random.default_rng(2)
    high = us.Continuous((0.0,) * 2, (4.0,) * 2)
    model = Model(*world(rng, 3000, lambda s: rng.uniform(0, 4, (len(s), 2))))
    s, a, after = world(np.random.default_rng(3), 600, lambda s: 2 + 2 * expert(s))
    steps = Recorded.of(s, a / 2 - 1, after, part_of(np.full(10, 60)))
    best = found(model, steps, high)["scale"]
    assert best.name.startswith("scale 2 +2 of action 0")
    assert best.explained > 0.9


def test_the_search_leaves_an_order_that_no_single_swap_improves():
    """Places and speeds in turns: a place and its speed must move together."""
    right = np.array([0, 2, 4, 1, 3, 5])

    def wrong(order):
        paired = sum((order[i] // 2 != order[i + 3] // 2) + (order[i] % 2) + (order[i + 3] % 2 == 0) for i in range(3))
        return float(paired + 0.3 * (order != right).mean())

    assert (searched(wrong, 6) == right).all()


def test_terminals_at_a_limit_are_counted_against_those_of_chance():
    rng = np.random.default_rng(4)
    falls = limit_ends(rng.integers(1, 100, 200), np.ones(200, bool), 100)
    assert falls["at"] - 3 * falls["expected"] < 1
    mixed = limit_ends(np.array([30, 71, 100, 100, 100, 12]), np.ones(6, bool), 100)
    assert (mixed["at"], mixed["expected"]) == (3, 0.0)


def test_copies_are_found_with_small_errors_and_when_they_are_cut():
    rng = np.random.default_rng(5)
    demos = planted_cases.line_world(rng, planted_cases.steer, 8, 40)
    index = np.concatenate([planted_cases.rows(demos, list(range(8))), np.arange(30), np.arange(40, 80)])
    noise = 1e-5 * rng.normal(size=(len(index), 4))
    copied = planted_cases.remade(
        demos,
        observations=demos.observations[index] + noise,
        actions=demos.actions[index],
        lengths=[40] * 8 + [30, 40],
        next_observations=None,
    )
    assert repeated(demos) == 0
    assert repeated(copied) == pytest.approx(0.2)
    assert not branches(demos)


def test_starts_of_an_environment_that_repeat_do_not_count_as_copies():
    env = us.Finite.of(planted_cases.loop(20))
    demos = us.record(env, env.expert(), 20, progress=False)
    assert repeated(demos) > 0.5
    found = us.diagnose(demos, env)
    assert found["hygiene"].numbers["repeats_in_env"] > 0.5
    assert found.causes[0].name == "none"


def test_a_column_that_is_frozen_in_each_episode_is_seen():
    rng = np.random.default_rng(6)
    obs = rng.normal(size=(60, 2))
    obs[:, 1] = np.repeat(obs[::20, 1], 20)
    share, wide = frozen(obs, np.full(3, 20))
    assert share.tolist() == [0.0, 1.0]
    assert wide[1] > 0.1
    obs[:, 1] = 5.0
    assert frozen(obs, np.full(3, 20))[1][1] == 0


def test_a_discrete_action_leaks_through_a_column_with_other_numbers():
    rng = np.random.default_rng(7)
    act = rng.integers(0, 4, 100)
    codes = np.array([3.0, -1.0, 7.0, 0.0])
    obs = np.stack([rng.normal(size=100), codes[act]], axis=1)
    demos = us.Demonstrations.from_arrays(obs, act, [50, 50], action_space=us.Discrete(4))
    assert leaked(demos) == (1.0, 1)


def test_a_short_search_beats_a_poor_expert():
    demos = us.record("CartPole-v1", lambda obs: (obs[:, 1] > 0).astype(int), 10, progress=False, workers=0)
    subject = gather(demos, "CartPole-v1")
    returns = better.returns(subject)
    assert returns.mean() > 5 * demos.returns.mean()
