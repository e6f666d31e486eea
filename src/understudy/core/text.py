"""Text that comes from files or other programs, made safe to print."""

import unicodedata

LONGEST = 120
"""Characters of a quoted text that are shown."""


def printable(text: object) -> str:
    """The text without control characters and escape sequences: each is replaced by "?", except line breaks."""
    return "".join(c if c == "\n" or unicodedata.category(c)[0] != "C" else "?" for c in str(text))


def quoted(text: object, longest: int = LONGEST) -> str:
    """The text for an error message: on one line, printable, shortened."""
    return shortened(" ".join(printable(text).split()), longest)


def shortened(text: str, longest: int) -> str:
    """The text, cut at `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def is_line(value: object, longest: int = 500) -> bool:
    """Whether a value is one line of printable text."""
    return isinstance(value, str) and len(value) <= longest and "\n" not in value and printable(value) == value
