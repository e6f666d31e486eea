"""Running a study: what is missing and no more, whatever happens to the process, the disk or another group."""

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
from understudy.cli.main import main as cli
from understudy.core.errors import DivergedError, NoSpaceError
from understudy.policies import Categorical
from understudy.studies import Store, Study, training
from understudy.studies.evaluator import Evaluator, Point
from understudy.studies.running import Plan, run
from understudy.studies.training import programs

SMALL = "rounds = 1, steps = 1, hidden = [4]"
HEAD = """
[protocol]
seeds = {seeds}
episodes = 2
holdout = 0.0
[[task]]
env = "{env}"
trajectories = {trajectories}
"""
NAMES = ("one", "two")


def study(place: Path, names=NAMES, seeds="[0, 1]", trajectories="[1, 2]", env="Pendulum", **settings: str) -> Study:
    """Algorithms that differ in their learning rates, so that one compiled program serves all."""
    text = HEAD.format(seeds=seeds, trajectories=trajectories, env=env)
    for number, name in enumerate(names):
        changed = f"{SMALL}, lr = {settings.get(name, f'{1 + number}e-4')}"
        text += f'[[algorithm]]\nname = "bc"\nlabel = "{name}"\nsettings = {{ {changed} }}\n'
    place.mkdir(exist_ok=True)
    (place / "s.toml").write_text(text)
    return Study.load(place / "s.toml")


