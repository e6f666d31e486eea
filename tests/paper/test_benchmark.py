"""The benchmark: its command stops and goes on, its table is what the stored returns say, mistakes are one line."""

import csv
import json
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import benchmark_tables
import tables
from understudy.experts.bundled import bundled_experts
from understudy.paper import benchmark, benchmark_figure, benchmark_table, figure_studies
from understudy.paper.benchmark_published import PUBLISHED, SOURCES
from understudy.studies.curves import read_curves
from understudy.studies.report.table import COLUMNS
from understudy.train.tables import write_csv

ROOT = Path(__file__).parents[2]
needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs the extra mujoco")
ADRIL = "adril,rounds=2,round_steps=32,frequency=16,batch_size=8,random_steps=8,sac={'hidden':(8,),'gradient_steps':2}"
BC = "bc,rounds=2,gradient_steps=2,batch_size=8,hidden=(8,)"
SMALL = ["--tasks", "hopper", "--trajectories", "1", "--seeds", "2", "--steps", "64", "--eval-every", "32"]
SMALL += ["--eval-episodes", "1", "--workers", "1", "--work", "work", "--out", "out"]
FILE = "out/benchmark-Hopper-v5.csv"


def rows_of(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def short(monkeypatch):
    """Recording takes two episodes, and the experts' are not played to their end."""
    monkeypatch.setattr(benchmark, "EPISODES", 2)


def test_the_study_has_the_tasks_and_learners_of_the_page():
    tasks = benchmark.benchmark_tasks()
    assert list(tasks) == ["halfcheetah", "hopper", "walker2d", "ant", "humanoid"]
    assert {task.env for task in tasks.values()} - {*bundled_experts()} == {"Humanoid-v5"}
    study = benchmark.benchmark_study()
    assert {task.trajectories for task in tasks.values()} == {(1, 5, 25)}
    assert (len(study.protocol.seeds), study.protocol.steps, study.protocol.eval_every) == (5, 500_000, 25_000)
    assert [entry.label for entry in study.algorithms] == ["bc", "advil", "valuedice", "adril", "gail:sac", "sqil"]
    options = benchmark.Options((1,), 2, None, 25_000, 10, 1, 1)
    assert options.study("humanoid", tasks["humanoid"], Path("x"), ()).protocol.steps == 1_000_000
    assert options.study("ant", tasks["ant"], Path("x"), ()).tasks[0].env_args == tasks["ant"].env_args


@needs_mujoco
@pytest.mark.parametrize("learners", [[BC], pytest.param([ADRIL, BC], marks=pytest.mark.slow)])
def test_the_command_stops_goes_on_and_stores_every_run(learners, understudy, short, tmp_path, monkeypatch):
    answers = iter([False, False, False, True])  # before the task, the group, the program; after the first round
    monkeypatch.setattr(benchmark, "_deadline", lambda minutes: lambda: minutes is not None and next(answers, True))
    words = ["benchmark", "run", "--learners", *learners, *SMALL]
    total = 2 * len(learners)
    status, out, err = understudy(*words, "--minutes", "5")
    assert (status, out) == (
        0,
        f"Stopped after 5 minutes: 0 of {total} runs are stored in work. Run the same command again to go on.\n",
    )
    assert "Recorded 2 episodes in Hopper-v5" in err
    assert list(tmp_path.glob("work/hopper/work/*/checkpoint.npz"))
    status, out, err = understudy(*words)
    assert (status, f"{total} of {total} runs are stored in work" in out, "Recorded" in err) == (0, True, False)
    rows = rows_of(FILE)
    assert list(rows[0]) == COLUMNS
    online, offline = ([row for row in rows if row["algorithm"] == name] for name in ("adril", "bc"))
    expected = {("env_steps", "32"), ("env_steps", "64"), ("returned", "64")}
    assert {(row["x_kind"], row["x"]) for row in online} == (expected if ADRIL in learners else set())
    assert {(row["x_kind"], row["x"], row["steps"]) for row in offline} == {("returned", "1", "")}
    assert {row["demonstrations"].partition("@")[0] for row in rows} == {"hopper.npz"}
    assert not list(tmp_path.glob("work/hopper/work/*"))
    before = Path(FILE).read_text()
    status, out, _ = understudy(*words)
    assert (status, Path(FILE).read_text()) == (0, before)
    status, out, _ = understudy("benchmark", "report", "--results", "out")
    assert (status, Path("out/benchmark.png").stat().st_size > 10_000) == (0, True)
    status, _, err = understudy(*words[:3], "bc", *SMALL, "--expert", "Walker2d-v5")
    assert (status, "comes from another expert" in err) == (2, True)


@needs_mujoco
def test_an_algorithm_of_the_users_own_joins_the_others(understudy, short, tmp_path):
    (tmp_path / "my_benchmark_learner.py").write_text("import understudy\n\nclass Mine(understudy.bc):\n    pass\n")
    status, _, err = understudy(
        "benchmark", "run", "--learners", f"my_benchmark_learner:Mine{BC.removeprefix('bc')}", *SMALL
    )
    assert status == 0, err
    assert {row["algorithm"] for row in rows_of(FILE)} == {"my_benchmark_learner:Mine"}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--tasks", "hoper"], "unknown task 'hoper': did you mean 'hopper'?"),
        (["--tasks", "humanoid"], "understudy expert train Humanoid-v5 --env-arg"),
        (["--learners", "dagger"], "learner dagger asks an expert"),
        (["--learners", "bcc"], "unknown algorithm 'bcc'"),
        (["--tasks", "hopper", "--trajectories", "30"], "trajectories has 30: the benchmark records 25 episodes"),
        (["--tasks", "hopper", "--minutes", "0"], "minutes is 0.0"),
        (["--tasks", "hopper", "--steps", "100"], "eval_every is 25000"),
        (["--expert", "x.npz"], "--tasks TASK"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(words, named, understudy, tmp_path):
    status, _, err = understudy("benchmark", "run", *words)
    assert (status, err.count("\n")) == (2, 1)
    assert named in err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_one_line(understudy, tmp_path, monkeypatch):
    def no_mujoco(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("No module named 'mujoco'. (HINT: install mujoco)")

    monkeypatch.setattr(gymnasium, "make", no_mujoco)
    status, _, err = understudy("benchmark", "run", "--tasks", "hopper")
    assert (status, err.count("\n")) == (2, 1)
    assert "Hopper-v5" in err
    assert "understudy-il[mujoco]" in err
    assert list(tmp_path.iterdir()) == []


@needs_mujoco
def test_a_set_with_too_few_episodes_names_both_numbers(understudy, short, monkeypatch):
    assert understudy("benchmark", "run", "--learners", BC, *SMALL)[0] == 0  # records 2 episodes
    monkeypatch.setattr(benchmark, "EPISODES", 5)
    about = json.loads(Path("work/demos/hopper.json").read_text())
    Path("work/demos/hopper.json").write_text(json.dumps({**about, "episodes": 5}))
    words = [word if word != "1" else "3" for word in SMALL[:4]] + SMALL[4:]
    status, _, err = understudy("benchmark", "run", "--learners", BC, *words)
    assert (status, "is 3: its demonstrations have 2" in err, err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("content", ['{"benchmark": 99}', None])
def test_a_directory_of_another_version_is_refused_and_untouched(content, understudy, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "make", lambda env: None)  # without the extra too
    folder = tmp_path / "work"
    folder.mkdir()
    name = "benchmark.json" if content else "notes.txt"
    (folder / name).write_text(content or "mine")
    status, _, err = understudy("benchmark", "run", *SMALL)
    assert (status, err.count("\n"), "--work" in err) == (2, 1, True)
    assert [path.name for path in tmp_path.rglob("*")] == ["work", name]
    assert (folder / name).read_text() == (content or "mine")


def test_a_file_of_somebody_else_is_not_replaced(understudy, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "make", lambda env: None)
    (tmp_path / "out").mkdir()
    (tmp_path / FILE).write_text("my notes\n")
    status, _, err = understudy("benchmark", "run", *SMALL)
    assert (status, FILE in err, (tmp_path / FILE).read_text()) == (2, True, "my notes\n")


SCORES = {
    "halfcheetah": ("HalfCheetah-v5", 1000.0, [0.1, 0.9]),
    "hopper": ("Hopper-v5", 200.0, [0.7, 0.8, 0.9, 1.0]),
}


@pytest.fixture
def synthetic(tmp_path):
    """bc with 5 demonstrations on two tasks, offline; adril with 1 on one of them, twice on other recordings."""
    blank = dict.fromkeys(COLUMNS, "")
    for env, expert, scores in SCORES.values():
        learner = {**blank, "env": env, "preset": "default", "settings": "{}", "expert_return": str(expert)}
        learner |= {"train_seconds": "60.0", "device": "cpu"}
        bc = {**learner, "algorithm": "bc", "trajectories": "5", "x": "5", "x_kind": "returned"}
        rows = [
            {**bc, "seed": str(seed), "mean_return": str(score * expert), "demonstrations": f"x.npz@{seed}"}
            for seed, score in enumerate(scores)
        ]
        if env == "Hopper-v5":
            adril = {**learner, "algorithm": "adril", "trajectories": "1", "payoff": "0.1"}
            for seed, final in ((0, 100.0), (1, 140.0)):
                own = {**adril, "seed": str(seed), "demonstrations": f"x.npz@{seed}"}
                rows += [{**own, "x_kind": "env_steps", "x": x, "steps": x, "mean_return": x} for x in ("10", "20")]
                rows.append({**own, "x_kind": "returned", "x": "20", "steps": "20", "mean_return": str(final)})
        write_csv(tmp_path / f"benchmark-{env}.csv", COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
    return tmp_path


def test_the_table_is_what_the_stored_returns_say(synthetic):
    learners = benchmark_table.read_learners(synthetic)
    assert [(learner.name, learner.count) for learner in learners] == [("bc", 5), ("adril", 1)]
    bc, adril = learners
    for task, (_, _, scores) in SCORES.items():
        np.testing.assert_allclose(bc.scores[task], scores)
    # Six runs: 0.1 0.7 0.8 0.9 0.9 1.0. A quarter is one run on each side, so the middle is 0.7 0.8 0.9 0.9.
    assert bc.iqm.value == pytest.approx(0.825)
    # 4 of 16 resamples of halfcheetah's two runs are (0.1, 0.1), which are then the lowest two of six.
    low, high = bc.iqm.interval
    assert 0.4 < low < 0.825 < high < 1.0
    assert bc.worst == (pytest.approx(0.1), "halfcheetah")
    assert bc.minutes == pytest.approx(2)
    np.testing.assert_allclose(adril.scores["hopper"], [0.5, 0.7])
    rows = dict(zip(benchmark_table.header(), benchmark_table.table_rows(learners)[1], strict=True))
    # Two seeds: the mean 0.6, the standard error 0.1, and t(0.975, 1 degree of freedom) = 12.706.
    assert (rows["hopper"], rows["halfcheetah"], rows["worst seed"]) == ("0.60 ± 1.27", "", "0.50 (hopper)")
    assert rows["IQM"] == "0.60 [0.50, 0.70] (1 of 5 tasks)"


def test_what_is_missing_is_named(synthetic):
    lines = dict(line.split(": ", 1) for line in benchmark_table.missing(benchmark_table.read_learners(synthetic)))
    assert lines["sqil"] == "all tasks"
    assert "hopper (0 of 5 seeds with 1, 4 of 5 seeds with 5, 0 of 5 seeds with 25)" in lines["bc"]


def test_offline_learners_have_no_curve_and_every_task_the_same_weight_in_the_profile(synthetic):
    bc, adril = benchmark_table.read_learners(synthetic)
    assert bc.curves["hopper"].returns == {}
    assert {x: list(values) for x, values in adril.curves["hopper"].returns.items()} == {10: [10, 10], 20: [20, 20]}
    at = dict(zip(benchmark_figure.LEVELS.round(2).tolist(), benchmark_figure.profile(bc), strict=True))
    assert (at[0.0], at[0.5], at[0.85], at[1.1]) == pytest.approx((1, 0.75, 0.5, 0))


def test_the_report_prints_the_table_and_draws_the_figure(synthetic, understudy):
    status, out, _ = understudy("benchmark", "report", "--results", synthetic, "--out", "figure.png")
    assert status == 0
    assert Path("figure.png").stat().st_size > 10_000
    for text in ("0.60 ± 1.27", "Student's t over seeds", "other experts", "Missing: ", "ICML 2025"):
        assert text in out
    status, _, err = understudy("benchmark", "report", "--results", "nowhere")
    assert (status, err.count("\n"), "understudy benchmark run" in err) == (2, 1, True)


def test_published_numbers_have_an_expert_and_a_source():
    for one in PUBLISHED:
        assert set(one.returns) <= set(SOURCES[one.source].experts)
        assert one.returns or one.iqm
    csil = next(one for one in PUBLISHED if one.learner == "CSIL")
    assert csil.returns["hopper"] == (3252, 464)


def test_the_kinds_final_and_returned_are_read_alike(synthetic):
    rows = figure_studies.read_rows(synthetic / "benchmark-Hopper-v5.csv")
    renamed = [{**row, "x_kind": row["x_kind"].replace("returned", "final")} for row in rows]
    for kind in ("env_steps", "final"):
        assert read_curves(rows, kind) == read_curves(renamed, kind)


def test_the_tables_of_the_page_are_not_stale():
    page = (ROOT / "docs/benchmark.md").read_text(encoding="utf-8")
    made = benchmark_tables.make_tables(ROOT / "docs/results")
    assert tables.fill(page, made) == page, "stale tables: run `python tools/tables.py`"
    assert sorted(match["name"] for match in tables.TABLE.finditer(page)) == sorted(made)
