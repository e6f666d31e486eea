"""The page of stored results: its tables are what the CSV files say, and a verdict is what the test says."""

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from understudy.cli.main import main as cli
from understudy.core.errors import RunError, SettingError, UnknownNameError
from understudy.core.statistics import Sample, apart
from understudy.paper import comparison, comparison_claims, published, stored_files
from understudy.paper.comparison import AGREES, HIGHER, LOWER, NO_TEST, NOT_YET
from understudy.paper.reproduce_tables import PLACE, filled, reproduce_tables, tables
from understudy.studies.report import table

RESULTS = Path(__file__).parents[2] / "docs/results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made():
    return tables(RESULTS)


def cells(made_table):
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in made_table.splitlines()]


def test_the_pages_tables_are_what_the_command_writes(made):
    assert filled(PAGE, made) == PAGE, "the page is stale: run `understudy reproduce tables`"
    names = [found["name"] for found in PLACE.finditer(PAGE)]
    assert sorted(names) == sorted(made)


def test_every_published_point_is_on_the_page(made):
    for task, env in (("halfcheetah", "HalfCheetahBulletEnv-v0"), ("ant", "AntBulletEnv-v0")):
        for algorithm in ("bc", "valuedice", "advil"):
            points = [comparison.with_error(sample) for sample in published.off_q(env, algorithm).values()]
            assert len(points) == 5
            assert f"| {algorithm} | published | {' | '.join(points)} |" in made[f"off-q-{task}"]
        rows = cells(made[f"reward-{task}"])[2:]
        assert [row[0] for row in rows] == [f"{x}k" for x in range(0, 500, 25)]
        for algorithm in published.REWARD_TRAJECTORIES:
            points = [comparison.with_error(sample) for sample in published.reward(env, algorithm).values()]
            assert not points or points in [[row[at] for row in rows] for at in range(2, len(rows[0]), 2)]
    assert "| dagger | published |  | -537 | 192 | 278 |" in made["lander"]


def test_ours_on_the_page_are_the_means_of_the_files(made):
    with (RESULTS / "off-q-ant.csv").open(newline="", encoding="utf-8") as file:
        means = [float(r["mean_return"]) for r in csv.DictReader(file) if r["algorithm"] == "bc" and r["x"] == "15"]
    shown = f"{np.mean(means):.0f} ± {np.std(means, ddof=1) / len(means) ** 0.5:.0f}"
    (row,) = (row for row in cells(made["off-q-ant"]) if row[:2] == ["bc", "ours"])
    assert row[4] == shown


def test_a_point_differs_only_where_welch_and_holm_say_so():
    far, near = Sample(100.0, 10.0, 5), Sample(212.0, 10.0, 5)
    assert comparison.verdicts({1: (far, near), 2: (near, far), 3: (far, far)}) == {1: LOWER, 2: HIGHER, 3: AGREES}
    # A difference of one in fifty counts alone, and not among ten.
    ours, theirs = Sample(100.0, 10.0, 5), Sample(118.5, 10.0, 5)
    assert 0.01 < apart([ours], [theirs]) < 0.05
    assert comparison.verdicts({0: (ours, theirs)}) == {0: LOWER}
    assert set(comparison.verdicts(dict.fromkeys(range(10), (ours, theirs))).values()) == {AGREES}
    assert set(comparison.verdicts(dict.fromkeys(range(10), (ours, theirs)), corrected=False).values()) == {LOWER}


def test_a_single_seed_is_not_tested_and_does_not_weigh_on_the_others():
    ours, theirs = Sample(100.0, 10.0, 5), Sample(118.5, 10.0, 5)
    found = comparison.verdicts({0: (ours, theirs), 1: (Sample.of([1.0]), theirs), 2: (Sample.of([1.0]), theirs)})
    assert found == {0: LOWER, 1: NO_TEST, 2: NO_TEST}


def test_a_published_mean_without_a_spread_is_taken_as_exact():
    ours = Sample.of([99.0, 100.0, 101.0, 100.5, 99.5])
    exact = {0: (ours, Sample(100.2, float("nan"), 5)), 1: (ours, Sample(103.0, float("nan"), 5))}
    assert comparison.verdicts(exact) == {0: AGREES, 1: LOWER}


