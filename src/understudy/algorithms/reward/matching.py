"""The loop that reward-moment algorithms share: f moves, and the policy improves by RL on the reward −f.

    1. for round k:
    2.     f ← next_moments(D_π, D_E)            in the first round π first becomes a clone, in `clone_steps` steps
    3.     for each update: collect steps, D_π ← D_π ∪ D', then improve π on rewards −f
    4.     π̄ ← π̄ + ν (π − π̄) after each update
    5.     payoff ← the largest over the unit ball of a Gaussian kernel's function space, of D' against held-out
           demonstrations (`reward.payoff`)
    6. until payoff ≤ δ

The algorithms differ in line 2: AdRIL averages functional gradients, SQIL's f is constant, GAIL's f takes gradient
steps, in every update, and HyPE's once a round. IQ-Learn's f follows from the critics of line 3.

f and the payoff see (s, a), or with `match` only s or (s, s'). Demonstrations then need no actions, if neither
minibatches nor cloning use them (`needs_actions`).

Rewards are computed when steps are sampled, so that a new f relabels all of D_π at once. An episode that terminates
continues in an absorbing state. This state follows itself, so its value is its reward / (1 − γ), without a network.
Without absorbing states, the sign of −f alone makes the learner prolong or end its episodes, whatever the expert does
(docs/absorbing.md). Truncation is not termination: the next state's value counts.

A kernel critic is bounded, so values are bounded too (`Batch.value_bound`). Soft Q-learning clips to that bound, SAC
does with `bound_values`.

With `deterministic_share`, the learner acts by the mean action in a share of its episodes. The returned policy is used
deterministically, and it may come to rest in a state that noise would leave: f and the critics learn of it only from
such episodes.

With probability `start_share` an episode begins at a demonstrated step (`collect.starts`, FILTER). The RL player learns
from all episodes. f, its counts and the payoff are about the policy's own visits, so they see only those episodes that
begin as the environment begins them.

π collects, π̄ is evaluated and, unless fresh episodes speak against it, returned (`train.selection`). π̄ averages the
weights over the updates of the last `average_rounds` rounds, with equal weights until there are that many. In theory
the average policy of a no-regret game is near an equilibrium and the last one need not be; averaging weights is a
heuristic. With `average_rounds` 0, π̄ is π.
"""

from abc import abstractmethod
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.algorithms.reward.defaults import SOFT_Q
from understudy.algorithms.reward.expert import actions_needed
from understudy.algorithms.reward.moments import Counts, RewardMoments
from understudy.algorithms.reward.payoff import NUM_FEATURES, PayoffState
from understudy.core.errors import (
    SettingError,
    check_kind,
    check_not_negative,
    check_positive,
    check_share,
    check_whole,
)
from understudy.core.types import Dataset, Info, RoundData, Spec, Transition
from understudy.game import Algorithm, adjustable
from understudy.game.kernels import GaussianKernel, check_match, matched
from understudy.game.sampling import Rows, sample_from_both, sample_halves, take
from understudy.game.schedule import Schedule
from understudy.policies import Normalized, PartlyDeterministic, Policy
from understudy.policies.normalization import Normalization, Scaling, check_scaling
from understudy.rl.base import Batch, Experience, PlayerState, make_batch, update_when_ready
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ
from understudy.rl.updates import check_lr_schedule


class RewardState(NamedTuple):
    player: PlayerState
    normalization: Normalization
    kernel: GaussianKernel
    moments: RewardMoments
    payoff: PayoffState
    usable: Rows
    """Demonstrated steps with a known next state."""
    expert: Rows
    """Demonstrated steps that f can see."""
    horizon: Int[Array, ""]
    mean: Policy
    """π̄."""


