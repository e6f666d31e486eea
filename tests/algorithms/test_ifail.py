"""iFAIL: what it collects, that it sees no action of the expert, its payoff and gradient, and that it learns."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.envs import Line
from understudy.collect.base import NO_LIMIT, Request
from understudy.collect.episodes import JaxEpisodes
from understudy.collect.host import HostCollector
from understudy.core.errors import NeedsError, SettingError
from understudy.core.types import RoundData
from understudy.envs.finite import Finite
from understudy.experts.expert import Expert
from understudy.experts.respondent import Answers, Respondent
from understudy.game.next_moments import Probes, best_response, importance, payoff
from understudy.policies import Categorical, Normalized, Timed, TimeIndexed, start
from understudy.tabular.examples import loop, tree
from understudy.tabular.ifail import best_moment, learn_forward, next_states
from understudy.train.programs import traced

TINY = us.ifail.small
LINE = Line(discrete=True, shown=True)


@functools.cache
def begun(**changes):
    """The algorithm, its state before training, and the demonstrations, on `Line`."""
    algorithm = traced(us.ifail(**{**TINY, **changes}))
    demonstrations = us.record(LINE, LINE.expert(), episodes=4)
    data, _ = demonstrations.split([4], 0.0)
    return algorithm, algorithm.init(jax.random.key(0), LINE.spec, data.of(0)), data.of(0)


@jax.jit
def collected(algorithm, state, left, index):
    collector = JaxEpisodes(LINE, LINE.expert(), deterministic=True)
    return collector.collect_run(algorithm, state, left, jax.random.key(5), index)


def collect(algorithm, state, index, left=NO_LIMIT):
    return collected(algorithm, state, jnp.asarray(left), jnp.asarray(index))


@jax.jit
def update(algorithm, state, data, key):
    return algorithm.update(state, data, key)


def given(data, found, index=1):
    return RoundData(data, found.rollouts, found.expert_actions, found.answered, round=index)


def trained(algorithm, state, data, rounds, corrupt=lambda act: act):
    """The state after each round."""
    states = []
    for index in range(rounds):
        found = collect(algorithm, state, index)
        found = found._replace(expert_actions=corrupt(found.expert_actions))
        state, _ = update(algorithm, state, given(data, found, index), jax.random.key(index))
        states.append(state)
    return states


# ---------------------------------------------------------------------------------------------- what is collected


def test_probed_steps_are_the_experts_or_uniform_and_the_others_are_the_learners():
    algorithm, state, data = begun(stride=4, episodes_per_round=400, rounds=5)
    state, _ = update(algorithm, state, given(data, collect(algorithm, state, 0), 0), jax.random.key(0))
    sure = greedy(state)
    found = collect(algorithm, sure, 1)
    steps, mask, answered = found.rollouts.steps, np.asarray(found.rollouts.mask), np.asarray(found.answered)
    t, act = np.asarray(steps.t), np.asarray(steps.act)
    assert mask.sum() == 400 * 8
    np.testing.assert_array_equal(np.unique(t[answered]), [0, 4])
    assert int(found.answers) == answered.sum() == pytest.approx(400, abs=60)
    np.testing.assert_array_equal(act[answered], np.asarray(LINE.expert().mode(start(), steps.obs))[answered])
    probed = mask & ~answered & (t % 4 == 0)
    np.testing.assert_allclose(np.bincount(act[probed]) / probed.sum(), 1 / 3, atol=0.1)
    rest = mask & (t % 4 > 0)
    own = np.asarray(algorithm.policy(sure).mode(start(), steps.obs))
    assert (act[rest] == own[rest]).mean() > 0.99  # the rest are states in which two actions are nearly as likely


def greedy(state):
    """The state with a policy that is nearly deterministic, and the same at all times."""
    net = state.policy.policy.net
    first = net.weights[0].at[-1].set(0)
    net = net.__class__((first, net.weights[1] * 1e4), net.biases, net.activation, net.input_indices)
    return state._replace(policy=Timed(Categorical(net), state.policy.horizon))


def test_a_round_keeps_both_sides_of_its_probed_steps_and_a_sweep_reaches_all():
    algorithm, state, data = begun(stride=3, rounds=4, episodes_per_round=6)
    states = trained(algorithm, state, data, 4)
    assert int(states[0].learner_size) == int(states[0].expert_size) == 0
    sizes = [int(s.learner_size + s.expert_size) for s in states]
    assert sizes == [0, 18, 36, 48]  # t = 0, 3, 6; 1, 4, 7; 2, 5
    last = states[-1]
    t = np.concatenate([last.learner.t[: int(last.learner_size)], last.expert.t[: int(last.expert_size)]])
    np.testing.assert_array_equal(np.bincount(t), [6] * 8)
    assert not np.asarray(last.expert.choice).any()
    shown = np.asarray(last.learner.next_obs[: int(last.learner_size), 4])  # the action that led there
    np.testing.assert_array_equal(shown, last.learner.choice[: int(last.learner_size)])


def test_forward_training_moves_one_policy_in_each_round():
    algorithm, state, data = begun(stride=None, time="steps", rounds=9, episodes_per_round=8)
    assert isinstance(state.policy, TimeIndexed)
    before = state
    for index, after in enumerate(trained(algorithm, state, data, 9)):
        moved = np.asarray(jnp.abs(after.policy.policies.net.weights[0] - before.policy.policies.net.weights[0]))
        assert np.flatnonzero(moved.max((1, 2))).tolist() == ([] if index == 0 else [index - 1])
        assert int(after.learner_size + after.expert_size) == (8 if index else 0)
        before = after


def test_the_actions_of_the_experts_answers_are_never_used():
    algorithm, state, data = begun(stride=2, rounds=3, episodes_per_round=8)
    plain = trained(algorithm, state, data, 3)[-1]
    for corrupt in (lambda act: jnp.zeros_like(act), lambda act: jax.random.permutation(jax.random.key(1), act)):
        other = trained(algorithm, state, data, 3, corrupt)[-1]
        assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (plain, other)), strict=True))
    found = collect(algorithm, plain, 1)
    steps = found.rollouts.steps
    wrong = steps._replace(act=jnp.where(found.answered, 2 - steps.act, steps.act))  # in the rollouts, too
    one, two = (
        update(
            algorithm, plain, given(data, found._replace(rollouts=found.rollouts._replace(steps=s))), jax.random.key(3)
        )
        for s in (steps, wrong)
    )
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one[0], two[0])), strict=True))


@pytest.mark.parametrize("way", ["program", "host"])
def test_without_budget_the_learner_acts_and_its_steps_are_not_taken_for_the_experts(way):
    """Four answers for two episodes: two each. The later probed steps are the learner's, and are not answered."""
    algorithm, state, data = begun(stride=2, expert_share=0.99)
    state, _ = update(algorithm, state, given(data, collect(algorithm, state, 0), 0), jax.random.key(0))
    if way == "program":
        found = collect(algorithm, state, 1, left=4)
    else:
        states = jax.tree.map(lambda x: x[None], state)
        policies = jax.device_get(jax.vmap(algorithm.acting_policy)(states))
        asked = lambda obs: np.asarray(LINE.expert().mode(start(), jnp.asarray(obs)))  # noqa: E731
        host = HostCollector(LINE, Expert(asked, 4), [3])
        none = lambda: np.zeros(1, int)  # noqa: E731
        request = Request(algorithm, lambda: states, lambda: policies, 1, 0, none, lambda: np.ones(1, bool))
        found = jax.tree.map(lambda x: x[0], host.gather(request))
    answered = np.asarray(found.answered)
    np.testing.assert_array_equal(np.sort(found.rollouts.steps.t[answered]), [0, 0, 2, 2])
    np.testing.assert_array_equal(found.rollouts.steps.act[answered], found.expert_actions[answered])
    after, _ = update(algorithm, state, given(data, found), jax.random.key(1))
    assert (int(after.expert_size), int(after.learner_size)) == (4, 4)


