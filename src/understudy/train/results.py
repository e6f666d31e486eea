"""The result of training, and the directory it is saved in.

    RUN/config.json     algorithm, hyperparameters, seeds, versions, a summary of the demonstrations
    RUN/metrics.csv     a row for each run and round
    RUN/runs.csv        a row for each run: seed, episodes, held-out payoff, status, whether it was selected
    RUN/candidates/     with `keep`: other policies that could have been returned, and candidates.csv
    RUN/policies/*.npz  the policies: plain arrays and JSON
    RUN/SHA256SUMS      digests of these files
    RUN/tensorboard/, RUN/wandb/    logs of training, with --log (`train.logs`)

The directory is written atomically: it is complete or absent.
"""

import dataclasses
import operator
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.digests import DIGESTS, check_digests, write_digests
from understudy.core.errors import NeedsError, RunError, unknown
from understudy.core.imports import check_import
from understudy.core.paths import check_new_directory, checked_path
from understudy.core.progress import ProgressOption
from understudy.core.reader import FileReader
from understudy.core.statistics import Sample
from understudy.core.storage import atomic_directory, write_json
from understudy.core.text import is_line, quoted
from understudy.data import Demonstrations
from understudy.deploy.runs import MOST_SEED, POLICIES, REMEDY, RunRow, number, run_config, run_rows, whole
from understudy.envs import NamedEnv
from understudy.evaluation.certificate import Certificates
from understudy.evaluation.certificates import certify
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.evaluation.video import record_video
from understudy.game import Algorithm
from understudy.policies.actor import Actor, read_policy
from understudy.policies.export import Written, export, training_of
from understudy.train.selection import FEW_STEPS
from understudy.train.tables import write_csv
from understudy.train.unseen import unseen

OWN_FILES = (
    *("config.json", "metrics.csv", "runs.csv", "policies", "policies/episodes*-seed*.npz", DIGESTS),
    *("candidates", "candidates/candidates.csv", "candidates/episodes*-seed*.npz"),
    *("tensorboard", "tensorboard/*/events.out.tfevents.*", "wandb.json", "wandb"),
    *("wandb/run-*", "wandb/offline-run-*", "wandb/latest-run", "wandb/debug*.log"),
)
"""The files of a run directory: a directory that holds others is not replaced."""


@dataclass(frozen=True)
class Run:
    """One run of a training call: a seed with a number of demonstrated episodes."""

    seed: int
    episodes: int
    status: str
    payoff: float
    """The payoff of the returned policy against held-out steps, by which a run is selected (`train.selection`)."""
    payoff_error: float | None = None
    """Its standard error over fresh episodes. None: none were played. Then the payoff is that of its actions on
    held-out steps, or of an interrupted run's last rounds."""
    held_out_steps: int = 0
    """How many held-out steps the payoff is from."""
    returned: str = "last"
    """Which policy was returned: the last one, the last one without averaging, or that of a round."""
    mean_return: float | None = None
    """Its mean return over the fresh episodes. None: none were played."""

    @property
    def name(self) -> str:
        return f"episodes{self.episodes}-seed{self.seed}"

    @property
    def broken(self) -> bool:
        """Whether its numbers diverged or exploded. It keeps an earlier policy, and is selected only if all are so."""
        return "diverged" in self.status or "exploded" in self.status


@dataclass(frozen=True)
class Candidate:
    """A policy that could have been returned, and how it did on its fresh episodes."""

    run: str
    """The name of its run."""
    name: str
    actor: Actor
    payoff: float
    payoff_error: float
    mean_return: float

    @property
    def file_name(self) -> str:
        return f"{self.run}-{self.name.replace(',', '').replace(' ', '-')}.npz"


