"""The logs of training hold the same numbers as the run's metrics."""

import csv
import io
import json
import os
import re
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import DivergedError, ExtraError, UnknownNameError
from understudy.train import logs

TINY = {"rounds": 5, "gradient_steps": 2, "hidden": (8,), "batch_size": 8}
WORDS = ["train", "bc", "--demos", "Pendulum", "--episodes", "2", "--seeds", "2"]
WORDS += ["--rounds", "5", "--gradient-steps", "2", "--hidden", "8", "--batch-size", "8"]


@pytest.fixture
def events():
    """A function that reads the event files in a folder and checks each record: [(step, tag, value)]."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    masked_crc32c = pytest.importorskip("tensorboardX.record_writer").masked_crc32c

    def read(folder):
        events = []
        for path in sorted(Path(folder).glob("events.out.tfevents.*")):
            data = path.read_bytes()
            while data:
                length, header_sum = struct.unpack("<QI", data[:12])
                assert masked_crc32c(data[:8]) == header_sum
                body, (body_sum,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
                assert masked_crc32c(body) == body_sum
                event = event_pb2.Event.FromString(body)
                events += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
                data = data[16 + length :]
        return events

    return read


@pytest.fixture
def wandb(monkeypatch):
    """A fake wandb module; `runs` are the calls of `init`."""

    class Run:
        offline = True

        def __init__(self, **given):
            self.given, self.logged, self.summary, self.exit_code = given, [], {}, None

        def log(self, scalars, step):
            self.logged.append((step, scalars))

        def finish(self, exit_code):
            self.exit_code = exit_code

    runs = []

    def init(**given):
        runs.append(Run(**given))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return SimpleNamespace(runs=runs, Run=Run)


def rows(path):
    """Header and rows of a table: seed, episodes, round, metrics."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file))
    return header, [tuple(float(cell) for cell in line) for line in lines]


def expected_events(result, run, axis=None):
    """The events of a run, from its metrics."""
    rounds = next(iter(result.metrics.values())).shape[1]
    return [
        (int(result.metrics[axis][run, i]) if axis else i + 1, name, float(np.float32(values[run, i])))
        for i in range(rounds)
        for name, values in result.metrics.items()
        if np.isfinite(values[run, i])
    ]


def without(events, tag):
    return [event for event in events if event[1] != tag]


def test_the_table_grows_by_a_round_and_ends_as_the_runs_metrics(continuous, tmp_path):
    sizes, path = [], tmp_path / "deep" / "logs" / "metrics.csv"

    def look(done, total, means):
        sizes.append(len(path.read_text().splitlines()))

    result = us.imitate(us.bc(**TINY), continuous, episodes=[2, 6], progress=look, logs=path.parent)
    assert sizes == [1 + 2 * done for done in range(1, 6)], "a line for each of two runs, and the header"
    result.save(tmp_path / "run")
    (header, live), (saved_header, saved) = rows(path), rows(tmp_path / "run/metrics.csv")
    assert header == saved_header
    assert [line[2] for line in live] == [number for number in range(1, 6) for _ in range(2)], "round by round"
    assert sorted(live) == sorted(saved)


def test_event_files_hold_exactly_the_finite_metrics(continuous, tmp_path, events):
    result = us.imitate(us.bc(**TINY), continuous, seeds=[3, 7], logs=us.Logs(tmp_path, ["tensorboard"]))
    for run, seed in enumerate((3, 7)):
        logged = events(tmp_path / f"tensorboard/seed-{seed}")
        assert without(logged, "held_out_payoff") == expected_events(result, run)
        assert logged[-1] == (5, "held_out_payoff", pytest.approx(result.runs[run].payoff, rel=1e-6))


