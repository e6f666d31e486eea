"""Run the command line inside the test process."""

import sys

import pytest

from understudy.cli.main import main


@pytest.fixture
def understudy(monkeypatch, capsys, tmp_path):
    """A function that runs a command in an empty directory: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return run
