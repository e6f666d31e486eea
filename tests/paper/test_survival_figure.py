"""CartPole with an expert that falls early: the expert, the learners, and the command."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy.paper import survival
from understudy.studies import Store
from understudy.studies.records import FORMAT
from understudy.studies.report import table
from understudy.studies.running import RunSummary

RESULTS = Path(__file__).parents[2] / "docs/results"


def test_the_expert_falls_within_twenty_steps_in_terminal_states():
    demonstrations = survival.record_demonstrations(20)
    assert 12 < demonstrations.lengths.mean() < 20
    assert np.median(demonstrations.lengths) < 20
    last = np.cumsum(demonstrations.lengths) - 1
    assert demonstrations.terminals[last].all()
    assert demonstrations.terminals.sum() == 20
    # Half of the random actions agree with the rule.
    rule = demonstrations.observations[:, survival.CART_VELOCITY] < survival.TARGET_VELOCITY
    assert np.mean(demonstrations.actions == rule) == pytest.approx(1 - survival.RANDOM_ACTIONS / 2, abs=0.07)
    np.testing.assert_array_equal(demonstrations.actions, survival.record_demonstrations(20).actions)


def test_learners_differ_only_in_absorbing_states_kernel_and_balance():
    learners = {entry.label: entry.algorithm() for entry in survival.learners(2000)}
    assert len(learners) == 8
    for name, algorithm in learners.items():
        assert algorithm.absorbing == ("no absorbing" not in name)
        assert algorithm.balanced == ("balanced" in name or "sqil" in name)
        if "sqil" not in name:
            assert algorithm.kernel == ("indicator" if "labels" in name else us.adril().kernel)
        assert (algorithm.rounds, algorithm.round_steps) == (2, 1024)
        assert algorithm.soft_q.target_entropy == us.adril().soft_q.target_entropy


@pytest.fixture
def trained(monkeypatch):
    """Replace training by records whose episode length depends on the learner's name; the trained cells."""
    cells = []

    def run(study, directory, jobs):
        store = Store(directory)
        store.begin(study.to_dict())
        for group in study.groups():
            length = 300 if "no absorbing" in group.entry.label else 16
            for cell in group.cells:
                cells.append((group.entry.label, cell.trajectories))
                returns = [float(length + cell.seed)] * study.protocol.eval_episodes
                points = (("env_steps", 1024), ("env_steps", 2048), ("final", 2048))
                rows = [{"x_kind": kind, "x": x, "steps": x, "payoff": 0.1, "returns": returns} for kind, x in points]
                made = {"command": "", "versions": {}, "date": "", "device": "cpu"}
                store.write(
                    {
                        "format": FORMAT,
                        "key": cell.key,
                        "config": cell.config,
                        "display": group.display,
                        "evaluations": rows,
                        "seconds": 1.0,
                        "runs_in_program": 2,
                        "env_steps": 2048,
                        "queries": None,
                        "provenance": made,
                        "status": "finished",
                    }
                )
        return RunSummary(len(cells))

    monkeypatch.setattr(survival, "run", run)
    return cells


def test_the_command_writes_and_draws_the_expert_and_eight_learners(understudy, trained):
    words = ("--trajectories", 7, "--seeds", 2, "--steps", 2048, "--out", "s.csv")
    status, out, _ = understudy("reproduce", "survival", *words)
    assert status == 0
    with Path("s.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == table.COLUMNS
    assert (rows[0]["algorithm"], rows[0]["x_kind"], rows[0]["episodes"]) == ("expert", "expert", "1000")
    assert 12 < float(rows[0]["mean_return"]) < 20
    assert len(rows) == 1 + 8 * 2 * 3
    assert len(trained) == 8 * 2
    assert {count for _, count in trained} == {7}
    assert Path("s.png").read_bytes()[:4] == b"\x89PNG"
    lines = [re.split("  +", line.strip()) for line in out.splitlines()]
    printed = {(line[0], line[1]): line[2:] for line in lines if line[0].startswith(("adril", "sqil"))}
    assert len(printed) == 8
    assert printed["adril, labels, balanced", "yes"] == ["16.5 ± 0.5", "17.0", "16.5 ± 0.5"]
    assert printed["sqil", "no"] == ["300.5 ± 0.5", "301.0", "300.5 ± 0.5"]


@pytest.mark.parametrize(("words", "value"), [(["--seeds", "0"], "seeds is 0"), (["--out", "s.txt"], "out is 's.txt'")])
def test_a_wrong_option_is_an_error_before_training(words, value, understudy, trained):
    status, _, err = understudy("reproduce", "survival", *words)
    assert (status, value in err, trained) == (2, True, [])


def test_with_absorbing_states_the_stored_learners_stay_near_the_expert():
    with (RESULTS / "survival.csv").open(newline="", encoding="utf-8") as file:
        expert, curves = survival.read_lengths(list(csv.DictReader(file)))
    late = {survival.describe(curve): curve.last_five.mean for curve in curves}
    assert 12 < expert.mean < 20
    for name in ("adril, labels, balanced", "sqil"):
        assert abs(late[name, True] - expert.mean) < 4
        assert late[name, False] > 1.5 * expert.mean
    assert abs(late["adril", True] - expert.mean) < 4
    assert late["adril", False] < 1.5 * expert.mean  # its reward has no constant part, so no bonus
