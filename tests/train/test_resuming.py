"""`understudy train --resume DIR` resumes runs that were killed; worker processes do not change results."""

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

import understudy as us
from support.training import assert_same
from understudy.collect.workers import WorkerPool
from understudy.core import display
from understudy.train import resuming
from understudy.train.resuming import command_checksum

SETTINGS = {"rounds": 4, "round_steps": 16, "frequency": 8, "batch_size": 8, "random_steps": 4}
SMALL = {"hidden": (8,), "gradient_steps": 2}
ADRIL = us.adril(**SETTINGS, sac=replace(us.adril().sac, **SMALL))
# The learning rate is so high that actions change from update to update.
CARTPOLE = us.adril(**SETTINGS, soft_q=replace(us.adril().soft_q, **SMALL, lr=0.05))
NUMBERS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
PENDULUM_WORDS = ["train", "adril", "--env", "Pendulum", "--episodes", "2", "--seeds", "2", *NUMBERS]
PENDULUM_WORDS += ["--sac.hidden", "8", "--sac.gradient-steps", "2"]
CARTPOLE_WORDS = ["train", "adril", "--demos", "demos.npz", "--env", "CartPole-v1", "--seeds", "2", *NUMBERS]
CARTPOLE_WORDS += ["--soft-q.hidden", "8", "--soft-q.gradient-steps", "2", "--soft-q.lr", "0.05", "--out", "runs/mine"]
BC_WORDS = ["train", "bc", "--demos", "Pendulum", "--episodes", "2", "--rounds", "5", "--gradient-steps", "2"]
BC_WORDS += ["--hidden", "8"]
# A process that kills itself when the third checkpoint is half written.
KILLED = """
import os, signal
import numpy as np
from understudy.cli.main import main
from understudy.train import imitate
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

imitate.Checkpoint, np.savez = EveryRound, save
main()
"""
# A process that kills itself when training starts.
KILLED_AT_START = """
import os, signal
from understudy.cli import train_command
from understudy.cli.main import main
train_command.imitate = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def is_killed(script, words, directory):
    """Whether a command that is run there ends by SIGKILL."""
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=directory, capture_output=True, timeout=300)
    return done.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """AdRIL on Pendulum, never interrupted."""
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    us.imitate(ADRIL, "Pendulum", "Pendulum", seeds=2, episodes=2).save(path)
    return us.load_run(path)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_in_a_jax_environment_a_run_that_dies_resumes_to_the_same_policies(at, uninterrupted, tmp_path, every_round):
    """Unfinished episodes, the replay buffer and the player are restored bit for bit."""

    def dies(rounds, states):
        if rounds == at:
            raise RuntimeError("no more power")

    call = {"seeds": 2, "episodes": 2, "checkpoint": tmp_path / "checkpoint.npz"}
    with pytest.raises(RuntimeError, match="no more power"):
        us.imitate(ADRIL, "Pendulum", "Pendulum", **call, visit=dies)
    assert (tmp_path / "checkpoint.npz").exists() == (at > 1)
    rounds = []
    result = us.imitate(ADRIL, "Pendulum", "Pendulum", **call, progress=lambda done, *_: rounds.append(done))
    assert rounds == list(range(at, 5))
    result.save(tmp_path / "run")
    assert_same(us.load_run(tmp_path / "run"), uninterrupted)


@pytest.mark.slow
def test_kill_9_while_a_checkpoint_is_written_and_resume_from_another_directory(uninterrupted, understudy, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    assert is_killed(KILLED, [*PENDULUM_WORDS, "--out", "runs/mine"], project)
    left = {path.name for path in (project / "runs").iterdir() if not path.name.startswith(".")}
    checkpoints = {"mine.checkpoint.npz", "mine.checkpoint.previous.npz", "mine.checkpoint.npz.lock"}
    assert left == {*checkpoints, "mine.command.json", "mine.lock", "mine.logs"}
    assert str(project) not in (project / "runs/mine.command.json").read_text()
    status, out, err = understudy("train", "--resume", str(project / "runs/mine"))
    assert status == 0
    first, second = (line for line in err.splitlines() if "means little" not in line)
    assert f"understudy {' '.join(PENDULUM_WORDS)} --out runs/mine" in first
    assert f"{project}/runs/mine.checkpoint.npz" in second
    assert f"{project}/runs/mine" in out
    assert [path.name for path in (project / "runs").iterdir()] == ["mine"], "the partial checkpoint is removed too"
    result = us.load_run(project / "runs/mine")
    assert_same(result, uninterrupted)
    assert result.config["command"] == f"understudy {' '.join(PENDULUM_WORDS)} --out runs/mine"


@pytest.mark.slow
def test_kill_9_before_the_first_checkpoint_starts_from_the_beginning(uninterrupted, understudy, tmp_path):
    assert is_killed(KILLED_AT_START, [*PENDULUM_WORDS, "--out", "r"], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.command.json", "r.lock"]
    assert understudy("train", "--resume=r/")[0] == 0
    assert_same(us.load_run("r"), uninterrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_resuming_a_finished_run_removes_its_temporary_files(understudy, tmp_path, monkeypatch):
    """As when it was killed between saving and cleaning up. The status is 0, so that a loop of resumes ends."""
    with monkeypatch.context() as patch:
        patch.setattr(resuming, "clean_up", lambda out: Path(f"{out}.checkpoint.npz").touch())
        assert understudy(*BC_WORDS, "--out", "r")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r", "r.checkpoint.npz", "r.command.json", "r.logs"]
    for _ in range(2):
        status, _, err = understudy("train", "--resume", "r")
        assert (status, err) == (0, "")
        assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_an_interrupted_run_resumes_from_a_project_that_was_moved(understudy, interrupted_at, tmp_path, monkeypatch):
    """The path of its demonstrations is relative to the working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    us.load("Pendulum", episodes=2).save("demos.npz")
    words = ["train", "bc", "--demos", "demos.npz", *BC_WORDS[6:], "--out", "a b/r"]
    interrupted_at(1)
    status, out, _ = understudy(*words)
    assert status == 130
    assert "understudy train --resume 'a b/r'\n" in out
    monkeypatch.chdir(tmp_path)
    shutil.move("here", "there")
    interrupted_at(None)
    assert understudy("train", "--resume", "there/a b/r")[0] == 0
    assert not us.load_run(tmp_path / "there/a b/r").interrupted
    assert [path.name for path in (tmp_path / "there/a b").iterdir()] == ["r"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--resume nowhere", "'nowhere'"),
        ("--resume", "--resume needs a directory"),
        ("--resume=", "--resume needs a directory"),
        ("--resume r --lr 0.1", "leave out --lr 0.1"),
        ("bc --demos Pendulum --resume=r", "leave out bc --demos Pendulum"),
        ("--resume old", "'old.command.json'"),
        ("--resume torn", "'torn.command.json'"),
        ("--resume odd", "'odd.command.json'"),
        ("--resume flipped", "wrong checksum"),
        ("--resume lost", "gone"),
    ],
)
def test_a_run_that_cannot_be_resumed_is_one_line_and_changes_nothing(words, named, understudy, tmp_path):
    (tmp_path / "old.checkpoint.npz").touch()
    (tmp_path / "torn.command.json").write_text('{"command": [')
    (tmp_path / "odd.command.json").write_text("{}")
    checksum = command_checksum(BC_WORDS[1:], "gone")
    lost = {"command": BC_WORDS[1:], "directory": "gone", "checksum": checksum}
    (tmp_path / "lost.command.json").write_text(json.dumps(lost))
    (tmp_path / "flipped.command.json").write_text(json.dumps({**lost, "directory": "gome"}))
    before = sorted(tmp_path.iterdir())
    status, out, err = understudy("train", *words.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert named in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_that_diverges_in_its_first_round_leaves_nothing_to_resume(understudy, tmp_path, every_round):
    status, out, err = understudy(*BC_WORDS, "--lr", "1e38")
    assert (status, out) == (2, "")
    assert "diverged in round 1" in err
    assert list(tmp_path.iterdir()) == []


def test_a_command_with_other_settings_does_not_replace_the_stored_command(understudy, interrupted_at, tmp_path):
    interrupted_at(1)
    assert understudy(*BC_WORDS, "--out", "r")[0] == 130
    stored = (tmp_path / "r.command.json").read_bytes()
    words = [*BC_WORDS[1:], "--out", "r"]
    assert json.loads(stored) == {"command": words, "directory": ".", "checksum": command_checksum(words, ".")}
    assert "other settings" in understudy(*BC_WORDS, "--lr", "0.1", "--out", "r")[2]
    assert (tmp_path / "r.command.json").read_bytes() == stored


@pytest.fixture(scope="module")
def cartpole_demos():
    """CartPole demonstrations of an expert that pushes in the direction in which the pole falls."""
    return us.record("CartPole-v1", lambda obs: (obs[:, 2] + obs[:, 3] > 0).astype(int), 2, workers=0)


def train_cartpole(demos, workers, staleness=0, seeds=2):
    learner = replace(CARTPOLE, staleness=staleness)
    return us.imitate(learner, demos, "CartPole-v1", seeds=seeds, workers=workers)


@pytest.fixture(scope="module")
def without_workers(cartpole_demos):
    """Training that steps its environments in this process."""
    return train_cartpole(cartpole_demos, 0)


@pytest.fixture(scope="module")
def stale_without_workers(cartpole_demos):
    return train_cartpole(cartpole_demos, 0, staleness=1)


def test_workers_do_not_change_the_policies(cartpole_demos, without_workers):
    assert_same(train_cartpole(cartpole_demos, 2), without_workers)


@pytest.mark.slow
def test_with_staleness_1_workers_do_not_change_the_policies(cartpole_demos, stale_without_workers):
    assert_same(train_cartpole(cartpole_demos, 1, staleness=1), stale_without_workers)


def test_staleness_changes_the_policies(without_workers, stale_without_workers):
    fresh, stale = (result.metrics["critic_loss"] for result in (without_workers, stale_without_workers))
    assert not np.array_equal(stale[:, 1:], fresh[:, 1:])


def test_a_run_does_not_depend_on_the_other_seeds(cartpole_demos, without_workers):
    alone = train_cartpole(cartpole_demos, 0, seeds=[1])
    for name, values in without_workers.metrics.items():
        np.testing.assert_allclose(alone.metrics[name][0], values[1], rtol=1e-4, err_msg=name)
    policies = (jax.tree.leaves(actor.policy) for actor in (alone.policies[0], without_workers.policies[1]))
    for a, b in zip(*policies, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.fixture
def pools(monkeypatch):
    """The worker pools that are started, each with one worker, although CartPole is cheap."""
    started = []

    def start(*args):
        started.append(WorkerPool(*args))
        return started[-1]

    monkeypatch.setattr("understudy.collect.worker_collector.WorkerPool", start)
    monkeypatch.setattr("understudy.collect.choose.worker_count", lambda env, runs: 1)
    return started


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_goes_on_with_new_episodes(
    cartpole_demos, without_workers, pools, understudy, tmp_path, monkeypatch
):
    cartpole_demos.save(tmp_path / "demos.npz")

    @contextlib.contextmanager
    def kill_worker(title):
        yield lambda done, total, metrics: os.kill(pools[0].pids[0], signal.SIGKILL) if done == 1 else None

    with monkeypatch.context() as patch:
        patch.setattr(display, "progress_bar", kill_worker)
        status, _, err = understudy(*CARTPOLE_WORDS)
    assert status == 0
    assert len(re.findall(r"warning: the process that steps CartPole-v1 was ended by SIGKILL", err)) == 1
    assert len(pools) == 1
    result = us.load_run("runs/mine")
    assert [run.status for run in result.runs] == ["finished"] * 2
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]
    losses, expected = result.metrics["critic_loss"], without_workers.metrics["critic_loss"]
    np.testing.assert_array_equal(losses[:, 0], expected[:, 0])
    assert losses.shape == expected.shape
    assert np.isfinite(losses).all()
