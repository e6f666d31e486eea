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
from understudy.cli import sweeps
from understudy.cli.train_options import (
    ExpertOptions,
    QueryOptions,
    RunOptions,
    WorkerOptions,
    evaluate_command,
    expert_and_demonstrations,
    import_options,
    refuse_functions,
    refuse_options,
)
from understudy.core import display
from understudy.core.errors import (
    DemonstrationError,
    NeedsError,
    SettingError,
    SpecError,
    UnknownNameError,
)
from understudy.core.imports import find_own_code
from understudy.core.paths import check_new_directory
from understudy.core.rescue import save_or_rescue
from understudy.core.text import quoted
from understudy.data import bundled
from understudy.data.formats import FORMATS
from understudy.envs import JAX_ENVIRONMENTS, NamedEnv
from understudy.game import DEFAULT, QUICK, Algorithm
from understudy.train import resuming
from understudy.train.checkpoints import CHECKPOINT, has_checkpoint
from understudy.train.imitate import imitate
from understudy.train.logs import LOGS, Logs, check_logs
from understudy.train.results import Result, check_replaceable, payoff_text
from understudy.train.selection import EPISODES

ABOUT = (
    "Train policies from demonstrations. `understudy train ALGORITHM --help` shows the algorithm's options. "
    "`understudy train module:Class` trains an algorithm of your own. "
    f"`understudy train {resuming.OPTION} DIR` resumes a run that was interrupted or killed, with its own settings; "
    f"add {resuming.IMPORT} MODULE if it uses code of yours, module:name."
)


COLLECTED = {"return": "last round's return", "queries": "queries"}
"""Metrics of a round's collected data, with their column headers. Fresh episodes of the returned policy replace the
return."""


def train(words: Sequence[str]) -> int:
    """Run `understudy train` with these words; return the exit status."""
    if resuming.requested(words):
        resumed = resuming.command_to_resume(words)
        return 0 if resumed is None else _resume(resumed)
    if not words or words[0].startswith("-"):
        return _list_algorithms(list(words))
    find_own_code(*(word for word in words if word.partition(":")[0] not in FORMATS))
    commands = sweeps.combinations(find(words[0]).preset(_preset(list(words[1:]))), words)
    if len(commands) == 1:
        return _status(_train(*parse(words), words))
    algorithm, options, *_ = parse([*commands[0].words, *sweeps.output(words)])
    out = str(Path(options.out or f"runs/{algorithm.card.name}"))
    return sweeps.train_all(commands, parse, _train, out, options.replace)


def _resume(resumed: resuming.ResumedCommand) -> int:
    """Train with the stored command of a run. It may be a stranger's: see `train.resuming`."""
    try:
        algorithm, options, expert, workers = resumed.parsed(parse)
        demos = options.demos if options.demos in bundled() else resumed.located_data(options.demos)
        if options.named_env is not None:
            NamedEnv.from_file(options.named_env.to_json(), resumed.file)
        options = dataclasses.replace(options, demos=demos, out=resumed.out)
        normalization = resumed.located(expert.expert_normalization)
        expert = dataclasses.replace(expert, expert=resumed.located(expert.expert), expert_normalization=normalization)
        return _status(_train(algorithm, options, expert, workers, resumed.words, resumes=True))
    except (SettingError, NeedsError, UnknownNameError, DemonstrationError, SpecError) as error:
        if str(resumed.file) in str(error):
            raise
        raise type(error)(f"{quoted(error, 400)} (the command is stored in '{resumed.file}')") from error


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
        quick = " quick: from seconds to two minutes on two CPU cores." if QUICK in algorithm.presets else ""
        about = tyro.conf.arg(help=f"Named settings, which become the defaults of the other options.{quick}")
        fields.append(("preset", Annotated[Literal[(DEFAULT, *algorithm.presets)], about], DEFAULT))
    fields.append(("algorithm", Annotated[algorithm, tyro.conf.arg(name="")], default_of(settings)))
    fields.append(("run", OmitArgPrefixes[RunOptions], default_of(RunOptions())))
    kind: Any = QueryOptions if "expert" in algorithm.card.needs else ExpertOptions
    fields.append(("expert", OmitArgPrefixes[kind], default_of(kind())))
    if kind is ExpertOptions:
        refuse_options(QueryOptions, ExpertOptions, f"{name} queries no expert", rest)
    if "environment" in algorithm.card.needs:
        in_run_box = tyro.conf.arg(name="run")  # --help lists them among the "run options"
        fields.append(("workers", Annotated[OmitArgPrefixes[WorkerOptions], in_run_box], default_of(WorkerOptions())))
    else:
        refuse_options(WorkerOptions, None, f"{name} steps no environment", rest)
    refuse_functions(algorithm, rest)
    arguments: Any = dataclasses.make_dataclass("Arguments", fields)
    arguments.__doc__ = algorithm.__doc__
    parsed = tyro.cli(arguments, args=rest, prog=f"understudy train {name}")
    workers = getattr(parsed, "workers", WorkerOptions())
    return parsed.algorithm, parsed.run, parsed.expert, workers


