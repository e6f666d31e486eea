"""Environments: dynamics equal those of Gymnasium, and truncation is never confused with termination."""

import functools
import os
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import understudy as us
from understudy.core.errors import ExtraError, SettingError, SpecError, UnknownNameError, WorkerError
from understudy.envs.forest import SIZE, STRIDE, ForestState, blocked
from understudy.envs.pendulum import PendulumState
from understudy.policies import Deterministic, start
from understudy.policies.networks import MLP


def test_pendulum_equals_gymnasiums():
    """Same actions, same observations and rewards over an episode."""
    theirs = gymnasium.make("Pendulum-v1")
    obs, _ = theirs.reset(seed=3)
    env = us.Pendulum()
    state = PendulumState(*(jnp.float32(x) for x in theirs.unwrapped.state))
    step = jax.jit(env.step)
    rng = np.random.default_rng(0)
    for t in range(200):
        action = rng.uniform(-2.5, 2.5, 1).astype(np.float32)  # some are out of bounds: both clip
        obs, reward, terminated, truncated, _ = theirs.step(action)
        ours = step(state, jnp.asarray(action), jax.random.key(0))
        # The pendulum is chaotic, so each step starts from Gymnasium's state.
        np.testing.assert_allclose(ours.obs, obs, atol=1e-5)
        np.testing.assert_allclose(ours.reward, reward, atol=1e-5, rtol=1e-5)
        assert not ours.terminal
        assert not terminated
        assert truncated == (t == 199)
        state = PendulumState(*(jnp.float32(x) for x in theirs.unwrapped.state))


def test_pendulum_equals_gymnasiums_over_a_whole_episode():
    """In float64 also without resetting the state at every step."""
    theirs = gymnasium.make("Pendulum-v1")
    theirs.reset(seed=11)
    with jax.enable_x64(True):
        env = us.Pendulum()
        state = PendulumState(*(jnp.float64(x) for x in theirs.unwrapped.state))
        step = jax.jit(env.step)
        actions = np.random.default_rng(1).uniform(-2, 2, (200, 1)).astype(np.float32)
        for action in actions:
            obs, reward, *_ = theirs.step(action)
            ours = step(state, jnp.asarray(action), jax.random.key(0))
            np.testing.assert_allclose(ours.obs, obs, atol=1e-5)
            np.testing.assert_allclose(float(ours.reward), reward, atol=1e-5)
            state = ours.state


def test_the_pendulum_has_gymnasiums_initial_distribution():
    state, _ = jax.vmap(us.Pendulum().reset)(jax.random.split(jax.random.key(0), 2000))
    assert abs(np.abs(state.angle).max() - np.pi) < 0.02
    assert abs(np.abs(state.speed).max() - 1) < 0.01


def test_the_default_forest_has_100_trees_on_a_jittered_grid():
    trees = np.asarray(us.Forest().trees)
    assert trees.shape == (100, 3)
    grid_x, grid_y = np.meshgrid(np.arange(10) * 10.0, np.arange(10) * 10.0 + 5)
    jitter = trees[:, :2] - np.stack([grid_x.ravel(), grid_y.ravel()], 1)
    assert jitter.min() >= 0
    assert 4.5 < jitter.max() <= 5
    assert 2 <= trees[:, 2].min() < trees[:, 2].max() <= 3
    assert not np.array_equal(trees, us.Forest.plant(jax.random.key(1)).trees)


