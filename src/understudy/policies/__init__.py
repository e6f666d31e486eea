"""Policies: what turns an observation into an action, on NumPy and JAX alike.

Imports core only. Public: the classes below, `load_policy` (`saved`) and `Actor` (`actor`).
"""

from understudy.policies.actor import Actor
from understudy.policies.base import Carry, Categorical, Deterministic, Policy, start, step
from understudy.policies.combined import Ensemble, Normalized, EnsembleMember, Mixture, Tabular, TimeIndexed, ensemble
from understudy.policies.gaussian import Gaussian, NetworkPolicy, Squashed, StateDependent
from understudy.policies.networks import MLP, Activation
from understudy.policies.normalization import Normalization
from understudy.policies.saved import load_policy

__all__ = [
    "MLP",
    "Activation",
    "Actor",
    "Carry",
    "Categorical",
    "Ensemble",
    "Deterministic",
    "Normalization",
    "Normalized",
    "Gaussian",
    "EnsembleMember",
    "Mixture",
    "NetworkPolicy",
    "Policy",
    "Squashed",
    "StateDependent",
    "Tabular",
    "TimeIndexed",
    "ensemble",
    "load_policy",
    "start",
    "step",
]