def test_a_round_whose_budget_is_too_small_for_its_episodes_adds_nothing_to_either_side():
    """One answer is left for two episodes, so the expert never acts, and no budget would end the run."""
    algorithm, state, data = begun(stride=2)
    state, _ = update(algorithm, state, given(data, collect(algorithm, state, 0), 0), jax.random.key(0))
    found = collect(algorithm, state, 1, left=1)
    assert int(found.answers) == 0
    after, _ = update(algorithm, state, given(data, found), jax.random.key(1))
    assert (int(after.expert_size), int(after.learner_size)) == (0, 0)


# ---------------------------------------------------------------------------------------------- payoff and gradient


def enumerated(mdp, state):
    """Every (s, a, s') of a deterministic MDP, with its probability if s ~ state and a is uniform."""
    index = np.asarray(mdp.dynamics.index)
    s, a = (x.ravel() for x in np.indices(index.shape))
    return s, a, index.ravel(), state[s] / index.shape[1]


@pytest.mark.parametrize("example", [loop(4), tree(4, 3)], ids=lambda e: e.name)
def test_payoff_and_gradient_are_those_of_the_exact_game_on_next_states(example):
    """The functions of the algorithm at all (s, a, s') of a time step, with φ one-hot, in float64."""
    mdp, expert = example.mdp, np.asarray(example.expert)[1]
    with jax.enable_x64(True):
        random = np.random.default_rng(0)
        state = random.dirichlet(np.ones(mdp.states))
        logits = jnp.asarray(random.normal(size=(mdp.states, mdp.actions)))
        s, a, after, probability = enumerated(mdp, state)
        features, mean = np.eye(mdp.states)[after], next_states(mdp, state, expert)
        share = probability * len(probability)  # the functions take means over rows

        def sampled(x, f=None):
            weights = share * mdp.actions * jax.nn.softmax(x)[s, a]
            f = best_response(jax.lax.stop_gradient(weights), features, mean) if f is None else f
            return payoff(weights, features, mean, f)

        def exact(x):
            gap = state @ (jax.nn.softmax(x)[..., None] * np.eye(mdp.states)[mdp.dynamics.index]).sum(1) - mean
            return jnp.sqrt(gap @ gap)

        value, slope = jax.value_and_grad(sampled)(logits)
        expected, wanted = jax.value_and_grad(exact)(logits)
        np.testing.assert_allclose(value, expected, atol=1e-10)
        np.testing.assert_allclose(slope, wanted, atol=1e-10)
        difference = next_states(mdp, state, np.asarray(jax.nn.softmax(logits))) - mean
        np.testing.assert_allclose(value, difference @ best_moment(difference, "ball"), atol=1e-10)
        for i in range(5):  # no other f of the ball is better
            other = jax.random.normal(jax.random.key(i), mean.shape, np.float64)
            assert sampled(logits, other / jnp.linalg.norm(other)) <= value + 1e-12


