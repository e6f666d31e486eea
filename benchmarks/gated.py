"""Answers until a learner is nearly as good as the expert: DAgger and the gated learners, on the CPU.

    python benchmarks/gated.py      # docs/results/gated.csv

The target is 95% of the expert: its return minus 5% of |random policy's return - its return|. After each round of one
episode the policy is evaluated. The number is the answers at the first of two evaluations in a row that reach the
target, or an empty field if they never do. Rows of other tasks, learners and seeds stay in the file. LunarLander needs
`pip install 'gymnasium[box2d]'`.

Settings: the gradient steps of a round were chosen on Pendulum, with another seed. Thresholds are the defaults, set
before. The limit of 20 answers in an episode was added after CartPole had been seen without it.
"""

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import tyro

import understudy as us
from understudy.algorithms.on_q.gated import GatedCloning
from understudy.algorithms.on_q.hg_dagger import supervisor
from understudy.core.arrays import Array
from understudy.core.types import Dataset
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.experts.bundled import load_expert
from understudy.game import Algorithm, Card
from understudy.policies.actor import Actor
from understudy.train.tables import provenance, write_csv

SIZES: dict[str, Any] = {"episodes_per_round": 1, "gradient_steps": 1000, "lr": 1e-3, "hidden": (64, 64)}
ROUNDS = 60
LIMIT = {"answers_per_episode": 20}
"""As many answers in an episode as DAgger has with 20 queries per round."""
MOST_ANSWERS = 6000
"""A run that has had more answers is not continued."""
COLUMNS = ("task", "learner", "seed", "target", "expert", "random", "answers", "rounds", "best", "total_answers")


class EnsembleDAggerEverywhere(GatedCloning):
    """DAgger with the ensemble of the gated learners: the control for what five networks are worth without a gate."""

    card: ClassVar[Card] = replace(us.ensemble_dagger.card, name="dagger_ensemble")

    init, update, policy = us.ensemble_dagger.init, us.ensemble_dagger.update, us.ensemble_dagger.policy


@dataclass(frozen=True)
class Task:
    shown_steps: int
    """Steps of the demonstration, from the first on."""
    tolerance: float
    """hg_dagger: the supervisor's."""
    thrifty: dict[str, Any]
    """The success signal."""
    evaluated: int = 20
    """Episodes of an evaluation."""


def landed(next_obs: Array) -> Array:
    """LunarLander: both legs touch the ground."""
    return (next_obs[6] > 0.5) & (next_obs[7] > 0.5)


def upright(next_obs: Array) -> Array:
    """Pendulum: within 18 degrees of the top."""
    return next_obs[0] > 0.95


TASKS = {
    "Pendulum": Task(200, 0.4, {"goal": upright}),
    "CartPole-v1": Task(8, 0.5, {"success": "survival"}),
    "LunarLander-v3": Task(1000, 0.5, {"goal": landed}, 10),
}


def learners(name: str) -> dict[str, Algorithm]:
    task = TASKS[name]
    rule = supervisor(load_expert(name).policy, task.tolerance)
    few = {"queries_per_round": 20}
    return {
        "dagger": us.dagger(**SIZES, rounds=ROUNDS),
        "dagger, ensemble": EnsembleDAggerEverywhere(**SIZES, rounds=ROUNDS),
        "dagger, spread 20": us.dagger(**SIZES, rounds=ROUNDS, ask="spread", **few),
        "dagger, novel 20": us.dagger(**SIZES, rounds=ROUNDS, ask="novel", **few),
        "ensemble_dagger": us.ensemble_dagger(**SIZES, rounds=ROUNDS),
        "thrifty_dagger": us.thrifty_dagger(**SIZES, rounds=ROUNDS, **task.thrifty),
        "thrifty_dagger, novelty": us.thrifty_dagger(**SIZES, rounds=ROUNDS),
        "hg_dagger, supervisor": us.hg_dagger(**SIZES, rounds=ROUNDS, take_over=rule),
        "hg_dagger, margin": us.hg_dagger(**SIZES, rounds=ROUNDS),
        "ensemble_dagger, 20": us.ensemble_dagger(**SIZES, rounds=ROUNDS, **LIMIT),
        "thrifty_dagger, 20": us.thrifty_dagger(**SIZES, rounds=ROUNDS, **task.thrifty, **LIMIT),
        "hg_dagger, supervisor, 20": us.hg_dagger(**SIZES, rounds=ROUNDS, **LIMIT, take_over=rule),
    }


