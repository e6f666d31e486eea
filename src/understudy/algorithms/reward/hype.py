"""HyPE: moment matching whose RL player also learns from the expert's steps (hybrid reinforcement learning).

It matches reward moments and solves the dual game: the moment function f, a network, takes a few gradient steps once a
round, and the policy responds by RL. The payoff is an integral probability metric, not GAIL's logistic loss,

    U(f) = E_π f − E_E f

and a gradient penalty keeps f smooth. In the loop of `matching`:

    1. for round k:
    2.     `discriminator_steps` times, on a minibatch of the last round's steps and one of D_E:
               f ← f + η ∇ [ U(f) − w_g E (‖∇f‖ − t)² ]
    3.     for each update: collect steps, D_π ← D_π ∪ D', then improve π on minibatches of which half are steps of D_E
           and half are steps of D_π, both with the reward −f of now, clipped to ± `clip`

An RL player that starts from nothing has to find the expert's states by exploration. Here half of its minibatch is
already there, so the policy only has to be as good as the expert, not the best one anywhere. SQIL's minibatches are the
same, with fixed rewards.

An episode that terminates continues in an absorbing state. It is a point of f's input space: its state and action are
0, and another input, 0 elsewhere, is 1. A side that spends a share p of its time there has it in a share p of its
samples, so a constant added to f changes nothing, and the penalty between the sides bounds how far its value is from
the others (docs/absorbing.md). The first round has the reward of an untrained f, because there are no learner's steps
yet.

Reference: Ren, Swamy, Wu, Bagnell and Choudhury, "Hybrid Inverse Reinforcement Learning" (2024), the model-free
algorithm. SAC has the settings of its released runs, which are those of Table 10 of "Of Moments and Matching"; the
learning rate of f is theirs too.

Deviations: absorbing states are ours. f moves by Adam with a constant learning rate, several times every 1,250
environment steps; in the released runs by one step of optimistic Adam every 10,000, with a decreasing learning rate and
minibatches of 4,096. f sees the steps of the last round, which the policy collected while it changed and explored;
there it sees new episodes of the last policy. The expert's share of a minibatch is a half; there it changes during
training.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.algorithms.reward.expert import expert_steps
from understudy.algorithms.reward.matching import QUICK_PLAYERS, SMALL, STOP_REASONS, RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, RewardMoments, count_steps, samples_in
from understudy.core.errors import check_layers, check_not_negative, check_positive, check_whole
from understudy.core.types import Dataset, Pair, RoundData, Samples, Transition
from understudy.game import QUICK, Card
from understudy.game.critics import Critic, MLPCritic, penalty_between
from understudy.game.features import state_action
from understudy.game.kernels import GaussianKernel, Match
from understudy.game.players import Memory, gradient, repeat
from understudy.game.sampling import take
from understudy.policies.networks import MLP


class HyPE(RewardMatching):
    """Hybrid inverse RL: moment matching, with RL on equally many steps of learner and expert."""

    card: ClassVar[Card] = Card(
        name="hype",
        title="HyPE",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Ren et al. 2024",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        QUICK: {**QUICK_PLAYERS, "rounds": 16, "discriminator_hidden": (64, 64)},
    }
    small: ClassVar[dict[str, Any]] = {
        **SMALL,
        "discriminator_batch_size": 8,
        "discriminator_hidden": (8,),
        "discriminator_steps": 1,
    }
    learning: ClassVar[dict[str, Any]] = {
        "rounds": 16,
        "round_steps": 128,
        "discriminator_hidden": (32,),
        "discriminator_lr": 3e-3,
    }

    balanced: bool = eqx.field(static=True, default=True)
    """Draw half of each minibatch from the demonstrations. Otherwise draw uniformly from all steps."""
    discriminator_batch_size: int = eqx.field(static=True, default=256)
    """Steps of the expert in a minibatch of f, and as many of the learner."""
    discriminator_steps: int = eqx.field(static=True, default=100)
    """Gradient steps of f per round."""
    discriminator_lr: float = 8e-4
    """Learning rate of f's Adam, η."""
    discriminator_hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of f."""
    gradient_weight: float = 10.0
    """Weight of f's gradient penalty, w_g."""
    gradient_target: float = 1.0
    """Target norm of f's gradient, t."""
    match: Match = eqx.field(static=True, default="obs-act")
    """The part of a step that f compares: obs-act, or without actions obs or obs-next (with the next observation)."""
    replays: int = eqx.field(static=True, default=0)
    """Episodes of a clone that smooth the expert's side of f (replay estimation). 0: demonstrations alone."""
    clip: float = 40.0
    """Clip rewards to ± this."""

    def __check_init__(self) -> None:
        check_positive(discriminator_lr=self.discriminator_lr, clip=self.clip)
        check_not_negative(gradient_weight=self.gradient_weight, gradient_target=self.gradient_target)
        check_whole(1, discriminator_batch_size=self.discriminator_batch_size)
        check_whole(1, discriminator_steps=self.discriminator_steps)
        check_layers(discriminator_hidden=self.discriminator_hidden)
        if self.buffer_size is not None:  # f needs the round before in the buffer
            check_whole(2 * self.schedule.round_steps, buffer_size=self.buffer_size)

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> "Moments":
        size = kernel.directions.shape[0] + 1  # and the mark of the absorbing state
        critic = MLPCritic(MLP.init(key, size, self.discriminator_hidden, 1, init="uniform"), state_action, None)
        memory = gradient(optax.adam(self.discriminator_lr)).init(critic)
        return Moments(critic, memory, kernel, jnp.asarray(self.clip, jnp.float32), jnp.zeros(()))

    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> "Moments":
        assert data.replay is not None
        replay, old = data.replay, state.moments
        assert isinstance(old, Moments)
        first, size = (data.round - 1) * self.schedule.round_steps, self.schedule.round_steps
        last_round = take(replay.steps, (first + jnp.arange(size)) % self.schedule.capacity)
        own = count_steps(last_round, jnp.ones(size, bool), state.horizon).absorbing_share
        shares = (own, counts.expert.absorbing_share) if self.absorbing else (0.0, 0.0)

        def loss(critic: Critic, k: Key[Array, ""]) -> Float[Array, ""]:
            learner_key, expert_key, mix_key = jax.random.split(k, 3)
            learner = self._draw(old, Dataset(last_round, jnp.asarray(size)).sample, shares[0], learner_key)
            expert = self._draw(old, partial(expert_steps, data.demonstrations, state.expert), shares[1], expert_key)
            return self.loss(critic, Pair(learner, expert), mix_key)

        def move() -> Moments:
            player = repeat(gradient(optax.adam(self.discriminator_lr)), self.discriminator_steps)
            critic, memory, value = player.move(key, old.critic, old.memory, loss)  # line 2
            return replace(old, critic=critic, memory=memory, loss=value)

        return jax.lax.cond(counts.earlier.steps > 0, move, lambda: old)

    def loss(self, critic: Critic, pair: Pair, key: Key[Array, ""]) -> Float[Array, ""]:
        """−U(f) plus the gradient penalty between the two sides."""
        learner, expert = (side.weight @ jax.vmap(critic)(side.t, side.obs, side.act) for side in pair)
        return expert - learner + self.gradient_weight * penalty_between(critic, pair, self.gradient_target, key)

    def _draw(
        self,
        moments: "Moments",
        sample: Callable[[Key[Array, ""], tuple[int, ...]], Transition],
        absorbing_share: float | Float[Array, ""],
        key: Key[Array, ""],
    ) -> Samples:
        """A minibatch of one side, a share of it in the absorbing state."""
        step_key, mark_key = jax.random.split(key)
        shape = (self.discriminator_batch_size,)
        return moments.samples(sample(step_key, shape), jax.random.bernoulli(mark_key, absorbing_share, shape))


