"""Leaders of single steps: means of functional gradients, by hand and against the exact games on finite MDPs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import understudy as us
from understudy.core.types import Spec, Transition
from understudy.game.leader import StepLeaders, functional_gradients, response_loss
from understudy.game.losses import entropy
from understudy.game.players import gradient, linear_best_response
from understudy.game.solvers import dual, new_side
from understudy.policies import Carry, Categorical, Deterministic, Gaussian
from understudy.policies.networks import MLP
from understudy.tabular import FiniteMDP, exact, samples
from understudy.tabular.games import Game
from understudy.tabular.moments import span

KEY = jax.random.key(0)


def leaders_of(steps, actions=2):
    return StepLeaders.init(KEY, Spec((1,), us.Discrete(actions), 5), steps, 8, 1.0)


def table_policy(logits):
    """softmax(logits[s]) for one-hot states."""
    return Categorical(MLP((jnp.asarray(logits),), (jnp.zeros(logits.shape[1]),), "identity"))


def batch_of(obs, act):
    blank = jnp.zeros(len(act), jnp.int32)
    return Transition(*(blank,) * 8)._replace(obs=jnp.asarray(obs), act=jnp.asarray(act))


def test_a_leader_is_the_mean_of_its_own_steps_gradients():
    leaders = leaders_of(3)
    moves = (([0, 2], [[1.0, -1.0], [4.0, 0.0]]), ([0], [[3.0, 0.0]]), ([2, 0], [[0.0, 2.0], [-1.0, 4.0]]))
    for rows, gradients in moves:
        leaders = jax.jit(StepLeaders.follow)(leaders, jnp.array(rows), jnp.array(gradients))
    np.testing.assert_allclose(leaders.weights, [[1.0, 1.0], [0.0, 0.0], [2.0, 1.0]], atol=1e-6)
    assert leaders.rounds.tolist() == [3, 0, 2]


def test_a_step_that_occurs_twice_in_a_minibatch_moves_once():
    leaders = jax.jit(StepLeaders.follow)(leaders_of(2), jnp.array([1, 1]), jnp.array([[2.0, 0.0], [5.0, 5.0]]))
    np.testing.assert_array_equal(leaders.weights, [[0.0, 0.0], [2.0, 0.0]])
    assert leaders.rounds.tolist() == [0, 1]


def test_the_loss_of_a_response_by_hand():
    """π = (3/4, 1/4) and the expert takes action 1: g = (3/4, −3/4), and f is the mean of that and (1/4, 1/4)."""
    leaders = leaders_of(1).follow(jnp.array([0]), jnp.array([[0.25, 0.25]]))
    policy = table_policy(np.log([[0.75, 0.25]]).astype(np.float32))
    loss, (after, metrics) = jax.jit(response_loss)(leaders, jnp.array([0]), batch_of([[1.0]], [1]), 0.1, policy, KEY)
    np.testing.assert_allclose(after.weights, [[0.5, -0.25]], atol=1e-6)
    h = -0.75 * np.log(0.75) - 0.25 * np.log(0.25)
    assert float(loss) == pytest.approx(0.75 * 0.5 - 0.25 * 0.25 - 0.1 * h, abs=1e-6)
    assert float(metrics["payoff"]) == pytest.approx(0.75 * 0.5 + 0.75 * 0.25, abs=1e-6)
    assert float(metrics["distance"]) == pytest.approx(0.75 * 2**0.5, abs=1e-6)


def test_the_entropy_of_each_kind_of_policy():
    obs = jnp.ones(1)
    assert float(entropy(table_policy(np.log([[0.5, 0.5]])), obs, KEY)) == pytest.approx(np.log(2), abs=1e-6)
    assert float(entropy(Deterministic.init(KEY, 1, 2, (4,)), obs, KEY)) == 0
    gaussian = Gaussian.init(KEY, 1, 2, (4,))
    act = gaussian.draw_from(obs, jax.random.normal(KEY, (2,)))[0]
    expected = -gaussian.log_prob(Carry(jnp.asarray(0), jnp.asarray(0)), obs, act)
    assert float(entropy(gaussian, obs, KEY)) == pytest.approx(float(expected), abs=1e-3)


def test_random_features_approximate_the_gaussian_kernel():
    leaders = StepLeaders.init(KEY, Spec((1,), us.Continuous((-1.0,) * 3, (1.0,) * 3), 5), 1, 20_000, 0.7)
    acts = jax.random.uniform(jax.random.key(1), (6, 3), minval=-1, maxval=1)
    found = jax.jit(jax.vmap(leaders.features))(acts)
    squared = jnp.square(acts[:, None] - acts).sum(-1)
    np.testing.assert_allclose(found @ found.T, jnp.exp(-squared / (2 * 0.7**2 * 3)), atol=0.03)


# ---------------------------------------------------------------------------------------- against the exact games


def instance(moments, seed=0):
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP(rng.dirichlet(np.ones(4), (4, 3)), rng.dirichlet(np.ones(4)), 5)
    expert, learner = rng.dirichlet(np.ones(3), (2, 5, 4))
    return Game(moments, mdp, expert), learner, rng.normal(size=mdp.shape)


def answered_steps(game, learner):
    """All (t, s, a) with the expert's actions, in the states of the game's sample: their weights, and a batch."""
    states = game.visited.sum(-1) if game.moments == "off-Q" else game.strategy(learner).sum(-1)
    weight = (states[..., None] * game.expert / game.mdp.horizon).ravel()
    every = samples(game.mdp, game.expert)
    horizon, count, actions = game.mdp.shape
    obs = np.repeat(np.eye(horizon * count), actions, axis=0)
    return states, weight, batch_of(obs, np.tile(np.arange(actions), horizon * count)), every


def tables(leaders, game):
    """f_t(s, ·): the expert's mean over the steps (t, s, a)."""
    return np.sum(game.expert[..., None] * np.asarray(leaders.weights).reshape(*game.mdp.shape, -1), axis=2)


