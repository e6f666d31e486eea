"""Returns during training: how fast AdVIL and ValueDICE learn, and when AdVIL collapses.

    python benchmarks/off_q_training.py train curves --task halfcheetah --demos FILE --learner valuedice
    python benchmarks/off_q_training.py train collapse --task halfcheetah --demos FILE
    python benchmarks/off_q_training.py play curves --task halfcheetah --learner valuedice
    python benchmarks/off_q_training.py play collapse --task halfcheetah
    python benchmarks/off_q_training.py table curves --task halfcheetah

`train` saves policies of several steps in --work, and `play` evaluates them, possibly on another machine. `curves`
trains a learner of the offline figure as `understudy reproduce off-q` does. It saves the policies of 10 trajectories
during training, and all policies halfway. `collapse` trains AdVIL with the paper's settings for much longer than the
paper, on 10 trajectories, without the collapse detector. Afterwards it computes when the detector would have stopped,
and which policy it would have returned.
"""

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import understudy as us
from understudy.core import display
from understudy.core.storage import write_json
from understudy.core.types import RoundData
from understudy.game.stopping import CollapseDetector
from understudy.paper import published
from understudy.paper.figure_studies import TASKS, parse_learner
from understudy.policies.actor import Actor
from understudy.train.checkpoints import Checkpoint
from understudy.train.tables import provenance, write_csv

TRAJECTORIES = 10


@dataclass(frozen=True)
class Options:
    phase: tyro.conf.Positional[Literal["train", "play", "table"]]
    """Train and save policies, evaluate saved ones, or compute the cost of reaching 90% of ValueDICE's return."""
    what: tyro.conf.Positional[Literal["curves", "collapse"]]
    """Learning curves, or a run until the collapse."""
    task: Literal["halfcheetah", "ant"]
    """Task of the paper."""
    demos: str | None = None
    """For train: file of demonstrations (.npz)."""
    learner: str = "valuedice"
    """For curves: one of the figure's learners."""
    rounds: int = 1000
    """For collapse: rounds of 500 steps."""
    every: int = 50
    """For collapse: rounds between saved policies."""
    seeds: int = 5
    """Seeds."""
    episodes: int = 10
    """For play: episodes of each policy."""
    workers: int = os.cpu_count() or 1
    """For play: processes."""
    work: str = "runs"
    """Directory of runs and policies."""
    out: str = "docs/results"
    """Directory of the CSV files."""

    @property
    def name(self) -> str:
        kind = (
            f"training-{self.task}-{self.learner.replace(':', '-')}"
            if self.what == "curves"
            else f"collapse-{self.task}"
        )
        return f"off-q-{kind}"

    @property
    def directory(self) -> Path:
        return Path(self.work) / self.name


def chosen_rounds(rounds: int) -> list[int]:
    """Rounds whose policies are saved, closer together at the start."""
    parts = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    return sorted({max(1, round(part * rounds)) for part in parts})


def train_curves(options: Options, demonstrations: us.Demonstrations) -> None:
    algorithm: Any = parse_learner(options.learner).algorithm()
    chosen, counts = chosen_rounds(algorithm.rounds), published.TRAJECTORIES
    checkpoint = options.directory / "checkpoint.npz"

    def visit(done: int, states: Any) -> None:
        if done in chosen:
            policies = jax.device_get(jax.vmap(algorithm.policy)(states()))
            for index, (count, seed) in enumerate((c, s) for c in counts for s in range(options.seeds)):
                if count == TRAJECTORIES or 2 * done == algorithm.rounds:
                    save(
                        options,
                        policies,
                        index,
                        {"x": done * algorithm.gradient_steps, "seed": seed, "trajectories": count},
                    )

    with display.progress_bar(options.learner) as report:
        result = us.imitate(
            algorithm,
            demonstrations,
            TASKS[options.task],
            seeds=options.seeds,
            episodes=list(counts),
            holdout=0.0,
            progress=report,
            checkpoint=checkpoint,
            visit=visit,
        )
    if result.interrupted:
        raise SystemExit(f"progress is saved in {checkpoint}: rerun the command to resume")
    result.save(options.directory / "run", replace=True)
    Checkpoint.discard(checkpoint)
    about(options, algorithm, result)


