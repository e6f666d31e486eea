"""`train` with several values of a setting, and with --replace."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from support.training import fail_if_called
from understudy.cli import sweeps, train_command
from understudy.evaluation import rendering
from understudy.train import resuming
from understudy.train.checkpoints import has_checkpoint

TRAIN = ["train", "bc", "--demos", "Pendulum", "--episodes", "2", "--rounds", "3", "--gradient-steps", "2"]
TRAIN += ["--batch-size", "8"]
SWEEP = [*TRAIN, "--lr", "1e-4", "3e-4", "--hidden", "8", "--hidden", "4", "4"]
NAMES = [f"lr={lr},hidden={hidden}" for lr in ("0.0001", "0.0003") for hidden in ("8", "4x4")]


def test_several_values_are_a_run_each_and_a_table_names_the_best(understudy):
    status, out, err = understudy(*SWEEP)
    assert status == 0
    assert all("means little" in line for line in err.splitlines()), "the only warning is that of few demonstrations"
    assert sorted(path.name for path in Path("runs/bc").iterdir()) == sorted(NAMES)
    payoffs = {name: us.load_run(f"runs/bc/{name}").runs[0].payoff for name in NAMES}
    best = min(NAMES, key=payoffs.get)
    assert f"{best} has the lowest payoff on held-out demonstrations" in out
    assert f"understudy evaluate runs/bc/{best}" in out
    (row,) = [line for line in out.splitlines() if line.rstrip().endswith(" best")]
    assert row.startswith(best)
    config = json.loads((Path("runs/bc") / NAMES[1] / "config.json").read_text())
    settings = config["algorithm"]["hyperparameters"]
    assert (settings["lr"], settings["hidden"], settings["rounds"]) == (1e-4, [4, 4], 3)
    alone = config["command"].split()[1:]
    assert alone[-2:] == ["--out", f"runs/bc/{NAMES[1]}"]
    assert understudy(*alone[:-1], "again")[0] == 0, "a run's own command trains it alone"
    kept = us.load_run(f"runs/bc/{NAMES[1]}").policy
    np.testing.assert_array_equal(us.load_run("again").policy(np.ones(3)), kept(np.ones(3)))


def test_the_same_sweep_resumes_and_another_one_is_refused(understudy, monkeypatch, interrupted_at, every_round):
    with monkeypatch.context() as patch:
        interrupt(patch, train_command, combination=2)
        status, out, _ = understudy(*SWEEP)
    assert status == 130
    assert "Rerun the same command" in out
    assert has_checkpoint(f"runs/bc/{NAMES[1]}.checkpoint.npz")
    other = [word if word != "3" else "4" for word in SWEEP]
    status, _, err = understudy(*other)
    assert status == 2
    assert f"'runs/bc/{NAMES[0]}' already holds a run: choose another --out, or add --replace" in err
    status, out, err = understudy(*SWEEP)
    assert status == 0
    assert out.count("is already trained") == 1
    assert "Resuming from" in err
    assert not list(Path("runs/bc").glob("*.npz"))
    monkeypatch.setattr(train_command, "imitate", fail_if_called)
    assert understudy(*SWEEP)[1].count("is already trained") == 4


def interrupt(patch, module, combination):
    """Send Ctrl-C after the first round of one of the calls of `imitate`."""
    calls, imitate = [], module.imitate

    def counting(*arguments, **options):
        calls.append(1)
        if len(calls) == combination:
            options["progress"] = lambda done, *_: signal.raise_signal(signal.SIGINT) if done == 1 else None
        return imitate(*arguments, **options)

    patch.setattr(module, "imitate", counting)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--lr", "1"], [[]]),
        (["--hidden", "8", "8"], [[]]),
        (["--lr=1", "2"], [["lr"]] * 2),
        (["--weight_decay", "1", "2"], [["weight_decay"]] * 2),
        (["--episodes", "1", "2", "--decay"], [[]]),
        (["--help"], [[]]),
    ],
)
def test_only_several_values_of_a_setting_are_a_sweep(words, names):
    assert [command.swept for command in sweeps.combinations(us.bc(), ["bc", *words])] == names


def test_a_players_setting_can_be_swept():
    commands = sweeps.combinations(us.adril(), ["adril", "--sac.lr", "1e-3", "1e-4", "--out", "x"])
    assert [command.words for command in commands] == [["adril", "--sac.lr", "1e-3"], ["adril", "--sac.lr", "1e-4"]]


def test_absurd_and_wrong_sweeps_are_refused_before_training(understudy, monkeypatch):
    monkeypatch.setattr(train_command, "imitate", fail_if_called)
    many = [str(number) for number in range(1, 202)]
    status, _, err = understudy(*TRAIN, "--lr", *many)
    assert (status, "201 combinations" in err) == (2, True)
    assert understudy(*TRAIN, "--lr", "1e-3", "x")[0] == 2
    status, _, err = understudy(*TRAIN, "--lr", "1e-3", "0.001")
    assert (status, "twice" in err) == (2, True)
    Path("runs/bc").mkdir(parents=True)
    Path("runs/bc/thesis.tex").write_text("mine")
    status, _, err = understudy(*SWEEP)
    assert (status, "thesis.tex" in err) == (2, True)


# --- --replace --------------------------------------------------------------------------------------------------------


def test_replace_replaces_a_run_and_nothing_else(understudy):
    words = [*TRAIN, "--hidden", "8", "--out", "run"]
    assert understudy(*words)[0] == 0
    status, _, err = understudy(*words)
    assert (status, "add --replace" in err) == (2, True)
    assert understudy(*words, "--lr", "0.01", "--replace")[0] == 0
    assert us.load_run("run").config["algorithm"]["hyperparameters"]["lr"] == 0.01
    assert [path.name for path in Path().iterdir()] == ["run"]
    Path("run/notes.txt").write_text("mine")
    assert understudy(*words, "--replace")[0] == 2
    assert Path("run/notes.txt").read_text() == "mine"
    Path("folder").mkdir()
    Path("folder/config.json").write_text("{}")
    assert understudy(*words[:-1], "folder", "--replace")[0] == 2
    assert understudy(*words[:-1], "new", "--replace")[0] == 0


def test_replace_starts_again_and_resume_continues(understudy, interrupted_at, every_round):
    words = [*TRAIN, "--hidden", "8", "--out", "run"]
    assert understudy(*words)[0] == 0
    finished = us.load_run("run").config["date"]
    interrupted_at(1)
    assert understudy(*words, "--lr", "0.5", "--replace")[0] == 130
    interrupted_at(2)
    assert understudy(*words, "--lr", "0.01", "--replace")[0] == 130, "another run's checkpoint is no obstacle"
    interrupted_at(None)
    status, _, err = understudy("train", "--resume", "run")
    assert status == 0
    assert "Resuming from" in err
    result = us.load_run("run")
    assert result.config["algorithm"]["hyperparameters"]["lr"] == 0.01
    assert not result.interrupted
    assert result.config["date"] >= finished
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_a_killed_replacement_resumes_although_the_old_run_is_there(understudy, monkeypatch, every_round):
    words = [*TRAIN, "--hidden", "8", "--out", "run"]
    assert understudy(*words)[0] == 0

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("understudy.train.results.Result.save", killed)  # trained, and not saved
        assert understudy(*words, "--lr", "0.01", "--replace")[0] == 130
    assert resuming.interrupted("run") is False, "the old run"
    assert understudy("train", "--resume", "run")[0] == 0
    assert us.load_run("run").config["algorithm"]["hyperparameters"]["lr"] == 0.01
    assert [path.name for path in Path().iterdir()] == ["run"]
    assert "nothing to resume" in understudy("train", "--resume", "run")[1]


def test_replace_records_demonstrations_again_and_spares_other_files(understudy):
    words = ["demos", "record", "Pendulum", "--out", "demos.npz", "--episodes"]
    assert understudy(*words, "1")[0] == 0
    assert understudy(*words, "2", "--replace")[0] == 0
    assert us.load("demos.npz").episodes == 2
    Path("demos.npz").write_text("mine")
    assert understudy(*words, "1", "--replace")[0] == 2
    assert Path("demos.npz").read_text() == "mine"


def test_evaluate_writes_a_video_of_the_selected_policy(understudy, monkeypatch):
    draw = rendering._pendulum_frames
    monkeypatch.setattr(rendering, "_pendulum_frames", lambda obs: draw(obs[:3]))
    assert understudy(*TRAIN, "--hidden", "8", "--out", "run")[0] == 0
    status, _, err = understudy("evaluate", "run", "--episodes", "1", "--video", "a.avi")
    assert (status, "use .mp4 or .gif" in err) == (2, True)
    status, out, _ = understudy("evaluate", "run", "--episodes", "1", "--video", "a.gif", "--seed", "3")
    assert (status, "a.gif" in out) == (0, True)
    assert Path("a.gif").read_bytes().startswith(b"GIF89a")
    assert understudy("evaluate", "run", "--episodes", "1", "--video", "a.gif")[0] == 2
