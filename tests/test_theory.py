"""`understudy theory`: what it prints is what was measured, and its files are whole."""

import csv
import sys

import numpy as np
import pytest

from understudy import cli
from understudy.experiments import theory


def test_the_command_measures_and_draws(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(theory, "HORIZONS", (64, 128))
    monkeypatch.setattr(theory.lines, "__defaults__", ((64, 128),))
    monkeypatch.setattr(theory.solutions, "__defaults__", (4, 2, 5, 0.05))
    monkeypatch.setattr(theory, "SHAPES", ((4, 3, 6),))
    monkeypatch.setattr(sys, "argv", ["understudy", "theory", "--out", str(tmp_path / "out"), "--mdps", "60"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "Upper bounds on 60 random MDPs" in said
    for name in ("theory", "loop", "cliff", "unicycle", "tree"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "theory.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    slopes = {(row["name"], row["class"]): float(row["value"]) for row in rows if row["part"] == "slope"}
    for line in theory.lines((64, 128)):
        assert slopes[f"{line.example}, {line.moments}", line.fixed] == pytest.approx(line.expected, abs=0.02)
    assert all(float(row["value"]) <= 1 + 1e-9 for row in rows if row["part"] == "largest gap / bound")
    certificates = [row for row in rows if row["part"] == "certificate"]
    assert len({row["name"] for row in certificates}) == 6


def test_recoverability_beside_the_papers_sentences():
    found = {(one.example, one.rewards): one.constant for one in theory.constants(8)}
    assert found["LOOP", "±r, the example's own"] == 1
    assert found["LOOP", "of state, in [−1, 1]"] == 2
    assert found["LOOP", "all in [−1, 1]"] == 4
    assert found["CLIFF", "±r, the example's own"] == 8
    assert found["CLIFF", "all in [−1, 1]"] == 16
    assert found["UNICYCLE", "±r, the example's own"] == 7


def test_reward_matching_weighs_a_tree_and_the_others_a_path():
    for one in theory.trees():
        nodes = (one.actions**one.horizon - 1) // (one.actions - 1)
        assert one.nodes == nodes * one.actions
        assert one.edges == one.actions * one.horizon < one.nodes


def test_solvers_need_more_iterations_for_less(monkeypatch):
    monkeypatch.setattr(theory, "GAMES", ("off-Q",))
    game, box = theory.game_and_class("off-Q", 4, 3, 5)
    few, many = (theory.solve(game, box, "primal", delta).iterations for delta in (0.1, 0.01))
    assert few < many
    assert np.isfinite(few)
