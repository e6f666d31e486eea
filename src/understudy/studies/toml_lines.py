"""Where the keys of a TOML text stand, which the standard library's reader does not say.

The text has been read by `tomllib` before, so it is known to be TOML: this walks over it and judges nothing.
"""

import re
import tomllib

Path = tuple[str | int, ...]
"""Keys, and indices in arrays of tables: ("algorithm", 1, "settings", "lr")."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[Path, int]:
    """The line of every key and table header, from 1."""
    return _Walk(text).lines


class _Walk:
    def __init__(self, text: str):
        self.text, self.place = text, 0
        self.lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        table: Path = ()
        while self._next() < len(text):
            if text[self.place] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _next(self) -> int:
        """Past white space and comments, to the next sign."""
        found = _SPACE.match(self.text, self.place)
        assert found is not None
        self.place = found.end()
        return self.place

    def _header(self) -> Path:
        """[a.b] or [[a.b]]: the table that follows. A part that is an array of tables stands for its last one."""
        line, many = self._line(), self.text.startswith("[[", self.place)
        self.place += 2 if many else 1
        path: Path = ()
        *above, last = self._key()
        for part in above:
            path = self._latest((*path, part))
        path = (*path, last)
        if many:
            self._counts[path] = self._counts.get(path, 0) + 1
        path = self._latest(path)
        self.lines.setdefault(path, line)
        self._next()
        self.place += 2 if many else 1
        return path

    def _latest(self, path: Path) -> Path:
        return (*path, self._counts[path] - 1) if path in self._counts else path

    def _pair(self, table: Path) -> None:
        line, path = self._line(), table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self._next()
        self.place += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._next()
            quoted = _STRING.match(self.text, self.place)
            found = quoted or _BARE_KEY.match(self.text, self.place)
            assert found is not None
            self.place = found.end()
            parts.append(str(tomllib.loads(f"x = {found[0]}")["x"]) if quoted else found[0])
            if self._next() == len(self.text) or self.text[self.place] != ".":
                return parts
            self.place += 1

    def _value(self, path: Path) -> None:
        self._next()
        opening = self.text[self.place]
        if opening in "[{":
            self.place += 1
            index = 0
            while self.text[self._next()] not in "]}":
                if opening == "[":
                    self.lines.setdefault((*path, index), self._line())
                    self._value((*path, index))
                    index += 1
                else:
                    self._pair(path)
                if self.text[self._next()] == ",":
                    self.place += 1
            self.place += 1
            return
        found = _STRING.match(self.text, self.place) or _PLAIN.match(self.text, self.place)
        assert found is not None
        self.place = found.end()

    def _line(self) -> int:
        return self.text.count("\n", 0, self.place) + 1
