"""Rules for defects of the recording, which count by themselves: they spoil any policy."""

import numpy as np

from understudy.diagnosis.evidence import Found, Numbers, listed, ramp

EXACT = 0.97
"""Likelihood of a defect that the numbers prove, such as a copied episode: more than of any cause that is inferred."""

READINGS = ("scale", "rate", "columns")


def constant(n: Numbers) -> tuple[float, str]:
    h = n["hygiene"]
    constant, stuck, columns = h.get("constant", []), h.get("stuck", []), max(h.get("columns", 1), 1)
    text = f"{len(constant)} of {columns} observation columns never change in the demonstrations ({listed(constant)})"
    if stuck:
        return 0.95, f"columns {listed(stuck)} hardly change in the demonstrations, and do change in the environment"
    if h.get("frozen"):
        return 0.85, f"columns {listed(h['frozen'])} stay the same while others change, unlike in the environment"
    if not constant or h.get("whole_numbers"):
        return 0.0, text
    share = len(constant) / columns
    known = "performance" in n.values
    weight = n.failing if known else 0.6 + 0.35 * share
    return weight * (0.35 + 0.6 * ramp(share, 0.2, 0.6)) if known else weight * ramp(share, 0.0, 0.25), text


def repeated(n: Numbers) -> tuple[float, str]:
    h = n["hygiene"]
    share, own = h.get("repeated", 0.0), h.get("repeats_in_env")
    text = f"{share:.0%} of the {h.get('episodes', 0)} episodes repeat an earlier one"
    if own is not None and own > 0.5 * share:
        return 0.2 * ramp(share, 0.1, 0.5), f"{text}; {own:.0%} of the environment's own starts repeat, too"
    if own is None and h.get("whole_numbers") and not h.get("branches"):
        return 0.2 * ramp(share, 0.1, 0.5), f"{text}; so may those of an environment with few states"
    return EXACT * ramp(share, 0.02, 0.25), text


def leaked(n: Numbers) -> tuple[float, str]:
    h, r = n["hygiene"], n["recording"]
    fit, column = h.get("leak", 0.0), h.get("leak_column", -1)
    text = f"observation column {column} gives the action with a correlation of {fit:.4f}"
    likely = 0.95 * (ramp(fit, 0.985, 0.999) if r else ramp(fit, 0.995, 0.9999))  # a proportional controller is close
    fresh = h.get("leak_of_expert")
    if column < 0:
        return 0.0, text
    if fresh is not None:  # the expert in the environment shows how well the column gives the action there
        closer = ramp((1 - fresh) / (1 - fit + 1e-3), 5.0, 20.0)
        return EXACT * ramp(fit, 0.95, 0.985) * closer, f"{text}, and with {fresh:.2f} when the expert acts"
    if r:
        alien = _alien(r, column)
        if alien > 0.5:
            sure = EXACT * alien * max(ramp(fit, 0.985, 0.999), ramp(fit, 0.95, 0.98) * _others_fit(r, column))
            return sure, f"{text}, and does not change as in the environment"
        likely *= 0.3  # the environment's own dynamics explain the column
    elif h.get("whole_numbers"):
        likely *= 0.3  # it is one of a few states
    if "performance" in n.values:
        likely *= 0.4 + 0.6 * n.failing
    return likely, text


def _alien(r: Found, column: int) -> float:
    """How clearly a column does not change, or start, as in the environment."""
    own, floor = r["worst_column"][column], r["column_floor"][column]
    return max(ramp(own - 2 * floor, 0.05, 0.3), ramp(r["start"]["z"][column], 6.0, 12.0))


def _others_fit(r: Found, column: int) -> float:
    """Whether most other columns do change as in the environment."""
    own, floor = np.asarray(r["worst_column"]), np.asarray(r["column_floor"])
    fits = np.delete(own <= 2 * floor + 0.1, column)
    return float(fits.mean() >= 0.5) if len(fits) else 0.0


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
    if not r or not r[kind]["reading"]:
        return 0.0, ""
    one = r[kind]
    plain, own = one["plain"], one["own"]
    floor = min(one["floor"], own)  # a reading that leaves less than the model's own errors shows that they are smaller
    likely = ramp((plain + 0.002) / (floor + 0.002), 1.5, 3.0) * ramp(one["t"], 3.0, 5.0)
    likely *= ramp(one["explained"], 0.55, 0.85)
    likely *= max(ramp(one["gain"], 0.05, 0.2), ramp((plain + 0.002) / (own + 0.002), 2.0, 4.0))
    own = one["error"]
    rivals = {other: r[other]["error"] for other in READINGS if other != kind and r[other]["reading"]}
    rival = min(rivals.values(), default=1.0)
    if own <= 1.1 * rival + 0.005:
        likely *= 0.95
        if kind == "scale" and _as_long(r) and rivals.get("rate", 1.0) <= 1.1 * own + 0.005:
            likely *= 0.8
    else:
        likely *= 0.5 * (rival + 0.01) / (own + 0.01)
    text = f"a model of the environment misses {r['as_recorded']:.1%} of the demonstrated steps"
    return likely, f"{text}, and {own:.1%} with {one['reading']}"


