"""Each command as a user types it."""

import csv
import json
import subprocess
import sys
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import understudy as us
from support.training import fail_if_called
from understudy.cli import demo, train_command
from understudy.cli.main import COMMANDS, GROUPS, run_command

SMALL = ["--rounds", "3", "--gradient-steps", "5", "--hidden", "8", "--batch-size", "16"]
ALGORITHM = '''
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

import understudy as us
from understudy.core.types import Info
from understudy.policies import Deterministic, Normalized
from understudy.policies.normalization import Normalization


class Mine(us.Algorithm):
    """An algorithm that does not learn."""

    card: ClassVar[us.Card] = us.Card(
        "mine", "Mine", "off-Q", "-", ("demonstrations",), ("continuous",), "nothing", "nobody"
    )
    scale: float = 1.0
    """A setting."""
    rounds: int = eqx.field(static=True, default=4)
    """Rounds."""

    def init(self, key, spec, demonstrations):
        normalization = Normalization.fit(spec, demonstrations)
        return Normalized(Deterministic.init(key, spec.obs_size, 1, (4,), squash=True), normalization)

    def update(self, state, data, key):
        return state, Info({"loss": jnp.asarray(self.scale, jnp.float32)})

    def policy(self, state):
        return state
'''


@pytest.mark.parametrize("words", ["evaluate", "reproduce off-q"])
def test_the_help_of_an_option_has_no_line_breaks_of_its_docstring(words, understudy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    status, out, _ = understudy(*words.split(), "--help")
    lines = [line.strip("│ ") for line in out.splitlines() if line.strip("│ ")]
    assert status == 0
    assert any(line.startswith("--") for line in lines)
    for before, line in pairwise(lines):  # a description may stand below its option, on one line
        described = before.startswith("-") and not before.endswith(")")
        assert line.startswith("-") or described or not line.endswith(")"), (before, line)


def test_help_may_come_first(understudy):
    assert understudy("help", "evaluate") == understudy("evaluate", "--help")
    assert understudy("help", "study", "run") == understudy("study", "run", "--help")
    status, _, err = understudy("help", "evalute")
    assert status == 2
    assert "'evaluate'" in err


@pytest.mark.parametrize(
    ("algorithm", "option"), [("daequil", "--moments"), ("hg_dagger", "--take_over"), ("thrifty_dagger", "--goal=f:g")]
)
def test_a_setting_that_is_a_function_is_refused_with_the_way_to_pass_it(algorithm, option, understudy):
    status, _, err = understudy("train", algorithm, "--env", "Forest", "--expert", "scripted", option, "module:f")
    setting = option.partition("=")[0]
    assert status == 2
    assert err.startswith(f"error: {setting.replace('_', '-')} ")
    assert f"us.{algorithm}({setting.removeprefix('--')}=" in err
    assert len(err.splitlines()) == 1


def test_from_demonstrations_to_a_measured_gap(understudy, tmp_path):
    status, out, _ = understudy("demos", "record", "Pendulum", "--episodes", "4", "--out", "demos.npz")
    assert status == 0
    assert "4 episodes, 800 steps" in out
    assert understudy("demos", "record", "Pendulum", "--episodes", "2", "--out", "demos.npz")[0] == 2
    assert us.load("demos.npz").episodes == 4, "an existing file is not overwritten"
    status, out, _ = understudy("demos", "inspect", "demos.npz")
    assert status == 0
    assert "[-2, 2]" in out
    status, out, err = understudy("train", "bc", "--demos", "demos.npz", "--episodes", "2", "4", *SMALL)
    assert status == 0
    assert err.count("\n") == 1, "the held-out payoff of two episodes means little"
    assert (out.count("finished"), out.count("selected")) == (2, 1)
    assert "(10 steps)" in out
    config = json.loads((tmp_path / "runs/bc/config.json").read_text())
    assert config["command"].startswith("understudy train bc --demos demos.npz")
    assert config["algorithm"]["hyperparameters"]["hidden"] == [8]
    status, out, _ = understudy("evaluate", "runs/bc", "--episodes", "3", "--out", "returns.csv")
    assert status == 0
    assert "imitation gap" in out
    rows = list(csv.DictReader((tmp_path / "returns.csv").open()))
    assert [(row["x"], row["seed"]) for row in rows] == [("2", "0"), ("4", "0")]
    assert {(row["env"], row["algorithm"], row["preset"], row["x_kind"]) for row in rows} == {
        ("Pendulum", "bc", "custom", "trajectories")
    }
    assert all(float(row["mean_return"]) < 0 < float(row["std_return"]) for row in rows)
    assert rows[0]["command"].endswith("&& understudy evaluate runs/bc --episodes 3 --out returns.csv")
    assert understudy("demos", "record", "Pendulum", "--expert", "runs/bc", "--episodes", "2", "--out", "x.npz")[0] == 0
    assert us.load("x.npz").episodes == 2


def test_env_alone_uses_its_bundled_demonstrations(understudy):
    assert understudy("train", "bc", "--env", "Pendulum", "--episodes", "2", "--out", "r", *SMALL)[0] == 0
    assert us.load_run("r").config["demonstrations"]["env"] == "Pendulum"


def test_a_file_that_names_an_environment_is_checked_against_it(understudy):
    us.Demonstrations.from_arrays(np.zeros((30, 5)), np.zeros((30, 1)), env="Pendulum").save("claims.npz")
    status, _, err = understudy("train", "bc", "--demos", "claims.npz", "--env", "Pendulum", *SMALL)
    assert status == 2
    assert "Pendulum" in err


def test_a_function_in_the_current_directory_can_be_the_expert(understudy, tmp_path, monkeypatch):
    (tmp_path / "left_expert.py").write_text("import numpy as np\ndef left(obs): return np.zeros(len(obs), int)\n")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    words = ("demos", "record", "CartPole-v1", "--expert", "left_expert:left", "--episodes", "3", "--out", "d.npz")
    assert understudy(*words)[0] == 0
    demonstrations = us.load("d.npz")
    assert demonstrations.action_space == us.Discrete(2)
    assert demonstrations.terminals.sum() == 3
    assert not demonstrations.actions.any()


def test_an_algorithm_in_the_current_directory_is_trained_and_resumed(understudy, interrupted_at, tmp_path):
    (tmp_path / "my_algorithms.py").write_text(ALGORITHM)
    words = ("train", "my_algorithms:Mine", "--demos", "Pendulum", "--episodes", "2", "--scale", "2", "--out", "r")
    assert "--scale" in understudy(*words, "--help")[1]
    interrupted_at(1)
    status, out, _ = understudy(*words)
    assert status == 130
    assert "understudy train --resume r --import my_algorithms\n" in out
    interrupted_at(None)
    assert understudy("train", "--resume", "r", "--import", "my_algorithms")[0] == 0
    run = us.load_run("r")
    assert not run.interrupted
    assert run.metrics["loss"].tolist() == [[2.0] * 4]
    assert understudy("train", "my_algorithms:Yours", "--demos", "Pendulum")[0] == 2


def test_algorithms_and_environments_are_listed(understudy):
    status, out, _ = understudy("algorithms")
    assert status == 0
    for algorithm in us.ALGORITHMS.values():
        assert algorithm.card.title in out
        assert algorithm.card.bound in out
    status, out, _ = understudy("envs")
    assert status == 0
    assert {"Forest", "LunarLander-v3"} <= set(out.split())


def test_the_help_lists_every_command(understudy):
    for words in ((), ("--help",), ("help",)):
        status, out, _ = understudy(*words)
        assert status == 0
        assert all(name.split()[0] in out for name in COMMANDS)
    for group in GROUPS:
        out = understudy(group)[1]
        assert out == understudy(group, "--help")[1]
        assert all(name.split()[1] in out for name in COMMANDS if name.startswith(f"{group} "))
    assert all(name.replace("_", "-") in understudy("train", "--help")[1] for name in us.ALGORITHMS)
    assert understudy("--version")[1] == f"understudy {us.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_can_be_imported_and_has_a_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_command([*name.split(), "--help"])
    assert not stopped.value.code
    assert f"understudy {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [
        ("bc", ["--lr", "--expert", "--expert-normalization"], ["--budget", "--workers"]),
        ("advil", ["--preset", "--threshold.delta"], ["--budget", "--workers"]),
        ("adril", ["--workers", "--sac.lr", "--soft-q.lr"], ["--budget", "--ppo.lr"]),
        ("gail", ["--workers", "--sac.lr", "--ppo.lr"], ["--budget"]),
        ("dagger", ["--expert", "--budget", "--expert-activation", "--workers", "--step-timeout"], ["--sac.lr"]),
    ],
)
def test_only_the_options_that_apply_are_shown_and_accepted(name, shown, hidden, understudy, tmp_path):
    status, out, _ = understudy("train", name, "--help")
    words = out.split()
    assert status == 0
    assert {"--demos", "--env", "--seeds", "--out", *shown} <= set(words)
    assert not set(hidden) & set(words)
    for option in hidden:
        status, _, err = understudy("train", name, "--demos", "Pendulum", option, "1")
        assert status == 2
        assert option in err
    assert list(tmp_path.iterdir()) == []


