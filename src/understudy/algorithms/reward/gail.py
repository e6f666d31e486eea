"""GAIL: generative adversarial imitation learning, with a learned discriminator as the moment function.

It matches reward moments. In the paper's taxonomy it solves the primal game: the policy moves in small steps, and f
responds to each. AdRIL's f has a closed form; here f is a network trained by gradient steps. The logit g(s, a) predicts
whether a step is the expert's, with probability D = σ(g) = 1 / (1 + e^−g). It minimises the logistic loss

    L(g) = −E_π log(1 − D) − E_E log D = E_π softplus(g) + E_E softplus(−g)

The policy maximises L. It affects only the first term, so in our sign convention (f is a cost, the reward is −f) it is
f = log(1 − D) = −softplus(g). With this f, D = 1 − e^f, and −L is a payoff minus a convex regulariser of f:

    −L = E_π f + E_E log(1 − e^f) = U1(π, f) − ψ(f),        ψ(f) = E_E [ −f − log(1 − e^f) ],  f < 0

One update in the loop of `matching`, where f moves in line 2:

    1. D_π ← the new steps (PPO), or all steps so far (SAC)
    2. `discriminator_steps` times: g ← g − η ∇ [ L(g) + w_g E (‖∇g‖ − t)² ] on a minibatch of D_E and one of D_π
    3. π improves on the reward r(g), on the new steps (PPO) or on minibatches of all steps (SAC)

Any increasing function of g can serve as the reward in line 3. They differ in the reward for staying alive
(docs/absorbing.md):

    reward_form   r(g)                               f                r at D = 1/2
    positive      −log(1 − D) = softplus(g) > 0      log(1 − D)       log 2: rewards long episodes
    negative      log D = −softplus(−g) < 0          −log D           −log 2: rewards short episodes
    logit         log D − log(1 − D) = g             −g               0

All three imitate correctly with absorbing states. The absorbing state is a single state, so its logit needs no network:
L is smallest at g = log(p_E / p_π), where p is a side's share of time in the absorbing state. The other steps of a side
are weighted by 1 − p.

Reference: Ho and Ermon, "Generative Adversarial Imitation Learning" (2016); their D is our 1 − D, their ψ_GA our ψ. The
player is PPO, with the settings of Table 8 of "Of Moments and Matching" (1,024 steps in each of 8 environments, 32
expert steps in a minibatch) and its networks of 256 × 2. Settings that the paper leaves open are those of the
`imitation` package (Wang et al., 2020), which it used: the positive reward, two discriminator steps per round, learning
rate 1e-3, rewards divided by the standard deviation of returns. The preset `sac` follows Kostrikov et al.,
"Discriminator-Actor-Critic" (2019): off-policy, absorbing states, the logit as the reward, a gradient penalty between
the two sides (Gulrajani et al., 2017).

The default differs from the preset `paper`, which has the paper's settings, in

    setting                   default     paper
    discriminator_hidden      (32, 32)    (256, 256)    the default is that of `imitation`
    absorbing                 True        False         absorbing states are ours
    truncation_is_terminal    False       True          as in the released runs
    obs_scaling               scale       none          results do not depend on the units of observations

The preset `observations` is for demonstrations without actions: the settings of `sac` with a discriminator over (s, s')
(`match`), as in Torabi, Warnell and Stone, "Generative Adversarial Imitation from Observation" (2018). SAC then learns
from the learner's steps alone.

Deviations: f moves before the policy, on the same steps, as in Ho and Ermon; in `imitation` it moves after the policy.
`imitation` normalizes observations and rewards by running statistics. Here f gets states standardized by the
demonstrations and clipped to ± 10, the policy gets states as they are (`paper`) or scaled, and rewards are divided by
the standard deviation of the new steps' returns. PPO's networks have tanh, as in Stable-Baselines3, whose PPO the
paper's runs used; its text says ReLU for all algorithms. SAC also learns from the demonstrated steps, with the rewards
of f.
"""

