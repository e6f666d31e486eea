"""Each command as a user types it."""

import contextlib
import csv
import json
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import understudy as us
from understudy.cli import commands, demo
from understudy.cli.main import main as cli
from understudy.core import display

SMALL = ["--rounds", "3", "--steps", "20", "--hidden", "16", "--batch-size", "32"]


@pytest.fixture
def understudy(monkeypatch, capsys, tmp_path):
    """Run a command in an empty directory: (exit status, what it printed, what it complained about)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return run


def test_from_demonstrations_to_a_measured_gap(understudy, tmp_path):
    status, out, _ = understudy("demos", "collect", "Pendulum", "--episodes", "4", "--out", "demos.npz")
    assert status == 0
    assert "4 episodes, 800 steps (200 to 200 an episode), return -" in out
    status, _, err = understudy("demos", "collect", "Pendulum", "--episodes", "2", "--out", "demos.npz")
    assert status == 2
    assert "the file 'demos.npz' is there already" in err
    status, out, _ = understudy("demos", "inspect", "demos.npz")
    assert status == 0
    assert "continuous [-2, 2]" in out
    assert "0 of 4 in a terminal state" in out
    status, out, err = understudy("train", "bc", "--demos", "demos.npz", "--episodes", "2", "4", "--seeds", "2", *SMALL)
    assert (status, err) == (0, "")
    assert out.count("finished") == 4
    assert out.count("selected") == 1
    config = json.loads((tmp_path / "runs/bc/config.json").read_text())
    assert config["command"].startswith("understudy train bc --demos demos.npz")
    assert config["algorithm"]["hyperparameters"]["hidden"] == [16]
    status, out, _ = understudy("evaluate", "runs/bc", "--episodes", "3", "--out", "returns.csv")
    assert status == 0
    assert "imitation gap" in out
    rows = list(csv.DictReader((tmp_path / "returns.csv").open()))
    assert [(row["x"], row["seed"]) for row in rows] == [("2", "0"), ("2", "1"), ("4", "0"), ("4", "1")]
    assert {(row["env"], row["algorithm"], row["preset"], row["x_kind"]) for row in rows} == {
        ("Pendulum", "bc", "custom", "trajectories")
    }
    assert all(float(row["mean_return"]) < 0 < float(row["std_return"]) for row in rows)
    assert rows[0]["command"].endswith("&& understudy evaluate runs/bc --episodes 3 --out returns.csv")
    status, out, _ = understudy(
        "demos", "collect", "Pendulum", "--expert", "runs/bc", "--episodes", "2", "--out", "mine.npz"
    )
    assert us.load("mine.npz").episodes == 2


def test_a_task_is_enough_where_demonstrations_are_bundled(understudy):
    status, _, _ = understudy("train", "bc", "--env", "Forest", "--episodes", "3", "--out", "r", *SMALL)
    assert status == 0
    assert us.load_run("r").config["demonstrations"]["env"] == "Forest"


def test_a_file_that_claims_an_environment_is_checked_against_it(understudy):
    us.Demonstrations.from_arrays(np.zeros((30, 5)), np.zeros((30, 1)), env="Pendulum").save("claims.npz")
    status, _, err = understudy("train", "bc", "--demos", "claims.npz", "--env", "Pendulum", *SMALL)
    assert status == 2
    assert "they are not from this environment" in err


def test_a_function_in_this_directory_can_be_the_expert(understudy, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import numpy as np\ndef left(obs): return np.zeros(len(obs), int)\n")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    status, _, _ = understudy(
        "demos", "collect", "CartPole-v1", "--expert", "mine:left", "--episodes", "3", "--out", "d.npz"
    )
    assert status == 0
    demonstrations = us.load("d.npz")
    assert demonstrations.action_space == us.Discrete(2)
    assert demonstrations.terminals.sum() == 3
    assert not demonstrations.actions.any()


def test_the_taxonomy_and_the_environments_are_listed(understudy):
    status, out, _ = understudy("algorithms")
    assert status == 0
    for algorithm in us.ALGORITHMS.values():
        assert algorithm.card.title in out
        assert algorithm.card.bound in out
    status, out, _ = understudy("envs")
    assert status == 0
    assert "Forest" in out
    assert "LunarLander-v3" in out
    status, out, _ = understudy("--help")
    assert status == 0
    for command in cli.COMMANDS:
        assert f"  {command}  " in out
    assert understudy("--version")[1] == f"understudy {us.__version__}\n"
    assert "--lr" in understudy("train", "bc", "--help")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian bc", "unknown command 'trian': did you mean 'train'?"),
        ("train bcc --demos Forest", "unknown algorithm 'bcc': did you mean 'bc'?"),
        ("train bc", "nothing to learn from: pass --demos"),
        ("train bc --demos none.npz", "no file 'none.npz'"),
        ("train bc --demos Forst", "did you mean 'Forest'?"),
        ("train bc --demos Pendulum --env Forest", "they are not from this environment"),
        ("train bc --demos Pendulum --episodes 99", "episodes is 99, but there are 25 in Pendulum"),
        ("train bc --demos Pendulum --seeds 0", "seeds is 0: a whole number of at least 1 is needed"),
        ("train bc --demos Pendulum --lr -1", "lr is -1.0: a number above 0 is needed"),
        ("train bc --demos Pendulum --holdout 0.9", "holdout is 0.9"),
        ("evaluate nowhere", "no run at 'nowhere'"),
        ("demos inspect none.npz", "no file 'none.npz'"),
        ("demos collect Hopper --out x.npz", "unknown environment 'Hopper'"),
        ("demos collect Acrobot-v1 --out x.npz", "has no scripted expert and none is bundled"),
        ("demos collect Forest --expert no_such:thing --out x.npz", "cannot be imported"),
        ("demos collect Forest --expert scriptd --out x.npz", "unknown expert 'scriptd': did you mean 'scripted'?"),
        ("demos colect Forest --out x.npz", "did you mean 'demos collect'?"),
        ("train bc --demos Pendulum --hidden -3", "hidden[0] is -3: a whole number of at least 1 is needed"),
        ("train bc --demos Pendulum --out /dev/null/run", "cannot be written: '/dev/null' is a file"),
        ("demos collect Forest --seed 99999999999999999999999 --out x.npz", "it must be below 2**32"),
        ("demos collect Forest --episodes 0 --out x.npz", "episodes is 0"),
        ("demos collect Forest --out /", "'/' is a directory, and a file is needed"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_leaves_nothing(words, said, understudy, tmp_path):
    status, out, err = understudy(*words.split())
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_taken_directory_is_refused_before_training(understudy, monkeypatch):
    assert understudy("train", "bc", "--demos", "Forest", *SMALL)[0] == 0
    monkeypatch.setattr(commands, "imitate", lambda *a, **k: pytest.fail("trained first"))
    status, _, err = understudy("train", "bc", "--demos", "Forest", *SMALL)
    assert status == 2
    assert "the directory 'runs/bc' already holds a run" in err


def test_ctrl_c_keeps_what_is_trained_and_says_so(understudy, monkeypatch):
    @contextlib.contextmanager
    def interrupting(title):
        yield lambda done, total, metrics: signal.raise_signal(signal.SIGINT) if done == 2 else None

    monkeypatch.setattr(display, "progress_bar", interrupting)
    status, out, _ = understudy("train", "bc", "--demos", "Forest", "--rounds", "50", *SMALL[2:])
    assert status == 130
    assert "Interrupted. What was trained until then is kept in runs/bc" in out
    assert us.load_run("runs/bc").interrupted


def test_ctrl_c_before_anything_is_trained_leaves_nothing(understudy, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "imitate", interrupted)
    status, _, err = understudy("train", "bc", "--demos", "Forest")
    assert status == 130
    assert "nothing was written" in err
    assert list(tmp_path.iterdir()) == []


def test_the_demo_tells_its_story_and_can_be_repeated(understudy, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "EVALUATION_EPISODES", 20)
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "bc", lambda **kw: us.bc(**{**kw, "rounds": 2, "steps": 100}))
    for name in ("dagger", "daequil"):
        short = partial(getattr(us, name).preset, rounds=2, steps=10, episodes_per_round=2)
        monkeypatch.setattr(demo, name, SimpleNamespace(preset=short))
    for _ in range(2):
        status, out, _ = understudy("demo")
        assert status == 0
        assert out.count("bc") == 6
        assert "Forest    daequil       10" in out
    assert (tmp_path / "out/demo/demo.png").stat().st_size > 10_000
    assert us.load_policy(tmp_path / "out/demo/pendulum-bc")(np.zeros(3)).shape == (1,)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["demo"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("")
    status, _, err = understudy("demo", "--out", "mine")
    assert status == 2
    assert "is not empty" in err


def test_a_run_that_asks_says_how_often_and_how_its_last_episodes_went(understudy):
    words = ("train", "dagger", "--env", "Forest", "--expert", "scripted", "--rounds", "2", "--steps", "5")
    status, out, _ = understudy(*words, "--episodes-per-round", "2", "--hidden", "8")
    assert status == 0
    history = us.load_run("runs/dagger").history
    assert "last round's return  queries" in out
    assert f"{history['return'][0, -1]:.4g}" in out
    assert f"{history['queries'][0, -1]:.4g}" in out


def test_the_installed_command_runs_quietly():
    """Nothing but the answer on standard output, nothing at all on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "understudy", "demos", "inspect", "Forest"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "25" in done.stdout


