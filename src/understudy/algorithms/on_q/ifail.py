"""iFAIL: forward adversarial imitation learning in its interactive form, from observations alone.

It matches on-Q moments. DAgger and DAeQuIL see which action the expert takes in the learner's states; iFAIL sees where
that action leads, and no action. At a few steps of each of the learner's episodes, the probed steps, a coin decides:
either the expert acts for this one step, or an action is drawn uniformly. So the next observations of both sides come
from the same distribution of states, the learner's own at that time. A moment function f compares them:

    Input: expert π_E that acts for a step, policies π_t, actions A, moment functions F = {w · φ: ‖w‖ ≤ 1}
    1. for round i: roll out π; at the probed steps either s' ~ P(s_t, π_E), D_E ← D_E ∪ {(t, s_t, s')},
    2.     or a ~ uniform(A), s' ~ P(s_t, a), D ← D ∪ {(t, s_t, a, s')}
    3.     for each gradient step:
    4.         g ← E_D |A| π_t(a | s) φ − E_{D_E} φ,   f ← g/‖g‖ · φ, the maximum of E_π f − E_{D_E} f over F
    5.         π ← π − η ∇_π { E_D |A| π_t(a | s) (f − E_{D_E} f) − α E_D H(π_t(s)) }

Line 4 is f's best response in closed form, on other samples than line 5. Its value ‖g‖ is an integral probability
metric. With the weights |A| π the policy's loss is linear in π, and steps of all rounds can be used. Subtracting
E_{D_E} f changes no expected gradient, because the weights' mean is 1; it reduces the variance. φ are random features
of a Gaussian kernel over s', as in FAIL (`sees="next"`), or over s_t and s' (`sees="pairs"`, the default). Both sides
observe the learner's own s_t, and without it the effect of one action is lost in the spread of the states.

Forward training (`stride=None`) probes the step t = i − 1 in round i. With `time="steps"` that is FAIL's order: π_t is
trained on round t + 1 alone, and never again. This needs one round for each step. Otherwise round i probes every
`stride`-th step, beginning with i − 1, and π trains on the steps of all rounds: `stride` rounds are a sweep over all t.

Reference: Sun, Vemula, Boots and Bagnell, "Provably Efficient Imitation Learning from Observation Alone" (2019). "Of
Moments and Matching" names iFAIL in its taxonomy and does not run it, so no settings of this module are that paper's.

Deviations: FAIL's comparison samples are demonstrations; here they are single steps of the expert from the learner's
states, and demonstrations only give the scale of observations, so they need no actions. In FAIL f sees s' alone.
FAIL's policy follows the regularised leader with an oracle and is a mixture; here it moves by Adam, and the last one is
returned. FAIL has no sweeps and no network that gets the time (`time="input"`). In a sweep one in `stride` actions on
the way to s_t is a probe, so s_t is nearly the learner's. Continuous actions are restricted to a grid, `bins` values in
each dimension.
"""

