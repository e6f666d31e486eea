"""The front door: an algorithm and demonstrations in, policies out."""

import json
import operator
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, SupportsIndex, cast

import jax
import numpy as np

from understudy.collect.choose import collector_for
from understudy.core.errors import DemonstrationError, NeedsError, SettingError, check_callable, check_seed, check_whole
from understudy.core.progress import Progress
from understudy.core.types import Dataset, Discrete
from understudy.data import Demonstrations, bundled, load
from understudy.envs import Environment, GymnasiumEnvironment, make, public_name
from understudy.game import Algorithm
from understudy.policies.actor import Actor
from understudy.train import loop as run
from understudy.train.checkpoints import Checkpoint, digest
from understudy.train.logs import Logs
from understudy.train.results import Result, Run, hyperparameters, provenance
from understudy.train.selection import held_out, held_out_payoff

HOLDOUT = 0.02
"""The fraction of steps kept aside. Small: with few demonstrations, what is held out is missed in training."""
NEED_WORDS = {
    "environment": "an environment: pass env=, or --env in the shell",
    "expert": "a queryable expert: pass expert=, or --expert in the shell",
}


def imitate(
    algorithm: Algorithm,
    demonstrations: Demonstrations | str | os.PathLike[str],
    env: Any = None,
    expert: Any = None,
    seeds: int | Sequence[int] = 1,
    episodes: int | Sequence[int] | None = None,
    holdout: float = HOLDOUT,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    visit: run.Visit | None = None,
    policy_obs: Sequence[int] | None = None,
    workers: int | None = None,
    logs: Logs | str | os.PathLike[str] | None = None,
) -> Result:
    """Learn policies from demonstrations.

    `seeds=5` trains five policies in one compiled program, a list names the seeds. `episodes` uses the first few
    episodes; a list of counts trains every seed on each, still in one program. `holdout` is the fraction of steps kept
    aside for selecting among the policies. `env`, where an algorithm does not need it, tells bounds and horizon and is
    checked against the demonstrations; `expert`, where it asks nobody, is left alone. Ctrl-C ends training at the end
    of a round and returns what there is, with `result.interrupted` set. `checkpoint` names a file that keeps the place
    now and then: the same call goes on from it, after an interruption or a crash: to the same policies where nothing is
    played or in a JAX environment, in Gymnasium with new episodes. Remove it once the result is saved. `visit` may look
    at the learners' states after each round (`run.Visit`). `policy_obs` names the numbers of the observation that the
    policy sees, by index, where it must do without the others; critics still see all of it. `workers` is how many
    processes step a Gymnasium environment for an algorithm that learns while it plays (0: this one; default: as many as
    pay); the policies are the same however many there are. `logs` names a directory where each round is written down as
    it ends, as CSV and, if asked for, for TensorBoard and Weights & Biases: `Logs("runs/advil.logs", ["tensorboard"])`.
    """
    env, demonstrations = _checked(algorithm, demonstrations, env, expert)
    check_callable("rounds done, all rounds and a dict of metrics", progress=progress)
    check_callable("the rounds done and a function that gives the states", visit=visit)
    if workers is not None:
        check_whole(0, workers=workers)
    logs = Logs(logs) if isinstance(logs, str | os.PathLike) else logs
    if not isinstance(logs, Logs | None):
        raise SettingError(f"logs is {logs!r}: the name of a directory, or Logs(...), is needed")
    spec = replace(demonstrations.spec, policy_obs=cast(Any, policy_obs))  # Spec checks it
    seed_list, count_list = as_seeds(seeds), _counts(episodes, demonstrations)
    pairs = [(count, seed) for count in count_list for seed in seed_list]
    training, held = demonstrations.split([count for count, _ in pairs], holdout)
    if algorithm.card.next_states:
        _check_next_states(algorithm.card.title, training)
    keys = jax.vmap(jax.random.key)(np.array([seed for _, seed in pairs], np.uint32))

    settings, kept = hyperparameters(algorithm), None
    if checkpoint is not None:
        named = json.dumps([algorithm.card.name, settings])
        data = (training.steps, count_list, demonstrations.spec)
        identity = {"settings": named, "demonstrations": data, "seeds": seed_list, "policy_obs": spec.policy_obs}
        kept = Checkpoint(checkpoint, identity)
    collector = collector_for(algorithm, env, expert, [seed for _, seed in pairs], workers)
    name = algorithm.card.name
    asked = {
        "algorithm": {
            "name": name,
            "preset": algorithm.preset_name,
            "hyperparameters": settings,
            "card": asdict(algorithm.card),
        },
        "seeds": seed_list,
        "episodes": count_list,
        "holdout": float(holdout),
        "policy_obs": None if spec.policy_obs is None else list(spec.policy_obs),
        "demonstrations": summary(demonstrations),
    }
    with ExitStack() as stack:
        log = None if logs is None else stack.enter_context(logs.opened(pairs, asked | provenance()))
        trained = run.train(algorithm, spec, training, keys, collector, progress, kept, visit, held, log)
        states = jax.device_get(trained.states)
        criteria = {count: held_out(spec, training, held, i * len(seed_list)) for i, count in enumerate(count_list)}
        runs, actors = [], []
        for index, (count, seed) in enumerate(pairs):
            state = jax.tree.map(lambda x, i=index: x[i], states)
            policy, own = algorithm.final_policy(state), algorithm.final_payoff(state)
            actor = Actor(policy, spec, {"algorithm": name, "seed": seed, "episodes": count, "env": demonstrations.env})
            payoff = held_out_payoff(actor, criteria[count]) if own is None else own
            status = trained.statuses[index] if np.isfinite(payoff) else "diverged: the policy's actions are not finite"
            runs.append(Run(seed, count, status, payoff))
            actors.append(actor)
        if log is not None:
            log.end(runs)
    config = {**asked, "seconds": round(trained.seconds, 3), **provenance()}
    return Result(config, runs, actors, trained.metrics, trained.interrupted, env)


