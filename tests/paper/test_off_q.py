"""The paper's offline figure as one command, the published numbers beside it, and the named settings it compares."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from scipy import stats

import test_cli
import understudy as us
from understudy.cli import commands
from understudy.core.errors import UnknownNameError
from understudy.core.statistics import Sample, holm, less
from understudy.evaluation import drawing as figures
from understudy.paper import figure_studies, off_q, published
from understudy.studies import Store

understudy = test_cli.understudy
RESULTS = Path(__file__).parents[2] / "docs/results"
CHEETAH, ANT = "HalfCheetahBulletEnv-v0", "AntBulletEnv-v0"
TINY = {"rounds": 6, "steps": 2, "hidden": (8,), "batch_size": 8}
SHORT = ("--trajectories", "2", "5", "--seeds", "2", "--episodes", "2", "--workers", "1", "--work", "work")


@pytest.fixture
def reproduce(understudy, monkeypatch):
    """The command on a task whose demonstrations are bundled, with learners that take no time: (status, out, err)."""
    monkeypatch.setattr(off_q, "TASKS", {"halfcheetah": "Pendulum", "ant": ANT})
    monkeypatch.setattr(us.bc, "presets", {"tiny": TINY, "fast": {**TINY, "lr": 0.01}})
    words = ("reproduce", "off-q", "--task", "halfcheetah", "--out", "r.csv")
    return lambda *more: understudy(*words, *more)


def test_the_command_is_a_study_whose_returns_go_into_the_file_beside_what_is_there(reproduce, monkeypatch, tmp_path):
    status, out, err = reproduce("--learners", "bc:tiny", "bc:fast", *SHORT)
    assert (status, err.count("error")) == (0, 0)
    assert "The returns: r.csv. The figure: r-bundled.png" in out
    rows = figure_studies.lines(tmp_path / "r.csv")
    assert [(row["preset"], row["trajectories"], row["x"], row["seed"]) for row in rows] == [
        (preset, x, x, seed) for preset in ("fast", "tiny") for x in "25" for seed in "01"
    ]
    about = {(row["env"], row["algorithm"], row["x_kind"], row["settings"], row["episodes"]) for row in rows}
    assert about == {("Pendulum", "bc", "final", "{}", "2")}
    assert len({row["mean_return"] for row in rows}) == 8
    assert Store("work").about()["study"]["protocol"]["holdout"] == 0
    assert imread("r-bundled.png").shape[2] == 4
    bundled = us.load("Pendulum")
    us.Demonstrations.from_arrays(
        bundled.observations, -bundled.actions, bundled.lengths, action_space=bundled.action_space, env="Pendulum"
    ).save("other.npz")
    assert "The figure: r.png, r-bundled.png" in reproduce("--learners", "bc:tiny", "--demos", "other.npz", *SHORT)[1]
    both = figure_studies.lines(tmp_path / "r.csv")
    assert len(both) == 12
    assert all(row in both for row in rows)
    monkeypatch.setattr("understudy.studies.training.imitate", lambda *a, **k: pytest.fail("it trains again"))
    again, drawn = reproduce("--learners", "bc:fast", "bc:tiny", *SHORT), reproduce("--learners")
    assert again[:2] == drawn[:2]
    assert figure_studies.lines(tmp_path / "r.csv") == both


def test_the_figure_is_a_study_of_the_papers_sizes_and_seeds():
    study = figure_studies.paper("off-q")
    assert [(task.env, task.trajectories, task.demos) for task in study.tasks] == [
        (env, published.TRAJECTORIES, "bundled") for env in off_q.TASKS.values()
    ]
    assert (study.protocol.seeds, study.protocol.episodes, study.protocol.holdout) == ((0, 1, 2, 3, 4), 10, 0.0)
    learners = [(entry.name, entry.preset) for entry in study.algorithms]
    assert learners == [("bc", "default"), ("valuedice", "default"), ("advil", "default"), ("advil", "released")]


def test_the_figure_is_drawn_from_the_stored_returns(understudy, tmp_path):
    shutil.copy(RESULTS / "off-q-ant.csv", tmp_path / "r.csv")
    status, out, _ = understudy("reproduce", "off-q", "--task", "ant", "--learners", "--out", "r.csv")
    assert status == 0
    assert re.search(r"the expert: 2585\).*\nlearner .*\nbc +ours +2271 ± 69 .*\n +published +2191 ± 54 ", out)
    assert out.index("valuedice ") < out.index("advil ") < out.index("advil (released)")
    assert "advil: 2499 over the published sizes, published 1930; significantly below the published nowhere" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.png"]


def test_nothing_to_draw_is_one_line(understudy, tmp_path):
    status, out, err = understudy("reproduce", "off-q", "--task", "ant", "--learners", "--out", "r.csv")
    assert (status, out, err) == (2, "", "error: 'r.csv' has no returns to draw: name learners\n")
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_demonstrations_of_its_tasks_are_enough_for_it():
    for env in off_q.TASKS.values():
        demonstrations = us.load(env)
        assert demonstrations.episodes >= max(published.TRAJECTORIES)
        assert demonstrations.expert_return.mean >= published.EXPERT[env]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--learners", "bcc"), "unknown algorithm 'bcc': did you mean 'bc'?"),
        (("--learners", "advil:papr"), "unknown preset of advil 'papr': did you mean 'paper'?"),
        (("--trajectories", "99"), "bc:tiny asks for 99 trajectories of Pendulum, and its demonstrations have 25"),
        (("--learners", "bc:tiny", "bc:tiny"), "learners is bc:tiny, bc:tiny: each can be given once"),
        (("--learners", "bc", "bc:default"), "the same algorithm with 5 trajectories of Pendulum: remove one"),
        (("--out", "."), "out is '.': a .csv file is needed"),
    ],
)
def test_a_mistake_in_the_figures_command_is_one_line(words, said, reproduce, tmp_path):
    status, out, err = reproduce("--learners", "bc:tiny", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_learner_is_an_algorithm_with_a_preset():
    assert off_q.learner("advil:paper") == us.advil.preset("paper")
    assert off_q.learner("bc") == us.bc()


def line(preset, x, mean, **about):
    told = {"algorithm": "advil", "preset": preset, "settings": "{}", "demonstrations": "Ant.npz@1", "seed": "0"}
    return {**told, "x": str(x), "mean_return": str(mean), "expert_return": "2585.2", **about}


def test_a_curve_is_a_learner_on_demonstrations():
    lines = [line("paper", 10, 3), line("paper", 5, 1), line("paper", 5, 2), line("default", 5, 4)]
    lines += [line("default", 5, 7, demonstrations="bundled@2", expert_return="")]
    lines += [line("default", 5, 8, settings='{"rounds": 9}')]
    paper, default, bundled, changed = off_q.curves(lines)
    assert {count: list(means) for count, means in paper.returns.items()} == {5: [1, 2], 10: [3]}
    assert list(paper.returns) == [5, 10]
    assert [curve.name for curve in (paper, default, bundled)] == ["advil (paper)", "advil", "advil"]
    assert changed.name == "advil, rounds=9"
    assert (default.bundled, default.expert) == (False, 2585.2)
    assert (bundled.bundled, bundled.expert) == (True, None)


def test_published_points_stand_beside_the_papers_demonstrations_alone():
    curve = like_published(ANT)
    assert off_q.theirs(curve, ANT) == off_q.theirs(replace(curve, expert=2585.2), ANT) == published.off_q(ANT, "advil")
    for other in (replace(curve, demonstrations="bundled"), replace(curve, demonstrations="mine.npz", expert=3400.0)):
        assert off_q.theirs(other, ANT) == {}
        assert off_q.compare(other, ANT) is None


def like_published(env, algorithm="advil", seeds=5, shifts=()):
    """A curve with the published means and standard deviations, but for what is added at some sizes."""
    spread = stats.zscore(np.arange(seeds), ddof=1) if seeds > 1 else np.zeros(1)
    points, shifts = published.off_q(env, algorithm), dict(shifts)
    returns = {count: sample.mean + shifts.get(count, 0) + sample.std * spread for count, sample in points.items()}
    return off_q.Curve(algorithm, "default", returns)


@pytest.mark.parametrize("env", [CHEETAH, ANT])
@pytest.mark.parametrize("algorithm", ["bc", "valuedice", "advil"])
@pytest.mark.parametrize(
    ("shifts", "below"),
    [
        ({}, []),
        ({15: -5000}, [15]),
        ({5: -5000, 25: -5000}, [5, 25]),
        ({10: 5000}, []),
    ],
)
def test_significantly_below_names_exactly_the_sizes_that_are(env, algorithm, shifts, below):
    verdict = off_q.compare(like_published(env, algorithm, shifts=shifts), env)
    assert verdict.below == below
    assert verdict.ours - verdict.theirs == pytest.approx(sum(shifts.values()) / 5)


@pytest.mark.parametrize(("errors", "below"), [(1.9, []), (2.2, []), (4.0, [15])])
def test_one_size_of_five_has_to_be_further_below_than_one_alone(errors, below):
    """With 8 degrees of freedom the 5% level is at 1.86 standard errors, and a fifth of it at 2.90."""
    shift = -errors * (2 * published.off_q(ANT, "advil")[15].standard_error ** 2) ** 0.5
    assert off_q.compare(like_published(ANT, shifts={15: shift}), ANT).below == below
    alone = off_q.Curve("advil", "default", {15: like_published(ANT, shifts={15: shift}).returns[15]})
    assert off_q.compare(alone, ANT).below == [15]


def test_there_is_no_verdict_where_no_test_is_possible():
    assert off_q.compare(like_published(ANT, seeds=1), ANT) is None
    assert off_q.compare(like_published(ANT), "Pendulum") is None
    assert off_q.compare(off_q.Curve("advil", "default", {7: np.arange(5.0)}), ANT) is None


def test_a_verdict_is_over_the_sizes_that_both_have():
    curve = like_published(ANT)
    few = off_q.Curve(curve.algorithm, curve.preset, {7: np.zeros(5), 10: curve.returns[10], 25: curve.returns[25]})
    verdict = off_q.compare(few, ANT)
    assert (verdict.ours, verdict.theirs) == pytest.approx((2139, 2139))


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
    """Five sizes; their mean; and the standard error at the first, which is of five seeds."""
    points = published.off_q(env, algorithm)
    assert list(points) == [5, 10, 15, 20, 25]
    assert np.mean([sample.mean for sample in points.values()]) == pytest.approx(mean, abs=1e-9)
    assert points[5].standard_error == pytest.approx(first)
    assert {sample.size for sample in points.values()} == {5}


def test_where_nothing_was_published_there_are_no_points():
    assert published.off_q("Pendulum", "bc") == published.off_q(ANT, "dagger") == {}


@pytest.mark.parametrize("expert", [2585.0, None])
@pytest.mark.parametrize("seeds", [5, 1])
def test_the_figure_has_our_curves_the_published_ones_and_the_expert(expert, seeds, tmp_path, monkeypatch):
    pictures, save = [], figures.save
    monkeypatch.setattr(figures, "save", lambda made, path: (pictures.append(made), save(made, path)))
    named = like_published(ANT, "advil", seeds)
    curves = [like_published(ANT, "bc", seeds), named, off_q.Curve("advil", "paper", named.returns)]
    curves = [replace(curve, expert=expert) for curve in curves]
    curves.append(replace(named, demonstrations="bundled", expert=3400.0))
    paths = [tmp_path / "figure.png", tmp_path / "figure-bundled.png"]
    assert off_q.draw(ANT, curves, paths[0]) == paths
    assert imread(paths[0]).shape[2] == 4
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    (axis,) = pictures[1].axes
    assert axis.get_title() == f"{ANT}, bundled demonstrations"
    assert axis.get_legend_handles_labels()[1] == ["advil"]
    (axis,) = pictures[0].axes
    assert axis.get_legend_handles_labels()[1] == ["bc", "bc, published", "advil", "advil, published", "advil (paper)"]
    flat = [float(line.get_ydata()[0]) for line in axis.lines if list(line.get_xdata()) == [0, 1]]
    assert flat == ([] if expert is None else [expert])


def test_less_is_welchs_one_sided_test():
    rng = np.random.default_rng(0)
    for ours, theirs in ((rng.normal(9, 2, 5), rng.normal(10, 1, 7)), (rng.normal(3, 1, 4), rng.normal(0, 5, 3))):
        a, b = Sample.of(ours), Sample.of(theirs)
        expected = stats.ttest_ind_from_stats(*a, *b, equal_var=False, alternative="less").pvalue
        assert less(a, b) == pytest.approx(expected, rel=1e-9)
        assert less(a, b) + less(b, a) == pytest.approx(1)


def test_less_of_samples_without_spread_is_plain_comparison():
    low, high = Sample(1.0, 0.0, 5), Sample(2.0, 0.0, 5)
    assert (less(low, high), less(high, low), less(low, low)) == (0, 1, 1)


def test_holms_correction():
    """By hand: 4 × 0.005, 3 × 0.01, 2 × 0.03, and 1 × 0.04, which may not be below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_holms_correction_keeps_the_order_and_only_raises():
    for chances in np.random.default_rng(0).uniform(size=(50, 6)) ** 3:
        corrected = np.array(holm(chances))
        assert (np.diff(corrected[np.argsort(chances)]) >= 0).all()
        assert (corrected >= chances).all()
        assert (corrected <= np.minimum(1, 6 * chances) + 1e-12).all()


