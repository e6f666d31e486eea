"""Sweeps on the command line: `understudy train bc --lr 1e-4 3e-4` trains once with each value.

Several values of a setting are a sweep, and so is a repeated option of a setting that is a list itself: `--hidden 64 64
--hidden 256 256`. Each combination is a run of its own in OUT, with its own checkpoint:

    OUT/lr=0.0001/    OUT/lr=0.0003/
"""

import dataclasses
import itertools
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from understudy.cli.train_options import evaluate_command
from understudy.core import display
from understudy.core.locks import claim_output
from understudy.core.paths import check_new_directory
from understudy.game import Algorithm
from understudy.studies.sweeps import check_axes, is_tuple
from understudy.train import resuming
from understudy.train.results import Result, hyperparameters, load_run, payoff_text
from understudy.train.tables import provenance

OUT = "--out"
HINT = "choose another --out, or add --replace"
"""What to do if the directory holds a run."""


class Option(NamedTuple):
    """An option of a command: its words as they were typed, and its values."""

    flag: str
    words: list[str]
    values: list[str]


class Combination(NamedTuple):
    """One command of a sweep."""

    words: list[str]
    """The words after `understudy train`, without --out."""
    swept: list[str]
    """Dotted names of the settings that are swept."""

    def name(self, algorithm: Algorithm) -> str:
        """The name of its directory: "lr=0.0001,hidden=64x64"."""
        return ",".join(f"{name}={_text(_setting(algorithm, name))}" for name in self.swept)


def combinations(algorithm: Algorithm, words: Sequence[str]) -> list[Combination]:
    """The commands of a sweep, from the words after `understudy train`. A single one if nothing is swept."""
    options = list(_options(words[1:]))
    axes: dict[str, list[list[str]]] = {}
    for flag, (name, several) in _settings(algorithm, ""):
        given = [option.values for option in options if option.flag == flag]
        if several and len(given) > 1:
            axes[name] = given
        elif not several and len(given) == 1 and len(given[0]) > 1:
            axes[name] = [[value] for value in given[0]]
    if not axes:
        return [Combination(list(words), [])]
    check_axes({name: [" ".join(value) for value in values] for name, values in axes.items()})
    flags = {_flag(name) for name in axes} | {OUT}
    rest = [word for option in options if option.flag not in flags for word in option.words]
    commands = []
    for values in itertools.product(*axes.values()):
        chosen = [word for name, value in zip(axes, values, strict=True) for word in (_flag(name), *value)]
        commands.append(Combination([words[0], *rest, *chosen], list(axes)))
    return commands


def output(words: Sequence[str]) -> list[str]:
    """The words of --out."""
    return [word for option in _options(words[1:]) if option.flag == OUT for word in option.words]


def train_all(
    commands: Sequence[Combination],
    parse: Callable[[Sequence[str]], tuple[Algorithm, Any, Any, Any]],
    train: Callable[..., Result],
    out: str,
    replace: bool,
) -> int:
    """Train every combination that this command has not trained before, and compare them; return the exit status."""
    names = [command.name(parse(command.words)[0]) for command in commands]
    check_axes({"sweep": names})
    places = [str(Path(out) / name) for name in names]
    results: list[tuple[str, Result]] = []
    with claim_output(out):
        check_new_directory(out, [f"{commands[0].swept[0]}=*"])
        runs = [[*command.words, OUT, place] for command, place in zip(commands, places, strict=True)]
        kept = [not replace and _is_trained(words, place) for words, place in zip(runs, places, strict=True)]
        for place, done in zip(places, kept, strict=True):
            if not (done or replace or resuming.interrupted(place)):
                check_new_directory(place, hint=HINT)
        for number, (words, place, done) in enumerate(zip(runs, places, kept, strict=True), 1):
            display.say(f"{number} of {len(runs)}: {names[number - 1]}{' is already trained' if done else ''}")
            sys.argv = _arguments(words)
            result = load_run(place) if done else train(*parse(words), words)
            if result.interrupted:
                display.say("\nThe sweep is interrupted. Rerun the same command: it resumes with this combination.")
                return 130
            results.append((names[number - 1], result))
    _compare(results, out)
    return 0


def _compare(results: Sequence[tuple[str, Result]], out: str) -> None:
    """Print a row for each combination, and the best one."""
    payoffs = [result.runs[result.selected].payoff for _, result in results]
    best = min(range(len(results)), key=lambda i: (payoffs[i] != payoffs[i], payoffs[i]))
    rows = [
        (name, run.episodes, run.seed, payoff_text(run), run.status, "best" if i == best else "")
        for i, (name, result) in enumerate(results)
        for run in [result.runs[result.selected]]
    ]
    headers = ("settings", ">episodes", ">seed", ">held-out payoff", "status", "")
    display.say("")
    display.show(headers, rows, f"{len(results)} combinations, the selected policy of each")
    name, result = results[best]
    display.say(
        f"\n{name} has the lowest payoff on held-out demonstrations, which is not its return. "
        f"To measure the gap to the expert: {evaluate_command(result, str(Path(out) / name))}"
    )


def _is_trained(words: Sequence[str], place: str) -> bool:
    """Whether a directory holds the finished run of this very command."""
    if resuming.interrupted(place) is not False:
        return False
    before, sys.argv = sys.argv, _arguments(words)
    try:
        return bool(load_run(place).config["command"] == provenance()["command"])
    finally:
        sys.argv = before


def _arguments(words: Sequence[str]) -> list[str]:
    """`sys.argv` of the command that trains one combination. Its run records it."""
    return [sys.argv[0], "train", *words]


def _options(words: Sequence[str]) -> Iterator[Option]:
    """The words of a command, option by option."""
    current: list[str] = []
    for word in [*words, "--"]:
        if word.startswith("--") and current:
            first, *values = current
            flag, equals, value = first.partition("=")
            yield Option(flag.replace("_", "-"), current, ([value] if equals else []) + values)
            current = []
        current = [*current, word]


def _settings(part: Any, prefix: str) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Each option of an algorithm's settings, its dotted name, and whether it takes several values by itself."""
    hints = typing.get_type_hints(type(part))
    for field in dataclasses.fields(part):
        value, name = getattr(part, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _settings(value, f"{name}.")
        else:
            yield _flag(name), (name, is_tuple(hints[field.name]))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _setting(algorithm: Algorithm, name: str) -> Any:
    value: Any = hyperparameters(algorithm)
    for part in name.split("."):
        value = value[part]
    return value


def _text(value: Any) -> str:
    return "x".join(map(_text, value)) if isinstance(value, list) else str(value)
