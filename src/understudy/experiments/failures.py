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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from understudy.algorithms.reward.matching import RewardMatching, RewardState, counted, distance
from understudy.data import Demonstrations
from understudy.envs import Environment, HostEnvironment, make
from understudy.errors import SettingError
from understudy.front_door import imitate
from understudy.policies import Policy
from understudy.rl.sac import SACState, values
from understudy.rollouts import Episodes, rollout
from understudy.run import Progress
from understudy.studies.groups import Group
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
) -> list[Episode]:
    """Train a group's cells and look at what their policies play; goes on from `place` where it was there before."""
    algorithm, protocol = group.algorithm, group.cells[0].asked["protocol"]
    if not isinstance(algorithm, RewardMatching) or algorithm.stepping is None:
        raise SettingError(f"{algorithm.card.title} does not match reward moments by RL: name adril, sqil or gail")
    expert = demonstrations.expert_return
    if expert is None:
        raise SettingError("the demonstrations do not tell the expert's return, which failures are measured by")
    a_round, seeds = algorithm.stepping.turns * algorithm.stepping.rows, [cell.seed for cell in group.cells]
    log, every = place / "episodes.csv", protocol["every"]
    known = read(log)
    training = demonstrations.first(group.cells[0].trajectories).transitions()
    shown = jax.tree.map(lambda x: jnp.asarray(x[_spread(len(training.t))]), training)
    with _players(env, workers) as play:

        def visit(rounds: int, states: Callable[[], State]) -> None:
            steps = rounds * a_round
            x = steps // every * every
            if x == (steps - a_round) // every * every or any(episode.x == x for episode in known):
                return
            held = states()
            runs = [jax.tree.map(lambda leaf, i=index: leaf[i], held) for index in range(len(seeds))]
            jobs = [
                (jax.device_get(algorithm.policy(state)), protocol["episodes"], start)
                for state, start in zip(runs, _starts(seeds, steps), strict=True)
            ]
            new = [
                episode
                for seed, state, episodes in zip(seeds, runs, play(jobs), strict=True)
                for episode in _judged(state, episodes, shown, seed, x, expert.mean, env.spec.horizon)
            ]
            known.extend(new)
            _append(log, new)

        imitate(
            algorithm,
            demonstrations,
            env,
            seeds=seeds,
            episodes=group.cells[0].trajectories,
            progress=progress,
            checkpoint=place / "checkpoint.npz",
            visit=visit,
            workers=min(len(seeds), workers),
        )
    return known


def _judged(
    state: RewardState, played: Episodes, shown: Transition, seed: int, x: int, expert: float, horizon: int
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
                *(seed, x, index, float(played.returns[index]), lost),
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


@contextmanager
def _players(env: Environment | HostEnvironment, workers: int) -> Iterator[Callable[[Sequence[Any]], list[Episodes]]]:
    """What plays (policy, episodes, seed) jobs: other processes where the environment is Gymnasium's."""
    if not (isinstance(env, HostEnvironment) and env.registered and workers > 1):
        yield lambda jobs: [rollout(env, *job) for job in jobs]
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield lambda jobs: list(pool.map(partial(_play, env.name, env.spec.horizon), jobs))


def _play(name: str, horizon: int, job: tuple[Policy, int, int]) -> Episodes:
    return rollout(make(name, horizon), *job)


def _starts(seeds: Sequence[int], steps: int) -> list[int]:
    return [int(np.random.SeedSequence([seed, steps, 2]).generate_state(1)[0]) for seed in seeds]


def _spread(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, min(SHOWN, size)).astype(int))


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
        *(int(line["seed"]), int(line["x"]), int(line["episode"]), number("episode_return")),
        int(line["lost_at"]) if line["lost_at"] else None,
        *(number("belief"), number("belief_shown"), number("reward"), number("reward_shown"), number("payoff")),
    )
