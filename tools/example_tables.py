"""The table of the example scripts, for examples/README.md and docs/examples.md: their first lines and stored times."""

import os
from pathlib import Path

from comparison import markdown, read
from notebooks import EXAMPLES, NOTEBOOKS

ROOT = EXAMPLES.parent
PAGES = (EXAMPLES / "README.md", ROOT / "docs/examples.md")
LINE = '"""'


def summary(script: Path) -> str:
    """The first line of a script's docstring."""
    return script.read_text(encoding="utf-8").removeprefix(LINE).partition("\n")[0]


def table(page: Path, results: Path) -> str:
    """A row for each script, with links from `page`."""
    times = {row["example"]: row for row in read(results / "examples.csv")}
    rows = []
    for script in sorted(EXAMPLES.glob("*.py")):
        linked = link(page, script)
        if script.stem in NOTEBOOKS:
            linked += f", {link(page, script.with_suffix('.ipynb'), 'notebook')}"
        row = times.get(script.stem, {})
        rows.append([linked, summary(script), row.get("seconds", ""), row.get("cpu_seconds", "")])
    return markdown(["script", "what it does", "seconds", "CPU seconds"], rows)


def link(page: Path, file: Path, text: str = "") -> str:
    return f"[{text or file.name}]({Path(os.path.relpath(file, page.parent)).as_posix()})"
