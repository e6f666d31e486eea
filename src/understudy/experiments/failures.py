"""Where a learner's episodes fail, what its critic believes there, and whether its payoff sees it.

Every so many environment steps the policies, as they are then, play. With ρ the expert's reward a step, an episode
keeps up at step t while the mean reward of its next 50 steps is at least ρ / 2; where it does so for the last time it
is lost, and an episode that is lost and returns less than half of the expert's return has failed. For each episode:

    lost_at       when; empty if it has not failed
    belief        the smaller critic's mean over the 50 steps from there on (of an episode that has not failed: all its
                  steps), at the policy's own actions
    reward        the mean of −f over the same steps
    belief_shown, reward_shown    the same at the demonstrated states: what the critic should believe the most of
    payoff        of this episode's steps alone against the demonstrations, as `matching` measures a round's

With an indicator kernel −f is 0 on every step that a policy has yet to play, so that the critic alone tells good from
bad there.
"""

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from understudy.algorithms.reward.matching import RewardMatching, RewardState, counted, distance
from understudy.data import Demonstrations
from understudy.envs import Environment, HostEnvironment, make
from understudy.errors import SettingError
from understudy.front_door import imitate
from understudy.policies import Policy
from understudy.results import Result
from understudy.rl.sac import SACState, values
from understudy.rollouts import Episodes, rollout
from understudy.run import Progress
from understudy.studies.evaluator import Point, begin
from understudy.studies.groups import Group
from understudy.studies.training import due, handed, record
from understudy.types import State, Transition

WINDOW = 50
SHOWN = 1024
"""Demonstrated steps that beliefs and rewards are measured on."""
LATER = 2**30
"""The round of steps that are in no history."""


@dataclass(frozen=True)
class Episode:
    """One that a policy played, and how it is seen."""

    seed: int
    x: int
    """Environment steps by then."""
    steps: int
    """Exactly."""
    episode: int
    episode_return: float
    lost_at: int | None
    belief: float
    belief_shown: float
    reward: float
    reward_shown: float
    payoff: float


FIELDS = list(Episode.__dataclass_fields__)


def lost_at(rewards: np.ndarray, expert_return: float, horizon: int) -> int | None:
    """The first step from which an episode never keeps up again; None where it has not failed.

    `rewards` are of one episode; after its end there are none, which counts as zeros.
    """
    whole = np.zeros(horizon + WINDOW)
    whole[: len(rewards)] = rewards
    if whole.sum() >= expert_return / 2:
        return None
    ahead = np.convolve(whole, np.ones(WINDOW), "valid")[:horizon] / WINDOW
    keeps = np.flatnonzero(ahead >= expert_return / horizon / 2)
    return int(keeps[-1]) + 1 if len(keeps) else 0


def watched(
    group: Group,
    demonstrations: Demonstrations,
    env: Environment | HostEnvironment,
    place: Path,
    workers: int,
    progress: Progress,
) -> tuple[list[dict[str, Any]], list[Episode]]:
    """Train a group's cells: their records, as a study stores them, and the episodes that their policies played.

    It keeps its place in a directory, and goes on from there after a kill -9.
    """
    expert = demonstrations.expert_return
    if not isinstance(group.algorithm, RewardMatching):
        title = group.algorithm.card.title
        raise SettingError(f"{title} does not match reward moments by RL: name adril, sqil or gail with SAC")
    if expert is None:
        raise SettingError("the demonstrations do not tell the expert's return, which failures are measured by")
    if expert.mean <= 0:
        raise SettingError(f"the expert returns {expert.mean:.1f}: half of it says nothing where it is not above 0")
    with _Watch(group, demonstrations, env, place, workers, expert.mean) as watch:
        result = imitate(
            group.algorithm,
            demonstrations,
            env,
            seeds=[cell.seed for cell in group.cells],
            episodes=group.cells[0].trajectories,
            progress=progress,
            checkpoint=place / "checkpoint.npz",
            visit=watch.visit,
            workers=min(len(group.cells), workers),
        )
        if result.interrupted:
            raise KeyboardInterrupt("training keeps its place")
        returns = watch.returns(result)
    cells = enumerate(group.cells)
    return [record(group, cell, index, result, returns, len(group.cells)) for index, cell in cells], watch.found


