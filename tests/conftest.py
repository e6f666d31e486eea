"""Fixtures that tests share: small demonstrations of both kinds, environments, and programs that compile quickly."""

import gc
import itertools
import os
import signal
from pathlib import Path

import jax
import jaxlib.version
import numpy as np
import pytest

import understudy as us
from support import browser
from support.envs import Drift, Walk

# Tests compile hundreds of programs and run most of them for a moment, so compile time matters more than speed. JAX
# reads the variable at import: it is for the processes that tests start.
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    jax.config.update("jax_disable_most_optimizations", True)
    # XLA's older emitters compile in half the time. It aborts on an unknown flag; jaxlib 0.10 has this one.
    if jaxlib.version.__version_info__[:2] == (0, 10):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

# A background job ignores Ctrl-C, one under nohup the end of its terminal, and so does what it starts. Tests need both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def continuous() -> us.Demonstrations:
    """A linear expert on random states, 6 episodes of different length, actions well inside [-2, 2]."""
    rng = np.random.default_rng(0)
    lengths = np.array([30, 50, 20, 40, 35, 25])
    observations = rng.normal(size=(lengths.sum(), 3)).astype(np.float32)
    actions = np.clip(observations @ np.array([[0.4], [-0.3], [0.2]], np.float32) + 0.1, -2, 2)
    return us.Demonstrations.from_arrays(observations, actions, lengths, action_space=us.Continuous((-2.0,), (2.0,)))


@pytest.fixture(scope="session")
def discrete() -> us.Demonstrations:
    """An expert that picks one of three actions by a linear rule."""
    rng = np.random.default_rng(1)
    lengths = np.array([40, 60, 50, 30])
    observations = rng.normal(size=(lengths.sum(), 4)).astype(np.float32)
    actions = (observations @ rng.normal(size=(4, 3))).argmax(1)
    return us.Demonstrations.from_arrays(observations, actions, lengths, action_space=us.Discrete(3))


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium that the browser tests of a module share."""
    with browser.running() as started:
        yield started


@pytest.fixture
def optimised():
    """For tests whose programs run so long that optimised code is worth compiling."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def keys():
    return jax.random.split(jax.random.key(0), 3)


@pytest.fixture(scope="session")
def tasks():
    """The environment and expert for the demonstrations of each kind."""
    walk = Walk(0.3 * jax.random.normal(jax.random.key(0), (3, 4)))
    return {
        "continuous": {"env": Drift(), "expert": "scripted"},
        "discrete": {"env": walk, "expert": walk.expert()},
    }


def pytest_collection_finish():
    """Leave modules and tests out of garbage collections, which would look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Say at the end that the browser tests were skipped, where they were."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if any(browser.NO_CHROMIUM in reason for reason in reasons):
        terminalreporter.write_line(f"browser tests skipped: {browser.NO_CHROMIUM}")


MAPS = Path("/proc/self/maps")
tests_done = itertools.count(1)


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Each compiled program holds memory maps, of which a process may have 65,530: forget programs in time.

    Counting them takes some milliseconds, so that is done after every tenth test.
    """
    yield
    if next(tests_done) % 10 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 35_000:
        jax.clear_caches()
