"""Trained policies with NumPy alone: no JAX is imported.

    import understudy.deploy

    policy = understudy.deploy.load("runs/bc")
    action = policy(observation)

Imports core only. `forward` and `policy` import nothing but NumPy: `understudy export --to numpy` copies them. `files`
reads policy files, `runs` finds them in run directories, `structure` and `checks` say what may be in them.
Public: `load`, `Policy`.
"""

from understudy.deploy.files import Policy, load

__all__ = ["Policy", "load"]
