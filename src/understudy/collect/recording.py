"""Record demonstrations from an expert: a scripted one, a trained policy, or any function of observations."""

import os
from typing import Any, cast

import numpy as np

from understudy.collect.acting import acting_expert
from understudy.collect.checks import check_actions
from understudy.collect.recorder import Episodes
from understudy.collect.rollout_pool import another_seed, rollout_pool
from understudy.collect.rollouts import MakeVector, rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import SettingError, check_not_negative, check_seed, check_share, check_whole
from understudy.core.notices import notice
from understudy.core.spaces import MARGIN, margin_bounds
from understudy.core.types import Continuous, Discrete, MultiDiscrete, Spec
from understudy.data import Demonstrations
from understudy.envs import GymnasiumEnvironment, make, public_name
from understudy.experts.functions import Function
from understudy.policies import Carry, Policy
from understudy.policies.actor import Actor


def record(
    env: Any,
    expert: Any = None,
    episodes: int = 25,
    seed: int = 0,
    deterministic: bool | None = None,
    noise: float = 0.0,
    workers: int | None = None,
    step_timeout: float = STEP_TIMEOUT,
    expert_timeout: float = 0.0,
    expert_normalization: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Demonstrations:
    """Run the expert for some episodes and return them as demonstrations.

    The demonstrations hold observations, actions, next observations, rewards and terminal flags.

    `expert` is a policy, a function of a batch of observations or of one, a model with `predict`, "module:function", or
    the path of a run, a saved policy, a Stable-Baselines3 zip (with the npz of VecNormalize's statistics in
    `expert_normalization`), an npz of weights or an ONNX file. By default it is the environment's scripted expert, or
    else the bundled trained one.

    By default a scripted expert acts stochastically and a trained policy deterministically; `deterministic` overrides
    this. `noise` perturbs the actions: it adds Gaussian noise with this standard deviation, in half-ranges, to a
    continuous action and clips it to the range; it replaces a discrete action, with this probability, by a uniformly
    random one. The perturbed actions are recorded.

    If the actions of an environment have no bounds, nothing clips them. The bounds of the demonstrations are then the
    range of the actions, with a tenth of it on each side.

    A Gymnasium environment steps in another process if it can be sent to one (`workers=0`: in this one). `step_timeout`
    limits the seconds of a step or reset there (0: no limit). After that the episodes start again, with other seeds.
    `expert_timeout` limits the seconds in which an expert that is a function answers a batch of observations.

    A terminal shows a spinner, unless `progress` is False.
    """
    env = make(env)
    bounded = not isinstance(env, GymnasiumEnvironment) or env.bounded
    if isinstance(env, GymnasiumEnvironment):
        env = env.without_bounds()
    if noise != 0 and not bounded:
        raise SettingError(f"noise is {noise!r}: it is measured in half-ranges, and {env.name} has actions without any")
    recorded = acting_expert(expert, env, deterministic, expert_timeout, normalization=expert_normalization)
    mode = recorded.deterministic

    def play(vector: MakeVector | None, attempt: int) -> Episodes:
        start = another_seed(seed, attempt)
        source = recorded.source(start)
        if noise != 0:
            source = _with_noise(source, env.spec, noise, mode, start)
        return rollout(env, source, episodes, start, mode, vector=vector)

    check_whole(1, episodes=episodes)
    check_seed(seed)
    if noise != 0:
        _check_noise(env.spec, noise)
    pool = rollout_pool(env, 1, workers, step_timeout)
    with display.working(f"recording {episodes} episodes of {env.name}", progress):
        if pool is None:
            collected = play(None, 0)
        else:
            with pool:
                if recorded.policy is not None and noise == 0:
                    collected = pool.rollout(recorded.policy, episodes, seed, mode).result()
                else:
                    collected = pool.stepwise(play)
    actions = collected.flat(np.asarray(collected.steps.act))
    if not bounded:
        notice(
            f"{env.name} has actions without bounds: those of the demonstrations are the range of the recorded actions "
            f"and {MARGIN:.0%} of it on each side"
        )
    return Demonstrations.from_arrays(
        collected.flat(np.asarray(collected.steps.obs)),
        actions,
        collected.lengths,
        next_observations=collected.flat(np.asarray(collected.steps.next_obs)),
        terminals=collected.flat(np.asarray(collected.steps.terminal)),
        rewards=collected.flat(collected.rewards),
        action_space=env.spec.action if bounded else margin_bounds(actions),
        horizon=env.spec.horizon,
        env=public_name(env),
        obs_parts=env.spec.obs_parts,
        source=f"the expert's episodes in {env.name}",
    )


def _check_noise(spec: Spec, noise: float) -> None:
    if not isinstance(spec.action, Continuous):
        check_share(noise=noise)
    else:
        check_not_negative(noise=noise)


def _with_noise(source: Policy | Function, spec: Spec, noise: float, deterministic: bool, seed: int) -> Function:
    """The expert with action noise, as a function of a batch; a policy's carry is kept between calls."""
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
        if isinstance(space, MultiDiscrete):
            random_actions = random.integers(space.nvec, size=chosen.shape)
            return np.where(random.random((len(obs), 1)) < noise, random_actions, chosen)
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        perturbed = chosen + noise * (high - low) / 2 * random.standard_normal(chosen.shape)
        return np.clip(perturbed, low, high).astype(np.float32)

    return act