@dataclass(frozen=True)
class Result:
    """The result of `imitate`: a policy for each seed and number of episodes, the metrics, and the configuration."""

    config: dict[str, Any]
    runs: list[Run]
    policies: list[Actor]
    metrics: dict[str, np.ndarray]
    """name → (runs, rounds)."""
    interrupted: bool = False
    env: Any = None
    """The environment passed to `imitate`, if any. It is not saved."""
    candidates: list[Candidate] = field(default_factory=list)
    """The policies that competed for the final ones, with `keep`. They are saved, but not loaded again."""

    @property
    def selected(self) -> int:
        """The index of the run with the lowest held-out payoff, among those with the most demonstrations.

        With `select="return"`, it is the one with the highest return.
        """
        most = max(run.episodes for run in self.runs)
        by_return = self.config.get("select") == "return"

        def rank(index: int) -> tuple[bool, bool, float]:
            run = self.runs[index]
            cost = -run.mean_return if by_return and run.mean_return is not None else run.payoff
            return (not np.isfinite(cost), run.broken, cost)

        return min((i for i, run in enumerate(self.runs) if run.episodes == most), key=rank)

    @property
    def policy(self) -> Actor:
        """The selected policy."""
        return self.policies[self.selected]

    @property
    def expert(self) -> Sample | None:
        """The expert's return, if the demonstrations record it."""
        stated = self.config["demonstrations"]["expert_return"]
        if stated is None:
            return None
        return Sample(stated["mean"], float("nan") if stated["std"] is None else stated["std"], stated["size"])

    def evaluate(
        self,
        env: Any = None,
        episodes: int = 10,
        seed: int = 0,
        expert: Any = None,
        workers: int | None = None,
        progress: ProgressOption = True,
        step_timeout: float = STEP_TIMEOUT,
    ) -> Evaluation:
        """Evaluate all policies: their returns, and the gap to the expert.

        `env` defaults to the environment of the demonstrations, `expert` to the return that they record. An expert that
        can act plays from the same starts as each policy. The other arguments are those of `understudy.evaluate`.
        """
        task, expert = self._environment(env), self.expert if expert is None else expert
        return evaluate(self.policies, task, episodes, seed, expert, workers, progress, step_timeout)

    def certificate(
        self,
        demonstrations: Demonstrations | None = None,
        env: Any = None,
        expert: Any = None,
        progress: bool = True,
        **options: Any,
    ) -> Certificates:
        """Certificates of the selected policy's imitation gap. The arguments are those of `understudy.certify`.

        Demonstrations that trained or selected a policy do not count: of those that the run was given, only the
        episodes beyond the number in use are judged. `env` defaults to the environment of the demonstrations.
        """
        used = max(run.episodes for run in self.runs)
        if demonstrations is not None:
            demonstrations = unseen(demonstrations, self.config["demonstrations"], used)
        env = self.env if env is None else env
        env = self.named_env if env is None else env
        return certify(self.policy, demonstrations, env, expert, progress=progress, **options)

    def video(
        self,
        path: str | os.PathLike[str],
        env: Any = None,
        episodes: int = 1,
        seed: int = 0,
        step_timeout: float = STEP_TIMEOUT,
        progress: bool = True,
        replace: bool = False,
    ) -> None:
        """Write a video of the selected policy, .mp4 or .gif. The arguments are those of `understudy.record_video`."""
        record_video(self.policy, self._environment(env), path, episodes, seed, step_timeout, progress, replace)

    def _environment(self, env: Any) -> Any:
        """The environment that is passed, that of training, or that of the demonstrations."""
        env = self.env if env is None else env
        if env is None:
            env = self.named_env
        if env is None:
            raise NeedsError("the environment of these demonstrations has no registered name: pass env= (--env)")
        return env

    @property
    def named_env(self) -> NamedEnv | None:
        """The environment that the run names: that of training, or that of the demonstrations; None: it has no name.

        A file names it, so code of its own needs the person's consent.
        """
        where, named = "config.json of the run", self.config.get("env")
        if named is not None:
            return NamedEnv.from_file(named, where)
        name = self.config["demonstrations"]["env"]
        check_import(name, where)
        return None if name is None else NamedEnv(name)

    def export(self, path: Any, to: str = "numpy", policy: str | None = None, **options: Any) -> Written:
        """Write one policy for programs without understudy (`policies.export.export`), by default the selected one."""
        names = [run.name for run in self.runs]
        if policy is not None and policy not in names:
            raise unknown("policy", policy, names)
        index = self.selected if policy is None else names.index(policy)
        return export(self.policies[index], path, to, training=training_of(self.config, names[index]), **options)

    def save(self, directory: str | os.PathLike[str], replace: bool = False) -> None:
        """Write the run directory atomically. With `replace=True`, it may take the place of a run of understudy.

        A directory that is no run, or that holds files of your own besides, is never touched.
        """
        directory = checked_path(directory)
        if replace:
            check_replaceable(directory)
        with atomic_directory(directory, OWN_FILES if replace else ()) as partial:
            (partial / "policies").mkdir()
            for run, actor in zip(self.runs, self.policies, strict=True):
                actor.save(partial / "policies" / f"{run.name}.npz")
            names = list(self.metrics)
            write_csv(
                partial / "metrics.csv",
                ["seed", "episodes", "round", *names],
                (
                    [run.seed, run.episodes, round_ + 1, *(float(self.metrics[name][i, round_]) for name in names)]
                    for i, run in enumerate(self.runs)
                    for round_ in range(self.metrics[names[0]].shape[1])
                ),
            )
            write_csv(
                partial / "runs.csv",
                list(RunRow._fields),
                (
                    RunRow(
                        run.seed,
                        run.episodes,
                        run.payoff,
                        run.payoff_error,
                        run.held_out_steps,
                        run.returned,
                        run.mean_return,
                        run.status,
                        i == self.selected,
                    )
                    for i, run in enumerate(self.runs)
                ),
            )
            if self.candidates:
                self._save_candidates(partial / "candidates")
            write_json(partial / "config.json", self.config)
            write_digests(partial, _digested(run.name for run in self.runs))

    def _save_candidates(self, directory: Path) -> None:
        directory.mkdir()
        returned = {(run.name, run.returned) for run in self.runs}
        for candidate in self.candidates:
            candidate.actor.save(directory / candidate.file_name)
        write_csv(
            directory / "candidates.csv",
            ["file", "run", "candidate", "held_out_payoff", "payoff_error", "mean_return", "returned"],
            (
                [one.file_name, one.run, one.name, one.payoff, one.payoff_error, one.mean_return, is_returned]
                for one, is_returned in ((one, (one.run, one.name) in returned) for one in self.candidates)
            ),
        )

    def __repr__(self) -> str:
        return f"Result({self.config['algorithm']['name']}, {len(self.runs)} runs, selected {self.runs[self.selected]})"


