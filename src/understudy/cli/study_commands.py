"""`understudy study run|status|report`."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, arg

from understudy.core import display
from understudy.core.errors import RunError, SettingError, check_whole
from understudy.core.imports import allow_imports, allowed_imports
from understudy.core.options import FileArgument, Imports, Int_, Path_, default
from understudy.core.paths import check_file_path
from understudy.core.processes import PARENT, exit_with_parent, typed_command
from understudy.core.statistics import Sample, interval
from understudy.core.storage import atomic_file, make_directory
from understudy.core.text import quoted
from understudy.studies.cells import STUDY, Store
from understudy.studies.groups import MISSING, Group, load_demonstrations, study_records
from understudy.studies.plan import Study
from understudy.studies.reading import from_dict
from understudy.studies.records import FINAL
from understudy.studies.running import last_failure, run
from understudy.train.tables import write_csv

REPORT = ("report.html", "table.md", "results.csv", "figure.png", "figure.svg")
"""Files of a report."""
FEWEST_EPISODES = 10
"""Episodes of a certificate: the first tenth fits the kernel and is not judged."""
StudyArgument = Annotated[Positional[str], arg(metavar="STUDY")]


def run_command(
    file: FileArgument,
    out: Annotated[Path_, default("runs/NAME")] = None,
    jobs: Annotated[Int_, default("one per core; one with an accelerator")] = None,
    ray: Annotated[str | None, default("do not use Ray")] = None,
    report: bool = True,
    imports: Imports = (),
) -> None:
    """Train and evaluate the runs of a study that have not finished.

    Rerun the command to resume after an interruption or a crash. Run it in a second terminal to share the work.

    Args:
        file: Study file (TOML).
        out: Directory of the study.
        jobs: Number of processes.
        ray: Address of a Ray cluster, or "local" to start one on this machine.
        report: Write the report when all runs have finished.
        imports: Module with code that the study file names, such as "module:Class". Give it once for each module.
    """
    if jobs is not None:
        check_whole(1, jobs=jobs)
    if PARENT in os.environ:
        exit_with_parent()
    _allow(imports)
    study = Study.load(file)
    directory = out or f"runs/{study.name}"
    if ray is not None:
        if jobs is not None:
            raise SettingError(f"jobs is {jobs} and ray is {ray!r}: Ray chooses the number of jobs, leave out --jobs")
        from understudy.studies.on_ray import run_on_ray

        summary = run_on_ray(study, directory, ray)
    else:
        options = ["--out", str(directory), "--jobs", "1", "--no-report"]
        options += [word for module in allowed_imports() for word in ("--import", module)]
        summary = run(study, directory, jobs, worker_command=["-m", "understudy", "study", "run", str(file), *options])
    summary.print(study, directory)
    if report and not summary.failed:
        _write_report(*_load(str(directory)))
    if summary.failed:
        sys.exit(1)


def status_command(study: StudyArgument, imports: Imports = ()) -> None:
    """Show the progress of a study: finished, diverged, running and failed runs of each algorithm and task.

    Args:
        study: Study file or directory.
        imports: Module with code that the study names, such as "module:Class". Give it once for each module.
    """
    _allow(imports)
    plan, store = _load(study)
    rows = []
    for group in plan.groups():
        records = [store.read(cell.key) for cell in group.cells if store.has(cell.key)]
        ended = Counter(record["status"].split()[0].rstrip(":") for record in records)
        rows.append(
            (
                group.entry.label,
                group.task.env,
                f"{len(records)} of {len(group.cells)}",
                ended["diverged"] or "",
                _final_return(records),
                "" if len(records) == len(group.cells) else _state(store, group),
            )
        )
    title = f"{plan.title} (final return: mean ± 95% interval, Student's t over runs)"
    display.show(("algorithm", "task", ">runs", ">diverged", ">final return", ""), rows, title)
    if store.quarantined:
        print(f"\n{len(store.quarantined)} damaged files were moved to {store.directory}/quarantine")


def report_command(
    study: Annotated[Positional[str | None], arg(metavar="STUDY")] = None,
    out: Annotated[Path_, default("the study's directory")] = None,
    clips: bool = True,
    all_clips: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    certificates: Annotated[Int_, default("no certificates")] = None,
    compare: Annotated[tuple[str, ...], arg(metavar="A B", help_behavior_hint="(default: report one study)")] = (),
    imports: Imports = (),
) -> None:
    """Write the report of a study: a page (HTML), figures (PNG, SVG), a Markdown table and a CSV file.

    With --compare, write a page and a CSV file of two studies side by side instead.

    Args:
        study: Study file or directory.
        out: Directory to write to. With --compare: out/compare-A-B.
        clips: Include a clip of the best policy of each task that can be drawn here, and of the expert.
        all_clips: Include a clip of every algorithm, not only of the best one.
        certificates: Add a column with a certificate of the imitation gap, from this many fresh episodes of each policy
            and of the expert (docs/certificates.md).
        compare: Two studies, as files or directories.
        imports: Module with code that the study names, such as "module:Class". Give it once for each module.
    """
    _allow(imports)
    if compare:
        if len(compare) != 2:
            raise SettingError(
                f"--compare names {quoted(' '.join(compare))}: give two studies, as files or directories"
            )
        if study is not None:
            raise SettingError(f"STUDY is '{quoted(study)}', and --compare names two others: leave out one of them")
        if all_clips or not clips or certificates is not None:
            raise SettingError(
                "--compare has no clips and no certificates: leave out --all-clips, --no-clips and --certificates"
            )
        from understudy.cli.study_compare import compare_command

        compare_command(_load(compare[0]), _load(compare[1]), out)
        return
    if study is None:
        raise SettingError("no STUDY: give a study file or directory, or two of them with --compare A B")
    if all_clips and not clips:
        raise SettingError("--all-clips and --no-clips exclude each other: leave out one of them")
    if certificates is not None:
        check_whole(FEWEST_EPISODES, certificates=certificates)
    _write_report(*_load(study), out, clips, all_clips, certificates)


def _write_report(
    plan: Study, store: Store, out: Any = None, clips: bool = True, all_clips: bool = False, episodes: int | None = None
) -> None:
    from understudy.paper.published import find_published
    from understudy.studies.report import figures, html, table
    from understudy.studies.report.certified import certificate_cells
    from understudy.studies.report.clips import task_clips
    from understudy.studies.report.learners import group_by_task
    from understudy.studies.report.random_policy import random_return

    records = study_records(plan.groups(), store)
    if all(record["status"] == MISSING for record in records):
        raise RunError(f"no run of {plan.name} has finished in '{store.directory}': run understudy study run first")
    directory = Path(out) if out is not None else store.directory
    _check_report_directory(directory)
    make_directory(directory)
    quarantined = [(damaged.path.name, damaged.reason) for damaged in store.quarantined]
    tasks = {results.env: results for results in group_by_task(records)}
    shown = {task.env: task for task in plan.tasks if task.env in tasks}
    images = {env: task_clips(task, tasks[env], store, all_clips) for env, task in shown.items()} if clips else {}
    random = {env: random_return(task, tasks[env], store, plan.protocol.eval_episodes) for env, task in shown.items()}
    certified = {}
    if episodes is not None:
        given = load_demonstrations(plan)
        certified = {e: certificate_cells(task, tasks[e], store, given[e], episodes) for e, task in shown.items()}
    about = (str(plan.title), typed_command(), images, quarantined, find_published)
    page = html.render(records, *about, random, certified, plan.text)
    with atomic_file(directory / "report.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    with atomic_file(directory / "table.md") as temporary:
        temporary.write_text(table.markdown(records, find_published, certified), encoding="utf-8")
    write_csv(directory / "results.csv", table.COLUMNS, table.result_rows(records))
    drawn = figures.draw(records, directory / "figure", find_published)
    files = ", ".join(["table.md", "results.csv", *(path.name for path in drawn)])
    print(f"Report: {directory / 'report.html'}. In the same directory: {files}")


def _load(given: str) -> tuple[Study, Store]:
    """A study and its store, from a study file or a study's directory."""
    path = Path(given)
    if path.is_dir():
        store = Store(path)
        content = store.read_study_file()
        if content is None:
            raise RunError(f"'{path}' has no {STUDY}: give a study file, or a directory of understudy study run")
        return from_dict(content["study"], path / STUDY), store
    study = Study.load(path)
    store = Store(f"runs/{study.name}")
    store.check_directory()
    return study, store


