"""The LunarLander figure: return by round for DAgger and DAeQuIL, whose policies do not observe the leg contacts.

The policy observes six of the eight numbers; the expert and the critics observe all. There are five trials, with ten
rounds of ten episodes after behavioral cloning. A trial's score after a round is this round's policy's mean return over
ten new episodes, not the best so far. `understudy reproduce lander` runs it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from understudy.algorithms import find
from understudy.collect.recording import record
from understudy.core import display
from understudy.core.errors import check_whole
from understudy.core.imports import find_own_code
from understudy.core.options import Int_, Path_, default
from understudy.core.statistics import Sample
from understudy.data import Demonstrations, load
from understudy.envs import GymnasiumEnvironment, make
from understudy.evaluation import drawing
from understudy.evaluation.returns import evaluate
from understudy.experts.expert import Expert, as_expert
from understudy.experts.weights import holds_weights, policy_from_weights
from understudy.game import DEFAULT, Algorithm
from understudy.paper import published
from understudy.paper.figure_studies import check_out
from understudy.paper.on_q_trials import COLUMNS, Trials
from understudy.policies.actor import Actor
from understudy.policies.networks import Activation
from understudy.studies.training import ProgressFactory
from understudy.train.imitate import imitate
from understudy.train.tables import write_csv

ENV = "LunarLander-v3"
POLICY_OBS = (0, 1, 2, 3, 4, 5)
"""Position, velocity, angle and angular velocity; not the two leg contacts."""
LEARNERS = ("dagger:lander", "daequil:lander")
EVAL_SEED = 20_210_718
"""Seed of the evaluation's initial states. Training uses the trials' seeds, which are small numbers."""


def reproduce_lander(
    expert: Annotated[str, tyro.conf.arg(metavar="FILE")],
    demos: Annotated[Path_, default("record them from the expert")] = None,
    activation: Activation = "tanh",
    learners: tuple[str, ...] = LEARNERS,
    trajectories: int = 25,
    trials: int = published.SEEDS,
    rounds: int = 10,
    episodes: int = 10,
    workers: Annotated[Int_, default("one per core")] = None,
    out: Annotated[Path_, default("docs/results/lander.csv")] = None,
) -> None:
    """Return by round for DAgger and DAeQuIL on LunarLander with hidden leg contacts, next to the paper's numbers.

    Args:
        expert: Expert to query: an npz file of weights w0, b0, w1, b1, ..., a saved policy or run, or module:function.
        demos: File of demonstrations (.npz).
        activation: Activation function of an expert that is a file of weights.
        learners: Algorithms, each with an optional preset, such as dagger:lander.
        trajectories: Demonstrated trajectories for behavioral cloning.
        trials: Seeds per learner.
        rounds: Rounds after behavioral cloning.
        episodes: Episodes per evaluated policy.
        workers: Worker processes that step the environment; 0: this process, without a timeout.
        out: CSV file of the returns; the figure is written next to it.
    """
    check_whole(1, trials=trials, rounds=rounds, episodes=episodes, trajectories=trajectories)
    path = Path(out or "docs/results/lander.csv")
    check_out(path)
    for name in learners:
        parse_learner(name, rounds)
    env = make(ENV)
    assert isinstance(env, GymnasiumEnvironment)
    find_own_code(expert)
    source = policy_from_weights(expert, env, activation) if holds_weights(expert) else expert
    queried = as_expert(source, env)
    with display.working(f"recording {trajectories} episodes of the expert"):
        demonstrations = load(demos) if demos else record(env, queried.source, trajectories, seed=0, workers=workers)
    demonstrations = demonstrations.first(trajectories)
    expert_return = None if demonstrations.expert_return is None else demonstrations.expert_return.mean

    rows: list[list[Any]] = []
    results: list[Trials] = []
    for name in learners:
        results.append(
            run_trials(name, env, queried, demonstrations, rounds, trials, episodes, workers, display.progress_bar)
        )
        # After each learner, because the next one may fail or be interrupted.
        rows += results[-1].rows(env.name)
        write_csv(path, COLUMNS, rows)
        draw(results, expert_return, path.with_suffix(".png"))
    _print(env.name, results, expert_return)
    print(f"\nReturns: {path}. Figure: {path.with_suffix('.png')}")


def parse_learner(name: str, rounds: int) -> tuple[Algorithm, str]:
    """The algorithm of a name such as "daequil:lander", with this many rounds after cloning, and its preset's name."""
    algorithm, _, preset = name.partition(":")
    return find(algorithm).preset(preset or DEFAULT, rounds=rounds + 1), preset or DEFAULT


