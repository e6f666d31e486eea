"""The types of a diagnosis: measures, causes, and the whole."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.core.paths import check_new_directory, checked_path
from understudy.core.storage import atomic_directory, atomic_file, write_json
from understudy.studies.report.chart import Chart

CauseName = Literal[
    "too-few-demonstrations",
    "ambiguous-expert",
    "hidden-state",
    "compounding-errors",
    "wrong-action-scale",
    "swapped-columns",
    "time-limit-as-terminal",
    "missing-terminals",
    "poor-expert",
    "diverged-critic",
    "under-trained",
    "overfitting",
    "constant-observations",
    "repeated-episodes",
    "leaked-action",
    "wrong-control-rate",
    "several-experts",
    "unstable-seeds",
    "none",
]
OWN_FILES = ("diagnosis.html", "diagnosis.json")


class CannotMeasureError(UnderstudyError):
    """A measure lacks something: an environment, an expert, a second episode."""


@dataclass(frozen=True)
class Measure:
    """One measure: a number with its threshold, a sentence and a picture."""

    name: str
    title: str
    value: float
    unit: str
    threshold: float
    why: str
    """Why the threshold is where it is, in one sentence."""
    above: bool
    """Whether a value above the threshold is bad (False: a value below)."""
    sentence: str
    """What was found."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Everything else that was measured, as JSON values."""
    chart: Chart | None = None

    @property
    def bad(self) -> bool:
        return bool(np.isfinite(self.value)) and (self.value > self.threshold) == self.above

    def to_json(self) -> dict[str, Any]:
        names = ("name", "title", "value", "unit", "threshold", "why", "sentence", "numbers")
        return {name: plain(getattr(self, name)) for name in names} | {"bad": self.bad}


@dataclass(frozen=True)
class Cause:
    """A possible cause, with its evidence and what to do next."""

    name: CauseName
    likelihood: float
    """From 0 to 1. Causes that the data cannot tell apart have the same."""
    evidence: str
    remedy: str
    command: str

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "likelihood": round(self.likelihood, 4)}


@dataclass(frozen=True)
class Diagnosis:
    """The measures of a run or of demonstrations, and the causes in order of likelihood."""

    about: str
    causes: list[Cause]
    measures: list[Measure]
    missing: dict[str, str]
    """Measure → why it could not be done."""
    seconds: float = float("nan")

    def __getitem__(self, name: str) -> Measure:
        return next(one for one in self.measures if one.name == name)

    def to_json(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "causes": [cause.to_json() for cause in self.causes],
            "measures": [measure.to_json() for measure in self.measures],
            "missing": self.missing,
            "seconds": plain(self.seconds),
        }

    def lines(self) -> list[str]:
        """At most ten lines for the terminal."""
        shown = self.causes[:1] + [one for one in self.causes[1:3] if one.likelihood >= 0.2 and one.name != "none"]
        lines = [f"{self.about}: {'healthy' if shown[0].name == 'none' else shown[0].name}"]
        for number, cause in enumerate(shown, start=1):
            lines.append(f"{number}. {cause.name} ({cause.likelihood:.0%}): {cause.evidence}")
            lines.append(f"   {cause.remedy} {f'Type: {cause.command}' if cause.command else ''}".rstrip())
        bad = [measure.name for measure in self.measures if measure.bad]
        lines.append(f"Measures beyond their threshold: {', '.join(bad) or 'none'}")
        if self.missing:
            reasons = dict.fromkeys(self.missing.values())
            named = {why: ", ".join(name for name, own in self.missing.items() if own == why) for why in reasons}
            lines.append("Not measured: " + "; ".join(f"{names} ({why})" for why, names in named.items()))
        return lines

    def save(self, directory: str | os.PathLike[str], replace: bool = False) -> None:
        """Write diagnosis.html and diagnosis.json. With `replace=True` an earlier diagnosis is replaced."""
        from understudy.diagnosis.page import render

        directory = checked_path(directory)
        own = OWN_FILES if replace else ()
        check_new_directory(directory, own)
        with atomic_directory(directory, own) as partial:
            write_json(partial / "diagnosis.json", self.to_json())
            with atomic_file(Path(partial) / "diagnosis.html") as path:
                path.write_text(render(self), "utf-8")

    def __repr__(self) -> str:
        return f"Diagnosis({self.about}, {', '.join(f'{c.name} {c.likelihood:.2f}' for c in self.causes[:3])})"


def plain(value: Any) -> Any:
    """A JSON value: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
