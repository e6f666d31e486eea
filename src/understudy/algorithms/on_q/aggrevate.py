"""AggreVaTe: imitation that knows what an error costs, by the expert's own action values.

It matches on-Q moments, and where DAeQuIL looks for the moment that tells learner and expert apart, here the moment is
given: f = −Q^{π_E}. Matching it is all that the return asks for, since U3(−Q^{π_E}) = (J(π_E) − J(π)) / T (section 4.4;
the Q_max of its bounds is the recoverability H). The expert is asked what an action is worth if it acts after it, and
not which one it would take, so the learner may do better than the expert. Follow the leader over the aggregated data:

    Input: queryable expert π_E with action values, demonstrations D_E, policy class Π, cloning loss ℓ_BC
    1. π ← argmin ℓ_BC over D_E
    2. for each round:
    3.     roll out π; in each of its states s_t try an action a and see what comes of it, q ~ Q^{π_E}_t(s_t, a)
    4.     D ← D ∪ {(t, s, a, q)}
    5.     f ← argmin over f of the mean of (f_t(s, a) + q)² over D
    6.     π ← argmin over π' of (1 − n_E/n) E_{(t, s) ~ D} E_{a ~ π'(s)} f_t(s, a) + w (n_E/n) ℓ_BC(π')

where n_E and n count demonstrated and all states. q is the return of an episode that is set back to s_t, takes a and is
left to the expert, or the number itself where the expert knows it. The action that is tried is drawn uniformly, or is
the learner's or the expert's own (`exploring`). The policy is a distribution, tanh-Gaussian where actions are
continuous: what it is unsure of it tries, so that its episodes differ.

Reference: Ross and Bagnell, "Reinforcement and Imitation Learning via Interactive No-Regret Learning" (2014).

Deviations: they try one action in each episode, at a random time step, since a robot cannot be set back; here every
state of an episode is a place to try one. They reduce line 6 to cost-sensitive classification over finitely many
actions; a critic fitted to the values serves these and continuous actions alike. They mix the expert into the
roll-outs; here demonstrations stand for the rounds in which it would act, and the cloning term, DAeQuIL's, keeps the
policy to them (w = 0 leaves it out). f sees the time step as t/T, and q is standardised with what D holds. Policy and
critic go on from round to round, by gradient steps of a fresh optimiser: what Adam remembers of the gradients of
cloning would hold up a policy that cloning has made sure of itself. The policy that is handed over is the last.
"""

from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.algorithms.off_q.bc import ell
from understudy.core.errors import (
    SettingError,
    check_layers,
    check_not_negative,
    check_positive,
    check_share,
    check_whole,
)
from understudy.core.types import Dataset, Discrete, Info, RoundData, Spec, Transition, appended
from understudy.game import Algorithm, Card
from understudy.game.critics import Features, TimedCritic, state_action
from understudy.game.players import gradient, repeat
from understudy.policies import Carry, Categorical, Normalized, Policy
from understudy.policies.gaussian import Gaussian
from understudy.policies.normalization import Normalization

Drawing = Gaussian | Categorical
"""The policies that are a distribution."""


class AggreVaTeState(NamedTuple):
    policy: Drawing
    critic: TimedCritic
    normalization: Normalization
    history: Dataset
    """The learner's states with the actions tried in them."""
    values: Float[Array, " n"]
    """What those were worth."""


