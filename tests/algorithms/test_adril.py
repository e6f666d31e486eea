"""AdRIL and SQIL against Algorithm 2: labels, kernels, absorbing states, sampling, payoff, selection."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.reward import (
    FIRST_LEARNER_ROW,
    HORIZON,
    INIT,
    STEPS_WITH_ENDS,
    UPDATE,
    demonstrations,
    learner_steps,
    recording,
    round_data,
    row_of,
    side,
)
from understudy.algorithms.reward.adril import RELEASED_SETTINGS
from understudy.algorithms.reward.averages import Sums
from understudy.algorithms.reward.kernel_moments import FeatureMoments, PointMoments
from understudy.algorithms.reward.moments import Counts, Labels, count_expert_steps, count_steps
from understudy.core.errors import SettingError, UnknownNameError
from understudy.core.types import Dataset, RoundData
from understudy.game.kernels import GaussianKernel
from understudy.rl import SAC, SoftQ
from understudy.train.imitate import HOLDOUT
from understudy.train.selection import EPISODES, episode_seed, held_out, judge

FIT = jax.jit(GaussianKernel.fit, static_argnums=(1, 3))


@pytest.fixture(scope="module")
def demos():
    """Four episodes, the first of which ends after 4 of 10 steps; the state after the others is not known."""
    return demonstrations()


@pytest.fixture(scope="module")
def data(demos):
    return demos.split([4], 0.0)[0].of(0)


def update_once(algorithm, demos, data, steps, index):
    """The state after a round, and the inputs of the player. The first state depends on one setting only."""
    start = INIT(recording(truncation_is_terminal=algorithm.truncation_is_terminal), demos.spec, data)
    state, info = UPDATE(algorithm, start, round_data(data, steps, index))
    return state, SimpleNamespace(**info.metrics)


# ------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("index", [1, 2, 3])
def test_adrils_labels_depend_on_the_origin_of_a_step(index):
    """1/N_E on the expert's, −1/N_π on earlier rounds', 0 on this round's; N_π grows with the rounds."""
    counts = Counts(expert=side(100, 20), earlier=side(12 * index, 3 * index), current=side(12, 0))
    moments = us.adril(kernel="indicator").next_moments(None, RoundData(None, round=index), counts, None)
    reward = moments.reward(SimpleNamespace(round=jnp.array([-1, 0, index - 1, index])))
    np.testing.assert_allclose(reward, [1 / 20, -1 / (3 * index), -1 / (3 * index), 0], rtol=1e-6)


def test_in_the_first_round_only_the_experts_steps_have_a_reward():
    counts = Counts(side(100, 5), side(0, 0), side(12, 1))
    moments = us.adril(kernel="indicator").next_moments(None, RoundData(None, round=0), counts, None)
    np.testing.assert_allclose(moments.reward(SimpleNamespace(round=jnp.array([-1, 0]))), [1 / 5, 0], rtol=1e-6)


@pytest.mark.parametrize("index", [0, 1, 7])
def test_sqils_labels_are_constant(index):
    counts = Counts(side(100, 20), side(12 * index, index), side(12, 0))
    moments = us.sqil().next_moments(SimpleNamespace(kernel=None), RoundData(None, round=index), counts, None)
    rounds = SimpleNamespace(round=jnp.array([-1, 0, index]))
    np.testing.assert_array_equal(moments.reward(rounds), [1, 0, 0])
    # AdRIL's first f, for a demonstration of one trajectory.
    start = us.adril(kernel="indicator").next_moments(
        None, RoundData(None, round=0), Counts(side(1, 1), side(0, 0), side(1, 0)), None
    )
    np.testing.assert_array_equal(moments.reward(rounds), start.reward(rounds))


def test_episodes_and_absorbing_steps_are_counted():
    steps = learner_steps(3, ended=[9, 29], terminal=[13, 16])
    assert count_steps(steps, steps.round < 0, HORIZON) == (0, 0, 0)
    # An episode of 10 steps up to its limit, one that ends at t = 3 and one at t = 2.
    assert count_steps(steps, steps.round < 2, HORIZON) == (24, 3, (10 - 4) + (10 - 3))
    assert count_steps(steps, steps.round == 2, HORIZON) == (12, 1, 0)
    cut = steps._replace(last=jnp.zeros_like(steps.last), terminal=jnp.zeros_like(steps.last))
    assert count_steps(cut, cut.round < 2, HORIZON).episodes == pytest.approx(2.4)


