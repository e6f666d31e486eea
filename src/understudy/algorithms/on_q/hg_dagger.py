"""HG-DAgger: somebody watches the learner, takes over when it goes wrong, and hands back; only these steps are answers.

It matches on-Q moments. The expert, not the learner, decides where it acts, so nobody is interrupted by questions, and
a person who acts for a while labels better than one who labels without controlling. An ensemble measures how much
doubt the learner was in when somebody took over:

    Input: expert π_E with a take-over rule g, demonstrations D_E
    1. D ← D_E, I ← (), π ← mean of an ensemble of clones of D        (`on_q.gated`)
    2. for each round:
    3.     roll out: π_E acts from a step with g(s, π(s)) = 1 until `hold` steps after the last such step, π elsewhere
    4.     D ← D ∪ {(s, π_E(s))} and I ← I with d(s), where π_E acted
    5.     continue training π on D
    6.     τ ← the mean of the last quarter of I                      a doubt above τ is unsafe

g is a function of the state and of the action that the learner is about to take. Without one, a simulated supervisor
takes over where the state is farther than `margin` from every demonstrated and answered state (Euclidean, between
standardized observations): Kelly et al. define g by a set of permitted states. `supervisor` makes a rule that watches
with an expert's eyes. A person in the console decides by hand: what they do at the controls is D, and they are asked
nothing (docs/console.md); `safety_threshold` computes τ from their kept attempts.

Reference: Kelly, Sidrane, Driggs-Campbell and Kochenderfer, "HG-DAgger: Interactive Imitation Learning with Human
Experts" (2019). "Of Moments and Matching" does not run it, so no settings of this module are that paper's.

Deviations: I has the doubt at every step at which the expert acts, in the order of answers; the paper's log has one
entry for each take-over (`safety_threshold` does too). The paper's doubt is the norm of the diagonal of the
members' covariance, here it is the root of its trace. The paper lets the person start and end each epoch; here a round
has a number of episodes. Members are trained on Poisson bootstraps and continue from round to round.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.algorithms.on_q.gated import (
    SMALL,
    Cloned,
    GatedCloning,
    disagreement,
    expert_share,
    outputs,
)
from understudy.algorithms.on_q.querying import QUICK_SIZES
from understudy.core.errors import SettingError, check_not_negative, check_positive, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec, appended
from understudy.game import QUICK, Card
from understudy.game.user_code import check_function, yes_or_no
from understudy.policies import Ensemble, Normalized, Policy, start

TakeOver = Callable[[Array, Array], Bool[Array, ""]]
"""g(s, a): one observation and the learner's action ↦ whether to take over."""


class HGDAggerState(NamedTuple):
    cloned: Cloned
    shown: Float[Array, "n obs"]
    """The demonstrated states, standardized."""
    shown_size: Int[Array, ""]
    doubts: Float[Array, " n"]
    """I: the doubt at each answered step, when the expert took it."""


