"""Early stopping: collapses are detected, the payoff threshold uses a mean, and a collapsed round is undone."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SettingError
from understudy.core.types import Info
from understudy.game import Algorithm, Card
from understudy.game.stopping import CollapseDetector, PayoffThreshold
from understudy.policies import MLP, Categorical, Policy

SEEDS = 200


@eqx.filter_jit
def jumps(detector, losses):
    """(seeds, rounds): where the detector finds a jump."""

    def scan(row):
        return jax.lax.scan(lambda state, loss: detector.update(state, loss), detector.init(), row)[1]

    return jax.vmap(scan)(jnp.asarray(losses, jnp.float32))


def noisy_line(rounds, slope, noise=0.05):
    """(seeds, rounds): a straight line with Gaussian noise."""
    fluctuation = np.random.default_rng(0).normal(size=(SEEDS, rounds))
    return 2 + slope * np.arange(rounds) + noise * fluctuation


@pytest.mark.parametrize("slope", [-4e-3, 0.0, 4e-3], ids=["falls", "stays", "rises slowly"])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
def test_a_steadily_changing_loss_is_no_jump(slope, noise):
    assert not jumps(CollapseDetector(), noisy_line(500, slope, noise)).any()


@pytest.mark.parametrize("height", [3.0, -3.0], ids=["up", "down"])
def test_a_jump_is_detected_in_its_round(height):
    losses = noisy_line(120, -4e-3)
    losses[:, 80:] += height
    found = jumps(CollapseDetector(), losses)
    assert not found[:, :80].any()
    assert found[:, 80].all()


def test_a_single_outlier_is_a_jump():
    losses = noisy_line(120, -4e-3)
    losses[:, 80] += 3.0
    assert jumps(CollapseDetector(), losses)[:, 80].all()


@pytest.mark.parametrize("warm_up", [20, 50])
def test_nothing_is_a_jump_during_the_warm_up(warm_up):
    for last, detected in ((warm_up - 1, False), (warm_up, True)):
        losses = noisy_line(warm_up + 1, 0.0)
        losses[:, last] += 100.0
        assert (jumps(CollapseDetector(warm_up=warm_up), losses)[:, last] == detected).all()


def test_the_size_of_a_jump_is_measured_in_mean_deviations():
    """A loss that alternates between 0 and 1 has the mean deviation 1/2; this jump is 6 times that."""
    losses = np.tile([0.0, 1.0], 200)
    losses[-1] = 0.5 + 6 * 0.5
    assert jumps(CollapseDetector(jump=5.0, memory=0.01), losses[None])[0, -1]
    assert not jumps(CollapseDetector(jump=7.0, memory=0.01), losses[None])[0, -1]


def test_a_jump_of_zero_never_stops():
    losses = noisy_line(120, 0.0)
    losses[:, 80:] += 1e6
    assert not jumps(CollapseDetector(jump=0.0), losses).any()


def test_a_sweep_over_the_size_of_a_jump_is_one_program():
    losses = noisy_line(120, 0.0)[:1]
    losses[:, 80] += 3.0
    sizes = jnp.array([0.0, 8.0, 1e6])
    found = jax.vmap(lambda jump: jumps(eqx.tree_at(lambda w: w.jump, CollapseDetector(), jump), losses).any())(sizes)
    np.testing.assert_array_equal(found, [False, True, False])


@pytest.mark.parametrize(
    ("kind", "setting", "words"),
    [
        (CollapseDetector, {"jump": -1.0}, "jump is -1.0"),
        (CollapseDetector, {"jump": float("nan")}, "jump is nan"),
        (CollapseDetector, {"memory": 0.0}, "memory is 0.0"),
        (CollapseDetector, {"memory": 1.5}, "memory is 1.5"),
        (CollapseDetector, {"warm_up": 1}, "warm_up is 1"),
        (PayoffThreshold, {"delta": 0.0}, "delta is 0.0"),
        (PayoffThreshold, {"window": 0}, "window is 0"),
        (PayoffThreshold, {"warm_up": 0}, "warm_up is 0"),
    ],
)
def test_settings_out_of_range_are_named(kind, setting, words):
    with pytest.raises(SettingError, match=words):
        kind(**setting)


def decisions(threshold, payoffs):
    """Whether to stop after each round."""
    window, stops = threshold.init(), []
    for rounds, payoff in enumerate(payoffs, start=1):
        window, stop = threshold.update(window, jnp.asarray(payoff, jnp.float32), jnp.asarray(rounds))
        stops.append(bool(stop))
    return stops


@pytest.mark.parametrize(("window", "warm_up"), [(1, 1), (3, 1), (3, 12), (10, 4), (4, 30)])
def test_the_threshold_stops_when_the_mean_over_the_window_is_small(window, warm_up):
    """Not before there are `window` payoffs, and not during the warm-up."""
    payoffs = np.random.default_rng(1).uniform(0.2, 1.0, 25).round(2)
    expected = [
        i >= max(window, warm_up) and payoffs[i - window : i].mean() < 0.585 for i in range(1, len(payoffs) + 1)
    ]
    assert decisions(PayoffThreshold(0.585, window, warm_up), payoffs) == expected
    assert any(expected) == (warm_up <= len(payoffs))


def test_without_a_delta_the_threshold_never_stops():
    assert not any(decisions(PayoffThreshold(window=1, warm_up=1), [-1e30, 0.0, 1e-30]))


class CollapseState(NamedTuple):
    rounds: jax.Array
    limit: jax.Array


class Collapsing(Algorithm):
    """Counts its rounds. Each run draws a number from its seed; if it is even, the run collapses in that round."""

    card: ClassVar[Card] = Card(
        "collapsing", "Collapsing", "off-Q", "-", ("demonstrations",), ("continuous", "discrete"), "nothing", ""
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("unused", "it collapsed")
    rounds: int = eqx.field(static=True, default=12)

    def init(self, key, spec, demonstrations):
        return CollapseState(jnp.zeros(()), jax.random.randint(key, (), 2, 10))

    def update(self, state, data, key):
        state = state._replace(rounds=state.rounds + 1)
        over, even = state.rounds == state.limit, state.limit % 2 == 0
        return state, Info({"loss": state.rounds}, jnp.where(over & even, 2, 0), undo=over & even)

    def policy(self, state) -> Policy:
        counts = jnp.stack([jnp.asarray(state.rounds), jnp.asarray(state.limit, jnp.float32), jnp.zeros(())])
        return Categorical(MLP((jnp.zeros((4, 3)),), (counts,), "relu"))


def test_a_collapsed_round_is_undone_and_other_runs_continue(discrete):
    result = us.imitate(Collapsing(), discrete, seeds=6)
    collapsed = 0
    for run, actor, row in zip(result.runs, result.policies, result.metrics["loss"], strict=True):
        rounds, limit = (int(number) for number in actor.policy.net.biases[0][:2])
        if limit % 2 == 0:
            collapsed += 1
            assert rounds == limit - 1
            assert f"round {limit}" in run.status
            assert "it collapsed" in run.status
            assert row[limit - 1] == limit  # the metrics of the collapsed round are kept
            assert np.isnan(row[limit:]).all()
        else:
            assert (rounds, run.status) == (12, "finished")
            np.testing.assert_array_equal(row, np.arange(1, 13))
    assert 0 < collapsed < 6
