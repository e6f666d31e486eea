"""Replay estimation with networks: the weights, who sees them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.reward import INIT, STEPS_WITH_ENDS, UPDATE, demonstrations, round_data
from understudy.algorithms.reward.averages import mean_features
from understudy.algorithms.reward.moments import count_weighted_steps
from understudy.core.errors import NeedsError, SettingError
from understudy.core.notices import UnderstudyWarning
from understudy.core.types import Weighted
from understudy.data.holdout import split, training_rows
from understudy.envs import make
from understudy.train import replays
from understudy.train.final import Player

SMALL = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 16, "replays": 4}
SMALL |= {"sac": {"hidden": (8,), "gradient_steps": 1}}
DISCRIMINATOR = {"discriminator_hidden": (8,), "discriminator_steps": 2}
LEARNERS = {
    "adril": us.adril(features=32, clone_steps=0, **SMALL),
    "adril gaussian": us.adril(kernel="gaussian", points=64, clone_steps=0, **SMALL),
    "gail": us.gail.preset("sac", **SMALL, **DISCRIMINATOR),
    "hype": us.hype(**SMALL, **DISCRIMINATOR),
}


@pytest.fixture
def quick_clones(monkeypatch):
    """Clones that learn little, in little time."""
    monkeypatch.setattr(replays, "CLONE", us.bc(rounds=1, gradient_steps=5, hidden=(8,), batch_size=16))
    monkeypatch.setattr(replays, "MEMBERS", 2)


@pytest.fixture(scope="module")
def data():
    given = demonstrations()
    return given.split([given.episodes], 0.0)[0].of(0)


def weighted(steps, weight):
    weight = jnp.asarray(weight, jnp.float32)
    return Weighted(steps, weight, jnp.cumsum(weight) / weight.sum())


def with_confidence(monkeypatch, value, holdout=0.0):
    """An estimate from three episodes of Pendulum, with the same M everywhere."""
    monkeypatch.setattr(replays.Confidence, "__call__", lambda self, obs: np.full(len(obs), value))
    given = us.load("Pendulum", episodes=3)
    play = Player(make("Pendulum"), None, 60.0).play_one
    return given, replays.estimate(us.adril(replays=5), given.spec, given, holdout, play)


def test_without_confidence_the_demonstrations_are_the_estimate(monkeypatch, quick_clones):
    given, found = with_confidence(monkeypatch, 0.0)
    assert len(found.weight) == given.steps
    np.testing.assert_allclose(found.weight, 1 / 3)
    assert {tuple(row) for row in found.steps.obs} == {tuple(row) for row in given.observations}


def test_a_held_out_block_does_not_make_its_episode_shorter(monkeypatch, quick_clones):
    """Three episodes have one block of held-out steps. An expected episode still has 200 steps."""
    given, found = with_confidence(monkeypatch, 0.0, holdout=0.2)
    assert len(found.weight) == given.steps - 40
    assert found.weight.sum() == pytest.approx(200)


def test_with_full_confidence_the_replays_are_the_estimate(monkeypatch, quick_clones):
    """Three folds, and five replays rounded up to two for each."""
    given, found = with_confidence(monkeypatch, 1.0)
    assert len(found.weight) == 6 * 200
    np.testing.assert_allclose(found.weight, 1 / 6)
    assert not {tuple(row) for row in found.steps.obs} & {tuple(row) for row in given.observations}
    assert (found.steps.round == -1).all()


def test_a_step_counts_by_the_confidence_in_all_states_up_to_it(monkeypatch, quick_clones):
    given, found = with_confidence(monkeypatch, 0.9)
    replayed = ~np.isin(found.steps.obs[:, 0], given.observations[:, 0])
    t = found.steps.t
    np.testing.assert_allclose(found.weight[replayed], 0.9 ** (t[replayed] + 1) / 6)
    np.testing.assert_allclose(found.weight[~replayed], (1 - 0.9 ** (t[~replayed] + 1)) / 3)
    assert t[replayed].max() == int(np.log(replays.SMALLEST) / np.log(0.9)) - 1
    assert found.weight.sum() == pytest.approx(200, rel=1e-3)


def test_confidence_is_one_on_the_clones_own_data(quick_clones):
    given = us.load("Pendulum", episodes=4)
    first = np.arange(given.steps) < 600
    confidence = replays.Confidence.fit(given.spec, given.transitions(), first, 0)
    np.testing.assert_array_equal(confidence(given.observations[:600]), 1)
    assert confidence(given.observations[600:]).max() <= 1


def test_confidence_falls_with_the_variance_beyond_the_largest_on_the_clones_data(monkeypatch):
    monkeypatch.setattr(replays.Confidence, "variance", lambda self, obs: obs[:, 0])
    confidence = replays.Confidence(us.load("Pendulum").spec, [], 2.0)
    np.testing.assert_allclose(confidence(np.array([[0.0], [2.0], [4.0], [8.0]])), [1, 1, np.exp(-1), np.exp(-3)])


def test_training_rows_are_the_rows_of_the_split():
    given = us.load("Pendulum", episodes=6)
    for count, holdout in ((6, 0.2), (2, 0.1), (3, 0.0)):
        data = split(given.transitions(), given.lengths, [count], holdout).training
        rows = training_rows(given.lengths, count, holdout)
        own = np.asarray(data.steps.obs)[: int(data.size[0])]
        assert {tuple(row) for row in own} == {tuple(row) for row in given.observations[rows]}
        assert len(rows) == len(own)
        assert (np.diff(rows) > 0).all()


def test_weighted_steps_are_drawn_in_proportion_to_their_weights(data):
    weight = np.zeros(34)
    weight[[3, 20]] = 1, 3
    drawn = weighted(data.steps, weight).sample(jax.random.key(0), (4000,))
    rows = np.asarray(drawn.obs)[:, 0]
    assert set(rows) == {3.0, 20.0}
    assert (rows == 20).mean() == pytest.approx(0.75, abs=0.03)


def test_means_and_counts_use_the_weights(data):
    kernel = INIT(LEARNERS["adril"], demonstrations().spec, data).kernel
    weight = np.random.default_rng(0).uniform(size=34)
    features = np.asarray(kernel.features(kernel.points(data.steps)))
    found = mean_features(kernel, data._replace(estimate=weighted(data.steps, weight)))
    np.testing.assert_allclose(found, weight @ features / weight.sum(), atol=1e-6)
    counts = count_weighted_steps(weighted(data.steps, weight), 10)
    assert float(counts.absorbing_steps) == pytest.approx(6 * weight[3], rel=1e-5)  # terminal at t = 3 of 10
    assert float(counts.steps) == pytest.approx(weight.sum(), rel=1e-5)


@pytest.mark.parametrize("name", LEARNERS)
def test_f_sees_the_estimate_in_place_of_the_demonstrations(name, data):
    """A weight on a single step: f then falls there, below all other steps."""
    one = data._replace(estimate=weighted(data.steps, np.arange(34) == 20))
    states = []
    for given in (data, one):
        state = INIT(LEARNERS[name], demonstrations().spec, given)
        for index in (0, 1):
            state, _ = UPDATE(LEARNERS[name], state, round_data(given, STEPS_WITH_ENDS, index))
        states.append(np.asarray(state.moments.reward(data.steps)))
    assert not np.allclose(states[0], states[1])
    if name.startswith("adril"):
        assert states[1].argmax() == 20


def test_a_run_trains_with_replays_for_each_number_of_demonstrations(quick_clones):
    learner = us.adril(features=16, rounds=1, round_steps=16, frequency=8, batch_size=8, clone_steps=0, replays=4)
    with pytest.warns(UnderstudyWarning, match="of the expert's side of f is from replays"):
        result = us.imitate(learner, "Pendulum", "Pendulum", seeds=2, episodes=[2, 3], progress=False)
    assert [run.status for run in result.runs] == ["finished"] * 4
    assert result.config["algorithm"]["hyperparameters"]["replays"] == 4


def test_what_replays_cannot_do_is_said_in_one_line():
    with pytest.raises(NeedsError, match=r"replays is 9, and a run trains on one demonstration.*give two or more"):
        us.imitate(us.adril(replays=9), "Pendulum", "Pendulum", episodes=1, progress=False)
    given = us.load("Pendulum", episodes=3).without_actions()
    with pytest.raises(NeedsError, match="needs replays=0: choose preset 'observations'"):
        us.imitate(us.adril.preset("observations", replays=9), given, "Pendulum", progress=False)
    with pytest.raises(SettingError, match="replays is 9 and kernel is 'indicator'"):
        us.adril.preset("paper", replays=9)
    with pytest.raises(SettingError, match="replays is -1"):
        us.gail(replays=-1)
