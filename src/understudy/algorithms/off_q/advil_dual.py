"""AdVIL's dual: a moment function in closed form, and a policy that responds to it in the demonstrated states.

It matches off-Q moments, as AdVIL does, and solves the game from the other side: the moment function f runs no-regret
and the policy best-responds with entropy. The paper's taxonomy has no off-Q dual, and its section 5 says how one looks:
follow the procedure of Theorem 5.1's dual case on U2(π, f) − α H(π). In a kernel's space the no-regret player has a
closed form, as in AdRIL (`game.leader` has the derivation), so only the policy is trained by gradient descent:

    Input: demonstrations D_E = (s_i, a_i), policy class Π, kernel K between actions, entropy weight α
    1. f_i = 0 for each demonstrated step i
    2. for each gradient step, with a minibatch B ~ D_E:
    3.     g_i = E_{a ~ π(s_i)} K(a, ·) − K(a_i, ·)                                    for i in B
    4.     f_i ← f_i + (g_i − f_i) / k_i, the mean of the k_i gradients of step i      for i in B
    5.     π ← π − η ∇_π [ mean over B of E_{a ~ π(s_i)} f_i(a) − α H(π(s_i)) ]

Line 4 is follow-the-leader on the payoffs ⟨f, g⟩ − ‖f‖²/2. The whole kernel is an indicator in the step and K in the
action, as the derivation of AdRIL has an indicator, "relaxed to a Gaussian in continuous spaces". So f_i(a) is large at
actions that the policies so far took too often in state i, and small at the expert's. In a state where the policy stays
wrong f_i keeps its size: unlike the gradient of a fixed loss, it remembers past errors.

What holds. If π is a best response in each round, to all f_i at once, the certificate of the mean f and the mixture of
policies falls as O(log k / k) in the game U2 − α H − ‖f‖²/2. Its solution minimises ‖g(π)‖²/2 − α H(π), a fixed loss
for a given K. With the linear kernel a · a' in place of the Gaussian, ‖g‖² is behavioral cloning's squared error. If
all Q^π/2T lie in a ball ‖f‖ ≤ R, then J(π_E) − J(π) ≤ 2 R T² ‖g(π)‖ (section 4.3): the O(εT²) of off-Q moments, for the
demonstrated steps. f says nothing of other states; the network alone generalises.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 5 and the dual case of its proof,
Table 3 (where this cell is empty), and the derivation of AdRIL.

Deviations from that procedure: the best response is one gradient step from the last policy. Each demonstrated step
counts its own rounds, because a minibatch holds some of them. The final policy is a moving average of the networks'
weights, not the best response to the mean of all f. By default the policy of continuous actions is deterministic and
has no entropy (α = 0); `stochastic` trains a tanh-Gaussian one.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Key

from understudy.algorithms.leading import Leading
from understudy.core.errors import check_fraction, check_layers, check_not_negative, check_positive, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec
from understudy.game import QUICK, Card
from understudy.game.leader import StepLeaders, response_loss
from understudy.game.players import Averaged, Player, averaging, gradient
from understudy.game.sampling import Rows, take
from understudy.policies import NetworkPolicy, Normalized, Policy
from understudy.policies.normalization import Normalization


class AdVILDualState(NamedTuple):
    policy: NetworkPolicy
    memory: Averaged
    leaders: StepLeaders
    """f."""
    normalization: Normalization


class AdVILDual(Leading):
    """The dual of AdVIL: a moment function in closed form against a policy in the demonstrated states."""

    card: ClassVar[Card] = Card(
        name="advil_dual",
        title="AdVIL's dual",
        moments="off-Q",
        solver="dual",
        needs=("demonstrations",),
        actions=("continuous", "discrete"),
        collects="nothing",
        reference="Swamy et al. 2021, section 5",
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: {"rounds": 20, "hidden": (64, 64)}}
    small: ClassVar[dict[str, Any]] = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,), "features": 8}

    lr: float = 3e-4
    """Learning rate of Adam, η."""
    weight_decay: float = 0.1
    """Decoupled weight decay (AdamW)."""
    ema_decay: float = 0.999
    """Decay of the moving average of weights that is returned (0: return the last weights)."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size."""
    rounds: int = eqx.field(static=True, default=100)
    """Training rounds. Metrics are logged once a round."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Gradient steps per round. f moves in each, too."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr)
        check_not_negative(weight_decay=self.weight_decay)
        check_fraction(ema_decay=self.ema_decay)
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds, gradient_steps=self.gradient_steps)
        check_layers(hidden=self.hidden)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> AdVILDualState:
        policy_key, kernel_key = jax.random.split(key)
        policy = self.new_policy(policy_key, spec)
        steps = demonstrations.steps.t.shape[0]
        leaders = self.new_leaders(kernel_key, spec, steps)  # line 1
        return AdVILDualState(policy, self._player().init(policy), leaders, Normalization.fit(spec, demonstrations))

    def update(self, state: AdVILDualState, data: RoundData, key: Key[Array, ""]) -> tuple[AdVILDualState, Info]:
        player = self._player()

        def step(state: AdVILDualState, k: Key[Array, ""]) -> tuple[AdVILDualState, dict[str, Array]]:
            batch_key, policy_key = jax.random.split(k)
            rows = Rows(None, data.demonstrations.size).sample(batch_key, (self.batch_size,))  # line 2
            batch = state.normalization.encode(take(data.demonstrations.steps, rows))
            loss = partial(response_loss, state.leaders, rows, batch, self.entropy_weight)  # lines 3 to 5
            policy, memory, (value, (leaders, metrics)) = player.move(policy_key, state.policy, state.memory, loss)
            return AdVILDualState(policy, memory, leaders, state.normalization), {"loss": value, **metrics}

        state, metrics = jax.lax.scan(step, state, jax.random.split(key, self.gradient_steps))
        return state, Info({name: values.mean() for name, values in metrics.items()})

    def policy(self, state: AdVILDualState) -> Policy:
        return Normalized(state.memory.average, state.normalization)

    def _player(self) -> Player:
        optimizer = optax.adamw(self.lr, weight_decay=self.weight_decay)
        return averaging(gradient(optimizer, aux=True), self.ema_decay)