def default_of(value: Any) -> Any:
    """A field of a dataclass with this default."""
    return dataclasses.field(default_factory=lambda: value)


def _preset(words: list[str]) -> str:
    """The name after --preset. It is read first, since it decides the defaults of the other options."""
    return option(words, "--preset") or DEFAULT


def option(words: list[str], flag: str) -> str | None:
    """The value after an option of the words; None if it is not given."""
    for index, word in enumerate(words):
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
        if word == flag:
            if index + 1 == len(words):
                raise SettingError(f"{flag} needs a name")
            return words[index + 1]
    return None


def _train(
    algorithm: Algorithm,
    options: RunOptions,
    expert_options: ExpertOptions,
    worker_options: WorkerOptions,
    words: Sequence[str],
    resumes: bool = False,
) -> Result:
    """Train, save and show a run. `resumes`: by `--resume`, so that --replace keeps its checkpoint."""
    if options.demos is None and options.env is None:
        raise NeedsError(
            "no demonstrations: pass --demos with a file, or --env with a task that has bundled demonstrations: "
            f"{', '.join(bundled())}"
        )
    if options.demos is None and (options.keys or options.filter is not None):
        raise SettingError("--keys and --filter choose from the demonstrations of --demos: pass it too")
    out = str(Path(options.out or f"runs/{algorithm.card.name}"))
    with resuming.claimed_output(out):
        if options.replace:
            check_replaceable(out)
            if not resumes:
                resuming.start_again(out)
        continues = has_checkpoint(f"{out}{CHECKPOINT}")
        if not options.replace and not (continues and resuming.interrupted(out)):
            check_new_directory(out, hint=sweeps.HINT)
        again = _resume_command(out, words[0], options.env, expert_options.expert, *options.wrap)
        with _interruptible(out, again):
            result = _trained(algorithm, options, expert_options, worker_options, out, words)
        hint = f"or `{again}`, which saves it again" if has_checkpoint(f"{out}{CHECKPOINT}") else ""
        save_or_rescue(lambda place: result.save(place, replace=continues or options.replace), out, hint)
        if not result.interrupted:
            resuming.clean_up(out)
    _show(result, algorithm.card.title)
    if result.interrupted:
        display.say(f"\nInterrupted. The policies trained so far are saved in {out}. {_how_to_resume(out, again)}")
    else:
        display.say(f"\nSaved in {out}. To measure the gap to the expert: {evaluate_command(result, out)}")
    return result


def _status(result: Result) -> int:
    return 130 if result.interrupted else 0


