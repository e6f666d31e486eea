"""The LunarLander figure at a tiny scale, with CartPole in its place: Box2D is an extra."""

import csv
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main as cli
from understudy.core import display
from understudy.core.arrays import softmax
from understudy.evaluation.returns import evaluate
from understudy.experts.expert import as_expert
from understudy.paper import lander, published

ROOT = Path(__file__).parents[2]
TINY = {"steps": 10, "episodes_per_round": 2, "hidden": (8,), "batch_size": 8}
EXPERT = {"w0": np.array([[0, 0], [0, 0], [0, 1], [0, 0.5]]), "b0": np.zeros(2)}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lander, "ENV", "CartPole-v1")
    monkeypatch.setattr(lander, "SEEN", (2, 3))
    monkeypatch.setitem(us.dagger.presets, "lander", TINY)
    monkeypatch.setitem(us.daequil.presets, "lander", {**TINY, "critic_steps": 5, "critic_hidden": (8,)})
    np.savez("expert.npz", **EXPERT)


@pytest.fixture
def reproduce(tiny, monkeypatch, capsys):
    def run(*words):
        small = ["--expert", "expert.npz", "--trials", "2", "--rounds", "2", "--episodes", "2", "--workers", "1"]
        monkeypatch.setattr(sys, "argv", ["understudy", "reproduce", "lander", *small, *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return run


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_command_writes_a_line_for_each_round_and_trial_and_draws_them(reproduce, tmp_path):
    status, out, _ = reproduce("--trajectories", "2", "--out", "r.csv")
    assert status == 0
    found = rows("r.csv")
    assert [(row["algorithm"], row["x"], row["seed"]) for row in found] == [
        (name, str(x), str(seed)) for name in ("dagger", "daequil") for x in range(3) for seed in range(2)
    ]
    assert {(row["env"], row["preset"], row["x_kind"]) for row in found} == {("CartPole-v1", "lander", "round")}
    assert found[0]["command"].startswith("understudy reproduce lander --expert expert.npz")
    queries = np.array([int(row["queries"]) for row in found]).reshape(2, 3, 2)
    assert (queries[:, 0] == 0).all()  # cloning asks nobody
    assert (np.diff(queries, axis=1) > 0).all()
    assert all(float(row["mean_return"]) >= 1 for row in found)  # a point for every step
    mean = np.mean([float(row["mean_return"]) for row in found[4:6]])
    table = next(line for line in out.splitlines() if line.startswith("dagger (lander)"))
    assert table.split()[-1] == f"{mean:.0f}"
    theirs = next(line for line in out.splitlines() if "published" in line)
    assert theirs.split() == ["published", "-537", "192", "278"]
    assert (tmp_path / "r.png").read_bytes()[:4] == b"\x89PNG"


def test_what_has_finished_is_kept_when_the_next_learner_fails(reproduce, monkeypatch):
    whole = lander.trials

    def fails(name, *rest):
        if name.startswith("daequil"):
            raise KeyboardInterrupt
        return whole(name, *rest)

    monkeypatch.setattr(lander, "trials", fails)
    assert reproduce("--trajectories", "2", "--out", "r.csv")[0] == 130
    assert {row["algorithm"] for row in rows("r.csv")} == {"dagger"}


def test_what_cannot_be_run_is_said_before_anything_is(reproduce):
    for words, said in (
        (["--learners", "dagger:landr"], "unknown preset of dagger 'landr': did you mean 'lander'?"),
        (["--out", "r.txt"], "a .csv file is needed"),
        (["--trials", "0"], "trials is 0"),
        (["--expert", "none.npz"], "no policy at 'none.npz'"),
        (["--demos", "none.npz"], "no file 'none.npz'"),
    ):
        status, _, err = reproduce(*words)
        assert status == 2
        assert said in err


def test_a_rounds_score_is_that_of_its_own_policy_and_the_legs_are_hidden(tiny):
    """Trained again by hand, with a visitor of ours, and played from the same starts."""
    env = us.make("CartPole-v1")
    expert = as_expert(us.policy_from_weights(EXPERT, env, "tanh"), env)
    demos = us.record(env, expert.source, 2)
    found = lander.trials("dagger:lander", env, expert, demos, 2, 2, 3, 1, display.progress_bar)
    algorithm, preset = lander.learner("dagger:lander", 2)
    assert (algorithm.rounds, preset) == (3, "lander")
    result = us.imitate(algorithm, demos, env, expert, seeds=2, holdout=0.0, policy_obs=(2, 3))
    # DAgger hands over its last policy: that of the last round.
    assert all(actor.spec.policy_obs == (2, 3) for actor in result.policies)
    played = evaluate(
        [result.policy] * 4 + result.policies, env, 3, lander.FRESH
    )  # a policy's place decides its starts
    np.testing.assert_array_equal(found.returns[2], played.returns[4:])
    np.testing.assert_array_equal(found.queries, result.metrics["queries"].T)


def test_the_evaluations_starts_are_not_those_of_training():
    """Training resets from SeedSequence([seed, round]), evaluation from SeedSequence([FRESH, 1])."""
    trained = {
        int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) for seed in range(50) for index in range(50)
    }
    fresh = {int(x) for x in np.random.SeedSequence([lander.FRESH, 1]).generate_state(200)}
    assert not trained & fresh


def test_the_critic_sees_the_learners_probabilities_and_the_experts_answers_one_hot(discrete):
    algorithm = us.daequil(**TINY, rounds=3, critic_hidden=(8,))
    data, _ = discrete.split([1], 0.0)
    data = data.of(0)
    state = jax.jit(lambda key: algorithm.init(key, discrete.spec, data))(jax.random.key(0))
    obs, answers = state.normalization.encode_obs(data.steps.obs), np.zeros(len(data.steps.t), np.int32)
    own = algorithm._own(state, data)
    np.testing.assert_allclose(own.steps.act, softmax(state.policy.net(obs)), atol=1e-6)
    first, second = (jax.tree.map(lambda x, i=i: x[i], state.critics) for i in (1, 2))
    assert not np.array_equal(first.net.weights[0], second.net.weights[0])  # each round starts from one of its own
    f = jax.vmap(lambda o, a: first.net(jnp.concatenate([o, a]))[0])
    expected = f(obs, own.steps.act) - f(obs, np.eye(3)[answers])
    np.testing.assert_allclose(algorithm.gaps(state, first, own.steps, answers), expected, atol=1e-5)


def test_the_published_numbers_stand_by_round():
    assert published.lander("dagger")[2].mean == 278
    assert len(published.lander("dagger")) == 10
    assert published.lander("daequil") == {}


def test_the_numbers_that_are_hidden_are_the_legs():
    pytest.importorskip("Box2D", reason="the extra box2d is not installed")
    env = us.make(lander.ENV)
    played = us.rollout(env, lambda obs: np.full(len(obs), 0), 3)  # nothing fires: it falls, and touches the ground
    legs = played.flat(played.steps.next_obs)[:, 6:]
    assert set(np.unique(legs)) == {0.0, 1.0}
    assert set(range(8)) - set(lander.SEEN) == {6, 7}


def test_the_table_of_the_page_is_its_results():
    page = (ROOT / "docs/daequil.md").read_text(encoding="utf-8")
    for count, file in (("25", "lander"), ("1", "lander-one")):
        found = rows(ROOT / f"docs/results/{file}.csv")
        for name in ("dagger", "daequil"):
            scores = np.array(
                [
                    [float(row["mean_return"]) for row in found if (row["algorithm"], row["x"]) == (name, str(x))]
                    for x in range(11)
                ]
            )
            assert scores.shape == (11, 5)
            errors = scores.std(axis=1, ddof=1) / 5**0.5
            cells = [f"{mean:.0f} ± {error:.0f}" for mean, error in zip(scores.mean(axis=1), errors, strict=True)]
            assert f"| {name} | {count} | {' | '.join(cells)} |" in page
            if count == "25":
                assert f"{scores.mean(axis=1)[4:].min():.0f} for {'DAgger' if name == 'dagger' else 'DAeQuIL'}" in page
    theirs = " | ".join(str(mean) for mean in published.LANDER_DAGGER)
    assert f"| dagger, published | | {theirs} | |" in page
