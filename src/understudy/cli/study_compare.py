"""`understudy study report --compare A B`."""

import os
from pathlib import Path
from typing import Any

from understudy.core.errors import RunError, SettingError
from understudy.core.paths import check_own_file
from understudy.core.processes import typed_command
from understudy.core.storage import atomic_file, make_directory
from understudy.core.text import quoted
from understudy.studies.cells import Store
from understudy.studies.groups import MISSING, study_records
from understudy.studies.plan import Study
from understudy.studies.report import compare, compare_page
from understudy.train.tables import provenance, write_csv

PAGE, TABLE = "compare.html", "compare.csv"
"""Files of a comparison."""
START = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n' + compare_page.GENERATOR
"""How a page of a comparison begins."""


def compare_command(a: tuple[Study, Store], b: tuple[Study, Store], out: str | os.PathLike[str] | None) -> None:
    """Write a page and a CSV file of two studies side by side."""
    if a[1].directory.resolve() == b[1].directory.resolve():
        raise SettingError(f"--compare names '{quoted(a[1].directory)}' twice: give two studies")
    directory = Path(out or f"out/compare-{a[0].name}-{b[0].name}")
    check_own_file(directory / PAGE, START)
    check_own_file(directory / TABLE, ",".join(compare.COLUMNS))
    compared = compare.compare_studies(_side(*a), _side(*b))
    made: dict[str, Any] = provenance()
    runs = [record["provenance"]["command"] for side in (compared.a, compared.b) for record in side.records]
    html = compare_page.render_comparison(compared, list(dict.fromkeys([*runs, typed_command()])))
    make_directory(directory)
    with atomic_file(directory / PAGE) as temporary:
        temporary.write_text(html, encoding="utf-8")
    write_csv(directory / TABLE, list(compare.COLUMNS), compare.csv_rows(compared, made["command"], made["date"]))
    for env in dict.fromkeys(pair.env for pair in compared.pairs):
        print(compare_page.summarize_pairs(env, [pair for pair in compared.pairs if pair.env == env]))
    print(f"Comparison: {directory / PAGE}. In the same directory: {TABLE}")


def _side(plan: Study, store: Store) -> compare.Side:
    """A study whose runs have all finished."""
    name = str(store.directory)
    records = study_records(plan.groups(), store)
    missing = sum(record["status"] == MISSING for record in records)
    if missing:
        raise RunError(
            f"study '{quoted(name)}' has {missing} of {len(records)} runs that have not finished: "
            "`understudy study run` with its file finishes them"
        )
    return compare.Side(name, str(plan.title), plan.protocol, records)