@pytest.fixture
def trainings(monkeypatch):
    """What was trained: (learning rate, seeds, trajectories) of each program, in order."""
    seen: list[Any] = []
    real = training.imitate

    def watched(algorithm, *given, **named):
        seen.append((round(float(algorithm.lr), 7), named["seeds"], named["episodes"]))
        return real(algorithm, *given, **named)

    monkeypatch.setattr(training, "imitate", watched)
    return seen


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study that is done, to be copied."""
    place = tmp_path_factory.mktemp("finished")
    assert run(study(place), place / "out").stored == 8
    return place / "out"


@pytest.fixture
def done(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "cells").iterdir())}


def test_a_finished_study_is_left_as_it_is(done, tmp_path, trainings):
    before = contents(done)
    outcome = run(study(tmp_path), done)
    assert (outcome.stored, outcome.failed, trainings) == (0, {}, [])
    assert contents(done) == before
    assert len(before) == 16
    assert not list((done / "work").iterdir())


def test_only_the_cells_of_a_changed_hyperparameter_run_again(done, tmp_path, trainings):
    before = contents(done)
    assert run(study(tmp_path, two="5e-4"), done).stored == 4
    assert trainings == [(5e-4, [0, 1], [1, 2])]
    assert before.items() <= contents(done).items()


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({"seeds": "[0, 1, 7]"}, [(1e-4, [7], [1, 2]), (2e-4, [7], [1, 2])]),
        ({"trajectories": "[1, 2, 4]"}, [(1e-4, [0, 1], [4]), (2e-4, [0, 1], [4])]),
        ({"seeds": "[1]"}, []),
        ({"names": ("renamed", "two")}, []),
    ],
)
def test_only_what_is_new_is_trained(done, tmp_path, trainings, changes, trained):
    before = contents(done)
    run(study(tmp_path, **changes), done)
    assert trainings == trained
    assert before.items() <= contents(done).items()


def test_a_cell_that_is_trained_later_is_what_it_would_have_been(done, finished, tmp_path):
    key = Store(done).keys()[0]
    before = Store(done).read(key)
    Store(done).path(key).unlink()
    run(study(tmp_path), done)
    after = Store(done).read(key)
    np.testing.assert_allclose(after["evaluations"][0]["returns"], before["evaluations"][0]["returns"], rtol=1e-4)
    assert after["runs_in_program"] == 1


def test_a_damaged_cell_is_set_aside_and_runs_again(done, tmp_path, trainings, capsys):
    key = Store(done).keys()[3]
    path = Store(done).path(key)
    path.write_text(path.read_text().replace("finished", "finishes"))
    assert run(study(tmp_path), done).stored == 1
    assert len(trainings) == 1
    assert Store(done).has(key)
    assert f"cell {key} is damaged (its checksum is wrong)" in capsys.readouterr().err
    assert len(list((done / "quarantine").glob(f"{key}*.json"))) == 1


def test_a_group_that_fails_does_not_stop_the_others(tmp_path, capsys, monkeypatch):
    study(tmp_path, ("bad", "good"), bad="9e-4")
    real = training.imitate

    def diverging(algorithm, *given, **named):
        if algorithm.lr > 8e-4:
            raise DivergedError("every run diverged in round 1: lower the learning rate, or look at the data")
        return real(algorithm, *given, **named)

    monkeypatch.setattr(training, "imitate", diverging)
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "study", "run", "s.toml", "--jobs", "1") == 1
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: bad on Pendulum: every run diverged in round 1")
    assert "s: 4 of 8 cells, 4 of them new" in said.out
    assert command(monkeypatch, "study", "status", "s.toml") == 0
    assert "failed: every run diverged" in capsys.readouterr().out
    assert command(monkeypatch, "study", "report", "s.toml", "--no-clips") == 0
    page = (tmp_path / "runs/s/report.html").read_text()
    assert "good" in page
    assert "bad" in page


def test_an_error_of_a_simulator_is_one_line_and_a_file(tmp_path, monkeypatch):
    def broken(*given, **named):
        raise ZeroDivisionError("the simulator\nfell over")

    monkeypatch.setattr(training, "imitate", broken)
    outcome = run(study(tmp_path), tmp_path / "out")
    assert list(outcome.failed) == ["one on Pendulum", "two on Pendulum"]
    why = outcome.failed["one on Pendulum"]
    assert why.startswith("ZeroDivisionError: the simulator fell over (more in ")
    assert "Traceback" in Path(why.split("more in ")[1].rstrip(")")).read_text()
    monkeypatch.undo()
    assert run(study(tmp_path), tmp_path / "out").failed == {}
    assert not list((tmp_path / "out/failures").iterdir())


def test_a_full_disk_ends_the_study_and_keeps_its_cells(tmp_path, monkeypatch):
    real, stored = Evaluator.add, []

    def full(self, *given):
        if len(stored) >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        stored.append(1)
        return real(self, *given)

    monkeypatch.setattr(Evaluator, "add", full)
    with pytest.raises(NoSpaceError, match="no space left for the training of two on Pendulum: 4 finished cells"):
        run(study(tmp_path), tmp_path / "out")
    before = contents(tmp_path / "out")
    monkeypatch.undo()
    assert run(study(tmp_path), tmp_path / "out").stored == 4
    assert before.items() <= contents(tmp_path / "out").items()


def test_what_was_trained_but_not_stored_is_not_trained_again(tmp_path, trainings, monkeypatch):
    real, writes = Store.write, []

    def dying(self, *given):
        if len(writes) == 3:
            raise KeyboardInterrupt
        writes.append(1)
        return real(self, *given)

    monkeypatch.setattr(Store, "write", dying)
    with pytest.raises(KeyboardInterrupt, match=r"3 of 8 cells are kept in .* the same command goes on from there"):
        run(study(tmp_path), tmp_path / "out")
    monkeypatch.setattr(Store, "write", real)
    before = contents(tmp_path / "out")
    assert run(study(tmp_path), tmp_path / "out").stored == 5
    assert [rate for rate, *_ in trainings] == [1e-4, 2e-4]
    assert before.items() <= contents(tmp_path / "out").items()


def test_a_program_that_was_begun_goes_on_when_more_is_asked(tmp_path, trainings, monkeypatch):
    def full(self, *given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Evaluator, "add", full)
    with pytest.raises(KeyboardInterrupt):
        run(study(tmp_path, ("one",)), tmp_path / "out")
    monkeypatch.undo()
    begun = {path.name for path in (tmp_path / "out/work").iterdir()}
    places = []
    real = training._Program.run
    monkeypatch.setattr(training._Program, "run", lambda self: (places.append(self.place.name), real(self))[1])
    assert run(study(tmp_path, ("one",), seeds="3"), tmp_path / "out").stored == 6
    assert len(places) == 2
    assert {places[0]} == begun


def test_programs_are_every_seed_on_every_number_of_trajectories(tmp_path):
    cells = Plan.of(study(tmp_path, ("one",), seeds="3", trajectories="[1, 2, 4]")).cells
    assert [len(part) for part in programs(cells)] == [9]
    apart = programs([cell for cell in cells if (cell.seed, cell.trajectories) != (1, 2)])
    assert [sorted({cell.trajectories for cell in part}) for part in apart] == [[1, 4], [2]]
    assert sum(map(len, apart)) == 8


def test_a_line_that_was_cut_off_is_played_again(tmp_path):
    points = [Point("final", 1, 1, key) for key in ("a" * 16, "b" * 16)]
    evaluator = Evaluator(None, tmp_path, 2, 1)
    (tmp_path / "played.csv").write_text(
        f"{','.join(map(str, points[0]))},-100.5,-200.25\n{','.join(map(str, points[1]))},-100.5,-2"
    )
    with evaluator.working({}):
        assert list(evaluator.returns(lambda *given: None)) == points[:1]
    assert (tmp_path / "played.csv").read_text().endswith("-200.25\n")


def test_a_policy_that_is_another_one_after_a_restart_plays_again(tmp_path):
    """In Gymnasium training goes on from its last place with new episodes."""
    env, point = us.make("CartPole-v1"), Point("env_steps", 64, 64, "a" * 16)
    first, other = (us.Actor(Categorical.init(jax.random.key(i), 4, 2, (4,)), env.spec) for i in range(2))
    found = []
    for actor in (first, first, other):
        with Evaluator(env, tmp_path, 2, 1).working({point.key: 0}) as evaluator:
            evaluator.add(point, actor)
            found.append(evaluator.returns(lambda *given: None)[point].tolist())
    assert found[0] == found[1] != found[2]
    assert len((tmp_path / "played.csv").read_text().splitlines()) == 2
    with Evaluator(env, tmp_path, 2, 1).working({point.key: 0}) as evaluator:
        assert evaluator.returns(lambda *given: None)[point].tolist() == found[2]


def command(monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["understudy", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0


START = """
import os, random, signal, sys, time
from pathlib import Path
import jax, numpy as np
import understudy
from understudy.train.results import Result, Run
from understudy.studies import Store, Study, training
from understudy.studies.evaluator import end_with, silent
from understudy.studies.running import run

