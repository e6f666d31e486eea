"""The offline figure: its command, the published numbers, and the comparison with them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from scipy import stats

import understudy as us
from understudy.evaluation import drawing
from understudy.paper import figure_studies, off_q, published
from understudy.paper.figure_studies import TASKS
from understudy.studies import Store
from understudy.studies.curves import Curve

RESULTS = Path(__file__).parents[2] / "docs/results"
CHEETAH, ANT = "HalfCheetahBulletEnv-v0", "AntBulletEnv-v0"
TINY = {"rounds": 6, "gradient_steps": 2, "hidden": (8,), "batch_size": 8}
SHORT = ("--trajectories", "2", "5", "--seeds", "2", "--eval-episodes", "2", "--workers", "1", "--work", "work")


@pytest.fixture
def reproduce(understudy, monkeypatch):
    """The command on Pendulum, whose demonstrations are bundled, with tiny learners."""
    monkeypatch.setitem(TASKS, "halfcheetah", "Pendulum")
    monkeypatch.setattr(us.bc, "presets", {"tiny": TINY, "fast": {**TINY, "lr": 0.01}})
    words = ("reproduce", "off-q", "--task", "halfcheetah", "--out", "r.csv")
    return lambda *more: understudy(*words, *more)


def test_the_command_runs_a_study_and_merges_its_returns_into_the_file(reproduce, monkeypatch, tmp_path):
    status, _, err = reproduce("--learners", "bc:tiny", "bc:fast", *SHORT)
    assert (status, err.count("error")) == (0, 0)
    rows = figure_studies.read_rows(tmp_path / "r.csv")
    assert [(row["preset"], row["trajectories"], row["x"], row["seed"]) for row in rows] == [
        (preset, x, x, seed) for preset in ("fast", "tiny") for x in "25" for seed in "01"
    ]
    values = {(row["env"], row["algorithm"], row["x_kind"], row["settings"], row["episodes"]) for row in rows}
    assert values == {("Pendulum", "bc", "final", "{}", "2")}
    assert len({row["mean_return"] for row in rows}) == 8
    assert Store("work").read_study_file()["study"]["protocol"]["holdout"] == 0
    assert imread("r-bundled.png").shape[2] == 4
    bundled = us.load("Pendulum")
    us.Demonstrations.from_arrays(
        bundled.observations, -bundled.actions, bundled.lengths, action_space=bundled.action_space, env="Pendulum"
    ).save("other.npz")
    assert reproduce("--learners", "bc:tiny", "--demos", "other.npz", *SHORT)[0] == 0
    assert Path("r.png").exists()
    both = figure_studies.read_rows(tmp_path / "r.csv")
    assert len(both) == 12
    assert all(row in both for row in rows)
    monkeypatch.setattr("understudy.studies.training.imitate", lambda *a, **k: pytest.fail("trained twice"))
    again, drawn = reproduce("--learners", "bc:fast", "bc:tiny", *SHORT), reproduce("--learners")
    assert again[:2] == drawn[:2]
    assert figure_studies.read_rows(tmp_path / "r.csv") == both


def test_the_study_has_the_papers_sizes_and_seeds():
    study = figure_studies.load_study("off-q")
    assert [(task.env, task.trajectories, task.demos) for task in study.tasks] == [
        (env, published.TRAJECTORIES, "bundled") for env in TASKS.values()
    ]
    assert (study.protocol.seeds, study.protocol.eval_episodes, study.protocol.holdout) == ((0, 1, 2, 3, 4), 10, 0.0)
    learners = [(entry.name, entry.preset) for entry in study.algorithms]
    assert learners == [("bc", "default"), ("valuedice", "default"), ("advil", "default"), ("advil", "released")]


def test_the_figure_is_drawn_from_the_stored_returns(understudy, tmp_path):
    shutil.copy(RESULTS / "off-q-ant.csv", tmp_path / "r.csv")
    status, out, _ = understudy("reproduce", "off-q", "--task", "ant", "--learners", "--out", "r.csv")
    assert status == 0
    numbers = [line.split() for line in out.splitlines()]
    assert ["bc", "ours", "2271", "±", "69"] in [words[:5] for words in numbers]
    assert ["published", "2191", "±", "54"] in [words[:4] for words in numbers]
    assert out.index("valuedice ") < out.index("advil ") < out.index("advil (released)")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.png"]


def test_an_empty_file_without_learners_is_an_error(understudy, tmp_path):
    status, out, err = understudy("reproduce", "off-q", "--task", "ant", "--learners", "--out", "r.csv")
    assert (status, out) == (2, "")
    assert "'r.csv'" in err
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_demonstrations_are_enough_for_the_figure():
    for env in TASKS.values():
        demonstrations = us.load(env)
        assert demonstrations.episodes >= max(published.TRAJECTORIES)
        assert demonstrations.expert_return.mean >= published.EXPERT[env]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--learners", "bcc"), "'bcc'"),
        (("--learners", "advil:papr"), "'papr'"),
        (("--trajectories", "99"), "99"),
        (("--learners", "bc:tiny", "bc:tiny"), "learners is bc:tiny, bc:tiny"),
        (("--learners", "bc", "bc:default"), "bc:default"),
        (("--out", "."), "out is '.'"),
    ],
)
def test_a_wrong_option_is_one_line_and_writes_nothing(words, value, reproduce, tmp_path):
    status, out, err = reproduce("--learners", "bc:tiny", *words)
    assert (status, out) == (2, "")
    assert value in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def row(preset, trajectories, mean, seed=0, **columns):
    values = {"algorithm": "advil", "preset": preset, "settings": "{}", "demonstrations": "Ant.npz@1"}
    values |= {"x_kind": "final", "seed": str(seed), "trajectories": str(trajectories), "mean_return": str(mean)}
    return {**values, "expert_return": "2585.2", **columns}


def test_a_curve_is_one_learner_on_one_set_of_demonstrations():
    rows = [row("paper", 10, 3), row("paper", 5, 1), row("paper", 5, 2, seed=1), row("default", 5, 4)]
    rows += [row("default", 5, 7, demonstrations="bundled@2", expert_return="")]
    rows += [row("default", 5, 8, settings='{"rounds": 9}')]
    paper, default, bundled, changed = off_q.read(rows)
    assert {count: list(means) for count, means in paper.returns.items()} == {5: [1, 2], 10: [3]}
    assert list(paper.returns) == [5, 10]
    assert [curve.name for curve in (paper, default, bundled)] == ["advil (paper)", "advil", "advil"]
    assert changed.name == "advil, rounds=9"
    assert (default.bundled, default.expert) == (False, 2585.2)
    assert (bundled.bundled, bundled.expert) == (True, None)


def like_published(env, algorithm="advil", seeds=5, shifts=(), **fields):
    """A curve with the published means and standard deviations, shifted at some sizes."""
    spread = stats.zscore(np.arange(seeds), ddof=1) if seeds > 1 else np.zeros(1)
    points, shifts = published.off_q(env, algorithm), dict(shifts)
    returns = {count: sample.mean + shifts.get(count, 0) + sample.std * spread for count, sample in points.items()}
    return Curve.from_arrays(algorithm, "default", returns, **fields)


def test_published_points_are_for_the_papers_demonstrations_only():
    curve = like_published(ANT)
    expected = published.off_q(ANT, "advil")
    assert off_q.published_points(curve, ANT) == off_q.published_points(replace(curve, expert=2585.2), ANT) == expected
    for other in (replace(curve, demonstrations="bundled"), replace(curve, demonstrations="mine.npz", expert=3400.0)):
        assert off_q.published_points(other, ANT) == {}
        assert off_q.compare(other, ANT) is None


@pytest.mark.parametrize("env", [CHEETAH, ANT])
@pytest.mark.parametrize("algorithm", ["bc", "valuedice", "advil"])
@pytest.mark.parametrize(
    ("shifts", "below"), [({}, []), ({15: -5000}, [15]), ({5: -5000, 25: -5000}, [5, 25]), ({10: 5000}, [])]
)
def test_a_comparison_names_the_sizes_that_are_significantly_below(env, algorithm, shifts, below):
    comparison = off_q.compare(like_published(env, algorithm, shifts=shifts), env)
    assert comparison.below == below
    assert comparison.ours - comparison.theirs == pytest.approx(sum(shifts.values()) / 5)


@pytest.mark.parametrize(("errors", "below"), [(1.9, []), (2.2, []), (4.0, [15])])
def test_one_size_of_five_has_to_be_further_below_than_one_alone(errors, below):
    """With 8 degrees of freedom the 5% level is at 1.86 standard errors, and a fifth of it at 2.90."""
    shift = -errors * (2 * published.off_q(ANT, "advil")[15].standard_error ** 2) ** 0.5
    shifted = like_published(ANT, shifts={15: shift})
    assert off_q.compare(shifted, ANT).below == below
    assert off_q.compare(Curve.from_arrays("advil", "default", {15: shifted.returns[15]}), ANT).below == [15]


def test_there_is_no_comparison_where_no_test_is_possible():
    assert off_q.compare(like_published(ANT, seeds=1), ANT) is None
    assert off_q.compare(like_published(ANT), "Pendulum") is None
    assert off_q.compare(Curve.from_arrays("advil", "default", {7: np.arange(5.0)}), ANT) is None


def test_a_comparison_is_over_the_shared_sizes():
    returns = like_published(ANT).returns
    few = Curve.from_arrays("advil", "default", {7: np.zeros(5), 10: returns[10], 25: returns[25]})
    comparison = off_q.compare(few, ANT)
    assert (comparison.ours, comparison.theirs) == pytest.approx((2139, 2139))


@pytest.mark.parametrize(
    ("env", "algorithm", "mean", "first"),
    [
        (CHEETAH, "bc", 1675.2, 379),
        (CHEETAH, "valuedice", 871.2, 219),
        (CHEETAH, "advil", 1210.0, 263),
        (ANT, "bc", 2390.4, 54),
        (ANT, "valuedice", 2268.4, 102),
        (ANT, "advil", 1930.4, 124),
    ],
)
def test_the_published_points_are_those_of_the_paper(env, algorithm, mean, first):
    """Five sizes; their mean; and the standard error of five seeds at the first."""
    points = published.off_q(env, algorithm)
    assert list(points) == [5, 10, 15, 20, 25]
    assert np.mean([sample.mean for sample in points.values()]) == pytest.approx(mean, abs=1e-9)
    assert points[5].standard_error == pytest.approx(first)
    assert {sample.size for sample in points.values()} == {5}


def test_other_tasks_and_algorithms_have_no_published_points():
    assert published.off_q("Pendulum", "bc") == published.off_q(ANT, "dagger") == {}


def test_the_figure_has_our_curves_the_published_ones_and_the_expert(tmp_path, monkeypatch):
    figures, save = [], drawing.save
    monkeypatch.setattr(drawing, "save", lambda figure, path: (figures.append(figure), save(figure, path)))
    named = like_published(ANT, "advil", expert=2585.0)
    curves = [like_published(ANT, "bc", expert=2585.0), named, replace(named, preset="paper")]
    curves.append(replace(named, demonstrations="bundled", expert=3400.0))
    paths = [tmp_path / "figure.png", tmp_path / "figure-bundled.png"]
    assert off_q.draw(ANT, curves, paths[0]) == paths
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    (axis,) = figures[1].axes
    assert axis.get_legend_handles_labels()[1] == ["advil"]
    (axis,) = figures[0].axes
    assert axis.get_legend_handles_labels()[1] == ["bc", "bc, published", "advil", "advil, published", "advil (paper)"]
    assert [float(line.get_ydata()[0]) for line in axis.lines if list(line.get_xdata()) == [0, 1]] == [2585.0]


def test_the_figure_needs_no_expert_and_no_second_seed(tmp_path):
    assert off_q.draw(ANT, [like_published(ANT, "bc", seeds=1)], tmp_path / "f.png") == [tmp_path / "f.png"]
