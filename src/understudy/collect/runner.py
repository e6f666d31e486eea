"""The Gymnasium environments of one run, which step a chunk at a time under a NumPy copy of its policy."""

import time
from typing import NamedTuple

import numpy as np

from understudy.collect.replay import Chunk, zero_chunk
from understudy.collect.rollouts import check_actions
from understudy.core.errors import SpecError
from understudy.core.types import Continuous
from understudy.envs import GymnasiumEnvironment
from understudy.policies import Carry, Policy, step


class StepRequest(NamedTuple):
    """A request for a run's steps before an update."""

    policy: Policy
    """NumPy leaves, in the environment's coordinates."""
    reset: bool
    """Start new episodes first."""
    random_steps: int
    """Each environment takes this many random exploration steps first."""


class TimedChunk(NamedTuple):
    """A chunk, and the time spent in environments and in the policy."""

    chunk: Chunk
    env_seconds: float
    act_seconds: float


class Runner:
    """A run's environments, their unfinished episodes, and its random number generators."""

    def __init__(self, env: GymnasiumEnvironment, seed: tuple[int, ...], envs: int, steps: int):
        self.name, self.spec, self.seed, self.steps = env.name, env.spec, seed, steps
        noise, random, *starts = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2 + envs))
        self._noise, self._random, self._starts = noise, random, starts
        self._envs = [env.make_env() for _ in range(envs)]
        self._kind = self._envs[0].action_space.dtype
        space = env.spec.action
        self._bounds = np.array((space.low, space.high), np.float32) if isinstance(space, Continuous) else None
        self._obs = np.zeros((envs, *env.spec.obs_shape), np.float32)
        self._t = np.zeros(envs, np.int32)
        self._carry: Carry | None = None

    def play(self, request: StepRequest) -> TimedChunk:
        chunk = zero_chunk(self.spec, len(self._envs), self.steps)
        clock, act_seconds, began = time.perf_counter, 0.0, time.perf_counter()
        if request.reset or self._carry is None:
            self._carry = request.policy.reset(self._noise, (len(self._envs),))
            for number in range(len(self._envs)):
                self._reset(number)
        for k in range(self.steps):
            before = clock()
            act = self._random_action() if k < request.random_steps else self._act(request.policy, chunk)
            act_seconds += clock() - before
            self._carry = step(self._carry)
            chunk.t[:, k], chunk.obs[:, k], chunk.act[:, k] = self._t, self._obs, act
            self._advance(request.policy, chunk, k, act.astype(self._kind))
        self._check(chunk)
        return TimedChunk(chunk, clock() - began - act_seconds, act_seconds)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _reset(self, number: int) -> None:
        """Start a new episode in one of the environments, with a new seed."""
        obs, _ = self._envs[number].reset(seed=int(self._starts[number].integers(2**31)))
        self._obs[number], self._t[number] = obs, 0

    def _act(self, policy: Policy, chunk: Chunk) -> np.ndarray:
        assert self._carry is not None
        chosen = policy.draw(self._carry, self._obs, self._noise)
        try:
            act = check_actions(chosen, len(self._envs), self.spec.action.shape)
        except SpecError:
            self._check(chunk, self._obs)  # NaN observations cause NaN actions: report the observation
            raise
        return act if self._bounds is None else np.minimum(np.maximum(act, self._bounds[0]), self._bounds[1])

    def _random_action(self) -> np.ndarray:
        space, count = self.spec.action, len(self._envs)
        if isinstance(space, Continuous):
            return self._random.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32)
        return self._random.integers(space.n, size=count)

    def _advance(self, policy: Policy, chunk: Chunk, k: int, act: np.ndarray) -> None:
        """Step each environment. If an episode ends, start the next one."""
        for number, env in enumerate(self._envs):
            obs, reward, terminal, truncated, _ = env.step(act[number])
            last = terminal or truncated or self._t[number] == self.spec.horizon - 1
            chunk.next_obs[number, k], chunk.reward[number, k] = obs, reward
            chunk.terminal[number, k], chunk.last[number, k] = terminal, last
            if last:
                self._reset(number)
                self._carry = _with_row(self._carry, number, policy.reset(self._noise, (1,)))
            else:
                self._obs[number] = obs
                self._t[number] += 1

    def _check(self, chunk: Chunk, *now: np.ndarray) -> None:
        """Raise if a reward or observation is not finite."""
        for what, values in ("reward", chunk.reward), *(("observation", o) for o in (chunk.next_obs, chunk.obs, *now)):
            wrong = np.argwhere(~np.isfinite(np.asarray(values)))
            if len(wrong):
                number, value = wrong[0][0], np.asarray(values)[tuple(wrong[0])]
                raise SpecError(
                    f"{self.name} returned {value} in its {what} (environment {number} of the run of seed "
                    f"{self.seed}): numbers must be finite; one of gymnasium.wrappers can clip or replace them"
                )


def _with_row(carry: Carry | None, number: int, fresh: Carry) -> Carry:
    """The carry of a batch with one of its rows replaced."""
    assert carry is not None
    replaced = Carry(*(np.array(column) for column in carry))
    for column, new in zip(replaced, fresh, strict=True):
        column[number] = new[0]
    return replaced
