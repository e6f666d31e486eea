"""Policies: the same action on NumPy and JAX, densities that are densities, carries that remember."""

import gc
import pickle
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.types import Dataset
from understudy.policies import (
    Carry,
    Categorical,
    Ensemble,
    Deterministic,
    Normalized,
    Mixture,
    Tabular,
    TimeIndexed,
    ensemble,
    start,
    step,
)
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization

CARRY = start()
OBS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def stacked(kind, count, key=0):
    return jax.vmap(lambda k: kind.init(k, 3, 2, (8,)))(jax.random.split(jax.random.key(key), count))


def framed(kind, act):
    """A policy in the coordinates of a task with bounds [0, 4] and far from standardised observations."""
    demonstrations = us.Demonstrations.from_arrays(
        OBS * 5 + 2, np.full((7, act), 1.0), action_space=us.Continuous((0.0,) * act, (4.0,) * act)
    )
    data, _ = demonstrations.split([1], 0.0)
    frame = Normalization.fit(demonstrations.spec, Dataset(data.steps, data.size[0]))
    return Normalized(kind.init(jax.random.key(0), 3, act, (8,)), frame)


def state_dependent(hold=4, act=2):
    """Weights that differ, so that features and widths do."""
    policy = StateDependent.init(MLP.init(jax.random.key(0), 3, (8, 6), act, "tanh"), -1.0, hold)
    return eqx.tree_at(lambda p: p.log_std, policy, jax.random.normal(jax.random.key(1), (6, act)) - 1)


