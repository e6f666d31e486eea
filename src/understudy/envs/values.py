"""Estimators of the expert's action values Q^{π_E}_t(s, a): the return if the expert acts after action a.

AggreVaTe uses them. A value belongs to a state of the environment, not to an observation. Sampling a value therefore
needs an environment that can be restarted from any state: one that is written in JAX.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array
from understudy.envs.base import Environment, EnvState
from understudy.policies import Policy, step


class ActionValueEstimator(eqx.Module):
    """Abstract: estimates the value of one action in one state, inside a compiled program. Every subclass is final."""

    @abstractmethod
    def __call__(
        self, t: Int[Array, ""], state: EnvState, obs: Float[Array, " obs"], act: Array, key: Key[Array, ""]
    ) -> Float[Array, ""]: ...


class MonteCarlo(ActionValueEstimator):
    """A sample of the value: take the action, let the expert act until the episode ends, and sum the rewards."""

    env: Environment
    expert: Policy
    deterministic: bool = eqx.field(static=True, default=False)
    """Whether the expert acts deterministically, with its mode."""

    def __call__(
        self, t: Int[Array, ""], state: EnvState, obs: Float[Array, " obs"], act: Array, key: Key[Array, ""]
    ) -> Float[Array, ""]:
        horizon = self.env.spec.horizon
        reset_key, first_key, loop_key = jax.random.split(key, 3)
        first = self.env.step(state, act, first_key)
        carry = jax.tree.map(jnp.asarray, self.expert.reset(reset_key))._replace(t=t + 1)

        def unfinished(loop: Any) -> Array:
            carry, timestep, _ = loop
            return ~timestep.terminal & (carry.t < horizon)

        def advance(loop: Any) -> Any:
            carry, timestep, total = loop
            act_key, step_key = jax.random.split(jax.random.fold_in(loop_key, carry.t))
            obs, expert = timestep.obs, self.expert
            chosen = expert.mode(carry, obs) if self.deterministic else expert.draw(carry, obs, act_key)
            new = self.env.step(timestep.state, chosen, step_key)
            return step(carry), new, total + new.reward

        # A while loop, not a scan: a batch stops when its last episode ends, which may be long before the horizon.
        return jax.lax.while_loop(unfinished, advance, (carry, first, first.reward))[2]
