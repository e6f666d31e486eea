"""Linear-quadratic control: exact solutions, divergences in closed form, fits of linear systems, and the KL limit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from understudy.core.types import Dataset, Transition
from understudy.rl.linear_dynamics import fit_controller, fit_dynamics, fit_linear
from understudy.rl.lqr import (
    Controller,
    Dynamics,
    Quadratic,
    backward,
    divergence,
    expected_cost,
    forward,
    improved,
    surprise,
)
from understudy.rl.trajectories import as_episodes, quadratic_cost

A = np.array([[1.0, 0.1], [-0.2, 0.95]])
B = np.array([[0.0], [0.1]])
STATE_COST, ACTION_COST = np.diag([1.0, 0.1]), np.array([[0.5]])


@pytest.fixture(autouse=True)
def exact():
    with jax.enable_x64(True):
        yield


def every(time, *matrices):
    """The same matrices at each time step."""
    return [jnp.asarray(np.broadcast_to(m, (time, *np.shape(m)))) for m in matrices]


def system(time, offset=(0.0, 0.0), noise=1e-3):
    """A constant linear system and a constant quadratic cost."""
    matrix, shift, spread = every(time, np.hstack([A, B]), np.array(offset), noise * np.eye(2))
    start = jnp.asarray([1.0, -0.5]), 0.01 * jnp.eye(2)
    hessian = np.zeros((3, 3))
    hessian[:2, :2], hessian[2:, 2:] = STATE_COST, ACTION_COST
    return Dynamics(matrix, shift, spread, *start), Quadratic(*every(time, hessian, np.zeros(3), np.zeros(())))


def controller(time, gain=(-0.2, -0.3), offset=0.1, noise=0.2):
    return Controller(*every(time, np.array([gain]), np.array([offset]), np.array([[noise]])))


def test_the_backward_pass_is_the_riccati_solution():
    """Far from the end, the gain is that of the algebraic Riccati equation, and the noise w (R + B'PB)⁻¹."""
    dynamics, cost = system(400)
    found = backward(dynamics, cost, jnp.full(400, 0.7))
    p = solve_discrete_are(A, B, STATE_COST, ACTION_COST)
    curvature = ACTION_COST + B.T @ p @ B
    np.testing.assert_allclose(found.gain[0], -np.linalg.solve(curvature, B.T @ p @ A), rtol=1e-8)
    np.testing.assert_allclose(found.noise[0], 0.7 * np.linalg.inv(curvature), rtol=1e-8)
    np.testing.assert_allclose(found.offset, 0, atol=1e-12)


def test_no_other_linear_controller_costs_less():
    """Costs minus entropy have no gradient by any gain, offset or noise, also with offsets and linear costs."""
    dynamics, cost = system(7, offset=(0.2, -0.1))
    random = np.random.default_rng(0)
    cost = cost._replace(gradient=jnp.asarray(random.normal(size=(7, 3))))
    weights = jnp.asarray(random.uniform(0.5, 2.0, 7))

    def objective(own):
        entropy = 0.5 * jnp.linalg.slogdet(2 * jnp.pi * jnp.e * own.noise)[1]
        return (expected_cost(cost, forward(dynamics, own)) - weights * entropy).sum()

    best = backward(dynamics, cost, weights)
    for slope in jax.grad(objective)(best):
        np.testing.assert_allclose(slope, 0, atol=1e-10)
    other = best._replace(gain=best.gain + 0.1)
    assert float(objective(other)) > float(objective(best))


def test_costs_and_states_agree_with_sampled_episodes():
    dynamics, cost = system(5, offset=(0.1, 0.0), noise=0.05)
    own, random, count = controller(5), np.random.default_rng(0), 200_000
    z = forward(dynamics, own)
    x = random.multivariate_normal(dynamics.start_mean, dynamics.start_noise, count)
    for t in range(5):
        u = x @ own.gain[t].T + own.offset[t] + np.sqrt(0.2) * random.normal(size=(count, 1))
        both = np.hstack([x, u])
        np.testing.assert_allclose(both.mean(0), z.mean[t], atol=0.01)
        np.testing.assert_allclose(np.cov(both.T), z.covariance[t], atol=0.01)
        sampled = 0.5 * np.einsum("ni,ij,nj->n", both, cost.hessian[t], both).mean()
        assert sampled == pytest.approx(float(expected_cost(cost, z)[t]), rel=0.02)
        x = (
            both @ np.asarray(dynamics.matrix[t]).T
            + dynamics.offset[t]
            + np.sqrt(0.05) * random.normal(size=(count, 2))
        )


def test_the_divergence_is_that_of_gaussians_in_closed_form_and_by_sampling():
    dynamics, _ = system(3)
    p, q = controller(3), controller(3, (0.1, 0.4), -0.2, 0.5)
    z = forward(dynamics, p)
    found = divergence(p, q, z)
    same = controller(3, offset=-0.3)  # the same gain: the states do not matter
    np.testing.assert_allclose(divergence(p, same, z), 0.4**2 / 0.2 / 2, rtol=1e-12)
    np.testing.assert_allclose(divergence(p, p, z), 0, atol=1e-12)
    random = np.random.default_rng(0)
    x = random.multivariate_normal(z.mean[2, :2], z.covariance[2, :2, :2], 400_000)
    means = [x @ own.gain[2].T + own.offset[2] for own in (p, q)]
    u = means[0] + np.sqrt(0.2) * random.normal(size=means[0].shape)
    log = [-0.5 * (u - mean) ** 2 / var - 0.5 * np.log(var) for mean, var in zip(means, (0.2, 0.5), strict=True)]
    assert float((log[0] - log[1]).mean()) == pytest.approx(float(found[2]), rel=0.02)


def test_surprise_is_minus_the_log_density():
    own, z = controller(2), np.array([0.3, -0.7, 0.4])
    found = surprise(own)
    mean = own.gain[1] @ z[:2] + own.offset[1]
    expected = 0.5 * (z[2] - mean[0]) ** 2 / 0.2 + 0.5 * np.log(2 * np.pi * 0.2)
    value = 0.5 * z @ found.hessian[1] @ z + found.gradient[1] @ z + found.constant[1]
    assert float(value) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("limit", [1e-3, 0.1, 3.0])
def test_a_limited_step_lowers_the_cost_and_uses_its_limit(limit):
    dynamics, cost = system(20)
    own = controller(20)
    found = improved(dynamics, cost, own, jnp.asarray(limit), own, jnp.zeros(20))
    assert 0.95 * limit < float(found.divergence) <= limit
    again = divergence(found.controller, own, found.marginals).sum()
    assert float(again) == pytest.approx(float(found.divergence), rel=1e-9)
    assert float(expected_cost(cost, found.marginals).sum()) < float(expected_cost(cost, forward(dynamics, own)).sum())


@pytest.mark.parametrize("limit", [0.1, 3.0])
def test_float32_suffices_for_a_small_step_in_an_unstable_system(limit):
    """The controller does not hold the state, so costs are large, and so is the η of a small step."""
    with jax.enable_x64(False):
        dynamics, cost = jax.tree.map(lambda x: x.astype(jnp.float32), system(60))
        unstable = dynamics._replace(matrix=dynamics.matrix.at[:, 0, 0].set(1.3))
        own = jax.tree.map(lambda x: x.astype(jnp.float32), controller(60, (-8.0, -4.0), 0.5, 0.01))
        found = improved(unstable, cost, own, jnp.asarray(limit, jnp.float32), own, jnp.zeros(60, jnp.float32))
        assert 0.9 * limit < float(found.divergence) <= limit
        costs = [expected_cost(cost, z).sum() for z in (found.marginals, forward(unstable, own))]
        assert float(costs[0]) < float(costs[1])


def test_noise_that_is_as_small_as_the_floor_does_not_use_up_the_limit():
    dynamics, cost = system(20)
    own = controller(20, noise=0.04)
    found = improved(dynamics, cost, own, jnp.asarray(1e-3), own, jnp.zeros(20), 0.04)
    assert 0.95e-3 < float(found.divergence) <= 1e-3
    np.testing.assert_allclose(found.controller.noise, 0.04, rtol=1e-6)


def test_a_larger_limit_costs_less():
    dynamics, cost = system(20)
    own = controller(20)
    found = [improved(dynamics, cost, own, jnp.asarray(x), own, jnp.zeros(20)) for x in (0.01, 0.1, 1.0, 10.0)]
    costs = [float(expected_cost(cost, one.marginals).sum()) for one in found]
    assert costs == sorted(costs, reverse=True)
    etas = [float(one.eta) for one in found]
    assert etas == sorted(etas, reverse=True)


def test_a_step_that_cannot_keep_the_limit_is_not_taken():
    dynamics, cost = system(4)
    own = controller(4)
    broken = cost._replace(hessian=cost.hessian * jnp.nan)
    found = improved(dynamics, broken, own, jnp.asarray(0.1), own, jnp.zeros(4))
    np.testing.assert_array_equal(found.controller.gain, own.gain)
    assert float(found.divergence) == 0


def test_growing_weights_make_the_controller_agree_with_a_policy():
    """On a linear-quadratic task, with a policy that cannot change: the dual variables close the gap."""
    dynamics, cost = system(10)
    own, policy, weights = controller(10), controller(10, (0.0, -0.1), 0.0, 0.1), jnp.zeros(10)
    gaps, step = [], jax.jit(improved)
    for _ in range(30):
        found = step(dynamics, cost, own, jnp.asarray(50.0), policy, weights)
        own = found.controller
        apart = divergence(own, policy, found.marginals)
        weights, gaps = weights + 5.0 * apart, [*gaps, float(apart.sum())]
    assert gaps[-1] < 0.02 * gaps[0]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(gaps[1:]))


