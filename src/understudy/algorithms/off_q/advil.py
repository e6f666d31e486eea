"""AdVIL: adversarial value-moment imitation learning, a game in the demonstrated states.

It matches off-Q moments, like behavioral cloning. Instead of a fixed loss, a critic f learns to separate the learner's
actions from the expert's, and the policy is trained against it. An error costs as much as the critic can exploit it.
The critic learns faster than the policy, so this is a primal algorithm (section 6.1). Algorithm 1:

    Input: demonstrations D_E, policy class Π, moment functions F, threshold δ, learning rates η_f > η_π
    1. while L(π, f) > δ:
    2.     L(π, f) = E_{(s, a) ~ D_E} [ E_{x ~ π(s)} f(s, x) − f(s, a) ]
    3.     f ← f + η_f ∇_f [ L(π, f) − w_g · E (‖∇f‖ − g)² ]
    4.     π ← π − η_π ∇_π [ L(π, f) + w_o · R_⊥(π) + w_c · E ‖π(s) − a‖² / d ]

The regularisers are those of Table 11: a gradient penalty on f at random points between learner and expert (Gulrajani
et al., 2017), orthogonal regularisation of π (R_⊥, Brock et al., 2018), and the mean squared error over the d
dimensions of the action. States are standardized with D_E, and continuous actions are scaled to [-1, 1]. For discrete
actions, f gets the policy's probabilities, and the squared error becomes a cross-entropy.

π may be an ensemble of networks with different initial weights. The critic is trained against all of them: the steps
of a minibatch are divided among the members. Each member is trained against the critic. The returned policy is
the mean of the members' actions (or probabilities), each with its own moving average of weights.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 6.1 and Table 11.

The default differs from the preset `paper`, which has the settings of Table 11, in

    setting           default        paper
    policy_lr         3e-4           8e-6
    batch_size        256            1,024
    cloning_weight    5              0.2
    weight_decay      0.1            0
    squash            True           False    tanh on continuous actions
    ema_decay         0.999          0        a moving average of the weights is returned
    ensemble_size     5              1
    gain              √2             1        of the orthogonal initialisation
    obs_scaling       standardize    paper    standard deviations have a relative floor; the released code adds 1e-3
    collapse.jump     8              0        the text recommends watching for a jump; the runs did not stop at one

Both train for 50,000 steps, the text's number for HalfCheetah; for Ant it has 100,000 (rounds=200). Settings that the
text leaves open are those of the released code (256 × 2 ReLU, orthogonal initialisation with gain 1, no tanh on
actions). The preset `released` follows the released code where it differs from the text: the policy moves before the
critic (`first`), gradients are clipped only after 10% of training (`clip_after`), and both tasks take 100,000 steps
(`rounds`). docs/advil.md explains the default.

Deviations: biases start at zero.
"""

from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

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
from understudy.core.types import Dataset, Info, Pair, RoundData, Samples, Spec, Transition
from understudy.game import QUICK, Algorithm, Card, payoffs
from understudy.game.critics import MLPCritic, penalty_between
from understudy.game.losses import cloning_loss
from understudy.game.players import Averaged, Player, averaging, clip_from, gradient, side_by_side
from understudy.game.stopping import CollapseDetector, CollapseState, PayoffThreshold
from understudy.policies import EnsembleMember, Normalized, Policy, deterministic_policy, ensemble
from understudy.policies.networks import orthogonal_penalty
from understudy.policies.normalization import Normalization, Scaling, check_scaling


class AdVILState(NamedTuple):
    policy: EnsembleMember
    """The ensemble members, stacked along the leading axis."""
    policy_memory: Averaged
    critic: MLPCritic
    critic_memory: optax.OptState
    normalization: Normalization
    collapse_state: CollapseState
    payoffs: Float[Array, " window"]
    """Payoffs of the last rounds, newest first."""


