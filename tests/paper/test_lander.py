"""The LunarLander figure on a tiny scale, with CartPole in its place, because Box2D is an extra."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core import display
from understudy.deploy.forward import softmax
from understudy.evaluation.returns import evaluate
from understudy.experts.expert import as_expert
from understudy.paper import lander, published

TINY = {"gradient_steps": 10, "episodes_per_round": 2, "hidden": (8,), "batch_size": 8}
EXPERT = {"w0": np.array([[0, 0], [0, 0], [0, 1], [0, 0.5]]), "b0": np.zeros(2)}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lander, "ENV", "CartPole-v1")
    monkeypatch.setattr(lander, "POLICY_OBS", (2, 3))
    monkeypatch.setitem(us.dagger.presets, "lander", TINY)
    monkeypatch.setitem(us.daequil.presets, "lander", {**TINY, "critic_steps": 5, "critic_hidden": (8,)})
    np.savez("expert.npz", **EXPERT)


@pytest.fixture
def reproduce(tiny, understudy):
    small = ["--expert", "expert.npz", "--trials", "2", "--rounds", "2", "--episodes", "2", "--workers", "0"]
    return lambda *words: understudy("reproduce", "lander", *small, *words)


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_command_writes_a_row_per_round_and_trial_and_draws_them(reproduce, tmp_path):
    status, out, _ = reproduce("--trajectories", "2", "--out", "r.csv")
    assert status == 0
    written = rows("r.csv")
    assert [(row["algorithm"], row["x"], row["seed"]) for row in written] == [
        (name, str(x), str(seed)) for name in ("dagger", "daequil") for x in range(3) for seed in range(2)
    ]
    assert {(row["env"], row["preset"], row["x_kind"]) for row in written} == {("CartPole-v1", "lander", "round")}
    assert written[0]["command"].startswith("understudy reproduce lander --expert expert.npz")
    queries = np.array([int(row["queries"]) for row in written]).reshape(2, 3, 2)
    assert (queries[:, 0] == 0).all()  # cloning does not query the expert
    assert (np.diff(queries, axis=1) > 0).all()
    assert all(float(row["mean_return"]) >= 1 for row in written)  # one point per step
    mean = np.mean([float(row["mean_return"]) for row in written[4:6]])
    ours = next(line for line in out.splitlines() if line.startswith("dagger (lander)"))
    assert ours.split()[-1] == f"{mean:.0f}"
    theirs = next(line for line in out.splitlines() if "published" in line)
    assert theirs.split() == ["published", "-537", "192", "278"]
    assert (tmp_path / "r.png").read_bytes()[:4] == b"\x89PNG"


def test_finished_learners_are_saved_when_the_next_one_is_interrupted(reproduce, monkeypatch):
    run_trials = lander.run_trials

    def interrupted(name, *rest):
        if name.startswith("daequil"):
            raise KeyboardInterrupt
        return run_trials(name, *rest)

    monkeypatch.setattr(lander, "run_trials", interrupted)
    assert reproduce("--trajectories", "2", "--out", "r.csv")[0] == 130
    assert {row["algorithm"] for row in rows("r.csv")} == {"dagger"}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--learners", "dagger:landr"], "'landr'"),
        (["--out", "r.txt"], "out is 'r.txt'"),
        (["--trials", "0"], "trials is 0"),
        (["--expert", "none.npz"], "'none.npz'"),
        (["--demos", "none.npz"], "'none.npz'"),
    ],
)
def test_a_wrong_option_is_an_error_before_training(words, value, reproduce):
    status, _, err = reproduce(*words)
    assert (status, value in err) == (2, True)


def test_a_rounds_score_is_its_own_policys_and_the_policy_observes_two_numbers(tiny):
    """Train once more with `imitate`, and evaluate from the same initial states."""
    env = us.make("CartPole-v1")
    expert = as_expert(us.policy_from_weights(EXPERT, env, "tanh"), env)
    demos = us.record(env, expert.source, 2, workers=0)
    trials = lander.run_trials("dagger:lander", env, expert, demos, 2, 2, 3, 0, display.progress_bar)
    algorithm, preset = lander.parse_learner("dagger:lander", 2)
    assert (algorithm.rounds, preset) == (3, "lander")
    result = us.imitate(algorithm, demos, env, expert, seeds=2, holdout=0.0, policy_obs=(2, 3), workers=0)
    assert all(actor.spec.policy_obs == (2, 3) for actor in result.policies)
    # DAgger returns its last policy. A policy's position in the list decides its initial states.
    evaluation = evaluate([result.policy] * 4 + result.policies, env, 3, lander.EVAL_SEED, workers=0)
    np.testing.assert_array_equal(trials.returns[2], evaluation.returns[4:])
    np.testing.assert_array_equal(trials.queries, result.metrics["queries"].T)


def test_the_evaluation_does_not_start_from_training_states():
    """Training resets from SeedSequence([seed, round]), evaluation from SeedSequence([EVAL_SEED, 1])."""
    training = {
        int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) for seed in range(50) for index in range(50)
    }
    evaluation = {int(x) for x in np.random.SeedSequence([lander.EVAL_SEED, 1]).generate_state(200)}
    assert not training & evaluation


def test_the_critic_gets_the_learners_probabilities_and_the_experts_actions_one_hot(discrete):
    algorithm = us.daequil(**TINY, rounds=3, critic_hidden=(8,))
    data, _ = discrete.split([1], 0.0)
    data = data.of(0)
    state = jax.jit(lambda key: algorithm.init(key, discrete.spec, data))(jax.random.key(0))
    obs, expert_actions = state.normalization.encode_obs(data.steps.obs), jnp.zeros(len(data.steps.t), jnp.int32)
    visited = algorithm._with_probabilities(state, data)
    np.testing.assert_allclose(visited.steps.act, softmax(state.policy.net(obs)), atol=1e-6)
    first, second = (jax.tree.map(lambda x, i=i: x[i], state.critics) for i in (1, 2))
    assert not np.array_equal(first.net.weights[0], second.net.weights[0])  # each round has a new critic
    f = jax.vmap(lambda o, a: first.net(jnp.concatenate([o, a]))[0])
    expected = f(obs, visited.steps.act) - f(obs, np.eye(3)[expert_actions])
    np.testing.assert_allclose(algorithm.gaps(state, first, visited.steps, expert_actions), expected, atol=1e-5)


def test_the_published_numbers_are_by_round():
    assert published.lander("dagger")[2].mean == 278
    assert len(published.lander("dagger")) == 10
    assert published.lander("daequil") == {}


def test_the_hidden_numbers_are_the_leg_contacts():
    pytest.importorskip("Box2D", reason="the extra box2d is not installed")
    env = us.make(lander.ENV)
    episodes = us.rollout(env, lambda obs: np.full(len(obs), 0), 3)  # no engine: it falls and touches the ground
    legs = episodes.flat(episodes.steps.next_obs)[:, 6:]
    assert set(np.unique(legs)) == {0.0, 1.0}
    assert set(range(8)) - set(lander.POLICY_OBS) == {6, 7}
