"""An expert that can be queried for its action in a state.

On-Q algorithms query the expert at the states that the learner visits. An expert is a policy, or any function from a
batch of observations to a batch of actions. Some algorithms query action values instead: the return of an action if the
expert acts after it. Either way, one state is one query. Queries are counted and can be limited.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key

from understudy.core.arrays import Array
from understudy.core.errors import NeedsError, RunError, SpecError, check_whole, unknown
from understudy.core.imports import find_own_code, load_name
from understudy.core.paths import checked_path
from understudy.core.text import quoted
from understudy.core.types import Continuous, Spec
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.values import ActionValueEstimator, MonteCarlo
from understudy.experts.answers import ask, check_numbers, check_range
from understudy.experts.bundled import bundled_experts, load_expert
from understudy.experts.files import KINDS, expert_file
from understudy.experts.functions import FEWEST, BatchFunction, Function, name_of, predicting, trial_rows
from understudy.experts.respondent import Answers, AskedRound, Respondent
from understudy.policies import Policy
from understudy.policies.actor import Actor, check_fits
from understudy.policies.networks import Activation

RESERVED = ("scripted", "bundled")
"""Names of experts that are never paths."""
ValueFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps batches of observations and actions to Q^{π_E}(s, a), one number each."""


@dataclass(frozen=True)
class Expert:
    """An expert, and how often a run may query it."""

    source: Policy | Function | Respondent
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
        return "the expert" if isinstance(self.source, Policy) else f"the expert {name_of(self.source)}"

    @property
    def respondent(self) -> Respondent | None:
        """The expert as one that answers only some states, such as a person; None if it answers all."""
        return self.source if isinstance(self.source, Respondent) else None

    @property
    def policy(self) -> Policy | None:
        """The expert as a policy for use inside a compiled program, or None if it is a function."""
        return self.source if isinstance(self.source, Policy) else None

    def query(
        self, obs: np.ndarray, spec: Spec, random: np.random.Generator, t: np.ndarray | None = None
    ) -> np.ndarray:
        """The expert's actions in a batch of states. `t` is the time step of each state (default: 0)."""

        if isinstance(self.source, Respondent):
            raise NeedsError(f"{self.name} answers after episodes, and cannot act in them: pass another expert")
        source = self.source

        def answer() -> Any:
            if not isinstance(source, Policy):
                return source(np.array(obs))  # a copy: it may write to it
            carry = source.reset(random, (len(obs),))
            carry = carry if t is None else carry._replace(t=t)
            return source.mode(carry, obs) if self.deterministic else source.draw(carry, obs, random)

        return self._checked(ask(self.name, answer, len(obs), self.timeout), len(obs), spec)

    def query_some(self, asked: AskedRound, most: int, spec: Spec) -> Answers:
        """The answers of a respondent to at most `most` of a round's candidates."""
        assert isinstance(self.source, Respondent)
        rows, actions = self.source.answer(asked, most)
        rows = np.asarray(rows)
        fits = rows.ndim == 1 and len(rows) <= most and len(np.unique(rows)) == len(rows)
        if not fits or not np.isin(rows, asked.candidates).all():
            raise SpecError(f"{self.name} answered rows that it was not asked about, or more than {most}")
        return Answers(rows.astype(np.int64), self._checked(actions, len(rows), spec))

    def _checked(self, actions: Any, count: int, spec: Spec) -> np.ndarray:
        """Answers as actions of the environment. Raises if they are none."""
        actions = check_numbers(self.name, "actions", actions, (count, *spec.action.shape))
        if self.clip and isinstance(spec.action, Continuous):
            actions = np.clip(actions, spec.action.low, spec.action.high)
        check_range(self.name, actions, spec.action)
        return actions.astype(np.float32 if isinstance(spec.action, Continuous) else np.int32)

    def check(self, obs: np.ndarray, spec: Spec) -> None:
        """Raise if the expert is a function that cannot answer. It is called with a few of these observations.

        The answers are not used, and do not count as queries.
        """
        if not isinstance(self.source, Policy | Respondent) and len(obs) and obs.shape[1:] == spec.obs_shape:
            self.query(trial_rows(obs[:FEWEST], spec), spec, np.random.default_rng(0))

    def query_values(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """Q^{π_E}(s, a) for a batch of states and actions, from the function `values`."""
        function = cast("ValueFunction", self.values)
        name = f"the expert's values {name_of(function)}".strip()
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


def query_expert(expert: Policy, deterministic: bool, t: Int[Array, ""], obs: Array, key: Key[jax.Array, ""]) -> Array:
    """The expert's action in one state at time t, inside a compiled program.

    Every query starts a new episode of the expert, so randomness that is drawn once per episode is drawn per query.
    """
    reset_key, act_key = jax.random.split(key)
    carry = expert.reset(reset_key)._replace(t=t)
    return jnp.asarray(expert.mode(carry, obs) if deterministic else expert.draw(carry, obs, act_key))


def as_expert(
    given: Any,
    env: Environment | GymnasiumEnvironment,
    activation: Activation | None = None,
    normalization: str | os.PathLike[str] | None = None,
) -> Expert:
    """Make an expert from one of:

    - an `Expert`, or a policy
    - a function of a batch of observations, or of one observation (`functions.BatchFunction` finds out which)
    - a model with `predict`, such as one of Stable-Baselines3
    - the path of a file or a directory, see `files.expert_file`; `activation` and `normalization` complete it
    - "module:name" of one of the above, or of a class; the current directory is searched last
    - "scripted": the scripted expert of a JAX environment
    - "bundled", or the name of a bundled expert
    - None: the scripted expert if there is one, else the bundled one

    A saved, trained or bundled policy answers deterministically. A scripted expert or a `Policy` answers with samples.
    """
    if isinstance(given, str | os.PathLike) and given not in RESERVED and checked_path(given).exists():
        return _of_object(expert_file(given, env, activation, normalization), env)
    for option, value in (("activation", activation), ("normalization", normalization)):
        if value is not None:
            raise NeedsError(
                f"expert_{option} (--expert-{option}) completes a file, and {_shown(given)} is none: leave it out"
            )
    if given is None and isinstance(env, GymnasiumEnvironment) and env.name in bundled_experts():
        given = "bundled"
    if given is None or (isinstance(given, str) and given == "scripted"):
        if isinstance(env, Environment):
            return Expert(env.expert())
        raise NeedsError(
            f"{env.name} has no scripted expert{' and no bundled one' if given is None else ''}: pass "
            f"{'bundled, ' if env.name in bundled_experts() else ''}{KINDS}"
        )
    if isinstance(given, str | os.PathLike):
        return _of_name(os.fspath(given), env)
    return _of_object(given, env)


def _of_name(given: str, env: Environment | GymnasiumEnvironment) -> Expert:
    """The expert of a name that is no path."""
    if given == "bundled":
        return _bundled(env.name, env)
    if given in bundled_experts():
        return _bundled(given, env)
    if ":" in given:
        find_own_code(given)
        found = load_name(given, "expert")
        return _of_object(ask(f"the expert {given}", found, 0, 0.0) if isinstance(found, type) else found, env)
    if given.isidentifier():
        raise unknown("expert", given, [*RESERVED, *bundled_experts()], f"Or pass {KINDS}.")
    raise RunError(f"no file '{quoted(given, 1000)}': an expert is scripted, bundled, {KINDS}")


def _bundled(name: str, env: Environment | GymnasiumEnvironment) -> Expert:
    """A bundled expert. Raises if it was trained with other arguments of the environment."""
    actor = load_expert(name)
    args, named = actor.about["card"].get("env_args", {}), getattr(env, "named", None)
    try:
        if named is not None and any(named.args.get(key, ...) != value for key, value in args.items()):
            raise SpecError("other arguments")
        return _of_object(actor, env)
    except SpecError as error:
        if not args:
            raise
        words = " ".join(f"--env-arg {key}={json.dumps(value)}" for key, value in args.items())
        raise NeedsError(
            f"the bundled expert of {name} was trained in {name} with env_args={args}, and this is another "
            f"{env.name}: pass them to the environment ({words}), or pass another expert"
        ) from error


def _of_object(given: Any, env: Environment | GymnasiumEnvironment) -> Expert:
    """The expert of an object of Python."""
    if isinstance(given, Expert):
        if isinstance(given.source, Policy | BatchFunction | Respondent):
            return given
        found = as_expert(given.source, env)
        values = found.values if given.values is None else given.values
        return replace(
            given, source=found.source, deterministic=given.deterministic or found.deterministic, values=values
        )
    if isinstance(given, Actor):
        check_fits(given, env)
        return Expert(given.policy, deterministic=True)
    if isinstance(given, Policy | Respondent):
        return Expert(given)
    if callable(getattr(given, "predict", None)) and not isinstance(given, type):
        return Expert(BatchFunction(predicting(given), _shapes(env)))
    if callable(given):
        return Expert(BatchFunction(given, _shapes(env)), values=getattr(given, "values", None))
    raise SpecError(f"expert is a {type(given).__name__}: pass a policy, a function, a model with predict, or {KINDS}")


def _shapes(env: Environment | GymnasiumEnvironment) -> Spec:
    """The spec of an environment for a function, which reads only its shapes: bounds and horizon may be unknown yet."""
    if isinstance(env, GymnasiumEnvironment):
        env = env.without_bounds()
        env = env.with_horizon(1) if env.horizon is None else env
    return env.spec


def _shown(given: Any) -> str:
    return f"'{quoted(given)}'" if isinstance(given, str | os.PathLike) else f"a {type(given).__name__}"
