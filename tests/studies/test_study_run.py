"""Running a study: only missing cells are trained, and failures, interrupts and full disks lose no finished cell.

Tests with several processes are slow. Each of their behaviours also has a quick test in this process.
"""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main
from understudy.core.errors import DivergedError, NoSpaceError, RenderError, RunError
from understudy.policies import Categorical
from understudy.studies import Store, Study, running, training, work
from understudy.studies.evaluator import Evaluator
from understudy.studies.points import EvalPoint
from understudy.studies.returns import ReturnsFile
from understudy.studies.running import Plan, run
from understudy.studies.work import split_programs

SMALL = "rounds = 1, gradient_steps = 1, hidden = [4]"
HEAD = """
[protocol]
seeds = {seeds}
eval_episodes = 2
holdout = 0.0
[[task]]
env = "{env}"
trajectories = {trajectories}
"""
NAMES = ("one", "two")


def make_study(
    folder: Path, names=NAMES, seeds="[0, 1]", trajectories="[1, 2]", env="Pendulum", rounds=1, **lr: str
) -> Study:
    """A study whose algorithms differ in their learning rates, so that they share a compiled program."""
    text = HEAD.format(seeds=seeds, trajectories=trajectories, env=env)
    for number, name in enumerate(names):
        changed = f"{SMALL}, lr = {lr.get(name, f'{1 + number}e-4')}".replace("rounds = 1", f"rounds = {rounds}")
        text += f'[[algorithm]]\nname = "bc"\nlabel = "{name}"\nsettings = {{ {changed} }}\n'
    (folder / "s.toml").write_text(text)
    return Study.load(folder / "s.toml")


@pytest.fixture
def trainings(monkeypatch):
    """Calls of `imitate`: (learning rate, seeds, trajectories) of each program."""
    calls: list[Any] = []
    real = training.imitate

    def recording(algorithm, *given, **named):
        calls.append((round(float(algorithm.lr), 7), named["seeds"], named["episodes"]))
        return real(algorithm, *given, **named)

    monkeypatch.setattr(training, "imitate", recording)
    return calls


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a finished study."""
    folder = tmp_path_factory.mktemp("finished")
    assert run(make_study(folder), folder / "out").stored == 8
    return folder / "out"


@pytest.fixture
def done(finished, tmp_path):
    """A copy of the finished study."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def cell_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "cells").iterdir())}


def test_a_finished_study_is_not_changed(done, tmp_path, trainings):
    before = cell_files(done)
    summary = run(make_study(tmp_path), done)
    assert (summary.stored, summary.failed, trainings) == (0, {}, [])
    assert cell_files(done) == before
    assert len(before) == 16
    assert not list((done / "work").iterdir())


def test_a_changed_hyperparameter_trains_only_its_cells(done, tmp_path, trainings):
    before = cell_files(done)
    assert run(make_study(tmp_path, two="5e-4"), done).stored == 4
    assert trainings == [(5e-4, [0, 1], [1, 2])]
    assert before.items() <= cell_files(done).items()


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({"seeds": "[0, 1, 7]"}, [(1e-4, [7], [1, 2]), (2e-4, [7], [1, 2])]),
        ({"trajectories": "[1, 2, 4]"}, [(1e-4, [0, 1], [4]), (2e-4, [0, 1], [4])]),
        ({"seeds": "[1]"}, []),
        ({"names": ("renamed", "two")}, []),
    ],
)
def test_only_new_cells_are_trained(done, tmp_path, monkeypatch, changes, trained):
    before, calls = cell_files(done), []

    def failing(algorithm, *given, **named):
        calls.append((round(float(algorithm.lr), 7), named["seeds"], named["episodes"]))
        raise DivergedError("not trained, to save the time of compiling")

    monkeypatch.setattr(training, "imitate", failing)
    run(make_study(tmp_path, **changes), done)
    assert calls == trained
    assert cell_files(done) == before