def test_a_drone_starts_at_the_edge_and_moves_five_metres():
    env = us.Forest()
    state, obs = env.reset(jax.random.key(0))
    np.testing.assert_allclose(obs[1:], [50, 0, np.pi / 2], rtol=1e-6)
    new = env.step(state, jnp.array([0.0]), jax.random.key(0))
    np.testing.assert_allclose(new.obs[1:], [50 + STRIDE, 0, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("position", "heading", "terminal", "score"),
    [
        ((50.0, 97.0), np.pi / 2, True, SIZE),  # leaves at the top: the full score, at most 100
        ((2.0, 40.0), np.pi, True, 0.0),  # leaves at the side: 0
        ((50.0, 40.0), np.pi / 2, False, 45.0),  # still flying
    ],
)
def test_the_score_is_the_distance_up_the_field(position, heading, terminal, score):
    env = us.Forest(jnp.array([[-50.0, -50.0, 1.0]]))  # no trees nearby
    state = ForestState(jnp.array(position[0]), jnp.array(position[1]), jnp.array(np.pi / 2), jnp.array(0))
    new = env.step(state, jnp.array([heading]), jax.random.key(0))
    assert bool(new.terminal) is terminal
    assert position[1] + float(new.reward) == pytest.approx(score, abs=1e-4)  # earlier rewards add up to y


def test_a_tree_ahead_sets_the_flag_and_terminates_the_flight():
    middle, end, beside = ([[50.0, 2.5, 0.4]], [[50.0, 5.0, 0.4]], [[54.0, 2.5, 0.4]])
    for trees, flagged in ((middle, True), (end, True), (beside, False)):
        env = us.Forest(jnp.array(trees))
        state, obs = env.reset(jax.random.key(0))
        assert bool(obs[0]) is flagged
        assert bool(env.step(state, jnp.array([np.pi / 2]), jax.random.key(0)).terminal) is flagged


def test_the_forest_expert_dodges_both_ways_and_keeps_clear():
    env = us.Forest()
    expert = env.expert()
    flights = us.rollout(env, expert, 50, deterministic=False)
    real = np.arange(flights.rewards.shape[1]) < flights.lengths[:, None]
    obs, act = flights.steps.obs[real], flights.steps.act[real][:, 0]
    flagged = obs[:, 0] > 0.5
    np.testing.assert_allclose(act[~flagged], obs[~flagged, 3], atol=1e-6)
    turn = act[flagged] - obs[flagged, 3]
    assert np.abs(turn).min() >= np.pi / 4 - 1e-4
    assert 0.2 < (turn > 0).mean() < 0.8
    hit = np.asarray(blocked(env.trees, jnp.asarray(obs[:, 1]), jnp.asarray(obs[:, 2]), jnp.asarray(act)))
    assert hit.mean() < 0.01
    assert 50 < flights.returns.mean() < 80  # the paper's expert scores 65 on its layout


def test_the_forest_expert_gives_the_same_actions_on_numpy_and_jax():
    expert = us.Forest().expert()
    _, obs = us.Forest().reset(jax.random.key(0))
    batch = np.asarray(obs)[None].repeat(5, 0)
    batch[:, 0] = [0, 1, 1, 1, 0]
    host = jax.tree.map(np.asarray, expert)
    np.testing.assert_allclose(
        host.mode(start(), batch), jax.vmap(lambda o: expert.mode(start(), o))(jnp.asarray(batch)), atol=1e-5
    )


class Counter(gymnasium.Env):
    """Observes a count that rises by one per step. Terminates or truncates after five steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    terminates = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.offset = float(self.np_random.integers(1000))
        return np.array([self.offset], np.float32), {}

    def step(self, action):
        self.count += 1
        over = self.count == 5
        obs = np.array([self.offset + self.count], np.float32)
        return obs, float(action[0]), over and self.terminates, over and not self.terminates, {}


class Terminating(Counter):
    terminates = True


@pytest.mark.parametrize("kind", [Counter, Terminating])
def test_a_time_limit_is_not_a_terminal_state(kind):
    """The final observation belongs to the finished episode, not to the next one."""
    episodes = us.rollout(us.make(kind, 10), lambda obs: np.full((len(obs), 1), 0.5), 3, seed=7)
    np.testing.assert_array_equal(episodes.lengths, 5)
    np.testing.assert_array_equal(episodes.steps.last[:, -1], True)
    np.testing.assert_array_equal(episodes.steps.terminal[:, -1], kind is Terminating)
    assert not episodes.steps.terminal[:, :-1].any()
    np.testing.assert_allclose(episodes.steps.next_obs[..., 0], episodes.steps.obs[..., 0] + 1)
    np.testing.assert_allclose(episodes.returns, 2.5)
    demonstrations = us.record(us.make(kind, 10), lambda obs: np.full((len(obs), 1), 0.5), 3, workers=0)
    assert demonstrations.terminals.sum() == (3 if kind is Terminating else 0)
    assert demonstrations.transitions().last.sum() == 3


def test_the_seed_determines_the_episodes():
    act = lambda obs: np.zeros((len(obs), 1))  # noqa: E731
    first, again, other = (us.rollout(us.make(Counter, 10), act, 4, seed=s).steps.obs[:, 0, 0] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(set(first)) > 1


def test_an_expert_has_the_same_return_in_both_pendulums():
    """One policy in JAX and in Gymnasium: the returns agree up to sampling error."""
    expert = us.Pendulum().expert()
    ours = us.rollout("Pendulum", expert, 200, seed=0).returns
    theirs = us.rollout("Pendulum-v1", expert, 30, seed=0).returns
    assert abs(ours.mean() - theirs.mean()) < 4 * np.sqrt(ours.var() / 200 + theirs.var() / 30)
    by_function = us.rollout("Pendulum", lambda obs: np.asarray(expert.mode(start(), jnp.asarray(obs))), 200, seed=0)
    np.testing.assert_allclose(by_function.returns, ours, rtol=1e-3)


def test_an_unknown_environment_suggests_the_most_similar_name():
    with pytest.raises(UnknownNameError, match="did you mean 'Forest'"):
        us.make("forrest")
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        us.make("Cartpole-v1")
    with pytest.raises(SpecError, match="env is a int"):
        us.make(3)


def test_a_missing_extra_has_the_install_command(monkeypatch):
    def missing(name, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(ExtraError, match=r"understudy-il\[box2d\]"):
        us.make("LunarLander-v3")


@pytest.mark.parametrize(
    ("actions", "words"), [(np.zeros((3, 2)), r"shape \(3, 2\)"), (np.full((3, 1), np.nan), "NaN or infinite")]
)
def test_invalid_actions_of_a_policy_raise(actions, words):
    for env in (us.make(Counter, 10), "Pendulum"):
        with pytest.raises(SpecError, match=words):
            us.rollout(env, lambda obs: actions, 3)


def test_a_policy_that_is_not_finite_raises_in_a_compiled_rollout():
    broken = Deterministic(MLP((jnp.full((3, 1), jnp.nan),), (jnp.zeros(1),), "relu"))
    with pytest.raises(SpecError, match="NaN or infinite"):
        us.rollout("Pendulum", broken, 3)


class Endless(Counter):
    """Neither terminates nor truncates."""

    def step(self, action):
        obs, reward, *_ = super().step(action)
        return obs, reward, False, False, {}


def test_an_environment_without_a_time_limit_is_truncated_at_the_horizon():
    episodes = us.rollout(us.make(Endless, horizon=12), lambda obs: np.zeros((len(obs), 1)), 2)
    np.testing.assert_array_equal(episodes.lengths, 12)
    assert episodes.steps.last[:, -1].all()
    assert not episodes.steps.terminal.any()
    with pytest.raises(SettingError, match=r"^Endless has no time limit: .*--horizon N"):
        us.make(Endless)
    with pytest.raises(SettingError, match=r"^horizon is 0: "):
        us.make(Endless, 0)


def test_a_function_that_returns_no_environment_raises():
    with pytest.raises(SpecError, match="returns a int"):
        us.make(lambda: 3)
    with pytest.raises(ExtraError, match="no_such_module"):
        us.make("no_such_module:Env-v0")


class Noisy(Counter):
    """Prints to stdout and stderr when it is made and reset, from Python and from a child process."""

    def __init__(self):
        os.system("echo child; echo child >&2")
        print("made")

    def reset(self, *, seed=None, options=None):
        print("reset", file=sys.stderr)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return super().reset(seed=seed, options=options)


def test_the_output_of_a_simulator_goes_to_standard_error(capfd):
    with pytest.warns(DeprecationWarning, match="old"):
        us.rollout(us.make(Noisy, 10), lambda obs: np.zeros((len(obs), 1)), 2)
    out, err = capfd.readouterr()
    assert out == ""
    assert [err.count(word) for word in ("made", "child", "reset")] == [3, 6, 2]
    print("visible again")
    assert capfd.readouterr().out == "visible again\n"


class Unfinished(CartPoleEnv):
    """A CartPole that goes wrong when it is made, or when it is closed."""

    made = 0

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        if fault == "raise":
            raise ValueError("no licence\nfound")
        if fault == "exit":
            sys.exit(0)
        if fault == "spaces":
            Unfinished.made += 1
            self.action_space = gymnasium.spaces.Discrete(1 + Unfinished.made)

    def close(self):
        if self.fault == "close":
            raise ValueError("already closed")


@pytest.mark.parametrize(("fault", "words"), [("raise", "ValueError: no licence"), ("exit", "SystemExit: 0")])
def test_a_constructor_that_fails_is_one_line_that_names_the_environment(fault, words):
    with pytest.raises(WorkerError, match=f"^Unfinished could not be made: {words}$"):
        us.make(functools.partial(Unfinished, fault))


@pytest.mark.parametrize("name", ["os:", ":CartPole-v1", "a:b:c", "os:CartPole-v9", "../os:CartPole-v1"])
def test_a_malformed_name_is_one_line_that_names_the_environment(name):
    with pytest.raises((WorkerError, ExtraError), match=f"^{name} "):
        us.make(name)


def test_an_environment_that_cannot_be_closed_loses_no_episodes():
    env = us.make(functools.partial(Unfinished, "close"), 5)
    assert us.rollout(env, lambda obs: np.zeros(len(obs), int), 2).lengths.tolist() == [5, 5]


def test_an_environment_whose_spaces_change_is_refused():
    env = us.make(functools.partial(Unfinished, "spaces"), 10)
    with pytest.raises(SpecError, match=r"^Unfinished has the spaces .*n=2.*n=3.* when it is made again"):
        env.vector(1)


def test_an_unknown_environment_names_the_command_and_the_form_of_your_own():
    with pytest.raises(UnknownNameError) as caught:
        us.make("zzz")
    assert str(caught.value) == "unknown environment 'zzz': `understudy envs` lists them. Your own: 'module:Class'."
