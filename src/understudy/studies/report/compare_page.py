"""The page of two studies side by side, in the look of the report."""

import math
from collections.abc import Sequence
from html import escape

from understudy.core.statistics import interval
from understudy.studies.report.chart import short_number, ticks
from understudy.studies.report.compare import Compared, Pair, protocol_differences
from understudy.studies.report.formatting import bracket, number, plural, plus_minus
from understudy.studies.report.learners import LearnerResults
from understudy.studies.report.markup import page, table

GENERATOR = '<meta name="generator" content="understudy study report --compare">'
"""Marks a page as a comparison, which a later comparison may replace."""
NOTE = (
    "B − A, of the mean returns of the final policies, with its 95% interval (Student's t over pairs of the same seed "
    "where both have the same seeds, else Welch's t). Blue: B returns more. Orange: A returns more. Grey: the interval "
    "contains 0. A line that touches the edge goes further. About one row in twenty excludes 0 by chance."
)
WIDTH, REACH = 1000.0, 5.0
"""Width of a drawing, and how many times the largest difference its axis reaches at most."""


def render_comparison(compared: Compared, commands: Sequence[str]) -> str:
    """The page as HTML. `commands` make it again."""
    a, b = compared.a, compared.b
    envs = list(dict.fromkeys(pair.env for pair in compared.pairs))
    by_task = {env: [pair for pair in compared.pairs if pair.env == env] for env in envs}
    summary = "".join(f"<li>{escape(summarize_pairs(env, pairs))}</li>" for env, pairs in by_task.items())
    different = protocol_differences(compared)
    protocols = f"Protocols differ: {different}." if different else "Both have the same protocol and versions."
    title = f"{a.title} (A) and {b.title} (B)"
    body = [
        f"<header><h1>{escape(title)}</h1><ul class='summary'>{summary}</ul></header>",
        f"<p>A: <code>{escape(a.name)}</code>. B: <code>{escape(b.name)}</code>. {escape(protocols)}</p>",
        *(_task_section(env, pairs) for env, pairs in by_task.items()),
        _singles_section(compared),
        "<section><h2>Make it again</h2><ol>"
        + "".join(f"<li><code>{escape(command)}</code></li>" for command in commands)
        + "</ol></section>",
    ]
    return page(title, GENERATOR, body, [])


def summarize_pairs(env: str, pairs: Sequence[Pair]) -> str:
    """A task's result in a sentence."""
    more, less = (sum(pair.verdict == sign for pair in pairs) for sign in (1, -1))
    text = f"On {env}, B returns more than A in {more} of {plural(len(pairs), 'row')}, less in {less}; "
    text += f"{len(pairs) - more - less} cannot be told apart."
    largest = max(pairs, key=lambda pair: abs(pair.difference.interval.mean))
    found = largest.difference.interval
    return f"{text} The largest difference is {number(found.mean)} {bracket(found)}".strip() + f", of {largest.a.name}."


def _task_section(env: str, pairs: Sequence[Pair]) -> str:
    rows = []
    for pair in pairs:
        found = pair.difference.interval
        name = (
            pair.a.name
            if pair.a.name == pair.b.name
            else f"{pair.a.label}, {plural(pair.a.trajectories, 'trajectory')}"
        )
        difference = f"<b>{number(found.mean, found.low if math.isfinite(found.low) else 0.0)}</b>"
        difference += f" <span>{bracket(found)}</span>"
        seeds = "same seeds" if pair.difference.paired else f"{_size(pair.a)} and {_size(pair.b)}"
        rows.append([escape(name), _score(pair.a), _score(pair.b), difference, seeds, escape(pair.changed)])
    headers = ["algorithm", "A", "B", "B − A", "seeds", "what differs"]
    kept = [i for i in range(len(headers)) if i < 5 or any(row[i] for row in rows)]
    caption = f"{env}. Return of the final policies, mean ± standard error over seeds and [95% interval] (Student's t)."
    shown = table(caption, [headers[i] for i in kept], [[row[i] for i in kept] for row in rows])
    experts = [one for one in (pairs[0].a.expert, pairs[0].b.expert) if one is not None]
    expert = f"<p>Return of the expert: {' and '.join(dict.fromkeys(map(number, experts)))}.</p>" if experts else ""
    drawn = f"{_drawing(env, pairs)}<p class=note>{escape(NOTE)}</p>"
    return f"<section class='task'><h2>{escape(env)}</h2>{expert}{drawn}{shown}</section>"


def _drawing(env: str, pairs: Sequence[Pair]) -> str:
    """The differences as points with intervals about a line at 0, one below the other."""
    intervals = [pair.difference.interval for pair in pairs]
    largest = max(abs(found.mean) for found in intervals)
    ends = [abs(end) for found in intervals for end in found[1:] if math.isfinite(end)]
    reach = 1.08 * (min(max([largest, *ends]), max(REACH * largest, min(ends, default=largest))) or 1.0)

    def at(value: float) -> float:
        return WIDTH * (0.5 + 0.5 * max(-1.2, min(value / reach, 1.2)))

    lines = []
    for pair, (mean, low, high) in zip(pairs, intervals, strict=True):
        bar = f'<path class="bar" d="M{at(low):.1f} 10H{at(high):.1f}"/>' if math.isfinite(low) else ""
        dot = f'<path class="dot" d="M{at(mean):.1f} 10h0"/>'
        zero = f'<path class="expert" d="M{WIDTH / 2:.0f} 0V20"/>'
        lines.append(
            f'<div class="row {("c5", "c1", "c0")[pair.verdict]}"><span>{escape(_row_name(pair, pairs))}</span>'
            f'<svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{number(mean)}">'
            f"{zero}{bar}{dot}</svg></div>"
        )
    marks = "".join(
        f'<span style="left:{at(tick) / WIDTH:.2%}">{short_number(tick)}</span>' for tick in ticks(-reach, reach, 4)
    )
    return (
        f'<figure class="forest"><figcaption>{escape(env)}: B − A</figcaption>{"".join(lines)}'
        f'<div class="row"><span></span><div class="x" aria-hidden="true">{marks}</div></div>'
        '<div class="row"><span></span><p class="sides"><span>← A returns more</span><span>B returns more →</span></p>'
        "</div></figure>"
    )


def _row_name(pair: Pair, pairs: Sequence[Pair]) -> str:
    alone = len({one.a.trajectories for one in pairs}) == 1
    return pair.a.label if alone else f"{pair.a.label}, {plural(pair.a.trajectories, 'trajectory')}"


def _singles_section(compared: Compared) -> str:
    if not compared.singles:
        return ""
    rows = []
    for env, learner, only in compared.singles:
        name = f"{learner.label}, {plural(learner.trajectories, 'trajectory')}"
        rows.append([escape(f"{name} on {env}"), only, _score(learner)])
    shown = table("Rows that only one study has are not compared.", ("algorithm", "only in", "return"), rows)
    return f"<section><h2>Only in one study</h2>{shown}</section>"


def _score(learner: LearnerResults) -> str:
    score = learner.score
    return "" if score is None else f"<b>{plus_minus(score)}</b> <span>{bracket(interval(score))}</span>"


def _size(learner: LearnerResults) -> int:
    return 0 if learner.score is None else learner.score.size
