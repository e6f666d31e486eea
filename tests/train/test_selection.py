"""Which policy a run returns: candidates, their payoff on fresh episodes, and the choice among them."""

import csv
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import understudy as us
from support.algorithms import Classifier
from understudy.collect.recorder import Episodes
from understudy.core.errors import NeedsError, WorkerError
from understudy.core.notices import UnderstudyWarning
from understudy.core.types import Info, Transition
from understudy.evaluation.embeddings import standardized
from understudy.game import Algorithm
from understudy.policies import Normalized
from understudy.train.candidates import WINDOW, Kept
from understudy.train.final import Player
from understudy.train.selection import Judged, choose, episode_seed, held_out, jackknife_error, judge

HORIZON = 20
SPACE = us.Continuous((-1.0,), (1.0,))
SMALL = {"rounds": 6, "round_steps": 16, "frequency": 8, "batch_size": 8, "random_steps": 4}


def judged(payoff, spread=0.0, returns=0.0, episodes=10):
    """A candidate whose jackknife values spread around its payoff."""
    noise = np.linspace(-spread, spread, episodes)
    return Judged(payoff, payoff + noise, np.asarray(returns) + np.zeros(episodes))


# --------------------------------------------------------------------------------------------- the choice


def test_the_last_policy_is_returned_where_candidates_cannot_be_told_apart():
    noisy = Judged(0.19, 0.19 + 0.02 * np.cos(np.arange(10)), np.zeros(10))
    assert choose([judged(0.2), noisy], "payoff") == 0
    assert choose([judged(0.2)], "payoff") == 0


def test_a_policy_that_is_clearly_closer_replaces_the_last_one():
    assert choose([judged(0.5, 0.01), judged(0.4, 0.01), judged(0.2, 0.01)], "payoff") == 2
    assert choose([judged(0.2), judged(0.2)], "payoff") == 0


def test_noise_that_both_share_does_not_count():
    """All candidates start from the same states, so their differences are compared."""
    shared = 0.1 * np.cos(np.arange(10))
    last, other = (Judged(payoff, payoff + shared, np.zeros(10)) for payoff in (0.30, 0.25))
    assert jackknife_error(last.payoffs_without) > 0.2
    assert choose([last, other], "payoff") == 1


def test_with_select_return_the_return_decides():
    rng = np.random.default_rng(0)
    returns = rng.normal(100, 5, 10)
    last, better = Judged(0.1, np.full(10, 0.1), returns), Judged(0.5, np.full(10, 0.5), returns + 20)
    assert choose([last, better], "return") == 1
    assert choose([last, better], "payoff") == 0


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(1).normal(size=12)
    without = (values.sum() - values) / 11
    assert jackknife_error(without) == pytest.approx(values.std(ddof=1) / np.sqrt(12))
    assert jackknife_error(np.ones(1)) == float("inf")


# --------------------------------------------------------------------------------------------- the payoff


def demonstrations(lengths=(HORIZON,) * 6, terminals=None):
    rng = np.random.default_rng(0)
    count = sum(lengths)
    return us.Demonstrations.from_arrays(
        rng.normal(size=(count, 2)),
        rng.uniform(-1, 1, (count, 1)),
        lengths,
        terminals=terminals,
        action_space=SPACE,
        horizon=HORIZON,
    )


def played(obs, act, lengths, terminal):
    """Episodes of equal padded length that end by termination or by the time limit."""
    last = np.arange(obs.shape[1]) == (np.asarray(lengths) - 1)[:, None]
    blank = np.zeros(last.shape, np.int32)
    steps = Transition(blank, obs, act, obs, last & np.asarray(terminal)[:, None], last, last, blank)
    return Episodes(steps, np.zeros(last.shape), np.asarray(lengths))


def by_hand(data, points, alive):
    """‖mean embedding of the episodes − that of the expert‖ with the absorbing state as one more coordinate."""
    expert = np.concatenate([data.obs, data.act], axis=1)
    weights = np.concatenate([np.full(len(p), a / len(p) / len(points)) for p, a in zip(points, alive, strict=True)])
    every = np.concatenate([*points, expert])
    signed = np.concatenate([weights, np.full(len(expert), -(1 - data.absorbing) / len(expert))])
    gram = np.exp(-cdist(every, every, "sqeuclidean") / (2 * data.bandwidth**2))
    return np.sqrt(signed @ gram @ signed + (np.mean(1 - np.asarray(alive)) - data.absorbing) ** 2)


