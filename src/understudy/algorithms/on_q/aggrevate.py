"""AggreVaTe: imitation that weighs errors by their cost, using the expert's action values.

It matches on-Q moments. DAeQuIL searches for a moment that separates learner and expert; here the moment is given,
f = −Q^{π_E}. Matching it is sufficient, since U3(−Q^{π_E}) = (J(π_E) − J(π)) / T (section 4.4; the Q_max of its bounds
is the recoverability H). The expert is queried for the value of an action, not for an action, so the learner can
outperform the expert. Follow the leader over the aggregated data:

    Input: queryable expert π_E with action values, demonstrations D_E, policy class Π, cloning loss ℓ_BC
    1. π ← argmin ℓ_BC over D_E
    2. for each round:
    3.     roll out π; in each visited state s_t try an action a and measure q ~ Q^{π_E}_t(s_t, a)
    4.     D ← D ∪ {(t, s, a, q)}
    5.     f ← argmin over f of the mean of (f_t(s, a) + q)² over D
    6.     π ← argmin over π' of (1 − n_E/n) E_{(t, s) ~ D} E_{a ~ π'(s)} f_t(s, a) + w (n_E/n) ℓ_BC(π')

n_E and n count demonstrated and all states. q is the return of an episode that starts in s_t, takes a and then follows
the expert, or the exact value if the expert provides it. The action is drawn uniformly with probability `exploring`;
else it is the learner's or the expert's action. The policy is stochastic (tanh-Gaussian for continuous actions), so
that its episodes explore.

Reference: Ross and Bagnell, "Reinforcement and Imitation Learning via Interactive No-Regret Learning" (2014). "Of
Moments and Matching" does not run it, so no settings of this module are that paper's.

Deviations: the paper tries one action per episode, at a random time step, because a robot cannot be reset to a state;
here an action is tried in every state. The paper reduces line 6 to cost-sensitive classification over finitely many
actions; here a critic is fitted to the values, which also covers continuous actions. The paper lets the expert act in
some of the roll-outs; here the demonstrations replace those, and DAeQuIL's cloning term uses them (w = 0 disables it).
f gets the time step as t/T, and q is standardized over D. Policy and critic continue from round to round with a new
optimizer state: Adam's moments from cloning would slow down a policy that has become nearly deterministic. The last
policy is returned.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.algorithms.on_q.querying import SMALL, Querying
from understudy.core.errors import check_layers, check_not_negative, check_share, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec, Transition, appended
from understudy.game import QUICK, Card
from understudy.game.asking import most_answers
from understudy.game.critics import TimedCritic
from understudy.game.features import Features, check_features, state_action
from understudy.game.losses import cloning_loss
from understudy.game.players import gradient, repeat
from understudy.game.sampling import Rows, only_where, take, with_actions
from understudy.policies import Carry, Categorical, Gaussian, Normalized, Policy, stochastic_policy
from understudy.policies.normalization import Normalization

StochasticPolicy = Gaussian | Categorical


class AggreVaTeState(NamedTuple):
    policy: StochasticPolicy
    critic: TimedCritic
    normalization: Normalization
    aggregated: Dataset
    """The learner's states of all rounds with the actions tried in them."""
    values: Float[Array, " n"]
    """The values of those actions."""

    def sample(self, key: Key[Array, ""], count: int) -> tuple[Transition, Float[Array, " n"]]:
        """Tried actions with their states, and their values, drawn uniformly."""
        rows = Rows(None, self.aggregated.size).sample(key, (count,))
        return take((self.aggregated.steps, self.values), rows)


