"""What a stopped study has measured so far is read from the directories of its programs."""

import csv

import numpy as np
import pytest

from understudy.paper import benchmark
from understudy.studies import Entry, Store, Study, Task
from understudy.studies.plan import Protocol
from understudy.studies.points import EvalPoint
from understudy.studies.returns import ReturnsFile
from understudy.studies.unfinished import unfinished_records
from understudy.studies.work import RECORDS, begin_program, program_name

ROUND = {"rounds": 4, "round_steps": 32, "frequency": 16}


@pytest.fixture
def stopped(tmp_path):
    """A study of two runs on two numbers of trajectories: three of its runs were evaluated once, one of them twice."""
    protocol = Protocol(seeds=(0, 1), steps=128, eval_every=32, eval_episodes=2)
    task = Task("Pendulum", trajectories=(1, 2))
    study = Study("s", tasks=(task,), algorithms=(Entry("adril", settings=ROUND),), protocol=protocol)
    (group,) = study.groups()
    cells = sorted(group.cells, key=lambda cell: (cell.trajectories, cell.seed))
    place = tmp_path / "study" / "work" / program_name(group, cells)
    place.mkdir(parents=True)
    begin_program(place, cells)
    returns = ReturnsFile(place, 2)
    for number, cell in enumerate(cells[:3]):
        returns.add(EvalPoint("env_steps", 32, cell.key), np.array([-100.0 - number, -102.0 - number]))
    returns.add(EvalPoint("env_steps", 64, cells[0].key), np.array([-50.0, -60.0]))
    returns.add(EvalPoint("env_steps", 33, cells[0].key), np.array([0.0, 0.0]))  # not planned
    return study, tmp_path / "study", place


def test_a_record_has_the_evaluations_so_far(stopped):
    study, directory, _ = stopped
    records = unfinished_records(study.groups(), Store(directory))
    found = {
        (r["config"]["task"]["trajectories"], r["config"]["seed"]): [(e["x"], e["returns"]) for e in r["evaluations"]]
        for r in records
    }
    assert found == {
        (1, 0): [(32, [-100.0, -102.0]), (64, [-50.0, -60.0])],
        (1, 1): [(32, [-101.0, -103.0])],
        (2, 0): [(32, [-102.0, -104.0])],
    }


def test_damaged_rows_are_left_out_and_nothing_is_changed(stopped):
    study, directory, place = stopped
    with (place / "returns.csv").open("a") as file:
        file.write("env_steps,96,0123456789abcdef,1.0,2.0,00000000\nhalf a row")
    before = (place / "returns.csv").read_bytes()
    assert sum(len(r["evaluations"]) for r in unfinished_records(study.groups(), Store(directory))) == 4
    assert (place / "returns.csv").read_bytes() == before


def test_a_program_that_has_finished_is_not_unfinished(stopped):
    study, directory, place = stopped
    (place / RECORDS).write_text("{}")
    assert unfinished_records(study.groups(), Store(directory)) == []


def test_the_benchmark_stores_them_unless_its_file_has_more_of_a_run(stopped, tmp_path):
    study, directory, _ = stopped
    path = tmp_path / "benchmark-Pendulum.csv"

    def stored():
        assert benchmark.store_results(study, directory, path) == 0
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        return {(row["trajectories"], row["seed"], row["x"]): float(row["mean_return"]) for row in rows}

    wanted = {("1", "0", "32"): -101, ("1", "0", "64"): -55, ("1", "1", "32"): -102, ("2", "0", "32"): -103}
    assert stored() == wanted
    text = path.read_text()
    path.write_text(text.replace("-102.0,1.0", "-7.0,1.0"))  # as if from an earlier run that went equally far
    assert stored() == wanted | {("1", "1", "32"): -7}
