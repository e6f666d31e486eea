"""Environments in the shell: arguments, wrappers, horizons, what they print, and consent for the code of files."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

import understudy as us
from understudy.core import imports
from understudy.studies import Study

SMALL = ["--rounds", "2", "--gradient-steps", "2", "--hidden", "8", "--batch-size", "8"]
MODULE = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

class Talking(PendulumEnv):
    def reset(self, **options):
        print("a new episode")
        return super().reset(**options)

class Halved(gymnasium.ActionWrapper):
    def action(self, action):
        return action / 2

def expert(obs):
    return 0 * obs[:, :1]
"""


@pytest.fixture
def talking(understudy, tmp_path, monkeypatch):
    """A module in the working directory. Nothing may be imported from files yet."""
    monkeypatch.setattr(imports, "_allowed", set())
    (tmp_path / "talking_env.py").write_text(MODULE)
    yield understudy
    sys.modules.pop("talking_env", None)


def test_arguments_wrappers_and_horizon_go_from_recording_to_evaluation(talking, tmp_path):
    env = ["--env-arg", "g=5.0", "--wrap", "talking_env:Halved", "--horizon", "7"]
    expert = ["--expert", "talking_env:expert", "--episodes", "2"]
    status, out, _ = talking("demos", "record", "talking_env:Talking", *env, *expert, "--out", "demos.npz")
    assert (status, "2 episodes, 14 steps" in out) == (0, True)
    assert us.load("demos.npz").env is None, "its name alone does not make it"
    train = ["train", "bc", "--demos", "demos.npz", "--env", "talking_env:Talking", *env, *SMALL, "--out", "run"]
    assert talking(*train)[0] == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    expected = {"name": "talking_env:Talking", "args": {"g": 5.0}, "wrap": ["talking_env:Halved"], "horizon": 7}
    assert config["env"] == expected
    evaluate = ["evaluate", "run", "--episodes", "2", "--workers", "0"]
    status, _, err = talking(*evaluate)
    assert (status, "add --import talking_env" in err) == (2, True)
    status, out, err = talking(*evaluate, "--import", "talking_env")
    assert status == 0, err
    assert "a new episode" not in out
    assert err.count("a new episode") == 2
    changed = talking(*evaluate, "--import", "talking_env", "--env-arg", "g=50.0")[1]
    assert changed != out, "another gravity, another return"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--env", "talking_env:Talking"], "talking_env:Talking has no time limit: .*--horizon N"),
        (["--env", "Pendulum-v1", "--env-arg", "g"], "--env-arg is 'g': KEY=VALUE is needed"),
        (["--env", "Pendulum-v1", "--wrap", "ClipAction"], "wrap has 'ClipAction': module:Class is needed"),
        (["--env", "Pendulum-v1", "--env-arg", "mass=1"], "could not be made: TypeError"),
        (["--horizon", "5"], "--horizon is for an environment: pass --env too"),
        (["--env", "Pendulum-v1", "--horizon", "0"], "horizon is 0"),
    ],
)
def test_a_mistake_is_one_line(talking, words, line):
    us.Demonstrations.from_arrays([[0.0, 0.0, 1.0]] * 9, [[0.5]] * 9).save("demos.npz")
    if words[-1] == "talking_env:Talking":  # a file has a horizon
        words = ["demos", "record", words[-1], "--expert", "talking_env:expert", "--out", "x.npz"]
    else:
        words = ["train", "bc", "--demos", "demos.npz", *words, *SMALL]
    status, _, err = talking(*words)
    assert status == 2
    assert re.search(f"^error: .*{line}", err.strip().splitlines()[-1]), err


def test_a_decision_that_was_made_is_one_line_on_standard_error(talking):
    us.Demonstrations.from_arrays([[0.0, 0.0, 1.0]] * 9, [[0.5]] * 9, horizon=30).save("demos.npz")
    train = ["train", "bc", "--demos", "demos.npz", "--env", "talking_env:Talking", *SMALL, "--out", "run"]
    status, out, err = talking(*train)
    assert status == 0
    assert "warning: talking_env:Talking has no time limit: its episodes end after 30 steps" in err
    assert "warning" not in out


def test_a_stored_command_needs_consent_for_its_environment_and_wrappers(talking, tmp_path):
    from understudy.train.resuming import command_checksum

    words = ["bc", "--demos", "Pendulum", "--env", "Pendulum-v1", "--wrap", "talking_env:Halved", "--out", "run"]
    stored = {"command": words, "directory": ".", "checksum": command_checksum(words, ".")}
    (tmp_path / "run.command.json").write_text(json.dumps(stored))
    status, _, err = talking("train", "--resume", "run")
    assert (status, "add --import talking_env" in err) == (2, True)
    assert "talking_env" not in sys.modules


