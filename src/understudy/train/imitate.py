"""`imitate`: an algorithm and demonstrations in, trained policies out."""

import json
import operator
import os
from collections.abc import Iterable, Sequence, Sized
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, SupportsIndex

import jax
import numpy as np

from understudy.collect.choose import collector_for
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import (
    DemonstrationError,
    NeedsError,
    SettingError,
    check_callable,
    check_choice,
    check_not_negative,
    check_seed,
    check_whole,
)
from understudy.core.memory import check_memory
from understudy.core.notices import notice
from understudy.core.parts import columns
from understudy.core.progress import ProgressOption, check_progress
from understudy.core.text import quoted
from understudy.core.types import ActionSpace, Dataset, action_kind
from understudy.data import Demonstrations, bundled, load
from understudy.data.holdout import kind_of
from understudy.data.inspection import ranges
from understudy.envs import Environment, GymnasiumEnvironment, make_unfinished, named_env, public_name
from understudy.experts.expert import Expert, as_expert
from understudy.game import Algorithm
from understudy.train import loop
from understudy.train.candidates import PARTS
from understudy.train.checkpoints import Checkpoint, digest
from understudy.train.completing import completed
from understudy.train.contract import check_moments, with_cost
from understudy.train.demonstrated import demonstrations_of, explored, record_demonstrations, records_expert
from understudy.train.final import Player, final_policies
from understudy.train.logs import Logs
from understudy.train.replays import with_replays
from understudy.train.results import Result, Run, hyperparameters
from understudy.train.selection import FEW_STEPS, SELECTS, Select, held_out
from understudy.train.sizes import RUN_BYTES, check_size
from understudy.train.tables import provenance

HOLDOUT = 0.05
"""The default fraction of held-out episodes. It is small: with few demonstrations, training misses them."""
NEED_WORDS = {
    "environment": "an environment: pass env=, or --env in the shell",
    "expert": "a queryable expert: pass expert=, or --expert in the shell",
}


