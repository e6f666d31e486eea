"""Critics: the moment functions f that maximise a payoff, and gradient penalties for them.

A critic maps one (t, s, a) to a number. f is a cost (see `payoffs`). A discrete action is an index, or a vector of
probabilities that gradients can pass through. `seen` are the indices of the observation that it sees
(`Spec.critic_obs`; None: all); the others are 0 to it.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from understudy.core.types import Pair, Samples, Spec
from understudy.game.features import Features, evaluate, state_action, visible, width_of
from understudy.policies.networks import MLP, Activation


class Critic(eqx.Module):
    """Abstract base class: a cost f_t(s, a). Subclasses are final."""

    @abstractmethod
    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]: ...


class MLPCritic(Critic):
    """f(s, a) = net(φ(s, a))."""

    net: MLP
    features: Features = eqx.field(static=True)
    actions: int | None = eqx.field(static=True)
    seen: tuple[int, ...] | None = eqx.field(static=True, default=None)

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
        net = MLP.init(key, width_of(features, spec), hidden, 1, activation, gain)
        return cls(net, features, spec.num_actions, spec.critic_obs)

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        width, obs = self.net.weights[0].shape[0], visible(obs, self.seen)
        return self.net(evaluate(self.features, obs, as_vector(act, self.actions), width))[0]


class TimedCritic(Critic):
    """f_t(s, a) = net(φ(s, a), t/T)."""

    net: MLP
    features: Features = eqx.field(static=True)
    actions: int | None = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    seen: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @classmethod
    def init(
        cls, key: Key[Array, ""], spec: Spec, hidden: tuple[int, ...], features: Features = state_action
    ) -> "TimedCritic":
        net = MLP.init(key, width_of(features, spec) + 1, hidden, 1)
        return cls(net, features, spec.num_actions, spec.horizon, spec.critic_obs)

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        width, obs = self.net.weights[0].shape[0] - 1, visible(obs, self.seen)
        moments = evaluate(self.features, obs, as_vector(act, self.actions), width)
        return self.net(jnp.append(moments, t / self.horizon))[0]


class LinearCritic(Critic):
    """f(s, a) = w · φ(s, a), linear in given moments."""

    weights: Float[Array, " k"]
    features: Features = eqx.field(static=True)
    actions: int | None = eqx.field(static=True)
    seen: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @classmethod
    def init(cls, spec: Spec, features: Features = state_action) -> "LinearCritic":
        return cls(jnp.zeros(width_of(features, spec)), features, spec.num_actions, spec.critic_obs)

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        return self.weights @ self.moments(obs, act)

    def moments(self, obs: Array, act: Array) -> Float[Array, " k"]:
        """φ(s, a)."""
        obs = visible(obs, self.seen)
        return evaluate(self.features, obs, as_vector(act, self.actions), self.weights.shape[0])


class TableCritic(Critic):
    """f_t(s, a) = table[t, s, a] on a finite MDP."""

    table: Float[Array, "t s a"]

    def __call__(self, t: Int[Array, ""], obs: Array, act: Array) -> Float[Array, ""]:
        return self.table[t, obs, act]


def as_vector(act: Array, actions: int | None) -> Float[Array, " a"]:
    """A discrete action's index as a one-hot vector. Vectors are returned unchanged."""
    if actions is not None and jnp.issubdtype(act.dtype, jnp.integer):
        return jax.nn.one_hot(act, actions)
    return act


def gradient_penalty(
    critic: Critic, t: Int[Array, ""], obs: Float[Array, " obs"], act: Float[Array, " act"], target: float | Array
) -> Float[Array, ""]:
    """(‖∇_{s,a} f(s, a)‖ − target)², at one (s, a) (Gulrajani et al., 2017)."""
    by_obs, by_act = jax.grad(lambda s, a: critic(t, s, a), argnums=(0, 1))(obs, act)
    squared = jnp.sum(jnp.square(by_obs)) + jnp.sum(jnp.square(by_act))
    # The square root is not differentiable at 0, the gradient of a network whose units are all inactive.
    return jnp.square(jnp.sqrt(squared + 1e-12) - target)


def interpolate(key: Key[Array, ""], learner: Samples, expert: Samples) -> tuple[Array, Array]:
    """A random point (s, a) on the line between one sample of the learner and one of the expert.

    Actions must be vectors (`as_vector`).
    """
    if learner.act.ndim != 1 or expert.act.ndim != 1:
        raise TypeError(f"actions have shapes {learner.act.shape} and {expert.act.shape}: give one vector each")
    mix = jax.random.uniform(key)
    return mix * learner.obs + (1 - mix) * expert.obs, mix * learner.act + (1 - mix) * expert.act


def mean_penalty(
    critic: Critic, t: Int[Array, " n"], obs: Float[Array, "n obs"], act: Float[Array, "n act"], target: float | Array
) -> Float[Array, ""]:
    """The mean of `gradient_penalty` over a batch."""
    return jax.vmap(gradient_penalty, (None, 0, 0, 0, None))(critic, t, obs, act, target).mean()


def penalty_between(critic: Critic, pair: Pair, target: float | Array, key: Key[Array, ""]) -> Float[Array, ""]:
    """The mean gradient penalty at random points between the two sides, as in WGAN-GP."""
    keys = jax.random.split(key, pair.expert.weight.shape[0])
    return mean_penalty(critic, pair.expert.t, *jax.vmap(interpolate)(keys, pair.learner, pair.expert), target)
