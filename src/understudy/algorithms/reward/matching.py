"""The dual game on reward moments: the moment function moves once a round, the policy best-responds by RL.

    1. for round k:
    2.     f ← what the algorithm makes of D_π and D_E (`moves`)
    3.     for each turn: play some steps, D_π ← D_π ∪ D', then π improves on rewards −f
    4.     π̄ ← π̄ + ν (π − π̄) after each turn
    5.     payoff ← the largest over the unit ball of a Gaussian kernel's space, of D' against held-out demonstrations
    6. until payoff ≤ δ

What sets the algorithms of this folder apart is line 2 alone: AdRIL averages functional gradients, SQIL never moves,
GAIL takes gradient steps, in every turn.

Steps are labelled when they are sampled, so that all of D_π is relabelled at once when f moves. An episode that ends in
a terminal state goes on in an absorbing state, which has a reward like any other and needs no network: it follows
itself, so its value is r / (1 − γ). Without it, the sign of −f alone would make the learner live long or end early,
whatever the expert does (docs/absorbing.md). A time limit ends the record and not the task: the value of the state
after it counts.

What |f| is nowhere above is known of a kernel's, and with it what any state can be worth at the most, for ever: players
may hold their values to it (`Batch.most`), and soft Q-learning does.

π plays, π̄ is evaluated and handed over: a moving mean of weights, over the turns of the last `averaging` rounds, of all
turns alike until there are so many. The mean of a no-regret game's policies is near an equilibrium where its last one
need not be; that of their weights is a heuristic. Where `averaging` is 0, π̄ is π.

The payoff of line 5, of what π played, is the one that is logged, stops at δ and selects the policy that is handed
over. That of the algorithm's own f would not do: with an indicator kernel on continuous data it is a constant.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from understudy.algorithms.reward.moments import Moments, Sides, counted, expert_side
from understudy.core.errors import SettingError, check_kind, check_not_negative, check_positive, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec, Transition
from understudy.game import Algorithm, adjustable
from understudy.game.kernels import GaussianKernel
from understudy.game.schedule import Schedule
from understudy.policies import Normalized, Policy
from understudy.policies.normalization import Normalization
from understudy.rl.base import Batch, Experience, PlayerState, labelled, update_when_ready
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

FEATURES = 512
"""Random features of the kernel that the payoff is measured with."""
UNJUDGED = 1e30
"""The payoff before any round is over."""
SOFT_Q = SoftQ(discount=0.98, tau=0.02, target_entropy=0.1)
"""γ and τ are those of Tables 9 and 10, as SAC has them. Values of an f that has moved since fade in 1 / (τ (1 − γ))
gradient steps: 2,500, two rounds. Rewards drawn from all steps alike shrink as steps are added, and the temperature
must follow, or in the end entropy alone pays for life (docs/absorbing.md)."""
STOP_REASONS = ("the payoff fell to delta", "the critic's loss exploded")


class Tally(NamedTuple):
    """Sums of kernel features over the learner's steps."""

    round: Float[Array, " D"]
    """Of the round under way."""
    before: Float[Array, " D"]
    """Of earlier rounds."""


class RewardState(NamedTuple):
    player: PlayerState
    normalization: Normalization
    kernel: GaussianKernel
    moments: Moments
    tally: Tally
    usable: Int[Array, " n"]
    """Demonstrated steps that a value can be learned from, in front."""
    usable_count: Int[Array, ""]
    horizon: Int[Array, ""]
    mean: Policy
    """π̄."""
    best: Policy
    """That after the round of smallest payoff."""
    payoff: Float[Array, ""]


