"""Trials: fresh episodes of the policies, of the expert, of random actions, and of the reference clone."""

from functools import partial
from typing import Any

import numpy as np

from understudy.collect.acting import uniform_actions
from understudy.collect.recorder import Episodes
from understudy.collect.rollouts import rollout
from understudy.core.errors import UnderstudyError
from understudy.core.text import quoted
from understudy.core.types import Continuous
from understudy.diagnosis.subject import Subject
from understudy.policies.actor import Actor

HELD = 10
"""Mean number of steps for which exploring episodes hold an action."""
STRETCHED = 2.0
"""The clone's actions are stretched, too, where the environment's range is more than so many times the recorded one."""
MOST_POLICIES = 10
"""Policies of a run that play fresh episodes."""


def _played(subject: Subject, name: str, policy: Any, seed: int, deterministic: bool = True) -> Episodes | None:
    try:
        return rollout(subject.env, policy, subject.episodes, seed, deterministic)
    except (UnderstudyError, ValueError, ArithmeticError) as error:  # a policy or an environment may fail
        subject.missing[name] = quoted(error, 300)
        return None


def play_clone(subject: Subject, actor: Actor) -> None:
    """Fresh episodes of the reference clone. They show how episodes of the demonstrated behaviour end."""
    own, explore = subject.seeds(2)
    if subject.env is None:
        return
    subject.cloned = _played(subject, "episodes of the reference clone", actor.policy, own)
    if subject.actor is None and subject.cloned is not None:
        act = _exploring(subject.env.spec.action, actor.policy, np.random.default_rng(explore))
        subject.guided = _played(subject, "episodes around the reference clone", act, explore)
    space, demos = subject.env.spec.action, subject.demos
    if demos is None or not isinstance(space, Continuous) or not isinstance(demos.action_space, Continuous):
        return
    reach = np.maximum(np.abs(np.asarray(space.low)), np.abs(np.asarray(space.high)))
    gain = reach / np.maximum(np.abs(demos.actions).max(0), 1e-9)
    if np.isfinite(gain).all() and gain.max() > STRETCHED:
        act = _stretching(actor.policy, gain, space, np.random.default_rng(own))
        subject.stretched = _played(subject, "episodes of the stretched clone", act, own)


def play(subject: Subject) -> None:
    """Fresh episodes: of the policies, of the expert, of random actions, and exploring ones."""
    env, actor = subject.env, subject.actor
    assert env is not None
    own, explore, others = subject.seeds(3)
    played = partial(_played, subject)

    if actor is not None:
        subject.fresh = played("fresh episodes", actor.policy, own)
        result = subject.result
        assert result is not None
        most = max(run.episodes for run in result.runs)
        rivals = [one for one, run in zip(result.policies, result.runs, strict=True) if run.episodes == most]
        if subject.fresh is not None and len(rivals) > 1:
            found = [played(f"policy {i}", one.policy, own) for i, one in enumerate(rivals[:MOST_POLICIES])]
            whole = [one.returns for one in found if one is not None]
            subject.returns = np.stack(whole) if whole else None
    if subject.expert is not None:
        expert = subject.expert
        subject.theirs = played("the expert's episodes", expert.source(own), own, expert.deterministic)
    reference = subject.reference
    if reference is not None:
        beside = subject.theirs
        if reference is not subject.expert:
            beside = played("reference episodes", reference.source(own), own, reference.deterministic)
        subject.reference_returns = None if beside is None else beside.returns
    space = env.spec.action
    uniform = played("random episodes", uniform_actions(space, np.random.default_rng(others)), others)
    subject.random_returns = None if uniform is None else uniform.returns
    if subject.demos is not None and isinstance(space, Continuous):
        mean = subject.demos.actions.mean(0).astype(np.float32)
        constant = played("episodes of the mean action", lambda obs: np.tile(mean, (len(obs), 1)), others)
        subject.idle_returns = None if constant is None else constant.returns
    guide = actor.policy if actor is not None and subject.fresh is not None else None
    source = subject.reference.policy if subject.reference is not None else None
    subject.explored = played(
        "exploring episodes", _exploring(space, guide or source, np.random.default_rng(explore)), explore
    )


def _stretching(policy: Any, gain: np.ndarray, space: Continuous, random: np.random.Generator) -> Any:
    def act(obs: np.ndarray) -> np.ndarray:
        chosen = np.asarray(policy.mode(policy.reset(random, (len(obs),)), obs)) * gain
        return np.asarray(np.clip(chosen, np.asarray(space.low), np.asarray(space.high)), np.float32)

    return act


def _exploring(space: Any, policy: Any, random: np.random.Generator) -> Any:
    """Random actions, and in half of the steps those of a policy, so that episodes last.

    In every second episode random actions are held for a while, because actions that change in every step cancel.
    """
    uniform = uniform_actions(space, random)
    held: np.ndarray | None = None

    def act(obs: np.ndarray) -> np.ndarray:
        nonlocal held
        chosen = uniform(obs)
        if held is not None and held.shape == chosen.shape:
            keeps = (np.arange(len(chosen)) % 2 == 0) & (random.random(len(chosen)) > 1 / HELD)
            chosen = np.where(keeps.reshape(-1, *(1,) * (chosen.ndim - 1)), held, chosen)
        held = chosen
        if policy is None:
            return chosen
        followed = np.asarray(policy.mode(policy.reset(random, (len(obs),)), obs))
        mask = random.random(len(obs)) < 0.5
        fine = np.isfinite(followed.reshape(len(obs), -1)).all(1)
        return np.where((mask & fine).reshape(-1, *(1,) * (chosen.ndim - 1)), followed.astype(chosen.dtype), chosen)

    return act
