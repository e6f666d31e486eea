"""What the RL players share: how their parameters move, their twin critics, and which actions they are for.

x ← x − η_p Adam(∇l(x))         η_p = η, or η · (1 − p) after a share p of training
x̄ ← (1 − τ) x̄ + τ x             the targets follow (Polyak averaging; `optax.incremental_update`)
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.core.errors import SpecError
from understudy.core.types import ActionSpace, Continuous, Discrete
from understudy.policies.networks import MLP

LrSchedule = Literal["constant", "linear"]
LR_SCHEDULES: tuple[LrSchedule, ...] = ("constant", "linear")


def rate(lr: float | Array, lr_schedule: LrSchedule, progress: Float[Array, ""]) -> float | Array:
    """The learning rate after a share `progress` of training: as given, or falling to 0 along a line."""
    return lr if lr_schedule == "constant" else lr * jnp.maximum(1 - progress, 0)


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, strategy: Any, memory: optax.OptState
) -> tuple[Any, optax.OptState]:
    """One step of an optimiser along a gradient: the next strategy, and what the optimiser remembers."""
    updates, memory = optimizer.update(gradient, memory, strategy)
    return eqx.apply_updates(strategy, updates), memory


def twins(
    key: Key[Array, ""], inputs: int, hidden: tuple[int, ...], outputs: int, reads: tuple[int, ...] | None = None
) -> MLP:
    """Two networks as one whose weights are stacked: a batch (n, i) goes in, both answers (2, n, o) come out."""
    both = jax.vmap(lambda k: MLP.init(k, inputs, hidden, outputs, reads=reads, init="uniform"))(jax.random.split(key))
    return eqx.tree_at(lambda net: net.biases, both, tuple(bias[:, None] for bias in both.biases))


def entropy(logits: Float[Array, "... actions"]) -> Float[Array, "..."]:
    """That of softmax(logits)."""
    log_prob = jax.nn.log_softmax(logits)
    return -(jnp.exp(log_prob) * log_prob).sum(-1)


def continuous(player: str, action: ActionSpace) -> int:
    """The dimension of the actions, which must be continuous."""
    if not isinstance(action, Continuous):
        raise SpecError(f"{player} is for continuous actions, the task has {action.n} discrete ones: use SoftQ or PPO")
    return action.shape[0]


def discrete(player: str, action: ActionSpace) -> int:
    """The number of actions, which must be discrete."""
    if not isinstance(action, Discrete):
        raise SpecError(
            f"{player} is for discrete actions, the task has {action.shape[0]} continuous ones: use SAC or PPO"
        )
    return action.n
