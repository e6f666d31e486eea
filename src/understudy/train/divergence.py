"""What was not finite when a run diverged. It is measured after the fact, on the data of the round and the state that
the run has kept, so that training pays nothing for it. A message states measurements only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from understudy.collect.base import Collected
from understudy.collect.replay import ReplayMemory
from understudy.core.types import Spec, State, Transition
from understudy.game import Algorithm
from understudy.game.critics import as_vector
from understudy.game.features import Features, gradient_not_finite, largest, not_finite
from understudy.game.payoffs import action_vector
from understudy.policies.normalization import Normalization
from understudy.train.records import RoundRecord


class Data(NamedTuple):
    """The data of one run in the round in which it diverged, on the host. Only real rows."""

    demonstrated: Transition
    collected: Transition | None = None
    """The run's episodes of the round, or its replay buffer."""
    answers: np.ndarray | None = None
    """The expert's actions, or its action values, at the first of the collected steps."""
    values: bool = False
    """Whether the answers are action values."""
    rewards: np.ndarray | None = None

    @classmethod
    def of_replay(cls, demonstrated: Transition, memory: ReplayMemory, run: int, rows: int, index: int) -> "Data":
        """From the first `rows` rows of a run's replay buffer, without steps that it took after round `index`."""
        steps, rewards = jax.device_get(jax.tree.map(lambda x: x[run, :rows], (memory.steps, memory.reward)))
        before = steps.round <= index
        return cls(demonstrated, jax.tree.map(lambda x: x[before], steps), rewards=rewards[before])

    @classmethod
    def of_episodes(cls, demonstrated: Transition, collected: Collected | None) -> "Data":
        """From the episodes of the round, if any."""
        if collected is None or collected.rollouts is None or not int(collected.rollouts.size):
            return cls(demonstrated)
        size = int(collected.rollouts.size)
        steps = jax.tree.map(lambda x: np.asarray(x)[:size], collected.rollouts.steps)
        if collected.answered is None:
            return cls(demonstrated, steps)
        count = int(np.asarray(collected.answered).sum())
        if collected.action_values is not None:
            return cls(demonstrated, steps, np.asarray(collected.action_values.value)[:count], values=True)
        return cls(demonstrated, steps, np.asarray(collected.expert_actions)[:count])


def cause(
    algorithm: Algorithm,
    spec: Spec,
    state: State,
    record: RoundRecord,
    run: int,
    data: Data,
    update: Callable[[], State] | None = None,
) -> str:
    """What was not finite in a run that diverged: a metric, and the data or moments behind it, if that was measured.

    `state` is the state before the round, on the host; `update` computes the one after it again.
    """
    metrics = [
        f"{name} is {_value(float(values[run]))}"
        for name, values in record.metrics.items()
        if not np.isfinite(values[run]) and name != "return"
    ]
    found = _broken_data(data)
    if found is None and algorithm.moments is not None:
        found = _broken_moments(algorithm.moments, _moment_actions(algorithm, spec, state, data), data)
    parts = [found]
    if found is None:
        reached = _moment_range(algorithm, spec, state, data)
        parts = [_broken_state(state, update), _range(state, data), reached]
    return "; ".join(part for part in (*metrics[:1], *parts) if part is not None)


def _broken_data(data: Data) -> str | None:
    """The first collected numbers that are not finite, in the order in which a step produces them."""
    steps = data.collected
    if steps is None:
        return None
    answers = "the expert's action values" if data.values else "the expert's actions"
    rows = {
        "the environment's observations": steps.obs,
        answers: data.answers,
        "the learner's actions": steps.act,
        "the environment's rewards": data.rewards,
        "the environment's next observations": steps.next_obs,
    }
    bad = {name: _not_finite_rows(numbers) for name, numbers in rows.items() if numbers is not None}
    first = {name: int(steps.t[: len(flags)][flags].min()) for name, flags in bad.items() if flags.any()}
    if not first:
        return None
    name = min(first, key=lambda name: first[name])  # of several with the same time, the first in this order
    return f"{name} {_count(bad[name], steps)}"


