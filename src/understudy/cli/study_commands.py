"""`understudy study run|status|report`: from a study file to cells, and from cells to a page a person can look at."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from understudy.core import display
from understudy.core.errors import RunError, SettingError, UnderstudyError, check_whole
from understudy.core.options import Path_
from understudy.core.statistics import interval
from understudy.core.storage import whole_file
from understudy.policies.saved import load_policy
from understudy.studies.cells import STUDY, Store
from understudy.studies.evaluator import end_with
from understudy.studies.groups import Group
from understudy.studies.plan import Study
from understudy.studies.running import PARENT, Outcome, failure, run
from understudy.train.results import provenance, write_csv


def run_command(
    file: Positional[str], out: Path_ = None, jobs: int | None = None, ray: str | None = None, report: bool = True
) -> None:
    """Train and play everything that a study names and that is not there yet.

    The same command goes on after an interruption or a kill -9; a second one on the same directory helps.

    Args:
        file: The study, a TOML file.
        out: The study's directory. Default: runs/NAME.
        jobs: Processes that share the work. Default: one for each core; one with an accelerator.
        ray: The address of a Ray cluster, or "local" for one on this machine.
        report: Write the report when all is there.
    """
    if jobs is not None:
        check_whole(1, jobs=jobs)
    if PARENT in os.environ:
        end_with(int(os.environ[PARENT]))
    study = Study.load(file)
    directory = out or f"runs/{study.name}"
    if ray is not None:
        if jobs is not None:
            raise SettingError(f"jobs is {jobs} and ray is {ray!r}: Ray decides how many go at once; leave out --jobs")
        from understudy.studies.on_ray import run_on_ray

        outcome = run_on_ray(study, directory, ray)
    else:
        again = ["-m", "understudy", "study", "run", str(file), "--out", str(directory), "--jobs", "1", "--no-report"]
        outcome = run(study, directory, jobs, again=again)
    told(study, directory, outcome)
    if report and not outcome.failed:
        report_command(str(directory))
    if outcome.failed:
        sys.exit(1)


def told(study: Study, directory: str | os.PathLike[str], outcome: Outcome) -> None:
    """What a call did and what could not be done."""
    plan, store = study.groups(), Store(directory)
    cells = [cell for group in plan for cell in group.cells]
    there = sum(store.has(cell.key) for cell in cells)
    print(f"{study.name}: {there} of {len(cells)} cells, {outcome.stored} of them new. Kept in {directory}")
    for name, why in outcome.failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)


def status_command(study: Positional[str]) -> None:
    """How far a study is: finished, running, missing and diverged cells of each algorithm and task.

    Args:
        study: A study's file or directory.
    """
    planned, store = _found(study)
    rows = []
    for group in planned.groups():
        records = [store.read(cell.key) for cell in group.cells if store.has(cell.key)]
        ended = Counter(record["status"].split()[0].rstrip(":") for record in records)
        rows.append(
            (
                group.entry.label,
                group.task.env,
                f"{len(records)} of {len(group.cells)}",
                ended["diverged"] or "",
                _handed(records),
                "" if len(records) == len(group.cells) else _doing(store, group),
            )
        )
    display.show(("algorithm", "task", ">cells", ">diverged", ">return handed over", ""), rows, str(planned.title))
    if store.quarantined:
        print(f"\n{len(store.quarantined)} damaged cells were set aside in {store.directory}/quarantine")


def report_command(study: Positional[str], out: Path_ = None, clips: bool = True) -> None:
    """Write what came of a study: a page (HTML), figures (PNG, SVG), a Markdown table and a CSV file.

    Args:
        study: A study's file or directory.
        out: Where to. Default: the study's directory.
        clips: Show a rollout of the best policy where a task can be drawn.
    """
    from understudy.studies.report import clips as drawing
    from understudy.studies.report import figures, html, table

    planned, store = _found(study)
    groups = planned.groups()
    cells = records(groups, store)
    if all(record["status"] == "missing" for record in cells):
        raise RunError(f"'{store.directory}' has no finished cell of {planned.name}: understudy study run first")
    shown: dict[str, bytes] = {}
    if clips:
        for task in planned.tasks:
            best = _best(cells, task.env)
            try:
                picture = None if best is None else drawing.clip(load_policy(store.policy_path(best)), task.env)
            except UnderstudyError as error:  # a policy whose numbers overflow, say
                print(f"warning: no clip of {task.env}: {error}", file=sys.stderr)
                continue
            if picture is not None:
                shown[task.env] = picture
    place = Path(out) if out is not None else store.directory
    place.mkdir(parents=True, exist_ok=True)
    aside = [(damaged.path.name, damaged.why) for damaged in store.quarantined]
    page = html.render(cells, str(planned.title), provenance()["command"], shown, aside)
    with whole_file(place / "report.html") as beside:
        beside.write_text(page, encoding="utf-8")
    with whole_file(place / "table.md") as beside:
        beside.write_text(table.markdown(cells), encoding="utf-8")
    write_csv(place / "results.csv", table.COLUMNS, table.rows(cells))
    drawn = figures.draw(cells, place / "figure")
    print(f"The report: {place / 'report.html'}. Beside it: table.md, results.csv, {', '.join(p.name for p in drawn)}")


def records(groups: list[Group], store: Store) -> list[dict[str, Any]]:
    """The records of a study's cells, and for those that are not there what is asked of them."""
    found = []
    for group in groups:
        for cell in group.cells:
            if store.has(cell.key):
                found.append({**store.read(cell.key), "shown": group.shown})
            else:
                found.append({"asked": cell.asked, "shown": group.shown, "status": "missing", "rows": []})
    return found


def _found(given: str) -> tuple[Study, Store]:
    """A study and its directory, from either."""
    path = Path(given)
    if path.is_dir():
        store = Store(path)
        about = store.about()
        if about is None:
            raise RunError(
                f"'{path}' has no {STUDY}, so it is no study's directory: understudy study run FILE makes one"
            )
        return Study.of(about["study"]), store
    study = Study.load(path)
    store = Store(f"runs/{study.name}")
    store.check_own()
    return study, store


def _doing(store: Store, group: Group) -> str:
    """What is with a group that is not all there."""
    if (store.directory / "claims" / f"{group.key}.lock").exists():
        claim = store.claim(group.key)
        if claim is None:
            return "running"
        claim.release()
    why = failure(store, group)
    return "" if why is None else f"failed: {why}"


def _handed(found: list[dict[str, Any]]) -> str:
    from understudy.core.statistics import Sample

    means = [
        sum(row["returns"]) / len(row["returns"])
        for record in found
        for row in record["rows"]
        if row["x_kind"] == "final"
    ]
    return str(interval(Sample.of(means))) if means else ""


def _best(cells: list[dict[str, Any]], env: str) -> str | None:
    """The cell of the task whose policy returns the most."""
    scores = {
        record["key"]: sum(row["returns"]) / len(row["returns"])
        for record in cells
        if record["asked"]["task"]["env"] == env
        for row in record["rows"]
        if row["x_kind"] == "final"
    }
    return max(scores, key=lambda key: scores[key]) if scores else None
