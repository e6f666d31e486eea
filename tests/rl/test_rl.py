"""RL players: losses against hand-computed numbers, values against exact ones, and that the players learn."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import understudy as us
from understudy.core.errors import SettingError, SpecError
from understudy.policies import start
from understudy.policies.actor import Actor
from understudy.policies.gaussian import Gaussian
from understudy.policies.networks import MLP
from understudy.rl import PPO, SAC, SoftQ, ppo, sac_losses, soft_q, updates
from understudy.rl.base import Batch, Experience
from understudy.rl.optimism import optimistic

RANDOM = np.random.default_rng(0)
BOX = us.Spec((2,), us.Continuous((-1.0,), (1.0,)), 10)


def affine(weight, bias, input_indices=None):
    """A network of one layer."""
    return MLP((jnp.asarray(weight, jnp.float32),), (jnp.asarray(bias, jnp.float32),), "relu", input_indices)


def make_steps(act, **fields):
    """Two steps with two observations each, with defaults for the fields not given."""
    defaults = {
        "obs": [[1.0, 0.0], [0.5, -1.0]],
        "next_obs": [[0.0, 1.0], [2.0, 0.5]],
        "reward": [1.0, -0.5],
        "bootstrap": [1.0, 1.0],
        "terminal_value": [0.0, 0.0],
        "value_bound": [np.inf, np.inf],
        "demonstrated": [0.0, 0.0],
    }
    return Batch(act=jnp.asarray(act), **{k: jnp.asarray(v, jnp.float32) for k, v in (defaults | fields).items()})


# A linear actor (mean, log σ) and two linear critics of (s, a), stacked as `updates.twins` stacks them.
ACTOR = Gaussian(affine([[0.3, -0.2], [0.1, 0.4]], [0.05, -0.5]), -20.0, 2.0, "clip")
CRITICS = affine([[[0.5], [-1.0], [2.0]], [[1.0], [0.2], [-0.3]]], [[[0.1]], [[-0.4]]])
NOISE = np.array([[0.7], [-1.2]], np.float32)


def hand_computed(obs):
    """Actions, log-probabilities and both critics' values in NumPy, from the formulas, in float64."""
    obs = np.asarray(obs, float)
    mean = obs @ [0.3, 0.1] + 0.05
    log_std = obs @ [-0.2, 0.4] - 0.5
    u = mean + np.exp(log_std) * NOISE[:, 0]
    act = np.tanh(u)
    log_prob = -0.5 * NOISE[:, 0] ** 2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - act**2)
    return act, log_prob, q_hand_computed(obs, act)


def q_hand_computed(obs, act):
    obs = np.asarray(obs, float)
    return np.stack([obs @ [0.5, -1.0] + 2.0 * act + 0.1, obs @ [1.0, 0.2] - 0.3 * act - 0.4])


smallest = SAC().combine


def test_the_sac_target_uses_the_smaller_critic_and_the_entropy():
    batch = make_steps([[0.2], [-0.4]])
    _, log_prob, q = hand_computed(batch.next_obs)
    expected = np.array([1.0, -0.5]) + 0.9 * (q.min(0) - 0.3 * log_prob)
    np.testing.assert_allclose(
        sac_losses.target(batch, ACTOR, CRITICS, 0.3, 0.9, NOISE, False, smallest), expected, rtol=1e-5
    )


def test_truncation_bootstraps_termination_does_not_and_an_absorbing_state_adds_its_value():
    def targets(bootstrap, terminal_value):
        batch = make_steps([[0.2], [-0.4]], bootstrap=[bootstrap] * 2, terminal_value=[terminal_value] * 2)
        return np.asarray(sac_losses.target(batch, ACTOR, CRITICS, 0.3, 0.9, NOISE, False, smallest))

    reward = np.array([1.0, -0.5])
    assert (np.abs(targets(1, 0) - reward) > 0.1).all()
    np.testing.assert_allclose(targets(0, 0), reward)
    np.testing.assert_allclose(targets(0, 5.0), reward + 0.9 * 5.0, rtol=1e-6)


