"""The Forest figure: distance by round (`understudy reproduce forest`). `forest_trials` has the learners."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np

from understudy.collect.rollouts import rollout
from understudy.core import display
from understudy.core.errors import check_whole
from understudy.core.options import Path_, default
from understudy.core.statistics import Interval, Sample, interval
from understudy.data import load
from understudy.envs.forest import Forest
from understudy.evaluation import drawing
from understudy.paper import forest_trials, published
from understudy.paper.figure_studies import check_out
from understudy.paper.forest_answers import run_answers
from understudy.paper.forest_trials import DEMONSTRATIONS, Learner
from understudy.paper.on_q_trials import COLUMNS, Trials, provenance_columns
from understudy.policies import Policy
from understudy.train.tables import write_csv

Part = Literal["figure", "ablation", "budget", "unseen", "answers"]
CLONED_FLIGHTS = (10, 20, 40, 80, 160)
"""Demonstrated flights for cloning, to compare the value of expert actions."""
TRAINING_FORESTS, UNSEEN_FORESTS = 20, 100
EXPERT_EPISODES = 1000


@dataclass
class _Results:
    """What the figure shows."""

    trials: dict[str, Trials] = field(default_factory=dict)
    policies: dict[str, list[Policy]] = field(default_factory=dict)
    cloning: dict[int, Sample] = field(default_factory=dict)
    unseen: dict[str, Interval] = field(default_factory=dict)


def reproduce_forest(
    parts: tuple[Part, ...] = ("figure",),
    trials: int = 10,
    queries: int = 3000,
    answers: int = 100,
    out: Annotated[Path_, default("docs/results/forest.csv")] = None,
) -> None:
    """Distance by round for DAgger and for DAeQuIL with the paper's moments and with others.

    Args:
        parts: Parts to run. figure: the paper's figure. budget: cloning with as many expert actions, drawn in the
            figure. unseen: train in 20 forests and evaluate in 100 others. ablation: other moments. answers: few
            expert queries, as a person would answer.
        trials: Seeds per learner.
        queries: Expert queries per run in the part unseen.
        answers: Expert queries per run in the part answers.
        out: CSV file of the distances; figures and the other parts' files are written next to it.
    """
    check_whole(2, trials=trials)
    check_whole(1, queries=queries, answers=answers)
    path = Path(out or "docs/results/forest.csv")
    check_out(path, *(_part_path(path, part) for part in parts if part != "figure"))
    forest, results, ablation = Forest(), _Results(), _Results()
    expert = float(rollout(forest, forest.expert(), EXPERT_EPISODES, 1, deterministic=False).returns.mean())
    drawn = "figure" in parts or "budget" in parts
    if drawn:
        _run_learners(forest_trials.LEARNERS, forest, trials, path, results)
    if "budget" in parts:
        _run_budget(forest, trials, _part_path(path, "budget"), results)
    if "unseen" in parts:
        _run_unseen(trials, queries, _part_path(path, "unseen"), results)
    if drawn:
        draw(forest, results, expert, path.with_suffix(".png"))
        _print(results.trials, expert)
    if "ablation" in parts:
        _run_learners(forest_trials.ABLATION, forest, trials, _part_path(path, "ablation"), ablation)
        _print(ablation.trials, expert)
    if "answers" in parts:
        unseen = Forest.plant(jax.random.key(1001), UNSEEN_FORESTS)
        run_answers(forest, unseen, answers, range(trials), _part_path(path, "answers"))
    for name, distance in results.unseen.items():
        print(
            f"{name}: {distance} m in {UNSEEN_FORESTS} unseen forests (mean ± 95% interval, Student's t over forests)."
        )
    low, high = published.FOREST["daequil"]
    print(
        f"\nPublished: the expert {published.FOREST_EXPERT:.0f}, DAgger {published.FOREST['dagger'][0]:.0f} to "
        f"{published.FOREST['dagger'][1]:.0f}, DAeQuIL between {low:.0f} and {high:.0f} from round to round."
    )
    files = [_part_path(path, part) for part in ("budget", "unseen", "ablation", "answers") if part in parts]
    print(f"Distances: {', '.join(map(str, ([path] if drawn else []) + files))}.")
    if drawn:
        print(f"Figure: {path.with_suffix('.png')}")


def _part_path(path: Path, part: str) -> Path:
    return path.with_name(f"{path.stem}-{part}.csv")


def _run_learners(learners: dict[str, Learner], forest: Forest, seeds: int, path: Path, results: _Results) -> None:
    """Run one learner after the other, and write the file after each."""
    rows: list[list[Any]] = []
    for name, learner in learners.items():
        with display.progress_bar(name) as report:
            results.trials[name], results.policies[name] = forest_trials.run_trials(
                name, learner(forest), forest, seeds, progress=report
            )
        rows += results.trials[name].rows(forest.name)
        write_csv(path, COLUMNS, rows)


def _run_budget(forest: Forest, seeds: int, path: Path, results: _Results) -> None:
    """Distance by the number of expert actions, demonstrated and queried together."""
    rows: list[list[Any]] = []
    made = provenance_columns()
    demonstrated = load(forest.name).first(DEMONSTRATIONS).steps
    cloning = forest_trials.clone_by_flights(forest, list(CLONED_FLIGHTS), seeds, display.progress_bar)
    for steps, scores in cloning.items():
        results.cloning[steps] = Sample.of(scores)
        for seed, score in enumerate(scores):
            learner = [forest.name, "bc", "forest", seed, "expert_actions", steps]
            rows.append([*learner, round(float(score), 3), 0, 0, *made])
    for one in results.trials.values():
        for returns, counts in zip(one.returns.mean(axis=2), one.queries, strict=True):
            for seed, (score, queries) in enumerate(zip(returns, counts, strict=True)):
                steps = demonstrated + int(queries)
                learner = [forest.name, one.algorithm, one.preset, seed, "expert_actions", steps]
                rows.append([*learner, round(float(score), 3), 0, int(queries), *made])
    write_csv(path, COLUMNS, rows)


def _run_unseen(seeds: int, queries: int, path: Path, results: _Results) -> None:
    """Distance in forests that were not seen in training."""
    training = Forest.plant(jax.random.key(1000), TRAINING_FORESTS)
    unseen = Forest.plant(jax.random.key(1001), UNSEEN_FORESTS)
    scores = forest_trials.fly_unseen(forest_trials.UNSEEN, training, unseen, queries, seeds, display.progress_bar)
    rows: list[list[Any]] = []
    made = provenance_columns()
    for name, table in scores.items():
        algorithm, _, preset = name.partition(", ")
        results.unseen[name] = interval(Sample.of(table.mean(axis=0)))  # over forests: they are the random sample
        for (seed, layout), score in np.ndenumerate(table):
            spent = 0 if name == forest_trials.EXPERT else queries
            learner = ["Forest", algorithm, preset, seed, "unseen_forest", layout]
            rows.append([*learner, round(float(score), 3), 0, spent, *made])
    write_csv(path, COLUMNS, rows)


def draw(forest: Forest, results: _Results, expert: float, path: Path) -> None:
    """Draw the paper's three panels of flights, then distance by round, by expert actions and in unseen forests."""
    names = list(results.trials)
    figure, axes = drawing.figure(3, rows=2)
    flights = rollout(forest, forest.expert(), DEMONSTRATIONS, 1, deterministic=False)
    drawing.draw_forest(axes[0], forest, [flights], drawing.EXPERT, "The expert dodges at random")
    titles = ("DAgger crashes into the first tree", "DAeQuIL flies past them")
    for axis, index, title in zip(axes[1:3], (0, len(names) - 1), titles, strict=True):
        policies = results.policies[names[index]]
        drawing.draw_forest(axis, forest, [rollout(forest, policy, 1) for policy in policies], _color(index), title)
    demonstrated = load(forest.name).first(DEMONSTRATIONS).steps
    for index, (name, one) in enumerate(results.trials.items()):
        drawing.draw_points(axes[3], one.curve.samples, _color(index), name)
        by_actions = {demonstrated + queries: sample for queries, sample in one.by_queries.items()}
        drawing.draw_points(axes[4], by_actions, _color(index), name)
    drawing.draw_points(axes[4], results.cloning, "#555555", "cloning")
    labels = ("round (0: behavioral cloning)", "expert actions, demonstrated and queried")
    for axis, label in zip(axes[3:5], labels, strict=True):
        axis.axhline(expert, color=drawing.EXPERT, linewidth=1.5, label="the expert", zorder=0)
        axis.set(xlabel=label, ylabel="distance (m, mean ± standard error over trials)", ylim=(0, 115))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=7, frameon=False, loc="upper left")
    _draw_unseen(axes[5], results.unseen)
    drawing.save(figure, path)


