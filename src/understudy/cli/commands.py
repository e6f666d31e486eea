"""What each command does, over the same functions as the library; `cli` finds the command and its arguments."""

import dataclasses
import math
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tyro.conf import Positional

from understudy.algorithms import ALGORITHMS
from understudy.cli.demo import EVALUATION_EPISODES, SEEDS, demo
from understudy.collect.recording import collect
from understudy.core import display
from understudy.core.errors import NeedsError, RunError, check_whole
from understudy.core.options import Name, Path_
from understudy.core.statistics import Sample, interval
from understudy.core.storage import check_free, check_place
from understudy.core.types import Continuous
from understudy.data import bundled, load
from understudy.envs import JAX_ENVIRONMENTS, make
from understudy.envs.gymnasium import available
from understudy.evaluation.returns import Evaluation
from understudy.experts.bundled import bundled_experts
from understudy.experts.expert import as_expert
from understudy.experts.weights import holds_weights, policy_from_weights
from understudy.game import Algorithm
from understudy.policies.networks import Activation
from understudy.tabular.classical import CARDS
from understudy.train import resuming
from understudy.train.checkpoints import CHECKPOINT
from understudy.train.imitate import HOLDOUT, demonstrations_of, imitate
from understudy.train.logs import LOGS, Kind, Logs, check_kinds, log_evaluation
from understudy.train.results import load_run, result_rows, write_csv

Kinds = tyro.conf.UseAppendAction[tuple[Kind, ...]]


def algorithms() -> None:
    """The taxonomy: every algorithm, which moments it matches, what it needs and what that guarantees."""
    rows = [
        (
            card.name,
            card.title,
            card.moments,
            card.solver,
            ", ".join(card.needs) + (" with values" if card.values else ""),
            card.bound,
            ", ".join(card.actions),
            card.reference,
        )
        for card in (*(algorithm.card for algorithm in ALGORITHMS.values()), *CARDS.values())
    ]
    headers = ("name", "algorithm", "moments", "solver", "needs", "bound", "actions", "reference")
    display.show(headers, rows)
    print("\n`understudy train NAME --help` shows its settings.")
    print(f"On finite MDPs, functions of understudy.tabular.classical: {', '.join(CARDS)}.")


def envs() -> None:
    """The environments that can be named, and which come with demonstrations and a trained expert."""
    rows = [("JAX", name, environment.about) for name, environment in JAX_ENVIRONMENTS.items()]
    rows += [("Gymnasium", name, "" if not missing else f"needs {missing}") for name, missing in available()]
    demonstrated, experts = bundled(), bundled_experts()
    marked = [
        (name, kind, "yes" if name in demonstrated else "", "yes" if name in experts else "", about)
        for kind, name, about in rows
    ]
    display.show(("name", "kind", "bundled demonstrations", "expert", "about"), marked)
    print("\nAny other Gymnasium id with a flat Box of observations works too.")


@dataclasses.dataclass(frozen=True)
class Train:
    """What to learn from and where to keep it."""

    demos: Name = None
    """Demonstrations: a bundled task's name or an npz file. Default: those bundled for --env."""
    env: Name = None
    """The environment, for its bounds and horizon; needed where the algorithm interacts with it."""
    expert: Name = None
    """Who is asked, where the algorithm asks: scripted, bundled, a run or policy, npz of weights, module:function."""
    expert_activation: Activation | None = None
    """Between the layers of an expert that is an npz of weights, where the file does not say."""
    budget: int | None = None
    """Queries to the expert that each run may make. Default: no limit."""
    episodes: tuple[int, ...] = ()
    """Demonstrated episodes to use; several counts train every seed on each. Default: all."""
    seeds: int = 1
    """Seeds to train, 0 to N-1, in one program."""
    policy_obs: tuple[int, ...] = ()
    """Numbers of the observation that the policy sees, by index; critics see all. Default: all."""
    holdout: float = HOLDOUT
    """Fraction of steps kept aside to select among the policies."""
    workers: int | None = None
    """Processes that step a Gymnasium environment, for those that learn while they play. Default: as many as pay."""
    log: Kinds = ()
    """Log each round to tensorboard or wandb, too; can be given for both. metrics.csv in OUT.logs grows anyway."""
    out: Path_ = None
    """The run's directory. Default: runs/ALGORITHM."""


PLAYED = {"return": "last round's return", "queries": "queries"}


