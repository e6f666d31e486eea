"""IQ-Learn: its objective against hand-computed numbers, the expert's policy on a finite MDP, absorbing states."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import understudy as us
from support.reward import (
    FIRST_LEARNER_ROW,
    INIT,
    STEPS_WITH_ENDS,
    RecordingSAC,
    demonstrations,
    round_data,
    row_of,
    side,
)
from understudy.algorithms.reward.iqlearn import MIN_SHARE, Implicit
from understudy.algorithms.reward.moments import Counts
from understudy.core.errors import SettingError
from understudy.game.sampling import Rows, sample_share
from understudy.policies.gaussian import Gaussian
from understudy.policies.networks import MLP
from understudy.rl import SAC, SoftQ
from understudy.rl.base import Batch, Experience
from understudy.rl.inverse_q import InverseQ

RANDOM = np.random.default_rng(0)


def affine(weight, bias):
    """A network of one layer."""
    return MLP((jnp.asarray(weight, jnp.float32),), (jnp.asarray(bias, jnp.float32),), "relu")


def adam_state(networks):
    return optax.adam(1e-3).init(networks)


def batch_of(obs, act, next_obs, demonstrated, bootstrap=1.0, terminal_value=0.0):
    """Steps with rewards that a player without rewards must not see."""
    count = len(demonstrated)
    filled = [
        jnp.broadcast_to(jnp.asarray(x, jnp.float32), (count,)) for x in (7.0, bootstrap, terminal_value, jnp.inf)
    ]
    obs, next_obs, demonstrated = (jnp.asarray(x, jnp.float32) for x in (obs, next_obs, demonstrated))
    return Batch(obs, jnp.asarray(act), next_obs, *filled, demonstrated)


# ------------------------------------------------------------------------------------------ the objective


def test_the_loss_is_minus_the_objective_on_hand_made_numbers():
    """Two expert's and two learner's steps, one critic's numbers twice; β = 0.5, so 1 / (4β) is 0.5."""
    q, value, y = np.array([2.0, 1.0, 0.5, -1.0]), np.array([1.5, 2.0, 1.0, 0.0]), np.array([1.0, 0.5, 0.0, -0.5])
    batch = batch_of(np.zeros((4, 1)), np.zeros((4, 1)), np.zeros((4, 1)), [1, 1, 0, 0])
    # The expert's rewards are 1 and 0.5, all V(s) − y are 0.5, 1.5, 1 and 0.5, the squares 1, 0.25, 0.25, 0.25.
    wanted = -(1 + 0.5) / 2 + (0.5 + 1.5 + 1 + 0.5) / 4 + 0.5 * (1 + 0.25 + 0.25 + 0.25) / 4
    twice = (jnp.array([x, x], jnp.float32) for x in (q, value))
    found = InverseQ(SAC(), 0.5, 0.5, True).loss(*twice, jnp.asarray(y, jnp.float32), batch)
    assert float(found) == pytest.approx(2 * wanted)
    offline = batch._replace(demonstrated=jnp.ones(4))
    rewards = q - y
    wanted = -(q - value).mean() + 0.5 * np.square(rewards).mean()  # y cancels
    twice = (jnp.array([x, x], jnp.float32) for x in (q, value))
    found = InverseQ(SAC(), 0.5, 1.0, True).loss(*twice, jnp.asarray(y, jnp.float32), offline)
    assert float(found) == pytest.approx(2 * wanted)


STATES, TAKEN, NEXT = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 1, 0]), np.eye(3)[[1, 2, 0, 2]]
TABLES, TARGETS = RANDOM.normal(size=(2, 3, 2)), RANDOM.normal(size=(2, 3, 2))


@pytest.mark.parametrize("targets", [True, False])
def test_soft_q_learning_on_tables_has_the_exact_soft_values(targets):
    """One-hot states: Q is a table. The last step ends in an absorbing state with the value 3."""
    alpha, discount, beta = 0.7, 0.9, 0.25
    bootstrap, terminal_value = np.array([1, 1, 1, 0]), np.array([0, 0, 0, 3])
    batch = batch_of(STATES, TAKEN, NEXT, [1, 1, 0, 0], bootstrap, terminal_value)
    player = InverseQ(SoftQ(temperature=alpha, discount=discount), beta, 0.5, targets)
    spec = us.Spec((3,), us.Discrete(2), 5)
    critics, aims = (affine(table, np.zeros((2, 1, 2))) for table in (TABLES, TARGETS))
    state = SoftQ().init(jax.random.key(0), spec)._replace(critics=critics, targets=aims)
    state = state._replace(critics_opt_state=adam_state(critics))
    _, metrics = jax.jit(lambda s: player._soft_q_step(player.player, s, batch, 1e-3))(state)

    def soft(table):
        return alpha * np.log(np.exp(table / alpha).sum(-1))

    rows, following = STATES.argmax(1), NEXT.argmax(1)
    far = (TARGETS if targets else TABLES).min(0)
    y = discount * (bootstrap * soft(far)[following] + terminal_value)
    wanted = 0.0
    for table in TABLES:
        reward = table[rows, TAKEN] - y
        wanted += -reward[:2].mean() + (soft(table)[rows] - y).mean() + np.square(reward).mean() / (4 * beta)
    assert float(metrics["critic_loss"]) == pytest.approx(wanted, rel=1e-4)