def test_a_cell_trained_alone_has_the_same_returns(done, finished, tmp_path):
    key = Store(done).keys()[0]
    before = Store(done).read(key)
    Store(done).path(key).unlink()
    run(make_study(tmp_path), done)
    after = Store(done).read(key)
    np.testing.assert_allclose(after["evaluations"][0]["returns"], before["evaluations"][0]["returns"], rtol=1e-4)
    assert after["runs_in_program"] == 1


def test_a_damaged_cell_is_quarantined_and_runs_again(done, tmp_path, trainings, capsys):
    key = Store(done).keys()[3]
    path = Store(done).path(key)
    path.write_text(path.read_text().replace("finished", "finishes"))
    assert run(make_study(tmp_path), done).stored == 1
    assert len(trainings) == 1
    assert Store(done).has(key)
    assert key in capsys.readouterr().err
    assert len(list((done / "quarantine").glob(f"{key}*.json"))) == 1


def test_a_group_that_fails_does_not_stop_the_others(tmp_path, capsys, monkeypatch):
    make_study(tmp_path, ("bad", "good"), seeds="1", trajectories="1", bad="9e-4")
    real = training.imitate

    def diverging(algorithm, *given, **named):
        if algorithm.lr > 8e-4:
            raise DivergedError("every run diverged")
        return real(algorithm, *given, **named)

    monkeypatch.setattr(training, "imitate", diverging)
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "study", "run", "s.toml", "--jobs", "1") == 1
    printed = capsys.readouterr()
    assert "failed: bad on Pendulum: every run diverged\n" in printed.err
    assert "1 of 2 cells" in printed.out
    assert command(monkeypatch, "study", "status", "s.toml") == 0
    assert "every run diverged" in capsys.readouterr().out
    assert command(monkeypatch, "study", "report", "s.toml", "--no-clips") == 0
    page = (tmp_path / "runs/s/report.html").read_text()
    assert "good" in page
    assert "bad" in page


@pytest.mark.parametrize("error", [RenderError("no OpenGL"), MemoryError("no OpenGL"), ValueError("no OpenGL")])
def test_a_clip_that_cannot_be_drawn_costs_no_report(done, tmp_path, monkeypatch, capsys, error):
    def failing(*given):
        raise error

    monkeypatch.setattr("understudy.studies.report.clips.film", failing)
    assert command(monkeypatch, "study", "report", str(done)) == 0
    assert "warning: no clip of Pendulum: " in capsys.readouterr().err
    page = (done / "report.html").read_text()
    assert "No clip: " in page
    assert "no OpenGL" in page
    assert (done / "results.csv").exists()


def test_a_running_group_shows_its_rounds(done, tmp_path, monkeypatch, capsys):
    study, store, seen = make_study(tmp_path, two="5e-4"), Store(done), []
    group = study.groups()[1]

    @contextmanager
    def bar(title):
        def report(done, total, metrics):
            seen.append((title, store.rounds(group.key), store.is_claimed(group.key)))

        yield report

    run(study, done, progress=bar)
    assert seen[0] == ("two on Pendulum (4 of 8 cells)", (1, 1), True)
    assert {rounds for _, rounds, _ in seen} == {(1, 1)}, "evaluations are not rounds"
    assert not store.is_claimed(group.key)


def test_status_shows_the_rounds_of_other_processes(done, tmp_path, monkeypatch, capsys):
    make_study(tmp_path, two="5e-4")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    done.rename(tmp_path / "runs/s")
    store, plan = Store(tmp_path / "runs/s"), Plan.load(Study.load("s.toml"))
    with store.claim(plan.groups[1].key) as claim:
        assert command(monkeypatch, "study", "status", "s.toml") == 0
        assert capsys.readouterr().out.rstrip().endswith("running")
        claim.note(12, 300)
        assert command(monkeypatch, "study", "status", "s.toml") == 0
        assert "running, 12 of 300 rounds" in capsys.readouterr().out
        assert running._running(plan, store) == {"two on Pendulum": "12/300 rounds"}
    assert running._running(plan, store) == {}
    assert command(monkeypatch, "study", "status", "s.toml") == 0
    assert "running" not in capsys.readouterr().out