def demonstrations_of(env: str) -> Demonstrations:
    """Those that are bundled for a task."""
    if env not in bundled():
        known = make(env).name  # a name that is misspelled is refused as that
        raise NeedsError(f"{known} has no demonstrations of its own: give a file, or one of {', '.join(bundled())}")
    return load(env)


def _checked(
    algorithm: Algorithm, demonstrations: Any, env: Any, expert: Any
) -> tuple[Environment | GymnasiumEnvironment | None, Demonstrations]:
    """The environment and the demonstrations, made and loaded, after checking that the algorithm can use them."""
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise SettingError(f"algorithm is the class {algorithm.__name__}: call it, as in {algorithm.card.name}()")
    if not isinstance(algorithm, Algorithm):
        raise SettingError(f"algorithm is {algorithm!r}: give a value such as understudy.bc()")
    card = algorithm.card
    given = {"demonstrations": True, "environment": env is not None, "expert": expert is not None}
    for need in card.needs:
        if not given[need]:
            raise NeedsError(f"{card.title} matches {card.moments} moments, which needs {NEED_WORDS[need]}")
    if isinstance(demonstrations, str | os.PathLike):
        demonstrations = load(demonstrations)
    if not isinstance(demonstrations, Demonstrations):
        raise DemonstrationError(f"demonstrations is a {type(demonstrations).__name__}: see Demonstrations.from_arrays")
    if env is not None:
        env = make(env)
        demonstrations = replace(demonstrations.for_task(env.spec, env.name), env=public_name(env))
    kind = "discrete" if isinstance(demonstrations.action_space, Discrete) else "continuous"
    if kind not in card.actions:
        raise NeedsError(f"{card.title} takes {' and '.join(card.actions)} actions; these are {kind}")
    return env, demonstrations


def _check_next_states(title: str, training: Dataset) -> None:
    known = np.cumsum(np.asarray(training.steps.known_next | training.steps.terminal))
    if known[int(np.min(training.size)) - 1] == 0:
        raise DemonstrationError(
            f"{title} learns from the states that follow, and none is known: pass next_observations, or ends='terminal'"
        )


def as_seeds(seeds: Any) -> list[int]:
    """The seeds that a number of them, or a list, stands for."""
    if isinstance(seeds, SupportsIndex):
        check_whole(1, seeds=seeds)
        seeds = list(range(operator.index(seeds)))
    numbers = _whole_numbers("seeds", seeds, least=0)
    for seed in numbers:
        check_seed(seed)
    return numbers


def _counts(episodes: Any, demonstrations: Demonstrations) -> list[int]:
    counts = demonstrations.episodes if episodes is None else episodes
    return _whole_numbers("episodes", [counts] if isinstance(counts, SupportsIndex) else counts, least=1)


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
        raise SettingError(f"{name} is {numbers}: each value can be given once")
    return [int(value) for value in numbers]


def summary(demonstrations: Demonstrations) -> dict[str, Any]:
    """What a run's configuration says of the demonstrations."""
    stated = demonstrations.expert_return
    if stated is not None and not np.isfinite(stated.std):  # JSON has no NaN
        known: dict[str, Any] | None = {**stated._asdict(), "std": None}
    else:
        known = None if stated is None else stated._asdict()
    spec = asdict(demonstrations.spec)
    del spec["policy_obs"]  # demonstrations show everything; what the policy sees of it is the run's own
    return {
        "digest": digest(demonstrations.transitions()),
        "env": demonstrations.env,
        "episodes": demonstrations.episodes,
        "steps": demonstrations.steps,
        "spec": spec,
        "expert_return": known,
    }
