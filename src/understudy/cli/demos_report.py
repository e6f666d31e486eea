"""What `understudy demos inspect` shows."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from understudy.core import display
from understudy.core.statistics import interval
from understudy.core.text import quoted
from understudy.core.types import Continuous, Discrete, MultiDiscrete
from understudy.data.demonstrations import Demonstrations
from understudy.data.inspection import HUGE, Ranges, at_bounds, histogram, ranges

SHOWN_DIMENSIONS, SHOWN_NAMES = 16, 12
"""Dimensions of an observation in the table; names and numbers in a list."""
LONGEST_NAME, LONGEST_LIST = 28, 300


def show_demonstrations(d: Demonstrations, format_title: str, name: str) -> None:
    """Print a report on demonstrations."""
    found = ranges(d.observations)
    rows = [
        ("format", format_title),
        ("environment", d.env or "not recorded"),
        ("episodes", d.episodes),
        ("steps", f"{d.steps}, horizon {d.horizon}"),
        ("lengths", _spread(d.lengths, "g")),
        ("observations", _observations(d)),
        ("actions", _actions(d)),
        *_bounds(d),
        ("episode ends", _ends(d)),
        ("next observations", "recorded" if d.last_observations is not None else "unknown after the last step"),
        ("expert's return", _return(d)),
        *_details(d),
    ]
    display.show(("", ""), rows, name)
    _show_ranges(d, found)
    warnings = _warnings(d, found)
    if warnings:
        display.say("\n" + "\n".join(f"warning: {warning}" for warning in warnings))


def _spread(values: np.ndarray, style: str) -> str:
    """The range and median of some numbers, and their histogram."""
    low, high = (format(value, style) for value in (values.min(), values.max()))
    if values.min() == values.max():
        return f"{low} each"
    return f"{low} to {high}, median {np.median(values):{style}} [{display.sparkline(histogram(values))}]"


def _observations(d: Demonstrations) -> str:
    size = _numbers(d.observations.shape[1])
    if not d.obs_parts:
        return size
    return f"{size}: {_listed([f'{_short(name)} ({count})' for name, count in d.obs_parts])}"


def _actions(d: Demonstrations) -> str:
    if not d.has_actions:
        return "no actions"
    if isinstance(d.action_space, MultiDiscrete):
        return f"multi-discrete, {_listed([str(n) for n in d.action_space.nvec])}"
    if isinstance(d.action_space, Discrete):
        counts = np.bincount(d.actions, minlength=d.action_space.n) / len(d.actions)
        shares = _listed([f"{action}: {share:.0%}" for action, share in enumerate(counts)])
        return f"discrete, {d.action_space.n} ({shares})"
    names = f": {_listed([_short(name) for name in d.details.action_names])}" if d.details.action_names else ""
    units = f", {quoted(d.details.action_units)}" if d.details.action_units else ""
    return f"continuous, {_numbers(d.actions.shape[1])}{units}{names}"


def _bounds(d: Demonstrations) -> list[tuple[str, str]]:
    if not isinstance(d.recorded_space, Continuous):
        return []
    pairs = [f"[{low:g}, {high:g}]" for low, high in zip(d.recorded_space.low, d.recorded_space.high, strict=True)]
    bounds = f"{pairs[0]} in all" if len(set(pairs)) == 1 and len(pairs) > 1 else _listed(pairs)
    if d.bounds_from_data:
        return [("action bounds", f"not recorded; the extremes of the data are {bounds}")]
    if not d.has_actions:
        return [("action bounds", bounds)]
    low, high = at_bounds(d)
    shares = f"{low / d.actions.size:.1%} of the numbers at the low one, {high / d.actions.size:.1%} at the high one"
    return [("action bounds", f"{bounds}; {shares}")]


def _ends(d: Demonstrations) -> str:
    if d.terminals is not None:
        ended = int(d.terminals.sum())
        return f"{ended} of {d.episodes} in a terminal state, {d.episodes - ended} truncated"
    return f"not recorded; treated as {'terminal' if d.ends == 'terminal' else 'truncated'}"


def _return(d: Demonstrations) -> str:
    if d.expert_return is None:
        return "not recorded"
    mean, size = str(interval(d.expert_return)), d.expert_return.size
    mean += f" (mean ± 95% interval, Student's t over {size} episodes)" if size > 1 else ""
    return mean if d.returns is None or d.returns.min() == d.returns.max() else f"{mean}; {_spread(d.returns, '.4g')}"


def _details(d: Demonstrations) -> list[tuple[str, str]]:
    rows, details = [], d.details
    if details.successes is not None:
        won = int(details.successes.sum())
        rows.append(("success", f"{won} of {d.episodes} episodes ({won / d.episodes:.0%})"))
    if details.tasks is not None:
        counts = Counter(details.tasks).most_common()
        rows.append(("tasks", _listed([f"'{_short(task)}' {count}" for task, count in counts])))
    if details.interventions is not None:
        starts = np.cumsum(d.lengths) - d.lengths
        episodes = int(np.logical_or.reduceat(details.interventions, starts).sum())
        share = f"{details.interventions.mean():.1%} of the steps, in {episodes} of {d.episodes} episodes"
        rows.append(("interventions", share))
    if details.fps is not None:
        rows.append(("steps per second", f"{details.fps:g}"))
    if details.origin is not None:
        rows.append(("origin", details.origin))
    return rows


def _show_ranges(d: Demonstrations, found: Ranges) -> None:
    """A table of the dimensions of an observation: all of them, or some and those to be warned of."""
    size = d.observations.shape[1]
    odd = np.flatnonzero(found.constant | found.huge)[: SHOWN_DIMENSIONS // 2]
    first = np.arange(min(size, SHOWN_DIMENSIONS if size <= SHOWN_DIMENSIONS else SHOWN_DIMENSIONS - len(odd)))
    shown = np.union1d(first, odd)
    names = [f"{_short(name)}[{i}]" if count > 1 else _short(name) for name, count in d.obs_parts for i in range(count)]
    rows = []
    for i in shown:
        notes = [word for word, mask in (("constant", found.constant), ("huge", found.huge)) if mask[i]]
        numbers = (f"{values[i]:.4g}" for values in (found.low, found.mean, found.high, found.std))
        rows.append((i, *([names[i]] if names else []), *numbers, ", ".join(notes)))
    title = f"\nObservations{'' if len(shown) == size else f': {len(shown)} of {size} dimensions'}"
    headers = (">dimension", *(["name"] if names else []), ">lowest", ">mean", ">highest", ">std", "")
    display.show(headers, rows, title)
    if len(shown) < size:
        rest = np.setdiff1d(np.arange(size), shown)
        low, high = found.low[rest].min(), found.high[rest].max()
        display.say(f"The other {len(rest)} dimensions are between {low:.4g} and {high:.4g}.")


def _warnings(d: Demonstrations, found: Ranges) -> list[str]:
    warnings = []
    if found.constant.any():
        warnings.append(f"constant: {_dimensions(found.constant)}; a policy learns nothing from a constant")
    if found.huge.any():
        warnings.append(f"above {HUGE:g}: {_dimensions(found.huge)}; check the unit, and for outliers")
    if d.has_actions and isinstance(d.action_space, Continuous):
        flat = ranges(d.actions).constant
        if flat.any():
            warnings.append(f"constant: {_dimensions(flat, 'action')}")
    return warnings


def _dimensions(mask: np.ndarray, what: str = "observation") -> str:
    found = [str(i) for i in np.flatnonzero(mask)]
    return f"{what} dimension{'s' if len(found) > 1 else ''} {_listed(found)}"


def _listed(texts: Sequence[str]) -> str:
    """A list for a person, shortened."""
    more = f" and {len(texts) - SHOWN_NAMES} more" if len(texts) > SHOWN_NAMES else ""
    return quoted(", ".join(texts[:SHOWN_NAMES]), LONGEST_LIST) + more


def _numbers(count: int) -> str:
    return f"{count} number{'s' if count > 1 else ''}"


def _short(text: str) -> str:
    return quoted(text, LONGEST_NAME)
