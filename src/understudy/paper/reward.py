"""The paper's figures of reward moments: return against environment steps, for everything that learns while it plays.

A learner trains all its seeds together. Every so many environment steps its policies, as they are then and not the best
so far, play ten episodes (`studies.training`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.algorithms import find
from understudy.core.statistics import Sample
from understudy.evaluation import drawing as figures
from understudy.game import DEFAULT
from understudy.paper import published
from understudy.paper.off_q import TASKS
from understudy.studies.cells import FINAL
from understudy.studies.plan import BUNDLED

__all__ = ["TASKS", "Curve", "draw", "read"]


@dataclass(frozen=True)
class Curve:
    """A learner's returns: environment steps → the seeds' means."""

    algorithm: str
    preset: str
    trajectories: int
    settings: dict[str, Any]
    """Hyperparameters that differ from the preset's."""
    demonstrations: str
    """Where they come from: "bundled", or a file's name."""
    returns: dict[int, np.ndarray]
    expert: float | None = None
    """The demonstrator's return."""
    seconds: float = 0.0
    """Of training all seeds."""
    device: str = ""
    handed_over: Sample | None = None
    """Of the policies that its payoff selects, where they have played."""
    stopped: tuple[int, ...] = ()
    """Seeds that stopped before the end, as when a critic explodes: what they had then goes on being evaluated."""

    @property
    def name(self) -> str:
        return named(self.algorithm, self.preset, self.settings, self.trajectories)

    @property
    def published(self) -> str:
        return "adril-balanced" if self.preset == "paper-balanced" else self.algorithm

    @property
    def papers(self) -> bool:
        """Whether it is what the paper has a curve of, on the paper's number of demonstrations if not on its own."""
        count = published.REWARD_TRAJECTORIES.get(self.published)
        return self.preset.startswith("paper") and self.trajectories == count and not self.settings and not self.bundled

    @property
    def bundled(self) -> bool:
        return self.demonstrations == BUNDLED

    @property
    def samples(self) -> dict[int, Sample]:
        return {x: Sample.of(means) for x, means in sorted(self.returns.items())}

    @property
    def last(self) -> Sample:
        """Of the last evaluation."""
        return self.samples[max(self.returns)]

    @property
    def last_five(self) -> Sample:
        """Of each seed's mean over its last five evaluations."""
        return Sample.of(np.mean([self.returns[x] for x in sorted(self.returns)[-5:]], axis=0))

    @property
    def lowest(self) -> float:
        """The lowest evaluation of any seed among the last ten."""
        return float(min(self.returns[x].min() for x in sorted(self.returns)[-10:]))


def named(algorithm: str, preset: str, settings: Mapping[str, Any], trajectories: int) -> str:
    """A learner as a person reads it."""
    shown = "" if preset == DEFAULT else f" ({preset})"
    changed = "".join(f", {name}={value}" for name, value in settings.items())
    return f"{algorithm}{shown}{changed}, {trajectories} trajectories"


def stopped(curve: Curve) -> str:
    """What is to be known of seeds that stopped, in a sentence; nothing of others."""
    if not curve.stopped:
        return ""
    seeds = ", ".join(map(str, curve.stopped))
    return f"Stopped before the end, and evaluated as it was then: seed {seeds}. "


def told_apart(found: Sequence[Curve]) -> list[str]:
    """The curves' names, with the value that is the preset's own where others of it have another one."""
    names = []
    for curve in found:
        alike = [other for other in found if (other.algorithm, other.preset) == (curve.algorithm, curve.preset)]
        own = find(curve.algorithm).preset(curve.preset)
        plain = {name for other in alike for name, value in other.settings.items() if not isinstance(value, dict)}
        settings = {**{name: getattr(own, name) for name in sorted(plain)}, **curve.settings}
        names.append(named(curve.algorithm, curve.preset, settings, curve.trajectories))
    return names