def test_importance_is_the_number_of_actions_times_their_probability():
    algorithm, state, _ = begun()
    obs = jax.random.normal(jax.random.key(2), (6, 5))
    rows = Probes(jnp.arange(6), obs, obs, jnp.arange(6) % 3)
    weights, entropy = importance(state.policy, rows, state.moments.normalization)
    for i in range(6):
        carry = start()._replace(t=jnp.asarray(i))
        policy = algorithm.policy(state)
        np.testing.assert_allclose(weights[i], 3 * jnp.exp(policy.log_prob(carry, obs[i], i % 3)), rtol=1e-5)
        _, probabilities = policy.support(carry, obs[i], jax.random.key(0))
        np.testing.assert_allclose(entropy[i], -(probabilities * jnp.log(probabilities)).sum(), rtol=1e-5)


def test_random_features_are_those_of_a_gaussian_kernel_over_pairs():
    _, state, data = begun(features=20_000, bandwidth=1.0, time_bandwidth=3.0)
    moments = state.moments
    steps = jax.tree.map(lambda x: x[:10], data.steps)
    rows = Probes(steps.t, steps.obs, steps.next_obs, steps.t)
    assert moments.points(rows).shape == (10, 5 + 5 + 1)
    scaled = moments.points(rows) / moments.scale
    kernel = np.exp(-0.5 * np.square(scaled[:, None] - scaled).sum(-1))
    features = moments(rows)
    np.testing.assert_allclose(features @ features.T, kernel, atol=0.05)
    size = jnp.asarray(7)
    np.testing.assert_allclose(moments.mean(rows, size), features[:7].mean(0), atol=1e-6)
    np.testing.assert_array_equal(moments.mean(rows, jnp.asarray(0)), 0)


# ---------------------------------------------------------------------------------------------- learning


def test_forward_training_learns_the_experts_way_on_a_finite_mdp():
    """LOOP of four steps, a policy for each, f of the next state alone: the exact solver's policy, by sampling."""
    example = loop(4)
    env = Finite.of(example)
    learner = us.ifail.preset(
        "forward", rounds=5, sees="next", bandwidth=0.5, episodes_per_round=64, gradient_steps=150, lr=1e-2,
        hidden=(), batch_size=64, features=64, entropy_weight=0.0,
    )  # fmt: skip
    demos = us.record(env, env.expert(), episodes=4)
    result = us.imitate(learner, demos, env, expert=env.expert(), select="last", holdout=0)
    policy = result.policies[0].policy
    exact = learn_forward(example.mdp, example.expert).policy
    for t in range(4):
        carry = start()._replace(t=np.asarray(t))
        for s in range(3):
            _, learned = policy.support(carry, jnp.eye(3)[s], jax.random.key(0))
            if s in visited(example.mdp, exact, t):
                np.testing.assert_allclose(learned, exact[t, s], atol=0.1)


