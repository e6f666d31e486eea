"""Write the notebooks of examples/ from their scripts, with executed outputs.

    python tools/notebooks.py           run the scripts cell by cell and write examples/NAME.ipynb
    python tools/notebooks.py NAME      only these, for example 07_forest_moments

A script of `NOTEBOOKS` is divided by lines `# %% Title`. Its docstring and the titles become text, the rest cells of
code, in a namespace of the notebook's own. What a cell prints and its Matplotlib figures are stored as a Jupyter kernel
would store them. Warnings and progress bars go to standard error, which is not stored. Needs no Jupyter.
"""

import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = ("01_clone", "07_forest_moments", "10_diagnosis")
TITLE = re.compile(r"^# %% (.*)\n", re.MULTILINE)


def main() -> None:
    for name in sys.argv[1:] or NOTEBOOKS:
        if name not in NOTEBOOKS:
            sys.exit(f"error: no notebook '{name}': choose from {', '.join(NOTEBOOKS)}")
        script = EXAMPLES / f"{name}.py"
        path = script.with_suffix(".ipynb")
        path.write_text(json.dumps(executed(script), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.relative_to(EXAMPLES.parent)}: {path.stat().st_size // 1024} KiB")


def cells(script: Path) -> list[tuple[str, str]]:
    """The cells of a script, (kind, source): its docstring, then a title and code for each part."""
    text = script.read_text(encoding="utf-8")
    _, doc, rest = text.split('"""', 2)
    _, *parts = TITLE.split(rest)
    heading, _, about = doc.partition("\n\n")
    made = [("markdown", f"# {heading}\n\n{about.strip()}")]
    for title, code in zip(parts[::2], parts[1::2], strict=True):
        made += [("markdown", f"## {title}"), ("code", code.strip())]
    return made


def executed(script: Path) -> dict[str, Any]:
    """The notebook of a script, run in a temporary directory. An exception in a cell is raised."""
    import matplotlib

    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    written: list[dict[str, Any]] = []
    before, count = Path.cwd(), 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, (kind, source) in enumerate(cells(script)):
                cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines(source)}
                if kind == "code":
                    count += 1
                    cell |= {"execution_count": count, "outputs": outputs(source, names)}
                written.append(cell)
        finally:
            os.chdir(before)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; what it prints, and its figures as PNG."""
    from matplotlib import pyplot

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "cell", "exec"), names)
    made: list[dict[str, Any]] = []
    if printed.getvalue():
        made.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=72, metadata={"Software": None})
        pyplot.close(number)
        data = {"image/png": base64.b64encode(picture.getvalue()).decode() + "\n", "text/plain": ["<Figure>"]}
        made.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return made


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main()