@pytest.mark.parametrize(("count", "holdout"), [(11, 0.0), (3, 0.0), (3, 0.5), (1, 0.3)])
def test_the_experts_absorbing_steps_do_not_depend_on_a_held_out_block(count, holdout):
    """Terminated episodes of 5 to 15 steps. Of up to three, a block from the first one's middle is held out."""
    lengths = np.arange(5, 16)
    demos = us.Demonstrations.from_arrays(
        np.zeros((lengths.sum(), 2)), np.zeros((lengths.sum(), 1)), lengths, ends="terminal", horizon=20
    )
    training = demos.split([count], holdout).training.of(0)
    assert (int(training.size) < lengths[:count].sum()) == (holdout > 0)
    found = count_expert_steps(training, jnp.asarray(20))
    np.testing.assert_allclose(found, (lengths[:count].sum(), count, (20 - lengths[:count]).sum()), rtol=1e-6)


@pytest.mark.parametrize("index", [1, 2])
def test_sampled_steps_are_labelled_by_the_number_of_episodes(demos, data, index):
    """Through the whole update: one episode of 12 steps ends in each round."""
    steps = learner_steps(3, ended=[11, 23, 35])
    _, inputs = update_once(recording(), demos, data, steps, index)
    row, reward = row_of(inputs.sampled), np.asarray(inputs.sampled.reward)
    earlier = (row >= FIRST_LEARNER_ROW) & (row < FIRST_LEARNER_ROW + 12 * index)
    np.testing.assert_allclose(reward[row < FIRST_LEARNER_ROW], 1 / 4)
    np.testing.assert_allclose(reward[earlier], -1 / index)
    np.testing.assert_array_equal(reward[row >= FIRST_LEARNER_ROW + 12 * index], 0)
    assert earlier.any()
    np.testing.assert_array_equal(inputs.new_steps.reward, 0)


# ---------------------------------------------------------------------------------------- functional gradients


def gradients(kernel, data, steps, rounds, at):
    """The functional gradient of each round's payoff, (1/n) Σ k(x_π, ·) − (1/n_E) Σ k(x_E, ·), at some points."""
    points, expert = (np.asarray(kernel.points(x), float) for x in (steps, data.steps))

    def mean(x):
        apart = np.square(np.asarray(at, float)[:, None] - x).sum(-1)
        return np.exp(-apart / (2 * float(kernel.bandwidth) ** 2)).mean(1)

    return np.stack([mean(points[np.asarray(steps.round) == k]) - mean(expert) for k in range(rounds)])


@pytest.fixture(scope="module")
def three_rounds(demos, data):
    """Three rounds that are over and one that begins, in a state with the demonstrations' kernel."""
    steps = learner_steps(4)
    steps = steps._replace(obs=steps.obs.at[:, 0].add(15 * steps.round - FIRST_LEARNER_ROW))
    return INIT(recording(), demos.spec, data), steps, round_data(data, steps, 3)


def sums_of(features, steps, absorbing=0.0):
    return Sums(jnp.asarray(features), side(float(steps), 0.0, float(absorbing)))


def with_sums(state, kernel, sums):
    """The state whose f has these sums over all rounds but the last one."""
    size = kernel.phases.shape[0]
    return state._replace(kernel=kernel, moments=FeatureMoments(kernel, jnp.zeros(()), jnp.zeros(size), sums))


def counts_of_rounds():
    return Counts(side(34, 4), side(36, 3), side(12, 1))


def test_f_of_a_gaussian_kernel_is_the_mean_of_functional_gradients(data, three_rounds):
    """On many sampled points, and exactly on all points."""
    state, steps, given = three_rounds
    algorithm = us.adril(kernel="gaussian", points=20_000, unit_norm=False, absorbing_kernel="one")
    moments = algorithm.next_moments(state, given, counts_of_rounds(), jax.random.key(0))
    at = state.kernel.points(steps)[::5]
    wanted = -gradients(state.kernel, data, steps, 3, at).mean(0)
    found = state.kernel(at, moments.points) @ moments.weights
    np.testing.assert_allclose(found, wanted, atol=0.03)
    assert np.abs(wanted).max() > 0.2
    np.testing.assert_allclose(moments.weights[:20_000].sum(), 1, rtol=1e-4)
    np.testing.assert_allclose(moments.weights[20_000:].sum(), -1, rtol=1e-4)
    early = steps.round < 3
    points = jnp.concatenate([state.kernel.points(data.steps), state.kernel.points(steps)])
    exact = PointMoments(
        state.kernel, jnp.zeros(()), points, jnp.concatenate([jnp.full(34, 1 / 34), -early.astype(jnp.float32) / 36])
    )
    np.testing.assert_allclose(exact.reward(jax.tree.map(lambda x: x[::5], steps)), wanted, atol=1e-5)


