"""The Gymnasium environments of one run, which step a chunk at a time under a NumPy copy of its policy."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from understudy.collect.checks import check_actions
from understudy.collect.replay import Chunk, zero_chunk
from understudy.collect.starts import Starts
from understudy.core.errors import UnderstudyError, WorkerError
from understudy.core.types import Continuous, MultiDiscrete
from understudy.envs import GymnasiumEnvironment
from understudy.envs.stepping import Report, no_report, reason
from understudy.policies import Carry, Policy, step


class StepRequest(NamedTuple):
    """A request for a run's steps before an update."""

    policy: Policy
    """NumPy leaves, in the environment's coordinates."""
    reset: bool
    """Start new episodes first."""
    random_steps: int
    """Each environment takes this many random exploration steps first."""
    start_share: float = 0.0
    """The probability that an episode begins at a demonstrated step, if the run has any."""


class TimedChunk(NamedTuple):
    """A chunk, and the time spent in environments and in the policy."""

    chunk: Chunk
    env_seconds: float
    act_seconds: float


class Runner:
    """A run's environments, their unfinished episodes, and its random number generators.

    `seed` is the run's seed, followed by numbers that tell its collections apart (`WorkerCollector`).
    """

    def __init__(
        self,
        env: GymnasiumEnvironment,
        seed: tuple[int, ...],
        envs: int,
        steps: int,
        starts: Starts | None = None,
        report: Report = no_report,
    ):
        self.name, self.spec, self.seed, self.steps = env.name, env.spec, seed, steps
        noise, random, *resets = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2 + envs))
        self._noise, self._random, self._resets, self._starts = noise, random, resets, starts
        self._envs = env.copies(envs, seed[0], report)
        space = env.spec.action
        self._bounds = np.array((space.low, space.high), np.float32) if isinstance(space, Continuous) else None
        self._obs = np.zeros((envs, *env.spec.obs_shape), np.float32)
        self._t, self._ordinary = np.zeros(envs, np.int32), np.ones(envs, bool)
        self._carry: Carry | None = None

    def play(self, request: StepRequest) -> TimedChunk:
        """The steps of a request. Whatever fails is named with the run."""
        try:
            return self._play(request)
        except UnderstudyError:
            raise
        except Exception as error:
            raise WorkerError(f"{reason(error)} (environment {self.name}, run of seed {self.seed[0]})") from error

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _play(self, request: StepRequest) -> TimedChunk:
        chunk = zero_chunk(self.spec, len(self._envs), self.steps, marked=self._starts is not None)
        clock, act_seconds, began = time.perf_counter, 0.0, time.perf_counter()
        if request.reset or self._carry is None:
            self._carry = request.policy.reset(self._noise, (len(self._envs),))
            for number in range(len(self._envs)):
                self._reset(number, request.start_share)
            self._carry = self._carry._replace(t=self._t.copy())
        for k in range(self.steps):
            before = clock()
            act = self._random_action() if k < request.random_steps else self._act(request.policy)
            act_seconds += clock() - before
            self._carry = step(self._carry)
            chunk.t[:, k], chunk.obs[:, k], chunk.act[:, k] = self._t, self._obs, act
            if chunk.ordinary is not None:
                chunk.ordinary[:, k] = self._ordinary
            self._advance(request, chunk, k, act.astype(self._envs[0].action_kind))
        return TimedChunk(chunk, clock() - began - act_seconds, act_seconds)

    def _reset(self, number: int, start_share: float) -> None:
        """Start a new episode in one of the environments, with a new seed. It may begin at a demonstrated step."""
        random = self._resets[number]
        self._obs[number] = self._envs[number].reset(int(random.integers(2**31)))
        self._t[number], self._ordinary[number] = 0, True
        if self._starts is not None and random.random() < start_share:
            row = int(random.integers(self._starts.size))
            self._obs[number] = self._envs[number].set_state(self._starts.obs[row])
            self._t[number], self._ordinary[number] = self._starts.t[row], False

    def _act(self, policy: Policy) -> np.ndarray:
        assert self._carry is not None
        chosen = policy.draw(self._carry, self._obs, self._noise)
        act = check_actions(chosen, len(self._envs), self.spec.action.shape)
        return act if self._bounds is None else np.minimum(np.maximum(act, self._bounds[0]), self._bounds[1])

    def _random_action(self) -> np.ndarray:
        space, count = self.spec.action, len(self._envs)
        if isinstance(space, Continuous):
            return self._random.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32)
        if isinstance(space, MultiDiscrete):
            return self._random.integers(space.nvec, size=(count, *space.shape))
        return self._random.integers(space.n, size=count)

    def _advance(self, request: StepRequest, chunk: Chunk, k: int, act: np.ndarray) -> None:
        """Step each environment. If an episode ends, start the next one."""
        for number, env in enumerate(self._envs):
            obs, reward, terminal, truncated, _ = env.step(act[number])
            last = terminal or truncated or self._t[number] >= self.spec.horizon - 1
            chunk.next_obs[number, k], chunk.reward[number, k] = obs, reward
            chunk.terminal[number, k], chunk.last[number, k] = terminal, last
            if last:
                self._reset(number, request.start_share)
                fresh = request.policy.reset(self._noise, (1,))
                self._carry = _with_row(self._carry, number, fresh._replace(t=self._t[number : number + 1]))
            else:
                self._obs[number] = obs
                self._t[number] += 1


class Runners:
    """The runs of one worker process."""

    def __init__(
        self,
        env: GymnasiumEnvironment,
        seeds: Sequence[tuple[int, ...]],
        envs: int,
        steps: int,
        starts: Sequence[Starts | None],
        report: Report,
    ):
        runs = zip(seeds, starts, strict=True)
        self._runs = [Runner(env, seed, envs, steps, own, report) for seed, own in runs]

    def play(self, requests: list[StepRequest | None]) -> list[TimedChunk | None]:
        """The chunk of each run; None for one that has stopped."""
        return [
            None if request is None else run.play(request) for run, request in zip(self._runs, requests, strict=True)
        ]

    def close(self) -> None:
        for run in self._runs:
            run.close()


def _with_row(carry: Carry | None, number: int, fresh: Carry) -> Carry:
    """The carry of a batch with one of its rows replaced."""
    assert carry is not None
    replaced = Carry(*(np.array(column) for column in carry))
    for column, new in zip(replaced, fresh, strict=True):
        column[number] = new[0]
    return replaced
