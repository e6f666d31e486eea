"""Gathering: everything that there is to diagnose. What cannot be had is named in `Subject.missing`."""

import os
from typing import Any

from understudy.collect.acting import acting_expert
from understudy.core.errors import DemonstrationError, SettingError, UnderstudyError
from understudy.core.paths import checked_path
from understudy.core.text import quoted
from understudy.data import Demonstrations, bundled, load
from understudy.diagnosis.subject import Subject
from understudy.diagnosis.trials import play
from understudy.envs import JAX_ENVIRONMENTS, make_unfinished
from understudy.evaluation.returns import completed
from understudy.experts.bundled import bundled_experts
from understudy.policies.actor import check_fits
from understudy.train.checkpoints import digest
from understudy.train.completing import completed as completed_by_data
from understudy.train.results import Result, load_run


def gather(
    given: Any, env: Any = None, expert: Any = None, demonstrations: Any = None, episodes: int = 10, seed: int = 0
) -> Subject:
    """Find everything that is there, and play the fresh episodes. What cannot be had is named in `missing`."""
    given = _loaded(given)
    result = given if isinstance(given, Result) else None
    demos = given if isinstance(given, Demonstrations) else None
    if demos is None and result is None:
        raise SettingError(
            f"{quoted(repr(given))} cannot be diagnosed: pass a Result, a run directory, demonstrations or their path"
        )
    if isinstance(demonstrations, str | os.PathLike):
        demonstrations = load(demonstrations)
    if demonstrations is not None:
        demos = demonstrations
    name = result.config["algorithm"]["card"]["title"] if result else "demonstrations"
    subject = Subject(name, demos, result, episodes=episodes, seed=seed)
    if result is not None and demos is None:
        _find_demonstrations(subject, result)
    _find_env(subject, env)
    where = subject.env.name if subject.env is not None else (subject.demos.env if subject.demos is not None else None)
    subject.about = f"{name} of {where}" if where else name
    if subject.env is not None:
        _find_experts(subject, expert)
        play(subject)
    elif expert is not None:
        subject.missing["expert"] = "an expert is queried in an environment: pass env= (--env)"
    return subject


def _loaded(given: Any) -> Any:
    if not isinstance(given, str | os.PathLike):
        return given
    path = checked_path(given)
    return load_run(path) if (path / "config.json").is_file() and (path / "runs.csv").is_file() else load(given)


def _find_demonstrations(subject: Subject, result: Result) -> None:
    """The bundled demonstrations, if the run was trained on them."""
    name = result.config["demonstrations"]["env"]
    if name in bundled():
        found = load(name)
        if digest(found.transitions()) == result.config["demonstrations"]["digest"]:
            subject.demos = found
            return
    subject.missing["demonstrations"] = "a run does not store them: pass demonstrations= (--demos)"


def _find_env(subject: Subject, env: Any) -> None:
    result, demos = subject.result, subject.demos
    try:
        if env is None and result is not None:
            env = result.env if result.env is not None else result.named_env
        if env is None and result is None and demos is not None and demos.env in bundled():
            env = demos.env
        if env is None:
            subject.missing["environment"] = "no environment: pass env= (--env)"
            return
        made = make_unfinished(env)
        if subject.actor is not None:
            made = completed(made, subject.actor)
            check_fits(subject.actor, made)
        elif demos is not None:
            made = completed_by_data(made, demos)
        spec = made.spec
        if demos is not None and spec.obs_shape != demos.spec.obs_shape:
            subject.missing["demonstrations"] = (
                f"their observations have shape {demos.spec.obs_shape}, those of {made.name} {spec.obs_shape}: "
                "they are of another task"
            )
            subject.demos = None
        elif demos is not None and type(spec.action) is not type(demos.action_space):
            subject.missing["demonstrations"] = f"their actions are of another kind than those of {made.name}"
            subject.demos = None
        subject.env = made
    except UnderstudyError as error:
        subject.missing["environment"] = quoted(error, 300)
    if subject.demos is None and subject.result is None:
        raise DemonstrationError(subject.missing["demonstrations"])


def _find_experts(subject: Subject, expert: Any) -> None:
    assert subject.env is not None
    try:
        if expert is not None:
            subject.expert = acting_expert(expert, subject.env)
    except UnderstudyError as error:
        subject.missing["expert"] = quoted(error, 300)
    if expert is None:
        subject.missing["expert"] = "no expert to query: pass expert= (--expert)"
    subject.reference = subject.expert
    name = subject.env.name
    if subject.reference is None and (name in JAX_ENVIRONMENTS or name in bundled_experts()):
        try:
            subject.reference = acting_expert("scripted" if name in JAX_ENVIRONMENTS else "bundled", subject.env)
        except UnderstudyError as error:
            subject.missing["reference expert"] = quoted(error, 300)
