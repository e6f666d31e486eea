"""The paper's figure of reward moments: return against environment steps (`studies/reward-TASK.toml`).

A learner trains all its seeds together. At regular numbers of environment steps, the current policies (not the best so
far) are evaluated in ten episodes. `understudy reproduce reward` runs it. `balanced` and `f_frequency` are figures of
the same kind and share this module's options, drawing and tables.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from understudy.algorithms import find
from understudy.core import display
from understudy.core.errors import NeedsError
from understudy.core.options import Int_, Names_, Path_, default
from understudy.core.statistics import Sample
from understudy.evaluation import drawing
from understudy.paper import figure_studies, published
from understudy.paper.figure_studies import TASKS, TaskName
from understudy.paper.formatting import with_error
from understudy.paper.off_q import experts
from understudy.studies import Entry, Study
from understudy.studies.curves import Curve, learner_name, read_curves, read_levels

PRINTED_STEPS = (25_000, 50_000, 75_000, 100_000, 200_000, 300_000, 400_000, 500_000)
WITHIN = published.REWARD_EVERY
"""Learners are compared at a number of steps by their first evaluation from there on, less than this many later."""


@dataclass(frozen=True)
class OnlineOptions:
    """Options of every figure whose learners train in the environment."""

    demos: Annotated[Path_, default("the bundled ones")] = None
    """File of demonstrations (.npz)."""
    steps: Annotated[Int_, default("500,000; in the ablation 300,000")] = None
    """Environment steps of each run."""
    eval_every: Annotated[Int_, default("25,000")] = None
    """Environment steps between evaluations, rounded up to whole rounds."""
    seeds: Annotated[Int_, default("5")] = None
    """Seeds per learner."""
    eval_episodes: Annotated[Int_, default("10")] = None
    """Episodes per evaluated policy."""
    staleness: int = 0
    """Updates by which the acting policy lags the learner: 0, or 1 to collect and train in parallel."""
    workers: Annotated[int, default("one per core")] = 0
    """Processes for collecting and evaluating."""

    def study(self, figure: str, env: str, entries: Sequence[Entry] = ()) -> Study:
        """The figure's study with these options."""
        return figure_studies.adapt_study(
            figure_studies.load_study(figure),
            *(env, self.demos, self.seeds, self.workers or os.cpu_count() or 1, entries),
            steps=self.steps,
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            staleness=self.staleness,
        )


Options = Annotated[OnlineOptions, tyro.conf.arg(name="")]
"""The options without a prefix on the command line."""
DEFAULTS = OnlineOptions()


def reproduce_reward(
    task: TaskName,
    learners: Annotated[Names_, default("the figure's")] = None,
    options: Options = DEFAULTS,
    work: Annotated[Path_, default("runs/reward-TASK")] = None,
    out: Annotated[Path_, default("docs/results/reward-TASK.csv")] = None,
) -> None:
    """Return by environment steps for AdRIL, SQIL and GAIL, next to the paper's curves.

    Args:
        task: Task of the paper.
        learners: Learners to train instead of the figure's: an algorithm with an optional preset, number of
            trajectories and settings, such as adril:paper@20,round_steps=2500. Without a name: train nothing, and draw
            the rows in the file. Rows of other learners stay in the file.
        work: Directory of the finished cells; rerun the command to resume.
        out: CSV file of the returns; the figure is written next to it.
    """
    entries = None if learners is None else figure_studies.parse_learners(learners)
    reproduce_figure(f"reward-{task}", task, options, work, out, entries)


def reproduce_figure(
    figure: str,
    task: TaskName,
    options: OnlineOptions,
    work: str | None,
    out: str | None,
    entries: Sequence[Entry] | None = None,
) -> None:
    """Run a figure's study, draw it and print it. With an empty `entries`: draw the rows in the file."""
    env = TASKS[task]
    path = Path(out or f"docs/results/{figure}.csv")
    figure_studies.check_out(path)
    if entries is not None and not entries:
        rows = figure_studies.read_rows(path)
    else:
        study = options.study(figure, env, entries or ())
        rows = figure_studies.run_study(study, work or f"runs/reward-{task}", path, display.progress_bar)
    rows = [row for row in rows if row["env"] == env]
    if not rows:
        raise NeedsError(f"'{path}' has no returns on {env} to draw: name the learners to train with --learners")
    curves = [*read(rows), *read_offline(rows)]
    figures = draw(env, curves, path.with_suffix(".png"))
    _print(env, curves)
    print(f"\nReturns: {path}. Figure: {', '.join(map(str, figures))}")


def read(rows: Sequence[Mapping[str, str]]) -> list[Curve]:
    """One curve by environment steps per learner and number of trajectories."""
    return read_curves(rows, "env_steps")


def read_offline(rows: Sequence[Mapping[str, str]]) -> list[Curve]:
    """The learners that take no environment steps: curves without points, whose final policies are a line."""
    return [curve for curve in read_levels(rows) if "environment" not in find(curve.algorithm).card.needs]


def published_name(curve: Curve) -> str:
    """The name of the paper's curve for this learner."""
    return "adril-balanced" if curve.preset == "paper-balanced" else curve.algorithm


def is_published(curve: Curve) -> bool:
    """Whether the paper has a curve of this learner: its preset, its number of trajectories, its demonstrations."""
    count = published.REWARD_TRAJECTORIES.get(published_name(curve))
    return curve.preset.startswith("paper") and curve.trajectories == count and not curve.settings and not curve.bundled