def test_a_study_has_arguments_wrappers_and_a_horizon(talking, tmp_path):
    text = """
    [protocol]
    seeds = 1
    eval_episodes = 1
    [[task]]
    env = "Pendulum-v1"
    demos = "demos.npz"
    env_args = { g = 5.0 }
    wrap = ["gymnasium.wrappers:ClipAction"]
    horizon = 7
    [[algorithm]]
    name = "bc"
    settings = { rounds = 1, gradient_steps = 1, hidden = [4], batch_size = 4 }
    """
    us.Demonstrations.from_arrays([[0.0, 0.0, 1.0]] * 9, [[0.5]] * 9, [3, 3, 3], horizon=7).save("demos.npz")
    (tmp_path / "s.toml").write_text(textwrap.dedent(text))
    study = Study.load("s.toml")
    assert study.tasks[0].named_env.args == {"g": 5.0}
    assert Study.from_dict(json.loads(json.dumps(study.to_dict()))) == study
    status, _, err = talking("study", "run", "s.toml", "--jobs", "1")
    assert status == 0, err
    assert "warning: Pendulum-v1 has actions without bounds" in err, "ClipAction takes actions of any size"
    (cell,) = (tmp_path / "runs/s/cells").glob("*.json")
    task = json.loads(cell.read_text())["config"]["task"]
    assert (task["env_args"], task["horizon"]) == ({"g": 5.0}, 7)
    for old, new, words in [
        ("g = 5.0", "g = 1979-05-27", "env_args has g"),
        ("horizon = 7", "horizon = 0", "horizon is 0"),
        ("gymnasium.wrappers:ClipAction", "talking_env:Halved", "add --import talking_env"),
        ("gymnasium.wrappers:ClipAction", "ClipAction", "wrap has 'ClipAction'"),
    ]:
        (tmp_path / "s.toml").write_text(textwrap.dedent(text).replace(old, new))
        status, _, err = talking("study", "run", "s.toml", "--jobs", "1")
        assert (status, words in err) == (2, True), err


@pytest.mark.slow
def test_what_a_worker_prints_stays_out_of_a_pipe(talking, tmp_path):
    command = [sys.executable, "-m", "understudy", "demos", "record", "talking_env:Talking", "--horizon", "5"]
    more = ["--expert", "talking_env:expert", "--episodes", "2", "--out", "d.npz"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("2 episodes")
    assert done.stderr.count("a new episode") == 2


FREE = """
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.spaces import Box

class Free(PendulumEnv):
    def __init__(self):
        super().__init__()
        self.action_space = Box(-np.inf, np.inf, (1,))

def expert(obs):
    return 5 * obs[:, :1]
"""


@pytest.mark.parametrize("algorithm", ["bc", "dagger"])
def test_an_expert_is_recorded_where_actions_have_no_bounds(understudy, tmp_path, algorithm):
    (tmp_path / "free_env.py").write_text(FREE)
    own = ["--env", "free_env:Free", "--expert", "free_env:expert", "--episodes", "2"]
    try:
        status, out, err = understudy("train", algorithm, *own, "--horizon", "9", *SMALL, "--out", "run")
        assert status == 0, err
        low = us.load_run("run").policy.spec.action.low[0]
        assert -6 <= low < -2, "bounds come from the recorded actions"
        assert out.endswith("understudy evaluate run --import free_env\n")
        status, _, err = understudy("train", algorithm, *own, *SMALL, "--out", "other")
        assert (status, "has no time limit" in err) == (2, True)
    finally:
        sys.modules.pop("free_env", None)


def test_a_queried_expert_can_wait_for_the_bounds_and_the_horizon_of_the_demonstrations(understudy, tmp_path):
    (tmp_path / "free_env.py").write_text(FREE)
    expert = ["--expert", "free_env:expert"]
    try:
        record = ["demos", "record", "free_env:Free", *expert, "--horizon", "9", "--episodes", "2", "--out", "d.npz"]
        assert understudy(*record)[0] == 0
        status, _, err = understudy("train", "dagger", "--demos", "d.npz", "--env", "free_env:Free", *expert, *SMALL)
        assert status == 0, err
        assert "its episodes end after 9 steps" in err
    finally:
        sys.modules.pop("free_env", None)
