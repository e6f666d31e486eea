"""AdVIL against its equations: losses, the order of moves, ensembles, stopping, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.algorithms.off_q.advil import ensemble_pair
from understudy.core.errors import SettingError
from understudy.core.types import RoundData, Samples, Spec, Transition
from understudy.game.critics import MLPCritic
from understudy.game.stopping import PayoffThreshold
from understudy.policies import Categorical, Deterministic, start
from understudy.policies.networks import MLP
from understudy.train.programs import traced

TINY = {"rounds": 2, "gradient_steps": 3, "batch_size": 8, "hidden": (8,)}
SMALL = {"hidden": (64, 64), "batch_size": 128, "policy_lr": 1e-3, "rounds": 12, "gradient_steps": 250}


SPEC = Spec((2,), us.Continuous((-1.0,), (1.0,)), 10)


def linear(weights):
    return MLP((jnp.asarray(weights, float),), (jnp.zeros(len(weights[0])),), "relu")


def minibatch():
    """Two states of two numbers, expert's actions 0 and 1, learner's 0.5 and 1."""
    obs, act = jnp.array([[1.0, 0.0], [0.0, 2.0]]), jnp.array([[0.0], [1.0]])
    t, flags = jnp.zeros(2, int), jnp.zeros(2, bool)
    batch = Transition(t, obs, act, obs, flags, flags, flags, t)
    return Samples(t, obs, act, jnp.full(2, 0.5)), batch, Deterministic(linear([[0.5], [0.5]]))


def stack(*members):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def test_the_critics_minibatch_is_divided_among_the_members():
    """Of the two steps the first is the first member's, acting 0.5 there, and the second the other's, acting −2."""
    expert, _, policy = minibatch()
    other = Deterministic(linear([[9.0], [-1.0]]))
    pair = ensemble_pair(stack(policy, other), expert, None, jax.random.key(0))
    np.testing.assert_allclose(pair.learner.act[:, 0], [0.5, -2.0])
    np.testing.assert_allclose(pair.expert.act, expert.act)


@pytest.mark.slow
def test_members_differ_and_the_policy_is_their_mean(continuous):
    before, after, _ = one_round(continuous, ensemble_size=3)
    assert distance(*(jax.tree.map(lambda x, i=i: x[i], before.policy) for i in (0, 1))) > 0.1
    algorithm = us.advil(**TINY, ensemble_size=3)
    policy = algorithm.policy(after).policy
    obs = jnp.full(continuous.spec.obs_size, 0.3)
    acts = jax.vmap(lambda member: member.mode(start(), obs))(after.policy_memory.average)
    np.testing.assert_allclose(policy.mode(start(), obs), acts.mean(0), rtol=1e-5)


def test_the_losses_agree_with_hand_computed_numbers():
    """f(s, a) = 3 s_1 + 4 a: the payoff is 4 E (π(s) − a) = 1, the gradient's norm is 5 everywhere."""
    expert, batch, policy = minibatch()
    critic = MLPCritic(linear([[3.0], [0.0], [4.0]]), MLPCritic.init(jax.random.key(0), SPEC).features, None)
    weights = {"gradient_weight": 10.0, "cloning_weight": 0.2, "orthogonal_weight": 2.0}
    algorithm = us.advil(**{**TINY, "batch_size": 2}, gradient_target=0.4, **weights)
    loss, payoff = algorithm.critic_loss(stack(policy), expert, critic, jax.random.key(0))
    assert float(payoff) == pytest.approx(4 * (0.5 + 0.0) / 2)
    assert float(loss) == pytest.approx(-1.0 + 10 * (5 - 0.4) ** 2, rel=1e-5)
    loss, parts = algorithm.policy_loss(critic, expert, batch, policy, jax.random.key(0))
    assert float(parts["cloning"]) == pytest.approx((0.25 + 0.0) / 2)
    # The policy's weights for its two inputs have the inner product 1/4, twice off the diagonal.
    learner = (3 * 1 + 4 * 0.5 + 0 + 4 * 1) / 2
    assert float(loss) == pytest.approx(learner + 0.2 * 0.125 + 2.0 * 2 * 0.25**2, rel=1e-5)


def one_round(demonstrations, **settings):
    """(state before, state after, info) of one round."""
    algorithm = traced(us.advil(**{**TINY, **settings}))
    data, _ = demonstrations.split([demonstrations.episodes], 0.0)
    data = data.of(0)
    before = algorithm.init(jax.random.key(0), demonstrations.spec, data)
    return before, *algorithm.update(before, RoundData(data), jax.random.key(1))


