"""How often certificates hold, how tight they are, and how fast they are computed.

    python benchmarks/certificates.py
    python benchmarks/certificates.py --parts q-moments      # the other rows of the file stay

    finite     random finite MDPs with exact gaps. The class is the unit ball of the one-hot kernel's space, {r(s, a):
               ‖r‖₂ ≤ 1}. Half of the rewards are drawn uniformly from its sphere, half are the worst for the learner.
    q-moments  the same MDPs, with one-hot (t, s, a): off-Q and on-Q moments with Q = (T − t) q and ‖q‖ = 1, and on-Q
               ones with ‖A^{π_E}‖ = H = 1
    tasks      Forest, Pendulum and CartPole. A learner is the expert with noise. Rewards are drawn from the unit sphere
               of a Gaussian kernel's space, or are the worst for the learner; many episodes measure their gap.
    kernels    the same with the bandwidth h halved and doubled
    speed      the inner products of 25 + 25 episodes of 1,000 steps, in blocks, and NumPy's full matrix on a part

A certificate holds if its bound is not below the gap. `p_below` is the p-value of "holds less often than 95%" (binomial
test). `informative` is the share of bounds below the largest possible gap. Tightness is the bound divided by the gap,
over the cases whose gap is above 1% of the largest possible one.
"""

import csv
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tyro
from scipy.stats import binomtest

import understudy as us
from understudy.collect.acting import acting_expert
from understudy.collect.recorder import Episodes
from understudy.collect.rollouts import rollout
from understudy.core.types import Continuous
from understudy.evaluation.concentration import (
    Contrast,
    bootstrap_width,
    one_sample,
    pilots_of,
    randomization_test,
    two_samples,
    width,
)
from understudy.evaluation.embeddings import Kernel, Steps, episode_gram, gram, steps_to_go
from understudy.evaluation.judge import DIFFERENCE_DIAMETER, SAMPLE_DIAMETER, episode_steps, joined
from understudy.tabular import imitation_gap
from understudy.tabular.bounds import random_instances
from understudy.tabular.planning import advantages, occupancy, q_values
from understudy.train.tables import provenance, write_csv

HERE = Path(__file__).parent
SHAPES = ((4, 2, 5), (6, 3, 10), (10, 4, 20), (20, 3, 40))
"""States, actions and horizon of the finite MDPs."""
HEADER = ["what", "class", "method", "episodes", "cases", "holds", "share", "p_below", "informative"]
HEADER += [
    "tightness_10",
    "tightness_50",
    "tightness_90",
    "different",
    "value",
    "command",
    "versions",
    "machine",
    "date",
]


@dataclass(frozen=True)
class Options:
    parts: tuple[Literal["speed", "finite", "q-moments", "tasks"], ...] = ("speed", "finite", "q-moments", "tasks")
    """What to measure."""
    mdps: int = 1000
    """Finite MDPs."""
    episodes: tuple[int, ...] = (25, 100)
    """Episodes a side."""
    q_episodes: tuple[int, ...] = (25, 100, 400)
    """Episodes for Q-moments."""
    cases: int = 100
    """Cases of each task: rewards, and samples of episodes."""
    pool: int = 200
    """Episodes a side of a task that the samples are drawn from."""
    truth: int = 500
    """Episodes a side that measure a task's gap."""
    seed: int = 0
    out: str = str(HERE.parent / "docs/results/certificates.csv")
    """CSV file."""


class Case(NamedTuple):
    gap: float
    bound: float
    bootstrap: float
    largest: float
    different: bool


def summary(what: str, functions: str, episodes: int, cases: list[Case]) -> Iterator[list[Any]]:
    gaps, largest = (np.array([getattr(case, name) for case in cases]) for name in ("gap", "largest"))
    for method in ("bound", "bootstrap"):
        bounds = np.array([getattr(case, method) for case in cases])
        holds = int((bounds >= gaps).sum())
        p_below = binomtest(holds, len(cases), 0.95, alternative="less").pvalue
        positive = gaps > 0.01 * largest
        tight = np.quantile(bounds[positive] / gaps[positive], [0.1, 0.5, 0.9]) if positive.any() else [np.nan] * 3
        row = [what, functions, {"bound": "inequality", "bootstrap": "bootstrap, approximate"}[method], episodes]
        row += [len(cases), holds, round(holds / len(cases), 4), f"{p_below:.3g}"]
        row += [round(float((bounds < largest).mean()), 3), *(round(float(x), 2) for x in tight)]
        yield [*row, round(float(np.mean([case.different for case in cases])), 3), ""]


