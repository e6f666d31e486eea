"""HTML helpers: a whole page, a table, and JSON inside a script element."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no text in it can close the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    classes: Sequence[str] = (),
    wrap: bool = False,
) -> str:
    """A table in a box that scrolls sideways.

    Args:
        rows: Cells as HTML. The first cell of a row is its header.
        classes: The class of each row.
        wrap: Whether cells may break into several lines.
    """
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    row_classes = list(classes) or [""] * len(rows)
    body = "".join(
        f'<tr class="{row_class}"><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for row_class, (first, *rest) in zip(row_classes, rows, strict=True)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{"long" if wrap else "numbers"}"><caption><span>{escape(caption)}</span></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def page(title: str, generator: str, body: Sequence[str], chart_data: Sequence[Any]) -> str:
    """One self-contained HTML file with the style and the script of reports.

    Args:
        generator: A meta element that marks what made the page.
        body: HTML of the sections.
        chart_data: `Chart.data` of each chart, in the order of their index.
    """
    return document(title, generator, body, list(chart_data), report_style(), _asset("page.js"))


def report_style() -> str:
    """The style sheet of reports, for pages that look like them."""
    return _asset("page.css")


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def document(title: str, generator: str, body: Sequence[str], data: Any, style: str, script: str) -> str:
    """One self-contained HTML file. The script finds `data` as JSON in the element with the id data.

    Its content security policy allows its own script, by its digest, and no other script or request.
    """
    script_digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script_digest}'; img-src data:"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n{generator}\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style></head>\n"
        f"<body><main>{''.join(body)}</main>\n"
        f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )
