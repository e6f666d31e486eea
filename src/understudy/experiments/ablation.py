"""What AdRIL's stability rests on: the learners that are compared, on either task of the paper.

The released runs had four things that the paper's text does not have. `RELEASED` names them: all of them, none, each
alone and each left out, on the indicator kernel of those runs. Beside them stands the default, whole and without one of
its parts.
"""

from typing import Any

from understudy.experiments import figure_studies
from understudy.studies import Entry

RELEASED = ("resets", "random_rounds", "restart_schedule", "timeouts_terminal")
TRAJECTORIES = 20
STEPS = 300_000


def without(*names: str) -> dict[str, Any]:
    """Some of the four switched off."""
    return dict.fromkeys(names, False)


def learners() -> list[Entry]:
    """All that are compared."""
    labels, hot, last = {"kernel": "indicator"}, {"sac": {"initial_temperature": 1.0}}, {"averaging": 0.0}
    parts: list[dict[str, Any]] = [{}, labels, hot, last, labels | hot | last]
    parts += [{"absorbing": False}, {"timeouts_terminal": True}]
    found = [("default", settings) for settings in parts]
    found += [("paper", without()), ("paper", without(*RELEASED))]
    found += [("paper", without(*(other for other in RELEASED if other != name))) for name in RELEASED]
    found += [("paper", without(name)) for name in RELEASED]
    return [figure_studies.entry(_named(preset, settings)) for preset, settings in found]


def _named(preset: str, settings: dict[str, Any]) -> str:
    """As a person writes it on the command line."""
    changed = "".join(f",{name}={value!r}" for name, value in settings.items())
    return f"adril:{preset}@{TRAJECTORIES}{changed}"