def test_a_preset_sets_the_defaults_of_the_other_options(understudy):
    algorithm, *_ = train_command.parse(["advil", "--preset", "paper", "--rounds", "3"])
    assert algorithm == us.advil.preset("paper", rounds=3)
    assert train_command.parse(["advil", "--preset=paper"])[0] == us.advil.preset("paper")
    assert "'paper'" in understudy("train", "advil", "--preset", "papr")[2]
    assert "--preset" in understudy("train", "advil", "--preset")[2]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("trian bc", "'train'"),
        ("demos recrod Forest --out x.npz", "'demos record'"),
        ("train bcc --demos Forest", "'bc'"),
        ("train adirl --demos Pendulum", "'adril'"),
        ("train bc", "--demos"),
        ("train bc --demos none.npz", "'none.npz'"),
        ("train bc --demos Forst", "'Forest'"),
        ("train bc --demos .", "'.' is a directory of no known format"),
        ("train bc --demos Pendulum --env Forest", "Forest"),
        ("train bc --demos Pendulum --episodes 99", "episodes is 99"),
        ("train bc --demos Pendulum --seeds 0", "seeds is 0"),
        ("train bc --demos Pendulum --seeds -1", "seeds is -1"),
        ("train bc --demos Pendulum --lr -1", "lr is -1.0"),
        ("train bc --demos Pendulum --holdout 0.9", "holdout is 0.9"),
        ("train bc --demos Pendulum --hidden -3", "hidden[0] is -3"),
        ("train bc --demos Pendulum --out /dev/null/run", "'/dev/null'"),
        ("train bc --env Acrobot-v1", "Acrobot-v1"),
        ("train adril --env Pendulumm", "'Pendulum'"),
        ("train adril --demos Pendulum", "--env"),
        ("train dagger --env Pendulum --expert scripted --budget -3", "budget is -3"),
        ("train dagger --env Pendulum --budget 3", "--expert"),
        ("evaluate nowhere", "'nowhere'"),
        ("demos inspect none.npz", "'none.npz'"),
        ("demos record Hopper --out x.npz", "'Hopper'"),
        ("demos record Acrobot-v1 --out x.npz", "Acrobot-v1"),
        ("demos record Forest --expert no_such:thing --out x.npz", "no_such:thing"),
        ("demos record Forest --expert scriptd --out x.npz", "'scripted'"),
        ("demos record Forest --seed 99999999999999999999999 --out x.npz", "2**32"),
        ("demos record Forest --episodes 0 --out x.npz", "episodes is 0"),
        ("demos record Forest --out /", "'/'"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_writes_nothing(words, named, understudy, tmp_path):
    status, out, err = understudy(*words.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert named in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_npz_is_named(understudy, tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    status, _, err = understudy("train", "bc", "--demos", "a.csv")
    assert status == 2
    assert "a.csv" in err


def test_a_directory_that_holds_a_run_is_refused_before_training(understudy, monkeypatch):
    assert understudy("train", "bc", "--demos", "Pendulum", "--episodes", "2", *SMALL)[0] == 0
    monkeypatch.setattr(train_command, "imitate", fail_if_called)
    status, _, err = understudy("train", "bc", "--demos", "Forest", *SMALL)
    assert status == 2
    assert "'runs/bc'" in err


def test_ctrl_c_saves_the_policies_trained_so_far(understudy, interrupted_at):
    interrupted_at(2)
    status, out, _ = understudy("train", "bc", "--demos", "Pendulum", "--episodes", "2", "--rounds", "50", *SMALL[2:])
    assert status == 130
    assert "understudy train --resume runs/bc" in out
    assert us.load_run("runs/bc").interrupted


def test_ctrl_c_before_the_first_round_leaves_nothing(understudy, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_command, "imitate", interrupted)
    assert understudy("train", "bc", "--demos", "Forest")[0] == 130
    assert list(tmp_path.iterdir()) == []


def test_a_system_error_is_one_line(understudy, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "runs/bc")

    monkeypatch.setattr(train_command, "imitate", full)
    status, _, err = understudy("train", "bc", "--demos", "Forest")
    assert status == 2
    assert err.startswith("error: No space left on device: 'runs/bc'")
    assert err.count("\n") == 1


@pytest.fixture
def small_demo(monkeypatch):
    """The demo with few seeds, rounds and steps."""
    monkeypatch.setattr(demo, "EVALUATION_EPISODES", 20)
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "BC", lambda **settings: us.bc(**{**settings, "rounds": 3, "gradient_steps": 20}))
    for name in ("DAgger", "DAeQuIL"):
        short = partial(getattr(demo, name).preset, rounds=2, gradient_steps=10, episodes_per_round=2)
        monkeypatch.setattr(demo, name, SimpleNamespace(preset=short))


@pytest.mark.slow
def test_the_demo_draws_a_figure_and_can_be_repeated(understudy, small_demo, tmp_path):
    for _ in range(2):
        status, out, _ = understudy("demo")
        assert status == 0
        rows = [line.split()[:3] for line in out.splitlines()]
        assert all(["Pendulum", "bc", count] in rows for count in ("2", "5", "10", "25"))
        assert ["Forest", "daequil", "10"] in rows
    assert (tmp_path / "out/demo/demo.png").stat().st_size > 10_000
    assert us.load_policy(tmp_path / "out/demo/pendulum-bc")(np.zeros(3)).shape == (1,)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["demo"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("")
    assert understudy("demo", "--out", "mine")[0] == 2
    assert (tmp_path / "mine/precious").exists()


@pytest.mark.slow
def test_ctrl_c_in_the_demo_writes_nothing(understudy, small_demo, interrupted_at, tmp_path):
    interrupted_at(1)
    status, out, _ = understudy("demo")
    assert (status, out) == (130, "")
    assert not (tmp_path / "out/demo").exists()


def test_the_installed_command_prints_only_its_answer_and_imports_only_what_it_needs():
    code = (
        "import sys\n"
        "from understudy.cli.main import main\n"
        "try: main()\n"
        "finally: assert not {'understudy.cli.commands', 'understudy.paper.off_q', 'matplotlib'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "train" in done.stdout


def test_a_file_of_the_user_is_not_replaced(understudy, tmp_path):
    train = ["train", "bc", "--env", "Pendulum", *SMALL]
    assert understudy(*train, "--out", "run")[0] == 0
    mine = [tmp_path / name for name in ("thesis.csv", "tree.png", "other.logs/notes.txt", "logged.logs/metrics.csv")]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    (tmp_path / "drawn.png").write_text("mine")
    for words in (
        ["evaluate", "run", "--episodes", "1", "--out", "thesis.csv"],
        ["reproduce", "forest", "--trials", "2", "--out", "thesis.csv"],
        ["reproduce", "forest", "--trials", "2", "--out", "drawn.csv"],
        ["theory", "--mdps", "1", "--out", "."],
        [*train, "--out", "other"],
        [*train, "--out", "logged"],
    ):
        status, _, err = understudy(*words)
        assert (status, err.count("\n")) == (2, 1), words
    assert {file.read_text() for file in mine} == {"mine"}
    for _ in range(2):  # its own file may be replaced
        assert understudy("evaluate", "run", "--episodes", "1", "--out", "returns.csv")[0] == 0


def test_an_empty_output_path_is_refused(understudy, tmp_path):
    for words in (["train", "bc", "--env", "Pendulum", "--out", ""], ["expert", "train", "Pendulum", "--out="]):
        status, _, err = understudy(*words)
        assert (status, "--out is empty" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []
