"""Classes of moment functions on a finite MDP: linear images of convex sets, f = embed(θ) for θ ∈ Θ.

    class           f                       Θ                      label
    reward_box      f_t(s, a)               |f| ≤ 1/2              F_r/2: all rewards
    q_box           f_t(s, a)               |f_t| ≤ (T − t)/2T     F_Q/2T: all functions of that size
    induced         Q^{π_E}_r / 2T          |r| ≤ 1                F_QE/2T: the expert's Q-functions
    span            φ(s, a) · θ             ‖θ‖₂ ≤ R               the span of given features
    kernel_ball     Σ_i c_i k(x_i, ·)       ‖f‖_k ≤ R              the ball of a kernel's space

(t counts from 0, so T − t steps are left.) F_Q itself, the Q-functions of all policies, is not convex and has no exact
best response. `q_box` contains it, so a bound over the box holds for F_Q. A payoff Σ w·f is linear in f, so `best`
maximises it exactly: over a box by the signs of w's adjoint, over a ball by its direction.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_positive
from understudy.tabular.compiling import exact
from understudy.tabular.mdp import FiniteMDP, Table, check_policy, check_single
from understudy.tabular.planning import q_values

Parameter = Float[Array, "..."]


class Embedding(eqx.Module):
    """Abstract: a linear map from parameters θ to tables f. Every subclass is final."""

    shape: eqx.AbstractVar[tuple[int, ...]]
    """The shape of θ."""

    @abstractmethod
    def __call__(self, theta: Parameter) -> Table: ...


class Itself(Embedding):
    """f_t(s, a) = θ_t(s, a)."""

    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, theta: Parameter) -> Table:
        return theta


class Stationary(Embedding):
    """f_t(s, a) = θ(s, a)."""

    horizon: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, theta: Parameter) -> Table:
        return jnp.broadcast_to(theta, (self.horizon, *self.shape))


class ExpertQ(Embedding):
    """f = Q^{π_E}_θ / 2T."""

    mdp: FiniteMDP
    expert: Table
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, theta: Parameter) -> Table:
        return q_values(self.mdp, theta, self.expert) / (2 * self.mdp.horizon)


class Features(Embedding):
    """f_t(s, a) = φ_t(s, a) · θ."""

    features: Float[Array, "t s a k"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, theta: Parameter) -> Table:
        return self.features @ theta


class MomentClass(eqx.Module):
    """Abstract: f = embed(θ) for θ in a set Θ. Every subclass is final. All are closed under negation."""

    label: eqx.AbstractVar[str]
    """The name in figures and tables."""
    embed: eqx.AbstractVar[Embedding]

    @abstractmethod
    def corner(self, slope: Parameter) -> Parameter:
        """argmax over Θ of ⟨slope, θ⟩."""

    @abstractmethod
    def project(self, theta: Parameter) -> Parameter:
        """The point of Θ nearest to θ."""

    @property
    @abstractmethod
    def radius(self) -> Float[Array, ""]:
        """The largest ‖θ‖₂ in Θ."""

    @property
    @abstractmethod
    def size(self) -> np.ndarray:
        """The largest |f_t(s, a)| in the class at each t, or an upper bound on it."""

    def adjoint(self, w: Table) -> Parameter:
        """The gradient in θ of Σ w · embed(θ)."""
        (slope,) = jax.linear_transpose(self.embed, jnp.zeros(self.embed.shape, w.dtype))(w)
        return slope

    def best(self, w: Table) -> Table:
        """argmax over the class of Σ w · f."""
        return _best(self, w)

    def sup(self, w: Table) -> Float[Array, ""]:
        """max over the class of Σ w · f."""
        return _sup(self, w)


@exact
def _best(moments: MomentClass, w: Table) -> Table:
    return moments.embed(moments.corner(moments.adjoint(jnp.asarray(w))))


@exact
def _sup(moments: MomentClass, w: Table) -> Float[Array, ""]:
    slope = moments.adjoint(jnp.asarray(w))
    return jnp.sum(slope * moments.corner(slope))


class Box(MomentClass):
    """|θ| ≤ bound, entry by entry."""

    label: str = eqx.field(static=True)
    embed: Embedding
    bound: Parameter

    def corner(self, slope: Parameter) -> Parameter:
        return self.bound * jnp.sign(slope)

    def project(self, theta: Parameter) -> Parameter:
        return jnp.clip(theta, -self.bound, self.bound)

    @property
    def radius(self) -> Float[Array, ""]:
        return jnp.linalg.norm(self.bound.ravel())

    @property
    def size(self) -> np.ndarray:
        if isinstance(self.embed, ExpertQ):  # |Q_t| ≤ T − t, over 2T
            horizon = self.embed.mdp.horizon
            return (horizon - np.arange(horizon)) / (2 * horizon)
        largest = np.asarray(self.bound)
        if isinstance(self.embed, Stationary):
            largest = np.broadcast_to(largest, (self.embed.horizon, *largest.shape))
        return largest.reshape(len(largest), -1).max(1)


class Ball(MomentClass):
    """‖θ‖₂ ≤ bound."""

    label: str = eqx.field(static=True)
    embed: Embedding
    bound: Float[Array, ""]

    def corner(self, slope: Parameter) -> Parameter:
        size = jnp.linalg.norm(slope)
        return self.bound * slope / jnp.where(size > 0, size, 1.0)

    def project(self, theta: Parameter) -> Parameter:
        size = jnp.linalg.norm(theta)
        return theta * jnp.minimum(1.0, self.bound / jnp.where(size > 0, size, 1.0))

    @property
    def radius(self) -> Float[Array, ""]:
        return self.bound

    @property
    def size(self) -> np.ndarray:
        assert isinstance(self.embed, Features)
        return float(self.bound) * np.linalg.norm(np.asarray(self.embed.features), axis=-1).max((1, 2))


def reward_box(mdp: FiniteMDP, bound: float = 0.5, stationary: bool = False) -> Box:
    """F_r / 2: all |f_t(s, a)| ≤ 1/2; with `stationary`, all |f(s, a)| ≤ 1/2."""
    check_positive(bound=bound)
    check_single(mdp)
    embed: Embedding = Stationary(horizon=mdp.horizon, shape=mdp.shape[1:]) if stationary else Itself(shape=mdp.shape)
    label = f"F_r/2: all {'stationary ' if stationary else ''}rewards, |f| ≤ {bound:g}"
    return Box(label, embed, np.full(embed.shape, float(bound)))


def q_box(mdp: FiniteMDP) -> Box:
    """The box |f_t(s, a)| ≤ (T − t) / 2T. It contains F_Q / 2T."""
    check_single(mdp)
    left = (mdp.horizon - np.arange(mdp.horizon)) / (2 * mdp.horizon)
    bound = np.array(np.broadcast_to(left[:, None, None], mdp.shape))
    return Box("F_Q/2T: all functions, |f_t| ≤ (T−t)/2T", Itself(shape=mdp.shape), bound)


def induced(mdp: FiniteMDP, expert: Any) -> Box:
    """F_QE / 2T: the expert's Q-functions of all rewards |r_t(s, a)| ≤ 1, divided by 2T.

    It is linear in r. The on-Q game over it is the reward game over r / 2, divided by T.
    """
    check_single(mdp)
    if not isinstance(expert, jax.core.Tracer):
        check_policy(mdp, expert, "the expert")
        expert = np.asarray(expert, np.float64)
    embed = ExpertQ(mdp=mdp, expert=expert, shape=mdp.shape)
    return Box("F_QE/2T: the expert's Q-functions, |r| ≤ 1", embed, np.ones(mdp.shape))


def span(mdp: FiniteMDP, features: Any, radius: float = 1.0) -> Ball:
    """f = φ · θ with ‖θ‖₂ ≤ radius, for features φ[s, a, k] or φ[t, s, a, k]."""
    check_positive(radius=radius)
    check_single(mdp)
    table = np.asarray(features, np.float64)
    if table.shape[:-1] not in (mdp.shape, mdp.shape[1:]):
        raise SpecError(
            f"features have shape {table.shape}: (states, actions, k) is needed, with {mdp.shape[1:]} first"
        )
    if not np.isfinite(table).all():
        raise SpecError(f"features{[int(i) for i in np.argwhere(~np.isfinite(table))[0]]} is not finite")
    count = table.shape[-1]
    embed = Features(features=np.array(np.broadcast_to(table, (*mdp.shape, count))), shape=(count,))
    return Ball(f"span of {count} features, ‖θ‖ ≤ {radius:g}", embed, np.asarray(float(radius)))


def kernel_ball(mdp: FiniteMDP, gram: Any, radius: float = 1.0) -> Ball:
    """The ball ‖f‖_k ≤ radius in the RKHS of a kernel, given as its matrix k((s, a), (s', a')) over all pairs.

    With k = Φ Φᵀ this is the span of the features Φ: ‖Φθ‖_k is the smallest ‖θ‖₂.
    """
    count = mdp.states * mdp.actions
    matrix = np.asarray(gram, np.float64)
    if matrix.shape != (count, count) or not np.allclose(matrix, matrix.T, atol=1e-9):
        raise SpecError(f"the kernel matrix has shape {matrix.shape}: a symmetric matrix of {(count, count)} is needed")
    sizes, directions = np.linalg.eigh(matrix)
    if sizes.min() < -1e-9 * max(sizes.max(), 1.0):
        raise SpecError(f"the kernel matrix has the eigenvalue {sizes.min():g}: eigenvalues must not be negative")
    features = (directions * np.sqrt(np.maximum(sizes, 0))).reshape(mdp.states, mdp.actions, count)
    ball = span(mdp, features, radius)
    return Ball(f"ball of a kernel's space, ‖f‖ ≤ {radius:g}", ball.embed, ball.bound)
