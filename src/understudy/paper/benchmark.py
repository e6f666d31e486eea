"""The benchmark: imitation on MuJoCo v5, with every algorithm that needs no expert to ask (`studies/benchmark.toml`).

`understudy benchmark run` trains and evaluates what has not finished, `understudy benchmark report` prints the table
(`benchmark_table`) and draws the figure (`benchmark_figure`). A task is a study of its own:

    WORK/benchmark.json       the version of the benchmark
    WORK/demos/TASK.npz       episodes of the task's expert, recorded on first use
    WORK/demos/TASK.json      the expert and the environment that they come from
    WORK/TASK/                the study of a task (`studies.cells`)
    OUT/benchmark-ENV.csv     the returns of a task: x_kind "env_steps" during training, "returned" of the final policy

A run replaces its own rows of the CSV file. Those of an unfinished run are its evaluations so far. The demonstrations'
digest is stored, and not demanded: contacts differ between machines, so the same expert makes other episodes there.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from understudy.collect.recording import record
from understudy.core import display
from understudy.core.errors import NeedsError, RunError, SettingError, check_positive, check_whole, unknown
from understudy.core.locks import wait_for_lock
from understudy.core.options import Directory, Float_, Int_, Names_, Path_, default
from understudy.core.paths import check_own_file
from understudy.core.reader import FileReader
from understudy.core.statistics import Sample, interval
from understudy.core.storage import write_json
from understudy.envs import make
from understudy.experts.bundled import bundled_experts
from understudy.paper import figure_studies
from understudy.studies import Entry, Store, Study, Task
from understudy.studies.groups import expert_digest
from understudy.studies.plan import BUNDLED
from understudy.studies.records import FINAL, RETURNED
from understudy.studies.running import RunSummary, run
from understudy.studies.training import Stop, StudyStopped, never
from understudy.train.demonstrated import SEED

VERSION = 1
"""Another version has other tasks, experts or rules, and refuses the directories of this one."""
MARKER = "benchmark.json"
EPISODES = 25
"""Recorded episodes of an expert."""
WORK, OUT = "runs/benchmark", "docs/results"
STEPS = {"humanoid": 1_000_000}
"""Environment steps of the tasks that need more than the study's."""
RUN = ("env", "algorithm", "preset", "settings", "trajectories", "seed")
"""The columns that identify a run's rows."""


def benchmark_study() -> Study:
    """The benchmark's study, with all its tasks."""
    return figure_studies.load_study("benchmark")


def benchmark_tasks() -> dict[str, Task]:
    """The tasks by name: halfcheetah, hopper, ..."""
    return {task.env.partition("-")[0].lower(): task for task in benchmark_study().tasks}


def results_file(folder: str | os.PathLike[str], task: Task) -> Path:
    """The CSV file of a task."""
    return Path(folder) / f"benchmark-{task.env}.csv"


def run_command(
    tasks: Annotated[Names_, default("all that have an expert")] = None,
    learners: Annotated[Names_, default("bc advil valuedice adril gail:sac sqil")] = None,
    trajectories: tuple[int, ...] = (1, 5, 25),
    seeds: int = 5,
    steps: Annotated[Int_, default("500,000; humanoid 1,000,000")] = None,
    eval_every: int = 25_000,
    eval_episodes: int = 10,
    staleness: int = 1,
    workers: Annotated[int, default("one per core")] = 0,
    minutes: Annotated[Float_, default("no limit")] = None,
    expert: Annotated[Path_, default("the bundled one")] = None,
    work: Directory = WORK,
    out: Directory = OUT,
) -> None:
    """Train and evaluate the runs of the benchmark that have not finished. Rerun the command to go on.

    Args:
        tasks: Tasks: halfcheetah, hopper, walker2d, ant, humanoid.
        learners: Algorithms, with an optional preset, number of trajectories and settings, such as gail:sac@5,rounds=9.
            Your own: module:Class.
        trajectories: Numbers of demonstrations, at most 25.
        seeds: Seeds per learner.
        steps: Environment steps of a run.
        eval_every: Environment steps between evaluations, rounded up to whole rounds.
        eval_episodes: Episodes per evaluated policy.
        staleness: Updates by which the acting policy lags the learner: 0, or 1 to collect and train in parallel.
        workers: Processes for collecting and evaluating.
        minutes: End after the round in which so many minutes are over, and keep a checkpoint.
        expert: Expert of a single task, for example the output of `understudy expert train`.
        work: Directory of the demonstrations and the finished runs.
        out: Directory of the CSV files.
    """
    stop = _deadline(minutes)
    options = Options(trajectories, seeds, steps, eval_every, eval_episodes, staleness, workers or os.cpu_count() or 1)
    chosen, entries = choose_tasks(tasks, expert), choose_learners(learners)
    _check(chosen, options, Path(work), Path(out))
    done, failed, stopped = 0, RunSummary(), False
    for name, task in chosen.items():
        if stop() and not (Path(work) / "demos" / f"{name}.json").exists():
            stopped = True
            continue
        demos = recorded(Path(work), name, task, expert, options.workers)
        study, directory = options.study(name, task, demos, entries), Path(work) / name
        try:
            failed.failed |= run(study, directory, jobs=1, stop=stop).failed
        except StudyStopped:
            stopped = True
        finally:  # also after Ctrl-C
            done += store_results(study, directory, results_file(out, task))
    total = len(chosen) * seeds * sum(len(entry.trajectories or trajectories) for entry in entries)
    state = f"{done} of {total} runs are stored in {work}"
    figure_studies.raise_failures(failed)
    if stopped:
        print(f"Stopped after {minutes:g} minutes: {state}. Run the same command again to go on.")
    else:
        print(f"{state}, returns in {out}. To see the table: understudy benchmark report --results {out}")


@dataclass(frozen=True)
class Options:
    """How the runs are trained and evaluated."""

    trajectories: tuple[int, ...]
    seeds: int
    steps: int | None
    eval_every: int
    eval_episodes: int
    staleness: int
    workers: int

    def study(self, name: str, task: Task, demos: Path, entries: Sequence[Entry]) -> Study:
        """The study of one task."""
        base = replace(benchmark_study(), name=f"benchmark-{name}", tasks=(task,))
        return figure_studies.adapt_study(
            *(base, task.env, str(demos), self.seeds, self.workers, entries, self.trajectories),
            steps=self.steps or STEPS.get(name),
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            staleness=self.staleness,
        )


def choose_tasks(names: Sequence[str] | None, expert: str | None) -> dict[str, Task]:
    """The named tasks, or all that have an expert. Raises if one has none."""
    known, experts = benchmark_tasks(), bundled_experts()
    if names is None:
        names = [name for name, task in known.items() if task.env in experts]
    chosen = {}
    for name in names:
        if name not in known:
            raise unknown("task", name, known)
        chosen[name] = known[name]
        if expert is None and known[name].env not in experts:
            args = " ".join(f"--env-arg {key}=false" for key in known[name].env_args)
            raise NeedsError(
                f"task {name} has no expert yet: train one with `understudy expert train {known[name].env} {args}` and "
                f"pass its directory, --expert experts/{known[name].env}"
            )
    if expert is not None and len(chosen) != 1:
        raise SettingError(f"expert is '{expert}' for {len(chosen)} tasks: name the task that it is for, --tasks TASK")
    return chosen


def choose_learners(names: Sequence[str] | None) -> list[Entry]:
    """The named learners, or those of the study. Raises if one asks an expert, which the benchmark has none for."""
    entries = [*benchmark_study().algorithms] if names is None else figure_studies.parse_learners(names, ())
    if not entries:
        raise SettingError("learners is empty: name at least one, or leave the option out")
    for entry in entries:
        if "expert" in entry.algorithm().card.needs:
            raise SettingError(f"learner {entry.label} asks an expert: the benchmark compares those that need none")
    return entries


