"""The forest's figure: several forests as one environment, moments of what a policy cannot see, linear critics."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.algorithms import daequil, dagger
from understudy.cli.main import _dispatch
from understudy.collect.rollouts import rollout
from understudy.core import display
from understudy.core.errors import SettingError
from understudy.envs.forest import Dodge, Forest, blocked, depth
from understudy.paper import forest as experiment
from understudy.paper import reproduce_forest
from understudy.paper.rounds import Trials

TINY = {"rounds": 3, "steps": 20, "hidden": (8,), "episodes_per_round": 2}
SEVERAL = Forest.plant(jax.random.key(3), 4)


def test_an_episode_stays_in_one_of_several_forests_and_says_which():
    episodes = rollout(SEVERAL, SEVERAL.expert(), 40, seed=0, deterministic=False)
    number = episodes.steps.obs[..., 4]
    real = np.arange(number.shape[1]) < episodes.lengths[:, None]
    first = number[:, :1]
    assert (np.where(real, number, first) == first).all()
    assert set(first.ravel().tolist()) == {0.0, 1.0, 2.0, 3.0}


def test_a_flight_in_one_of_several_forests_is_the_flight_in_it_alone():
    x, y, heading = jnp.array(50.0), jnp.array(0.0), jnp.array(1.2)
    for layout in range(4):
        alone = Forest(SEVERAL.trees[layout])
        state, _ = alone.reset(jax.random.key(0))
        here = SEVERAL.step(state._replace(layout=jnp.array(layout)), jnp.array([1.2]), jax.random.key(0))
        there = alone.step(state, jnp.array([1.2]), jax.random.key(0))
        np.testing.assert_allclose(here.obs[:4], there.obs)
        assert bool(here.terminal) == bool(there.terminal) == bool(blocked(alone.trees, x, y, heading))


def test_the_expert_of_several_forests_looks_at_the_trees_of_the_right_one():
    random = np.random.default_rng(0)
    obs = np.stack([np.ones(50), *random.uniform(5, 95, (2, 50)), random.uniform(0, 3, 50)], axis=1).astype(np.float32)
    trees = np.asarray(SEVERAL.trees)
    for layout in range(4):
        named = np.concatenate([obs, np.full((50, 1), layout, np.float32)], axis=1)
        np.testing.assert_array_equal(Dodge(trees).logits(named), Dodge(trees[layout]).logits(obs))
        one = jax.vmap(Dodge(SEVERAL.trees).logits)(jnp.asarray(named))
        assert (np.isinf(one) == np.isinf(Dodge(trees[layout]).logits(obs))).mean() > 0.999  # float32 at a tree's edge


def test_a_step_is_deep_in_a_tree_exactly_where_it_is_blocked():
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
    """Where it can dodge at all: it swerves by π/4 or more, only with a tree ahead, and into none."""
    forest = Forest()
    episodes = rollout(forest, forest.expert(), 50, seed=0, deterministic=False)
    obs, act = (jnp.asarray(episodes.flat(np.asarray(column))) for column in (episodes.steps.obs, episodes.steps.act))
    swerved, strayed, hit = jax.vmap(experiment.clear_swerve(forest))(obs, act).T
    np.testing.assert_allclose(swerved, obs[:, 0] * np.pi / 4, atol=1e-5)
    np.testing.assert_allclose(strayed, 0, atol=1e-5)
    assert (hit > 0).mean() < 0.01  # where no heading is clear


def states_of(algorithm, forest, **options):
    kept = []
    us.imitate(
        algorithm,
        us.record(forest, episodes=2),
        forest,
        "scripted",
        visit=lambda done, states: kept.append(jax.device_get(jax.tree.map(lambda x: x[0], states()))),
        **options,
    )
    return kept


def test_a_linear_critic_is_the_unit_vector_along_the_gap_and_nothing_of_length_one_sees_more():
    forest = Forest()
    moments = experiment.clear_swerve(forest)
    algorithm = daequil(critic="linear", moments=moments, **TINY)
    state = jax.tree.map(jnp.asarray, states_of(algorithm, forest)[-1])
    rolled, size = state.history, int(state.history.size)
    answers = rolled.steps.obs[:, 3:4]  # of an expert that never turns
    critic = algorithm._in_closed_form(state, rolled, answers)
    obs, act = rolled.steps.obs[:size], rolled.steps.act[:size]
    gap = (jax.vmap(moments)(obs, act) - jax.vmap(moments)(obs, answers[:size])).mean(axis=0)
    assert float(jnp.linalg.norm(gap)) > 1e-3
    np.testing.assert_allclose(critic.weights, gap / jnp.linalg.norm(gap), atol=1e-5)
    payoff = algorithm.gaps(state, critic, rolled.steps, answers)[:size].mean()
    assert float(payoff) == pytest.approx(float(jnp.linalg.norm(gap)), rel=1e-4)
    others = np.random.default_rng(0).normal(size=(100, 3))
    assert (others / np.linalg.norm(others, axis=1, keepdims=True) @ np.asarray(gap)).max() <= payoff + 1e-6
    with pytest.raises(SettingError, match="critic is 'quadratic'"):
        daequil(critic="quadratic")


def test_a_linear_critic_without_moments_of_ones_own_is_linear_in_state_and_action():
    state = states_of(daequil(critic="linear", **TINY), Forest())[-1]
    assert state.critics.weights.shape == (3, 5)
    assert np.isfinite(jax.tree.leaves(state)[0]).all()


def test_policies_learn_in_several_forests_without_seeing_which():
    learner = experiment.UNSEEN[f"daequil, {experiment.DAEQUIL}"](SEVERAL)
    assert learner.critic == "linear"
    small = daequil(critic="linear", moments=experiment.clear_swerve(SEVERAL), anchor=1.0, **TINY)
    scores = experiment.unseen(
        {"daequil, small": lambda forest: small},
        SEVERAL,
        Forest.plant(jax.random.key(4), 3),
        25,
        2,
        display.progress_bar,
    )["daequil, small"]
    assert scores.shape == (2, 3)
    assert ((scores >= 0) & (scores <= 100)).all()


def test_the_command_writes_every_part(tmp_path, monkeypatch, capsys):
    small = {
        "dagger, forest": lambda forest: dagger(**TINY),
        "daequil, small": lambda forest: daequil(
            critic="linear", moments=experiment.clear_swerve(forest), anchor=1.0, **TINY
        ),
    }
    monkeypatch.setattr(experiment, "LEARNERS", small)
    for name in ("ABLATION", "UNSEEN"):
        monkeypatch.setattr(experiment, name, {"dagger, forest": small["dagger, forest"]})
    monkeypatch.setattr(reproduce_forest, "CLONED", (2,))
    monkeypatch.setattr(experiment, "cloning", _short_cloning)
    path = tmp_path / "forest.csv"
    parts = ["figure", "ablation", "budget", "unseen"]
    _dispatch(["reproduce", "forest", "--trials", "2", "--queries", "10", "--out", str(path), "--parts", *parts])
    said = capsys.readouterr().out
    assert "Published: the expert 65, DAgger 0 to 14, DAeQuIL between 2 and 100" in said
    assert "in forests that it has not seen" in said
    files = {"forest": 16, "forest-ablation": 8, "forest-budget": 14, "forest-unseen": 400}
    for name, count in files.items():
        with (tmp_path / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count, name
        assert all(0 <= float(row["mean_return"]) <= 100 for row in rows)
    assert path.with_suffix(".png").stat().st_size > 10_000


def test_a_part_alone_leaves_the_figure_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "ABLATION", {"dagger, forest": lambda forest: dagger(**TINY)})
    flown = Trials("dagger", "forest", np.full((3, 2, 1), 5.0), np.ones((3, 2), int), handed=np.full(2, 5.0))
    monkeypatch.setattr(experiment, "trials", lambda *_, **__: (flown, []))
    path = tmp_path / "forest.csv"
    _dispatch(["reproduce", "forest", "--trials", "2", "--out", str(path), "--parts", "ablation"])
    assert [file.name for file in tmp_path.iterdir()] == ["forest-ablation.csv"]
    assert "The figure" not in capsys.readouterr().out


def _short_cloning(forest, counts, seeds, progress):
    one, _ = experiment.trials(
        "bc, forest", dagger(**{**TINY, "rounds": 1}), forest, seeds, us.record(forest, None, counts[0])
    )
    return {10: one.returns[0].mean(axis=1)}


def test_a_figure_goes_to_a_csv_file(tmp_path):
    with pytest.raises(SettingError, match=r"forest\.txt': a \.csv file is needed"):
        _dispatch(["reproduce", "forest", "--out", str(tmp_path / "forest.txt")])
