"""AdRIL's ablation: its learners, its figure, when an episode fails, and what is recorded there."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SettingError
from understudy.paper import ablation, failures, figure_studies, reward
from understudy.paper.episodes import Episode, failure_step, parse_episode, read_episodes
from understudy.paper.failure_summary import summarize
from understudy.paper.figure_studies import TASKS
from understudy.studies import Entry, Hardware, Protocol, Study, Task
from understudy.studies.curves import Curve
from understudy.studies.groups import plan_groups
from understudy.studies.report import table
from understudy.train.checkpoints import Checkpoint

RESULTS = Path(__file__).parents[2] / "docs/results"
SMALL = {
    "rounds": 2,
    "round_steps": 64,
    "frequency": 32,
    "batch_size": 8,
    "random_steps": 8,
    "sac": {"hidden": [8], "gradient_steps": 2},
}


def ignore(done, total, metrics):
    """A progress callback."""


def pendulum(expert_return: float):
    """Demonstrations with a made-up expert return, because Pendulum's returns are negative."""
    return replace(us.load("Pendulum").first(3), rewards=None, recorded_return=(expert_return, 0.0, 3))


def small_group(demonstrations, **settings):
    entry = Entry("adril", settings={**SMALL, **settings}, trajectories=(2,))
    protocol = Protocol((0, 3), eval_episodes=2, eval_every=64)
    study = Study("small", tasks=(Task("Pendulum"),), algorithms=(entry,), protocol=protocol, hardware=Hardware())
    return plan_groups(study, {"Pendulum": demonstrations})[0]


# ------------------------------------------------------------------------------------------------- learners


def test_the_released_components_are_combined_alone_removed_and_absent():
    entries = [entry for entry in ablation.comparison_learners() if entry.preset == "paper"]
    combinations = [tuple(getattr(entry.algorithm(), name) for name in ablation.RELEASED) for entry in entries]
    alone, removed = np.eye(4, dtype=bool), ~np.eye(4, dtype=bool)
    expected = {(True,) * 4, (False,) * 4, *map(tuple, alone.tolist()), *map(tuple, removed.tolist())}
    expected.add((True, True, False, False))  # the two that matter most
    assert len(combinations) == 11
    assert set(combinations) == expected
    assert {entry.algorithm().kernel for entry in entries} == {"indicator"}


def test_the_plain_preset_is_trained_whole_and_without_each_of_its_parts():
    entries = [entry for entry in ablation.comparison_learners() if entry.preset == "plain"]
    parts = [
        (a.kernel, a.sac.initial_temperature, a.average_rounds, a.absorbing, a.truncation_is_terminal)
        for a in (entry.algorithm() for entry in entries)
    ]
    assert parts == [
        ("features", 0.01, 5.0, True, False),
        ("indicator", 0.01, 5.0, True, False),
        ("features", 1.0, 5.0, True, False),
        ("features", 0.01, 0.0, True, False),
        ("indicator", 1.0, 0.0, True, False),
        ("features", 0.01, 5.0, False, False),
        ("features", 0.01, 5.0, True, True),
    ]
    assert {entry.trajectories for entry in ablation.comparison_learners()} == {(20,)}


def curve(preset, settings, demonstrations="given.npz"):
    returns = {x: np.full(5, 100.0) for x in (50, 400_000)}
    fields = {"settings": settings, "trajectories": 20, "demonstrations": demonstrations, "expert": 120.0}
    return Curve.from_arrays("adril", preset, returns, **fields)


