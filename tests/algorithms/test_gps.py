"""GPS: fixed starts, whose controllers act, what improves from round to round, and the costs that are refused."""

import functools
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.cli.train_command import parse
from understudy.collect.rollouts import play, rollout
from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.core.notices import UnderstudyWarning
from understudy.core.types import Spec
from understudy.envs.base import Environment, Timestep
from understudy.envs.pendulum import swing_up_cost
from understudy.game.costs import squares
from understudy.policies import start
from understudy.train.programs import traced

PENDULUM = us.make("Pendulum")
TINY = {**us.gps.small, "conditions": 2, "episodes_per_round": 4, "rounds": 3}
del TINY["cost"]


class Cart(Environment):
    """A point on a line: position and speed, and a force. The cost is `squares`: a linear-quadratic task."""

    name: ClassVar[str] = "Cart"

    @property
    def spec(self):
        return Spec((2,), us.Continuous((-3.0,), (3.0,)), 20)

    def reset(self, key):
        state = jax.random.uniform(key, (2,), minval=-1.0)
        return state, state

    def step(self, state, act, key):
        new = jnp.stack([state[0] + 0.2 * state[1], state[1] + 0.2 * act[0]])
        return Timestep(new, new, -squares(state, act), jnp.array(False))

    def cost(self):
        return squares


class Leaning(Environment):
    """A pendulum with half of the gravity that leans by 0.1 or 0.2 rad and falls over within 50 steps."""

    name: ClassVar[str] = "Leaning"

    @property
    def spec(self):
        return Spec((3,), us.Continuous((-2.0,), (2.0,)), 50)

    def reset(self, key):
        angle = jnp.where(jax.random.bernoulli(key), 0.1, -0.2)
        return jnp.stack([angle, 0.0]), observed(angle, 0.0)

    def step(self, state, act, key):
        speed = jnp.clip(state[1] + 0.05 * (7.5 * jnp.sin(state[0]) + 3 * jnp.clip(act[0], -2, 2)), -8, 8)
        new = jnp.stack([state[0] + 0.05 * speed, speed])
        cost = swing_up_cost(observed(*state), act)
        return Timestep(new, observed(*new), -cost, jnp.array(False))

    def cost(self):
        return swing_up_cost


def observed(angle, speed):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])