def _color(index: int) -> str:
    return drawing.LINES[(2 * index) % 5]


def _draw_unseen(axis: Any, distances: dict[str, Interval]) -> None:
    if not distances:
        axis.set_axis_off()
        return
    for index, (name, one) in enumerate(distances.items()):
        color = drawing.EXPERT if name == forest_trials.EXPERT else _color(index)
        axis.errorbar(one.mean, -index, xerr=(one.high - one.low) / 2, color=color, marker="o", capsize=4)
        axis.annotate(name, (one.mean, -index), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
    label = f"distance in {UNSEEN_FORESTS} unseen forests (m, 95%)"
    axis.set(yticks=[], xlim=(0, 100), ylim=(0.6 - len(distances), 0.6), xlabel=label)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _print(trials: dict[str, Trials], expert: float) -> None:
    rows: list[list[object]] = []
    rounds = 0
    for name, one in trials.items():
        means = one.returns.mean(axis=(1, 2))
        rounds = len(means)
        last = one.last_three
        assert one.final is not None
        numbers = [f"{last.mean():.1f}", f"{abs(last.min()):.0f}", f"{one.final.mean():.1f}"]
        rows.append([name, *(f"{mean:.0f}" for mean in means), *numbers])
    headers = ("learner", *(f">{x}" for x in range(rounds)), ">last three", ">lowest trial", ">final policy")
    display.show(headers, rows, f"Forest (the expert: {expert:.0f} m): mean distance by round (0: cloning)")
