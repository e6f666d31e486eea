"""Ways to name an environment: instances, functions, module:function, module:Id; arguments and wrappers."""

import copy
import functools
import pickle
import sys

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import understudy as us
from support.envs import Line
from support.spaces import Reach, Slowed, reach, to_goal
from understudy.collect.rollout_pool import RolloutPool
from understudy.collect.worker import unsendable
from understudy.collect.workers import WorkerPool
from understudy.core import imports
from understudy.core.errors import ExtraError, NeedsError, SettingError, SpecError, WorkerError
from understudy.core.notices import UnderstudyWarning
from understudy.envs import NamedEnv, named_env, public_name
from understudy.envs.naming import parse_args

MODULE = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
if "OwnSwing-v0" not in gymnasium.registry:
    gymnasium.register("OwnSwing-v0", PendulumEnv, max_episode_steps=5)
def swing(g=10.0):
    return gymnasium.wrappers.TimeLimit(PendulumEnv(g=g), 5)
"""


def returns(env, act=to_goal, episodes=2):
    return us.rollout(env, act, episodes, seed=1).returns


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A module in the current directory, which is not on the import path yet."""
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_swing.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_swing", None)


@pytest.mark.parametrize("env", ["own_swing:OwnSwing-v0", "own_swing:swing"])
def test_an_id_or_a_function_of_a_module_in_the_working_directory_takes_arguments(here, env):
    act = lambda obs: np.ones((len(obs), 1))  # noqa: E731
    usual, heavy = (us.make(env, env_args=args) for args in ({}, {"g": 20.0}))
    assert (usual.name, usual.spec.horizon, heavy.spec.horizon) == (env, 5, 5)
    assert (returns(usual, act) != returns(heavy, act)).all()
    assert public_name(usual) == env
    assert public_name(heavy) is None, "the name alone does not make it"
    assert heavy.named == NamedEnv(env, {"g": 20.0})
    sent = pickle.loads(pickle.dumps(heavy))  # noqa: S301 (our own)
    np.testing.assert_array_equal(returns(sent, act), returns(heavy, act))


def test_a_name_that_a_module_does_not_have_is_one_line(here):
    with pytest.raises(ExtraError, match=r"^own_swong:swing cannot be made: No module named .* current directory"):
        us.make("own_swong:swing")
    with pytest.raises(ExtraError, match=r"^own_swing:swng cannot be made: own_swing has no function 'swng'"):
        us.make("own_swing:swng")


def test_a_function_in_the_working_directory_is_found_by_a_worker_too(here):
    env, act = us.make("own_swing:swing"), lambda obs: np.ones((len(obs), 1))
    with RolloutPool(env, 1, 20.0) as pool:
        there = pool.stepwise(lambda vector, attempt: us.rollout(env, act, 2, 1, vector=vector))
    np.testing.assert_array_equal(there.returns, returns(env, act))


def test_an_installed_module_wins_over_one_in_the_working_directory(here):
    (here / "colorsys.py").write_text("raise SystemExit('executed')")
    with pytest.raises(us.UnderstudyError, match=r"^colorsys:Env-v0 cannot be made"):
        us.make("colorsys:Env-v0")


def test_wrappers_apply_from_the_inside_out_by_name_or_as_classes():
    plain = us.make(reach)
    named = us.make("support.spaces:reach", wrap=["support.spaces:Slowed", "support.spaces:Slowed"])
    given = us.make(reach, wrap=[Slowed, Slowed])
    quarter = returns(plain, lambda obs: to_goal(obs) / 4)
    np.testing.assert_allclose(returns(named), quarter)
    np.testing.assert_allclose(returns(given), quarter)
    assert named.named.wrap == ("support.spaces:Slowed",) * 2
    assert given.named is None
    clipped = us.make("Pendulum-v1", wrap=["gymnasium.wrappers:ClipAction"])
    assert not clipped.bounded, "ClipAction takes actions of any size"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"wrap": "gymnasium.wrappers:ClipAction"}, "^wrap is .*a list of module:Class"),
        ({"wrap": ["ClipAction"]}, "^wrap has 'ClipAction': module:Class is needed"),
        ({"wrap": [3]}, "^wrap has 3"),
        ({"wrap": ["gymnasium.wrappers:TimeLimit"]}, "cannot wrap CartPole-v1: TypeError"),
        ({"wrap": ["gymnasium.wrappers:vector"]}, "no wrapper"),
        ({"wrap": ["support.spaces:to_goal"]}, "cannot wrap CartPole-v1"),
        ({"wrap": ["support.spaces:NoSuch"]}, "has no 'NoSuch'"),
        ({"env_args": {"poles": 2}}, "^CartPole-v1 could not be made: TypeError: .*'poles'"),
    ],
)
def test_a_wrong_wrapper_or_argument_is_one_line(given, words):
    with pytest.raises((SettingError, NeedsError, WorkerError), match=words) as error:
        us.make("CartPole-v1", **given)
    assert "\n" not in str(error.value)


