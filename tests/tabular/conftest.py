"""Fixtures for tests of `tabular`."""

import pytest
from jaxtyping import config


@pytest.fixture
def unchecked_types():
    """Turn off run-time type checks, for tests that pass arguments of a wrong type."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
