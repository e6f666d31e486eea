"""Soft Q-learning, the off-policy player for discrete actions.

For finitely many actions the optimal maximum-entropy policy follows from Q, π(a | s) ∝ exp(Q(s, a) / α), so no actor is
trained. Two networks estimate Q. Targets use the smaller of the two, because a maximum over noisy estimates is too
large. One gradient step, on a minibatch (s, a, r, s') from the replay buffer:

    1. V(s') = α log Σ_b exp(min_i Q̄_i(s', b) / α), clipped to [−m, m + α log n / (1 − γ)]
    2. y = r + γ (c · V(s') + v)
    3. Q_i ← Q_i − η ∇ ½ E (Q_i(s, a) − y)²,  i = 1, 2
    4. log α ← log α − η ∇ ( log α · (E H(π(s)) − h log n) ),  if there is a target entropy h
    5. Q̄_i ← (1 − τ) Q̄_i + τ Q_i

c is 1 to bootstrap from the next state, 0 after a terminal step; v is the value of the absorbing state if the step ends
in it, else 0 (`rl.base.Batch`). H(π(s)) is the entropy of the policy in s, at most log n for n actions. m is the bound
`Batch.value_bound`: the largest possible |reward| / (1 − γ), if known. Demonstrations cover only the expert's actions.
The values of the other actions are extrapolated, V picks the largest, and without a bound they can diverge.

The policy is softmax(Q_1 / α). Like TD3's actor it follows the first critic only, which halves the cost of acting. It
is a `Categorical` with α folded into the last layer. The Q-networks are the policy and the critics, so they see
the numbers of the observation that both may see, `Spec.policy_obs` and `Spec.critic_obs`.

Choosing α: an imitation game's rewards are about 1/N per step for N trajectories, 0.2 to 0.04 for 5 to 25. The entropy
bonus is at most α log n per step: 0.0035 for α = 0.005 and two actions, 0.007 for four. That is small compared with the
rewards, so the policy is nearly greedy where actions matter. Scale α with the task reward if you train on it, or set
`target_entropy`, a fraction of log n, to adjust α automatically. A fixed α is wrong if rewards shrink during training,
as with AdRIL: in the end only the entropy bonus counts.

Reference: Haarnoja et al., "Reinforcement Learning with Deep Energy-Based Policies" (2017); the two networks are those
of Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (2018).

Deviations: the paper trains a sampler for continuous actions; here actions are discrete and V and the policy are exact.
V is bounded. Line 4 is soft actor-critic's.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.core.errors import (
    SettingError,
    check_choice,
    check_fraction,
    check_layers,
    check_positive,
    check_share,
    check_whole,
)
from understudy.core.types import Spec
from understudy.policies import Categorical
from understudy.policies.networks import MLP
from understudy.rl.base import Batch, Experience, RLPlayer
from understudy.rl.updates import LR_SCHEDULES, LrSchedule, check_discrete, descend, entropy, learning_rate, twins


class SoftQState(NamedTuple):
    critics: MLP
    """Q_1(s, ·) and Q_2(s, ·), stacked."""
    critics_opt_state: optax.OptState
    targets: MLP
    """Target networks Q̄_1 and Q̄_2."""
    log_temperature: Float[Array, ""]
    temperature_opt_state: optax.OptState


class SoftQ(RLPlayer):
    """Soft Q-learning, for discrete actions."""

    lr: float = 5e-4
    """Learning rate of Adam for networks and temperature, η."""
    lr_schedule: LrSchedule = eqx.field(static=True, default="constant")
    """constant, or linear: decay to 0 over training."""
    discount: float = 0.99
    """Discount factor γ."""
    tau: float = 0.02
    """Polyak averaging rate of the target networks, τ."""
    gradient_steps: int = eqx.field(static=True, default=64)
    """Gradient steps per update."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of the Q-networks."""
    temperature: float = 0.005
    """Temperature α; with a target entropy, its initial value."""
    target_entropy: float | None = None
    """Target entropy as a fraction of its maximum, log n. None: the temperature is fixed."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr, tau=self.tau, temperature=self.temperature)
        check_share(tau=self.tau)
        check_fraction(discount=self.discount)
        check_choice(LR_SCHEDULES, lr_schedule=self.lr_schedule)
        check_whole(1, gradient_steps=self.gradient_steps)
        check_layers(hidden=self.hidden)
        if self.target_entropy is not None:
            check_positive(target_entropy=self.target_entropy)
            check_fraction(target_entropy=self.target_entropy)

    def init(self, key: Key[Array, ""], spec: Spec) -> SoftQState:
        check_discrete("SoftQ", spec)
        critics = twins(key, spec.obs_size, self.hidden, spec.action_size, _inputs(spec))
        log_temperature = jnp.log(jnp.asarray(self.temperature, jnp.float32))
        init = optax.adam(self.lr).init
        targets: MLP = jax.tree.map(jnp.copy, critics)  # states are donated, so no array may appear twice
        return SoftQState(critics, init(critics), targets, log_temperature, init(log_temperature))

    def improve(
        self, state: SoftQState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
        lr = learning_rate(self.lr, self.lr_schedule, progress)

        def step(state: SoftQState, batch: Batch) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
            return self.step(state, batch, lr)

        state, metrics = jax.lax.scan(step, state, experience.batches(jax.random.split(key, self.gradient_steps)))
        return state, {name: values.mean() for name, values in metrics.items()}

    def step(
        self, state: SoftQState, batch: Batch, lr: float | Array
    ) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
        """One gradient step of networks and temperature."""
        y = target(batch, state.targets, self.alpha(state), self.discount)  # lines 1 and 2
        return self.step_on(lambda critics: critics_loss(critics, batch, y), state, lr)

    def step_on(
        self,
        loss: Callable[[MLP], tuple[Float[Array, ""], Float[Array, "2 n actions"]]],
        state: SoftQState,
        lr: float | Array,
    ) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
        """Lines 3 to 5, with the given loss of the critics, which also returns the Q-values of all actions."""
        adam, temperature = optax.adam(lr), self.alpha(state)
        (value, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.critics)
        critics, critics_opt_state = descend(adam, gradient, state.critics, state.critics_opt_state)  # line 3
        mean_entropy = entropy(q[0] / temperature).mean()
        log_temperature, temperature_opt_state = state.log_temperature, state.temperature_opt_state
        if self.target_entropy is not None:  # line 4
            excess = mean_entropy - self.target_entropy * jnp.log(q.shape[-1])
            log_temperature, temperature_opt_state = descend(adam, excess, log_temperature, temperature_opt_state)
        targets = optax.incremental_update(critics, state.targets, self.tau)  # line 5
        metrics = {"critic_loss": value, "temperature": temperature, "entropy": mean_entropy, "q": q.mean()}
        return SoftQState(critics, critics_opt_state, targets, log_temperature, temperature_opt_state), metrics

    def policy(self, state: SoftQState) -> Categorical:
        """softmax(Q_1 / α)."""
        temperature, net = self.alpha(state), state.critics
        weights, biases = [weight[0] for weight in net.weights], [bias[0, 0] for bias in net.biases]
        weights[-1], biases[-1] = weights[-1] / temperature, biases[-1] / temperature
        return Categorical(MLP(tuple(weights), tuple(biases), net.activation, net.input_indices))

    def alpha(self, state: SoftQState) -> Float[Array, ""]:
        """The temperature α."""
        # A fixed temperature comes from the settings, so that it can be swept over with vmap.
        return jnp.asarray(self.temperature) if self.target_entropy is None else jnp.exp(state.log_temperature)


def _inputs(spec: Spec) -> tuple[int, ...] | None:
    """The indices of the observation that both the policy and the critics see; None: all."""
    if spec.policy_obs is None or spec.critic_obs is None:
        return spec.critic_obs if spec.policy_obs is None else spec.policy_obs
    both = tuple(index for index in spec.policy_obs if index in spec.critic_obs)
    if not both:
        raise SettingError(
            f"policy_obs is {spec.policy_obs} and critic_obs is {spec.critic_obs}: the Q-networks of SoftQ are the "
            "policy and the critics, so the two need a common index"
        )
    return both


def target(batch: Batch, targets: MLP, temperature: Float[Array, ""], discount: float | Array) -> Float[Array, " n"]:
    """y = r + γ (c · V(s') + v), V(s) = α log Σ_b exp(min_i Q̄_i(s, b) / α) within its bounds."""
    q = targets(batch.next_obs).min(0)
    value = temperature * jax.nn.logsumexp(q / temperature, axis=-1)
    entropy_bound = temperature * jnp.log(q.shape[-1]) / (1 - discount)
    value = jnp.clip(value, -batch.value_bound, batch.value_bound + entropy_bound)
    return batch.reward + discount * (batch.bootstrap * value + batch.terminal_value)


def critics_loss(
    critics: MLP, batch: Batch, y: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, "2 n actions"]]:
    """½ Σ_i E (Q_i(s, a) − y)², and the Q-values of all actions."""
    q = critics(batch.obs)
    taken = jnp.take_along_axis(q, batch.act[None, :, None], axis=-1)[..., 0]
    return 0.5 * jnp.square(taken - y).mean(1).sum(), q
