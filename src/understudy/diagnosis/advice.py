"""`advise`: which algorithm to try first, from what a person has and what the demonstrations say.

Rules, in this order; the first that fits decides:

    the expert acts differently in alike states, continuous actions (a discrete policy has no mean action: its
    likeliest action is one of the expert's)
        expert and JAX environment    aggrevate   its values are sampled, and a mean action is not matched
        expert                        daequil     moments that all of its choices share
        environment                   adril       matches occupancies, not actions
        demonstrations alone          bc          preset mixture: the mode of one Gaussian is a mean action too
    expert, and H < T                 dagger      O(εHT)
    environment, continuous actions   adril       O(εT)
    environment, discrete actions     bc if a clone misses less than 5%, else gail
    demonstrations alone              advil if T ≥ 500, actions are continuous and there are 10 or more; else bc

Bounds on the gap, for rewards of size at most r (the largest recorded one, or 1):

    off-Q     r ε T²     ε: error of a small clone on unseen steps, as a share of wrong actions, at most 1
    reward    r ε T      ε = 1/√n: the sampling error of n demonstrated episodes
    on-Q      r ε H T    ε as for off-Q; H: measured cost of one mistake in steps of reward, or T without an expert

None can exceed 2 r T, the largest possible gap: a bound above it is called vacuous. ε and H are estimates, so the
bounds are approximate.
"""

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.algorithms import find
from understudy.collect.acting import uniform_actions
from understudy.collect.rollouts import rollout
from understudy.core.errors import UnderstudyError, check_seed
from understudy.core.text import quoted
from understudy.core.types import Continuous
from understudy.data import Demonstrations, load
from understudy.diagnosis import ambiguity, recoverability
from understudy.diagnosis.gathering import gather
from understudy.diagnosis.measures import CannotMeasureError
from understudy.diagnosis.reference import Reference, build
from understudy.diagnosis.subject import Subject
from understudy.envs import Environment

SAC_SECONDS = 0.0047
"""Seconds of a gradient step of SAC on two cores, from docs/results/sac-speed.csv: not measured on this machine."""
LONG = 500
MANY = 10


@dataclass(frozen=True)
class Facts:
    """What the rules look at."""

    demonstrations: int
    horizon: int
    continuous: bool
    ambiguous: bool
    environment: bool
    expert: bool
    jax: bool
    clone_error: float
    """NaN: not measured."""
    h: float
    """Cost of a mistake in steps of reward; the horizon if it is not known."""


@dataclass(frozen=True)
class Advice:
    """The algorithm to try first, and what each kind of moments would give."""

    about: str
    algorithm: str
    reason: str
    command: str
    facts: Facts
    rows: list[list[str]]
    notes: list[str]
    headers: tuple[str, ...] = ("moments", "algorithm", "needs", "bound on the gap", "cost")


def choose(facts: Facts) -> tuple[str, str]:
    """The algorithm and the reason, by the rules above."""
    if facts.ambiguous and facts.continuous:
        if facts.expert and facts.jax:
            return "aggrevate", "the expert acts differently in alike states, and its action values can be sampled"
        if facts.expert:
            return "daequil", "the expert acts differently in alike states, so match moments that its choices share"
        if facts.environment:
            return "adril", "the expert acts differently in alike states, so match occupancies, not actions"
        return "bc", "the expert acts differently in alike states: clone a mixture of actions (--preset mixture)"
    if facts.expert and facts.h < facts.horizon:
        return "dagger", f"the expert can be asked, and one mistake costs about {facts.h:.1f} of {facts.horizon} steps"
    if facts.environment and facts.continuous:
        return "adril", "you can play in the environment: reward moments grow with T, off-Q ones with T²"
    if facts.environment:
        if facts.clone_error < 0.05:
            return "bc", f"a small clone misses {facts.clone_error:.1%} of the actions already"
        return "gail", "you can play in the environment, and adril is weaker with discrete actions"
    if facts.continuous and facts.horizon >= LONG and facts.demonstrations >= MANY:
        return (
            "advil",
            f"the horizon of {facts.horizon} steps is long, and a learned loss forgives errors that do not matter",
        )
    return "bc", "only demonstrations, and a supervised loss is the most stable on them"


def advise(
    demonstrations: Demonstrations | str | os.PathLike[str], env: Any = None, expert: Any = None, seed: int = 0
) -> Advice:
    """Say which algorithm to try first: bounds on its gap from the data, its cost, and the command.

    Args:
        demonstrations: Demonstrations, or their path.
        env: Environment that can be played in; None: there is none.
        expert: Expert that can be queried; None: there is none.
        seed: Seed of all random numbers.
    """
    check_seed(seed)
    name = os.fspath(demonstrations) if isinstance(demonstrations, str | os.PathLike) else "FILE"
    demos = demonstrations if isinstance(demonstrations, Demonstrations) else load(demonstrations)
    subject = Subject("demonstrations", demos, seed=seed) if env is None else gather(demos, env, expert, seed=seed)
    notes = [f"Not available: {what} ({why})" for what, why in subject.missing.items() if what in ("environment",)]
    if expert is not None and subject.expert is None:
        notes.append(f"Not available: the expert ({subject.missing.get('expert', 'it needs --env')})")
    reference, each = _timed_reference(subject, notes)
    facts = _facts(subject, demos, reference, notes)
    algorithm, reason = choose(facts)
    command = _command(algorithm, name, env, expert, facts)
    rows = _rows(facts, demos, subject, each, reference)
    about = f"{demos.env or name}, {demos.episodes} demonstrations"
    return Advice(about, algorithm, reason, command, facts, rows, notes)