def train(algorithm: Algorithm, options: Train, words: Sequence[str] = ()) -> int:
    """Learn policies and keep them. `words` are those of the command, which are kept while it trains."""
    if options.demos is None and options.env is None:
        raise NeedsError(
            "nothing to learn from: pass --demos and a file, or --env and a task that has demonstrations of its own, "
            f"one of {', '.join(bundled())}"
        )
    out = str(Path(options.out or f"runs/{algorithm.card.name}"))
    checkpoint = f"{out}{CHECKPOINT}"
    goes_on = Path(checkpoint).exists()
    if not (goes_on and resuming.interrupted(out)):
        check_free(out)
    logs = Logs(f"{out}{LOGS}", options.log)
    if goes_on:
        on_the_host = algorithm.schedule is not None and options.env not in JAX_ENVIRONMENTS
        anew = f"; episodes of {options.env} begin anew" if on_the_host else ""
        print(f"Going on from {checkpoint}{anew}", file=sys.stderr)
    source = str(options.demos or options.env)
    demonstrations = demonstrations_of(source) if options.demos is None else load(source)
    # Bundled demonstrations were checked against their task: its simulator need not be installed to learn from them.
    needed = "environment" in algorithm.card.needs or source != options.env or source not in bundled()
    sys.path.insert(0, "")  # module:function may be in this directory
    expert: Any = _expert(options.expert, options.env, options.expert_activation)
    if options.budget is not None:
        if expert is None or options.env is None:
            raise NeedsError("--budget limits queries to an expert: pass --expert and --env")
        check_whole(1, budget=options.budget)
        expert = as_expert(expert, make(options.env)).budget(options.budget)
    with (
        display.progress_bar(f"{algorithm.card.title} on {demonstrations.env or source}") as report,
        resuming.remembered(out, words),
        _place(out),
    ):
        result = imitate(
            algorithm,
            demonstrations,
            options.env if needed else None,
            expert,
            seeds=options.seeds,
            episodes=options.episodes or None,
            holdout=options.holdout,
            progress=report,
            checkpoint=checkpoint,
            policy_obs=options.policy_obs or None,
            workers=options.workers,
            logs=logs,
        )
    result.save(out, replace=goes_on)
    if not result.interrupted:
        resuming.forget(out)
    loss = next((metric for metric in result.metrics if metric.endswith("loss")), next(iter(result.metrics)))
    # Of those that play: what the last round's episodes returned, and what was asked of the expert in all.
    shown = {loss: loss, **{name: words for name, words in PLAYED.items() if name in result.metrics}}
    rows = [
        (run.episodes, run.seed, *numbers, f"{run.payoff:.3g}", run.status, mark)
        for i, run in enumerate(result.runs)
        for numbers in ([_number(name, _last(result.metrics[name][i])) for name in shown],)
        for mark in ("selected" if i == result.selected else "",)
    ]
    headers = (">episodes", ">seed", *(f">{words}" for words in shown.values()), ">held-out payoff", "status", "")
    display.show(headers, rows, f"{algorithm.card.title}, {result.config['seconds']:.1f} s")
    if result.interrupted:
        print(f"\nInterrupted. What was trained until then is kept in {out}; to go on from there: {_way_on(out)}")
        return 130
    print(f"\nKept in {out}. How far from the expert? understudy evaluate {out}")
    return 0


def _number(name: str, value: float) -> str:
    return "none ended" if name == "return" and not math.isfinite(value) else f"{value:.4g}"


@contextmanager
def _place(out: str) -> Iterator[None]:
    """Ctrl-C, a second time, ends training at once; what it says depends on whether a place was kept before."""
    try:
        yield
    except KeyboardInterrupt:
        if Path(f"{out}{CHECKPOINT}").exists():
            raise KeyboardInterrupt(f"training keeps its place; to go on from there: {_way_on(out)}") from None
        raise


def _way_on(out: str) -> str:
    return f"understudy train {resuming.OPTION} {shlex.quote(out)}"


def evaluate(
    run: Positional[str],
    env: Name = None,
    episodes: int = 10,
    seed: int = 0,
    workers: int = 0,
    log: Kinds = (),
    out: Path_ = None,
) -> None:
    """Play a run's policies and print their returns and the gap to the expert.

    Args:
        run: The run's directory.
        env: The environment. Default: where the demonstrations come from.
        episodes: Episodes for each policy.
        seed: Where the episodes' starting states come from.
        workers: Processes for a Gymnasium environment. Default: one for each core.
        log: Add the returns to the run's tensorboard or wandb, where it was trained with the same.
        out: Write a line for each policy to this CSV file.
    """
    check_kinds(log)
    if out is not None:
        check_place(out)
    result = load_run(run)
    with display.progress_bar(f"playing {len(result.policies)} policies") as report:
        evaluation = result.evaluate(env, episodes, seed, workers=workers or os.cpu_count() or 1, progress=report)
    card = result.config["algorithm"]["card"]
    title = f"{card['title']} in {evaluation.env}: mean ± 95% interval, {episodes} episodes each"
    display.show(*_scores(evaluation), title)
    if evaluation.expert is None:
        print("\nThe demonstrations do not record the expert's return, so there is no gap to show.")
    log_evaluation(run, log, result, evaluation)
    if out is not None:
        write_csv(Path(out), *result_rows(result, evaluation))
        print(f"\nThe return of each policy is in {out}")


