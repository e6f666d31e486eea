"""The command that results record is the one that the person typed."""

import shlex
import subprocess
import sys

from understudy.core.processes import COMMAND, LONGEST_COMMAND, start_python, typed_command


def test_words_with_spaces_are_quoted(monkeypatch):
    words = ["study", "report", "my studies/it's.toml"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/understudy", *words])
    monkeypatch.delenv(COMMAND, raising=False)
    assert shlex.split(typed_command()) == ["understudy", *words]


def test_control_characters_are_replaced_and_a_command_is_cut(monkeypatch):
    monkeypatch.delenv(COMMAND, raising=False)
    monkeypatch.setattr(sys, "argv", ["understudy", "\x1b[2J", "x" * 2 * LONGEST_COMMAND])
    assert "\x1b" not in typed_command()
    assert len(typed_command()) == LONGEST_COMMAND


def test_a_helper_names_the_command_of_its_parent(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/understudy", "study", "run", "a b.toml"])
    monkeypatch.delenv(COMMAND, raising=False)
    code = "from understudy.core.processes import typed_command; print(typed_command())"
    with start_python(["-c", code, "worker"], stdout=subprocess.PIPE) as helper:
        assert helper.stdout.read().decode().strip() == "understudy study run 'a b.toml'"
