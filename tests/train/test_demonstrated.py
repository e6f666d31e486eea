"""Where no demonstrations are named, they come from the expert that is named, and from no other."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest

import understudy as us
from support.training import assert_same, ctrl_c
from understudy.core.errors import NeedsError, RunError
from understudy.train.demonstrated import SEED, names_another_expert, records_expert

MODELS = Path(__file__).parents[1] / "data_files" / "sb3"
LEARNER = us.bc(rounds=4, gradient_steps=5, batch_size=16, hidden=(8,))
SMALL = ["--rounds", "4", "--gradient-steps", "5", "--hidden", "8", "--batch-size", "16"]


def assert_same_policies(run, result):
    """A run that was loaded: its metrics are rounded."""
    for ours, theirs in zip(run.policies, result.policies, strict=True):
        for a, b in zip(jax.tree.leaves(ours.policy), jax.tree.leaves(theirs.policy), strict=True):
            np.testing.assert_array_equal(a, b)


def balance(obs):
    return (obs[:, 2] + obs[:, 3] > 0).astype(int)


@pytest.mark.parametrize(
    ("env", "expert", "another"),
    [
        ("Pendulum", None, False),
        ("Pendulum", "scripted", False),
        ("Pendulum", "bundled", True),  # its demonstrations are the script's
        ("CartPole-v1", "bundled", False),
        ("CartPole-v1", "CartPole-v1", False),
        ("CartPole-v1", "LunarLander-v3", True),
        ("CartPole-v1", "model.zip", True),
        ("CartPole-v1", balance, True),
        ("Acrobot-v1", None, False),
        ("Acrobot-v1", "bundled", True),
        (None, "scripted", True),
    ],
)
def test_bundled_demonstrations_belong_to_one_expert(env, expert, another):
    assert names_another_expert(env, expert) is another


@pytest.mark.parametrize(
    ("task", "expert", "records"),
    [
        ("Hopper-v5", None, True),  # a bundled expert without bundled demonstrations
        ("Hopper-v5", "bundled", True),
        ("CartPole-v1", None, False),
        ("Acrobot-v1", None, False),  # no expert either
        (None, None, False),
    ],
)
def test_a_bundled_expert_is_recorded_if_its_demonstrations_are_not_bundled(task, expert, records):
    assert records_expert(task, task, expert) is records


@pytest.mark.skipif(find_spec("mujoco") is None, reason="needs the extra mujoco")
def test_a_mujoco_task_needs_no_demonstrations(capsys):
    result = us.imitate(LEARNER, env="Hopper-v5", episodes=1, workers=0)
    assert result.config["demonstrations"]["expert_return"]["mean"] > 3000
    assert "recorded 1 episodes" in capsys.readouterr().err
    with pytest.raises(NeedsError, match="include_cfrc_ext_in_observation"):
        us.imitate(LEARNER, env="Ant-v5", workers=0)
    with pytest.raises(NeedsError, match="Acrobot-v1 has no bundled demonstrations"):
        us.imitate(LEARNER, env="Acrobot-v1", workers=0)


@pytest.mark.parametrize(("env", "episodes"), [("Pendulum", [1, 2]), ("Pendulum-v1", 2)])
def test_the_named_expert_is_recorded(env, episodes, capsys):
    path = MODELS / "sac.zip"
    result = us.imitate(LEARNER, None, env, path, episodes=episodes, workers=0)
    expected = us.imitate(LEARNER, us.record(env, path, 2, SEED, workers=0), env, episodes=episodes)
    assert_same(result, expected)
    assert result.config["demonstrations"]["episodes"] == 2
    said = capsys.readouterr().err
    assert "recorded 2 episodes of the expert in Pendulum" in said
    assert f"return {result.config['demonstrations']['expert_return']['mean']:.1f} ±" in said
    assert said.count("\n") == 1


def test_twenty_five_episodes_are_recorded_by_default():
    result = us.imitate(LEARNER, env="Pendulum", expert=MODELS / "sac.zip")
    assert result.config["demonstrations"]["episodes"] == 25
    states = us.record("Pendulum", MODELS / "sac.zip", 1, seed=0).observations[0]
    recorded = us.record("Pendulum", MODELS / "sac.zip", 25, seed=SEED).observations
    assert not (recorded == states).all(axis=1).any()  # evaluation starts elsewhere


def test_without_an_expert_the_bundled_demonstrations_are_used(capsys):
    expected = us.imitate(LEARNER, "CartPole-v1", "CartPole-v1")
    for expert in (None, "bundled"):
        assert_same(us.imitate(LEARNER, None, "CartPole-v1", expert), expected)
    assert capsys.readouterr().err == ""


def test_what_is_missing_is_named():
    with pytest.raises(NeedsError, match="no demonstrations: pass some, or env= a task"):
        us.imitate(LEARNER)
    with pytest.raises(NeedsError, match="recorded from an expert in an environment: pass env="):
        us.imitate(LEARNER, expert=balance)
    with pytest.raises(NeedsError, match=r"Acrobot-v1 has no bundled demonstrations.*an expert to record them from"):
        us.imitate(LEARNER, env="Acrobot-v1")


def test_an_algorithm_that_queries_learns_from_episodes_of_the_expert_that_it_queries():
    learner = us.dagger(rounds=2, gradient_steps=5, batch_size=16, episodes_per_round=1, hidden=(8,))
    result = us.imitate(learner, None, "CartPole-v1", us.Expert(balance).budget(10), episodes=2, workers=0)
    expected = us.imitate(
        learner,
        us.record("CartPole-v1", balance, 2, SEED, workers=0),
        "CartPole-v1",
        us.Expert(balance).budget(10),
        workers=0,
    )
    assert_same(result, expected)
    assert np.nanmax(result.metrics["queries"]) == 10  # recording is not counted


@pytest.mark.parametrize(("env", "expert"), [("Pendulum", MODELS / "ppo.zip"), ("CartPole-v1", balance)])
def test_a_resumed_run_records_the_same_demonstrations(env, expert, tmp_path, every_round):
    def train(checkpoint, progress=None):
        return us.imitate(LEARNER, None, env, expert, episodes=2, checkpoint=checkpoint, progress=progress, workers=0)

    whole = train(None)
    assert train(tmp_path / "c.npz", ctrl_c(2)).interrupted
    begun = []
    assert_same(train(tmp_path / "c.npz", lambda done, *_: begun.append(done)), whole)
    assert min(begun) == 3


def test_a_checkpoint_of_other_demonstrations_is_refused(tmp_path, every_round):
    random = np.random.default_rng()  # an expert that does not repeat itself

    def erratic(obs):
        return random.integers(2, size=len(obs))

    def train(progress=None):
        return us.imitate(
            LEARNER,
            None,
            "CartPole-v1",
            erratic,
            episodes=2,
            checkpoint=tmp_path / "c.npz",
            progress=progress,
            workers=0,
        )

    assert train(ctrl_c(2)).interrupted
    with pytest.raises(RunError, match="demonstrations"):
        train()


def test_commands_record_the_named_expert(understudy, tmp_path):
    shutil.copy(MODELS / "sac.zip", tmp_path)
    status, _, err = understudy(
        "train", "bc", "--env", "Pendulum", "--expert", "sac.zip", "--episodes", "1", "2", *SMALL
    )
    assert status == 0, err
    assert "recorded 2 episodes of the expert in Pendulum" in err
    run = us.load_run("runs/bc")
    assert run.config["demonstrations"]["episodes"] == 2
    recorded = us.record("Pendulum", "sac.zip", 2, SEED)
    expected = us.imitate(LEARNER, recorded, "Pendulum", episodes=[1, 2])
    assert_same_policies(run, expected)
    status, _, err = understudy("train", "bc", "--env", "CartPole-v1", "--expert", "bundled", "--out", "b", *SMALL)
    assert status == 0
    assert "recording" not in err
    status, _, err = understudy("train", "bc", "--demos", "Pendulum", "--expert", "sac.zip", "--out", "c", *SMALL)
    assert status == 2
    assert "leave out --expert, or leave out --demos" in err
    status, _, err = understudy("train", "bc", "--expert", "sac.zip", "--out", "c", *SMALL)
    assert status == 2
    assert "--env" in err


def test_a_command_with_statistics_is_recorded_and_resumed(understudy, interrupted_at, tmp_path):
    model, statistics = MODELS / "ppo-normalized.zip", MODELS / "ppo-normalized.npz"
    shutil.copy(model, tmp_path)
    shutil.copy(statistics, tmp_path / "stats.npz")
    words = ["--env", "Pendulum", "--expert", model.name, "--expert-normalization", "stats.npz"]
    status, _, err = understudy("demos", "record", *words[1:], "--episodes", "2", "--out", "d.npz")
    assert status == 0, err
    actor = us.policy_from_sb3(model, "Pendulum", normalization=statistics)
    demos = us.load("d.npz")
    np.testing.assert_allclose(actor(demos.observations), demos.actions, atol=1e-5)
    interrupted_at(2)
    assert understudy("train", "bc", *words, "--episodes", "1", *SMALL)[0] == 130
    interrupted_at(None)
    status, _, err = understudy("train", "--resume", "runs/bc")
    assert status == 0, err
    recorded = us.record("Pendulum", model, 1, SEED, expert_normalization=statistics)
    assert_same_policies(us.load_run("runs/bc"), us.imitate(LEARNER, recorded, "Pendulum"))
