"""The navigation of the documentation site.

A page of docs/ needs no entry here: an algorithm's page is found by its card, and any other page that is not named is
put at the end of the guides.
"""

from collections.abc import Iterable

from understudy.algorithms import ALGORITHMS

Sections = dict[str, list[str]]
FRONT = "index"
SECTIONS: Sections = {
    "Get started": ["install", "quickstart", "examples", "bring-your-own"],
    "Choose": ["choose", "taxonomy", "certificates", "benchmark"],
    "Guides": [
        *("demonstrations", "environments", "experts", "console", "studies", "statistics", "hardware", "selection"),
        *("logging", "resuming", "configuration", "deploy", "diagnosis", "security"),
    ],
    "Algorithms": ["algorithms"],
    "Theory": ["theory", "absorbing", "stability"],
    "Reproduction": ["reproduction", "results/README"],
    "API reference": ["api"],
    "Project": ["contributing", "design", "changelog", "code-of-conduct"],
}
"""Pages by the caption that they stand under, in order."""
API = (
    *("api-data", "api-environments", "api-algorithms", "api-training"),
    *("api-experts", "api-evaluation", "api-other"),
)
TITLES = {"results/README": "All tables, with verdicts"}
"""Names in the navigation, where they are not the page's heading."""


def sections(pages: Iterable[str]) -> Sections:
    """The sections with all pages of docs: those that are not named are guides."""
    named = {name for names in SECTIONS.values() for name in names}
    others = sorted({*pages} - named - {*ALGORITHMS, *API, FRONT})
    return {**SECTIONS, "Guides": [*SECTIONS["Guides"], *others]}


def toctrees(page: str, found: Sections) -> str:
    """The part of the navigation that hangs below a page."""
    if page == FRONT:
        return "\n".join(toctree(names, caption) for caption, names in found.items())
    below = {"algorithms": tuple(ALGORITHMS), "api": API}
    return toctree(below[page]) if page in below else ""


def toctree(names: Iterable[str], caption: str | None = None) -> str:
    """MyST's directive, not shown on the page itself."""
    lines = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    entries = [f"{TITLES[name]} <{name}>" if name in TITLES else name for name in names]
    return "\n".join([*lines, *entries, "```", ""])
