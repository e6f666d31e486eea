"""`understudy reproduce tables`: the page that compares the stored results with the paper, filled from them."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from understudy.core.errors import RunError, SettingError, unknown
from understudy.core.storage import check_place, whole_file
from understudy.paper import comparison, comparison_claims, off_q, stored_files

PLACE = re.compile(r"(<!-- table: (?P<name>[^\n]*?) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)
BEGIN, END = "<!-- table: ", "<!-- end -->"


def reproduce_tables(results: str = "docs/results") -> None:
    """Write the tables of the page README.md in a folder of results anew, from the CSV files beside it.

    Args:
        results: The folder.
    """
    page = Path(results) / "README.md"
    if not page.is_file():
        raise RunError(f"no page at '{page}': name the folder of results that has one with --results")
    check_place(page)
    before = page.read_text(encoding="utf-8")
    after = filled(before, tables(Path(results)))
    if after != before:
        with whole_file(page) as beside:
            beside.write_text(after, encoding="utf-8")
    print(f"{page}: {before.count(BEGIN)} tables, {'written anew' if after != before else 'as they were'}")


def tables(results: Path) -> dict[str, str]:
    """Every table that the page can have, by its name."""
    made = {
        "bc-table": comparison.bc_table,
        "reward-verdicts": comparison.reward_verdicts,
        "reward-all": comparison.reward_ends,
        "lander": comparison_claims.lander_table,
        "forest": comparison_claims.forest_table,
        "theory": comparison_claims.theory_table,
        "recoverability": comparison_claims.recoverability_table,
        "compute": comparison_claims.compute_table,
        "missing": stored_files.missing_table,
        "files": stored_files.files_table,
    }
    for task in off_q.TASKS:
        made[f"off-q-{task}"] = partial(comparison.off_q_table, task=task)
        made[f"reward-{task}"] = partial(comparison.reward_table, task=task)
    return {name: table(results) for name, table in made.items()}


def filled(page: str, made: Mapping[str, str]) -> str:
    """The page with the tables between its markers; all else stays as it is."""
    if not page.count(BEGIN) == page.count(END) == len(PLACE.findall(page)):
        raise SettingError(f"the page's markers do not pair up: each '{BEGIN}NAME -->' needs an '{END}' of its own")

    def place(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in made:
            raise unknown("table", name, made)
        return f"{found[1]}\n{made[name]}\n\n{found[4]}"

    return PLACE.sub(place, page)
