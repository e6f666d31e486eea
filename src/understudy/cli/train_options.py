"""The options of `understudy train`, and the environment, the expert and the demonstrations that they name."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, get_args, get_origin, get_type_hints

import tyro

from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import NeedsError, SettingError, check_whole
from understudy.core.options import EnvArgs, Int_, Name, Path_, Wraps, default
from understudy.data import Demonstrations, bundled, load
from understudy.envs import NamedEnv, make, make_unfinished
from understudy.envs.naming import WRAPPERS, parse_args
from understudy.experts.expert import Expert, as_expert
from understudy.game import Algorithm
from understudy.policies.networks import Activation
from understudy.train.demonstrated import demonstrations_of, record_demonstrations, records_expert
from understudy.train.imitate import HOLDOUT
from understudy.train.logs import Kind
from understudy.train.results import Result
from understudy.train.resuming import IMPORT
from understudy.train.selection import Select

Kinds = tyro.conf.UseAppendAction[tuple[Kind, ...]]


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Data, seeds and output."""

    demos: Annotated[Name, default("those bundled for --env, or recorded from --expert")] = None
    """Demonstrations: the name of a bundled task, a file or directory in any known format, or format:PATH."""
    keys: Annotated[tuple[str, ...], default("all")] = ()
    """Observation keys of the demonstrations to use, in this order."""
    filter: Annotated[Name, default("none")] = None
    """Named subset of the demonstrations, such as robomimic's train."""
    env: Annotated[Name, default("none")] = None
    """Environment: a name, module:Id or module:function. All algorithms take action bounds and horizon from it."""
    env_arg: EnvArgs = ()
    """Keyword argument of the environment; the value is JSON or text. Repeat the option for several."""
    wrap: Wraps = ()
    """Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several."""
    horizon: Annotated[Int_, default("the environment's time limit")] = None
    """Steps after which an episode of a Gymnasium environment is truncated."""
    episodes: Annotated[tuple[int, ...], default("all")] = ()
    """Number of demonstrated episodes to use. Several numbers train every seed on each."""
    seeds: int = 1
    """Number of seeds, 0 to N-1, trained in one program."""
    policy_obs: Annotated[tuple[str, ...], default("all")] = ()
    """Indices of the observation entries that the policy sees, or names of its parts."""
    critic_obs: Annotated[tuple[str, ...], default("all")] = ()
    """Indices of the observation entries that critics and moment functions see, or names of its parts."""
    holdout: float = HOLDOUT
    """Fraction of demonstrated episodes held out to select among policies; of the first one's steps if fewer than 4."""
    select: Select = "payoff"
    """Policy to return after training in an environment: the last, unless another has a better payoff or return."""
    keep: int = 0
    """Candidates for the returned policy to save in OUT/candidates, one of each of so many parts of training."""
    log: Kinds = ()
    """Also log to tensorboard or wandb; repeat the option for both. OUT.logs/metrics.csv is always written."""
    out: Annotated[Path_, default("runs/ALGORITHM")] = None
    """Directory of the run. Several values of a setting (--lr 1e-4 3e-4) are one run for each, in OUT/lr=0.0001 etc."""
    replace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Start again, and replace the run in OUT once the new one is trained. Only a run of understudy is replaced."""

    @property
    def named_env(self) -> NamedEnv | None:
        """The environment with its arguments, for `make`; None: none is given."""
        return named_env(self.env, self.env_arg, self.wrap, self.horizon)


@dataclasses.dataclass(frozen=True)
class ExpertOptions:
    """The expert that demonstrates 25 episodes, or as many as --episodes, if --demos is left out."""

    expert: Annotated[Name, default("none")] = None
    """scripted, bundled, a run, a policy file, SB3 zip, npz file of weights or ONNX file, or module:function."""
    expert_activation: Annotated[Activation | None, default("named in the file")] = None
    """Activation between the layers of an npz file of weights or an SB3 zip that does not name it."""
    expert_normalization: Annotated[Path_, default("none")] = None
    """Statistics of VecNormalize for an SB3 zip: an npz file with obs_mean, obs_var, clip_obs and epsilon."""
    expert_timeout: float = 0.0
    """Seconds that module:function may take to answer a batch of states; 0: no limit."""


@dataclasses.dataclass(frozen=True)
class QueryOptions(ExpertOptions):
    """The expert that the algorithm queries. It also demonstrates, if --demos is left out."""

    budget: Annotated[Int_, default("no limit")] = None
    """Maximum number of expert queries per run."""


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """Where a Gymnasium environment is stepped."""

    workers: Annotated[Int_, default("one per run, at most one per core")] = None
    """Worker processes that step a Gymnasium environment; 0: this process, without a timeout."""
    step_timeout: float = STEP_TIMEOUT
    """Seconds that a step or reset of a Gymnasium environment may take in a worker; 0: no limit."""


def refuse_options(options: type, allowed: type | None, reason: str, words: Sequence[str]) -> None:
    """Raise if an option that is not one of the allowed ones is given. The message names it."""
    fine = () if allowed is None else {field.name for field in dataclasses.fields(allowed)}
    for field in dataclasses.fields(options):
        if flag(field.name) in given(words) and field.name not in fine:
            raise SettingError(f"{reason}: leave out {flag(field.name)}")


def refuse_functions(algorithm: type[Algorithm], words: Sequence[str]) -> None:
    """Raise if a setting that is a function is given, unless its name will do: tyro would say that it is fixed."""
    for name, hint in get_type_hints(algorithm).items():
        kinds = (hint, *get_args(hint))
        if flag(name) in given(words) and str not in kinds and any(get_origin(one) is Callable for one in kinds):
            at_console = f", or understudy console --algorithm {algorithm.card.name}" if name == "moments" else ""
            raise SettingError(
                f"{flag(name)} is a function, which is no value for this command: "
                f"use Python, us.{algorithm.card.name}({name}=...){at_console}"
            )


def flag(name: str) -> str:
    """The option of a setting."""
    return f"--{name.replace('_', '-')}"


def given(words: Sequence[str]) -> set[str]:
    """The options among the words, without their values."""
    return {word.split("=", 1)[0].replace("_", "-") for word in words if word.startswith("--")}


def named_env(name: str | None, env_arg: Sequence[str], wrap: Sequence[str], horizon: int | None) -> NamedEnv | None:
    """The environment that the options name. Raises if there are arguments of an environment that is not named."""
    if name is None:
        if env_arg or wrap or horizon is not None:
            flag = "--env-arg" if env_arg else "--wrap" if wrap else "--horizon"
            raise NeedsError(f"{flag} is for an environment: pass --env too")
        return None
    return NamedEnv(name, parse_args(env_arg), tuple(wrap), horizon)


def expert_and_demonstrations(
    algorithm: Algorithm, options: RunOptions, expert_options: ExpertOptions, worker_options: WorkerOptions
) -> tuple[Expert | None, Demonstrations | None]:
    """The expert, if the algorithm queries it or it demonstrates, and the demonstrations. None: it needs none."""
    name, env, queries = expert_options.expert, options.named_env, "expert" in algorithm.card.needs
    if name is not None and options.demos is not None and not queries:
        raise SettingError(
            f"{algorithm.card.name} queries no expert, and --demos names the demonstrations: leave out --expert, or "
            "leave out --demos to record them from the expert"
        )
    records = options.demos is None and records_expert(options.env, options.env, name)
    if records and name is None and not queries:
        expert_options = dataclasses.replace(expert_options, expert="bundled")
    expert = expert_from(expert_options, env) if queries or records else None
    if records and expert is not None and env is not None:
        with display.working(f"recording demonstrations in {env.name}"):
            most = max(options.episodes, default=None)
            return expert, record_demonstrations(
                make(env), expert, most, worker_options.workers, worker_options.step_timeout
            )
    if options.demos is None and "demonstrations" not in algorithm.card.needs and options.env not in bundled():
        return expert, None
    if options.demos is None:
        return expert, demonstrations_of(str(options.env))
    with display.working(f"loading {options.demos}"):
        return expert, load(options.demos, keys=options.keys, filter=options.filter)


def expert_from(options: ExpertOptions, env: NamedEnv | None) -> Expert | None:
    """The expert of the options, or None if none is named."""
    for option in ("expert_activation", "expert_normalization", "budget"):
        if getattr(options, option, None) is not None and (options.expert is None or env is None):
            flag = option.replace("_", "-")
            raise NeedsError(f"--{flag} is for an expert: pass --expert and --env too")
    if options.expert is None:
        return None
    if env is None:
        raise NeedsError("an expert acts in an environment: pass --env too")
    expert = as_expert(options.expert, make_unfinished(env), options.expert_activation, options.expert_normalization)
    expert = dataclasses.replace(expert, timeout=options.expert_timeout)
    budget = getattr(options, "budget", None)
    if budget is None:
        return expert
    check_whole(1, budget=budget)
    return expert.budget(budget)


def evaluate_command(result: Result, out: str) -> str:
    """The command that evaluates a run. It names the modules of the person's code again, or asks for an environment."""
    named = result.config.get("env") or {"name": result.config["demonstrations"]["env"], "wrap": ()}
    command = f"understudy evaluate {shlex.quote(out)}"
    if named["name"] is None:
        return f"{command} --env ENV"
    wrappers = [name for name in named["wrap"] if name.partition(":")[0] != WRAPPERS]
    return " ".join([command, *import_options(named["name"], *wrappers)])


def import_options(*names: str) -> list[str]:
    """The options that import the modules of the names module:name."""
    modules = dict.fromkeys(name.split(":")[0] for name in names if ":" in name)
    return [f"{IMPORT} {shlex.quote(module)}" for module in modules]