def train_collapse(options: Options, demonstrations: us.Demonstrations) -> None:
    algorithm = us.advil.preset("paper", rounds=options.rounds)
    rounds: list[Any] = []

    def visit(done: int, states: Any) -> None:
        rounds.append(jax.device_get(jax.vmap(algorithm.policy)(states())))

    with display.progress_bar("AdVIL until its collapse") as report:
        result = us.imitate(
            algorithm,
            demonstrations,
            TASKS[options.task],
            seeds=options.seeds,
            episodes=TRAJECTORIES,
            holdout=0.0,
            progress=report,
            visit=visit,
        )
    for seed, losses in enumerate(result.metrics["policy_loss"]):
        cell = {"seed": seed, "trajectories": TRAJECTORIES}
        for done in range(options.every, options.rounds + 1, options.every):
            save(options, rounds[done - 1], seed, {**cell, "x": done * algorithm.gradient_steps})
        stop = jump(CollapseDetector(), losses)
        if stop is not None:  # the detector returns the policy of the round before
            save(
                options, rounds[stop - 2], seed, {**cell, "x": (stop - 1) * algorithm.gradient_steps, "collapse": True}
            )
    result.save(options.directory / "run")
    about(options, algorithm, result)


def save(options: Options, policies: Any, index: int, cell: dict[str, Any]) -> None:
    """Save one policy of a batch. `cell` describes it and makes its file name."""
    policy = jax.tree.map(lambda x: x[index], policies)
    spec = us.make(TASKS[options.task]).spec
    name = "-".join(f"{key}{value}" for key, value in cell.items())
    Actor(policy, spec, cell).save(options.directory / f"{name}.npz")


def about(options: Options, algorithm: us.Algorithm, result: us.Result) -> None:
    made = {"algorithm": algorithm.card.name, "preset": algorithm.preset_name, "runs_together": len(result.runs)}
    write_json(options.directory / "about.json", {**made, "seconds": result.config["seconds"], **provenance()})
    print(f"{options.name}: {len(result.runs)} runs trained in {result.config['seconds']} s", flush=True)


def jump(collapse: CollapseDetector, losses: np.ndarray) -> int | None:
    """The round, from 1, in which the detector stops a run with these losses."""
    _, jumped = jax.lax.scan(collapse.update, collapse.init(), jnp.asarray(losses))
    stops = np.flatnonzero(np.asarray(jumped))
    return int(stops[0]) + 1 if stops.size else None


def play(options: Options) -> None:
    env = TASKS[options.task]
    actors = [
        us.load_policy(path)
        for path in sorted(options.directory.glob("x*.npz")) + sorted(options.directory.glob("s*.npz"))
    ]
    with display.progress_bar(f"evaluating {len(actors)} policies") as report:
        evaluation = us.evaluate(actors, env, options.episodes, seed=1, workers=options.workers, progress=report)
    made, now = json.loads((options.directory / "about.json").read_text(encoding="utf-8")), provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    rows = [
        [
            env,
            made["algorithm"],
            made["preset"],
            actor.about["seed"],
            actor.about["trajectories"],
            "returned at the collapse" if actor.about.get("collapse") else "steps",
            actor.about["x"],
            round(float(returns.mean()), 1),
            round(float(returns.std()), 1),
            len(returns),
            made["seconds"],
            made["runs_together"],
            f"{made['command']} && {now['command']}",
            versions,
            made["device"],
            now["date"],
        ]
        for actor, returns in zip(actors, evaluation.returns, strict=True)
    ]
    header = [
        "env",
        "algorithm",
        "preset",
        "seed",
        "trajectories",
        "x_kind",
        "x",
        "mean_return",
        "std_return",
        "episodes",
    ]
    header += ["train_seconds", "runs_together", "command", "versions", "device", "date"]
    rows.sort(key=lambda row: (row[5], row[4], row[6], row[3]))
    write_csv(Path(options.out) / f"{options.name}.csv", header, rows)
    for key in dict.fromkeys((row[5], row[4], row[6]) for row in rows):
        scores = [row[7] for row in rows if (row[5], row[4], row[6]) == key]
        print(f"{key[1]:>3} trajectories {key[2]:>8} {key[0]:<26} {np.mean(scores):8.0f}  {scores}")