def read(lines: Sequence[Mapping[str, str]]) -> list[Curve]:
    """A curve for each learner, in the order they stand in the lines."""
    found: dict[tuple[str, ...], dict[int, list[float]]] = {}
    chosen: dict[tuple[str, ...], list[float]] = {}
    about: dict[tuple[str, ...], Mapping[str, str]] = {}
    payoffs: dict[tuple[str, ...], dict[int, list[str]]] = {}
    for line in lines:
        key = tuple(line[name] for name in ("algorithm", "preset", "trajectories", "settings", "demonstrations"))
        if line["x_kind"] == "env_steps":
            about[key] = line
            found.setdefault(key, {}).setdefault(int(line["x"]), []).append(float(line["mean_return"]))
            payoffs.setdefault(key, {}).setdefault(int(line["seed"]), []).append(line["payoff"])
        elif line["x_kind"] == FINAL:
            chosen.setdefault(key, []).append(float(line["mean_return"]))
    curves = []
    for key, points in found.items():
        line, judged = about[key], payoffs[key]
        measured = any(payoff for own in judged.values() for payoff in own)
        curves.append(
            Curve(
                *(key[0], key[1], int(key[2]), json.loads(key[3]), key[4].partition("@")[0]),
                {x: np.array(means) for x, means in points.items()},
                float(line["expert_return"]) if line["expert_return"] else None,
                float(line["train_seconds"] or 0),
                line["device"],
                Sample.of(chosen[key]) if key in chosen else None,
                tuple(seed for seed, own in judged.items() if measured and not own[-1]),
            )
        )
    return curves


def draw(env: str, found: Sequence[Curve], path: Path) -> list[Path]:
    """The figure: ours as lines with bands of a standard error, published curves dotted in the same colours.

    One picture for the bundled demonstrations, whose name ends in -bundled, and one for those that were given.
    """
    paths = []
    for bundled, name in ((False, path), (True, path.with_stem(f"{path.stem}-bundled"))):
        curves = [curve for curve in found if curve.bundled == bundled]
        if curves:
            _picture(env, curves, name)
            paths.append(name)
    return paths


def _picture(env: str, found: Sequence[Curve], path: Path) -> None:
    picture, (axis,) = figures.figure(1, width=7.6, height=5.2)
    for index, (curve, name) in enumerate(zip(found, told_apart(found), strict=True)):
        color = figures.LINES[index % len(figures.LINES)]
        band(axis, curve.samples, color, name, "-")
        if curve.papers:
            band(axis, published.reward(env, curve.published), color, f"{curve.published}, published", ":")
    expert = next((curve.expert for curve in found if curve.expert is not None), None)
    if expert is not None:
        axis.axhline(expert, color=figures.EXPERT, linewidth=1.5, label="the expert")
    shown = "bundled demonstrations" if found[0].bundled else "the paper's demonstrations"
    if not found[0].bundled and expert is not None and round(expert) != round(published.EXPERT.get(env, expert)):
        shown = found[0].demonstrations
    axis.set(title=f"{env}, {shown}", xlabel="environment steps", ylabel="return (mean ± standard error over seeds)")
    by_thousands(axis)
    axis.legend(fontsize=7, ncols=2, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figures.save(picture, path)


def by_thousands(axis: Any) -> None:
    """Steps are told in thousands, between two lines and not four."""
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
    axis.spines[["top", "right"]].set_visible(False)


def band(axis: Any, samples: dict[int, Sample], color: str, label: str, style: str = "-") -> None:
    """Means by environment steps as a line; where it is drawn through, with a band of a standard error."""
    if not samples:
        return
    x = sorted(samples)
    mean, error = (np.array([getattr(samples[i], name) for i in x]) for name in ("mean", "standard_error"))
    axis.plot(x, mean, color=color, linestyle=style, label=label, linewidth=1.8 if style == "-" else 1.4)
    if style == "-":
        axis.fill_between(x, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)