def test_the_reward_payoff_is_the_distance_of_mean_embeddings():
    """Also with episodes that terminate early, on either side."""
    lengths = (20, 5, 20, 20, 10, 20)
    ends = np.isin(np.arange(sum(lengths)), [24, 74])
    demos = demonstrations(lengths, ends)
    data = held_out(demos.spec, *demos.split([6], 0.2), 0)
    training = 75  # the fourth episode is held out
    assert data.absorbing == pytest.approx((15 + 10) / (training + 25))
    rng = np.random.default_rng(1)
    obs, act = rng.normal(1, 1, (3, HORIZON, 2)), rng.uniform(-1, 1, (3, HORIZON, 1))
    sizes, terminal = [20, 8, 15], [False, True, False]
    found = judge(played(obs, act, sizes, terminal), data)
    points = [
        np.concatenate([standardized(data.statistics, o[:n]), a[:n]], axis=1)
        for o, a, n in zip(obs, act, sizes, strict=True)
    ]
    assert found.payoff == pytest.approx(by_hand(data, points, [1, 8 / 20, 1]))
    for left in range(3):
        rest = [i for i in range(3) if i != left]
        wanted = by_hand(data, [points[i] for i in rest], np.asarray([1, 8 / 20, 1])[rest])
        assert found.payoffs_without[left] == pytest.approx(wanted)


def test_the_payoff_of_the_held_out_steps_themselves_is_zero():
    demos = demonstrations()
    data = held_out(demos.spec, *demos.split([6], 0.2), 0)
    rows = slice(3 * HORIZON, 4 * HORIZON)
    same = played(demos.observations[None, rows], demos.actions[None, rows], [HORIZON], [False])
    assert judge(same, data).payoff == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_payoffs_do_not_depend_on_the_units_of_observations(scale):
    demos = demonstrations()
    other = us.Demonstrations.from_arrays(
        demos.observations * scale, demos.actions, demos.lengths, action_space=SPACE, horizon=HORIZON
    )
    rng = np.random.default_rng(1)
    obs, act = rng.normal(1, 1, (3, HORIZON, 2)), rng.uniform(-1, 1, (3, HORIZON, 1))
    payoffs = []
    for d, factor in ((demos, 1.0), (other, scale)):
        data = held_out(d.spec, *d.split([6], 0.2), 0)
        payoffs.append(judge(played(obs * factor, act, [HORIZON] * 3, [False] * 3), data).payoff)
    assert payoffs[1] == pytest.approx(payoffs[0], rel=1e-4)


# --------------------------------------------------------------------------------------------- candidates


class Scored(Algorithm):
    """Its policy is the number of the round, its score comes from a list."""

    card = Classifier.card
    rounds: int = eqx.field(static=True, default=9)

    def init(self, key, spec, demonstrations):
        return jnp.zeros(())

    def update(self, state, data, key):
        return state, Info({})

    def policy(self, state):
        return {"round": state}


def kept_after(scores, parts=3, valid=None):
    algorithm = Scored(rounds=len(scores))
    kept = Kept.init(algorithm, jnp.zeros(()), parts)
    for index, score in enumerate(scores):
        info = Info({}, score=None if score is None else jnp.asarray(float(score)))
        fine = jnp.asarray(True if valid is None else valid[index])
        kept = kept.update(algorithm, jnp.asarray(index + 1.0), info, jnp.asarray(index), fine)
    return jax.device_get(kept)


def test_of_each_part_the_policy_with_the_lowest_mean_score_is_kept():
    scores = [5, 4, 3, 3, 1, 1, 1, 9, 9]
    means, mean = [], 0.0
    for index, score in enumerate(scores):
        mean += (score - mean) / min(index + 1, WINDOW)
        means.append(mean)
    best = [3 * part + int(np.argmin(means[3 * part : 3 * part + 3])) for part in range(3)]
    kept = kept_after(scores)
    np.testing.assert_array_equal(kept.rounds, np.asarray(best) + 1)
    np.testing.assert_allclose(kept.scores, [means[index] for index in best], rtol=1e-6)
    np.testing.assert_array_equal(kept.policies["round"], kept.rounds)


def test_without_scores_the_last_policy_of_each_part_is_kept():
    np.testing.assert_array_equal(kept_after([None] * 7, parts=2).rounds, [4, 7])


def test_rounds_after_a_run_has_ended_are_not_kept():
    kept = kept_after([3, 3, 3, np.nan, np.nan, np.nan], valid=[True, True, True, False, False, False])
    np.testing.assert_array_equal(kept.rounds, [2, 3, 0])
    assert np.isfinite(kept.scores).all()


# ------------------------------------------------------------------------------------------ through imitate


@pytest.fixture(scope="module")
def small():
    return us.adril(**SMALL, sac=us.adril().sac.__class__(hidden=(8,), gradient_steps=2))


@pytest.fixture(scope="module")
def kept(small, tmp_path_factory):
    """A run with two candidates of earlier rounds, saved."""
    result = us.imitate(small, us.load("Pendulum", episodes=5), env="Pendulum", seeds=2, keep=2)
    path = tmp_path_factory.mktemp("kept") / "run"
    result.save(path)
    return result, path