def test_f_with_more_features_approximates_the_mean_better(demos, data, three_rounds):
    state, steps, given = three_rounds
    at = state.kernel.points(steps)[::5]
    wanted = -gradients(state.kernel, data, steps, 3, at).mean(0)
    errors = []
    for features in (64, 8192):
        kernel = FIT(jax.random.key(0), demos.spec, data, features)
        before = kernel.features(kernel.points(steps))[:24].sum(0)
        algorithm = us.adril(kernel="features", recency=0.0, unit_norm=False, round_steps=12, frequency=12, rounds=4)
        moments = algorithm.next_moments(with_sums(state, kernel, sums_of(before, 24)), given, counts_of_rounds(), None)
        assert isinstance(moments, FeatureMoments)
        errors.append(np.abs(moments.reward(jax.tree.map(lambda x: x[::5], steps)) - wanted).max())
    assert errors[1] < 0.03 < 0.2 * np.abs(wanted).max() + 0.03
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize("power", [0.0, 2.0])
def test_a_round_counts_as_a_power_of_its_number(three_rounds, power):
    """Three rounds are over; an episode of the second terminates after its fifth step."""
    state, steps, _ = three_rounds
    steps = steps._replace(terminal=jnp.arange(len(steps.t)) == 16, t=jnp.full(len(steps.t), 4))
    phi = np.asarray(state.kernel.features(state.kernel.points(steps)))
    learner = Sums.zero(phi.shape[1])
    for number in range(4):  # round 0: nothing yet
        chunk = jax.tree.map(lambda x, k=number: x[12 * max(k - 1, 0) : 12 * max(k, 1)], steps)
        learner = learner.with_round(state.kernel, chunk, jnp.asarray(HORIZON), number, power)
    weights = np.arange(1, 4.0) ** power / 3**power  # relative to the newest round's
    rounds = phi[:36].reshape(3, 12, -1).sum(1)
    np.testing.assert_allclose(learner.features, weights @ rounds, atol=1e-3)
    np.testing.assert_allclose(learner.counts.steps, 12 * weights.sum(), rtol=1e-5)
    np.testing.assert_allclose(learner.counts.absorbing_steps, (HORIZON - 5) * weights[1], rtol=1e-5)
    share = (HORIZON - 5) * weights[1] / (12 * weights.sum() + (HORIZON - 5) * weights[1])
    np.testing.assert_allclose(learner.counts.absorbing_share, share, rtol=1e-5)


def test_f_by_features_includes_steps_that_the_buffer_has_overwritten(data, three_rounds):
    """Two of three rounds are still in the buffer; the sums are over all three."""
    state, steps, given = three_rounds
    phi = state.kernel.features(state.kernel.points(steps))
    before = with_sums(state, state.kernel, sums_of(phi[:24].sum(0), 24))
    settings = {"recency": 0.0, "unit_norm": False, "round_steps": 12, "frequency": 12, "rounds": 4}
    algorithm = us.adril(kernel="features", buffer_size=24, **settings)
    ring = jax.tree.map(lambda x: jnp.concatenate([x[24:36], x[36:48]]), steps)  # rounds 3 and 4, in rows 0 to 23
    given = given._replace(replay=given.replay._replace(steps=ring, size=jnp.asarray(24)))
    left = Counts(side(34, 4), side(12, 1), side(12, 1))
    moments = algorithm.next_moments(before, given, left, None)
    expert = state.kernel.features(state.kernel.points(data.steps)).mean(0)
    np.testing.assert_allclose(moments.weights, expert - phi[:36].mean(0), atol=1e-5)


# ------------------------------------------------------------------------------------------ absorbing states