class AggreVaTe(Querying):
    """Value aggregation: learn the actions of the highest value if the expert acts afterwards."""

    card: ClassVar[Card] = Card(
        name="aggrevate",
        title="AggreVaTe",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the value under the expert of one action in each state",
        reference="Ross and Bagnell 2014",
        values=True,
        fixed=True,  # f is given, −Q^{π_E}: the critic estimates it and is no adversary
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: {"rounds": 8}}
    small: ClassVar[dict[str, Any]] = {**SMALL, "critic_steps": 2, "critic_hidden": (8,)}

    moments: Features | None = eqx.field(static=True, default=None)
    """φ(obs, act), in the environment's units: the critic's input. Default: normalized state and action."""
    lr: float = 1e-3
    """Learning rate of Adam, for policy and critic."""
    cloning_weight: float = 1.0
    """Weight of the cloning loss, w."""
    exploring: float = 0.5
    """Probability that the action tried is uniform; else it is the learner's or the expert's, equally likely."""
    critic_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of the critic per round."""
    standardize: bool = eqx.field(static=True, default=True)
    """Standardize states with the demonstrations. Off for one-hot states: states never demonstrated would be huge."""
    critic_hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the critic."""

    def __check_init__(self) -> None:
        check_not_negative(cloning_weight=self.cloning_weight)
        check_share(exploring=self.exploring)
        check_whole(1, critic_steps=self.critic_steps)
        check_layers(critic_hidden=self.critic_hidden)
        check_features(self.moments)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> AggreVaTeState:
        policy_key, critic_key = jax.random.split(key)
        policy = stochastic_policy(policy_key, spec, self.hidden)
        critic = TimedCritic.init(critic_key, spec, self.critic_hidden, self.moments or state_action)
        aggregated = Dataset.empty(demonstrations, most_answers(self, spec.horizon))
        normalization = Normalization.fit(spec, demonstrations, "standardize" if self.standardize else "none")
        return AggreVaTeState(policy, critic, normalization, aggregated, jnp.zeros(aggregated.steps.t.shape))

    def update(self, state: AggreVaTeState, data: RoundData, key: Key[Array, ""]) -> tuple[AggreVaTeState, Info]:
        assert data.action_values is not None
        critic_key, policy_key = jax.random.split(key)
        tried = with_actions(data.queried, data.action_values.act)
        values = appended(state.values, state.aggregated.size, data.action_values.value, tried.size)  # line 4
        state = state._replace(aggregated=state.aggregated.extend(tried), values=values)
        critic, error = self._fit(state, critic_key)  # line 5
        share = data.demonstrations.size / (data.demonstrations.size + state.aggregated.size)
        # In line 1 cloning is the only loss.
        cloning_weight = jnp.where(state.aggregated.size == 0, 1.0, self.cloning_weight)

        def loss(policy: StochasticPolicy, k: Key[Array, ""]) -> Float[Array, ""]:
            demonstrated_key, visited_key, act_key = jax.random.split(k, 3)
            batch = state.normalization.encode(data.demonstrations.sample(demonstrated_key, (self.batch_size,)))
            cloning = jax.vmap(cloning_loss, (None, 0))(policy, batch).mean()
            visited, _ = state.sample(visited_key, self.batch_size)
            act_keys = jax.random.split(act_key, self.batch_size)
            costs = jax.vmap(partial(self._expected_cost, state, critic, policy))(visited, act_keys)
            return (1 - share) * costs.mean() + cloning_weight * share * cloning

        player = repeat(gradient(optax.adamw(self.lr, weight_decay=self.weight_decay)), self.gradient_steps)
        policy, _, value = player.move(policy_key, state.policy, player.init(state.policy), loss)  # lines 1 and 6
        return state._replace(policy=policy, critic=critic), Info({"loss": value, "critic_error": error})

    def policy(self, state: AggreVaTeState) -> Policy:
        return Normalized(state.policy, state.normalization)

    def cost(
        self, normalization: Normalization, critic: TimedCritic, t: Array, obs: Array, act: Array
    ) -> Float[Array, ""]:
        """f_t(s, a) for a state in the environment's units and an action in normalized coordinates."""
        if self.moments is None:
            return critic(t, normalization.encode_obs(obs), act)
        return critic(t, obs, normalization.decode_unclipped(act))

    def _fit(self, state: AggreVaTeState, key: Key[Array, ""]) -> tuple[TimedCritic, Float[Array, ""]]:
        """The fitted critic, and its squared error during the fit as a fraction of the values' variance."""
        weight = state.aggregated.mask / jnp.maximum(state.aggregated.size, 1)
        mean = weight @ state.values
        std = jnp.sqrt(weight @ jnp.square(state.values - mean))
        std = jnp.where(std > 0, std, 1.0)

        def loss(critic: TimedCritic, k: Key[Array, ""]) -> Float[Array, ""]:
            tried, values = state.sample(k, self.batch_size)
            acts = state.normalization.encode_act(tried.act)
            costs = jax.vmap(partial(self.cost, state.normalization, critic))(tried.t, tried.obs, acts)
            return jnp.square(costs + (values - mean) / std).mean()

        player = repeat(gradient(optax.adam(self.lr)), self.critic_steps)
        critic, _, error = player.move(key, state.critic, player.init(state.critic), loss)
        empty = state.aggregated.size == 0
        critic = jax.tree.map(lambda old, new: jnp.where(empty, old, new), state.critic, critic)
        return critic, jnp.where(empty, 1.0, error)

    def _expected_cost(
        self,
        state: AggreVaTeState,
        critic: TimedCritic,
        policy: StochasticPolicy,
        visited: Transition,
        key: Key[Array, ""],
    ) -> Float[Array, ""]:
        """E_{a ~ π(s)} f_t(s, a): exact for discrete actions, else one reparametrized sample. 0 without states."""
        obs = state.normalization.encode_obs(visited.obs)
        acts, weights = policy.support(Carry(visited.t, jnp.zeros_like(visited.t)), obs, key)
        cost = jax.vmap(partial(self.cost, state.normalization, critic, visited.t, visited.obs))
        return weights @ only_where(state.aggregated.size > 0, cost, acts)