def run_trials(
    name: str,
    env: GymnasiumEnvironment,
    expert: Expert,
    demonstrations: Demonstrations,
    rounds: int,
    seeds: int,
    episodes: int,
    workers: int | None,
    progress: ProgressFactory,
) -> Trials:
    """Train all trials of a learner together, then evaluate each trial's policy of each round."""
    algorithm, preset = parse_learner(name, rounds)
    policies: list[Any] = []
    policies_of = jax.jit(jax.vmap(algorithm.policy))

    def visit(done: int, states: Any) -> None:
        policies.append(jax.device_get(policies_of(states())))

    with progress(f"{algorithm.card.title} in {env.name}") as report:
        result = imitate(
            algorithm,
            demonstrations,
            env,
            expert,
            seeds=seeds,
            holdout=0.0,
            progress=report,
            visit=visit,
            policy_obs=POLICY_OBS,
            workers=workers,
        )
    if result.interrupted:
        raise KeyboardInterrupt("finished learners are saved")
    spec = result.policies[0].spec
    actors = [Actor(jax.tree.map(lambda x, i=i: x[i], batch), spec) for batch in policies for i in range(seeds)]
    with progress(f"evaluating {len(actors)} policies of {algorithm.card.title}") as report:
        evaluation = evaluate(actors, env, episodes, EVAL_SEED, workers=workers, progress=report)
    returns = evaluation.returns.reshape(len(policies), seeds, episodes)
    queries = np.fmax.accumulate(result.metrics["queries"].T)  # a stopped run logs no queries, but keeps its total
    return Trials(algorithm.card.name, preset, returns, queries)


def draw(results: Sequence[Trials], expert: float | None, path: Path) -> None:
    """Draw return by round, next to the published numbers, and return by expert queries."""
    figure, (left, right) = drawing.figure(2, width=5.4, height=4.0)
    values = [] if expert is None else [expert]
    for index, one in enumerate(results):
        color, curve = drawing.LINES[index % len(drawing.LINES)], one.curve
        drawing.draw_points(left, curve.samples, color, curve.name)
        drawing.draw_points(right, one.by_queries, color, curve.name)
        label = f"{one.algorithm}, published"
        drawing.draw_points(left, published.lander(one.algorithm), color, label, published=True)
        band = published.LANDER_RANGE.get(one.algorithm)
        if band is not None:
            left.fill_between(band.rounds, band.low, band.high, color=color, alpha=0.15, linewidth=0, label=label)
            values += [band.low, band.high]
        values += [x for sample in curve.samples.values() for x in (sample.mean, sample.mean + sample.standard_error)]
    # The published curve starts far below ours: the axis leaves its first point out.
    margin = 0.1 * (np.nanmax(values) - np.nanmin(values))
    limits = (np.nanmin(values) - 2 * margin, np.nanmax(values) + margin)
    for axis, label in ((left, "round (0: behavioral cloning)"), (right, "queries to the expert")):
        if expert is not None:
            axis.axhline(expert, color=drawing.EXPERT, linewidth=1.5, label="the expert", zorder=0)
        axis.set(xlabel=label, ylabel="return (mean ± standard error over seeds)", ylim=limits)
        axis.spines[["top", "right"]].set_visible(False)
    left.legend(fontsize=7, frameon=False, loc="lower right")
    drawing.save(figure, path)


def _print(env: str, results: Sequence[Trials], expert: float | None) -> None:
    """Print the table by round, ours and published, and the lowest returns of the later rounds."""
    rounds, count = results[0].queries.shape
    rows: list[list[object]] = []
    for one in results:
        samples, theirs = one.curve.samples.values(), published.lander(one.algorithm)
        rows.append([one.curve.name, "ours", *(f"{sample.mean:.0f}" for sample in samples)])
        rows.append(["", "± standard error", *(_error(sample) for sample in samples)])
        rows.append(["", "queries", *(f"{queries:.0f}" for queries in one.queries.mean(1))])
        if theirs:
            rows.append(["", "published", *(f"{theirs[x].mean:.0f}" if x in theirs else "" for x in range(rounds))])
    of_expert = "" if expert is None else f" (the expert: {expert:.0f})"
    title = f"{env}{of_expert}: return of each round's policy, mean over {count} trials, by round (0: cloning)"
    display.show(("learner", "", *(f">{x}" for x in range(rounds))), rows, title)
    print()
    late = min(4, rounds - 1)
    for one in results:
        means = one.returns.mean(axis=2)[late:]
        print(
            f"{one.curve.name}: from round {late} on, the lowest mean over trials is {means.mean(1).min():.0f}, "
            f"the lowest of a single trial {means.min():.0f}."
        )
        band = published.LANDER_RANGE.get(one.algorithm)
        if band is not None:
            first, low, high = band.rounds[0], band.low, band.high
            print(
                f"  Published: {low:.0f} to {high:.0f} from round {first - 1} or {first} on, sometimes about "
                f"{band.lowest:.0f}; the expert {published.LANDER_EXPERT:.0f}."
            )


def _error(sample: Sample) -> str:
    return "" if sample.size < 2 else f"{sample.standard_error:.0f}"
