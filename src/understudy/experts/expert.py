"""An expert that can be queried for its action in a state.

On-Q algorithms query the expert at the states that the learner visits. An expert is a policy, or any function from a
batch of observations to a batch of actions. Some algorithms query action values instead: the return of an action if the
expert acts after it. Either way, one state is one query. Queries are counted and can be limited.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key

from understudy.core.arrays import Array
from understudy.core.errors import NeedsError, SpecError, check_whole, unknown
from understudy.core.imports import load_name
from understudy.core.types import Continuous, Spec
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.values import ActionValueEstimator, MonteCarlo
from understudy.experts.answers import ask, check_numbers, check_range
from understudy.experts.bundled import bundled_experts, load_expert
from understudy.experts.weights import holds_weights, policy_from_weights
from understudy.policies import Policy
from understudy.policies.actor import Actor, check_fits
from understudy.policies.saved import load_policy

Function = Callable[[np.ndarray], np.ndarray]
"""Maps a batch of observations to a batch of actions."""
ValueFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps batches of observations and actions to Q^{π_E}(s, a), one number each."""


@dataclass(frozen=True)
class Expert:
    """An expert, and how often a run may query it."""

    source: Policy | Function
    limit: int | None = None
    """The maximal number of queries of each run; None: no limit."""
    deterministic: bool = False
    """Whether a policy answers with its mode, and not with a sample."""
    values: ActionValueEstimator | ValueFunction | None = None
    """Q^{π_E}(s, a), for algorithms that need it; None: `source.values` if it exists, else Monte Carlo samples."""
    timeout: float = 0.0
    """Seconds that a function may take to answer a batch of states; 0: no limit, since people may answer."""
    clip: bool = False
    """Whether continuous answers are clipped to the action bounds: bounds from demonstrations may be too narrow."""

    def budget(self, queries: int) -> "Expert":
        """The same expert with a limit on each run's queries. The last round is shortened to fit; then the run ends."""
        check_whole(1, queries=queries)
        return replace(self, limit=queries)

    @property
    def name(self) -> str:
        """The expert's name, for errors."""
        return "the expert" if isinstance(self.source, Policy) else f"the expert {_name_of(self.source)}"

    @property
    def policy(self) -> Policy | None:
        """The expert as a policy for use inside a compiled program, or None if it is a function."""
        return self.source if isinstance(self.source, Policy) else None

    def query(
        self, obs: np.ndarray, spec: Spec, random: np.random.Generator, t: np.ndarray | None = None
    ) -> np.ndarray:
        """The expert's actions in a batch of states. `t` is the time step of each state (default: 0)."""

        def answer() -> Any:
            if not isinstance(self.source, Policy):
                return self.source(np.array(obs))  # a copy: it may write to it
            carry = self.source.reset(random, (len(obs),))
            carry = carry if t is None else carry._replace(t=t)
            return self.source.mode(carry, obs) if self.deterministic else self.source.draw(carry, obs, random)

        actions = ask(self.name, answer, len(obs), self.timeout)
        actions = check_numbers(self.name, "actions", actions, (len(obs), *spec.action.shape))
        if self.clip and isinstance(spec.action, Continuous):
            actions = np.clip(actions, spec.action.low, spec.action.high)
        check_range(self.name, actions, spec.action)
        return actions.astype(np.float32 if isinstance(spec.action, Continuous) else np.int32)

    def query_values(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """Q^{π_E}(s, a) for a batch of states and actions, from the function `values`."""
        function = cast("ValueFunction", self.values)
        name = f"the expert's values {_name_of(function)}".strip()
        values = ask(name, lambda: function(np.array(obs), np.array(act)), len(obs), self.timeout)
        return check_numbers(name, "values", values, (len(obs),)).astype(np.float32)

    def with_values(self, env: Environment | GymnasiumEnvironment, title: str) -> "Expert":
        """The same expert with `values` set: its own, or Monte Carlo samples.

        Sampling needs a JAX environment, which can restart from any state, and an expert that is a policy.
        """
        values = getattr(self.source, "values", None) if self.values is None else self.values
        compiled = isinstance(env, Environment) and self.policy is not None
        if values is None and isinstance(env, Environment) and self.policy is not None:
            values = MonteCarlo(env, self.policy, self.deterministic)
        if values is None or (isinstance(values, ActionValueEstimator) and not compiled):
            raise NeedsError(
                f"{title} needs the expert's action values Q(s, a): use a JAX environment with expert= a policy, or "
                "pass expert=Expert(..., values=f) with a function f(obs, act)"
            )
        return replace(self, values=values)


def _name_of(source: Any) -> str:
    """The name of a function of the user, or of its class."""
    return str(getattr(getattr(source, "func", source), "__name__", type(source).__name__))


def query_expert(expert: Policy, deterministic: bool, t: Int[Array, ""], obs: Array, key: Key[jax.Array, ""]) -> Array:
    """The expert's action in one state at time t, inside a compiled program.

    Every query starts a new episode of the expert, so randomness that is drawn once per episode is drawn per query.
    """
    reset_key, act_key = jax.random.split(key)
    carry = expert.reset(reset_key)._replace(t=t)
    return jnp.asarray(expert.mode(carry, obs) if deterministic else expert.draw(carry, obs, act_key))


def as_expert(given: Any, env: Environment | GymnasiumEnvironment) -> Expert:
    """Make an expert from one of:

    - an `Expert`, a policy, or a function from observations to actions
    - the path of a saved policy, of a run's directory, or of an npz file of plain weights
    - "module:function"
    - "scripted": the scripted expert of a JAX environment
    - "bundled", or the name of a bundled expert
    - None: the scripted expert if there is one, else the bundled one

    A saved, trained or bundled policy answers deterministically. A scripted expert or a `Policy` answers with samples.
    """
    if isinstance(given, Expert):
        return given
    if given is None and isinstance(env, GymnasiumEnvironment) and env.name in bundled_experts():
        given = "bundled"
    if given is None or (isinstance(given, str) and given == "scripted"):
        if isinstance(env, Environment):
            return Expert(env.expert())
        raise NeedsError(
            f"{env.name} has no scripted expert{' and no bundled one' if given is None else ''}: pass "
            f"{'bundled, ' if env.name in bundled_experts() else ''}a saved policy, or 'module:function'"
        )
    if isinstance(given, str) and not Path(given).exists():
        if given == "bundled":
            given = load_expert(env.name)
        elif given in bundled_experts():
            given = load_expert(given)
        elif given.isidentifier():
            known = ["scripted", "bundled", *bundled_experts()]
            raise unknown("expert", given, known, "Or pass the path of a saved policy or run, or 'module:function'.")
    if isinstance(given, str) and ":" in given and not Path(given).exists():
        return Expert(cast("Function", load_name(given, "expert")))
    if isinstance(given, str | os.PathLike):
        given = policy_from_weights(given, env) if holds_weights(given) else load_policy(given)
    if isinstance(given, Actor):
        check_fits(given, env)
        return Expert(given.policy, deterministic=True)
    if isinstance(given, Policy) or callable(given):
        return Expert(cast("Policy | Function", given))
    raise SpecError(f"expert is a {type(given).__name__}: pass a policy, a function, a name or a path")