def test_the_figure_has_a_row_per_task_and_one_color_per_component(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(reward, "draw_band", lambda *arguments: drawn.append(arguments))
    alone = ablation.disable("reset_each_round", "restart_lr_schedule", "truncation_is_terminal")
    curves = [
        curve("plain", {}),
        curve("plain", {"average_rounds": 0.0}),
        curve("plain", {"average_rounds": 3.0}),  # not in the comparison
        curve("plain", {}, demonstrations="bundled"),
        curve("plain", {}, demonstrations="others.npz"),
        curve("paper", {}),
        curve("paper", ablation.disable("random_each_round")),
        curve("paper", alone),
    ]
    assert ablation.draw({"halfcheetah": curves, "ant": curves[:2]}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    component = ablation.RELEASED["random_each_round"]
    labels = [(axis.get_title().partition(":")[0], label) for axis, _, _, label in drawn]
    assert labels == [
        *(("HalfCheetah", label) for label in ("plain", "no averaging", "all four", component)),
        *(("HalfCheetah", label) for label in ("all four", f"without {component}")),
        *(("Ant", label) for label in ("plain", "no averaging")),
    ]
    colors = {label: color for _, _, color, label in drawn}
    assert colors[component] == colors[f"without {component}"] != colors["all four"]
    assert {x for _, samples, *_ in drawn for x in samples} == {50}  # up to the steps that all learners have


def test_without_learners_of_the_comparison_there_is_no_figure(tmp_path):
    curves = {"ant": [curve("plain", {"average_rounds": 3.0})], "halfcheetah": []}
    assert not ablation.draw(curves, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------- failures


def test_an_episode_fails_where_its_longest_slow_stretch_begins():
    """The expert gets 2 per step over 1,000 steps, so 1 per step over the next 50 steps keeps pace."""
    rewards = np.full(1000, 2.0)
    assert failure_step(rewards, 2000, 1000) is None
    rewards[300:] = -1.0
    # The 50 steps from step 266 on sum to 34 × 2 − 16 = 52; one step later to 49.
    assert failure_step(rewards, 2000, 1000) == 267
    assert failure_step(np.full(1000, 0.5), 2000, 1000) == 0
    # It recovers too late.
    rewards[:] = -1.0
    rewards[:100] = rewards[900:] = 2.0
    assert failure_step(rewards, 2000, 1000) == 67
    # Its return is above half of the expert's.
    rewards[:] = 2.0
    rewards[900:] = 0.0
    assert failure_step(rewards, 2000, 1000) is None


def test_steps_after_the_end_count_as_zero_reward():
    assert failure_step(np.full(100, 2.0), 2000, 1000) == 76  # 25 steps with reward 2 follow step 75
    assert failure_step(np.full(10, 2.0), 2000, 1000) == 0


def episode(seed, x, episode_return, failed_at=None, payoff=0.1, value=1.0, demonstrated=2.0):
    return Episode(seed, x, x, 0, episode_return, failed_at, value, demonstrated, 0.0, 0.0, payoff)


def test_episodes_count_after_a_seed_has_learned():
    early = [episode(0, 1, 10.0, failed_at=0), episode(1, 1, 95.0)]
    later = [episode(0, 2, 92.0), episode(0, 3, 20.0, 10, 0.5, 3.0, demonstrated=4.0)]
    later.append(episode(1, 2, 94.0, demonstrated=7.0))
    last = [episode(1, 3, 30.0, 400, 0.05, 1.0, 5.0), episode(1, 3, 100.0, value=0.5, demonstrated=5.0)]
    never = [episode(2, x, 50.0) for x in (1, 2, 3)]
    summary = summarize([*early, *later, *last, *never], 100.0)
    # Two seeds learn, at evaluations 2 and 1, which do not count.
    assert (summary.seeds, summary.learned, summary.episodes, summary.failed, summary.early) == (3, 2, 4, 2, 1)
    assert summary.failed_at == 205
    # One policy of three has both kinds of episodes; one of the other two fails.
    assert (summary.mixed_policies, summary.value_failed, summary.value_succeeded) == (1, 1.0, 0.5)
    assert (summary.demonstrated_value_failing, summary.demonstrated_value_others) == (4.5, 7.0)
    assert summary.payoff_failed == pytest.approx(0.275)
    assert summary.payoff_succeeded == pytest.approx(0.1)
    assert summary.payoff_auc == 0.5  # one failed payoff is above both others, one below
    nothing = summarize(never, 100.0)
    assert (nothing.learned, nothing.failed, nothing.payoff_auc) == (0, 0, None)


# ------------------------------------------------------------------------------------------------- recording


def train(demonstrations, group, directory):
    """Train and record; also return (seed, environment steps) → (state, evaluated episodes)."""
    diagnosed, diagnose = {}, failures.diagnose

    def remember(state, evaluated, demonstrated, index, *rest):
        diagnosed[index[:2]] = state, evaluated
        return diagnose(state, evaluated, demonstrated, index, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "diagnose", remember)
        records, episodes = failures.train_and_record(group, demonstrations, us.make("Pendulum"), directory, 1, ignore)
    return records, episodes, diagnosed


@pytest.fixture(scope="module", params=["features", "indicator"])
def recorded(request, tmp_path_factory):
    """A trained group for each kernel: the group, its directory, its records, its episodes and their states."""
    demonstrations, directory = pendulum(1.0), tmp_path_factory.mktemp(request.param)
    group = small_group(demonstrations, kernel=request.param)
    return request.param, group, directory, *train(demonstrations, group, directory)


def critic_value(state, evaluated, number, where):
    obs, act = (jnp.asarray(x[number, where]) for x in (evaluated.steps.obs, evaluated.steps.act))
    inputs = jnp.concatenate([state.normalization.encode_obs(obs), state.normalization.encode_act(act)], -1)
    return float(state.player.critics(inputs)[..., 0].min(0).mean())


def test_episodes_have_the_values_of_their_own_critic_and_kernel(recorded):
    kernel, group, directory, records, episodes, diagnosed = recorded
    indices = [(one.seed, one.x, one.episode) for one in episodes]
    assert indices == [(seed, x, i) for x in (64, 128) for seed in (0, 3) for i in (0, 1)]
    assert {one.failed_at for one in episodes} == {0}  # Pendulum's rewards are negative
    demonstrated = jax.tree.map(jnp.asarray, pendulum(1.0).first(2).transitions())
    for one in episodes:
        state, evaluated = diagnosed[one.seed, one.x]
        assert one.episode_return == pytest.approx(evaluated.returns[one.episode])
        assert one.critic_value == pytest.approx(critic_value(state, evaluated, one.episode, slice(0, 50)), rel=1e-3)
        steps = jax.tree.map(lambda x, i=one.episode: jnp.asarray(x[i]), evaluated.steps)
        ours, theirs = (state.kernel.features(state.kernel.points(x)).mean(0) for x in (steps, demonstrated))
        assert one.payoff == pytest.approx(float(jnp.linalg.norm(ours - theirs)), rel=0.02)
        if kernel == "features":
            expected = float(state.moments.reward(steps)[:50].mean())
            assert one.reward == pytest.approx(expected, rel=1e-3, abs=1e-6)
    for cell, record in zip(group.cells, records, strict=True):
        returns = {(row["x_kind"], row["x"]): row["returns"] for row in record["evaluations"]}
        assert set(returns) == {("env_steps", 64), ("env_steps", 128), ("final", 128)}
        own = [one.episode_return for one in episodes if (one.seed, one.x) == (cell.seed, 128)]
        np.testing.assert_allclose(returns["env_steps", 128], own, atol=1e-5)
    assert read_episodes(directory / "episodes.csv") == episodes


def test_a_failed_episode_is_diagnosed_where_it_fails_and_a_successful_one_everywhere(recorded):
    kernel, _, _, _, _, diagnosed = recorded
    state, evaluated = diagnosed[0, 128]
    horizon = evaluated.rewards.shape[1]
    rewards = np.ones_like(evaluated.rewards)
    rewards[1, 80:] = 0.0  # from step 56 on, fewer than 25 rewards follow
    demonstrated = jax.tree.map(jnp.asarray, pendulum(1.0).first(2).transitions())
    index, changed = (0, 128, 128), replace(evaluated, rewards=rewards)
    succeeded, failed = failures.diagnose(state, changed, demonstrated, index, float(horizon), horizon, 0.0)
    assert (succeeded.failed_at, failed.failed_at) == (None, 56)
    for one, where in ((succeeded, slice(None)), (failed, slice(56, 106))):
        assert one.critic_value == pytest.approx(critic_value(state, evaluated, one.episode, where), rel=1e-3)
        if kernel == "indicator":  # new steps are not in the replay buffer
            assert one.reward == 0
            assert one.reward_demonstrated == pytest.approx(1 / 2)  # two trajectories
        else:
            steps = jax.tree.map(lambda x, i=one.episode, w=where: jnp.asarray(x[i, w]), evaluated.steps)
            assert one.reward == pytest.approx(float(state.moments.reward(steps).mean()), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("crashes", [(64,), pytest.param((64, 128), marks=pytest.mark.slow)])
def test_policies_that_were_not_evaluated_before_a_crash_are_evaluated_after_it(tmp_path, monkeypatch, crashes):
    demonstrations, env, diagnose, crash_at = pendulum(1.0), us.make("Pendulum"), failures.diagnose, 64
    group, directory = small_group(demonstrations), tmp_path / "crashed"
    monkeypatch.setattr(Checkpoint, "due", True)  # checkpoint after every round
    _, whole = failures.train_and_record(group, demonstrations, env, tmp_path / "whole", 1, ignore)

    def crash(state, evaluated, demonstrated, index, *rest):
        if index[1] == crash_at and index[0] == 3:  # between the policies of one evaluation
            raise MemoryError
        return diagnose(state, evaluated, demonstrated, index, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(failures, "diagnose", crash)
        for crash_at in crashes:  # after the first round, and after the last
            with pytest.raises(MemoryError):
                failures.train_and_record(group, demonstrations, env, directory, 1, ignore)
            assert {one.x for one in read_episodes(directory / "episodes.csv")} == set(range(64, crash_at, 64))
    records, episodes = failures.train_and_record(group, demonstrations, env, directory, 1, ignore)
    assert [(one.seed, one.x, one.episode) for one in episodes] == [(one.seed, one.x, one.episode) for one in whole]
    for one, other in zip(episodes, whole, strict=True):
        assert one.episode_return == pytest.approx(other.episode_return)
        assert (one.critic_value, one.payoff) == pytest.approx((other.critic_value, other.payoff))
    assert [len(record["evaluations"]) for record in records] == [3, 3]
    assert sorted(path.name for path in directory.iterdir()) == ["episodes.csv", "records.json"]


def test_a_group_that_cannot_be_diagnosed_is_refused_before_training():
    def check(demonstrations, group):
        failures.check_group(group, demonstrations, us.make("Pendulum"))

    unknown = replace(us.load("Pendulum").first(2), rewards=None, recorded_return=None)
    with pytest.raises(SettingError, match="expert's return"):
        check(unknown, small_group(unknown))
    with pytest.raises(SettingError, match="-100"):
        check(pendulum(-100.0), small_group(pendulum(-100.0)))
    good = pendulum(1.0)
    with pytest.raises(SettingError, match="eval_every"):
        check(good, small_group(good, rounds=1, round_steps=32))
    group = small_group(good)
    with pytest.raises(SettingError, match="trajectories"):
        check(good, replace(group, cells=(group.cells[0], replace(group.cells[1], trajectories=1))))


def test_the_command_prints_and_draws_the_stored_learners(understudy, tmp_path):
    for name in ("adril-ablation.csv", "adril-ablation-episodes.csv"):
        shutil.copy(RESULTS / name, tmp_path / name)
    status, out, _ = understudy("reproduce", "ablation", "--task", "ant", "--out", "adril-ablation.csv", "--learners")
    assert status == 0
    assert (tmp_path / "adril-ablation.png").exists()
    rows = figure_studies.read_rows(RESULTS / "adril-ablation-episodes.csv", ablation.EPISODE_COLUMNS)
    own = [row for row in rows if row["env"] == TASKS["ant"] and row["settings"] == '{"kernel": "indicator"}']
    summary = summarize([parse_episode(row) for row in own], float(own[0]["expert_return"]))
    assert summary.failed > 0
    numbers = [str(summary.episodes), str(summary.failed), str(summary.early), f"{summary.failed_at:.0f}"]
    assert numbers in [line.split()[-4:] for line in out.splitlines()]


@pytest.mark.slow
def test_the_command_trains_and_writes_returns_and_episodes(understudy, monkeypatch, tmp_path):
    monkeypatch.setitem(TASKS, "halfcheetah", "Pendulum")
    monkeypatch.setitem(us.adril.presets, "small", {**SMALL, "sac": {"hidden": (8,), "gradient_steps": 2}})
    pendulum(1.0).save(str(tmp_path / "given.npz"))
    words = ["reproduce", "ablation", "--task", "halfcheetah", "--demos", "given.npz", "--seeds", 2, "--steps", 64]
    words += ["--eval-every", 64, "--eval-episodes", 2, "--out", "a.csv", "--learners"]
    status, out, _ = understudy(*words, "adril:small@2")
    assert status == 0
    assert "a-episodes.csv" in out
    assert "0.064k" in out  # environment steps
    assert not Path("a.png").exists()  # no learner of the comparison
    with Path("a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == table.COLUMNS
    assert [(row["x_kind"], row["seed"]) for row in rows] == [
        (kind, seed) for seed in "01" for kind in ("env_steps", "final")
    ]
    with Path("a-episodes.csv").open(newline="") as file:
        episodes = list(csv.DictReader(file))
    assert list(episodes[0]) == ablation.EPISODE_COLUMNS
    assert len(episodes) == 2 * 2
    # Finished learners are not trained again.
    monkeypatch.setattr(failures, "imitate", None)
    before = Path("a.csv").read_text()
    assert understudy(*words, "adril:small@2")[0] == 0
    assert Path("a.csv").read_text() == before
    # A learner that cannot be diagnosed is refused before any training.
    for other in ("bc@2", "gail:paper@2"):
        status, _, err = understudy(*words, "adril:small@2,frequency=16", other)
        assert (status, f"learner '{other}'" in err) == (2, True)
    # Without names, the stored learners are printed.
    assert understudy(*words)[0] == 0
