"""ThriftyDAgger: thresholds from a rate, control until it is safe, and a learned probability of success."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.envs import Walk
from understudy.algorithms.on_q.thrifty_dagger import Thresholds
from understudy.core.errors import SettingError
from understudy.core.types import Dataset, RoundData, Transition
from understudy.train.programs import traced

PENDULUM = us.make("Pendulum")
TINY = {"rounds": 3, "gradient_steps": 20, "batch_size": 8, "hidden": (8,), "episodes_per_round": 1, "lr": 1e-2}
TINY |= {"critic_hidden": (8,), "ensemble_size": 2}


def train(algorithm, env=PENDULUM, demonstrations="Pendulum", **options):
    states = []

    def visit(done, current):
        states.append(jax.tree.map(lambda x: jnp.asarray(x[0]), jax.device_get(current())))

    options = {"episodes": 1, "holdout": 0.0, **options}
    return states, us.imitate(algorithm, demonstrations, env, env.expert(), visit=visit, **options)


@pytest.fixture(scope="module")
def run():
    algorithm = us.thrifty_dagger(**TINY, target_rate=0.2, goal=lambda next_obs: next_obs[0] > 0.5)
    return algorithm, *train(algorithm)


def test_thresholds_are_quantiles_over_the_visited_states(run):
    algorithm, states, _ = run
    state = states[-1]
    visited = state.visited.steps.obs[: int(state.visited.size)]
    assert len(visited) == 400
    doubts = np.asarray(jax.vmap(state.cloned.doubt)(visited))
    chances = np.asarray(jax.vmap(lambda obs: algorithm.chance(state, obs))(visited))
    assert (doubts > state.thresholds.novel).mean() == pytest.approx(0.2, abs=0.02)
    assert (chances < state.thresholds.risky).mean() == pytest.approx(0.2, abs=0.02)
    assert (chances > state.thresholds.safe).mean() == pytest.approx(0.5, abs=0.02)


def test_all_steps_are_remembered_and_the_experts_are_answers(run):
    _, states, result = run
    assert [int(state.visited.size) for state in states] == [0, 200, 400]
    assert [int(state.cloned.aggregated.size) for state in states] == result.metrics["queries"][0].tolist()
    success = np.asarray(states[-1].success)
    np.testing.assert_array_equal(success[:400], states[-1].visited.steps.next_obs[:400, 0] > 0.5)


def gate(algorithm, state, control, **thresholds):
    """Whether the expert acts, and whether it keeps control with its own action and with the learner's."""
    state = state._replace(thresholds=state.thresholds._replace(**{k: jnp.asarray(v) for k, v in thresholds.items()}))
    obs = state.visited.steps.obs[7]
    own = state.cloned.mode(obs)
    memory, query, acts = algorithm.gate(state, jnp.array(control), obs, own, jax.random.key(0))
    assert not memory  # it keeps control only where it has acted
    assert bool(query) == bool(acts)
    return bool(acts), *(bool(algorithm.expert_acted(state, memory, obs, own, a)) for a in (own + 1, own))


def test_the_expert_takes_over_in_novel_or_risky_states_and_keeps_control_until_both_are_gone(run):
    algorithm, states, _ = run
    state = states[-1]._replace(thresholds=Thresholds(*jnp.zeros(4)), risk_known=jnp.array(True))
    calm = {"novel": 9.0, "risky": -1.0, "safe": -1.0, "agrees": 0.01}
    assert gate(algorithm, state, False, **calm) == (False, True, False)
    assert gate(algorithm, state, True, **calm) == (True, True, False)  # hysteresis
    assert gate(algorithm, state, False, **calm | {"novel": -1.0})[0]
    assert gate(algorithm, state, False, **calm | {"risky": 2.0})[0]
    assert gate(algorithm, state, True, **calm | {"safe": 2.0}) == (True, True, True)
    unknown = state._replace(risk_known=jnp.array(False))
    assert gate(algorithm, unknown, False, **calm | {"risky": 2.0, "safe": 2.0}) == (False, True, False)


