"""`understudy console`: the options of the console and of its algorithm."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes

from understudy.algorithms import find
from understudy.cli.train_command import default_of, option
from understudy.cli.train_options import named_env
from understudy.collect.worker import STEP_TIMEOUT
from understudy.console.choosing import Choice
from understudy.console.launch import HOST, PORT, console
from understudy.core import display
from understudy.core.errors import NeedsError, SettingError
from understudy.core.imports import find_own_code, load_name
from understudy.core.options import EnvArgs, Int_, Name, Path_, Wraps, default
from understudy.data import load
from understudy.game import DEFAULT, Algorithm

ABOUT = """A person as the expert, in the browser: demonstrate, take over, answer questions, compare, see it learn.

With --algorithm, the options of that algorithm follow: `understudy console --algorithm dagger --help`. --moments
module:function sets the moments of daequil, a function of (obs, act).
"""


@dataclasses.dataclass(frozen=True)
class ConsoleOptions:
    """Environment, output and address."""

    env: Annotated[Name, default("none; it is needed")] = None
    """Environment: a name, module:Id or module:function."""
    env_arg: EnvArgs = ()
    """Keyword argument of the environment; the value is JSON or text. Repeat the option for several."""
    wrap: Wraps = ()
    """Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several."""
    horizon: Annotated[Int_, default("the environment's time limit")] = None
    """Steps after which an episode of a Gymnasium environment is truncated."""
    algorithm: Annotated[Name, default("none: only demonstrate")] = None
    """Algorithm that learns. dagger and daequil ask the person; others learn from episodes and corrections alone."""
    out: Annotated[Path_, default("runs/console")] = None
    """Directory of the session. Run the command again to continue."""
    demos: Annotated[Name, default("none")] = None
    """Demonstrations to learn from besides the person's: a bundled task, a file, or format:PATH."""
    episodes: Annotated[Int_, default("all")] = None
    """Number of episodes of --demos to use, from the first on."""
    budget: Annotated[Int_, default("no limit")] = None
    """Maximum number of answers, over all rounds."""
    questions: int = 20
    """Maximum number of questions per round."""
    choose: Choice = "novelty"
    """Choice of the questions. novelty: states far from known ones; spread: evenly over the learner's episodes."""
    seed: int = 0
    """Seed of training and of the starting states."""
    host: str = HOST
    """Address to listen on. Everyone who can reach it and has the token controls the console."""
    port: int = PORT
    """Port to listen on; 0: a free one."""
    browser: bool = True
    """Open the page in a browser, if there is a display."""
    step_timeout: float = STEP_TIMEOUT
    """Seconds that a step, reset or picture of the environment may take; 0: no limit."""


def console_command(words: Sequence[str]) -> int:
    """Run `understudy console` with these words; return the exit status."""
    algorithm, options = parse(list(words))
    env = named_env(options.env, options.env_arg, options.wrap, options.horizon)
    if env is None:
        raise NeedsError("no environment: pass --env, such as --env CartPole-v1 (`understudy envs` lists some)")
    out = options.out or "runs/console"
    if options.episodes is not None and options.demos is None:
        raise NeedsError("--episodes is a number of episodes of --demos: pass it too")
    result = console(
        env,
        algorithm,
        out,
        None if options.demos is None else load(options.demos, options.episodes),
        options.budget,
        options.questions,
        options.choose,
        options.seed,
        options.host,
        options.port,
        options.browser,
        options.step_timeout,
    )
    saved = "" if result is None else f" The trained run is in {out}/run."
    display.say(f"The session is in {out}; the same command continues it.{saved}")
    return 0


def parse(words: list[str]) -> tuple[Algorithm | None, ConsoleOptions]:
    """The algorithm with its settings, and the options, from the words after `understudy console`."""
    name = option(words, "--algorithm")
    if name is None:
        return None, tyro.cli(ConsoleOptions, args=words, prog="understudy console", description=ABOUT)
    find_own_code(name)
    kind: Any = find(name)
    settings = kind.preset(option(words, "--preset") or DEFAULT)
    words, moments = _without_moments(words)
    fields: list[Any] = []
    if kind.presets:
        about = tyro.conf.arg(help="Named settings, which become the defaults of the algorithm's options.")
        fields.append(("preset", Annotated[Literal[(DEFAULT, *kind.presets)], about], DEFAULT))
    fields.append(("console", OmitArgPrefixes[ConsoleOptions], default_of(ConsoleOptions())))
    fields.append(("settings", Annotated[kind, tyro.conf.arg(name="")], default_of(settings)))
    arguments: Any = dataclasses.make_dataclass("Arguments", fields)
    arguments.__doc__ = ABOUT
    parsed = tyro.cli(arguments, args=words, prog="understudy console")
    return _with_moments(parsed.settings, moments), parsed.console


def _without_moments(words: list[str]) -> tuple[list[str], str | None]:
    """The words without --moments NAME, and its name. A function is no value that tyro could read."""
    name = option(words, "--moments")
    if name is None:
        return words, None
    if f"--moments={name}" in words:
        return [word for word in words if word != f"--moments={name}"], name
    index = words.index("--moments")
    return words[:index] + words[index + 2 :], name


def _with_moments(algorithm: Algorithm, moments: str | None) -> Algorithm:
    if moments is None:
        return algorithm
    if not any(field.name == "moments" for field in dataclasses.fields(algorithm)):
        raise SettingError(f"{algorithm.card.name} takes no moments: leave out --moments")
    find_own_code(moments)
    changed: Algorithm = dataclasses.replace(algorithm, moments=load_name(moments, "moments"))  # type: ignore[call-arg]
    return changed
