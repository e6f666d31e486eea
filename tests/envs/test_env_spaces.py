"""Gymnasium environments with Dict, Tuple and other spaces, actions without bounds, and goals."""

import functools
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import understudy as us
from support.spaces import NESTED, Reach, Shaped, to_goal
from understudy.collect.rollout_pool import RolloutPool
from understudy.collect.runner import Runner, StepRequest
from understudy.core.errors import DemonstrationError, SettingError, SpecError
from understudy.core.notices import UnderstudyWarning
from understudy.core.spaces import flat_observations
from understudy.policies import Categorical, Independent
from understudy.policies.gaussian import Gaussian
from understudy.train.demonstrated import SEED

SMALL = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}
ACTIONS = [
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3], start=[1, 0]),
    spaces.MultiDiscrete([[2, 2], [3, 2]]),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    spaces.MultiBinary([5, 5]),
    spaces.MultiDiscrete([20, 20, 20], start=[3, 0, 0]),
    spaces.Box(-2, 2, (2, 3)),
    spaces.Box(-1, 1, (), np.float64),
]


def shaped(**kinds):
    return us.make(functools.partial(Shaped, **kinds), 6)


def untrained(env):
    spec = env.spec
    if isinstance(spec.action, us.MultiDiscrete):
        return jax.tree.map(np.asarray, Independent.init(jax.random.key(0), spec.obs_size, spec.action.nvec, (8,)))
    kind = Gaussian if spec.num_actions is None else Categorical
    return jax.tree.map(np.asarray, kind.init(jax.random.key(0), spec.obs_size, spec.action_size, (8,)))


def test_a_nested_observation_is_the_flat_one_of_gymnasium_with_names():
    env = shaped(observations=NESTED)
    episodes = us.rollout(env, lambda obs: np.zeros((len(obs), 1)), 2, seed=3)
    assert env.spec.obs_parts == (("0.arm", 6), ("0.grip", 3), ("1", 2), ("2", 5))
    seed = int(np.random.SeedSequence(3).generate_state(2)[0])
    one = Shaped(NESTED)
    first, _ = one.reset(seed=seed)
    np.testing.assert_array_equal(episodes.steps.obs[0, 0], spaces.flatten(NESTED, first))
    np.testing.assert_array_equal(episodes.steps.obs[0, 0], flat_observations(NESTED, first))
    assert episodes.steps.obs.dtype == np.float32


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_actions_reach_the_environment_in_its_own_space(space):
    """`Shaped` asserts that its space contains each action. Random and drawn actions, in episodes and in chunks."""
    env = shaped(actions=space)
    policy = untrained(env)
    episodes = us.rollout(env, policy, 3, deterministic=False)
    np.testing.assert_array_equal(episodes.lengths, 6)
    chunk = Runner(env, (1,), 2, 10).play(StepRequest(policy, False, 5)).chunk
    if isinstance(env.spec.action, us.Discrete):
        assert len(np.unique(chunk.act)) > 1
        assert chunk.act.max() < env.spec.action.n


def test_a_combined_action_is_decoded_to_its_digits():
    one = Shaped(actions=spaces.MultiDiscrete([2, 3], start=[1, 0]))
    kept = []

    def make():
        made = Shaped(actions=one.action_space)
        kept.append(made)
        return made

    us.rollout(us.make(make, 6), lambda obs: np.full(len(obs), 4), 1)
    np.testing.assert_array_equal(kept[-1].taken[0], [2, 1])  # 4 = 1 * 3 + 1


def test_a_flat_box_takes_the_same_path_as_before():
    env, policy = us.make("Pendulum-v1"), untrained(us.make("Pendulum-v1"))
    here = us.rollout(env, policy, 2, seed=4)
    theirs = gymnasium.make("Pendulum-v1")
    obs, _ = theirs.reset(seed=int(np.random.SeedSequence(4).generate_state(2)[0]))
    for t in range(20):
        np.testing.assert_array_equal(here.steps.obs[0, t], obs)
        obs, reward, *_ = theirs.step(here.steps.act[0, t].astype(np.float32))
        assert here.rewards[0, t] == np.float32(reward)


