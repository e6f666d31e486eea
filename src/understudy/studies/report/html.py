"""The report page: one self-contained HTML file.

All text from records goes through `escape`, or into the JSON block, where `<`, `>`, `&` and non-ASCII characters are
escaped. The page's content security policy allows its own script, by its digest, and no other script or request.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from html import escape

from understudy.algorithms import find
from understudy.core.errors import SettingError, UnderstudyError
from understudy.studies.published import FindPublished, nothing_published
from understudy.studies.report.certified import CAPTION as CERTIFICATE
from understudy.studies.report.certified import HEADER, CertificateCells
from understudy.studies.report.chart import Chart, Series
from understudy.studies.report.clips import Clip
from understudy.studies.report.comparisons import compare
from understudy.studies.report.formatting import number, plural
from understudy.studies.report.learners import (
    X_TITLES,
    LearnerResults,
    Record,
    TaskResults,
    citations,
    group_by_task,
    labels,
    published_learners,
    without_result,
)
from understudy.studies.report.markup import page, table
from understudy.studies.report.normalised import RandomReturns, normalised_section
from understudy.studies.report.provenance import cost_section, provenance_section
from understudy.studies.report.summary import summarize
from understudy.studies.report.table import CAPTION, results_table

GENERATOR = '<meta name="generator" content="understudy study report">'
"""Marks a page as a report, which a later report may replace."""
Clips = Mapping[str, Sequence[Clip]]
"""Task → clips of its policies and its expert."""
IMAGE_TYPES = {b"\x89PNG\r\n\x1a\n": "png", b"GIF87a": "gif", b"GIF89a": "gif"}


def render(
    records: Sequence[Record],
    title: str,
    command: str,
    clips: Clips | None = None,
    quarantined: Sequence[tuple[str, str]] = (),
    find_published: FindPublished = nothing_published,
    random_returns: RandomReturns | None = None,
    certificates: Mapping[str, CertificateCells] | None = None,
    study_file: str = "",
) -> str:
    """The report of a study as HTML.

    Args:
        records: Records of the study's cells. Those with status "missing" or "quarantined" may lack results.
        title: Heading of the page.
        command: The command that made the report.
        clips: Task → clips: captions with PNG, GIF or WebP images, or the reasons why there are none.
        quarantined: Damaged cell files, as (file, reason).
        find_published: Published results to show next to the study's.
        random_returns: Environment → mean return of random actions, for normalised returns.
        certificates: Environment → the cells of a column of certificates.
        study_file: Text of the study file.
    """
    tasks = group_by_task(records, find_published)
    colours = {label: index for index, label in enumerate(labels(tasks))}
    charts: list[Chart] = []
    sections = [_task_section(task, colours, charts, clips or {}, (certificates or {}).get(task.env)) for task in tasks]
    summaries = [summarize(task) for task in tasks] or ["No policy has been evaluated yet."]
    items = "".join(f"<li>{escape(text)}</li>" for text in summaries)
    body = [
        f"<header><h1>{escape(title)}</h1><ul class='summary'>{items}</ul></header>",
        *sections,
        normalised_section(tasks, random_returns or {}, colours, charts),
        _unfinished_section(records, quarantined),
        _algorithms_section(tasks),
        cost_section(tasks),
        provenance_section(records, command, study_file),
    ]
    return page(title, GENERATOR, body, [chart.data() for chart in charts])


def _task_section(
    task: TaskResults,
    colours: Mapping[str, int],
    charts: list[Chart],
    clips: Clips,
    certificates: CertificateCells | None,
) -> str:
    figures = []
    for chart in [*_curve_charts(task, colours), *_trajectory_charts(task, colours)]:
        figures.append(chart.html(len(charts)))
        charts.append(chart)
    expert = "not known" if task.expert is None else number(task.expert)
    note = "Means over seeds. Dark bands and thick bars: standard error over seeds. Light bands and thin bars: 95% "
    note += "interval of the mean (Student's t over seeds)."
    if any(panel.offline for panel in task.panels()):
        note += " Dashed lines: final policies of algorithms that do not play in the environment; bars at the right."
    if published_learners(task):
        note += " Dotted: published results, with standard errors."
    cited = "".join(f"<p class=note>Published: {escape(text)}.</p>" for text in citations(task))
    return (
        f"<section class='task'><h2>{escape(task.name)}</h2><p>Return of the expert: {expert}.</p>"
        f"{_clips(task, clips)}{''.join(figures)}{f'<p class=note>{escape(note)}</p>' if figures else ''}{cited}"
        f"{_results(task, certificates)}{_comparisons(task)}</section>"
    )


def _curve_charts(task: TaskResults, colours: Mapping[str, int]) -> list[Chart]:
    """Learning curves."""
    charts = []
    for title, kind, learners, offline in task.panels():
        series: list[Series] = []
        published: dict[str, Series] = {}
        for learner in learners:
            traces = [sorted(points.items()) for points in learner.curve.seeds.values()]
            curve = {float(x): sample for x, sample in learner.curve.samples.items()}
            series.append(Series(learner.name, colours[learner.label], curve, traces))
            theirs = learner.published
            if learner.published_curve and theirs.name not in published:  # once for all presets of an algorithm
                name = f"{theirs.name}, published ({plural(theirs.trajectories, 'trajectory')})"
                of = (name, colours[learner.label], learner.published_curve)
                line = Series(*of, published=True, note=theirs.source)
                published[theirs.name] = line
        xs = sorted({x for one in series for x in one.samples})
        for learner in offline:
            level, finals = learner.curve.final_sample, learner.curve.final.values()
            assert level is not None  # see `panels`
            seeds = [[(xs[0], value)] for value in finals]
            everywhere = dict.fromkeys(xs, level)
            series.append(
                Series(learner.name, colours[learner.label], everywhere, seeds, flat=True, note="does not play")
            )
        heading = f"{task.name}: return during training" + (f", {title}" if title else "")
        charts.append(Chart(heading, X_TITLES[kind], [*series, *published.values()], task.expert))
    return charts


def _trajectory_charts(task: TaskResults, colours: Mapping[str, int]) -> list[Chart]:
    """Return of the final policies against the number of trajectories."""
    learners = [learner for learner in task.learners if learner.curve.final_sample is not None]
    if not learners or (task.panels() and not task.several_counts):
        return []
    by_label: dict[str, list[LearnerResults]] = {}
    for learner in learners:
        by_label.setdefault(learner.label, []).append(learner)
    first_label = {members[0].algorithm: label for label, members in reversed(by_label.items())}
    published = {  # once for all presets of an algorithm
        label: members[0].published.by_trajectories if first_label[members[0].algorithm] == label else {}
        for label, members in by_label.items()
    }
    counts = sorted({one.trajectories for one in learners} | {count for known in published.values() for count in known})
    entries = len(by_label) + sum(1 for known in published.values() if known)
    width, series = 0.6 / entries, list[Series]()
    for label, members in by_label.items():
        shift = (len(series) - (entries - 1) / 2) * width
        finals = {float(counts.index(one.trajectories)): one.curve.final_sample for one in members}
        samples = {x: sample for x, sample in finals.items() if sample is not None}
        seeds = [[(float(counts.index(one.trajectories)), y)] for one in members for y in one.curve.final.values()]
        series.append(Series(label, colours[label], samples, seeds, bars=True, shift=shift))
        if published[label]:
            known = {float(counts.index(count)): sample for count, sample in published[label].items()}
            name = f"{members[0].published.name}, published"
            of = (name, colours[label], known)
            source = members[0].published.source
            series.append(Series(*of, published=True, bars=True, shift=shift + width, note=source))
    title = f"{task.name}: return of the final policy (selected by payoff)"
    return [Chart(title, "demonstrated trajectories", series, task.expert, [str(count) for count in counts])]


def _results(task: TaskResults, certificates: CertificateCells | None) -> str:
    headers, rows = results_table(task, certificates)
    caption = f"{task.name}. {CAPTION}" + (f" {CERTIFICATE}" if HEADER in headers else "")
    cells = []
    for row in rows:
        numbers = [f"<b>{mean}</b> <span>{ends}</span>" if mean else "" for mean, ends in row.numbers]
        cells.append([escape(row.name), row.seeds, *numbers])
    return table(caption, headers, cells, ["published" if row.published else "" for row in rows])


def _comparisons(task: TaskResults) -> str:
    comparisons = compare(task)
    if not comparisons:
        return ""
    caption = (
        f"Final policies. {comparisons[0].name} has the highest mean. [95% intervals] of a difference of means are "
    )
    caption += "Student's t over seeds"
    if any(one.paired for one in comparisons):
        caption += ", of pairs with the same seed where both have the same seeds"
    caption += ". The last column counts all pairs of one run of each, a tie as half a pair, and has no interval."
    headers = ("algorithm", "mean", "the best is higher by", "pairs of runs in which the best returns more")
    rows = [[escape(cell) for cell in one[:4]] for one in comparisons]
    return table(caption, headers, rows)


def _unfinished_section(records: Sequence[Record], quarantined: Sequence[tuple[str, str]]) -> str:
    unfinished = [*without_result(records), *((file, f"quarantined: {reason}") for file, reason in quarantined)]
    if not unfinished:
        return ""
    items = "".join(f"<li>{escape(name)}: <em>{escape(status)}</em></li>" for name, status in unfinished)
    count = f"{plural(len(unfinished), 'run')} missing, diverged or quarantined:"
    return f"<section><h2>Runs without a result</h2><p>{count}</p><ul>{items}</ul></section>"


def _algorithms_section(tasks: Sequence[TaskResults]) -> str:
    names = dict.fromkeys(learner.algorithm for task in tasks for learner in task.learners)
    if not names:
        return ""
    rows = [[escape(text) for text in _card_row(name)] for name in names]
    headers = ("algorithm", "moments", "solver", "needs", "gap", "collects per round", "reference")
    caption = "The moments that each algorithm matches, the player that runs no-regret, and the inputs it needs."
    return f"<section><h2>Algorithms</h2>{table(caption, headers, rows, wrap=True)}</section>"


def _card_row(name: str) -> list[str]:
    module, colon, _ = name.partition(":")
    try:
        if colon and module not in sys.modules:  # a record is data: it does not import code
            raise UnderstudyError(f"{module} is not imported")
        card = find(name).card
    except UnderstudyError:  # for example the records of an algorithm that is not installed here
        return [name, "not installed", "", "", "", "", ""]
    needs = ", ".join(card.needs) + (" with values" if card.values else "")
    return [f"{card.title} ({name})", card.moments, card.solver, needs, card.bound, card.collects, card.reference]


def _clips(task: TaskResults, clips: Clips) -> str:
    shown = clips.get(task.name, clips.get(task.env, ()))
    if not shown:
        return ""
    boxes = "".join(_clip(task, one) for one in shown)
    return f'<details open class="clips"><summary>One episode of each</summary><div>{boxes}</div></details>'


def _clip(task: TaskResults, shown: Clip) -> str:
    caption, image = shown
    if isinstance(image, str):
        reason = f"<p class=note>No clip: {escape(image)}</p>"
        return f"<figure class=clip>{reason}<figcaption>{escape(caption)}</figcaption></figure>"
    kind = next((kind for start, kind in IMAGE_TYPES.items() if image.startswith(start)), None)
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        kind = "webp"
    if kind is None:
        raise SettingError(f"the clip of '{task.name}' begins with {image[:8]!r}: a PNG, GIF or WebP is needed")
    source = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    alt = escape(f"An episode of {caption} on {task.name}")
    return f'<figure class=clip><img src="{source}" alt="{alt}"><figcaption>{escape(caption)}</figcaption></figure>'
