"""ThriftyDAgger: the expert acts, and answers, in novel and in risky states, at a rate that is set in advance.

It matches on-Q moments. Novelty is the doubt of an ensemble (`on_q.gated`). Risk is a learned value: Q(s, a) is the
discounted probability that the task succeeds if the learner goes on after a. The thresholds are quantiles over the
visited states, so that a rate takes the place of units. The expert keeps control until it is safe to hand back:

    Input: queryable expert π_E, demonstrations D_E, rate α, success signal g, discount γ
    1. D ← D_E, V ← ∅, π ← mean of an ensemble of clones of D
    2. for each round:
    3.     roll out; the expert takes over where d(s) > δ_h or Q(s, π(s)) < β_h
    4.         it hands back after a step at which ‖π(s) − π_E(s)‖² ≤ δ_r and Q(s, π(s)) > β_r
    5.     D ← D ∪ {(s, π_E(s))} where π_E acted, V ← V ∪ {all steps (s, a, s')}
    6.     continue training π on D
    7.     Q ← argmin over Q' of the cross-entropy of Q'(s, a) and y, over D_E and V, by gradient steps:
           y = 1 if g(s'), else 0 if the episode ended, else γ Q(s', π(s'))
    8.     δ_h, β_h ← the (1 − α)-quantile of d(s) and the α-quantile of Q(s, π(s)) over V;  β_r ← the median of that
           Q;  δ_r ← the mean of ‖π(s) − a‖² over D

g is what the environment reports (`is_success` in the info; a step within an episode without a report is no success),
"survival" (the episode reaches the time limit without terminating), or a function of the next state, `goal`. An episode
that ends without success has failed, by termination or by truncation. Until V has both successes and failures, Q
cannot tell safe from risky states: novelty decides alone, and the metric `risk_known` is 0. Line 4 compares with the
expert's action only while the expert acts, so it asks nothing more.

Reference: Hoque et al., "ThriftyDAgger: Budget-Aware Novelty and Risk Gating for Interactive Imitation Learning"
(2021). "Of Moments and Matching" does not run it, so no settings of this module are that paper's.

Deviations: the paper updates the thresholds within episodes, and starts with those of roll-outs of the cloned policy;
here they follow each round's training, and start with those of the demonstrations. Q has no target network: y uses Q
itself without a gradient, and cross-entropy keeps it in [0, 1]. Minibatches are not balanced between successes and
other steps. A demonstration's last step counts as a success if the environment reports it, since demonstrations do not
say. With novelty and risk, up to 2α of the states call the expert. Members are trained on Poisson bootstraps.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.algorithms.on_q.gated import SMALL, Cloned, GatedCloning, expert_share
from understudy.algorithms.on_q.querying import QUICK_SIZES
from understudy.core.errors import check_choice, check_inside, check_layers, check_share
from understudy.core.types import Dataset, Info, RoundData, Spec, Transition, appended
from understudy.game import QUICK, Card
from understudy.game.critics import MLPCritic
from understudy.game.players import Memory, Player, gradient, repeat
from understudy.game.sampling import Rows, sample_from_both
from understudy.game.user_code import check_function, yes_or_no
from understudy.policies import Policy

Success = Literal["reported", "survival"]
Goal = Callable[[Array], Bool[Array, ""]]
"""g(s'): one next observation ↦ whether the task is solved there."""
ROWS = 512
"""Visited states from which the quantiles of the thresholds are computed, evenly spaced."""
UNKNOWN = -1


class Thresholds(NamedTuple):
    """δ_h, β_h, β_r and δ_r of lines 3 and 4."""

    novel: Float[Array, ""]
    risky: Float[Array, ""]
    safe: Float[Array, ""]
    agrees: Float[Array, ""]


class ThriftyState(NamedTuple):
    cloned: Cloned
    critic: MLPCritic
    """The logit of Q."""
    critic_memory: Memory
    visited: Dataset
    """V: the steps of all rounds."""
    success: Int[Array, " n"]
    """g(s') of those steps: 1, 0, or UNKNOWN."""
    risk_known: Bool[Array, ""]
    thresholds: Thresholds


class ThriftyDAgger(GatedCloning):
    """DAgger within a rate of interventions: the expert acts and answers in novel and in risky states."""

    card: ClassVar[Card] = Card(
        name="thrifty_dagger",
        title="ThriftyDAgger",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, in which the expert acts and answers where it is novel or risky",
        reference="Hoque et al. 2021",
        fixed=True,
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: QUICK_SIZES}
    small: ClassVar[dict[str, Any]] = {**SMALL, "critic_hidden": (8,)}
    has_critic: ClassVar[bool] = True

    target_rate: float = 0.1
    """α: share of the visited states at which the expert takes over, for novelty and for risk each."""
    success: Success = eqx.field(static=True, default="reported")
    """Success signal. reported: is_success of the environment; survival: the time limit without termination."""
    goal: Goal | None = eqx.field(static=True, default=None)
    """Success signal of your own, in place of `success`: goal(next_obs), whether the task is solved there."""
    discount: float = 0.9999
    """Discount factor γ of the probability of success."""
    critic_hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of Q."""

    def __check_init__(self) -> None:
        check_inside(target_rate=self.target_rate)
        check_choice(get_args(Success), success=self.success)
        check_function(("next_obs",), goal=self.goal)
        check_share(discount=self.discount)
        check_layers(critic_hidden=self.critic_hidden)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> ThriftyState:
        clone_key, critic_key = jax.random.split(key)
        cloned = self.new_ensemble(clone_key, spec, demonstrations)
        critic = MLPCritic.init(critic_key, spec, self.critic_hidden)
        visited = Dataset.empty(demonstrations, max((self.rounds - 1) * self.episodes_per_round * spec.horizon, 1))
        self._solved(jax.tree.map(lambda x: x[0], demonstrations.steps), jnp.ones(()))  # a wrong `goal` raises here
        zero, nobody = jnp.zeros(()), jnp.full(visited.steps.t.shape, UNKNOWN)
        thresholds = Thresholds(zero, zero, zero, zero)
        return ThriftyState(
            cloned, critic, self._risk_player().init(critic), visited, nobody, jnp.array(False), thresholds
        )

    def update(self, state: ThriftyState, data: RoundData, key: Key[Array, ""]) -> tuple[ThriftyState, Info]:
        assert data.rollouts is not None
        clone_key, critic_key = jax.random.split(key)
        cloned, loss = self.fit(state.cloned, data, clone_key)  # lines 1, 5 and 6
        reported = jnp.full(data.rollouts.steps.t.shape, jnp.nan) if data.success is None else data.success
        new = jax.vmap(self._solved)(data.rollouts.steps, reported)
        success = appended(state.success, state.visited.size, new, data.rollouts.size)
        state = state._replace(cloned=cloned, visited=state.visited.extend(data.rollouts), success=success)  # line 5
        ended = state.visited.mask & state.visited.steps.last
        known = (state.visited.mask & (success == 1)).any() & (ended & (success == 0)).any()
        critic, memory, risk_loss = self._fit_risk(state, data.demonstrations, critic_key)  # line 7
        state = state._replace(critic=critic, critic_memory=memory, risk_known=known)
        state = state._replace(thresholds=self._thresholds(state, data.demonstrations))  # line 8
        metrics = {"loss": loss, "risk_loss": risk_loss, "risk_known": known.astype(jnp.float32)}
        metrics |= {"expert_share": expert_share(data), "novelty_threshold": state.thresholds.novel}
        return state, Info(metrics | {"risk_threshold": 1 - state.thresholds.risky})

    def policy(self, state: ThriftyState) -> Policy:
        return state.cloned.policy

    def start_gate(self, state: ThriftyState, index: Array, key: Key[Array, ""]) -> Bool[Array, ""]:
        """Whether the expert has control: not at the start."""
        return jnp.array(False)

    def gate(
        self, state: ThriftyState, carry: Any, obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[Any, Bool[Array, ""], Bool[Array, ""]]:
        """The expert acts if it has control, or in a novel or risky state (line 3)."""
        risky = state.risk_known & (self.chance(state, obs) < state.thresholds.risky)
        acts = carry | (state.cloned.doubt(obs) > state.thresholds.novel) | risky
        return jnp.array(False), acts, acts  # `expert_acted` keeps control, if the expert did act

    def expert_acted(self, state: ThriftyState, carry: Any, obs: Array, act: Array, answer: Array) -> Bool[Array, ""]:
        """Whether the expert keeps control (line 4)."""
        agrees = state.cloned.discrepancy(obs, answer) <= state.thresholds.agrees
        return ~(agrees & (~state.risk_known | (self.chance(state, obs) > state.thresholds.safe)))

    def chance(self, state: ThriftyState, obs: Array) -> Float[Array, ""]:
        """Q(s, π(s))."""
        return jax.nn.sigmoid(self._logit(state.critic, state, obs, state.cloned.mode(obs)))

    def _logit(self, critic: MLPCritic, state: ThriftyState, obs: Array, act: Array) -> Float[Array, ""]:
        coordinates = state.cloned.normalization
        return critic(jnp.zeros((), jnp.int32), coordinates.encode_obs(obs), coordinates.encode_act(act))

    def _solved(self, step: Transition, reported: Float[Array, ""]) -> Int[Array, ""]:
        """g(s') of one step: 1, 0, or UNKNOWN."""
        if self.goal is not None:
            solved = yes_or_no("goal(next_obs)", self.goal, jnp.asarray(step.next_obs))
            return jnp.where(step.known_next, solved.astype(jnp.int32), UNKNOWN)
        if self.success == "survival":
            return (step.last & ~step.terminal).astype(jnp.int32)
        unsaid = jnp.where(step.last, UNKNOWN, 0)  # many environments report at the end of an episode alone
        return jnp.where(jnp.isnan(reported), unsaid, reported > 0).astype(jnp.int32)

    def _fit_risk(
        self, state: ThriftyState, demonstrations: Dataset, key: Key[Array, ""]
    ) -> tuple[MLPCritic, Memory, Float[Array, ""]]:
        demonstrated = jax.vmap(self._solved)(demonstrations.steps, demonstrations.steps.last.astype(jnp.float32))
        first = (demonstrations.steps, demonstrated), Rows(None, demonstrations.size)
        second = (state.visited.steps, state.success), Rows(None, state.visited.size)

        def one(critic: MLPCritic, step: Transition, success: Int[Array, ""]) -> Float[Array, ""]:
            following = jax.nn.sigmoid(self._logit(critic, state, step.next_obs, state.cloned.mode(step.next_obs)))
            known = (success != UNKNOWN) & (step.known_next | step.last)
            target = jnp.where(
                step.last | (success == 1), success == 1, self.discount * jax.lax.stop_gradient(following)
            )
            loss = optax.sigmoid_binary_cross_entropy(self._logit(critic, state, step.obs, step.act), target)
            return jnp.where(known, loss, 0.0)

        def loss(critic: MLPCritic, k: Key[Array, ""]) -> Float[Array, ""]:
            steps, success = sample_from_both(k, self.batch_size, first, second)
            return jax.vmap(one, (None, 0, 0))(critic, steps, success).mean()

        return self._risk_player().move(key, state.critic, state.critic_memory, loss)

    def _thresholds(self, state: ThriftyState, demonstrations: Dataset) -> Thresholds:
        """Those of the visited states; before there are any, of the demonstrated ones (line 8)."""

        def rows(dataset: Dataset) -> Transition:
            at = dataset.evenly_spaced(ROWS)
            return jax.tree.map(lambda x: x[at], dataset.steps)

        shown, visited, answered = (rows(part) for part in (demonstrations, state.visited, state.cloned.aggregated))
        obs = jnp.where(state.visited.size > 0, visited.obs, shown.obs)
        doubts, chances = jax.vmap(state.cloned.doubt)(obs), jax.vmap(lambda s: self.chance(state, s))(obs)
        apart = [jax.vmap(state.cloned.discrepancy)(part.obs, part.act).mean() for part in (shown, answered)]
        share = demonstrations.size / (demonstrations.size + state.cloned.aggregated.size)
        return Thresholds(
            novel=jnp.quantile(doubts, 1 - self.target_rate),
            risky=jnp.quantile(chances, self.target_rate),
            safe=jnp.median(chances),
            agrees=share * apart[0] + (1 - share) * apart[1],
        )

    def _risk_player(self) -> Player:
        return repeat(gradient(optax.adam(self.lr)), self.gradient_steps)
