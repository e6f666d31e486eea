"""Run directories: damage is named, files of others are never touched, and a file's names run no code."""

import json
import shutil
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from support.commands import understudy  # noqa: F401
from support.fuzzing import TARGETS, attack, make_runs
from understudy.core import imports
from understudy.core.digests import DIGESTS, write_digests
from understudy.core.errors import NeedsError, RunError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run of two seeds, with one and two demonstrations."""
    return make_runs(tmp_path_factory.mktemp("runs"))[0]


@pytest.fixture
def run(saved, tmp_path):
    """A copy of it to damage."""
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run"


def replace(name, old, new, count=1):
    def change(run):
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, count))

    return change


def config(**changes):
    def change(run):
        value = json.loads((run / "config.json").read_text())
        for path, new in changes.items():
            *parents, key = path.split("__")
            inner = value
            for parent in parents:
                inner = inner[parent]
            if new is None:
                del inner[key]
            else:
                inner[key] = new
        (run / "config.json").write_text(json.dumps(value))

    return change


def lines(name, edit):
    def change(run):
        rows = (run / name).read_text().splitlines()
        (run / name).write_text("".join(f"{row}\n" for row in edit(rows)))

    return change


def swap_policies(run):
    a, b = sorted((run / "policies").iterdir())[:2]
    a.rename(run / "x")
    b.rename(a)
    (run / "x").rename(b)


DAMAGE = {
    "no version": (config(versions__understudy=None), "has no 'understudy'"),
    "no algorithm": (config(algorithm=None), "has no 'algorithm'"),
    "a title with escape sequences": (config(algorithm__card__title="\x1b[2J"), "'title' is"),
    "a list of seeds that is a number": (config(seeds=3), "'seeds' is not a list"),
    "a negative seed": (config(seeds=[0, -1]), "entry 1 of 'seeds' is -1"),
    "other seeds": (config(seeds=[0, 7]), "runs of config.json"),
    "a return of text": (config(demonstrations__expert_return={"mean": "x", "std": 1, "size": 2}), "'expert_return'"),
    "an environment of numbers": (config(demonstrations__env=3), "'env' is 3"),
    "seconds of text": (config(seconds="long"), "'seconds' is 'long'"),
    "no run": (lines("runs.csv", lambda rows: rows[:1]), "once"),
    "a missing run": (lines("runs.csv", lambda rows: rows[:1] + rows[2:]), "damaged|selected"),
    "a run twice": (lines("runs.csv", lambda rows: [*rows, rows[1].replace("True", "False")]), "once"),
    "two selected runs": (replace("runs.csv", "False", "True"), "selected"),
    "no selected run": (replace("runs.csv", "True", "False"), "selected"),
    "a seed that is a path": (lines("runs.csv", lambda r: [r[0], "../../x" + r[1][1:], *r[2:]]), "'../../x' is not"),
    "a seed in other digits": (lines("runs.csv", lambda r: [r[0], "٣" + r[1][1:], *r[2:]]), "is not a whole number"),
    "a round twice": (lines("metrics.csv", lambda rows: [*rows, rows[-1]]), "each round of each run once"),
    "a missing round": (lines("metrics.csv", lambda rows: rows[:-1]), "each round of each run once"),
    "rounds in another order": (lines("metrics.csv", lambda r: [r[0], r[2], r[1], *r[3:]]), "in order"),
    "a metric of text": (lines("metrics.csv", lambda rows: [*rows[:-1], rows[-1] + "x"]), "line 9"),
    "a metric's name with escape sequences": (replace("metrics.csv", "loss", "\x1b[2J"), "not printable"),
    "policies of other runs": (swap_policies, "of another run"),
    "no policy": (lambda run: sorted((run / "policies").iterdir())[0].unlink(), "no policy at"),
    "no policies": (lambda run: shutil.rmtree(run / "policies"), "no policy at"),
    "no metrics": (lambda run: (run / "metrics.csv").unlink(), "no file"),
    "another number": (config(seconds=1.5), "digest"),
    "another metric": (lines("metrics.csv", lambda rows: [*rows[:-1], rows[-1] + "1"]), "digest"),
    "a digest that changed": (replace(DIGESTS, "  config.json", "  config.jso_"), "config.json.*digest"),
    "a digest of too few digits": (lines(DIGESTS, lambda rows: [rows[0][1:], *rows[1:]]), "a digest and a name"),
    "a digest twice": (lines(DIGESTS, lambda rows: [*rows, rows[0]]), "no name appears twice"),
    "no digests": (lambda run: (run / DIGESTS).unlink(), "no file.*SHA256SUMS"),
    "no list of runs": (lambda run: (run / "runs.csv").unlink(), "no file"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_refused_by_name(run, case):
    change, reason = DAMAGE[case]
    assert len(us.load_run(run).runs) == 4
    change(run)
    with pytest.raises(RunError, match=reason) as failure:
        us.load_run(run)
    assert str(run) in str(failure.value)
    assert str(failure.value).isprintable()


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_run_with_random_damage_is_read_as_something_valid_or_refused(saved, tmp_path_factory, seed):
    folder = tmp_path_factory.getbasetemp() / "damaged runs"
    folder.mkdir(exist_ok=True)
    attack(TARGETS["runs"], [saved], folder, seed)


def test_a_status_is_shown_without_escape_sequences(run):
    replace("runs.csv", "finished", "\x1b[31mfinished")(run)
    refresh(run)
    assert us.load_run(run).runs[0].status == "?[31mfinished"


def refresh(run):
    """Write the digests of a run that was changed."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != DIGESTS]
    write_digests(run, [str(path.relative_to(run)) for path in files])


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in sorted(folder.rglob("*"))}


