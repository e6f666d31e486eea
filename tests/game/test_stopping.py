"""Early stopping: a collapse is told from fluctuation, a payoff is small when its mean is, a spoilt round is undone."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import test_loop
import understudy as us
from understudy.core.errors import SettingError
from understudy.core.types import Info
from understudy.game import Algorithm, Card
from understudy.game.stopping import PayoffThreshold, CollapseDetector
from understudy.policies import Policy, Tabular

demonstrations, no_criterion = test_loop.demonstrations, test_loop.no_criterion
SEEDS = 200


@eqx.filter_jit
def alarms(watch, seen):
    """(seeds, rounds): where the watch saw a jump."""
    look = jax.vmap(lambda row: jax.lax.scan(lambda memory, loss: watch.look(memory, loss), watch.init(), row)[1])
    return look(jnp.asarray(seen))


def losses(rounds, slope, noise=0.05):
    """(seeds, rounds): a straight line in Gaussian noise."""
    fluctuation = np.random.default_rng(0).normal(size=(SEEDS, rounds))
    return 2 + slope * np.arange(rounds) + noise * fluctuation


@pytest.mark.parametrize("slope", [-4e-3, 0.0, 4e-3], ids=["falls", "stays", "rises slowly"])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
def test_a_loss_that_changes_steadily_raises_no_alarm(slope, noise):
    assert not alarms(CollapseDetector(), losses(500, slope, noise)).any()


@pytest.mark.parametrize("height", [3.0, -3.0], ids=["up", "down"])
def test_a_jump_is_found_in_the_very_round_it_happens(height):
    seen = losses(120, -4e-3)
    seen[:, 80:] += height
    found = alarms(CollapseDetector(), seen)
    assert not found[:, :80].any()
    assert found[:, 80].all()


def test_a_single_large_fluctuation_is_a_jump_too():
    seen = losses(120, -4e-3)
    seen[:, 80] += 3.0
    assert alarms(CollapseDetector(), seen)[:, 80].all()


@pytest.mark.parametrize("warm_up", [20, 50])
def test_there_is_no_alarm_during_the_warm_up(warm_up):
    for last, expected in ((warm_up - 1, False), (warm_up, True)):
        seen = losses(warm_up + 1, 0.0)
        seen[:, last] += 100.0
        assert (alarms(CollapseDetector(warm_up=warm_up), seen)[:, last] == expected).all()


def test_the_size_of_a_jump_is_measured_in_usual_deviations():
    """A loss that alternates between 0 and 1 usually deviates by 1/2 from its level of 1/2; this jump is 6 of those."""
    seen = np.tile([0.0, 1.0], 200)
    seen[-1] = 0.5 + 6 * 0.5
    assert alarms(CollapseDetector(jump=5.0, memory=0.01), seen[None])[0, -1]
    assert not alarms(CollapseDetector(jump=7.0, memory=0.01), seen[None])[0, -1]


def test_a_jump_of_zero_never_stops():
    seen = losses(120, 0.0)
    seen[:, 80:] += 1e6
    assert not alarms(CollapseDetector(jump=0.0), seen).any()


def test_a_sweep_over_the_size_of_a_jump_is_one_program():
    seen = losses(120, 0.0)[:1]
    seen[:, 80] += 3.0
    sizes = jnp.array([0.0, 8.0, 1e6])
    found = jax.vmap(lambda jump: alarms(eqx.tree_at(lambda w: w.jump, CollapseDetector(), jump), seen).any())(sizes)
    np.testing.assert_array_equal(found, [False, True, False])


@pytest.mark.parametrize(
    ("kind", "setting", "said"),
    [
        (CollapseDetector, {"jump": -1.0}, "jump is -1.0"),
        (CollapseDetector, {"jump": float("nan")}, "jump is nan"),
        (CollapseDetector, {"memory": 0.0}, "memory is 0.0"),
        (CollapseDetector, {"memory": 1.5}, "memory is 1.5: a number from 0 to 1 is needed"),
        (CollapseDetector, {"warm_up": 1}, "warm_up is 1: a whole number of at least 2"),
        (PayoffThreshold, {"delta": 0.0}, "delta is 0.0"),
        (PayoffThreshold, {"window": 0}, "window is 0"),
        (PayoffThreshold, {"warm_up": 0}, "warm_up is 0"),
    ],
)
def test_settings_out_of_range_are_named(kind, setting, said):
    with pytest.raises(SettingError, match=said):
        kind(**setting)


def verdicts(target, payoffs):
    """After each round: whether the target says to stop."""
    seen, said = target.init(), []
    for rounds, payoff in enumerate(payoffs, start=1):
        seen, small = target.look(seen, jnp.asarray(payoff), jnp.asarray(rounds))
        said.append(bool(small))
    return said


@pytest.mark.parametrize(("window", "warm_up"), [(1, 1), (3, 1), (3, 12), (10, 4), (4, 30)])
def test_the_target_is_met_when_the_mean_over_the_window_is_small(window, warm_up):
    """The mean of the last `window` payoffs, by hand; neither before that many are there nor before the warm-up."""
    payoffs = np.random.default_rng(1).uniform(0.2, 1.0, 25).round(2)
    by_hand = [i >= max(window, warm_up) and payoffs[i - window : i].mean() < 0.585 for i in range(1, len(payoffs) + 1)]
    assert verdicts(PayoffThreshold(0.585, window, warm_up), payoffs) == by_hand
    assert any(by_hand) == (warm_up <= len(payoffs))


def test_without_a_delta_the_target_is_never_met():
    assert not any(verdicts(PayoffThreshold(window=1, warm_up=1), [-1e30, 0.0, 1e-30]))


class Spoilt(NamedTuple):
    rounds: jax.Array
    limit: jax.Array


class Spoiling(Algorithm):
    """Counts its rounds. Each run draws a number from its seed: that round spoils it, if the number is even."""

    card: ClassVar[Card] = Card(
        "spoiling", "Spoiling", "off-Q", "-", ("demonstrations",), ("continuous", "discrete"), "nothing", ""
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("it is enough", "it was spoilt")
    rounds: int = eqx.field(static=True, default=12)

    def init(self, key, spec, demonstrations):
        return Spoilt(jnp.zeros(()), jax.random.randint(key, (), 2, 10))

    def update(self, state, data, key):
        state = state._replace(rounds=state.rounds + 1)
        over, even = state.rounds == state.limit, state.limit % 2 == 0
        return state, Info({"loss": state.rounds}, jnp.where(over & even, 2, 0), undo=over & even)

    def policy(self, state) -> Policy:
        return Tabular(jnp.stack([jnp.asarray(state.rounds), jnp.asarray(state.limit, float)])[None])


def test_a_spoilt_round_is_undone_while_the_others_go_on(demonstrations):
    result = us.imitate(Spoiling(), demonstrations, seeds=6)
    spoilt = 0
    for run, actor, row in zip(result.runs, result.policies, result.metrics["loss"], strict=True):
        rounds, limit = (int(number) for number in actor.policy.table[0])
        if limit % 2 == 0:
            spoilt += 1
            assert rounds == limit - 1
            assert run.status == f"stopped in round {limit}: it was spoilt, so the policy of round {rounds} is kept"
            assert row[limit - 1] == limit  # what gave it away is there to be seen, and nothing after it
            assert np.isnan(row[limit:]).all()
        else:
            assert (rounds, run.status) == (12, "finished")
            np.testing.assert_array_equal(row, np.arange(1, 13))
    assert 0 < spoilt < 6
