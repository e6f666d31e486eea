"""HTML helpers: a table, and JSON inside a script element."""

import json
from collections.abc import Sequence
from html import escape
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
