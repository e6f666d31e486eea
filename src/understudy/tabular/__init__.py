"""The paper's theory, exact, in float64: finite MDPs whose games, gaps and bounds are computed, not sampled."""

from understudy.tabular.mdp import (
    FiniteMDP,
    advantages,
    best_response,
    causal_entropy,
    collapse,
    exact,
    imitation_gap,
    mixture,
    occupancy,
    performance,
    q_values,
    samples,
    soft_response,
    uniform,
    values,
)

__all__ = [
    "FiniteMDP",
    "advantages",
    "best_response",
    "causal_entropy",
    "collapse",
    "exact",
    "imitation_gap",
    "mixture",
    "occupancy",
    "performance",
    "q_values",
    "samples",
    "soft_response",
    "uniform",
    "values",
]
