"""DAeQuIL: DAgger with moments, a game at the learner's own states.

It matches on-Q moments. Where DAgger fixes a loss, a critic looks for the moment that tells learner and expert apart at
the states the learner visits; with moments of a person's own choosing it sees what matters to that person and nothing
else. Follow the regularised leader over the history of states, each with the critic of its own round. Algorithm 3:

    Input: queryable expert π_E, policy class Π, moment functions F, threshold δ, cloning loss ℓ_BC, regulariser R
    1. π ← argmin ℓ_BC over the demonstrations
    2. for round i:
    3.     roll out π to D_π, ask π_E at its states: D_E
    4.     f_i ← argmax over f of L(f) = E_{D_π} f(s, a) − E_{D_E} f(s, a), from scratch
    5.     D ← D ∪ {(s, i)}
    6.     π ← argmin over π' of (1 − n_E/n) [ E_{(s, i) ~ D} f_i(s, π'(s)) + R(π') ] + w (n_E/n) ℓ_BC(π')
    7. until L(f_i) ≤ δ

where n_E and n count demonstrated and all states, of discrete actions f sees the learner's probabilities, and R(π) =
ρ/i E_{s ~ D} ‖π(s) − π_0(s)‖² holds it to the cloned policy π_0: without a strongly convex R the leader jumps from one
end of what the critics allow to the other. The quantity that the theory bounds is L(f_i), at the policy that was rolled
out and before it moves: it stops at δ, and the policy with the smallest is the one that is handed over.

The critic is a network, trained in line 4, or linear in the moments φ. Of all f(s, a) = w · φ(s, a) with ‖w‖ ≤ 1 the
best response needs no training: w = g / ‖g‖ with g = E_{D_π} φ(s, a) − E_{D_E} φ(s, a), and L(f_i) = ‖g‖. It is as
strong when few states betray the learner as when many do, where a network under a gradient penalty fades with them.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 6.3 and Tables 12 and 14.

Deviations: the paper stops by its printed L(π), which adds ℓ_BC and R and leaves out the expert's term. As in the
released runs the critic's gradient penalty is taken at the learner's and at the expert's samples (target 0), and line 6
has the weights that it has. The penalty's gradient is by state and action, through the moments. The critic takes a
fixed number of steps, and the policy's optimiser keeps its memory from round to round. The paper names R but gives it
no form, and its runs had none: this one is ours, as is the linear critic.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from understudy.algorithms.off_q.bc import ell
from understudy.algorithms.on_q.dagger import new_policy
from understudy.core.errors import (
    SettingError,
    check_choice,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Dataset, Info, RoundData, Spec, Transition
from understudy.game import Algorithm, Card
from understudy.game.critics import Features, LinearCritic, MLPCritic, as_vector, gradient_penalty, state_action
from understudy.game.players import Memory, Player, best_response, gradient, repeat
from understudy.policies import Carry, Normalized, EnsembleMember, Policy
from understudy.policies.normalization import Normalization

UNJUDGED = 1e30
"""The payoff of a policy that was never rolled out."""


OneCritic = MLPCritic | LinearCritic


class DAeQuILState(NamedTuple):
    policy: EnsembleMember
    memory: Memory
    normalization: Normalization
    history: Dataset
    """The learner's states; a step's `round` says whose critic is its own."""
    critics: OneCritic
    """One for each round, stacked."""
    first: EnsembleMember
    """π_0, the cloned policy."""
    best: EnsembleMember
    """The policy with the smallest payoff so far."""
    payoff: Float[Array, ""]
    round: Int[Array, ""]


class DAeQuIL(Algorithm):
    """DAgger with moments: play against a critic of each round's states."""

    card: ClassVar[Card] = Card(
        name="daequil",
        title="DAeQuIL",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the expert's answers at their states",
        reference="Swamy et al. 2021",
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("the payoff fell below delta",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "lander": {"gradient_steps": 3_000},
        "forest": {"cloning_weight": 0.05, "critic_hidden": (32, 32)},
        "linear": {"cloning_weight": 0.05, "critic": "linear", "anchor": 1.0, "lr": 1e-4},
    }

    moments: Features | None = eqx.field(static=True, default=None)
    """φ(obs, act), in the environment's own numbers: the moments to match. Default: state and action, standardised."""
    critic: Literal["network", "linear"] = eqx.field(static=True, default="network")
    """A network over the moments, trained each round, or linear in them, in closed form."""
    lr: float = 3e-4
    """Adam's learning rate, of policy and critic."""
    cloning_weight: float = 1.0
    """Weight of the cloning loss, w."""
    anchor: float = 0.0
    """Weight ρ of R(π) = ρ/i E_{s ~ D} ‖π(s) − π_0(s)‖² in round i, π_0 the cloned policy."""
    weight_decay: float = 0.0
    """Decay of the policy's weights, decoupled from Adam."""
    gradient_weight: float = 5.0
    """Weight of the critic's gradient penalty, at each of the two sides."""
    delta: float | None = None
    """Stop when a round's payoff is at most this."""
    batch_size: int = eqx.field(static=True, default=32)
    """Steps in a minibatch."""
    rounds: int = eqx.field(static=True, default=11)
    """Rounds; the first is behavioral cloning on the demonstrations."""
    episodes_per_round: int = eqx.field(static=True, default=10)
    """Episodes that a round plays."""
    gradient_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of the policy in a round."""
    critic_steps: int = eqx.field(static=True, default=1_000)
    """Gradient steps of a round's critic, from scratch."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: pass the network's output through tanh."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the policy."""
    critic_hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the critics."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr)
        check_not_negative(
            cloning_weight=self.cloning_weight, weight_decay=self.weight_decay, gradient_weight=self.gradient_weight
        )
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds, gradient_steps=self.gradient_steps)
        check_whole(1, critic_steps=self.critic_steps, episodes_per_round=self.episodes_per_round)
        check_layers(hidden=self.hidden, critic_hidden=self.critic_hidden)
        check_choice(("network", "linear"), critic=self.critic)
        if self.moments is not None and not callable(self.moments):
            raise SettingError(f"moments is {self.moments!r}: a function of (obs, act) is needed")

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> DAeQuILState:
        policy_key, critic_key = jax.random.split(key)
        policy = new_policy(policy_key, spec, self.hidden, self.squash)
        critics = jax.lax.map(partial(self._fresh, spec), jax.random.split(critic_key, self.rounds))
        history = Dataset.empty(demonstrations, max((self.rounds - 1) * self.episodes_per_round * spec.horizon, 1))
        return DAeQuILState(
            policy,
            self._player().init(policy),
            Normalization.fit(spec, demonstrations),
            history,
            critics,
            policy,
            policy,
            jnp.asarray(UNJUDGED),
            jnp.zeros((), jnp.int32),
        )

    def update(self, state: DAeQuILState, data: RoundData, key: Key[Array, ""]) -> tuple[DAeQuILState, Info]:
        assert data.expert_actions is not None
        queried = data.queried
        critic_key, policy_key = jax.random.split(key)
        rolled = self._own(state, queried)
        cloned = rolled.size == 0  # line 1: nothing was rolled out yet
        critic = self._best_response(state, rolled, data.expert_actions, critic_key)  # line 4
        gap = self.gaps(state, critic, rolled.steps, data.expert_actions)
        payoff = jnp.sum(jnp.where(rolled.mask, gap, 0)) / jnp.maximum(rolled.size, 1)
        critics = jax.tree.map(
            lambda all_, new: jnp.where(cloned, all_, all_.at[state.round].set(new)), state.critics, critic
        )
        history = state.history.extend(queried)  # line 5
        state = state._replace(critics=critics, history=history)
        share = data.demonstrations.size / (data.demonstrations.size + history.size)
        cloning_weight = jnp.where(cloned, 1.0, self.cloning_weight)  # line 1 has no other loss to weigh it against

        def loss(policy: EnsembleMember, k: Key[Array, ""]) -> Float[Array, ""]:  # line 6
            demonstrated_key, history_key = jax.random.split(k)
            batch = state.normalization.encode(data.demonstrations.sample(demonstrated_key, (self.batch_size,)))
            cloning = jax.vmap(ell, (None, 0))(policy, batch).mean()
            index = jax.random.randint(history_key, (self.batch_size,), 0, jnp.maximum(history.size, 1))
            visited = jax.tree.map(lambda x: x[index], history.steps)
            costs = jax.vmap(partial(self._cost, state, policy))(visited)
            apart = jax.vmap(partial(self._apart, state, policy))(visited)
            costs = costs + self.anchor / jnp.maximum(state.round, 1) * apart
            return (1 - share) * costs.mean() + cloning_weight * share * cloning

        policy, memory, value = self._player().move(policy_key, state.policy, state.memory, loss)  # lines 1 and 6
        better = ~cloned & (payoff < state.payoff)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), state.policy, state.best)
        lowest = jnp.where(better, payoff, state.payoff)
        first = jax.tree.map(lambda new, old: jnp.where(cloned, new, old), policy, state.first)
        new = state._replace(first=first, policy=policy, memory=memory, best=best, payoff=lowest, round=state.round + 1)
        metrics = {"loss": value, "payoff": jnp.where(cloned, 0.0, payoff)}
        small = jnp.asarray(False) if self.delta is None else ~cloned & (payoff <= self.delta)  # line 7
        return new, Info(metrics, jnp.where(small, 1, 0))

    def policy(self, state: DAeQuILState) -> Policy:
        return Normalized(state.policy, state.normalization)

    def final_policy(self, state: DAeQuILState) -> Policy:
        """The policy whose payoff was smallest; where none was rolled out, the last."""
        judged = state.payoff < UNJUDGED
        chosen = jax.tree.map(lambda b, p: jnp.where(judged, b, p), state.best, state.policy)
        return Normalized(chosen, state.normalization)

    def gaps(self, state: DAeQuILState, critic: OneCritic, steps: Transition, answers: Array) -> Float[Array, " n"]:
        """f(s, a) − f(s, a_E) at each step: the learner's own action, the expert's answer."""
        learner, expert = (self._sides(state.normalization, steps.obs, act, critic) for act in (steps.act, answers))
        return jax.vmap(critic)(steps.t, *learner) - jax.vmap(critic)(steps.t, *expert)

    def _best_response(self, state: DAeQuILState, rolled: Dataset, answers: Array, key: Key[Array, ""]) -> OneCritic:
        if self.critic == "linear":
            return self._in_closed_form(state, rolled, answers)
        # A network of its own for each round was made at the start: QR factorisations of a batch of runs, in two
        # programs at once, wait for each other for good on two cores.
        fresh = jax.tree.map(lambda x: x[state.round], state.critics)

        def loss(critic: OneCritic, k: Key[Array, ""]) -> Float[Array, ""]:
            index = jax.random.randint(k, (self.batch_size,), 0, jnp.maximum(rolled.size, 1))
            steps, told = jax.tree.map(lambda x: x[index], (rolled.steps, answers))
            penalty = jnp.zeros(())
            for act in (steps.act, told):
                sides = self._sides(state.normalization, steps.obs, act, critic)
                at = jax.vmap(gradient_penalty, (None, 0, 0, 0, None))(critic, steps.t, *sides, 0.0)
                penalty += at.mean()
            return -self.gaps(state, critic, steps, told).mean() + self.gradient_weight * penalty

        player = best_response(optax.adam(self.lr), self.critic_steps, lambda k: fresh)
        return player.move(key, fresh, (), loss)[0]

    def _in_closed_form(self, state: DAeQuILState, rolled: Dataset, answers: Array) -> LinearCritic:
        """w = g / ‖g‖, the unit vector along the gap between the two sides' moments."""
        critic = jax.tree.map(lambda x: x[0], state.critics)
        assert isinstance(critic, LinearCritic)
        sides = [self._sides(state.normalization, rolled.steps.obs, act, critic) for act in (rolled.steps.act, answers)]
        learner, expert = (jax.vmap(critic.features)(*side) for side in sides)
        gap = jnp.sum(jnp.where(rolled.mask[:, None], learner - expert, 0), axis=0) / jnp.maximum(rolled.size, 1)
        return replace(critic, weights=gap / jnp.maximum(jnp.linalg.norm(gap), 1e-6))

    def _own(self, state: DAeQuILState, rolled: Dataset) -> Dataset:
        """The round's steps as the critic sees the learner: of discrete actions, the probabilities that it had."""
        if not jnp.issubdtype(rolled.steps.act.dtype, jnp.integer):
            return rolled

        def probabilities(t: Array, obs: Array) -> Array:
            carry, inside = Carry(t, jnp.zeros_like(t)), state.normalization.encode_obs(obs)
            return state.policy.support(carry, inside, jax.random.key(0))[1]

        act = jax.vmap(probabilities)(rolled.steps.t, rolled.steps.obs)
        return rolled._replace(steps=rolled.steps._replace(act=act))

    def _sides(self, normalization: Normalization, obs: Array, act: Array, critic: OneCritic) -> tuple[Array, Array]:
        """States and actions as the critic takes them: standardised, or, with a person's own moments, as they are."""
        if self.moments is None:
            obs, act = normalization.encode_obs(obs), normalization.encode_act(act)
        return obs, jax.vmap(as_vector, (0, None))(act, critic.actions)

    def _cost(self, state: DAeQuILState, policy: EnsembleMember, visited: Transition) -> Float[Array, ""]:
        """f_i(s, π(s)), f_i the critic of the state's own round."""
        critic = jax.tree.map(lambda x: x[visited.round], state.critics)
        inside = state.normalization.encode_obs(visited.obs)
        acts, weights = policy.support(Carry(visited.t, jnp.zeros_like(visited.t)), inside, jax.random.key(0))
        act = weights @ jax.vmap(as_vector, (0, None))(acts, critic.actions)
        if self.moments is None:
            return critic(visited.t, inside, act)
        if state.normalization.act_scale is not None:
            act = state.normalization.act_center + state.normalization.act_scale * act
        return critic(visited.t, visited.obs, act)

    def _apart(self, state: DAeQuILState, policy: EnsembleMember, visited: Transition) -> Float[Array, ""]:
        """‖π(s) − π_0(s)‖², of actions or, where they are discrete, of probabilities."""
        carry, inside = Carry(visited.t, jnp.zeros_like(visited.t)), state.normalization.encode_obs(visited.obs)
        sides = []
        for side in (policy, state.first):
            acts, weights = side.support(carry, inside, jax.random.key(0))
            sides.append(weights if jnp.issubdtype(acts.dtype, jnp.integer) else acts[0])
        return jnp.sum(jnp.square(sides[0] - sides[1]))

    def _fresh(self, spec: Spec, key: Key[Array, ""]) -> OneCritic:
        if self.critic == "linear":
            return LinearCritic.init(spec, self.moments or state_action)
        return MLPCritic.init(key, spec, self.critic_hidden, features=self.moments or state_action)

    def _player(self) -> Player:
        return repeat(gradient(optax.adamw(self.lr, weight_decay=self.weight_decay)), self.gradient_steps)
