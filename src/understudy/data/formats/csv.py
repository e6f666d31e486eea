"""CSV files with one row per step, read and written by blocks of rows. `csv_columns` has the columns."""

import csv
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DemonstrationError, UnderstudyError
from understudy.core.reader import FileReader
from understudy.core.storage import atomic_file
from understudy.core.text import quoted
from understudy.data.checks import Checker
from understudy.data.demonstrations import Demonstrations
from understudy.data.details import Details
from understudy.data.formats.base import Format, Selection, chosen
from understudy.data.formats.csv_columns import FLAGS, SINGLE, Header, header_of
from understudy.data.formats.episodes import Marks

ROWS = 4096
"""Rows that are converted at a time."""
MOST_TASKS = 1_000_000
SNIFFED = 65_536
"""Bytes in which the header must end for a file to be recognised."""
TRUTH = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
IRREGULAR = 0.01
"""Timestamps whose steps differ by more than this share give no steps per second."""


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read a CSV file by blocks of rows."""
    file = FileReader(path, "a CSV file of demonstrations", "see docs/demonstrations.md", DemonstrationError)
    check = Checker(file.name)
    with file.text_stream() as stream:
        most = sum(block.count("\n") + block.count("\r") for block in iter(lambda: stream.read(1 << 20), ""))
    with file.text_stream() as stream:
        lines = csv.reader(stream, strict=True)
        header = Header(check, next(lines, []))
        columns = _Columns(check, header, min(most, path.stat().st_size // len(header.names)) + 1)
        while block := list(islice(lines, ROWS)):
            columns.add([row for row in block if row])  # without empty lines
    return chosen(columns.demonstrations(selection), selection, FORMAT)


class _Columns:
    """The arrays of a file while it is read. Their rows are at most `most`."""

    def __init__(self, check: Checker, header: Header, most: int):
        self.check, self.header, self.rows = check, header, 0
        self.single = {name: header.names.index(name) for name in SINGLE if name in header.names}
        self.numbers = {"obs": header.obs, "act": header.act} | {name: [i] for name, i in self.single.items()}
        wide = {"episode", "timestamp", "act"} if header.discrete else {"episode", "timestamp"}
        self.arrays = {
            name: np.empty((most, len(columns)), np.float64 if name in wide else np.float32)
            for name, columns in self.numbers.items()
        }
        self.next_rows: list[np.ndarray] = []
        self.next_values: list[np.ndarray] = []
        self.task = header.names.index("task") if "task" in header.names else None
        self.tasks: list[str] = []
        self.texts: dict[str, str] = {}

    def add(self, block: list[list[str]]) -> None:
        start, self.rows = self.rows, self.rows + len(block)
        for row, cells in enumerate(block, start):
            if len(cells) != len(self.header.names):
                raise self.check.error(f"row {row} has {len(cells)} of {len(self.header.names)} columns")
        for name, columns in self.numbers.items():
            flags = name in FLAGS or name in ("success", "intervention")
            place = self.arrays[name][start : self.rows]
            self._fill(place, columns, block, range(start, self.rows), flags)
        if self.header.next:
            first = self.header.next[0]
            filled = [i for i, row in enumerate(block) if row[first].strip()]
            self.next_values.append(np.empty((len(filled), len(self.header.next)), np.float32))
            rows = [start + i for i in filled]
            self._fill(self.next_values[-1], self.header.next, [block[i] for i in filled], rows, False)
            self.next_rows.append(np.array(rows, np.int64))
        if self.task is not None:
            self.tasks += [self.texts.setdefault(row[self.task], row[self.task]) for row in block]  # each text once
            if len(self.texts) > MOST_TASKS:
                raise self.check.error(f"it has more than {MOST_TASKS} different tasks")

    def _fill(
        self, place: np.ndarray, columns: Sequence[int], block: list[list[str]], rows: Sequence[int], flags: bool
    ) -> None:
        """Convert some columns of a block. `rows` are its numbers in the file."""
        convert = (lambda cell: TRUTH[cell.strip().lower()]) if flags else float
        for i, column in enumerate(columns):
            cells = [row[column] for row in block]
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    place[:, i] = [convert(cell) for cell in cells]
            except (ValueError, KeyError):
                wrong = next(k for k, cell in enumerate(cells) if not _is_valid(cell, flags))
                raise self.check.error(
                    f"column '{quoted(self.header.names[column])}' has '{quoted(cells[wrong], 40)}' in row "
                    f"{rows[wrong]}: {'0, 1, True or False' if flags else 'a number'} is needed"
                ) from None

    def demonstrations(self, selection: Selection) -> Demonstrations:
        check, data = self.check, {name: array[: self.rows] for name, array in self.arrays.items()}
        flat = {name: data[name][:, 0] for name in self.single}
        flags = {FLAGS[name]: flat[name] for name in reversed(FLAGS) if name in flat}
        if self.rows == 0:
            raise check.error("it has a header and no rows")
        marks = Marks(episode_numbers=flat.get("episode"), **flags)
        lengths = marks.lengths_of(check, self.rows, selection.episodes == 1)
        last = np.cumsum(lengths) - 1
        actions = _whole(check, data["act"]) if self.header.discrete else data["act"] if self.header.act else None
        success = flat.get("success")
        return Demonstrations.from_arrays(
            data["obs"],
            actions,
            lengths,
            **self._next(check, last),
            terminals=marks.terminal(),
            rewards=flat.get("reward"),
            ends=selection.ends or "time_limit",
            obs_parts=self.header.parts,
            details=Details(
                successes=None if success is None else np.logical_or.reduceat(success > 0, last + 1 - lengths),
                tasks=tuple(self.tasks[row] for row in last) if self.tasks else None,
                interventions=flat.get("intervention"),
                action_names=self.header.action_names,
                fps=_rate(flat["timestamp"], last) if "timestamp" in flat else None,
            ),
            source=check.source,
            copy=False,
        )

    def _next(self, check: Checker, last: np.ndarray) -> dict[str, Any]:
        """Next observations, of all steps or of the last ones."""
        found = np.concatenate(self.next_rows) if self.next_rows else np.zeros(0)
        if found.size == 0:
            return {}
        for name, rows in (("next_observations", np.arange(self.rows)), ("last_observations", last)):
            if np.array_equal(found, rows):
                return {name: np.concatenate(self.next_values)}
        raise check.error(
            f"{len(found)} of {self.rows} rows have a next observation: all rows need one, or the last row of "
            "each episode and no other"
        )


def _is_valid(cell: str, flag: bool) -> bool:
    try:
        return cell.strip().lower() in TRUTH if flag else float(cell) is not None
    except ValueError:
        return False


def _whole(check: Checker, actions: np.ndarray) -> np.ndarray:
    numbers = actions[:, 0]
    bad = np.flatnonzero(~(np.abs(numbers) < 2**31) | (numbers != np.floor(numbers)))
    if bad.size:
        raise check.error(
            f"action is {numbers[bad[0]]:g} in row {bad[0]}: a discrete action is a whole number; continuous ones are "
            "in the columns action_0, action_1, ..."
        )
    return numbers.astype(np.int32)


def _rate(times: np.ndarray, last: np.ndarray) -> float | None:
    """Steps per second, if the timestamps are regular."""
    steps = np.delete(np.diff(times), last[:-1])
    if steps.size == 0 or not np.isfinite(steps).all():
        return None
    middle = float(np.median(steps))
    regular = middle > 0 and bool((np.abs(steps - middle) <= IRREGULAR * middle).all())
    return float(f"{1 / middle:.6g}") if regular else None


def write(demonstrations: Demonstrations, path: Path, replace: bool = True) -> None:
    """Write a CSV file by blocks of rows."""
    d = demonstrations
    with atomic_file(path, replace) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header_of(d))
        for start in range(0, d.steps, ROWS):
            writer.writerows(_rows(d, start, min(start + ROWS, d.steps)))


def _rows(d: Demonstrations, start: int, stop: int) -> Iterable[list[str]]:
    """The cells of some rows."""
    rows, ends = slice(start, stop), np.cumsum(d.lengths)
    steps = np.arange(start, stop)
    episodes = np.searchsorted(ends, steps, side="right")
    last = steps == ends[episodes] - 1
    columns: list[np.ndarray] = [_text(episodes[:, None]), _text(d.observations[rows])]
    if d.recorded_actions is not None:
        columns.append(_text(d.recorded_actions[rows].reshape(stop - start, -1)))
    if d.other_next is not None:
        columns.append(_text(d.other_next[rows]))
    elif d.last_observations is not None:
        columns.append(np.where(last[:, None], _text(d.last_observations[episodes]), ""))
    if d.rewards is not None:
        columns.append(_text(d.rewards[rows, None]))
    if d.terminals is not None or d.ends == "terminal":
        terminal = last if d.terminals is None else d.terminals[rows]
        columns += [_text(terminal[:, None] * 1), _text((last & ~terminal)[:, None] * 1)]
    if d.details.successes is not None:
        columns.append(_text((last & d.details.successes[episodes])[:, None] * 1))
    if d.details.interventions is not None:
        columns.append(_text(d.details.interventions[rows, None] * 1))
    if d.details.tasks is not None:
        columns.append(np.array([[d.details.tasks[episode]] for episode in episodes]))
    if d.details.fps is not None:
        begun = (ends - d.lengths)[episodes]
        columns.append(_text(((steps - begun) / d.details.fps)[:, None]))
    return (list(chain(*cells)) for cells in zip(*(column.tolist() for column in columns), strict=True))


def _text(array: np.ndarray) -> np.ndarray:
    """Numbers as the shortest texts that give them back."""
    return array.astype(str)


def _recognises(path: Path) -> bool:
    """Whether a file's first line has columns of observations."""
    try:
        start = FileReader(path, "a CSV file", "").start(SNIFFED)
        first = start.decode("utf-8-sig", "strict" if len(start) < SNIFFED else "ignore").splitlines()[:1]
        Header(Checker(str(path)), next(csv.reader(first), []))
    except (UnderstudyError, UnicodeError, csv.Error):
        return False
    return True


FORMAT = Format("csv", "CSV", _recognises, read, write, suffix=".csv")