class Moments(RewardMoments):
    """f, with another input that marks the absorbing state."""

    critic: Critic
    memory: Memory
    """Optimizer state of f."""
    kernel: GaussianKernel
    """Defines the coordinates of f's inputs."""
    clip: Float[Array, ""]
    loss: Float[Array, ""]
    """Mean loss over the gradient steps of the last round."""

    def samples(self, steps: Transition, absorbed: Bool[Array, " n"]) -> Samples:
        """Steps in f's coordinates, or the absorbing state in their place."""
        plain, mark = samples_in(self.kernel, steps, 1.0), absorbed[:, None]
        obs = jnp.concatenate([jnp.where(mark, 0, plain.obs), mark.astype(plain.obs.dtype)], axis=1)
        return plain._replace(obs=obs, act=jnp.where(mark, 0, plain.act))

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        points = self.samples(steps, jnp.zeros(steps.t.shape, bool))
        return self._clipped(jax.vmap(self.critic)(points.t, points.obs, points.act))

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        size = self.kernel.normalization.obs_mean.shape[0]
        obs, act = jnp.append(jnp.zeros(size), 1.0), jnp.zeros(self.kernel.directions.shape[0] - size)
        return self._clipped(self.critic(jnp.zeros((), jnp.int32), obs, act))

    def bound(self) -> Float[Array, ""]:
        return self.clip

    def metrics(self) -> dict[str, Float[Array, ""]]:
        return {"discriminator_loss": self.loss}

    def _clipped(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.clip(-f, -self.clip, self.clip)