def inspect(file: Positional[str]) -> None:
    """Show what a file of demonstrations holds, after checking it.

    Args:
        file: An npz file, or a bundled task's name.
    """
    d = load(file)
    space = d.action_space
    if isinstance(space, Continuous):
        bounds = ", ".join(f"[{low:g}, {high:g}]" for low, high in zip(space.low, space.high, strict=True))
        actions = f"continuous {bounds}{' (from the data)' if d.bounds_from_data else ''}"
    else:
        actions = f"discrete, {space.n}"
    if d.terminals is not None:
        ended = f"{int(d.terminals.sum())} of {d.episodes} in a terminal state, the rest at a time limit"
    else:
        ended = f"not recorded; taken as {'terminal states' if d.ends == 'terminal' else 'time limits'}"
    rows = [
        ("environment", d.env or "not stated"),
        ("episodes", d.episodes),
        ("steps", f"{d.steps} ({d.lengths.min()} to {d.lengths.max()} an episode, horizon {d.horizon})"),
        ("observations", f"{d.observations.shape[1]} numbers"),
        ("actions", actions),
        ("expert's return", interval(d.expert_return) if d.expert_return is not None else "not recorded"),
        ("episodes' ends", ended),
        ("next observations", "recorded" if d.next_observations is not None else "not after an episode's last step"),
    ]
    display.show(("", ""), rows, file)


def collect_command(
    env: Positional[str],
    out: str,
    expert: Name = None,
    expert_activation: Activation | None = None,
    episodes: int = 25,
    seed: int = 0,
    noise: float = 0.0,
) -> None:
    """Record an expert's episodes. What was trained acts without chance, a script as it does.

    Args:
        env: The environment.
        out: The npz file to write.
        expert: Bundled, a run or a saved policy, npz of weights, or module:function. Default: the environment's
            scripted expert, or else the one that is bundled for it.
        expert_activation: Between the layers of an expert that is an npz of weights, where the file does not say.
        episodes: Episodes to record.
        seed: Where starting states and the expert's chance come from.
        noise: How far actions are moved, a standard deviation in half-ranges; discrete: how often any is taken instead.
    """
    check_place(out)
    if Path(out).exists():
        raise RunError(f"the file '{out}' is there already: choose another name, or remove it first")
    sys.path.insert(0, "")  # module:function may be in this directory
    with display.working(f"playing {episodes} episodes of {env}"):
        demonstrations = collect(env, _expert(expert, env, expert_activation), episodes, seed, noise=noise)
    demonstrations.save(out)
    assert demonstrations.returns is not None
    returns = interval(Sample.of(demonstrations.returns))
    lowest, highest = demonstrations.returns.min(), demonstrations.returns.max()
    print(
        f"{demonstrations.episodes} episodes, {demonstrations.steps} steps "
        f"({demonstrations.lengths.min()} to {demonstrations.lengths.max()} an episode), return {returns} "
        f"({lowest:.1f} to {highest:.1f}): {out}"
    )


def demo_command(out: str = "out/demo") -> None:
    """Learn from bundled demonstrations, measure the gap to the expert, draw the forest.

    Args:
        out: Where the picture and the policies go.
    """
    rows = [
        (task, algorithm, score.episodes, interval(expert), score.learner, score.gap)
        for task, algorithm, expert, score in demo(out, display.progress_bar)
    ]
    headers = ("task", "algorithm", ">demos", ">expert's return", ">learner's return", ">imitation gap")
    title = f"Mean ± 95% interval: {SEEDS} seeds, {EVALUATION_EPISODES} episodes each"
    display.show(headers, rows, title)
    print(
        f"\nThe picture: {out}/demo.png. The policies are beside it.\n"
        "On Pendulum, demonstrations close the gap. On Forest they cannot: the expert dodges left or right, and the\n"
        "mean of the two flies into the tree. Asking it again, as DAgger does, has the same mean. DAeQuIL matches\n"
        "other moments of a dodge, and gets through."
    )


def _expert(given: str | None, env: str | None, activation: Activation | None) -> Any:
    """The expert as it was named, or the network of its file where its activation is said."""
    if activation is None:
        return given
    if given is None or env is None or not holds_weights(given):
        raise NeedsError("--expert-activation is for weights: pass --expert, an npz file of w0, b0, ..., and --env")
    return policy_from_weights(given, env, activation)


def _scores(evaluation: Evaluation) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    expert = "not recorded" if evaluation.expert is None else interval(evaluation.expert)
    rows = [
        (score.episodes, score.runs, expert, score.learner, "" if score.gap is None else score.gap)
        for score in evaluation.scores()
    ]
    return (">demos", ">runs", ">expert's return", ">learner's return", ">imitation gap"), rows


def _last(values: np.ndarray) -> float:
    """The last number before a run stopped."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else float("nan")
