"""LunarLander with its leg contacts masked, round by round: DAgger, and DAeQuIL with a critic that sees them.

The policy sees six of the eight numbers of the observation, the expert and the critics all of them. Five trials, ten
rounds of ten episodes after a start from behavioral cloning. A trial's score after a round is what its policy of that
round returns over ten episodes of its own, not the best of several.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from understudy.algorithms import find
from understudy.data import Demonstrations
from understudy.envs import GymnasiumEnvironment
from understudy.evaluation import drawing as figures
from understudy.evaluation.returns import evaluate
from understudy.experts.expert import Expert
from understudy.game import DEFAULT, Algorithm
from understudy.paper import published
from understudy.paper.rounds import Trials
from understudy.policies.actor import Actor
from understudy.studies.training import Report
from understudy.train.imitate import imitate

ENV = "LunarLander-v3"
SEEN = (0, 1, 2, 3, 4, 5)
"""Position, velocity, angle and its velocity; not whether the legs touch the ground."""
LEARNERS = ("dagger:lander", "daequil:lander")
FRESH = 20_210_718
"""The seed of the evaluation's starts. Those of training come from the trials' seeds, which are small numbers."""


def learner(name: str, rounds: int) -> tuple[Algorithm, str]:
    """The algorithm that "daequil:lander" names, with that many rounds after its start, and its preset's name."""
    algorithm, _, preset = name.partition(":")
    return find(algorithm).preset(preset or DEFAULT, rounds=rounds + 1), preset or DEFAULT


def trials(
    name: str,
    env: GymnasiumEnvironment,
    expert: Expert,
    demonstrations: Demonstrations,
    rounds: int,
    seeds: int,
    episodes: int,
    workers: int,
    progress: Report,
) -> Trials:
    """Train a learner's trials together, then play the policy that each had after each round."""
    algorithm, preset = learner(name, rounds)
    kept: list[Any] = []
    policies = jax.jit(jax.vmap(algorithm.policy))

    def visit(done: int, states: Any) -> None:
        kept.append(jax.device_get(policies(states())))

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
            policy_obs=SEEN,
        )
    if result.interrupted:
        raise KeyboardInterrupt("what had finished before is kept")
    spec = result.policies[0].spec
    actors = [Actor(jax.tree.map(lambda x, i=i: x[i], stack), spec) for stack in kept for i in range(seeds)]
    with progress(f"playing {len(actors)} policies of {algorithm.card.title}") as report:
        played = evaluate(actors, env, episodes, FRESH, workers=workers, progress=report)
    returns = played.returns.reshape(len(kept), seeds, episodes)
    queries = np.fmax.accumulate(result.metrics["queries"].T)  # a run that has stopped asks nothing more
    return Trials(algorithm.card.name, preset, returns, queries)


def draw(found: Sequence[Trials], expert: float | None, path: Path) -> None:
    """Two panels: return against the round, with what was published, and against what was asked of the expert."""
    picture, (left, right) = figures.figure(2, width=5.4, height=4.0)
    reached = [] if expert is None else [expert]
    for index, one in enumerate(found):
        color = figures.LINES[index % len(figures.LINES)]
        figures.draw_points(left, one.curve.samples, color, one.curve.name)
        figures.draw_points(right, one.by_queries, color, one.curve.name)
        theirs, label = published.lander(one.algorithm), f"{one.algorithm}, published"
        figures.draw_points(left, theirs, color, label, published=True)
        band = published.LANDER_RANGE.get(one.algorithm)
        if band is not None:
            left.fill_between(band.rounds, band.low, band.high, color=color, alpha=0.15, linewidth=0, label=label)
            reached += [band.low, band.high]
        reached += [
            x for sample in one.curve.samples.values() for x in (sample.mean, sample.mean + sample.standard_error)
        ]
    for axis, label in ((left, "round (0: behavioral cloning)"), (right, "queries to the expert")):
        if expert is not None:
            axis.axhline(expert, color=figures.EXPERT, linewidth=1.5, label="the expert", zorder=0)
        # The published curve begins far below what cloning starts from: the axis is for the rest of it.
        room = 0.1 * (np.nanmax(reached) - np.nanmin(reached))
        bounds = (np.nanmin(reached) - 2 * room, np.nanmax(reached) + room)
        axis.set(xlabel=label, ylabel="return (mean ± standard error)", ylim=bounds)
        axis.spines[["top", "right"]].set_visible(False)
    left.legend(fontsize=7, frameon=False, loc="lower right")
    figures.save(picture, path)