def _deadline(minutes: float | None) -> Stop:
    if minutes is None:
        return never
    check_positive(minutes=minutes)
    end = time.monotonic() + 60 * minutes
    return lambda: time.monotonic() >= end


def _check(chosen: dict[str, Task], options: Options, work: Path, out: Path) -> None:
    """Raise before anything is written or trained: settings, a missing extra, directories of something else."""
    if not options.trajectories:
        raise SettingError("trajectories is empty: name at least one number, or leave the option out")
    for count in options.trajectories:
        check_whole(1, trajectories=count)
        if count > EPISODES:
            raise SettingError(
                f"trajectories has {count}: the benchmark records {EPISODES} episodes, choose at most that"
            )
    for name, task in chosen.items():
        options.study(name, task, work, ())  # checks the protocol
        make(task.named_env)
        check_own_file(results_file(out, task), figure_studies.START)
        figure_studies.read_rows(results_file(out, task))
    check_directory(work, [*chosen])


def check_directory(work: Path, names: Sequence[str]) -> None:
    """Make the benchmark's directory. Raises if it holds something else, or a benchmark of another version."""
    marker = work / MARKER
    if work.exists() and not work.is_dir():
        raise RunError(f"'{work}' is a file: the benchmark needs a directory, choose another --work")
    if marker.exists():
        found = FileReader(marker, "the version of a benchmark", "choose another --work").json({"benchmark": int})
        if found["benchmark"] != VERSION:
            raise RunError(
                f"'{work}' holds version {found['benchmark']} of the benchmark, and this is version {VERSION}: choose "
                "another --work"
            )
    elif work.exists() and any(not path.name.startswith(f".{MARKER}.") for path in work.iterdir()):
        raise RunError(f"'{work}' is not empty and holds no benchmark: choose another --work")
    for name in names:
        Store(work / name)  # raises if it is a study of another version
    if not marker.exists():
        write_json(marker, {"benchmark": VERSION})


def recorded(work: Path, name: str, task: Task, expert: str | None, workers: int) -> Path:
    """The file of a task's demonstrations, which are recorded if there are none yet."""
    path = work / "demos" / f"{name}.npz"
    about = path.with_suffix(".json")
    source = expert_digest(expert or BUNDLED, task.env)
    wanted = {"env": task.named_env.to_json(), "expert": source, "episodes": EPISODES, "seed": SEED}
    with wait_for_lock(path.with_suffix(".lock")):
        if about.exists() and path.exists():
            found = FileReader(about, "the source of demonstrations", f"remove it and '{path}'").json()
            if found != wanted:
                raise RunError(f"'{path}' comes from another expert or environment: choose another --work")
            return path
        demos = record(task.named_env, expert or BUNDLED, EPISODES, SEED, workers=min(workers, EPISODES))
        demos.save(path)
        write_json(about, wanted)
    score = interval(Sample.of(demos.returns))
    display.warn(f"Recorded {EPISODES} episodes in {task.env}: mean return {score} (95% interval over episodes)")
    return path


def store_results(study: Study, directory: Path, path: Path) -> int:
    """Merge the runs of a task's study into its CSV file; return the number of finished ones.

    The evaluations of an unfinished run are stored too, unless the file has more of the same run.
    """
    rows = [
        {**row, "x_kind": RETURNED if row["x_kind"] == FINAL else row["x_kind"]}
        for row in figure_studies.stored_rows(study, directory)
    ]
    before, unfinished = figure_studies.read_rows(path), figure_studies.unfinished_rows(study, directory)
    known, new = (Counter(_run(row) for row in part) for part in (before, unfinished))
    rows_so_far = [row for row in unfinished if new[_run(row)] > known[_run(row)]]
    if rows or rows_so_far:
        figure_studies.merge_rows(before, [*rows, *rows_so_far], path, identity=RUN)
    return len({_run(row) for row in rows})


def _run(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in RUN)
