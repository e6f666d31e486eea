"""HG-DAgger: a rule or a person takes over, these steps are answers, and the ensemble's doubt is recorded."""

import dataclasses
import queue

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.algorithms.on_q.hg_dagger import safety_threshold, supervisor
from understudy.console.settings import Settings
from understudy.console.store import Store
from understudy.console.trainer import Plan, _Training
from understudy.core.errors import SettingError
from understudy.data.details import Details
from understudy.policies import start

PENDULUM = us.make("Pendulum")
TINY = {"rounds": 3, "gradient_steps": 20, "batch_size": 8, "hidden": (8,), "episodes_per_round": 1, "lr": 1e-2}
TINY |= {"ensemble_size": 2}


def hanging(obs, act):
    return obs[0] < 0


def train(algorithm):
    states = []

    def visit(done, current):
        states.append(jax.tree.map(lambda x: jnp.asarray(x[0]), jax.device_get(current())))

    result = us.imitate(algorithm, "Pendulum", PENDULUM, "scripted", episodes=1, holdout=0.0, visit=visit)
    return states, result


@pytest.fixture(scope="module")
def run():
    return train(us.hg_dagger(**TINY, take_over=hanging, hold=0))


def test_the_expert_acts_where_the_rule_says_so_and_nowhere_else(run):
    states, result = run
    size = int(states[-1].cloned.aggregated.size)
    assert 0 < size == result.metrics["queries"][0, -1] < 400
    assert (np.asarray(states[-1].cloned.aggregated.steps.obs[:size, 0]) < 0).all()


def test_the_expert_holds_on_for_some_steps(run):
    algorithm = us.hg_dagger(**TINY, take_over=hanging, hold=2)
    memory, state, acts = jnp.zeros((), jnp.int32), run[0][-1], []
    for cosine in (0.5, -0.5, 0.5, -0.1, 0.5, 0.5, 0.5, 0.5):
        obs = jnp.array([cosine, 0.0, 0.0])
        memory, query, acting = algorithm.gate(state, memory, obs, jnp.zeros(1), jax.random.key(0))
        assert bool(query) == bool(acting)
        acts.append(bool(acting))
    assert acts == [False, True, True, True, True, True, False, False]


def test_the_threshold_is_the_mean_of_the_last_quarter_of_the_doubts(run):
    states, result = run
    before, after = states[-2:]
    first, size = int(before.cloned.aggregated.size), int(after.cloned.aggregated.size)
    new = jax.vmap(before.cloned.doubt)(after.cloned.aggregated.steps.obs[first:size])
    np.testing.assert_allclose(after.doubts[first:size], new, atol=1e-5)
    expected = np.asarray(after.doubts[:size])[-((size + 3) // 4) :].mean()
    assert result.metrics["doubt_threshold"][0, -1] == pytest.approx(expected, rel=1e-4)
    assert result.metrics["doubt_threshold"][0, 0] == 0
    assert 0 <= result.metrics["unsafe_share"][0, -1] <= 1


def test_the_simulated_supervisor_permits_states_near_those_that_are_known(run):
    algorithm, state = us.hg_dagger(**TINY), run[0][-1]
    act, size = jnp.zeros(1), int(state.cloned.aggregated.size)
    shown = us.load("Pendulum", episodes=1).observations[5]
    answered = state.cloned.aggregated.steps.obs[size - 1]
    assert not algorithm.alarmed(state, shown, act)
    assert not algorithm.alarmed(state, answered, act)
    assert algorithm.alarmed(state, answered + jnp.array([0.0, 0.0, 30.0]), act)


def test_a_supervisor_with_an_experts_eyes():
    rule, shown = supervisor(PENDULUM.expert(), 0.2), us.load("Pendulum")
    own = PENDULUM.expert().mode(start(), shown.observations[3])
    assert not rule(shown.observations[3], own + 0.1)
    assert rule(shown.observations[3], own + 0.3)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda obs, act: obs > 0, r"must return one boolean .* bool of shape \(3,\)"),
        (lambda obs, act: obs[0], r"must return one boolean .* float32 of shape \(\)"),
        (lambda obs, act: None, "must return one boolean .* a NoneType"),
        (lambda obs, act: bool(obs[0] > 0 and act[0] > 0), "use jnp.where"),
    ],
)
def test_a_rule_that_is_no_yes_or_no_is_refused_before_training(rule, words):
    with pytest.raises(SettingError, match=words):
        us.imitate(us.hg_dagger(**TINY, take_over=rule), "Pendulum", PENDULUM, "scripted", episodes=1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"take_over": "always"}, r"take_over is 'always': give a function of \(obs, act\)"),
        ({"take_over": lambda obs: True}, r"take_over takes \(obs\): give a function of \(obs, act\)"),
        ({"margin": 0.0}, "margin is 0.0"),
        ({"hold": -1}, "hold is -1"),
    ],
)
def test_impossible_settings_are_refused(setting, words):
    with pytest.raises(SettingError, match=words):
        us.hg_dagger(**setting)


# ----------------------------------------------------------------------------------------------- the console


@pytest.fixture(scope="module")
def attempt():
    """A watched episode in which a person has acted at steps 3 to 5 and 8."""
    episode = us.record(PENDULUM, PENDULUM.expert(), episodes=1, seed=7)
    acted = np.isin(np.arange(episode.steps), [3, 4, 5, 8])
    return dataclasses.replace(episode, details=Details(interventions=acted, origin="policy 1"))


def test_take_overs_in_the_console_are_training_data_and_nobody_is_asked(attempt, tmp_path):
    algorithm = us.hg_dagger(**TINY)
    settings = Settings(algorithm, us.load("Pendulum", episodes=1))
    assert not settings.asks
    assert "asks no questions" in settings.note
    store = Store.open(tmp_path / "out", "Pendulum", "hg_dagger")
    attempt.save(store.path / "episodes" / "000001.npz")
    events = []
    _Training(Plan(PENDULUM, settings, str(store.path), 3, 1), events.append, queue.Queue()).run()
    store.close()
    assert "asked" not in {event[0] for event in events}
    assert events[-1] == ("saved",)
    result = us.load_run(store.run)
    assert result.config["demonstrations"]["episodes"] == 3  # the given one, and two segments at the controls
    assert result.config["demonstrations"]["steps"] == 204
    assert safety_threshold(result.policy, [attempt]) >= 0


def test_the_safety_threshold_is_of_the_steps_at_which_somebody_took_over(run, attempt):
    states, result = run
    doubts = [float(states[-1].cloned.doubt(attempt.observations[t])) for t in (3, 8)]
    assert safety_threshold(result.policy, [attempt]) == pytest.approx(doubts[1], abs=1e-5)
    many = safety_threshold(result.policy, [attempt] * 4)
    assert many == pytest.approx(np.mean(doubts), abs=1e-5)
    with pytest.raises(SettingError, match="nobody took over"):
        safety_threshold(result.policy, [us.load("Pendulum", episodes=1)])
    with pytest.raises(SettingError, match="without members"):
        safety_threshold(PENDULUM.expert(), [attempt])
