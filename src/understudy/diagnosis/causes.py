"""From measures to causes, in order of likelihood.

Each rule turns numbers into a likelihood between 0 and 1, with a ramp around the measure's threshold. Defects of the
recording count by themselves. Causes of a bad policy (too few demonstrations, compounding errors, ...) count as far
as the policy is worse than the expert, where that is known. "none" has what the likeliest cause leaves, so it is
first below one half.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from understudy.diagnosis.measures import Cause, CauseName, Measure
from understudy.diagnosis.remedies import REMEDIES, command

LEAST = 0.05
"""Less likely causes are left out."""
Found = dict[str, Any]
Rule = Callable[["Numbers"], tuple[float, str]]


def ramp(value: float | None, low: float, high: float) -> float:
    """0 below `low`, 1 above `high`, a line between; 0 for what is unknown."""
    if value is None or not np.isfinite(value):
        return 0.0
    return float(np.clip((value - low) / (high - low), 0.0, 1.0))


class Numbers:
    """The numbers of all measures. What was not measured is empty."""

    def __init__(self, measures: list[Measure]):
        self.values = {one.name: one.value for one in measures}
        self._numbers = {one.name: one.numbers for one in measures}
        self.sentences = {one.name: one.sentence for one in measures}

    def __getitem__(self, name: str) -> Found:
        return self._numbers.get(name, {})

    def value(self, name: str) -> float:
        return self.values.get(name, float("nan"))

    @property
    def failing(self) -> float:
        """How sure it is that the policy is worse than the expert: 0.75 if that cannot be measured."""
        share = self.value("performance")
        if not np.isfinite(share):
            return 0.75
        unsure = 1.0 if self["performance"].get("significant") else 0.4 + 0.4 * ramp(1 - share, 0.2, 0.5)
        return unsure * ramp(1 - share, 0.05, 0.2)


def _constant(n: Numbers) -> tuple[float, str]:
    h = n["hygiene"]
    constant, stuck, columns = h.get("constant", []), h.get("stuck", []), max(h.get("columns", 1), 1)
    text = f"{len(constant)} of {columns} observation columns never change in the demonstrations ({_listed(constant)})"
    if stuck:
        return 0.9, f"{text}, and columns {_listed(stuck)} do change in the environment"
    if not constant or h.get("whole_numbers"):
        return 0.0, text
    share = len(constant) / columns
    known = "performance" in n.values
    weight = n.failing if known else 0.6 + 0.35 * share
    return weight * (0.35 + 0.6 * ramp(share, 0.2, 0.6)) if known else weight * ramp(share, 0.0, 0.25), text


def _repeated(n: Numbers) -> tuple[float, str]:
    h = n["hygiene"]
    share = h.get("repeated", 0.0)
    text = f"{share:.0%} of the {h.get('episodes', 0)} episodes repeat an earlier one"
    if h.get("repeats_in_env") or (h.get("repeats_in_env") is None and h.get("whole_numbers")):
        return 0.2 * ramp(share, 0.1, 0.5), f"{text}; the environment itself starts every episode alike"
    return 0.95 * ramp(share, 0.02, 0.25), text


def _leaked(n: Numbers) -> tuple[float, str]:
    h, r = n["hygiene"], n["recording"]
    fit, column = h.get("leak", 0.0), h.get("leak_column", -1)
    likely = 0.95 * ramp(fit, 0.985, 0.999)
    explained = bool(r) and column >= 0 and r["worst_column"][column] <= 2 * r["column_floor"][column] + 0.02
    if "performance" in n.values:
        likely *= 0.4 + 0.6 * n.failing
    if explained or h.get("whole_numbers"):
        likely *= 0.3  # the environment's own dynamics explain the column, or it is one of a few states
    return likely, f"observation column {column} gives the action with a correlation of {fit:.4f}"


def _control_rate(n: Numbers) -> tuple[float, str]:
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


def _scale(n: Numbers) -> tuple[float, str]:
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


def _swapped(n: Numbers) -> tuple[float, str]:
    r = n["recording"]
    likely, text = _reading(r, "columns")
    e = r.get("expert")
    if e is not None and e["swap"]:
        told = 0.95 * ramp(e["disagreement"], 0.05, 0.2)
        told *= ramp((e["disagreement"] + 0.02) / (e["disagreement_swapped"] + 0.02), 2, 5)
        if told > likely:
            likely, text = told, f"the expert's answers fit the recorded actions only with {e['swap']} swapped"
    return likely, text


def _limit_as_terminal(n: Numbers) -> tuple[float, str]:
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


def _missing_terminals(n: Numbers) -> tuple[float, str]:
    s = n["survival"]
    if "terminal" not in s or s["terminal"] > 0:
        return 0.0, ""
    text = f"{s['early']:.0%} of the episodes end before the horizon of {s['horizon']} steps, and none is terminal"
    ends = max(s.get("expert_terminal", 0.0), s.get("explored_terminal", 0.0), s.get("learner_terminal", 0.0))
    if "explored_terminal" in s:
        known = 0.95 if ends > 0 else 0.25 + 0.6 * s["alike_ends"] * ramp(s["varied"], 0.02, 0.2)
        return known * ramp(s["early"], 0.1, 0.5), f"{text}; in the environment {ends:.0%} of the episodes are"
    return 0.85 * ramp(s["varied"], 0.02, 0.2) * ramp(max(s["early"], s["varied"]), 0.02, 0.2), text


def _poor_expert(n: Numbers) -> tuple[float, str]:
    r, s = n["demonstrators"].get("returns", {}), n["survival"]
    likely, text = 0.0, ""
    if r.get("share") is not None:
        certain = 1.0 if (r.get("p_worse") or 0.0) < 0.05 else 0.4
        likely = 0.95 * ramp(1 - r["share"], 0.1, 0.3) * certain
        text = (
            f"the demonstrations return {r['demonstrations']:.1f}, {r['best_name']} "
            f"{r['best']:.1f}, random or constant actions {r['random']:.1f}"
        )
    p = r.get("p_better_than_random")
    if p is not None and p > 0.05 and r["demonstrations"] < r["random"] + 1e-9:
        likely = max(likely, 0.9)
        text = (
            text or f"the demonstrations return {r['demonstrations']:.1f}, random or constant actions {r['random']:.1f}"
        )
    if (
        (s.get("reward_per_step") or 0.0) > 0
        and s.get("terminal", 0.0) > 0.5
        and s.get("longest", 0) < 0.5 * s.get("horizon", 0)
    ):
        alive = 0.6 if r.get("share") is None else 0.0
        if alive > likely:
            likely, text = (
                alive,
                f"rewards pay for living, and every episode ends within {s['longest']} of {s['horizon']} steps",
            )
    if r.get("successes") is not None:
        failed = 0.95 * ramp(1 - r["successes"], 0.2, 0.6)
        if failed > likely:
            likely, text = failed, f"{r['successes']:.0%} of the demonstrations are marked as successes"
    return likely, text


def _spread(n: Numbers) -> tuple[float, str, Found]:
    """How likely the expert acts differently in alike states, for the two causes of it."""
    a = n["ambiguity"]
    if not a or not a["alike"]:
        return 0.0, "", a
    likely = ramp(a["low"], 0.02, 0.08)
    modes = a.get("two_modes")
    if modes is not None:
        likely *= 0.25 + 0.75 * ramp(modes, 0.08, 0.2)
    else:
        likely *= ramp(a["low"], 0.1, 0.3)
    local = a.get("local")
    if local is not None:  # a few states in which the expert chooses count little in all of its actions' variance
        here = ramp(local["share"], 0.005, 0.02) * ramp(local["unpredictable"], 0.65, 0.85)
        likely = max(likely, here * ramp(modes, 0.3, 0.7))
    known = "performance" in n.values
    likely *= 0.9 * (0.35 + 0.65 * n.failing) if known else 0.9
    if _several(n)[0] > 0.5:
        likely *= 0.8  # the groups explain it
    return likely, n.sentences["ambiguity"], a


def _ambiguous(n: Numbers) -> tuple[float, str]:
    likely, text, a = _spread(n)
    whole = a.get("nugget_with_all_observations") if a else None
    if whole is not None and whole < 0.5 * a["nugget"]:
        return 0.7 * likely, text
    return likely, text


def _hidden(n: Numbers) -> tuple[float, str]:
    likely, text, a = _spread(n)
    if not a:
        return likely, text
    whole = a.get("nugget_with_all_observations")
    if whole is not None and whole < 0.5 * a["nugget"]:
        return likely, f"{text}; the observations that the policy does not see explain it ({whole:.1%} are left)"
    memory = a.get("nugget_with_memory")
    if memory is not None and memory < 0.5 * a["nugget"]:
        return likely, f"{text}; with the observation before, {memory:.1%} are left"
    return likely, f"{text}; the observation before does not explain it"


def _several(n: Numbers) -> tuple[float, str]:
    d = n["demonstrators"]
    ratio, excess, agree = d.get("ratio", 1.0), d.get("excess", 0.0), d.get("agree", 0.0)
    sizes = " and ".join(map(str, d.get("groups", [])))
    likely = 0.92 * ramp(ratio, 2.0, 4.0) * ramp(excess, 0.03, 0.1) * ramp(agree, 0.75, 0.9)
    left = n["data"].get("training_error")
    if left is not None:  # one policy cannot act like two experts, so it misses a part of what they do
        likely *= ramp(left, 0.01, 0.04)
    return (
        likely,
        f"two groups of {sizes} episodes act {ratio:.1f} times as differently in alike states as each within itself",
    )


def _diverged(n: Numbers) -> tuple[float, str]:
    o = n["optimisation"]
    if o.get("diverged"):
        return 0.97, f"{len(o['diverged'])} runs diverged: {_listed(o['diverged'])}"
    if o.get("finite") and not all(o["finite"]):
        return 0.95, "the held-out payoff of a run is not finite"
    if o.get("exploded"):
        return 0.96, f"{_listed(o['exploded'])} exploded in training: {_sizes(o)}"
    if o.get("dead"):
        return 0.6, f"{_listed(o['dead'])} are zero throughout"
    return 0.0, ""


def _sizes(o: Found) -> str:
    return ", ".join(f"{name} reached {o['largest'][name]:.3g}" for name in o["exploded"])


def _under_trained(n: Numbers) -> tuple[float, str]:
    o = n["optimisation"]
    if "training_error" not in o:
        falling = 0.6 * ramp(o.get("falling"), 0.1, 0.3) * n.failing if o else 0.0
        return falling, n.sentences.get("optimisation", "")
    train, best = o["training_error"], o["reference_training"]
    worse = ramp((train + 0.01) / (best + 0.01), 1.5, 4.0) * ramp(train - best, 0.01, 0.04)
    falling = ramp(o.get("falling"), 0.05, 0.2) * ramp((train + 0.01) / (best + 0.01), 1.2, 2.0)
    likely = 0.93 * max(worse, 0.7 * falling) * (0.3 + 0.7 * n.failing if "performance" in n.values else 1.0)
    steps = o.get("gradient_steps")
    return likely, f"the policy misses {train:.1%} of its training actions, a reference clone {best:.1%}" + (
        f" (it took {steps:,} gradient steps)" if steps else ""
    )


def _overfitting(n: Numbers) -> tuple[float, str]:
    o = n["optimisation"]
    train, unseen = o.get("training_error"), o.get("unseen_error")
    if train is None or unseen is None or not np.isfinite(unseen):
        return 0.0, ""
    best = o["reference_unseen"]
    text = (
        f"the policy misses {train:.1%} in training and {unseen:.1%} on unseen steps; a smaller clone misses {best:.1%}"
    )
    gap = ramp((unseen + 0.01) / (train + 0.01), 1.5, 3.0)
    worse = ramp((unseen + 0.005) / (best + 0.005), 1.1, 1.6) * ramp(unseen - best, 0.01, 0.05)
    nugget = n["ambiguity"].get("nugget", 0.0) if n["ambiguity"].get("alike") else 0.0
    noise = ramp(nugget, 0.03, 0.1) * ramp((nugget + 1e-3) / (train + 1e-3), 1.5, 3.0)
    if noise > worse:
        text = f"the policy misses {train:.1%} in training, less than the expert's own noise of {nugget:.1%}"
    # A few episodes overfit any clone: then the smaller one is bad, too.
    poor = ramp(best, 0.1, 0.3) * ramp(8 - n["data"].get("counts", [8])[-1], 0.0, 4.0)
    return 0.9 * gap * max(worse, noise) * (0.7 + 0.3 * n.failing) * (1 - 0.7 * poor), text


def _too_few(n: Numbers) -> tuple[float, str]:
    d, o = n["data"], n["optimisation"]
    if not d:
        count = n["hygiene"].get("episodes", 0)
        likely = 0.8 * ramp(4 - count, 0.0, 2.0) * (n.failing if "performance" in n.values else 0.85)
        return likely, f"there are only {count} demonstrations"
    unseen, train, count = d["errors"][-1], d["training_error"], d["counts"][-1]
    own = o.get("unseen_error", unseen)
    larger = ramp((unseen + 0.01) / (train + 0.01), 1.5, 3.0)
    known = "performance" in n.values
    bad = ramp(unseen, 0.05, 0.2) if known else ramp(unseen, 0.1, 0.4)  # few held-out episodes are a noisy measure
    rate = d["rate"] if np.isfinite(d["rate"]) else 0.5
    falls = max(ramp(rate, 0.1, 0.4), ramp(6 - count, 0.0, 4.0))
    likely = 0.9 * larger * bad * falls
    likely *= n.failing if known else 1.0
    if own > 2 * unseen + 0.05 and count >= 6:
        likely *= 0.5  # the same data allow a better policy
    return likely, n.sentences["data"]


def _compounding(n: Numbers) -> tuple[float, str]:
    c, v = n["compounding"], n["coverage"]
    if not c or "performance" not in n.values:
        return 0.0, ""
    ratio = n.value("compounding")
    leaves = ramp(n.value("coverage"), 0.1, 0.3) if v else 0.5
    later = 1.0 if v.get("departure") is None or v.get("at_start", 1.0) > 0.01 else 0.5
    shown = c["demonstrated"] if np.isfinite(c["demonstrated"]) else 0.1
    good = 1 - 0.6 * ramp(shown, 0.1, 0.4)
    likely = 0.88 * n.failing * good * later * max(ramp(ratio, 1.5, 4.0), 0.5 * leaves) * (0.5 + 0.5 * leaves)
    text = n.sentences["compounding"]
    return likely, f"{n.sentences['coverage']}; {text}" if v.get("departure") is not None else text


def _seeds(n: Numbers) -> tuple[float, str]:
    s = n["optimisation"].get("seeds", {})
    if s.get("count", 1) < 2:
        return 0.0, ""
    if "range" in s:
        text = (
            f"returns of {s['count']} seeds run from {min(s['means']):.1f} to "
            f"{max(s['means']):.1f}, {s['range']:.0%} of the scale"
        )
        good = ramp(1 - s["range"], -1.0, 0.0)
        return 0.93 * ramp(s["range"], 0.15, 0.4) * (1.0 if s["p"] < 0.01 else 0.2) * max(good, 0.6), text
    payoffs = np.asarray(s["payoffs"])
    if not np.isfinite(payoffs).all() or payoffs.min() <= 0:
        return 0.0, ""
    ratio = float(payoffs.max() / payoffs.min())
    return 0.7 * ramp(ratio, 2.0, 5.0), f"held-out payoffs of {len(payoffs)} seeds differ by a factor of {ratio:.1f}"


RULES: dict[CauseName, Rule] = {
    "diverged-critic": _diverged,
    "repeated-episodes": _repeated,
    "leaked-action": _leaked,
    "constant-observations": _constant,
    "wrong-action-scale": _scale,
    "swapped-columns": _swapped,
    "wrong-control-rate": _control_rate,
    "time-limit-as-terminal": _limit_as_terminal,
    "missing-terminals": _missing_terminals,
    "poor-expert": _poor_expert,
    "several-experts": _several,
    "ambiguous-expert": _ambiguous,
    "hidden-state": _hidden,
    "under-trained": _under_trained,
    "overfitting": _overfitting,
    "too-few-demonstrations": _too_few,
    "compounding-errors": _compounding,
    "unstable-seeds": _seeds,
}


def rank(measures: list[Measure], context: dict[str, Any]) -> list[Cause]:
    """All causes that are likely enough, the likeliest first."""
    numbers = Numbers(measures)
    found = []
    for name, rule in RULES.items():
        likelihood, evidence = rule(numbers)
        if likelihood >= LEAST:
            found.append(Cause(name, float(likelihood), evidence, REMEDIES[name], command(name, context)))
    healthy = 1 - max((cause.likelihood for cause in found), default=0.05)
    evidence = numbers.sentences.get("performance") or "no measure of the demonstrations is beyond its threshold"
    found.append(Cause("none", healthy, evidence, REMEDIES["none"], command("none", context)))
    return sorted(found, key=lambda cause: -cause.likelihood)


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
