"""GAIL: generative adversarial imitation learning, a moment function that learns to tell learner and expert apart.

It matches reward moments and, by the paper's count, solves the game from the primal side: the policy moves in small
steps, and f answers each. AdRIL's f is known in closed form, this one is a network and moves by gradient steps. A logit
g(s, a) says how likely a step is the expert's, D = σ(g) = 1 / (1 + e^−g), and is trained by the logistic loss

    L(g) = −E_π log(1 − D) − E_E log D = E_π softplus(g) + E_E softplus(−g)

which the policy would like to be large. What it can change is the first term, so in our signs, f a cost and the reward
−f, it is f = log(1 − D) = −softplus(g). With that f, D = 1 − e^f, and what the two play for is a payoff less a convex
regulariser of f:

    −L = E_π f + E_E log(1 − e^f) = U1(π, f) − ψ(f),        ψ(f) = E_E [ −f − log(1 − e^f) ],  f < 0

One turn of the loop of `matching`, which f enters in line 2:

    1. D_π ← the turn's steps (PPO), or all steps so far (SAC)
    2. for each of some steps: g ← g − η ∇ [ L(g) + w_g E (‖∇g‖ − t)² ] on a minibatch of D_E and one of D_π
    3. π improves on the reward r(g), on the turn's own steps (PPO) or on minibatches of all steps (SAC)

The policy gains wherever g is larger, so other increasing functions of g serve as well in line 3, and they differ in
what a step of life is worth (docs/absorbing.md):

    reward_form   r(g)                               f                r where D = 1/2
    positive      −log(1 − D) = softplus(g) > 0      log(1 − D)       log 2: lives long
    negative      log D = −softplus(−g) < 0          −log D           −log 2: ends soon
    logit         log D − log(1 − D) = g             −g               0

All three imitate where ended episodes go on in an absorbing state. That is one state, so its logit needs no network: L
is smallest at g = log(p_E / p_π), with p the share of time that each side spends there; the other steps count by what
is left, 1 − p.

Reference: Ho and Ermon, "Generative Adversarial Imitation Learning" (2016), whose D is our 1 − D; ψ is their ψ_GA. PPO
is the player, as in the paper, with its GAIL table (1,024 steps of each of 8 environments, 32 expert steps in a
minibatch) and what the `imitation` package (Wang et al., 2020) has where the paper says nothing: the positive reward, a
discriminator of 32 × 32, two steps of it a round, Adam's rate of 1e-3, rewards over the spread of their returns. The
preset `sac` is that of Kostrikov et al., "Discriminator-Actor-Critic" (2019): off-policy, absorbing states, the logit
as the reward, a gradient penalty at points between the two sides (Gulrajani et al., 2017).

Deviations: f moves before the policy, on the same steps, as in Ho and Ermon; in `imitation` it follows, so that rewards
are a round older. There states and rewards are scaled by statistics that run along. Here f sees states standardised by
the demonstrations, within ± 10, the policy sees them as they are, and rewards are divided by the spread of this turn's
returns. PPO's networks are the paper's 256 × 256, under tanh. Absorbing states are ours, and time limits are not taken
for ends; the preset `paper` has neither. SAC learns from the demonstrations' steps too, with f's rewards.
"""

