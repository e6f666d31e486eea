"""The data types of the library: a task's spec, one step, datasets of steps, and the samples that a payoff compares.

Shapes are those of one example or one run; callers vmap. `terminal` says that the next state is absorbing, `last`
that the recorded episode ends here. They are two fields, because truncation sets only `last`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Key

from understudy.core.arrays import Array
from understudy.core.spec import (
    DEFAULT_BATCH,
    DEFAULT_WIDTH,
    LARGEST_BOUND,
    MOST_ACTIONS,
    MOST_STEPS,
    ActionSpace,
    Continuous,
    Discrete,
    MultiDiscrete,
    Spec,
    action_kind,
    actions_memory,
)

__all__ = [
    "DEFAULT_BATCH",
    "DEFAULT_WIDTH",
    "LARGEST_BOUND",
    "MOST_ACTIONS",
    "MOST_STEPS",
    "ActionSpace",
    "ActionValues",
    "Continuous",
    "Dataset",
    "Discrete",
    "Info",
    "MultiDiscrete",
    "Pair",
    "Replay",
    "RoundData",
    "Samples",
    "Spec",
    "State",
    "Transition",
    "Weighted",
    "action_kind",
    "actions_memory",
    "appended",
    "padded_with",
]


class Transition(NamedTuple):
    """One step. With a leading axis, many."""

    t: Int[Array, "..."]
    obs: Float[Array, "... obs"]
    act: Array
    next_obs: Float[Array, "... obs"]
    terminal: Bool[Array, "..."]
    """The next state is absorbing. A time limit is not a terminal state."""
    last: Bool[Array, "..."]
    """The episode ends with this step, by termination or truncation."""
    known_next: Bool[Array, "..."]
    """Whether next_obs was recorded. Demonstrations often lack the last one of an episode."""
    round: Int[Array, "..."]
    """The round that collected the step; -1 for demonstrations."""


class Weighted(NamedTuple):
    """Weighted steps that stand for the expert's moments, from replay estimation (`train.replays`)."""

    steps: Transition
    weight: Float[Array, " n"]
    """The weighted sum over the steps is the expected sum over an episode. Padding has weight 0."""
    cumulative: Float[Array, " n"]
    """Cumulative weights, up to 1."""

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Transition:
        """Steps drawn in proportion to their weights, with replacement."""
        index = jnp.searchsorted(self.cumulative, jax.random.uniform(key, shape), side="right")
        index = jnp.minimum(index, len(self.cumulative) - 1)  # rounding: the last entry may be below 1
        return jax.tree.map(lambda x: x[index], self.steps)


