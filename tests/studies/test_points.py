"""When policies are evaluated: x is the number of environment steps at that time, also in cells of earlier versions."""

import pytest

from support.study_records import make_record
from understudy.studies import Entry, Protocol, Study, Task, training
from understudy.studies.curves import Curve, read_curves
from understudy.studies.groups import plan_groups
from understudy.studies.points import EvalPoint, due_evaluation, due_evaluations, final_point, is_planned
from understudy.studies.records import record_checksum
from understudy.studies.report.learners import group_by_task
from understudy.studies.report.table import csv_rows
from understudy.studies.running import run

SMALL = {"round_steps": 1280, "frequency": 64, "random_steps": 64, "batch_size": 8, "sac": {"hidden": (4,)}}


def group_of(rounds=4, eval_every=1000, round_steps=1280):
    entry = Entry("adril", settings={**SMALL, "rounds": rounds, "round_steps": round_steps}, trajectories=(1,))
    protocol = Protocol((0,), eval_episodes=1, eval_every=eval_every)
    (group,) = plan_groups(Study("s", "s", (Task("Pendulum"),), (entry,), protocol))
    return group


def test_x_is_the_number_of_steps_at_which_the_policy_was_evaluated():
    group = group_of()
    assert [due_evaluation(group, rounds) for rounds in range(1, 5)] == [
        ("env_steps", 1280),
        ("env_steps", 2560),
        ("env_steps", 3840),
        ("env_steps", 5120),
    ]
    assert final_point(group, group.cells[0], "finished") == ("final", 5120, group.cells[0].key)


def test_a_round_that_reaches_no_multiple_is_not_evaluated():
    group = group_of(rounds=8, eval_every=3000)
    assert [x for _, x in due_evaluations(group, 8)] == [3840, 6400, 10240]
    planned = [x for x in range(0, 11_000, 64) if is_planned(group, group.cells[0], EvalPoint("env_steps", x, ""))]
    assert planned == [3840, 6400, 10240]


def test_a_cell_of_an_earlier_version_is_shown_at_its_exact_steps():
    record = make_record(evaluations=3)
    for row in record["evaluations"]:
        row["steps"] = row["x"] + 1280  # x was rounded down
    record["checksum"] = record_checksum(record)
    (task,) = group_by_task([record])
    assert list(task.learners[0].curve.returns) == [26_280, 51_280, 76_280]
    assert [row["x"] for row in csv_rows([record])] == ["26280", "51280", "76280", "76280"]
    (curve,) = read_curves(csv_rows([record]), "env_steps")
    assert list(curve.returns) == [26_280, 51_280, 76_280]


def test_learners_are_compared_by_the_first_evaluation_from_a_common_x_on():
    curve = Curve.from_arrays("adril", "paper", {26_250: [1.0], 51_250: [2.0], 157_500: [3.0]})
    assert [curve.reached(x, 25_000) for x in (0, 25_000, 26_250, 26_251, 50_000, 75_000)] == [
        *(None, 26_250, 26_250, 51_250, 51_250, None)
    ]
    assert curve.sample(150_000, 25_000).mean == 3
    assert curve.sample(100_000, 25_000) is None


def test_a_program_that_an_earlier_version_began_starts_again_and_says_so(tmp_path, monkeypatch, capsys):
    settings = {"rounds": 1, "gradient_steps": 1, "hidden": (4,)}
    protocol = Protocol((0,), eval_episodes=1, holdout=0.0)
    study = Study("s", "s", (Task("Pendulum", trajectories=(1,)),), (Entry("bc", settings=settings),), protocol)
    real = training._Program.run

    def dying(self):
        (self.directory / f"final-1-1-{self.cells[0].key}.policy.npz").write_bytes(b"of an earlier version")
        raise KeyboardInterrupt

    monkeypatch.setattr(training._Program, "run", dying)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path)
    assert list((tmp_path / "work").glob("*/*.policy.npz"))
    monkeypatch.setattr(training._Program, "run", real)
    capsys.readouterr()
    assert run(study, tmp_path).stored == 1
    assert "was begun by an earlier version; its program starts again\n" in capsys.readouterr().err
    assert not list((tmp_path / "work").iterdir())
