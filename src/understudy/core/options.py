"""Types of command-line options that several commands share."""

from typing import Annotated, Any

import tyro
from tyro.conf import Positional, UseAppendAction

Name = Annotated[str | None, tyro.conf.arg(metavar="NAME")]
Path_ = Annotated[str | None, tyro.conf.arg(metavar="PATH")]
# tyro shows `int | None` as `{None}|INT`; these show what is typed.
Int_ = Annotated[int | None, tyro.conf.arg(metavar="INT")]
Float_ = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
Ints_ = Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="[INT ...]")]
Names_ = Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[NAME ...]")]
Directory = Annotated[str, tyro.conf.arg(metavar="PATH")]
EnvArgument = Annotated[Positional[str], tyro.conf.arg(metavar="ENV")]
FileArgument = Annotated[Positional[str], tyro.conf.arg(metavar="FILE")]
RunArgument = Annotated[Positional[str], tyro.conf.arg(metavar="RUN")]
Imports = Annotated[UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="import", metavar="MODULE")]
"""`--import MODULE`, repeatable: modules that files may name code in. Pass it to `core.imports.allow_imports`."""

EnvArgs = Annotated[UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="KEY=VALUE")]
"""`--env-arg KEY=VALUE`, repeatable. `envs.naming.parse_args` parses them."""
Wraps = Annotated[UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="MODULE:CLASS")]
"""`--wrap module:Class`, repeatable."""


def default(text: str) -> Any:
    """An annotation that describes an option's default in its help, in place of the value: `(default: text)`."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")
