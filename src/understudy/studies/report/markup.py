"""Pieces of HTML: a table, and data for a script."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any


def embedded(value: Any) -> str:
    """JSON that no text in it can end or break out of."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    classes: Sequence[str] = (),
    wrap: bool = False,
) -> str:
    """A table in a box that scrolls by itself; cells are HTML, the first of a row is its header.

    `classes` are the rows', `wrap` is for cells of words, which may break into lines.
    """
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    kinds = list(classes) or [""] * len(rows)
    lines = "".join(
        f'<tr class="{kind}"><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for kind, (first, *rest) in zip(kinds, rows, strict=True)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{"long" if wrap else "numbers"}"><caption><span>{escape(caption)}</span></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
