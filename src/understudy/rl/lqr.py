"""Linear-Gaussian controllers for linear dynamics and quadratic costs, improved under a limit on the KL divergence.

Everything here is a function of one trajectory: matrices for each of T time steps, z = (x, u) for a state x and an
action u. Callers vmap over starting states.

    dynamics     x_{t+1} ~ N(F_t z + f_t, N_t),      x_0 ~ N(m, S)
    cost         c_t(z) = ½ z'H_t z + g_t'z + b_t
    controller   u ~ N(K_t x + k_t, C_t)

`backward` minimises Σ E[c_t(z)] − Σ w_t E[H(p_t)] over controllers p, with an entropy H of weight w_t at each time
step. For S' and s' of the next time step, the quadratic form of the costs from t on is

    1. Q = H_t + F_t'S'F_t,   q = g_t + F_t'(S'f_t + s')
    2. K_t = −Q_uu⁻¹ Q_ux,    k_t = −Q_uu⁻¹ q_u,    C_t = w_t Q_uu⁻¹, with eigenvalues ≥ `floor`
    3. S = Q_xx + Q_xu K_t,   s = q_x + Q_xu k_t

S and s do not depend on w. `improved` minimises the same costs, where p may differ from the previous controller p̂ only
by a KL divergence ε, and pays λ_t for each nat by which it differs from a policy π̄:

    4. min over p of Σ E[c_t] + Σ λ_t KL_t(p ‖ π̄)   such that   Σ KL_t(p ‖ p̂) ≤ ε

With the dual variable η of the limit, the Lagrangian has the form of line 1, for the cost c_t − λ_t log π̄_t − η log p̂_t
and the entropy weight w_t = λ_t + η. The divergence falls as η grows, so η is found by bisection of its logarithm. The
LQR problem is solved for v, where u is the mean of p̂ plus v: −log p̂_t = ½ v'Ĉ⁻¹v + constant does not depend on x. In
the coordinates (x, u) the terms of η would have to cancel in S. In float32 they do not, if η is large.

Reference: Levine and Abbeel, "Learning Neural Network Policies with Guided Policy Search under Unknown Dynamics"
(2014), section 3. Deviation: the paper's penalty in line 4 is KL_t(π̄ ‖ p), which is no quadratic cost. Either is 0 only
if both agree.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_ETA, LARGEST_ETA = 1e-4, 1e8
"""Between these, η is searched. Costs are of order 1."""
FACTORS = (0.1, 10.0)
"""The range of a limit's factor."""
BISECTIONS = 24
"""η is known to a factor of (LARGEST_ETA / SMALLEST_ETA)^(2^-BISECTIONS), which float32 does not resolve."""


class Dynamics(NamedTuple):
    """x_{t+1} ~ N(F_t z + f_t, N_t), and the first state's distribution."""

    matrix: Float[Array, "t x z"]
    offset: Float[Array, "t x"]
    noise: Float[Array, "t x x"]
    """Covariance."""
    start_mean: Float[Array, " x"]
    start_noise: Float[Array, "x x"]
    """Covariance."""


class Quadratic(NamedTuple):
    """½ z'Hz + g'z + b."""

    hessian: Float[Array, "t z z"]
    gradient: Float[Array, "t z"]
    constant: Float[Array, " t"]


class Controller(NamedTuple):
    """u ~ N(K_t x + k_t, C_t)."""

    gain: Float[Array, "t u x"]
    offset: Float[Array, "t u"]
    noise: Float[Array, "t u u"]
    """Covariance."""

    def mean(self, states: Float[Array, "t n x"]) -> Float[Array, "t n u"]:
        """K_t x + k_t for n states at each time step."""
        return jnp.einsum("tux,tnx->tnu", self.gain, states) + self.offset[:, None]


class Marginals(NamedTuple):
    """The Gaussian distribution of z at each time step."""

    mean: Float[Array, "t z"]
    covariance: Float[Array, "t z z"]


class Improvement(NamedTuple):
    """The result of `improved`."""

    controller: Controller
    eta: Float[Array, ""]
    divergence: Float[Array, ""]
    """Σ KL_t(p ‖ p̂), at most the limit."""
    marginals: Marginals


