"""AdVIL: adversarial value-moment imitation learning, a game over the demonstrations' own states.

It matches off-Q moments, as behavioral cloning does, but looks for the moment function that tells learner and expert
apart instead of fixing one loss: errors that a critic cannot see as a function of the state do not count, and those it
sees count by how much they would cost. The critic learns faster than the policy, which makes it a primal algorithm
(section 6.1). Algorithm 1:

    Input: demonstrations D_E, policy class Π, moment functions F, threshold δ, learning rates η_f > η_π
    1. while L(π, f) > δ:
    2.     L(π, f) = E_{(s, a) ~ D_E} [ E_{x ~ π(s)} f(s, x) − f(s, a) ]
    3.     f ← f + η_f ∇_f [ L(π, f) − w_g · E (‖∇f‖ − g)² ]
    4.     π ← π − η_π ∇_π [ L(π, f) + w_o · R_⊥(π) + w_c · E ‖π(s) − a‖² / d ]

with the regularisers of Table 11: a gradient penalty on f, taken at random points between learner and expert (Gulrajani
et al., 2017), and on π orthogonal weights (R_⊥, Brock et al., 2018) and the mean squared error over the d dimensions of
the action. States are standardised with D_E, continuous actions lie in [-1, 1]; of discrete ones f sees the policy's
probabilities, and the squared error becomes a cross-entropy.

π may be a mixture of `members`, alike but for their first weights. The critic plays against the mixture, each step of a
minibatch being one member's, and every member against the critic. What is handed over is a ensemble: the mean of the
members' actions (or of their probabilities), each with its own average of weights.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 6.1 and Table 11.

Deviations: the preset `paper` is Table 11 with what its text leaves open taken from the released runs (256 × 2 ReLU,
orthogonal initialisation of gain 1, no squashing of actions; biases start at zero here). The released runs differ from
the text in three ways, which are the preset `released`: the policy moves before the critic, gradients are clipped only
after 10% of training, and both tasks take 100k steps (the text: 50k on HalfCheetah). The default settings are neither:
see docs/advil.md for what they are and what they were chosen by.
"""

