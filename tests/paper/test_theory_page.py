"""The interactive page: its tables are those of `tabular`, and it asks nobody for anything."""

import json
import re

import numpy as np
import pytest

from understudy.core.errors import SettingError
from understudy.paper.theory import command
from understudy.paper.theory.explorer import page, rounds, tables
from understudy.tabular import bounds, examples, imitation_gap, reward_box
from understudy.tabular.games import Game
from understudy.tabular.moments import q_box
from understudy.tabular.recoverability import error_bound, plus_minus, recoverability
from understudy.tabular.solvers import solve, trace

LOOP, CLIFF, UNICYCLE, TREE = tables.TASKS
TOGETHER = {task: group for group in tables.GROUPS for task in group}
SMALL = {"epsilons": [0.5], "kinds": list(tables.KINDS), "tasks": []}


def task_cells(task, horizon):
    """The task's cells and H, measured together with those of its group."""
    group = TOGETHER[task]
    return tables.cells_of(group, horizon)[group.index(task)]


def by_hand(example, policy):
    """(payoff, gap, bound) by kind, from the functions of `tabular` that the page does not call."""
    mdp, expert, horizon = example.mdp, example.expert, example.mdp.horizon
    gap = float(imitation_gap(mdp, example.reward, expert, policy))
    of_reward = float(reward_box(mdp).sup(Game("reward", mdp, expert).difference(policy)))
    of_off_q = float(q_box(mdp).sup(Game("off-Q", mdp, expert).difference(policy)))
    error = float(error_bound(mdp, expert, policy, 1.0)) / horizon
    constant = float(recoverability(mdp, expert, plus_minus(example.reward)).constant)
    return np.array(
        [
            [of_reward, gap, 2 * horizon * of_reward],
            [of_off_q, gap, 2 * horizon**2 * of_off_q],
            [error, gap, error * constant * horizon],
        ]
    )


@pytest.mark.parametrize(
    ("task", "horizon", "way"), [(LOOP, 8, 0), (LOOP, 16, 2), (CLIFF, 16, 0), (UNICYCLE, 16, 0), (TREE, 4, 0)]
)
def test_the_cells_are_what_tabular_computes(task, horizon, way):
    views, constants = task_cells(task, horizon)
    example = task.make(horizon, task.ways_back[way])
    constant = recoverability(example.mdp, example.expert, plus_minus(example.reward)).constant
    assert constants[way] == pytest.approx(float(constant), rel=1e-12)
    for position in (0, 6, 11):
        *own, same = tables.learners(example, tables.EPSILONS[position])
        np.testing.assert_allclose(views["learner"][way][position], by_hand(example, same), rtol=1e-10)
        for kind, learner in enumerate(own):
            cell = views["payoff"][way][position][kind]
            assert (cell is None) == (learner is None)
            if learner is not None:
                np.testing.assert_allclose(cell, by_hand(example, learner)[kind], rtol=1e-10)


@pytest.mark.parametrize(("task", "horizon"), [(LOOP, 16), (CLIFF, 16), (UNICYCLE, 16), (TREE, 4)])
def test_the_payoff_is_epsilon_and_every_gap_is_below_its_bound(task, horizon):
    views, _ = task_cells(task, horizon)
    for rows in views["payoff"]:
        for epsilon, row in zip(tables.EPSILONS, rows, strict=True):
            assert row[0] is not None
            for kind, cell in zip(tables.KINDS, row, strict=True):
                assert (cell is None) == (epsilon * horizon > 1 and kind != "reward" and (kind, task) != ("on-Q", LOOP))
                assert cell is None or cell.payoff == pytest.approx(epsilon, rel=1e-12)
    cells = [cell for rows in (*views["payoff"], *views["learner"]) for row in rows for cell in row if cell is not None]
    assert all(cell.gap <= cell.bound * (1 + 1e-12) for cell in cells)
    assert all(cell.gap <= horizon for cell in cells)


