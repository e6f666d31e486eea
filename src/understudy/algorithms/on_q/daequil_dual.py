"""DAeQuIL's dual: a moment function in closed form, at the states that the learner has visited.

It matches on-Q moments in the form of DAgger and DAeQuIL: the expert is queried in the learner's own states, and the
game is played in the states of all rounds so far. In DAeQuIL the policy runs no-regret against critics that
best-respond. Here the moment function f runs no-regret and the policy best-responds with entropy (section 5, dual). The
paper's taxonomy has no on-Q dual. In a kernel's space f has a closed form (`game.leader`), so only the policy is
trained by gradient descent:

    Input: queryable expert π_E, demonstrations D_E, policy class Π, kernel K between actions, entropy weight α
    1. D ← D_E, and f_i = 0 for each of its steps (s_i, a_i)
    2. for round n:
    3.     n > 0: roll out π, query π_E in its states, D ← D ∪ {(s, π_E(s))}, f_i = 0 for the new steps
    4.     for each gradient step, with a minibatch B ~ D:
    5.         g_i = E_{a ~ π(s_i)} K(a, ·) − K(a_i, ·)                                    for i in B
    6.         f_i ← f_i + (g_i − f_i) / k_i, the mean of the k_i gradients of step i      for i in B
    7.         π ← π − η ∇_π [ mean over B of E_{a ~ π(s_i)} f_i(a) − α H(π(s_i)) ]

Lines 4 to 7 are those of AdVIL's dual (`off_q.advil_dual`), on D instead of the demonstrations.

What holds. Let π be the policy that is rolled out and g_n(π) its gradient at the new steps alone. Then U3(π, f) =
⟨f, g_n(π)⟩, and ‖g_n(π)‖ is the largest U3 over the unit ball: the metric `payoff`, measured before the update. If the
expert's Q^{π_E}/2T lie in a ball ‖f‖ ≤ R, the gap of that policy is at most 2 R T² ‖g_n(π)‖ (section 4.4), up to the
sampling error of a round's episodes. R is of order H/T where the expert recovers in H steps, so this is O(εHT). As for
DAgger and DAeQuIL, a small ‖g_n‖ in some round needs a policy that answers like the expert in all rounds' states.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 5 and the dual case of its proof,
Table 3 (where this cell is empty), and section 6.3.

Deviations from that procedure: the on-Q game itself has the states of the responding policy. Its best response is RL
against f(s, a) − E_{a' ~ π_E(s)} f(s, a'). This algorithm has aggregated states, as DAgger and DAeQuIL do, and no RL
player. The best response is one gradient step from the last policy, whose optimizer state continues from round to
round. Each step counts its own rounds, because a minibatch holds some of them. The last policy is returned. By default
the policy of continuous actions is deterministic and has no entropy (α = 0); `stochastic` trains a tanh-Gaussian one.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.algorithms.leading import Leading
from understudy.algorithms.on_q.querying import QUICK_SIZES, SMALL, Querying
from understudy.core.types import Dataset, Info, RoundData, Spec
from understudy.game import QUICK, Card
from understudy.game.asking import most_answers
from understudy.game.leader import StepLeaders, functional_gradients, response_loss
from understudy.game.players import Memory, Player, gradient
from understudy.game.sampling import Rows, draw_from_both, take_from_both, with_actions
from understudy.policies import NetworkPolicy, Normalized, Policy
from understudy.policies.normalization import Normalization


class DAeQuILDualState(NamedTuple):
    policy: NetworkPolicy
    memory: Memory
    leaders: StepLeaders
    """f at the demonstrated steps, then at the aggregated ones."""
    normalization: Normalization
    aggregated: Dataset
    """The learner's states of all rounds with the expert's actions."""


class DAeQuILDual(Querying, Leading):
    """The dual of DAeQuIL: a moment function in closed form against a policy in the learner's own states."""

    card: ClassVar[Card] = Card(
        name="daequil_dual",
        title="DAeQuIL's dual",
        moments="on-Q",
        solver="dual",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, and the expert's actions in their states",
        reference="Swamy et al. 2021, section 5",
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "lander": {"gradient_steps": 3_000},
        "forest": {"bandwidth": 0.1, "lr": 1e-3, "hidden": (128, 128)},
        QUICK: QUICK_SIZES,
    }
    small: ClassVar[dict[str, Any]] = {**SMALL, "features": 8}

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> DAeQuILDualState:
        policy_key, kernel_key = jax.random.split(key)
        policy = self.new_policy(policy_key, spec)
        aggregated = Dataset.empty(demonstrations, most_answers(self, spec.horizon))
        steps = demonstrations.steps.t.shape[0] + aggregated.steps.t.shape[0]
        leaders = self.new_leaders(kernel_key, spec, steps)  # lines 1 and 3
        normalization = Normalization.fit(spec, demonstrations)
        return DAeQuILDualState(policy, self._player().init(policy), leaders, normalization, aggregated)

    def update(self, state: DAeQuILDualState, data: RoundData, key: Key[Array, ""]) -> tuple[DAeQuILDualState, Info]:
        payoff_key, steps_key = jax.random.split(key)
        answered = with_actions(data.queried, data.answers)
        payoff = self._payoff(state, answered, payoff_key)
        aggregated = state.aggregated.extend(answered)  # line 3
        demonstrations, player = data.demonstrations, self._player()
        sources = Rows(None, demonstrations.size), Rows(None, aggregated.size)

        def step(
            carry: tuple[NetworkPolicy, Memory, StepLeaders], k: Key[Array, ""]
        ) -> tuple[tuple[NetworkPolicy, Memory, StepLeaders], dict[str, Array]]:
            policy, memory, leaders = carry
            batch_key, policy_key = jax.random.split(k)
            draw = draw_from_both(batch_key, self.batch_size, *sources)  # line 4
            rows = jnp.where(draw.from_first, draw.first, demonstrations.steps.t.shape[0] + draw.second)
            batch = state.normalization.encode(take_from_both(draw, demonstrations.steps, aggregated.steps))
            loss = partial(response_loss, leaders, rows, batch, self.entropy_weight)  # lines 5 to 7
            policy, memory, (value, (leaders, metrics)) = player.move(policy_key, policy, memory, loss)
            return (policy, memory, leaders), {"loss": value, "distance": metrics["distance"]}

        start = (state.policy, state.memory, state.leaders)
        (policy, memory, leaders), metrics = jax.lax.scan(step, start, jax.random.split(steps_key, self.gradient_steps))
        state = DAeQuILDualState(policy, memory, leaders, state.normalization, aggregated)
        return state, Info({name: values.mean() for name, values in metrics.items()} | {"payoff": payoff})

    def policy(self, state: DAeQuILDualState) -> Policy:
        return Normalized(state.policy, state.normalization)

    def _payoff(self, state: DAeQuILDualState, answered: Dataset, key: Key[Array, ""]) -> Float[Array, ""]:
        """‖g_n(π)‖ at the new steps, 0 if there are none: the largest U3 of the policy that was rolled out.

        With `stochastic`, g is known from drawn actions alone, and ‖g‖² of one draw would count their noise as a
        difference from the expert. The product of two independent draws does not.
        """
        batch = state.normalization.encode(answered.steps)
        one, other = (functional_gradients(state.leaders, state.policy, batch, k)[1] for k in jax.random.split(key))
        squares = jnp.where(answered.mask, (one * other).sum(1), 0)
        return jnp.sqrt(jnp.maximum(squares.sum(), 0) / jnp.maximum(answered.size, 1))

    def _player(self) -> Player:
        return gradient(optax.adamw(self.lr, weight_decay=self.weight_decay), aux=True)
