"""The figure of reward moments: what is played is the policy of that time, and nothing that was played is lost."""

import csv
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy import cli
from understudy.errors import RunError, SettingError
from understudy.experiments import published, reward

ROOT = Path(__file__).parent.parent
SMALL = us.rl.SAC(hidden=(8,), gradient_steps=2)
LEARNER = reward.Learner(
    "adril@2", us.adril(rounds=4, round_steps=32, frequency=16, batch_size=8, random_steps=8, sac=SMALL), 2
)


@contextmanager
def silent(title):
    yield lambda done, total, metrics: None


def run(work, monkeypatch=None):
    return reward.run(LEARNER, us.load("Pendulum"), "Pendulum", 2, 64, 2, work, 1, silent)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    return work, run(work)


def test_a_learners_name_says_its_preset_and_trajectories():
    who = reward.Learner.named("adril:paper@7", steps=3_000)
    assert (who.preset, who.trajectories) == ("paper", 7)
    assert who.algorithm == us.adril.preset("paper", rounds=3)  # of 1,280 steps each
    assert reward.Learner.named("sqil", steps=100).trajectories == 5
    with pytest.raises(SettingError, match="does not learn while it plays"):
        reward.Learner.named("bc", steps=100)
    with pytest.raises(SettingError, match="adril:paper@20"):
        reward.Learner.named("adril@many", steps=100)


def test_every_seed_plays_at_every_multiple_and_what_it_hands_over(made):
    rows = [dict(zip([*reward.COLUMNS, *reward.MORE], row, strict=True)) for row in made[1]]
    played = [(row["x_kind"], row["x"], row["seed"]) for row in rows]
    points = [("env_steps", "64", "0"), ("env_steps", "64", "1"), ("env_steps", "128", "0"), ("env_steps", "128", "1")]
    assert sorted(played) == sorted([*points, ("handed_over", "128", "0"), ("handed_over", "128", "1")])
    assert {row["steps"] for row in rows} == {"64", "128"}
    assert all(np.isfinite(float(row[name])) for row in rows for name in ("mean_return", "std_return", "payoff"))
    assert {row["trajectories"] for row in rows} == {"2"}


def test_a_finished_learner_is_not_trained_again(made, monkeypatch):
    monkeypatch.setattr(reward, "imitate", lambda *_, **__: pytest.fail("trained again"))
    assert run(made[0]) == made[1]


def test_a_place_of_other_settings_is_refused_by_what_differs(made):
    other = reward.Learner(LEARNER.name, us.adril(rounds=5, round_steps=32, frequency=16), 2)
    with pytest.raises(RunError, match="other settings: remove it"):
        reward.run(other, us.load("Pendulum"), "Pendulum", 2, 64, 2, made[0], 1, silent)
    with pytest.raises(RunError, match="other seeds, every or episodes"):
        reward.run(LEARNER, us.load("Pendulum"), "Pendulum", 3, 64, 2, made[0], 1, silent)


def test_what_was_played_before_an_interruption_is_not_played_again(made, tmp_path, monkeypatch):
    """The table is gone, the policies and all lines but the last are there, and that one is half written."""
    work = tmp_path / "work"
    shutil.copytree(made[0], work)
    place = LEARNER.place(work)
    (place / "returns.csv").unlink()
    lines = (place / "played.csv").read_text().splitlines()
    (place / "played.csv").write_text("\n".join(lines[:-1]) + "\n" + lines[-1].rpartition(",")[0])
    asked = []
    rollout = reward.rollout
    monkeypatch.setattr(reward, "rollout", lambda *job: asked.append(job) or rollout(*job))
    again = run(work)
    assert len(asked) == 1
    dated = [*reward.COLUMNS, *reward.MORE].index("train_seconds")
    assert [row[:dated] for row in again] == [row[:dated] for row in made[1]]


def test_the_curve_counts_seeds_not_episodes():
    rows = list(csv.reader((ROOT / "docs/results/reward-halfcheetah.csv").open(encoding="utf-8")))[1:]
    curve = next(curve for curve in reward.read(rows) if (curve.algorithm, curve.trajectories) == ("adril", 20))
    table = np.stack([curve.returns[x] for x in sorted(curve.returns)])
    assert table.shape == (20, 5)
    assert curve.last_five.mean == pytest.approx(table[-5:].mean())
    assert curve.last_five.standard_error == pytest.approx(table[-5:].mean(0).std(ddof=1) / 5**0.5)
    assert curve.lowest == table[-10:].min()


def test_published_curves_agree_with_the_papers_table():
    found = published.reward("HalfCheetahBulletEnv-v0", "adril")
    assert [round(found[x].mean) for x in (100_000, 200_000, 300_000, 475_000)] == [2045, 2171, 2164, 2150]
    assert published.reward("AntBulletEnv-v0", "adril-balanced")[475_000].standard_error == pytest.approx(164, abs=0.5)


def test_the_figure_is_drawn_from_the_stored_returns(tmp_path, monkeypatch, capsys):
    out = tmp_path / "reward.csv"
    shutil.copy(ROOT / "docs/results/reward-halfcheetah.csv", out)
    words = ["reproduce", "reward", "--task", "halfcheetah", "--learners", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["understudy", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "2177 ± 7" in said
    assert "2045 ± 67" in said
    assert out.with_suffix(".png").stat().st_size > 10_000