def test_on_q_gaps_are_quadratic_where_an_error_costs_the_episode_and_linear_where_the_expert_returns():
    """At ε = 1/1024. The constructions of `bounds` have the same gaps on CLIFF."""
    position, at = tables.EPSILONS.index(1 / 1024), {}
    for task in (LOOP, CLIFF, UNICYCLE):
        gaps = [task_cells(task, horizon)[0]["payoff"][0][position] for horizon in (32, 64)]
        at[task.name] = [bounds.slope((32, 64), [row[kind].gap for row in gaps]) for kind in range(3)]
        if task is CLIFF:
            made = (bounds.cliff_reward, bounds.cliff_off_q, bounds.cliff_on_q)
            assert [one.gap for one in gaps[0]] == pytest.approx([make(1 / 1024, 32).gap for make in made], rel=1e-12)
    assert at["LOOP"] == pytest.approx([1, 2, 1], abs=0.05)
    assert at["CLIFF"] == pytest.approx([1, 2, 2], abs=0.05)
    assert at["UNICYCLE"] == pytest.approx([1, 2, 2], abs=0.05)


def test_a_longer_way_back_of_loop_costs_so_many_steps():
    for way_back in (1, 3, 5, 20):
        example = examples.loop(12, way_back)
        constant = recoverability(example.mdp, example.expert, plus_minus(example.reward)).constant
        assert float(constant) == min(way_back, 11)


def test_a_way_back_or_a_number_of_rounds_below_one_raises():
    with pytest.raises(SettingError, match="way_back"):
        examples.loop(8, 0)
    game = rounds.grid_game()
    with pytest.raises(SettingError, match="iterations"):
        trace(game, reward_box(game.mdp), "primal", 0, rounds.ALPHA)


def test_the_game_ends_near_the_experts_two_routes_and_shows_the_solvers_certificates():
    game, data = rounds.grid_game(), rounds.game_data()
    box = reward_box(game.mdp, stationary=True)
    start = rounds.CELLS.index(rounds.START)
    for side in rounds.SIDES:
        one = data["sides"][side]
        position = data["rounds"].index(10)
        assert one["certificate"][-1] < 0.02 < 0.1 < one["certificate"][0]
        solved = solve(game, box, side, delta=1e-9, alpha=rounds.ALPHA, max_iterations=10)
        assert one["certificate"][position] == pytest.approx(solved.certificate, rel=1e-3)
        assert one["payoff"][position] == pytest.approx(solved.payoff, rel=1e-3)
        assert one["average"][-1]["actions"][start][0] == pytest.approx(100 * rounds.UPPER, abs=2)
        assert all(len(frames) == len(data["rounds"]) for frames in one.values())
        assert all(abs(f) <= 500 for frame in one["move"] for row in frame["f"] for f in row)
    assert data["expert"]["visits"][start] == 1


@pytest.fixture
def small(monkeypatch):
    """The page without its tables, which take seconds."""
    monkeypatch.setattr(page, "tables", lambda: SMALL)
    monkeypatch.setattr(page, "game_data", dict)


def test_the_page_names_no_other_file_or_server(small):
    text = page.render()
    own = text.replace("http://www.w3.org/2000/svg", "")  # the name of a language, which nobody loads
    assert not re.search(r"https?:|//[a-z]|<link|<img|<iframe|@import|url\(|\bfetch\(|XMLHttp|\simport\s|\ssrc=", own)
    assert "default-src 'none'" in text
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert data == {"bounds": SMALL, "game": {}}


def test_the_command_writes_the_page_and_replaces_only_a_page(small, understudy, tmp_path):
    for _ in range(2):
        status, out, _ = understudy("theory", "--page", "new/theory.html")
        assert status == 0
        assert "new/theory.html" in out
    assert (tmp_path / "new" / "theory.html").read_text(encoding="utf-8").startswith(page.START)
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    status, _, err = understudy("theory", "--page", "mine.html")
    assert status == 2
    assert "mine.html" in err
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"


def test_the_page_and_full_measurements_are_two_commands(understudy, monkeypatch):
    monkeypatch.setattr(command, "write_page", lambda path: pytest.fail("written"))
    status, _, err = understudy("theory", "--page", "theory.html", "--full")
    assert status == 2
    assert "choose one" in err
