"""f: the moment functions that a payoff is maximised over, and the penalties that keep them in their class.

A critic is called with one (t, s, a) and returns a number; f is a cost (see `payoffs`). Discrete actions may be given
as an index or as a vector of probabilities, which is what a gradient can pass through.
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from understudy.core.types import Discrete, Samples, Spec
from understudy.policies.networks import MLP, Activation

Features = Callable[[Array, Array], Float[Array, " k"]]
"""φ(s, a): the moments a person wants matched."""


def state_action(obs: Array, act: Array) -> Float[Array, " k"]:
    """The default features: the state and the action themselves."""
    return jnp.concatenate([obs, act])


class Critic(eqx.Module):
    """Abstract: a cost f_t(s, a). Every subclass is final."""

    @abstractmethod
    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]: ...


class MLPCritic(Critic):
    """f(s, a) = net(φ(s, a))."""

    net: MLP
    features: Features = eqx.field(static=True)
    actions: int | None = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        spec: Spec,
        hidden: tuple[int, ...] = (256, 256),
        activation: Activation = "relu",
        features: Features = state_action,
        gain: float | Array | None = None,
    ) -> "MLPCritic":
        actions = _actions(spec)
        return cls(MLP.init(key, _width(spec, features), hidden, 1, activation, gain), features, actions)

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        return self.net(self.features(obs, as_vector(act, self.actions)))[0]


class TimedCritic(Critic):
    """f_t(s, a) = net(φ(s, a), t/T)."""

    net: MLP
    features: Features = eqx.field(static=True)
    actions: int | None = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @classmethod
    def init(
        cls, key: Key[Array, ""], spec: Spec, hidden: tuple[int, ...], features: Features = state_action
    ) -> "TimedCritic":
        return cls(MLP.init(key, _width(spec, features) + 1, hidden, 1), features, _actions(spec), spec.horizon)

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        return self.net(jnp.append(self.features(obs, as_vector(act, self.actions)), t / self.horizon))[0]


class LinearCritic(Critic):
    """f(s, a) = w · φ(s, a): the span of given moments."""

    weights: Float[Array, " k"]
    features: Features = eqx.field(static=True)
    actions: int | None = eqx.field(static=True)

    @classmethod
    def init(cls, spec: Spec, features: Features = state_action) -> "LinearCritic":
        return cls(jnp.zeros(_width(spec, features)), features, _actions(spec))

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        return self.weights @ self.features(obs, as_vector(act, self.actions))


class TableCritic(Critic):
    """f_t(s, a) = table[t, s, a] on a finite MDP."""

    table: Float[Array, "t s a"]

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        return self.table[t, obs, act]


def as_vector(act: Array, actions: int | None) -> Float[Array, " a"]:
    """A discrete action's index as a one-hot vector; a continuous action or a vector of probabilities as it is."""
    if actions is not None and jnp.issubdtype(act.dtype, jnp.integer):
        return jax.nn.one_hot(act, actions)
    return act


def gradient_penalty(
    critic: Critic, t: Int[Array, ""], obs: Float[Array, " obs"], act: Float[Array, " act"], target: float | Array
) -> Float[Array, ""]:
    """(‖∇_{s,a} f(s, a)‖ − target)², at one (s, a) (Gulrajani et al., 2017)."""
    by_obs, by_act = jax.grad(lambda s, a: critic(t, s, a), argnums=(0, 1))(obs, act)
    squared = jnp.sum(jnp.square(by_obs)) + jnp.sum(jnp.square(by_act))
    # The square root has no derivative at zero, where a dead network sits.
    return jnp.square(jnp.sqrt(squared + 1e-12) - target)


def interpolate(key: Key[Array, ""], learner: Samples, expert: Samples) -> tuple[Array, Array]:
    """A point drawn uniformly between one learner's (s, a) and one expert's: where a gradient penalty is taken.

    For one pair of samples; the caller vmaps. Actions are vectors: an index has no points between (`as_vector`).
    """
    if learner.act.ndim != 1 or expert.act.ndim != 1:
        raise TypeError(f"actions of shapes {learner.act.shape} and {expert.act.shape}: one vector each is needed")
    mix = jax.random.uniform(key)
    return mix * learner.obs + (1 - mix) * expert.obs, mix * learner.act + (1 - mix) * expert.act


def _actions(spec: Spec) -> int | None:
    return spec.action.n if isinstance(spec.action, Discrete) else None


def _width(spec: Spec, features: Features) -> int:
    size = spec.action.n if isinstance(spec.action, Discrete) else spec.action.shape[0]
    shaped = jax.eval_shape(features, jnp.zeros(spec.obs_shape), jnp.zeros(size))
    return int(shaped.shape[0])