class HGDAgger(GatedCloning):
    """DAgger gated by the expert: somebody takes over when the learner goes wrong, and hands back."""

    card: ClassVar[Card] = Card(
        name="hg_dagger",
        title="HG-DAgger",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, in which the expert takes over by a rule",
        reference="Kelly et al. 2019",
        fixed=True,
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: QUICK_SIZES}
    small: ClassVar[dict[str, Any]] = SMALL
    expert_gates: ClassVar[bool] = True

    take_over: TakeOver | None = eqx.field(static=True, default=None)
    """take_over(obs, act), in the environment's units: whether the expert acts. Default: by `margin`."""
    margin: float = 0.5
    """Take over where every demonstrated and answered state is farther than this, in standard deviations."""
    hold: int = eqx.field(static=True, default=5)
    """Steps that the expert keeps control after the last one at which it would take over."""

    def __check_init__(self) -> None:
        check_function(("obs", "act"), take_over=self.take_over)
        check_positive(margin=self.margin)
        check_whole(0, hold=self.hold)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> HGDAggerState:
        cloned = self.new_ensemble(key, spec, demonstrations)
        shown = cloned.normalization.encode_obs(demonstrations.steps.obs)
        doubts = jnp.zeros(cloned.aggregated.steps.t.shape)
        state = HGDAggerState(cloned, shown, jnp.asarray(demonstrations.size, jnp.int32), doubts)
        self.alarmed(state, demonstrations.steps.obs[0], demonstrations.steps.act[0])  # a wrong rule raises here
        return state

    def update(self, state: HGDAggerState, data: RoundData, key: Key[Array, ""]) -> tuple[HGDAggerState, Info]:
        assert data.rollouts is not None
        queried, size = data.queried, state.cloned.aggregated.size
        before = jax.vmap(state.cloned.doubt)(queried.steps.obs)
        doubts = appended(state.doubts, size, before, queried.size)  # line 4
        cloned, loss = self.fit(state.cloned, data, key)  # lines 1, 4 and 5
        state = state._replace(cloned=cloned, doubts=doubts)
        threshold, count = self.threshold(state), cloned.aggregated.size
        own = data.rollouts.mask & ~jnp.asarray(data.answered)
        unsafe = own & (jax.vmap(cloned.doubt)(data.rollouts.steps.obs) > threshold) & (count > 0)
        shares = {"expert_share": expert_share(data), "unsafe_share": unsafe.sum() / jnp.maximum(own.sum(), 1)}
        return state, Info({"loss": loss, "doubt_threshold": threshold} | shares)

    def policy(self, state: HGDAggerState) -> Policy:
        return state.cloned.policy

    def threshold(self, state: HGDAggerState) -> Float[Array, ""]:
        """τ, 0 before the first take-over (line 6)."""
        size, index = state.cloned.aggregated.size, jnp.arange(len(state.doubts))
        last = (index < size) & (index >= size - (size + 3) // 4)
        return jnp.where(last, state.doubts, 0).sum() / jnp.maximum(last.sum(), 1)

    def start_gate(self, state: HGDAggerState, index: Array, key: Key[Array, ""]) -> Int[Array, ""]:
        """Steps for which the expert still keeps control."""
        return jnp.zeros((), jnp.int32)

    def gate(
        self, state: HGDAggerState, carry: Any, obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[Any, Bool[Array, ""], Bool[Array, ""]]:
        """The expert acts where the rule says so, and for `hold` more steps (line 3)."""
        alarmed = self.alarmed(state, obs, act)
        acts = alarmed | (carry > 0)
        return jnp.where(alarmed, self.hold, jnp.maximum(carry - 1, 0)), acts, acts

    def alarmed(self, state: HGDAggerState, obs: Array, act: Array) -> Bool[Array, ""]:
        """g(s, a)."""
        if self.take_over is not None:
            return yes_or_no("take_over(obs, act)", self.take_over, jnp.asarray(obs), jnp.asarray(act))
        seen, aggregated = state.cloned.normalization.encode_obs(obs), state.cloned.aggregated
        answered = state.cloned.normalization.encode_obs(aggregated.steps.obs)

        def nearest(rows: Array, size: Array) -> Array:
            apart = jnp.linalg.norm(rows - seen, axis=-1)
            return jnp.where(jnp.arange(len(rows)) < size, apart, jnp.inf).min()

        nearer = jnp.minimum(nearest(state.shown, state.shown_size), nearest(answered, aggregated.size))
        return nearer > self.margin


def supervisor(expert: Policy, tolerance: float = 0.1) -> TakeOver:
    """A simulated supervisor that knows what the expert would do: a rule for `take_over`.

    It takes over where the learner's action is farther from the expert's than `tolerance`, or differs from it if
    actions are discrete. It watches every step; only the steps that it takes over count as answers.
    """
    check_not_negative(tolerance=tolerance)

    def take_over(obs: Array, act: Array) -> Bool[Array, ""]:
        wanted = jnp.asarray(expert.mode(start(), obs))
        return jnp.abs(jnp.asarray(act) - wanted).max() > tolerance

    return take_over


def safety_threshold(policy: Any, attempts: Sequence[Any]) -> float:
    """τ from a person's take-overs: the mean doubt at the last quarter of them, of the ensemble `policy`.

    `policy` is a trained policy of HG-DAgger, as `result.policy` and `understudy.load_policy` return it. `attempts` are
    the watched attempts that a console has kept (`episodes/NUMBER.npz`, as `understudy.load` reads them), in order.
    """
    inner = getattr(policy, "policy", policy)
    members = inner.policy.members if isinstance(inner, Normalized) and isinstance(inner.policy, Ensemble) else None
    if members is None:
        raise SettingError(f"policy is a {type(inner).__name__} without members: pass one that hg_dagger has trained")
    starts = []
    for attempt in attempts:
        acted = attempt.details.interventions
        if acted is not None:
            starts.append(attempt.observations[acted & ~np.concatenate([[False], acted[:-1]])])
    obs = np.concatenate(starts) if starts else np.zeros((0, 1))
    if not len(obs):
        raise SettingError(f"nobody took over in these {len(attempts)} attempts: keep attempts of the mode watch")
    last = obs[len(obs) - (len(obs) + 3) // 4 :]
    return float(np.mean([disagreement(outputs(members, inner.normalization.encode_obs(row))) for row in last]))
