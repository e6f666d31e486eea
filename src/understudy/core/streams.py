"""Standard input, output and error that may be closed, cut off, hung up, or unable to show all characters."""

import codecs
import io
import os
import select
import sys
import unicodedata
from typing import Any, TextIO

PLAIN = "understudy.plain"
"""The codecs' error handler that `prepare` sets: a character that a stream cannot encode becomes a plain one."""
SIGNS = dict.fromkeys("−–—", "-") | dict.fromkeys("‘’", "'") | dict.fromkeys("“”", '"')
SIGNS |= {"±": "+/-", "×": "x", "·": "*", "•": "*", "→": "->", "≤": "<=", "≥": ">=", "≈": "~", "‖": "||"}
SIGNS |= {"√": "sqrt", "∞": "inf", "ε": "eps"}


def plain(char: str) -> str:
    """An ASCII text for a character: "+/-" for ±, "pi" for π, "e" for é; "?" if there is none."""
    if char in SIGNS:
        return SIGNS[char]
    name = unicodedata.name(char, "")
    if name.startswith("GREEK"):
        return name.split(" WITH ")[0].split()[-1].lower()
    if name.startswith("BOX DRAWINGS"):
        return {"HORIZONTAL": "-", "VERTICAL": "|"}.get(name.split()[-1], "+")
    parts = unicodedata.normalize("NFKD", char)
    return "".join(part for part in parts if part.isascii()) or "?"


def _encode_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(plain(char) for char in error.object[error.start : error.end]), error.end


codecs.register_error(PLAIN, _encode_plain)


def prepare() -> None:
    """Make the three standard streams safe to use, before anything else is opened or printed.

    A closed one becomes the null device: otherwise the next file to be opened would take its number, and be written to
    by `print`. Characters that a stream cannot encode are replaced.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (open until the process ends)
    sys.stdout, sys.stderr = _safe(sys.stdout, 1, "standard output"), _safe(sys.stderr, 2, "standard error")


def _safe(stream: TextIO | None, number: int, name: str) -> TextIO:
    """The stream with this number. One that is no file of the system, as in tests, stays as it is."""
    if stream is not None:
        try:
            stream.flush()
            if stream.fileno() != number:
                return stream
        except (OSError, ValueError):
            return stream
    buffered = io.BufferedWriter(_Named(number, name))
    encoding = "utf-8" if stream is None else stream.encoding
    lines = stream is None or stream.isatty() or number == 2
    return io.TextIOWrapper(buffered, encoding=encoding, errors=PLAIN, line_buffering=lines)


def message_stream() -> TextIO:
    """A stream of lines to standard error, for a process whose own streams are redirected. It never raises."""
    return _safe(None, 2, "standard error")


class _Named(io.FileIO):
    """A standard stream whose errors name it. Those of standard error are dropped: no message may end a command."""

    def __init__(self, number: int, name: str):
        super().__init__(number, "w", closefd=False)
        self.title, self.optional = name, number == 2

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self.optional:
                return len(data)
            error.filename = self.title
            raise


def encodable(text: str) -> str:
    """The text as standard output will show it."""
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, PLAIN).decode(encoding)


def silence(*numbers: int) -> None:
    """Send the streams with these numbers to the null device from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(null, number)
    os.close(null)


def is_cut_off(stream: Any) -> bool:
    """Whether the reader of a stream has closed it, as `| head` does."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):  # not a file, or closed
        return False


class Messages(io.TextIOBase):
    """Standard error for messages that nobody must see: a terminal that is gone, or a full disk, stops no command."""

    def __init__(self) -> None:
        self._stream = sys.stderr  # rich's progress bar redirects sys.stderr to its own console, which may be this one

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # there is no other place to say so
            return len(text)
        return len(text)

    def flush(self) -> None:
        """`write` has flushed."""

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "ascii"
