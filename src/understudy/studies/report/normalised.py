"""Expert-normalised returns of final policies, and their performance profile.

A normalised return is (return − random) / (expert − random), with the mean returns of a policy of uniformly random
actions and of the expert (`evaluation.scores`). Both count as exact. So tasks with different returns share one axis.

    profile(τ) = the share of runs whose normalised return is above τ

with Wilson's 95% interval of a share, at each τ. A run that diverged is below every τ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from understudy.core.errors import SettingError
from understudy.core.statistics import Sample, interval, mean_of_means, proportion
from understudy.evaluation.scores import expert_normalised
from understudy.studies.report.chart import Chart, Series
from understudy.studies.report.formatting import bracket, number, plural, plus_minus
from understudy.studies.report.learners import LearnerResults, TaskResults
from understudy.studies.report.markup import table

RandomReturns = Mapping[str, float | str]
"""Environment → mean return of random actions, or the reason why it is not known."""
LOWEST, POINTS = -0.5, 241
"""The smallest τ of a profile, and its number of points."""
NOT_MEASURED = "random actions were not evaluated"


@dataclass(frozen=True)
class Scored:
    """The normalised returns of one row of a task's table."""

    learner: LearnerResults
    scores: np.ndarray
    """One for each final policy."""

    @property
    def runs(self) -> int:
        """Final policies and diverged runs."""
        return self.scores.size + self.learner.diverged


def normalised_section(
    tasks: Sequence[TaskResults], random_returns: RandomReturns, colours: Mapping[str, int], charts: list[Chart]
) -> str:
    """The section of the page: a profile and a table. Empty if no return of random actions is known or asked for."""
    if not random_returns:
        return ""
    scored, left_out = _normalise(tasks, random_returns)
    notes = [f"Left out: {'; '.join(left_out)}."] if left_out else []
    figures = []
    for title, by_name in _profiles(scored):
        chart = _profile_chart(title, by_name, colours)
        figures.append(chart.html(len(charts)))
        charts.append(chart)
    anchors = "; ".join(
        f"{task.name}: random {number(float(random_returns[task.env]), task.expert or 0.0)}, "
        f"expert {number(task.expert or 0.0, float(random_returns[task.env]))}"
        for task in tasks
        if task.name in scored
    )
    text = "(return − random) / (expert − random), of the final policies: 0 is a policy of uniformly random actions, 1 "
    text += f"the expert. Both count as exact. {anchors}." if anchors else "the expert."
    below = "Profile: the share of runs that return more than τ. Higher and further right is better. Bands: Wilson's "
    below += "95% interval of a share, at each τ by itself. Runs that diverged count as below every τ."
    parts = [f"<p>{escape(text)}</p>", *figures, f"<p class=note>{escape(below)}</p>" if figures else ""]
    parts += [_table(scored) if scored else "", *(f"<p class=note>{escape(note)}</p>" for note in notes)]
    return f"<section class='normalised'><h2>Expert-normalised returns</h2>{''.join(parts)}</section>"


def _normalise(
    tasks: Sequence[TaskResults], random_returns: RandomReturns
) -> tuple[dict[str, list[Scored]], list[str]]:
    """Task → its learners with normalised returns, and the tasks that are left out, with reasons."""
    scored: dict[str, list[Scored]] = {}
    left_out = []
    for task in tasks:
        random = random_returns.get(task.env, NOT_MEASURED)
        learners = [learner for learner in task.learners if learner.curve.final]
        if isinstance(random, str) or task.expert is None:
            reason = random if isinstance(random, str) else "the expert's return is not known"
            left_out.append(f"{task.name} ({reason})")
            continue
        try:
            found = [
                Scored(learner, np.asarray(expert_normalised(list(learner.curve.final.values()), task.expert, random)))
                for learner in learners
            ]
        except SettingError as error:  # the expert is no better than random actions
            left_out.append(f"{task.name} ({error})")
            continue
        if found:
            scored[task.name] = found
    return scored, left_out


def _profiles(scored: Mapping[str, Sequence[Scored]]) -> list[tuple[str, dict[str, list[Scored]]]]:
    """(title, name → its rows) of each chart.

    Runs of several tasks are counted together only if every learner ran on every task, so that no curve has easier
    tasks than another. Several numbers of trajectories have one chart each.
    """
    several = any(len({one.learner.label for one in rows}) < len(rows) for rows in scored.values())
    counts = sorted({one.learner.trajectories for rows in scored.values() for one in rows}) if several else [None]
    charts = []
    for count in counts:
        chosen = {
            task: [one for one in rows if count is None or one.learner.trajectories == count]
            for task, rows in scored.items()
        }
        chosen = {task: rows for task, rows in chosen.items() if rows}
        suffix = "" if count is None else f", {plural(count, 'trajectory')}"
        same = len({frozenset(one.learner.label for one in rows) for rows in chosen.values()}) == 1
        pools = (
            {"all tasks" if len(chosen) > 1 else next(iter(chosen)): list(chosen)} if same else {t: [t] for t in chosen}
        )
        for title, members in pools.items():
            by_name: dict[str, list[Scored]] = {}
            for task in members:
                for one in chosen[task]:
                    by_name.setdefault(one.learner.label, []).append(one)
            charts.append((f"{title}: share of runs above τ{suffix}", by_name))
    return charts


def _profile_chart(title: str, by_name: Mapping[str, Sequence[Scored]], colours: Mapping[str, int]) -> Chart:
    every = np.concatenate([one.scores for rows in by_name.values() for one in rows])
    grid = np.linspace(max(min(0.0, every.min()) - 0.02, LOWEST), max(1.0, every.max()) + 0.02, POINTS).round(4)
    series = []
    for name, rows in by_name.items():
        scores, runs = np.concatenate([one.scores for one in rows]), sum(one.runs for one in rows)
        shares = {float(tau): proportion(int((scores > tau).sum()), runs) for tau in grid}
        points = {tau: Sample(share.mean, float("nan"), runs) for tau, share in shares.items()}
        series.append(Series(name, colours[name], points, intervals=shares, marked=False, note=plural(runs, "run")))
    return Chart(
        title,
        "τ, expert-normalised return",
        series,
        y_title="Share of runs",
        over="runs",
        statistic="share of runs above [95% interval]",
        mark=1.0,
        faint=True,
    )


def _table(scored: Mapping[str, Sequence[Scored]]) -> str:
    """A row for each learner, a column for each task, and the mean over tasks."""
    tasks = list(scored)
    by_name: dict[str, dict[str, Sample]] = {}
    for task, rows in scored.items():
        for one in rows:
            by_name.setdefault(one.learner.name, {})[task] = Sample.of(one.scores)
    lines = []
    for name, samples in by_name.items():
        cells = [_cell(samples[task]) if task in samples else "" for task in tasks]
        if len(tasks) > 1:
            mean = mean_of_means(list(samples.values())) if len(samples) == len(tasks) else None
            cells.append("" if mean is None else f"<b>{number(mean.mean)}</b> <span>{bracket(mean)}</span>")
        lines.append([escape(name), *cells])
    caption = "Expert-normalised return, mean ± standard error over seeds and [95% interval] (Student's t)."
    caption += " The mean over tasks has Welch's interval; it is empty for those that ran on some tasks only."
    headers = ("algorithm", *tasks, *(["mean over tasks"] if len(tasks) > 1 else []))
    return table(caption if len(tasks) > 1 else caption.partition(" The mean over")[0], headers, lines)


def _cell(sample: Sample) -> str:
    return f"<b>{plus_minus(sample)}</b> <span>{bracket(interval(sample))}</span>"
