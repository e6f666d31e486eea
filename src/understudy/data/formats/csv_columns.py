"""The columns of a CSV file of demonstrations: one row per step, and a header.

observation.NAME, observation.NAME[0], ... or obs_0, obs_1, ...   the observation before the step
action.NAME, ... or action_0, action_1, ...                       the numbers of a continuous action, or
action                                                            a discrete action, 0, 1, ...; or no actions at all
episode                                                           the episode of the step; its rows are consecutive

Optional:

next_observation.NAME, ... or next_obs_0, ...   the observation after the step, in every row, or only in the last row of
                                                each episode
terminal or terminated, truncated               how the episode ended, as 0 and 1 or True and False
reward, intervention, task
success                                         an episode succeeds if one of its rows does
timestamp                                       seconds; regular ones give the steps per second

Without `episode`, an episode ends where `terminal` or `truncated` is true. Other columns are not read.
"""

import re
from collections.abc import Sequence
from typing import Any

from understudy.core.errors import DemonstrationError
from understudy.core.parts import Parts
from understudy.core.text import quoted
from understudy.core.types import Discrete
from understudy.data.checks import Checker
from understudy.data.demonstrations import Demonstrations

MOST_COLUMNS = 100_000
FLAGS = {"terminal": "terminals", "terminated": "terminals", "truncated": "timeouts"}
"""Columns of flags, and their names in `Marks`."""
SINGLE = ("episode", "reward", *FLAGS, "success", "intervention", "timestamp")
"""Columns of numbers that stand alone."""


class Header:
    """The columns of a file: their numbers, by what they hold."""

    def __init__(self, check: Checker, names: Sequence[str]):
        if len(set(names)) < len(names) or len(names) > MOST_COLUMNS:
            twice = [name for name in names if list(names).count(name) > 1][:1] if len(names) <= 1000 else []
            raise check.error(f"its header has {len(names)} columns, '{quoted(''.join(twice))}' twice")
        self.names = list(names)
        self.obs, self.parts = group(check, names, "observation", "obs")
        self.next, _ = group(check, names, "next_observation", "next_obs")
        self.act, act_parts = group(check, names, "action", "action")
        self.action_names = tuple(names[i].partition(".")[2] for i in self.act) if act_parts else None
        self.discrete = not self.act and "action" in names
        self.act = [self.names.index("action")] if self.discrete else self.act
        if not any(names):
            raise check.error("it is empty: a header with the columns obs_0, action_0 and others is needed")
        misnamed = not self.act and any(name.lower().startswith("act") for name in names)
        if not self.obs or misnamed:
            what = "observation.NAME or obs_0, obs_1" if not self.obs else "action.NAME, action_0 or action"
            raise check.error(f"it has no columns {what}, only {quoted(', '.join(names))}: rename them")
        if self.next and len(self.next) != len(self.obs):
            raise check.error(
                f"it has {len(self.next)} columns of next observations, and {len(self.obs)} of observations"
            )


def group(check: Checker, names: Sequence[str], word: str, short: str) -> tuple[list[int], Parts]:
    """The columns of a word, such as observation.goal[0] or obs_0, in order; and the named parts."""
    dotted = [i for i, name in enumerate(names) if name.startswith(f"{word}.") and name != f"{word}."]
    plain = {
        int(name.rpartition("_")[2]): i for i, name in enumerate(names) if re.fullmatch(f"{short}_[0-9]{{1,6}}", name)
    }
    if dotted and plain:
        raise check.error(f"it has columns {word}.NAME and {short}_0: use one of the two")
    if sorted(plain) != list(range(len(plain))):
        missing = next(i for i in range(len(plain) + 1) if i not in plain)
        raise check.error(f"it has no column {short}_{missing}: number them from 0")
    if plain:
        return [plain[i] for i in range(len(plain))], ()
    parts: dict[str, int] = {}
    for i in dotted:
        name, index = _indexed(names[i].partition(".")[2])
        if index != parts.get(name, 0) or (name in parts and name != next(reversed(parts))):
            raise check.error(f"column '{quoted(names[i])}' is out of order: number the columns of a part from 0")
        parts[name] = index + 1
    return dotted, tuple(parts.items())


def _indexed(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)\[([0-9]{1,6})\]", name)
    return (match[1], int(match[2])) if match else (name, 0)


def header_of(d: Demonstrations) -> list[str]:
    """The header of a file of these demonstrations."""
    width = d.observations.shape[1]
    if d.obs_parts:
        places = [f"{name}[{i}]" if size > 1 else name for name, size in d.obs_parts for i in range(size)]
        obs, after = [f"observation.{name}" for name in places], [f"next_observation.{name}" for name in places]
    else:
        obs, after = [f"obs_{i}" for i in range(width)], [f"next_obs_{i}" for i in range(width)]
    if d.recorded_actions is None:
        act = []
    elif isinstance(d.action_space, Discrete):
        act = ["action"]
    elif d.details.action_names is not None:
        act = [f"action.{name}" for name in d.details.action_names]
    else:
        act = [f"action_{i}" for i in range(d.recorded_actions.shape[1])]
    names = ["episode", *obs, *act, *(after if d.last_observations is not None else ())]
    if len(set(names)) < len(names):
        raise DemonstrationError(f"two dimensions of the actions have the same name, {quoted(act)}: rename one")
    ended = d.ends if d.terminals is None and d.ends == "terminal" else d.terminals
    known: dict[str, Any] = {
        "reward": d.rewards,
        "terminal": ended,
        "truncated": ended,
        "success": d.details.successes,
    }
    known |= {"intervention": d.details.interventions, "task": d.details.tasks, "timestamp": d.details.fps}
    return names + [name for name, value in known.items() if value is not None]