def _allow(modules: Sequence[str]) -> None:
    """Allow the modules of --import. Without the option nothing is imported from the current directory."""
    if modules:
        allow_imports(modules)


def _check_report_directory(directory: Path) -> None:
    """Raise if the directory has files of the same names that are not those of a report."""
    from understudy.studies.report import html

    page, ours = directory / REPORT[0], os.path.lexists(directory / STUDY)
    if not ours and page.is_file():
        with page.open("rb") as file:
            ours = html.GENERATOR.encode() in file.read(4096)
    for name in REPORT:
        check_file_path(directory / name)
        if not ours and os.path.lexists(directory / name):
            raise RunError(f"'{directory}' has a file {name} that is not of a report: choose another --out")


def _state(store: Store, group: Group) -> str:
    """The state of a group with missing runs: running, failed, or neither."""
    if store.is_claimed(group.key):
        rounds = store.rounds(group.key)
        return "running" if rounds is None else f"running, {rounds[0]} of {rounds[1]} rounds"
    error = last_failure(store, group)
    return "" if error is None else f"failed: {error}"


def _final_return(records: list[dict[str, Any]]) -> str:
    means = list(_final_means(records).values())
    return str(interval(Sample.of(means))) if means else ""


def _final_means(records: list[dict[str, Any]]) -> dict[str, float]:
    """Cell's key → mean return of its final policy."""
    return {
        record["key"]: sum(row["returns"]) / len(row["returns"])
        for record in records
        for row in record["evaluations"]
        if row["x_kind"] == FINAL
    }