def test_the_standard_error_is_scipys():
    values = np.random.default_rng(0).normal(size=9)
    assert Sample.of(values).standard_error == pytest.approx(stats.sem(values))
    assert np.isnan(Sample.of([1.0]).standard_error)


TABLE_11 = {
    "policy_lr": 8e-6,
    "critic_lr": 8e-4,
    "batch_size": 1024,
    "gradient_target": 0.4,
    "gradient_weight": 10,
    "orthogonal_weight": 1e-4,
    "cloning_weight": 0.2,
    "clip": 40,
}


def test_the_paper_preset_is_table_11():
    assert {name: getattr(us.advil.preset("paper", rounds=7), name) for name in TABLE_11} == TABLE_11


def test_changed_settings_are_no_preset_any_more():
    changed = us.advil.preset("paper", rounds=7, policy_lr=1e-3)
    assert (changed.rounds, changed.policy_lr, changed.batch_size) == (7, 1e-3, 1024)
    assert changed.preset_name == "custom"
    assert us.advil.preset("paper", rounds=7).preset_name == "custom"


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [(algorithm, name) for algorithm in us.ALGORITHMS.values() for name in ("default", *algorithm.presets)],
)
def test_named_settings_know_their_name(algorithm, name):
    assert algorithm.preset(name).preset_name == name