def imitate(
    algorithm: Algorithm,
    demonstrations: Demonstrations | str | os.PathLike[str] | None = None,
    env: Any = None,
    expert: Any = None,
    seeds: int | Sequence[int] = 1,
    episodes: int | Sequence[int] | None = None,
    holdout: float = HOLDOUT,
    select: Select = "payoff",
    keep: int = 0,
    progress: ProgressOption = True,
    checkpoint: str | os.PathLike[str] | None = None,
    visit: loop.Visit | None = None,
    policy_obs: Sequence[int | str] | None = None,
    critic_obs: Sequence[int | str] | None = None,
    workers: int | None = None,
    logs: Logs | str | os.PathLike[str] | None = None,
    step_timeout: float = STEP_TIMEOUT,
    expert_timeout: float = 0.0,
    expert_normalization: str | os.PathLike[str] | None = None,
) -> Result:
    """Train policies from demonstrations.

    Args:
        algorithm: A value such as `us.bc()`.
        demonstrations: `Demonstrations`, or what `understudy.load` takes. None: the bundled ones of `env`; or, if
            there are none or `expert` is not the one that recorded them, 25 episodes of the named or the bundled expert
            (or as many as `episodes`). For an algorithm that needs none, episodes of random actions.
        env: The environment: all that `understudy.make` takes. Algorithms that do not need it take action bounds and
            horizon from it, and check the demonstrations against it. If it has no bounds, or no time limit, those of
            the demonstrations are used, and a warning says so.
        expert: The expert, for algorithms that query one, or to record demonstrations: a policy, a run, a
            Stable-Baselines3 zip or model, a function, an ONNX file, "module:function" (docs/experts.md).
        seeds: The number of seeds, counted from 0, or a list of seeds. All train in one compiled program.
        episodes: How many demonstrated episodes to use, from the first on. A list trains every seed on each number.
        holdout: The fraction of episodes that is held out to select among the policies, at least one of four or more.
            Of fewer, it is a fraction of the first one's steps (`data.holdout`). 0: nothing is held out.
        select: How an algorithm that trains in an environment chooses the policy of a run. "payoff": the last policy
            and some earlier ones play 10 fresh episodes each; the last is returned, unless another one is clearly
            closer to held-out demonstrations. "return": the same by the environment's reward, which imitation does not
            use otherwise. "last": the last policy.
        keep: Candidates to save besides, one of each of so many parts of training (`result.candidates`).
        progress: Show a progress bar on standard error, if it is a terminal or a notebook. False: silent. A function
            is called after each round instead, with the rounds done, all rounds, and the mean of each metric.
        checkpoint: A file that stores the state of training at intervals. The same call resumes from it: to the same
            policies without an environment or in a JAX environment, with new episodes in Gymnasium. Remove it once the
            result is saved.
        visit: Called after each round with its number and a function that returns the states of all runs. If it returns
            True, training ends there, as after Ctrl-C.
        policy_obs: Indices of the observation that the policy sees, or names of its parts (default: all).
        critic_obs: Those that critics and moment functions see (default: all).
        workers: Processes that step a Gymnasium environment (0: this process). The policies do not depend on it.
            Default: one per run, at most one per core; 0 for an environment that cannot be sent to another process.
        logs: A directory where each round is logged as CSV, or `Logs(directory, ["tensorboard"])`.
        step_timeout: Seconds that a step or reset in a worker may take (0: no limit). After that, or if a worker dies,
            a new one takes its place and starts new episodes; the third one in a row that fails ends training.
        expert_timeout: Seconds that an expert that is a function may take to answer a batch of states (0: no limit). It
            cannot be stopped, but training ends and keeps its checkpoint.
        expert_normalization: An npz file with the statistics of VecNormalize, for a Stable-Baselines3 zip.

    Returns:
        A `Result` with a policy for each seed and number of episodes. Ctrl-C ends training at the end of a round; the
        result then has the policies trained so far, and `result.interrupted` is set.
    """
    check_progress("rounds done, all rounds and a dict of metrics", progress)
    check_callable("the rounds done and a function that gives the states", visit=visit)
    if workers is not None:
        check_whole(0, workers=workers)
    check_not_negative(step_timeout=step_timeout, expert_timeout=expert_timeout)
    check_choice(SELECTS, select=select)
    check_whole(0, keep=keep)
    logs = Logs(logs) if isinstance(logs, str | os.PathLike) else logs
    if not isinstance(logs, Logs | None):
        raise SettingError(f"logs is {logs!r}: the name of a directory, or Logs(...), is needed")
    _check_needs(algorithm, env, expert)
    given, env = env, None if env is None else make_unfinished(env)
    public, task = (None, None) if env is None else (public_name(env), env.name)
    records = demonstrations is None and records_expert(public, task, expert)
    if records:
        most = None if episodes is None else max(_whole_numbers("episodes", _listed(episodes), least=1))
        unclipped = env.without_bounds() if isinstance(env, GymnasiumEnvironment) else env
        expert = None if unclipped is None else as_expert(expert, unclipped, normalization=expert_normalization)
        demonstrations = _recorded(env, expert, most, workers, step_timeout)
    explores = demonstrations is None and env is not None and _explores(algorithm, env)
    if explores and env is not None:
        demonstrations, holdout = explored(env, workers, step_timeout), 0.0
    env, demonstrations = _checked(algorithm, demonstrations, env)
    queried = None
    if env is not None and "expert" in algorithm.card.needs:
        queried = as_expert(expert, env, normalization=None if records else expert_normalization)
        clip = isinstance(env, GymnasiumEnvironment) and not env.has_own_bounds
        queried = replace(queried, timeout=expert_timeout or queried.timeout, clip=queried.clip or clip)
        if not records:
            queried.check(demonstrations.observations, env.spec)
    if critic_obs is not None and not algorithm.has_critic:
        raise SettingError(f"{algorithm.card.title} has no critic: leave out critic_obs")
    parts = demonstrations.obs_parts
    spec = replace(  # Spec checks the indices
        demonstrations.spec,
        policy_obs=columns(parts, policy_obs, "policy_obs"),
        critic_obs=columns(parts, critic_obs, "critic_obs"),
    )
    if select == "return" and env is None:
        raise NeedsError(
            "select='return' compares returns, which needs an environment: pass env=, or --env in the shell"
        )
    count_list = _counts(episodes, demonstrations)
    _notice_constants(demonstrations.first(max(count_list)))
    learner = with_cost(algorithm, env, demonstrations.first(max(count_list)))
    check_size(learner, spec, demonstrations.split(count_list[:1], holdout)[0], number_of(seeds) * len(count_list))
    seed_list = as_seeds(seeds)
    pairs = [(count, seed) for count in count_list for seed in seed_list]
    check_moments(algorithm, demonstrations.first(max(count_list)))
    training, held = demonstrations.split([count for count, _ in pairs], holdout)
    if algorithm.match == "obs-next" or (algorithm.card.next_states and algorithm.needs_actions):
        _check_next_states(algorithm, training)
    if algorithm.replays and env is not None:
        counted, play = [count for count, _ in pairs], Player(env, workers, step_timeout).play_one
        training = with_replays(algorithm, spec, training, demonstrations, counted, holdout, play)
    keys = jax.vmap(jax.random.key)(np.array([seed for _, seed in pairs], np.uint32))

    settings, place = hyperparameters(algorithm), None
    kept_parts = keep or (PARTS if algorithm.schedule is not None and select != "last" else 0)
    if checkpoint is not None:
        named = json.dumps([algorithm.card.name, settings])
        data = (training.steps, count_list, demonstrations.spec)
        seen = {"policy_obs": spec.policy_obs, "critic_obs": spec.critic_obs}
        named_parts = {"settings": named, "demonstrations": data, "seeds": seed_list, "candidates": kept_parts, **seen}
        place = Checkpoint(checkpoint, named_parts)
    collector = collector_for(learner, env, queried, [seed for _, seed in pairs], workers, step_timeout, training)
    environment = None if env is None else named_env(given, env)
    request = {
        "algorithm": {
            "name": algorithm.card.name,
            "preset": algorithm.preset_name,
            "hyperparameters": settings,
            "card": asdict(algorithm.card),
        },
        "seeds": seed_list,
        "episodes": count_list,
        "holdout": float(holdout),
        "select": select,
        "policy_obs": None if spec.policy_obs is None else list(spec.policy_obs),
        "critic_obs": None if spec.critic_obs is None else list(spec.critic_obs),
        "demonstrations": summary(demonstrations),
        "env": None if environment is None else environment.to_json(),
    }
    with ExitStack() as stack:
        log = None if logs is None else stack.enter_context(logs.opened(pairs, request | provenance()))
        with display.reporting(
            f"{algorithm.card.title} on {demonstrations.env or 'demonstrations'}", progress
        ) as report:
            trained = loop.train(learner, spec, training, keys, collector, report, place, visit, held, log, kept_parts)
            criteria = {
                count: held_out(spec, training, held, i * len(seed_list), algorithm.match)
                for i, count in enumerate(count_list)
            }
            player, plays = None, algorithm.judged_in_episodes or select == "return" or keep
            if env is not None and not trained.interrupted and plays:
                player = Player(env, workers, step_timeout)
            runs, actors, candidates = final_policies(
                learner, spec, trained, pairs, criteria, demonstrations.env, player, select, report
            )
        if log is not None:
            log.end(runs)
    config = {**request, "seconds": round(trained.seconds, 3), **provenance()}
    _notice_few_steps(demonstrations, runs, holdout)
    return Result(config, runs, actors, trained.metrics, trained.interrupted, env, candidates if keep else [])


