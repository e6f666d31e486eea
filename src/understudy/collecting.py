"""Demonstrations from an expert: scripted, a policy of ours, or any function from observations to actions."""

from typing import Any

import numpy as np

from understudy.data import Demonstrations
from understudy.envs import make, public_name
from understudy.experts import resolve
from understudy.rollouts import rollout


def collect(
    env: Any, expert: Any = None, episodes: int = 25, seed: int = 0, deterministic: bool | None = None
) -> Demonstrations:
    """Play the expert and keep everything: observations, actions, next observations, rewards, how episodes ended.

    `expert` is a policy, a function from a batch of observations to a batch of actions, the path of a saved policy or
    run, or "module:function"; without it, the environment's own scripted expert. A scripted expert draws its actions
    and a saved policy takes its mode, unless `deterministic` says otherwise.
    """
    env = make(env)
    policy = resolve(expert, env)
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
