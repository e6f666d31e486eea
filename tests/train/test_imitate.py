"""`us.imitate`, its results, and the files they are saved in."""

import csv
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import DivergedError, NeedsError, RunError, SettingError, SpecError, UnknownNameError
from understudy.game import NEEDS, Card
from understudy.policies import Categorical, Tabular, TimeIndexed
from understudy.policies.actor import Actor
from understudy.policies.gaussian import Gaussian
from understudy.policies.networks import MLP
from understudy.train.results import hyperparameters
from understudy.train.selection import held_out, held_out_payoff

SMALL = {"rounds": 4, "gradient_steps": 20, "hidden": (8,), "batch_size": 32, "lr": 3e-3}


@pytest.fixture(scope="module")
def result():
    return us.imitate(us.bc(**SMALL), us.load("Pendulum", episodes=6), seeds=3, episodes=[2, 6])


def test_imitate_returns_a_policy_for_each_seed_and_number_of_episodes(result):
    assert len(result.policies) == len(result.runs) == 6
    assert [run.status for run in result.runs] == ["finished"] * 6
    assert result.metrics["loss"].shape == (6, 4)
    assert (result.metrics["loss"][:, -1] < result.metrics["loss"][:, 0]).all()
    obs = us.load("Pendulum").observations
    one, many = result.policy(obs[0]), result.policy(obs[:9])
    assert one.shape == (1,)
    assert many.shape == (9, 1)
    np.testing.assert_allclose(many[0], one, atol=1e-6)
    assert np.abs(result.policy(obs)).max() <= 2


def test_the_selected_policy_has_the_lowest_held_out_payoff_among_those_with_the_most_episodes(result):
    most = [run.payoff for run in result.runs if run.episodes == 6]
    assert result.runs[result.selected].payoff == min(most)
    assert result.runs[result.selected].episodes == 6
    assert result.policy is result.policies[result.selected]


def test_training_lowers_the_held_out_payoff():
    demonstrations = us.load("Pendulum", episodes=6)
    untrained = us.imitate(us.bc(**{**SMALL, "rounds": 1, "gradient_steps": 1}), demonstrations).runs[0].payoff
    trained = us.imitate(us.bc(**{**SMALL, "gradient_steps": 250}), demonstrations).runs[0].payoff
    assert 0 < trained < 0.5 * untrained


def test_the_held_out_payoff_of_the_expert_itself_is_zero():
    demonstrations = us.load("Pendulum", episodes=6)
    expert = Actor(us.Pendulum().expert(), demonstrations.spec)
    data = held_out(demonstrations.spec, *demonstrations.split([6], 0.1), 0)
    assert len(data.obs) == 200
    assert held_out_payoff(expert, data) == pytest.approx(0, abs=1e-3)


def test_predict_has_the_signature_of_stable_baselines(result):
    obs = us.load("Pendulum").observations[:5]
    actions, state = result.policy.predict(obs, state=None, episode_start=None, deterministic=True)
    np.testing.assert_array_equal(actions, result.policy(obs))
    assert state is None


def test_predict_keeps_the_time_step_in_its_state():
    spec = us.Spec((3,), us.Continuous((-1.0, -1.0), (1.0, 1.0)), 5)
    stack = jax.vmap(lambda k: Gaussian.init(k, 3, 2, (4,)))(jax.random.split(jax.random.key(0), 5))
    obs = np.ones((2, 3), np.float32)
    timed = Actor(TimeIndexed(stack), spec)
    first, state = timed.predict(obs)
    second, state = timed.predict(obs, state)
    again, _ = timed.predict(obs, state, episode_start=[True, False])
    np.testing.assert_array_equal(again[0], first[0])
    assert not np.allclose(second, first)
    assert not np.allclose(again[1], first[1])
    with pytest.raises(SpecError, match="predict"):
        timed(obs)