def test_the_absorbing_states_label_is_the_mean_label_of_its_visits():
    """Absorbing steps of the expert: 6 of 40, label 1/4. Earlier rounds: 9 of 33, −1/3. This round: 5 of 17, 0."""
    counts = Counts(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
    labels = Labels(jnp.asarray(1 / 4), jnp.asarray(-1 / 3), jnp.asarray(1))
    np.testing.assert_allclose(labels.absorbing_reward(counts, balanced=False), (6 / 4 - 9 / 3) / 20, rtol=1e-5)
    shares = np.array([6 / 40, 9 / 50, 5 / 50])  # of the expert's half and of the learner's
    expected = (shares[0] / 4 - shares[1] / 3) / shares.sum()
    np.testing.assert_allclose(labels.absorbing_reward(counts, balanced=True), expected, rtol=1e-5)
    np.testing.assert_array_equal(labels.absorbing_reward(Counts(side(34, 4), side(24, 3), side(12, 1)), False), 0)


def test_the_absorbing_reward_of_a_gaussian_kernel_is_the_difference_of_shares(three_rounds):
    """Times the mean kernel between demonstrated steps, or one."""
    state, _, given = three_rounds
    counts = Counts(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
    size = state.kernel.phases.shape[0]
    before = with_sums(state, state.kernel, sums_of(jnp.zeros(size), 12, 9))
    points, rounds = state.kernel.points(given.demonstrations.steps), {"round_steps": 12, "frequency": 12, "rounds": 4}
    for kernel in ("features", "gaussian"):
        for own in ("one", "mean"):
            algorithm = us.adril(
                kernel=kernel, absorbing_kernel=own, unit_norm=False, points=2000, recency=0.0, **rounds
            )
            moments = algorithm.next_moments(before, given, counts, jax.random.key(0))
            scale = 1.0 if own == "one" else float(state.kernel(points, points)[:34, :34].mean())
            expected = scale * (6 / 40 - 9 / 33)
            np.testing.assert_allclose(moments.absorbing_reward(counts, False), expected, rtol=0.2)
            # In the first round the learner's share is unknown.
            first = with_sums(state, state.kernel, Sums.zero(size))
            nothing = counts._replace(earlier=side(0, 0))
            moments = algorithm.next_moments(first, given._replace(round=0), nothing, jax.random.key(0))
            assert moments.absorbing_reward(nothing, False) == 0


@pytest.mark.parametrize("kernel", ["features", "gaussian"])
def test_f_has_norm_one_with_its_part_in_the_absorbing_state(three_rounds, kernel):
    state, steps, given = three_rounds
    counts = Counts(side(34, 4, 6), side(36, 3, 9), side(12, 1, 5))
    phi = state.kernel.features(state.kernel.points(steps))
    before = with_sums(state, state.kernel, sums_of(phi[:24].sum(0), 24, 9))
    algorithm = us.adril(
        kernel=kernel, absorbing_kernel="one", points=500, recency=0.0, round_steps=12, frequency=12, rounds=4
    )
    moments = algorithm.next_moments(before, given, counts, jax.random.key(0))
    if kernel == "features":
        squared = moments.weights @ moments.weights
    else:
        squared = moments.weights @ state.kernel(moments.points, moments.points) @ moments.weights
    np.testing.assert_allclose(squared + moments.absorbing**2, 1, rtol=1e-3)
    assert moments.absorbing < 0  # the learner spends more time there


def test_rewards_are_within_their_bound(data, three_rounds):
    """In the states of both counts. The bound is tight, or nearly so."""
    state, steps, _ = three_rounds
    random = np.random.default_rng(0)
    everywhere = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), data.steps, steps)
    points = state.kernel.points(everywhere)
    found = [Labels(jnp.asarray(0.25), jnp.asarray(-0.5), jnp.asarray(3))]
    # Far apart, so that the largest sum of either sign is reached.
    apart = jnp.arange(4.0)[:, None] * 1000 + points[:1]
    found += [
        PointMoments(state.kernel, jnp.zeros(()), apart, jnp.asarray(weights))
        for weights in ([3.0, -1, 2, -1], [1.0, -3, 1, -2])
    ]
    features = state.kernel.features(points)
    longest = features[jnp.argmax(jnp.linalg.norm(features, axis=1))]
    assert jnp.linalg.norm(longest) > 1
    found += [
        FeatureMoments(state.kernel, jnp.zeros(()), w, Sums.zero(512))
        for w in (longest, features.mean(0), jnp.asarray(random.normal(size=512)))
    ]
    for moments in found:
        largest, bound = jnp.abs(moments.reward(everywhere)).max(), moments.bound()
        assert largest <= bound
    assert [float(moments.bound()) for moments in found[1:3]] == [5.0, 5.0]
    np.testing.assert_allclose(found[3].reward(everywhere).max() / found[3].bound(), 2**-0.5, rtol=0.1)
    assert Labels(jnp.asarray(0.25), jnp.asarray(-0.5), jnp.asarray(3)).bound() == 0.5


