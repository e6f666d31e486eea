"""The one interface of collectors: what a round collects beside the demonstrations.

A collector has two halves. `Collector` is the host half: it starts worker processes and gathers what has to be
gathered outside JAX. `InProgram` is the half inside the compiled round: it plays in a JAX environment, or takes what
the host half gathered, and turns it into the fields of `RoundData`. The training loop and its programs call these
methods and never ask which collector they have.

    collector     environment       collects                        host half                  in the program
    Offline       none              nothing                         -                          Nothing
    JaxCollector  JAX               episodes, and answers           -                          JaxEpisodes
                                    steps, into a replay buffer     -                          JaxSteps
    HostCollector any               episodes, and answers           plays a round's episodes   GivenEpisodes
    WorkerCollector  Gymnasium      steps, into a replay buffer     workers step               GivenSteps
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
"""What a collector carries from update to update: a pytree of arrays whose first axis is the run."""


class Now(NamedTuple):
    """Where training is."""

    round: Int[Array, ""]
    update: Int[Array, ""]


class Collected(NamedTuple):
    """What runs collected for an update, with a leading axis of runs. Fields that do not apply are None."""

    rollouts: Dataset | None = None
    expert_actions: Array | None = None
    answered: Array | None = None
    action_values: ActionValues | None = None
    replay: Replay | None = None
    new_steps: Transition | None = None
    task_reward: Array | None = None
    mean_return: Float[Array, " runs"] | None = None
    """Of the episodes that ended; NaN where none did."""
    answers: Int[Array, " runs"] | None = None
    """States that the expert was queried at."""
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
        """The memory after this update's collection, and what was collected. `given` comes from `Collector.gather`."""

    def stored(self, memory: Memory, rounds: int) -> list[Array]:
        """The arrays of the memory that a checkpoint stores after so many rounds."""
        return jax.tree.leaves(memory)

    def restored(self, memory: Memory, arrays: list[np.ndarray]) -> Memory:
        """A fresh memory with the arrays of a checkpoint."""
        return jax.tree.unflatten(jax.tree.structure(memory), [jnp.asarray(array) for array in arrays])


class Request(NamedTuple):
    """What the host half may look at before a call of the compiled round. Functions, so that nothing waits unasked."""

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
    """Calls of the compiled program in a round: one, or one for each update that is gathered on the host."""
    waits_for_round = False
    """Whether `gather` needs the round before to be finished."""
    checkpoint_first_round = False
    """Whether to store a checkpoint after the first round already, since worker processes may die."""

    def opened(self, first_round: int) -> AbstractContextManager[None]:
        """What has to be open while training runs, such as worker processes."""
        return nullcontext()

    def gather(self, request: Request) -> Any:
        """The arrays that the program is given, with a leading axis of runs; None for nothing."""
        return None


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