def test_environment_steps_are_the_x_axis_and_nan_is_not_logged(tmp_path, events):
    """The second run stops after its first round; in the second round no episode of the first one ends."""
    nan = float("nan")
    steps, returns = [[16.0, 32.0, 48.0], [16.0, nan, nan]], [[-3.5, nan, -2.25], [-4.0, nan, nan]]
    metrics = {"return": np.array(returns, np.float32), "env_steps": np.array(steps, np.float32)}
    with us.Logs(tmp_path, ["tensorboard"]).opened([(5, 0), (5, 1)], {}) as log:
        log(1, {name: values[:, :2] for name, values in metrics.items()})
        log(3, {name: values[:, 2:] for name, values in metrics.items()})
    for run in range(2):
        assert events(tmp_path / f"tensorboard/seed-{run}") == expected_events(
            SimpleNamespace(metrics=metrics), run, "env_steps"
        )
    assert {step for step, _, _ in events(tmp_path / "tensorboard/seed-0")} == {16, 32, 48}
    assert events(tmp_path / "tensorboard/seed-1") == [(16, "return", -4.0), (16, "env_steps", 16.0)]


@pytest.mark.parametrize("at", [2, 4])
def test_a_resumed_run_logs_no_round_twice(at, continuous, tmp_path, events, every_round, wandb):
    logged = us.Logs(tmp_path / "logs", ["tensorboard", "wandb"])
    call = {"seeds": 2, "checkpoint": tmp_path / "checkpoint.npz", "logs": logged}

    def dies(rounds, states):
        if rounds == at:
            raise RuntimeError("no more power")

    with pytest.raises(RuntimeError, match="no more power"):
        us.imitate(us.bc(**TINY), continuous, **call, visit=dies)
    table = tmp_path / "logs/metrics.csv"
    begun, inode = table.read_bytes(), table.stat().st_ino
    assert len(begun.splitlines()) == 1 + 2 * (at - 1)
    with table.open("ab") as file:
        file.write(b"0,6,4,0.5\n0,6,5,0.")  # rounds after the checkpoint, the last one half written
    result = us.imitate(us.bc(**TINY), continuous, **call)
    assert table.stat().st_ino == inode, "`tail -f` keeps working"
    assert table.read_bytes().startswith(begun)
    assert [line[2] for line in rows(table)[1]] == [number for number in range(1, 6) for _ in range(2)]
    for run in range(2):
        logged = events(tmp_path / f"logs/tensorboard/seed-{run}")
        assert without(logged, "held_out_payoff") == expected_events(result, run)
    dead, alive = wandb.runs[:2], wandb.runs[2:]
    assert [run.exit_code for run in (*dead, *alive)] == [1, 1, 0, 0]
    assert [run.given["id"] for run in dead] == [run.given["id"] for run in alive], "the same runs in W&B"
    assert [step for step, _ in alive[0].logged] == [1, 2, 3, 4, 5], "offline, the latest run has all rounds"


def test_on_the_wandb_server_a_resumed_run_adds_only_new_rounds(continuous, tmp_path, every_round, wandb):
    wandb.Run.offline = False
    call = {"checkpoint": tmp_path / "checkpoint.npz", "logs": us.Logs(tmp_path, "wandb")}

    def dies(rounds, states):
        if rounds == 3:
            raise RuntimeError("no more power")

    with pytest.raises(RuntimeError, match="no more power"):
        us.imitate(us.bc(**TINY), continuous, **call, visit=dies)
    us.imitate(us.bc(**TINY), continuous, **call)
    assert [[step for step, _ in run.logged] for run in wandb.runs] == [[1, 2], [3, 4, 5]]


def test_wandb_has_a_run_for_each_seed_in_one_group_with_the_config(continuous, tmp_path, wandb):
    result = us.imitate(us.bc(**TINY), continuous, seeds=2, logs=us.Logs(tmp_path, ["wandb"]))
    assert len(wandb.runs) == 2
    assert len({run.given["group"] for run in wandb.runs}) == 1
    for index, run in enumerate(wandb.runs):
        given = run.given
        assert (given["project"], given["name"], given["dir"]) == ("understudy", f"seed-{index}", str(tmp_path))
        assert given["config"]["algorithm"] == result.config["algorithm"]
        assert given["config"]["demonstrations"] == result.config["demonstrations"]
        assert (given["config"]["seed"], given["config"]["trajectories"]) == (index, continuous.episodes)
        flat = [(step, name, np.float32(value)) for step, scalars in run.logged for name, value in scalars.items()]
        assert flat == expected_events(result, index)
        assert run.summary == {"held_out_payoff": result.runs[index].payoff, "status": "finished"}
        assert run.exit_code == 0


