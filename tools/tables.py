"""Write the tables of docs/results/README.md from the CSV files next to it, and those of docs/benchmark.md,
`overview_tables` and `example_tables`.

    python tools/tables.py [FOLDER]

Each table stands between `<!-- table: NAME -->` and `<!-- end -->`. The text between the tables is not changed.
"""

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import benchmark_tables
import comparison
import comparison_claims
import example_tables
import overview_tables
import stored_files
from understudy.core.errors import RunError, SettingError, UnderstudyError, unknown
from understudy.core.paths import check_file_path
from understudy.core.storage import atomic_file
from understudy.paper.figure_studies import TASKS

RESULTS = Path(__file__).parents[1] / "docs/results"
TABLE = re.compile(r"(<!-- table: (?P<name>[^\n]*?) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)
BEGIN, END = "<!-- table: ", "<!-- end -->"


def main(arguments: list[str]) -> int:
    """Write the page; return the exit status."""
    try:
        results = Path(arguments[0]) if arguments else RESULTS
        written = [write_page(results)]
        if benchmark_page(results).is_file():
            written.append(write_tables(benchmark_page(results), benchmark_tables.make_tables(results)))
        pages = [page for page in overview_pages(results) if page.is_file()]
        overview = overview_tables.make_tables(results) if pages else {}
        written += [write_tables(page, overview) for page in pages]
        if results == RESULTS:
            written += [
                write_tables(page, {"examples": example_tables.table(page, results)}) for page in example_tables.PAGES
            ]
    except UnderstudyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for page, changed in written:
        print(f"{page}: {'written' if changed else 'up to date'}")
    return 0


def benchmark_page(results: Path) -> Path:
    """The page of the benchmark, beside the folder of results."""
    return results.absolute().parent / "benchmark.md"


def overview_pages(results: Path) -> list[Path]:
    """The pages over all algorithms, beside the folder of results."""
    return [results.absolute().parent / name for name in overview_tables.PAGES]


def write_page(results: Path) -> tuple[Path, bool]:
    """Write the tables of a folder's README.md; return its path and whether it has changed."""
    page = results / "README.md"
    if not page.is_file():
        raise RunError(f"no page at '{page}': pass a folder of results that has a README.md")
    return write_tables(page, make_tables(results))


def write_tables(page: Path, tables: Mapping[str, str]) -> tuple[Path, bool]:
    """Write tables between the markers of a page; return its path and whether it has changed."""
    check_file_path(page)
    before = page.read_text(encoding="utf-8")
    after = fill(before, tables)
    if after != before:
        with atomic_file(page) as temporary:
            temporary.write_text(after, encoding="utf-8")
    return page, after != before


def make_tables(results: Path) -> dict[str, str]:
    """All tables by name."""
    functions = {
        "bc-table": comparison.bc_table,
        "reward-verdicts": comparison.reward_verdicts,
        "reward-all": comparison.reward_all,
        "lander": comparison_claims.lander_table,
        "forest": comparison_claims.forest_table,
        "theory": comparison_claims.theory_table,
        "recoverability": comparison_claims.recoverability_table,
        "compute": comparison_claims.compute_table,
        "missing": stored_files.missing_table,
        "files": stored_files.files_table,
        "fuzz": stored_files.fuzz_table,
        "quick": stored_files.quick_table,
        "soak": stored_files.soak_table,
    }
    for task in TASKS:
        functions[f"off-q-{task}"] = partial(comparison.off_q_table, task=task)
        functions[f"reward-{task}"] = partial(comparison.reward_table, task=task)
    return {name: function(results) for name, function in functions.items()}


def fill(page: str, tables: Mapping[str, str]) -> str:
    """The page with the tables between its markers."""
    if not page.count(BEGIN) == page.count(END) == len(TABLE.findall(page)):
        raise SettingError(f"the page's markers do not match: write one '{END}' after each '{BEGIN}NAME -->'")

    def insert(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise unknown("table", name, tables)
        return f"{match[1]}\n{tables[name]}\n\n{match[4]}"

    return TABLE.sub(insert, page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
