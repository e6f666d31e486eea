"""ValueDICE against its equation: the divergence, absorbing states, steps without a next state."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.algorithms.off_q.valuedice import UsableRows, ValueDICEBatch
from understudy.core.errors import DemonstrationError
from understudy.core.types import Samples
from understudy.policies import Categorical
from understudy.policies.networks import MLP
from understudy.train.programs import traced

TINY = {"rounds": 2, "gradient_steps": 3, "batch_size": 64, "hidden": (8,)}


class Table(eqx.Module):
    """f(s, p) = Σ_a p_a table[s, a], for a state's one-hot vector with the absorbing state's mark behind it."""

    table: jax.Array
    actions: int = eqx.field(static=True)

    def __call__(self, t, obs, act):
        return obs[:-1] @ self.table @ act


def discounted(transitions, initial, policy, discount):
    """The discounted occupancy d(s, a) of a policy, exactly."""
    flow = np.einsum("sa,saz->sz", policy, transitions)
    states = (1 - discount) * np.linalg.solve(np.eye(len(initial)) - discount * flow.T, initial)
    return states[:, None] * policy


@pytest.mark.parametrize("seed", range(5))
def test_at_the_best_moment_function_the_payoff_is_the_divergence(seed):
    """With f − γ B^π f = log d_π / d_E the payoff is KL(d_π ‖ d_E), and with any other f it is less.

    For deterministic transitions; otherwise a single next state inside the exponential is biased.
    """
    rng, (states, actions, discount) = np.random.default_rng(seed), (4, 3, 0.9)
    transitions = np.eye(states)[rng.integers(states, size=(states, actions))]
    initial = rng.dirichlet(np.ones(states))
    learner, expert = rng.dirichlet(np.ones(actions), (2, states))
    d_learner, d_expert = (discounted(transitions, initial, policy, discount) for policy in (learner, expert))
    ratio = np.log(d_learner / d_expert)
    flow = np.einsum("saz,zb->sazb", transitions, learner).reshape(states * actions, -1)
    best = np.linalg.solve(np.eye(states * actions) - discount * flow, ratio.ravel()).reshape(states, actions)

    # Every (s, a, s'), weighted; the starts are the same rows with the weight of their state spread over them.
    s, a, following = (x.ravel() for x in np.meshgrid(range(states), range(actions), range(states), indexing="ij"))
    weight = d_expert[s, a] * transitions[s, a, following]

    def samples(state, act, weights):
        obs = np.concatenate([np.eye(states)[state], np.zeros((len(state), 1))], axis=1)
        return Samples(jnp.zeros(len(state), int), jnp.asarray(obs), jnp.asarray(act), jnp.asarray(weights))

    with jax.enable_x64(True):
        one_hot = np.eye(actions)[a]
        starts = samples(s, one_hot, initial[s] / (actions * states))
        batch = ValueDICEBatch(samples(s, one_hot, weight), samples(following, one_hot, weight), starts)
        logits = np.concatenate([np.log(learner), np.zeros((1, actions))])
        policy = Categorical(MLP((jnp.asarray(logits),), (jnp.zeros(actions),), "relu"))
        algorithm = us.valuedice(discount=discount, batch_size=len(s))

        def payoff(table):
            return float(algorithm.payoff(policy, Table(jnp.asarray(table), actions), batch, jax.random.key(0))[0])

        divergence = float(np.sum(d_learner * ratio))
        assert payoff(best) == pytest.approx(divergence, abs=1e-10)
        assert payoff(best + 7.0) == pytest.approx(divergence, abs=1e-10)
        for _ in range(5):
            assert payoff(best + rng.normal(size=best.shape)) < divergence


def drawn(demonstrations, **settings):
    """The algorithm, its first state, and a minibatch."""
    algorithm = traced(us.valuedice(**{**TINY, **settings}))
    data, _ = demonstrations.split([demonstrations.episodes], 0.0)
    data = data.of(0)
    state = algorithm.init(jax.random.key(0), demonstrations.spec, data)
    return algorithm, state, algorithm._batch(state, data, UsableRows.of(data), jax.random.key(1))


def episodes(ends):
    """Three episodes of 10 steps whose states are numbered, with the given ends."""
    obs = np.stack([np.arange(30.0), np.ones(30)], axis=1)
    return us.Demonstrations.from_arrays(obs, np.linspace(-1, 1, 30)[:, None], [10] * 3, ends=ends)


def test_a_terminated_episode_continues_in_the_absorbing_state():
    algorithm, state, batch = drawn(episodes("terminal"), batch_size=4096)
    mark, following = np.asarray(batch.expert.obs[:, -1]), np.asarray(batch.following.obs[:, -1])
    assert (batch.expert.weight == 1).all()
    # 30 steps and one of the absorbing state for each episode; those, and the 3 last steps, lead into it.
    assert mark.mean() == pytest.approx(3 / 33, abs=0.02)
    assert following.mean() == pytest.approx(6 / 33, abs=0.03)
    assert (following[mark == 1] == 1).all()
    inside = np.asarray(batch.expert.obs)[mark == 1]
    np.testing.assert_array_equal(inside[:, :-1], 0)
    np.testing.assert_array_equal(np.asarray(batch.expert.act)[mark == 1], 0)
    _, learner = algorithm.payoff(state.policy, state.critic, batch, jax.random.key(0))
    assert (np.asarray(learner.act)[following == 1] == 0).all()
    assert (np.asarray(learner.act)[following == 0] != 0).all()


def test_truncation_is_not_termination_and_steps_without_a_next_state_are_left_out():
    _, state, batch = drawn(episodes("time_limit"), batch_size=4096)
    assert (batch.expert.obs[:, -1] == 0).all()
    assert (batch.following.obs[:, -1] == 0).all()
    number = np.asarray(
        batch.expert.obs[:, 0] * state.normalization.obs_std[0] + state.normalization.obs_mean[0]
    ).round()
    assert set(number) == {n for n in range(30) if n % 10 != 9}


def test_demonstrations_without_any_next_state_are_refused():
    """Truncated episodes of one step."""
    single = us.Demonstrations.from_arrays(np.zeros((3, 2)), np.linspace(-1, 1, 3)[:, None], [1] * 3)
    with pytest.raises(DemonstrationError, match="next_observations"):
        us.imitate(us.valuedice(**TINY), single)


def test_a_minibatch_of_one_is_never_empty():
    """Half of the steps have no known next state, and none of them is ever drawn."""
    halves = us.Demonstrations.from_arrays(np.arange(40.0)[:, None], np.linspace(-1, 1, 40)[:, None], [2] * 20)
    result = us.imitate(us.valuedice(**{**TINY, "batch_size": 1, "rounds": 3, "gradient_steps": 20}), halves, seeds=2)
    assert [run.status for run in result.runs] == ["finished"] * 2


def test_starts_are_all_states_or_the_first_of_each_episode():
    for starts, expected in (("all", set(range(30)) - {9, 19, 29}), ("first", {0, 10, 20})):
        _, state, batch = drawn(episodes("time_limit"), starts=starts, batch_size=1024)
        used = batch.start.obs[batch.start.weight > 0]
        number = np.asarray(used[:, 0] * state.normalization.obs_std[0] + state.normalization.obs_mean[0]).round()
        assert set(number) == expected


def test_the_returned_policy_has_no_input_for_the_mark(continuous):
    algorithm, state, _ = drawn(continuous)
    policy = algorithm.policy(state)
    obs = continuous.observations[:5]
    marked = np.concatenate([state.normalization.encode_obs(obs), np.zeros((5, 1), np.float32)], axis=1)
    normalized = jnp.tanh(state.policy_memory.average.parameters(marked)[0])
    np.testing.assert_allclose(policy.mode(None, obs), 2 * normalized, rtol=1e-5)  # actions in [-2, 2]


@pytest.mark.slow
def test_the_policy_learns_the_experts_actions():
    """On Pendulum's states, in 2,000 steps, to within half of what the expert's actions vary by."""
    demonstrations = us.load("Pendulum")
    learner = us.valuedice(
        hidden=(64, 64), policy_lr=1e-3, gradient_weight=1.0, batch_size=128, rounds=4, gradient_steps=500
    )
    for actor in us.imitate(learner, demonstrations, seeds=2).policies:
        error = np.mean((actor(demonstrations.observations) - demonstrations.actions) ** 2)
        assert error < 0.6 * demonstrations.actions.var()
