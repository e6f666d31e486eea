"""`understudy diagnose` and `understudy advise`."""

from typing import Annotated

import tyro

from understudy.core import display
from understudy.core.imports import allow_imports, find_own_code
from understudy.core.options import EnvArgs, Imports, Name, Path_, RunArgument, Wraps, default
from understudy.core.paths import check_new_directory
from understudy.diagnosis.advice import advise
from understudy.diagnosis.diagnose import diagnose
from understudy.diagnosis.measures import OWN_FILES
from understudy.envs import NamedEnv
from understudy.envs.naming import parse_args


def diagnose_command(
    run: RunArgument,
    demos: Annotated[Path_, default("the bundled ones, if the run used them")] = None,
    env: Annotated[Name, default("that of the run")] = None,
    env_arg: EnvArgs = (),
    wrap: Wraps = (),
    horizon: Annotated[int | None, default("the environment's time limit")] = None,
    expert: Annotated[Name, default("none")] = None,
    episodes: int = 10,
    seed: int = 0,
    out: Annotated[Path_, default("none")] = None,
    replace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    imports: Imports = (),
) -> None:
    """Say why a policy is worse than the expert, or what is wrong with demonstrations before training.

    Args:
        run: Directory of a run, or demonstrations: a file, a directory, or the name of a bundled task.
        demos: Demonstrations that the run was trained on.
        env: Environment to play fresh episodes in.
        env_arg: Keyword argument of the environment; the value is JSON or text. Repeat the option for several.
        wrap: Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several.
        horizon: Steps after which an episode of a Gymnasium environment is truncated.
        expert: Expert to query: scripted, bundled, a run, a policy file, SB3 zip, npz of weights or ONNX file, or
            module:function.
        episodes: Fresh episodes.
        seed: Seed of the episodes and of all tests.
        out: Directory to write: diagnosis.html and diagnosis.json.
        replace: Replace an earlier diagnosis there.
        imports: Module to import if the run's environment is in it, as in module:Name-v0; only for code you trust.
    """
    allow_imports(imports)
    find_own_code(env, expert, *wrap)
    if out is not None:
        check_new_directory(out, OWN_FILES if replace else ())
    named = None if env is None else NamedEnv(env, parse_args(env_arg), wrap, horizon)
    with display.working(f"diagnosing {run}"):
        found = diagnose(run, named, expert, demos, episodes, seed)
    for line in found.lines():
        display.say(line)
    if out is not None:
        found.save(out, replace)
        display.say(f"Page: {out}/diagnosis.html")


def advise_command(
    demos: Annotated[str, tyro.conf.arg(metavar="FILE")],
    env: Annotated[Name, default("none")] = None,
    expert: Annotated[Name, default("none")] = None,
    seed: int = 0,
) -> None:
    """Say which algorithm to try first: bounds on its gap from your data, its cost, and the command.

    Args:
        demos: Demonstrations: a file, a directory, or the name of a bundled task.
        env: Environment that you can play in.
        expert: Expert that you can query: scripted, bundled, a run, a file, or module:function.
        seed: Seed of all random numbers.
    """
    find_own_code(env, expert)
    with display.working(f"measuring {demos}"):
        found = advise(demos, env, expert, seed)
    display.show(found.headers, found.rows, f"{found.about}: what each kind of moments would give")
    display.say(f"\nTry {found.algorithm} first: {found.reason}")
    for line in found.notes:
        display.say(line)
    display.say(f"Type: {found.command}")
