"""`understudy theory`: its measurements, and its files."""

import csv

import numpy as np
import pytest

from understudy.paper.theory import measurements
from understudy.tabular import Game
from understudy.tabular.examples import loop, reachable, tree
from understudy.tabular.solvers import solve


@pytest.mark.slow
def test_the_command_writes_its_measurements_and_figures(understudy, monkeypatch, tmp_path):
    monkeypatch.setattr(measurements.gap_growth, "__defaults__", ((128, 512),))
    monkeypatch.setattr(measurements.tree_costs, "__defaults__", (((2, 4), (3, 3)),))
    monkeypatch.setattr(measurements.solutions, "__defaults__", (4, 2, 5, 0.05))
    monkeypatch.setattr(measurements, "SHAPES", ((4, 3, 6),))
    status, out, _ = understudy("theory", "--out", "out", "--mdps", 60)
    assert status == 0
    for name in ("theory", "loop", "cliff", "unicycle", "tree"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "theory.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    slopes = {(row["name"], row["class"]): float(row["value"]) for row in rows if row["part"] == "slope"}
    growth = measurements.gap_growth((128, 512))
    assert len(slopes) == len(growth)
    for one in growth:
        assert slopes[f"{one.example}, {one.moments}", one.fixed] == pytest.approx(one.expected, abs=0.02)
        assert f"{one.slope:.3f}" in out
    assert all(float(row["value"]) <= 1 + 1e-9 for row in rows if row["part"] == "largest gap / bound")
    assert {row["x"] for row in rows if row["part"] == "largest gap / bound"} == {"60"}
    assert len({row["name"] for row in rows if row["part"] == "certificate"}) == 6
    for formula in ("2G²T ln|A|/δ²", "1/δ'"):
        assert formula in out
        assert len([row for row in rows if row["part"] == "proof bound" and formula in row["x"]]) == 3
    trees = {(row["name"], row["class"]): float(row["value"]) for row in rows if row["part"] == "tree"}
    assert [trees["|A| = 3", label] for label in measurements.TREE_COLUMNS[:3]] == [27, 39, 9]
    assert all(trees["|A| = 3", label] > 0 for label in measurements.TREE_COLUMNS[3:])


def test_the_payoff_is_fixed_and_the_gap_is_below_its_bound():
    """Except for the paper's own on-Q learner, whose error in s_0 is fixed."""
    for one in measurements.gap_growth((64, 128)):
        if one.fixed.startswith("ε"):
            np.testing.assert_allclose(one.payoffs, measurements.EPSILON, rtol=1e-10)
        if one.fixed.startswith("error"):
            expected = [measurements.EPSILON / 64, measurements.EPSILON / 128]
            np.testing.assert_allclose(one.payoffs, expected, rtol=1e-10)
        assert all(gap <= bound for gap, bound in zip(one.gaps, one.upper_bounds, strict=True))


@pytest.mark.parametrize("taken", ["", "theory.csv", "theory.png"])
def test_a_path_that_cannot_be_written_is_refused_before_computing(taken, understudy, monkeypatch, tmp_path):
    out = tmp_path / "out"
    if taken:
        (out / taken).mkdir(parents=True)
    else:
        out.write_text("a file")
    monkeypatch.setattr(measurements, "gap_growth", lambda: pytest.fail("computed first"))
    status, printed, err = understudy("theory", "--out", out)
    assert (status, printed) == (2, "")
    assert str(out / taken if taken else out) in err


def test_recoverability_agrees_with_the_papers_statements():
    constants = {(one.example, one.rewards): one.constant for one in measurements.example_recoverability(8)}
    assert constants["LOOP", "±r, the example's own"] == 1
    assert constants["LOOP", "of state, in [−1, 1]"] == 2
    assert constants["LOOP", "all in [−1, 1]"] == 4
    assert constants["CLIFF", "±r, the example's own"] == 8
    assert constants["CLIFF", "all in [−1, 1]"] == 16
    assert constants["UNICYCLE", "±r, the example's own"] == 7


def test_reward_matching_plans_over_the_tree_and_given_states_leave_one_path():
    for one in measurements.tree_costs(((2, 4), (3, 5), (4, 4))):
        assert one.paths == one.actions**one.horizon
        assert one.planned == one.actions * (one.actions**one.horizon - 1) // (one.actions - 1)
        assert one.edges == one.actions * one.horizon < one.planned


def test_reachable_states_follow_the_successors():
    """LOOP: s_0 at first, then s_1 or s_2; its expert stays in s_1."""
    example = loop(4)
    assert [states.tolist() for states in reachable(example)] == [[0], [1, 2], [1, 2], [1, 2]]
    assert [states.tolist() for states in reachable(example, example.expert[0] > 0)] == [[0], [1], [1], [1]]


def test_on_the_experts_path_both_responses_to_its_reward_are_the_experts():
    example = tree(4, 3)
    path = np.concatenate(reachable(example, example.expert[0] > 0))
    planned = np.asarray(Game("reward", example.mdp, example.expert).respond(-example.reward))
    on_path = measurements.respond_on_path(-example.reward[np.arange(4), path])
    np.testing.assert_array_equal(planned[np.arange(4), path].argmax(-1), 2)
    np.testing.assert_array_equal(on_path, 2)


def test_solvers_need_more_iterations_for_a_smaller_certificate():
    game, box = measurements.game_and_class("off-Q", 4, 3, 5)
    few, many = (solve(game, box, "primal", delta).iterations for delta in (0.1, 0.01))
    assert few < many
