"""The short commands: list algorithms and environments, evaluate a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from understudy.algorithms import available as available_algorithms
from understudy.cli.train_options import Kinds
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import check_whole, install_command
from understudy.core.imports import allow_imports, find_own_code
from understudy.core.options import (
    EnvArgs,
    Imports,
    Name,
    Path_,
    RunArgument,
    Wraps,
    default,
)
from understudy.core.paths import check_own_file
from understudy.core.statistics import interval
from understudy.core.text import quoted
from understudy.data import bundled
from understudy.envs import JAX_ENVIRONMENTS, NamedEnv
from understudy.envs.gymnasium import available
from understudy.envs.naming import parse_args
from understudy.evaluation.returns import Evaluation
from understudy.evaluation.video import check_video
from understudy.experts.bundled import bundled_experts
from understudy.tabular.classical import CARDS
from understudy.train.logs import check_kinds, log_evaluation
from understudy.train.results import load_run
from understudy.train.tables import RETURNS, result_rows, write_csv


def algorithms() -> None:
    """List the algorithms: which moments they match, what they need, and what they guarantee."""
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
        for card in (*(algorithm.card for algorithm in available_algorithms().values()), *CARDS.values())
    ]
    headers = ("name", "algorithm", "moments", "solver", "needs", "bound", "actions", "reference")
    display.show(headers, rows)
    display.say("\n`understudy train NAME --help` shows the settings of an algorithm.")
    display.say(f"These are functions of understudy.tabular.classical, for finite MDPs: {', '.join(CARDS)}.")


def envs() -> None:
    """List the environments, and which of them have bundled demonstrations and a bundled expert."""
    rows = [("JAX", name, environment.about) for name, environment in JAX_ENVIRONMENTS.items()]
    missing = dict(available())
    rows += [("Gymnasium", name, extra and f"not installed: extra {extra}") for name, extra in missing.items()]
    demonstrated, experts = bundled(), bundled_experts()
    marked = [
        (name, kind, "yes" if name in demonstrated else "", "yes" if name in experts else "", about)
        for kind, name, about in rows
    ]
    display.show(("name", "kind", "demonstrations", "expert", "about"), marked)
    if any(missing.values()):
        display.say(f"\nTo install an extra: {install_command('EXTRA')}")
    display.say("\nOther Gymnasium ids work too, module:Id and module:function; docs/environments.md has the spaces.")


def evaluate_command(
    run: RunArgument,
    env: Annotated[Name, default("that of the run")] = None,
    env_arg: EnvArgs = (),
    wrap: Wraps = (),
    horizon: Annotated[int | None, default("that of the run")] = None,
    episodes: int = 10,
    seed: int = 0,
    workers: Annotated[int | None, default("one per policy, at most one per core")] = None,
    step_timeout: float = STEP_TIMEOUT,
    log: Kinds = (),
    out: Annotated[Path_, default("none")] = None,
    video: Annotated[Path_, default("none")] = None,
    video_episodes: int = 1,
    replace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    imports: Imports = (),
) -> None:
    """Evaluate a run's policies: their returns and the gap to the expert.

    Args:
        run: Directory of the run.
        env: Environment.
        env_arg: Keyword argument of the environment; the value is JSON or text. Repeat the option for several.
        wrap: Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several.
        horizon: Steps after which an episode of a Gymnasium environment is truncated.
        episodes: Episodes per policy.
        seed: Seed of the episodes' initial states.
        workers: Worker processes that step a Gymnasium environment; 0: this process, without a timeout.
        step_timeout: Seconds that a step or reset may take in a worker; 0: no limit.
        log: Add the returns to the run's tensorboard or wandb logs; repeat the option for both.
        out: CSV file to write, with a row for each policy.
        video: Video of the selected policy to write: .mp4 (extra `video`) or .gif. It needs no display.
        video_episodes: Episodes in the video.
        replace: Replace an earlier video.
        imports: Module to import if the run's environment is in it, as in module:Name-v0; only for code you trust.
    """
    check_kinds(log)
    allow_imports(imports)
    if out is not None:
        check_own_file(out, ",".join(RETURNS))
    find_own_code(env, *wrap)
    if video is not None:
        check_video(video, replace)
    check_whole(1, video_episodes=video_episodes)
    result = load_run(run)
    named = result.named_env if env is None else NamedEnv(env)
    if named is not None:
        named = named.changed(parse_args(env_arg), wrap, horizon)
    with display.progress_bar(f"evaluating {len(result.policies)} policies") as report:
        evaluation = result.evaluate(named, episodes, seed, workers=workers, progress=report, step_timeout=step_timeout)
    card = result.config["algorithm"]["card"]
    title = f"{quoted(card['title'])} in {quoted(evaluation.env)}: mean ± 95% interval, {episodes} episodes per policy"
    display.show(*_scores(evaluation), title)
    if evaluation.expert is None:
        display.say("\nThe demonstrations do not record the expert's return, so the imitation gap is unknown.")
    log_evaluation(run, log, result, evaluation)
    if out is not None:
        write_csv(Path(out), *result_rows(result, evaluation))
        display.say(f"\nThe return of each policy is in {out}")
    if video is not None:
        result.video(video, env, video_episodes, seed, step_timeout, replace=replace)
        display.say(f"\nThe selected policy is in {video}")


def _scores(evaluation: Evaluation) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    expert = "not recorded" if evaluation.expert is None else interval(evaluation.expert)
    rows = [
        (score.episodes, score.runs, expert, score.learner, "" if score.gap is None else score.gap)
        for score in evaluation.scores()
    ]
    return (">demos", ">runs", ">expert's return", ">learner's return", ">imitation gap"), rows