def test_values_are_bounded_by_the_bound_of_f(demos, data):
    state, inputs = update_once(recording(), demos, data, STEPS_WITH_ENDS, 1)
    np.testing.assert_allclose(inputs.sampled.value_bound, state.moments.bound() / (1 - 0.9), rtol=1e-5)
    assert inputs.sampled.value_bound.shape == inputs.sampled.reward.shape
    kernel = recording(kernel="features")
    terminating = learner_steps(2, terminal=range(12))  # every episode has one step
    given = round_data(data, terminating, 1)._replace(update=jnp.asarray(1))  # not the first update: f stays
    before = INIT(kernel, demos.spec, data)
    moments = FeatureMoments(before.kernel, jnp.asarray(-0.7), jnp.zeros(512), Sums.zero(512))
    state, info = UPDATE(kernel, before._replace(moments=moments), given)
    assert float(state.moments.bound()) == 0
    np.testing.assert_allclose(info.metrics["sampled"].value_bound, 0.7 / (1 - 0.9), rtol=1e-5)
    assert np.isinf(us.gail.preset("sac").initial_moments(state.kernel, jax.random.key(0)).bound())


def test_the_value_of_the_absorbing_state_is_its_reward_over_one_minus_gamma(demos, data):
    algorithm = recording()
    state, inputs = update_once(algorithm, demos, data, STEPS_WITH_ENDS, 1)
    counts = Counts.of(round_data(data, STEPS_WITH_ENDS, 1), state.horizon)
    assert (counts.expert.absorbing_steps, counts.earlier.absorbing_steps, counts.current.absorbing_steps) == (6, 0, 6)
    value = (6 / 4) / 12 / (1 - 0.9)
    np.testing.assert_allclose(state.moments.absorbing_reward(counts, balanced=False), value * (1 - 0.9), rtol=1e-5)
    row = row_of(inputs.sampled)
    ends = np.isin(row, [3, FIRST_LEARNER_ROW + 13])
    assert ends.any()
    np.testing.assert_allclose(inputs.sampled.terminal_value, np.where(ends, value, 0), rtol=1e-5)
    np.testing.assert_array_equal(inputs.sampled.bootstrap, np.where(ends, 0, 1))
    assert inputs.new_steps.terminal_value[0, 1] == pytest.approx(value)
    assert inputs.new_steps.bootstrap[0, 1] == 0


def test_truncation_bootstraps(demos, data):
    _, inputs = update_once(recording(), demos, data, STEPS_WITH_ENDS, 1)
    limits = np.isin(row_of(inputs.sampled), [FIRST_LEARNER_ROW + 9, FIRST_LEARNER_ROW + 21])
    assert limits.any()
    np.testing.assert_array_equal(np.asarray(inputs.sampled.bootstrap)[limits], 1)
    np.testing.assert_array_equal(np.asarray(inputs.sampled.terminal_value)[limits], 0)
    assert (inputs.new_steps.bootstrap[0, 9], inputs.new_steps.terminal_value[0, 9]) == (1, 0)


def test_with_the_released_settings_truncation_is_termination(demos, data):
    """There are no absorbing states. Last steps without a next state are used too, since it does not matter."""
    _, inputs = update_once(recording(**RELEASED_SETTINGS), demos, data, STEPS_WITH_ENDS, 1)
    row = row_of(inputs.sampled)
    ends = [3, 13, 23, 33, *(FIRST_LEARNER_ROW + i for i in (9, 13, 21))]
    assert set(ends) <= set(row.tolist())
    np.testing.assert_array_equal(inputs.sampled.bootstrap, np.where(np.isin(row, ends), 0, 1))
    np.testing.assert_array_equal(inputs.sampled.terminal_value, 0)


# ------------------------------------------------------------------------------------------------- sampling


@pytest.fixture(scope="module")
def two_counts(demos):
    """Minibatches of SQIL, half of them demonstrations, from runs of 2 and of 4 episodes in one program."""
    algorithm = recording(us.sqil)
    both, _ = demos.split([2, 4], 0.0)
    axes = Dataset(None, 0)
    states = jax.lax.map(
        lambda size: algorithm.init(jax.random.key(0), demos.spec, Dataset(both.steps, size)), both.size
    )

    @partial(jax.vmap, in_axes=(0, axes))
    def one(state, data):
        return algorithm.update(state, round_data(data, STEPS_WITH_ENDS, 1), jax.random.key(1))[1].metrics["sampled"]

    return jax.jit(one)(states, both)


