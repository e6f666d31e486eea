"""What is diagnosed: demonstrations, policies, environment, expert, and fresh episodes in it."""

import os
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from understudy.collect.acting import ActingExpert, acting_expert, uniform_actions
from understudy.collect.recorder import Episodes
from understudy.collect.rollouts import rollout
from understudy.core.errors import DemonstrationError, SettingError, UnderstudyError
from understudy.core.paths import checked_path
from understudy.core.statistics import Sample
from understudy.core.text import quoted
from understudy.core.types import Continuous, Spec
from understudy.data import Demonstrations, bundled, load
from understudy.envs import JAX_ENVIRONMENTS, Environment, GymnasiumEnvironment, make_unfinished
from understudy.evaluation.returns import completed
from understudy.experts.bundled import bundled_experts
from understudy.policies.actor import Actor, check_fits
from understudy.train.checkpoints import digest
from understudy.train.completing import completed as completed_by_data
from understudy.train.results import Result, load_run

HELD = 10
"""Mean number of steps for which exploring episodes hold an action."""
MOST_POLICIES = 10
"""Policies of a run that play fresh episodes."""


@dataclass
class Subject:
    """Everything that measures look at. None: not there; `missing` says why."""

    about: str
    demos: Demonstrations | None = None
    result: Result | None = None
    env: Environment | GymnasiumEnvironment | None = None
    expert: ActingExpert | None = None
    reference: ActingExpert | None = None
    """The given expert, or a scripted or bundled one of the task, which only shows what return is possible."""
    seed: int = 0
    episodes: int = 10
    fresh: Episodes | None = None
    """Episodes of the selected policy."""
    theirs: Episodes | None = None
    """Episodes of the expert from the same starts."""
    explored: Episodes | None = None
    """Episodes of which half of the actions are random."""
    cloned: Episodes | None = None
    """Episodes of the reference clone."""
    guided: Episodes | None = None
    """Demonstrations alone: episodes in which half of the actions are the reference clone's and half random."""
    random_returns: np.ndarray | None = None
    idle_returns: np.ndarray | None = None
    """Of the demonstrations' mean action in every step: a policy that ignores its observations. None: discrete."""
    reference_returns: np.ndarray | None = None
    returns: np.ndarray | None = None
    """(policies, episodes) of the runs with the most demonstrations."""
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def actor(self) -> Actor | None:
        return None if self.result is None else self.result.policy

    @property
    def spec(self) -> Spec:
        if self.env is not None:
            return self.env.spec
        if self.actor is not None:
            return self.actor.spec
        assert self.demos is not None
        return self.demos.spec

    @property
    def training(self) -> Demonstrations | None:
        """The demonstrations that the selected run uses."""
        if self.demos is None or self.result is None:
            return self.demos
        return self.demos.first(min(self.demos.episodes, self.result.runs[self.result.selected].episodes))

    @property
    def baseline(self) -> Sample | None:
        """The return of a policy without skill: random actions, or the mean action where that is better."""
        known = [one for one in (self.random_returns, self.idle_returns) if one is not None]
        return max((Sample.of(one) for one in known), key=lambda one: one.mean, default=None)

    @property
    def played(self) -> dict[str, Episodes]:
        """All fresh episodes, by who acts."""
        every = {
            "expert": self.theirs,
            "learner": self.fresh,
            "clone": self.cloned,
            "explored": self.explored,
            "guided": self.guided,
        }
        return {name: one for name, one in every.items() if one is not None}

    def seeds(self, count: int) -> list[int]:
        """Different seeds for different episodes."""
        return [int(one) for one in np.random.SeedSequence([self.seed, 7]).generate_state(count)]


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
        _play(subject)
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


def _play(subject: Subject) -> None:
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
