"""The paper's theory, exact, in float64: finite MDPs whose games, gaps and bounds are computed, not sampled."""

from understudy.tabular.mdp import FiniteMDP, exact, imitation_gap, occupancy, performance, q_values, samples

__all__ = ["FiniteMDP", "exact", "imitation_gap", "occupancy", "performance", "q_values", "samples"]