def test_steps_without_a_next_state_and_padding_are_never_sampled(two_counts):
    """Truncated demonstrations lack the state after their last step."""
    row = row_of(two_counts)
    assert set(row[0][row[0] < FIRST_LEARNER_ROW]) == set(range(14)) - {13}
    assert set(row[1][row[1] < FIRST_LEARNER_ROW]) == set(range(34)) - {13, 23, 33}
    assert set(row[row >= FIRST_LEARNER_ROW]) == set(range(FIRST_LEARNER_ROW, FIRST_LEARNER_ROW + 24))


def test_a_balanced_minibatch_has_exactly_half_of_each_side_and_sqils_labels(two_counts):
    row = row_of(two_counts)
    np.testing.assert_array_equal((row < FIRST_LEARNER_ROW).sum(1), 1024)
    np.testing.assert_array_equal(two_counts.reward, row < FIRST_LEARNER_ROW)
    # Absorbing: 6 of 20 or 40 demonstrated steps, label 1, and 6 of the learner's 30, label 0.
    for run, expert in enumerate((6 / 20, 6 / 40)):
        value = expert / (expert + 6 / 30) / (1 - 0.9)
        ends = np.isin(row[run], [3, FIRST_LEARNER_ROW + 13])
        np.testing.assert_allclose(two_counts.terminal_value[run], np.where(ends, value, 0), rtol=1e-5)


def test_unbalanced_minibatches_are_uniform_over_all_steps(demos, data):
    """31 demonstrated steps are usable, and 12 of 36 rows of the buffer are filled."""
    _, inputs = update_once(recording(), demos, data, STEPS_WITH_ENDS, 0)
    row = row_of(inputs.sampled)
    assert row.max() < FIRST_LEARNER_ROW + 12
    share, expected = (row < FIRST_LEARNER_ROW).mean(), 31 / 43
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / 2048)
    counts = np.bincount(np.where(row < FIRST_LEARNER_ROW, row, row - FIRST_LEARNER_ROW + 34), minlength=46)
    assert np.ptp(counts[counts > 0]) < 8 * np.sqrt(2048 / 43)


# ----------------------------------------------------------------------------------------- payoff and schedule


def test_the_payoff_is_near_zero_for_the_experts_own_steps_and_larger_for_others(continuous):
    """The learner repeats the first 60 demonstrated steps; then in other states, with other actions."""
    training, held = continuous.split([6], 0.3)
    training, held = training.of(0), jax.tree.map(lambda x: x[0], held)
    algorithm = recording(round_steps=60, frequency=60)
    state = INIT(recording(), continuous.spec, training)

    def payoff(**changes):
        steps = training.steps._replace(round=jnp.zeros_like(training.steps.round), **changes)
        _, info = UPDATE(algorithm, state, round_data(training, steps, 0, per_round=60, held_out=held))
        return float(info.metrics["payoff"])

    own = payoff()
    assert own < 0.2
    assert payoff(obs=training.steps.obs + 3) > 0.6
    assert payoff(act=-2 * jnp.sign(training.steps.act)) > own + 0.05
    # Early termination counts, by the share of time in the absorbing state.
    assert payoff(terminal=training.steps.t % 5 == 4, last=training.steps.t % 5 == 4) > own + 0.3


def test_the_lr_schedule_runs_over_the_run_or_restarts_in_each_round(demos, data):
    for settings, progress in (({}, 3 / 4), (RELEASED_SETTINGS, 1.0)):
        _, inputs = update_once(recording(**settings), demos, data, STEPS_WITH_ENDS, 2)
        assert float(inputs.progress) == progress


# ---------------------------------------------------------------------------------------------- whole runs


SMALL = {
    "rounds": 3,
    "round_steps": 30,
    "frequency": 16,
    "batch_size": 8,
    "random_steps": 8,
    "sac": SAC(hidden=(8,), gradient_steps=2),
    "soft_q": SoftQ(hidden=(8,), gradient_steps=2),
}


@pytest.fixture(scope="module")
def finished(continuous):
    """A run that never reaches its δ, and its policies by their names as candidates."""
    policies, algorithm = {}, us.adril(**SMALL, kernel="features", delta=0.0)

    def visit(done, states):
        kinds = {
            f"round {done}": algorithm.policy,
            "last": algorithm.policy,
            "last, not averaged": algorithm.newest_policy,
        }
        policies.update(
            (name, jax.tree.map(lambda x: np.asarray(x[0]), kind(states()))) for name, kind in kinds.items()
        )

    return us.imitate(algorithm, continuous, env=us.make("Pendulum"), visit=visit), policies


def test_round_steps_is_rounded_up_to_whole_updates(finished):
    """30 steps are two updates of 16."""
    assert us.adril(round_steps=1250, frequency=64).schedule.updates == 20
    assert us.adril(**SMALL).schedule.updates == 2
    np.testing.assert_array_equal(finished[0].metrics["env_steps"], [[32, 64, 96]])


