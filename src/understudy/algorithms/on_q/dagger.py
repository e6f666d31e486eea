"""DAgger: supervised learning of the expert's action in the states that the learner visits.

It matches on-Q moments: the expert is queried in the learner's own states, so errors do not compound if the expert can
recover from them (section 4.4). Like behavioral cloning it has a fixed loss ℓ, and the same weakness: if the expert
chooses between two actions at random, the squared error learns their mean. Follow the leader over the aggregated data:

    Input: queryable expert π_E, demonstrations D_E, policy class Π
    1. D ← D_E, π ← argmin ℓ over D
    2. for round i:
    3.     roll out β^i π_E + (1 − β^i) π, query π_E in the visited states, D ← D ∪ {(s, π_E(s))}
    4.     π ← argmin over π' of the mean of ℓ(π', s, a) over D, by gradient steps from the last π

ℓ is the loss of behavioral cloning: squared error for continuous actions, cross-entropy for discrete ones. With
`components` above 1 it is the likelihood of a mixture of Gaussians, which can hold several answers. By default only the
learner acts, β = 0; the demonstrations replace the rounds in which the expert would act. With β > 0 the expert acts at
random steps, and its action is also its answer to the query in that state (`gate`).

Reference: Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning" (2011); Tables 13 and 15 of the paper.

The paper has settings for each task, in the presets `lander` (Table 13) and `forest` (Table 15). The default differs
from them in `gradient_steps` alone: 2,000 a round, not 10,000 and 5,000.

Deviations: the policy and its optimizer state continue from round to round, instead of training from scratch. The last
policy is returned.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.algorithms.on_q.querying import QUICK_SIZES, Querying
from understudy.core.errors import SettingError, check_share, check_whole
from understudy.core.types import Dataset, Info, MultiDiscrete, RoundData, Spec
from understudy.game import QUICK, Card
from understudy.game.asking import most_answers
from understudy.game.losses import cloning_loss
from understudy.game.players import Memory, Player, gradient, repeat
from understudy.game.sampling import Rows, sample_from_both, with_actions
from understudy.policies import (
    EnsembleMember,
    Independent,
    Mixture,
    Normalized,
    Policy,
    deterministic_policy,
    independent_policy,
    mixture_policy,
)
from understudy.policies.normalization import Normalization


class DAggerState(NamedTuple):
    policy: EnsembleMember | Independent | Mixture
    memory: Memory
    normalization: Normalization
    aggregated: Dataset
    """The learner's states of all rounds with the expert's actions."""


class DAgger(Querying):
    """Dataset aggregation: clone the expert's answers in the learner's own states."""

    card: ClassVar[Card] = Card(
        name="dagger",
        title="DAgger",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the expert's actions in their states",
        reference="Ross et al. 2011",
        fixed=True,
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "lander": {"gradient_steps": 10_000},
        "forest": {"gradient_steps": 5_000},
        QUICK: QUICK_SIZES,
    }
    has_critic: ClassVar[bool] = False
    multi_discrete: ClassVar[bool] = True

    mixing: float | None = None
    """β: in round i the expert acts at each step with probability β^i. None: never."""
    components: int = eqx.field(static=True, default=1)
    """Continuous actions: Gaussians in a mixture that is trained by its log-likelihood. 1: the squared error."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: apply tanh to the network's output."""

    def __check_init__(self) -> None:
        check_whole(1, components=self.components)
        if self.mixing is not None:
            check_share(mixing=self.mixing)
            if self.ask != "all" or self.queries_per_round is not None:
                raise SettingError(
                    "mixing lets the expert act, and its actions are its answers: leave out ask and queries_per_round"
                )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> DAggerState:
        policy: EnsembleMember | Independent | Mixture
        if isinstance(spec.action, MultiDiscrete):
            policy = independent_policy(key, spec, spec.action, self.hidden)
        elif self.components > 1:
            policy = mixture_policy(key, spec, self.hidden, self.components)
        else:
            policy = deterministic_policy(key, spec, self.hidden, squash=self.squash)
        aggregated = Dataset.empty(demonstrations, most_answers(self, spec.horizon))
        return DAggerState(policy, self._player().init(policy), Normalization.fit(spec, demonstrations), aggregated)

    def update(self, state: DAggerState, data: RoundData, key: Key[Array, ""]) -> tuple[DAggerState, Info]:
        assert data.expert_actions is not None
        aggregated = state.aggregated.extend(with_actions(data.queried, data.expert_actions))  # line 3
        sources = [(part.steps, Rows(None, part.size)) for part in (data.demonstrations, aggregated)]

        def loss(policy: Policy, k: Key[Array, ""]) -> Float[Array, ""]:
            batch = state.normalization.encode(sample_from_both(k, self.batch_size, *sources))
            return jax.vmap(cloning_loss, (None, 0))(policy, batch).mean()

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)  # lines 1 and 4
        return DAggerState(policy, memory, state.normalization, aggregated), Info({"loss": value})

    def policy(self, state: DAggerState) -> Policy:
        return Normalized(state.policy, state.normalization)

    @property
    def gated(self) -> bool:
        return self.mixing is not None

    def start_gate(self, state: DAggerState, index: Array, key: Key[Array, ""]) -> Float[Array, ""]:
        """β^i."""
        return jnp.asarray(self.mixing, jnp.float32) ** index

    def gate(
        self, state: DAggerState, carry: Any, obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[Any, Bool[Array, ""], Bool[Array, ""]]:
        """Query at every state; the expert acts with probability β^i (line 3)."""
        return carry, jnp.asarray(True), jax.random.uniform(key) < carry

    def _player(self) -> Player:
        return repeat(gradient(optax.adamw(self.lr, weight_decay=self.weight_decay)), self.gradient_steps)