def manuscript(folder):
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (folder / "paper.tex").write_text("years of work")


def run_with_notes(folder, saved):
    shutil.copytree(saved, folder)
    (folder / "notes.txt").write_text("my own")


def other_config(folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"algorithm": "mine", "versions": {"numpy": "2"}}))
    (folder / "metrics.csv").write_text("a,b\n1,2\n")


def own_metrics(folder):
    folder.mkdir()
    (folder / "metrics.csv").write_text("a,b\n1,2\n")


def links(folder, saved):
    shutil.copytree(saved, folder)
    (folder / "policies" / "more").symlink_to("/")


@pytest.mark.parametrize("make", [manuscript, run_with_notes, other_config, own_metrics, links])
def test_replace_never_touches_a_directory_that_holds_anything_else(make, saved, tmp_path):
    folder, result = tmp_path / "folder", us.load_run(saved)
    make(*(folder, saved)[: make.__code__.co_argcount])
    before = {path: path.is_symlink() or path.is_dir() or path.read_bytes() for path in folder.glob("**/*")}
    with pytest.raises(RunError, match="folder"):
        result.save(folder, replace=True)
    assert {path: path.is_symlink() or path.is_dir() or path.read_bytes() for path in folder.glob("**/*")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_replace_takes_the_place_of_a_run_and_fills_an_empty_directory(saved, run, tmp_path):
    result = us.load_run(saved)
    replace("runs.csv", "finished", "an older run")(run)
    result.save(run, replace=True)
    assert contents(run) == contents(saved)
    (tmp_path / "empty").mkdir()
    result.save(tmp_path / "empty", replace=True)
    assert contents(tmp_path / "empty") == contents(saved)
    result.save(tmp_path / "new", replace=True)
    assert contents(tmp_path / "new") == contents(saved)


MODULE = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
if "OwnPendulum-v0" not in gymnasium.registry:
    gymnasium.register("OwnPendulum-v0", PendulumEnv, max_episode_steps=5)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module in the current directory that registers an environment; it is not imported yet."""
    monkeypatch.setattr(imports, "_allowed", set())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_pendulum_module.py").write_text(MODULE)
    yield "own_pendulum_module"
    sys.modules.pop("own_pendulum_module", None)


def test_an_environment_that_a_file_names_with_its_module_is_imported_only_if_allowed(run, own_module):
    config(demonstrations__env=f"{own_module}:OwnPendulum-v0")(run)
    refresh(run)
    imports.import_from(".")
    with pytest.raises(NeedsError, match=f"add --import {own_module}"):
        us.load_run(run).evaluate(episodes=1)
    assert own_module not in sys.modules
    us.allow_import(own_module)
    assert us.load_run(run).evaluate(episodes=1).returns.shape == (4, 1)


def test_evaluate_takes_modules_that_it_may_import(understudy, run, own_module):  # noqa: F811
    config(demonstrations__env=f"{own_module}:OwnPendulum-v0")(run)
    refresh(run)
    words = ("evaluate", str(run), "--episodes", "1", "--workers", "1")
    status, _, err = understudy(*words)
    assert (status, own_module in sys.modules) == (2, False)
    assert f"--import {own_module}" in err
    assert understudy(*words, "--import", own_module)[0] == 0