def rolled_out(random, time, count, noise=0.0, offset=(0.1, 0.0)):
    """Random actions in the linear system: states, actions and next states, each (time, episodes, numbers)."""
    x, rows = np.broadcast_to([1.0, -0.5], (count, 2)), []
    for _ in range(time):
        u = random.normal(size=(count, 1))
        new = x @ A.T + u @ B.T + offset + noise * random.normal(size=(count, 2))
        rows.append((x, u, new))
        x = new
    return [jnp.asarray(np.stack(column)) for column in zip(*rows, strict=True)]


def test_fitted_dynamics_are_those_of_a_linear_system():
    states, actions, following = rolled_out(np.random.default_rng(0), 12, 5, offset=(0.1, -0.2))
    mask = jnp.ones(states.shape[:2], bool)
    found = fit_dynamics(states, actions, following, mask, 2, 1e-10)
    np.testing.assert_allclose(found.matrix, np.broadcast_to(np.hstack([A, B]), (12, 2, 3)), atol=1e-5)
    np.testing.assert_allclose(found.offset, np.broadcast_to([0.1, -0.2], (12, 2)), atol=1e-5)
    np.testing.assert_allclose(found.noise, 0, atol=1e-8)
    np.testing.assert_allclose(found.start_mean, [1.0, -0.5])