from dataclasses import fields
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.algorithms.reward.matching import STOP_REASONS, RewardMatching, RewardState
from understudy.algorithms.reward.moments import Moments, Sides
from understudy.core.errors import (
    SettingError,
    check_choice,
    check_kind,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Pair, RoundData, Samples, Transition
from understudy.game import Card, adjustable
from understudy.game.critics import Critic, MLPCritic, gradient_penalty, interpolate, state_action
from understudy.game.kernels import GaussianKernel
from understudy.game.players import Memory, gradient, repeat
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization
from understudy.rl.ppo import PPO

RewardForm = Literal["positive", "negative", "logit"]
FORMS: tuple[RewardForm, ...] = ("positive", "negative", "logit")
WIDE = PPO(hidden=(256, 256))
FARTHEST = 10.0
"""Standard deviations at which states are cut for f: where the expert hardly moves, the learner is thousands away."""
UNSEEN = 0.01
"""A share of time that is added to either side's in the absorbing state, so that its logit is finite."""


class GAIL(RewardMatching):
    """Generative adversarial imitation: a network tells learner and expert apart, and the policy is paid to fool it."""

    card: ClassVar[Card] = Card(
        name="gail",
        title="GAIL",
        moments="reward",
        solver="primal",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, while it learns",
        reference="Ho & Ermon 2016",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    every_update: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"absorbing": False, "truncation_is_terminal": True},
        "sac": {
            "player": "sac",
            "reward_form": "logit",
            "normalize_rewards": False,
            "expert_batch_size": 128,
            "discriminator_hidden": (256, 256),
            "discriminator_steps": 16,
            "discriminator_lr": 3e-4,
            "gradient_weight": 10.0,
            "rounds": 400,
            "round_steps": 1250,
            "frequency": 64,
            "envs": 1,
            "buffer_size": None,
            "random_steps": 1000,
        },
    }

    player: Literal["ppo", "sac"] = eqx.field(static=True, default="ppo")
    """Who improves the policy: PPO, or SAC, which is soft Q-learning where actions are discrete."""
    ppo: PPO = eqx.field(default=WIDE, converter=adjustable(WIDE))
    """The policy player, where it is PPO."""
    reward_form: RewardForm = eqx.field(static=True, default="positive")
    """The reward, with D the probability that a step is the expert's: −log(1 − D), log D, or their sum, the logit."""
    normalize_rewards: bool = eqx.field(static=True, default=True)
    """Divide rewards by the standard deviation of the turn's discounted returns."""
    expert_batch_size: int = eqx.field(static=True, default=32)
    """Steps of the expert, and as many of the learner, in a minibatch of the discriminator."""
    discriminator_steps: int = eqx.field(static=True, default=2)
    """Gradient steps of the discriminator in a turn."""
    discriminator_lr: float = 1e-3
    """Adam's learning rate of the discriminator, η."""
    discriminator_hidden: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Hidden layers of the discriminator."""
    gradient_weight: float = 0.0
    """Weight of the discriminator's gradient penalty, w_g."""
    gradient_target: float = 1.0
    """What the penalty pulls the norm of the logit's gradient towards, t."""
    rounds: int = eqx.field(static=True, default=62)
    """Rounds: lines of the metrics."""
    round_steps: int = eqx.field(static=True, default=8192)
    """Environment steps in a round, rounded up to whole turns."""
    frequency: int = eqx.field(static=True, default=8192)
    """Environment steps of a run in a turn, between updates."""
    envs: int = eqx.field(static=True, default=8)
    """Environments of a run that step together."""
    buffer_size: int | None = eqx.field(static=True, default=8192)
    """Steps of a run that are remembered: what f compares with the expert's, and SAC learns from; none: all."""
    random_steps: int = eqx.field(static=True, default=0)
    """Steps at the start of a run that take any action; nothing is learned in turns with no others."""

    def __check_init__(self) -> None:
        check_choice(("ppo", "sac"), player=self.player)
        check_choice(FORMS, reward_form=self.reward_form)
        check_kind(PPO, ppo=self.ppo)
        check_positive(discriminator_lr=self.discriminator_lr)
        check_not_negative(gradient_weight=self.gradient_weight, gradient_target=self.gradient_target)
        check_whole(1, expert_batch_size=self.expert_batch_size, discriminator_steps=self.discriminator_steps)
        check_layers(discriminator_hidden=self.discriminator_hidden)
        own = {field.name: field.default for field in fields(self)}
        for idle in ("sac", "soft_q") if self.player == "ppo" else ("ppo",):
            if getattr(self, idle) != own[idle]:
                other = "sac" if self.player == "ppo" else "ppo"
                raise SettingError(f"{idle} is changed and player is '{self.player}': choose player='{other}'")
        if self.player == "ppo" and (self.random_steps or self.staleness):
            raise SettingError(
                f"random_steps is {self.random_steps} and staleness is {self.staleness}: PPO learns from the steps of the policy "
                "as it is, so both must be 0, or player='sac'"
            )

    def first(self, kernel: GaussianKernel, key: Key[Array, ""]) -> "Discriminator":
        net = MLP.init(key, kernel.directions.shape[0], self.discriminator_hidden, 1, init="uniform")
        logit = MLPCritic(net, state_action, None)
        memory = gradient(optax.adam(self.discriminator_lr)).init(logit)
        return Discriminator(logit, memory, kernel, jnp.ones(()), jnp.zeros(()), self.reward_form)

    def moves(self, state: RewardState, data: RoundData, sides: Sides, key: Key[Array, ""]) -> "Discriminator":
        assert data.replay is not None
        assert data.new_steps is not None
        played, before = data.replay, state.moments
        assert isinstance(before, Discriminator)
        alive, they_live = self._alive(sides)

        def loss(logit: Critic, k: Key[Array, ""]) -> Float[Array, ""]:
            expert_key, own_key, mix_key = jax.random.split(k, 3)
            shown = data.demonstrations.sample(expert_key, (self.expert_batch_size,))
            place = jax.random.randint(own_key, (self.expert_batch_size,), 0, played.size)  # line 1
            own = jax.tree.map(lambda x: x[place], played.steps)
            return self.loss(logit, Pair(before.samples(own, alive), before.samples(shown, they_live)), mix_key)

        player = repeat(gradient(optax.adam(self.discriminator_lr)), self.discriminator_steps)
        logit, memory, value = player.move(key, before.logit, before.memory, loss)  # line 2
        moved = Discriminator(logit, memory, before.kernel, jnp.ones(()), value, self.reward_form)
        if not self.normalize_rewards:
            return moved
        spread = returns_spread(
            jax.vmap(moved.reward)(data.new_steps), data.new_steps.last, self._player(state.normalization).discount
        )
        return eqx.tree_at(lambda m: m.spread, moved, spread)

    def loss(self, logit: Critic, pair: Pair, key: Key[Array, ""]) -> Float[Array, ""]:
        """L(g) on weighted samples of both sides, and the penalty at points between them."""
        ours, theirs = (jax.vmap(logit)(side.t, side.obs, side.act) for side in pair)
        value = pair.learner.weight @ jax.nn.softplus(ours) + pair.expert.weight @ jax.nn.softplus(-theirs)
        keys = jax.random.split(key, ours.shape[0])
        between = jax.vmap(interpolate)(keys, pair.learner, pair.expert)
        penalty = jax.vmap(gradient_penalty, (None, 0, 0, 0, None))(
            logit, pair.learner.t, *between, self.gradient_target
        )
        return value + self.gradient_weight * penalty.mean()

    def _alive(self, sides: Sides) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """How much of its time either side spends outside the absorbing state, scaled to a sum of 2."""
        if not self.absorbing:
            return jnp.ones(()), jnp.ones(())
        ours, theirs = (1 - side.absorbing_share for side in (sides.learner, sides.expert))
        return 2 * ours / (ours + theirs), 2 * theirs / (ours + theirs)

    def _player(self, normalization: Normalization) -> Any:
        return self.ppo if self.player == "ppo" else super()._player(normalization)