from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.core.errors import (
    SettingError,
    check_choice,
    check_fraction,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Continuous, Dataset, Info, RoundData, Spec, appended
from understudy.game import QUICK, Algorithm, Card
from understudy.game.kernels import Match
from understudy.game.next_moments import NextMoments, Probes, best_response, importance, nearest, payoff
from understudy.game.players import gradient, repeat
from understudy.game.sampling import Rows, take
from understudy.policies import Binned, Carry, Categorical, Normalized, Policy, Probing, Timed, TimeIndexed

MOST_ACTIONS = 256
"""Points of the grid of continuous actions, at most: each is an output of the network."""


class IFAILState(NamedTuple):
    policy: Policy
    moments: NextMoments
    stride: Int[Array, ""]
    round: Int[Array, ""]
    """The next round's number."""
    learner: Probes
    learner_size: Int[Array, ""]
    expert: Probes
    expert_size: Int[Array, ""]

    def probed(self, t: Any) -> Any:
        """Whether t is a probed step of the next round."""
        return (t - (self.round - 1)) % self.stride == 0


class IFAIL(Algorithm):
    """Forward adversarial imitation: match where one step of the expert leads from the learner's own states."""

    card: ClassVar[Card] = Card(
        name="ifail",
        title="iFAIL",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes in which the expert acts for single steps",
        reference="Sun et al. 2019",
        observations=True,
    )
    expert_acts: ClassVar[bool] = True
    match: ClassVar[Match] = "obs-next"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "forward": {"time": "steps", "stride": None},
        QUICK: {"gradient_steps": 200, "episodes_per_round": 10},
    }
    small: ClassVar[dict[str, Any]] = {
        "rounds": 3,
        "stride": 2,
        "gradient_steps": 2,
        "batch_size": 8,
        "features": 8,
        "hidden": (8,),
        "episodes_per_round": 2,
    }
    learning: ClassVar[dict[str, Any]] = {
        "rounds": 9,
        "stride": 2,
        "episodes_per_round": 200,
        "bins": 9,
        "sees": "next",
        "bandwidth": 0.5,
        "features": 256,
    }

    sees: Literal["next", "pairs"] = eqx.field(static=True, default="pairs")
    """What f sees. next: the next observation, as in FAIL; pairs: the observation before it, too."""
    time: Literal["none", "input", "steps"] = eqx.field(static=True, default="input")
    """How the policy depends on time. none: not; input: one network gets t/T; steps: one network for each time step."""
    stride: int | None = eqx.field(static=True, default=10)
    """Probe every n-th step of an episode. None: forward training, one step of each episode, in order of the rounds."""
    bins: int = eqx.field(static=True, default=7)
    """Continuous actions: values in each dimension, evenly spaced over the range."""
    expert_share: float = 0.5
    """Probability that the expert acts at a probed step; else the action is uniform."""
    bandwidth: float = 0.2
    """Bandwidth of f's kernel, in multiples of the usual distance of demonstrated points."""
    time_bandwidth: float | None = None
    """Bandwidth of f's kernel in time, in steps. None: f does not see the time."""
    entropy_weight: float = 1e-3
    """Weight of the policy's entropy, α."""
    lr: float = 1e-3
    """Learning rate of Adam, η."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size: learner's steps for each half of a gradient step."""
    features: int = eqx.field(static=True, default=512)
    """Random features of f's kernel, D."""
    rounds: int = eqx.field(static=True, default=11)
    """Rounds. The first collects nothing."""
    episodes_per_round: int = eqx.field(static=True, default=20)
    """Episodes collected per round."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Gradient steps per round. f best-responds in each."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers."""

    def __check_init__(self) -> None:
        check_choice(("next", "pairs"), sees=self.sees)
        check_choice(("none", "input", "steps"), time=self.time)
        check_whole(2, bins=self.bins, rounds=self.rounds)
        if self.stride is not None:
            check_whole(2, stride=self.stride)
        check_fraction(expert_share=self.expert_share)
        check_positive(expert_share=self.expert_share, bandwidth=self.bandwidth, lr=self.lr)
        if self.time_bandwidth is not None:
            check_positive(time_bandwidth=self.time_bandwidth)
        check_not_negative(entropy_weight=self.entropy_weight)
        check_whole(1, batch_size=self.batch_size, features=self.features, gradient_steps=self.gradient_steps)
        check_whole(1, episodes_per_round=self.episodes_per_round)
        check_layers(hidden=self.hidden)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> IFAILState:
        policy_key, moments_key = jax.random.split(key)
        stride = min(self.stride or spec.horizon, spec.horizon)
        if self.rounds <= stride:
            raise SettingError(
                f"rounds is {self.rounds}, and it takes {stride} rounds after the first to probe all {spec.horizon} "
                f"time steps: set rounds to at least {stride + 1}, or stride to at most {self.rounds - 1}"
            )
        policy = self._new_policy(policy_key, spec)
        rounds = 1 if self.forward else self.rounds - 1
        capacity = rounds * self.episodes_per_round * -(-spec.horizon // stride)
        steps = Dataset.empty(demonstrations, capacity).steps
        empty, none = (
            Probes(steps.t, steps.obs, steps.next_obs, jnp.zeros(capacity, jnp.int32)),
            jnp.zeros((), jnp.int32),
        )
        moments = NextMoments.fit(
            moments_key, spec, demonstrations, self.features, self.bandwidth, self.time_bandwidth, self.sees == "pairs"
        )
        return IFAILState(policy, moments, jnp.asarray(stride, jnp.int32), none, empty, none, empty, none)

    def update(self, state: IFAILState, data: RoundData, key: Key[Array, ""]) -> tuple[IFAILState, Info]:
        assert data.rollouts is not None
        assert data.answered is not None
        state = self._collected(state, data.rollouts, data.answered)
        moments, rows = state.moments, Rows(None, state.learner_size)
        weigh = partial(importance, normalization=moments.normalization)
        mean = moments.mean(state.expert, state.expert_size)  # E_{D_E} φ
        gap = moments.mean(state.learner, state.learner_size, lambda steps: weigh(state.policy, steps)[0]) - mean

        def loss(policy: Policy, k: Key[Array, ""]) -> Float[Array, ""]:
            first, second = (take(state.learner, rows.sample(one, (self.batch_size,))) for one in jax.random.split(k))
            f = best_response(weigh(jax.lax.stop_gradient(policy), first)[0], moments(first), mean)  # line 4
            weights, entropy = weigh(policy, second)
            return payoff(weights, moments(second), mean, f) - self.entropy_weight * entropy.mean()

        player = repeat(gradient(optax.adam(self.lr)), self.gradient_steps)
        policy, _, value = player.move(key, state.policy, player.init(state.policy), loss)  # lines 3 to 5
        ready = (state.learner_size > 0) & (state.expert_size > 0)
        policy = jax.tree.map(lambda old, new: jnp.where(ready, new, old), state.policy, policy)
        metrics = {"payoff": jnp.where(ready, jnp.linalg.norm(gap), 0), "loss": jnp.where(ready, value, 0)}
        return state._replace(policy=policy, round=state.round + 1), Info(metrics)

    def policy(self, state: IFAILState) -> Policy:
        return Normalized(state.policy, state.moments.normalization)

    def acting_policy(self, state: IFAILState) -> Policy:
        uniform = Normalized(jax.tree.map(jnp.zeros_like, state.policy), state.moments.normalization)
        return Probing(self.policy(state), uniform, state.round - 1, state.stride)

    @property
    def needs_actions(self) -> None:
        """None: demonstrations only give the scale of observations."""

    @property
    def forward(self) -> bool:
        """Whether each round has a policy of its own and trains on its own steps."""
        return self.stride is None and self.time == "steps"

    def start_gate(self, state: IFAILState, index: Array, key: Key[Array, ""]) -> Int[Array, ""]:
        """The time step."""
        return jnp.zeros((), jnp.int32)

    def gate(
        self, state: IFAILState, carry: Int[Array, ""], obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """At a probed step the expert acts with probability `expert_share` (line 1)."""
        expert_acts = state.probed(carry) & (jax.random.uniform(key) < self.expert_share)
        return carry + 1, jnp.asarray(False), expert_acts

    def _collected(self, state: IFAILState, rollouts: Dataset, answered: Bool[Array, " n"]) -> IFAILState:
        """With the round's probed steps. Of the expert's steps, only the observations are kept (lines 1 and 2)."""
        steps, normalization = rollouts.steps, state.moments.normalization
        probed = rollouts.mask & state.probed(steps.t) & answered.any()  # one side alone would shift the payoff
        zero, capacity = jnp.zeros((), jnp.int32), state.learner.t.shape[0]
        points, _ = state.policy.support(Carry(zero, zero), normalization.encode_obs(steps.obs[0]), jax.random.key(0))

        def added(old: Probes, size: Int[Array, ""], mask: Bool[Array, " n"], numbered: bool) -> tuple[Probes, Array]:
            found = Rows.where(mask)
            own = take(steps, found.row(jnp.arange(min(capacity, len(mask)))))
            choice = jnp.zeros(own.t.shape, jnp.int32)
            if numbered:
                choice = jax.vmap(nearest, (None, 0))(points, normalization.encode_act(own.act))
            size = zero if self.forward else size
            new = appended(old, size, Probes(own.t, own.obs, own.next_obs, choice), found.size)
            return new, jnp.minimum(size + found.size, capacity)

        learner, learner_size = added(state.learner, state.learner_size, probed & ~answered, True)
        expert, expert_size = added(state.expert, state.expert_size, probed & answered, False)
        return state._replace(learner=learner, learner_size=learner_size, expert=expert, expert_size=expert_size)

    def _new_policy(self, key: Key[Array, ""], spec: Spec) -> Policy:
        """A network over the actions, or over the points of a grid, that sees the time as `time` says."""
        inputs, seen = spec.obs_size, spec.policy_obs
        if self.time == "input":
            inputs, seen = inputs + 1, None if seen is None else (*seen, inputs)

        def one(k: Key[Array, ""]) -> Policy:
            if isinstance(spec.action, Continuous):
                return Binned.init(k, inputs, spec.action_size, self.bins, self.hidden, seen)
            return Categorical.init(k, inputs, spec.action_size, self.hidden, input_indices=seen)

        if isinstance(spec.action, Continuous) and self.bins**spec.action_size > MOST_ACTIONS:
            most = int(MOST_ACTIONS ** (1 / spec.action_size) + 1e-9)
            raise SettingError(
                f"bins is {self.bins}, which makes {self.bins**spec.action_size:,} combinations in "
                f"{spec.action_size} dimensions, and at most {MOST_ACTIONS} are allowed: "
                + (f"set bins to at most {most}" if most > 1 else "use DAgger or DAeQuIL, which need no grid")
            )
        if self.time == "steps":
            return TimeIndexed(jax.vmap(one)(jax.random.split(key, spec.horizon)))
        return Timed(one(key), spec.horizon) if self.time == "input" else one(key)