os.chdir(sys.argv[1])
study, log = Study.load("s.toml"), Path("log.txt")
real = training.imitate

def watched(algorithm, *given, **named):
    with log.open("a") as file:
        file.write(f"{float(algorithm.lr):.1e}\\n")
    return real(algorithm, *given, **named)

training.imitate = watched

def start(directory):
    child = os.fork()
    if child == 0:
        run(study, directory, progress=silent)
        os._exit(0)
    return child
"""
KILLS = """
rng, wanted, standing_in = random.Random(int(sys.argv[2])), int(sys.argv[3]), sys.argv[4] == "stand-in"
expert = understudy.load_expert("CartPole-v1")
fallen = understudy.Actor(jax.tree.map(np.zeros_like, expert.policy), expert.spec)  # after ten steps

def stand_in(algorithm, demonstrations, env, **named):
    time.sleep(0.02)
    runs = [Run(seed, count, "finished", 0.1) for count in named["episodes"] for seed in named["seeds"]]
    return Result({"seconds": 0.02}, runs, [fallen] * len(runs), {}, False, env)

if standing_in:
    training.imitate = stand_in

def ended(child):
    return os.waitpid(child, os.WNOHANG)[0] != 0

def whole(directory):
    store = Store(directory)
    found = {key: store.path(key).read_bytes() for key in store.keys()}
    assert len(store.all()) == len(found) and not store.quarantined, "a cell is not whole"
    for key in found:
        understudy.load_policy(store.policy_path(key))
    return found

for name in ("cold", "warm"):
    began = time.monotonic()
    assert os.waitpid(start(name), 0)[1] == 0
    took = time.monotonic() - began
kills = studies = partial = 0
while kills < wanted:
    directory, seen, over = f"out-{studies}", {}, False
    while kills < wanted and not over:
        child, until = start(directory), time.monotonic() + rng.uniform(0.0 if standing_in else 0.3, 1.0) * took
        while time.monotonic() < until and not over:
            time.sleep(0.002)
            over = ended(child)
        if not over:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kills += 1
        now = whole(directory)
        assert seen.items() <= now.items(), "a finished cell was lost or changed"
        partial += 0 < len(now) < 12
        seen = now
    assert os.waitpid(start(directory), 0)[1] == 0
    now = whole(directory)
    assert seen.items() <= now.items() and len(now) == 12, "the last start did not complete the study"
    assert not any(Path(directory, "work").iterdir()), "training's place stayed"
    studies += 1

reading, writing = os.pipe()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        end_with(os.getppid())
        os.write(writing, b"here")
        time.sleep(60)
    time.sleep(60)