def _notice_constants(demonstrations: Demonstrations) -> None:
    """Name the numbers of the observations that never change: nothing can be learned from them."""
    constant = np.flatnonzero(ranges(demonstrations.observations).constant)
    if constant.size:
        which = ", ".join(str(index) for index in constant[:10]) + (", ..." if constant.size > 10 else "")
        notice(
            f"{constant.size} of {demonstrations.observations.shape[1]} numbers of an observation are constant in the "
            f"demonstrations ({which}): nothing can be learned from them"
        )


def _notice_few_steps(demonstrations: Demonstrations, runs: list[Run], holdout: float) -> None:
    """Say so if held-out payoffs mean little."""
    for count in sorted({run.episodes for run in runs}):
        steps = min(run.held_out_steps for run in runs if run.episodes == count)
        kind = kind_of(demonstrations.lengths, count, holdout)
        if kind == "training":
            continue
        block = "a part of an episode whose other steps are in training"
        if kind == "block" or steps < FEW_STEPS:
            which = f"{steps} held-out steps, {block}" if kind == "block" else f"{steps} held-out steps"
            number = f"{count} demonstrated episode{'s' if count > 1 else ''}"
            notice(f"with {number} the held-out payoff is from {which}: it means little")


def _check_needs(algorithm: Any, env: Any, expert: Any) -> None:
    """Raise unless the algorithm is one, and has what it needs."""
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise SettingError(f"algorithm is the class {algorithm.__name__}: call it, as in {algorithm.card.name}()")
    if not isinstance(algorithm, Algorithm):
        raise SettingError(f"algorithm is {algorithm!r}: give a value such as understudy.bc()")
    card = algorithm.card
    # The cost may be the environment's, see `contract.with_cost`.
    given = {"demonstrations": True, "environment": env is not None, "expert": expert is not None, "cost": True}
    for need in card.needs:
        if not given[need]:
            raise NeedsError(f"{card.title} matches {card.moments} moments, which needs {NEED_WORDS[need]}")


def _recorded(
    env: Environment | GymnasiumEnvironment | None,
    expert: Expert | None,
    episodes: int | None,
    workers: int | None,
    step_timeout: float,
) -> Demonstrations:
    if env is None or expert is None:
        raise NeedsError("demonstrations are recorded from an expert in an environment: pass env= (--env) too")
    return record_demonstrations(env, expert, episodes, workers, step_timeout)