def test_the_two_sided_test_is_welchs():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 1, 5), rng.normal(1, 3, 7)
    expected = ttest_ind(first, second, equal_var=False).pvalue
    assert apart([Sample.of(first)], [Sample.of(second)]) == pytest.approx(expected)
    assert apart([Sample.of(first)] * 4, [Sample.of(second)] * 4) < apart([Sample.of(first)], [Sample.of(second)])
    assert apart([Sample(1.0, 0.0, 5)], [Sample(1.0, 0.0, 5)]) == 1
    assert np.isnan(apart([Sample.of([1.0])], [Sample.of(second)]))


def test_verdicts_are_told_by_where_they_are():
    said = {25_000: AGREES, 50_000: HIGHER, 75_000: LOWER, 100_000: HIGHER}
    told = comparison.spoken(said, 1000, "k")
    assert told == "agrees at 1 of 4; ours is higher at 50k, 100k; ours is lower at 75k"
    assert comparison.spoken({5: AGREES, 10: AGREES}) == "agrees at all 2"
    assert comparison.spoken({5: LOWER}) == "ours is lower at 5"


def test_without_files_everything_published_is_there_and_ours_is_not_measured_yet(tmp_path, made):
    empty = tables(tmp_path)
    for name in ("off-q-halfcheetah", "off-q-ant", "reward-verdicts", "reward-ant", "bc-table", "lander", "forest"):
        assert NOT_YET in empty[name], name
        assert AGREES not in empty[name]
    assert "850 ± 379" in empty["off-q-halfcheetah"]
    assert len(cells(empty["files"])) == 2
    assert len(cells(empty["missing"])) > len(cells(made["missing"]))


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table.COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)


def clone(demonstrations, expert, mean):
    env = "AntBulletEnv-v0"
    about = {"env": env, "algorithm": "bc", "preset": "default", "x_kind": "final", "x": 25, "settings": "{}"}
    about |= {"demonstrations": demonstrations, "trajectories": 25, "expert_return": expert, "train_seconds": 3.0}
    return [{**about, "seed": seed, "mean_return": mean + seed} for seed in range(5)]


def test_the_table_of_clones_compares_those_of_the_same_expert_alone(tmp_path):
    path = tmp_path / "bc-table.csv"
    write(path, clone("Ant.npz@1", 2585.2, 2590.0) + clone("bundled@2", 3400.6, 3300.0))
    rows = cells(comparison.bc_table(tmp_path))
    assert ["", "the paper's", "2585", "2592 ± 1", "5", HIGHER] in rows
    assert ["", "bundled", "3401", "3302 ± 1", "5", "another expert: not compared"] in rows
    assert rows[3][-1] == NOT_YET  # HalfCheetah
    missing = stored_files.missing_table(tmp_path)
    assert "bc-table --task halfcheetah" in missing
    assert "bc-table --task ant" not in missing
    assert "| 6 |" in stored_files.files_table(tmp_path)  # two programs of three seconds


def test_a_measured_learner_is_no_longer_missing(tmp_path):
    about = {"env": "AntBulletEnv-v0", "algorithm": "sqil", "preset": "paper", "settings": "{}", "trajectories": 5}
    about |= {"demonstrations": "Ant.npz@1", "expert_return": 2585.1, "train_seconds": 3.0, "x_kind": "env_steps"}
    for ends in (25_000, 500_000):
        rows = [{**about, "seed": i, "x": x, "mean_return": 9000 + i} for i in range(5) for x in (25_000, ends)]
        write(tmp_path / "reward-ant.csv", rows[::2] if ends == 25_000 else rows)
        found = stored_files.missing_table(tmp_path).splitlines()
        (row,) = (line for line in found if "--task ant --demos FILE" in line and "adril:paper@5" in line)
        assert ("sqil:paper@5" in row) == (ends == 25_000)  # cut short, it is missing still
    assert "9002 ± 1 (**higher**)" in comparison.reward_table(tmp_path, "ant")
    assert "ours is higher at 25k" in comparison.reward_verdicts(tmp_path)


