"""Demonstrations from an expert: scripted, a policy of ours, or any function from observations to actions."""

from typing import Any, cast

import numpy as np

from understudy.collect.rollouts import check_actions, rollout
from understudy.core.errors import check_not_negative, check_seed, check_share
from understudy.core.types import Discrete, Spec
from understudy.data import Demonstrations
from understudy.envs import make, public_name
from understudy.experts.expert import Function, as_expert
from understudy.policies import Carry, Policy
from understudy.policies.actor import Actor


def collect(
    env: Any,
    expert: Any = None,
    episodes: int = 25,
    seed: int = 0,
    deterministic: bool | None = None,
    noise: float = 0.0,
) -> Demonstrations:
    """Play the expert and keep everything: observations, actions, next observations, rewards, how episodes ended.

    `expert` is a policy, a function from a batch of observations to a batch of actions, the path of a saved policy or
    run, or "module:function"; without it, the environment's own scripted expert, or the trained one that is bundled
    for it. A scripted expert draws its actions and a trained policy takes its mode, unless `deterministic` says
    otherwise. With `noise` its hand shakes: a continuous action is moved by a Gaussian of so many half-ranges and
    clipped to the range, a discrete one is with this chance drawn from all alike. The actions that were taken are kept.
    """
    env = make(env)
    asked = as_expert(expert, env)
    if deterministic is None:
        deterministic = expert is not None or asked.deterministic
    acts = asked.source if noise == 0 else _shaking(asked.source, env.spec, noise, deterministic, seed)
    played = rollout(env, acts, episodes, seed, deterministic)
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


def _shaking(source: Policy | Function, spec: Spec, noise: float, deterministic: bool, seed: int) -> Function:
    """The expert with noise, as a function of a batch that remembers what a policy remembers within an episode."""
    check_seed(seed)
    if isinstance(spec.action, Discrete):
        check_share(noise=noise)
    else:
        check_not_negative(noise=noise)
    space, random = spec.action, np.random.default_rng([seed, 1])
    actor = Actor(source, spec) if isinstance(source, Policy) else None
    carry: Carry | None = None

    def act(obs: np.ndarray) -> np.ndarray:
        nonlocal carry
        if actor is None:
            chosen = check_actions(cast("Function", source)(obs), len(obs), space.shape)
        else:
            chosen, carry = actor.predict(obs, carry, deterministic=deterministic, random=random)
        if isinstance(space, Discrete):
            return np.where(random.random(len(obs)) < noise, random.integers(space.n, size=len(obs)), chosen)
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        moved = chosen + noise * (high - low) / 2 * random.standard_normal(chosen.shape)
        return np.clip(moved, low, high).astype(np.float32)

    return act
