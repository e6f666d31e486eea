"""The entry point of the command line: the table of commands, and one line for each error.

`COMMANDS` holds a help line and an import path for each command. tyro parses the words; only the module of the chosen
command is imported, so that `understudy --help` is quick.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from understudy.cli.failures import reported, stoppable
from understudy.core import notices, startup, streams
from understudy.core.errors import SettingError, unknown
from understudy.core.jax_variables import cache_size
from understudy.core.version import __version__

GROUPS = {
    "benchmark": "Compare algorithms on MuJoCo v5.",
    "demos": "Inspect, convert or record demonstrations.",
    "expert": "Train an expert for a task.",
    "reproduce": "Reproduce a figure or table of the paper.",
    "study": "Run a study, show its progress, write its report.",
}
COMMANDS = {
    "algorithms": ("List the algorithms: moments, needs, guarantees.", "understudy.cli.commands:algorithms"),
    "envs": ("List the environments, with their bundled data and experts.", "understudy.cli.commands:envs"),
    "train": ("Train policies: understudy train ALGORITHM --demos FILE.", "understudy.cli.train_command:train"),
    "evaluate": (
        "Evaluate a run's policies and print the gap to the expert.",
        "understudy.cli.commands:evaluate_command",
    ),
    "console": (
        "Open a page where a person demonstrates, takes over and answers: understudy console --env ENV.",
        "understudy.cli.console_command:console_command",
    ),
    "diagnose": (
        "Say why a policy is worse than the expert, or what is wrong with demonstrations.",
        "understudy.cli.diagnose_commands:diagnose_command",
    ),
    "advise": (
        "Say which algorithm to try first, from your demonstrations.",
        "understudy.cli.diagnose_commands:advise_command",
    ),
    "export": (
        "Write a policy for programs without understudy: NumPy, ONNX or JAX.",
        "understudy.cli.export_command:export_command",
    ),
    "publish": (
        "Write a directory for a model hub: model card, policy, configuration.",
        "understudy.cli.export_command:publish_command",
    ),
    "demos inspect": (
        "Check a data set of demonstrations and show its contents.",
        "understudy.cli.demos_commands:inspect",
    ),
    "demos convert": ("Convert demonstrations to another format.", "understudy.cli.demos_commands:convert"),
    "demos record": ("Record episodes of an expert.", "understudy.cli.demos_commands:record_command"),
    "expert train": (
        "Train an expert by reinforcement learning on the task reward.",
        "understudy.cli.expert_commands:train_command",
    ),
    "reproduce off-q": ("The offline figure.", "understudy.paper.off_q:reproduce_off_q"),
    "reproduce reward": (
        "The online figure: AdRIL, SQIL and GAIL by environment steps.",
        "understudy.paper.reward:reproduce_reward",
    ),
    "reproduce balanced": (
        "AdRIL with balanced and with proportional sampling, on Ant.",
        "understudy.paper.balanced:reproduce_balanced",
    ),
    "reproduce f-frequency": (
        "AdRIL with different numbers of steps between updates of f.",
        "understudy.paper.f_frequency:reproduce_f_frequency",
    ),
    "reproduce ablation": (
        "Ablation of AdRIL's settings, and the episodes in which it fails.",
        "understudy.paper.ablation:reproduce_ablation",
    ),
    "reproduce bc-table": (
        "The table of experts and behavioral cloning.",
        "understudy.paper.bc_table:reproduce_bc_table",
    ),
    "reproduce forest": (
        "The forest figure: DAgger crashes, DAeQuIL does not.",
        "understudy.paper.forest:reproduce_forest",
    ),
    "reproduce lander": (
        "The LunarLander figure, by round.",
        "understudy.paper.lander:reproduce_lander",
    ),
    "reproduce survival": (
        "CartPole with and without absorbing states, with an expert that soon drops the pole.",
        "understudy.paper.survival:reproduce_survival",
    ),
    "reproduce filter-tree": (
        "Episodes of a search in TREE, without resets and from the expert's states.",
        "understudy.paper.filter_tree:reproduce_filter_tree",
    ),
    "study run": (
        "Run a study; rerun to resume, or in a second terminal to share the work.",
        "understudy.cli.study_commands:run_command",
    ),
    "study status": ("Show the progress of a study.", "understudy.cli.study_commands:status_command"),
    "study report": (
        "Write a study's report: a page, figures and tables.",
        "understudy.cli.study_commands:report_command",
    ),
    "benchmark run": (
        "Train and evaluate the benchmark's runs that have not finished.",
        "understudy.paper.benchmark:run_command",
    ),
    "benchmark report": (
        "Print the benchmark's table and draw its figure, from the stored returns.",
        "understudy.paper.benchmark_table:report_command",
    ),
    "theory": (
        "Compute the paper's bounds and equilibria on finite MDPs.",
        "understudy.paper.theory.command:theory_command",
    ),
    "demo": ("Train on bundled demonstrations and draw a figure.", "understudy.cli.demo:demo_command"),
}
ABOUT = "Imitation learning by moment matching."


def main() -> None:
    """Run the command in `sys.argv` and exit. docs/configuration.md lists the exit statuses."""
    streams.prepare()
    with notices.shown_as_lines(), stoppable() as signal_:
        try:
            startup.begin()
            status = _flushed(run_command, sys.argv[1:])
        except BaseException as error:  # noqa: BLE001 (`reported` tells what every one of them means)
            status = reported(error)
        finally:
            startup.end()
        sys.exit(signal_.status(status))


def _flushed(act: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """The exit status of a command, once all that it printed has been written."""
    try:
        status: int = act(words)
    except SystemExit as done:  # tyro exits after --help and after a mistake in the options
        if isinstance(done.code, str):
            raise
        status = done.code or 0
    sys.stdout.flush()
    return status


def run_command(words: Sequence[str]) -> int:
    """Run one command, given as the words after `understudy`; return the exit status."""
    words = list(words)
    cache_size()  # raises if the variable is wrong
    if "--out=" in words or ("--out", "") in pairwise(words):  # as with an unset variable of the shell
        raise SettingError("--out is empty: pass a path, or leave the option out")
    if words[:1] in (["--version"], ["version"]):
        print(f"understudy {__version__}")
        return 0
    if words in ([], ["help"], ["-h"]) or (len(words) == 1 and words[0] in GROUPS):
        words = [*(word for word in words if word in GROUPS), "--help"]
    if words[0] == "help":  # as in git
        words = [*words[1:], "--help"]
    name = _name(words)
    if name in ("train", "console"):  # their options depend on the algorithm
        status: int = load(COMMANDS[name][1])(words[1:])
        return status
    _app(name).cli(prog="understudy", description=ABOUT, args=words)
    return 0


def _name(words: list[str]) -> str | None:
    """The command that the words begin with; None if the next word is an option such as --help."""
    group = f"{words[0]} " if words[0] in GROUPS else ""
    length = 2 if group else 1
    if words[length - 1].startswith("-"):
        return None
    name = " ".join(words[:length])
    known = [command for command in COMMANDS if command.startswith(group)]
    if name not in known:
        raise unknown("command", name, known, f"`understudy {group}--help` lists them.")
    return name


def _app(chosen: str | None) -> Any:
    """All commands as tyro's subcommands; only the chosen one has its options."""
    from tyro.extras import SubcommandApp

    app, groups = SubcommandApp(), dict[str, SubcommandApp]()
    for name, (about, path) in COMMANDS.items():
        *group, last = name.split()
        parent = app
        if group:
            if group[0] not in groups:
                groups[group[0]] = app.command(SubcommandApp(), name=group[0], help=GROUPS[group[0]])
            parent = groups[group[0]]
        if name == chosen:
            parent.command(name=last)(_described(load(path)))
        else:
            parent.command(name=last, help=about)(lambda: None)
    return app


def _described(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, with the help of each option on one line: tyro keeps the line breaks before indented lines."""
    command.__doc__ = re.sub(r"\n {8,}(?=\S)", " ", inspect.cleandoc(command.__doc__ or ""))
    return command


def load(path: str) -> Callable[..., Any]:
    """The function at an import path, "module:function"."""
    module, function = path.split(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded
