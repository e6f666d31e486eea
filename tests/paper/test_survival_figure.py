"""CartPole with an expert that soon drops the pole: who it is, who learns from it, and what the command shows."""

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main as cli
from understudy.paper import reproduce_survival, survival
from understudy.studies import Store
from understudy.studies.report import table
from understudy.studies.running import RunSummary

ROOT = Path(__file__).parents[2]


def test_the_expert_is_down_in_twenty_steps_and_its_ends_are_ends():
    shown = survival.demonstrations(20)
    assert 12 < shown.lengths.mean() < 20
    assert np.median(shown.lengths) < 20
    last = np.cumsum(shown.lengths) - 1
    assert shown.terminals[last].all()
    assert shown.terminals.sum() == 20
    # It keeps to its rule but for the careless steps, half of which go where the rule would.
    rule = shown.observations[:, survival.CART_SPEED] < survival.SPEED
    assert np.mean(shown.actions == rule) == pytest.approx(1 - survival.CARELESS / 2, abs=0.07)
    again = survival.demonstrations(20)
    np.testing.assert_array_equal(shown.actions, again.actions)


def test_learners_differ_in_absorbing_states_kernel_and_balance_alone():
    found = {entry.label: entry.algorithm() for entry in survival.learners(2000)}
    assert len(found) == 8
    for name, algorithm in found.items():
        assert algorithm.absorbing == ("no absorbing" not in name)
        assert algorithm.balanced == ("balanced" in name or "sqil" in name)
        if "sqil" not in name:
            assert algorithm.kernel == ("indicator" if "labels" in name else us.adril().kernel)
        assert (algorithm.rounds, algorithm.round_steps) == (2, 1024)
        assert algorithm.soft_q.target_entropy == us.adril().soft_q.target_entropy


@pytest.fixture
def lives(monkeypatch, tmp_path):
    """The command, with learners that live as long as their name says instead of being trained."""
    monkeypatch.chdir(tmp_path)
    asked = []

    def run(study, place, jobs):
        store = Store(place)
        store.begin(study.to_dict())
        for group in study.groups():
            length = 300 if "no absorbing" in group.entry.label else 16
            for cell in group.cells:
                asked.append((group.entry.label, cell.trajectories))
                lived = [float(length + cell.seed)] * study.protocol.eval_episodes
                points = (("env_steps", 1024), ("env_steps", 2048), ("final", 2048))
                rows = [{"x_kind": kind, "x": x, "steps": x, "payoff": 0.1, "returns": lived} for kind, x in points]
                made = {"command": "", "versions": {}, "date": "", "device": "cpu"}
                known = {"format": 1, "key": cell.key, "config": cell.config, "display": group.display, "evaluations": rows}
                more = {"seconds": 1.0, "runs_in_program": 2, "env_steps": 2048, "queries": None, "provenance": made}
                store.write({**known, **more, "status": "finished"})
        return RunSummary(len(asked))

    monkeypatch.setattr(reproduce_survival, "run", run)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", "reproduce", "survival", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0

    return command, asked


def test_the_command_writes_and_draws_the_expert_and_eight_learners(lives, capsys):
    command, asked = lives
    assert command("--trajectories", "7", "--seeds", "2", "--steps", "2048", "--out", "s.csv") == 0
    with Path("s.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == table.COLUMNS
    assert (rows[0]["algorithm"], rows[0]["x_kind"], rows[0]["episodes"]) == ("expert", "expert", "1000")
    assert 12 < float(rows[0]["mean_return"]) < 20
    assert len(rows) == 1 + 8 * 2 * 3
    assert len(asked) == 8 * 2
    assert {count for _, count in asked} == {7}
    assert Path("s.png").read_bytes()[:4] == b"\x89PNG"
    lines = [re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    told = {(line[0], line[1]): line[2:] for line in lines if line[0].startswith(("adril", "sqil"))}
    assert len(told) == 8
    assert told["adril, labels, balanced", "an absorbing state"] == ["16.5 ± 0.5", "17.0", "16.5 ± 0.5"]
    assert told["sqil", "nothing"] == ["300.5 ± 0.5", "301.0", "300.5 ± 0.5"]


def test_what_cannot_be_run_is_said_before_anything_is(lives, capsys):
    command, asked = lives
    for words, said in ((["--seeds", "0"], "seeds is 0"), (["--out", "s.txt"], "a .csv file is needed")):
        assert command(*words) == 2
        assert said in capsys.readouterr().err
    assert asked == []


def test_absorbing_states_keep_learners_near_the_expert_in_what_was_measured():
    with (ROOT / "docs/results/survival.csv").open(newline="", encoding="utf-8") as file:
        expert, curves = survival.lengths(list(csv.DictReader(file)))
    late = {survival.named(curve): curve.last_five.mean for curve in curves}
    assert 12 < expert.mean < 20
    for who in ("adril, labels, balanced", "sqil"):
        assert abs(late[who, True] - expert.mean) < 4
        assert late[who, False] > 1.5 * expert.mean
    assert abs(late["adril", True] - expert.mean) < 4
    assert late["adril", False] < 1.5 * expert.mean  # whose f has no bonus to give away