def visited(mdp, policy, t):
    """States that the policy reaches with a probability above 0.05."""
    state = np.asarray(mdp.initial)
    for i in range(t):
        state = next_states(mdp, state, policy[i])
    return np.flatnonzero(state > 0.05)


def test_pendulums_policy_acts_in_the_environments_range():
    learner = us.ifail(**{**TINY, "bins": 5})
    result = us.imitate(learner, us.load("Pendulum").first(2), "Pendulum", expert="scripted")
    actor = result.policies[0]
    assert isinstance(actor.policy, Normalized)
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    actions, state = actor.predict(obs, deterministic=False)
    assert set(np.unique(actions).tolist()) <= {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert state.t.tolist() == [1] * 50
    assert 0 < result.metrics["queries"][0, -1] < 2 * 2 * 200


def test_in_gymnasium_it_probes_and_trains_too():
    def balance(obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(int)

    demos = us.record("CartPole-v1", balance, episodes=2, workers=0)
    result = us.imitate(us.ifail(**TINY), demos, "CartPole-v1", expert=us.Expert(balance).budget(9), workers=0)
    assert 0 < np.nanmax(result.metrics["queries"]) <= 9
    assert np.isfinite(result.metrics["payoff"][np.isfinite(result.metrics["payoff"])]).all()


# ---------------------------------------------------------------------------------------------- bad input


def test_a_grid_that_is_too_large_is_refused_with_the_largest_that_fits():
    spec = us.Spec((3,), us.Continuous((-1.0,) * 4, (1.0,) * 4), 10)
    _, _, data = begun()
    with pytest.raises(SettingError, match=r"2,401 combinations in 4 dimensions.*set bins to at most 4"):
        us.ifail(**TINY, bins=7).init(jax.random.key(0), spec, data)
    wide = us.Spec((3,), us.Continuous((-1.0,) * 17, (1.0,) * 17), 10)
    with pytest.raises(SettingError, match="use DAgger or DAeQuIL"):
        us.ifail(**TINY, bins=2).init(jax.random.key(0), wide, data)


def test_rounds_that_leave_time_steps_unprobed_are_refused():
    demos = us.load("Pendulum").first(2)
    with pytest.raises(
        SettingError, match=r"it takes 200 rounds after the first.*at least 201, or stride to at most 10"
    ):
        us.imitate(us.ifail(stride=None), demos, "Pendulum", expert="scripted")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sees": "actions"}, "sees is 'actions': choose one of 'next', 'pairs'"),
        ({"time": "clock"}, "time is 'clock'"),
        ({"bins": 1}, "bins is 1: a whole number of at least 2"),
        ({"stride": 1}, "stride is 1: a whole number of at least 2"),
        ({"expert_share": 1.0}, "expert_share is 1.0"),
        ({"expert_share": 0.0}, "expert_share is 0.0"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0"),
        ({"time_bandwidth": -1.0}, "time_bandwidth is -1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        us.ifail(**settings)


def test_an_expert_is_needed_and_one_that_answers_afterwards_is_refused():
    demos = us.load("Pendulum").first(2)
    with pytest.raises(NeedsError, match="expert="):
        us.imitate(us.ifail(**TINY), demos, "Pendulum")

    class Person(Respondent):
        def answer(self, asked, most):
            return Answers(np.zeros(0, int), np.zeros((0, 1), np.float32))

    with pytest.raises(SettingError, match=r"lets the expert act within episodes.*a policy or a function"):
        us.imitate(us.ifail(**TINY), demos, "Pendulum", expert=Expert(Person()))


def test_a_whole_run_returns_the_same_policy_and_payoff_without_the_demonstrated_actions():
    """The payoff is of fresh episodes, over (s, s')."""
    demonstrations = us.record(LINE, LINE.expert(), episodes=4)
    learner = us.ifail(**{**TINY, "gradient_steps": 20})
    plain, without = (
        us.imitate(learner, given, LINE, expert=LINE.expert(), seeds=2)
        for given in (demonstrations, demonstrations.without_actions())
    )
    assert plain.runs == without.runs
    for run, one, other in zip(without.runs, plain.policies, without.policies, strict=True):
        assert eqx.tree_equal(one.policy, other.policy)
        assert run.payoff > 0
        assert run.payoff_error > 0
    assert without.runs[0].payoff != without.runs[1].payoff
