"""The page of a diagnosis: one self-contained HTML file in the look of study reports."""

from html import escape

from understudy.diagnosis.measures import Diagnosis, Measure
from understudy.studies.report.chart import Chart
from understudy.studies.report.markup import page, table

GENERATOR = '<meta name="generator" content="understudy diagnose">'


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as HTML: causes, then one section for each measure, then what could not be measured."""
    charts: list[Chart] = []
    first = diagnosis.causes[0]
    verdict = "It looks healthy." if first.name == "none" else f"The likeliest cause: {first.name}."
    items = "".join(
        f"<li><b>{escape(cause.name)}</b> ({cause.likelihood:.0%}): {escape(cause.evidence)}.<br>{escape(cause.remedy)}"
        f"{f'<br><code>{escape(cause.command)}</code>' if cause.command else ''}</li>"
        for cause in diagnosis.causes
        if cause is first or (cause.likelihood >= 0.2 and cause.name != "none")
    )
    rows = [
        [
            escape(one.name),
            "beyond" if one.bad else "within",
            f"{one.value:.3g}",
            f"{one.threshold:g}",
            escape(one.unit),
        ]
        for one in diagnosis.measures
    ]
    body = [
        f"<header><h1>{escape(diagnosis.about)}</h1><p>{escape(verdict)}</p><ul class='summary'>{items}</ul></header>",
        "<section><h2>Measures</h2>",
        table("Each measure with its threshold.", ("measure", "threshold", "value", "limit", "unit"), rows, wrap=True),
        "</section>",
        *(_section(one, charts) for one in diagnosis.measures),
        _missing(diagnosis),
    ]
    return page(f"Diagnosis: {diagnosis.about}", GENERATOR, body, [chart.data() for chart in charts])


def _section(measure: Measure, charts: list[Chart]) -> str:
    figure = ""
    if measure.chart is not None:
        figure = measure.chart.html(len(charts))
        charts.append(measure.chart)
    sentence = measure.sentence[:1].upper() + measure.sentence[1:]
    return (
        f"<section><h2>{escape(measure.title)}</h2><p>{escape(sentence)}.</p>{figure}"
        f"<p class=note>Threshold {measure.threshold:g}: {escape(measure.why)}</p></section>"
    )


def _missing(diagnosis: Diagnosis) -> str:
    if not diagnosis.missing:
        return ""
    items = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in diagnosis.missing.items())
    return f"<section><h2>Not measured</h2><ul>{items}</ul></section>"
