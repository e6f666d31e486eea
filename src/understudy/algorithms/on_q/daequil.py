"""DAeQuIL: DAgger with moments, a game in the learner's own states.

It matches on-Q moments. DAgger has a fixed loss; here a critic is trained in each round to separate learner and expert
in the states that the learner visits. With moments chosen by the user, only these count. Follow the regularised leader
over the states of all rounds, each with the critic of its round. Algorithm 3:

    Input: queryable expert π_E, policy class Π, moment functions F, threshold δ, cloning loss ℓ_BC, regulariser R
    1. π ← argmin ℓ_BC over the demonstrations
    2. for round i:
    3.     roll out π to D_π, query π_E in its states: D_E
    4.     f_i ← argmax over f of L(f) = E_{D_π} f(s, a) − E_{D_E} f(s, a), from scratch
    5.     D ← D ∪ {(s, i)}
    6.     π ← argmin over π' of (1 − n_E/n) [ E_{(s, i) ~ D} f_i(s, π'(s)) + R(π') ] + w (n_E/n) ℓ_BC(π')
    7. until L(f_i) ≤ δ

n_E and n count demonstrated and all states. For discrete actions f gets the learner's probabilities. The regulariser
R(π) = ρ/i E_{s ~ D} ‖π(s) − π_0(s)‖² keeps the policy near the cloned policy π_0; without a strongly convex R, follow
the leader can oscillate. The theory bounds L(f_i) at the policy that was rolled out, before its update. The run stops
when L(f_i) reaches δ, and the policy with the smallest L(f_i) is returned.

The critic is a network, trained in line 4, or linear in the moments φ. Among all f(s, a) = w · φ(s, a) with ‖w‖ ≤ 1 the
best response is known: w = g / ‖g‖ with g = E_{D_π} φ(s, a) − E_{D_E} φ(s, a), and L(f_i) = ‖g‖. It has full strength
even if learner and expert differ in few states; a network with a gradient penalty gets weaker there.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 6.3 and Tables 12 and 14.

The paper has settings for each task, in the presets `lander` (Table 12) and `forest` (Table 14; its two moments are
given by `moments`). The default differs from them in

    setting           default     lander    forest
    gradient_steps    2,000       3,000     2,000
    cloning_weight    1           1         0.05
    critic_hidden     (64, 64)    (64, 64)  (32, 32)

Deviations: the paper's printed stopping rule uses L(π) with ℓ_BC and R added and without the expert's term. The
gradient penalty, at the learner's and at the expert's samples with target 0, and the weights of line 6 follow the
released code. The penalty's gradient is with respect to state and action, through the moments. The critic takes a fixed
number of gradient steps. The policy's optimizer state continues from round to round. The paper leaves R open, and its
runs had none: this R is ours, and so is the linear critic.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from understudy.algorithms.on_q.querying import QUICK_SIZES, SMALL, Querying
from understudy.core.errors import check_choice, check_layers, check_not_negative, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec, Transition
from understudy.game import QUICK, Card
from understudy.game.asking import most_answers
from understudy.game.best import Best
from understudy.game.critics import LinearCritic, MLPCritic, as_vector, mean_penalty
from understudy.game.features import Features, check_features, state_action
from understudy.game.losses import cloning_loss
from understudy.game.payoffs import action_vector
from understudy.game.players import Memory, Player, best_response, gradient, repeat
from understudy.game.sampling import Rows, only_where, take, with_actions
from understudy.policies import Categorical, EnsembleMember, Normalized, Policy, deterministic_policy
from understudy.policies.normalization import Normalization

FeatureCritic = MLPCritic | LinearCritic


class DAeQuILState(NamedTuple):
    policy: EnsembleMember
    memory: Memory
    normalization: Normalization
    aggregated: Dataset
    """The learner's states of all rounds; a step's `round` selects its critic."""
    critics: FeatureCritic
    """One for each round, stacked."""
    cloned: EnsembleMember
    """π_0, the policy after round 0."""
    best: Best
    round: Int[Array, ""]


class DAeQuIL(Querying):
    """DAgger with moments: a policy against a critic of each round's states."""

    card: ClassVar[Card] = Card(
        name="daequil",
        title="DAeQuIL",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the expert's actions in their states",
        reference="Swamy et al. 2021",
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("the payoff fell below delta",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "lander": {"gradient_steps": 3_000},
        "forest": {"cloning_weight": 0.05, "critic_hidden": (32, 32)},
        QUICK: {**QUICK_SIZES, "critic_steps": 500},
        "linear": {"cloning_weight": 0.05, "critic": "linear", "anchor": 1.0, "lr": 1e-4},
    }
    small: ClassVar[dict[str, Any]] = {**SMALL, "critic_steps": 2, "critic_hidden": (8,)}

    moments: Features | None = eqx.field(static=True, default=None)
    """φ(obs, act), in the environment's units: the moments to match. Default: normalized state and action."""
    critic: Literal["network", "linear"] = eqx.field(static=True, default="network")
    """network: trained on the moments each round; linear: linear in the moments, in closed form."""
    cloning_weight: float = 1.0
    """Weight of the cloning loss, w."""
    anchor: float = 0.0
    """ρ, the weight of the regulariser R(π) = ρ/i E_{s ~ D} ‖π(s) − π_0(s)‖² in round i."""
    gradient_weight: float = 5.0
    """Weight of the critic's gradient penalty, on each of the two sides."""
    delta: float | None = None
    """δ: stop when a round's payoff is at most this. None: never."""
    critic_steps: int = eqx.field(static=True, default=1_000)
    """Gradient steps of a round's critic, which is trained from scratch."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: apply tanh to the network's output."""
    critic_hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the critics."""

    def __check_init__(self) -> None:
        check_not_negative(cloning_weight=self.cloning_weight, gradient_weight=self.gradient_weight)
        check_whole(1, critic_steps=self.critic_steps)
        check_layers(critic_hidden=self.critic_hidden)
        check_choice(("network", "linear"), critic=self.critic)
        check_features(self.moments)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> DAeQuILState:
        policy_key, critic_key = jax.random.split(key)
        policy = deterministic_policy(policy_key, spec, self.hidden, squash=self.squash)
        critics = jax.lax.map(partial(self._new_critic, spec), jax.random.split(critic_key, self.rounds))
        return DAeQuILState(
            policy,
            self._player().init(policy),
            Normalization.fit(spec, demonstrations),
            Dataset.empty(demonstrations, most_answers(self, spec.horizon)),
            critics,
            policy,
            Best.init(policy),
            jnp.zeros((), jnp.int32),
        )

    def update(self, state: DAeQuILState, data: RoundData, key: Key[Array, ""]) -> tuple[DAeQuILState, Info]:
        critic_key, policy_key = jax.random.split(key)
        visited = self._with_probabilities(state, data.queried)
        unanswered = visited.size == 0  # line 1: there are no roll-outs yet; later: no state was queried
        critic = self._best_response(state, visited, data.answers, critic_key)  # line 4
        gaps = self.gaps(state, critic, visited.steps, data.answers)
        payoff = jnp.sum(jnp.where(visited.mask, gaps, 0)) / jnp.maximum(visited.size, 1)
        critics = jax.tree.map(
            lambda all_, new: jnp.where(unanswered, all_, all_.at[state.round].set(new)), state.critics, critic
        )
        state = state._replace(critics=critics, aggregated=state.aggregated.extend(data.queried))  # line 5
        policy, memory, value = self._player().move(  # lines 1 and 6
            policy_key, state.policy, state.memory, partial(self._loss, state, data.demonstrations)
        )
        new = state._replace(
            policy=policy,
            memory=memory,
            cloned=jax.tree.map(lambda new, old: jnp.where(state.round == 0, new, old), policy, state.cloned),
            best=state.best.update(state.policy, payoff, ~unanswered),
            round=state.round + 1,
        )
        metrics = {"loss": value, "payoff": jnp.where(unanswered, 0.0, payoff)}
        small = jnp.asarray(False) if self.delta is None else ~unanswered & (payoff <= self.delta)  # line 7
        return new, Info(metrics, jnp.where(small, 1, 0))

    def policy(self, state: DAeQuILState) -> Policy:
        return Normalized(state.policy, state.normalization)

    def final_policy(self, state: DAeQuILState) -> Policy:
        """The policy with the smallest payoff, or the last one if none was rolled out."""
        return Normalized(state.best.policy_or(state.policy), state.normalization)

    def gaps(self, state: DAeQuILState, critic: FeatureCritic, steps: Transition, answers: Array) -> Float[Array, " n"]:
        """f(s, a) − f(s, a_E) at each step: the learner's action and the expert's."""
        acts = (steps.act, answers)
        learner, expert = (self._critic_inputs(state.normalization, steps.obs, act, critic) for act in acts)
        return jax.vmap(critic)(steps.t, *learner) - jax.vmap(critic)(steps.t, *expert)

    def _best_response(
        self, state: DAeQuILState, visited: Dataset, answers: Array, key: Key[Array, ""]
    ) -> FeatureCritic:
        if self.critic == "linear":
            return self._linear_best_response(state, visited, answers)
        # `init` makes the networks of all rounds: batched QR factorisations in two programs at once can deadlock.
        fresh = take(state.critics, state.round)

        def loss(critic: FeatureCritic, k: Key[Array, ""]) -> Float[Array, ""]:
            steps, sampled = take((visited.steps, answers), Rows(None, visited.size).sample(k, (self.batch_size,)))
            penalty = jnp.zeros(())
            for act in (steps.act, sampled):
                inputs = self._critic_inputs(state.normalization, steps.obs, act, critic)
                penalty += mean_penalty(critic, steps.t, *inputs, 0.0)
            return -self.gaps(state, critic, steps, sampled).mean() + self.gradient_weight * penalty

        player = best_response(optax.adam(self.lr), self.critic_steps, lambda k: fresh)
        return player.move(key, fresh, (), loss)[0]

    def _linear_best_response(self, state: DAeQuILState, visited: Dataset, answers: Array) -> LinearCritic:
        """w = g / ‖g‖, with g the difference of the two sides' mean moments."""
        critic = take(state.critics, 0)
        assert isinstance(critic, LinearCritic)
        steps = visited.steps
        learner, expert = (
            jax.vmap(critic.moments)(*self._critic_inputs(state.normalization, steps.obs, act, critic))
            for act in (steps.act, answers)
        )
        gap = jnp.sum(jnp.where(visited.mask[:, None], learner - expert, 0), axis=0) / jnp.maximum(visited.size, 1)
        return replace(critic, weights=gap / jnp.maximum(jnp.linalg.norm(gap), 1e-6))

    def _loss(
        self, state: DAeQuILState, demonstrations: Dataset, policy: EnsembleMember, key: Key[Array, ""]
    ) -> Float[Array, ""]:
        """The policy's loss of line 6; in round 0, of line 1."""
        demonstrated_key, visited_key = jax.random.split(key)
        batch = state.normalization.encode(demonstrations.sample(demonstrated_key, (self.batch_size,)))
        cloning = jax.vmap(cloning_loss, (None, 0))(policy, batch).mean()
        rows = Rows(None, state.aggregated.size).sample(visited_key, (self.batch_size,))
        visited = take(state.aggregated.steps, rows)
        costs = jax.vmap(partial(self._cost, state, policy))(visited)
        distances = jax.vmap(partial(self._distance, state, policy))(visited)
        costs = costs + self.anchor / jnp.maximum(state.round, 1) * distances
        share = demonstrations.size / (demonstrations.size + state.aggregated.size)
        # In line 1 cloning is the only loss.
        cloning_weight = jnp.where(state.aggregated.size == 0, 1.0, self.cloning_weight)
        return (1 - share) * costs.mean() + cloning_weight * share * cloning

    def _with_probabilities(self, state: DAeQuILState, visited: Dataset) -> Dataset:
        """The learner's steps for the critic: discrete actions are replaced by the policy's probabilities."""
        if not jnp.issubdtype(visited.steps.act.dtype, jnp.integer):
            return visited
        obs = state.normalization.encode_obs(visited.steps.obs)
        return with_actions(visited, jax.vmap(partial(_act, state.policy))(visited.steps.t, obs))

    def _critic_inputs(
        self, normalization: Normalization, obs: Array, act: Array, critic: FeatureCritic
    ) -> tuple[Array, Array]:
        """States and actions as vectors: normalized or, with the user's moments, in the environment's units."""
        if self.moments is None:
            obs, act = normalization.encode_obs(obs), normalization.encode_act(act)
        return obs, jax.vmap(as_vector, (0, None))(act, critic.actions)

    def _cost(self, state: DAeQuILState, policy: EnsembleMember, visited: Transition) -> Float[Array, ""]:
        """f_i(s, π(s)), with f_i the critic of the state's round; 0 if no state was visited yet."""
        critic = take(state.critics, visited.round)
        obs = state.normalization.encode_obs(visited.obs)
        act = _act(policy, visited.t, obs)
        if self.moments is not None:
            obs, act = visited.obs, state.normalization.decode_unclipped(act)
        return only_where(state.aggregated.size > 0, partial(critic, visited.t), obs, act)

    def _distance(self, state: DAeQuILState, policy: EnsembleMember, visited: Transition) -> Float[Array, ""]:
        """‖π(s) − π_0(s)‖², of actions or, if discrete, of probabilities."""
        obs = state.normalization.encode_obs(visited.obs)
        return jnp.sum(jnp.square(_act(policy, visited.t, obs) - _act(state.cloned, visited.t, obs)))

    def _new_critic(self, spec: Spec, key: Key[Array, ""]) -> FeatureCritic:
        if self.critic == "linear":
            return LinearCritic.init(spec, self.moments or state_action)
        return MLPCritic.init(key, spec, self.critic_hidden, features=self.moments or state_action)

    def _player(self) -> Player:
        return repeat(gradient(optax.adamw(self.lr, weight_decay=self.weight_decay)), self.gradient_steps)


def _act(policy: EnsembleMember, t: Int[Array, ""], obs: Array) -> Float[Array, " a"]:
    """π(s) as a vector: the action or, if discrete, the probabilities."""
    actions = policy.net.biases[-1].shape[-1] if isinstance(policy, Categorical) else None
    return action_vector(policy, t, obs, actions, jax.random.key(0))
