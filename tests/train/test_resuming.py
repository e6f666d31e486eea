"""Long runs survive: killed at any moment, `understudy train --resume DIR` goes on with them."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import test_checkpoints
import test_cli
import understudy as us
from understudy.collect import collectors
from understudy.collect.workers import WorkerPool
from understudy.core import display
from understudy.train import resuming

understudy, interrupted_at = test_cli.understudy, test_checkpoints.interrupted_at
assert_same, every_round = test_checkpoints.assert_same, test_checkpoints.every_round

SETTINGS = {"rounds": 4, "round_steps": 16, "frequency": 8, "batch_size": 8, "random_steps": 4}
SMALL = {"hidden": (8,), "gradient_steps": 2}
ADRIL = us.adril(**SETTINGS, sac=replace(us.adril().sac, **SMALL))
# So fast a learner that its actions change from turn to turn.
STEERING = us.adril(**SETTINGS, soft_q=replace(us.adril().soft_q, **SMALL, lr=0.05))
NUMBERS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
SWING = ["train", "adril", "--env", "Pendulum", "--episodes", "2", "--seeds", "2", *NUMBERS]
SWING += ["--sac.hidden", "8", "--sac.gradient-steps", "2"]
STEER = ["train", "adril", "--demos", "steering.npz", "--env", "CartPole-v1", "--seeds", "2", *NUMBERS]
STEER += ["--soft-q.hidden", "8", "--soft-q.gradient-steps", "2", "--soft-q.lr", "0.05", "--out", "runs/steer"]
CLONE = ["train", "bc", "--demos", "Pendulum", "--episodes", "2", "--rounds", "5", "--steps", "2", "--hidden", "8"]
# Ends itself by SIGKILL with the third checkpoint half written.
KILLED = """
import os, signal
import numpy as np
from understudy.cli.main import main as cli
from understudy.train import imitate as front_door
from understudy.train.checkpoints import Checkpoint

class EveryRound(Checkpoint):
    due = True

calls, savez = [], np.savez
def save(file, **arrays):
    calls.append(file)
    if len(calls) == 3:
        file.write(b"PK half of it")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    savez(file, **arrays)

front_door.Checkpoint, np.savez = EveryRound, save
cli.main()
"""
# Ends itself by SIGKILL as training starts.
KILLED_AT_ONCE = """
import os, signal
from understudy.cli.main import main as cli
from understudy.cli import commands
commands.imitate = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
cli.main()
"""


def killed(script, words, where):
    """Whether a command that is given there is ended by SIGKILL."""
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=where, capture_output=True, timeout=300)
    return done.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts."""
    place = tmp_path_factory.mktemp("whole") / "run"
    us.imitate(ADRIL, "Pendulum", "Pendulum", seeds=2, episodes=2).save(place)
    return us.load_run(place)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_in_a_jax_environment_a_run_that_dies_goes_on_to_the_same_policies(at, whole, tmp_path, every_round):
    """Episodes under way, the history and the player go on where they were, bit for bit."""

    def dies(rounds, states):
        if rounds == at:
            raise RuntimeError("no more power")

    call = {"seeds": 2, "episodes": 2, "checkpoint": tmp_path / "place.npz"}
    with pytest.raises(RuntimeError, match="no more power"):
        us.imitate(ADRIL, "Pendulum", "Pendulum", **call, visit=dies)
    assert (tmp_path / "place.npz").exists() == (at > 1)
    rounds = []
    result = us.imitate(ADRIL, "Pendulum", "Pendulum", **call, progress=lambda done, *_: rounds.append(done))
    assert rounds == list(range(at, 5))
    result.save(tmp_path / "run")
    assert_same(us.load_run(tmp_path / "run"), whole)