def _checked(
    algorithm: Algorithm, demonstrations: Any, env: Environment | GymnasiumEnvironment | None
) -> tuple[Environment | GymnasiumEnvironment | None, Demonstrations]:
    """The environment and the demonstrations, after checking that the algorithm can use them."""
    if demonstrations is None:
        if env is None:
            raise NeedsError("no demonstrations: pass some, or env= a task that has bundled ones, or env= and expert=")
        demonstrations = demonstrations_of(public_name(env) or env)
    if isinstance(demonstrations, str | os.PathLike):
        demonstrations = load(demonstrations)
    if not isinstance(demonstrations, Demonstrations):
        raise DemonstrationError(f"demonstrations is a {type(demonstrations).__name__}: see Demonstrations.from_arrays")
    if not demonstrations.has_actions and algorithm.needs_actions:
        raise NeedsError(algorithm.needs_actions)
    if env is not None:
        env = completed(env, demonstrations)
        demonstrations = replace(demonstrations.for_task(env.spec, env.name), env=public_name(env))
    _check_actions(algorithm, demonstrations.action_space)
    return env, demonstrations


def _check_actions(algorithm: Algorithm, space: ActionSpace) -> None:
    kind, card = action_kind(space), algorithm.card
    if kind not in card.actions and not (kind == "multi-discrete" and algorithm.multi_discrete):
        raise NeedsError(f"{card.title} takes {' and '.join(card.actions)} actions; these are {kind}")


def _explores(algorithm: Algorithm, env: Environment | GymnasiumEnvironment) -> bool:
    """Whether episodes of random actions take the place of demonstrations: there are none, and none are needed."""
    if "demonstrations" in algorithm.card.needs or public_name(env) in bundled():
        return False
    _check_actions(algorithm, env.spec.action)
    return True


def _check_next_states(algorithm: Algorithm, training: Dataset) -> None:
    terminal = training.steps.terminal & (algorithm.match != "obs-next")  # f needs the next state itself
    known = np.cumsum(np.asarray(training.steps.known_next | terminal))
    if known[int(np.min(training.size)) - 1] == 0:
        raise DemonstrationError(
            f"{algorithm.card.title} learns from next states, and the demonstrations have none: "
            "pass next_observations" + (", or ends='terminal'" if algorithm.match != "obs-next" else "")
        )


def as_seeds(seeds: Any) -> list[int]:
    """A list of seeds, from a list or from their number."""
    check_memory(f"training {number_of(seeds)} runs", number_of(seeds) * RUN_BYTES, "lower seeds")
    numbers = _whole_numbers("seeds", range(number_of(seeds)) if isinstance(seeds, SupportsIndex) else seeds, least=0)
    for seed in numbers:
        check_seed(seed)
    return numbers


def number_of(seeds: Any) -> int:
    """How many seeds there are, without making a list of them."""
    if isinstance(seeds, SupportsIndex):
        check_whole(1, seeds=seeds)
        return operator.index(seeds)
    return len(seeds) if isinstance(seeds, Sized) else 1  # `as_seeds` checks them


def _counts(episodes: Any, demonstrations: Demonstrations) -> list[int]:
    return _whole_numbers("episodes", _listed(demonstrations.episodes if episodes is None else episodes), least=1)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, SupportsIndex) else value


def _whole_numbers(name: str, values: Any, least: int) -> list[int]:
    if not isinstance(values, Iterable):
        raise SettingError(f"{name} is {values!r}: a whole number, or a list of them, is needed")
    numbers = list(values)
    for value in numbers:
        if not isinstance(value, SupportsIndex) or operator.index(value) < least:
            raise SettingError(f"{name} has the value {value!r}: whole numbers of at least {least} are needed")
    if not numbers:
        raise SettingError(f"{name} is empty: at least one is needed")
    if len(set(numbers)) < len(numbers):
        raise SettingError(f"{name} is {quoted(numbers)}: each value can be given once")
    return [int(value) for value in numbers]


def summary(demonstrations: Demonstrations) -> dict[str, Any]:
    """The summary of the demonstrations in a run's configuration."""
    stated = demonstrations.expert_return
    if stated is not None and not np.isfinite(stated.std):  # JSON has no NaN
        known: dict[str, Any] | None = {**stated._asdict(), "std": None}
    else:
        known = None if stated is None else stated._asdict()
    spec = asdict(demonstrations.spec)
    del spec["policy_obs"], spec["critic_obs"]  # settings of the run, not of the demonstrations
    return {
        "digest": digest(demonstrations.transitions()),
        "env": demonstrations.env,
        "episodes": demonstrations.episodes,
        "steps": demonstrations.steps,
        "spec": spec,
        "expert_return": known,
    }