def test_one_of_the_trained_policies_is_returned_with_its_own_payoff(finished, continuous):
    result, policies = finished
    run = result.runs[0]
    assert run.status == "finished"
    for a, b in zip(*map(jax.tree.leaves, (result.policies[0].policy, policies[run.returned])), strict=True):
        np.testing.assert_array_equal(a, b)
    demonstrations = continuous.for_task(us.make("Pendulum").spec, "Pendulum")
    criterion = held_out(demonstrations.spec, *demonstrations.split([demonstrations.episodes], HOLDOUT), 0)
    played = us.rollout("Pendulum", result.policies[0].policy, EPISODES, episode_seed(0))
    assert run.payoff == pytest.approx(judge(played, criterion).payoff)
    assert run.mean_return == pytest.approx(played.returns.mean())


def test_every_candidate_can_be_saved_though_episodes_are_partly_deterministic(continuous, tmp_path):
    algorithm = us.adril(**SMALL, kernel="features", deterministic_share=0.5, average_rounds=2.0)
    result = us.imitate(algorithm, continuous, env=us.make("Pendulum"), keep=9)
    assert "last, not averaged" in {one.name for one in result.candidates}
    for number, one in enumerate(result.candidates):
        one.actor.save(tmp_path / f"{number}.npz")
        loaded = us.load_policy(tmp_path / f"{number}.npz")
        np.testing.assert_array_equal(loaded(continuous.observations[:3]), one.actor(continuous.observations[:3]))
    plain = us.adril(**SMALL, kernel="features", deterministic_share=0.5, average_rounds=0.0)
    names = [one.name for one in us.imitate(plain, continuous, env=us.make("Pendulum"), keep=9).candidates]
    assert "last, not averaged" not in names, "without averaging it is the last policy"


