"""Every error a user can cause, by name. A message says what is wrong, its value, and the way out, in one line."""

import dataclasses
import difflib
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat, SupportsIndex

CLOSE = 0.5
"""How alike two names are at least, where one is suggested for the other."""


class UnderstudyError(Exception):
    """The base of all named errors; the command line prints its message as one line and exits with status 2."""


class DemonstrationError(UnderstudyError, ValueError):
    """Demonstrations that cannot be read, do not add up, or do not fit their task."""


class SpecError(UnderstudyError, ValueError):
    """An environment, observation or action whose shape or kind does not fit."""


class SettingError(UnderstudyError, ValueError):
    """A hyperparameter or argument outside its range."""


class NeedsError(UnderstudyError, ValueError):
    """An algorithm was not given what its moments need: an environment, an expert."""


class UnknownNameError(UnderstudyError, KeyError):
    """A name that stands for nothing here; the message suggests the nearest one that does."""

    def __str__(self) -> str:  # KeyError would show the repr
        return str(self.args[0])


class RunError(UnderstudyError):
    """A run directory or policy file that is missing, incomplete, or already taken."""


class NoSpaceError(RunError):
    """The disk is full; the message says what is safe."""


class ExtraError(UnderstudyError, ImportError):
    """An optional dependency is not installed; the message names the command that installs it."""


class WorkerError(UnderstudyError, RuntimeError):
    """What plays the environments of some runs has failed, or its process has ended."""


class AlgorithmError(UnderstudyError, TypeError):
    """An algorithm does not keep to the protocol of `Algorithm`."""


class DivergedError(UnderstudyError, ArithmeticError):
    """Every run of a batch produced NaN or infinity."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "", place: str = "") -> UnknownNameError:
    """The error for an unknown `kind` called `name`, found in some `place`, suggesting the nearest of `known`."""
    known = sorted(known)
    near = {option: _likeness(name.lower(), option.lower()) for option in known}
    close = [option for option in known if near[option] >= CLOSE and near[option] == max(near.values())]
    way_out = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}."
    where = f" in {place}" if place else ""
    return UnknownNameError(f"unknown {kind} '{name}'{where}: {way_out}{' ' + hint if hint else ''}")


def install_command(extra: str) -> str:
    """The commands that install one of the package's extras."""
    return f"pip install 'understudy-il[{extra}]' (in a clone: pip install '.[{extra}]')"


def missing_extra(extra: str, needs: str) -> ExtraError:
    """The error for an extra that is not installed; `needs` says what needs which package."""
    return ExtraError(f"{needs}: {install_command(extra)}")


def _likeness(name: str, option: str) -> float:
    """From 0 to 1, and above that of any other where letters only changed places."""
    return 1.0 if sorted(name) == sorted(option) else difflib.SequenceMatcher(None, name, option).ratio()


def check_positive(**settings: Any) -> None:
    """Refuse settings that are not positive numbers."""
    _check_numbers(settings, "above 0", lambda value: 0 < value < float("inf"))


def check_not_negative(**settings: Any) -> None:
    """Refuse settings that are neither 0 nor positive numbers."""
    _check_numbers(settings, "of at least 0", lambda value: 0 <= value < float("inf"))


def check_fraction(**settings: Any) -> None:
    """Refuse settings that are not numbers from 0 up to, but not including, 1."""
    _check_numbers(settings, "from 0 to below 1", lambda value: 0 <= value < 1)


def check_share(**settings: Any) -> None:
    """Refuse settings that are not numbers from 0 to 1."""
    _check_numbers(settings, "from 0 to 1", lambda value: 0 <= value <= 1)


def check_finite(**settings: Any) -> None:
    """Refuse settings that are not finite numbers, of either sign."""
    _check_numbers(settings, "that is finite", math.isfinite)


def _check_numbers(settings: dict[str, Any], words: str, fits: Callable[[float], bool]) -> None:
    for name, value in settings.items():
        if isinstance(value, bool | str) or not isinstance(value, SupportsFloat) or not fits(float(value)):
            raise SettingError(f"{name} is {value!r}: a number {words} is needed")


def check_whole(least: int, **settings: Any) -> None:
    """Refuse settings that are not whole numbers of at least `least`."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < least:
            raise SettingError(f"{name} is {value!r}: a whole number of at least {least} is needed")


def check_choice(choices: tuple[str, ...], **settings: Any) -> None:
    """Refuse settings that are not among the choices."""
    for name, value in settings.items():
        if value not in choices:
            raise SettingError(f"{name} is {value!r}: choose one of {', '.join(map(repr, choices))}")


def check_callable(words: str, **settings: Any) -> None:
    """Refuse settings that are neither None nor functions."""
    for name, value in settings.items():
        if value is not None and not callable(value):
            raise SettingError(f"{name} is {value!r}: a function of {words} is needed")


def check_kind(kind: type, **settings: Any) -> None:
    """Refuse settings that are not of the given class."""
    for name, value in settings.items():
        if not isinstance(value, kind):
            raise SettingError(f"{name} is {value!r}: a {kind.__name__} is needed, such as {kind.__name__}()")


def check_names(kind: type, settings: Iterable[str]) -> None:
    """Refuse names that a record's class has no setting of; a part of it that has one is named."""
    own = {field.name: field.default for field in dataclasses.fields(kind) if field.init}
    for name in settings:
        if name not in own:
            parts = [part for part, value in own.items() if name in getattr(value, "__dataclass_fields__", {})]
            hint = f"Or is it that of {' or '.join(parts)}, as in {parts[0]}={{'{name}': ...}}?" if parts else ""
            raise unknown("hyperparameter", name, own, hint, place=kind.__name__)


def check_switches(record: Any) -> None:
    """Refuse what is neither true nor false in a field that is one of the two: "no" would pass for true."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.type in (bool, "bool") and not isinstance(value, bool):
            raise SettingError(f"{field.name} is {value!r}: True or False is needed")


def check_layers(**settings: Any) -> None:
    """Refuse hidden layers that are not a tuple of positive whole numbers."""
    for name, value in settings.items():
        if not isinstance(value, tuple | list):
            raise SettingError(f"{name} is {value!r}: a tuple of layer widths is needed, such as (256, 256)")
        check_whole(1, **{f"{name}[{i}]": width for i, width in enumerate(value)})


def check_seed(seed: int) -> None:
    """Refuse a seed that NumPy or JAX would not take."""
    check_whole(0, seed=seed)
    if seed >= 2**32:
        raise SettingError(f"seed is {seed}: it must be below 2**32")
