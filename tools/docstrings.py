"""Docstrings for Sphinx: ours are Markdown, autodoc reads reStructuredText.

Three things differ. `name` in single backticks is code. A block that is indented after an empty line is shown as it is.
Stars, bars and underscores mean themselves. `Args:` and the like become lists of fields.
"""

import re
from typing import Any

SECTIONS = {"Args:": "Parameters", "Returns:": "Returns", "Raises:": "Raises"}
CODE = re.compile(r"(`[^`]+`)")
MARKUP = re.compile(r"[\\*|_]")


def setup(app: Any) -> None:
    """Convert each docstring and signature that autodoc reads."""
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", readable)


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """autodoc's hook: replace the lines in place."""
    lines[:] = converted(lines)


def readable(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """autodoc's hook: a default that Python shows as <factory> or <function ...> becomes an ellipsis."""
    return signature and re.sub(r"= <[^<>]*>", "= ...", signature), returned


def converted(lines: list[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    out: list[str] = []
    for block in blocks(lines):
        if block[0] in SECTIONS:
            out += [f"**{SECTIONS[block[0]]}**", "", *section(block[1:]), ""]
        elif block[0].startswith(" ") or is_table(block):
            out += ["::", "", *(f"    {line}" for line in block), ""]
        else:
            out += [*map(escaped, block), ""]
    return out


def blocks(lines: list[str]) -> list[list[str]]:
    """The paragraphs."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


def section(block: list[str]) -> list[str]:
    """`Args:` as a list, one entry for each name; another section as a paragraph."""
    entries: list[str] = []
    for line in block:
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            entries.append(f"- ``{entry[1]}``: {escaped(entry[2])}")
        elif entries:
            entries.append(f"  {escaped(line.strip())}")
        else:
            return [escaped(other.strip()) for other in block]
    return entries


def is_table(block: list[str]) -> bool:
    """Whether the columns of the lines matter: more than one line, each with a gap of three spaces."""
    return len(block) > 1 and all(re.search(r"\S   +\S", line) for line in block)


def escaped(line: str) -> str:
    """A line of text: code in backticks, and no other markup."""
    parts = CODE.split(line)
    # A backslash and a space separate code from a letter that follows at once, as in `name`s.
    parts[::2] = [re.sub(r"^(?=\w)", r"\\ ", MARKUP.sub(r"\\\g<0>", part)) for part in parts[::2]]
    parts[1::2] = [f"`{part}`" for part in parts[1::2]]
    return "".join(parts).removeprefix("\\ ")