def test_stochastic_actions_depend_only_on_the_generator():
    spec = us.Spec((3,), us.Continuous((-1.0,), (1.0,)), 5)
    actor = Actor(Gaussian.init(jax.random.key(0), 3, 1, (4,)), spec)
    draws = [
        actor.predict(np.ones((4, 3)), deterministic=False, random=np.random.default_rng(seed))[0] for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_a_saved_run_is_loaded_unchanged(result, tmp_path):
    result.save(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "metrics.csv",
        "policies",
        "runs.csv",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algorithm"]["hyperparameters"]["lr"] == 3e-3
    assert set(config["algorithm"]["hyperparameters"]) == {f.name for f in dataclasses.fields(us.bc)}
    assert config["seeds"] == [0, 1, 2]
    assert {"jax", "understudy", "python"} <= set(config["versions"])
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert len(rows) == 6 * 4
    back = us.load_run(tmp_path / "run")
    assert back.runs == result.runs
    np.testing.assert_array_equal(back.metrics["loss"], result.metrics["loss"])
    obs = us.load("Pendulum").observations[:20]
    for a, b in zip(back.policies, result.policies, strict=True):
        np.testing.assert_array_equal(a(obs), b(obs))
    np.testing.assert_array_equal(us.load_policy(tmp_path / "run")(obs), result.policy(obs))
    assert back.expert == result.expert


def test_an_existing_run_is_never_overwritten(result, tmp_path):
    result.save(tmp_path / "run")
    with pytest.raises(RunError, match="already holds a run"):
        result.save(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        result.save(tmp_path / "file")


def test_a_failure_while_saving_leaves_nothing(result, tmp_path, monkeypatch):
    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr("understudy.train.results.write_json", full)
    with pytest.raises(OSError, match="no space"):
        result.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "policy",
    [
        Tabular(np.array([[0.5, 0.5], [1.0, 0.0]])),
        TimeIndexed(jax.vmap(Tabular)(np.full((3, 2, 2), 0.5, np.float32))),
    ],
    ids=["Tabular", "TimeIndexed"],
)
def test_every_kind_of_policy_is_saved_as_plain_arrays(policy, tmp_path):
    Actor(policy, us.Spec((), us.Discrete(2), 3), {"seed": 1}).save(tmp_path / "p.npz")
    back = us.load_policy(tmp_path / "p.npz")
    assert jax.tree.structure(back.policy) == jax.tree.structure(policy)
    for a, b in zip(jax.tree.leaves(back.policy), jax.tree.leaves(policy), strict=True):
        np.testing.assert_array_equal(a, b)
    assert back.about == {"seed": 1}
    with np.load(tmp_path / "p.npz", allow_pickle=False) as file:
        assert "format" in json.loads(str(file["structure.json"]))


def test_files_that_are_no_policy_or_run_are_refused(tmp_path):
    with pytest.raises(RunError, match="no policy at"):
        us.load_policy(tmp_path / "none.npz")
    with pytest.raises(RunError, match="holds no run"):
        us.load_policy(tmp_path)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(RunError, match="is not a policy saved by understudy"):
        us.load_policy(tmp_path / "other.npz")
    np.savez(tmp_path / "odd.npz", **{"structure.json": np.array("[1]")})
    np.save(tmp_path / "one.npy", np.zeros(3))
    for odd in ("odd.npz", "one.npy"):
        with pytest.raises(RunError, match="is not a policy saved by understudy"):
            us.load_policy(tmp_path / odd)
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(RunError, match=r"config\.json' is not the configuration of a run"):
        us.load_run(tmp_path)
    with pytest.raises(RunError, match="no run at"):
        us.load_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": -2}, "seeds is -2"),
        ({"seeds": []}, "seeds is empty"),
        ({"workers": -3}, "workers is -3"),
        ({"progress": 3}, "progress is 3"),
        ({"visit": 3}, "visit is 3"),
        ({"logs": 5}, "logs is 5"),
        ({"seeds": [1, 1]}, r"seeds is \[1, 1\]"),
        ({"seeds": [-1]}, "seeds has the value -1"),
        ({"episodes": [2, 2]}, r"episodes is \[2, 2\]"),
        ({"episodes": [1.5]}, "episodes has the value 1.5"),
        ({"episodes": 1.5}, "episodes is 1.5"),
        ({"seeds": 1.0}, "seeds is 1.0"),
        ({"seeds": [2**32]}, r"2\*\*32"),
        ({"holdout": "much"}, "holdout is 'much'"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, named):
    with pytest.raises(SettingError, match=named):
        us.imitate(us.bc(**SMALL), us.load("Pendulum", episodes=2), **arguments)


def test_an_algorithm_is_a_value_not_a_name():
    with pytest.raises(SettingError, match="algorithm is 'bc'"):
        us.imitate("bc", us.load("Pendulum"))
    with pytest.raises(SettingError, match=r"bc\(\)"):
        us.imitate(us.bc, us.load("Pendulum"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"expert": -150.0}, "expert is a float"),
        ({"workers": -3}, "workers is -3"),
        ({"episodes": 0}, "episodes is 0"),
        ({"progress": 3}, "progress is 3"),
    ],
)
def test_arguments_of_an_evaluation_are_checked(result, arguments, words):
    with pytest.raises(us.UnderstudyError, match=words):
        result.evaluate("Pendulum", **arguments)


