"""What rules for causes share: the numbers of all measures, and a ramp around a threshold."""

from collections.abc import Callable
from typing import Any

import numpy as np

from understudy.diagnosis.measures import Measure

Found = dict[str, Any]
Rule = Callable[["Numbers"], tuple[float, str]]
"""From numbers to a likelihood between 0 and 1, and a sentence of evidence."""


def ramp(value: float | None, low: float, high: float) -> float:
    """0 below `low`, 1 above `high`, a line between; 0 for what is unknown."""
    if value is None or not np.isfinite(value):
        return 0.0
    return float(np.clip((value - low) / (high - low), 0.0, 1.0))


class Numbers:
    """The numbers of all measures. What was not measured is empty."""

    def __init__(self, measures: list[Measure]):
        self.values = {one.name: one.value for one in measures}
        self._numbers = {one.name: one.numbers for one in measures}
        self.sentences = {one.name: one.sentence for one in measures}

    def __getitem__(self, name: str) -> Found:
        return self._numbers.get(name, {})

    def value(self, name: str) -> float:
        return self.values.get(name, float("nan"))

    @property
    def played(self) -> bool:
        """Whether fresh episodes show how good, or how alike, the policy is."""
        return "performance" in self.values or "coverage" in self.values

    @property
    def failing(self) -> float:
        """How sure it is that the policy is worse than the expert: where returns are unknown, by what it does."""
        share = self.value("performance")
        if not np.isfinite(share):
            return self._differs
        unsure = 1.0 if self["performance"].get("significant") else 0.4 + 0.4 * ramp(1 - share, 0.2, 0.5)
        return unsure * ramp(1 - share, 0.05, 0.2)

    @property
    def _differs(self) -> float:
        """How sure it is that the policy acts unlike the demonstrations: 0.75 if that cannot be measured."""
        survival, coverage = self["survival"], self.value("coverage")
        known = [ramp(coverage, 0.1, 0.4)] if np.isfinite(coverage) else []
        if "learner_length" in survival and survival.get("demonstrated_length"):
            longer = abs(np.log(survival["learner_length"] / survival["demonstrated_length"]))
            known.append(ramp(longer, np.log(1.5), np.log(3)))
        if not known:
            return 0.75
        return 0.3 + 0.65 * max(known)


def listed(values: list[Any]) -> str:
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
