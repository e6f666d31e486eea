"""`understudy reproduce forest`: DAgger's crash and DAeQuIL's flights, and what the paper leaves open about them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from understudy.collect.rollouts import Episodes, rollout
from understudy.core import display
from understudy.core.errors import SettingError, check_whole
from understudy.core.options import Path_
from understudy.core.statistics import Interval, Sample, interval
from understudy.core.storage import check_place
from understudy.data import load
from understudy.envs.forest import Forest
from understudy.evaluation import drawing as figures
from understudy.paper import forest as experiment
from understudy.paper import published
from understudy.paper.rounds import COLUMNS, MADE, Trials, made
from understudy.policies import Policy
from understudy.train.results import write_csv

Part = Literal["figure", "ablation", "budget", "unseen"]
CLONED = (10, 20, 40, 80, 160)
"""Flights that cloning is shown, to compare what the expert's actions buy."""


@dataclass
class _Found:
    """What the picture is drawn from."""

    trials: dict[str, Trials] = field(default_factory=dict)
    policies: dict[str, list[Policy]] = field(default_factory=dict)
    cloning: dict[int, Sample] = field(default_factory=dict)
    unseen: dict[str, Interval] = field(default_factory=dict)


def reproduce_forest(
    parts: tuple[Part, ...] = ("figure",),
    trials: int = 10,
    queries: int = 3000,
    out: Path_ = None,
) -> None:
    """How far policies fly by round: DAgger, and DAeQuIL with the paper's moments and with others.

    Args:
        parts: What to run: the paper's figure; cloning with as many expert actions (budget), which is drawn there; 20
            forests to learn in and 100 others to fly through (unseen); other moments (ablation).
        trials: Seeds of each learner.
        queries: For unseen: how often each run may ask the expert.
        out: The CSV file of distances; figures and other parts' files go beside it. Default: docs/results/forest.csv.
    """
    check_whole(2, trials=trials)
    check_whole(1, queries=queries)
    path = Path(out or "docs/results/forest.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    check_place(path)
    forest, found, others = Forest(), _Found(), _Found()
    expert = float(rollout(forest, forest.expert(), 1000, 1, deterministic=False).returns.mean())
    drawn = "figure" in parts or "budget" in parts
    if drawn:
        _flights(experiment.LEARNERS, forest, trials, path, found)
    if "budget" in parts:
        _budget(forest, trials, _beside(path, "budget"), found)
    if "unseen" in parts:
        _unseen(trials, queries, _beside(path, "unseen"), found)
    if drawn:
        draw(forest, found, expert, path.with_suffix(".png"))
        _tell(found.trials, expert)
    if "ablation" in parts:
        _flights(experiment.ABLATION, forest, trials, _beside(path, "ablation"), others)
        _tell(others.trials, expert)
    for name, reach in found.unseen.items():
        print(f"{name}: {reach} m in forests that it has not seen (mean over 100 of them, 95% interval).")
    low, high = published.FOREST["daequil"]
    print(
        f"\nPublished: the expert {published.FOREST_EXPERT:.0f}, DAgger {published.FOREST['dagger'][0]:.0f} to "
        f"{published.FOREST['dagger'][1]:.0f}, DAeQuIL between {low:.0f} and {high:.0f} from round to round."
    )
    files = [_beside(path, part) for part in ("budget", "unseen", "ablation") if part in parts]
    print(f"The distances: {', '.join(map(str, ([path] if drawn else []) + files))}.")
    if drawn:
        print(f"The figure: {path.with_suffix('.png')}")


def _beside(path: Path, part: str) -> Path:
    return path.with_name(f"{path.stem}-{part}.csv")


def _flights(learners: dict[str, experiment.Learner], forest: Forest, seeds: int, path: Path, found: _Found) -> None:
    """Run learners one after the other; what is finished is written at once."""
    rows: list[list[Any]] = []
    for name, learner in learners.items():
        with display.progress_bar(name) as report:
            found.trials[name], found.policies[name] = experiment.trials(
                name, learner(forest), forest, seeds, progress=report
            )
        rows += found.trials[name].rows(forest.name)
        write_csv(path, [*COLUMNS, *MADE], rows)


def _budget(forest: Forest, seeds: int, path: Path, found: _Found) -> None:
    """Distance against the expert's actions, demonstrated and asked together."""
    rows: list[list[Any]] = []
    about = made()
    shown = load(forest.name).first(experiment.DEMONSTRATIONS).steps
    for steps, scores in experiment.cloning(forest, list(CLONED), seeds, display.progress_bar).items():
        found.cloning[steps] = Sample.of(scores)
        for seed, score in enumerate(scores):
            rows.append(
                [forest.name, "bc", "forest", seed, "expert_actions", steps, round(float(score), 3), 0, 0, *about]
            )
    for one in found.trials.values():
        for returns, asked in zip(one.returns.mean(axis=2), one.queries, strict=True):
            for seed, (score, queries) in enumerate(zip(returns, asked, strict=True)):
                steps = shown + int(queries)
                kind = [forest.name, one.algorithm, one.preset, seed, "expert_actions", steps]
                rows.append([*kind, round(float(score), 3), 0, int(queries), *about])
    write_csv(path, [*COLUMNS, *MADE], rows)


def _unseen(seeds: int, queries: int, path: Path, found: _Found) -> None:
    known, others = (Forest.plant(jax.random.key(1000 + i), count) for i, count in ((0, 20), (1, 100)))
    scores = experiment.unseen(experiment.UNSEEN, known, others, queries, seeds, display.progress_bar)
    rows: list[list[Any]] = []
    about = made()
    for name, table in scores.items():
        algorithm, _, preset = name.partition(", ")
        found.unseen[name] = interval(Sample.of(table.mean(axis=0)))  # over forests: those are what is drawn at random
        for (seed, layout), score in np.ndenumerate(table):
            spent = 0 if name == experiment.EXPERT else queries
            kind = ["Forest", algorithm, preset, seed, "unseen_forest", layout]
            rows.append([*kind, round(float(score), 3), 0, spent, *about])
    write_csv(path, [*COLUMNS, *MADE], rows)


def draw(forest: Forest, found: _Found, expert: float, path: Path) -> None:
    """The paper's three panels, and distance by round, by expert actions, and elsewhere."""
    names = list(found.trials)
    picture, axes = figures.figure(3, rows=2)
    figures.draw_forest(axes[0], forest, [_demonstrated(forest)], figures.EXPERT, "The expert dodges at random")
    titles = ("DAgger crashes into the first tree", "DAeQuIL flies past them")
    for axis, index, title in zip(axes[1:3], (0, len(names) - 1), titles, strict=True):
        flights = [rollout(forest, policy, 1) for policy in found.policies[names[index]]]
        figures.draw_forest(axis, forest, flights, _color(index), title)
    for index, (name, one) in enumerate(found.trials.items()):
        color = _color(index)
        figures.draw_points(axes[3], one.curve.samples, color, name)
        shown = load(forest.name).first(experiment.DEMONSTRATIONS).steps
        asked = {shown + queries: sample for queries, sample in one.by_queries.items()}
        figures.draw_points(axes[4], asked, color, name)
    figures.draw_points(axes[4], found.cloning, "#555555", "cloning")
    labels = ("round (0: behavioral cloning)", "expert's actions, demonstrated and asked")
    for axis, label in zip(axes[3:5], labels, strict=True):
        axis.axhline(expert, color=figures.EXPERT, linewidth=1.5, label="the expert", zorder=0)
        axis.set(xlabel=label, ylabel="distance (m, mean ± standard error)", ylim=(0, 115))
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[3:5]:
        axis.legend(fontsize=7, frameon=False, loc="upper left")
    _bars(axes[5], found.unseen)
    figures.save(picture, path)


def _color(index: int) -> str:
    return figures.LINES[(2 * index) % 5]


def _demonstrated(forest: Forest) -> Episodes:
    return rollout(forest, forest.expert(), experiment.DEMONSTRATIONS, 1, deterministic=False)


def _bars(axis: Any, found: dict[str, Interval]) -> None:
    if not found:
        axis.set_axis_off()
        return
    for index, (name, reach) in enumerate(found.items()):
        color = figures.EXPERT if name == experiment.EXPERT else _color(index)
        axis.errorbar(reach.mean, -index, xerr=(reach.high - reach.low) / 2, color=color, marker="o", capsize=4)
        axis.annotate(name, (reach.mean, -index), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
    axis.set(yticks=[], xlim=(0, 100), ylim=(0.6 - len(found), 0.6), xlabel="distance in 100 unseen forests (m, 95%)")
    axis.spines[["top", "right", "left"]].set_visible(False)


def _tell(found: dict[str, Trials], expert: float) -> None:
    lines: list[list[object]] = []
    rounds = 0
    for name, one in found.items():
        means = one.returns.mean(axis=(1, 2))
        rounds = len(means)
        last = one.last
        assert one.handed is not None
        numbers = [f"{last.mean():.1f}", f"{abs(last.min()):.0f}", f"{one.handed.mean():.1f}"]
        lines.append([name, *(f"{mean:.0f}" for mean in means), *numbers])
    headers = ("learner", *(f">{x}" for x in range(rounds)), ">last three", ">lowest trial", ">handed over")
    display.show(headers, lines, f"Forest (the expert: {expert:.0f} m): mean distance by round (0: cloning)")
