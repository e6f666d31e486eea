"""The command line: from words to a function of `commands`, and from errors to one line."""

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

from understudy.algorithms import ALGORITHMS, find
from understudy.cli import commands, expert_commands, study_commands
from understudy.core.errors import SettingError, UnderstudyError, unknown
from understudy.core.version import __version__
from understudy.game import DEFAULT
from understudy.paper import (
    reproduce,
    reproduce_ablation,
    reproduce_forest,
    reproduce_lander,
    reproduce_reward,
    reproduce_survival,
    reproduce_tables,
)
from understudy.paper import theory_command as theory
from understudy.train import resuming

COMMANDS: dict[str, tuple[str, Callable[..., Any] | None]] = {
    "algorithms": ("the taxonomy of algorithms", commands.algorithms),
    "envs": ("the environments that can be named", commands.envs),
    "train": ("learn policies: understudy train ALGORITHM --demos FILE", None),
    "evaluate": ("play a run's policies and measure the gap to the expert", commands.evaluate),
    "demos inspect": ("show what a file of demonstrations holds", commands.inspect),
    "demos collect": ("record an expert's episodes", commands.collect_command),
    "expert train": ("learn a task by its own reward, and keep an expert", expert_commands.train_command),
    "reproduce off-q": ("the paper's offline figure, with its points beside ours", reproduce.reproduce_off_q),
    "reproduce reward": (
        "the paper's online figure: AdRIL, SQIL and GAIL by environment steps",
        reproduce_reward.reproduce_reward,
    ),
    "reproduce balanced": ("AdRIL's two ways of sampling, on Ant", reproduce_reward.reproduce_balanced),
    "reproduce f-frequency": ("AdRIL by how often its f moves", reproduce_reward.reproduce_f_frequency),
    "reproduce ablation": (
        "what AdRIL's stability rests on, and where its episodes fail",
        reproduce_ablation.reproduce_ablation,
    ),
    "reproduce bc-table": ("the paper's table of experts and clones", reproduce.reproduce_bc_table),
    "reproduce forest": ("the paper's forest: DAgger's crash, DAeQuIL's flights", reproduce_forest.reproduce_forest),
    "reproduce lander": ("the paper's LunarLander figure, by round", reproduce_lander.reproduce_lander),
    "reproduce survival": (
        "absorbing states, and none, on CartPole with an expert that soon drops the pole",
        reproduce_survival.reproduce_survival,
    ),
    "reproduce tables": ("the page of stored results beside the paper's, anew", reproduce_tables.reproduce_tables),
    "study run": ("these algorithms, tasks, data sizes and seeds: what is missing of them", study_commands.run_command),
    "study status": ("how far a study is", study_commands.status_command),
    "study report": ("a page, figures and tables of a study", study_commands.report_command),
    "theory": ("the paper's bounds and equilibria, computed on finite MDPs", theory.theory_command),
    "demo": ("learn from bundled demonstrations and draw a picture", commands.demo_command),
}


def main() -> None:
    """The entry point: 0 for success, 2 for a mistake the user can mend, 130 for an interruption."""
    try:
        sys.exit(_dispatch(sys.argv[1:]))
    except UnderstudyError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        print(f"error: {error.strerror or error}{f': {error.filename!r}' if error.filename else ''}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stopped:
        print(f"\ninterrupted: {str(stopped) or 'nothing was written'}", file=sys.stderr)
        sys.exit(130)


def _dispatch(words: list[str]) -> int:
    if words[:1] in ([], ["-h"], ["--help"], ["help"]):
        _help()
        return 0
    if words[0] in ("--version", "version"):
        print(f"understudy {__version__}")
        return 0
    group = next((name.split()[0] for name in COMMANDS if name.startswith(f"{words[0]} ")), None)
    if group is not None and words[1:2] in ([], ["-h"], ["--help"]):
        _help(group)
        return 0
    length = 1 if group is None else 2
    name = " ".join(words[:length])
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, "`understudy --help` lists them.")
    _, function = COMMANDS[name]
    if function is not None:
        tyro.cli(function, args=words[length:], prog=f"understudy {name}")
        return 0
    if len(words) < 2 or words[1] in ("-h", "--help"):
        print("usage: understudy train ALGORITHM [options]\n       understudy train --resume DIR\n")
        print(f"ALGORITHM is one of {', '.join(ALGORITHMS)}. `understudy train ALGORITHM --help` shows its settings.")
        print("--resume goes on with the run of --out DIR, with its own settings, after it was killed or interrupted.")
        return 0
    if not resuming.asked(words[1:]):
        return _train(words[1:])
    resumed = resuming.resumed(words[1:])
    return 0 if resumed is None else _train(*resumed)


def _train(words: list[str], out: str | None = None) -> int:
    """`understudy train` and these words; `out` is where its run is now, if not where they say."""
    algorithm = find(words[0])
    rest, preset = _preset(words[1:])
    default = algorithm.preset(preset)
    arguments: Any = dataclasses.make_dataclass(
        "Arguments",
        [
            ("options", Annotated[commands.Train, tyro.conf.arg(name="")]),
            (
                "algorithm",
                Annotated[algorithm, tyro.conf.arg(name="")],
                dataclasses.field(default_factory=lambda: default),
            ),
        ],
    )
    named = f" Named settings: --preset {' or '.join(algorithm.presets)}." if algorithm.presets else ""
    arguments.__doc__ = f"{algorithm.__doc__}{named}"
    parsed = tyro.cli(arguments, args=rest, prog=f"understudy train {words[0]}")
    options = parsed.options if out is None else dataclasses.replace(parsed.options, out=out)
    return commands.train(parsed.algorithm, options, words)


def _preset(words: list[str]) -> tuple[list[str], str]:
    """The words without --preset NAME, and the name: it decides the defaults of all other settings."""
    for index, word in enumerate(words):
        if word.startswith("--preset="):
            return words[:index] + words[index + 1 :], word.removeprefix("--preset=")
        if word == "--preset":
            if index + 1 == len(words):
                raise SettingError("--preset needs a name")
            return words[:index] + words[index + 2 :], words[index + 1]
    return words, DEFAULT


def _help(prefix: str = "") -> None:
    print("usage: understudy COMMAND [options]\n\nImitation learning by moment matching.\n")
    width = max(map(len, COMMANDS)) + 2
    for name, (about, _) in COMMANDS.items():
        if name.startswith(prefix):
            print(f"  {name:<{width}}{about}")
    print("\n`understudy COMMAND --help` shows its options.")