@pytest.mark.parametrize(
    ("observations", "words"),
    [
        (spaces.Box(0, 255, (64, 64, 3), np.uint8), "image observation .*images are not supported yet"),
        (spaces.Dict({"camera": spaces.Box(0, 255, (84, 84), np.uint8)}), "image observation 'camera'"),
        (spaces.Text(5), "cannot be flattened"),
    ],
)
def test_an_observation_that_cannot_be_flattened_is_one_line(observations, words):
    with pytest.raises(SpecError, match=f"^Shaped has the .*{words}") as error:
        shaped(observations=observations)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", "a dict of observation, achieved_goal without 'desired_goal' as its observation in"),
        ("renamed", "a dict of .*, goal without 'desired_goal' as its observation in"),
        ("shape", r"an array of float64 of shape \(3,\) in its observation 'observation' in"),
        ("text", "the text 'left' in its observation 'observation' in"),
        ("nan", "nan in its observation in"),
        ("flat", r"an array of float64 of shape \(6,\) without 'achieved_goal' as its observation in"),
    ],
)
def test_a_wrong_part_of_an_observation_is_named_with_the_step(fault, words):
    env = us.make(functools.partial(Reach, fault=fault), 8)
    with pytest.raises(SpecError, match=rf"^Reach returned {words} step 3 of the episode with seed \d+"):
        us.rollout(env, lambda obs: np.zeros((len(obs), 2)), 1)


def test_dict_observations_and_decoded_actions_are_the_same_in_a_worker():
    env = us.make(functools.partial(Shaped, NESTED, spaces.MultiDiscrete([2, 3])), 6)
    policy = untrained(env)
    here = us.rollout(env, policy, 3, 4, deterministic=False)
    with RolloutPool(env, 1, 20.0) as pool:
        there = pool.rollout(policy, 3, 4, False).result()
    for one, two in zip(here.steps, there.steps, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="module")
def goal_demos():
    with pytest.warns(UnderstudyWarning, match=r"^Reach has actions without bounds: .*10% of it on each side$"):
        return us.record(us.make(Reach, 8), to_goal, 5, workers=0)


def test_a_recorded_action_without_bounds_is_not_clipped_and_its_range_gets_a_margin(goal_demos):
    expected = to_goal(goal_demos.observations)
    np.testing.assert_allclose(goal_demos.actions, expected, atol=1e-6)
    low, high = goal_demos.actions.min(0), goal_demos.actions.max(0)
    np.testing.assert_allclose(goal_demos.action_space.low, low - 0.1 * (high - low), rtol=1e-5)
    np.testing.assert_allclose(goal_demos.action_space.high, high + 0.1 * (high - low), rtol=1e-5)
    assert goal_demos.obs_parts == (("achieved_goal", 2), ("desired_goal", 2), ("observation", 2))


def test_bounds_from_data_get_a_margin_and_constant_dimensions_one_on_each_side(goal_demos):
    acts = np.stack([np.linspace(0, 10, 40), np.full(40, 3.0)], 1)
    demos = us.Demonstrations.from_arrays(goal_demos.observations, acts, goal_demos.lengths, horizon=8)
    with pytest.warns(UnderstudyWarning, match=r"Reach has actions without bounds: .* \[-1, 11\], \[2, 4\]$"):
        result = us.imitate(us.bc(**SMALL), demos, us.make(Reach, 8))
    assert result.policy.spec.action == us.Continuous((-1.0, 2.0), (11.0, 4.0))


def test_a_bound_of_the_space_itself_is_kept():
    half = spaces.Box(np.array([0, -np.inf], np.float32), np.inf, (2,))
    env = us.make(functools.partial(Shaped, actions=half), 6)
    bounded = env.with_action_bounds(us.Continuous((-1, -1), (1, 1)))
    assert bounded.spec.action == us.Continuous((0.0, -1.0), (1.0, 1.0))
    with pytest.raises(SpecError, match=r"^Shaped has actions without bounds"):
        env.spec  # noqa: B018
    with pytest.raises(SpecError, match="its bounds cannot be"):
        env.with_action_bounds(us.Continuous((-1,), (1,)))


def test_goals_without_bounds_train_by_name_and_are_evaluated_with_the_runs_bounds(goal_demos, tmp_path):
    seen = ("achieved_goal", "desired_goal")
    with pytest.warns(UnderstudyWarning, match="without bounds"):
        result = us.imitate(us.bc(**SMALL), goal_demos, us.make("support.spaces:Reach", 8), policy_obs=seen)
    assert result.policy.spec.policy_obs == (0, 1, 2, 3)
    result.save(tmp_path / "run")
    us.allow_import("support.spaces")
    loaded = us.load_run(tmp_path / "run")
    assert loaded.config["env"] == {"name": "support.spaces:Reach", "args": {}, "wrap": [], "horizon": 8}
    assert loaded.evaluate(episodes=2, workers=0).returns.shape == (1, 2)