def payoff_text(run: Run) -> str:
    """A run's held-out payoff with its standard error, and the number of held-out steps if they are few."""
    error = "" if run.payoff_error is None else f" ± {run.payoff_error:.2g}"
    return f"{run.payoff:.3g}{error}{f' ({run.held_out_steps} steps)' if run.held_out_steps < FEW_STEPS else ''}"


def check_replaceable(directory: str | os.PathLike[str]) -> None:
    """Raise if a run cannot be written to a directory: it holds files, and they are not those of a run."""
    directory = checked_path(directory)
    if directory.is_dir() and any(directory.iterdir()):
        run_config(directory)  # raises unless understudy wrote it
    check_new_directory(directory, OWN_FILES)


def load_run(directory: str | os.PathLike[str]) -> Result:
    """Load a saved run."""
    directory = checked_path(directory)
    config, rows = run_config(directory), run_rows(directory)
    runs = [
        Run(
            row.seed,
            row.episodes,
            row.status,
            row.held_out_payoff,
            row.payoff_error,
            row.held_out_steps,
            row.returned,
            row.mean_return,
        )
        for row in rows
    ]
    seeds, counts = config["seeds"], config["episodes"]
    pairs = [(seed, count) for count in counts for seed in seeds] if len(seeds) * len(counts) == len(runs) else []
    if [(run.seed, run.episodes) for run in runs] != pairs:
        raise _damaged(directory, "runs.csv does not have the runs of config.json")
    policies = [
        read_policy(directory / POLICIES / row.policy, diverged=row.status.startswith("diverged")) for row in rows
    ]
    if [(actor.about.get("seed"), actor.about.get("episodes")) for actor in policies] != pairs:
        raise _damaged(directory, "a policy is that of another run")
    if any(actor.spec != policies[0].spec for actor in policies):
        raise _damaged(directory, "its policies are for different tasks")
    metrics = _read_metrics(directory / "metrics.csv", rows)
    result = Result(config, runs, policies, metrics, any(run.status.startswith("interrupted") for run in runs))
    if not rows[result.selected].selected:
        raise _damaged(directory, "the payoffs in runs.csv select another run")
    check_digests(directory, _digested(run.name for run in runs), REMEDY)
    return result


def _digested(runs: Iterable[str]) -> list[str]:
    """The files of a run directory that have a digest: all but the logs."""
    return ["config.json", "metrics.csv", "runs.csv", *(f"{POLICIES}/{name}.npz" for name in runs)]


def _damaged(directory: Path, reason: str) -> RunError:
    return RunError(f"'{quoted(directory, 1000)}' is damaged, {reason}: {REMEDY}")


def _read_metrics(path: Path, runs: list[RunRow]) -> dict[str, np.ndarray]:
    """The metrics in metrics.csv: name → (runs, rounds)."""
    file = FileReader(path, "the metrics of a run", REMEDY)
    keys = dict.fromkeys(("seed", "episodes", "round"), lambda text: whole(text, 0, MOST_SEED))
    rows = file.csv(keys, number)
    rounds = len(rows) // len(runs)
    expected = [(run.seed, run.episodes, round_ + 1) for run in runs for round_ in range(rounds)]
    if [(row["seed"], row["episodes"], row["round"]) for row in rows] != expected:
        raise file.damaged("it does not have each round of each run once, in order")
    names = [name for name in (rows[0] if rows else ()) if name not in keys]
    if not all(is_line(name) for name in names):
        raise file.damaged("its columns have names that are not printable")
    return {name: np.array([row[name] for row in rows]).reshape(len(runs), rounds) for name in names}


def hyperparameters(algorithm: Algorithm) -> dict[str, Any]:
    """All fields of an algorithm, as JSON values."""
    return {f.name: _plain(getattr(algorithm, f.name)) for f in dataclasses.fields(algorithm)}


def _plain(value: Any) -> Any:
    """A setting as a JSON value: numbers as Python numbers, dataclasses as dicts, functions as their names."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if getattr(value, "shape", None) == ():  # __index__ and __float__ of an array may fail
        return _plain(value.item())
    if isinstance(value, SupportsIndex):
        return operator.index(value)
    if isinstance(value, SupportsFloat):
        return float(value)
    if dataclasses.is_dataclass(value):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    return getattr(value, "__qualname__", repr(value))