from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.algorithms.off_q.bc import ell
from understudy.core.errors import (
    SettingError,
    check_choice,
    check_fraction,
    check_kind,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Dataset, Discrete, Info, Pair, RoundData, Samples, Spec, Transition
from understudy.game import Algorithm, Card, payoffs
from understudy.game.critics import MLPCritic, gradient_penalty, interpolate
from understudy.game.players import Averaged, Player, averaging, clip_from, gradient, side_by_side
from understudy.game.stopping import PayoffThreshold, CollapseDetector, CollapseState
from understudy.policies import Categorical, Deterministic, Normalized, EnsembleMember, Policy, ensemble
from understudy.policies.networks import orthogonal_penalty
from understudy.policies.normalization import Normalization


class AdVILState(NamedTuple):
    policy: EnsembleMember
    """The members, stacked along the leading axis of their arrays."""
    policy_memory: Averaged
    critic: MLPCritic
    critic_memory: optax.OptState
    normalization: Normalization
    collapse_state: CollapseState
    payoffs: Float[Array, " window"]


class AdVIL(Algorithm):
    """Adversarial value-moment imitation: play against a critic on the demonstrations' states."""

    card: ClassVar[Card] = Card(
        name="advil",
        title="AdVIL",
        moments="off-Q",
        solver="primal",
        needs=("demonstrations",),
        actions=("continuous", "discrete"),
        collects="nothing",
        reference="Swamy et al. 2021",
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("the payoff fell below delta", "the policy's loss jumped")
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "policy_lr": 8e-6,
            "batch_size": 1024,
            "cloning_weight": 0.2,
            "gain": 1.0,
            "weight_decay": 0.0,
            "squash": False,
            "ema_decay": 0.0,
            "ensemble_size": 1,
            "collapse": CollapseDetector(jump=0.0),
        }
    }
    presets["released"] = presets["paper"] | {"first": "policy", "clip_after": 0.1, "rounds": 200}

    policy_lr: float = 3e-4
    """Adam's learning rate of the policy, η_π."""
    critic_lr: float = 8e-4
    """Adam's learning rate of the critic, η_f."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps in a minibatch."""
    gradient_target: float = 0.4
    """What the penalty pulls the norm of the critic's gradient towards, g."""
    gradient_weight: float = 10.0
    """Weight of the gradient penalty, w_g."""
    orthogonal_weight: float = 1e-4
    """Weight of the policy's orthogonal regularisation, w_o."""
    cloning_weight: float = 5.0
    """Weight of the mean squared error (discrete actions: cross-entropy) in the policy's loss, w_c."""
    weight_decay: float = 0.1
    """Decay of the policy's weights, decoupled from Adam."""
    clip: float = 40.0
    """Largest norm of either player's gradient."""
    clip_after: float = 0.0
    """Fraction of training before clipping begins."""
    first: Literal["critic", "policy"] = eqx.field(static=True, default="critic")
    """Which player moves first in a step."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: pass the network's output through tanh."""
    ema_decay: float = 0.999
    """Decay of the average of the policy's weights that is handed over; 0 hands over the last policy."""
    rounds: int = eqx.field(static=True, default=100)
    """Rounds of training; a round is a line of the metrics."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Steps of both players in a round."""
    ensemble_size: int = eqx.field(static=True, default=5)
    """Networks that the policy is a ensemble of."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of policy and critic."""
    gain: float = 2**0.5
    """Scale of the hidden layers' orthogonal weights at the start."""
    threshold: PayoffThreshold = PayoffThreshold()
    """When the payoff is small enough to stop."""
    collapse: CollapseDetector = CollapseDetector()
    """When the policy's loss says that it has collapsed."""

    def __check_init__(self) -> None:
        check_positive(policy_lr=self.policy_lr, critic_lr=self.critic_lr, clip=self.clip, gain=self.gain)
        check_not_negative(
            gradient_target=self.gradient_target,
            gradient_weight=self.gradient_weight,
            orthogonal_weight=self.orthogonal_weight,
            cloning_weight=self.cloning_weight,
            weight_decay=self.weight_decay,
        )
        check_fraction(ema_decay=self.ema_decay, clip_after=self.clip_after)
        check_choice(("critic", "policy"), first=self.first)
        check_kind(PayoffThreshold, threshold=self.threshold)
        check_kind(CollapseDetector, collapse=self.collapse)
        check_whole(
            1,
            batch_size=self.batch_size,
            rounds=self.rounds,
            gradient_steps=self.gradient_steps,
            ensemble_size=self.ensemble_size,
        )
        check_layers(hidden=self.hidden)
        if self.threshold.delta is not None and self.rounds < max(self.threshold.warm_up, self.threshold.window):
            raise SettingError(
                f"threshold.delta is {self.threshold.delta}, but with {self.rounds} rounds the payoff is never looked at: "
                f"its window has {self.threshold.window} rounds and its warm-up {self.threshold.warm_up}"
            )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> AdVILState:
        policy_key, critic_key = jax.random.split(key)

        def member(k: Key[Array, ""]) -> EnsembleMember:
            size, seen = spec.obs_size, spec.policy_obs
            if isinstance(spec.action, Discrete):
                return Categorical.init(k, size, spec.action.n, self.hidden, gain=self.gain, reads=seen)
            shape = (size, spec.action.shape[0], self.hidden)
            return Deterministic.init(k, *shape, gain=self.gain, squash=self.squash, reads=seen)

        policy = jax.lax.map(member, jax.random.split(policy_key, self.ensemble_size))
        critic = MLPCritic.init(critic_key, spec, self.hidden, gain=self.gain)
        policy_player, critic_player = self._players()
        return AdVILState(
            policy,
            policy_player.init(policy),
            critic,
            critic_player.init(critic),
            Normalization.fit(spec, demonstrations),
            self.collapse.init(),
            self.threshold.init(),
        )

    def update(self, state: AdVILState, data: RoundData, key: Key[Array, ""]) -> tuple[AdVILState, Info]:
        policy_player, critic_player = self._players()

        def step(state: AdVILState, k: Key[Array, ""]) -> tuple[AdVILState, dict[str, Array]]:
            batch_key, *keys = jax.random.split(k, 3)
            batch = state.normalization.encode(data.demonstrations.sample(batch_key, (self.batch_size,)))
            expert = Samples(batch.t, batch.obs, batch.act, jnp.full(self.batch_size, 1 / self.batch_size))
            seen: dict[str, Array] = {}

            def critic_moves(state: AdVILState, k: Key[Array, ""]) -> AdVILState:  # line 3
                loss = partial(self.critic_loss, state.policy, expert)
                critic, memory, (_, seen["payoff"]) = critic_player.move(k, state.critic, state.critic_memory, loss)
                return state._replace(critic=critic, critic_memory=memory)

            def policy_moves(state: AdVILState, k: Key[Array, ""]) -> AdVILState:  # line 4
                loss = partial(self.policy_loss, state.critic, expert, batch)
                policy, memory, (_, regular) = policy_player.move(k, state.policy, state.policy_memory, loss)
                seen.update(regular)
                return state._replace(policy=policy, policy_memory=memory)

            moves = (critic_moves, policy_moves)
            for move, k in zip(moves if self.first == "critic" else moves[::-1], keys, strict=True):
                state = move(state, k)
            # The loss that is watched has L as line 2 has it, at the critic that the step began with.
            return state, {
                "policy_loss": seen["payoff"] + seen["regular"],
                "payoff": seen["payoff"],
                "cloning": seen["cloning"],
            }

        state, history = jax.lax.scan(step, state, jax.random.split(key, self.gradient_steps))
        metrics = {name: values.mean() for name, values in history.items()}
        collapse_state, jumped = self.collapse.look(state.collapse_state, metrics["policy_loss"])
        window, small = self.threshold.look(state.payoffs, metrics["payoff"], collapse_state.rounds)  # line 1
        stop = jnp.where(jumped, 2, jnp.where(small, 1, 0))
        return state._replace(collapse_state=collapse_state, payoffs=window), Info(metrics, stop, undo=jumped)

    def critic_loss(
        self, policy: EnsembleMember, expert: Samples, critic: MLPCritic, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """What the critic descends, −L + w_g E (‖∇f‖ − g)², and L itself."""
        act_key, mix_key = jax.random.split(key)
        pair = mixed(policy, expert, critic.actions, act_key)
        payoff = payoffs.payoff(critic, pair)  # line 2
        between = jax.vmap(interpolate)(jax.random.split(mix_key, self.batch_size), pair.learner, pair.expert)
        penalty = jax.vmap(gradient_penalty, (None, 0, 0, 0, None))(critic, expert.t, *between, self.gradient_target)
        return -payoff + self.gradient_weight * penalty.mean(), payoff

    def policy_loss(
        self, critic: MLPCritic, expert: Samples, batch: Transition, policy: EnsembleMember, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """What a member descends, L + w_o R_⊥ + w_c E ‖π(s) − a‖² / d, up to E f(s, a), which it cannot change."""
        learner = payoffs.off_q_vectors(policy, expert, critic.actions, key).learner
        dimensions = batch.act.shape[1] if batch.act.ndim > 1 else 1
        cloning = jax.vmap(ell, (None, 0))(policy, batch).mean() / dimensions
        regular = (
            self.orthogonal_weight * orthogonal_penalty(policy.net, between="inputs") + self.cloning_weight * cloning
        )
        return payoffs.expectation(critic, learner) + regular, {"cloning": cloning, "regular": regular}

    def policy(self, state: AdVILState) -> Policy:
        return Normalized(ensemble(state.policy_memory.average), state.normalization)

    def _players(self) -> tuple[Player, Player]:
        clip = clip_from(self.clip_after * (self.rounds * self.gradient_steps), self.clip)
        policy = optax.chain(clip, optax.adamw(self.policy_lr, weight_decay=self.weight_decay))
        critic = optax.chain(clip, optax.adam(self.critic_lr))
        return side_by_side(averaging(gradient(policy, aux=True), self.ema_decay)), gradient(critic, aux=True)


def mixed(members: EnsembleMember, expert: Samples, actions: int | None, key: Key[Array, ""]) -> Pair:
    """U2 of the members' mixture: they take the expert's samples in turn."""
    pairs = jax.vmap(lambda member: payoffs.off_q_vectors(member, expert, actions, key))(members)
    turn = jnp.arange(expert.weight.shape[0])
    return jax.tree.map(lambda x: x[turn % x.shape[0], turn], pairs)
