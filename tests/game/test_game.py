"""Players and the two loops, on matrix games whose solutions are known."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from understudy.game import dual, new_side, players, primal

# Rock, paper, scissors with a bias: the unique equilibrium is mixed, the value is 0.2.
GAME = jnp.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]]) + 0.2
ROUNDS = 2000


def matrix_payoff(policy, moment, key):
    return policy @ GAME @ moment


def vertex(cost):
    """argmin over the simplex of ⟨cost, x⟩."""
    return jax.nn.one_hot(jnp.argmin(cost), len(cost))


def multiplicative_weights(rate):
    """The leader with an entropy regulariser: x_i ∝ exp(−rate · Σ costs_i)."""
    return players.follow_the_leader(lambda cost, scale: jax.nn.softmax(-rate * cost))


@pytest.mark.parametrize("solver", [primal, dual])
def test_no_regret_against_best_response_finds_the_equilibrium(solver):
    """The average iterates are within the regret bound of the value, from both sides."""
    rate = float(np.sqrt(8 * np.log(3) / ROUNDS)) / 2  # payoffs span 2
    no_regret, exact = multiplicative_weights(rate), players.linear_best_response(vertex)
    policy_player, moment_player = (no_regret, exact) if solver is primal else (exact, no_regret)
    uniform = jnp.ones(3) / 3

    def play(sides, key):
        policy, moment, value = solver(matrix_payoff, policy_player, moment_player, *sides, key)
        return (policy, moment), value

    start = new_side(policy_player, uniform), new_side(moment_player, uniform)
    sides, payoffs = jax.lax.scan(play, start, jax.random.split(jax.random.key(0), ROUNDS))
    policy, moment = (side.total / ROUNDS for side in sides)
    bound = 2 * np.sqrt(np.log(3) / (2 * ROUNDS))
    assert float((policy @ GAME).max()) <= 0.2 + bound + 1e-5
    assert float((GAME @ moment).min()) >= 0.2 - bound - 1e-5
    average = float(payoffs.mean())
    assert 0.2 - bound - 1e-5 <= average <= 0.2 + bound + 1e-5


def test_multiplicative_weights_has_bounded_regret_on_any_losses():
    losses = jnp.asarray(np.random.default_rng(0).uniform(size=(500, 4)), jnp.float32)
    rate = float(np.sqrt(8 * np.log(4) / 500))
    player = multiplicative_weights(rate)
    strategy, total = jnp.ones(4) / 4, 0.0
    memory = player.init(strategy)
    move = jax.jit(lambda s, m, loss: player.move(jax.random.key(0), s, m, lambda x, _: x @ loss))
    for loss in losses:
        strategy, memory, value = move(strategy, memory, loss)
        total += float(value)
    regret = total - float(losses.sum(0).min())
    assert regret <= np.sqrt(500 * np.log(4) / 2) + 1e-3


def test_follow_the_leader_plays_the_best_of_the_past():
    player = players.follow_the_leader(lambda cost, scale: vertex(cost))
    strategy = jnp.array([1.0, 0.0])
    memory = player.init(strategy)
    for cost in ([0.0, 0.6], [1.0, 0.0], [1.0, 0.0]):
        strategy, memory, _ = player.move(jax.random.key(0), strategy, memory, lambda x, _, c=cost: x @ jnp.asarray(c))
    np.testing.assert_array_equal(strategy, [0.0, 1.0])
    np.testing.assert_allclose(memory.total, [2.0, 0.6])
    np.testing.assert_allclose(memory.squares, 0.6**2 + 2)


def test_projected_gradient_descends_to_the_constrained_minimum():
    player = players.projected_gradient(lambda x: jnp.clip(x, -1, 1), 0.5)
    strategy = jnp.zeros(2)
    memory = player.init(strategy)
    move = jax.jit(
        lambda s, m: player.move(jax.random.key(0), s, m, lambda x, _: jnp.sum((x - jnp.array([3, 0.5])) ** 2))
    )
    for _ in range(200):
        strategy, memory, _ = move(strategy, memory)
    np.testing.assert_allclose(strategy, [1, 0.5], atol=1e-2)


def test_a_gradient_player_descends():
    player = players.repeat(players.gradient(optax.sgd(0.1)), 50)
    strategy = jnp.array([3.0, -2.0])
    strategy, _, _ = player.move(jax.random.key(0), strategy, player.init(strategy), lambda x, _: jnp.sum((x - 1) ** 2))
    np.testing.assert_allclose(strategy, 1, atol=1e-3)


def test_a_best_response_starts_afresh_and_forgets():
    player = players.best_response(optax.sgd(0.1), 100, fresh=lambda k: jnp.zeros(2))
    for target in (1.0, -3.0):
        found, memory, value = player.move(
            jax.random.key(0), jnp.full(2, 7.0), (), lambda x, _, t=target: jnp.sum((x - t) ** 2)
        )
        np.testing.assert_allclose(found, target, atol=1e-3)
        assert memory == ()
        assert float(value) == pytest.approx(0, abs=1e-4)