def test_ctrl_c_in_the_demo_publishes_nothing(understudy, monkeypatch, tmp_path):
    @contextlib.contextmanager
    def interrupting(title):
        yield lambda done, total, metrics: signal.raise_signal(signal.SIGINT) if done == 2 else None

    monkeypatch.setattr(display, "progress_bar", interrupting)
    status, out, err = understudy("demo")
    assert (status, out) == (130, "")
    assert "nothing was written" in err
    assert not (tmp_path / "out/demo").exists()


def test_an_error_of_the_system_is_one_line(understudy, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "runs/bc")

    monkeypatch.setattr(commands, "imitate", full)
    status, _, err = understudy("train", "bc", "--demos", "Forest")
    assert (status, err) == (2, "error: No space left on device: 'runs/bc'\n")


def test_what_is_asked_for_is_named_as_it_was_asked_for(understudy, tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    dagger = ("train", "dagger", "--env", "Pendulum")
    for words, wanted in (
        (("train", "adril", "--env", "Pendulumm"), "unknown environment 'Pendulumm': did you mean 'Pendulum'?"),
        (("train", "bc", "--env", "Acrobot-v1"), "Acrobot-v1 has no demonstrations of its own: give a file"),
        (("train", "adril", "--demos", "Pendulum"), "pass env=, or --env in the shell"),
        ((*dagger, "--expert", "scripted", "--budget", "-3"), "budget is -3"),
        (("train", "bc", "--demos", "a.csv"), "a.csv: not an npz file of arrays: see docs/demonstrations.md"),
        (("train", "bc", "--demos", "."), ".: a directory: see docs/demonstrations.md"),
        (("train", "bc", "--demos", "Pendulum", "--seeds", "-1"), "seeds is -1"),
        (("train", "adirl", "--demos", "Pendulum"), "did you mean 'adril'?"),
    ):
        status, _, err = understudy(*words)
        assert status == 2, words
        assert wanted in " ".join(err.split()), words
