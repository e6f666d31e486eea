"""The page: one HTML file that needs nothing else, from the cells of a study.

Every text that comes from a cell goes through `escape` or into the JSON block, where `<`, `>`, `&` and everything
beyond ASCII are written as escapes. The page's policy allows its own script by its digest and no other, and no request.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

from understudy.algorithms import ALGORITHMS
from understudy.core.errors import SettingError
from understudy.paper import published
from understudy.studies.report import made
from understudy.studies.report.chart import Chart, Series
from understudy.studies.report.comparisons import compare
from understudy.studies.report.lines import CURVES, Cell, Line, Task, gather, labels, number, plural, troubled
from understudy.studies.report.markup import embedded, table
from understudy.studies.report.summary import sentence
from understudy.studies.report.table import CAPTION, results

KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"GIF87a": "gif", b"GIF89a": "gif"}


def render(
    cells: Sequence[Cell],
    title: str,
    command: str,
    clips: Mapping[str, bytes] | None = None,
    quarantined: Sequence[tuple[str, str]] = (),
) -> str:
    """The report of a study.

    Cells whose status begins with "missing" or "quarantined" are listed and may lack results; `quarantined` is for
    files that could not be read as cells, as (file, why). `clips`: task → a PNG, GIF or WebP of a rollout.
    """
    tasks = gather(cells)
    colours = {label: index for index, label in enumerate(labels(tasks))}
    charts: list[Chart] = []
    sections = [_section(task, colours, charts, dict(clips or {})) for task in tasks]
    told = "".join(f"<li>{escape(sentence(task))}</li>" for task in tasks) or "<li>Nothing has been played yet.</li>"
    style, script = (resources.files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'; img-src data:"
    body = [
        f"<header><h1>{escape(title)}</h1><ul class='summary'>{told}</ul></header>",
        *sections,
        _trouble(cells, quarantined),
        _taxonomy(tasks),
        made.cost(tasks),
        made.provenance(cells, command),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style></head>\n"
        f"<body><main>{''.join(body)}</main>\n"
        f'<script type="application/json" id="data">{embedded([chart.data() for chart in charts])}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _section(task: Task, colours: Mapping[str, int], charts: list[Chart], clips: dict[str, bytes]) -> str:
    drawn = []
    for chart in [*_curves(task, colours), *_efficiency(task, colours)]:
        drawn.append(chart.html(len(charts)))
        charts.append(chart)
    expert = "not known" if task.expert is None else number(task.expert)
    note = "Means over seeds; dark bands and thick bars: standard error; light bands and thin bars: 95% interval "
    note += "(Student's t). Dotted: published, with standard errors."
    return (
        f"<section class='task'><h2>{escape(task.name)}</h2><p>The expert's return: {expert}.</p>"
        f"{_clip(task, clips)}{''.join(drawn)}{f'<p class=note>{escape(note)}</p>' if drawn else ''}"
        f"{_results(task)}{_comparisons(task)}</section>"
    )


def _curves(task: Task, colours: Mapping[str, int]) -> list[Chart]:
    made_ = []
    for title, kind, lines in task.panels():
        series: list[Series] = []
        beside: dict[str, Series] = {}
        for line in lines:
            traces = [list(points.items()) for points in line.traces.values()]
            series.append(Series(line.name, colours[line.label], line.curve, traces))
            known = {float(x): sample for x, sample in line.published_curve.items()}
            if known and line.published_name not in beside:  # once, whatever its presets
                count = plural(published.REWARD_TRAJECTORIES[line.published_name], "trajectory")
                name = f"{line.published_name}, published ({count})"
                beside[line.published_name] = Series(name, colours[line.label], known, published=True)
        told = f"{task.name}: return while learning" + (f", {title}" if title else "")
        made_.append(Chart(told, CURVES[kind], [*series, *beside.values()], task.expert))
    return made_


def _efficiency(task: Task, colours: Mapping[str, int]) -> list[Chart]:
    """What the policies handed over return, against the trajectories they learned from."""
    handed = [line for line in task.lines if line.handed is not None]
    if not handed or (task.panels() and not task.several_counts):
        return []
    by_label: dict[str, list[Line]] = {}
    for line in handed:
        by_label.setdefault(line.label, []).append(line)
    firsts = {lines[0].algorithm: label for label, lines in reversed(by_label.items())}
    theirs = {
        label: lines[0].published_counts if firsts[lines[0].algorithm] == label else {}  # once, whatever its presets
        for label, lines in by_label.items()
    }
    counts = sorted({line.trajectories for line in handed} | {count for known in theirs.values() for count in known})
    entries = len(by_label) + sum(1 for known in theirs.values() if known)
    width, made_ = 0.6 / entries, list[Series]()
    for label, lines in by_label.items():
        shift = (len(made_) - (entries - 1) / 2) * width
        samples = {float(counts.index(line.trajectories)): line.handed for line in lines if line.handed is not None}
        seeds = [[(float(counts.index(x.trajectories)), y)] for x in lines for y in x.handed_seeds.values()]
        made_.append(Series(label, colours[label], samples, seeds, bars=True, shift=shift))
        if theirs[label]:
            known = {float(counts.index(count)): sample for count, sample in theirs[label].items()}
            name = f"{lines[0].algorithm}, published"
            made_.append(Series(name, colours[label], known, published=True, bars=True, shift=shift + width))
    title = f"{task.name}: return of the policy handed over (selected by payoff)"
    return [Chart(title, "demonstrated trajectories", made_, task.expert, [str(count) for count in counts])]


def _results(task: Task) -> str:
    headers, rows = results(task)
    lines = []
    for row in rows:
        numbers = [f"<b>{mean}</b> <span>{ends}</span>" if mean else "" for mean, ends in row.numbers]
        lines.append([escape(row.name), row.seeds, *numbers])
    return table(f"{task.name}. {CAPTION}", headers, lines, ["published" if row.published else "" for row in rows])


def _comparisons(task: Task) -> str:
    found = compare(task)
    if not found:
        return ""
    best = found[0].name
    caption = f"Policies handed over, with 95% bootstrap intervals. The best by its mean is {best}"
    if any(one.paired for one in found):
        caption += "; differences are between equal seeds"
    headers = ("algorithm", "interquartile mean", "the best is higher by", "chance that the best returns more")
    rows = [[escape(one.name), escape(one.iqm), escape(one.difference), escape(one.improvement)] for one in found]
    return table(caption + ".", headers, rows)


def _trouble(cells: Sequence[Cell], quarantined: Sequence[tuple[str, str]]) -> str:
    listed = [*troubled(cells), *((file, f"quarantined: {why}") for file, why in quarantined)]
    if not listed:
        return ""
    items = "".join(f"<li>{escape(which)}: <em>{escape(status)}</em></li>" for which, status in listed)
    told = f"{plural(len(listed), 'cell')} missing, diverged or set aside:"
    return f"<section><h2>Without a result</h2><p>{told}</p><ul>{items}</ul></section>"


def _taxonomy(tasks: Sequence[Task]) -> str:
    names = dict.fromkeys(line.algorithm for task in tasks for line in task.lines)
    rows = []
    for name in names:
        if name not in ALGORITHMS:
            rows.append([escape(name), *["not known here"], *[""] * 5])
            continue
        card = ALGORITHMS[name].card
        needs = ", ".join(card.needs) + (" with values" if card.values else "")
        told = (f"{card.title} ({name})", card.moments, card.solver, needs, card.bound, card.collects, card.reference)
        rows.append([escape(text) for text in told])
    if not rows:
        return ""
    headers = ("algorithm", "moments", "solver", "needs", "gap", "a round collects", "reference")
    caption = "Which moments of the expert each algorithm matches, which player runs no-regret, and what it needs."
    return f"<section><h2>The algorithms</h2>{table(caption, headers, rows, wrap=True)}</section>"


def _clip(task: Task, clips: Mapping[str, bytes]) -> str:
    picture = clips.get(task.name, clips.get(task.env))
    if picture is None:
        return ""
    kind = next((kind for start, kind in KINDS.items() if picture.startswith(start)), None)
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        kind = "webp"
    if kind is None:
        raise SettingError(f"the clip of '{task.name}' begins with {picture[:8]!r}: a PNG, GIF or WebP is needed")
    source = f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
    return (
        f'<details open class="clip"><summary>A rollout</summary>'
        f'<img src="{source}" alt="A learned policy on {escape(task.name)}"></details>'
    )