def test_a_learner_whose_run_was_cut_short_is_still_missing(tmp_path):
    about = {"env": "HalfCheetahBulletEnv-v0", "algorithm": "adril", "preset": "paper", "trajectories": 20}
    about |= {"demonstrations": "HalfCheetah.npz@1", "x_kind": "env_steps", "seed": 0, "mean_return": 1.0}
    ends = {"{}": 500_000, '{"round_steps": 2500}': 500_000, '{"round_steps": 5000}': 400_000}
    write(tmp_path / "f-frequency.csv", [{**about, "settings": settings, "x": x} for settings, x in ends.items()])
    other = {**about, "env": "AntBulletEnv-v0", "settings": '{"round_steps": 5000}', "x": 500_000}
    with (tmp_path / "f-frequency.csv").open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, table.COLUMNS, restval="").writerow(other)
    missing = stored_files.missing_table(tmp_path)
    assert "| How often f moves, the paper's demonstrations: 4 of 6 learners to their end | " in missing
    assert "| How often f moves, the bundled demonstrations | " in missing


def test_the_offline_table_has_what_learned_from_the_papers_demonstrations_alone(tmp_path):
    made = [
        {**row, "x": count, "trajectories": count}
        for count in published.TRAJECTORIES
        for row in clone("Ant.npz@1", 2585.2, 2300.0) + clone("bundled@2", 3400.6, 3300.0)
    ]
    write(tmp_path / "off-q-ant.csv", made)
    rows = [row for row in cells(comparison.off_q_table(tmp_path, "ant")) if row[:2] == ["bc", "ours"]]
    assert [row[2] for row in rows] == ["2302 ± 1"]
    missing = stored_files.missing_table(tmp_path)
    assert "off-q --task ant --demos FILE --learners valuedice advil advil:released`" in missing
    assert "off-q --task ant --learners valuedice advil advil:released`" in missing
    assert "off-q --task halfcheetah --learners bc valuedice advil advil:released`" in missing


def test_an_exponent_that_misses_the_papers_differs(tmp_path):
    (tmp_path / "theory").mkdir()
    rows = [["slope", "CLIFF, reward", "ε over F_r/2", "", 1.5], ["slope", "LOOP, reward", "ε over F_r/2", "", 1.01]]
    with (tmp_path / "theory/theory.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["part", "name", "class", "x", "value"], *rows])
    found = cells(comparison_claims.theory_table(tmp_path))[2:]
    assert [row[-1] for row in found if row[-1] != NOT_YET] == [HIGHER, AGREES]
    assert len(found) == len(published.EXPONENTS)


def test_bars_in_cells_do_not_end_them():
    assert comparison.markdown(["a"], [["|x|"]]).splitlines()[-1] == "| \\|x\\| |"


def test_the_command_fills_the_page_and_touches_nothing_else(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "results"
    folder.mkdir()
    shutil.copy(RESULTS / "lander.csv", folder)
    (folder / "README.md").write_text("before\n\n<!-- table: lander -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["understudy", "reproduce", "tables", "--results", str(folder)])
    for said in ("written anew", "as they were"):
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
        assert said in capsys.readouterr().out
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page.startswith("before\n\n<!-- table: lander -->\n\n| learner |")
    assert page.endswith("|\n\n<!-- end -->\nafter\n")
    assert "old" not in page
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "lander.csv"]


def test_a_page_that_cannot_be_filled_is_refused_and_kept(tmp_path):
    with pytest.raises(RunError, match="--results"):
        reproduce_tables(str(tmp_path))
    page = tmp_path / "README.md"
    for text, error, said in (
        ("<!-- table: landr -->\n<!-- end -->\n", UnknownNameError, "lander"),
        ("<!-- table: lander -->\n", SettingError, "pair up"),
        ("<!-- table: lander -->\n<!-- table: forest -->\n<!-- end -->\n", SettingError, "pair up"),
    ):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(error, match=said):
            reproduce_tables(str(tmp_path))
        assert page.read_text(encoding="utf-8") == text
