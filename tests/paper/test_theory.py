"""`understudy theory`: what it prints is what was measured, and its files are whole."""

import csv
import sys

import numpy as np
import pytest

from understudy.cli.main import main as cli
from understudy.paper import theory
from understudy.tabular import Game
from understudy.tabular.examples import loop, reachable, tree


def test_the_command_measures_and_draws(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(theory.lines, "__defaults__", ((128, 512),))
    monkeypatch.setattr(theory.trees, "__defaults__", (((2, 4), (3, 3)),))
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
    assert "upper bound, T = 512" in said
    lines = theory.lines((128, 512))
    assert len(slopes) == len(lines) == len([row for row in rows if row["part"] == "slope"])
    for line in lines:
        assert slopes[f"{line.example}, {line.moments}", line.fixed] == pytest.approx(line.expected, abs=0.02)
    assert all(float(row["value"]) <= 1 + 1e-9 for row in rows if row["part"] == "largest gap / bound")
    certificates = [row for row in rows if row["part"] == "certificate"]
    assert len({row["name"] for row in certificates}) == 6
    for meaning in ("2G²T ln|A|/δ²", "1/δ'"):
        assert meaning in said
        assert len([row for row in rows if row["part"] == "the proofs ask for" and meaning in row["x"]]) == 3
    trees = {(row["name"], row["class"]): float(row["value"]) for row in rows if row["part"] == "tree"}
    assert [trees["|A| = 3", label] for label in theory.TREE_COLUMNS[:3]] == [27, 39, 9]
    assert all(trees["|A| = 3", label] > 0 for label in theory.TREE_COLUMNS[3:])


def test_at_a_fixed_payoff_the_payoff_is_fixed():
    """That of the paper's own on-Q learner is not: its error in s_0 is."""
    for line in theory.lines((64, 128)):
        if line.fixed.startswith("ε"):
            np.testing.assert_allclose(line.payoffs, theory.EPSILON, rtol=1e-10)
        if line.fixed.startswith("error"):
            np.testing.assert_allclose(line.payoffs, [theory.EPSILON / 64, theory.EPSILON / 128], rtol=1e-10)
        assert all(gap <= limit for gap, limit in zip(line.gaps, line.limits, strict=True))


@pytest.mark.parametrize("taken", ["", "theory.csv", "theory.png"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_computed(taken, monkeypatch, capsys, tmp_path):
    out = tmp_path / "out"
    if taken:
        (out / taken).mkdir(parents=True)
    else:
        out.write_text("a file")
    monkeypatch.setattr(theory, "lines", lambda: pytest.fail("computed first"))
    monkeypatch.setattr(sys, "argv", ["understudy", "theory", "--out", str(out)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert "is a directory" in said.err if taken else "is a file" in said.err
    assert said.out == ""


def test_recoverability_beside_the_papers_sentences():
    found = {(one.example, one.rewards): one.constant for one in theory.constants(8)}
    assert found["LOOP", "±r, the example's own"] == 1
    assert found["LOOP", "of state, in [−1, 1]"] == 2
    assert found["LOOP", "all in [−1, 1]"] == 4
    assert found["CLIFF", "±r, the example's own"] == 8
    assert found["CLIFF", "all in [−1, 1]"] == 16
    assert found["UNICYCLE", "±r, the example's own"] == 7


def test_reward_matching_weighs_a_tree_and_given_states_leave_a_path():
    for one in theory.trees(((2, 4), (3, 5), (4, 4))):
        assert one.paths == one.actions**one.horizon
        assert one.planned == one.actions * (one.actions**one.horizon - 1) // (one.actions - 1)
        assert one.edges == one.actions * one.horizon < one.planned


def test_what_can_be_reached_is_counted_along_the_successors():
    """LOOP: s_0 at first, then s_1 or s_2; its expert stays in s_1."""
    example = loop(4)
    assert [states.tolist() for states in reachable(example)] == [[0], [1, 2], [1, 2], [1, 2]]
    assert [states.tolist() for states in reachable(example, example.expert[0] > 0)] == [[0], [1], [1], [1]]


def test_on_the_experts_path_both_responses_to_its_reward_are_the_experts():
    example = tree(4, 3)
    path = np.concatenate(reachable(example, example.expert[0] > 0))
    planned = np.asarray(Game("reward", example.mdp, example.expert).respond(-example.reward))
    given = theory.respond_on_path(-example.reward[np.arange(4), path])
    np.testing.assert_array_equal(planned[np.arange(4), path].argmax(-1), 2)
    np.testing.assert_array_equal(given, 2)


def test_solvers_need_more_iterations_for_less():
    game, box = theory.game_and_class("off-Q", 4, 3, 5)
    few, many = (theory.solve(game, box, "primal", delta).iterations for delta in (0.1, 0.01))
    assert few < many
