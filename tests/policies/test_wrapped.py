"""Policies on a grid of actions, and policies that see the time: on NumPy and JAX, in files and exports."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import RunError, SpecError
from understudy.deploy.forward import grid_point
from understudy.policies import MLP, Actor, Binned, Carry, Categorical, Gaussian, Normalized, Timed, start
from understudy.policies.checks import check_policy
from understudy.policies.normalization import Normalization
from understudy.policies.wrapped import PartlyDeterministic

onnxruntime = pytest.importorskip("onnxruntime")
BOX = us.Spec((3,), us.Continuous((-2.0, 0.0), (2.0, 1.0)), 6)
NORMALIZATION = Normalization(
    *(np.array(x, np.float32) for x in ([0.5] * 3, [2.0] * 3, [0, 0.5], [2, 0.5])),  # actions in BOX's range
)


def binned(obs=3):
    return Binned.init(jax.random.key(0), obs, 2, 5, (16,))


POLICIES = {
    "grid": (Normalized(binned(), NORMALIZATION), BOX),
    "grid with time": (Normalized(Timed(binned(4), 6), NORMALIZATION), BOX),
    "choices with time": (Timed(Categorical.init(jax.random.key(1), 4, 3, (16,)), 6), us.Spec((3,), us.Discrete(3), 6)),
}
OBS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) * 3
T = np.arange(40, dtype=np.int32) % 8
each = pytest.mark.parametrize("name", POLICIES)


def test_the_grid_has_every_combination_once_and_reaches_the_bounds():
    points = grid_point(np.arange(25), 5, 2)
    assert points.dtype == np.float32
    assert len(np.unique(points, axis=0)) == 25
    np.testing.assert_allclose(np.unique(points), [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_array_equal(grid_point(jnp.arange(25), 5, 2, jnp), points)
    np.testing.assert_array_equal(grid_point(np.arange(2), 2, 1), [[-1], [1]])


def test_support_lists_the_grid_with_the_probabilities_of_the_draws():
    policy = POLICIES["grid"][0]
    acts, weights = policy.support(start(), jnp.asarray(OBS[0]), jax.random.key(0))
    assert acts.shape == (25, 2)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = jax.vmap(lambda k: policy.draw(start(), jnp.asarray(OBS[0]), k))(keys)
    on_host = jax.tree.map(np.asarray, policy).draw(start((4000,)), OBS[:1].repeat(4000, 0), np.random.default_rng(0))
    for sample in (np.asarray(drawn), on_host):
        share = (np.abs(sample[:, None] - np.asarray(acts)).max(-1) < 1e-5).mean(0)
        np.testing.assert_allclose(share, weights, atol=0.04)
    with pytest.raises(TypeError, match="no density"):
        policy.log_prob(start(), OBS[0], OBS[0, :2])


@each
def test_numpy_and_jax_give_the_same_action_at_every_time(name):
    policy, _ = POLICIES[name]
    on_host = jax.tree.map(np.asarray, policy).mode(Carry(T, np.zeros_like(T)), OBS)
    inside = jax.vmap(lambda t, obs: policy.mode(Carry(t, jnp.zeros((), jnp.int32)), obs))(jnp.asarray(T), OBS)
    np.testing.assert_allclose(on_host, inside, atol=1e-5)


def test_the_time_matters_until_the_horizon():
    weights, bias = np.zeros((4, 2), np.float32), np.array([0.6, -0.6], np.float32)
    weights[3] = [-1, 1]
    net = MLP((weights,), (bias,), "relu")
    policy = Timed(Categorical(net), 6)
    carry = Carry(np.array([0, 3, 4, 6, 100], np.int32), np.zeros(5, np.int32))
    assert policy.mode(carry, OBS[:5]).tolist() == [0, 0, 1, 1, 1]
    actor = Actor(policy, us.Spec((3,), us.Discrete(2), 6))
    assert not actor.stationary
    state, chosen = None, []
    for _ in range(6):
        action, state = actor.predict(OBS[0], state)
        chosen.append(int(action))
    assert chosen == [0, 0, 0, 0, 1, 1]
    with pytest.raises(SpecError, match="memory within an episode"):
        actor(OBS[0])


@each
def test_it_is_saved_loaded_and_exported(name, tmp_path):
    actor = Actor(*POLICIES[name])
    actor.save(tmp_path / "policy.npz")
    loaded = us.load_policy(tmp_path / "policy.npz")
    carry = Carry(T, np.zeros_like(T))
    expected = actor.predict(OBS, carry)[0]
    np.testing.assert_array_equal(loaded.predict(OBS, carry)[0], expected)
    for kind, where in (("numpy", "n"), ("onnx", "p.onnx"), ("jax", "j")):
        assert actor.export(tmp_path / where, kind).difference <= 1e-5
    alone = us.deploy.load(tmp_path / "n")
    assert alone.stateless == actor.stationary
    state = None if actor.stationary else us.deploy.forward.State(T, np.zeros_like(T))
    np.testing.assert_array_equal(alone.predict(OBS, state)[0], expected)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (dataclasses.replace(binned(), bins=4), "weights 1 has shape"),
        (dataclasses.replace(binned(), bins=1), "bins is 1 in 2 dimensions"),
        (dataclasses.replace(binned(), bins=10**9), "bins is 1000000000"),
        (dataclasses.replace(binned(), size=3), "bins is 5 in 3 dimensions"),
        (Timed(binned(4), 0), "the horizon is 0"),
        (Timed(binned(3), 6), "weights 0 has shape"),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(policy, message):
    with pytest.raises((SpecError, RunError), match=message):
        check_policy(policy, BOX)


# ------------------------------------------------------------------------------------------- partly deterministic


def drawn(policy, source, episodes, steps):
    """Actions (steps, episodes, act) in one state, of episodes that are stepped together."""
    carry, acts = policy.reset(source, (episodes,)), []
    for k in range(steps):
        obs = OBS[:1].repeat(episodes, 0)
        if isinstance(source, np.random.Generator):
            acts.append(policy.draw(carry, obs, source))
        else:
            acts.append(policy.draw(carry, jnp.asarray(obs), jax.random.fold_in(source, 10 + k)))
        carry = carry._replace(t=carry.t + 1)
    return np.stack(acts)


@pytest.mark.parametrize("host", [True, False])
def test_a_share_of_the_episodes_is_deterministic_from_start_to_end(host):
    policy = Gaussian.init(jax.random.key(0), 3, 2, (8,))
    source = np.random.default_rng(0) if host else jax.random.key(3)
    if host:
        policy = jax.tree.map(np.asarray, policy)
    acts = drawn(PartlyDeterministic(policy, 0.25), source, episodes=400, steps=5)
    near = np.abs(acts - np.asarray(policy.mode(start(), OBS[0]))).max(-1) < 1e-5
    assert (near.all(0) | ~near.any(0)).all(), "an episode changed its mind"
    assert near[0].mean() == pytest.approx(0.25, abs=0.07)
    assert (acts[:, ~near[0]].std(0) > 0).all(), "noise is new at every step"


@pytest.mark.parametrize(("share", "deterministic"), [(0.0, False), (1.0, True)])
def test_none_or_all_of_the_episodes_are_deterministic(share, deterministic):
    policy = jax.tree.map(np.asarray, Gaussian.init(jax.random.key(0), 3, 2, (8,)))
    acts = drawn(PartlyDeterministic(policy, share), np.random.default_rng(0), episodes=20, steps=2)
    near = np.abs(acts - policy.mode(start(), OBS[0])).max(-1) < 1e-5
    assert (near == deterministic).all()