class _Watch:
    """Plays policies when it is time, while their training goes on, and judges what they played."""

    def __init__(
        self,
        group: Group,
        demonstrations: Demonstrations,
        env: Environment | HostEnvironment,
        place: Path,
        workers: int,
        expert: float,
    ):
        self.group, self.env, self.expert = group, env, expert
        self.episodes = group.cells[0].asked["protocol"]["episodes"]
        self.log = place / "episodes.csv"
        self.found = read(self.log)
        self._steps = {episode.x: episode.steps for episode in self.found}
        self._waiting: list[tuple[int, int, list[RewardState], list[Future[Episodes]]]] = []
        self._pool: ProcessPoolExecutor | None = None
        self._workers = workers
        shown = demonstrations.first(group.cells[0].trajectories).transitions()
        some = np.unique(np.linspace(0, len(shown.t) - 1, min(SHOWN, len(shown.t))).astype(int))
        self.shown = jax.tree.map(lambda x: jnp.asarray(x[some]), shown)

    def __enter__(self) -> Self:
        if isinstance(self.env, HostEnvironment) and self.env.registered and self._workers > 1:
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=get_context("spawn"), initializer=begin, initargs=(os.getpid(),)
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def visit(self, rounds: int, states: Callable[[], State]) -> None:
        at = due(self.group, rounds)
        if at is None or at[1] in self._steps:
            return
        self._collect()
        _, x, steps = at
        held = jax.device_get(states())
        runs = [jax.tree.map(lambda leaf, i=index: leaf[i], held) for index in range(len(self.group.cells))]
        played = [
            self._play(self.group.algorithm.policy(state), cell.seed, steps)
            for state, cell in zip(runs, self.group.cells, strict=True)
        ]
        self._steps[x] = steps
        self._waiting.append((x, steps, runs, played))

    def returns(self, result: Result) -> dict[Point, np.ndarray]:
        """What every policy returned, those that are handed over included."""
        ends = {}
        for cell, run, actor in zip(self.group.cells, result.runs, result.policies, strict=True):
            point = handed(self.group, cell, run.status)
            if point is not None:
                ends[point] = self._play(actor.policy, cell.seed, point.steps)
        self._collect()
        by_seed = {cell.seed: cell.key for cell in self.group.cells}
        found: dict[Point, list[float]] = {}
        for one in self.found:
            point = Point("env_steps", one.x, one.steps, by_seed[one.seed])
            found.setdefault(point, []).append(one.episode_return)
        later = {point: played.result().returns for point, played in ends.items()}
        return {point: np.array(returns) for point, returns in found.items()} | later

    def _play(self, policy: Policy, seed: int, steps: int) -> Future[Episodes]:
        start = int(np.random.SeedSequence([seed, steps, 2]).generate_state(1)[0])
        if self._pool is not None:
            return self._pool.submit(
                _named, self.env.name, self.env.spec.horizon, jax.device_get(policy), self.episodes, start
            )
        done: Future[Episodes] = Future()
        done.set_result(rollout(self.env, policy, self.episodes, start))
        return done

    def _collect(self) -> None:
        for x, steps, runs, played in self._waiting:
            new = []
            for cell, state, episodes in zip(self.group.cells, runs, played, strict=True):
                new += _judged(
                    state, episodes.result(), self.shown, (cell.seed, x, steps), self.expert, self.env.spec.horizon
                )
            self.found += new
            _append(self.log, new)
        self._waiting.clear()


def _judged(
    state: RewardState,
    played: Episodes,
    shown: Transition,
    about: tuple[int, int, int],
    expert: float,
    horizon: int,
) -> list[Episode]:
    """The episodes of one policy, as its critic, its f and its kernel see them."""
    if not isinstance(state.player, SACState):
        raise SettingError("beliefs are those of SAC's critics: choose a task with continuous actions")
    see = jax.jit(partial(_seen, state))
    belief_shown, reward_shown, theirs = see(shown)
    they_rest = counted(shown, jnp.ones(shown.t.shape, bool), jnp.asarray(horizon)).absorbed_share
    found = []
    for index, length in enumerate(played.lengths):
        steps = jax.tree.map(lambda a, i=index: jnp.asarray(a[i]), played.steps)
        lost = lost_at(played.rewards[index, :length], expert, horizon)
        belief, reward, ours = see(steps._replace(round=jnp.full(steps.t.shape, LATER)))
        here = slice(0, int(length)) if lost is None else slice(min(lost, length - 1), min(lost + WINDOW, length))
        at_rest = counted(steps, jnp.arange(len(steps.t)) < length, jnp.asarray(horizon)).absorbed_share
        found.append(
            Episode(
                *about,
                *(index, float(played.returns[index]), lost),
                *(float(belief[here].mean()), float(belief_shown.mean())),
                *(float(reward[here].mean()), float(reward_shown.mean())),
                float(distance(ours[:length].mean(0), theirs.mean(0), at_rest, they_rest)),
            )
        )
    return found


def _seen(state: RewardState, steps: Transition) -> tuple[Any, Any, Any]:
    """The smaller critic at the policy's own actions, −f, and the kernel's features of (s, a)."""
    obs = state.frame.encode_obs(steps.obs)
    act, _ = state.player.actor.draw_from(obs, jnp.zeros_like(state.frame.encode_act(steps.act)))
    belief = values(state.player.critics, obs, act).min(0)
    return belief, state.moments.reward(steps), state.kernel.features(state.kernel.points(steps))


def _named(name: str, horizon: int, policy: Policy, episodes: int, start: int) -> Episodes:
    """In another process, which cannot be handed an environment but can make it."""
    return rollout(make(name, horizon), policy, episodes, start)


def _append(path: Path, episodes: Sequence[Episode]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [["" if value is None else value for value in asdict(episode).values()] for episode in episodes]
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def read(path: Path) -> list[Episode]:
    """What is kept already."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [episode(dict(zip(FIELDS, row, strict=True))) for row in csv.reader(file) if len(row) == len(FIELDS)]


def episode(line: Mapping[str, str]) -> Episode:
    """From a line of a file."""

    def number(name: str) -> float:
        return float(line[name])

    return Episode(
        *(int(line["seed"]), int(line["x"]), int(line["steps"]), int(line["episode"]), number("episode_return")),
        int(line["lost_at"]) if line["lost_at"] else None,
        *(number("belief"), number("belief_shown"), number("reward"), number("reward_shown"), number("payoff")),
    )
