"""A finite MDP as an environment, so that sampled algorithms can be compared with exact numbers.

`tabular` computes values, occupancies and gaps of an MDP; here the same MDP is stepped. The observation is the state as
a one-hot vector, so that a network can represent any table. With `time=True` the time step follows as a second one-hot
vector, for policies that depend on it.
"""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Source, categorical, namespace
from understudy.core.types import Discrete, Spec
from understudy.envs.base import Environment, EnvState, Timestep
from understudy.envs.values import ActionValueEstimator
from understudy.policies import Carry, Policy, start
from understudy.tabular.mdp import Dense, FiniteMDP, Successors, check_policy, check_single, check_table
from understudy.tabular.planning import q_values

if TYPE_CHECKING:
    from understudy.tabular.examples import Example


class FiniteState(NamedTuple):
    t: Int[Array, ""]
    s: Int[Array, ""]


class Finite(Environment):
    """An MDP of `tabular` with its expert π_E[t, s, a] and its reward r[t, s, a].

    If an action is not available in a state, the first available one is taken instead. Leaves are float32. The expert's
    values are computed in float64 and rounded once. `Finite.of(example)` takes LOOP, CLIFF, UNICYCLE and TREE.
    """

    dynamics: Dense | Successors
    initial: Float[Array, " s"]
    executed: Int[Array, "s a"]
    """The action that is taken for each chosen one."""
    policy: Float[Array, "t s a"]
    """π_E."""
    reward: Float[Array, "t s a"]
    expert_values: Float[Array, "t s a"]
    """Q^{π_E}, exact."""
    time: bool = eqx.field(static=True)
    name: ClassVar[str] = "Finite"
    about: ClassVar[str] = "a finite MDP of understudy.tabular"

    def __init__(self, mdp: FiniteMDP, expert: Any, reward: Any, time: bool = False):
        check_single(mdp)
        check_policy(mdp, expert, "the expert")
        check_table(mdp, reward)
        available = np.asarray(mdp.available)
        chosen = np.broadcast_to(np.arange(mdp.actions), available.shape)
        executed = np.where(available, chosen, available.argmax(-1)[:, None])
        values = q_values(mdp, np.asarray(reward), np.asarray(expert))
        self.dynamics = jax.tree.map(_single, mdp.dynamics)
        self.initial, self.executed = _single(mdp.initial), jnp.asarray(executed, jnp.int32)
        self.policy, self.reward = _single(expert), _single(reward)
        self.expert_values = _single(np.take_along_axis(values, np.broadcast_to(executed, values.shape), axis=-1))
        self.time = bool(time)

    @classmethod
    def of(cls, example: "Example", time: bool = False) -> "Finite":
        """One of the paper's examples."""
        return cls(example.mdp, example.expert, example.reward, time)

    @property
    def spec(self) -> Spec:
        horizon, states, actions = self.policy.shape
        return Spec((states + horizon * self.time,), Discrete(actions), horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[FiniteState, Float[Array, " obs"]]:
        state = FiniteState(jnp.zeros((), jnp.int32), _draw(self.initial, key))
        return state, self.observe(state)

    def step(self, state: FiniteState, act: Array, key: Key[Array, ""]) -> Timestep:
        act = self.executed[state.s, act]
        if isinstance(self.dynamics, Dense):
            next_s = _draw(self.dynamics.probabilities[state.s, act], key)
        else:
            next_s = self.dynamics.index[state.s, act]
        new = FiniteState(state.t + 1, next_s)
        return Timestep(new, self.observe(new), self.reward[state.t, state.s, act], jnp.array(False))

    def set_state(self, obs: Float[Array, " obs"], t: Int[Array, ""]) -> tuple[FiniteState, Float[Array, " obs"]]:
        states = self.policy.shape[1]
        state = FiniteState(jnp.asarray(t, jnp.int32), obs[:states].argmax().astype(jnp.int32))
        return state, self.observe(state)

    def expert(self) -> Policy:
        return Lookup(self.policy)

    def values(self) -> ActionValueEstimator:
        """Q^{π_E} from a table, for `Expert(env.expert(), values=env.values())`."""
        return ExactValues(self.expert_values)

    def observe(self, state: FiniteState) -> Float[Array, " obs"]:
        """The one-hot state, and with `time` the one-hot time step (all zeros after the last)."""
        horizon, states, _ = self.policy.shape
        obs = jax.nn.one_hot(state.s, states)
        return jnp.concatenate([obs, jax.nn.one_hot(state.t, horizon)]) if self.time else obs


class Lookup(Policy):
    """π[t, s, a] for one-hot observations. After the last time step it uses the last row."""

    table: Float[Array, "t s a"]

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def row(self, carry: Carry, obs: Array) -> Float[Array, "... a"]:
        """π_t(· | s)."""
        horizon, states, _ = self.table.shape
        xp = namespace(carry.t, obs)
        return self.table[xp.minimum(carry.t, horizon - 1), obs[..., :states].argmax(-1)]

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.row(carry, obs).argmax(-1)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        row = self.row(carry, obs)
        xp = namespace(row)
        return categorical(source, xp.where(row > 0, xp.log(xp.where(row > 0, row, 1.0)), -xp.inf))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        row = self.row(carry, obs)
        return jnp.log(jnp.take_along_axis(row, jnp.asarray(act)[..., None], axis=-1)[..., 0])

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return jnp.arange(self.table.shape[-1]), self.row(carry, obs)


class ExactValues(ActionValueEstimator):
    """Q^{π_E}_t(s, a) from a table."""

    table: Float[Array, "t s a"]

    def __call__(
        self, t: Int[Array, ""], state: EnvState, obs: Float[Array, " obs"], act: Array, key: Key[Array, ""]
    ) -> Float[Array, ""]:
        return self.table[t, state.s, act]


def _draw(probabilities: Float[Array, " n"], key: Key[Array, ""]) -> Int[Array, ""]:
    return jax.random.categorical(key, jnp.log(probabilities)).astype(jnp.int32)


def _single(table: Any) -> Array:
    """Convert to float32, or to int32 if the array holds integers."""
    array = np.asarray(table)
    return jnp.asarray(array, jnp.int32 if array.dtype.kind in "iu" else jnp.float32)