def test_the_payoff_and_return_of_a_run_are_those_of_the_policy_that_it_returns(kept):
    result, _ = kept
    demos = us.load("Pendulum", episodes=5)
    data = held_out(demos.spec, *demos.split([5], result.config["holdout"]), 0)
    for run, actor in zip(result.runs, result.policies, strict=True):
        again = judge(us.rollout("Pendulum", actor.policy, 10, episode_seed(run.seed)), data)
        assert run.payoff == pytest.approx(again.payoff)
        assert run.payoff_error == pytest.approx(again.payoff_error)
        assert run.mean_return == pytest.approx(again.returns.mean())
        assert run.held_out_steps == 200


def test_kept_candidates_are_saved_with_their_results(kept):
    result, path = kept
    with (path / "candidates" / "candidates.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["candidate"] for row in rows] == [one.name for one in result.candidates]
    assert {row["run"] for row in rows} == {run.name for run in result.runs}
    assert all("round" in name or name.startswith("last") for name in {row["candidate"] for row in rows})
    obs = us.load("Pendulum").observations[:5]
    for row, candidate in zip(rows, result.candidates, strict=True):
        loaded = us.load_policy(path / "candidates" / row["file"])
        np.testing.assert_array_equal(loaded(obs), candidate.actor(obs))
        assert float(row["held_out_payoff"]) == candidate.payoff
        chosen = next(run.returned for run in result.runs if run.name == row["run"])
        assert (row["returned"] == "True") == (candidate.name == chosen)


def test_a_saved_run_keeps_what_is_known_of_its_policies(kept):
    result, path = kept
    assert us.load_run(path).runs == result.runs
    assert us.load_run(path).selected == result.selected


def test_select_last_returns_the_last_policy(small):
    states = {}
    result = us.imitate(
        small,
        us.load("Pendulum", episodes=5),
        env="Pendulum",
        select="last",
        visit=lambda n, s: states.update(last=s()),
    )
    wanted = small.policy(jax.tree.map(lambda x: np.asarray(x[0]), states["last"]))
    assert isinstance(wanted, Normalized)
    assert eqx.tree_equal(jax.tree.map(np.asarray, wanted), jax.tree.map(np.asarray, result.policy.policy))
    assert result.runs[0].returned == "last"
    assert result.runs[0].mean_return is not None


def test_select_return_needs_an_environment():
    with pytest.raises(NeedsError, match="select='return'"):
        us.imitate(us.bc.preset("quick"), us.load("Pendulum", episodes=4), select="return")
    with pytest.raises(us.UnderstudyError, match="select is 'best'"):
        us.imitate(us.bc.preset("quick"), us.load("Pendulum", episodes=4), select="best")


def test_an_offline_algorithm_can_keep_candidates_and_select_by_return():
    algorithm = us.bc(rounds=4, gradient_steps=2, hidden=(8,))
    result = us.imitate(algorithm, us.load("Pendulum", episodes=4), env="Pendulum", select="return", keep=2)
    assert [one.name for one in result.candidates] == ["last", "round 2"]
    best = max(result.candidates, key=lambda one: one.mean_return)
    assert result.runs[0].mean_return in (best.mean_return, result.candidates[0].mean_return)


def test_if_fresh_episodes_fail_the_last_policy_is_returned_and_a_warning_says_so(small, monkeypatch):
    def fail(self, jobs):
        return (WorkerError("the simulator is gone") for _ in jobs)

    monkeypatch.setattr(Player, "play", fail)
    with pytest.warns(UnderstudyWarning, match="the simulator is gone"):
        result = us.imitate(small, us.load("Pendulum", episodes=5), env="Pendulum")
    assert result.runs[0].returned == "last"
    assert result.runs[0].payoff_error is None
    last = result.metrics["payoff"][0, -WINDOW:]
    assert result.runs[0].payoff == pytest.approx(last.mean(), rel=1e-5)


@pytest.mark.parametrize(("episodes", "words"), [(1, "part of an episode"), (3, "part of an episode"), (5, None)])
def test_a_payoff_that_means_little_is_announced(episodes, words):
    algorithm = us.bc(rounds=1, gradient_steps=1, hidden=(4,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        us.imitate(algorithm, us.load("Pendulum", episodes=episodes))
    found = [str(one.message) for one in caught if "means little" in str(one.message)]
    assert len(found) == (words is not None)
    assert all(words in text for text in found)


def test_constant_numbers_of_observations_are_named():
    demos = us.load("Pendulum", episodes=4)
    obs = np.insert(demos.observations, 1, 7.0, axis=1)
    with_constant = us.Demonstrations.from_arrays(obs, demos.actions, demos.lengths, action_space=demos.action_space)
    with pytest.warns(UnderstudyWarning, match=r"1 of 4 numbers .* \(1\)"):
        us.imitate(us.bc(rounds=1, gradient_steps=1, hidden=(4,)), with_constant)