class Point(gymnasium.Env):
    """Cart in Gymnasium; with `random_starts` a reset does not heed its seed."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-3, 3, (1,), np.float32)

    def __init__(self, random_starts=False):
        self.random_starts = random_starts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        random = np.random.default_rng() if self.random_starts else self.np_random
        self.state, self.steps = random.uniform(-1, 1, 2), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        reward = -float(np.square(self.state).sum() + np.square(action).sum())
        self.state, self.steps = self.state + 0.2 * np.array([self.state[1], float(action[0])]), self.steps + 1
        return self.state.astype(np.float32), reward, False, self.steps == 20, {}


def linear(obs):
    return np.clip(-obs @ np.array([[0.8], [1.5]], np.float32), -3, 3)


@functools.cache
def cart_demonstrations():
    return us.record(Cart(), linear, episodes=2, deterministic=True)


@functools.cache
def on_cart(**settings):
    states = []

    def visit(done, current):
        states.append(jax.device_get(jax.tree.map(lambda x: x[0], current())))

    learner = us.gps(**{"rounds": 8, "gradient_steps": 200, "hidden": (16,), "lr": 3e-3, "least_std": 0.05, **settings})
    return states, us.imitate(learner, cart_demonstrations(), Cart(), visit=visit, holdout=0.0)


def test_costs_fall_to_those_of_the_linear_quadratic_optimum():
    """The optimum by the Riccati recursion from the starts, in float64, without noise."""
    states, result = on_cart()
    matrix, force = np.array([[1.0, 0.2], [0.0, 1.0]]), np.array([[0.0], [0.2]])
    value = np.zeros((2, 2))
    for _ in range(20):
        gain = np.linalg.solve(np.eye(1) + force.T @ value @ force, force.T @ value @ matrix)
        value = np.eye(2) + matrix.T @ value @ (matrix - force @ gain)
    _, starts = jax.vmap(Cart().reset)(jax.vmap(jax.random.key)(states[0].starts))
    optimum = np.einsum("ni,ij,nj->n", starts, value, starts).mean() / 20
    costs = result.metrics["cost"][0]
    assert costs[-1] < 1.3 * optimum + 0.05  # the noise of 0.05 · 3 per action, and its consequences
    assert costs[1] > costs[-1]


def test_the_network_agrees_with_the_controllers():
    states, result = on_cart()
    apart = result.metrics["apart"][0]
    assert apart[-1] < 0.5 * apart[1]
    policy = jax.tree.map(jnp.asarray, result.policy.policy)
    own = rollout(Cart(), policy, 4, starts=np.asarray(states[-1].starts))
    assert -own.returns.mean() / 20 < 1.3 * result.metrics["cost"][0, -1]


def test_controllers_with_a_discount_learn_to_hold_an_unstable_pendulum():
    """From zero torque: without a discount a fall all the way round is a local optimum."""
    sizes = {"rounds": 16, "conditions": 2, "episodes_per_round": 20, "gradient_steps": 10, "hidden": (8,)}
    demonstrations = us.record(Leaning(), us.Pendulum().expert(), episodes=2, seed=1)
    learner = us.gps(**sizes, discount=0.9, weight=1e-6, weight_lr=0.0)
    costs = us.imitate(learner, demonstrations, Leaning(), holdout=0.0).metrics["cost"][0]
    assert costs[1] > 2
    assert costs[-1] < 0.1


def test_dual_variables_grow_where_controller_and_network_differ():
    states, _ = on_cart()
    weights = np.stack([state.weights for state in states])
    assert (np.diff(weights, axis=0) >= -1e-6).all()
    assert np.ptp(weights[-1]) > 0
    np.testing.assert_allclose(weights[0], us.gps().weight)


def test_a_step_of_the_controllers_keeps_the_limit():
    _, result = on_cart()
    moved, factor = (result.metrics[name][0, 1:] for name in ("moved", "factor"))
    assert (moved <= us.gps().limit * factor * 20 * 1.001).all()
    assert (moved > 0).all()


def test_episodes_start_in_the_fixed_states_and_are_played_by_their_controllers():
    algorithm = traced(us.gps(**TINY, cost=swing_up_cost))
    demonstrations = us.load("Pendulum", episodes=1)
    data = demonstrations.split([1], 0.0)[0].of(0)
    state = algorithm.init(jax.random.key(0), demonstrations.spec, data)
    shifted = state.controllers.offset.at[1].set(0.5)
    noise = state.controllers.noise * 1e-12
    state = state._replace(controllers=state.controllers._replace(offset=shifted, noise=noise))
    seeds = algorithm.start_seeds(state)
    assert seeds.tolist() == np.repeat(state.starts, 2).tolist()
    keys = jax.random.split(jax.random.key(1), 4)
    found = play(PENDULUM, algorithm.acting_policy(state), keys, False, None, False, seeds)
    first = np.asarray(found.steps.obs[:, 0])
    expected = jax.vmap(lambda seed: PENDULUM.reset(jax.random.key(seed))[1])(seeds)
    np.testing.assert_array_equal(first, expected)
    acts = np.asarray(found.steps.act)
    np.testing.assert_allclose(acts[:2], 0, atol=1e-4)
    np.testing.assert_allclose(acts[2:], 1.0, atol=1e-4)  # half of the torque's range
    on_host = rollout(us.make("Pendulum-v1"), algorithm.acting_policy(state), 4, starts=np.asarray(seeds))
    np.testing.assert_allclose(on_host.steps.act[2:], 1.0, atol=1e-4)
    np.testing.assert_array_equal(on_host.steps.obs[0, 0], on_host.steps.obs[1, 0])


def test_each_run_has_its_own_starts():
    result = us.imitate(us.gps(**TINY), "Pendulum", "Pendulum", seeds=2, episodes=1, holdout=0.0)
    assert result.metrics["cost"][0, 1] != result.metrics["cost"][1, 1]
    assert result.metrics["env_steps"][0].tolist() == [0, 800, 1600]
    assert result.config["algorithm"]["hyperparameters"]["cost"] is None


def test_with_cloned_the_network_acts_in_the_first_episodes():
    algorithm = traced(us.gps(**TINY, cost=swing_up_cost, initial="cloned", initial_std=1e-3))
    demonstrations = us.load("Pendulum", episodes=1)
    data = demonstrations.split([1], 0.0)[0].of(0)
    state = algorithm.init(jax.random.key(0), demonstrations.spec, data)
    keys = jax.random.split(jax.random.key(1), 4)

    def acts_and_network(state):
        steps = play(
            PENDULUM, algorithm.acting_policy(state), keys, False, None, False, algorithm.start_seeds(state)
        ).steps
        return np.asarray(steps.act), np.asarray(algorithm.policy(state).mode(start((4, 200)), steps.obs))

    np.testing.assert_allclose(*acts_and_network(state), atol=0.02)
    acts, network = acts_and_network(state._replace(scale=jnp.ones(())))  # after the first episodes
    np.testing.assert_allclose(acts, 0, atol=0.02)
    assert np.abs(network).max() > 0.1


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_gymnasium_environments_are_reset_to_the_fixed_starts(workers):
    learner = us.gps(**TINY, cost=squares)
    result = us.imitate(learner, cart_demonstrations(), Point, workers=workers, holdout=0.0)
    assert result.metrics["env_steps"][0].tolist() == [0, 80, 160]
    assert np.isfinite(result.metrics["cost"]).all()
    with pytest.raises(SpecError, match="reset with seed"):
        us.imitate(learner, cart_demonstrations(), lambda: Point(random_starts=True), workers=0, holdout=0.0)


def test_without_demonstrations_random_episodes_scale_the_observations():
    with pytest.warns(UnderstudyWarning, match="random actions"):
        result = us.imitate(us.gps(**TINY), env=Cart())
    assert result.runs[0].status == "finished"
    assert result.config["holdout"] == 0


def test_the_cost_is_found_by_name_or_in_the_environment():
    named = us.gps(**TINY, cost="understudy.game.costs:squares")
    by_name, by_env = (
        us.imitate(learner, cart_demonstrations(), Cart(), holdout=0.0) for learner in (named, us.gps(**TINY))
    )
    np.testing.assert_array_equal(by_name.metrics["cost"], by_env.metrics["cost"])
    assert us.make("Pendulum-v1").cost() is PENDULUM.cost() is swing_up_cost


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (None, "no cost of its own: pass cost="),
        (lambda obs, act: obs, "an array of shape"),
        (lambda obs, act: 1, "returned a int|int32 numbers"),
        (lambda obs, act: jnp.log(obs[0] - 100.0), "NaN or infinite"),
        (lambda obs, act: jnp.sqrt(act[0] - act[0]), "Hessian is NaN"),
        (lambda obs, act: float(obs[0]), "use jax.numpy"),
        ("understudy.game.costs:missing", "missing"),
    ],
)
def test_costs_that_do_not_fit_are_refused_in_one_line(cost, words):
    with pytest.raises((SettingError, NeedsError), match=words) as caught:
        us.imitate(us.gps(**TINY, cost=cost), cart_demonstrations(), Point, workers=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    [
        {"cost": 3},
        {"cost": "no-colon"},
        {"cost": lambda obs: obs},
        {"episodes_per_round": 10},
        {"episodes_per_round": 4},
        {"limit": 0.0},
        {"weight": 0.0},
        {"weight_lr": -1.0},
        {"least_std": 0.0},
        {"conditions": 0},
        {"width": 0},
        {"ridge": 0.0},
        {"discount": 0.0},
        {"discount": 1.1},
    ],
)
def test_impossible_settings_are_refused(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        us.gps(**setting)


def test_discrete_actions_are_refused():
    with pytest.raises(NeedsError, match="continuous actions; these are discrete"):
        us.imitate(us.gps(cost=squares), env="CartPole-v1")


def test_the_command_line_takes_the_name_of_a_cost():
    algorithm, *_ = parse(["gps", "--cost", "understudy.game.costs:squares", "--conditions", "2"])
    assert algorithm == us.gps(cost="understudy.game.costs:squares", conditions=2)
    assert parse(["gps"])[0] == us.gps()