def distance(left, right):
    return sum(float(jnp.abs(a - b).sum()) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def test_each_player_moves_by_its_own_gradient(continuous):
    before, after, _ = one_round(continuous, critic_lr=1e-30)
    assert distance(before.critic, after.critic) < 1e-6 < distance(before.policy, after.policy)
    before, after, _ = one_round(continuous, policy_lr=1e-30)
    assert distance(before.policy, after.policy) < 1e-6 < distance(before.critic, after.critic)


def test_the_critic_raises_the_payoff_and_the_policy_lowers_it(continuous):
    """Without regularisers, and with the other side frozen."""
    bare = {
        "gradient_weight": 0.1,
        "cloning_weight": 0.0,
        "orthogonal_weight": 0.0,
        "weight_decay": 0.0,
        "gradient_steps": 100,
    }
    payoffs = {}
    for frozen, moving in (("policy_lr", "critic_lr"), ("critic_lr", "policy_lr")):
        _, _, early = one_round(continuous, **{**bare, frozen: 1e-30, moving: 1e-2, "gradient_steps": 1})
        _, _, late = one_round(continuous, **{**bare, frozen: 1e-30, moving: 1e-2})
        payoffs[moving] = float(early.metrics["payoff"]), float(late.metrics["payoff"])
    assert payoffs["critic_lr"][1] > payoffs["critic_lr"][0]
    assert payoffs["policy_lr"][1] < payoffs["policy_lr"][0]


def test_the_order_of_moves_matters(continuous):
    states = [one_round(continuous, first=first)[1] for first in ("critic", "policy")]
    assert distance(states[0].policy, states[1].policy) > 1e-6


def test_the_critic_gets_probabilities_of_discrete_actions():
    """f linear in the action's vector: its value at the probabilities is its expectation."""
    spec = Spec((2,), us.Discrete(3), 10)
    expert, batch, _ = minibatch()
    expert = expert._replace(act=jnp.array([0, 2]))
    batch = batch._replace(act=expert.act)
    values = np.array([1.0, 5.0, -2.0])
    critic = MLPCritic(linear([[0.0], [0.0], *values[:, None]]), MLPCritic.init(jax.random.key(0), spec).features, 3)
    policy = Categorical(linear([[0.1, 0.7, 0.2], [0.3, -0.3, 0.9]]))
    probabilities = np.asarray(jax.nn.softmax(policy.net(batch.obs)))
    algorithm = us.advil(**{**TINY, "batch_size": 2})
    _, payoff = algorithm.critic_loss(stack(policy), expert, critic, jax.random.key(0))
    assert float(payoff) == pytest.approx((probabilities @ values).mean() - (1.0 - 2.0) / 2, rel=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_the_game_closes_the_gap_on_pendulum():
    result = us.imitate(us.advil(**SMALL), us.load("Pendulum"), seeds=2)
    (score,) = result.evaluate(episodes=50).scores()
    assert score.learner.mean > -220  # the expert: -155; a policy that does nothing: about -1,200


def test_numbers_of_any_library_are_settings(continuous):
    result = us.imitate(us.advil(**TINY, policy_lr=jnp.float32(1e-3), critic_lr=np.array(1e-3)), continuous)
    assert result.config["algorithm"]["hyperparameters"]["policy_lr"] == pytest.approx(1e-3)


def test_it_stops_when_the_payoff_is_small(continuous):
    threshold = PayoffThreshold(delta=1e3, window=2, warm_up=4)
    result = us.imitate(us.advil(**{**TINY, "rounds": 9}, threshold=threshold), continuous)
    assert "round 4" in result.runs[0].status
    assert "delta" in result.runs[0].status


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"policy_lr": 0.0}, "policy_lr is 0.0"),
        ({"gradient_weight": -1.0}, "gradient_weight is -1.0"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0"),
        ({"first": "both"}, "first is 'both'"),
        ({"threshold": 0.1}, "threshold is 0.1"),
        ({"collapse": 3}, "collapse is 3"),
        ({"threshold": PayoffThreshold(delta=0.1), "rounds": 5}, "rounds is 5"),
    ],
)
def test_settings_out_of_range_are_named(setting, words):
    with pytest.raises(SettingError, match=words):
        us.advil(**setting)
