"""The figure of TREE with and without expert resets: the command, and the stored numbers."""

import csv
from pathlib import Path

from understudy.paper import filter_tree

STORED = Path(__file__).parents[2] / "docs/results/filter-tree.csv"


def test_the_command_writes_numbers_and_a_figure(understudy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = understudy("reproduce", "filter-tree", "--horizon", "3", "--out", "tree.csv")
    assert status == 0
    assert "PSDP" in out
    assert (tmp_path / "tree.png").stat().st_size > 1000
    rows = list(csv.DictReader((tmp_path / "tree.csv").open(encoding="utf-8")))
    assert len(rows) == 5 * (3 + 2)
    assert {row["command"] for row in rows} == {"understudy reproduce filter-tree --horizon 3 --out tree.csv"}
    status, _, err = understudy("reproduce", "filter-tree", "--out", "tree.txt")
    assert status == 2
    assert "tree.txt" in err


def test_the_stored_numbers_are_those_of_now():
    rows = list(csv.DictReader(STORED.open(encoding="utf-8")))
    for actions, horizon in ((2, 5), (4, 3)):
        own = [row for row in rows if (row["actions"], row["horizon"]) == (str(actions), str(horizon))]
        wanted = [
            (cost.search, cost.start_share, round(cost.episodes, 6)) for cost in filter_tree.costs(actions, horizon)
        ]
        assert [(row["search"], float(row["start_share"]), float(row["episodes"])) for row in own] == wanted
