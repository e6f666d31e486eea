"""Fixtures of the tests of training."""

from support.commands import understudy  # noqa: F401
from support.training import every_round, interrupted_at  # noqa: F401