os.close(writing)
assert os.read(reading, 4) == b"here"
os.kill(child, signal.SIGKILL)
began = time.monotonic()
assert os.read(reading, 4) == b"", "the other end is open as long as somebody lives"
assert time.monotonic() - began < 10
print(kills, studies, partial)
"""


@pytest.mark.parametrize(("kills", "how"), [(20, "stand-in"), (3, "training")])
def test_kill_9_at_random_moments_loses_nothing(tmp_path, kills, how):
    """A process that has imported everything, and in which JAX has not started, starts the ones that are killed.

    With 20 kills, training hands over a policy that is there already: most moments are then between two files.
    """
    study(tmp_path, ("one", "two", "three"), env="CartPole-v1" if how == "stand-in" else "Pendulum")
    words = [sys.executable, "-c", START + KILLS, str(tmp_path), str(random.randrange(1000)), str(kills), how]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    killed, studies, partial = map(int, done.stdout.split())
    assert killed == kills
    assert studies >= 1
    assert partial >= 1 or how == "training"


TOGETHER = """
for child in [start("out") for _ in range(2)]:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_two_processes_do_every_cell_once_and_a_third_sees_them(tmp_path, capsys, monkeypatch):
    study(tmp_path, ("one", "two", "three", "four"))
    monkeypatch.chdir(tmp_path)
    working = subprocess.Popen([sys.executable, "-c", START + TOGETHER, str(tmp_path)], stderr=subprocess.PIPE)
    seen = set()
    while working.poll() is None:
        if (tmp_path / "out/study.json").exists():
            assert command(monkeypatch, "study", "status", "out") == 0
            seen.update(line.split()[-1] for line in capsys.readouterr().out.splitlines() if "Pendulum" in line)
        time.sleep(0.02)
    assert working.wait() == 0, working.stderr.read().decode()[-2000:]
    working.stderr.close()
    assert "running" in seen
    assert len(contents(tmp_path / "out")) == 32
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["1.0e-04", "2.0e-04", "3.0e-04", "4.0e-04"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_processes_that_share_a_study_end_with_the_first(tmp_path, how):
    """Two groups that would train for an hour, by a process each."""
    study(tmp_path, NAMES, seeds="1", trajectories="1")
    text = (tmp_path / "s.toml").read_text().replace("rounds = 1,", "rounds = 10_000_000,")
    (tmp_path / "s.toml").write_text(text)
    plan = Plan.of(Study.load(tmp_path / "s.toml"))
    words = [sys.executable, "-m", "understudy", "study", "run", "s.toml", "--out", "out", "--jobs", "2"]
    first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 100
        while len(list((tmp_path / "out").glob("work/*/cells.json"))) < 2:
            assert first.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        others = [int(pid) for pid in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()]
        assert len(others) == 2
        first.send_signal(how)
        said = first.communicate(timeout=60)[1]
        if how == signal.SIGINT:
            assert first.returncode == 130
            assert "interrupted: 0 of 2 cells are kept in out, and the same command goes on from there" in said
            assert "Traceback" not in said
            kept = list((tmp_path / "out").glob("work/*/cells.json"))
            assert {path.parent.name[:16] for path in kept} == {group.key for group in plan.groups}
        until = time.monotonic() + 10
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


def test_ctrl_c_keeps_the_place_of_training(tmp_path):
    study(tmp_path, ("one",))
    text = (tmp_path / "s.toml").read_text().replace("rounds = 1,", "rounds = 30,")
    (tmp_path / "s.toml").write_text(text)
    reported = []

    @contextmanager
    def watched(title):
        def report(done, total, metrics):
            reported.append((title, done))
            if len(reported) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        yield report

    with pytest.raises(KeyboardInterrupt, match="0 of 4 cells are kept"):
        run(Study.load(tmp_path / "s.toml"), tmp_path / "out", progress=watched)
    assert len(list((tmp_path / "out").glob("work/*/checkpoint.npz"))) == 1
    before = len(reported)
    assert 3 <= before < 30
    assert run(Study.load(tmp_path / "s.toml"), tmp_path / "out", progress=watched).stored == 4
    assert reported[before:] == [("one on Pendulum", done) for done in range(before + 1, 31)]
    run(Study.load(tmp_path / "s.toml"), tmp_path / "never", progress=watched)
    kept, never = (Store(tmp_path / name).all() for name in ("out", "never"))
    assert [cell["evaluations"] for cell in kept] == [cell["evaluations"] for cell in never]


def test_ctrl_c_in_the_last_round_ends_the_study_after_its_group(tmp_path, trainings, monkeypatch):
    real = training.imitate

    def pressed(*given, **named):
        handler = signal.signal(signal.SIGINT, lambda *_: None)  # as a training loop takes it
        os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, handler)
        return real(*given, **named)

    monkeypatch.setattr(training, "imitate", pressed)
    with pytest.raises(KeyboardInterrupt, match="4 of 8 cells are kept"):
        run(study(tmp_path), tmp_path / "out")
    assert len(trainings) == 1


def test_a_ctrl_c_that_a_compiler_forgets_is_remembered(tmp_path, monkeypatch):
    real = training.imitate

    def forgetful(*given, **named):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return real(*given, **named)

    monkeypatch.setattr(training, "imitate", forgetful)
    study(tmp_path)
    text = (tmp_path / "s.toml").read_text().replace("rounds = 1,", "rounds = 30,")
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(KeyboardInterrupt, match="0 of 8 cells are kept"):
        run(Study.load(tmp_path / "s.toml"), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("work/*/checkpoint.npz"))) == 1


def test_a_log_has_a_line_for_what_finishes(tmp_path, capsys):
    run(study(tmp_path), tmp_path / "out")
    assert capsys.readouterr().err.splitlines() == [
        "one on Pendulum: 4 cells stored; 4 of 8 cells",
        "two on Pendulum: 4 cells stored; 8 of 8 cells",
    ]
