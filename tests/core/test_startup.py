"""Ctrl-C before, while and after a command runs."""

import subprocess
import sys

import jax
import pytest

from understudy.core import startup

# `startup` alone, without the rest of the package, which takes a second to import.
LOADED = f"""
import gc, importlib.util, signal, sys, time
sys.argv[0] = sys.argv[1]
spec = importlib.util.spec_from_file_location("startup", {startup.__file__!r})
startup = importlib.util.module_from_spec(spec)
spec.loader.exec_module(startup)
"""
GC = """
def dropped(phase, info):
    gc.callbacks.remove(dropped)
    signal.raise_signal(signum)
signal.signal(signal.SIGTERM, startup.interrupt)
startup.begin()
gc.callbacks.append(dropped)
try:
    gc.collect()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def run(code, name):
    done = subprocess.run([sys.executable, "-P", "-c", LOADED + code, name], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["understudy", "/usr/bin/understudy"])
def test_ctrl_c_during_the_import_of_the_command_is_one_line(name):
    interrupted = (130, "", "\ninterrupted: nothing was written\n")
    assert run("signal.raise_signal(signal.SIGINT)", name) == interrupted


def test_a_running_command_is_interrupted_and_a_finished_one_is_not():
    code = "startup.begin()\ntry: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print('stopped')\n"
    assert run(f"{code}startup.end()\nsignal.raise_signal(signal.SIGINT)", "understudy") == (0, "stopped\n", "")


def test_an_interrupt_while_jax_loads_plugins_is_sent_again():
    code = f"""
plugins = type(signal)({startup.PLUGINS!r})
exec("def load(act):\\n  act()\\n  print('loaded')", vars(plugins))
startup.begin()
try:
    plugins.load(lambda: signal.raise_signal(signal.SIGINT))
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(code, "understudy") == (0, "loaded\ninterrupted\n", "")
    assert jax._src.xla_bridge.discover_pjrt_plugins.__module__ == startup.PLUGINS


@pytest.mark.parametrize("signum", ["SIGINT", "SIGTERM"])
def test_an_interrupt_that_the_garbage_collector_drops_is_sent_again(signum):
    assert run(f"signum = signal.{signum}\n{GC}", "understudy") == (0, "interrupted\n", "")


@pytest.mark.parametrize("name", ["mine.py", "", "-m"])
def test_a_program_of_the_user_handles_its_own_signals(name):
    code = "startup.begin(); startup.end()\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert run(code, name) == (0, "True\n", "")
