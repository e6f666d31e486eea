"""A moment function that follows the leader at every step of the expert: a no-regret player in closed form.

It is for games in which both sides act in the same states: off-Q moments, and on-Q moments at aggregated states. Let
s_i, a_i be the expert's N steps, K a kernel between actions, and f a function f_i(a) of the step and the action, with
‖f‖² = (1/N) Σ_i ‖f_i‖² in the space of K. (This is the kernel N · 1[i = j] K(a, a') of step and action.) Then

    U(π, f) = (1/N) Σ_i [E_{a ~ π(s_i)} f_i(a) − f_i(a_i)] = ⟨f, g(π)⟩,     g_i(π) = E_{a ~ π(s_i)} K(a, ·) − K(a_i, ·)

where g, the functional gradient, is the same for every f. Each payoff ⟨f, g(π_j)⟩ − ‖f‖²/2 is strongly concave in f, so
the leader of k rounds has regret O(log k). It is the running mean

    f = argmax_f Σ_{j ≤ k} [⟨f, g(π_j)⟩ − ‖f‖²/2] = (1/k) Σ_{j ≤ k} g(π_j)

(One −‖f‖²/2 for all rounds together would give the sum, k times as much.) As g is linear in the policy, f = g(π̄) with π̄
the mixture of the k policies: no f of norm 1 has a larger payoff against π̄ than ‖f‖. Best responses to f are
Frank-Wolfe steps on ‖g(π)‖²/2.

The steps do not share f, so each may count its own rounds: a minibatch moves f at its own steps alone. K is the
indicator 1[a = a'] for discrete actions, where φ(a) is one-hot. For continuous ones it is Gaussian,
exp(−‖a − a'‖² / 2h²) of normalized actions, with random features K(a, a') ≈ φ(a) · φ(a') as in `game.kernels`. Either
way f_i(a) = w_i · φ(a).
"""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from understudy.core.types import Spec, Transition
from understudy.game.losses import entropy
from understudy.game.payoffs import support_mean
from understudy.policies import Policy


class StepLeaders(eqx.Module):
    """f: one leader for each step of the expert."""

    weights: Float[Array, "n D"]
    """w_i."""
    rounds: Int[Array, " n"]
    """k_i: how often a step has moved."""
    directions: Float[Array, "act D"] | None
    """Of the random features, divided by the bandwidth. None: actions are discrete."""
    phases: Float[Array, " D"] | None

    @classmethod
    def init(
        cls, key: Key[Array, ""], spec: Spec, steps: int, features: int, bandwidth: float | Float[Array, ""]
    ) -> "StepLeaders":
        """f = 0 at `steps` steps. The bandwidth h is in multiples of √d for d-dimensional actions in [-1, 1]."""
        rounds = jnp.zeros(steps, jnp.int32)
        if spec.num_actions is not None:
            return cls(jnp.zeros((steps, spec.num_actions)), rounds, None, None)
        direction_key, phase_key = jax.random.split(key)
        directions = jax.random.normal(direction_key, (spec.action_size, features))
        phases = jax.random.uniform(phase_key, (features,), maxval=2 * jnp.pi)
        return cls(jnp.zeros((steps, features)), rounds, directions / (bandwidth * spec.action_size**0.5), phases)

    def features(self, act: Array) -> Float[Array, " D"]:
        """φ(a) of one normalized action, or of an index."""
        if self.directions is None:
            return jax.nn.one_hot(act, self.weights.shape[1], dtype=self.weights.dtype)
        assert self.phases is not None
        return jnp.sqrt(2.0 / self.phases.shape[0]) * jnp.cos(act @ self.directions + self.phases)

    def follow(self, rows: Int[Array, " b"], gradients: Float[Array, "b D"]) -> "StepLeaders":
        """The leaders after a round at some steps, with these g_i. A step that occurs twice moves once."""
        first = jnp.argmax(rows[:, None] == rows, axis=1)  # equal values are written, so their order does not matter
        rounds = self.rounds[rows] + 1
        weights = self.weights[rows] + (gradients[first] - self.weights[rows]) / rounds[:, None]
        return replace(self, weights=self.weights.at[rows].set(weights), rounds=self.rounds.at[rows].set(rounds))


def functional_gradients(
    leaders: StepLeaders, policy: Policy, batch: Transition, key: Key[Array, ""]
) -> tuple[Float[Array, "b D"], Float[Array, "b D"]]:
    """E_{a ~ π(s_i)} φ(a) and g_i at each step of a normalized batch: exact for discrete actions, else one sample."""
    keys = jax.random.split(key, batch.t.shape[0])
    learner = jax.vmap(partial(support_mean, policy, leaders.features))(batch.t, batch.obs, keys)
    return learner, learner - jax.vmap(leaders.features)(batch.act)


def response_loss(
    leaders: StepLeaders,
    rows: Int[Array, " b"],
    batch: Transition,
    entropy_weight: float | Array,
    policy: Policy,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], tuple[StepLeaders, dict[str, Float[Array, ""]]]]:
    """The policy's loss E_{a ~ π(s_i)} f_i(a) − α H(π(s_i)), after f has moved at the same steps; f, and metrics.

    `batch` are the normalized steps of these rows. f's move costs no further pass: the policy's features are its g_i.
    """
    act_key, entropy_key = jax.random.split(key)
    learner, gradients = functional_gradients(leaders, policy, batch, act_key)
    gradients = jax.lax.stop_gradient(gradients)
    leaders = leaders.follow(rows, gradients)
    f = leaders.weights[rows]
    entropies = jax.vmap(entropy, (None, 0, 0))(policy, batch.obs, jax.random.split(entropy_key, len(rows)))
    loss = jnp.sum(f * learner, axis=1).mean() - entropy_weight * entropies.mean()
    metrics = {
        "payoff": jnp.sum(f * gradients, axis=1).mean(),
        "distance": jnp.sqrt(jnp.square(gradients).sum(1).mean()),
    }
    return loss, (leaders, metrics)
