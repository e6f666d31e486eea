"""Fixtures of the paper's commands."""

import sys

import pytest

from understudy.cli.main import main


@pytest.fixture
def understudy(monkeypatch, capsys, tmp_path):
    """Run a command in an empty directory; return its exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", *map(str, words)])
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        return exited.value.code or 0, out, err

    return run