@pytest.mark.parametrize("average_rounds", [0.0, 1.5])
def test_the_policy_is_a_moving_average(data, average_rounds):
    """A plain mean until there are more updates than it averages. A round has two updates, the average three."""
    algorithm = us.adril(**SMALL | {"random_steps": 0, "kernel": "indicator", "average_rounds": average_rounds})
    assert algorithm.schedule.updates == 2
    last, mean = ([np.full((2, 3), x)] for x in (0.0, 0.0))
    for number, share in enumerate([1, 1 / 2, 1 / 3, 1 / 3, 1 / 3] if average_rounds else [1] * 5):
        last = [np.full((2, 3), 2.0**number)]
        given = round_data(data, learner_steps(4), number // 2)._replace(update=jnp.asarray(number % 2))
        found = algorithm._average(mean, last, given)
        np.testing.assert_allclose(found[0], mean[0] + share * (last[0] - mean[0]), rtol=1e-5)
        mean = found


@pytest.mark.slow
def test_the_average_does_not_collect(continuous):
    """Averaging does not change the acting policies."""
    acting = {}
    for average_rounds in (0.0, 2.0):
        algorithm = us.adril(**SMALL, average_rounds=average_rounds)
        kept = acting[average_rounds] = []

        def visit(done, states, algorithm=algorithm, kept=kept):
            kept.append([jax.tree.leaves(policy(states())) for policy in (algorithm.newest_policy, algorithm.policy)])

        us.imitate(algorithm, continuous, env=us.make("Pendulum"), visit=visit)
    for (without, last), (averaged, mean) in zip(acting[0.0], acting[2.0], strict=True):
        for a, b, c in zip(without, last, averaged, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
        assert any(not np.array_equal(a, b) for a, b in zip(averaged, mean, strict=True))


def test_a_run_stops_when_its_payoff_has_fallen_to_delta(continuous, finished):
    result = us.imitate(us.adril(**SMALL, kernel="features", delta=10.0), continuous, env=us.make("Pendulum"))
    assert "round 1" in result.runs[0].status
    assert "delta" in result.runs[0].status
    assert np.isfinite(result.metrics["payoff"][0]).sum() == 1
    assert result.metrics["payoff"][0][0] == finished[0].metrics["payoff"][0][0]


@pytest.mark.slow
def test_gaussian_kernels_learn_with_either_kind_of_actions(discrete, tasks, finished):
    """Discrete actions with the exact kernel, continuous ones with features."""
    algorithm = us.adril(**SMALL | {"rounds": 2}, kernel="gaussian", points=16)
    for result in (us.imitate(algorithm, discrete, env=tasks["discrete"]["env"]), finished[0]):
        assert result.runs[0].status == "finished"
        assert 0 < result.runs[0].payoff < 2
        assert (result.metrics["critic_loss"] > 0).all()


@pytest.mark.parametrize("settings", [{"rounds": 1}, {"restart_lr_schedule": True, "rounds": 3}])
def test_a_linear_schedule_with_a_single_update_is_refused(continuous, settings):
    """The learning rate of the last update is 0."""
    learner = us.adril(**{**SMALL, "round_steps": SMALL["frequency"]} | settings)
    with pytest.raises(SettingError, match="round_steps is 16"):
        us.imitate(learner, continuous, env=us.make("Pendulum"))


def test_a_dict_changes_settings_of_the_algorithms_player():
    """The low initial temperature of AdRIL's SAC is kept."""
    assert us.adril(sac={"hidden": (32,)}).sac == replace(us.adril().sac, hidden=(32,))
    assert us.adril(sac={"hidden": (32,)}).sac.initial_temperature == 0.01
    assert us.adril.preset("paper", sac={"hidden": (32,)}).sac == us.rl.SAC(hidden=(32,))
    assert us.adril(sac=us.rl.SAC(hidden=(32,))).sac == us.rl.SAC(hidden=(32,))
    assert us.sqil(soft_q={"lr": 1e-3}).soft_q == replace(us.sqil().soft_q, lr=1e-3)
    assert us.gail(ppo={"lr": 1e-3}).ppo == replace(us.gail().ppo, lr=1e-3)
    for make in (us.adril, partial(us.adril.preset, "paper")):
        with pytest.raises(UnknownNameError, match="'hiden' in SAC"):
            make(sac={"hiden": (32,)})
        with pytest.raises(UnknownNameError, match="'rond' in AdRIL"):
            make(rond=3)
    with pytest.raises(UnknownNameError, match="'hiden' in SAC"):
        us.rl.SAC(hiden=(32,))


def test_the_presets_have_the_released_settings_and_the_defaults_are_table_10():
    plain, paper, balanced = (us.adril.preset(name) for name in ("default", "paper", "paper-balanced"))
    for name, value in {
        "absorbing": False,
        "truncation_is_terminal": True,
        "reset_each_round": True,
        "random_each_round": True,
        "restart_lr_schedule": True,
    }.items():
        assert (getattr(paper, name), getattr(plain, name)) == (value, not value)
        assert getattr(us.sqil.preset("paper"), name) == value
    assert (plain.balanced, paper.balanced, balanced.balanced) == (True, False, True)
    assert (plain.clone_steps, paper.clone_steps, balanced.clone_steps) == (10_000, 0, 0)
    assert (plain.kernel, paper.kernel, balanced.kernel) == ("features", "indicator", "indicator")
    assert (plain.average_rounds, paper.average_rounds, us.sqil().average_rounds, us.gail().average_rounds) == (
        5.0,
        0.0,
        0.0,
        0.0,
    )
    assert (plain.sac.initial_temperature, paper.sac.initial_temperature) == (0.01, 1.0)
    for algorithm in (paper, us.adril.preset("plain"), us.sqil()):  # Tables 9 and 10
        sac = algorithm.sac
        assert (sac.discount, sac.tau, sac.lr, sac.lr_schedule) == (0.98, 0.02, 7.3e-4, "linear")
        assert (algorithm.frequency, sac.gradient_steps, sac.hidden) == (64, 64, (256, 256))
    assert (plain.round_steps, plain.rounds, us.sqil().balanced) == (1250, 400, True)
    # 100 random exploration steps at the start of each round.
    left = [int(paper.schedule.random_steps_left(round_, update)) for round_ in (0, 5) for update in range(3)]
    assert left == [64, 36, 0] * 2
    assert [int(plain.schedule.random_steps_left(5, update)) for update in range(2)] == [0, 0]
    assert [bool(a.schedule.begins(5, 0)) for a in (paper, plain)] == [True, False]


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "laplace"},
        {"points": 0},
        {"delta": -1.0},
        {"average_rounds": -1.0},
        {"sac": SoftQ()},
        {"absorbing": "no"},
        {"buffer_size": 2559},  # less than two rounds
        {"bandwidth": 0.0},
        {"recency": -1.0},
        {"features": 0},
        {"absorbing_kernel": "two"},
        {"clone_steps": -1},
        {"reset_each_round": {"first": True}},
    ],
)
def test_invalid_settings_are_named(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        us.adril(**settings)
