"""The paper's offline figure: return against the number of demonstrations, for everything that needs nothing else.

Each learner is trained on 5 to 25 demonstrated trajectories, five seeds of each in one program, and every policy plays
ten episodes (`studies/paper/off-q.toml`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from understudy.algorithms import find
from understudy.core.statistics import Sample, holm, less
from understudy.evaluation import drawing as figures
from understudy.game import DEFAULT, Algorithm
from understudy.paper import published
from understudy.studies.plan import BUNDLED

TASKS = {"halfcheetah": "HalfCheetahBulletEnv-v0", "ant": "AntBulletEnv-v0"}
KEY = ("algorithm", "preset", "settings", "demonstrations")
"""The columns that tell one curve from another; files without the last two have one of each algorithm and preset."""


@dataclass(frozen=True)
class Curve:
    """One learner's returns: demonstrated trajectories → the seeds' means."""

    algorithm: str
    preset: str
    returns: dict[int, np.ndarray]
    settings: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters that differ from the preset's."""
    demonstrations: str = ""
    """Where they come from: "bundled", or a file's name."""
    expert: float | None = None
    """The demonstrator's return."""

    @property
    def name(self) -> str:
        preset = "" if self.preset == DEFAULT else f" ({self.preset})"
        return f"{self.algorithm}{preset}{''.join(f', {name}={value}' for name, value in self.settings.items())}"

    @property
    def bundled(self) -> bool:
        return self.demonstrations == BUNDLED

    @property
    def samples(self) -> dict[int, Sample]:
        return {count: Sample.of(means) for count, means in self.returns.items()}


def learner(name: str) -> Algorithm:
    """The algorithm that "advil" or "advil:paper" names."""
    algorithm, _, preset = name.partition(":")
    return find(algorithm).preset(preset or DEFAULT)


def curves(lines: Sequence[Mapping[str, str]], x: str = "x") -> list[Curve]:
    """The lines of a results file, a curve for each learner, in the order they stand there, by the column `x`."""
    found: dict[tuple[str, ...], dict[int, list[float]]] = {}
    experts: dict[tuple[str, ...], str] = {}
    for line in lines:
        key = tuple(line.get(name, "") for name in KEY)
        found.setdefault(key, {}).setdefault(int(line[x]), []).append(float(line["mean_return"]))
        experts[key] = line.get("expert_return", "")
    return [
        Curve(
            *(algorithm, preset, {count: np.array(means) for count, means in sorted(points.items())}),
            json.loads(settings or "{}"),
            demonstrations.partition("@")[0],
            float(expert) if expert else None,
        )
        for ((algorithm, preset, settings, demonstrations), points), expert in zip(
            found.items(), experts.values(), strict=True
        )
    ]


def theirs(curve: Curve, env: str) -> dict[int, Sample]:
    """The published points of a curve's algorithm; none where its demonstrations are of another expert."""
    known = published.EXPERT.get(env)
    other = curve.expert is not None and known is not None and round(curve.expert) != known
    return {} if curve.bundled or other else published.off_q(env, curve.algorithm)


@dataclass(frozen=True)
class Verdict:
    """A curve beside the published one: means over the data sizes both have, and where ours is significantly below."""

    ours: float
    theirs: float
    below: list[int]
    """Data sizes where ours is below the published at the 5% level (Welch, one-sided, Holm-corrected)."""


def compare(curve: Curve, env: str) -> Verdict | None:
    """None where nothing was published, or a single seed allows no test."""
    points = theirs(curve, env)
    shared = [count for count, sample in curve.samples.items() if count in points and sample.size > 1]
    if not shared:
        return None
    chances = holm([less(curve.samples[count], points[count]) for count in shared])
    return Verdict(
        float(np.mean([curve.samples[count].mean for count in shared])),
        float(np.mean([points[count].mean for count in shared])),
        [count for count, chance in zip(shared, chances, strict=True) if chance < 0.05],
    )


def draw(env: str, found: Sequence[Curve], path: Path) -> list[Path]:
    """The figure: ours as lines, published points dotted and hollow in the same colours, standard errors on both.

    One picture for the bundled demonstrations, whose name ends in -bundled, and one for those that were given.
    """
    paths = []
    for bundled, name in ((False, path), (True, path.with_stem(f"{path.stem}-bundled"))):
        chosen = [curve for curve in found if curve.bundled == bundled]
        if chosen:
            _picture(f"{env}, bundled demonstrations" if bundled else env, env, chosen, name)
            paths.append(name)
    return paths


def _picture(title: str, env: str, found: Sequence[Curve], path: Path) -> None:
    picture, (axis,) = figures.figure(1, width=6.4, height=4.2)
    drawn: set[str] = set()
    for index, curve in enumerate(found):
        color = figures.LINES[index % len(figures.LINES)]
        figures.draw_points(axis, curve.samples, color, curve.name)
        points = theirs(curve, env)
        if points and curve.algorithm not in drawn:  # once, whatever its presets
            drawn.add(curve.algorithm)
            figures.draw_points(axis, points, color, f"{curve.algorithm}, published", published=True)
    expert = next((curve.expert for curve in found if curve.expert is not None), None)
    if expert is not None:
        axis.axhline(expert, color=figures.EXPERT, linewidth=1.5)
        where = (axis.get_xlim()[1], expert)
        axis.annotate("the expert", where, xytext=(-2, 4), textcoords="offset points", ha="right", color=figures.EXPERT)
    counts = sorted({count for curve in found for count in curve.returns})
    axis.set(xticks=counts, title=title, xlabel="demonstrated trajectories", ylabel="return (mean ± standard error)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, ncols=2, frameon=False)
    figures.save(picture, path)
