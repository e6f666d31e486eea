"""AdVIL's and DAeQuIL's duals: which steps f moves at, what the runs log, and the settings that are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SettingError
from understudy.core.types import RoundData
from understudy.game.leader import functional_gradients
from understudy.train.programs import traced

PENDULUM = us.make("Pendulum")
TINY = {"rounds": 3, "gradient_steps": 40, "batch_size": 8, "hidden": (8,), "features": 8, "episodes_per_round": 1}


@pytest.fixture(scope="module")
def swings():
    """Three rounds of DAeQuIL's dual on Pendulum, at most five queries a round: states and result."""
    states = []

    def visit(done, current):
        states.append(jax.device_get(jax.tree.map(lambda x: x[0], current())))

    algorithm = us.daequil_dual(**TINY, ask="novel", queries_per_round=5)
    expert = us.Expert(PENDULUM.expert()).budget(8)
    return states, us.imitate(algorithm, "Pendulum", PENDULUM, expert=expert, episodes=1, visit=visit)


def test_queries_are_limited_by_round_and_by_the_budget(swings):
    states, result = swings
    assert result.metrics["queries"][0].tolist() == [0, 5, 8]
    assert [int(state.aggregated.size) for state in states] == [0, 5, 8]


def test_f_moves_at_demonstrated_and_at_answered_steps_only(swings):
    """40 gradient steps a round on 8 rows each, of 200 demonstrated steps and up to 8 answered ones."""
    states, _ = swings
    rounds = states[-1].leaders.rounds
    capacity = len(states[-1].aggregated.steps.t)
    demonstrated, answered = rounds[:-capacity], rounds[-capacity:]
    assert (demonstrated > 0).any()
    assert (answered[:8] > 0).any()
    assert not answered[8:].any()
    first = states[0].leaders
    assert not first.rounds[-capacity:].any()
    np.testing.assert_array_equal(first.weights[first.rounds == 0], 0)


def test_the_payoff_is_that_of_the_new_steps_before_the_update(swings):
    """By hand: the root mean square of ‖φ(π(s)) − φ(a_E)‖ over the five steps that round 1 has answered."""
    (before, after, _), result = swings
    assert result.metrics["payoff"][0, 0] == 0
    steps = jax.tree.map(lambda x: x[:5], after.aggregated.steps)
    own = np.tanh(np.asarray(before.policy.net(after.normalization.encode_obs(steps.obs))))
    sides = own, np.asarray(after.normalization.encode_act(steps.act))
    waves = [np.cos(side @ after.leaders.directions + after.leaders.phases) for side in sides]
    expected = np.sqrt(2 / 8 * np.square(waves[0] - waves[1]).sum(1).mean())
    assert result.metrics["payoff"][0, 1] == pytest.approx(float(expected), abs=1e-4)


def test_the_noise_of_drawn_actions_is_no_payoff():
    """A tanh-Gaussian policy at 400 answered steps: the distance of mean features, not that of single draws."""
    states = []

    def visit(done, current):
        states.append(jax.device_get(jax.tree.map(lambda x: x[0], current())))

    algorithm = us.daequil_dual(**{**TINY, "rounds": 2, "episodes_per_round": 2}, stochastic=True, bandwidth=0.5)
    result = us.imitate(algorithm, "Pendulum", PENDULUM, expert=PENDULUM.expert(), episodes=1, visit=visit)
    before, after = states
    steps = jax.tree.map(lambda x: jnp.asarray(x[:400]), after.aggregated.steps)
    batch = jax.tree.map(jnp.asarray, after.normalization).encode(steps)
    policy, leaders = (jax.tree.map(jnp.asarray, x) for x in (before.policy, after.leaders))

    def draw(key):
        return functional_gradients(leaders, policy, batch, key)[1]

    draws = jax.lax.map(draw, jax.random.split(jax.random.key(9), 256))
    exact = float(jnp.sqrt(jnp.square(draws.mean(0)).sum(1).mean()))
    single = float(jnp.sqrt(jnp.square(draws[0]).sum(1).mean()))
    assert single > 1.2 * exact
    assert result.metrics["payoff"][0, 1] == pytest.approx(exact, rel=0.08)


def test_advils_dual_never_moves_f_at_padding(continuous):
    """Of two demonstrated episodes in a program for six, f moves only at theirs."""
    algorithm = traced(us.advil_dual(**{**us.advil_dual.small, "gradient_steps": 40}))
    data = continuous.split([2, 6], 0.0)[0].of(0)
    state = jax.jit(lambda key: algorithm.init(key, continuous.spec, data))(jax.random.key(0))
    after, info = jax.jit(lambda s, k: algorithm.update(s, RoundData(data), k))(state, jax.random.key(1))
    moved = np.asarray(after.leaders.rounds) > 0
    assert moved[: int(data.size)].any()
    assert not moved[int(data.size) :].any()
    assert set(info.metrics) == {"loss", "payoff", "distance"}


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_distance_to_the_experts_actions_falls(continuous, stochastic):
    sizes = {"rounds": 6, "gradient_steps": 100, "batch_size": 32, "hidden": (16,), "lr": 3e-3}
    learner = us.advil_dual(**sizes, stochastic=stochastic, entropy_weight=1e-5)
    distance = us.imitate(learner, continuous).metrics["distance"][0]
    assert distance[-1] < 0.6 * distance[0]


def test_entropy_keeps_a_discrete_policy_random(discrete):
    def certainty(weight):
        sizes = {"rounds": 2, "gradient_steps": 200, "batch_size": 32, "hidden": (16,), "lr": 3e-3}
        policy = us.imitate(us.advil_dual(**sizes, entropy_weight=weight), discrete).policy.policy
        obs = policy.normalization.encode_obs(discrete.observations)
        return float(jax.nn.softmax(jnp.asarray(policy.policy.net(obs))).max(1).mean())

    assert certainty(10.0) < 0.5 < certainty(0.0)


@pytest.mark.parametrize("learner", [us.advil_dual, us.daequil_dual])
@pytest.mark.parametrize(
    "setting", [{"bandwidth": 0.0}, {"features": 0}, {"entropy_weight": -1.0}, {"gradient_steps": 0}, {"lr": 0.0}]
)
def test_impossible_settings_are_refused(learner, setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        learner(**setting)
