"""Start states: episodes that begin at a demonstrated step, not where the environment begins them.

With probability `start_share` an episode is reset as usual and then set to the state of a demonstrated step, drawn
uniformly. It continues from that step's time, so it ends at the horizon as every episode does. Episodes are marked by
how they began: returns, payoffs and moments are of the ordinary ones. Evaluation never begins at demonstrated steps.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array
from understudy.core.errors import NeedsError
from understudy.core.types import Dataset
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.states import check_reached, differs
from understudy.envs.trial import check_set_state


class Starts(NamedTuple):
    """The demonstrated steps at which the episodes of a run may begin: the first `size` rows."""

    obs: Float[Array, "n obs"]
    t: Int[Array, " n"]
    size: Any
    """A number, or one for each run."""
    state: Any = None
    """The states of a JAX environment, by row; None: the environment is on the host."""
    share: Any = 0.0
    """The probability that an episode begins at one of them."""

    def of_run(self, run: int) -> "Starts":
        """The rows of one run, on the host."""
        size = int(self.size[run])
        return Starts(self.obs[:size], self.t[:size], size)

    def drawn(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, " obs"], Int[Array, ""]]:
        """The state, the observation and the time of a row drawn uniformly."""
        row = jax.random.randint(key, (), 0, self.size)
        return jax.tree.map(lambda x: x[row], (self.state, self.obs, self.t))


def demonstrated_starts(env: Environment | GymnasiumEnvironment, demonstrations: Dataset | None) -> Starts:
    """The start states of all runs. Raises if the environment cannot be set to them."""
    if demonstrations is None:
        raise NeedsError("start_share is above 0: episodes begin at demonstrated steps, pass demonstrations")
    obs, t = (np.asarray(x) for x in (demonstrations.steps.obs, demonstrations.steps.t))
    starts = Starts(obs, t, np.asarray(demonstrations.size))
    if isinstance(env, GymnasiumEnvironment):
        env.check_settable()
        return starts
    check_set_state(env)
    state, seen = _placed(env, jnp.asarray(obs), jnp.asarray(t))
    found, real = np.asarray(seen), np.arange(len(obs)) < starts.size.max()
    for row in np.flatnonzero(differs(obs, found).any(1) & real)[:1]:
        check_reached(env.name, obs[row], found[row], f" in row {row}")
    return starts._replace(obs=seen, t=jnp.asarray(t), state=state)


@jax.jit
def _placed(env: Environment, obs: Array, t: Array) -> tuple[Any, Array]:
    """The states and the observations of all rows."""
    return jax.vmap(env.set_state)(obs, t)