def _timed_reference(subject: Subject, notes: list[str]) -> tuple[Reference | None, float]:
    """The reference clone, and the seconds of one of its gradient steps with compilation (an upper bound)."""
    began = time.perf_counter()
    try:
        reference = build(subject)
    except UnderstudyError as error:
        notes.append(f"No reference clone: {quoted(error, 200)}")
        return None, float("nan")
    return reference, (time.perf_counter() - began) / (4000 * len(reference.counts))


def _facts(subject: Subject, demos: Demonstrations, reference: Reference | None, notes: list[str]) -> Facts:
    horizon = subject.spec.horizon
    ambiguous, h = False, float(horizon)
    try:
        found = ambiguity.measure(subject)
        modes = found.numbers["two_modes"]
        ambiguous = found.bad and (modes is None or modes > 0.1)
        notes.append(f"Ambiguity: {found.sentence}.")
    except CannotMeasureError as error:
        notes.append(f"Ambiguity is not measured: {error}.")
    if subject.expert is not None:
        try:
            mistake = recoverability.measure(subject)
            h = max(mistake.numbers["h"], 1.0)
            notes.append(f"Recoverability: {mistake.sentence}.")
        except UnderstudyError as error:
            notes.append(f"Recoverability is not measured: {quoted(error, 200)}.")
    clone = float("nan")
    if reference is not None:
        train, unseen = reference.errors(reference.actors[-1])
        clone = unseen if np.isfinite(unseen) else train
    return Facts(
        demos.episodes,
        horizon,
        isinstance(demos.action_space, Continuous),
        ambiguous,
        subject.env is not None,
        subject.expert is not None,
        isinstance(subject.env, Environment),
        clone,
        h,
    )


def _rows(
    facts: Facts, demos: Demonstrations, subject: Subject, each: float, reference: Reference | None
) -> list[list[str]]:
    size = 1.0 if demos.rewards is None else float(np.abs(demos.rewards).max())
    clone = min(facts.clone_error, 1.0) if np.isfinite(facts.clone_error) else 1.0
    t, most = facts.horizon, 2 * size * facts.horizon
    bounds = {
        "off-Q": size * clone * t**2,
        "reward": size * t / np.sqrt(facts.demonstrations),
        "on-Q": size * clone * facts.h * t,
    }
    rate = _step_rate(subject)
    played = 100_000
    costs = {
        "off-Q": f"{50_000:,} gradient steps, {_minutes(50_000 * each)}",
        "reward": f"{played:,} environment steps, {_minutes(played * (SAC_SECONDS + rate))}",
        "on-Q": f"{10 * t:,} answers, {_minutes(10 * t * rate + 50_000 * each)}",
    }
    has = {"off-Q": True, "reward": facts.environment, "on-Q": facts.expert}
    names = {"off-Q": "bc, advil", "reward": "adril, gail", "on-Q": "dagger, daequil, aggrevate"}
    needs = {"off-Q": "demonstrations", "reward": "environment", "on-Q": "environment and expert"}
    return [
        [
            kind,
            names[kind],
            needs[kind] if has[kind] else f"{needs[kind]} (not given)",
            f"{bound:.3g}" + (f" (vacuous: no gap exceeds {most:.3g})" if bound >= most else ""),
            costs[kind],
        ]
        for kind, bound in bounds.items()
    ]


def _step_rate(subject: Subject) -> float:
    """Seconds of a step in the environment, measured now; 0 without one."""
    if subject.env is None:
        return 0.0
    act = uniform_actions(subject.env.spec.action, np.random.default_rng(0))
    rollout(subject.env, act, 2, 0)  # compiles
    began = time.perf_counter()
    played = rollout(subject.env, act, 2, 0)
    return (time.perf_counter() - began) / int(played.lengths.sum())


def _minutes(seconds: float) -> str:
    return "time not measured" if not np.isfinite(seconds) else f"about {max(seconds / 60, 0.1):.1f} min"


def _command(algorithm: str, demos: str, env: Any, expert: Any, facts: Facts) -> str:
    needs = find(algorithm).card.needs
    words = [f"understudy train {algorithm} --demos {demos}"]
    if "environment" in needs:
        words.append(f"--env {env if isinstance(env, str) else 'ENV'}")
    if "expert" in needs:
        words.append(f"--expert {expert if isinstance(expert, str) else 'EXPERT'}")
    if facts.ambiguous and algorithm == "bc" and facts.continuous:
        words.append("--preset mixture")
    return " ".join(words)