class RewardMatching(Algorithm):
    """Abstract: what algorithms that match reward moments by RL have in common."""

    every_update: ClassVar[bool] = False
    """Whether f moves in each turn, and not once a round."""

    sac: SAC = eqx.field(default=SAC(), converter=adjustable(SAC()))
    """The policy player, for continuous actions."""
    soft_q: SoftQ = eqx.field(default=SOFT_Q, converter=adjustable(SOFT_Q))
    """The policy player, for discrete actions."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps in a minibatch."""
    balanced: bool = eqx.field(static=True, default=False)
    """Half of a minibatch from the demonstrations; else drawn from all steps alike."""
    rounds: int = eqx.field(static=True, default=400)
    """Rounds: f moves once in each."""
    round_steps: int = eqx.field(static=True, default=1250)
    """Environment steps in a round, rounded up to whole turns: how often f moves."""
    frequency: int = eqx.field(static=True, default=64)
    """Environment steps of a run in a turn, between updates."""
    envs: int = eqx.field(static=True, default=1)
    """Environments of a run that step together."""
    buffer_size: int | None = eqx.field(static=True, default=None)
    """Steps of a run that are remembered; none: all."""
    absorbing: bool = eqx.field(static=True, default=True)
    """Ended episodes go on in an absorbing state; else nothing follows them."""
    truncation_is_terminal: bool = eqx.field(static=True, default=False)
    """Time limits are taken for ends, of the learner's episodes and of the demonstrations: nothing follows them."""
    reset_each_round: bool = eqx.field(static=True, default=False)
    """Each round begins with new episodes."""
    random_steps: int = eqx.field(static=True, default=100)
    """Steps at the start of a run that take any action; nothing is learned in turns with no others."""
    random_each_round: bool = eqx.field(static=True, default=False)
    """At the start of each round, not only of the first."""
    restart_lr_schedule: bool = eqx.field(static=True, default=False)
    """The learning rate's schedule runs within each round, not over the whole run."""
    average_rounds: float = 0.0
    """Rounds that the policy that is handed over is a moving mean of; 0: it is the last."""
    normalize_obs: bool = eqx.field(static=True, default=False)
    """Standardise states with the demonstrations."""
    staleness: int = eqx.field(static=True, default=0)
    """Updates that the policy that plays is behind, in a Gymnasium environment: 1 lets both go on at once."""
    delta: float | None = None
    """Stop when a round's payoff is at most this."""
    loss_limit: float = 1e6
    """Stop when the critic's loss is above this."""

    def __check_init__(self) -> None:
        check_kind(SAC, sac=self.sac)
        check_kind(SoftQ, soft_q=self.soft_q)
        check_whole(2 if self.balanced else 1, batch_size=self.batch_size)
        check_positive(loss_limit=self.loss_limit)
        check_not_negative(average_rounds=self.average_rounds)
        if self.delta is not None:
            check_not_negative(delta=self.delta)
        _ = self.schedule  # which checks the rest

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
    def moves(self, state: RewardState, data: RoundData, sides: Sides, key: Key[Array, ""]) -> Moments:
        """Line 2: the moment function of the round that begins."""

    @abstractmethod
    def first(self, kernel: GaussianKernel, key: Key[Array, ""]) -> Moments:
        """The moment function before the first round: its shapes and, where it learns, what it starts from."""

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> RewardState:
        normalization = Normalization.fit(spec, demonstrations, self.normalize_obs)
        kernel = GaussianKernel.fit(spec, demonstrations, FEATURES)
        self._check_schedule(self._player(normalization))
        player = self._player(normalization).init(key, spec)
        steps = demonstrations.steps
        known = steps.known_next | steps.terminal | (steps.last & self.truncation_is_terminal)
        usable = demonstrations.mask & known
        none = jnp.zeros(FEATURES)
        # States are donated: no array may be in one twice.
        mean, best = (jax.tree.map(jnp.copy, self._player(normalization).policy(player)) for _ in range(2))
        return RewardState(
            player,
            normalization,
            kernel,
            self.first(kernel, jax.random.fold_in(key, 2)),  # 0 and 1 are those that a player splits off
            Tally(none, jnp.zeros(FEATURES)),
            jnp.argsort(~usable, stable=True).astype(jnp.int32),
            usable.sum().astype(jnp.int32),
            jnp.asarray(spec.horizon, jnp.int32),
            mean,
            best,
            jnp.asarray(UNJUDGED),
        )

    def update(self, state: RewardState, data: RoundData, key: Key[Array, ""]) -> tuple[RewardState, Info]:
        assert data.replay is not None
        assert data.new_steps is not None
        f_key, player_key = jax.random.split(key)
        schedule, player = self.schedule, self._player(state.normalization)
        opening, closing = jnp.asarray(data.update) == 0, jnp.asarray(data.update) == schedule.updates - 1
        sides, tally = self._sides(state, data), _added(state, data.new_steps, opening)

        def move() -> Moments:
            return self.moves(state._replace(tally=tally), data, sides, f_key)

        moments = move() if self.every_update else jax.lax.cond(opening, move, lambda: state.moments)  # line 2
        rest = moments.at_rest(sides, self.balanced) / (1 - player.discount) if self.absorbing else jnp.zeros(())
        most = jnp.maximum(moments.bound() / (1 - player.discount), jnp.abs(rest))

        def paid(steps: Transition) -> Batch:
            return labelled(
                state.normalization.encode(steps), moments.reward(steps), self.truncation_is_terminal, rest, most
            )

        def sample(k: Key[Array, ""]) -> Batch:
            return paid(self._minibatch(state, data, k))

        turns = (data.update, schedule.updates) if self.restart_lr_schedule else _overall(data, schedule, self.rounds)
        progress = (jnp.asarray(turns[0], jnp.float32) + 1) / turns[1]
        experience = Experience(sample, jax.vmap(paid)(data.new_steps), data.new_steps.last)
        warm = schedule.random_steps_left(data.round, data.update) < schedule.steps_per_env
        improved, metrics = update_when_ready(player, state.player, experience, progress, warm, player_key)  # line 3
        mean = self._mean(state.mean, player.policy(improved), data)  # line 4
        taken = (jnp.asarray(data.update, jnp.float32) + 1) * schedule.update_steps
        payoff = _payoff(state, data, tally.round / taken, sides)  # line 5
        better = closing & (payoff < state.payoff)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), mean, state.best)
        new = state._replace(
            player=improved,
            moments=moments,
            tally=tally,
            mean=mean,
            best=best,
            payoff=jnp.where(better, payoff, state.payoff),
        )
        exploded = metrics["critic_loss" if "critic_loss" in metrics else "value_loss"] > self.loss_limit
        small = jnp.asarray(False) if self.delta is None else closing & (payoff <= self.delta)  # line 6
        told = metrics | moments.metrics() | {"payoff": payoff}
        return new, Info(told, jnp.where(exploded, 2, jnp.where(small, 1, 0)), exploded)

    def acting_policy(self, state: RewardState) -> Policy:
        return Normalized(self._player(state.normalization).policy(state.player), state.normalization)

    def policy(self, state: RewardState) -> Policy:
        return Normalized(state.mean, state.normalization)

    def final_policy(self, state: RewardState) -> Policy:
        """The policy after the round of smallest payoff; before a round is over, the policy as it is."""
        judged = state.payoff < UNJUDGED
        return Normalized(
            jax.tree.map(lambda b, p: jnp.where(judged, b, p), state.best, state.mean), state.normalization
        )

    def final_payoff(self, state: RewardState) -> float | None:
        return float(state.payoff) if state.payoff < UNJUDGED else None

    def _mean(self, mean: Policy, last: Policy, data: RoundData) -> Policy:
        """π̄: of all turns alike, until there are more than it is a mean of."""
        turns = self.schedule.updates
        number = jnp.asarray(data.round * turns + data.update + 1, jnp.float32)
        share = 1 / jnp.clip(jnp.minimum(number, self.average_rounds * turns), 1)
        return optax.incremental_update(last, mean, share)

    def _check_schedule(self, player: Any) -> None:
        """Refuse a learning rate that is 0 throughout, as it is in the last turn of a schedule that falls to it."""
        turns = self.schedule.updates * (1 if self.restart_lr_schedule else self.rounds)
        if player.lr_schedule == "linear" and turns == 1:
            raise SettingError(
                f"round_steps is {self.round_steps}, one turn of {self.frequency}: the learning rate falls to 0 within "
                f"{'each round' if self.restart_lr_schedule else 'the only round'}, so nothing would be learned; give two "
                "turns or more"
            )

    def _player(self, normalization: Normalization) -> Any:
        return self.soft_q if normalization.act_scale is None else self.sac

    def _minibatch(self, state: RewardState, data: RoundData, key: Key[Array, ""]) -> Transition:
        """Steps of both sides: half of each, or drawn from all alike."""
        assert data.replay is not None
        shown, played = data.demonstrations.steps, data.replay.steps
        if self.balanced:
            half = self.batch_size // 2
            places = jax.random.randint(
                key,
                (self.batch_size,),
                0,
                jnp.where(jnp.arange(self.batch_size) < half, state.usable_count, data.replay.size),
            )
            first, second = state.usable[places[:half]], places[half:]
            return jax.tree.map(lambda a, b: jnp.concatenate([a[first], b[second]]), shown, played)
        index = jax.random.randint(key, (self.batch_size,), 0, state.usable_count + data.replay.size)
        of_expert = index < state.usable_count
        first = state.usable[jnp.minimum(index, state.usable_count - 1)]
        second = jnp.maximum(index - state.usable_count, 0)

        def pick(a: Array, b: Array) -> Array:
            chosen = a[first]
            return jnp.where(of_expert.reshape(-1, *(1,) * (chosen.ndim - 1)), chosen, b[second])

        return jax.tree.map(pick, shown, played)

    def _sides(self, state: RewardState, data: RoundData) -> Sides:
        assert data.replay is not None
        steps, shown = data.replay.steps, data.demonstrations
        real = jnp.arange(steps.t.shape[0]) < data.replay.size
        earlier = counted(steps, real & (steps.round < data.round), state.horizon)
        current = counted(steps, real & (steps.round == data.round), state.horizon)
        return Sides(expert_side(shown, data.held_out, state.horizon), earlier, current)


