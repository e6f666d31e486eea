"""Demonstrations from an expert: scripted, a policy of ours, or any function from observations to actions."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from understudy.actor import load_policy
from understudy.data import Demonstrations
from understudy.envs import Environment, HostEnvironment, make, public_name
from understudy.errors import NeedsError, SpecError
from understudy.evaluation import check_fits
from understudy.policies import Policy
from understudy.rollouts import HostPolicy, rollout


def collect(
    env: Any, expert: Any = None, episodes: int = 25, seed: int = 0, deterministic: bool | None = None
) -> Demonstrations:
    """Play the expert and keep everything: observations, actions, next observations, rewards, how episodes ended.

    `expert` is a policy, a function from a batch of observations to a batch of actions, the path of a saved policy or
    run, or "module:function"; without it, the environment's own scripted expert. A scripted expert draws its actions
    and a saved policy takes its mode, unless `deterministic` says otherwise.
    """
    env = make(env)
    policy = _expert(env, expert)
    played = rollout(env, policy, episodes, seed, expert is not None if deterministic is None else deterministic)
    actions = played.flat(np.asarray(played.steps.act))
    return Demonstrations.from_arrays(
        played.flat(np.asarray(played.steps.obs)),
        actions,
        played.lengths,
        next_observations=played.flat(np.asarray(played.steps.next_obs)),
        terminals=played.flat(np.asarray(played.steps.terminal)),
        rewards=played.flat(played.rewards),
        action_space=env.spec.action,
        horizon=env.spec.horizon,
        env=public_name(env),
        source=f"the expert's episodes in {env.name}",
    )


def _expert(env: Environment | HostEnvironment, expert: Any) -> Policy | HostPolicy:
    if expert is None:
        if isinstance(env, Environment):
            return env.expert()
        raise NeedsError(f"{env.name} has no scripted expert: pass expert= a saved policy, or 'module:function'")
    if isinstance(expert, str) and ":" in expert and not Path(expert).exists():
        module, _, name = expert.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise NeedsError(f"expert '{expert}' cannot be imported ({error}): give 'module:function'") from error
    if isinstance(expert, str | Path):
        actor = load_policy(expert)
        check_fits(actor, env)
        return actor.policy
    if isinstance(expert, Policy) or callable(expert):
        return expert
    raise SpecError(f"expert is a {type(expert).__name__}: give a policy, a function, or a path")
