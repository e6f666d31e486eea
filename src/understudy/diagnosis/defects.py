"""Rules for defects of the recording, which count by themselves: they spoil any policy."""

import numpy as np

from understudy.diagnosis.evidence import Found, Numbers, listed, ramp


def constant(n: Numbers) -> tuple[float, str]:
    h = n["hygiene"]
    constant, stuck, columns = h.get("constant", []), h.get("stuck", []), max(h.get("columns", 1), 1)
    text = f"{len(constant)} of {columns} observation columns never change in the demonstrations ({listed(constant)})"
    if stuck:
        return 0.9, f"{text}, and columns {listed(stuck)} do change in the environment"
    if not constant or h.get("whole_numbers"):
        return 0.0, text
    share = len(constant) / columns
    known = "performance" in n.values
    weight = n.failing if known else 0.6 + 0.35 * share
    return weight * (0.35 + 0.6 * ramp(share, 0.2, 0.6)) if known else weight * ramp(share, 0.0, 0.25), text


def repeated(n: Numbers) -> tuple[float, str]:
    h = n["hygiene"]
    share = h.get("repeated", 0.0)
    text = f"{share:.0%} of the {h.get('episodes', 0)} episodes repeat an earlier one"
    if h.get("repeats_in_env") or (h.get("repeats_in_env") is None and h.get("whole_numbers")):
        return 0.2 * ramp(share, 0.1, 0.5), f"{text}; the environment itself starts every episode alike"
    return 0.95 * ramp(share, 0.02, 0.25), text


def leaked(n: Numbers) -> tuple[float, str]:
    h, r = n["hygiene"], n["recording"]
    fit, column = h.get("leak", 0.0), h.get("leak_column", -1)
    likely = 0.95 * ramp(fit, 0.985, 0.999)
    explained = bool(r) and column >= 0 and r["worst_column"][column] <= 2 * r["column_floor"][column] + 0.02
    if "performance" in n.values:
        likely *= 0.4 + 0.6 * n.failing
    if explained or h.get("whole_numbers"):
        likely *= 0.3  # the environment's own dynamics explain the column, or it is one of a few states
    return likely, f"observation column {column} gives the action with a correlation of {fit:.4f}"


def control_rate(n: Numbers) -> tuple[float, str]:
    h, r = n["hygiene"], n["recording"]
    period, same = h.get("action_period", 1), h.get("same_observation", 0.0)
    if period > 1:
        return 0.92, f"actions change only every {period} steps"
    found = 0.85 * ramp(same, 0.2, 0.5) if not h.get("whole_numbers") else 0.0
    text = f"{same:.0%} of the observations equal the one before"
    likely, reading = _reading(r, "rate")
    if likely > found:
        return likely, reading
    return found, text


def _reading(r: Found, kind: str) -> tuple[float, str]:
    """How likely another reading of the recording is: it explains steps that the data as recorded do not."""
    if not r or kind not in r or not r[kind]["reading"]:
        return 0.0, ""
    better = {one: r[one]["error"] for one in ("scale", "rate", "columns") if r[one]["reading"]}
    own, plain = r[kind]["error"], r["as_recorded"]
    likely = ramp((plain + 0.002) / (r["floor"] + 0.002), 2.0, 6.0) * ramp(r[kind]["improvement"], 2.0, 4.0)
    rival = min((error for one, error in better.items() if one != kind), default=1.0)
    likely *= 0.95 if own <= rival + 1e-9 else 0.5 * (rival + 0.01) / (own + 0.01)
    text = (
        f"a model of the environment misses {plain:.1%} of the demonstrated steps, and {own:.1%} "
        f"with {r[kind]['reading']}"
    )
    return likely, text


def scale(n: Numbers) -> tuple[float, str]:
    r = n["recording"]
    likely, text = _reading(r, "scale")
    outside = r.get("outside", 0.0)
    if ramp(outside, 0.0, 0.02) * 0.9 > likely:
        likely, text = (
            0.9 * ramp(outside, 0.0, 0.02),
            f"{outside:.0%} of the actions are outside the environment's bounds",
        )
    e = r.get("expert")
    if e is not None:
        off = abs(np.log(max(abs(e["scale"]), 1e-3))) if e["scale"] > 0 else 1.0
        told = 0.95 * ramp(off, 0.15, 0.4) * ramp(e["disagreement"] / (e["disagreement_scaled"] + 0.02), 2, 5)
        if e["disagreement_scaled"] < 0.5 and told > likely:
            likely, text = told, f"the recorded actions are {e['scale']:.2f} times the expert's answers"
    return likely, text


def swapped(n: Numbers) -> tuple[float, str]:
    r = n["recording"]
    likely, text = _reading(r, "columns")
    e = r.get("expert")
    if e is not None and e["swap"]:
        told = 0.95 * ramp(e["disagreement"], 0.05, 0.2)
        told *= ramp((e["disagreement"] + 0.02) / (e["disagreement_swapped"] + 0.02), 2, 5)
        if told > likely:
            likely, text = told, f"the expert's answers fit the recorded actions only with {e['swap']} swapped"
    return likely, text


def limit_as_terminal(n: Numbers) -> tuple[float, str]:
    s = n["survival"]
    if "terminal" not in s:
        return 0.0, ""
    at_limit = s["terminal_at_limit"] if s["horizon_known"] else s["terminal_at_longest"] * s["same_length"]
    text = f"{at_limit:.0%} of the episodes are terminal exactly at the longest length of {s['longest']} steps"
    likely = 0.92 * ramp(at_limit, 0.1, 0.5)
    if not s["horizon_known"]:
        likely *= 0.75
    ends = max(s.get("expert_terminal", 0.0), s.get("explored_terminal", 0.0), s.get("learner_terminal", 0.0))
    if "explored_terminal" in s and ends == 0 and s["terminal"] > 0.1:
        # An expert may reach an end that fresh episodes do not.
        likely = max(likely, 0.9 * ramp(at_limit, 0.0, 0.2), 0.25)
        text = f"{text}; no episode in the environment ends in a terminal state"
    return likely, text


def missing_terminals(n: Numbers) -> tuple[float, str]:
    s = n["survival"]
    if "terminal" not in s or s["terminal"] > 0:
        return 0.0, ""
    text = f"{s['early']:.0%} of the episodes end before the horizon of {s['horizon']} steps, and none is terminal"
    ends = max(s.get("expert_terminal", 0.0), s.get("explored_terminal", 0.0), s.get("learner_terminal", 0.0))
    if "explored_terminal" in s:
        known = 0.95 if ends > 0 else 0.25 + 0.6 * s["alike_ends"] * ramp(s["varied"], 0.02, 0.2)
        return known * ramp(s["early"], 0.1, 0.5), f"{text}; in the environment {ends:.0%} of the episodes are"
    return 0.85 * ramp(s["varied"], 0.02, 0.2) * ramp(max(s["early"], s["varied"]), 0.02, 0.2), text