def _as_long(r: Found) -> bool:
    """Whether the episodes are as long as the best control rate says: k times shorter, or longer, than the limit."""
    name = r["rate"]["reading"]
    return bool(name) and abs(np.log(max(r["lengths"], 1e-6) * float(name.split()[-1]))) < 0.2


def _doubt(r: Found) -> float:
    """Less than 1 where the model fits the data as recorded: then another expert, who acts otherwise, recorded them."""
    own, floor = np.asarray(r["worst_column"]), np.asarray(r["column_floor"])
    return 0.4 if (own <= 1.5 * floor + 0.005).all() else 1.0


def scale(n: Numbers) -> tuple[float, str]:
    r = n["recording"]
    likely, text = _reading(r, "scale")
    outside = r.get("outside", 0.0)
    if ramp(outside, 0.0, 0.02) * 0.9 > likely:
        likely = 0.9 * ramp(outside, 0.0, 0.02)
        text = f"{outside:.0%} of the actions are outside the environment's bounds"
    for column, line in enumerate((r.get("expert") or {}).get("units", [])):
        told = 0.96 * ramp(line["off"], 0.02, 0.1) * ramp(line["off"] / (line["left"] + 0.005), 4, 10)
        told *= (1 - ramp(line["left"], 0.1, 0.3)) * _doubt(r)
        if told > likely:
            likely, text = (
                told,
                f"column {column} of the recorded actions is {line['scale']:.2f} times the expert's answers",
            )
            if abs(line["offset"]) > 0.1:
                text += f" {line['offset']:+.2f} standard deviations"
    return likely, text


def swapped(n: Numbers) -> tuple[float, str]:
    r = n["recording"]
    likely, text = _reading(r, "columns")
    e = r.get("expert") or {}
    if e.get("order"):
        told = 0.95 * ramp(e["disagreement"], 0.05, 0.2)
        told *= ramp((e["disagreement"] + 0.02) / (e["disagreement_ordered"] + 0.02), 2, 5) * _doubt(r)
        if told > likely:
            likely, text = told, f"the expert's answers fit the recorded actions only with {e['order']}"
    if leaked(n)[0] > 0.9:
        likely *= 0.7  # a column that is the action fits nowhere
    return likely, text


def limit_as_terminal(n: Numbers) -> tuple[float, str]:
    s = n["survival"]
    if "limit" not in s:
        return 0.0, ""
    one, beyond = s["limit"], s.get("beyond")
    text = f"{one['share']:.0%} of the episodes are terminal exactly at the longest length of {one['limit']:.0f} steps"
    many = ramp(one["at"] - 3 * one["expected"], 1.0, 2.0) * ramp(one["share"], 0.02, 0.06)
    at_horizon = s["horizon_known"] and one["limit"] >= s["horizon"]
    if beyond is None:
        known = 0.92 if at_horizon else 0.75 * (1 - 0.7 * s["alike_ends"])
        return many * known * (1.0 if s["same_length"] or one["at"] >= 3 else 0.4), text
    if beyond["terminal"] > 0.3:
        return 0.1 * many, f"{text}; so are fresh ones"
    lasting = beyond["lasting"]
    if lasting > 0:
        text = f"{text}; {lasting:.0%} of the fresh episodes last as long, and none is terminal there"
    if at_horizon:
        return many * (EXACT if lasting > 0 else 0.9), text
    return many * 0.96 * ramp(lasting, 0.5, 0.9), text


def missing_terminals(n: Numbers) -> tuple[float, str]:
    s = n["survival"]
    if "terminal" not in s:
        return 0.0, ""
    unmarked = s["unmarked"] if s["terminal"] > 0 else 1.0
    text = (
        f"{s['early']:.0%} of the episodes end before the horizon of {s['horizon']} steps, and {unmarked:.0%} of these "
    )
    text += "are not terminal"
    if "ends" in s:
        # An end at any time is an event. Recordings that are cut have one length.
        event = max(s["alike_ends"], ramp(s["varied"], 0.1, 0.4))
        same = max(s.get("expert_terminal", 0.0), s.get("clone_terminal", 0.0))
        known = 0.35 + 0.6 * max(event, ramp(same, 0.2, 0.5)) if s["ends"] > 0 else 0.25 + 0.6 * event
        known *= ramp(unmarked, 0.1, 0.5) if s["ends"] > 0 or s["terminal"] == 0 else 0.0
        return known * ramp(s["early"], 0.1, 0.5), f"{text}; in the environment {s['ends']:.0%} of the episodes are"
    if s["terminal"] > 0:
        return 0.6 * ramp(unmarked, 0.2, 0.6) * ramp(s["varied"], 0.02, 0.2) * ramp(s["early"], 0.1, 0.5), text
    return 0.85 * ramp(s["varied"], 0.02, 0.2) * ramp(max(s["early"], s["varied"]), 0.02, 0.2), text
