"""The Gaussian kernel over (s, a): its coordinates, bandwidth and random features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

import understudy as us
from understudy.core.types import Dataset
from understudy.game.kernels import MAX_STEPS, GaussianKernel
from understudy.train.selection import held_out

FIT = jax.jit(GaussianKernel.fit, static_argnums=(1, 3))


def fitted(demonstrations, features=64, episodes=None):
    """A kernel and its data: the first episodes, padded with the rows of the others."""
    counts = [demonstrations.episodes if episodes is None else episodes, demonstrations.episodes]
    data, _ = demonstrations.split(counts, 0.0)
    data = data.of(0)
    return FIT(jax.random.key(0), demonstrations.spec, data, features), data


def coordinates(demonstrations):
    """(s, a) with standardized states, actions in [-1, 1] or one-hot, in float64."""
    obs = demonstrations.observations.astype(float)
    if isinstance(demonstrations.action_space, us.Discrete):
        act = np.eye(demonstrations.action_space.n)[demonstrations.actions]
    else:
        low, high = (np.asarray(getattr(demonstrations.action_space, name)) for name in ("low", "high"))
        act = (demonstrations.actions - (low + high) / 2) / ((high - low) / 2)
    return np.concatenate([(obs - obs.mean(0)) / obs.std(0), act], axis=1)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_the_bandwidth_is_the_median_distance_between_demonstrated_steps(kind, request):
    demonstrations = request.getfixturevalue(kind)
    points = coordinates(demonstrations)
    kernel, data = fitted(demonstrations)
    np.testing.assert_allclose(kernel.points(data.steps), points, atol=1e-5)
    np.testing.assert_allclose(kernel.bandwidth, np.median(pdist(points)), rtol=1e-5)


def test_the_bandwidth_does_not_depend_on_padding(continuous):
    alone, _ = fitted(continuous.first(2))
    padded, _ = fitted(continuous, episodes=2)
    assert padded.bandwidth == alone.bandwidth
    assert padded.bandwidth != fitted(continuous)[0].bandwidth


def test_copies_of_a_step_are_ignored_in_the_bandwidth(continuous):
    """Two different steps, each four times, far from the origin: the median is their distance."""
    obs = np.tile([[3.0, -1.0, 2.0], [3.1, 5.0, -4.0]], (4, 1)).astype(np.float32)
    act = np.tile([[0.3], [-0.7]], (4, 1)).astype(np.float32)
    demonstrations = us.Demonstrations.from_arrays(obs, act, action_space=continuous.action_space)
    apart = pdist(coordinates(demonstrations)[:2])
    np.testing.assert_allclose(fitted(demonstrations)[0].bandwidth, apart[0], rtol=1e-4)


def test_the_bandwidth_of_many_steps_is_measured_on_evenly_spaced_ones():
    """The expert stands still at first: a median over the first steps would be far smaller."""
    rng = np.random.default_rng(0)
    obs = np.concatenate([1e-3 * rng.normal(size=(MAX_STEPS, 2)), rng.normal(size=(2 * MAX_STEPS + 7, 2))])
    demonstrations = us.Demonstrations.from_arrays(
        obs, np.zeros((len(obs), 1)), action_space=us.Continuous((-1.0,), (1.0,))
    )
    median = np.median(pdist(coordinates(demonstrations)))
    np.testing.assert_allclose(fitted(demonstrations)[0].bandwidth, median, rtol=0.1)


def test_an_expert_that_mostly_stands_still_does_not_make_the_kernel_narrow():
    """Three steps in four stand still. The criterion of `selection` has the same bandwidth."""
    rng = np.random.default_rng(0)
    obs = np.concatenate([rng.normal(size=(100, 2)), 1e-3 * rng.normal(size=(300, 2))])
    demonstrations = us.Demonstrations.from_arrays(
        obs, np.zeros((len(obs), 1)), action_space=us.Continuous((-1.0,), (1.0,))
    )
    apart = pdist(coordinates(demonstrations))
    half = np.sqrt(np.mean(apart**2)) / 2
    assert np.median(apart) < 0.01 < 0.9 < half
    kernel, data = fitted(demonstrations)
    np.testing.assert_allclose(kernel.bandwidth, half, rtol=1e-4)
    whole = Dataset(data.steps, np.array([len(obs)]))
    criterion = held_out(demonstrations.spec, whole, jax.tree.map(lambda x: x[None], Dataset(data.steps, data.size)), 0)
    np.testing.assert_allclose(criterion.bandwidth, half, rtol=1e-4)


def test_the_bandwidth_is_one_if_all_steps_are_equal():
    space = us.Continuous((-1.0,), (1.0,))
    demonstrations = us.Demonstrations.from_arrays(np.ones((3, 2)), np.zeros((3, 1)), action_space=space)
    assert fitted(demonstrations)[0].bandwidth == 1


def test_the_kernel_is_the_gaussian_of_the_distance(continuous):
    kernel, data = fitted(continuous)
    points = coordinates(continuous)[:30]
    expected = np.exp(-cdist(points, points, "sqeuclidean") / (2 * float(kernel.bandwidth) ** 2))
    x = kernel.points(data.steps)[:30]
    np.testing.assert_allclose(kernel(x, x), expected, atol=1e-5)


def test_more_features_approximate_the_kernel_better(continuous):
    errors = []
    for features in (64, 1024, 16384):
        kernel, data = fitted(continuous, features)
        x = kernel.points(data.steps)[:40]
        phi = kernel.features(x)
        errors.append(float(jnp.sqrt(jnp.mean((phi @ phi.T - kernel(x, x)) ** 2))))
        assert errors[-1] < 1.5 * features**-0.5
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
