"""Progress bars: where they are shown, and how they are turned off."""

import io
import sys

import pytest

import understudy as us
from understudy.core import display
from understudy.core.errors import SettingError

SMALL = {"rounds": 3, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Cell(io.StringIO):
    """Standard error of a notebook."""


Cell.__module__ = "ipykernel.iostream"


@pytest.fixture
def stderr(monkeypatch):
    """A function that puts a stream in the place of standard error."""
    monkeypatch.setenv("TERM", "xterm")

    def put(stream):
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return put


def train(**options):
    result = us.imitate(us.bc(**SMALL), "Pendulum", episodes=2, **options)
    result.evaluate(episodes=1, **options)


def test_python_shows_bars_on_a_terminal_and_nothing_on_standard_output(stderr, capsys):
    terminal = stderr(Terminal())
    train()
    assert "Behavioral cloning on Pendulum" in terminal.getvalue()
    assert "evaluating 1 policies in Pendulum" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_python_is_silent_elsewhere(capsys):
    train()
    us.record("Pendulum", episodes=1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_progress_can_be_turned_off(stderr, monkeypatch, way):
    terminal = stderr(Terminal())
    if way == "variable":
        monkeypatch.setenv("UNDERSTUDY_PROGRESS", "0")
        train()
        with display.progress_bar("a command") as report:
            report(1, 2, {})
    else:
        train(progress=False)
        us.record("Pendulum", episodes=1, progress=False)
    assert terminal.getvalue() == ""


def test_a_function_is_called_instead_of_a_bar(stderr):
    terminal, calls = stderr(Terminal()), []
    us.imitate(us.bc(**SMALL), "Pendulum", episodes=2, progress=lambda *call: calls.append(call[:2]))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert terminal.getvalue() == ""


def test_a_notebook_shows_one_line_that_is_written_over_itself(stderr):
    cell = stderr(Cell())
    us.imitate(us.bc(**SMALL), "Pendulum", episodes=2)
    lines = cell.getvalue().split("\r")
    assert lines[0] == ""
    assert lines[-1].startswith("Behavioral cloning on Pendulum: 3 of 3")
    assert cell.getvalue().count("\n") == 1


def test_a_bar_inside_another_one_is_not_shown(stderr):
    terminal = stderr(Terminal())
    with display.progress_bar("outer") as outer, display.progress_bar("inner") as inner, display.working("spinner"):
        outer(1, 2, {"bc on Pendulum": "3/20 rounds"})
        inner(1, 2, {"loss": 0.5})
    assert "3/20 rounds" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()
    assert "spinner" not in terminal.getvalue()
    with display.progress_bar("next") as report:
        report(1, 2, {})
    assert "next" in terminal.getvalue()


def test_a_wrong_switch_is_named(monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_PROGRESS", "no")
    with pytest.raises(SettingError, match="UNDERSTUDY_PROGRESS is 'no'"):
        train()
    with pytest.raises(SettingError, match="progress is 'bar'"):
        train(progress="bar")
