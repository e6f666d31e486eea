"""Whether a policy can act in a task: `understudy.deploy.checks`, for the classes of this room."""

from typing import Any

from understudy.core.spec import Spec
from understudy.deploy import checks
from understudy.deploy.checks import LARGEST as LARGEST
from understudy.policies.structure import as_nodes


def check_policy(policy: Any, spec: Spec, diverged: bool = False) -> None:
    """Raise SpecError if the policy cannot act in a task with this spec.

    The numbers in the arrays of a policy that `diverged` may be anything.
    """
    checks.check_policy(as_nodes(policy), spec, diverged)
