"""CartPole with an expert that soon drops the pole: who it is, who learns from it, and what the command shows."""

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy import cli
from understudy.experiments import reward, survival

ROOT = Path(__file__).parent.parent
COLUMNS = [*reward.COLUMNS, *reward.MORE]


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


def test_learners_differ_in_absorbing_states_and_balance_alone():
    found = {who.name: who.algorithm for who in survival.learners(2000, 7)}
    assert len(found) == 6
    for name, algorithm in found.items():
        assert algorithm.absorbing == ("none" not in name)
        assert algorithm.balanced == ("balanced" in name or "sqil" in name)
        assert (algorithm.rounds, algorithm.round_steps) == (2, 1024)
        assert algorithm.soft_q.target_entropy == us.adril().soft_q.target_entropy
    assert {who.preset for who in survival.learners(2000, 7)} == {
        "absorbing states",
        "none",
        "balanced, absorbing states",
        "balanced, none",
    }


@pytest.fixture
def lives(monkeypatch, tmp_path):
    """The command, with learners that live as long as their name says instead of being trained."""
    monkeypatch.chdir(tmp_path)
    asked = []

    def run(who, demonstrations, env, seeds, every, episodes, work, workers, progress):
        asked.append((who.name, demonstrations.episodes, str(work)))
        length = 300 if who.preset.endswith("none") else 16
        points = [(kind, x) for kind, xs in (("env_steps", (1024, 2048)), (reward.HANDED, (2048,))) for x in xs]
        return [
            [env, who.algorithm.card.name, who.preset, s, kind, x, length + s, 0, 7, x, episodes, 0, 0, "", "", "", ""]
            for kind, x in points
            for s in range(seeds)
        ]

    monkeypatch.setattr(reward, "run", run)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", "reproduce", "survival", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0

    return command, asked


def test_the_command_writes_and_draws_the_expert_and_six_learners(lives, capsys):
    command, asked = lives
    assert command("--trajectories", "7", "--seeds", "2", "--steps", "2048", "--out", "s.csv") == 0
    with Path("s.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert (rows[0]["algorithm"], rows[0]["x_kind"], rows[0]["episodes"]) == ("expert", "expert", "1000")
    assert 12 < float(rows[0]["mean_return"]) < 20
    assert len(rows) == 1 + 6 * 2 * 3
    assert {(n, work) for _, n, work in asked} == {(7, "runs/survival/7-2048-2-20")}
    assert Path("s.png").read_bytes()[:4] == b"\x89PNG"
    lines = [re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    told = {(line[0], line[1]): line[2:] for line in lines if line[0].startswith(("adril", "sqil"))}
    assert len(told) == 6
    assert told["adril, balanced", "an absorbing state"] == ["16.5 ± 0.5", "17.0", "16.5 ± 0.5"]
    assert told["sqil", "nothing"] == ["300.5 ± 0.5", "301.0", "300.5 ± 0.5"]


def test_what_cannot_be_run_is_said_before_anything_is(lives, capsys):
    command, asked = lives
    for words, said in ((["--seeds", "0"], "seeds is 0"), (["--out", "s.txt"], "a .csv file is needed")):
        assert command(*words) == 2
        assert said in capsys.readouterr().err
    assert asked == []


def test_absorbing_states_keep_learners_near_the_expert_in_what_was_measured():
    with (ROOT / "docs/results/survival.csv").open(newline="", encoding="utf-8") as file:
        expert, curves = survival.lengths(list(csv.reader(file))[1:])
    late = {survival.named(curve): curve.last_five.mean for curve in curves}
    assert 12 < expert.mean < 20
    for who in ("adril, balanced", "sqil"):
        assert abs(late[who, True] - expert.mean) < 4
        assert late[who, False] > 1.5 * expert.mean