def distinct_names(curves: Sequence[Curve]) -> list[str]:
    """The curves' names. A setting that one of several curves changes is written out for all of them."""
    names = []
    for curve in curves:
        similar = [other for other in curves if (other.algorithm, other.preset) == (curve.algorithm, curve.preset)]
        preset = find(curve.algorithm).preset(curve.preset)
        changed = {name for other in similar for name, value in other.settings.items() if not isinstance(value, dict)}
        settings = {**{name: getattr(preset, name) for name in sorted(changed)}, **curve.settings}
        names.append(learner_name(curve.algorithm, curve.preset, settings, curve.trajectories))
    return names


def draw(env: str, curves: Sequence[Curve], path: Path) -> list[Path]:
    """Draw our curves with bands of one standard error, and the published ones dotted in the same colors.

    Learners without environment steps are horizontal lines with such bands.
    Curves of the bundled demonstrations go to a figure whose name ends in -bundled.
    """
    paths = []
    for bundled, name in ((False, path), (True, path.with_stem(f"{path.stem}-bundled"))):
        selected = [curve for curve in curves if curve.bundled == bundled]
        if selected:
            _draw_one(env, selected, name)
            paths.append(name)
    return paths


def _draw_one(env: str, curves: Sequence[Curve], path: Path) -> None:
    figure, (axis,) = drawing.figure(1, width=7.6, height=5.2)
    for index, (curve, name) in enumerate(zip(curves, distinct_names(curves), strict=True)):
        color = drawing.LINES[index % len(drawing.LINES)]
        draw_band(axis, curve.samples, color, name, "-")
        if not curve.seeds and (level := curve.final_sample) is not None:
            draw_level(axis, level, color, f"{name}, offline")
        if is_published(curve):
            theirs = published_name(curve)
            draw_band(axis, published.reward(env, theirs), color, f"{theirs}, published", ":")
    expert = next((curve.expert for curve in curves if curve.expert is not None), None)
    if expert is not None:
        axis.axhline(expert, color=drawing.EXPERT, linewidth=1.5, label="the expert")
    source = "bundled demonstrations" if curves[0].bundled else "the paper's demonstrations"
    if not curves[0].bundled and expert is not None and round(expert) != round(published.EXPERT.get(env, expert)):
        source = curves[0].demonstrations
    axis.set(title=f"{env}, {source}", xlabel="environment steps", ylabel="return (mean ± standard error over seeds)")
    label_thousands(axis)
    axis.legend(fontsize=7, ncols=2, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    drawing.save(figure, path)


def label_thousands(axis: Any) -> None:
    """Label environment steps in thousands, and hide the top and right frame."""
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
    axis.spines[["top", "right"]].set_visible(False)


def draw_band(axis: Any, samples: dict[int, Sample], color: str, label: str, style: str = "-") -> None:
    """Draw means by environment steps; a solid line has a band of one standard error."""
    if not samples:
        return
    x = sorted(samples)
    mean, error = (np.array([getattr(samples[i], name) for i in x]) for name in ("mean", "standard_error"))
    axis.plot(x, mean, color=color, linestyle=style, label=label, linewidth=1.8 if style == "-" else 1.4)
    if style == "-":
        axis.fill_between(x, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)


def draw_level(axis: Any, level: Sample, color: str, label: str) -> None:
    """Draw a learner without environment steps: a horizontal line with a band of one standard error."""
    axis.axhline(level.mean, color=color, label=label, linewidth=1.8)
    if level.size > 1:
        axis.axhspan(*(level.mean + sign * level.standard_error for sign in (-1, 1)), color=color, alpha=0.2, lw=0)


def _print(env: str, curves: Sequence[Curve]) -> None:
    """Print the table by environment steps, ours and published, and how each learner ends."""
    columns = [x for x in PRINTED_STEPS if any(curve.reached(x, WITHIN) for curve in curves)]
    within = WITHIN if columns else 1
    columns = columns or sorted({x for curve in curves for x in curve.returns})[-len(PRINTED_STEPS) :]
    rows: list[list[object]] = []
    for curve, name in zip(curves, distinct_names(curves), strict=True):
        source = "bundled" if curve.bundled else "ours"
        rows.append([name, source, *(with_error(curve.sample(x, within)) for x in columns)])
        if is_published(curve):
            theirs = published.reward(env, published_name(curve))
            rows.append(["", "published", *(with_error(theirs.get(x)) for x in columns)])
    title = (
        f"{env}{experts(curves)}: return, mean ± standard error over seeds, at the first evaluation from this many "
        "environment steps on"
    )
    display.show(("learner", "", *(f">{x / 1000:g}k" for x in columns)), rows, title)
    print()
    for curve in curves:
        who = f"{curve.name}{' (bundled demonstrations)' if curve.bundled else ''}"
        if not curve.seeds:
            print(f"{who}: no environment steps; final policy {with_error(curve.final_sample)}.")
            continue
        final = f"; final policy {with_error(curve.final_sample)}" if curve.final else ""
        print(
            f"{who}: last evaluation "
            f"{with_error(curve.last)}, mean of the last five {with_error(curve.last_five)}, lowest of any seed in the "
            f"last ten {curve.lowest_of_any_seed:.0f}{final}. {stopped_seeds(curve)}"
            f"{len(curve.seeds)} seeds, {curve.seconds:.0f} s on {curve.device}."
        )


def stopped_seeds(curve: Curve) -> str:
    """A sentence about the seeds that stopped early; empty if none did."""
    if not curve.stopped:
        return ""
    return f"Seeds that stopped early (their last policy is evaluated): {', '.join(map(str, curve.stopped))}. "