from dataclasses import fields
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.algorithms.reward.defaults import QUICK_PLAYERS, STOP_REASONS
from understudy.algorithms.reward.discriminator import FORMS, Discriminator, RewardForm, returns_std
from understudy.algorithms.reward.expert import expert_steps
from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, learner_rows
from understudy.core.errors import (
    SettingError,
    check_choice,
    check_kind,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Pair, RoundData
from understudy.game import QUICK, Card, adjustable
from understudy.game.critics import Critic, MLPCritic, penalty_between
from understudy.game.features import state_action
from understudy.game.kernels import GaussianKernel, Match
from understudy.game.players import gradient, repeat
from understudy.game.sampling import ChosenSteps
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization
from understudy.rl.ppo import PPO

PAPER_PPO = PPO(hidden=(256, 256))


class GAIL(RewardMatching):
    """Generative adversarial imitation: RL on the reward of a learned discriminator."""

    card: ClassVar[Card] = Card(
        name="gail",
        title="GAIL",
        moments="reward",
        solver="primal",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Ho & Ermon 2016",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    every_update: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "absorbing": False,
            "truncation_is_terminal": True,
            "discriminator_hidden": (256, 256),
            "obs_scaling": "none",
        },
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
    presets["observations"] = {**presets["sac"], "match": "obs-next"}
    presets[QUICK] = {**presets["sac"], **QUICK_PLAYERS, "rounds": 16, "discriminator_hidden": (64, 64)}

    small: ClassVar[dict[str, Any]] = {
        "rounds": 2,
        "round_steps": 16,
        "frequency": 8,
        "envs": 2,
        "buffer_size": 8,
        "expert_batch_size": 8,
        "discriminator_hidden": (8,),
        "discriminator_steps": 1,
        "ppo": PPO(hidden=(8,), epochs=1, minibatch=8),
    }
    learning: ClassVar[dict[str, Any]] = {
        "round_steps": 512,
        "frequency": 512,
        "envs": 8,
        "buffer_size": 512,
        "random_steps": 0,
        "ppo": PPO(hidden=(32,), lr=1e-2, discount=0.0, epochs=10, minibatch=64),
        "discriminator_hidden": (32,),
        "discriminator_steps": 32,
        "discriminator_lr": 3e-3,
        "expert_batch_size": 64,
    }

    player: Literal["ppo", "sac"] = eqx.field(static=True, default="ppo")
    """RL player: ppo, or sac (soft Q-learning for discrete actions)."""
    ppo: PPO = eqx.field(default=PAPER_PPO, converter=adjustable(PAPER_PPO))
    """RL player of player="ppo"."""
    reward_form: RewardForm = eqx.field(static=True, default="positive")
    """Reward, with D the probability that a step is the expert's: −log(1 − D), log D, or their sum, the logit."""
    normalize_rewards: bool = eqx.field(static=True, default=True)
    """Divide rewards by the standard deviation of the new steps' discounted returns."""
    expert_batch_size: int = eqx.field(static=True, default=32)
    """Steps of the expert in a minibatch of the discriminator, and as many of the learner."""
    discriminator_steps: int = eqx.field(static=True, default=2)
    """Gradient steps of the discriminator per update."""
    discriminator_lr: float = 1e-3
    """Learning rate of the discriminator's Adam, η."""
    discriminator_hidden: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Hidden layers of the discriminator."""
    gradient_weight: float = 0.0
    """Weight of the discriminator's gradient penalty, w_g."""
    gradient_target: float = 1.0
    """Target norm of the logit's gradient, t."""
    match: Match = eqx.field(static=True, default="obs-act")
    """The discriminator's input: obs-act, or without actions obs or obs-next (with the next observation)."""
    replays: int = eqx.field(static=True, default=0)
    """Episodes of a clone that smooth the expert's side of f (replay estimation). 0: demonstrations alone."""
    rounds: int = eqx.field(static=True, default=62)
    """Training rounds. Metrics are logged once a round."""
    round_steps: int = eqx.field(static=True, default=8192)
    """Environment steps per round, rounded up to whole updates."""
    frequency: int = eqx.field(static=True, default=8192)
    """Environment steps between updates."""
    envs: int = eqx.field(static=True, default=8)
    """Parallel environments per run."""
    buffer_size: int | None = eqx.field(static=True, default=8192)
    """Size of the replay buffer in steps, for f and SAC. None: keep all steps."""
    random_steps: int = eqx.field(static=True, default=0)
    """Random exploration steps at the start of a run. Updates with only random steps train nothing."""

    def __check_init__(self) -> None:
        check_choice(("ppo", "sac"), player=self.player)
        check_choice(FORMS, reward_form=self.reward_form)
        check_kind(PPO, ppo=self.ppo)
        check_positive(discriminator_lr=self.discriminator_lr)
        check_not_negative(gradient_weight=self.gradient_weight, gradient_target=self.gradient_target)
        check_whole(1, expert_batch_size=self.expert_batch_size, discriminator_steps=self.discriminator_steps)
        check_layers(discriminator_hidden=self.discriminator_hidden)
        defaults = {field.name: field.default for field in fields(self)}
        for unused in ("sac", "soft_q") if self.player == "ppo" else ("ppo",):
            if getattr(self, unused) != defaults[unused]:
                other = "sac" if self.player == "ppo" else "ppo"
                raise SettingError(f"{unused} is changed and player is '{self.player}': choose player='{other}'")
        if self.player == "ppo" and (self.random_steps or self.staleness):
            raise SettingError(
                f"random_steps is {self.random_steps} and staleness is {self.staleness}: PPO is on-policy, so both "
                "must be 0; or choose player='sac'"
            )
        if self.player == "ppo" and self.deterministic_share is not None:
            raise SettingError(
                f"deterministic_share is {self.deterministic_share}: PPO learns from the noise of its own actions, so "
                "leave it out; or choose player='sac'"
            )

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> Discriminator:
        net = MLP.init(key, kernel.directions.shape[0], self.discriminator_hidden, 1, init="uniform")
        logit = MLPCritic(net, state_action, None)
        memory = gradient(optax.adam(self.discriminator_lr)).init(logit)
        return Discriminator(logit, memory, kernel, jnp.ones(()), jnp.zeros(()), self.reward_form)

    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> Discriminator:
        assert data.replay is not None
        assert data.new_steps is not None
        replay, old = data.replay, state.moments
        assert isinstance(old, Discriminator)
        learner_weight, expert_weight = counts.alive_weights if self.absorbing else (1.0, 1.0)

        chosen = ChosenSteps(replay.steps, learner_rows(replay))

        def loss(logit: Critic, k: Key[Array, ""]) -> Float[Array, ""]:
            expert_key, learner_key, mix_key = jax.random.split(k, 3)
            expert = expert_steps(data.demonstrations, state.expert, expert_key, (self.expert_batch_size,))
            learner = chosen.sample(learner_key, (self.expert_batch_size,))  # line 1
            pair = Pair(old.samples(learner, learner_weight), old.samples(expert, expert_weight))
            return self.loss(logit, pair, mix_key)

        player = repeat(gradient(optax.adam(self.discriminator_lr)), self.discriminator_steps)
        logit, memory, value = player.move(key, old.logit, old.memory, loss)  # line 2
        if replay.ordinary is not None:  # there may be no ordinary step yet
            moved, unmoved = (logit, memory, value), (old.logit, old.memory, old.loss)
            logit, memory, value = jax.tree.map(lambda a, b: jnp.where(chosen.rows.size > 0, a, b), moved, unmoved)
        new = Discriminator(logit, memory, old.kernel, jnp.ones(()), value, self.reward_form)
        if not self.normalize_rewards:
            return new
        rewards, discount = jax.vmap(new.reward)(data.new_steps), self._player(state.normalization).discount
        return eqx.tree_at(lambda m: m.scale, new, returns_std(rewards, data.new_steps.last, discount))

    def loss(self, logit: Critic, pair: Pair, key: Key[Array, ""]) -> Float[Array, ""]:
        """L(g) on weighted samples of both sides, plus the gradient penalty between them."""
        learner, expert = (jax.vmap(logit)(side.t, side.obs, side.act) for side in pair)
        value = pair.learner.weight @ jax.nn.softplus(learner) + pair.expert.weight @ jax.nn.softplus(-expert)
        return value + self.gradient_weight * penalty_between(logit, pair, self.gradient_target, key)

    def _player(self, normalization: Normalization) -> Any:
        return self.ppo if self.player == "ppo" else super()._player(normalization)
