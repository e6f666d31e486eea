"""`understudy train ALGORITHM`: parse the options that apply to the algorithm, train, save the run, print a table."""

import dataclasses
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from tyro.conf import OmitArgPrefixes
from tyro.extras import SubcommandApp

from understudy.algorithms import available, find
from understudy.core import display
from understudy.core.errors import NeedsError, SettingError, check_whole
from understudy.core.options import Name, Path_, default
from understudy.core.storage import check_free
from understudy.data import bundled, load
from understudy.envs import JAX_ENVIRONMENTS, make
from understudy.experts.expert import as_expert
from understudy.experts.weights import holds_weights, policy_from_weights
from understudy.game import DEFAULT, Algorithm
from understudy.policies.networks import Activation
from understudy.train import resuming
from understudy.train.checkpoints import CHECKPOINT
from understudy.train.imitate import HOLDOUT, demonstrations_of, imitate
from understudy.train.logs import LOGS, Kind, Logs
from understudy.train.results import Result

Kinds = tyro.conf.UseAppendAction[tuple[Kind, ...]]
ABOUT = (
    "Train policies from demonstrations. `understudy train ALGORITHM --help` shows the algorithm's options. "
    "`understudy train module:Class` trains an algorithm of your own. "
    f"`understudy train {resuming.OPTION} DIR` resumes a run that was interrupted or killed, with its own settings."
)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Data, seeds and output."""

    demos: Annotated[Name, default("those bundled for --env")] = None
    """Demonstrations: the name of a bundled task, or an npz file."""
    env: Annotated[Name, default("none")] = None
    """Environment. Algorithms that do not interact with it take the action bounds and the horizon from it."""
    episodes: Annotated[tuple[int, ...], default("all")] = ()
    """Number of demonstrated episodes to use. Several numbers train every seed on each."""
    seeds: int = 1
    """Number of seeds, 0 to N-1, trained in one program."""
    policy_obs: Annotated[tuple[int, ...], default("all")] = ()
    """Indices of the observation entries that the policy sees; critics see all."""
    holdout: float = HOLDOUT
    """Fraction of demonstrated steps held out to select among the policies."""
    log: Kinds = ()
    """Also log to tensorboard or wandb; repeat the option for both. OUT.logs/metrics.csv is always written."""
    out: Annotated[Path_, default("runs/ALGORITHM")] = None
    """Directory of the run."""


@dataclasses.dataclass(frozen=True)
class ExpertOptions:
    """The expert that the algorithm queries."""

    expert: Annotated[Name, default("none")] = None
    """scripted, bundled, a run or policy file, an npz file of weights, or module:function."""
    expert_activation: Annotated[Activation | None, default("named in the file")] = None
    """Activation between the layers of an npz file of weights that does not name it."""
    budget: Annotated[int | None, default("no limit")] = None
    """Maximum number of expert queries per run."""


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """Where a Gymnasium environment is stepped."""

    workers: Annotated[int | None, default("chosen by the cost of a step")] = None
    """Worker processes that step a Gymnasium environment; 0: this process."""


COLLECTED = {"return": "last round's return", "queries": "queries"}
"""Metrics of a round's collected data, with their column headers."""


def train(words: Sequence[str]) -> int:
    """Run `understudy train` with these words; return the exit status."""
    words, out = list(words), None
    if resuming.requested(words):
        resumed = resuming.command_to_resume(words)
        if resumed is None:
            return 0
        words, out = resumed
    if not words or words[0].startswith("-"):
        return _list_algorithms(words)
    import_from_current_directory()
    algorithm, options, expert, workers = parse(words)
    if out is not None:
        options = dataclasses.replace(options, out=out)
    return _train(algorithm, options, expert, workers, words)


def _list_algorithms(words: list[str]) -> int:
    app = SubcommandApp()
    for name, algorithm in available().items():
        app.command(name=name, help=str(algorithm.__doc__).splitlines()[0])(lambda: None)
    app.cli(prog="understudy train", description=ABOUT, args=words or ["--help"])
    return 0


def parse(words: Sequence[str]) -> tuple[Algorithm, RunOptions, ExpertOptions, WorkerOptions]:
    """The algorithm with its settings, and the options of the run, from the words after `understudy train`."""
    name, rest = words[0], list(words[1:])
    algorithm = find(name)
    settings = algorithm.preset(_preset(rest))
    fields: list[Any] = []
    if algorithm.presets:
        about = tyro.conf.arg(help="Named settings, which become the defaults of the other options.")
        fields.append(("preset", Annotated[Literal[(DEFAULT, *algorithm.presets)], about], DEFAULT))
    fields.append(("algorithm", Annotated[algorithm, tyro.conf.arg(name="")], _default(settings)))
    fields.append(("run", OmitArgPrefixes[RunOptions], _default(RunOptions())))
    if "expert" in algorithm.card.needs:
        fields.append(("expert", OmitArgPrefixes[ExpertOptions], _default(ExpertOptions())))
    else:
        _refuse(ExpertOptions, f"{name} queries no expert", rest)
    if settings.schedule is not None:
        in_run_box = tyro.conf.arg(name="run")  # --help lists them among the "run options"
        fields.append(("workers", Annotated[OmitArgPrefixes[WorkerOptions], in_run_box], _default(WorkerOptions())))
    else:
        reason = "uses no workers" if "environment" in algorithm.card.needs else "steps no environment"
        _refuse(WorkerOptions, f"{name} {reason}", rest)
    arguments: Any = dataclasses.make_dataclass("Arguments", fields)
    arguments.__doc__ = algorithm.__doc__
    parsed = tyro.cli(arguments, args=rest, prog=f"understudy train {name}")
    expert, workers = getattr(parsed, "expert", ExpertOptions()), getattr(parsed, "workers", WorkerOptions())
    return parsed.algorithm, parsed.run, expert, workers


