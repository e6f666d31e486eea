"""A run folder from a stranger is data: resuming it runs none of its code and touches none of the user's files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as us
from support.mutations import mutated
from understudy.core import imports
from understudy.train.resuming import command_checksum

WORDS = ["--demos", "Pendulum", "--episodes", "2", "--rounds", "3", "--gradient-steps", "1", "--hidden", "4"]
EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch):
    monkeypatch.setattr(imports, "_allowed", set())


@pytest.fixture
def folder(tmp_path):
    """A folder with code, and a function that stores a command in it."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name in ("evil", "optax"):
        (folder / f"{name}.py").write_text(EVIL)
    return folder


def store(folder, words, directory="."):
    about = {"command": words, "directory": directory, "checksum": command_checksum([str(w) for w in words], directory)}
    (folder / "run.command.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    "words",
    [
        ["evil:Algorithm", *WORDS],
        ["dagger", "--env", "Pendulum", "--expert", "evil:f"],
        ["dagger", "--env=Pendulum", "--expert=evil:f"],
        ["bc", "--demos", "Pendulum", "--env", "evil:X-v0"],
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_code_that_a_stored_command_names_is_not_imported(words, inside, understudy, folder, monkeypatch):
    store(folder, words)
    if inside:
        monkeypatch.chdir(folder)
    before = sorted(folder.parent.rglob("*"))
    status, out, err = understudy("train", "--resume", "run" if inside else "downloaded/run")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert "run.command.json' names code to run" in err
    assert "--import evil" in err
    assert "evil" not in sys.modules
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.slow
def test_code_that_the_person_names_again_is_imported_from_where_they_are(understudy, folder, tmp_path, monkeypatch):
    store(folder, ["dagger", "--env", "Pendulum", "--expert", "mine_expert:f", *WORDS[2:]])
    status, _, err = understudy("train", "--resume", "downloaded/run", "--import", "mine_expert")
    assert (status, "mine_expert" in err) == (2, True)
    (folder / "mine_expert.py").write_text(EVIL)
    assert understudy("train", "--resume", "downloaded/run", "--import=mine_expert")[0] == 2, "not from the folder"
    (tmp_path / "mine_expert.py").write_text("import numpy as np\ndef f(obs): return np.zeros((len(obs), 1))\n")
    assert understudy("train", "--resume", "downloaded/run", "--import", "mine_expert")[0] == 0
    assert us.load_run(folder / "run").runs[0].status == "finished"
    assert not (folder / "ran").exists()


@pytest.mark.slow
def test_modules_next_to_the_run_are_not_imported(folder):
    """In a fresh process, which imports optax, JAX and the rest after it has read the command."""
    store(folder, ["bc", *WORDS])
    command = [sys.executable, "-P", "-m", "understudy", "train", "--resume", "run"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables["PYTHONPATH"] = str(Path(us.__file__).parents[1])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=variables, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (folder / "ran").exists()
    assert (folder / "run" / "config.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["bc", "--help"],
        ["bc", *WORDS, "--no-such-option", "1"],
        ["bc", *WORDS, "--rounds", "many"],
        ["bc", "--tyro-write-completion", "bash", "written"],
        ["bc", "--tyro_write_completion", "bash", "written"],
        ["bc", "--demos", "a\nb"],
        ["bc", "--demos", "\x1b[2J"],
        ["bc", "--demos", "x" * 5000],
        ["bc"] * 2000,
        ["bc", 3],
        "bc",
    ],
)
def test_a_forged_command_is_one_line_that_names_the_file(words, understudy, folder):
    store(folder, words)
    before = sorted(folder.parent.rglob("*"))
    status, out, err = understudy("train", "--resume", "downloaded/run")
    assert (status, out) == (2, "")
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    assert "downloaded/run.command.json" in line
    assert all(c.isprintable() for c in line)
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("seed", range(12))
def test_a_mutated_command_is_resumed_or_a_named_error(seed, understudy, folder):
    store(folder, ["bc", *WORDS])
    file = folder / "run.command.json"
    file.write_bytes(mutated(file.read_bytes(), "json", seed)[1])
    before = {path: path.read_bytes() for path in folder.rglob("*")}
    status, _, err = understudy("train", "--resume", "downloaded/run")
    line = err.splitlines()[-1]
    if status == 0:
        assert us.load_run(folder / "run").runs
    else:
        assert (status, line.startswith("error: ")) == (2, True)
        assert "downloaded/run.command.json" in line
        assert all(c.isprintable() for c in line)
        assert {path: path.read_bytes() for path in folder.rglob("*")} == before


def test_files_of_the_user_behind_links_are_not_touched(understudy, folder, tmp_path):
    """A folder can hold links with the names of our files, to any file or folder of the user."""
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in ("metrics.csv", "thesis.tex", "lock"):
        (precious / name).write_text("seed,episodes,round\nmine\n")
    store(folder, ["bc", *WORDS])
    before = {path.name: path.read_bytes() for path in precious.iterdir()}
    for name, target in (("run.lock", "lock"), ("run.logs", ""), ("run.checkpoint.npz.lock", "lock")):
        link = folder / name
        link.symlink_to(precious / target)
        status, _, err = understudy("train", "--resume", "downloaded/run")
        assert (status, err.splitlines()[-1].startswith("error: ")) == (2, True)
        assert name in err
        link.unlink()
    (folder / "run.logs").mkdir()
    (folder / "run.logs" / "metrics.csv").symlink_to(precious / "metrics.csv")
    status, _, err = understudy("train", "--resume", "downloaded/run")
    assert (status, "metrics.csv" in err.splitlines()[-1]) == (2, True)
    (folder / "run.logs" / "metrics.csv").unlink()
    link = folder / "run.checkpoint.previous.npz"
    link.symlink_to(precious / "thesis.tex")
    status, _, err = understudy("train", "--resume", "downloaded/run")
    assert (status, link.name in err.splitlines()[-1]) == (2, True)
    link.unlink()
    assert understudy("train", "--resume", "downloaded/run")[0] == 0
    (folder / "run.logs").symlink_to(precious)
    assert understudy("train", "--resume", "downloaded/run")[0] == 0, "it is finished"
    assert {path.name: path.read_bytes() for path in precious.iterdir()} == before
