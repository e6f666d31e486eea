"""Behavioral cloning: what it learns, its loss functions and its learning rate schedule."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SettingError
from understudy.core.types import RoundData
from understudy.train.programs import traced

SMALL = {"hidden": (32, 32), "batch_size": 128, "lr": 3e-3, "rounds": 10, "gradient_steps": 200}


LAW = np.array([[0.5], [-0.8], [0.08]], np.float32)


def states(count, seed=0):
    """Observations of a pendulum: (cos θ, sin θ, θ̇)."""
    rng = np.random.default_rng(seed)
    angle, speed = rng.uniform(-np.pi, np.pi, count), rng.uniform(-8, 8, count)
    return np.stack([np.cos(angle), np.sin(angle), speed], 1).astype(np.float32)


def linear_expert(noise=0.0):
    """Pendulum-like data with a torque linear in the state, inside the bounds."""
    obs = states(2000)
    act = (obs @ LAW + noise * np.random.default_rng(1).normal(size=(2000, 1))).clip(-2, 2)
    return us.Demonstrations.from_arrays(obs, act, [2000], action_space=us.Continuous((-2.0,), (2.0,)))


@pytest.mark.parametrize(("loss", "error"), [("squared", 0.01), ("likelihood", 0.02)])
def test_it_recovers_a_linear_expert(loss, error):
    """Root mean squared error on fresh states, for torques that span about [-1.6, 1.6]."""
    result = us.imitate(us.bc(loss=loss, **SMALL), linear_expert())
    fresh = states(500, seed=7)
    assert np.sqrt(np.mean((result.policy(fresh) - fresh @ LAW) ** 2)) < error


def test_an_ensemble_can_be_saved_and_loaded(tmp_path):
    result = us.imitate(us.bc(ensemble_size=3, **{**SMALL, "rounds": 2}), linear_expert())
    result.save(tmp_path / "run")
    obs = states(5, seed=7)
    np.testing.assert_array_equal(us.load_policy(tmp_path / "run")(obs), result.policy(obs))
    members = result.policy.policy.policy.members
    each = [jax.tree.map(lambda x, i=i: x[i], members).mode(None, obs) for i in range(3)]
    assert np.abs(each[0] - each[1]).max() > 1e-3
    with pytest.raises(SettingError, match="ensemble_size is 3"):
        us.bc(ensemble_size=3, loss="likelihood")


def test_the_likelihood_learns_the_experts_standard_deviation():
    result = us.imitate(us.bc(loss="likelihood", **SMALL), linear_expert(noise=0.2))
    policy, obs = result.policy, np.tile(np.float32([1, 0, 0]), (4000, 1))
    drawn, _ = policy.predict(obs, deterministic=False, random=np.random.default_rng(0))
    assert drawn.std() == pytest.approx(0.2, rel=0.25)
    assert drawn.mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("mixture", [{}, {"loss": "likelihood", "components": 3}])
def test_it_learns_discrete_actions(discrete, mixture):
    result = us.imitate(us.bc(**SMALL, **mixture), discrete)
    assert (result.policy(discrete.observations) == discrete.actions).mean() > 0.95
    assert result.policy(discrete.observations).dtype == np.int64


def test_the_squared_error_learns_the_mean_of_two_actions():
    """An expert that goes left or right at random: the mean of both was never demonstrated."""
    rng = np.random.default_rng(0)
    actions = np.where(rng.random((1000, 1)) < 0.5, -1.0, 1.0)
    demonstrations = us.Demonstrations.from_arrays(np.zeros((1000, 2)), actions, [1000])
    action = us.imitate(us.bc(**SMALL), demonstrations).policy(np.zeros(2))
    assert abs(action[0]) < 0.15


def forks(sides=(-0.8, 0.8), share=0.7):
    """An expert that takes the first of two actions with this probability."""
    actions = np.where(np.random.default_rng(0).random((1000, 1)) < share, *sides)
    return us.Demonstrations.from_arrays(np.zeros((1000, 2)), actions, [1000])


def test_a_mixture_learns_both_actions_and_its_mode_is_the_likelier_one():
    result = us.imitate(us.bc(loss="likelihood", components=4, weight_decay=0.0, **SMALL), forks())
    policy = result.policy
    assert policy(np.zeros(2))[0] == pytest.approx(-0.8, abs=0.1)
    drawn, _ = policy.predict(np.zeros((2000, 2)), deterministic=False, random=np.random.default_rng(0))
    assert (np.abs(np.abs(drawn) - 0.8) < 0.15).mean() > 0.9
    assert (drawn < 0).mean() == pytest.approx(0.7, abs=0.06)


def test_a_mixture_is_saved_loaded_and_exported(tmp_path):
    learner = us.bc.preset("mixture", components=3, **{**SMALL, "rounds": 1, "gradient_steps": 20})
    result = us.imitate(learner, linear_expert())
    result.save(tmp_path / "run")
    obs = states(50, seed=7)
    np.testing.assert_array_equal(us.load_policy(tmp_path / "run")(obs), result.policy(obs))
    np.testing.assert_array_equal(us.deploy.load(tmp_path / "run")(obs), result.policy(obs))
    for kind in ("numpy", "onnx", "jax"):
        assert result.policy.export(tmp_path / kind, kind).difference <= 1e-5


def test_a_mixture_needs_the_likelihood_and_one_network():
    with pytest.raises(SettingError, match=r"components is 3 and loss is 'squared': .* loss='likelihood'"):
        us.bc(components=3)
    with pytest.raises(SettingError, match="components"):
        us.bc(loss="likelihood", components=0)
    with pytest.raises(SettingError, match="ensemble_size is 2"):
        us.bc(loss="likelihood", components=3, ensemble_size=2)


@pytest.mark.slow
def test_more_demonstrations_close_the_gap_on_pendulum():
    demonstrations = us.load("Pendulum")
    learner = us.bc(hidden=(64, 64), batch_size=128, lr=1e-3, rounds=10)
    scores = us.imitate(learner, demonstrations, seeds=2, episodes=[2, 25]).evaluate(episodes=50).scores()
    few, many = (score.learner.mean for score in scores)
    assert many > -220
    assert many > few + 200


def protocol_run(algorithm, demonstrations, rounds):
    """The policy at the start and after each round, by the protocol alone."""
    algorithm = traced(algorithm)
    data, _ = demonstrations.split([demonstrations.episodes], 0.0)
    data = data.of(0)
    state = algorithm.init(jax.random.key(0), demonstrations.spec, data)
    policies = [state.policy]
    for index in range(rounds):
        state, _ = algorithm.update(state, RoundData(data), jax.random.key(index))
        policies.append(state.policy)
    return policies


@pytest.mark.slow
@pytest.mark.parametrize("decay", [True, False])
def test_decay_lets_the_learning_rate_fall_to_zero(decay, continuous):
    """Actions are noise, so that without decay the policy moves as far in the last round as in the first."""
    noise = np.random.default_rng(0).uniform(-2, 2, continuous.actions.shape)
    random = us.Demonstrations.from_arrays(continuous.observations, noise, continuous.lengths)
    policies = protocol_run(us.bc(**{**SMALL, "decay": decay, "rounds": 8, "gradient_steps": 20}), random, 8)
    moved = [
        sum(float(jnp.abs(a - b).sum()) for a, b in zip(jax.tree.leaves(p), jax.tree.leaves(q), strict=True))
        for p, q in itertools.pairwise(policies)
    ]
    assert (moved[-1] < 0.1 * moved[1]) == decay


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": "fast"}, "lr is 'fast'"),
        ({"lr": None}, "lr is None"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": 2.5}, "rounds is 2.5"),
        ({"activation": "gelu"}, "activation is 'gelu'"),
        ({"hidden": 4}, "hidden is 4"),
        ({"hidden": (8, -3)}, r"hidden\[1\] is -3"),
        ({"batch_size": -1}, "batch_size is -1"),
    ],
)
def test_settings_out_of_range_are_named(setting, words):
    with pytest.raises(SettingError, match=words):
        us.bc(**setting)


def test_a_sweep_over_the_learning_rate_is_a_vmap(continuous):
    """Two learning rates in one program equal two programs."""
    algorithms = [traced(us.bc(**{**SMALL, "gradient_steps": 5, "lr": lr})) for lr in (1e-3, 1e-2)]

    def train(algorithm):
        return protocol_run(algorithm, continuous, 1)[-1]

    together = jax.jit(jax.vmap(train))(jax.tree.map(lambda *x: jnp.stack(x), *algorithms))
    for index, algorithm in enumerate(algorithms):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(jax.jit(train)(algorithm)), strict=True):
            np.testing.assert_allclose(a[index], b, atol=1e-5)