class Progress(NamedTuple):
    """How far a controller may move next: its limit is multiplied by `factor`."""

    factor: Float[Array, "..."]
    cost: Float[Array, "..."]
    """Of the last episodes."""
    promised: Float[Array, "..."]
    """How much of it the next controller saves, if the model is right. 0: there is no model yet."""

    def after(self, cost: Float[Array, "..."]) -> "Progress":
        """After new episodes: the factor grows if they have saved more than half of what was promised."""
        short = self.promised - (self.cost - cost)
        ratio = jnp.clip(self.promised / (2 * jnp.maximum(short, 1e-6)), 0.5, 2.0)
        factor = jnp.where(self.promised > 0, jnp.clip(self.factor * ratio, *FACTORS), self.factor)
        return self._replace(factor=factor, cost=cost)


def backward(
    dynamics: Dynamics, cost: Quadratic, entropy: Float[Array, " t"], floor: float | Array = 0.0
) -> Controller:
    """Lines 1 to 3: the best controller for costs minus entropy. `floor` is the least variance of its actions."""
    size = dynamics.offset.shape[1]

    def earlier(
        later: tuple[Array, Array], here: tuple[Array, Array, Array, Array, Array]
    ) -> tuple[tuple[Array, Array], Controller]:
        (value, slope), (matrix, offset, hessian, gradient, weight) = later, here
        q = gradient + matrix.T @ (value @ offset + slope)
        quadratic = _symmetric(hessian + matrix.T @ value @ matrix)  # line 1
        inverse = _symmetric(jnp.linalg.inv(quadratic[size:, size:]))
        gain, constant = -inverse @ quadratic[size:, :size], -inverse @ q[size:]  # line 2
        value = _symmetric(quadratic[:size, :size] + quadratic[:size, size:] @ gain)  # line 3
        variances, axes = jnp.linalg.eigh(weight * inverse)
        noise = (axes * jnp.maximum(variances, floor)) @ axes.T
        return (value, q[:size] + quadratic[:size, size:] @ constant), Controller(gain, constant, noise)

    end = jnp.zeros((size, size), cost.hessian.dtype), jnp.zeros(size, cost.hessian.dtype)
    steps = (dynamics.matrix, dynamics.offset, cost.hessian, cost.gradient, entropy)
    return jax.lax.scan(earlier, end, steps, reverse=True)[1]


def forward(dynamics: Dynamics, controller: Controller) -> Marginals:
    """The states and actions of a controller, if the dynamics are those."""

    def later(state: tuple[Array, Array], here: tuple[Any, Controller]) -> tuple[tuple[Array, Array], Marginals]:
        (mean, spread), ((matrix, offset, noise), (gain, constant, action_noise)) = state, here
        both = jnp.concatenate([mean, gain @ mean + constant])
        cross = spread @ gain.T
        covariance = jnp.block([[spread, cross], [cross.T, gain @ cross + action_noise]])
        following = matrix @ both + offset, _symmetric(matrix @ covariance @ matrix.T + noise)
        return following, Marginals(both, covariance)

    steps = (dynamics.matrix, dynamics.offset, dynamics.noise), controller
    return jax.lax.scan(later, (dynamics.start_mean, dynamics.start_noise), steps)[1]


def expected_cost(cost: Quadratic, marginals: Marginals) -> Float[Array, " t"]:
    """E[c_t(z)]."""
    mean = marginals.mean
    at_mean = 0.5 * jnp.einsum("ti,tij,tj->t", mean, cost.hessian, mean) + jnp.einsum("ti,ti->t", cost.gradient, mean)
    return at_mean + 0.5 * jnp.einsum("tij,tji->t", cost.hessian, marginals.covariance) + cost.constant


def divergence(p: Controller, q: Controller, marginals: Marginals) -> Float[Array, " t"]:
    """KL_t(p ‖ q) between the actions of two controllers, on average over the states of `marginals`."""
    size = p.gain.shape[2]
    mean, spread = marginals.mean[:, :size], marginals.covariance[:, :size, :size]

    def at(p: Controller, q: Controller, mean: Array, spread: Array) -> Array:
        precision = jnp.linalg.inv(q.noise)
        gain, offset = p.gain - q.gain, p.offset - q.offset
        apart = gain @ mean + offset
        squares = apart @ precision @ apart + jnp.trace(gain.T @ precision @ gain @ spread)
        volumes = jnp.linalg.slogdet(q.noise)[1] - jnp.linalg.slogdet(p.noise)[1]
        return 0.5 * (jnp.trace(precision @ p.noise) - len(offset) + volumes + squares)

    return jax.vmap(at)(p, q, mean, spread)