def test_an_unknown_preset_is_named_and_the_nearest_suggested():
    with pytest.raises(UnknownNameError, match="unknown preset of advil 'papper': did you mean 'paper'"):
        us.advil.preset("papper")


@pytest.mark.parametrize("words", [("--preset", "paper"), ("--preset=paper",)])
def test_with_a_preset_the_help_shows_its_numbers(words, understudy):
    status, out, _ = understudy("train", "advil", *words, "--help")
    assert status == 0
    for name, number in TABLE_11.items():
        shown = re.search(rf"--{name.replace('_', '-')} .*?\(default: (\S+)\)", _plain(out))
        assert float(shown[1]) == number
    assert "--preset paper" in _plain(understudy("train", "advil", "--help")[1])


def _plain(text):
    """Without the frames and line breaks of a terminal."""
    return " ".join(re.sub(r"[│─╭╮╰╯]", " ", text).split())


def test_settings_on_the_command_line_go_over_the_presets(understudy, monkeypatch):
    given = []

    def seen(algorithm, *args, **kwargs):
        given.append(algorithm)
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "imitate", seen)
    understudy(
        "train", "advil", "--rounds", "70", "--preset", "paper", "--demos", "Pendulum", "--threshold.delta", "0.5"
    )
    (algorithm,) = given
    assert algorithm == us.advil.preset("paper", rounds=70, target=type(algorithm.target)(delta=0.5))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--demos", "Pendulum", "--preset"), "--preset needs a name"),
        (("--preset", "papper", "--demos", "Pendulum"), "unknown preset of advil 'papper': did you mean 'paper'?"),
    ],
)
def test_a_missing_or_wrong_preset_is_one_line(words, said, understudy, tmp_path):
    status, out, err = understudy("train", "advil", *words)
    assert (status, out, err) == (2, "", f"error: {said}\n")
    assert list(tmp_path.iterdir()) == []
