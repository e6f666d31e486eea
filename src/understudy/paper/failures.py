"""Where a learner's episodes fail, what its critic believes there, and whether its payoff sees it.

Every so many environment steps the policies, as they are then, play. With ρ the expert's reward a step, an episode
keeps up at step t while the mean reward of its next 50 steps is at least ρ / 2. An episode that returns less than half
of the expert's return has failed, and is lost where the longest stretch begins in which it does not keep up. For each:

    lost_at       when; empty if it has not failed
    belief        the smaller critic's mean over the 50 steps from there on (of an episode that has not failed: all its
                  steps), at the policy's own actions
    reward        the mean of −f over the same steps
    belief_shown, reward_shown    the same at the demonstrated states: what the critic should believe the most of
    payoff        of this episode's steps alone against the demonstrations, as `matching` measures a round's

With an indicator kernel −f is 0 on every step that a policy has yet to play, so that the critic alone tells good from
bad there.

    PLACE/checkpoint.npz         training, as `imitate` keeps its place
    PLACE/visit-X-STEPS.npz      the learners' states, whose policies have yet to play or to be judged
    PLACE/episodes.csv           what they played
    PLACE/records.json           the cells' records, once all is done
"""

import json
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from understudy.algorithms.reward.matching import RewardMatching, RewardState, distance
from understudy.algorithms.reward.moments import counted
from understudy.collect.rollouts import Episodes, rollout
from understudy.core.errors import SettingError
from understudy.core.progress import Progress
from understudy.core.storage import whole_file, write_json
from understudy.core.types import State, Transition
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment, make
from understudy.paper.episodes import FIELDS, WINDOW, Episode, line, lost_at, read
from understudy.policies import Policy
from understudy.policies.gaussian import Squashed
from understudy.rl.sac import SACState, values
from understudy.studies.evaluator import Point, players, start
from understudy.studies.groups import Group
from understudy.studies.training import RECORDS, due, handed, kept_aside, record
from understudy.train.checkpoints import Checkpoint
from understudy.train.imitate import imitate
from understudy.train.results import Result, write_csv

SHOWN = 1024
"""Demonstrated steps that beliefs and rewards are measured on."""
LOG = "episodes.csv"
LATER = 2**30
"""The round of steps that are in no history."""


def watched(
    group: Group,
    demonstrations: Demonstrations,
    env: Environment | GymnasiumEnvironment,
    place: Path,
    workers: int,
    progress: Progress,
) -> tuple[list[dict[str, Any]], list[Episode]]:
    """Train a group's cells: their records, as a study stores them, and the episodes that their policies played.

    It keeps its place in a directory, and goes on from there after a kill -9. What is finished stays there.
    """
    expert, like = check(group, demonstrations, env)
    done, checkpoint = place / RECORDS, place / "checkpoint.npz"
    if done.exists():
        return json.loads(done.read_text(encoding="utf-8")), read(place / LOG)
    with _Watch(group, demonstrations, env, place, workers, expert, like) as watch:
        result = imitate(
            group.algorithm,
            demonstrations,
            env,
            seeds=[cell.seed for cell in group.cells],
            episodes=group.cells[0].trajectories,
            holdout=kept_aside(group.cells[0].asked["protocol"]),
            progress=progress,
            checkpoint=checkpoint,
            visit=watch.visit,
            workers=min(len(group.cells), workers),
        )
        if result.interrupted:
            raise KeyboardInterrupt("training keeps its place")
        returns = watch.returns(result)
    cells = enumerate(group.cells)
    records = [record(group, cell, index, result, returns, len(group.cells)) for index, cell in cells]
    write_json(done, records)
    Checkpoint.discard(checkpoint)
    return records, watch.found


def check(
    group: Group, demonstrations: Demonstrations, env: Environment | GymnasiumEnvironment
) -> tuple[float, RewardState]:
    """The expert's return and the shapes of a run's state; refused where failures or beliefs could not be told."""
    expert, algorithm, label = demonstrations.expert_return, group.algorithm, group.entry.label
    way_out = "name adril, sqil or gail:sac, on a task with continuous actions"
    if not isinstance(algorithm, RewardMatching):
        raise SettingError(f"learner '{label}' does not match reward moments by RL: {way_out}")
    if len({cell.trajectories for cell in group.cells}) > 1:
        raise SettingError(f"learner '{label}' has several numbers of trajectories: name it with each, as in @20")
    if not any(due(group, rounds + 1) for rounds in range(algorithm.rounds)):
        raise SettingError(f"learner '{label}' ends before it is evaluated for the first time: choose a smaller every")
    if expert is None:
        raise SettingError("the demonstrations do not tell the expert's return, which failures are measured by")
    if expert.mean <= 0:
        raise SettingError(f"the expert returns {expert.mean:.1f}: half of it says nothing where it is not above 0")
    known = demonstrations.for_task(env.spec, env.name)
    data, _ = known.split([group.cells[0].trajectories], 0.0)
    like: RewardState = jax.eval_shape(lambda key: algorithm.init(key, known.spec, data.of(0)), jax.random.key(0))
    if not isinstance(like.player, SACState):
        raise SettingError(f"learner '{label}' does not learn by SAC, whose critics beliefs are read from: {way_out}")
    return expert.mean, like