def test_sac_losses_are_those_worked_out_hand_computed():
    batch = make_steps([[0.2], [-0.4]])
    y = np.array([0.7, -0.1], np.float32)
    q = q_hand_computed(batch.obs, np.array([0.2, -0.4]))
    loss, mean = sac_losses.critics_loss(CRITICS, batch, y)
    np.testing.assert_allclose(loss, 0.5 * ((q - y) ** 2).mean(1).sum(), rtol=1e-5)
    np.testing.assert_allclose(mean, q.mean(), rtol=1e-5)
    _, log_prob, q = hand_computed(batch.obs)
    loss, mean = sac_losses.actor_loss(ACTOR, CRITICS, batch, 0.3, NOISE, 0.0, smallest)
    np.testing.assert_allclose(loss, (0.3 * log_prob - q.min(0)).mean(), rtol=1e-5)
    np.testing.assert_allclose(mean, log_prob.mean(), rtol=1e-5)
    np.testing.assert_allclose(sac_losses.temperature_loss(-0.7, mean, -1.0), 0.7 * (log_prob.mean() - 1), rtol=1e-5)


def test_the_cloning_term_is_the_error_of_the_mean_action_on_demonstrated_steps_times_the_size_of_values():
    batch = make_steps([[0.2], [-0.4]], demonstrated=[0.0, 1.0])
    _, log_prob, q = hand_computed(batch.obs)
    mean = np.tanh(np.asarray(ACTOR.parameters(batch.obs)[0]))[:, 0]
    error = (mean[1] + 0.4) ** 2
    loss, _ = sac_losses.actor_loss(ACTOR, CRITICS, batch, 0.3, NOISE, 0.7, smallest)
    expected = (0.3 * log_prob - q.min(0)).mean() + 0.7 * np.abs(q.min(0)).mean() * error
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    none = make_steps([[0.2], [-0.4]])
    assert sac_losses.actor_loss(ACTOR, CRITICS, none, 0.3, NOISE, 0.7, smallest)[0] == pytest.approx(
        (0.3 * log_prob - q.min(0)).mean(), rel=1e-5
    )


@pytest.mark.parametrize(("optimism", "clip"), [(0.0, 1.0), (1.0, 1e6), (1.0, 0.25), (2.0, 0.25)])
def test_optimism_adds_the_clipped_deviation_of_the_critics_to_their_mean(optimism, clip):
    """In the target and in the policy's loss, with three critics."""
    weights = jnp.concatenate([CRITICS.weights[0], jnp.array([[[0.3], [0.4], [1.0]]])])
    three = MLP((weights,), (jnp.array([[[0.1]], [[-0.4]], [[0.2]]]),), "relu")
    combine = SAC(critics=3, optimism=optimism, optimism_clip=clip).combine
    batch = make_steps([[0.2], [-0.4]])

    def value(obs):
        act, log_prob, pair = hand_computed(obs)
        third = np.asarray(obs, float) @ [0.3, 0.4] + act + 0.2
        q = np.concatenate([pair, third[None]])
        return q.mean(0) + optimism * np.minimum(q.std(0), clip), log_prob

    q, log_prob = value(batch.next_obs)
    expected = np.array([1.0, -0.5]) + 0.9 * (q - 0.3 * log_prob)
    np.testing.assert_allclose(
        sac_losses.target(batch, ACTOR, three, 0.3, 0.9, NOISE, False, combine), expected, rtol=1e-5
    )
    q, log_prob = value(batch.obs)
    loss, _ = sac_losses.actor_loss(ACTOR, three, batch, 0.3, NOISE, 0.0, combine)
    np.testing.assert_allclose(loss, (0.3 * log_prob - q).mean(), rtol=1e-5)


def test_critics_that_agree_have_a_finite_gradient():
    gradient = jax.grad(lambda q: optimistic(q, 1.0, 0.5).sum())(jnp.ones((3, 4)))
    np.testing.assert_allclose(gradient, 1 / 3, rtol=1e-5)


def test_an_ensemble_has_different_critics_and_the_first_two_settings_change_nothing_else():
    (_, plain), (player, many) = sac_state(), sac_state(critics=5, optimism=1.0)
    assert many.critics.weights[0].shape == (5, *plain.critics.weights[0].shape[1:])
    assert len(np.unique(np.asarray(many.critics.weights[0])[:, 0, 0])) == 5
    assert not changed(plain.actor, many.actor)
    after, metrics = player.step(many, make_steps([[0.2], [-0.4]]), jnp.stack([NOISE, -NOISE]), 1e-2, 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.critics, after.actor, metrics)))