def test_an_unexpected_error_is_reported_in_one_line_with_a_traceback_file(tmp_path, monkeypatch):
    def broken(*given, **named):
        raise ZeroDivisionError("the simulator\nfell over")

    monkeypatch.setattr(training, "imitate", broken)
    summary = run(make_study(tmp_path), tmp_path / "out")
    assert list(summary.failed) == ["one on Pendulum", "two on Pendulum"]
    error = summary.failed["one on Pendulum"]
    assert error.startswith("ZeroDivisionError: the simulator fell over (")
    assert "\n" not in error
    (path, _) = sorted((tmp_path / "out/failures").iterdir(), key=lambda path: str(path) not in error)
    assert "Traceback" in path.read_text()
    monkeypatch.undo()
    assert run(make_study(tmp_path), tmp_path / "out").failed == {}
    assert not list((tmp_path / "out/failures").iterdir())


def test_a_full_disk_stops_the_study_and_keeps_its_cells(tmp_path, monkeypatch):
    real, submitted = Evaluator.submit, []

    def full(self, *given):
        if len(submitted) >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        submitted.append(1)
        return real(self, *given)

    monkeypatch.setattr(Evaluator, "submit", full)
    with pytest.raises(NoSpaceError, match=r"two on Pendulum.* 4 finished cells"):
        run(make_study(tmp_path), tmp_path / "out")
    before = cell_files(tmp_path / "out")
    monkeypatch.undo()
    assert run(make_study(tmp_path), tmp_path / "out").stored == 4
    assert before.items() <= cell_files(tmp_path / "out").items()


def test_trained_cells_that_were_not_stored_are_not_trained_again(tmp_path, trainings, monkeypatch):
    real, writes = Store.write, []

    def dying(self, *given):
        if len(writes) == 3:
            raise KeyboardInterrupt
        writes.append(1)
        return real(self, *given)

    monkeypatch.setattr(Store, "write", dying)
    with pytest.raises(KeyboardInterrupt, match="3 of 8 cells"):
        run(make_study(tmp_path), tmp_path / "out")
    monkeypatch.setattr(Store, "write", real)
    before = cell_files(tmp_path / "out")
    assert run(make_study(tmp_path), tmp_path / "out").stored == 5
    assert [rate for rate, *_ in trainings] == [1e-4, 2e-4]
    assert before.items() <= cell_files(tmp_path / "out").items()


def test_a_program_keeps_its_checkpoint_if_its_records_cannot_be_read_back(tmp_path, monkeypatch, capsys):
    study = make_study(tmp_path, names=("one",))

    def unreadable(path):
        raise RunError(f"'{path}' is not a policy")

    with monkeypatch.context() as patched:
        patched.setattr(work, "load_policy", unreadable)
        (reason,) = run(study, tmp_path / "s", stop=lambda: False).failed.values()
    assert "cannot be read back: its checkpoint stays" in reason.replace("stay,", "stays,")
    assert "is not a policy" in capsys.readouterr().err
    (directory,) = work.work_directories(tmp_path / "s/work")
    assert {"cells.json", "returns.csv", work.CHECKPOINT} <= {path.name for path in directory.iterdir()}
    assert run(study, tmp_path / "s").stored == 4


def test_a_started_program_resumes_even_if_more_cells_are_missing(tmp_path, trainings, monkeypatch):
    def full(self, *given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Evaluator, "submit", full)
    with pytest.raises(KeyboardInterrupt):
        run(make_study(tmp_path, ("one",)), tmp_path / "out")
    monkeypatch.undo()
    started = {path.name for path in (tmp_path / "out/work").iterdir()}
    directories = []
    real = training._Program.run
    monkeypatch.setattr(training._Program, "run", lambda self: (directories.append(self.directory.name), real(self))[1])
    assert run(make_study(tmp_path, ("one",), seeds="3"), tmp_path / "out").stored == 6
    assert len(directories) == 2
    assert {directories[0]} == started