def test_the_nearest_name_is_suggested():
    for name, wanted in (("adirl", "adril"), ("advill", "advil"), ("DAGGER", "dagger")):
        with pytest.raises(UnknownNameError, match=f"did you mean '{wanted}'"):
            us.algorithms.find(name)
    with pytest.raises(UnknownNameError, match=r"sac=\{'discount': ...\}"):
        us.adril(discount=0.9)


@pytest.mark.parametrize("moments", ["reward", "on-Q"])
def test_an_environment_or_expert_that_is_missing_is_named(moments, monkeypatch):
    card = Card("x", "AdXIL", moments, "dual", NEEDS[moments], ("continuous",), "steps", "")
    monkeypatch.setattr(us.bc, "card", card)
    with pytest.raises(NeedsError, match="env="):
        us.imitate(us.bc(**SMALL), us.load("Pendulum"))
    if moments == "on-Q":
        with pytest.raises(NeedsError, match="expert="):
            us.imitate(us.bc(**SMALL), us.load("Pendulum"), env="Pendulum")


@pytest.mark.parametrize(
    ("obs", "words"),
    [(np.zeros(4), r"shape \(4,\).*takes \(3,\)"), (np.array([0, np.nan, 0]), "1 values that are NaN")],
)
def test_a_bad_observation_is_named(result, obs, words):
    with pytest.raises(SpecError, match=words):
        result.policy(obs)


def test_a_policy_is_not_evaluated_in_another_task(result):
    with pytest.raises(SpecError, match=r"\(3,\).*Forest has observations \(4,\)"):
        result.evaluate("Forest")