def test_the_policy_can_have_a_learning_rate_of_its_own_that_follows_the_schedule():
    batch, noise = make_steps([[0.2], [-0.4]]), jnp.stack([NOISE, -NOISE])
    player, state = sac_state(lr=1e-2)
    slow, _ = sac_state(lr=1e-2, policy_lr=1e-3)
    usual, scaled = (one.step(state, batch, noise, 5e-3, 0.5)[0] for one in (player, slow))  # half of lr is left
    for part, factor in (("actor", 0.1), ("critics", 1.0), ("log_temperature", 1.0)):
        leaves = (jax.tree.leaves(getattr(one, part)) for one in (state, usual, scaled))
        for before, a, b in zip(*leaves, strict=True):
            np.testing.assert_allclose(b - before, factor * (a - before), rtol=1e-3, atol=1e-7)


def test_policy_and_temperature_wait_until_the_critics_are_warm():
    player, state = sac_state(critic_warmup=2)
    batch, noise, step = make_steps([[0.2], [-0.4]]), jnp.stack([NOISE, -NOISE]), jax.jit(player.step)
    for expected in (False, False, True):
        after, _ = step(state, batch, noise, 1e-2, 0.0)
        assert changed(state.critics, after.critics)
        assert changed(state.actor, after.actor) == expected
        assert changed(state.log_temperature, after.log_temperature) == expected
        state = after
    _, state = sac_state(critic_warmup=1000)
    assert changed(state.actor, step(state, batch, noise, 1e-2, 0.2)[0].actor)  # a tenth of training is over


def test_a_clone_acts_as_demonstrated_with_the_target_entropy():
    player, state = sac_state(target_entropy=-1.5)
    obs = jax.random.uniform(jax.random.key(1), (256, 2), minval=-1.0)
    act = 0.8 * obs[:, :1]

    def sample(key):
        rows = jax.random.randint(key, (64,), 0, 256)
        steps = make_steps([[0.2]])
        return steps._replace(obs=obs[rows], act=act[rows], demonstrated=jnp.ones(64))

    cloned = jax.jit(lambda s, k: player.clone(s, sample, 2000, k))(state, jax.random.key(2))
    mean, log_std = cloned.actor.parameters(obs)
    assert np.abs(np.tanh(mean) - act).mean() < 0.05
    np.testing.assert_allclose(log_std + 0.5 * np.log(2 * np.pi * np.e), -1.5, atol=1e-5)
    assert not changed(state.critics, cloned.critics)


def test_normed_critics_are_bounded_far_from_the_data():
    player = SAC(hidden=(16, 16), layer_norm=True)
    critics = player.init(jax.random.key(0), BOX).critics
    near, far = (sac_losses.values(critics, jnp.full((1, 2), x), jnp.zeros((1, 1))) for x in (1e2, 1e6))
    np.testing.assert_allclose(near, far, rtol=0.05, atol=0.05)


def test_with_bound_values_no_target_is_above_what_rewards_allow():
    """Values far above the bound are cut to it. A bound above the values, or none, changes nothing."""
    high = affine([[[0.5], [-1.0], [2.0]], [[1.0], [0.2], [-0.3]]], [[[1e6]], [[1e6]]])

    def targets(bound, bound_values):
        batch = make_steps([[0.2], [-0.4]], value_bound=[bound] * 2)
        return np.asarray(sac_losses.target(batch, ACTOR, high, 0.3, 0.9, NOISE, bound_values, smallest))

    entropy = 0.3 * np.log(2) / (1 - 0.9)  # the largest of one action in [-1, 1], at every step
    np.testing.assert_allclose(targets(2.0, True), np.array([1.0, -0.5]) + 0.9 * (2.0 + entropy), rtol=1e-5)
    for bound in (1e7, np.inf):
        np.testing.assert_array_equal(targets(bound, True), targets(bound, False))


def test_the_temperature_grows_while_the_entropy_is_below_its_target():
    assert jax.grad(sac_losses.temperature_loss)(0.0, 3.0, -1.0) < 0  # log π is high: log α rises
    assert jax.grad(sac_losses.temperature_loss)(0.0, -3.0, -1.0) > 0


def sac_state(**settings):
    player = SAC(hidden=(4,), gradient_steps=1, **settings)
    return player, jax.jit(lambda key: player.init(key, BOX))(jax.random.key(0))