def test_a_program_has_all_its_seeds_on_all_its_trajectory_counts(tmp_path):
    cells = Plan.load(make_study(tmp_path, ("one",), seeds="3", trajectories="[1, 2, 4]")).cells
    assert [len(part) for part in split_programs(cells)] == [9]
    apart = split_programs([cell for cell in cells if (cell.seed, cell.trajectories) != (1, 2)])
    assert [sorted({cell.trajectories for cell in part}) for part in apart] == [[1, 4], [2]]
    assert sum(map(len, apart)) == 8


def test_an_incomplete_row_of_returns_is_removed(tmp_path):
    points = [EvalPoint("final", 1, key) for key in ("a" * 16, "b" * 16)]
    one, file = Evaluator(None, tmp_path, 2, 1), ReturnsFile(tmp_path, 2)
    for point in points:
        file.add(point, np.array([-100.5, -200.25]))
    whole = (tmp_path / "returns.csv").read_text()
    (tmp_path / "returns.csv").write_text(whole[:-14])
    with one.running({point.key: 0 for point in points}):
        assert list(one.returns(lambda *given: None)) == points[:1]
    assert (tmp_path / "returns.csv").read_text() == whole.splitlines(keepends=True)[0]
    flipped = whole.replace("-200.25", "-800.25", 1)  # a damaged digit is a number too
    (tmp_path / "returns.csv").write_text(flipped)
    assert list(file.read([point.key for point in points])) == points[1:]


def test_a_policy_that_changed_after_a_restart_is_evaluated_again(tmp_path):
    """Gymnasium environments restart with new episodes, so training can reach another policy."""
    env, point = us.make("CartPole-v1"), EvalPoint("env_steps", 64, "a" * 16)
    first, other = (us.Actor(Categorical.init(jax.random.key(i), 4, 2, (4,)), env.spec) for i in range(2))
    found = []
    for actor in (first, first, other):
        with Evaluator(env, tmp_path, 2, 0).running({point.key: 0}) as one:
            one.submit(point, actor)
            found.append(one.returns(lambda *given: None)[point].tolist())
    assert found[0] == found[1] != found[2]
    assert len((tmp_path / "returns.csv").read_text().splitlines()) == 2
    with Evaluator(env, tmp_path, 2, 0).running({point.key: 0}) as one:
        assert one.returns(lambda *given: None)[point].tolist() == found[2]


def command(monkeypatch, *words: str) -> int:
    """Run a command in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["understudy", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


# --- several processes ------------------------------------------------------------------------------------------------


def test_a_group_that_another_process_trains_is_waited_for(tmp_path, monkeypatch):
    """A lock that this process holds through another file stands for the other process."""
    study, store = make_study(tmp_path), Store(tmp_path / "out")
    claim, trained = store.claim(study.groups()[0].key), []
    real = training.imitate

    def releasing(algorithm, *given, **named):
        trained.append(round(float(algorithm.lr), 7))
        claim.release()
        return real(algorithm, *given, **named)

    monkeypatch.setattr(training, "imitate", releasing)
    assert run(study, tmp_path / "out").stored == 8
    assert trained == [2e-4, 1e-4]


def test_status_shows_running_groups(tmp_path, monkeypatch, capsys):
    study = make_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    store = Store("runs/s")
    store.begin(study.to_dict())
    with store.claim(study.groups()[0].key):
        assert command(monkeypatch, "study", "status", "s.toml") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "Pendulum" in line]
    assert [row[-1] == "running" for row in rows] == [True, False]


START = """
import os, random, signal, sys, time
from pathlib import Path
import jax, numpy as np
import understudy
from understudy.train.results import Result, Run
from understudy.studies import Store, Study, training
from understudy.core.processes import exit_with_parent
from understudy.studies.evaluator import no_progress
from understudy.studies.running import run

