"""Policies: the same actions on NumPy and JAX, densities that integrate to one, memory within an episode, files."""

import dataclasses
import gc
import json
import pickle
import types
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import RunError, SpecError
from understudy.core.types import Dataset, Spec
from understudy.policies import (
    Carry,
    Categorical,
    Deterministic,
    Ensemble,
    Mixture,
    Normalized,
    Tabular,
    TimeIndexed,
    ensemble,
    start,
)
from understudy.policies.actor import FORMAT, Actor, check_fits
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.mixture import MARGIN
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization

CARRY = start()
OBS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def stacked(kind, count, key=0):
    return jax.vmap(lambda k: kind.init(k, 3, 2, (8,)))(jax.random.split(jax.random.key(key), count))


def normalized(kind, act):
    """A policy for a task with actions in [0, 4] and observations far from standardized."""
    demonstrations = us.Demonstrations.from_arrays(
        OBS * 5 + 2, np.full((7, act), 1.0), action_space=us.Continuous((0.0,) * act, (4.0,) * act)
    )
    data, _ = demonstrations.split([1], 0.0)
    normalization = Normalization.fit(demonstrations.spec, Dataset(data.steps, data.size[0]))
    return Normalized(kind.init(jax.random.key(0), 3, act, (8,)), normalization)


def state_dependent(hold=4, act=2):
    """Random log σ, so that the noise of each action differs."""
    policy = StateDependent.init(MLP.init(jax.random.key(0), 3, (8, 6), act, "tanh"), -1.0, hold)
    return eqx.tree_at(lambda p: p.log_std, policy, jax.random.normal(jax.random.key(1), (6, act)) - 1)


every_kind = pytest.mark.parametrize(
    "policy",
    [
        Deterministic.init(jax.random.key(0), 3, 2, (8, 8)),
        Gaussian.init(jax.random.key(0), 3, 2, (8, 8), "tanh"),
        Categorical.init(jax.random.key(0), 3, 4, (8, 8)),
        state_dependent(),
        Mixture.init(jax.random.key(0), 3, 2, (8, 8), 4),
        normalized(Deterministic, 2),
        normalized(Gaussian, 1),
        Ensemble(stacked(Deterministic, 3)),
        Ensemble(stacked(Categorical, 3)),
    ],
    ids=lambda policy: type(policy).__name__,
)


@every_kind
def test_numpy_and_jax_give_the_same_action(policy):
    on_host = jax.tree.map(np.asarray, policy).mode(CARRY, OBS)
    assert isinstance(on_host, np.ndarray)
    np.testing.assert_allclose(on_host, jax.vmap(lambda o: policy.mode(CARRY, o))(jnp.asarray(OBS)), atol=1e-5)


@every_kind
def test_a_policy_can_be_pickled_and_is_freed(policy):
    """A worker process gets one in every update."""
    copy = pickle.loads(pickle.dumps(jax.tree.map(np.asarray, policy), protocol=5))  # noqa: S301
    assert eqx.tree_equal(copy, jax.tree.map(np.asarray, policy))
    reference = weakref.ref(copy)
    del copy
    gc.collect()
    assert reference() is None


