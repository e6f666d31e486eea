"""Two studies side by side: rows of the same task, algorithm and number of trajectories, and their differences.

    difference = mean return of B − mean return of A, of the final policies

with Student's t interval over pairs if both sides have the same seeds, else Welch's (`comparisons.compare_means`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from understudy.core.errors import SettingError
from understudy.core.statistics import Interval, interval
from understudy.core.text import quoted, shortened
from understudy.studies.plan import Protocol
from understudy.studies.report.comparisons import Difference, compare_means
from understudy.studies.report.learners import LearnerResults, Record, TaskResults, group_by_task

MOST_CHANGES, LONGEST_VALUE = 4, 40
"""Settings of a pair that are named, and characters of a value."""
COLUMNS = (
    *("env", "algorithm", "trajectories", "a_mean", "a_low", "a_high", "a_seeds", "b_mean", "b_low", "b_high"),
    *("b_seeds", "difference", "difference_low", "difference_high", "p", "paired", "changed", "only_in"),
    *("a_study", "b_study", "command", "date"),
)


@dataclass(frozen=True)
class Side:
    """One of the two studies."""

    name: str
    """Where it is, for people."""
    title: str
    protocol: Protocol
    records: Sequence[Record]

    @property
    def tasks(self) -> list[TaskResults]:
        return group_by_task(self.records)

    @property
    def versions(self) -> str:
        """Versions of understudy and JAX that made its runs."""
        made = {
            tuple(one["provenance"]["versions"].get(name, "?") for name in ("understudy", "jax"))
            for one in self.records
        }
        return " or ".join(f"understudy {ours}, jax {jax}" for ours, jax in sorted(made))


class Pair(NamedTuple):
    """The same row in both studies."""

    env: str
    a: LearnerResults
    b: LearnerResults
    difference: Difference
    """B minus A."""
    changed: str
    """What differs between the two configurations; empty: nothing but the study's protocol."""

    @property
    def verdict(self) -> int:
        """1: B returns more, −1: A does, 0: the interval of the difference contains 0, or there is none."""
        _, low, high = self.difference.interval
        return 1 if low > 0 else -1 if high < 0 else 0


class Single(NamedTuple):
    """A row that only one of the studies has."""

    env: str
    learner: LearnerResults
    only_in: str


class Compared(NamedTuple):
    """Two studies, the rows of both, and those of one."""

    a: Side
    b: Side
    pairs: list[Pair]
    singles: list[Single]


def compare_studies(a: Side, b: Side) -> Compared:
    """Pair the rows of two studies. Raises if they have no task in common, or no row."""
    ours, theirs = _rows(a.tasks), _rows(b.tasks)
    envs = [{env for env, _, _ in rows} for rows in (ours, theirs)]
    if not envs[0] & envs[1]:
        named = [", ".join(map(quoted, sorted(one))) or "none" for one in envs]
        raise SettingError(f"'{a.name}' has the tasks {named[0]}, '{b.name}' has {named[1]}: none is in both")
    pairs = [
        Pair(key[0], row, theirs[key], compare_means(theirs[key], row), _changes(row, theirs[key]))
        for key, row in ours.items()
        if key in theirs and row.score is not None and theirs[key].score is not None
    ]
    if not pairs:
        named = [
            quoted(", ".join(dict.fromkeys(f"{label} ({count})" for _, label, count in rows)))
            for rows in (ours, theirs)
        ]
        raise SettingError(
            f"'{a.name}' and '{b.name}' have no algorithm with the same label and number of trajectories: {named[0]}; "
            f"and {named[1]}. Give them the same `label` in both study files, or compare other studies"
        )
    matched = {(pair.env, pair.a.label, pair.a.trajectories) for pair in pairs}
    singles = [
        Single(env, row, letter)
        for letter, rows in (("A", ours), ("B", theirs))
        for (env, label, count), row in rows.items()
        if (env, label, count) not in matched
    ]
    return Compared(a, b, pairs, singles)


def protocol_differences(compared: Compared) -> str:
    """One line that names what differs in protocol and versions; empty if nothing does."""
    a, b = compared.a, compared.b
    changes = _differing(asdict(a.protocol), asdict(b.protocol))
    changes += [f"versions ({a.versions}; {b.versions})"] if a.versions != b.versions else []
    return ", ".join(changes)


def csv_rows(compared: Compared, command: str, date: str) -> list[list[Any]]:
    """One row per pair, and per row that only one study has, in the order of `COLUMNS`."""
    made = (compared.a.name, compared.b.name, command, date)
    rows = []
    for env, a, b, difference, changed in compared.pairs:
        p = "" if difference.p != difference.p else f"{difference.p:.4g}"
        found = (*_numbers(difference.interval), p, difference.paired, changed, "")
        rows.append([env, a.label, a.trajectories, *_side(a), *_side(b), *found, *made])
    for env, learner, only in compared.singles:
        sides = (*_side(learner), *4 * [""]) if only == "A" else (*4 * [""], *_side(learner))
        rows.append([env, learner.label, learner.trajectories, *sides, *6 * [""], only, *made])
    return rows


def _rows(tasks: Iterable[TaskResults]) -> dict[tuple[str, str, int], LearnerResults]:
    return {(task.env, one.label, one.trajectories): one for task in tasks for one in task.learners}


def _changes(a: LearnerResults, b: LearnerResults) -> str:
    """What differs between the configurations of two rows."""
    ours, theirs = (one.records[0]["config"] for one in (a, b))
    changes = [] if a.algorithm == b.algorithm else [f"algorithm {a.algorithm} → {b.algorithm}"]
    changes += _differing(ours["algorithm"]["hyperparameters"], theirs["algorithm"]["hyperparameters"])
    tasks = [{name: value for name, value in one["task"].items() if name != "trajectories"} for one in (ours, theirs)]
    changes += [name for name in sorted({*tasks[0], *tasks[1]}) if tasks[0].get(name) != tasks[1].get(name)]
    more = len(changes) - MOST_CHANGES
    return ", ".join([*changes[:MOST_CHANGES], *([f"and {more} more"] if more > 0 else [])])


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    names = [name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name)]
    return [f"{name} {_value(a.get(name))} → {_value(b.get(name))}" for name in names]


def _value(value: Any) -> str:
    text = "none" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return shortened(text, LONGEST_VALUE)


def _side(learner: LearnerResults) -> list[Any]:
    score = learner.score
    return 4 * [""] if score is None else [*_numbers(interval(score)), score.size]


def _numbers(found: Interval) -> list[Any]:
    return [round(x, 3) if x == x else "" for x in found]
