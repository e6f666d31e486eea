"""Write the generated parts of the algorithms' pages: the game as a figure, all settings from the class, all
stored returns, and the deviations from the source that the module's docstring names.

python tools/algorithm_pages.py            write docs/NAME.md between the markers, and docs/images/games/NAME.svg
python tools/algorithm_pages.py --check    exit with status 1 if a file is out of date

A page without markers gets them: the game above its first section, the settings and the returns at the end of the
sections "Settings" and "Results", the deviations at the end of the page. GitHub and the site show the same text.
"""

import ast
import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx

import game_figure
import result_rows
from comparison import markdown
from understudy.algorithms import ALGORITHMS
from understudy.game import Algorithm, Card

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GAMES = DOCS / "images" / "games"
NONE = "none"


def files() -> dict[Path, str]:
    """All files of this tool, as they must be."""
    found = {}
    for name, algorithm in ALGORITHMS.items():
        found[GAMES / f"{name}.svg"] = game_figure.figure(algorithm.card)
        page = DOCS / f"{name}.md"
        if page.is_file():
            found[page] = updated(page.read_text(encoding="utf-8"), algorithm)
    return found


def updated(text: str, algorithm: type[Algorithm]) -> str:
    """The page with fresh blocks."""
    text = put(text, "game", game(algorithm.card), before_first_section)
    text = put(text, "settings", settings(algorithm), functools.partial(end_of_section, title="Settings"))
    text = put(text, "results", returns(algorithm), functools.partial(end_of_section, title="Results"))
    return put(text, "deviations", deviations(algorithm), len)


def put(text: str, name: str, block: str, place: Callable[[str], int]) -> str:
    """The text with the block between its markers. Without markers it goes to the place."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in text:
        at = place(text)
        text = f"{text[:at].rstrip()}\n\n{begin}{end}\n\n{text[at:].lstrip()}".rstrip() + "\n"
    return re.sub(f"({begin}).*?({end})", lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text, flags=re.DOTALL)


def before_first_section(text: str) -> int:
    found = re.search(r"^## ", text, re.MULTILINE)
    return found.start() if found else len(text)


def end_of_section(text: str, title: str) -> int:
    """Where a section ends, or the end of the page."""
    found = re.search(rf"^## {title}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found.end() if found else len(text)


def game(card: Card) -> str:
    """The figure, and the card in one row."""
    facts = {
        "moments": card.moments,
        "no-regret": {"primal": "policy", "dual": "none: f is fixed" if card.fixed else "f", "-": "a fixed loss"}[
            card.solver
        ],
        "needs": ", ".join(card.needs) + (" with action values" if card.values else ""),
        "gap": card.bound,
        "actions": ", ".join(card.actions),
        "a round collects": card.collects,
        "source": card.reference,
    }
    figure = f"![{game_figure.alt(card)}](images/games/{card.name}.svg)"
    return f"{figure}\n\n{markdown(list(facts), [list(facts.values())])}"


def settings(algorithm: type[Algorithm]) -> str:
    """The table of all fields, the tables of its parts, and what the presets change."""
    default = algorithm()
    own = [field for field in dataclasses.fields(algorithm) if not is_part(getattr(default, field.name))]
    blocks = [table(rows(default, own))]
    for field in dataclasses.fields(algorithm):
        part = getattr(default, field.name)
        if is_part(part):
            about = documented(algorithm).get(field.name, "")
            title = f"<code>{field.name}</code>: {html(about)}"
            content = table(rows(part, dataclasses.fields(part), f"{field.name}."))
            blocks.append(f"<details>\n<summary>{title}</summary>\n\n{content}\n\n</details>")
    presets = [(name, changes(default, algorithm.preset(name))) for name in algorithm.presets]
    if presets:
        lines = [[f"`{name}`", "; ".join(changed) or "nothing"] for name, changed in presets]
        blocks.append(markdown(["preset", "what it changes"], lines))
    return "\n\n".join(blocks)


def returns(algorithm: type[Algorithm]) -> str:
    """All stored returns, below a heading."""
    return f"### All stored returns\n\n{result_rows.returns_table(algorithm.card.name)}"


def deviations(algorithm: type[Algorithm]) -> str:
    """The paragraph "Deviations" of the module's docstring and all after it, below a heading."""
    text = inspect.getdoc(inspect.getmodule(algorithm)) or ""
    found = re.search(r"^Deviations[^:]*:\s+(.*)", text, re.MULTILINE | re.DOTALL)
    said = found[1].strip() if found else "The module names none."
    return f"## Deviations from the source\n\n{said[0].upper()}{said[1:]}"


def is_part(value: Any) -> bool:
    """Whether a setting is a record of settings itself, such as an RL player."""
    return isinstance(value, eqx.Module) and dataclasses.is_dataclass(value) and bool(dataclasses.fields(value))


def rows(record: Any, fields: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of each field."""
    about = documented(type(record))
    for field in fields:
        yield f"`{prefix}{field.name}`", shown(getattr(record, field.name)), about.get(field.name, "")


def table(found: Iterator[tuple[str, str, str]]) -> str:
    return markdown(["setting", "default", "meaning"], list(found))


def documented(record: type) -> dict[str, str]:
    """The docstrings below the fields of a class and its bases, each on one line."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if dataclasses.is_dataclass(base):
            (body,) = ast.parse(inspect.getsource(base)).body
            assert isinstance(body, ast.ClassDef)
            names: list[str] = []
            for node in body.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    names.append(node.target.id)
                elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and names:
                    # One docstring may describe the fields in front of it that have none.
                    found |= dict.fromkeys(names, " ".join(str(node.value.value).split()))
                    names = []
                else:
                    names = []
    return found


def changes(default: Any, preset: Any, prefix: str = "") -> list[str]:
    """`name` value, of each setting in which a preset differs from the default."""
    found = []
    for field in dataclasses.fields(default):
        before, after = getattr(default, field.name), getattr(preset, field.name)
        if is_part(before) and type(after) is type(before):
            found += changes(before, after, f"{prefix}{field.name}.")
        elif before != after:
            found.append(f"`{prefix}{field.name}` {shown(after)}")
    return found


def shown(value: Any) -> str:
    """A value as the command line takes it."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(shown, value)) or NONE
    if isinstance(value, float):
        return scientific(value) if 0 < abs(value) < 1e-3 or abs(value) >= 1e6 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{getattr(value, '__name__', type(value).__name__)}`"


def scientific(value: float) -> str:
    """3e-4, without the zeros that Python writes."""
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def html(text: str) -> str:
    """Code in backticks as HTML, for a line that is not Markdown."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def main() -> None:
    stale = [file for file, text in files().items() if not file.is_file() or file.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.relative_to(ROOT)} is out of date: run `make tables`")
        raise SystemExit(1 if stale else 0)
    GAMES.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for file in stale:
        file.write_text(wanted[file], encoding="utf-8")
        print(f"wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
