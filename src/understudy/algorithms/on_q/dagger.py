"""DAgger: supervised learning of the expert's action in the states that the learner itself visits.

It matches on-Q moments, since the expert is asked at the learner's own states, and so an error does not compound where
the expert recovers from it (section 4.4). Like behavioral cloning it fixes one loss ℓ, and inherits what is wrong with
it: where the expert mixes, the mean of its actions. Follow the leader over the aggregated data:

    Input: queryable expert π_E, demonstrations D_E, policy class Π
    1. D ← D_E, π ← argmin ℓ over D
    2. for round i:
    3.     roll out β^i π_E + (1 − β^i) π, ask π_E at its states, D ← D ∪ {(s, π_E(s))}
    4.     π ← argmin over π' of the mean of ℓ(π', s, a) over D, by gradient steps from the last π

with ℓ as in behavioral cloning: squared error for continuous actions, cross-entropy for discrete ones. By default the
learner plays alone, β = 0: demonstrations stand for the rounds in which the expert would act. Where it does, by a coin
tossed at each step, what it does is its answer there (`gate`).

Reference: Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning" (2011); Tables 13 and 15 of the paper.

Deviations: the optimiser's memory is kept from round to round, and the policy is not trained anew. The policy that is
handed over is the last one.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.algorithms.off_q.bc import ell
from understudy.core.errors import check_layers, check_not_negative, check_positive, check_share, check_whole
from understudy.core.types import Dataset, Discrete, Info, RoundData, Spec, Transition
from understudy.game import Algorithm, Card
from understudy.game.players import Memory, Player, gradient, repeat
from understudy.policies import Categorical, Deterministic, Normalized, EnsembleMember, Policy
from understudy.policies.normalization import Normalization


class DAggerState(NamedTuple):
    policy: EnsembleMember
    memory: Memory
    normalization: Normalization
    history: Dataset
    """The learner's states with the expert's actions."""


class DAgger(Algorithm):
    """Dataset aggregation: clone the expert's answers at the learner's own states."""

    card: ClassVar[Card] = Card(
        name="dagger",
        title="DAgger",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the expert's answers at their states",
        reference="Ross et al. 2011",
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "lander": {"gradient_steps": 10_000},
        "forest": {"gradient_steps": 5_000},
    }

    lr: float = 3e-4
    """Adam's learning rate."""
    mixing: float | None = None
    """β: in round i the expert acts in a share β^i of the steps, by a coin tossed at each. Default: it never does."""
    weight_decay: float = 0.0
    """Decay of the weights, decoupled from Adam: the regulariser of follow the regularised leader."""
    batch_size: int = eqx.field(static=True, default=32)
    """Steps in a minibatch."""
    rounds: int = eqx.field(static=True, default=11)
    """Rounds; the first is behavioral cloning on the demonstrations."""
    episodes_per_round: int = eqx.field(static=True, default=10)
    """Episodes that a round plays."""
    gradient_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps a round."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: pass the network's output through tanh."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr)
        check_not_negative(weight_decay=self.weight_decay)
        if self.mixing is not None:
            check_share(mixing=self.mixing)
        check_whole(
            1,
            batch_size=self.batch_size,
            rounds=self.rounds,
            gradient_steps=self.gradient_steps,
            episodes_per_round=self.episodes_per_round,
        )
        check_layers(hidden=self.hidden)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> DAggerState:
        policy = new_policy(key, spec, self.hidden, self.squash)
        room = (self.rounds - 1) * self.episodes_per_round * spec.horizon
        history = Dataset.empty(demonstrations, max(room, 1))
        return DAggerState(policy, self._player().init(policy), Normalization.fit(spec, demonstrations), history)

    def update(self, state: DAggerState, data: RoundData, key: Key[Array, ""]) -> tuple[DAggerState, Info]:
        history = state.history.extend(answered(data))  # line 3

        def loss(policy: EnsembleMember, k: Key[Array, ""]) -> Float[Array, ""]:
            batch = state.normalization.encode(sample_both(data.demonstrations, history, k, self.batch_size))
            return jax.vmap(ell, (None, 0))(policy, batch).mean()

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)  # lines 1 and 4
        return DAggerState(policy, memory, state.normalization, history), Info({"loss": value})

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


def new_policy(key: Key[Array, ""], spec: Spec, hidden: tuple[int, ...], squash: bool) -> EnsembleMember:
    """A fresh network of the kind that the actions ask for."""
    if isinstance(spec.action, Discrete):
        return Categorical.init(key, spec.obs_size, spec.action.n, hidden, reads=spec.policy_obs)
    shape = (spec.obs_size, spec.action.shape[0], hidden)
    return Deterministic.init(key, *shape, squash=squash, reads=spec.policy_obs)


def answered(data: RoundData) -> Dataset:
    """The round's states with the expert's actions."""
    assert data.expert_actions is not None
    queried = data.queried
    return queried._replace(steps=queried.steps._replace(act=data.expert_actions))


def sample_both(demonstrations: Dataset, history: Dataset, key: Key[Array, ""], count: int) -> Transition:
    """Steps drawn uniformly from the two together."""
    index = jax.random.randint(key, (count,), 0, demonstrations.size + history.size)
    old = index < demonstrations.size

    def pick(first: Array, second: Array) -> Array:
        chosen = first[jnp.minimum(index, demonstrations.size - 1)]
        other = second[jnp.maximum(index - demonstrations.size, 0)]
        return jnp.where(old.reshape(-1, *(1,) * (chosen.ndim - 1)), chosen, other)

    return jax.tree.map(pick, demonstrations.steps, history.steps)
