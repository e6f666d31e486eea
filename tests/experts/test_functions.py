"""Experts of the user's own code: functions of a batch or of one observation, models with `predict`, `module:name`."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import understudy as us
from support.sb3_mutations import archive
from understudy.core.errors import NeedsError, RunError, SpecError, UnknownNameError, WorkerError
from understudy.core.spaces import flat_observations, unflattened
from understudy.core.types import Spec
from understudy.experts.expert import Expert, as_expert
from understudy.experts.functions import BatchFunction, trial_rows

CART, SWING = us.make("CartPole-v1"), us.make("Pendulum")
OBS = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
STEERING = (OBS[:, 2] > 0).astype(int)


def answers(expert, obs=OBS, env=CART):
    return as_expert(expert, env).query(obs, env.spec, np.random.default_rng(0))


def batch(obs):
    return (obs[:, 2] > 0).astype(int)


def single(obs):
    return int(obs[2] > 0)


class Model:
    """Like a loaded model of Stable-Baselines3."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        return batch(observation), state


class Regressor:
    """Like a model of scikit-learn."""

    def predict(self, X):
        return batch(X)


class Normalizing(Model):
    """A model whose environment is in a VecNormalize."""

    def get_vec_normalize_env(self):
        return self

    def normalize_obs(self, obs):
        return -obs


@pytest.mark.parametrize(
    "expert",
    [batch, single, Model(), Regressor(), Expert(single), Expert(Model())],
    ids=["batch", "single", "model", "regressor", "Expert of a function", "Expert of a model"],
)
def test_functions_of_a_batch_or_of_one_observation_and_models_answer_alike(expert):
    np.testing.assert_array_equal(answers(expert), STEERING)
    np.testing.assert_array_equal(answers(expert, OBS[:1]), STEERING[:1])  # also if the first batch is one
    recorded = us.record("CartPole-v1", expert, 2, workers=0)
    np.testing.assert_array_equal(recorded.actions, batch(recorded.observations))


def test_a_model_with_vecnormalize_gets_normalized_observations():
    np.testing.assert_array_equal(answers(Normalizing()), batch(-OBS))


def test_one_continuous_action_is_stacked():
    obs = np.random.default_rng(0).uniform(-1, 1, (3, 3)).astype(np.float32)
    expected = -obs[:, 2:]
    for expert in (lambda o: -o[:, 2:], lambda o: [-o[2]], lambda o: -o[2:]):
        np.testing.assert_array_equal(answers(expert, obs, SWING), expected)


def test_a_batch_is_not_taken_for_one_observation_of_the_same_size():
    """With two observations of two numbers, [o[1], o[0]] exchanges rows or columns."""
    spec = Spec((2,), us.Continuous((-1.0, -1.0), (1.0, 1.0)), 10)
    exchange = BatchFunction(lambda o: [o[1], o[0]], spec)
    obs = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    np.testing.assert_array_equal(exchange(obs), obs[:, ::-1])
    for count in range(1, 6):
        assert len(trial_rows(np.zeros((count, 2)), spec)) not in (1, 2)


def test_a_batch_of_a_clear_size_is_the_trial_itself():
    calls = []

    def counting(obs):
        calls.append(len(obs))
        return batch(obs)

    answers(counting)
    assert calls == [7]
    calls.clear()
    answers(counting, OBS[:4])  # 4 observations of 4 numbers
    assert calls == [3, 4]


@pytest.mark.parametrize(
    ("function", "env", "line"),
    [
        (lambda obs: batch(obs)[:, None], CART, "lambda obs: np.reshape(<lambda>(obs), -1)"),
        (lambda obs: np.ones((len(obs), 2)), CART, "lambda obs: <lambda>(obs).argmax(axis=1)"),
        (lambda obs: (batch(obs), None), CART, "lambda obs: <lambda>(obs)[0]"),
        (lambda obs: obs[:, 0], SWING, "lambda obs: np.reshape(<lambda>(obs), (-1, 1))"),
        (lambda obs: float(obs[0]), SWING, "lambda obs: np.stack([np.ravel(<lambda>(o)) for o in obs])"),
        (lambda obs: np.ones(9), CART, "lambda obs: np.stack([<lambda>(o) for o in obs])"),
    ],
)
def test_a_wrong_shape_is_answered_with_the_line_that_repairs_it(function, env, line):
    obs = np.ones((5, *env.spec.obs_shape), np.float32)
    with pytest.raises((SpecError, WorkerError)) as failure:
        answers(function, obs, env)
    message = str(failure.value)
    assert line in message
    assert "\n" not in message
    assert "the expert <lambda>" in message
    if "9" not in message:  # the line works
        repaired = eval(line.replace("<lambda>", "function"), {"function": function, "np": np})
        answers(repaired, obs, env)


def test_a_function_that_raises_is_named_with_both_reasons():
    def broken(obs):
        raise ValueError(f"no {obs.ndim}")

    with pytest.raises(
        WorkerError, match="broken raised ValueError: no 2 for 3 observations, and ValueError: no 1 for one; call"
    ):
        answers(broken, OBS[:3])