def test_kill_9_while_a_checkpoint_is_written_and_resume_from_another_directory(whole, understudy, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    assert killed(KILLED, [*SWING, "--out", "runs/mine"], project)
    left = sorted(path.name for path in (project / "runs").iterdir() if not path.name.startswith("."))
    assert left == ["mine.checkpoint.npz", "mine.command.json", "mine.logs"]
    assert str(project) not in (project / "runs/mine.command.json").read_text()
    status, out, err = understudy("train", "--resume", str(project / "runs/mine"))
    assert status == 0
    assert err.splitlines() == [
        f"Resuming: understudy {' '.join(SWING)} --out runs/mine",
        f"Going on from {project}/runs/mine.checkpoint.npz",
    ]
    assert f"Kept in {project}/runs/mine" in out
    assert [path.name for path in (project / "runs").iterdir()] == ["mine"], "not even the half of a checkpoint is left"
    result = us.load_run(project / "runs/mine")
    assert_same(result, whole)
    assert result.config["command"] == f"understudy {' '.join(SWING)} --out runs/mine"


def test_kill_9_before_the_first_checkpoint_starts_from_the_beginning_and_says_so(whole, understudy, tmp_path):
    assert killed(KILLED_AT_ONCE, [*SWING, "--out", "r"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["r.command.json"]
    status, _, err = understudy("train", "--resume=r/")
    assert status == 0
    assert err.endswith("No checkpoint was kept yet: it starts from the beginning.\n")
    assert_same(us.load_run("r"), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_finished_run_is_said_to_be_and_what_was_left_beside_it_goes(understudy, tmp_path, monkeypatch):
    """As when it was killed between being saved and being tidied up. Status 0: a loop of resumes ends."""
    with monkeypatch.context() as patch:
        patch.setattr(resuming, "forget", lambda out: Path(f"{out}.checkpoint.npz").touch())
        assert understudy(*CLONE, "--out", "r")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r", "r.checkpoint.npz", "r.command.json", "r.logs"]
    said = "r holds a finished run: there is nothing to resume.\n"
    assert understudy("train", "--resume", "r") == (0, said, "")
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert understudy("train", "--resume", "r") == (0, said, "")


def test_an_interrupted_run_resumes_from_a_project_that_was_moved(understudy, interrupted_at, tmp_path, monkeypatch):
    """Its demonstrations are named relative to where the command was given."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    us.load("Pendulum", episodes=2).save("demos.npz")
    words = ["train", "bc", "--demos", "demos.npz", *CLONE[6:], "--out", "a b/r"]
    interrupted_at(1)
    status, out, _ = understudy(*words)
    assert status == 130
    assert "to go on from there: understudy train --resume 'a b/r'\n" in out
    monkeypatch.chdir(tmp_path)
    shutil.move("here", "there")
    interrupted_at(None)
    assert understudy("train", "--resume", "there/a b/r")[0] == 0
    assert not us.load_run(tmp_path / "there/a b/r").interrupted
    assert [path.name for path in (tmp_path / "there/a b").iterdir()] == ["r"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--resume nowhere", "nothing to resume at 'nowhere': give the --out of a run that was killed or interrupted"),
        ("--resume", "--resume needs a directory"),
        ("--resume=", "--resume needs a directory"),
        ("--resume r --lr 0.1", "with the settings that the run began with: leave out --lr 0.1"),
        ("bc --demos Pendulum --resume=r", "leave out bc --demos Pendulum"),
        ("--resume old", "'old.command.json' is missing: give the command that trained 'old' again"),
        ("--resume torn", "'torn.command.json' is not a command (JSONDecodeError): remove it, and train anew"),
        ("--resume odd", "'odd.command.json' is not a command (KeyError): remove it, and train anew"),
        ("--resume lost", "which is gone: give it again elsewhere"),
    ],
)
def test_what_cannot_be_resumed_is_one_line_that_names_the_way_out(words, said, understudy, tmp_path):
    (tmp_path / "old.checkpoint.npz").touch()
    (tmp_path / "torn.command.json").write_text('{"command": [')
    (tmp_path / "odd.command.json").write_text("{}")
    (tmp_path / "lost.command.json").write_text(json.dumps({"command": CLONE[1:], "directory": "gone"}))
    before = sorted(tmp_path.iterdir())
    status, out, err = understudy("train", *words.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_that_diverges_at_once_says_so_and_leaves_nothing_to_resume(whole, understudy, tmp_path, every_round):
    status, out, err = understudy(*SWING, "--sac.lr", "1e30")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: every run diverged in round 1: \w+ is (nan|inf): lower the learning rate.*\n", err)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_refused_does_not_take_the_place_of_the_runs_own(understudy, interrupted_at, tmp_path):
    interrupted_at(1)
    assert understudy(*CLONE, "--out", "r")[0] == 130
    kept = (tmp_path / "r.command.json").read_bytes()
    assert json.loads(kept) == {"command": [*CLONE[1:], "--out", "r"], "directory": "."}
    assert "is a checkpoint of other settings" in understudy(*CLONE, "--lr", "0.1", "--out", "r")[2]
    assert (tmp_path / "r.command.json").read_bytes() == kept


def test_the_help_names_it(understudy):
    assert "understudy train --resume DIR" in understudy("train", "--help")[1]


@pytest.fixture(scope="module")
def steering():
    """CartPole's demonstrations: an expert that pushes to where the pole leans."""
    return us.collect("CartPole-v1", lambda obs: (obs[:, 2] + obs[:, 3] > 0).astype(int), 2)


def steered(steering, workers, staleness=0, seeds=2, **options):
    learner = STEERING if staleness == 0 else us.adril(**SETTINGS, soft_q=STEERING.soft_q, staleness=1)
    return us.imitate(learner, steering, "CartPole-v1", seeds=seeds, workers=workers, **options)


@pytest.fixture(scope="module")
def here(steering):
    """With the environments in this process."""
    return steered(steering, 0)


def test_with_lag_0_the_policies_are_the_same_however_many_workers_there_are(steering, here):
    for workers in (1, 2):
        assert_same(steered(steering, workers), here)


def test_with_lag_1_the_policies_are_the_same_with_and_without_workers_and_others_than_with_lag_0(steering, here):
    late = steered(steering, 0, staleness=1)
    assert_same(steered(steering, 1, staleness=1), late)
    np.testing.assert_array_equal(late.history["critic_loss"][:, 0], here.history["critic_loss"][:, 0])
    assert not np.array_equal(late.history["critic_loss"][:, 1:], here.history["critic_loss"][:, 1:])


def test_a_run_is_the_same_alone_or_beside_other_seeds(steering, here):
    alone = steered(steering, 0, seeds=[1])
    for name, values in here.history.items():
        np.testing.assert_allclose(alone.metrics[name][0], values[1], rtol=1e-4, err_msg=name)
    for a, b in zip(*(jax.tree.leaves(actor.policy) for actor in (alone.policies[0], here.policies[1])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.fixture
def crews(monkeypatch):
    """The crews that are hired, and one worker for each, though CartPole is cheap."""
    hired = []

    def hire(*args):
        hired.append(WorkerPool(*args))
        return hired[-1]

    monkeypatch.setattr(collectors, "WorkerPool", hire)
    monkeypatch.setattr("understudy.train.imitate.worker_count", lambda runs, env: 1)
    return hired


def test_a_killed_worker_is_named_and_the_run_resumes_with_new_episodes(
    steering, here, crews, understudy, tmp_path, monkeypatch
):
    steering.save(tmp_path / "steering.npz")

    @contextlib.contextmanager
    def fatal(title):
        yield lambda done, total, metrics: os.kill(crews[0].pids[0], signal.SIGKILL) if done == 1 else None

    with monkeypatch.context() as patch:
        patch.setattr(display, "progress_bar", fatal)
        status, out, err = understudy(*STEER)
    assert (status, out) == (2, "")
    assert re.fullmatch(
        r"error: worker 0 \(process \d+, runs of seeds \(0, 0\), \(1, 0\)\) was ended by SIGKILL.*; training keeps its "
        r"place in runs/steer.checkpoint.npz, and `understudy train --resume runs/steer` goes on from there\n",
        err,
    )
    status, _, err = understudy("train", "--resume", "runs/steer")
    assert status == 0
    assert err.endswith("Going on from runs/steer.checkpoint.npz; episodes of CartPole-v1 begin anew\n")
    assert len(crews) == 2
    result = us.load_run("runs/steer")
    assert [run.status for run in result.runs] == ["finished"] * 2
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["steer"]
    losses, others = result.metrics["critic_loss"], here.history["critic_loss"]
    np.testing.assert_array_equal(losses[:, 0], others[:, 0])
    assert losses.shape == others.shape
    assert np.isfinite(losses).all()