@pytest.mark.parametrize(("kind", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_is_named_with_its_pip_command_before_training(kind, package, understudy, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    status, out, err = understudy(*WORDS, "--log", kind)
    assert (status, out) == (2, "")
    assert f"needs {package}" in err
    assert f"understudy-il[{kind}]" in err
    assert os.listdir() == []


def test_a_folder_of_the_packages_name_is_not_the_package(monkeypatch, tmp_path):
    """W&B leaves a folder `wandb` in the current directory."""
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    if not hasattr(__import__("wandb"), "init"):
        with pytest.raises(ExtraError, match=r"understudy-il\[wandb\]"):
            us.Logs(tmp_path, ["wandb"])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)


def test_an_unknown_kind_of_log_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"'tensorbord'.*'tensorboard'"):
        us.Logs(tmp_path, ["tensorbord"])


@pytest.mark.parametrize("moment", ["init", "log", "finish"])
def test_a_log_that_fails_prints_a_line_and_training_continues(
    moment, continuous, tmp_path, wandb, monkeypatch, capsys
):
    def fails(*args, **kwargs):
        raise ConnectionError("no network\nand more about it")

    monkeypatch.setattr(*((sys.modules["wandb"], "init") if moment == "init" else (wandb.Run, moment)), fails)
    result = us.imitate(us.bc(**TINY), continuous, seeds=2, logs=us.Logs(tmp_path, ["wandb"]))
    assert [run.status for run in result.runs] == ["finished"] * 2
    err = capsys.readouterr().err
    assert "wandb" in err
    assert "(ConnectionError: no network)\n" in err
    assert err.count("\n") == 1
    assert len(rows(tmp_path / "metrics.csv")[1]) == 10, "the other logs continue"


def test_a_full_disk_does_not_stop_a_run(continuous, tmp_path, capsys, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("understudy.train.log_writers._open_table", lambda path: Full())
    result = us.imitate(us.bc(**TINY), continuous, logs=tmp_path)
    assert result.runs[0].status == "finished"
    err = capsys.readouterr().err
    assert "metrics.csv" in err
    assert "(OSError" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["notes", "link"])
def test_a_file_of_the_user_is_not_overwritten_by_a_log(name, continuous, tmp_path, capsys):
    notes, table = tmp_path / "notes.csv", tmp_path / "logs" / "metrics.csv"
    table.parent.mkdir()
    notes.write_text("mine\n1\n")
    table.symlink_to(notes) if name == "link" else table.write_text("mine\n1\n")
    assert us.imitate(us.bc(**TINY), continuous, logs=table.parent).runs[0].status == "finished"
    assert (notes.read_text(), table.read_text()) == ("mine\n1\n", "mine\n1\n")
    assert "logging to metrics.csv failed" in capsys.readouterr().err


def test_a_full_disk_drops_the_event_files_and_keeps_the_table(tmp_path, monkeypatch, capsys):
    def full(*args):
        raise OSError(28, "No space left on device")

    metrics = {"loss": np.ones((1, 1), np.float32)}
    with us.Logs(tmp_path, ["tensorboard"]).opened([(5, 0)], {}) as log:
        log(1, {"loss": np.zeros((1, 0), np.float32)})
        monkeypatch.setattr("tensorboardX.event_file_writer.EventsWriter.write_event", full)
        for number in (1, 2, 3):
            log(number, metrics)
    err = capsys.readouterr().err
    assert "tensorboard" in err
    assert err.count("\n") == 1
    assert len(rows(tmp_path / "metrics.csv")[1]) == 3


def test_packages_of_other_logs_are_not_imported(continuous, tmp_path, monkeypatch):
    for package in ("tensorboardX", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    us.imitate(us.bc(**TINY), continuous, logs=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_logs_move_into_the_directory_when_the_run_is_saved(understudy, interrupted_at, tmp_path, events, wandb):
    words = [*WORDS, "--log", "tensorboard", "--log", "wandb", "--out", "r"]
    interrupted_at(2)
    assert understudy(*words)[0] == 130
    folder = tmp_path / "r.logs"
    assert len(rows(folder / "metrics.csv")[1]) == len(rows("r/metrics.csv")[1]) < 10
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.csv", "tensorboard", "wandb.json"]
    interrupted_at(None)
    assert understudy("train", "--resume", "r")[0] == 0
    assert os.listdir() == ["r"]
    for run in range(2):
        logged = without(events(f"r/tensorboard/seed-{run}"), "held_out_payoff")
        assert logged == expected_events(us.load_run("r"), run)


def test_an_evaluation_is_added_to_the_runs_logs_once(understudy, tmp_path, events, wandb):
    assert understudy(*WORDS, "--log", "tensorboard", "--log", "wandb", "--out", "r")[0] == 0
    before = events("r/tensorboard/seed-1")
    command = ["evaluate", "r", "--episodes", "2", "--log", "tensorboard", "--log", "wandb", "--out", "returns.csv"]
    for _ in range(2):
        assert understudy(*command)[0] == 0
    with open("returns.csv", newline="", encoding="utf-8") as file:
        means, lengths = zip(
            *((float(row["mean_return"]), float(row["mean_length"])) for row in csv.DictReader(file)), strict=True
        )
    expert = us.load_run("r").expert.mean
    for run in range(2):
        added = events(f"r/tensorboard/seed-{run}")
        (score, gap, length) = [event for event in added if event[1].startswith("evaluation/")]
        assert score == (5, "evaluation/return", pytest.approx(means[run], abs=1e-3))
        assert gap == (5, "evaluation/gap", pytest.approx(expert - means[run], abs=1e-2))
        assert length == (5, "evaluation/length", pytest.approx(lengths[run]))
        latest = wandb.runs[-2:][run]
        assert latest.summary["evaluation/return"] == pytest.approx(means[run], abs=1e-3)
        assert [step for step, _ in latest.logged] == [1, 2, 3, 4, 5], "offline, the latest run has all rounds"
    assert len(added) == len(before) + 3
    assert len({run.given["group"] for run in wandb.runs}) == 1
    assert json.loads(Path("r/wandb.json").read_text())["group"] == wandb.runs[0].given["group"]


def test_a_run_that_fails_leaves_no_logs_but_those_of_the_logs_argument(continuous, understudy, tmp_path):
    assert understudy(*WORDS, "--lr", "1e38", "--out", "r")[0] == 2
    assert os.listdir() == []
    with pytest.raises(DivergedError):
        us.imitate(us.bc(**TINY, lr=1e38), continuous, logs=tmp_path / "mine")
    header, lines = rows(tmp_path / "mine/metrics.csv")
    assert lines[0][:3] == (0, continuous.episodes, 1)
    assert np.isnan([line[3:] for line in lines]).all(), "also in the round that had started by then"
    assert len(header) == len(lines[0]) > 3


def test_a_new_run_overwrites_the_logs_of_an_earlier_one(continuous, tmp_path, events):
    logged = us.Logs(tmp_path, ["tensorboard"])
    us.imitate(us.bc(**TINY), continuous, seeds=2, logs=logged)
    result = us.imitate(us.bc(**TINY), continuous, logs=logged)
    assert len(rows(tmp_path / "metrics.csv")[1]) == 5
    assert without(events(tmp_path / "tensorboard/seed-0"), "held_out_payoff") == expected_events(result, 0)
    assert events(tmp_path / "tensorboard/seed-1") == []


def test_moving_the_logs_can_be_repeated(tmp_path):
    (tmp_path / "r").mkdir()
    for name in ("tensorboard", "wandb"):
        (tmp_path / "r.logs" / name).mkdir(parents=True)
    (tmp_path / "r.logs/tensorboard").rename(tmp_path / "r/tensorboard")
    for _ in range(2):
        logs.move_logs(tmp_path / "r")
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["tensorboard", "wandb"]
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_logs_that_cannot_be_moved_stay(tmp_path, capsys):
    for folder in ("r", "r.logs"):
        (tmp_path / folder / "tensorboard/seed-0").mkdir(parents=True)
    logs.move_logs(tmp_path / "r")
    assert (tmp_path / "r.logs/tensorboard/seed-0").is_dir()
    err = capsys.readouterr().err
    assert f"{tmp_path}/r/tensorboard" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_the_example_of_the_page_writes_event_files(monkeypatch, tmp_path, events):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/logging.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    names = {}
    exec(code, names)
    (folder,) = tmp_path.rglob("seed-1")
    assert without(events(folder), "held_out_payoff") == expected_events(names["result"], 1)
