"""The figures of reward moments: studies of the project, and CSV files that keep what others have measured."""

import csv
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from understudy.cli.main import main as cli
from understudy.core.errors import SettingError, UnknownNameError
from understudy.paper import figure_studies, published, reward
from understudy.studies import Entry, Hardware, Protocol, Study, Task
from understudy.studies.report import table

ROOT = Path(__file__).parents[2]
SMALL = {"rounds": 4, "round_steps": 32, "frequency": 16, "batch_size": 8, "random_steps": 8}
SMALL |= {"sac": {"hidden": (8,), "gradient_steps": 2}}


@contextmanager
def silent(title):
    yield lambda done, total, metrics: None


def command(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["understudy", "reproduce", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0


def test_a_learners_name_may_have_settings_of_its_parts():
    who = figure_studies.entry("adril@7,sac={'hidden':(8,4),'lr':0.1},rounds=3")
    algorithm = who.algorithm()
    assert (algorithm.sac.hidden, algorithm.sac.lr, algorithm.rounds) == ((8, 4), 0.1, 3)
    assert algorithm.sac.initial_temperature == 0.01  # what is not named stays


def test_a_learners_name_says_its_preset_trajectories_and_settings():
    who = figure_studies.entry("adril:paper@7,round_steps=2500,reset_each_round=False")
    assert (who.name, who.preset, who.trajectories) == ("adril", "paper", (7,))
    assert (who.algorithm().round_steps, who.algorithm().resets) == (2500, False)
    assert figure_studies.entry("sqil").trajectories == (5,)
    with pytest.raises(SettingError, match="adril:paper@20"):
        figure_studies.entry("adril@many")
    with pytest.raises(SettingError, match="round_steps=2500"):
        figure_studies.entry("adril,round_steps")
    with pytest.raises(UnknownNameError, match="adril"):
        figure_studies.entry("adrill")


def test_the_papers_figures_are_studies_of_five_seeds_with_the_papers_numbers():
    for task, env in reward.TASKS.items():
        study = figure_studies.paper(f"reward-{task}")
        assert study.tasks[0].env == env
        assert (len(study.protocol.seeds), study.protocol.steps, study.protocol.every) == (5, 500_000, 25_000)
        counts = {(e.name, e.preset, e.trajectories) for e in study.algorithms}
        assert {("adril", "paper", (20,)), ("sqil", "paper", (5,)), ("gail", "paper", (5,))} < counts
        # And once with equal numbers.
        assert ("adril", "paper", (5,)) in counts
    often = figure_studies.paper("f-frequency")
    assert (len(often.protocol.seeds), often.protocol.steps, often.protocol.every) == (5, 500_000, 25_000)
    steps = [entry.algorithm().round_steps for entry in often.algorithms]
    assert steps == [1250, 2500, 5000, 12500, 25000, 50000]
    clone = figure_studies.paper("bc-table").algorithms[0].algorithm()
    assert clone.rounds * clone.steps == 100_000
    sampled = [entry.algorithm().balanced for entry in figure_studies.paper("balanced").algorithms]
    assert sampled == [False, True]


def test_a_study_goes_into_its_file_beside_what_is_there(tmp_path):
    def study(**changes):
        entry = Entry("adril", settings={**SMALL, **changes}, trajectories=(2,))
        protocol = Protocol((0, 1), episodes=2, every=64)
        return Study("small", tasks=(Task("Pendulum"),), algorithms=(entry,), protocol=protocol, hardware=Hardware())

    path = tmp_path / "small.csv"
    first = figure_studies.measured(study(), tmp_path / "runs", path, silent)
    points = {(line["x_kind"], line["x"], line["seed"]) for line in first}
    assert points == {
        (kind, x, seed) for seed in "01" for kind, x in (("env_steps", "64"), ("env_steps", "128"), ("final", "128"))
    }
    assert all(np.isfinite(float(line[name])) for line in first for name in ("mean_return", "std_return", "payoff"))
    assert {line["demonstrations"].partition("@")[0] for line in first} == {"bundled"}
    both = figure_studies.measured(study(balanced=True), tmp_path / "runs", path, silent)
    assert len(both) == 2 * len(first)
    assert all(line in both for line in first)
    again = figure_studies.measured(study(), tmp_path / "runs", path, silent)
    assert again == both == figure_studies.lines(path)
    curves = reward.read(both)
    assert len(curves) == 2
    assert {curve.settings.get("balanced") for curve in curves} == {None, True}
    assert all(curve.handed_over is not None and curve.handed_over.size == 2 for curve in curves)
    (unfinished,) = reward.read([line for line in first if line["x_kind"] == "env_steps"])
    assert unfinished.handed_over is None
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SettingError, match="holds something else"):
        figure_studies.measured(study(), tmp_path / "runs", tmp_path / "other.csv", silent)


def test_the_curve_counts_seeds_not_episodes():
    lines = figure_studies.lines(ROOT / "docs/results/reward-halfcheetah.csv")
    curve = next(c for c in reward.read(lines) if (c.algorithm, c.trajectories, c.bundled) == ("adril", 20, False))
    found = np.stack([curve.returns[x] for x in sorted(curve.returns)])
    assert found.shape == (20, 5)
    assert curve.last_five.mean == pytest.approx(found[-5:].mean())
    assert curve.last_five.standard_error == pytest.approx(found[-5:].mean(0).std(ddof=1) / 5**0.5)
    assert curve.lowest == found[-10:].min()


def test_published_curves_agree_with_the_papers_table():
    found = published.reward("HalfCheetahBulletEnv-v0", "adril")
    assert [round(found[x].mean) for x in (100_000, 200_000, 300_000, 475_000)] == [2045, 2171, 2164, 2150]
    assert published.reward("AntBulletEnv-v0", "adril-balanced")[475_000].standard_error == pytest.approx(164, abs=0.5)


def test_the_figure_is_drawn_from_the_stored_returns(tmp_path, monkeypatch, capsys):
    out = tmp_path / "reward.csv"
    shutil.copy(ROOT / "docs/results/reward-halfcheetah.csv", out)
    assert command(["reward", "--task", "halfcheetah", "--learners", "--out", str(out)], monkeypatch) == 0
    said = capsys.readouterr().out
    assert "2177 ± 7" in said
    assert "2045 ± 67" in said
    assert "335 s on NVIDIA H200" in said
    assert out.with_suffix(".png").stat().st_size > 10_000
    assert next(iter(csv.reader(out.open(encoding="utf-8")))) == table.COLUMNS


def test_curves_that_a_setting_tells_apart_all_show_it():
    def curve(**settings):
        return reward.Curve("adril", "paper", 20, settings, "bundled", {})

    found = [curve(), curve(round_steps=2500), curve(sac={"lr": 1e-3})]
    first, second, third = reward.told_apart(found)
    assert first == "adril (paper), round_steps=1250, 20 trajectories"
    assert second == "adril (paper), round_steps=2500, 20 trajectories"
    assert third == "adril (paper), round_steps=1250, sac={'lr': 0.001}, 20 trajectories"
    assert reward.told_apart(found[:1]) == ["adril (paper), 20 trajectories"]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["f-frequency"], "runs/reward-halfcheetah"),
        (["f-frequency", "--task", "ant"], "runs/reward-ant"),
        (["f-frequency", "--work", "mine"], "mine"),
        (["balanced"], "runs/reward-ant"),
    ],
)
def test_figures_of_reward_moments_keep_their_cells_in_one_place_a_task(words, place, monkeypatch, tmp_path, capsys):
    places = []
    monkeypatch.setattr(figure_studies, "measured", lambda study, work, path, progress: places.append(work) or [])
    assert command([*words, "--out", str(tmp_path / "returns.csv")], monkeypatch) != 0
    assert "has no returns to draw" in capsys.readouterr().err
    assert places == [place]


