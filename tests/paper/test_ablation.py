"""What AdRIL's stability rests on: who is compared, when an episode has failed, and who sees it."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main as cli
from understudy.core.errors import SettingError
from understudy.paper import ablation, failures, reward
from understudy.paper.episodes import Episode, lost_at, read
from understudy.paper.failure_summary import summed_up
from understudy.paper.reproduce_ablation import COLUMNS
from understudy.studies import Entry, Hardware, Protocol, Study, Task
from understudy.studies.groups import plan_groups
from understudy.studies.report import table
from understudy.train.checkpoints import Checkpoint

SMALL = {
    "rounds": 2,
    "round_steps": 64,
    "frequency": 32,
    "batch_size": 8,
    "random_steps": 8,
    "sac": {"hidden": [8], "gradient_steps": 2},
}


def quiet(done, total, metrics):
    """Progress that nobody watches."""


def pendulum(returned: float):
    """Demonstrations whose expert is said to return this: what Pendulum pays is below 0."""
    return replace(us.load("Pendulum").first(3), rewards=None, recorded_return=(returned, 0.0, 3))


def group(shown, **settings):
    entry = Entry("adril", settings={**SMALL, **settings}, trajectories=(2,))
    protocol = Protocol((0, 3), eval_episodes=2, eval_every=64)
    study = Study("small", tasks=(Task("Pendulum"),), algorithms=(entry,), protocol=protocol, hardware=Hardware())
    return plan_groups(study, {"Pendulum": shown})[0]


# ------------------------------------------------------------------------------------------------- who is compared


def test_the_four_are_there_together_alone_left_out_and_not_at_all():
    made = [(entry.preset, entry.algorithm()) for entry in ablation.learners()]
    of_paper = [tuple(getattr(a, name) for name in ablation.RELEASED) for preset, a in made if preset == "paper"]
    one, all_but_one = np.eye(4, dtype=bool), ~np.eye(4, dtype=bool)
    wanted = {(True,) * 4, (False,) * 4, *map(tuple, one.tolist()), *map(tuple, all_but_one.tolist())}
    wanted.add((True, True, False, False))  # the two that carry the most
    assert len(of_paper) == 11
    assert set(of_paper) == wanted
    assert {a.kernel for preset, a in made if preset == "paper"} == {"indicator"}


def test_the_default_is_there_whole_and_without_each_of_its_parts():
    made = [entry.algorithm() for entry in ablation.learners() if entry.preset == "default"]
    parts = [
        (a.kernel, a.sac.initial_temperature, a.average_rounds, a.absorbing, a.truncation_is_terminal) for a in made
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
    assert {entry.trajectories for entry in ablation.learners()} == {(20,)}


def _curve(preset, settings, at=100.0, demonstrations="shown.npz"):
    return reward.Curve(
        "adril", preset, 20, settings, demonstrations, {x: np.full(5, at) for x in (50, 400_000)}, 120.0
    )


def test_the_figure_has_a_row_for_each_task_and_a_colour_for_each_thing(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(reward, "band", lambda axis, samples, color, name: drawn.append((axis, samples, color, name)))
    found = [
        _curve("default", {}),
        _curve("default", {"average_rounds": 0.0}),
        _curve("default", {"average_rounds": 3.0}),  # nobody of the comparison
        _curve("default", {}, demonstrations="bundled"),
        _curve("default", {}, demonstrations="others.npz"),
        _curve("paper", {}),
        _curve("paper", ablation.without("random_each_round")),
        _curve("paper", ablation.without("reset_each_round", "restart_lr_schedule", "truncation_is_terminal")),
    ]
    assert ablation.draw({"halfcheetah": found, "ant": found[:2]}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    titles = [axis.get_title() for axis, *_ in drawn]
    assert [(title.partition(":")[0], name) for title, (*_, name) in zip(titles, drawn, strict=True)] == [
        *(("HalfCheetah", name) for name in ("whole", "the last policy", "all four", "random actions")),
        *(("HalfCheetah", name) for name in ("all four", "without random actions")),
        *(("Ant", name) for name in ("whole", "the last policy")),
    ]
    colors = {name: color for *_, color, name in drawn}
    assert colors["random actions"] == colors["without random actions"] != colors["all four"]
    assert {x for _, samples, *_ in drawn for x in samples} == {50}  # to where all can be compared


def test_there_is_no_figure_of_nobody(tmp_path):
    assert not ablation.draw(
        {"ant": [_curve("default", {"average_rounds": 3.0})], "halfcheetah": []}, tmp_path / "a.png"
    )
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------- failures


def test_an_episode_is_lost_where_the_longest_time_begins_that_it_does_not_keep_up():
    """An expert of 2 a step for 1,000 steps: 1 a step over the next 50 keeps up."""
    rewards = np.full(1000, 2.0)
    assert lost_at(rewards, 2000, 1000) is None
    rewards[300:] = -1.0
    # From step 266 on 34 steps of 2 and 16 of -1 are ahead, 52 for 50 steps; a step later 49.
    assert lost_at(rewards, 2000, 1000) == 267
    assert lost_at(np.full(1000, 0.5), 2000, 1000) == 0
    # It comes back, too late.
    rewards[:] = -1.0
    rewards[:100] = rewards[900:] = 2.0
    assert lost_at(rewards, 2000, 1000) == 67
    # Most of it is good, and its return with it.
    rewards[:] = 2.0
    rewards[900:] = 0.0
    assert lost_at(rewards, 2000, 1000) is None


def test_after_its_end_an_episode_has_no_reward():
    assert lost_at(np.full(100, 2.0), 2000, 1000) == 76  # 25 steps of 2 are ahead of step 75
    assert lost_at(np.full(10, 2.0), 2000, 1000) == 0


def watched_episode(seed, x, returned, lost=None, payoff=0.1, belief=1.0, shown=2.0):
    return Episode(seed, x, x, 0, returned, lost, belief, shown, 0.0, 0.0, payoff)


def test_episodes_count_once_a_seed_has_learned():
    early = [watched_episode(0, 1, 10.0, lost=0), watched_episode(1, 1, 95.0)]
    later = [watched_episode(0, 2, 92.0), watched_episode(0, 3, 20.0, 10, 0.5, 3.0, shown=4.0)]
    later.append(watched_episode(1, 2, 94.0, shown=7.0))
    far = [watched_episode(1, 3, 30.0, 400, 0.05, 1.0, 5.0), watched_episode(1, 3, 100.0, belief=0.5, shown=5.0)]
    never = [watched_episode(2, x, 50.0) for x in (1, 2, 3)]
    told = summed_up([*early, *later, *far, *never], 100.0)
    # Two seeds have learned, by their evaluations at 2 and at 1, which do not count.
    assert (told.seeds, told.learned, told.episodes, told.failed, told.early) == (3, 2, 4, 2, 1)
    assert told.lost_at == 205
    # One policy of the three fails and does not; of the other two one fails.
    assert (told.both, told.belief_failed, told.belief_good) == (1, 1.0, 0.5)
    assert (told.shown_failing, told.shown_steady) == (4.5, 7.0)
    assert told.payoff_failed == pytest.approx(0.275)
    assert told.payoff_good == pytest.approx(0.1)
    assert told.told_apart == 0.5  # one above both others, one below
    nothing = summed_up(never, 100.0)
    assert (nothing.learned, nothing.failed, nothing.told_apart) == (0, 0, None)


def judged(monkeypatch):
    """The states and episodes that come to be judged, by seed and environment steps."""
    kept, judge = {}, failures._judged

    def keep(state, played, *rest):
        kept[rest[1][:2]] = state, played
        return judge(state, played, *rest)

    monkeypatch.setattr(failures, "_judged", keep)
    return kept


def test_what_policies_play_is_seen_as_their_own_critic_and_kernel_see_it(tmp_path, monkeypatch):
    shown, kept = pendulum(1.0), judged(monkeypatch)
    asked = group(shown)
    records, found = failures.watched(asked, shown, us.make("Pendulum"), tmp_path, 1, quiet)
    assert [(e.seed, e.x, e.episode) for e in found] == [(s, x, i) for x in (64, 128) for s in (0, 3) for i in (0, 1)]
    assert {e.lost_at for e in found} == {0}  # Pendulum pays nothing above 0
    for one in found:
        state, played = kept[one.seed, one.x]
        assert one.episode_return == pytest.approx(played.returns[one.episode])
        obs, act = (jnp.asarray(x[one.episode, :50]) for x in (played.steps.obs, played.steps.act))
        q = state.player.critics(jnp.concatenate([obs, state.normalization.encode_act(act)], -1))[..., 0].min(0)
        assert one.belief == pytest.approx(float(q.mean()), rel=1e-3)
        steps = jax.tree.map(lambda x, i=one.episode: jnp.asarray(x[i]), played.steps)
        mean = state.kernel.features(state.kernel.points(steps)).mean(0)
        assert one.reward == pytest.approx(float(state.moments.reward(steps)[:50].mean()), rel=1e-3, abs=1e-6)
        every = shown.first(2).transitions()
        theirs = state.kernel.features(state.kernel.points(jax.tree.map(jnp.asarray, every))).mean(0)
        assert one.payoff == pytest.approx(float(jnp.linalg.norm(mean - theirs)), rel=0.02)
    for cell, record in zip(asked.cells, records, strict=True):
        rows = {(row["x_kind"], row["x"]): row["returns"] for row in record["evaluations"]}
        assert set(rows) == {("env_steps", 64), ("env_steps", 128), ("final", 128)}
        own = [e.episode_return for e in found if (e.seed, e.x) == (cell.seed, 128)]
        np.testing.assert_allclose(rows["env_steps", 128], own, atol=1e-5)
    assert read(tmp_path / "episodes.csv") == found


@pytest.mark.parametrize("kernel", ["features", "indicator"])
def test_an_episode_is_judged_where_it_is_lost_and_a_good_one_all_along(tmp_path, monkeypatch, kernel):
    shown, kept = pendulum(1.0), judged(monkeypatch)
    failures.watched(group(shown, kernel=kernel), shown, us.make("Pendulum"), tmp_path, 1, quiet)
    state, played = kept[0, 128]
    horizon = played.rewards.shape[1]
    rewards = np.ones_like(played.rewards)
    rewards[1, 80:] = 0.0  # from step 56 on fewer than 25 are ahead
    seen = jax.tree.map(jnp.asarray, shown.first(2).transitions())
    good, lost = failures._judged(state, replace(played, rewards=rewards), seen, (0, 128, 128), horizon, horizon, 0.0)
    assert (good.lost_at, lost.lost_at) == (None, 56)
    for one, where in ((good, slice(None)), (lost, slice(56, 106))):
        obs, act = (jnp.asarray(x[one.episode, where]) for x in (played.steps.obs, played.steps.act))
        q = state.player.critics(jnp.concatenate([obs, state.normalization.encode_act(act)], -1))[..., 0].min(0)
        assert one.belief == pytest.approx(float(q.mean()), rel=1e-3)
        if kernel == "indicator":  # of steps that are in no history
            assert one.reward == 0
            assert one.reward_shown == pytest.approx(1 / 2)  # of two trajectories
        else:
            steps = jax.tree.map(lambda x, i=one.episode, w=where: jnp.asarray(x[i, w]), played.steps)
            assert one.reward == pytest.approx(float(state.moments.reward(steps).mean()), rel=1e-3, abs=1e-6)


def test_a_policy_that_had_not_played_when_training_was_killed_plays_after_a_restart(tmp_path, monkeypatch):
    shown, env = pendulum(1.0), us.make("Pendulum")
    asked, judge, dies_at = group(shown), failures._judged, 64
    monkeypatch.setattr(Checkpoint, "due", True)  # a place is kept after every round
    _, whole = failures.watched(asked, shown, env, tmp_path / "whole", 1, quiet)

    def die(state, played, shown, about, *rest):
        if about[1] == dies_at and about[0] == 3:  # in the middle of a visit's policies
            raise MemoryError
        return judge(state, played, shown, about, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(failures, "_judged", die)
        for dies_at in (64, 128):  # after the first round, and when all rounds are done
            with pytest.raises(MemoryError):
                failures.watched(asked, shown, env, tmp_path / "killed", 1, quiet)
            assert {e.x for e in read(tmp_path / "killed" / "episodes.csv")} == set(range(64, dies_at, 64))
    records, found = failures.watched(asked, shown, env, tmp_path / "killed", 1, quiet)
    assert [(e.seed, e.x, e.episode) for e in found] == [(e.seed, e.x, e.episode) for e in whole]
    for one, other in zip(found, whole, strict=True):
        assert one.episode_return == pytest.approx(other.episode_return)
        assert (one.belief, one.payoff) == pytest.approx((other.belief, other.payoff))
    assert [len(record["evaluations"]) for record in records] == [3, 3]
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["episodes.csv", "records.json"]


def test_what_cannot_be_judged_is_refused_before_training(tmp_path):
    shown = replace(us.load("Pendulum").first(2), rewards=None, recorded_return=None)
    with pytest.raises(SettingError, match="do not tell the expert's return"):
        failures.watched(group(shown), shown, us.make("Pendulum"), tmp_path, 1, quiet)
    poor = pendulum(-100.0)
    with pytest.raises(SettingError, match="-100"):
        failures.watched(group(poor), poor, us.make("Pendulum"), tmp_path, 1, quiet)
    good = pendulum(1.0)
    with pytest.raises(SettingError, match="ends before it is evaluated"):
        failures.watched(group(good, rounds=1, round_steps=32), good, us.make("Pendulum"), tmp_path, 1, quiet)
    several = group(good)
    several = replace(several, cells=(several.cells[0], replace(several.cells[1], trajectories=1)))
    with pytest.raises(SettingError, match="several numbers of trajectories"):
        failures.watched(several, good, us.make("Pendulum"), tmp_path, 1, quiet)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_returns_and_episodes_and_tells_both(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(reward.TASKS, "halfcheetah", "Pendulum")
    pendulum(1.0).save("shown.npz")
    words = ["reproduce", "ablation", "--task", "halfcheetah", "--demos", "shown.npz", "--seeds", "2"]
    words += ["--steps", "64", "--eval-every", "64", "--eval-episodes", "2", "--out", "a.csv"]

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["understudy", *words, *more])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0

    assert run("--learners", "adril@2,round_steps=64,frequency=32") == 0
    told = capsys.readouterr().out
    assert "a-episodes.csv" in told
    assert "0.064k" in told  # until when
    assert not Path("a.png").exists()  # nobody of the comparison is there
    assert "by step 50" in told
    with Path("a.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == table.COLUMNS
    assert [(line["x_kind"], line["seed"]) for line in lines] == [
        (kind, seed) for seed in "01" for kind in ("env_steps", "final")
    ]
    with Path("a-episodes.csv").open(newline="") as file:
        episodes = list(csv.DictReader(file))
    assert list(episodes[0]) == COLUMNS
    assert len(episodes) == 2 * 2
    # The same once more: what is finished is not trained again.
    monkeypatch.setattr(failures, "imitate", None)
    before = Path("a.csv").read_text(), Path("a-episodes.csv").read_text()
    assert run("--learners", "adril@2,round_steps=64,frequency=32") == 0
    assert Path("a.csv").read_text() == before[0]
    assert len(Path("a-episodes.csv").read_text()) == len(before[1])
    capsys.readouterr()
    # Who cannot be judged is refused before anybody is trained, and nothing is written of others.
    for other in ("bc@2", "gail:paper@2"):
        assert run("--learners", "adril@2,round_steps=64,frequency=16", other) != 0
        assert f"learner '{other}' does not" in capsys.readouterr().err
    # Nothing named: what the files have.
    assert run("--learners") == 0
    assert "by step 50" in capsys.readouterr().out