def changed(before, after):
    before, after = jax.device_get((before, after))
    return any((a != b).any() for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


def test_a_sac_step_trains_critics_and_actor_each_on_its_own_loss():
    player, state = sac_state(temperature=0.2)
    batch, noise = make_steps([[0.2], [-0.4]]), jnp.stack([NOISE, -NOISE])
    after, metrics = jax.jit(player.step)(state, batch, noise, 1e-2, 0.0)

    @jax.jit
    def one_by_one(state):
        adam = optax.adam(1e-2)
        y = sac_losses.target(batch, state.actor, state.targets, 0.2, player.discount, noise[1], False, smallest)
        gradient = jax.grad(lambda c: sac_losses.critics_loss(c, batch, y)[0])(state.critics)
        critics, _ = updates.descend(adam, gradient, state.critics, state.critics_opt_state)
        gradient = jax.grad(lambda a: sac_losses.actor_loss(a, critics, batch, 0.2, noise[0], 0.0, smallest)[0])(
            state.actor
        )
        actor, _ = updates.descend(adam, gradient, state.actor, state.actor_opt_state)
        return critics, actor

    critics, actor = one_by_one(state)
    for ours, expected in ((after.critics, critics), (after.actor, actor)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, expected)
    assert after.log_temperature == state.log_temperature
    assert metrics["temperature"] == np.float32(0.2)


def test_targets_follow_by_polyak_averaging():
    player, state = sac_state(tau=0.25)
    after, _ = jax.jit(player.step)(state, make_steps([[0.2], [-0.4]]), jnp.stack([NOISE, NOISE]), 1e-2, 0.0)
    assert changed(state.critics, after.critics)
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, state.targets, after.critics)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), after.targets, expected)


def test_the_linear_schedule_ends_at_zero():
    rates = [float(updates.learning_rate(0.4, "linear", jnp.asarray(p))) for p in (0.0, 0.25, 1.0, 1.1)]
    np.testing.assert_allclose(rates, [0.4, 0.3, 0.0, 0.0], atol=1e-7)
    assert updates.learning_rate(0.4, "constant", jnp.asarray(0.9)) == 0.4
    player, state = sac_state()
    experience = whole_batch(make_steps([[0.2], [-0.4]]))
    update = jax.jit(lambda progress: player.improve(state, experience, progress, jax.random.key(0))[0])
    after = update(1.0)
    assert not changed((state.actor, state.critics), (after.actor, after.critics))
    after = update(0.5)
    assert changed(state.actor, after.actor)
    assert changed(state.critics, after.critics)


def whole_batch(batch):
    """Experience whose minibatches are the whole batch."""
    return Experience(lambda key: batch, jax.tree.map(lambda x: x[None], batch), jnp.ones((1, len(batch.reward)), bool))


def test_draw_from_agrees_with_log_prob():
    obs, noise = RANDOM.normal(size=(50, 2)).astype(np.float32), RANDOM.normal(size=(50, 1)).astype(np.float32)
    for policy in (ACTOR, replace(ACTOR, log_std_min=-2.0, log_std_max=0.5, bound="tanh")):
        act, log_prob = policy.draw_from(jnp.asarray(obs), noise)
        assert np.abs(act).max() < 0.9999
        np.testing.assert_allclose(log_prob, policy.log_prob(start(), jnp.asarray(obs), act), rtol=1e-3, atol=1e-4)


def test_the_density_of_draw_from_integrates_to_one():
    noise = np.linspace(-9, 9, 20_001)[:, None]
    obs = np.broadcast_to(np.array([1.0, 2.0]), (len(noise), 2))
    act, log_prob = jax.tree.map(np.asarray, ACTOR).draw_from(obs, noise)
    assert np.trapezoid(np.exp(log_prob), act[:, 0]) == pytest.approx(1, abs=1e-4)


def test_draw_from_is_finite_and_differentiable_near_the_action_bounds():
    far = replace(ACTOR, net=affine([[40.0, 0.0], [0.0, 0.0]], [0.0, -1.0]))

    def log_prob(policy):
        return policy.draw_from(jnp.asarray([[1.0, 0.0], [-1.0, 0.0]]), NOISE)[1].sum()

    value, gradient = jax.value_and_grad(log_prob)(far)
    assert np.isfinite(value)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def test_log_std_is_clipped_or_squashed_to_its_range():
    wild = replace(ACTOR, net=affine([[0.0, 1.0], [0.0, 0.0]], [0.0, 0.0]))
    obs = jnp.asarray([[-50.0, 0.0], [0.7, 0.0], [9.0, 0.0]])
    np.testing.assert_allclose(wild.parameters(obs)[1][:, 0], [-20, 0.7, 2])
    squashed = replace(wild, log_std_min=-5.0, bound="tanh").parameters(obs)[1][:, 0]
    np.testing.assert_allclose(squashed, [-5, -5 + 3.5 * (np.tanh(0.7) + 1), 2], rtol=1e-5)