def test_arguments_are_json_or_text():
    words = ["g=9.8", "name=left arm", "flags=[1, 2]", "on=true", "none=null", 'text="3"', "empty="]
    expected = {"g": 9.8, "name": "left arm", "flags": [1, 2], "on": True, "none": None, "text": "3", "empty": ""}
    assert parse_args(words) == expected
    for word in ("g", "=3", "a b=3", "x={}", "x=NaN", "x=" + "[" * 9 + "]" * 9):
        with pytest.raises(SettingError, match="--env-arg"):
            parse_args([word])
    with pytest.raises(SettingError, match="twice"):
        parse_args(["g=1", "g=2"])


def test_an_instance_that_gymnasium_made_is_made_again_from_its_spec():
    given = gymnasium.make("CartPole-v1", max_episode_steps=7)
    env = us.make(given)
    assert (env.name, env.spec.horizon) == ("CartPole-v1", 7)
    balance = lambda obs: (obs[:, 2] > 0).astype(int)  # noqa: E731
    assert us.rollout(env, balance, 3).lengths.tolist() == [7, 7, 7]
    assert not unsendable(env)
    given.reset(seed=0)  # it was neither used nor closed
    given.step(0)


def test_an_instance_without_a_spec_is_copied_with_its_settings():
    given = Reach(speed=0.25)
    env = us.make(given, 8)
    np.testing.assert_array_equal(returns(env), returns(us.make(functools.partial(Reach, 0.25), 8)))
    assert not hasattr(given, "at"), "only its copies are used"
    assert not unsendable(env)
    assert us.make(gymnasium.wrappers.TimeLimit(Reach(), 4)).horizon == 4


def test_the_shortest_of_several_time_limits_counts():
    limited = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.TimeLimit(Reach(), 4), 9)
    assert us.make(lambda: limited).horizon == 4


class Unique(Reach):
    """Cannot be copied."""

    closed = 0

    def __deepcopy__(self, memo):
        raise TypeError("it holds a socket")

    def close(self):
        self.closed += 1


def test_an_instance_that_cannot_be_copied_runs_its_episodes_one_after_the_other():
    given = Unique()
    with pytest.warns(UnderstudyWarning, match=r"^Unique cannot be copied \(TypeError: it holds a socket\)"):
        env = us.make(given, 8)
    assert unsendable(env)
    for _ in range(2):
        episodes = us.rollout(env, to_goal, 3, seed=1)
        np.testing.assert_array_equal(episodes.returns, us.rollout(us.make(Reach, 8), to_goal, 3, seed=1).returns)
    with pytest.warns(UnderstudyWarning, match="without bounds"):
        demos = us.record(env, to_goal, 2)
    small = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}
    with pytest.warns(UnderstudyWarning, match="without bounds"):
        us.imitate(us.dagger(**small, episodes_per_round=2), demos, env, expert=to_goal)
    with pytest.raises(SpecError, match=r"^Unique cannot be copied, and several copies are needed"):
        env.vector(2)
    for seeds, envs in ([(1,)], 2), ([(1,), (2,)], 1):
        with pytest.raises(SpecError, match="several copies are needed"):
            WorkerPool(env.without_bounds(), seeds, envs, 5, 0)
    assert us.rollout(env, to_goal, 1).lengths.tolist() == [8], "the failed attempt has given it back"
    assert given.closed == 0


class Socket(CartPoleEnv):
    """A constructor that fails."""

    def __init__(self, port=None):
        raise ConnectionError(f"no simulator listens on port {port}\nstart it first")


