"""Loading saved policies from a policy file, a run directory or an expert directory."""

import os

from understudy.deploy.runs import policy_path
from understudy.policies.actor import Actor, read_policy


def load_policy(path: str | os.PathLike[str], policy: str | None = None) -> Actor:
    """Load a policy.

    `path` is a policy file, a run directory, or a directory written by `understudy expert train`. Of a run directory,
    `policy` names one, as in "episodes10-seed2"; by default the selected one is loaded.
    """
    return read_policy(policy_path(path, policy))