class RewardMatching(Algorithm):
    """Abstract base class of algorithms that match reward moments by RL."""

    every_update: ClassVar[bool] = False
    """Whether f moves in every update. Otherwise it moves once a round."""

    sac: SAC = eqx.field(default=SAC(), converter=adjustable(SAC()))
    """RL player for continuous actions."""
    soft_q: SoftQ = eqx.field(default=SOFT_Q, converter=adjustable(SOFT_Q))
    """RL player for discrete actions."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size."""
    balanced: bool = eqx.field(static=True, default=False)
    """Draw half of each minibatch from the demonstrations; else from all steps, or with `match` obs… the learner's."""
    rounds: int = eqx.field(static=True, default=400)
    """Rounds. f moves once a round."""
    round_steps: int = eqx.field(static=True, default=1250)
    """Environment steps per round, rounded up to whole updates."""
    frequency: int = eqx.field(static=True, default=64)
    """Environment steps between updates."""
    envs: int = eqx.field(static=True, default=1)
    """Parallel environments per run."""
    buffer_size: int | None = eqx.field(static=True, default=None)
    """Size of the replay buffer in steps. None: keep all steps."""
    absorbing: bool = eqx.field(static=True, default=True)
    """Continue terminated episodes in an absorbing state. Otherwise the value after termination is 0."""
    truncation_is_terminal: bool = eqx.field(static=True, default=False)
    """Treat truncation as termination, in the learner's episodes and the demonstrations."""
    reset_each_round: bool = eqx.field(static=True, default=False)
    """Start new episodes at the beginning of each round."""
    random_steps: int = eqx.field(static=True, default=100)
    """Random exploration steps at the start of a run. Updates with only random steps train nothing."""
    random_each_round: bool = eqx.field(static=True, default=False)
    """Take the random exploration steps at the start of every round, not only of the first."""
    restart_lr_schedule: bool = eqx.field(static=True, default=False)
    """Restart the learning rate schedule in each round. Otherwise it runs over the whole run."""
    average_rounds: float = 0.0
    """Average the returned policy's weights over this many rounds (0: off)."""
    obs_scaling: Scaling = eqx.field(static=True, default="scale")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""
    staleness: int = eqx.field(static=True, default=0)
    """Updates by which the acting policy lags the learner (Gymnasium). 1: collect and update at the same time."""
    clone_steps: int = eqx.field(static=True, default=0)
    """Gradient steps of behavioral cloning before the first update, with SAC. 0: the policy starts untrained."""
    deterministic_share: float | None = None
    """Share of the episodes in which the learner acts deterministically, as the returned policy does. None: 0."""
    start_share: float = 0.0
    """Share of the episodes that begin at a demonstrated step. The environment must have `set_state` if above 0."""
    delta: float | None = None
    """δ: stop when a round's payoff is at most this. None: never."""
    loss_limit: float = 1e6
    """Stop when the critic's loss exceeds this."""

    def __check_init__(self) -> None:
        check_kind(SAC, sac=self.sac)
        check_kind(SoftQ, soft_q=self.soft_q)
        check_whole(2 if self.balanced else 1, batch_size=self.batch_size)
        check_positive(loss_limit=self.loss_limit)
        check_whole(0, clone_steps=self.clone_steps)
        check_not_negative(average_rounds=self.average_rounds)
        if self.deterministic_share is not None:
            check_share(deterministic_share=self.deterministic_share)
        if not 0 <= self.start_share < 1:
            raise SettingError(
                f"start_share is {self.start_share!r}: a number from 0 to below 1 is needed, since f is about the "
                "episodes that begin as the environment begins them"
            )
        check_scaling(self.obs_scaling)
        check_match(self.match)
        check_whole(0, replays=self.replays)
        if self.delta is not None:
            check_not_negative(delta=self.delta)
        _ = self.schedule  # checks the other settings

    @property
    def needs_actions(self) -> str | None:
        if "match" not in {field.name for field in fields(self)}:
            return super().needs_actions
        return actions_needed(self)

    @property
    def schedule(self) -> Schedule:
        return Schedule.of(
            self.round_steps,
            self.frequency,
            self.envs,
            self.rounds,
            self.buffer_size,
            self.reset_each_round,
            self.random_steps,
            self.random_each_round,
            self.staleness,
        )

    @abstractmethod
    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> RewardMoments:
        """Line 2: the moment function for the round that begins."""

    @abstractmethod
    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> RewardMoments:
        """The moment function before the first round, with the shapes of all later ones."""

    def kernel_of_f(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> GaussianKernel:
        """The kernel of f's function space, or only the coordinates that f sees."""
        return GaussianKernel.fit(key, spec, demonstrations, NUM_FEATURES, match=self.match)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> RewardState:
        normalization = Normalization.fit(spec, demonstrations, self.obs_scaling)
        # A player's split uses 0 and 1. The payoff's features are not those of f, which the policy has trained on.
        moments_key, f_key, payoff_key = (jax.random.fold_in(key, number) for number in (2, 3, 4))
        payoff_kernel = GaussianKernel.fit(payoff_key, spec, demonstrations, NUM_FEATURES, match=self.match)
        kernel = self.kernel_of_f(f_key, spec, demonstrations)
        player = self._player(normalization)
        updates = self.schedule.updates * (1 if self.restart_lr_schedule else self.rounds)
        check_lr_schedule(player.lr_schedule, updates, self.round_steps, self.frequency)
        state = player.init(key, spec)
        steps = demonstrations.steps
        known = steps.known_next | steps.terminal | (steps.last & self.truncation_is_terminal)
        # States are donated, so no array may appear twice.
        mean = jax.tree.map(jnp.copy, player.policy(state))
        return RewardState(
            state,
            normalization,
            kernel,
            self.initial_moments(kernel, moments_key),
            PayoffState(payoff_kernel, jnp.zeros(NUM_FEATURES), jnp.zeros(())),
            Rows.where(demonstrations.mask & known),
            Rows.where(matched(demonstrations, self.match)),
            jnp.asarray(spec.horizon, jnp.int32),
            mean,
        )

    def update(self, state: RewardState, data: RoundData, key: Key[Array, ""]) -> tuple[RewardState, Info]:
        f_key, player_key = jax.random.split(key)
        clone_key = jax.random.fold_in(key, 2)  # the split uses 0 and 1
        schedule, player = self.schedule, self._player(state.normalization)
        update = jnp.asarray(data.update)
        first_update, last_update = update == 0, update == schedule.updates - 1
        counts = Counts.of(data, state.horizon)
        state = state._replace(payoff=state.payoff.add(data, first_update))

        def move() -> RewardMoments:
            return self.next_moments(state, data, counts, f_key)

        moments = move() if self.every_update else jax.lax.cond(first_update, move, lambda: state.moments)  # line 2
        begins = first_update & (jnp.asarray(data.round) == 0)
        state = state._replace(player=self._started(state, data, player, begins, clone_key), moments=moments)
        experience = self._experience(state, data, moments, counts, player.discount)
        ready = schedule.random_steps_left(data.round, data.update) < schedule.steps_per_env
        improved, metrics = update_when_ready(  # line 3
            player, state.player, experience, self._progress(data), ready, player_key
        )
        mean = self._average(state.mean, player.policy(improved), data)  # line 4
        payoff = state.payoff.value(data, counts)  # line 5
        exploded = metrics["critic_loss" if "critic_loss" in metrics else "value_loss"] > self.loss_limit
        small = jnp.asarray(False) if self.delta is None else last_update & (payoff <= self.delta)  # line 6
        state = state._replace(player=improved, mean=mean)
        metrics = metrics | moments.metrics() | {"payoff": payoff}
        return state, Info(metrics, jnp.where(exploded, 2, jnp.where(small, 1, 0)), exploded, score=payoff)

    def acting_policy(self, state: RewardState) -> Policy:
        newest = self.newest_policy(state)
        share = self.deterministic_share
        return newest if share is None else PartlyDeterministic(newest, jnp.asarray(share, jnp.float32))

    def newest_policy(self, state: RewardState) -> Policy:
        return Normalized(self._player(state.normalization).policy(state.player), state.normalization)

    def policy(self, state: RewardState) -> Policy:
        return Normalized(state.mean, state.normalization)

    def _experience(
        self, state: RewardState, data: RoundData, moments: RewardMoments, counts: Counts, discount: float | Array
    ) -> Experience:
        """Minibatches and new steps with the rewards of `moments`."""
        assert data.new_steps is not None
        absorbing = (
            moments.absorbing_reward(counts, self.balanced) / (1 - discount) if self.absorbing else jnp.zeros(())
        )
        bound = jnp.maximum(moments.bound() / (1 - discount), jnp.abs(absorbing))

        def batch(steps: Transition) -> Batch:
            encoded = state.normalization.encode(steps)
            return make_batch(encoded, moments.reward(steps), self.truncation_is_terminal, absorbing, bound)

        def sample(k: Key[Array, ""]) -> Batch:
            return batch(self._minibatch(state, data, k))

        return Experience(sample, jax.vmap(batch)(data.new_steps), data.new_steps.last)

    def _started(
        self, state: RewardState, data: RoundData, player: Any, begins: Bool[Array, ""], key: Key[Array, ""]
    ) -> PlayerState:
        """The player's state, after cloning if the run begins."""
        if not self.clone_steps:
            return state.player

        def sample(k: Key[Array, ""]) -> Batch:
            steps = state.normalization.encode(data.demonstrations.sample(k, (self.batch_size,)))
            return make_batch(steps, jnp.zeros(self.batch_size), self.truncation_is_terminal)

        cloned = partial(player.clone, state.player, sample, self.clone_steps, key)
        return jax.lax.cond(begins, cloned, lambda: state.player)

    def _minibatch(self, state: RewardState, data: RoundData, key: Key[Array, ""]) -> Transition:
        """Steps of both sides: half of each, or uniform over all. Without actions, steps of the learner."""
        assert data.replay is not None
        if self.match != "obs-act" and not self.balanced:
            return take(data.replay.steps, Rows(None, data.replay.size).sample(key, (self.batch_size,)))
        sample = sample_halves if self.balanced else sample_from_both
        learner = data.replay.steps, Rows(None, data.replay.size)
        return sample(key, self.batch_size, (data.demonstrations.steps, state.usable), learner)

    def _progress(self, data: RoundData) -> Float[Array, ""]:
        """The fraction of the learning rate schedule, after this update."""
        index, rounds = (0, 1) if self.restart_lr_schedule else (data.round, self.rounds)
        return self.schedule.number(index, data.update) / (rounds * self.schedule.updates)

    def _average(self, mean: Policy, newest: Policy, data: RoundData) -> Policy:
        """π̄: the mean over all updates, until there are more than it averages over; then a moving average."""
        number = self.schedule.number(data.round, data.update)
        share = 1 / jnp.clip(jnp.minimum(number, self.average_rounds * self.schedule.updates), 1)
        return optax.incremental_update(newest, mean, share)

    def _player(self, normalization: Normalization) -> Any:
        """The RL player for the task's actions."""
        return self.soft_q if normalization.act_scale is None else self.sac