def _payoff(state: RewardState, data: RoundData, ours: Float[Array, " D"], sides: Sides) -> Float[Array, ""]:
    """‖E k(x, ·) over the round's steps − E k(x, ·) over held-out steps‖, absorbing states included.

    `ours` is the first mean, in features.
    """
    unseen = data.demonstrations if data.held_out is None else data.held_out
    some = unseen.sample(jax.random.key(0), (FEATURES,))  # the same ones in every round
    theirs = state.kernel.features(state.kernel.points(some)).mean(0)
    return distance(ours, theirs, sides.current.absorbing_share, sides.expert.absorbing_share)


def distance(
    ours: Float[Array, " D"],
    theirs: Float[Array, " D"],
    at_rest: float | Float[Array, ""],
    they_rest: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Between two means of features, each of a side that is at rest for a share of its time.

    The absorbing state is far from all others: it adds the difference of the two shares, squared.
    """
    apart = (1 - at_rest) * ours - (1 - they_rest) * theirs
    return jnp.sqrt(jnp.sum(apart**2) + (at_rest - they_rest) ** 2)


def _added(state: RewardState, new_steps: Transition, opening: Array) -> Tally:
    """The sums with a turn's steps; a new round's begin at zero."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), new_steps)
    new = state.kernel.features(state.kernel.points(flat)).sum(0)
    before = jnp.where(opening, state.tally.before + state.tally.round, state.tally.before)
    return Tally(jnp.where(opening, 0, state.tally.round) + new, before)


def _overall(data: RoundData, schedule: Schedule, rounds: int) -> tuple[Array | int, int]:
    return data.round * schedule.updates + data.update, rounds * schedule.updates
