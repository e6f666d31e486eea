"""The Forest figure: several forests as one environment, moments that the policy does not observe, linear critics."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.rollouts import rollout
from understudy.core import display
from understudy.core.errors import SettingError
from understudy.envs.forest import Dodge, Forest, blocked, depth
from understudy.paper import forest as figure
from understudy.paper import forest_answers, forest_trials
from understudy.paper.on_q_trials import Trials

TINY = {"rounds": 3, "gradient_steps": 20, "hidden": (8,), "episodes_per_round": 2}
SEVERAL = Forest.plant(jax.random.key(3), 4)


def test_an_episode_stays_in_one_of_several_forests_and_observes_its_index():
    episodes = rollout(SEVERAL, SEVERAL.expert(), 40, seed=0, deterministic=False)
    index = episodes.steps.obs[..., 4]
    valid = np.arange(index.shape[1]) < episodes.lengths[:, None]
    first = index[:, :1]
    assert (np.where(valid, index, first) == first).all()
    assert set(first.ravel().tolist()) == {0.0, 1.0, 2.0, 3.0}


def test_a_step_in_one_of_several_forests_is_the_step_in_that_forest():
    x, y, heading = jnp.array(50.0), jnp.array(0.0), jnp.array(1.2)
    for layout in range(4):
        alone = Forest(SEVERAL.trees[layout])
        state, _ = alone.reset(jax.random.key(0))
        here = SEVERAL.step(state._replace(layout=jnp.array(layout)), jnp.array([1.2]), jax.random.key(0))
        there = alone.step(state, jnp.array([1.2]), jax.random.key(0))
        np.testing.assert_allclose(here.obs[:4], there.obs)
        assert bool(here.terminal) == bool(there.terminal) == bool(blocked(alone.trees, x, y, heading))


def test_the_expert_of_several_forests_avoids_the_trees_of_the_current_one():
    random = np.random.default_rng(0)
    obs = np.stack([np.ones(50), *random.uniform(5, 95, (2, 50)), random.uniform(0, 3, 50)], axis=1).astype(np.float32)
    trees = np.asarray(SEVERAL.trees)
    for layout in range(4):
        indexed = np.concatenate([obs, np.full((50, 1), layout, np.float32)], axis=1)
        np.testing.assert_array_equal(Dodge(trees).logits(indexed), Dodge(trees[layout]).logits(obs))
        one = jax.vmap(Dodge(SEVERAL.trees).logits)(jnp.asarray(indexed))
        assert (np.isinf(one) == np.isinf(Dodge(trees[layout]).logits(obs))).mean() > 0.999  # float32 at a tree's edge


def test_the_depth_is_positive_exactly_where_a_step_is_blocked():
    forest = Forest()
    x, y, heading = jax.random.uniform(jax.random.key(0), (3, 2000)) * jnp.array([[100.0], [100.0], [jnp.pi]])
    inside = jax.vmap(lambda *at: depth(forest.trees, *at))(x, y, heading)
    hit = jax.vmap(lambda *at: blocked(forest.trees, *at))(x, y, heading)
    assert 0.05 < hit.mean() < 0.95
    clear_cut = jnp.abs(inside) > 1e-3
    np.testing.assert_array_equal((inside > 1e-3)[clear_cut], hit[clear_cut])
    assert not (hit & (inside == 0)).mean() > 0.002
    slope = jax.grad(lambda h: depth(forest.trees, x[0], y[0], h))(forest.trees[0, 0])
    assert np.isfinite(slope)


def test_the_expert_is_at_the_extreme_of_our_moments():
    """It changes its heading by π/4 or more, only with a tree ahead, and hits a tree only where no heading is free."""
    forest = Forest()
    episodes = rollout(forest, forest.expert(), 50, seed=0, deterministic=False)
    obs, act = (jnp.asarray(episodes.flat(np.asarray(column))) for column in (episodes.steps.obs, episodes.steps.act))
    with_tree, without_tree, hit = jax.vmap(forest_trials.clear_swerve(forest))(obs, act).T
    np.testing.assert_allclose(with_tree, obs[:, 0] * np.pi / 4, atol=1e-5)
    np.testing.assert_allclose(without_tree, 0, atol=1e-5)
    assert (hit > 0).mean() < 0.01


def train_state(algorithm, forest):
    """The state after the last round."""
    states = []
    us.imitate(
        algorithm,
        us.record(forest, episodes=2),
        forest,
        "scripted",
        visit=lambda done, batch: states.append(jax.device_get(jax.tree.map(lambda x: x[0], batch()))),
    )
    return states[-1]


@pytest.mark.slow
def test_a_linear_critic_is_the_unit_vector_along_the_gap_and_no_other_unit_vector_has_a_larger_payoff():
    forest = Forest()
    moments = forest_trials.clear_swerve(forest)
    algorithm = us.daequil(critic="linear", moments=moments, **TINY)
    state = jax.tree.map(jnp.asarray, train_state(algorithm, forest))
    visited, size = state.aggregated, int(state.aggregated.size)
    expert_actions = visited.steps.obs[:, 3:4]  # an expert that never turns
    critic = algorithm._linear_best_response(state, visited, expert_actions)
    obs, act = visited.steps.obs[:size], visited.steps.act[:size]
    gap = (jax.vmap(moments)(obs, act) - jax.vmap(moments)(obs, expert_actions[:size])).mean(axis=0)
    assert float(jnp.linalg.norm(gap)) > 1e-3
    np.testing.assert_allclose(critic.weights, gap / jnp.linalg.norm(gap), atol=1e-5)
    payoff = algorithm.gaps(state, critic, visited.steps, expert_actions)[:size].mean()
    assert float(payoff) == pytest.approx(float(jnp.linalg.norm(gap)), rel=1e-4)
    others = np.random.default_rng(0).normal(size=(100, 3))
    assert (others / np.linalg.norm(others, axis=1, keepdims=True) @ np.asarray(gap)).max() <= payoff + 1e-6


@pytest.mark.slow
def test_a_linear_critic_without_moments_is_linear_in_state_and_action():
    state = train_state(us.daequil(critic="linear", **TINY), Forest())
    assert state.critics.weights.shape == (3, 5)
    assert np.isfinite(jax.tree.leaves(state)[0]).all()
    with pytest.raises(SettingError, match="critic is 'quadratic'"):
        us.daequil(critic="quadratic")


def small_daequil(forest):
    return us.daequil(critic="linear", moments=forest_trials.clear_swerve(forest), anchor=1.0, **TINY)


@pytest.fixture
def reproduce(understudy, monkeypatch):
    """The command with few episodes and forests."""
    monkeypatch.setattr(figure, "EXPERT_EPISODES", 4)
    monkeypatch.setattr(figure, "TRAINING_FORESTS", 4)
    monkeypatch.setattr(figure, "UNSEEN_FORESTS", 3)
    words = ("reproduce", "forest", "--trials", 2, "--queries", 25, "--out", "forest.csv")
    return lambda *more: understudy(*words, *more)


PARTS = ("figure", "ablation", "budget", "unseen")


def check_files(directory, unseen):
    """Two trials of three rounds and a final policy per learner. The budget has two trials of cloning in addition."""
    files = {"forest": 16, "forest-ablation": 8, "forest-budget": 14, "forest-unseen": unseen}
    for name, count in files.items():
        with (directory / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count, name
        assert all(0 <= float(row["mean_return"]) <= 100 for row in rows)
    assert (directory / "forest.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_command_trains_every_part(reproduce, monkeypatch, tmp_path):
    """In the part unseen, policies train in several forests without observing which one they are in."""
    dagger = {"dagger, forest": lambda forest: us.dagger(**TINY)}
    monkeypatch.setattr(forest_trials, "LEARNERS", {**dagger, "daequil, small": small_daequil})
    monkeypatch.setattr(forest_trials, "ABLATION", dagger)
    monkeypatch.setattr(forest_trials, "UNSEEN", {"daequil, small": small_daequil})
    monkeypatch.setattr(forest_trials, "clone_by_flights", lambda *_: {10: np.array([3.0, 4.0])})
    assert reproduce("--parts", *PARTS)[0] == 0
    check_files(tmp_path, unseen=2 * 2 * 3)


def fake_trials(name, *_, **__):
    family, _, preset = name.partition(", ")
    returns = np.arange(6.0).reshape(3, 2, 1)
    return Trials(family, preset, returns, 10 * np.arange(6).reshape(3, 2), final=np.full(2, 5.0)), [Forest().expert()]


@pytest.mark.slow
def test_the_command_writes_and_draws_every_part(reproduce, monkeypatch, tmp_path):
    learners = {"dagger, forest": lambda forest: us.dagger(**TINY), "daequil, small": small_daequil}
    monkeypatch.setattr(forest_trials, "LEARNERS", learners)
    monkeypatch.setattr(forest_trials, "ABLATION", {"dagger, forest": learners["dagger, forest"]})
    monkeypatch.setattr(forest_trials, "run_trials", fake_trials)
    monkeypatch.setattr(forest_trials, "clone_by_flights", lambda *_: {10: np.array([3.0, 4.0])})
    unseen = {"dagger, forest": np.full((2, 3), 7.0), forest_trials.EXPERT: np.full((2, 3), 8.0)}
    monkeypatch.setattr(forest_trials, "fly_unseen", lambda *_: unseen)
    status, out, _ = reproduce("--parts", *PARTS)
    assert status == 0
    assert "Published" in out
    check_files(tmp_path, unseen=2 * 2 * 3)


def test_cloning_is_counted_by_expert_actions(monkeypatch):
    monkeypatch.setitem(us.dagger.presets, "forest", TINY)
    forest = Forest()
    distances = forest_trials.clone_by_flights(forest, [2], 2, display.progress_bar)
    assert list(distances) == [us.record(forest, None, 2, seed=2).steps]
    assert distances.popitem()[1].shape == (2,)


def test_a_part_alone_leaves_the_figure_unchanged(reproduce, monkeypatch, tmp_path):
    monkeypatch.setattr(forest_trials, "ABLATION", {"dagger, forest": lambda forest: us.dagger(**TINY)})
    monkeypatch.setattr(forest_trials, "run_trials", fake_trials)
    assert reproduce("--parts", "ablation")[0] == 0
    assert [file.name for file in tmp_path.iterdir()] == ["forest-ablation.csv"]


def test_the_part_answers_evaluates_returned_and_last_policies_within_the_budget(reproduce, monkeypatch, tmp_path):
    novel = {**TINY, "rounds": 6, "episodes_per_round": 1, "ask": "novel", "queries_per_round": 2}
    learners = {
        "dagger, novel": lambda forest: us.dagger(**novel),
        "daequil, novel": lambda forest: us.daequil(
            critic="linear", moments=forest_trials.clear_swerve(forest), **novel
        ),
    }
    monkeypatch.setattr(forest_answers, "ANSWERS", learners)
    monkeypatch.setattr(forest_answers, "EPISODES", 3)
    status, out, _ = reproduce("--parts", "answers", "--answers", 5)
    assert status == 0
    assert "at most 5 answers" in " ".join(out.split())
    with (tmp_path / "forest-answers.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [file.name for file in tmp_path.iterdir()] == ["forest-answers.csv"]
    assert len(rows) == 3 * 3 * 2  # two learners and the expert; three kinds of flights; two seeds
    spent = {row["algorithm"]: int(row["queries"]) for row in rows}
    assert spent["the expert"] == 0
    assert 0 < spent["dagger"] <= 5
    here = [float(row["std_return"]) for row in rows if row["algorithm"] == "dagger" and row["x_kind"] != "unseen"]
    assert here == [0.0] * 4  # a deterministic policy flies one path
    assert max(float(row["std_return"]) for row in rows if row["algorithm"] == "the expert") > 0


def test_the_unseen_learners_have_the_linear_critic_of_the_figure():
    learner = forest_trials.UNSEEN[f"daequil, {forest_trials.DAEQUIL}"](SEVERAL)
    assert (learner.critic, learner.episodes_per_round) == ("linear", 20)


def test_the_output_is_a_csv_file(understudy):
    status, _, err = understudy("reproduce", "forest", "--out", "forest.txt")
    assert (status, "out is 'forest.txt'" in err) == (2, True)