class AdVIL(Algorithm):
    """Adversarial value-moment imitation: a policy against a critic in the demonstrated states."""

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
            "obs_scaling": "paper",
        }
    }
    small: ClassVar[dict[str, Any]] = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}
    presets["released"] = presets["paper"] | {"first": "policy", "clip_after": 0.1, "rounds": 200}
    presets[QUICK] = {"rounds": 20, "hidden": (64, 64), "ensemble_size": 1}

    policy_lr: float = 3e-4
    """Learning rate of the policy's Adam, η_π."""
    critic_lr: float = 8e-4
    """Learning rate of the critic's Adam, η_f."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size."""
    gradient_target: float = 0.4
    """Target norm of the critic's gradient, g."""
    gradient_weight: float = 10.0
    """Weight of the gradient penalty, w_g."""
    orthogonal_weight: float = 1e-4
    """Weight of the orthogonal regularisation of the policy, w_o."""
    cloning_weight: float = 5.0
    """Weight of the cloning loss in the policy's loss, w_c. Mean squared error, or cross-entropy if discrete."""
    weight_decay: float = 0.1
    """Decoupled weight decay of the policy (AdamW)."""
    clip: float = 40.0
    """Both players' gradients are clipped to this global norm."""
    clip_after: float = 0.0
    """Fraction of training without gradient clipping."""
    first: Literal["critic", "policy"] = eqx.field(static=True, default="critic")
    """The player that moves first in a gradient step."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: apply tanh to the network's output."""
    ema_decay: float = 0.999
    """Decay of the moving average of weights that is returned (0: return the last weights)."""
    rounds: int = eqx.field(static=True, default=100)
    """Training rounds. Metrics are logged once a round."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Gradient steps of both players per round."""
    ensemble_size: int = eqx.field(static=True, default=5)
    """Networks in the policy's ensemble; their actions are averaged."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of policy and critic."""
    obs_scaling: Scaling = eqx.field(static=True, default="standardize")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""
    gain: float = 2**0.5
    """Gain of the orthogonal initialisation of hidden layers."""
    threshold: PayoffThreshold = PayoffThreshold()
    """Stop when the payoff is small enough."""
    collapse: CollapseDetector = CollapseDetector()
    """Stop when the policy's loss jumps."""

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
        check_scaling(self.obs_scaling)
        if self.threshold.delta is not None and self.rounds < max(self.threshold.warm_up, self.threshold.window):
            raise SettingError(
                f"threshold.delta is {self.threshold.delta} and rounds is {self.rounds}: the payoff is first checked "
                f"after {max(self.threshold.warm_up, self.threshold.window)} rounds; give more rounds, or a smaller "
                "threshold.window and threshold.warm_up"
            )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> AdVILState:
        policy_key, critic_key = jax.random.split(key)

        def member(k: Key[Array, ""]) -> EnsembleMember:
            return deterministic_policy(k, spec, self.hidden, gain=self.gain, squash=self.squash)

        policy = jax.lax.map(member, jax.random.split(policy_key, self.ensemble_size))
        critic = MLPCritic.init(critic_key, spec, self.hidden, gain=self.gain)
        policy_player, critic_player = self._players()
        return AdVILState(
            policy,
            policy_player.init(policy),
            critic,
            critic_player.init(critic),
            Normalization.fit(spec, demonstrations, self.obs_scaling),
            self.collapse.init(),
            self.threshold.init(),
        )

    def update(self, state: AdVILState, data: RoundData, key: Key[Array, ""]) -> tuple[AdVILState, Info]:
        policy_player, critic_player = self._players()

        def step(state: AdVILState, k: Key[Array, ""]) -> tuple[AdVILState, dict[str, Array]]:
            batch_key, *keys = jax.random.split(k, 3)
            batch = state.normalization.encode(data.demonstrations.sample(batch_key, (self.batch_size,)))
            expert = Samples(batch.t, batch.obs, batch.act, jnp.full(self.batch_size, 1 / self.batch_size))
            metrics: dict[str, Array] = {}

            def critic_moves(state: AdVILState, k: Key[Array, ""]) -> AdVILState:  # line 3
                loss = partial(self.critic_loss, state.policy, expert)
                critic, memory, (_, metrics["payoff"]) = critic_player.move(k, state.critic, state.critic_memory, loss)
                return state._replace(critic=critic, critic_memory=memory)

            def policy_moves(state: AdVILState, k: Key[Array, ""]) -> AdVILState:  # line 4
                loss = partial(self.policy_loss, state.critic, expert, batch)
                policy, memory, (_, terms) = policy_player.move(k, state.policy, state.policy_memory, loss)
                metrics.update(terms)
                return state._replace(policy=policy, policy_memory=memory)

            moves = (critic_moves, policy_moves)
            for move, k in zip(moves if self.first == "critic" else moves[::-1], keys, strict=True):
                state = move(state, k)
            # The collapse detector's loss uses L of line 2, at the critic from the start of the step.
            return state, {
                "policy_loss": metrics["payoff"] + metrics["regularizer"],
                "payoff": metrics["payoff"],
                "cloning": metrics["cloning"],
            }

        state, metrics = jax.lax.scan(step, state, jax.random.split(key, self.gradient_steps))
        metrics = {name: values.mean() for name, values in metrics.items()}
        collapse_state, jumped = self.collapse.update(state.collapse_state, metrics["policy_loss"])
        window, small = self.threshold.update(state.payoffs, metrics["payoff"], collapse_state.rounds)  # line 1
        stop = jnp.where(jumped, 2, jnp.where(small, 1, 0))
        return state._replace(collapse_state=collapse_state, payoffs=window), Info(metrics, stop, undo=jumped)

    def critic_loss(
        self, policy: EnsembleMember, expert: Samples, critic: MLPCritic, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The critic's loss −L + w_g E (‖∇f‖ − g)², and L."""
        act_key, mix_key = jax.random.split(key)
        pair = ensemble_pair(policy, expert, critic.actions, act_key)
        payoff = payoffs.payoff(critic, pair)  # line 2
        penalty = penalty_between(critic, pair, self.gradient_target, mix_key)
        return -payoff + self.gradient_weight * penalty, payoff

    def policy_loss(
        self, critic: MLPCritic, expert: Samples, batch: Transition, policy: EnsembleMember, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """A member's loss L + w_o R_⊥ + w_c E ‖π(s) − a‖² / d, without the constant E f(s, a), and its terms."""
        learner = payoffs.off_q_vectors(policy, expert, critic.actions, key).learner
        dimensions = batch.act.shape[1] if batch.act.ndim > 1 else 1
        cloning = jax.vmap(cloning_loss, (None, 0))(policy, batch).mean() / dimensions
        orthogonal = orthogonal_penalty(policy.net, between="inputs")
        regularizer = self.orthogonal_weight * orthogonal + self.cloning_weight * cloning
        return payoffs.expectation(critic, learner) + regularizer, {"cloning": cloning, "regularizer": regularizer}

    def policy(self, state: AdVILState) -> Policy:
        return Normalized(ensemble(state.policy_memory.average), state.normalization)

    def _players(self) -> tuple[Player, Player]:
        clip = clip_from(self.clip_after * (self.rounds * self.gradient_steps), self.clip)
        policy = optax.chain(clip, optax.adamw(self.policy_lr, weight_decay=self.weight_decay))
        critic = optax.chain(clip, optax.adam(self.critic_lr))
        return side_by_side(averaging(gradient(policy, aux=True), self.ema_decay)), gradient(critic, aux=True)


def ensemble_pair(members: EnsembleMember, expert: Samples, actions: int | None, key: Key[Array, ""]) -> Pair:
    """U2 of an ensemble: sample i is acted on by member i modulo the ensemble's size."""
    pairs = jax.vmap(lambda member: payoffs.off_q_vectors(member, expert, actions, key))(members)
    row = jnp.arange(expert.weight.shape[0])
    return jax.tree.map(lambda x: x[row % x.shape[0], row], pairs)