def judged(inner: np.ndarray, count: int, horizon: int, gap: float, random: np.random.Generator) -> Case:
    """The certificate of `count` episodes a side, the expert's first."""
    pilots = pilots_of(count)
    contrast = two_samples(inner, (count, count), (pilots, pilots), SAMPLE_DIAMETER)
    return certified(contrast, horizon, gap, 2**0.5 * horizon, random)


def certified(contrast: Contrast, factor: float, gap: float, largest: float, random: np.random.Generator) -> Case:
    bound, boot = (
        factor * (contrast.norm + error) for error in (width(contrast, 0.05), bootstrap_width(contrast, 0.05, random))
    )
    different = randomization_test(contrast, 0.05, random).p_value <= 0.05
    return Case(gap, bound, boot, largest, different)


# Finite MDPs


def walk(transitions: Any, initial: Any, policy: Any, count: int, random: np.random.Generator) -> np.ndarray:
    """(count, S · A): how often each pair was visited in each episode, divided by T."""
    horizon, states, actions = policy.shape
    visits = np.zeros((count, states * actions))
    for _, state, action in steps(transitions, initial, policy, count, random):
        visits[np.arange(count), state * actions + action] += 1 / horizon
    return visits


def steps(
    transitions: Any, initial: Any, policy: Any, count: int, random: np.random.Generator
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(t, states, actions) of `count` episodes."""
    state = drawn(np.broadcast_to(initial, (count, len(initial))), random)
    for t in range(len(policy)):
        action = drawn(policy[t, state], random)
        yield t, state, action
        state = drawn(transitions[state, action], random)


def drawn(probabilities: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """An index for each row."""
    below = probabilities.cumsum(-1) < random.random((len(probabilities), 1))
    return below.sum(-1).clip(max=probabilities.shape[-1] - 1)


def differences(
    transitions: Any, initial: Any, policies: dict[str, Any], acting: str, count: int, random: np.random.Generator
) -> np.ndarray:
    """(count, T, S, A): the learner's actions minus the expert's in the states of who acts, divided by T."""
    expert, learner = policies["expert"], policies["learner"]
    horizon, states, actions = expert.shape
    vectors, each = np.zeros((count, horizon, states, actions)), np.arange(count)
    for t, state, action in steps(transitions, initial, policies[acting], count, random):
        answer = action if acting == "expert" else drawn(expert[t, state], random)
        vectors[each, t, state] = learner[t, state] / horizon
        vectors[each, t, state, answer] -= 1 / horizon
    return vectors


def finite(options: Options) -> Iterator[list[Any]]:
    each = options.mdps // len(SHAPES)
    found: dict[int, list[Case]] = {count: [] for count in options.episodes}
    for shape, (states, actions, horizon) in enumerate(SHAPES):
        mdp, expert, learner, _ = random_instances(options.seed + shape, each, states, actions, horizon)
        random = np.random.default_rng([options.seed, shape])
        apart = np.asarray(occupancy(mdp, expert)).sum(1) - np.asarray(occupancy(mdp, learner)).sum(1)
        rewards = random.normal(size=apart.shape)
        rewards[::2] = apart[::2]
        rewards /= np.linalg.norm(rewards.reshape(each, -1), axis=1)[:, None, None]
        tables = np.broadcast_to(rewards[:, None], expert.shape)
        gaps = np.asarray(imitation_gap(mdp, tables, expert, learner))
        transitions, initial = np.asarray(mdp.dynamics.probabilities), np.asarray(mdp.initial)  # type: ignore[attr-defined]
        for index in range(each):
            for count in options.episodes:
                sides = [walk(transitions[index], initial[index], p[index], count, random) for p in (expert, learner)]
                vectors = np.concatenate(sides)
                found[count].append(judged(vectors @ vectors.T, count, horizon, float(gaps[index]), random))
    for count in options.episodes:
        yield from summary("finite MDPs", "one-hot (s, a)", count, found[count])


def q_moments(options: Options) -> Iterator[list[Any]]:
    """The rewards of `random_instances`, scaled: action values and advantages have the largest norm allowed."""
    each, height = options.mdps // len(SHAPES), 1.0
    kinds = ("off-Q", "expert"), ("on-Q", "learner"), ("on-Q, H = 1 given", "learner")
    found: dict[tuple[str, int], list[Case]] = {(kind, n): [] for kind, _ in kinds for n in options.q_episodes}
    for shape, (states, actions, horizon) in enumerate(SHAPES):
        mdp, expert, learner, reward = random_instances(options.seed + shape, each, states, actions, horizon)
        gaps = np.asarray(imitation_gap(mdp, reward, expert, learner))
        tables = q_values(mdp, reward, learner), q_values(mdp, reward, expert), advantages(mdp, reward, expert)
        to_go = steps_to_go(np.arange(horizon), horizon)[:, None, None]
        given = height, min(2.0, height) / 2 * horizon, np.ones(1)
        limits = (horizon, horizon, to_go), (horizon, horizon, to_go), given
        transitions, initial = np.asarray(mdp.dynamics.probabilities), np.asarray(mdp.initial)  # type: ignore[attr-defined]
        random = np.random.default_rng([options.seed, shape, 1])
        for (kind, acting), table, (norm, half, share) in zip(kinds, tables, limits, strict=True):
            scaled = gaps * norm / np.linalg.norm((np.asarray(table) / share).reshape(each, -1), axis=1)
            diameter = DIFFERENCE_DIAMETER * float(share.mean())
            for index in range(each):
                policies = {"expert": expert[index], "learner": learner[index]}
                for count in options.q_episodes:
                    vectors = differences(transitions[index], initial[index], policies, acting, count, random) * share
                    vectors = vectors.reshape(count, -1)
                    contrast = one_sample(vectors @ vectors.T, diameter)
                    case = certified(contrast, horizon * norm, float(scaled[index]), 2 * half, random)
                    found[kind, count].append(case)
    for (kind, count), cases in found.items():
        yield from summary("finite MDPs", f"one-hot (t, s, a), {kind}", count, cases)


# Tasks


class Task(NamedTuple):
    name: str
    expert: Any
    noise: float
    """Of the learner."""


TASKS = (Task("Forest", "scripted", 0.3), Task("Pendulum", "scripted", 0.5), Task("CartPole-v1", "bundled", 0.2))


def noisy(task: Task, env: Any, episodes: int, seed: int, noise: float) -> Steps:
    """Episodes of the task's expert with noise of a learner, which the environment sees."""
    source = acting_expert(task.expert, env)
    if noise == 0:
        return episode_steps(rollout(env, source.source(seed), episodes, seed, source.deterministic))
    random, space, calls = np.random.default_rng([seed, 1]), env.spec.action, iter(range(10**9))

    def act(obs: np.ndarray) -> np.ndarray:
        t = np.full(len(obs), next(calls), np.int32)
        chosen = source.expert.query(obs, env.spec, random, t)
        if isinstance(space, Continuous):
            low, high = np.asarray(space.low), np.asarray(space.high)
            changed = chosen + noise * (high - low) / 2 * random.standard_normal(chosen.shape)
            return np.clip(changed, low, high).astype(np.float32)
        return np.where(random.random(len(obs)) < noise, random.integers(space.n, size=len(obs)), chosen)

    found: Episodes = rollout(env, act, episodes, seed)
    return episode_steps(found)


def tasks(options: Options, scales: tuple[float, ...]) -> Iterator[list[Any]]:
    """A case is a sample of a pool of episodes, so cases are not quite independent. Other episodes measure the gap."""
    for task in TASKS:
        env = us.make(task.name)
        expert, learner = (
            noisy(task, env, options.pool + options.truth, options.seed + side, noise)
            for side, noise in enumerate((0.0, task.noise))
        )
        for scale in scales:
            kernel = Kernel.fit(env.spec, expert.episodes(0, 5))
            kernel = kernel._replace(bandwidth=kernel.bandwidth * scale)
            yield from one_task(options, task, kernel, expert, learner, scale)


def one_task(
    options: Options, task: Task, kernel: Kernel, expert: Steps, learner: Steps, scale: float
) -> Iterator[list[Any]]:
    """Rewards f = Σ_i c_i k(x_i, ·) with ‖f‖ = 1 over random steps of both; their gap is a mean over many episodes."""
    random, horizon = np.random.default_rng([options.seed, 7]), kernel.spec.horizon
    both = joined(expert.episodes(0, 50), learner.episodes(0, 50))
    points = kernel.of(both)[random.choice(int(both.lengths.sum()), 200, replace=False)]
    sums = []
    for side in (expert, learner):
        found, starts = kernel.of(side), np.cumsum(side.lengths) - side.lengths
        blocks = [kernel.values(found[i : i + 8192], points) for i in range(0, len(found), 8192)]
        sums.append(np.add.reduceat(np.concatenate(blocks), starts, axis=0))
    kept = options.pool
    every = episode_gram(kernel, joined(expert.episodes(0, kept), learner.episodes(0, kept)))
    means = [side[kept:].mean(0) for side in sums]
    inner = kernel.values(points, points) + 1e-8 * np.eye(len(points))
    worst = np.linalg.solve(inner + 1e-3 * np.eye(len(points)), means[0] - means[1])
    pooled: dict[int, list[Case]] = {count: [] for count in options.episodes}
    for case in range(options.cases):
        coefficients = worst if case % 2 else random.normal(size=len(points))
        coefficients = coefficients / np.sqrt(coefficients @ inner @ coefficients)
        gap = float((means[0] - means[1]) @ coefficients)
        for count in options.episodes:
            rows = np.concatenate([side * kept + random.choice(kept, count, replace=False) for side in range(2)])
            pooled[count].append(judged(every[np.ix_(rows, rows)], count, horizon, gap, random))
    for count in options.episodes:
        yield from summary(task.name, f"Gaussian kernel, {scale:g} h", count, pooled[count])


# Speed


def speed() -> Iterator[list[Any]]:
    """Seconds for 25,000 × 25,000 steps, and a ratio against NumPy on 5,000 × 5,000."""
    random = np.random.default_rng(0)

    def timed(function: Any) -> float:
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    small, large = random.normal(size=(10_000, 20)), random.normal(size=(50_000, 20))
    few, many = np.full(10, 1000), np.full(50, 1000)

    def plain() -> np.ndarray:
        squared = (small**2).sum(1)[:, None] + (small**2).sum(1) - 2 * small @ small.T
        return np.exp(-squared / 50).reshape(10, 1000, 10, 1000).sum((1, 3))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gram(large, many, 5.0)  # compile
    seconds = min(timed(lambda: gram(large, many, 5.0)) for _ in range(3))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    ours = min(timed(lambda: gram(small, few, 5.0)) for _ in range(3))
    theirs = min(timed(plain) for _ in range(2))
    empty = [""] * (len(HEADER) - 8)  # all but what, class, method, value and the four of provenance
    name = "inner products of 25 + 25 episodes of 1,000 steps"
    yield [name, "Gaussian kernel, 20 numbers", "in blocks", *empty, f"{seconds:.2f} s, {grown:.0f} MiB"]
    name = "the same of 5 + 5 episodes"
    yield [name, "Gaussian kernel, 20 numbers", "full Gram matrix of NumPy", *empty, f"{theirs:.2f} s"]
    yield [name, "Gaussian kernel, 20 numbers", "in blocks", *empty, f"{theirs / ours:.1f} times faster"]


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    parts = {
        "speed": speed(),
        "finite": finite(options),
        "q-moments": q_moments(options),
        "tasks": tasks(options, (1.0, 0.5, 2.0)),
    }
    command = " ".join(["python benchmarks/certificates.py", *made["command"].split()[1:]])
    about = [command, versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    table = []
    for name in options.parts:
        for row in parts[name]:
            print(*row, sep="  ", flush=True)
            table.append([*row, *about])
    write_csv(Path(options.out), HEADER, [*others(Path(options.out), table), *table])


def others(path: Path, table: list[list[Any]]) -> list[list[str]]:
    """The rows of the file that were not measured again."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    again = {tuple(row[:2]) for row in table}
    return [row for row in rows if tuple(row[:2]) not in again]


if __name__ == "__main__":
    main()
