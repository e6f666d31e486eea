"""The figures of reward moments: their studies, their CSV files, their curves."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from understudy.core.errors import RunError, SettingError, UnknownNameError
from understudy.paper import figure_studies, published, reward
from understudy.paper.figure_studies import TASKS
from understudy.studies import Entry, Hardware, Protocol, Study, Task
from understudy.studies.curves import Curve, read_curves
from understudy.train.tables import write_csv

RESULTS = Path(__file__).parents[2] / "docs/results"
SMALL = {"rounds": 2, "round_steps": 32, "frequency": 16, "batch_size": 8, "random_steps": 8}
SMALL |= {"sac": {"hidden": (8,), "gradient_steps": 2}}


@contextmanager
def silent(title):
    yield lambda done, total, metrics: None


def test_a_learners_name_may_set_nested_settings():
    algorithm = figure_studies.parse_learner("adril@7,sac={'hidden':(8,4),'lr':0.1},rounds=3").algorithm()
    assert (algorithm.sac.hidden, algorithm.sac.lr, algorithm.rounds) == ((8, 4), 0.1, 3)
    assert algorithm.sac.initial_temperature == 0.01  # other nested settings keep their values


def test_a_learners_name_has_a_preset_trajectories_and_settings():
    entry = figure_studies.parse_learner("adril:paper@7,round_steps=2500,reset_each_round=False")
    assert (entry.name, entry.preset, entry.trajectories) == ("adril", "paper", (7,))
    assert (entry.algorithm().round_steps, entry.algorithm().reset_each_round) == (2500, False)
    assert figure_studies.parse_learner("sqil").trajectories == (5,)
    for wrong in ("adril@many", "adril,round_steps"):
        with pytest.raises(SettingError, match=wrong):
            figure_studies.parse_learner(wrong)
    with pytest.raises(UnknownNameError, match="adril"):
        figure_studies.parse_learner("adrill")


def test_the_studies_have_five_seeds_and_the_papers_numbers():
    for task, env in TASKS.items():
        study = figure_studies.load_study(f"reward-{task}")
        assert study.tasks[0].env == env
        assert (len(study.protocol.seeds), study.protocol.steps, study.protocol.eval_every) == (5, 500_000, 25_000)
        learners = {(entry.name, entry.preset, entry.trajectories) for entry in study.algorithms}
        assert {("adril", "paper", (20,)), ("sqil", "paper", (5,)), ("gail", "paper", (5,))} < learners
        assert ("adril", "paper", (5,)) in learners  # equal numbers of trajectories for all
    frequency = figure_studies.load_study("f-frequency")
    assert (len(frequency.protocol.seeds), frequency.protocol.steps) == (5, 500_000)
    steps = [entry.algorithm().round_steps for entry in frequency.algorithms]
    assert steps == [1250, 2500, 5000, 12500, 25000, 50000]
    cloning = figure_studies.load_study("bc-table").algorithms[0].algorithm()
    assert cloning.rounds * cloning.gradient_steps == 100_000
    balanced = [entry.algorithm().balanced for entry in figure_studies.load_study("balanced").algorithms]
    assert balanced == [False, True]


def small_study(**settings):
    entry = Entry("adril", settings={**SMALL, **settings}, trajectories=(2,))
    protocol = Protocol((0, 1), eval_episodes=2, eval_every=32)
    return Study("small", tasks=(Task("Pendulum"),), algorithms=(entry,), protocol=protocol, hardware=Hardware())


def test_a_study_is_merged_into_its_file(tmp_path):
    path = tmp_path / "small.csv"
    first = figure_studies.run_study(small_study(), tmp_path / "runs", path, silent)
    points = {(row["x_kind"], row["x"], row["seed"]) for row in first}
    assert points == {
        (kind, x, seed) for seed in "01" for kind, x in (("env_steps", "32"), ("env_steps", "64"), ("final", "64"))
    }
    assert all(np.isfinite(float(row[name])) for row in first for name in ("mean_return", "std_return", "payoff"))
    assert {row["demonstrations"].partition("@")[0] for row in first} == {"bundled"}
    both = figure_studies.run_study(small_study(average_rounds=0.0), tmp_path / "runs", path, silent)
    assert len(both) == 2 * len(first)
    assert all(row in both for row in first)
    again = figure_studies.run_study(small_study(), tmp_path / "runs", path, silent)
    assert again == both == figure_studies.read_rows(path)
    curves = reward.read(both)
    assert {curve.settings.get("average_rounds") for curve in curves} == {None, 0.0}
    assert [curve.final_sample.size for curve in curves] == [2, 2]
    (unfinished,) = reward.read([row for row in first if row["x_kind"] == "env_steps"])
    assert unfinished.final_sample is None


def test_a_file_with_other_columns_is_refused_before_training(tmp_path, monkeypatch):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(figure_studies, "run", lambda *a, **k: pytest.fail("trained first"))
    with pytest.raises(SettingError, match=r"other\.csv"):
        figure_studies.run_study(small_study(), tmp_path / "runs", tmp_path / "other.csv", silent)


def test_a_curves_statistics_are_over_seeds():
    rows = figure_studies.read_rows(RESULTS / "reward-halfcheetah.csv")
    curve = next(c for c in reward.read(rows) if (c.algorithm, c.trajectories, c.bundled) == ("adril", 20, False))
    returns = np.stack(list(curve.returns.values()))
    assert returns.shape == (20, 5)
    assert curve.last.mean == pytest.approx(returns[-1].mean())
    assert curve.last_five.mean == pytest.approx(returns[-5:].mean())
    assert curve.last_five.standard_error == pytest.approx(returns[-5:].mean(0).std(ddof=1) / 5**0.5)
    assert curve.lowest.mean == pytest.approx(returns[-10:].min(axis=0).mean())
    assert curve.lowest_of_any_seed == returns[-10:].min()


def test_statistics_leave_out_seeds_that_did_not_finish():
    curve = Curve("adril", "default", {0: {1: 1.0, 2: 2.0}, 1: {1: 9.0}}, final={0: 3.0})
    assert (curve.last.mean, curve.last.size, curve.final_sample.mean) == (2.0, 1, 3.0)
    assert {x: list(values) for x, values in curve.returns.items()} == {1: [1.0, 9.0], 2: [2.0]}
    assert Curve("adril", "default", {0: {1: 1.0}, 1: {1: 9.0}}).last.size == 2  # none has finished


def test_two_rows_of_one_seed_and_x_are_an_error():
    row = {"algorithm": "bc", "preset": "default", "x_kind": "round", "x": "1", "seed": "0", "mean_return": "1"}
    with pytest.raises(RunError, match="seed 0"):
        read_curves([row, row], "round")


def test_published_curves_agree_with_the_papers_table():
    points = published.reward("HalfCheetahBulletEnv-v0", "adril")
    assert [round(points[x].mean) for x in (100_000, 200_000, 300_000, 475_000)] == [2045, 2171, 2164, 2150]
    assert published.reward("AntBulletEnv-v0", "adril-balanced")[475_000].standard_error == pytest.approx(164, abs=0.5)


def test_the_figure_is_drawn_from_the_stored_returns(understudy, tmp_path):
    shutil.copy(RESULTS / "reward-halfcheetah.csv", tmp_path / "r.csv")
    status, out, _ = understudy("reproduce", "reward", "--task", "halfcheetah", "--learners", "--out", "r.csv")
    assert status == 0
    assert "2177 ± 7" in out  # ours
    assert "2045 ± 67" in out  # published
    assert (tmp_path / "r.png").stat().st_size > 10_000


def test_an_offline_learner_is_a_horizontal_line(understudy, tmp_path, monkeypatch):
    stored = figure_studies.read_rows(RESULTS / "reward-halfcheetah.csv")
    offline = {"algorithm": "bc", "preset": "default", "settings": "{}", "x_kind": "final", "x": "20", "steps": ""}
    rows = [{**stored[0], **offline, "seed": str(seed), "mean_return": str(1500 + seed)} for seed in range(3)]
    write_csv(tmp_path / "r.csv", list(stored[0]), (list(row.values()) for row in [*stored, *rows]))
    (curve,) = reward.read_offline([*stored, *rows])
    assert (curve.name, curve.final_sample.mean, curve.returns) == ("bc, 20 trajectories", 1501, {})
    drawn, real = [], Axes.axhline
    monkeypatch.setattr(Axes, "axhline", lambda axis, y, **style: (drawn.append(y), real(axis, y, **style))[1])
    status, out, _ = understudy("reproduce", "reward", "--task", "halfcheetah", "--learners", "--out", "r.csv")
    assert status == 0
    assert "bc, 20 trajectories: no environment steps; final policy 1501 ± 1" in out
    assert 1501 in drawn


def test_a_setting_that_differs_is_in_the_names_of_all_curves():
    def curve(**settings):
        return Curve("adril", "paper", {}, settings=settings, trajectories=20, demonstrations="bundled")

    curves = [curve(), curve(round_steps=2500), curve(sac={"lr": 1e-3})]
    first, second, third = reward.distinct_names(curves)
    assert first == "adril (paper), round_steps=1250, 20 trajectories"
    assert second == "adril (paper), round_steps=2500, 20 trajectories"
    assert third == "adril (paper), round_steps=1250, sac={'lr': 0.001}, 20 trajectories"
    assert reward.distinct_names(curves[:1]) == ["adril (paper), 20 trajectories"]


@pytest.mark.parametrize(
    ("words", "directory"),
    [
        (["f-frequency"], "runs/reward-halfcheetah"),
        (["f-frequency", "--task", "ant"], "runs/reward-ant"),
        (["f-frequency", "--work", "mine"], "mine"),
        (["balanced"], "runs/reward-ant"),
    ],
)
def test_figures_of_one_task_share_the_directory_of_cells(words, directory, understudy, monkeypatch):
    directories = []
    monkeypatch.setattr(figure_studies, "run_study", lambda study, work, path, progress: directories.append(work) or [])
    status, _, err = understudy("reproduce", *words, "--out", "returns.csv")
    assert (status, "returns.csv" in err) == (2, True)
    assert directories == [directory]


def test_bc_table_refuses_one_tasks_demonstrations_for_both(understudy):
    status, _, err = understudy("reproduce", "bc-table", "--demos", "mine.npz")
    assert (status, "mine.npz" in err) == (2, True)


def test_seeds_without_a_last_payoff_stopped_early():
    """Where no payoff was ever measured, no seed counts as stopped."""
    values = {"algorithm": "sqil", "preset": "paper", "trajectories": "5", "settings": "{}"}
    values |= {"demonstrations": "bundled", "x_kind": "env_steps", "mean_return": "1.0"}

    def row(seed, x, payoff):
        return {**values, "seed": str(seed), "x": str(x), "payoff": payoff}

    rows = [row(seed, x, "0.5" if x < stop else "") for seed, stop in ((0, 9), (1, 2), (2, 1)) for x in (1, 2, 3)]
    (curve,) = reward.read(rows)
    assert curve.stopped == (1, 2)
    assert "1, 2" in reward.stopped_seeds(curve)
    (unmeasured,) = reward.read([{**one, "payoff": ""} for one in rows])
    assert (unmeasured.stopped, reward.stopped_seeds(unmeasured)) == ((), "")
    stored = reward.read(figure_studies.read_rows(RESULTS / "reward-ant.csv"))
    assert [c.stopped for c in stored if c.algorithm == "sqil" and c.bundled] == [(1, 2, 3, 4)]