def test_actor_critic_values_are_q_minus_alpha_log_pi_at_a_drawn_action():
    actor = Gaussian(affine([[0.3, -0.2], [0.1, 0.4]], [0.05, -0.5]), -20.0, 2.0, "clip")
    critics = affine([[[0.5], [-1.0], [2.0]], [[1.0], [0.2], [-0.3]]], [[[0.1]], [[-0.4]]])
    obs, next_obs, act = RANDOM.normal(size=(4, 2)), RANDOM.normal(size=(4, 2)), RANDOM.uniform(-0.9, 0.9, (4, 1))
    batch = batch_of(obs, act.astype(np.float32), next_obs, [1, 0, 0, 1])
    sac = SAC(hidden=(4,), temperature=0.3, discount=0.9)
    state = sac.init(jax.random.key(0), us.Spec((2,), us.Continuous((-1.0,), (1.0,)), 10))
    key = jax.random.key(1)
    state = state._replace(critics=critics, targets=critics, critics_opt_state=adam_state(critics))
    state = state._replace(actor=actor, actor_opt_state=adam_state(actor))
    player = InverseQ(sac, 0.5, 0.5, True)
    _, metrics = jax.jit(lambda s: player._sac_step(sac, s, batch, key, 1e-3, jnp.zeros(())))(state)

    def drawn(obs, noise):
        mean, log_std = obs @ [0.3, 0.1] + 0.05, obs @ [-0.2, 0.4] - 0.5
        act = np.tanh(mean + np.exp(log_std) * noise)
        return act, -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - act**2)

    def q(obs, act):
        return np.stack([obs @ [0.5, -1.0] + 2.0 * act + 0.1, obs @ [1.0, 0.2] - 0.3 * act - 0.4])

    _, next_noise, noise = np.asarray(jax.random.normal(key, (3, 4, 1)))[..., 0]
    (own, own_log_prob), (then, then_log_prob) = drawn(obs, noise), drawn(next_obs, next_noise)
    y = 0.9 * (q(next_obs, then).min(0) - 0.3 * then_log_prob)
    reward, value = q(obs, act[:, 0]) - y, q(obs, own) - 0.3 * own_log_prob
    wanted = -reward[:, [0, 3]].mean(1) + (value - y).mean(1) + 0.5 * np.square(reward).mean(1)
    assert float(metrics["critic_loss"]) == pytest.approx(wanted.sum(), rel=1e-4)


# ----------------------------------------------------------------------------------------- a finite MDP

DISCOUNT = 0.8
FOLLOWING = np.array([[1, 2], [3, 0], [0, 3], [2, 1]])
"""The next state after each state and action."""


def occupancy(policy):
    """The discounted distribution of (s, a), exactly; episodes start in state 0."""
    moves = np.einsum("sa,sap->sp", policy, np.eye(4)[FOLLOWING])
    states = (1 - DISCOUNT) * np.linalg.solve(np.eye(4) - DISCOUNT * moves.T, np.eye(4)[0])
    return states[:, None] * policy


def rows_of(policy, count):
    """States and actions in proportion to the occupancy, as nearly as `count` rows allow."""
    edges = np.rint(count * np.cumsum(occupancy(policy).ravel())).astype(int)
    return np.divmod(np.searchsorted(edges, np.arange(count), side="right"), 2)


def learned(batch, player):
    """The policy after gradient steps on the whole batch, from Q = 0."""
    tables = affine(np.zeros((2, 4, 2)), np.zeros((2, 1, 2)))
    state = player.player.init(jax.random.key(0), us.Spec((4,), us.Discrete(2), 10))
    copy = jax.tree.map(jnp.copy, tables)
    state = state._replace(critics=tables, targets=copy, critics_opt_state=adam_state(tables))
    experience = Experience(lambda key: batch, None, None)
    improve = jax.jit(lambda s: player.improve(s, experience, jnp.zeros(()), jax.random.key(1)))
    state, _ = improve(state)
    policy = player.policy(state)
    return np.asarray(jax.nn.softmax(policy.net(jnp.eye(4))))


EXPERT = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.7, 0.3]])
UNIFORM = np.full((4, 2), 0.5)


@pytest.mark.parametrize("online", [True, False])
def test_the_soft_policy_of_q_matches_the_expert_on_a_finite_mdp(online):
    """Q is a table, and its gradient goes through V(s'). Half of the online minibatch is from a uniform policy."""
    policies = (EXPERT, UNIFORM) if online else (EXPERT,)
    parts = [rows_of(policy, 600) for policy in policies]
    states, actions = (np.concatenate(column) for column in zip(*parts, strict=True))
    demonstrated = np.arange(len(states)) < 600
    following = FOLLOWING[states, actions]
    batch = batch_of(np.eye(4)[states], actions, np.eye(4)[following], demonstrated)
    soft_q = SoftQ(lr=1e-2, discount=DISCOUNT, temperature=0.05, gradient_steps=1500)
    player = InverseQ(soft_q, 0.5, 0.5 if online else 1.0, False)
    found = learned(batch, player)
    assert np.abs(found - EXPERT).max() < 0.1
    assert np.abs(UNIFORM - EXPERT).max() > 0.3