def table(options: Options) -> None:
    """Steps, FLOP and seconds until 90% of ValueDICE's final return, for every learner with an evaluated curve."""
    learners: dict[str, list[dict[str, str]]] = {}
    prefix = f"off-q-training-{options.task}-"
    for path in sorted(Path(options.out).glob(f"{prefix}*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if int(row["trajectories"]) == TRAJECTORIES]
        learners[path.stem.removeprefix(prefix).replace("-", ":", 1)] = rows
    if "valuedice" not in learners:
        raise SystemExit(f"no {prefix}valuedice.csv in {options.out}: train and play it first")
    curves = {name: curve(rows) for name, rows in learners.items()}
    goal = 0.9 * curves["valuedice"][max(curves["valuedice"])]
    lines: list[list[Any]] = []
    for name, points in curves.items():
        algorithm: Any = parse_learner(name).algorithm()
        seconds = float(learners[name][0]["train_seconds"]) / (algorithm.rounds * algorithm.gradient_steps)
        reached = next((step for step, value in sorted(points.items()) if value >= goal), None)
        cost = flop(algorithm, options.task)
        spent: list[Any] = ["never", "", ""]
        if reached is not None:
            spent = [reached, f"{reached * cost:.3g}", round(reached * seconds, 1)]
        lines.append([TASKS[options.task], name, TRAJECTORIES, round(goal, 1), *spent, f"{cost:.3g}"])
        print(
            f"{name:<16} {goal:.0f}, 90% of ValueDICE's final return: {spent[0]} steps, {spent[1]} FLOP, {spent[2]} s"
        )
    made = provenance()
    header = ["env", "learner", "trajectories", "goal", "steps", "flop", "seconds_of_25_runs", "flop_a_step"]
    tail = [made["command"], made["date"]]
    write_csv(
        Path(options.out) / f"off-q-compute-{options.task}.csv",
        [*header, "command", "date"],
        [[*line, *tail] for line in lines],
    )


def curve(rows: list[dict[str, str]]) -> dict[int, float]:
    """Steps → the mean return over seeds."""
    points: dict[int, list[float]] = {}
    for row in rows:
        points.setdefault(int(row["x"]), []).append(float(row["mean_return"]))
    return {step: float(np.mean(values)) for step, values in points.items()}


def flop(algorithm: us.Algorithm, task: str) -> float:
    """Floating-point operations of one gradient step of one run, as XLA counts them."""
    spec = us.make(TASKS[task]).spec
    zeros = us.Demonstrations.from_arrays(
        np.zeros((2, *spec.obs_shape)), np.zeros((2, *spec.action.shape)), action_space=spec.action
    )
    data, _ = zeros.split([1], 0.0)
    single = data.of(0)
    # XLA counts the body of a loop once, so this is the cost of one step.
    state = algorithm.init(jax.random.key(0), spec, single)
    compiled = jax.jit(algorithm.update).lower(state, RoundData(single), jax.random.key(0)).compile()
    counted: Any = compiled.cost_analysis()
    return float(counted["flops"])


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if options.phase != "train":
        play(options) if options.phase == "play" else table(options)
        return
    if options.demos is None:
        raise SystemExit("train needs --demos FILE")
    demonstrations = us.load(options.demos)
    train_curves(options, demonstrations) if options.what == "curves" else train_collapse(options, demonstrations)


if __name__ == "__main__":
    main()
