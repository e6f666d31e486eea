"""Write the taxonomy of README.md and docs/index.md from the algorithms' cards.

python tools/taxonomy.py            write the parts between <!-- taxonomy --> and <!-- /taxonomy -->
python tools/taxonomy.py --check    exit with status 1 if a page is out of date
"""

import re
import sys
from pathlib import Path

from understudy.algorithms import ALGORITHMS
from understudy.game import BOUNDS, INSTEAD, NEEDS
from understudy.game.algorithm import Moments

ROOT = Path(__file__).parents[1]
SAMPLES: dict[Moments, tuple[str, str]] = {
    "off-Q": ("demonstrated states, learner's actions", "demonstrations"),
    "reward": ("learner's episodes", "demonstrations"),
    "on-Q": ("learner's episodes", "expert's actions at the learner's states"),
}
EMPTY_IN_PAPER = " (empty in the paper)"
BLOCK = re.compile(r"(<!-- taxonomy -->\n).*?(<!-- /taxonomy -->)", re.DOTALL)


def names(moments: Moments) -> list[str]:
    return [name for name, cls in ALGORITHMS.items() if cls.card.moments == moments]


def listed(moments: Moments, dual: bool) -> str:
    """The algorithms of one cell. A fixed loss counts as primal, as in the paper's table."""
    cell = [f"`{name}`" for name in names(moments) if (ALGORITHMS[name].card.solver == "dual") == dual]
    return ", ".join(cell) + (EMPTY_IN_PAPER if dual and moments != "reward" else "")


def needed(moments: Moments) -> str:
    """The needs of a kind of moments, with those that an algorithm may have instead."""
    used = {need for name in names(moments) for need in ALGORITHMS[name].card.needs}
    others = {of: other for other, of in INSTEAD.items() if other in used}
    return ", ".join(f"{need} or {others[need]}" if need in others else need for need in NEEDS[moments])


def readme_table() -> str:
    rows = ["| moments | learner's sample | expert's sample | needs | gap | primal | dual |", "| --- |" + " --- |" * 6]
    for moments, (learner, expert) in SAMPLES.items():
        cells = (
            *(moments, learner, expert, needed(moments), BOUNDS[moments]),
            *(listed(moments, dual) for dual in (False, True)),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def index_table() -> str:
    rows = ["| moments | needs | pages |", "| --- | --- | --- |"]
    for moments in SAMPLES:
        pages = ", ".join(f"[{name}.md]({name}.md)" for name in names(moments))
        rows.append(f"| {moments} | {needed(moments)} | {pages} |")
    return "\n".join(rows)


PAGES = {ROOT / "README.md": readme_table, ROOT / "docs" / "index.md": index_table}


def updated(page: Path) -> str:
    """The page with its taxonomy as the cards have it."""
    text = page.read_text(encoding="utf-8")
    if not BLOCK.search(text):
        raise SystemExit(f"{page.name} has no <!-- taxonomy --> block")
    return BLOCK.sub(lambda found: f"{found[1]}{PAGES[page]()}\n{found[2]}", text)


def main() -> None:
    stale = [page for page in PAGES if updated(page) != page.read_text(encoding="utf-8")]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.relative_to(ROOT)} is out of date: run `make tables`")
        raise SystemExit(1 if stale else 0)
    for page in stale:
        page.write_text(updated(page), encoding="utf-8")
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