class Dataset(NamedTuple):
    """Steps padded to a common size; the first `size` are real, so that runs with different data share one program.

    Where a user's function may meet padding, it is a copy of a real step (`padded_with`): the function may be NaN
    elsewhere.
    """

    steps: Transition
    size: Int[Array, ""]
    estimate: Weighted | None = None
    """Other steps that stand for the expert in a moment function; None: these. Runs have their own."""

    @property
    def mask(self) -> Bool[Array, " n"]:
        return jnp.arange(self.steps.t.shape[0]) < self.size

    def of(self, runs: Any) -> "Dataset":
        """The dataset of one run, or of some runs, where `size` has an entry for each run."""
        return self._replace(size=self.size[runs], estimate=jax.tree.map(lambda x: x[runs], self.estimate))

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Transition:
        """Steps drawn uniformly, with replacement."""
        index = jax.random.randint(key, shape, 0, self.size)
        return jax.tree.map(lambda x: x[index], self.steps)

    def evenly_spaced(self, count: int) -> Int[Array, " count"]:
        """The rows of `count` steps, evenly spaced over the real ones. With fewer steps, rows repeat."""
        index = jnp.arange(count)
        return index * (self.size // count) + index * (self.size % count) // count  # the product may be too large

    @classmethod
    def empty(cls, like: "Dataset", capacity: int) -> "Dataset":
        """An empty dataset for `capacity` steps with the shapes of another, whose first step is the padding."""
        steps = jax.tree.map(lambda x: jnp.broadcast_to(x[0], (capacity, *x.shape[1:])), like.steps)
        return cls(steps, jnp.zeros((), jnp.int32))

    def extend(self, new: "Dataset") -> "Dataset":
        """With the real steps of another appended; steps beyond the capacity are dropped."""
        steps = appended(self.steps, self.size, new.steps, new.size)
        return Dataset(steps, jnp.minimum(self.size + new.size, self.steps.t.shape[0]).astype(jnp.int32))


def padded_with(rows: Any, mask: Bool[Array, " n"], real: Any) -> Any:
    """Rows of arrays where `mask` is true; the others are replaced by the first row of `real`."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(mask.reshape(-1, *(1,) * (x.ndim - 1)), x, y[0].astype(x.dtype))

    return jax.tree.map(pick, rows, real)


def appended(old: Any, size: Int[Array, ""], new: Any, count: Int[Array, ""]) -> Any:
    """Arrays whose first `size` rows are real, with the first `count` rows of `new` appended."""
    room, rows = (jax.tree.leaves(side)[0].shape[0] for side in (old, new))
    index = jnp.arange(rows)
    place = jnp.where(index < count, size + index, room)
    return jax.tree.map(lambda x, y: x.at[place].set(y, mode="drop"), old, new)


class ActionValues(NamedTuple):
    """One action tried in each state, and its value if the expert acts afterwards."""

    act: Array
    value: Float[Array, " n"]
    """Q^{π_E}_t(s, a), exact or sampled."""


class Replay(NamedTuple):
    """Every step that a run has collected, the newest included. The first `size` rows are real."""

    steps: Transition
    """A step's `round` is the round that collected it."""
    reward: Float[Array, " n"]
    """The task reward, for RL without imitation (`learn`). No imitation algorithm reads it."""
    size: Int[Array, ""]
    ordinary: Bool[Array, " n"] | None = None
    """Whether the step's episode began as the environment begins them, not at a demonstrated step. None: all did."""

    @property
    def usual(self) -> Bool[Array, " n"]:
        """Mask of the real steps of ordinary episodes: those that show what the learner's policy visits."""
        real = jnp.arange(self.steps.t.shape[0]) < self.size
        return real if self.ordinary is None else real & self.ordinary


class RoundData(NamedTuple):
    """The data that an algorithm's `update` gets. Fields that its card does not request are None.

    Off-Q algorithms see the demonstrations. On-Q algorithms also see the round's episodes and the expert's answers; in
    round 0 there are none, since no policy is trained yet. Algorithms with a `Schedule` have several updates in a
    round, and see the replay buffer and the newest steps.
    """

    demonstrations: Dataset
    rollouts: Dataset | None = None
    """This round's steps of the learner. Steps that the expert has answered come first."""
    expert_actions: Array | None = None
    """The expert's actions at the states of `rollouts`. Valid where `answered`, see `answers`."""
    answered: Bool[Array, " n"] | None = None
    """Mask of the states of `rollouts` at which the expert was queried."""
    success: Float[Array, " n"] | None = None
    """Whether the task is solved after each step of `rollouts`: 1 or 0. NaN: the environment does not say."""
    action_values: ActionValues | None = None
    """Actions tried at the states of `rollouts`, and their values under the expert. Valid where `answered`."""
    held_out: Dataset | None = None
    """Demonstrated steps that no learner trains on, for payoffs that can be compared across rounds."""
    replay: Replay | None = None
    new_steps: Transition | None = None
    """The steps since the last update, in order: (environments, time)."""
    ordinary: Bool[Array, "envs time"] | None = None
    """Whether the episode of each of `new_steps` began as the environment begins them. None: all did."""
    task_reward: Float[Array, "envs time"] | None = None
    """The task rewards of `new_steps`. No imitation algorithm reads them."""
    round: Int[Array, ""] | int = 0
    """The round's number, from 0."""
    update: Int[Array, ""] | int = 0
    """The update's number within the round, from 0."""

    @property
    def queried(self) -> Dataset:
        """The learner's steps at which the expert was queried. The padding is a demonstrated step."""
        assert self.rollouts is not None
        assert self.answered is not None
        steps = padded_with(self.rollouts.steps, self.answered, self.demonstrations.steps)
        return Dataset(steps, self.answered.sum().astype(jnp.int32))

    @property
    def answers(self) -> Array:
        """The expert's actions at the steps of `queried`, padded in the same way."""
        answers: Array = padded_with(self.expert_actions, self.answered, self.demonstrations.steps.act)
        return answers


class Samples(NamedTuple):
    """Weighted (t, s, a): the weighted sum of f over them stands for the expectation (1/T) Σ_t E f(s_t, a_t)."""

    t: Int[Array, " n"]
    obs: Array
    act: Array
    weight: Float[Array, " n"]


class Pair(NamedTuple):
    """The two sides that a payoff compares."""

    learner: Samples
    expert: Samples


class Info(NamedTuple):
    """The metrics of an update, and whether the run stops."""

    metrics: dict[str, Float[Array, ""]]
    stop: Int[Array, ""] | int = 0
    """0: continue; i: stop for the i-th of the algorithm's `stop_reasons`."""
    undo: Bool[Array, ""] | bool = False
    """Keep the state from before this update."""
    score: Float[Array, ""] | None = None
    """How far `policy(state)` seems to be from the expert, measured on held-out data, however noisily; the lower the
    better. Rounds with low scores are candidates for the final policy (`train.selection`). None: not measured."""


State = Any
"""An algorithm's state: a pytree of arrays with everything that its next update needs."""