def test_an_ensemble_averages_actions_or_probabilities():
    members = stacked(Categorical, 3)
    each = jax.nn.softmax(jax.vmap(lambda member: member.net(jnp.asarray(OBS)))(members)).mean(0)
    policy = Ensemble(members)
    acts, weights = policy.support(CARRY, jnp.asarray(OBS[0]), jax.random.key(0))
    np.testing.assert_allclose(weights, each[0], rtol=1e-5)
    densities = jax.vmap(lambda act: policy.log_prob(CARRY, jnp.asarray(OBS[0]), act))(acts)
    np.testing.assert_allclose(jnp.exp(densities), each[0], rtol=1e-5)
    on_host = jax.tree.map(np.asarray, policy)
    drawn = on_host.draw(CARRY, np.tile(OBS[:1], (20000, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn, minlength=2) / 20000, each[0], atol=0.02)
    several = Ensemble(stacked(Deterministic, 3))
    means = jax.vmap(lambda member: member.mode(CARRY, jnp.asarray(OBS)))(several.members).mean(0)
    np.testing.assert_allclose(several.draw(CARRY, OBS, np.random.default_rng(0)), means, atol=1e-5)
    with pytest.raises(TypeError, match="Gaussian"):
        ensemble(stacked(Gaussian, 2))
    assert isinstance(ensemble(stacked(Gaussian, 1)), Gaussian)


def test_actions_are_clipped_to_the_environments_range():
    policy = normalized(Deterministic, 2)
    far = jax.tree.map(lambda x: x * 50, policy.policy)
    actions = Normalized(far, policy.normalization).mode(CARRY, jnp.asarray(OBS * 50))
    assert actions.min() == 0.0
    assert actions.max() == 4.0


def test_normalization_uses_only_the_real_steps():
    observations = np.concatenate([np.zeros((10, 1)), np.full((10, 1), 100.0)])
    demonstrations = us.Demonstrations.from_arrays(observations, observations, [10, 10])
    data, _ = demonstrations.split([1, 2], 0.0)
    fitted = jax.vmap(lambda size: Normalization.fit(demonstrations.spec, data._replace(size=size)))(data.size)
    np.testing.assert_allclose(fitted.obs_mean[:, 0], [0, 50])
    np.testing.assert_allclose(fitted.obs_std[:, 0], [1e-3, 50], rtol=1e-5)


@pytest.mark.parametrize("on_host", [True, False])
def test_state_dependent_noise_has_the_standard_deviation_of_its_density(on_host):
    policy, obs, count = state_dependent(), OBS[0], 20_000
    if on_host:
        source = np.random.default_rng(0)
        carry, here = policy.reset(source, (count,)), np.tile(obs, (count, 1))
        acts = jax.tree.map(np.asarray, policy).draw(carry, here, source)
    else:
        keys = jax.random.split(jax.random.key(0), count)
        acts = jax.vmap(lambda k: policy.draw(jax.tree.map(jnp.asarray, policy.reset(k)), jnp.asarray(obs), k))(keys)
    inside = np.arctanh(np.asarray(acts, np.float64))
    mean, log_std = policy.parameters(jnp.asarray(obs))
    np.testing.assert_allclose(inside.mean(0), mean, atol=4 * np.exp(log_std).max() / count**0.5)
    np.testing.assert_allclose(inside.std(0), np.exp(log_std), rtol=0.03)
    features = np.tanh(np.tanh(obs @ policy.net.weights[0]) @ policy.net.weights[1])
    expected = np.sqrt((features[:, None] ** 2 * np.exp(2 * policy.log_std)).sum(0))
    np.testing.assert_allclose(np.exp(log_std), expected, rtol=1e-3)


@pytest.mark.parametrize("on_host", [True, False])
def test_state_dependent_noise_is_held_for_some_steps(on_host):
    policy, obs = state_dependent(hold=4), OBS[:1]
    source = np.random.default_rng(0) if on_host else jax.random.key(0)
    one, other = policy.reset(source, (2,)).drawn
    if on_host:
        policy = jax.tree.map(np.asarray, policy)
    kind = np.asarray if on_host else jnp.asarray

    def action(seed, t):
        return np.asarray(policy.draw(Carry(kind([t]), kind([int(seed)])), kind(obs), source))

    first = action(one, 0)
    for t in (1, 2, 3):
        np.testing.assert_array_equal(action(one, t), first)
    assert (action(one, 4) != first).all()
    assert (action(other, 0) != first).all()


def test_the_mean_of_state_dependent_exploration_is_clipped():
    policy = jax.tree.map(lambda x: 50 * x, state_dependent())
    assert np.abs(policy.mode(CARRY, jnp.asarray(OBS))).max() == pytest.approx(np.tanh(2.0))


def wide_and_narrow():
    """Two components: one at the floor of σ, one as wide as σ can be."""
    weights = (jnp.zeros((3, 6)),)
    return Mixture(MLP(weights, (jnp.array([0.0, 1.0, -0.4, 0.3, -9.0, 9.0]),), "relu"), 2, log_std_max=0.0)


@pytest.mark.parametrize("policy", [Gaussian.init(jax.random.key(3), 3, 1, (8,)), state_dependent(act=1)])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_gaussian_density_integrates_to_one(scale, policy):
    """With tanh, in the environment's units."""
    normalization = Normalization(jnp.zeros(3), jnp.ones(3), jnp.zeros(1), jnp.full(1, scale))
    grid = jnp.linspace(-scale, scale, 40_001)[1:-1, None]
    density = jnp.exp(jax.vmap(lambda a: Normalized(policy, normalization).log_prob(CARRY, jnp.full(3, 0.3), a))(grid))
    assert float(density.sum() * (grid[1, 0] - grid[0, 0])) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("policy", [Mixture.init(jax.random.key(4), 3, 1, (8,), 3), wide_and_narrow()])
def test_a_mixtures_density_and_its_probabilities_at_the_bounds_add_up_to_one(policy):
    edge, obs = 1 - MARGIN, jnp.full(3, 0.3)
    grid = jnp.linspace(-edge, edge, 20_001)
    middles = (grid[:-1] + grid[1:]) / 2
    inside = jnp.exp(jax.vmap(lambda a: policy.log_prob(CARRY, obs, a))(middles[:, None]))
    bounds = [float(jnp.exp(policy.log_prob(CARRY, obs, jnp.array([act])))) for act in (-1.0, 1.0)]
    assert float(inside.mean()) * 2 * edge + sum(bounds) == pytest.approx(1.0, abs=1e-4)
    drawn = jax.vmap(lambda k: policy.draw(CARRY, obs, k)[0])(jax.random.split(jax.random.key(0), 20_000))
    for act, wanted in zip((-1.0, 1.0), bounds, strict=True):
        assert float((drawn == act).mean()) == pytest.approx(wanted, abs=0.015)


def test_a_mixtures_density_in_two_dimensions_integrates_to_one():
    """The dimensions of one component go together. This one is far from the bounds."""
    policy = Mixture.init(jax.random.key(4), 3, 2, (8,), 3, gain=0.1)
    policy = eqx.tree_at(lambda p: p.net.biases[-1], policy, jnp.array([0.0, 1, 2, *[0.3, -0.3] * 3, *[-0.8] * 6]))
    line = jnp.linspace(-0.999, 0.999, 400)
    grid = jnp.stack(jnp.meshgrid(line, line), -1).reshape(-1, 2)
    log_prob = jax.vmap(lambda a: policy.log_prob(CARRY, jnp.zeros(3), a))(grid)
    assert float(jnp.exp(log_prob).sum() * (line[1] - line[0]) ** 2) == pytest.approx(1.0, abs=2e-3)


def test_the_mode_of_a_mixture_is_the_mean_of_its_heaviest_component():
    """Neither the mean of all, nor the highest peak: the narrow component is higher, and less likely."""
    policy, obs = wide_and_narrow(), jnp.zeros(3)
    weight = 1 / (1 + np.exp(-1.0))
    assert float(policy.mode(CARRY, obs)[0]) == pytest.approx(0.3, abs=1e-6)
    peaks = [float(policy.log_prob(CARRY, obs, jnp.array([mean]))) for mean in (-0.4, 0.3)]
    assert peaks[0] > peaks[1]
    drawn = jax.vmap(lambda k: policy.draw(CARRY, obs, k)[0])(jax.random.split(jax.random.key(0), 20_000))
    host = jax.tree.map(np.asarray, policy).draw(CARRY, np.zeros((20_000, 3), np.float32), np.random.default_rng(0))
    for sample in (np.asarray(drawn), host[:, 0]):
        assert np.abs(sample).max() == 1
        assert (sample > 0.3).mean() == pytest.approx(weight / 2, abs=0.02)  # half of the wide component


@pytest.mark.parametrize("act", [-1.0, 1.0, 0.0])
def test_a_mixtures_likelihood_and_its_gradient_are_finite_at_the_bounds(act):
    policy = jax.tree.map(lambda x: 30 * x, Mixture.init(jax.random.key(4), 3, 2, (8,), 3))

    def log_prob(policy):
        return policy.log_prob(CARRY, jnp.full(3, 2.0), jnp.full(2, act))

    value, gradient = jax.value_and_grad(log_prob)(policy)
    assert all(np.isfinite(leaf).all() for leaf in [value, *jax.tree.leaves(gradient)])


def test_draws_follow_the_probabilities():
    policy = Categorical.init(jax.random.key(1), 3, 4, (8,))
    acts, weights = policy.support(CARRY, jnp.asarray(OBS[0]), jax.random.key(0))
    np.testing.assert_array_equal(acts, np.arange(4))
    np.testing.assert_allclose(
        jnp.log(weights), jax.vmap(lambda a: policy.log_prob(CARRY, jnp.asarray(OBS[0]), a))(acts), atol=1e-5
    )
    for drawn in (
        jax.vmap(lambda k: policy.draw(CARRY, jnp.asarray(OBS[0]), k))(jax.random.split(jax.random.key(2), 20_000)),
        jax.tree.map(np.asarray, policy).draw(CARRY, np.repeat(OBS[:1], 20_000, 0), np.random.default_rng(0)),
    ):
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, weights, atol=0.02)


