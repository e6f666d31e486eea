"""From measures to causes, in order of likelihood.

Each rule turns numbers into a likelihood between 0 and 1, with a ramp around the measure's threshold. Defects of the
recording (`defects`) count by themselves. Causes of a bad policy (`failures`: too few demonstrations, compounding
errors, ...) count as far as the policy is worse than the expert, where that is known. "none" has what the likeliest
cause leaves, so it is first below one half.
"""

from typing import Any

from understudy.diagnosis import defects, failures
from understudy.diagnosis.evidence import Numbers, Rule, ramp
from understudy.diagnosis.measures import Cause, CauseName, Measure
from understudy.diagnosis.remedies import REMEDIES, command

LEAST = 0.05
"""Less likely causes are left out."""

SPOILING: tuple[CauseName, ...] = (
    *("leaked-action", "constant-observations", "wrong-action-scale", "swapped-columns", "wrong-control-rate"),
)
"""Defects that make any policy bad."""
CONSEQUENCES: tuple[CauseName, ...] = (
    *("several-experts", "ambiguous-expert", "hidden-state", "under-trained", "overfitting"),
    *("too-few-demonstrations", "compounding-errors"),
)
"""What such a defect looks like in other measures."""
EXPLAINED = 0.4
"""The share of a consequence's likelihood that a sure defect explains away."""

RULES: dict[CauseName, Rule] = {
    "diverged-critic": failures.diverged,
    "repeated-episodes": defects.repeated,
    "leaked-action": defects.leaked,
    "constant-observations": defects.constant,
    "wrong-action-scale": defects.scale,
    "swapped-columns": defects.swapped,
    "wrong-control-rate": defects.control_rate,
    "time-limit-as-terminal": defects.limit_as_terminal,
    "missing-terminals": defects.missing_terminals,
    "poor-expert": failures.poor_expert,
    "several-experts": failures.several,
    "ambiguous-expert": failures.ambiguous,
    "hidden-state": failures.hidden,
    "under-trained": failures.under_trained,
    "overfitting": failures.overfitting,
    "too-few-demonstrations": failures.too_few,
    "compounding-errors": failures.compounding,
    "unstable-seeds": failures.seeds,
}


def rank(measures: list[Measure], context: dict[str, Any]) -> list[Cause]:
    """All causes that are likely enough, the likeliest first."""
    numbers = Numbers(measures)
    found = []
    judged = {name: rule(numbers) for name, rule in RULES.items()}
    explained = EXPLAINED * ramp(max(judged[name][0] for name in SPOILING), 0.4, 0.8)
    for name, (likelihood, evidence) in judged.items():
        if name in CONSEQUENCES:
            likelihood *= 1 - explained
        if likelihood >= LEAST:
            found.append(Cause(name, float(likelihood), evidence, REMEDIES[name], command(name, context)))
    healthy = 1 - max((cause.likelihood for cause in found), default=0.05)
    evidence = numbers.sentences.get("performance") or "no measure of the demonstrations is beyond its threshold"
    found.append(Cause("none", healthy, evidence, REMEDIES["none"], command("none", context)))
    return sorted(found, key=lambda cause: -cause.likelihood)