def test_dagger_clips_the_experts_answers_to_bounds_that_come_from_demonstrations(goal_demos):
    small = us.Demonstrations.from_arrays(
        goal_demos.observations[:8], 0.1 * goal_demos.actions[:8], horizon=8, obs_parts=goal_demos.obs_parts
    )
    algorithm = us.dagger(**SMALL, episodes_per_round=1)
    with pytest.warns(UnderstudyWarning, match="without bounds"):
        result = us.imitate(algorithm, small, us.make(Reach, 8), expert=to_goal, workers=0)
    assert [run.status for run in result.runs] == ["finished"]


@pytest.mark.parametrize("learner", [us.bc(**SMALL), us.dagger(**SMALL, episodes_per_round=1)], ids=["bc", "dagger"])
def test_an_expert_whose_actions_have_no_bounds_is_recorded_where_no_demonstrations_are_named(learner):
    env = us.make(Reach, 8)
    with pytest.warns(UnderstudyWarning, match="without bounds"):
        result = us.imitate(learner, env=env, expert=to_goal, episodes=2, workers=0)
    with pytest.warns(UnderstudyWarning, match="without bounds"):
        expected = us.record(env, to_goal, 2, SEED, workers=0)
    assert result.policy.spec.action == expected.action_space


def test_actions_without_bounds_need_demonstrations_or_bounds():
    env = us.make(Reach, 8)
    with pytest.raises(SpecError, match=r"^Reach has actions without bounds.*with_action_bounds"):
        us.learn(us.rl.SAC(), env, 10)
    with pytest.raises(SettingError, match="half-ranges"):
        us.record(env, to_goal, 1, noise=0.1, workers=0)
    discrete = us.Demonstrations.from_arrays(np.zeros((4, 6)), np.zeros(4, int))
    with pytest.raises(DemonstrationError, match=r"^Reach has actions of 2 numbers"):
        us.imitate(us.bc(), discrete, env)


def test_a_horizon_that_demonstrations_state_is_taken_and_said(goal_demos):
    with pytest.warns(UnderstudyWarning, match=r"^Reach has no time limit: its episodes end after 8 steps"):
        result = us.imitate(us.bc(**SMALL), goal_demos, Reach)
    with pytest.warns(UnderstudyWarning, match="the horizon of the policy"):
        assert us.evaluate(result.policies, Reach, 2, workers=0).returns.shape == (1, 2)
    unstated = us.Demonstrations.from_arrays(goal_demos.observations, goal_demos.actions, goal_demos.lengths)
    with pytest.raises(SettingError, match=r"^Reach has no time limit"):
        us.imitate(us.bc(**SMALL), unstated, Reach)
    for call in (us.make, lambda env: us.record(env, to_goal, 1), lambda env: us.learn(us.rl.SAC(), env, 10)):
        with pytest.raises(SettingError, match=r"^Reach has no time limit"):
            call(Reach)


def test_demonstrations_whose_parts_are_in_another_order_take_that_of_the_environment(goal_demos):
    parts = (("desired_goal", 2), ("achieved_goal", 2), ("observation", 2))
    given = {"horizon": 40, "last_observations": goal_demos.observations[-1:]}
    swapped = us.Demonstrations.from_arrays(goal_demos.observations, goal_demos.actions, obs_parts=parts, **given)
    spec = us.make(Reach, 8).with_action_bounds(us.Continuous((-9.0, -9.0), (9.0, 9.0))).spec
    fitted = swapped.for_task(spec, "Reach")
    assert fitted.obs_parts == spec.obs_parts == (("achieved_goal", 2), ("desired_goal", 2), ("observation", 2))
    np.testing.assert_array_equal(fitted.observations, goal_demos.observations[:, [2, 3, 0, 1, 4, 5]])
    np.testing.assert_array_equal(fitted.last_observations, fitted.observations[-1:])


def test_demonstrations_with_other_parts_are_refused(goal_demos):
    parts = (("achieved_goal", 4), ("observation", 2))
    other = us.Demonstrations.from_arrays(goal_demos.observations, goal_demos.actions, horizon=40, obs_parts=parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        with pytest.raises(DemonstrationError, match="the demonstrations do not fit Reach: the parts"):
            us.imitate(us.bc(**SMALL), other, us.make(Reach, 8))