def test_a_tabular_policy_never_draws_an_action_of_probability_zero():
    policy = Tabular(jnp.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))
    state = np.repeat([0, 1], 500)
    for drawn in (
        jax.vmap(lambda s, k: policy.draw(CARRY, s, k))(state, jax.random.split(jax.random.key(0), 1000)),
        jax.tree.map(np.asarray, policy).draw(CARRY, state, np.random.default_rng(0)),
    ):
        assert set(np.asarray(drawn[:500]).tolist()) == {0, 2}
        assert set(np.asarray(drawn[500:]).tolist()) == {1}


def test_a_time_indexed_policy_uses_its_last_policy_after_the_end():
    stack = stacked(Deterministic, 4)
    policy = TimeIndexed(stack)
    times = np.array([0, 1, 2, 3, 9, 1, 0])
    host = jax.tree.map(np.asarray, policy).mode(Carry(times, np.zeros(7, int)), OBS)
    for t, obs, act in zip(times, OBS, host, strict=True):
        single = jax.tree.map(lambda x, t=t: x[min(t, 3)], stack)
        np.testing.assert_allclose(act, single.mode(CARRY, jnp.asarray(obs)), atol=1e-5)
        np.testing.assert_allclose(
            act,
            jax.jit(lambda carry, o: policy.mode(carry, o))(Carry(jnp.asarray(t), jnp.asarray(0)), jnp.asarray(obs)),
            atol=1e-5,
        )


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation is 'gelu'"):
        Deterministic.init(jax.random.key(0), 3, 2, (4,), "gelu").mode(CARRY, OBS)


def test_a_file_of_another_format_is_refused(tmp_path):
    actor = Actor(Categorical.init(jax.random.key(0), 4, 3, (8,)), Spec((4,), us.Discrete(3), 5))
    actor.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        arrays = dict(file)
    structure = json.loads(str(arrays["structure.json"]))
    for other in (FORMAT - 1, FORMAT + 1):
        arrays["structure.json"] = np.array(json.dumps(structure | {"format": other}))
        np.savez(tmp_path / "other.npz", **arrays)
        with pytest.raises(RunError, match=f"format {other}"):
            us.load_policy(tmp_path / "other.npz")


def test_a_policy_is_refused_where_the_parts_of_an_observation_have_another_order():
    parts = (("arm", 2), ("goal", 2))
    spec = us.Spec((4,), us.Continuous((-1.0,), (1.0,)), 9, obs_parts=parts)
    actor = us.Actor(Deterministic.init(jax.random.key(0), 4, 1, (8,)), spec)
    env = types.SimpleNamespace(name="Arm", spec=spec)
    check_fits(actor, env)
    env.spec = dataclasses.replace(spec, obs_parts=parts[::-1])
    with pytest.raises(SpecError, match=r"in the order arm, goal; Arm has goal, arm"):
        check_fits(actor, env)