def test_a_constructor_that_fails_is_one_line_with_its_own_message():
    with pytest.raises(WorkerError, match=r"^Socket could not be made: ConnectionError: .* port 5000$"):
        us.make(Socket, env_args={"port": 5000})


def test_arguments_of_an_environment_that_is_made_already_are_refused():
    for given in ({"env_args": {"x": 1}}, {"wrap": [Slowed]}):
        with pytest.raises(SettingError, match="made already"):
            us.make(us.make("CartPole-v1"), **given)
    with pytest.raises(SettingError, match="made already"):
        us.make(CartPoleEnv(), 5, {"x": 1})
    assert us.make(us.make("CartPole-v1"), horizon=9).spec.horizon == 9
    with pytest.raises(SettingError, match=r"^horizon is 9: Pendulum has 200 steps"):
        us.make("Pendulum", horizon=9)
    with pytest.raises(SettingError, match=r"^wrap is .*: wrappers are for environments of Gymnasium"):
        us.make("Pendulum", wrap=[Slowed])


def test_a_jax_environment_is_named_like_any_other():
    env = us.make("support.envs:Line", env_args={"discrete": True})
    assert env == Line(True)
    assert named_env(NamedEnv("support.envs:Line", {"discrete": True}), env).args == {"discrete": True}
    assert named_env("support.envs:Line", us.make("support.envs:Line")) == NamedEnv("support.envs:Line")
    assert us.make(Line) == Line()
    trees = us.make("Forest", env_args={"trees": jnp.zeros((1, 3))})
    assert public_name(trees) is None


class Bare(us.Environment):
    """Neither a name nor an expert."""

    @property
    def spec(self):
        return Line().spec

    def reset(self, key):
        return Line().reset(key)

    def step(self, state, act, key):
        return Line().step(state, act, key)


class Barer(Bare):
    """A subclass."""


def test_a_jax_environment_needs_neither_a_name_nor_an_expert():
    assert (Bare.name, us.Pendulum.name) == ("Bare", "Pendulum")
    with pytest.raises(NeedsError, match=r"^Bare has no scripted expert: pass expert="):
        us.record(Bare())
    assert us.record(Bare(), lambda obs: obs[:, :1], 2).steps == 16


def test_code_that_a_file_names_needs_consent(monkeypatch):
    monkeypatch.setattr(imports, "_allowed", set())
    plain = {"name": "Pendulum-v1", "args": {"g": 9.0}, "wrap": ["gymnasium.wrappers:ClipAction"], "horizon": None}
    assert NamedEnv.from_file(plain, "a file").to_json() == plain
    for change in ({"name": "support.spaces:reach"}, {"wrap": ["support.spaces:Slowed"]}):
        with pytest.raises(NeedsError, match=r"add --import support.spaces"):
            NamedEnv.from_file({**plain, **change}, "a file")
    for change in ({"args": {"x": {"y": 1}}}, {"args": {"not a name": 1}}, {"wrap": ["os"]}, {"horizon": 0}):
        with pytest.raises(SettingError):
            NamedEnv.from_file({**plain, **change}, "a file")
    for change in ({"wrap": ["gymnasium.wrappers:RecordVideo"]}, {"name": "GymV26Environment-v0"}):
        with pytest.raises(NeedsError, match=r"add --import gym"):
            NamedEnv.from_file({**plain, **change}, "a file")
    us.allow_import("support.spaces")
    assert NamedEnv.from_file({**plain, "name": "support.spaces:reach"}, "a file").name == "support.spaces:reach"


def test_copies_of_an_environment_share_nothing(monkeypatch):
    env = us.make(Reach, 8)
    changed = env.with_horizon(4)
    assert (env.horizon, changed.horizon, copy.copy(env).horizon) == (8, 4, 8)


def test_a_wrapper_of_gymnasium_does_not_make_the_working_directory_importable(tmp_path, monkeypatch):
    """Some wrappers import packages that may be missing; a stranger's directory may hold files with their names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    us.make(NamedEnv("Pendulum-v1", {}, ("gymnasium.wrappers:ClipAction",)))
    assert str(tmp_path) not in sys.path
    NamedEnv("Pendulum-v1", {}, ("my_module:Wrapper",))
    assert str(tmp_path) in sys.path
