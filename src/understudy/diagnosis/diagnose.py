"""`diagnose`: measure everything that can be measured, and name the causes."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError, check_seed, check_whole
from understudy.core.text import quoted
from understudy.data import Demonstrations
from understudy.diagnosis import (
    ambiguity,
    compounding,
    coverage,
    data,
    demonstrators,
    hygiene,
    optimisation,
    performance,
    recording,
    recoverability,
    survival,
)
from understudy.diagnosis.causes import rank
from understudy.diagnosis.gathering import gather
from understudy.diagnosis.measures import CannotMeasureError, Diagnosis, Measure
from understudy.diagnosis.reference import Reference, build
from understudy.diagnosis.subject import Subject
from understudy.diagnosis.trials import play_clone
from understudy.train.results import Result


def diagnose(
    result: Result | Demonstrations | str | os.PathLike[str],
    env: Any = None,
    expert: Any = None,
    demonstrations: Demonstrations | str | os.PathLike[str] | None = None,
    episodes: int = 10,
    seed: int = 0,
) -> Diagnosis:
    """Say why a policy is worse than the expert, or what is wrong with demonstrations before training.

    Args:
        result: A `Result`, the directory of a run, demonstrations, or their path.
        env: Environment in which the policy plays fresh episodes (default: that of the run, or of bundled data).
        expert: Expert that answers at the learner's states, as in `understudy.imitate`.
        demonstrations: Those that a run was trained on; a run does not store them.
        episodes: Fresh episodes.
        seed: Seed of all random numbers.

    Returns:
        A `Diagnosis`: its `causes` are in order of likelihood, its `measures` have a number, a threshold and a chart.
    """
    check_whole(1, episodes=episodes)
    check_seed(seed)
    began = time.perf_counter()
    subject = gather(result, env, expert, demonstrations, episodes, seed)
    missing = dict(subject.missing)
    reference: Reference | None = None
    try:
        reference = build(subject)
        play_clone(subject, reference.actors[-1])
    except (UnderstudyError, np.linalg.LinAlgError) as error:
        missing["reference clone"] = quoted(error, 300)
    measures: list[Measure] = []
    for name, act in _measures(subject, reference).items():
        try:
            measures.append(act())
        except CannotMeasureError as error:
            missing[name] = str(error)
        except (UnderstudyError, np.linalg.LinAlgError) as error:
            missing[name] = quoted(error, 300)
    causes = rank(measures, _context(subject, measures, result, expert))
    return Diagnosis(subject.about, causes, measures, missing, time.perf_counter() - began)


def _measures(subject: Subject, reference: Reference | None) -> dict[str, Callable[[], Measure]]:
    return {
        "performance": lambda: performance.measure(subject),
        "coverage": lambda: coverage.measure(subject),
        "compounding": lambda: compounding.measure(subject, reference),
        "ambiguity": lambda: ambiguity.measure(subject),
        "data": lambda: data.measure(subject, reference),
        "optimisation": lambda: optimisation.measure(subject, reference),
        "recoverability": lambda: recoverability.measure(subject),
        "survival": lambda: survival.measure(subject),
        "recording": lambda: recording.measure(subject),
        "demonstrators": lambda: demonstrators.measure(subject),
        "hygiene": lambda: hygiene.measure(subject),
    }


def _context(subject: Subject, measures: list[Measure], given: Any, expert: Any) -> dict[str, Any]:
    """The names that commands need."""
    found = {one.name: one.numbers for one in measures}
    needed = found.get("data", {}).get("needed")
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    config = subject.result.config if subject.result is not None else {}
    return {
        "env": subject.env.name if subject.env is not None else None,
        "demos": path if subject.result is None else (subject.demos.env if subject.demos is not None else None),
        "run": path if subject.result is not None else None,
        "expert": None if subject.expert is None else (expert if isinstance(expert, str) else "EXPERT"),
        "algorithm": config.get("algorithm", {}).get("name"),
        "rounds": found.get("optimisation", {}).get("rounds"),
        "needed": int(np.ceil(needed)) if needed is not None and needed < 1e5 else None,
    }