def test_importing_the_library_imports_no_simulator_plotting_or_torch():
    """And float64 stays off."""
    code = (
        "import sys, understudy, jax.numpy as jnp;"
        "late = {'matplotlib', 'torch', 'pybullet', 'mujoco', 'scipy.stats', 'tyro'} & set(sys.modules);"
        "assert not late, late;"
        "assert jnp.zeros(()).dtype == 'float32'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
def test_compiled_programs_are_cached_between_processes(tmp_path):
    """In a per-user directory by default; JAX_COMPILATION_CACHE_DIR and UNDERSTUDY_CACHE=off override it."""
    ask = [sys.executable, "-c", "import jax, understudy; understudy.bc; print(jax.config.jax_compilation_cache_dir)"]
    base = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def answer(**env):
        return subprocess.run(ask, env={**base, **env}, capture_output=True, text=True, check=True).stdout.strip()

    own = Path(answer())
    assert own.is_relative_to(tmp_path)
    assert own.name == "understudy"
    assert answer(JAX_COMPILATION_CACHE_DIR="/elsewhere") == "/elsewhere"
    assert answer(UNDERSTUDY_CACHE="off") == "None"


def test_a_tabular_policy_takes_the_index_of_a_state():
    actor = Actor(Tabular(np.array([[0.1, 0.9], [1.0, 0.0]])), us.Spec((), us.Discrete(2), 3))
    assert actor(0) == 1
    np.testing.assert_array_equal(actor(np.array([0, 1, 1])), [1, 0, 0])


def test_the_held_out_payoff_of_a_time_indexed_policy_uses_the_time_step():
    """The expert's action depends on the time step: a policy that does the same is perfect, a constant one is not."""
    lengths = np.full(20, 10)
    t = np.tile(np.arange(10), 20)
    demonstrations = us.Demonstrations.from_arrays(np.zeros((200, 1)), t % 2, lengths)
    data = held_out(demonstrations.spec, *demonstrations.split([20], 0.3), 0)

    def payoff(logits):  # one linear policy per time step; only the bias matters
        nets = MLP((np.zeros((10, 1, 2)),), (np.asarray(logits, float),), "relu")
        return held_out_payoff(Actor(TimeIndexed(Categorical(nets)), demonstrations.spec), data)

    counting = np.stack([1 - np.arange(10) % 2, np.arange(10) % 2], 1)
    assert payoff(counting) == pytest.approx(0, abs=1e-9)
    assert payoff(np.tile([1, 0], (10, 1))) > 0.1


def test_a_policy_that_is_not_finite_is_never_selected(result):
    runs = list(result.runs)
    runs[result.selected] = dataclasses.replace(runs[result.selected], payoff=float("nan"))
    selected = dataclasses.replace(result, runs=runs).selected
    assert selected != result.selected
    assert np.isfinite(runs[selected].payoff)


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_actions_that_overflow_are_a_divergence():
    """Parameters can be finite and actions not."""
    settings = {**SMALL, "rounds": 1, "gradient_steps": 1, "hidden": (64,), "lr": 1e38}
    result = us.imitate(us.bc(**settings), us.load("Pendulum", episodes=2), seeds=2)
    broken = [run for run in result.runs if not np.isfinite(run.payoff)]
    assert broken
    assert {run.status for run in broken} == {"diverged: the policy's actions are not finite"}
    assert len(broken) == 2 or result.runs[result.selected] not in broken


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_parameters_that_overflow_are_a_divergence():
    """Even if the loss, computed before the step, was finite."""
    learner = us.bc(**{**SMALL, "rounds": 1, "gradient_steps": 1, "lr": 1e39})
    with pytest.raises(DivergedError, match=r"round 1: state\.policy.* is not finite after the update"):
        us.imitate(learner, us.load("Pendulum", episodes=2), seeds=2)


def test_a_result_keeps_an_environment_without_a_name_until_it_is_saved(tasks, tmp_path):
    env = tasks["discrete"]["env"]
    demonstrations = us.record(env, episodes=3)
    assert demonstrations.env is None
    result = us.imitate(us.bc(**SMALL), demonstrations, env=env)
    assert result.evaluate(episodes=2).env == env.name
    assert result.env is env
    result.save(tmp_path / "run")
    with pytest.raises(NeedsError, match="env="):
        us.load_run(tmp_path / "run").evaluate()


def test_settings_are_saved_as_plain_json_values():
    @dataclasses.dataclass
    class Settings:
        lr: object
        steps: object
        hidden: object
        scale: object
        function: object

    settings = hyperparameters(Settings(np.float32(0.5), np.int64(3), [np.int32(8)], np.ones(()), us.make))
    assert json.loads(json.dumps(settings)) == settings
    assert settings == {"lr": 0.5, "steps": 3, "hidden": [8], "scale": 1.0, "function": "make"}


def test_one_demonstration_has_no_interval(tmp_path):
    demonstrations = us.load("Pendulum", episodes=np.int64(1))
    us.imitate(us.bc(**SMALL), demonstrations, seeds=np.int64(2), holdout=np.float64(0.02)).save(tmp_path / "run")
    back = us.load_run(tmp_path / "run")
    assert back.expert.size == 1
    assert np.isnan(back.evaluate(episodes=2).scores()[0].gap.low)


def test_a_policy_with_more_actions_than_the_task_does_not_fit():
    actor = Actor(Categorical.init(jax.random.key(0), 4, 6, (4,)), us.Spec((4,), us.Discrete(6), 500))
    with pytest.raises(SpecError, match=r"6 discrete actions; CartPole-v1 has observations .4,. and 2 discrete"):
        us.evaluate([actor], "CartPole-v1", workers=0)