@pytest.mark.parametrize(
    "player", [SAC(hidden=(8,)), SAC(hidden=(8,), sde=True), PPO(hidden=(8,))], ids=["SAC", "SAC, sde", "PPO"]
)
def test_an_actor_acts_the_same_on_numpy_and_from_a_file(player, tmp_path):
    spec = us.Spec((3,), us.Continuous((-1.0,) * 2, (1.0,) * 2), 10, policy_obs=(2, 0))
    policy = player.policy(player.init(jax.random.key(0), spec))
    obs = RANDOM.normal(size=(7, 3)).astype(np.float32)
    host = jax.tree.map(np.asarray, policy)
    np.testing.assert_allclose(host.mode(start(), obs), policy.mode(start(), jnp.asarray(obs)), atol=1e-6)
    for ours, theirs in zip(host.parameters(obs), policy.parameters(jnp.asarray(obs)), strict=True):
        assert isinstance(ours, np.ndarray)
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    noise = RANDOM.normal(size=(7, 2)).astype(np.float32)
    for ours, theirs in zip(host.draw_from(obs, noise), policy.draw_from(jnp.asarray(obs), noise), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    hidden = obs + np.array([0, 1, 0], np.float32)
    np.testing.assert_array_equal(host.mode(start(), hidden), host.mode(start(), obs))
    Actor(policy, spec).save(tmp_path / "actor.npz")
    np.testing.assert_array_equal(us.load_policy(tmp_path / "actor.npz")(obs), host.mode(start(), obs))


def test_uniform_initialisation_fills_its_range():
    net = MLP.init(jax.random.key(0), 16, (400,), 3, init="uniform")
    for inputs, weight, bias in zip((16, 400), net.weights, net.biases, strict=True):
        for x in (weight, bias):
            assert float(jnp.abs(x).max()) <= inputs**-0.5
        assert float(jnp.abs(weight).max()) > 0.99 * inputs**-0.5
        assert float(weight.std()) == pytest.approx(inputs**-0.5 / math.sqrt(3), rel=0.05)
    assert bool((net.biases[0] != 0).all())


def test_twins_are_two_different_networks():
    both = updates.twins(jax.random.key(0), 3, (5,), 2, input_indices=(2, 0))
    obs = RANDOM.normal(size=(4, 3)).astype(np.float32)
    answers = both(jnp.asarray(obs))
    assert answers.shape == (2, 4, 2)
    for i in range(2):
        one = MLP(tuple(w[i] for w in both.weights), tuple(b[i, 0] for b in both.biases), "relu", (2, 0))
        np.testing.assert_allclose(answers[i], one(jnp.asarray(obs)), rtol=1e-5, atol=1e-6)
    assert float(jnp.abs(answers[0] - answers[1]).max()) > 1e-3


def test_soft_q_target_and_losses_are_those_worked_out_hand_computed():
    q_net = affine([[[0.5, 1.0, 0.0], [-1.0, 0.2, 0.3]], [[0.4, 0.9, 0.2], [0.1, -0.2, 1.0]]], np.zeros((2, 1, 3)))
    batch = make_steps([2, 0], bootstrap=[1, 0], terminal_value=[0, 3])
    q = np.einsum("ni,kia->kna", batch.next_obs, q_net.weights[0]).min(0)
    value = 0.2 * np.log(np.exp(q / 0.2).sum(-1))
    y = np.array([1 + 0.9 * value[0], -0.5 + 0.9 * 3])
    np.testing.assert_allclose(soft_q.target(batch, q_net, 0.2, 0.9), y, rtol=1e-5)
    # Values are clipped to the bound of rewards and entropy.
    narrow = batch._replace(bootstrap=jnp.ones(2), terminal_value=jnp.zeros(2), value_bound=jnp.array([0.3, 0.3]))
    most = 0.3 + 0.2 * np.log(3) / (1 - 0.9)
    for shift in (50, -50):
        extreme = soft_q.target(narrow, affine(q_net.weights[0], np.full((2, 1, 3), shift)), 0.2, 0.9)
        np.testing.assert_allclose(extreme, batch.reward + 0.9 * (most if shift > 0 else -0.3), rtol=1e-5)
    taken = np.einsum("ni,kia->kna", batch.obs, q_net.weights[0])[:, [0, 1], [2, 0]]
    loss, _ = soft_q.critics_loss(q_net, batch, jnp.asarray(y))
    np.testing.assert_allclose(loss, 0.5 * ((taken - y) ** 2).mean(1).sum(), rtol=1e-5)
    p = np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(updates.entropy(jnp.log(p)), -(p * np.log(p)).sum(), rtol=1e-5)


# Three states, two actions: the first moves on, the second moves back. Moving on from the last state terminates.
CHAIN_NEXT = np.array([[1, 0], [2, 0], [2, 1]])
CHAIN_REWARD = np.array([[0.0, 0.1], [0.2, -0.1], [1.0, 0.3]])
CHAIN_ENDS = np.array([[0, 0], [0, 0], [1, 0]])
CHAIN = us.Spec((3,), us.Discrete(2), 20)


def chain():
    """Every (state, action) of the chain once, states as one-hot vectors."""
    states, actions = np.repeat(np.arange(3), 2), np.tile([0, 1], 3)
    ends = CHAIN_ENDS[states, actions].astype(np.float32)
    eye = np.eye(3, dtype=np.float32)
    steps = (
        eye[states],
        actions,
        eye[CHAIN_NEXT[states, actions]],
        CHAIN_REWARD[states, actions],
        1 - ends,
        2.0 * ends,
        np.full(6, np.inf),
        np.zeros(6),
    )
    return Batch(*(jnp.asarray(x, jnp.int32 if x is actions else jnp.float32) for x in steps))


def exact_soft_q(alpha, discount):
    q = np.zeros((3, 2))
    for _ in range(2000):
        value = alpha * np.log(np.exp(q / alpha).sum(1))
        q = CHAIN_REWARD + discount * np.where(CHAIN_ENDS == 1, 2.0, value[CHAIN_NEXT])
    return q


def test_soft_q_learns_the_exact_soft_values_of_a_small_mdp():
    player = SoftQ(
        lr=1e-2, lr_schedule="linear", discount=0.9, tau=0.05, temperature=0.3, gradient_steps=500, hidden=(16,)
    )
    state = player.init(jax.random.key(0), CHAIN)
    update = jax.jit(lambda state, progress: player.improve(state, whole_batch(chain()), progress, jax.random.key(1)))
    for i in range(4):
        state, metrics = update(state, jnp.asarray(i / 4))
    exact, eye = exact_soft_q(0.3, 0.9), jnp.eye(3)
    np.testing.assert_allclose(state.critics(eye), np.stack([exact] * 2), atol=0.03)
    assert metrics["temperature"] == pytest.approx(0.3)
    p = jax.nn.softmax(player.policy(state).net(eye))
    expected = np.exp(exact / 0.3) / np.exp(exact / 0.3).sum(1, keepdims=True)
    np.testing.assert_allclose(p, expected, atol=0.03)


def test_soft_q_finds_the_temperature_of_its_target_entropy():
    player = SoftQ(
        lr=1e-2, discount=0.9, tau=0.05, temperature=0.01, target_entropy=0.5, gradient_steps=500, hidden=(16,)
    )
    state = player.init(jax.random.key(0), CHAIN)
    update = jax.jit(lambda state: player.improve(state, whole_batch(chain()), jnp.asarray(0.0), jax.random.key(1)))
    for _ in range(4):
        state, metrics = update(state)
    assert metrics["entropy"] == pytest.approx(0.5 * math.log(2), abs=0.03)
    assert metrics["temperature"] > 0.02
    held = updates.entropy(player.policy(state).net(chain().obs)).mean()
    assert held == pytest.approx(0.5 * math.log(2), abs=0.05)


def slow_advantages(reward, value, next_value, bootstrap, terminal_value, last, discount, trace):
    advantage = np.zeros(len(reward))
    for t in range(len(reward)):
        weight = 1.0
        for k in range(t, len(reward)):
            advantage[t] += weight * (
                reward[k] + discount * (bootstrap[k] * next_value[k] + terminal_value[k]) - value[k]
            )
            if last[k]:
                break
            weight *= discount * trace
    return advantage


def test_advantages_agree_with_a_slow_loop_at_termination_truncation_and_the_last_step():
    envs, time = 2, 8
    obs, next_obs = (RANDOM.normal(size=(envs, time, 2)).astype(np.float32) for _ in range(2))
    reward = RANDOM.normal(size=(envs, time)).astype(np.float32)
    last = np.zeros((envs, time), bool)
    last[0, 2] = last[0, 5] = last[1, 3] = True  # in the first environment a termination and a truncation
    bootstrap = np.ones((envs, time), np.float32)
    bootstrap[0, 2] = bootstrap[1, 3] = 0.0
    terminal_value = np.zeros((envs, time), np.float32)
    terminal_value[1, 3] = 1.7  # the second environment ends in an absorbing state
    act = RANDOM.uniform(-0.9, 0.9, (envs, time, 1)).astype(np.float32)
    bound = np.full((envs, time), np.inf, np.float32)
    new_steps = Batch(
        *map(jnp.asarray, (obs, act, next_obs, reward, bootstrap, terminal_value, bound, np.zeros_like(bound)))
    )
    player = PPO(hidden=(4,), discount=0.9, trace=0.8)
    state = player.init(jax.random.key(0), BOX)
    steps = player.prepare(state, new_steps, jnp.asarray(last))
    value, next_value = (np.asarray(state.value(jnp.asarray(x))[..., 0]) for x in (obs, next_obs))
    expected = np.stack(
        [
            slow_advantages(reward[i], value[i], next_value[i], bootstrap[i], terminal_value[i], last[i], 0.9, 0.8)
            for i in range(envs)
        ]
    )
    np.testing.assert_allclose(steps.advantage, expected.reshape(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(steps.returns, (expected + value).reshape(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(steps.obs, obs.reshape(-1, 2))
    np.testing.assert_allclose(
        steps.log_prob, state.actor.log_prob(start(), jnp.asarray(obs), jnp.asarray(act)).reshape(-1), rtol=1e-5
    )


def test_the_surrogate_is_clipped_only_in_the_direction_that_improves_it():
    ratio, advantage = jnp.array([1.5, 1.5, 0.5, 0.5, 1.1]), jnp.array([2.0, -2.0, 2.0, -2.0, 1.0])
    np.testing.assert_allclose(ppo.surrogate(ratio, advantage, 0.2), [-2.4, 3.0, -1.0, 1.6, -1.1], rtol=1e-6)
    slopes = jax.vmap(jax.grad(ppo.surrogate), (0, 0, None))(ratio, advantage, 0.2)
    np.testing.assert_allclose(slopes, [0, 2, -2, 0, -1], rtol=1e-6)


def bandit(act, reward):
    """One-step episodes whose only state is zero."""
    count = len(reward)
    zero = jnp.zeros((count, 1))
    return Batch(
        zero, act, zero, reward, jnp.zeros(count), jnp.zeros(count), jnp.full(count, jnp.inf), jnp.zeros(count)
    )


ONE = us.Spec((1,), us.Continuous((-1.0,), (1.0,)), 1)


@pytest.mark.slow
@pytest.mark.parametrize("sde", [False, True])
def test_sac_finds_the_best_action_of_a_bandit_and_holds_its_entropy_at_the_target(sde):
    player = SAC(lr=3e-3, lr_schedule="constant", hidden=(32,), gradient_steps=1000, target_entropy=-1.0, sde=sde)

    def sample(key):
        act = jax.random.uniform(key, (32, 1), minval=-1, maxval=1)
        return bandit(act, -jnp.square(act[:, 0] - 0.3))

    update = jax.jit(lambda s: player.improve(s, Experience(sample, None, None), jnp.asarray(0.0), jax.random.key(1)))
    state = player.init(jax.random.key(0), ONE)
    for _ in range(3):
        state, metrics = update(state)
    assert player.policy(state).mode(start(), jnp.zeros(1))[0] == pytest.approx(0.3, abs=0.05)
    assert metrics["entropy"] == pytest.approx(-1.0, abs=0.1)
    assert metrics["temperature"] < 0.5
    assert set(metrics) == {"critic_loss", "actor_loss", "temperature", "entropy", "q"}


def train_on_bandits(spec, reward_of, count):
    """A run of PPO as one program: each update learns from 64 one-step episodes of the current policy."""

    def update(carry, inputs):
        (player, state), (progress, keys) = carry, inputs
        act = player.policy(state).draw(start(), jnp.zeros((64, 1)), keys[0])
        new_steps = jax.tree.map(lambda x: x[:, None], bandit(act, reward_of(act)))
        experience = Experience(None, new_steps, jnp.ones((64, 1), bool))
        state, metrics = player.improve(state, experience, progress, keys[1])
        return (player, state), metrics

    def train(player, seed=0):
        player = jax.tree.map(jnp.asarray, player)
        inputs = (jnp.arange(1, count + 1) / count, jax.random.split(jax.random.key(seed + 1), (count, 2)))
        (_, state), metrics = jax.lax.scan(update, (player, player.init(jax.random.key(seed), spec)), inputs)
        return player.policy(state), metrics

    return jax.jit(train)


def test_ppo_finds_the_best_action_of_a_bandit():
    # A linear schedule: near the best action advantages are noise, which a constant learning rate would follow.
    train = train_on_bandits(ONE, lambda act: -jnp.square(act[:, 0] - 0.3), 150)
    policy, metrics = train(PPO(lr=3e-3, lr_schedule="linear", hidden=(16,), epochs=4, minibatch=32))
    assert policy.mode(start(), jnp.zeros(1))[0] == pytest.approx(0.3, abs=0.05)
    assert set(metrics) == {"policy_loss", "value_loss", "entropy", "clipped"}
    assert metrics["entropy"][-1] < metrics["entropy"][0] - 1


def test_ppo_finds_the_best_of_several_actions_and_an_entropy_bonus_keeps_it_stochastic():
    worth = jnp.array([0.0, 1.0, 0.5])
    train = train_on_bandits(us.Spec((1,), us.Discrete(3), 1), lambda act: worth[act], 60)
    greedy, stochastic = (
        jax.nn.softmax(train(PPO(lr=3e-3, hidden=(16,), epochs=4, minibatch=32, entropy_weight=w))[0].net(jnp.zeros(1)))
        for w in (0.0, 2.0)
    )
    assert greedy[1] > 0.95
    assert 1 / 3 < stochastic[1] < 0.9


@pytest.mark.parametrize(
    ("player", "spec", "act"),
    [
        (SAC(hidden=(4,), gradient_steps=2), BOX, [[0.2], [-0.4]]),
        (SoftQ(hidden=(4,), gradient_steps=2), us.Spec((2,), us.Discrete(3), 10), [2, 0]),
        (PPO(hidden=(4,), epochs=1), us.Spec((2,), us.Discrete(3), 10), [2, 0]),
    ],
    ids=["SAC", "SoftQ", "PPO"],
)
def test_vmap_over_seeds_agrees_with_a_loop_and_seeds_differ(player, spec, act):
    def update(state, key):
        return player.improve(state, whole_batch(make_steps(act)), jnp.asarray(0.2), key)[0]

    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.device_get(jax.jit(jax.vmap(lambda key: player.init(key, spec)))(keys))
    together, one = jax.device_get(jax.jit(jax.vmap(update))(states, keys)), jax.jit(update)
    first, second = (jax.tree.map(lambda x, i=i: x[i], together) for i in range(2))
    alone = jax.device_get(one(jax.tree.map(lambda x: x[1], states), keys[1]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), second, alone)
    assert changed(player.policy(first), player.policy(second))


def test_a_player_for_the_wrong_kind_of_actions_is_refused():
    discrete = us.Spec((2,), us.Discrete(3), 10)
    with pytest.raises(SpecError, match="SAC is for continuous"):
        SAC().init(jax.random.key(0), discrete)
    with pytest.raises(SpecError, match="SoftQ is for discrete"):
        SoftQ().init(jax.random.key(0), BOX)


@pytest.mark.parametrize(
    ("player", "settings"),
    [
        (SAC, {"lr": 0.0}),
        (SAC, {"policy_lr": 0.0}),
        (SAC, {"tau": 1.5}),
        (SAC, {"discount": 1.0}),
        (SAC, {"lr_schedule": "cosine"}),
        (SAC, {"temperature": -0.1}),
        (SAC, {"target_entropy": math.nan}),
        (SAC, {"gradient_steps": 0}),
        (SAC, {"sde": "yes"}),
        (SAC, {"critics": 0}),
        (SAC, {"optimism": -1.0}),
        (SAC, {"optimism_clip": 0.0}),
        (SAC, {"sde_steps": 0}),
        (SAC, {"sde_log_std": math.inf}),
        (SoftQ, {"temperature": 0.0}),
        (SoftQ, {"target_entropy": 1.0}),
        (PPO, {"clip": 0.0}),
        (PPO, {"minibatch": 0}),
        (PPO, {"trace": 1.1}),
    ],
)
def test_settings_out_of_range_are_named(player, settings):
    (name,) = settings
    with pytest.raises(SettingError, match=f"{name} is "):
        player(**settings)