def test_demonstrations_of_one_task_are_not_those_of_both(monkeypatch, capsys):
    assert command(["bc-table", "--demos", "mine.npz"], monkeypatch) == 2
    assert "is of one task: pass --task halfcheetah or --task ant" in capsys.readouterr().err


def test_seeds_that_stopped_before_the_end_are_told():
    """They have no payoff from then on. Where none was ever measured, nobody stopped."""
    about = {"algorithm": "sqil", "preset": "paper", "trajectories": "5", "settings": "{}", "demonstrations": "bundled"}
    about |= {"x_kind": "env_steps", "mean_return": "1.0", "expert_return": "", "train_seconds": "1", "device": "cpu"}

    def line(seed, x, payoff):
        return {**about, "seed": str(seed), "x": str(x), "payoff": payoff}

    found = [line(seed, x, "0.5" if x < stop else "") for seed, stop in ((0, 9), (1, 2), (2, 1)) for x in (1, 2, 3)]
    (curve,) = reward.read(found)
    assert curve.stopped == (1, 2)
    assert reward.stopped(curve) == "Stopped before the end, and evaluated as it was then: seed 1, 2. "
    (unmeasured,) = reward.read([{**one, "payoff": ""} for one in found])
    assert (unmeasured.stopped, reward.stopped(unmeasured)) == ((), "")
    stored = reward.read(figure_studies.lines(Path(__file__).parents[2] / "docs/results/reward-ant.csv"))
    assert [c.stopped for c in stored if c.algorithm == "sqil" and c.bundled] == [(1, 2, 3, 4)]
