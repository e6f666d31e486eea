"""The named errors and the checks that raise them.

A message is one line: the name that is wrong, its value, and what is allowed or what to type.
"""

import dataclasses
import difflib
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat, SupportsIndex

MOST_LAYERS = 100
"""Layers of a network. Compiling thousands takes hours."""
MIN_SIMILARITY = 0.5
"""Suggest a known name only if it is at least this similar, from 0 to 1."""
MOST_LISTED = 30
"""List more known names than this only if no hint says where to find them."""


class UnderstudyError(Exception):
    """The base class of all named errors. The command line prints the message and exits with status 2."""


class DemonstrationError(UnderstudyError, ValueError):
    """Demonstrations are unreadable, inconsistent, or do not fit the environment."""


class SpecError(UnderstudyError, ValueError):
    """An environment, observation, action or array has the wrong shape or type."""


class SettingError(UnderstudyError, ValueError):
    """A hyperparameter or argument is outside its range."""


class NeedsError(UnderstudyError, ValueError):
    """An algorithm needs an environment or an expert that was not given."""


class UnknownNameError(UnderstudyError, KeyError):
    """Unknown name. The message suggests the most similar known one."""

    def __str__(self) -> str:  # KeyError would show the repr
        return str(self.args[0])


class RunError(UnderstudyError):
    """A run directory or file is missing, incomplete, or already exists."""


class NoSpaceError(RunError):
    """The disk is full. The message says which results are safe."""


class ExtraError(UnderstudyError, ImportError):
    """An optional dependency is not installed. The message has the command that installs it."""


class WorkerError(UnderstudyError, RuntimeError):
    """A worker process that steps environments failed or died."""


class RenderError(UnderstudyError, RuntimeError):
    """An environment cannot be drawn here."""


class AlgorithmError(UnderstudyError, TypeError):
    """An algorithm does not keep to the protocol of `Algorithm`."""


class DivergedError(UnderstudyError, ArithmeticError):
    """All runs of a batch produced NaN or infinity."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "", where: str = "") -> UnknownNameError:
    """The error for an unknown `name` of some `kind`. It suggests the most similar of `known`, or lists them.

    A long list is left out if `hint` says where it is.
    """
    known = sorted(known)
    similarity = {option: _similarity(name.lower(), option.lower()) for option in known}
    best = max(known, key=lambda option: similarity[option], default=None)
    if best is not None and similarity[best] >= MIN_SIMILARITY:
        suggestion = f"did you mean '{best}'?"
    else:
        suggestion = "" if hint and len(known) > MOST_LISTED else f"known: {', '.join(known)}."
    location = f" in {where}" if where else ""
    return UnknownNameError(f"unknown {kind} '{name}'{location}: {' '.join(filter(None, (suggestion, hint)))}")


def install_command(extra: str) -> str:
    """The commands that install one of the package's extras."""
    return f"pip install 'understudy-il[{extra}]' (in a clone: pip install '.[{extra}]')"


def missing_extra(extra: str, needs: str) -> ExtraError:
    """The error for an extra that is not installed; `needs` says what needs which package."""
    return ExtraError(f"{needs}: {install_command(extra)}")


def _similarity(name: str, option: str) -> float:
    """From 0 to 1. Names with the same letters in another order count as equal."""
    return 1.0 if sorted(name) == sorted(option) else difflib.SequenceMatcher(None, name, option).ratio()


def check_positive(**settings: Any) -> None:
    """Raise unless every setting is a finite number above 0."""
    _check_numbers(settings, "above 0", lambda value: 0 < value < float("inf"))


def check_not_negative(**settings: Any) -> None:
    """Raise unless every setting is a finite number of at least 0."""
    _check_numbers(settings, "of at least 0", lambda value: 0 <= value < float("inf"))


def check_fraction(**settings: Any) -> None:
    """Raise unless every setting is in [0, 1)."""
    _check_numbers(settings, "from 0 to below 1", lambda value: 0 <= value < 1)


def check_inside(**settings: Any) -> None:
    """Raise unless every setting is in (0, 1)."""
    _check_numbers(settings, "above 0 and below 1", lambda value: 0 < value < 1)


def check_share(**settings: Any) -> None:
    """Raise unless every setting is in [0, 1]."""
    _check_numbers(settings, "from 0 to 1", lambda value: 0 <= value <= 1)


def check_finite(**settings: Any) -> None:
    """Raise unless every setting is a finite number."""
    _check_numbers(settings, "that is finite", math.isfinite)


def _check_numbers(settings: dict[str, Any], words: str, fits: Callable[[float], bool]) -> None:
    for name, value in settings.items():
        if isinstance(value, bool | str) or not isinstance(value, SupportsFloat) or not fits(float(value)):
            raise SettingError(f"{name} is {value!r}: a number {words} is needed")


def check_whole(least: int, **settings: Any) -> None:
    """Raise unless every setting is an integer of at least `least`."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < least:
            raise SettingError(f"{name} is {value!r}: a whole number of at least {least} is needed")


def check_choice(choices: tuple[str, ...], **settings: Any) -> None:
    """Raise unless every setting is one of the choices."""
    for name, value in settings.items():
        if value not in choices:
            raise SettingError(f"{name} is {value!r}: choose one of {', '.join(map(repr, choices))}")


def check_callable(words: str, **settings: Any) -> None:
    """Raise unless every setting is None or callable."""
    for name, value in settings.items():
        if value is not None and not callable(value):
            raise SettingError(f"{name} is {value!r}: a function of {words} is needed")


def check_kind(kind: type, **settings: Any) -> None:
    """Raise unless every setting is an instance of the class."""
    for name, value in settings.items():
        if not isinstance(value, kind):
            raise SettingError(f"{name} is {value!r}: a {kind.__name__} is needed, such as {kind.__name__}()")


def check_names(kind: type, settings: Iterable[str]) -> None:
    """Raise unless the class has all these settings. If a nested settings class has the name, the message says so."""
    own = {field.name: field.default for field in dataclasses.fields(kind) if field.init}
    for name in settings:
        if name not in own:
            parts = [part for part, value in own.items() if name in getattr(value, "__dataclass_fields__", {})]
            hint = f"Or set it in {' or '.join(parts)}: {parts[0]}={{'{name}': ...}}." if parts else ""
            raise unknown("hyperparameter", name, own, hint, where=kind.__name__)


def check_switches(record: Any) -> None:
    """Raise unless every boolean field is a bool. The string "no" would count as true."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.type in (bool, "bool") and not isinstance(value, bool):
            raise SettingError(f"{field.name} is {value!r}: True or False is needed")


def check_layers(**settings: Any) -> None:
    """Raise unless every setting is a tuple of positive layer widths."""
    for name, value in settings.items():
        if not isinstance(value, tuple | list):
            raise SettingError(f"{name} is {value!r}: a tuple of layer widths is needed, such as (256, 256)")
        if len(value) > MOST_LAYERS:
            raise SettingError(f"{name} has {len(value)} layers: at most {MOST_LAYERS} are allowed")
        check_whole(1, **{f"{name}[{i}]": width for i, width in enumerate(value)})


def check_seed(seed: int) -> None:
    """Raise unless the seed is valid for NumPy and JAX."""
    check_whole(0, seed=seed)
    if seed >= 2**32:
        raise SettingError(f"seed is {seed}: a whole number from 0 to 2**32 - 1 is needed")
