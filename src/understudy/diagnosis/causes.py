"""From measures to causes, in order of likelihood.

Each rule turns numbers into a likelihood between 0 and 1, with a ramp around the measure's threshold. Defects of the
recording (`defects`) count by themselves. Causes of a bad policy (`failures`: too few demonstrations, compounding
errors, ...) count as far as the policy is worse than the expert, where that is known. "none" has what the likeliest
cause leaves, so it is first below one half.
"""

from typing import Any

from understudy.diagnosis import defects, failures
from understudy.diagnosis.evidence import Numbers, Rule
from understudy.diagnosis.measures import Cause, CauseName, Measure
from understudy.diagnosis.remedies import REMEDIES, command

LEAST = 0.05
"""Less likely causes are left out."""

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
    for name, rule in RULES.items():
        likelihood, evidence = rule(numbers)
        if likelihood >= LEAST:
            found.append(Cause(name, float(likelihood), evidence, REMEDIES[name], command(name, context)))
    healthy = 1 - max((cause.likelihood for cause in found), default=0.05)
    evidence = numbers.sentences.get("performance") or "no measure of the demonstrations is beyond its threshold"
    found.append(Cause("none", healthy, evidence, REMEDIES["none"], command("none", context)))
    return sorted(found, key=lambda cause: -cause.likelihood)