os.chdir(sys.argv[1])
study, log = Study.load("s.toml"), Path("log.txt")
real = training.imitate

def logging(algorithm, *given, **named):
    with log.open("a") as file:
        file.write(f"{float(algorithm.lr):.1e}\\n")
    return real(algorithm, *given, **named)

training.imitate = logging

def start(directory):
    child = os.fork()
    if child == 0:
        run(study, directory, progress=no_progress)
        os._exit(0)
    return child
"""
KILLS = """
rng, wanted, fake = random.Random(int(sys.argv[2])), int(sys.argv[3]), sys.argv[4] == "fake"
expert = understudy.load_expert("CartPole-v1")
policy = understudy.Actor(jax.tree.map(np.zeros_like, expert.policy), expert.spec)  # its episodes last ten steps

def fake_imitate(algorithm, demonstrations, env, **named):
    time.sleep(0.02)
    runs = [Run(seed, count, "finished", 0.1) for count in named["episodes"] for seed in named["seeds"]]
    return Result({"seconds": 0.02}, runs, [policy] * len(runs), {}, False, env)

if fake:
    training.imitate = fake_imitate

def ended(child):
    return os.waitpid(child, os.WNOHANG)[0] != 0

def read_files(directory):
    store = Store(directory)
    files = {key: store.path(key).read_bytes() for key in store.keys()}
    assert len(store.read_all()) == len(files) and not store.quarantined, "a cell is damaged"
    for key in files:
        understudy.load_policy(store.policy_path(key))
    return files

for name in ("cold", "warm"):
    began = time.monotonic()
    assert os.waitpid(start(name), 0)[1] == 0
    duration = time.monotonic() - began
kills = studies = partial = 0
while kills < wanted:
    directory, before, over = f"out-{studies}", {}, False
    while kills < wanted and not over:
        child, until = start(directory), time.monotonic() + rng.uniform(0.0 if fake else 0.3, 1.0) * duration
        while time.monotonic() < until and not over:
            time.sleep(0.002)
            over = ended(child)
        if not over:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kills += 1
        now = read_files(directory)
        assert before.items() <= now.items(), "a finished cell was lost or changed"
        partial += 0 < len(now) < 12
        before = now
    assert os.waitpid(start(directory), 0)[1] == 0
    now = read_files(directory)
    assert before.items() <= now.items() and len(now) == 12, "the last start did not finish the study"
    assert not any(Path(directory, "work").iterdir()), "a work directory was not removed"
    studies += 1

reading, writing = os.pipe()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        exit_with_parent()
        os.write(writing, b"here")
        time.sleep(60)
    time.sleep(60)
os.close(writing)
assert os.read(reading, 4) == b"here"
os.kill(child, signal.SIGKILL)
assert os.read(reading, 4) == b"", "the pipe stays open while a writer lives"
print(kills, studies, partial)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "mode"), [(20, "fake"), (3, "training")])
def test_kill_9_at_random_moments_loses_no_finished_cell(tmp_path, kills, mode):
    """A process that has imported everything, and in which JAX has not started, forks the processes to kill.

    In mode "fake" training returns an existing policy at once, so most kills fall between two file operations.
    """
    make_study(tmp_path, ("one", "two", "three"), env="CartPole-v1" if mode == "fake" else "Pendulum")
    words = [sys.executable, "-c", START + KILLS, str(tmp_path), str(random.randrange(1000)), str(kills), mode]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    killed, studies, _ = map(int, done.stdout.split())
    assert killed == kills
    assert studies >= 1