def _trained(
    algorithm: Algorithm,
    options: RunOptions,
    expert_options: ExpertOptions,
    worker_options: WorkerOptions,
    out: str,
    words: Sequence[str],
) -> Result:
    """The result of training, with checkpoints, logs and the stored command next to `out`."""
    checkpoint = f"{out}{CHECKPOINT}"
    check_logs(out)
    logs = Logs(f"{out}{LOGS}", options.log)
    if has_checkpoint(checkpoint):
        in_gymnasium = algorithm.schedule is not None and options.env not in JAX_ENVIRONMENTS
        note = f"; {options.env} starts new episodes" if in_gymnasium else ""
        print(f"Resuming from {checkpoint}{note}", file=sys.stderr)
    source = str(options.demos or options.env)
    expert, demonstrations = expert_and_demonstrations(algorithm, options, expert_options, worker_options)
    named_data = None if demonstrations is None else demonstrations.env
    # Bundled demonstrations were checked against their task, so its simulator need not be installed to learn from them.
    named, own = options.named_env, source != options.env or source not in bundled()
    changed = named is not None and named != NamedEnv(named.name)
    recorded = options.demos is None and expert is not None
    needs_env = "environment" in algorithm.card.needs or own or changed or recorded
    with (
        display.progress_bar(f"{algorithm.card.title} on {named_data or source}") as report,
        resuming.stored_command(out, words),
    ):
        return imitate(
            algorithm,
            demonstrations,
            named if needs_env else None,
            expert,
            seeds=options.seeds,
            episodes=options.episodes or None,
            holdout=options.holdout,
            select=options.select,
            keep=options.keep,
            progress=report,
            checkpoint=checkpoint,
            policy_obs=options.policy_obs or None,
            critic_obs=options.critic_obs or None,
            workers=worker_options.workers,
            logs=logs,
            step_timeout=worker_options.step_timeout,
            expert_timeout=expert_options.expert_timeout,
        )


def _show(result: Result, title: str) -> None:
    """Print a row for each run: loss, the returned policy with its return and held-out payoff, and status."""
    loss = next((metric for metric in result.metrics if metric.endswith("loss")), next(iter(result.metrics)))
    played = any(run.mean_return is not None for run in result.runs)
    collected = [name for name in COLLECTED if name in result.metrics and not (played and name == "return")]
    columns = {loss: loss, **{name: COLLECTED[name] for name in collected}}
    rows = []
    for i, run in enumerate(result.runs):
        numbers = [_number(name, _last_finite(result.metrics[name][i])) for name in columns]
        fresh = [run.returned, "-" if run.mean_return is None else f"{run.mean_return:.4g}"] if played else []
        mark = "selected" if i == result.selected else ""
        rows.append((run.episodes, run.seed, *numbers, *fresh, payoff_text(run), run.status, mark))
    fresh = ["policy", ">its return"] if played else []
    headers = [">episodes", ">seed", *(f">{header}" for header in columns.values()), *fresh, ">held-out payoff"]
    display.show([*headers, "status", ""], rows, f"{title}, {result.config['seconds']:.1f} s")
    if played:
        chosen = "by the environment's reward" if result.config["select"] == "return" else "by held-out payoff"
        how = "" if result.config["select"] == "last" else f", chosen {chosen}"
        display.say(
            f"Policy: the one that is saved{how}. Its return is the mean over {EPISODES} fresh episodes; its payoff, ± "
            "standard error, compares them with held-out demonstrations."
        )


def _number(name: str, value: float) -> str:
    return "no episode ended" if name == "return" and not math.isfinite(value) else f"{value:.4g}"


def _last_finite(values: np.ndarray) -> float:
    """The last finite value: later ones are NaN once a run has stopped."""
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else float("nan")


@contextmanager
def _interruptible(out: str, again: str) -> Iterator[None]:
    """Add to the message of a second Ctrl-C how to resume, if there is a checkpoint."""
    try:
        yield
    except KeyboardInterrupt:
        if has_checkpoint(f"{out}{CHECKPOINT}"):
            raise KeyboardInterrupt(f"the checkpoint is kept; to resume: {again}") from None
        raise


def _how_to_resume(out: str, again: str) -> str:
    if has_checkpoint(f"{out}{CHECKPOINT}"):
        return f"To resume: {again}"
    return "There is no checkpoint, so training cannot resume."


def _resume_command(out: str, *names: str | None) -> str:
    """The command that resumes. It names the modules of the person's code again."""
    code = [name for name in names if name is not None and not Path(name).exists()]
    return " ".join([f"understudy train {resuming.OPTION} {shlex.quote(out)}", *import_options(*code)])
