"""Policies: networks, tables and combinations that map an observation to an action, on NumPy and JAX.

Imports core and deploy. Public: the classes below, the constructors, `Actor` (a policy with a Stable-Baselines3-style
`predict`) and `load_policy`.
"""

from understudy.policies.actor import Actor
from understudy.policies.base import Carry, Categorical, Deterministic, Independent, Policy, start, step
from understudy.policies.combined import Ensemble, EnsembleMember, Normalized, Tabular, TimeIndexed, ensemble
from understudy.policies.constructors import (
    NetworkPolicy,
    deterministic_policy,
    independent_policy,
    mixture_policy,
    stochastic_policy,
)
from understudy.policies.gaussian import Gaussian, Squashed, StateDependent
from understudy.policies.mixture import Mixture
from understudy.policies.networks import MLP, Activation
from understudy.policies.normalization import Normalization
from understudy.policies.saved import load_policy
from understudy.policies.wrapped import Binned, PartlyDeterministic, Probing, Timed

__all__ = [
    "MLP",
    "Activation",
    "Actor",
    "Binned",
    "Carry",
    "Categorical",
    "Deterministic",
    "Ensemble",
    "EnsembleMember",
    "Gaussian",
    "Independent",
    "Mixture",
    "NetworkPolicy",
    "Normalization",
    "Normalized",
    "PartlyDeterministic",
    "Policy",
    "Probing",
    "Squashed",
    "StateDependent",
    "Tabular",
    "TimeIndexed",
    "Timed",
    "deterministic_policy",
    "ensemble",
    "independent_policy",
    "load_policy",
    "mixture_policy",
    "start",
    "step",
    "stochastic_policy",
]