class _Watch:
    """Plays policies when it is time, while their training goes on, and judges what they played."""

    def __init__(
        self,
        group: Group,
        demonstrations: Demonstrations,
        env: Environment | GymnasiumEnvironment,
        place: Path,
        workers: int,
        expert: float,
        like: RewardState,
    ):
        self.group, self.env, self.expert = group, env, expert
        self.episodes = group.cells[0].asked["protocol"]["episodes"]
        self.place, self.structure = place, jax.tree.structure(like)
        self.found = read(place / LOG)
        self._steps = {episode.x: episode.steps for episode in self.found}
        self._waiting: list[tuple[int, int, list[RewardState], list[Future[Episodes]]]] = []
        self._pool: ProcessPoolExecutor | None = None
        self._workers = workers
        shown = demonstrations.first(group.cells[0].trajectories).transitions()
        self.they_rest = counted(shown, jnp.ones(shown.t.shape, bool), jnp.asarray(env.spec.horizon)).absorbing_share
        some = np.unique(np.linspace(0, len(shown.t) - 1, min(SHOWN, len(shown.t))).astype(int))
        self.shown = jax.tree.map(lambda x: jnp.asarray(x[some]), shown)

    def __enter__(self) -> Self:
        self._pool = players(self.env, self._workers)
        for path in sorted(self.place.glob("visit-*.npz")):
            x, steps = map(int, path.stem.split("-")[1:])
            if x in self._steps:  # it was judged, and there was no time left to remove it
                path.unlink()
                continue
            with np.load(path, allow_pickle=False) as file:
                self._begin(
                    x, steps, jax.tree.unflatten(self.structure, [file[str(i)] for i in range(len(file.files))])
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
        # Training may be killed after its place is kept and before they have played.
        with whole_file(self._visit(x, steps)) as beside, beside.open("wb") as file:
            np.savez(file, **{str(i): leaf for i, leaf in enumerate(jax.tree.leaves(held))})
        self._begin(x, steps, held)

    def _visit(self, x: int, steps: int) -> Path:
        return self.place / f"visit-{x}-{steps}.npz"

    def _begin(self, x: int, steps: int, held: RewardState) -> None:
        """The policies of all runs, as they were then, begin to play."""
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
        job = (jax.device_get(policy), self.episodes, start(seed, steps))
        if self._pool is not None:
            return self._pool.submit(_named, self.env.name, self.env.spec.horizon, *job)
        done: Future[Episodes] = Future()
        done.set_result(rollout(self.env, *job))
        return done

    def _collect(self) -> None:
        for x, steps, runs, played in self._waiting:
            for cell, state, episodes in zip(self.group.cells, runs, played, strict=True):
                about, seen_by = (cell.seed, x, steps), (self.expert, self.env.spec.horizon, self.they_rest)
                self.found += _judged(state, episodes.result(), self.shown, about, *seen_by)
            write_csv(self.place / LOG, FIELDS, map(line, self.found))
            self._visit(x, steps).unlink(missing_ok=True)
        self._waiting.clear()


def _judged(
    state: RewardState,
    played: Episodes,
    shown: Transition,
    about: tuple[int, int, int],
    expert: float,
    horizon: int,
    they_rest: Any,
) -> list[Episode]:
    """The episodes of one policy, as its critic, its f and its kernel see them."""
    belief_shown, reward_shown, theirs = _seen(state, shown)
    found = []
    for index, length in enumerate(played.lengths):
        steps = jax.tree.map(lambda a, i=index: jnp.asarray(a[i]), played.steps)
        lost = lost_at(played.rewards[index, :length], expert, horizon)
        belief, reward, ours = _seen(state, steps._replace(round=jnp.full(steps.t.shape, LATER)))
        here = slice(0, int(length)) if lost is None else slice(min(lost, length - 1), min(lost + WINDOW, length))
        at_rest = counted(steps, jnp.arange(len(steps.t)) < length, jnp.asarray(horizon)).absorbing_share
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


@jax.jit
def _seen(state: RewardState, steps: Transition) -> tuple[Any, Any, Any]:
    """The smaller critic at the policy's own actions, −f, and the kernel's features of (s, a)."""
    obs = state.normalization.encode_obs(steps.obs)
    assert isinstance(state.mean, Squashed)  # SAC's (`check`)
    act, _ = state.mean.draw_from(obs, jnp.zeros_like(state.normalization.encode_act(steps.act)))
    belief = values(state.player.critics, obs, act).min(0)
    return belief, state.moments.reward(steps), state.kernel.features(state.kernel.points(steps))


def _named(name: str, horizon: int, policy: Policy, episodes: int, start: int) -> Episodes:
    """In another process, which cannot be handed an environment but can make it."""
    return rollout(make(name, horizon), policy, episodes, start)
