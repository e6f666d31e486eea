"""What a recording says beyond observations, actions and rewards."""

from dataclasses import dataclass, fields, replace

import numpy as np

from understudy.data.checks import Checker

LONGEST_TEXT = 500
"""Characters of a task's or an action's name."""


@dataclass(frozen=True, eq=False)
class Details:
    """Optional facts about demonstrations. None: not recorded. Algorithms do not see them."""

    successes: np.ndarray | None = None
    """(episodes,), True if the episode reached its goal."""
    tasks: tuple[str, ...] | None = None
    """The task of each episode, in words."""
    interventions: np.ndarray | None = None
    """(N,), True if a person took over from a policy at this step."""
    action_names: tuple[str, ...] | None = None
    """The name of each dimension of a continuous action."""
    action_units: str | None = None
    """The unit of the actions, such as "degrees" or "normalized to [-1, 1]"."""
    fps: float | None = None
    """Steps per second."""
    origin: str | None = None
    """The data set that they come from, such as a Minari id."""

    def checked(self, check: Checker, lengths: np.ndarray, shape: tuple[int, ...] | None) -> "Details":
        """The same facts with canonical types. Raises if they do not fit the demonstrations.

        `shape` is that of one action; None: unknown.
        """
        steps, episodes = int(lengths.sum()), len(lengths)
        named = len(self.action_names or ()) if shape is None else shape[0] if shape else 1
        return replace(
            self,
            successes=check.flags("successes", self.successes, episodes),
            interventions=check.flags("interventions", self.interventions, steps),
            tasks=check.texts("tasks", self.tasks, episodes, LONGEST_TEXT),
            action_names=check.texts("action_names", self.action_names, named, LONGEST_TEXT),
            action_units=check.line("action_units", self.action_units, LONGEST_TEXT),
            origin=check.line("origin", self.origin, LONGEST_TEXT),
            fps=check.positive("fps", self.fps),
        )

    def first(self, episodes: int, steps: int) -> "Details":
        """Those of the first episodes."""
        return replace(
            self,
            successes=None if self.successes is None else self.successes[:episodes],
            tasks=None if self.tasks is None else self.tasks[:episodes],
            interventions=None if self.interventions is None else self.interventions[:steps],
        )

    @property
    def known(self) -> list[str]:
        """The names of the facts that are recorded."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]