every_kind = pytest.mark.parametrize(
    "policy",
    [
        Deterministic.init(jax.random.key(0), 3, 2, (8, 8)),
        Gaussian.init(jax.random.key(0), 3, 2, (8, 8), "tanh"),
        Categorical.init(jax.random.key(0), 3, 4, (8, 8)),
        state_dependent(),
        framed(Deterministic, 2),
        framed(Gaussian, 1),
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
def test_a_policy_that_was_sent_is_the_same_and_goes_when_nobody_needs_it(policy):
    """A worker is sent one every turn."""
    came = pickle.loads(pickle.dumps(jax.tree.map(np.asarray, policy), protocol=5))  # noqa: S301
    assert eqx.tree_equal(came, jax.tree.map(np.asarray, policy))
    gone = weakref.ref(came)
    del came
    gc.collect()
    assert gone() is None


def test_a_committee_acts_by_the_mean_of_its_members():
    ensemble_size = stacked(Categorical, 3)
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


def test_actions_leave_in_the_range_of_the_environment():
    policy = framed(Deterministic, 2)
    far = jax.tree.map(lambda x: x * 50, policy.policy)
    actions = Normalized(far, policy.normalization).mode(CARRY, jnp.asarray(OBS * 50))
    assert actions.min() == 0.0
    assert actions.max() == 4.0


def test_the_frame_uses_only_the_episodes_it_was_given():
    """Steps beyond the count are padding and do not move the mean."""
    observations = np.concatenate([np.zeros((10, 1)), np.full((10, 1), 100.0)])
    demonstrations = us.Demonstrations.from_arrays(observations, observations, [10, 10])
    data, _ = demonstrations.split([1, 2], 0.0)
    frames = jax.vmap(lambda size: Normalization.fit(demonstrations.spec, data._replace(size=size)))(data.size)
    np.testing.assert_allclose(frames.obs_mean[:, 0], [0, 50])
    np.testing.assert_allclose(frames.obs_std[:, 0], [1e-3, 50 + 1e-3], rtol=1e-5)


@pytest.mark.parametrize("on_host", [True, False])
def test_state_dependent_noise_is_as_wide_in_a_state_as_its_density_says(on_host):
    """Over episodes, each with noise of its own."""
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
    by_hand = np.sqrt((features[:, None] ** 2 * np.exp(2 * policy.log_std)).sum(0))
    np.testing.assert_allclose(np.exp(log_std), by_hand, rtol=1e-3)


@pytest.mark.parametrize("on_host", [True, False])
def test_state_dependent_noise_stays_for_some_steps_of_an_episode(on_host):
    policy, obs = state_dependent(hold=4), OBS[:1]
    source = np.random.default_rng(0) if on_host else jax.random.key(0)
    one, other = policy.reset(source, (2,)).drawn
    if on_host:
        policy = jax.tree.map(np.asarray, policy)
    kind = np.asarray if on_host else jnp.asarray

    def tried(seed, t):
        return np.asarray(policy.draw(Carry(kind([t]), kind([int(seed)])), kind(obs), source))

    first = tried(one, 0)
    for t in (1, 2, 3):
        np.testing.assert_array_equal(tried(one, t), first)
    assert (tried(one, 4) != first).all()
    assert (tried(other, 0) != first).all()


def test_the_mean_of_state_dependent_exploration_is_clipped():
    policy = jax.tree.map(lambda x: 50 * x, state_dependent())
    assert np.abs(policy.mode(CARRY, jnp.asarray(OBS))).max() == pytest.approx(np.tanh(2.0))


@pytest.mark.parametrize("policy", [Gaussian.init(jax.random.key(3), 3, 1, (8,)), state_dependent(act=1)])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_gaussian_density_integrates_to_one(scale, policy):
    """Under the tanh, and in the environment's coordinates."""
    frame = Normalization(jnp.zeros(3), jnp.ones(3), jnp.zeros(1), jnp.full(1, scale))
    grid = jnp.linspace(-scale, scale, 40_001)[1:-1, None]
    density = jnp.exp(jax.vmap(lambda a: Normalized(policy, frame).log_prob(CARRY, jnp.full(3, 0.3), a))(grid))
    assert float(density.sum() * (grid[1, 0] - grid[0, 0])) == pytest.approx(1.0, abs=2e-3)


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


def test_a_tabular_policy_never_draws_what_it_excludes():
    policy = Tabular(jnp.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))
    state = np.repeat([0, 1], 500)
    for drawn in (
        jax.vmap(lambda s, k: policy.draw(CARRY, s, k))(state, jax.random.split(jax.random.key(0), 1000)),
        jax.tree.map(np.asarray, policy).draw(CARRY, state, np.random.default_rng(0)),
    ):
        assert set(np.asarray(drawn[:500]).tolist()) == {0, 2}
        assert set(np.asarray(drawn[500:]).tolist()) == {1}


def test_a_time_indexed_policy_changes_with_time_and_keeps_its_last():
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


def test_a_mixture_draws_its_component_once_per_episode():
    policy = Mixture(stacked(Deterministic, 3), jnp.array([0.2, 0.0, 0.8]))
    carries = jax.vmap(policy.reset)(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(np.bincount(carries.drawn, minlength=3) / 4000, [0.2, 0, 0.8], atol=0.03)
    carry = policy.reset(jax.random.key(1))
    assert step(step(carry)).drawn == carry.drawn
    assert step(step(carry)).t == 2
    host = jax.tree.map(np.asarray, policy)
    carry = host.reset(np.random.default_rng(0), (7,))
    expected = [
        jax.tree.map(lambda x, c=c: x[c], policy.policies).mode(CARRY, jnp.asarray(o))
        for c, o in zip(carry.drawn, OBS, strict=True)
    ]
    np.testing.assert_allclose(host.mode(carry, OBS), np.stack(expected), atol=1e-5)


def test_the_support_of_a_mixture_weighs_its_components():
    policy = Mixture(stacked(Categorical, 2), jnp.array([0.25, 0.75]))
    acts, weights = policy.support(CARRY, jnp.asarray(OBS[0]), jax.random.key(0))
    assert acts.shape == weights.shape == (4,)
    assert float(weights.sum()) == pytest.approx(1.0)
    assert float(weights[:2].sum()) == pytest.approx(0.25)


def test_a_mixture_of_time_indexed_policies_acts_on_a_batch():
    """On NumPy each row keeps its own component and its own time."""
    inner = jax.vmap(lambda k: jax.vmap(lambda q: Deterministic.init(q, 3, 2, (4,)))(jax.random.split(k, 5)))(
        jax.random.split(jax.random.key(0), 3)
    )
    policy = Mixture(TimeIndexed(inner), jnp.full(3, 1 / 3))
    carry = Carry(np.array([0, 4, 2, 2, 0, 1, 3]), np.array([0, 1, 2, 0, 1, 1, 2]))
    host = jax.tree.map(np.asarray, policy).mode(carry, OBS)
    expected = jax.vmap(policy.mode)(Carry(*map(jnp.asarray, carry)), jnp.asarray(OBS))
    np.testing.assert_allclose(host, expected, atol=1e-5)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="unknown activation 'gelu'"):
        Deterministic.init(jax.random.key(0), 3, 2, (4,), "gelu").mode(CARRY, OBS)