def _default(value: Any) -> Any:
    return dataclasses.field(default_factory=lambda: value)


def _refuse(options: type, reason: str, words: list[str]) -> None:
    """Raise if an option does not apply to the algorithm. The message names it."""
    given = {word.split("=", 1)[0].replace("_", "-") for word in words if word.startswith("--")}
    for field in dataclasses.fields(options):
        flag = f"--{field.name.replace('_', '-')}"
        if flag in given:
            raise SettingError(f"{reason}: leave out {flag}")


def _preset(words: list[str]) -> str:
    """The name after --preset. It is read first, since it decides the defaults of the other options."""
    for index, word in enumerate(words):
        if word.startswith("--preset="):
            return word.removeprefix("--preset=")
        if word == "--preset":
            if index + 1 == len(words):
                raise SettingError("--preset needs a name")
            return words[index + 1]
    return DEFAULT


def _train(
    algorithm: Algorithm,
    options: RunOptions,
    expert_options: ExpertOptions,
    worker_options: WorkerOptions,
    words: Sequence[str],
) -> int:
    if options.demos is None and options.env is None:
        raise NeedsError(
            "no demonstrations: pass --demos with a file, or --env with a task that has bundled demonstrations: "
            f"{', '.join(bundled())}"
        )
    out = str(Path(options.out or f"runs/{algorithm.card.name}"))
    checkpoint = f"{out}{CHECKPOINT}"
    resumes = Path(checkpoint).exists()
    if not (resumes and resuming.interrupted(out)):
        check_free(out)
    logs = Logs(f"{out}{LOGS}", options.log)
    if resumes:
        in_gymnasium = algorithm.schedule is not None and options.env not in JAX_ENVIRONMENTS
        note = f"; {options.env} starts new episodes" if in_gymnasium else ""
        print(f"Resuming from {checkpoint}{note}", file=sys.stderr)
    source = str(options.demos or options.env)
    demonstrations = demonstrations_of(source) if options.demos is None else load(source)
    # Bundled demonstrations were checked against their task, so its simulator need not be installed to learn from them.
    needs_env = "environment" in algorithm.card.needs or source != options.env or source not in bundled()
    expert = _budgeted(expert_options, options.env)
    with (
        display.progress_bar(f"{algorithm.card.title} on {demonstrations.env or source}") as report,
        resuming.stored_command(out, words),
        _interruptible(out),
    ):
        result = imitate(
            algorithm,
            demonstrations,
            options.env if needs_env else None,
            expert,
            seeds=options.seeds,
            episodes=options.episodes or None,
            holdout=options.holdout,
            progress=report,
            checkpoint=checkpoint,
            policy_obs=options.policy_obs or None,
            workers=worker_options.workers,
            logs=logs,
        )
    result.save(out, replace=resumes)
    if not result.interrupted:
        resuming.clean_up(out)
    _show(result, algorithm.card.title)
    if result.interrupted:
        print(f"\nInterrupted. The policies trained so far are saved in {out}. To resume: {_resume_command(out)}")
        return 130
    print(f"\nSaved in {out}. To measure the gap to the expert: understudy evaluate {out}")
    return 0


def _show(result: Result, title: str) -> None:
    """Print a row for each run: loss, metrics of its collected data, held-out payoff and status."""
    loss = next((metric for metric in result.metrics if metric.endswith("loss")), next(iter(result.metrics)))
    columns = {loss: loss, **{name: header for name, header in COLLECTED.items() if name in result.metrics}}
    rows = []
    for i, run in enumerate(result.runs):
        numbers = [_number(name, _last_finite(result.metrics[name][i])) for name in columns]
        mark = "selected" if i == result.selected else ""
        rows.append((run.episodes, run.seed, *numbers, f"{run.payoff:.3g}", run.status, mark))
    headers = (">episodes", ">seed", *(f">{header}" for header in columns.values()), ">held-out payoff", "status", "")
    display.show(headers, rows, f"{title}, {result.config['seconds']:.1f} s")


def _number(name: str, value: float) -> str:
    return "no episode ended" if name == "return" and not math.isfinite(value) else f"{value:.4g}"


def _last_finite(values: np.ndarray) -> float:
    """The last finite value: later ones are NaN once a run has stopped."""
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else float("nan")


@contextmanager
def _interruptible(out: str) -> Iterator[None]:
    """Add to the message of a second Ctrl-C how to resume, if there is a checkpoint."""
    try:
        yield
    except KeyboardInterrupt:
        if Path(f"{out}{CHECKPOINT}").exists():
            raise KeyboardInterrupt(f"the checkpoint is kept; to resume: {_resume_command(out)}") from None
        raise


def _resume_command(out: str) -> str:
    return f"understudy train {resuming.OPTION} {shlex.quote(out)}"


def import_from_current_directory() -> None:
    """Let module:Class and module:function name modules in the current directory."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _budgeted(options: ExpertOptions, env: str | None) -> Any:
    """The expert of the options, with its budget of queries."""
    expert = expert_from(options.expert, env, options.expert_activation)
    if options.budget is None:
        return expert
    if expert is None or env is None:
        raise NeedsError("--budget limits the queries to an expert: pass --expert and --env too")
    check_whole(1, budget=options.budget)
    return as_expert(expert, make(env)).budget(options.budget)


def expert_from(name: str | None, env: str | None, activation: Activation | None) -> Any:
    """The expert's name or, if an activation is given, the network in its file of weights."""
    if activation is None:
        return name
    if name is None or env is None or not holds_weights(name):
        raise NeedsError(
            "--expert-activation is for weights: pass --expert with an npz file of w0, b0, ..., and --env too"
        )
    return policy_from_weights(name, env, activation)