@pytest.mark.parametrize("moments", ["off-Q", "on-Q"])
def test_the_functional_gradient_is_the_exact_games(moments):
    """⟨f, g⟩ = U(π, f) for any f, and ‖g‖ is the largest payoff over the unit ball of the solvers' class."""
    game, learner, f = instance(moments)
    with jax.enable_x64(True):
        states, weight, batch, _ = answered_steps(game, learner)
        leaders = leaders_of(len(weight), 3)
        policy = table_policy(np.log(learner).reshape(-1, 3))
        _, g = jax.jit(functional_gradients)(leaders, policy, batch, KEY)
        g = np.asarray(g)
        assert g.dtype == np.float64
    values = np.repeat(f.reshape(-1, 3), 3, axis=0)
    assert (weight * (values * g).sum(1)).sum() == pytest.approx(float(game.payoff(learner, f)), abs=1e-12)
    mean = (game.expert[..., None] * g.reshape(*game.mdp.shape, 3)).sum(2)
    np.testing.assert_allclose(states[..., None] * mean / game.mdp.horizon, game.difference(learner), atol=1e-12)
    features = np.eye(60).reshape(*game.mdp.shape, 60) / np.sqrt(states / game.mdp.horizon)[..., None, None]
    largest = np.sqrt((states[..., None] / game.mdp.horizon * mean**2).sum())
    assert largest == pytest.approx(float(span(game.mdp, features).sup(game.difference(learner))), abs=1e-12)


ROUNDS, ALPHA = 50, 0.1


def exact_dual(game):
    """The dual loop of `game.solvers` on the exact off-Q game: policies, and f after the last round.

    f's payoffs U(π, f) − ‖f‖²/2 are strongly concave, with ‖f‖² = E f² over the expert's states. Gradient ascent with
    the step 1/k on them is follow-the-leader. The policy is the exact soft best response.
    """
    scale = np.broadcast_to(np.asarray(game.visited.sum(-1, keepdims=True)) / game.mdp.horizon, game.mdp.shape)

    @exact
    def play():
        weight = jnp.asarray(scale)
        policy_player = linear_best_response(lambda cost: game.strategy(game.lead(cost, ALPHA / game.mdp.horizon)))

        def payoff(x, theta, key):  # θ = √weight · f
            f = theta / jnp.sqrt(weight)
            return jnp.sum(game.weights(x) * f) - jnp.sum(theta**2) / 2

        moment_player = gradient(optax.sgd(lambda count: 1 / (count + 1.0)))
        sides = new_side(policy_player, jnp.zeros(game.mdp.shape)), new_side(moment_player, jnp.zeros(game.mdp.shape))

        def one(sides, _):
            policy, moment, _ = dual(payoff, policy_player, moment_player, *sides, KEY)
            return (policy, moment), game.policy(policy.strategy)

        (_, moment), policies = jax.lax.scan(one, sides, length=ROUNDS)
        return policies, moment.strategy / jnp.sqrt(weight)

    return play()


def test_the_leaders_f_is_that_of_the_exact_dual_and_its_response_is_the_best_one():
    """The tabular dual loop and the leaders, given the same policies, have the same f to 1e-10; the exact soft best
    response to it has no slope in the leaders' loss."""
    game, learner, _ = instance("off-Q")
    policies, f = exact_dual(game)
    with jax.enable_x64(True):
        _, weight, batch, _ = answered_steps(game, learner)
        leaders, rows = leaders_of(len(weight), 3), jnp.arange(len(weight))
        loss = jax.jit(response_loss)
        for policy in policies:
            _, (leaders, _) = loss(leaders, rows, batch, ALPHA, table_policy(np.log(policy).reshape(-1, 3)), KEY)
        np.testing.assert_allclose(tables(leaders, game), f, atol=1e-10)

        frozen = StepLeaders(leaders.weights, jnp.full_like(leaders.rounds, 2**30), None, None)
        best = np.log(game.respond(f, ALPHA / game.mdp.horizon)).reshape(-1, 3)

        @jax.jit
        @jax.grad
        def slope(logits):
            """Of the loss with the expert's weights of the steps: a minibatch is drawn with them."""

            def one(row):
                step = jax.tree.map(lambda x: x[row][None], batch)
                return response_loss(frozen, row[None], step, ALPHA, table_policy(logits), KEY)[0]

            return jnp.asarray(weight) @ jax.lax.map(one, rows)

        assert float(jnp.abs(slope(jnp.asarray(best))).max()) < 1e-7
        assert float(jnp.abs(slope(jnp.asarray(best + np.eye(20, 3)))).max()) > 1e-4
