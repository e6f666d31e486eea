"""The interface of collectors, which collect a round's data in addition to the demonstrations.

A collector has two halves. `Collector` is the host half: it starts worker processes and collects data outside JAX.
`InProgram` is the half inside the compiled round: it steps a JAX environment, or takes the data of the host half, and
returns the fields of `RoundData`. The training loop and its programs call these methods and do not depend on the kind
of collector.

    host half          environment    collects                       on the host             in the program
    Collector          none           nothing                        -                       Nothing
    Collector          JAX            episodes, and answers          -                       JaxEpisodes
    Collector          JAX            steps, into a replay buffer    -                       JaxSteps
    HostCollector      any            episodes, and answers          rolls out episodes      GivenEpisodes
    WorkerCollector    Gymnasium      steps, into a replay buffer    workers take steps      GivenSteps
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array
from understudy.core.types import ActionValues, Dataset, Replay, Spec, State, Transition
from understudy.game import Algorithm

NO_LIMIT = int(np.iinfo(np.int32).max)
"""The budget of runs that may query the expert without limit."""
Memory = Any
"""A collector's state between updates: a pytree of arrays whose first axis is the run."""


class Now(NamedTuple):
    """The current round and update."""

    round: Int[Array, ""]
    update: Int[Array, ""]


class Collected(NamedTuple):
    """The data that runs collected for an update, with a leading axis of runs. Fields that do not apply are None."""

    rollouts: Dataset | None = None
    expert_actions: Array | None = None
    answered: Array | None = None
    success: Array | None = None
    action_values: ActionValues | None = None
    replay: Replay | None = None
    new_steps: Transition | None = None
    ordinary: Array | None = None
    task_reward: Array | None = None
    mean_return: Float[Array, " runs"] | None = None
    """Over the episodes that ended; NaN if none did."""
    answers: Int[Array, " runs"] | None = None
    """Number of states at which the expert was queried."""
    env_steps: Float[Array, " runs"] | None = None
    """Environment steps of a run so far."""


class InProgram(eqx.Module):
    """Abstract: the half of a collector inside the compiled round. Every subclass is final."""

    def init(self, algorithm: Algorithm, states: State, spec: Spec) -> Memory:
        """The memory of runs that have collected nothing."""
        return ()

    @abstractmethod
    def collect(
        self,
        algorithm: Algorithm,
        states: State,
        memory: Memory,
        given: Any,
        now: Now,
        answers_left: Int[Array, " runs"],
        keys: Key[Array, " runs"],
    ) -> tuple[Memory, Collected]:
        """The memory after collecting, and the collected data. `given` comes from `Collector.gather`."""

    def stored(self, memory: Memory, rounds: int) -> list[Array]:
        """The arrays of the memory that a checkpoint stores after `rounds` rounds."""
        return jax.tree.leaves(memory)

    def restored(self, memory: Memory, arrays: list[np.ndarray]) -> Memory:
        """A fresh memory with the arrays of a checkpoint."""
        return jax.tree.unflatten(jax.tree.structure(memory), [jnp.asarray(array) for array in arrays])


class Request(NamedTuple):
    """The inputs of `Collector.gather`. Functions, so that the host waits only for the inputs that it reads."""

    algorithm: Algorithm
    states: Callable[[], State]
    """The states of all runs."""
    policies: Callable[[], Any]
    """The acting policies of all runs, stacked, as NumPy arrays."""
    round: int
    update: int
    queries: Callable[[], np.ndarray]
    """Queries that each run has made so far."""
    active: Callable[[], np.ndarray]
    """Which runs have not stopped."""


class Collector:
    """The host half of a collector. This base collects nothing on the host."""

    def __init__(self, in_program: InProgram, limit: int = NO_LIMIT):
        self.in_program = in_program
        self.limit = limit
        """Queries to the expert that a run may make."""

    calls_per_round = 1
    """Calls of the compiled program in a round: one, or one per update if each update's data come from the host."""
    waits_for_round = False
    """Whether `gather` needs the previous round to be finished."""
    checkpoint_first_round = False
    """Whether to store a checkpoint after the first round, because worker processes may die."""
    looks_ahead = False
    """Whether `ahead` reads the policies, which are copied for it: the update that has begun overwrites them."""

    def opened(self, first_round: int) -> AbstractContextManager[None]:
        """A context to hold open during training, for example one that starts and ends worker processes."""
        return nullcontext()

    def gather(self, request: Request) -> Any:
        """Collect on the host: arrays for the program, with a leading axis of runs, or None."""
        return None

    def ahead(self, request: Request) -> None:
        """Request the data of the next update. Called in a thread, while the update on gathered data runs."""


class Nothing(InProgram):
    """Off-Q algorithms collect nothing."""

    def collect(
        self,
        algorithm: Algorithm,
        states: State,
        memory: Memory,
        given: Any,
        now: Now,
        answers_left: Int[Array, " runs"],
        keys: Key[Array, " runs"],
    ) -> tuple[Memory, Collected]:
        return memory, Collected()


def offline() -> Collector:
    """The collector of off-Q algorithms."""
    return Collector(Nothing())