TOGETHER = """
for child in [start("out") for _ in range(2)]:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_two_processes_train_every_group_once(tmp_path):
    make_study(tmp_path, ("one", "two", "three", "four"))
    words = [sys.executable, "-c", START + TOGETHER, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(cell_files(tmp_path / "out")) == 32
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["1.0e-04", "2.0e-04", "3.0e-04", "4.0e-04"]


@pytest.mark.slow
def test_jobs_import_nothing_from_the_current_directory(tmp_path):
    make_study(tmp_path)
    for name in ("json", "jax", "numpy", "optax", "yaml"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)\n")
    words = ["study", "run", "s.toml", "--jobs", "2", "--no-report"]
    command = [sys.executable, "-P", "-m", "understudy", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_worker_processes_end_with_the_first(tmp_path, how):
    """Two groups that would train for an hour, in one process each."""
    study = make_study(tmp_path, NAMES, seeds="1", trajectories="1", rounds=10_000_000)
    plan = Plan.load(study)
    words = [sys.executable, "-m", "understudy", "study", "run", "s.toml", "--out", "out", "--jobs", "2"]
    first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 200
        while len(list((tmp_path / "out").glob("work/*/cells.json"))) < 2:
            assert first.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        others = [int(pid) for pid in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()]
        assert len(others) == 2
        first.send_signal(how)
        printed = first.communicate(timeout=100)[1]
        if how == signal.SIGINT:
            assert first.returncode == 130
            assert "0 of 2 cells" in printed
            assert "Traceback" not in printed
            kept = list((tmp_path / "out").glob("work/*/cells.json"))
            assert {path.parent.name[:16] for path in kept} == {group.key for group in plan.groups}
        until = time.monotonic() + 60
        while any(map(alive, others)):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        first.kill()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- Ctrl-C and logs --------------------------------------------------------------------------------------------------


def test_ctrl_c_keeps_a_checkpoint_and_training_resumes_from_it(tmp_path):
    study, reported = make_study(tmp_path, ("one",), rounds=30), []

    @contextmanager
    def interrupting(title):
        def report(done, total, metrics):
            reported.append((title, done))
            if len(reported) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        yield report

    with pytest.raises(KeyboardInterrupt, match="0 of 4 cells"):
        run(study, tmp_path / "out", progress=interrupting)
    assert len(list((tmp_path / "out").glob("work/*/checkpoint.npz"))) == 1
    before = len(reported)
    assert 3 <= before < 30
    assert run(study, tmp_path / "out", progress=interrupting).stored == 4
    assert reported[before:] == [("one on Pendulum (0 of 4 cells)", done) for done in range(before + 1, 31)]
    run(study, tmp_path / "never", progress=interrupting)
    resumed, uninterrupted = (Store(tmp_path / name).read_all() for name in ("out", "never"))
    assert [cell["evaluations"] for cell in resumed] == [cell["evaluations"] for cell in uninterrupted]


def test_ctrl_c_in_the_last_round_stops_the_study_after_its_group(tmp_path, trainings, monkeypatch):
    real = training.imitate

    def interrupted(*given, **named):
        handler = signal.signal(signal.SIGINT, lambda *_: None)  # as the training loop does
        os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, handler)
        return real(*given, **named)

    monkeypatch.setattr(training, "imitate", interrupted)
    with pytest.raises(KeyboardInterrupt, match="4 of 8 cells"):
        run(make_study(tmp_path), tmp_path / "out")
    assert len(trainings) == 1


def test_a_swallowed_ctrl_c_is_raised_again(tmp_path, monkeypatch):
    """A KeyboardInterrupt inside a callback of the compiler is lost there."""
    real = training.imitate

    def swallowing(*given, **named):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return real(*given, **named)

    monkeypatch.setattr(training, "imitate", swallowing)
    with pytest.raises(KeyboardInterrupt, match="0 of 8 cells"):
        run(make_study(tmp_path, rounds=30), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("work/*/checkpoint.npz"))) == 1


def test_a_log_has_a_line_for_each_finished_program(tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(running.display, "note", notes.append)
    run(make_study(tmp_path), tmp_path / "out")
    assert len(notes) == 2
    for note, name, cells in zip(notes, NAMES, ("4 of 8", "8 of 8"), strict=True):
        assert name in note
        assert cells in note