def surprise(controller: Controller) -> Quadratic:
    """−log p_t(u | x), a quadratic function of z."""
    precision = jnp.linalg.inv(controller.noise)
    actions = jnp.broadcast_to(jnp.eye(controller.offset.shape[1], dtype=precision.dtype), precision.shape)
    residual = jnp.concatenate([-controller.gain, actions], axis=2)  # u − Kx = residual @ z
    weighted = jnp.einsum("tuz,tuv->tzv", residual, precision)
    at_zero = 0.5 * jnp.einsum("tu,tuv,tv->t", controller.offset, precision, controller.offset)
    volume = 0.5 * jnp.linalg.slogdet(2 * jnp.pi * controller.noise)[1]
    return Quadratic(weighted @ residual, -jnp.einsum("tzu,tu->tz", weighted, controller.offset), at_zero + volume)


def improved(
    dynamics: Dynamics,
    cost: Quadratic,
    previous: Controller,
    limit: Float[Array, ""],
    policy: Controller,
    weights: Float[Array, " t"],
    floor: float | Array = 0.0,
) -> Improvement:
    """Line 4: a better controller, at most `limit` from the previous one, that pays `weights` to differ from `policy`.

    It is the previous controller itself if no η in the bracket keeps the limit.
    """
    theirs, own = surprise(policy), surprise(previous._replace(gain=0 * previous.gain, offset=0 * previous.offset))
    near, paid = _around(
        previous, dynamics, Quadratic(*(c + _times(weights, q) for c, q in zip(cost, theirs, strict=True)))
    )

    def at(eta: Float[Array, ""]) -> Improvement:
        total = Quadratic(*(c + eta * p for c, p in zip(paid, own, strict=True)))
        change = backward(near, total, eta + weights, floor)
        controller = Controller(previous.gain + change.gain, previous.offset + change.offset, change.noise)
        marginals = forward(dynamics, controller)
        return Improvement(controller, eta, divergence(controller, previous, marginals).sum(), marginals)

    def halved(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        fits = at(jnp.exp(middle)).divergence <= limit  # False if it is not a number
        return jnp.where(fits, low, middle), jnp.where(fits, middle, high)

    ends = jnp.log(jnp.asarray(SMALLEST_ETA, limit.dtype)), jnp.log(jnp.asarray(LARGEST_ETA, limit.dtype))
    found = at(jnp.exp(jax.lax.fori_loop(0, BISECTIONS, halved, ends)[1]))
    nothing = jnp.zeros((), limit.dtype)
    kept = Improvement(previous, jnp.full((), jnp.inf, limit.dtype), nothing, forward(dynamics, previous))
    return jax.tree.map(lambda new, old: jnp.where(found.divergence <= limit, new, old), found, kept)


def _around(controller: Controller, dynamics: Dynamics, cost: Quadratic) -> tuple[Dynamics, Quadratic]:
    """Dynamics and cost of (x, v) for u = Kx + k + v. The cost lacks its constant."""
    time, acts, size = controller.gain.shape
    zeros = jnp.zeros((time, size), controller.offset.dtype)
    eye = jnp.broadcast_to(jnp.eye(size + acts, dtype=zeros.dtype), (time, size + acts, size + acts))
    turn, shift = eye.at[:, size:, :size].set(controller.gain), jnp.concatenate([zeros, controller.offset], axis=1)
    moved = dynamics.offset + jnp.einsum("txz,tz->tx", dynamics.matrix, shift)
    slope = cost.gradient + jnp.einsum("tyz,tz->ty", cost.hessian, shift)
    hessian, gradient = jnp.swapaxes(turn, 1, 2) @ cost.hessian @ turn, jnp.einsum("tzy,tz->ty", turn, slope)
    near = dynamics._replace(matrix=dynamics.matrix @ turn, offset=moved)
    return near, Quadratic(hessian, gradient, cost.constant)


def _times(weights: Float[Array, " t"], values: Float[Array, "t ..."]) -> Float[Array, "t ..."]:
    return weights.reshape(-1, *(1,) * (values.ndim - 1)) * values


def _symmetric(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return (matrix + matrix.T) / 2
