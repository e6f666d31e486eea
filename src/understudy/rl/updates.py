"""Shared code of the RL players: optimizer steps, learning rate schedules, twin critics, checks of the action space.

x ← x − η_p Adam(∇l(x))         η_p = η, or η · (1 − p) after a fraction p of training
x̄ ← (1 − τ) x̄ + τ x             target networks (Polyak averaging, `optax.incremental_update`)
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.core.errors import SettingError, SpecError
from understudy.core.types import Continuous, Discrete, Spec
from understudy.policies.networks import MLP

LrSchedule = Literal["constant", "linear"]
LR_SCHEDULES: tuple[LrSchedule, ...] = ("constant", "linear")


def learning_rate(lr: float | Array, lr_schedule: LrSchedule, progress: Float[Array, ""]) -> float | Array:
    """The learning rate after a fraction `progress` of training."""
    return lr if lr_schedule == "constant" else lr * jnp.maximum(1 - progress, 0)


def check_lr_schedule(lr_schedule: LrSchedule, updates: int, round_steps: int, frequency: int) -> None:
    """Raise if the learning rate would be 0 throughout: a linear schedule is 0 in its last update."""
    if lr_schedule == "linear" and updates == 1:
        raise SettingError(
            f"round_steps is {round_steps} and frequency is {frequency}, one update in a learning rate schedule: a "
            "linear lr_schedule ends at 0 and would train nothing; give round_steps for two updates or more, or "
            "lr_schedule='constant'"
        )


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, params: Any, opt_state: optax.OptState
) -> tuple[Any, optax.OptState]:
    """One optimizer step: the new parameters and optimizer state."""
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return eqx.apply_updates(params, updates), opt_state


def twins(
    key: Key[Array, ""],
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int,
    input_indices: tuple[int, ...] | None = None,
    count: int = 2,
) -> MLP:
    """Two networks, or more, with stacked weights: a batch (n, i) gives their outputs (count, n, o)."""

    def init(k: Key[Array, ""]) -> MLP:
        return MLP.init(k, inputs, hidden, outputs, input_indices=input_indices, init="uniform")

    stack = jax.vmap(init)(jax.random.split(key, count))
    return eqx.tree_at(lambda net: net.biases, stack, tuple(bias[:, None] for bias in stack.biases))


def entropy(logits: Float[Array, "... actions"]) -> Float[Array, "..."]:
    """The entropy of softmax(logits)."""
    log_prob = jax.nn.log_softmax(logits)
    return -(jnp.exp(log_prob) * log_prob).sum(-1)


def check_continuous(player: str, spec: Spec) -> None:
    """Raise if actions are discrete."""
    if not isinstance(spec.action, Continuous):
        raise SpecError(
            f"{player} is for continuous actions, the task has {spec.action_size} discrete ones: use SoftQ or PPO"
        )


def check_discrete(player: str, spec: Spec) -> None:
    """Raise if actions are continuous."""
    if not isinstance(spec.action, Discrete):
        raise SpecError(
            f"{player} is for discrete actions, the task has {spec.action_size} continuous ones: use SAC or PPO"
        )
