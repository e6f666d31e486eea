"""The API pages (docs/api-*.md): signatures and docstrings for the site, and a check that no public name is missing.

A public name has a heading `us.NAME` on one of the pages, and below it an example that runs. On the site, autodoc adds
the signature, the docstring and the members.
"""

import inspect
import re
from typing import Any

import understudy as us

HEADING = re.compile(r"^## `us\.(\w+)`$", re.MULTILINE)


def names(text: str) -> list[str]:
    """The public names that a page describes."""
    return HEADING.findall(text)


def sections(text: str) -> dict[str, str]:
    """What a page says about each name."""
    parts = HEADING.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def with_signatures(text: str) -> str:
    """The page with autodoc's directive below each heading."""
    return HEADING.sub(lambda found: f"{found[0]}\n\n{directive(found[1])}", text)


def directive(name: str) -> str:
    """autodoc's directive for a public name; nothing for a value, whose heading is enough."""
    lines = described(name, getattr(us, name))
    return "\n".join(["```{eval-rst}", *lines, "```", ""]) if lines else ""


def described(name: str, thing: Any) -> list[str]:
    if inspect.ismodule(thing):
        return [f".. automodule:: {thing.__name__}", "   :no-members:"]
    if inspect.isclass(thing):
        return [f".. autoclass:: understudy.{name}", "   :members:"]
    return [f".. autofunction:: understudy.{name}"] if callable(thing) else []
