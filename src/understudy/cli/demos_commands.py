"""`understudy demos`: inspect, convert and record demonstrations."""

import os
from typing import Annotated

import tyro

from understudy.cli.demos_report import show_demonstrations
from understudy.cli.train_options import ExpertOptions, expert_from
from understudy.collect.recording import record
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import RunError
from understudy.core.imports import find_own_code
from understudy.core.options import EnvArgs, EnvArgument, FileArgument, Int_, Name, Path_, Wraps, default
from understudy.core.paths import REPLACE, check_new_directory, check_new_file
from understudy.core.rescue import save_or_rescue
from understudy.core.statistics import Sample, interval
from understudy.data import Demonstrations, load
from understudy.data.demonstrations import Ends
from understudy.data.files import find_format, save, target_format
from understudy.data.inspection import lost_facts
from understudy.envs import NamedEnv, make, public_name
from understudy.envs.naming import parse_args
from understudy.policies.networks import Activation

Keys = Annotated[tuple[str, ...], default("all"), tyro.conf.arg(metavar="NAME [NAME ...]")]
Episodes = Annotated[Int_, default("all")]
EndsOption = Annotated[Ends | None, default("as recorded, or else time_limit")]
Target = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TARGET")]


def inspect(
    file: FileArgument,
    keys: Keys = (),
    episodes: Episodes = None,
    filter: Annotated[Name, default("none")] = None,
    ends: EndsOption = None,
) -> None:
    """Check a data set of demonstrations and show its contents.

    Args:
        file: A file or directory in any known format, format:PATH, or the name of a bundled task.
        keys: Observation keys to use, in this order.
        episodes: Only the first episodes.
        filter: A named subset of the episodes, such as robomimic's train.
        ends: How episodes end if the data does not say.
    """
    format_, _ = find_format(file)
    show_demonstrations(_loaded(file, keys, episodes, filter, ends), format_.title, file)


def convert(
    file: FileArgument,
    target: Target,
    keys: Keys = (),
    episodes: Episodes = None,
    filter: Annotated[Name, default("none")] = None,
    ends: EndsOption = None,
    env: Annotated[Name, default("as recorded")] = None,
    replace: bool = False,
) -> None:
    """Convert demonstrations to another format.

    Args:
        file: A file or directory in any known format, format:PATH, or the name of a bundled task.
        target: A path whose ending names the format, such as demos.npz or demos.csv, or format:PATH.
        keys: Observation keys to use, in this order.
        episodes: Only the first episodes.
        filter: A named subset of the episodes, such as robomimic's train.
        ends: How episodes end if the data does not say.
        env: Environment whose name, action bounds and horizon are written.
        replace: Replace an old data set of this format at the target.
    """
    format_, path = target_format(target, strict=True)
    if not replace and os.path.lexists(path):
        raise RunError(f"'{path}' already exists: pass --replace, or choose another name")
    if os.path.lexists(path) and not path.is_dir() and not format_.recognises(path):
        raise RunError(f"'{path}' is not a data set as {format_.title}: choose another name, or move it away first")
    demonstrations = _loaded(file, keys, episodes, filter, ends)
    if env is not None:
        find_own_code(env)
        made = make(env)
        demonstrations = demonstrations.for_task(made.spec, public_name(made) or made.name)
    named = f"{format_.name}:{path}" if ":" in target else target
    with display.working(f"writing {path}"):
        save(demonstrations, target, replace)
        lost = lost_facts(demonstrations, load(named))
    display.say(f"{demonstrations.episodes} episodes, {demonstrations.steps} steps as {format_.title}: {path}")
    if lost:
        display.say(f"Not kept, since this format has no place for it: {', '.join(lost)}")


def _loaded(
    file: str, keys: tuple[str, ...], episodes: int | None, filter: str | None, ends: Ends | None
) -> Demonstrations:
    with display.working(f"loading {file}"):
        return load(file, episodes, ends, keys, filter)


def record_command(
    env: EnvArgument,
    out: Annotated[str, tyro.conf.arg(metavar="PATH")],
    env_arg: EnvArgs = (),
    wrap: Wraps = (),
    horizon: Annotated[Int_, default("the environment's time limit")] = None,
    expert: Annotated[Name, default("the environment's scripted expert, or else its bundled one")] = None,
    expert_activation: Annotated[Activation | None, default("named in the file")] = None,
    expert_normalization: Annotated[Path_, default("none")] = None,
    episodes: int = 25,
    seed: int = 0,
    noise: float = 0.0,
    step_timeout: float = STEP_TIMEOUT,
    expert_timeout: float = 0.0,
    replace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Record episodes of an expert. Trained policies act deterministically, scripted experts stochastically.

    Args:
        env: Environment: a name, module:Id or module:function.
        out: A path whose ending names the format, such as demos.npz or demos.csv, or format:PATH.
        env_arg: Keyword argument of the environment; the value is JSON or text. Repeat the option for several.
        wrap: Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several.
        horizon: Steps after which an episode of a Gymnasium environment is truncated.
        expert: scripted, bundled, a run, a policy file, SB3 zip, npz of weights or ONNX file, or module:function.
        expert_activation: Activation between the layers of an npz of weights or an SB3 zip that does not name it.
        expert_normalization: Statistics of VecNormalize for an SB3 zip: npz with obs_mean, obs_var, clip_obs, epsilon.
        episodes: Episodes to record.
        seed: Seed of the initial states and of the expert's actions.
        noise: Action noise. Continuous actions: standard deviation of Gaussian noise, in half-ranges. Discrete actions:
            probability of a uniformly random action.
        step_timeout: Seconds that a step or reset of a Gymnasium environment may take; 0: no limit.
        expert_timeout: Seconds that module:function may take to answer a batch of observations; 0: no limit.
        replace: Replace the file, if it holds demonstrations.
    """
    format_, path = target_format(out)  # raises before anything is recorded
    if replace and path.exists():
        load(out)  # raises if it is another file
    elif format_.suffix:
        check_new_file(path, REPLACE)
    else:
        check_new_directory(path)
    find_own_code(expert)
    named = NamedEnv(env, parse_args(env_arg), wrap, horizon)
    with display.working(f"recording {episodes} episodes of {env}"):
        options = ExpertOptions(expert, expert_activation, expert_normalization, expert_timeout)
        demonstrations = record(
            named,
            expert_from(options, named),
            episodes,
            seed,
            noise=noise,
            step_timeout=step_timeout,
            expert_timeout=expert_timeout,
        )
    save_or_rescue(lambda path: demonstrations.save(path, replace=replace), out)
    assert demonstrations.returns is not None
    returns = interval(Sample.of(demonstrations.returns))
    lowest, highest = demonstrations.returns.min(), demonstrations.returns.max()
    display.say(
        f"{demonstrations.episodes} episodes, {demonstrations.steps} steps "
        f"({demonstrations.lengths.min()} to {demonstrations.lengths.max()} per episode), mean return {returns} "
        f"(95% interval, Student's t over episodes; {lowest:.1f} to {highest:.1f}): {out}"
    )