def shown(name: str) -> us.Demonstrations:
    """The first steps of the first bundled demonstration."""
    whole = us.load(name).first(1)
    count = min(TASKS[name].shown_steps, whole.steps)
    return us.Demonstrations.from_arrays(
        whole.observations[:count],
        whole.actions[:count],
        [count],
        action_space=whole.action_space,
        horizon=whole.horizon,
        env=name,
    )


class Watch:
    """Evaluates the policy after each round, and ends training when the target is reached twice."""

    def __init__(self, algorithm: Algorithm, env: Any, target: float, episodes: int):
        self.algorithm, self.env, self.target, self.episodes = algorithm, env, target, episodes
        self.returns: list[float] = []
        self.answers: list[int] = []

    def __call__(self, done: int, states: Callable[[], Any]) -> bool:
        state = jax.tree.map(lambda x: np.asarray(x[0]), jax.device_get(states()))
        aggregated: Dataset = state.cloned.aggregated if hasattr(state, "cloned") else state.aggregated
        actor = Actor(self.algorithm.policy(state), self.env.spec)
        self.returns.append(float(self.evaluation(actor, 1000 + done).returns.mean()))
        self.answers.append(int(aggregated.size))
        twice = len(self.returns) > 1 and min(self.returns[-2:]) >= self.target
        return twice or self.answers[-1] > MOST_ANSWERS

    def evaluation(self, actor: Actor, seed: int) -> Evaluation:
        return evaluate([actor], self.env, self.episodes, seed, workers=0, progress=False)

    @property
    def row(self) -> list[Any]:
        good = np.array(self.returns) >= self.target
        first = np.flatnonzero(good[:-1] & good[1:])
        at = int(first[0]) if len(first) else None
        reached = ["", ""] if at is None else [self.answers[at], at + 1]
        return [*reached, round(max(self.returns), 1), self.answers[-1]]


def random_return(env: Any) -> float:
    space, random = env.spec.action, np.random.default_rng(0)

    def act(obs: np.ndarray) -> np.ndarray:
        if isinstance(space, us.Discrete):
            return random.integers(0, space.n, len(obs))
        return random.uniform(space.low, space.high, (len(obs), len(space.low))).astype(np.float32)

    return float(us.rollout(env, act, 50, seed=1).returns.mean())


@dataclass(frozen=True)
class Options:
    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks."""
    learners: tuple[str, ...] = ()
    """Learners; empty: all."""
    seeds: tuple[int, ...] = field(default=(0, 1, 2))
    """Seeds of each learner."""
    out: str = "docs/results"
    """Directory of the CSV file."""


def main(options: Options) -> None:
    path = Path(options.out) / "gated.csv"
    rows = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    made = provenance()
    for name in options.tasks:
        env, task, demonstrations = us.make(name), TASKS[name], shown(name)
        expert = float(evaluate([load_expert(name)], env, 50, 1, workers=0, progress=False).returns.mean())
        baseline = random_return(env)
        target = expert - 0.05 * abs(baseline - expert)
        print(f"{name}: expert {expert:.1f}, random {baseline:.1f}, target {target:.1f}", flush=True)
        for seed in options.seeds:
            for label, algorithm in learners(name).items():
                if options.learners and label not in options.learners:
                    continue
                watch, before = Watch(algorithm, env, target, task.evaluated), time.monotonic()
                quiet: dict[str, Any] = {"holdout": 0.0, "progress": False, "workers": 0}
                us.imitate(algorithm, demonstrations, env, "bundled", [seed], visit=watch, **quiet)
                row = [name, label, seed, *(round(x, 1) for x in (target, expert, baseline)), *watch.row]
                print(*row, f"{time.monotonic() - before:.0f} s", flush=True)
                rows = [old for old in rows if old[:3] != [name, label, str(seed)]]
                versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
                rows.append(
                    [
                        *map(str, row),
                        "python benchmarks/gated.py",
                        versions,
                        made["device"],
                        made["date"],
                    ]
                )
                write_csv(path, [*COLUMNS, "command", "versions", "device", "date"], rows)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