# ---------------------------------------------------------------------------- minibatches and absorbing states


def test_a_share_of_a_minibatch_is_exact_on_average_and_within_one_step():
    demos = demonstrations()
    steps = demos.split([4], 0.0)[0].of(0).steps
    sides = (steps, Rows.where(steps.t >= 0)), (STEPS_WITH_ENDS, Rows(None, jnp.asarray(24)))

    def count(key, share):
        return (sample_share(key, 10, share, *sides).round < 0).sum()

    keys = jax.random.split(jax.random.key(0), 2000)
    counts = jax.jit(jax.vmap(count, (0, None)))
    found = np.asarray(counts(keys, 0.33))
    assert set(found) == {3, 4}
    assert found.mean() == pytest.approx(3.3, abs=0.05)
    assert set(np.asarray(counts(keys, 0.5))) == {5}


COUNTS = Counts(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
"""The expert has 6 of 40 absorbing steps, the learner 14 of 50."""


def test_the_reward_of_the_absorbing_state_maximises_the_objective():
    for beta in (0.25, 0.5):
        moments = us.iqlearn(regularization=beta).next_moments(None, None, COUNTS, None)
        found = float(moments.absorbing_reward(COUNTS, True))
        expert, learner = 6 / 40 + MIN_SHARE, 14 / 50 + MIN_SHARE
        grid = found + np.linspace(-1, 1, 201)
        objective = (expert - learner) * grid - (expert + learner) / 2 * np.square(grid) / (4 * beta)
        assert np.argmax(objective) == 100
        assert -4 * beta < found < 0
        assert float(moments.bound()) == pytest.approx(4 * beta)
    nobody = Counts(side(40, 4), side(24, 3), side(12, 1))
    assert float(moments.absorbing_reward(nobody, True)) == 0


def test_the_experts_fraction_of_a_minibatch_is_its_share_of_the_time_alive():
    share = us.iqlearn().next_moments(None, None, COUNTS, None).expert_share
    assert float(share) == pytest.approx((34 / 40) / (34 / 40 + 36 / 50), rel=1e-5)
    assert float(us.iqlearn(absorbing=False).next_moments(None, None, COUNTS, None).expert_share) == 0.5


def test_minibatches_have_both_sides_and_terminal_steps_the_value_of_the_absorbing_state():
    demos = demonstrations()
    data = demos.split([4], 0.0)[0].of(0)
    algorithm = us.iqlearn(
        rounds=4,
        round_steps=12,
        frequency=12,
        random_steps=0,
        batch_size=2048,
        obs_scaling="none",
        sac=RecordingSAC(hidden=(4,), discount=0.9),
    )
    state, given = INIT(algorithm, demos.spec, data), round_data(data, STEPS_WITH_ENDS, 1)
    counts = Counts.of(given, state.horizon)
    moments = algorithm.next_moments(state, given, counts, None)
    state = state._replace(moments=moments)
    batch = algorithm._experience(state, given, moments, counts, 0.9).sample(jax.random.key(0))
    rows = row_of(batch)
    np.testing.assert_array_equal(batch.demonstrated, rows < FIRST_LEARNER_ROW)
    assert abs(float(batch.demonstrated.sum()) - 2048 * float(moments.expert_share)) <= 1
    assert 0.5 < float(moments.expert_share) < 0.6  # 6 of the expert's 40 steps are absorbing, 6 of the learner's 30
    ends = np.isin(rows, [3, FIRST_LEARNER_ROW + 13])
    value = float(moments.absorbing_reward(counts, True)) / (1 - 0.9)
    assert value < 0
    np.testing.assert_allclose(batch.terminal_value, np.where(ends, value, 0), rtol=1e-5)
    np.testing.assert_array_equal(batch.bootstrap, np.where(ends, 0, 1))
    np.testing.assert_array_equal(batch.reward, 0)


# ------------------------------------------------------------------------------------------------- settings


def test_an_implicit_reward_is_zero_outside_the_absorbing_state():
    np.testing.assert_array_equal(Implicit(jnp.ones(()), jnp.ones(())).reward(STEPS_WITH_ENDS), np.zeros(36))


def test_the_players_are_those_of_the_actions():
    for algorithm in (us.iqlearn(), us.iqlearn_offline()):
        for scale, player in ((None, algorithm.soft_q), (jnp.ones(1), algorithm.sac)):
            found = algorithm._player(SimpleNamespace(act_scale=scale))
            assert found.player == player
            assert (found.discount, found.lr_schedule) == (player.discount, "constant")


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (us.iqlearn, {"regularization": 0.0}),
        (us.iqlearn, {"balanced": False}),
        (us.iqlearn_offline, {"regularization": -1.0}),
        (us.iqlearn_offline, {"rounds": 0}),
        (us.iqlearn_offline, {"sac": SoftQ()}),
    ],
)
def test_invalid_settings_are_named(make, settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        make(**settings)