def test_training_tries_a_function_before_it_starts():
    demos = us.record("CartPole-v1", batch, 1, workers=0)
    learner = us.dagger(rounds=2, gradient_steps=2, batch_size=8, episodes_per_round=1, hidden=(4,))
    begun = []
    with pytest.raises(SpecError, match=r"for 3 observations: \(3,\) is needed; pass a function of a batch"):
        us.imitate(learner, demos, CART, lambda obs: np.ones(9), progress=lambda *given: begun.append(given), workers=0)
    assert not begun
    one, many = (us.imitate(learner, demos, CART, expert, workers=0) for expert in (single, batch))
    np.testing.assert_array_equal(one.policy(OBS), many.policy(OBS))


CODE = """
import numpy as np

def steer(obs):
    return int(obs[2] > 0)

class Pilot:
    def predict(self, obs):
        return (obs[:, 2] > 0).astype(int)

pilot = Pilot()

class Broken:
    def __init__(self):
        raise ValueError("no pilot")
"""


def test_code_is_found_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "own_pilots.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("steer", "Pilot", "pilot"):
        np.testing.assert_array_equal(answers(f"own_pilots:{name}"), STEERING)
    with pytest.raises(WorkerError, match="own_pilots:Broken raised ValueError: no pilot"):
        answers("own_pilots:Broken")
    with pytest.raises(NeedsError, match="has no 'absent'"):
        answers("own_pilots:absent")
    monkeypatch.delitem(sys.modules, "own_pilots")


@pytest.mark.parametrize(
    ("name", "contents", "found"),
    [
        ("a.h5", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        ("a.pkl", b"\x80\x04}.", "a pickle, which is never read"),
        ("a.npy", b"\x93NUMPY\x01\x00", "a single NumPy array"),
        ("a.txt", b"hello", "a file of an unknown kind"),
        ("a.json", b"{}", "a text file"),
        ("a.empty", b"", "an empty file"),
    ],
)
def test_a_file_that_is_no_expert_is_called_what_it_is(name, contents, found, tmp_path):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(
        RunError, match=rf"{name}' is {found}.*: an expert is a run or policy file, a Stable-Baselines3"
    ):
        as_expert(tmp_path / name, CART)


def test_an_archive_that_is_no_expert_is_called_by_its_members(tmp_path):
    np.savez(tmp_path / "demos.npz", observations=np.zeros(3), actions=np.zeros(3))
    with pytest.raises(RunError, match=r"demos.npz' is a zip archive with observations, actions"):
        as_expert(tmp_path / "demos.npz", CART)
    (tmp_path / "policy.pth").write_bytes(archive([("archive/data.pkl", b""), ("archive/data/0", b"")]))
    with pytest.raises(RunError, match=r"policy\.pth' is a PyTorch file \(pass the zip that model\.save"):
        as_expert(tmp_path / "policy.pth", CART)


def test_names_that_are_no_experts_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'scripted'"):
        as_expert("script", CART)
    with pytest.raises(RunError, match=r"no file 'models/sac\.zip': an expert is scripted, bundled, a run"):
        as_expert("models/sac.zip", CART)
    with pytest.raises(NeedsError, match=r"expert_normalization .*completes a file, and 'bundled' is none"):
        as_expert("bundled", CART, normalization="stats.npz")
    with pytest.raises(NeedsError, match=r"expert_activation .*completes a file, and a function is none"):
        as_expert(batch, CART, activation="tanh")


class Goals(gymnasium.Env):
    """A dictionary of observations, and two numbers as the action."""

    observation_space = spaces.Dict({"goal": spaces.MultiDiscrete([2, 3]), "arm": spaces.Box(-1, 1, (2, 2))})
    action_space = spaces.MultiDiscrete([2, 3], start=[0, 1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.seen = self.observation_space.sample()
        return self.seen, {}

    def step(self, action):
        reward = float((action == self.seen["goal"] + [0, 1]).all())
        self.seen = self.observation_space.sample()
        return self.seen, reward, False, False, {}


class Achieving:
    """A model of Stable-Baselines3 for it: it takes a dictionary of batches."""

    observation_space, action_space = Goals.observation_space, Goals.action_space

    def predict(self, observation, deterministic=True):
        assert observation["arm"].shape == (len(observation["goal"]), 2, 2)
        return observation["goal"] + [0, 1], None


def test_a_model_gets_observations_as_its_space_has_them_and_answers_in_its_action_space():
    recorded = us.record(us.make(Goals, 5), Achieving(), 3, workers=0, progress=False)
    assert recorded.returns.tolist() == [5.0, 5.0, 5.0]
    assert isinstance(recorded.action_space, us.Discrete)


@pytest.mark.parametrize(
    "space",
    [
        Goals.observation_space,
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, 5]]),
        spaces.Tuple([spaces.MultiBinary(3), spaces.Dict({"x": spaces.Discrete(2), "y": spaces.Box(0, 1, (1, 2))})]),
        spaces.Box(-1, 1, ()),
    ],
    ids=str,
)
def test_flat_observations_are_unflattened_to_what_they_were(space):
    space.seed(0)
    rows = np.stack([flat_observations(space, space.sample()) for _ in range(4)])
    np.testing.assert_array_equal(flat_observations(space, unflattened(space, rows), 4), rows)
    with pytest.raises(ValueError, match="for a space of"):
        unflattened(space, rows[0])