class Discriminator(Moments):
    """r(g), over the spread of returns."""

    logit: Critic
    """g: the larger, the more a step looks like the expert's."""
    memory: Memory
    """Of its optimiser."""
    kernel: GaussianKernel
    """For its coordinates."""
    spread: Float[Array, ""]
    """What rewards are divided by."""
    loss: Float[Array, ""]
    """The mean over the steps of its last turn."""
    form: RewardForm = eqx.field(static=True)

    def samples(self, steps: Transition, weight: float | Float[Array, ""] = 1.0) -> Samples:
        """Steps in f's coordinates, actions as vectors, of so much weight together."""
        points = jnp.clip(self.kernel.points(steps), -FARTHEST, FARTHEST)
        count, size = points.shape[0], self.kernel.normalization.obs_mean.shape[0]
        return Samples(steps.t, points[:, :size], points[:, size:], jnp.full(count, weight / count))

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        points = self.samples(steps)
        return rewarded(jax.vmap(self.logit)(points.t, points.obs, points.act), self.form) / self.spread

    def at_rest(self, sides: Sides, balanced: bool) -> Float[Array, ""]:
        """Where L is smallest for the one absorbing state: g = log p_E − log p_π."""
        ours, theirs = (side.absorbing_share + UNSEEN for side in (sides.learner, sides.expert))
        return rewarded(jnp.log(theirs) - jnp.log(ours), self.form) / self.spread

    def metrics(self) -> dict[str, Float[Array, ""]]:
        return {"discriminator_loss": self.loss}


def rewarded(logit: Float[Array, "..."], form: RewardForm) -> Float[Array, "..."]:
    """r(g) = −f: −log(1 − D), log D or their sum, with D = σ(g)."""
    if form == "positive":
        return jax.nn.softplus(logit)
    return -jax.nn.softplus(-logit) if form == "negative" else logit


def returns_spread(
    reward: Float[Array, "envs time"], last: Bool[Array, "envs time"], discount: float | Array
) -> Float[Array, ""]:
    """The standard deviation of R_t = r_t + γ R_{t−1} over all steps, R starting at 0 with a turn and an episode."""

    def on(total: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        total = at[0] + discount * total
        return jnp.where(at[1], 0, total), total

    totals = jax.lax.scan(on, jnp.zeros(reward.shape[0]), (reward.T, last.T))[1]
    return jnp.sqrt(totals.var() + 1e-8)