class AggreVaTe(Algorithm):
    """Value aggregation: take the actions that are worth most if the expert acts after them."""

    card: ClassVar[Card] = Card(
        name="aggrevate",
        title="AggreVaTe",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the value under the expert of an action tried in each of their states",
        reference="Ross and Bagnell 2014",
        values=True,
    )

    moments: Features | None = eqx.field(static=True, default=None)
    """φ(obs, act), in the environment's own numbers: what the critic sees. Default: state and action, standardised."""
    lr: float = 1e-3
    """Adam's learning rate, of policy and critic."""
    cloning_weight: float = 1.0
    """Weight of the cloning loss, w."""
    weight_decay: float = 0.0
    """Decay of the policy's weights, decoupled from Adam: the regulariser of follow the regularised leader."""
    exploring: float = 0.5
    """How often the action tried is drawn uniformly; else it is the learner's or the expert's own, each alike."""
    batch_size: int = eqx.field(static=True, default=32)
    """Steps in a minibatch."""
    rounds: int = eqx.field(static=True, default=11)
    """Rounds; the first is behavioral cloning on the demonstrations."""
    episodes_per_round: int = eqx.field(static=True, default=10)
    """Episodes that a round plays."""
    gradient_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of the policy in a round."""
    critic_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of the critic in a round."""
    standardize: bool = eqx.field(static=True, default=True)
    """Standardise states with the demonstrations. Not for one-hot states: those never demonstrated would be huge."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the critic."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr)
        check_not_negative(cloning_weight=self.cloning_weight, weight_decay=self.weight_decay)
        check_share(exploring=self.exploring)
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds, gradient_steps=self.gradient_steps)
        check_whole(1, critic_steps=self.critic_steps, episodes_per_round=self.episodes_per_round)
        check_layers(hidden=self.hidden, critic_hidden=self.critic_hidden)
        if self.moments is not None and not callable(self.moments):
            raise SettingError(f"moments is {self.moments!r}: a function of (obs, act) is needed")

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> AggreVaTeState:
        policy_key, critic_key = jax.random.split(key)
        kind = Categorical if isinstance(spec.action, Discrete) else Gaussian
        outputs = spec.action.n if isinstance(spec.action, Discrete) else spec.action.shape[0]
        policy: Drawing = kind.init(policy_key, spec.obs_size, outputs, self.hidden, reads=spec.policy_obs)
        critic = TimedCritic.init(critic_key, spec, self.critic_hidden, self.moments or state_action)
        history = Dataset.empty(demonstrations, max((self.rounds - 1) * self.episodes_per_round * spec.horizon, 1))
        normalization = Normalization.fit(spec, demonstrations, self.standardize)
        return AggreVaTeState(policy, critic, normalization, history, jnp.zeros(history.steps.t.shape))

    def update(self, state: AggreVaTeState, data: RoundData, key: Key[Array, ""]) -> tuple[AggreVaTeState, Info]:
        assert data.action_values is not None
        queried = data.queried
        critic_key, policy_key = jax.random.split(key)
        tried = queried._replace(steps=queried.steps._replace(act=data.action_values.act))
        values = appended(state.values, state.history.size, data.action_values.value, tried.size)  # line 4
        state = state._replace(history=state.history.extend(tried), values=values)
        critic, error = self._fit(state, critic_key)  # line 5
        share = data.demonstrations.size / (data.demonstrations.size + state.history.size)
        # Line 1 has no other loss to weigh cloning against.
        cloning_weight = jnp.where(state.history.size == 0, 1.0, self.cloning_weight)

        def loss(policy: Drawing, k: Key[Array, ""]) -> Float[Array, ""]:
            demonstrated_key, visited_key, act_key = jax.random.split(k, 3)
            batch = state.normalization.encode(data.demonstrations.sample(demonstrated_key, (self.batch_size,)))
            cloning = jax.vmap(ell, (None, 0))(policy, batch).mean()
            visited, _ = sample(state, visited_key, self.batch_size)
            act_keys = jax.random.split(act_key, self.batch_size)
            costs = jax.vmap(partial(self._expected, state.normalization, critic, policy))(visited, act_keys)
            return (1 - share) * costs.mean() + cloning_weight * share * cloning

        player = repeat(gradient(optax.adamw(self.lr, weight_decay=self.weight_decay)), self.gradient_steps)
        policy, _, value = player.move(policy_key, state.policy, player.init(state.policy), loss)  # lines 1 and 6
        return state._replace(policy=policy, critic=critic), Info({"loss": value, "critic_error": error})

    def policy(self, state: AggreVaTeState) -> Policy:
        return Normalized(state.policy, state.normalization)

    def cost(
        self, normalization: Normalization, critic: TimedCritic, t: Array, obs: Array, act: Array
    ) -> Float[Array, ""]:
        """f_t(s, a), the state in the environment's numbers and the action in the policy's own."""
        if self.moments is None:
            return critic(t, normalization.encode_obs(obs), act)
        if normalization.act_scale is not None:
            act = normalization.act_center + normalization.act_scale * act
        return critic(t, obs, act)

    def _fit(self, state: AggreVaTeState, key: Key[Array, ""]) -> tuple[TimedCritic, Float[Array, ""]]:
        """The critic, and the share of the values' variance that it left unexplained on the way."""
        weight = state.history.mask / jnp.maximum(state.history.size, 1)
        mean = weight @ state.values
        spread = jnp.sqrt(weight @ jnp.square(state.values - mean))
        spread = jnp.where(spread > 0, spread, 1.0)

        def loss(critic: TimedCritic, k: Key[Array, ""]) -> Float[Array, ""]:
            tried, values = sample(state, k, self.batch_size)
            acts = state.normalization.encode_act(tried.act)
            costs = jax.vmap(partial(self.cost, state.normalization, critic))(tried.t, tried.obs, acts)
            return jnp.square(costs + (values - mean) / spread).mean()

        player = repeat(gradient(optax.adam(self.lr)), self.critic_steps)
        critic, _, error = player.move(key, state.critic, player.init(state.critic), loss)
        nothing = state.history.size == 0
        critic = jax.tree.map(lambda old, new: jnp.where(nothing, old, new), state.critic, critic)
        return critic, jnp.where(nothing, 1.0, error)

    def _expected(
        self,
        normalization: Normalization,
        critic: TimedCritic,
        policy: Drawing,
        visited: Transition,
        key: Key[Array, ""],
    ) -> Float[Array, ""]:
        """E_{a ~ π(s)} f_t(s, a): all of them where actions are discrete, else one draw, which a gradient passes."""
        inside = normalization.encode_obs(visited.obs)
        acts, weights = policy.support(Carry(visited.t, jnp.zeros_like(visited.t)), inside, key)
        return weights @ jax.vmap(partial(self.cost, normalization, critic, visited.t, visited.obs))(acts)


def sample(state: AggreVaTeState, key: Key[Array, ""], count: int) -> tuple[Transition, Float[Array, " n"]]:
    """Actions tried so far, with their states, and what they were worth, drawn uniformly."""
    index = jax.random.randint(key, (count,), 0, jnp.maximum(state.history.size, 1))
    return jax.tree.map(lambda x: x[index], (state.history.steps, state.values))