def test_fitted_noise_is_that_of_the_system():
    states, actions, following = rolled_out(np.random.default_rng(0), 20, 400, noise=0.3)
    found = fit_dynamics(states, actions, following, jnp.ones(states.shape[:2], bool), 2, 1e-9)
    np.testing.assert_allclose(found.noise[10], 0.09 * np.eye(2), atol=0.01)


def test_masked_steps_do_not_count():
    states, actions, following = rolled_out(np.random.default_rng(0), 8, 4)
    mask = np.ones((8, 4), bool)
    mask[5:, 2] = False
    broken = [np.array(x) for x in (states, actions, following)]
    for x in broken:
        x[5:, 2] = 1e3
    sides = (states, actions, following), map(jnp.asarray, broken)
    right, wrong = (fit_dynamics(*side, jnp.asarray(mask), 2, 1e-6) for side in sides)
    for a, b in zip(right, wrong, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_without_samples_the_state_stays_where_it_is():
    nothing = jnp.zeros((3, 2, 2)), jnp.zeros((3, 2, 1)), jnp.zeros((3, 2, 2)), jnp.zeros((3, 2), bool)
    found = fit_dynamics(*nothing, 2, 1e-3)
    np.testing.assert_array_equal(found.matrix[0], [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(found.noise[0], 1e-3 * np.eye(2))
    assert all(np.isfinite(x).all() for x in fit_linear(nothing[0], nothing[1], nothing[3], 2, 1e-3))


def test_a_linear_policy_is_its_own_linearisation():
    states, *_ = rolled_out(np.random.default_rng(0), 6, 8)
    actions = states @ jnp.asarray([[0.3], [-0.6]]) + 0.2
    found = fit_controller(states, actions, 0.1 * jnp.eye(1), jnp.ones((6, 8), bool), 1, 1e-10)
    np.testing.assert_allclose(found.gain, np.broadcast_to([[0.3, -0.6]], (6, 1, 2)), atol=1e-4)
    np.testing.assert_allclose(found.noise, 0.1, atol=1e-6)


def test_a_quadratic_cost_is_its_own_expansion():
    def cost(x, u):
        return 2.0 * x[0] ** 2 + x[0] * u[0] + u[0] ** 2 + 3.0 * x[1] - 1.0

    states, actions, _ = rolled_out(np.random.default_rng(0), 4, 3)
    found = quadratic_cost(cost, states, actions, jnp.ones((4, 3), bool))
    hessian = [[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]
    np.testing.assert_allclose(found.hessian, np.broadcast_to(hessian, (4, 3, 3)), atol=1e-9)
    np.testing.assert_allclose(found.gradient, np.broadcast_to([0.0, 3.0, 0.0], (4, 3)), atol=1e-9)
    np.testing.assert_allclose(found.constant, -1.0, atol=1e-9)


def test_a_cost_with_negative_curvature_becomes_convex_with_the_same_gradient():
    states, actions = jnp.full((1, 2, 1), 0.3), jnp.full((1, 2, 1), 0.2)
    found = quadratic_cost(lambda x, u: jnp.cos(x[0]) + u[0] ** 2, states, actions, jnp.ones((1, 2), bool))
    np.testing.assert_allclose(found.hessian[0], [[0, 0], [0, 2]], atol=1e-12)
    point = np.array([0.3, 0.2])
    np.testing.assert_allclose(found.hessian[0] @ point + found.gradient[0], [-np.sin(0.3), 0.4], atol=1e-12)


def test_steps_are_put_into_their_episodes():
    t = np.array([0, 1, 2, 0, 1, 0, 0])
    size = np.int32(6)  # the last row is padding
    flag = np.zeros(7, bool)
    obs = np.arange(7.0)[:, None]
    steps = Transition(t, obs, obs, obs, flag, flag, flag, t)
    padding = jax.tree.map(lambda x: jnp.asarray(x[0]), steps._replace(obs=obs + 50))
    found, mask = as_episodes(Dataset(steps, size), 4, 3, padding)
    np.testing.assert_array_equal(mask, [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(found.obs[..., 0], [[0, 1, 2], [3, 4, 4], [5, 5, 5], [50, 50, 50]])