def _broken_moments(moments: Features, actions: dict[str, Any], data: Data) -> str | None:
    """Moments, or else their gradients, that are not finite at the collected steps."""
    steps = data.collected
    measures: tuple[tuple[str, Any], ...] = (("moments", not_finite), ("gradients of the moments", gradient_not_finite))
    for name, measure in measures:
        for whose, act in actions.items():
            assert steps is not None
            bad = measure(moments, steps.obs[: len(act)], act)
            if bad.any():
                return f"the {name} {_count(bad, steps)}, with the {whose} action"
    return None


def _moment_range(algorithm: Algorithm, spec: Spec, state: State, data: Data) -> str | None:
    """The largest of the user's moments at the collected steps."""
    if algorithm.moments is None or data.collected is None:
        return None
    actions = _moment_actions(algorithm, spec, state, data)
    size = max(largest(algorithm.moments, data.collected.obs[: len(act)], act) for act in actions.values())
    return f"the moments reach {size:.3g}"


def _moment_actions(algorithm: Algorithm, spec: Spec, state: State, data: Data) -> dict[str, Any]:
    """The actions at the collected steps as the moments get them."""
    if data.collected is None:
        return {}
    actions = {"learner's": _learner_actions(algorithm, spec, state, data.collected)}
    if data.answers is not None and not data.values:
        actions["expert's"] = jax.vmap(as_vector, (0, None))(jnp.asarray(data.answers), spec.num_actions)
    return actions


def _learner_actions(algorithm: Algorithm, spec: Spec, state: State, steps: Transition) -> Any:
    """The learner's actions as the moments get them: vectors or, if discrete, probabilities."""
    if spec.num_actions is None:
        return steps.act
    policy = algorithm.acting_policy(jax.tree.map(jnp.asarray, state))
    key = jax.random.key(0)
    return jax.vmap(lambda t, obs: action_vector(policy, t, obs, spec.num_actions, key))(
        jnp.asarray(steps.t), jnp.asarray(steps.obs)
    )


def _range(state: State, data: Data) -> str | None:
    """The largest normalized observation: dimensions that are constant in the demonstrations have a tiny scale."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, Normalization))
    normalization = next((node for node in nodes if isinstance(node, Normalization)), None)
    if normalization is None:
        return None
    obs = (
        data.demonstrated.obs if data.collected is None else np.concatenate([data.demonstrated.obs, data.collected.obs])
    )
    with np.errstate(all="ignore"):
        size = np.abs(np.asarray(normalization.encode_obs(obs))).max(axis=0)
    dimension = int(np.argmax(np.where(np.isnan(size), np.inf, size)))
    return f"normalized observations reach {size[dimension]:.3g} in dimension {dimension}"


def _broken_state(before: State, update: Callable[[], State] | None) -> str | None:
    """The first array of the state that is not finite, before or else after the update."""
    for when, state in (("before", lambda: before), ("after", update)):
        for path, leaf in [] if state is None else jax.tree_util.tree_leaves_with_path(state()):
            if np.issubdtype(np.asarray(leaf).dtype, np.inexact) and not np.isfinite(leaf).all():
                return f"state{jax.tree_util.keystr(path)} is not finite {when} the update"
    return None


def _not_finite_rows(numbers: Any) -> np.ndarray:
    """At which rows some number is NaN or infinite."""
    finite = np.isfinite(np.asarray(numbers))
    return ~finite.all(axis=tuple(range(1, finite.ndim)))


def _count(bad: np.ndarray, steps: Transition) -> str:
    first = int(np.min(steps.t[: len(bad)][bad]))
    return f"are not finite at {int(bad.sum()):,} of {len(bad):,} collected steps, the first at t = {first}"


def _value(number: float) -> str:
    return "NaN" if np.isnan(number) else "infinite"
