"""What AdRIL's stability rests on: the learners that are compared, on either task of the paper, and their figure.

The released runs had four things that the paper's text does not have. `RELEASED` names them: all of them, none, each
alone and each left out, and the two that it needs the most without the other two, on the indicator kernel of those
runs. Beside them stands the default, whole and without one of its parts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy.evaluation import drawing as figures
from understudy.paper import figure_studies, reward
from understudy.paper.comparison import TITLES
from understudy.studies import Entry

RELEASED = {
    "reset_each_round": "new episodes",
    "random_each_round": "random actions",
    "restart_lr_schedule": "a restarted rate",
    "truncation_is_terminal": "time limits for ends",
}
"""In a reader's words."""
PARTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "labels": {"kernel": "indicator"},
    "a hot start": {"sac": {"initial_temperature": 1.0}},
    "the last policy": {"average_rounds": 0.0},
    "none of the three": {"kernel": "indicator", "sac": {"initial_temperature": 1.0}, "average_rounds": 0.0},
    "no absorbing states": {"absorbing": False},
    "time limits for ends": {"truncation_is_terminal": True},
}
"""The default, and what it is without a part."""
PANELS = ("the default, without a part", "one of the recipe's four alone", "without one of the four")
TRAJECTORIES = 20
STEPS = 300_000


def without(*names: str) -> dict[str, Any]:
    """Some of the four switched off."""
    return dict.fromkeys(names, False)


TWO = without("restart_lr_schedule", "truncation_is_terminal")
"""The released recipe with the two of the four that it needs the most."""


def learners() -> list[Entry]:
    """All that are compared."""
    found = [("default", settings) for settings in PARTS.values()]
    found += [("paper", without()), ("paper", without(*RELEASED))]
    found += [("paper", without(*(other for other in RELEASED if other != name))) for name in RELEASED]
    found += [("paper", without(name)) for name in RELEASED]
    found += [("paper", TWO)]
    return [figure_studies.entry(_named(preset, settings)) for preset, settings in found]


def _named(preset: str, settings: dict[str, Any]) -> str:
    """As a person writes it on the command line."""
    changed = "".join(f",{name}={value!r}" for name, value in settings.items())
    return f"adril:{preset}@{TRAJECTORIES}{changed}"


def draw(found: Mapping[str, Sequence[reward.Curve]], path: Path) -> bool:
    """Returns by environment steps, a row of panels for each task; False where there is none to draw.

    Learners that are not of the comparison are left out, and of several demonstrations all but those that were given,
    and that most have learned from.
    """
    rows = {task: _panels(_alike(own)) for task, own in found.items()}
    rows = {task: panels for task, panels in rows.items() if any(panels)}
    if not rows:
        return False
    picture, axes = figures.figure(len(PANELS), width=4.6, height=3.9, rows=len(rows))
    panels = [(task, *panel) for task, own in rows.items() for panel in zip(PANELS, own, strict=True)]
    for axis, (task, title, shown) in zip(axes, panels, strict=True):
        for name, (color, curve) in shown.items():
            until = {x: sample for x, sample in curve.samples.items() if x <= STEPS}
            reward.band(axis, until, color, name)
        for expert in {curve.expert for _, curve in shown.values() if curve.expert is not None}:
            axis.axhline(expert, color=figures.EXPERT, linewidth=1.5, label="the expert")
        axis.set(title=f"{TITLES[task]}: {title}", xlabel="environment steps", ylabel="return (mean ± standard error)")
        reward.by_thousands(axis)
        if shown:
            axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    figures.save(picture, path)
    return True


def _alike(found: Sequence[reward.Curve]) -> list[reward.Curve]:
    """Those of the same demonstrations."""
    given = [curve for curve in found if not curve.bundled] or found
    count = Counter(curve.demonstrations for curve in given)
    return [curve for curve in given if curve.demonstrations == max(count, key=lambda name: count[name])]


def _panels(found: Sequence[reward.Curve]) -> list[dict[str, tuple[str, reward.Curve]]]:
    """What each panel shows, by its names there; one of the four has the same colour in all of them."""

    def known(preset: str, named: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, reward.Curve]]:
        own = [curve for curve in found if (curve.preset, curve.trajectories) == (preset, TRAJECTORIES)]
        colored = zip(figures.LINES, named.items(), strict=False)
        return {name: (color, curve) for color, (name, off) in colored for curve in own if curve.settings == off}

    ends = {"all four": without(), "none of them": without(*RELEASED)}
    alone = {words: without(*(other for other in RELEASED if other != name)) for name, words in RELEASED.items()}
    alone["random actions, new episodes"] = TWO
    left_out = {f"without {words}": without(name) for name, words in RELEASED.items()}
    return [known("default", PARTS), known("paper", ends | alone), known("paper", ends | left_out)]
