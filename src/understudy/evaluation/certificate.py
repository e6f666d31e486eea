"""A certificate as it is shown: the bound, its constants, and what it does not say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy.game import Moments


@dataclass(frozen=True)
class Certificate:
    """An upper bound on J(π_E) − J(π) for every reward of a class, and a test that the two differ at all."""

    moments: Moments
    functions: str
    """The class of rewards or action values."""
    bound: float
    """The gap is at most this."""
    bootstrap: float
    """The same with the bootstrap's error. Approximate: its confidence is right for many episodes only."""
    confidence: float
    largest: float
    """The largest gap that the class admits. A bound that is not below it is vacuous."""
    payoff: float
    """sup U over the class, on the samples."""
    error: float
    """w: the payoff's error, by the concentration inequality."""
    factor: float
    """bound = factor (payoff + error), plus the part of a fitted reward that is outside the class."""
    constants: dict[str, float]
    learner_episodes: int
    expert_episodes: int
    p_value: float
    """Of "learner and expert are the same", by permuting episodes."""
    episodes_to_settle: int | None
    """Episodes a side that would show the observed difference with probability 80%. None: no number would."""
    approximate: tuple[str, ...] = ()
    """Why the confidence is approximate. Empty: it holds for this number of episodes."""

    @property
    def vacuous(self) -> bool:
        return not self.bound < self.largest

    @property
    def different(self) -> bool:
        return self.p_value <= 1 - self.confidence

    @property
    def verdict(self) -> str:
        """Whether learner and expert can be told apart."""
        sides = f"{self.learner_episodes} and {self.expert_episodes} episodes"
        if self.different:
            return f"different (p = {self.p_value:.3g}, {sides})"
        if self.episodes_to_settle is None:
            more = "they differ no more than two samples of one policy: more episodes would not settle this soon"
        else:
            more = f"about {self.episodes_to_settle} episodes a side would settle whether this difference is real"
        return f"cannot be told apart with {sides} (p = {self.p_value:.3g}); {more}"

    def __str__(self) -> str:
        held = f"{self.confidence:.0%}" + (", approximate" if self.approximate else "")
        state = " VACUOUS: no smaller than the largest possible gap." if self.vacuous else ""
        numbers = ", ".join(f"{name} = {value:.4g}" for name, value in self.constants.items())
        lines = [
            f"{self.moments} moments: the gap is at most {self.bound:.4g} ({held}) for {self.functions}.{state}",
            f"  bootstrap (approximate): at most {self.bootstrap:.4g}. Largest possible gap: {self.largest:.4g}.",
            f"  payoff {self.payoff:.4g}, error {self.error:.4g}; {numbers}",
            f"  learner and expert: {self.verdict}",
        ]
        return "\n".join([*lines, *(f"  approximate: {reason}" for reason in self.approximate)])


@dataclass(frozen=True)
class Certificates(Sequence[Certificate]):
    """The certificates that could be computed, and why the others could not."""

    found: tuple[Certificate, ...]
    missing: dict[str, str] = field(default_factory=dict)
    """moments → what they need."""

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.found)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.found), *(f"{name} moments: {why}" for name, why in self.missing.items())])
