"""The short commands: list algorithms and environments, evaluate a run."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from understudy.algorithms import available as available_algorithms
from understudy.cli.train_options import Kinds
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import NeedsError, SettingError, check_whole, install_command
from understudy.core.imports import allow_imports, find_own_code
from understudy.core.options import EnvArgs, Imports, Int_, Name, Path_, RunArgument, Wraps, default
from understudy.core.paths import check_own_file
from understudy.core.statistics import Interval
from understudy.core.text import quoted
from understudy.data import bundled, load
from understudy.envs import JAX_ENVIRONMENTS, NamedEnv, make_unfinished
from understudy.envs.gymnasium import available
from understudy.envs.naming import parse_args
from understudy.evaluation.certificates import FEWEST
from understudy.evaluation.returns import Evaluation
from understudy.evaluation.video import check_video
from understudy.experts.bundled import bundled_experts
from understudy.experts.expert import as_expert
from understudy.policies.networks import Activation
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
    horizon: Annotated[Int_, default("that of the run")] = None,
    episodes: int = 10,
    seed: int = 0,
    expert: Annotated[Name, default("the return that the demonstrations record")] = None,
    expert_activation: Annotated[Activation | None, default("named in the file")] = None,
    expert_normalization: Annotated[Path_, default("none")] = None,
    certificate: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    fresh: Annotated[Path_, default("episodes of --expert")] = None,
    workers: Annotated[Int_, default("one per policy, at most one per core")] = None,
    step_timeout: float = STEP_TIMEOUT,
    log: Kinds = (),
    out: Annotated[Path_, default("none")] = None,
    video: Annotated[Path_, default("none")] = None,
    video_episodes: int = 1,
    replace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    imports: Imports = (),
) -> None:
    """Evaluate a run's policies: their returns, episode lengths and successes, and the gap to the expert.

    Args:
        run: Directory of the run.
        env: Environment.
        env_arg: Keyword argument of the environment; the value is JSON or text. Repeat the option for several.
        wrap: Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several.
        horizon: Steps after which an episode of a Gymnasium environment is truncated.
        episodes: Episodes per policy.
        seed: Seed of the episodes' initial states.
        expert: Expert that acts from the same initial states, to measure the gap there: scripted, bundled, a run, a
            policy file, SB3 zip, npz file of weights or ONNX file, or module:function.
        expert_activation: Activation between the layers of an expert's file that does not name it.
        expert_normalization: Statistics of VecNormalize for an SB3 zip: an npz file with obs_mean, obs_var, clip_obs
            and epsilon.
        certificate: Also bound the gap of the selected policy for every reward of a class, by fresh episodes: --expert
            or --fresh is needed. With few --episodes the bound is vacuous, and it says so.
        fresh: Demonstrations for the certificate that the run was not trained on: a file, or a bundled task.
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
    if fresh is not None and not certificate:
        raise SettingError("--fresh is for a certificate: pass --certificate too")
    if certificate and fresh is None and expert is None:
        raise NeedsError("a certificate needs fresh demonstrations: pass --fresh FILE, or --expert to record some")
    if certificate:
        check_whole(FEWEST, episodes=episodes)
    result = load_run(run)
    named = result.named_env if env is None else NamedEnv(env)
    if named is not None:
        named = named.changed(parse_args(env_arg), wrap, horizon)
    acting: Any = expert
    if expert_activation is not None or expert_normalization is not None:
        if expert is None or named is None:
            flag = "activation" if expert_activation is not None else "normalization"
            raise NeedsError(f"--expert-{flag} is for an expert: pass --expert {'' if named else 'and --env '}too")
        acting = as_expert(expert, make_unfinished(named), expert_activation, expert_normalization)
    with display.progress_bar(f"evaluating {len(result.policies)} policies") as report:
        evaluation = result.evaluate(named, episodes, seed, acting, workers, report, step_timeout)
    card = result.config["algorithm"]["card"]
    title = f"{quoted(card['title'])} in {quoted(evaluation.env)}: mean ± 95% interval ({evaluation.interval_of})"
    display.show(*_scores(evaluation), title)
    display.say(f"\n{about_gap(evaluation)}")
    if any(score.success is not None for score in evaluation.scores()):
        display.say("Success: the share of episodes whose last report of is_success (or success) is true.")
    if certificate:
        demonstrations = None if fresh is None else load(fresh)
        found = result.certificate(
            demonstrations,
            named,
            acting,
            episodes=episodes,
            seed=seed,
            workers=workers,
            step_timeout=step_timeout,
        )
        display.say(f"\nCertificates of {result.runs[result.selected].name}, from fresh episodes:\n{found}")
    log_evaluation(run, log, result, evaluation)
    if out is not None:
        write_csv(Path(out), *result_rows(result, evaluation))
        display.say(f"\nThe return of each policy is in {out}")
    if video is not None:
        result.video(video, env, video_episodes, seed, step_timeout, replace=replace)
        display.say(f"\nThe selected policy is in {video}")


def about_gap(evaluation: Evaluation) -> str:
    """Which expert the gap is measured against, and what its interval is over."""
    if evaluation.expert_returns is not None:
        return (
            "The expert acted from the same starting states as each policy. The gap's interval is over the paired "
            "differences."
        )
    hint = "With --expert (scripted, bundled, a file) an expert acts from the same starting states as each policy."
    if evaluation.expert is None:
        return f"The demonstrations do not record the expert's return, so the imitation gap is unknown. {hint}"
    return (
        f"The expert's return is recorded in the demonstrations ({evaluation.expert.size} episodes with other starting "
        f"states), and its interval is over those. The gap's interval is Welch's t over both. {hint}"
    )


def _scores(evaluation: Evaluation) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    scores = evaluation.scores()
    rows = [
        [
            *(score.episodes, score.runs, "not recorded" if score.expert is None else score.expert, score.learner),
            *("" if score.gap is None else score.gap, score.length),
        ]
        for score in scores
    ]
    headers = [">demos", ">runs", ">expert's return", ">learner's return", ">imitation gap", ">episode length"]
    if any(score.success is not None for score in scores):
        headers.append(">success")
        rows = [[*row, percentage(score.success)] for row, score in zip(rows, scores, strict=True)]
    return headers, rows


def percentage(share: Interval | None) -> str:
    """A share of episodes with its 95% interval: 94% (84% to 98%)."""
    if share is None:
        return ""
    ends = "" if not math.isfinite(share.low) else f" ({share.low:.0%} to {share.high:.0%})"
    return f"{share.mean:.0%}{ends}"
