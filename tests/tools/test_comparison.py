"""tools/: the tables of stored results agree with their CSV files, and verdicts with their tests."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import comparison
import comparison_claims
import stored_files
import tables
from comparison import AGREES, HIGHER, LOWER, NO_TEST, NOT_YET
from understudy.algorithms import find
from understudy.core.errors import RunError, SettingError, UnknownNameError
from understudy.core.statistics import Sample, p_different
from understudy.paper import ablation, figure_studies, filter_tree, published
from understudy.paper.on_q_trials import COLUMNS as TRIAL_COLUMNS
from understudy.paper.theory.command import HEADER as THEORY_COLUMNS
from understudy.paper.theory.measurements import SolverIterations
from understudy.studies.report import table
from understudy.studies.settings import overrides

RESULTS = Path(__file__).parents[2] / "docs/results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made():
    return tables.make_tables(RESULTS)


def cells(markdown):
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines()]


def test_the_generated_tables_of_the_results_page_are_fresh(made):
    assert tables.fill(PAGE, made) == PAGE, "stale tables: run `python tools/tables.py`"
    assert sorted(match["name"] for match in tables.TABLE.finditer(PAGE)) == sorted(made)


FIGURES = sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*.png"))
MADE = ["command", "versions", "device", "date"]
EXAMPLES = ("cliff", "loop", "tree", "unicycle")
"""Drawings of MDPs, which have no data."""


@pytest.mark.parametrize("figure", [name for name in FIGURES if Path(name).stem not in EXAMPLES])
def test_every_figures_csv_is_what_its_command_reads_and_writes(figure):
    """Current columns, and learners that the current code can make: a renamed setting must be renamed there, too."""
    path = (RESULTS / figure.replace("-bundled.png", ".png")).with_suffix(".csv")
    paths = sorted(RESULTS.glob("benchmark-*.csv")) if figure == "benchmark.png" else [path]
    rows = [row for one in paths for row in comparison.read(one)]
    assert rows, f"{figure} has no data"
    expected = {
        "theory.csv": [THEORY_COLUMNS],
        "filter-tree.csv": [list(filter_tree.COLUMNS)],
        "replay-estimation.csv": [
            ["mdp", "demonstrations", "estimate", "mean_error", "standard_error", "draws", *MADE]
        ],
        "theory-iterations.csv": [[*SolverIterations._fields, *THEORY_COLUMNS[-3:]]],
    }.get(path.name, [table.COLUMNS, TRIAL_COLUMNS])
    assert list(rows[0]) in expected
    for algorithm, preset, settings in {(r["algorithm"], r["preset"], r["settings"]) for r in rows if "settings" in r}:
        if preset:
            changes = json.loads(settings)
            find(algorithm).preset(preset, **overrides(algorithm, preset, changes))


def test_the_ablations_episodes_have_their_columns():
    assert figure_studies.read_rows(RESULTS / "adril-ablation-episodes.csv", ablation.EPISODE_COLUMNS)


def test_every_published_point_is_in_the_tables(made):
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


def test_our_numbers_are_the_means_of_the_files(made):
    with (RESULTS / "off-q-ant.csv").open(newline="", encoding="utf-8") as file:
        means = [float(r["mean_return"]) for r in csv.DictReader(file) if r["algorithm"] == "bc" and r["x"] == "15"]
    expected = f"{np.mean(means):.0f} ± {np.std(means, ddof=1) / len(means) ** 0.5:.0f}"
    (row,) = (row for row in cells(made["off-q-ant"]) if row[:2] == ["bc", "ours"])
    assert row[4] == expected


def test_a_verdict_is_welchs_test_with_holms_correction():
    low, high = Sample(100.0, 10.0, 5), Sample(212.0, 10.0, 5)
    assert comparison.verdicts({1: (low, high), 2: (high, low), 3: (low, low)}) == {1: LOWER, 2: HIGHER, 3: AGREES}
    # This difference is significant alone, and not among ten.
    ours, theirs = Sample(100.0, 10.0, 5), Sample(118.5, 10.0, 5)
    assert 0.01 < p_different([ours], [theirs]) < 0.05
    assert comparison.verdicts({0: (ours, theirs)}) == {0: LOWER}
    assert set(comparison.verdicts(dict.fromkeys(range(10), (ours, theirs))).values()) == {AGREES}
    assert set(comparison.verdicts(dict.fromkeys(range(10), (ours, theirs)), corrected=False).values()) == {LOWER}


def test_a_single_seed_is_not_tested_and_does_not_count_in_the_correction():
    ours, theirs = Sample(100.0, 10.0, 5), Sample(118.5, 10.0, 5)
    results = comparison.verdicts({0: (ours, theirs), 1: (Sample.of([1.0]), theirs), 2: (Sample.of([1.0]), theirs)})
    assert results == {0: LOWER, 1: NO_TEST, 2: NO_TEST}


def test_a_published_mean_without_a_spread_counts_as_exact():
    ours = Sample.of([99.0, 100.0, 101.0, 100.5, 99.5])
    exact = {0: (ours, Sample(100.2, float("nan"), 5)), 1: (ours, Sample(103.0, float("nan"), 5))}
    assert comparison.verdicts(exact) == {0: AGREES, 1: LOWER}


def test_the_summary_of_verdicts_names_the_points_that_differ():
    by_steps = {25_000: AGREES, 50_000: HIGHER, 75_000: LOWER, 100_000: HIGHER}
    summary = comparison.summarize_verdicts(by_steps, 1000, "k")
    assert summary == "agrees at 1 of 4; ours is higher at 50k, 100k; ours is lower at 75k"
    assert comparison.summarize_verdicts({5: AGREES, 10: AGREES}) == "agrees at all 2"
    assert comparison.summarize_verdicts({5: LOWER}) == "ours is lower at 5"


def test_without_files_the_published_numbers_are_there_and_ours_are_missing(tmp_path, made):
    empty = tables.make_tables(tmp_path)
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


def cloning(demonstrations, expert, mean, trajectories=25):
    values = {"env": "AntBulletEnv-v0", "algorithm": "bc", "preset": "default", "settings": "{}", "x_kind": "final"}
    values |= {"x": trajectories, "trajectories": trajectories, "demonstrations": demonstrations}
    values |= {"expert_return": expert, "train_seconds": 3.0}
    return [{**values, "seed": seed, "mean_return": mean + seed} for seed in range(5)]


def test_cloning_is_compared_only_for_the_same_expert(tmp_path):
    write(tmp_path / "bc-table.csv", cloning("Ant.npz@1", 2585.2, 2590.0) + cloning("bundled@2", 3400.6, 3300.0))
    rows = cells(comparison.bc_table(tmp_path))
    assert ["", "the paper's", "2585", "2592 ± 1", "5", HIGHER] in rows
    assert ["", "bundled", "3401", "3302 ± 1", "5", "another expert: not compared"] in rows
    assert rows[3][-1] == NOT_YET  # HalfCheetah
    missing = stored_files.missing_table(tmp_path)
    assert "bc-table --task halfcheetah" in missing
    assert "bc-table --task ant" not in missing
    assert "| 6 |" in stored_files.files_table(tmp_path)  # two programs of three seconds


def test_a_learner_is_missing_until_its_last_step(tmp_path):
    values = {"env": "AntBulletEnv-v0", "algorithm": "sqil", "preset": "paper", "settings": "{}", "trajectories": 5}
    values |= {"demonstrations": "Ant.npz@1", "expert_return": 2585.1, "train_seconds": 3.0, "x_kind": "env_steps"}
    for steps in ((25_000,), (25_000, 500_000)):
        rows = [{**values, "seed": seed, "x": x, "mean_return": 9000 + seed} for seed in range(5) for x in steps]
        write(tmp_path / "reward-ant.csv", rows)
        missing = stored_files.missing_table(tmp_path).splitlines()
        (row,) = (line for line in missing if "--task ant --demos FILE" in line and "adril:paper@5" in line)
        assert ("sqil:paper@5" in row) == (steps == (25_000,))
    assert "9002 ± 1 (**higher**)" in comparison.reward_table(tmp_path, "ant")
    assert "ours is higher at 25k" in comparison.reward_verdicts(tmp_path)


def test_learners_that_have_not_finished_are_counted_as_missing(tmp_path):
    values = {"env": "HalfCheetahBulletEnv-v0", "algorithm": "adril", "preset": "paper", "trajectories": 20}
    values |= {"demonstrations": "HalfCheetah.npz@1", "x_kind": "env_steps", "seed": 0, "mean_return": 1.0}
    steps = {"{}": 500_000, '{"round_steps": 2500}': 500_000, '{"round_steps": 5000}': 400_000}
    rows = [{**values, "settings": settings, "x": x} for settings, x in steps.items()]
    rows.append({**values, "env": "AntBulletEnv-v0", "settings": '{"round_steps": 5000}', "x": 500_000})
    write(tmp_path / "f-frequency.csv", rows)
    missing = [line for line in stored_files.missing_table(tmp_path).splitlines() if "f-frequency" in line]
    assert len(missing) == 2  # the paper's demonstrations, and the bundled ones
    assert "4 of 6" in missing[0]


def test_the_offline_table_has_only_the_papers_demonstrations(tmp_path):
    rows = []
    for count in published.TRAJECTORIES:
        rows += cloning("Ant.npz@1", 2585.2, 2300.0, count) + cloning("bundled@2", 3400.6, 3300.0, count)
    write(tmp_path / "off-q-ant.csv", rows)
    ours = [row for row in cells(comparison.off_q_table(tmp_path, "ant")) if row[:2] == ["bc", "ours"]]
    assert [row[2] for row in ours] == ["2302 ± 1"]
    missing = stored_files.missing_table(tmp_path)
    assert "off-q --task ant --demos FILE --learners valuedice advil advil:released`" in missing
    assert "off-q --task ant --learners valuedice advil advil:released`" in missing
    assert "off-q --task halfcheetah --learners bc valuedice advil advil:released`" in missing


def test_an_exponent_is_compared_with_the_papers(tmp_path):
    (tmp_path / "theory").mkdir()
    rows = [["slope", "CLIFF, reward", "ε over F_r/2", "", 1.5], ["slope", "LOOP, reward", "ε over F_r/2", "", 1.01]]
    with (tmp_path / "theory/theory.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["part", "name", "class", "x", "value"], *rows])
    verdicts = [row[-1] for row in cells(comparison_claims.theory_table(tmp_path))[2:]]
    assert [verdict for verdict in verdicts if verdict != NOT_YET] == [HIGHER, AGREES]
    assert len(verdicts) == len(published.EXPONENTS)


def test_bars_in_cells_are_escaped():
    assert comparison.markdown(["a"], [["|x|"]]).splitlines()[-1] == "| \\|x\\| |"


def test_the_script_fills_the_page_and_changes_nothing_else(tmp_path, capsys):
    shutil.copy(RESULTS / "lander.csv", tmp_path)
    page = tmp_path / "README.md"
    page.write_text("before\n\n<!-- table: lander -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    assert tables.main([str(tmp_path)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n\n<!-- table: lander -->\n\n| learner |")
    assert text.endswith("|\n\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert tables.write_page(tmp_path) == (page, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "lander.csv"]


def test_a_page_that_cannot_be_filled_is_an_error_and_stays(tmp_path, capsys):
    with pytest.raises(RunError, match=r"README\.md"):
        tables.write_page(tmp_path)
    assert tables.main([str(tmp_path)]) == 2
    assert "error" in capsys.readouterr().err
    page = tmp_path / "README.md"
    for text, error, value in (
        ("<!-- table: landr -->\n<!-- end -->\n", UnknownNameError, "lander"),
        ("<!-- table: lander -->\n", SettingError, "end"),
        ("<!-- table: lander -->\n<!-- table: forest -->\n<!-- end -->\n", SettingError, "end"),
    ):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(error, match=value):
            tables.write_page(tmp_path)
        assert page.read_text(encoding="utf-8") == text