def test_success_is_probable_where_it_followed():
    """One-step episodes: they end well where the first number is positive."""
    env, count = Walk(jnp.zeros((3, 4))), 64
    algorithm = traced(us.thrifty_dagger(**{**TINY, "gradient_steps": 300, "episodes_per_round": 20}))
    obs = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    ends, numbers = np.ones(count, bool), np.zeros(count, np.int32)
    steps = Transition(numbers, obs, numbers, obs, ends, ends, ends, numbers)
    data = Dataset(jax.tree.map(jnp.asarray, steps), jnp.asarray(count))
    success = jnp.asarray(obs[:, 0] > 0, jnp.float32)
    nobody = jnp.zeros(count, bool)

    @jax.jit
    def after(signal):
        state = algorithm.init(jax.random.key(0), env.spec, data)
        given = RoundData(data, data, data.steps.act, nobody, signal, round=1)
        return algorithm.update(state, given, jax.random.key(1))

    state, info = after(success)
    chances = np.asarray(jax.vmap(lambda s: algorithm.chance(state, s))(obs))
    assert info.metrics["risk_known"] == 1
    assert chances[obs[:, 0] > 0.2].mean() > chances[obs[:, 0] < -0.2].mean() + 0.2
    _, info = after(success * jnp.nan)  # the environment says nothing: novelty alone
    assert info.metrics["risk_known"] == 0


def test_a_report_at_the_end_of_an_episode_alone_reaches_its_earlier_steps():
    """Two-step episodes, truncated. Their second state has the opposite sign, and only their end says how it went."""
    env, count = Walk(jnp.zeros((3, 4))), 64
    algorithm = traced(us.thrifty_dagger(**{**TINY, "gradient_steps": 600, "episodes_per_round": 64}))
    first = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    first[:, 3], second = 1.0, np.concatenate([-first[:, :3], -np.ones((count, 1), np.float32)], axis=1)
    obs, ends = np.stack([first, second], 1).reshape(-1, 4), np.tile([False, True], count)
    following = np.stack([second, 0 * second], 1).reshape(-1, 4)
    numbers, no, yes = np.tile(np.arange(2, dtype=np.int32), count), np.zeros(2 * count, bool), np.ones(2 * count, bool)
    steps = Transition(numbers, obs, 0 * numbers, following, no, ends, yes, 0 * numbers)
    data = Dataset(jax.tree.map(jnp.asarray, steps), jnp.asarray(2 * count))
    solved = np.repeat(first[:, 0] > 0, 2)
    signal = jnp.asarray(np.where(ends, solved, np.nan), jnp.float32)
    state = algorithm.init(jax.random.key(0), env.spec, data._replace(size=jnp.asarray(0)))
    given = RoundData(data._replace(size=jnp.asarray(1)), data, data.steps.act, jnp.asarray(no), signal, round=1)
    state, info = jax.jit(lambda s, d: algorithm.update(s, d, jax.random.key(1)))(state, given)
    assert info.metrics["risk_known"] == 1
    np.testing.assert_array_equal(state.success[: 2 * count], solved & ends)
    chances = np.asarray(jax.vmap(lambda s: algorithm.chance(state, s))(first))
    assert chances[first[:, 0] > 0.2].mean() > chances[first[:, 0] < -0.2].mean() + 0.2


def test_survival_is_a_success_signal():
    walk = Walk(0.8 * jax.random.normal(jax.random.key(0), (3, 4)))
    shown = us.record(walk, walk.expert(), episodes=2)
    settings = {**TINY, "rounds": 2, "episodes_per_round": 12, "success": "survival"}
    states, result = train(us.thrifty_dagger(**settings), walk, shown, episodes=None)
    size = int(states[-1].visited.size)
    steps = jax.tree.map(lambda x: np.asarray(x[:size]), states[-1].visited.steps)
    np.testing.assert_array_equal(states[-1].success[:size], steps.last & ~steps.terminal)
    assert result.metrics["risk_known"][0, -1] == (steps.terminal.any() and (steps.last & ~steps.terminal).any())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"target_rate": 0.0}, "target_rate is 0.0: a number above 0 and below 1 is needed"),
        ({"target_rate": 1.0}, "target_rate is 1.0: a number above 0 and below 1 is needed"),
        ({"success": "yes"}, "success is 'yes': choose one of 'reported', 'survival'"),
        ({"goal": 3}, r"goal is 3: give a function of \(next_obs\)"),
        ({"goal": lambda a, b: True}, r"goal takes \(a, b\): give a function of \(next_obs\)"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"critic_hidden": (0,)}, "critic_hidden"),
    ],
)
def test_impossible_settings_are_refused(setting, words):
    with pytest.raises(SettingError, match=words):
        us.thrifty_dagger(**setting)


def test_a_goal_that_is_no_yes_or_no_is_refused_before_training():
    with pytest.raises(SettingError, match=r"goal\(next_obs\) must return one boolean .* float32 of shape \(3,\)"):
        train(us.thrifty_dagger(**TINY, goal=lambda next_obs: next_obs))
