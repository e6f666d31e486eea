"""`understudy reproduce lander`: DAgger and DAeQuIL by round on LunarLander, where the policy does not see the legs."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from understudy.collect.recording import record
from understudy.core import display
from understudy.core.errors import SettingError, check_whole
from understudy.core.options import Path_
from understudy.core.statistics import Sample
from understudy.core.storage import check_place
from understudy.data import load
from understudy.envs import GymnasiumEnvironment, make
from understudy.experts.expert import as_expert
from understudy.experts.weights import holds_weights, policy_from_weights
from understudy.paper import lander, published
from understudy.paper.rounds import COLUMNS, MADE, Trials
from understudy.policies.networks import Activation
from understudy.train.results import write_csv


def reproduce_lander(
    expert: Annotated[str, tyro.conf.arg(metavar="FILE")],
    demos: Path_ = None,
    activation: Activation = "tanh",
    learners: tuple[str, ...] = lander.LEARNERS,
    trajectories: int = 25,
    trials: int = published.SEEDS,
    rounds: int = 10,
    episodes: int = 10,
    workers: int = 0,
    out: Path_ = None,
) -> None:
    """Return by round for DAgger and DAeQuIL on LunarLander with masked leg contacts, the paper's numbers beside ours.

    Args:
        expert: Who is asked: an npz file of weights w0, b0, w1, b1, ..., a saved policy or run, or module:function.
        demos: An npz file of demonstrations. Default: the expert's own, played now.
        activation: Between the layers of an expert that is a file of weights.
        learners: Algorithms, each with a preset if it is not the default.
        trajectories: Demonstrated trajectories that each learner starts from.
        trials: Seeds of each learner.
        rounds: Rounds after the start from behavioral cloning.
        episodes: Episodes that the policy of each round and trial plays.
        workers: Processes for playing. Default: one for each core.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/lander.csv.
    """
    check_whole(1, trials=trials, rounds=rounds, episodes=episodes, trajectories=trajectories)
    path = Path(out or "docs/results/lander.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    check_place(path)
    for name in learners:
        lander.learner(name, rounds)
    env = make(lander.ENV)
    assert isinstance(env, GymnasiumEnvironment)
    sys.path.insert(0, "")  # module:function may be in this directory
    asked = as_expert(policy_from_weights(expert, env, activation) if holds_weights(expert) else expert, env)
    with display.working(f"playing {trajectories} episodes of the expert"):
        shown = load(demos) if demos else record(env, asked.source, trajectories, seed=0)
    shown = shown.first(trajectories)

    rows: list[list[Any]] = []
    found: list[Trials] = []
    known = shown.expert_return
    for name in learners:
        found.append(
            lander.trials(
                name, env, asked, shown, rounds, trials, episodes, workers or os.cpu_count() or 1, display.progress_bar
            )
        )
        # Now, and not at the end: what follows may fail or be interrupted.
        rows += found[-1].rows(env.name)
        write_csv(path, [*COLUMNS, *MADE], rows)
        lander.draw(found, None if known is None else known.mean, path.with_suffix(".png"))

    _tell(env.name, found, None if known is None else known.mean)
    print(f"\nThe returns: {path}. The figure: {path.with_suffix('.png')}")


def _tell(env: str, found: list[Trials], expert: float | None) -> None:
    """The table by round, ours and published, and how low learners fall once they have learned."""
    rounds, count = found[0].queries.shape
    lines: list[list[object]] = []
    for one in found:
        samples, theirs = one.curve.samples.values(), published.lander(one.algorithm)
        lines.append([one.curve.name, "ours", *(f"{sample.mean:.0f}" for sample in samples)])
        lines.append(["", "± standard error", *(_error(sample) for sample in samples)])
        lines.append(["", "queries", *(f"{asked:.0f}" for asked in one.queries.mean(1))])
        if theirs:
            lines.append(["", "published", *(f"{theirs[x].mean:.0f}" if x in theirs else "" for x in range(rounds))])
    says = "" if expert is None else f" (the expert: {expert:.0f})"
    title = f"{env}{says}: return of each round's policy, mean over {count} trials, by round (0: cloning)"
    display.show(("learner", "", *(f">{x}" for x in range(rounds))), lines, title)
    print()
    late = min(4, rounds - 1)
    for one in found:
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
