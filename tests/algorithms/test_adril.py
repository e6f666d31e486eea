"""AdRIL and SQIL, against Algorithm 2: labels, functional gradients, absorbing states, sampling, payoff, selection."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.algorithms.reward.adril import PAPER, ByFeatures, ByPoints
from understudy.algorithms.reward.matching import Tally, _added
from understudy.algorithms.reward.moments import Labels, Side, Sides, counted, expert_side
from understudy.core.errors import SettingError, UnknownNameError
from understudy.core.types import Dataset, Replay, RoundData, Transition
from understudy.game.kernels import GaussianKernel
from understudy.rl import SAC, SoftQ

HORIZON = 10
SPACE = us.Continuous((-2.0,), (2.0,))


class Watched(SAC):
    """Learns nothing and shows what it was given: a minibatch, and the turn's own steps."""

    def improve(self, state, experience, progress, key):
        seen = {"sampled": experience.sample(key), "rolled": experience.new_steps, "progress": progress}
        return state, {"critic_loss": jnp.zeros(()), **seen}


def watched(make=us.adril, **settings):
    """An algorithm of which one turn is a round, with minibatches so large that they have every row in them.

    AdRIL has labels."""
    given = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 2048}
    given |= {"kernel": "indicator"} if make is us.adril else {}
    return make(**given | settings, sac=Watched(hidden=(4,), discount=0.9))


def demonstrations(lengths=(4, 10, 10, 10), ended=(True, False, False, False), **more):
    """Episodes whose first observation is the row's number, so that a sample says where it comes from."""
    count = sum(lengths)
    rng = np.random.default_rng(0)
    obs = np.stack([np.arange(count), rng.normal(size=count)], axis=1)
    terminals = np.zeros(count, bool)
    terminals[np.cumsum(lengths) - 1] = ended
    act = rng.uniform(-1, 1, size=(count, 1))
    options = {"terminals": terminals, "horizon": HORIZON, "action_space": SPACE} | more
    return us.Demonstrations.from_arrays(obs, act, np.array(lengths), **options)


FIRST_OWN = 1000
"""The learner's rows are numbered from here on."""


def own_steps(rounds, per_round=12, ended=(), terminal=()):
    """Rows of so many rounds. Episodes end in the rows named, some of them for good; all begin at 0 after an end."""
    count = rounds * per_round
    last = np.isin(np.arange(count), [*ended, *terminal])
    t, row = np.zeros(count, int), 0
    for row in range(1, count):
        t[row] = 0 if last[row - 1] else t[row - 1] + 1
    obs = np.stack([FIRST_OWN + np.arange(count), np.random.default_rng(1).normal(size=count)], axis=1)
    columns = (t, obs, np.zeros((count, 1)), obs, np.isin(np.arange(count), terminal), last, np.ones(count, bool))
    t, obs, act, following, terminal, last, known = (jnp.asarray(x) for x in columns)
    round_ = jnp.asarray(np.repeat(np.arange(rounds), per_round), jnp.int32)
    obs, act, following = (x.astype(jnp.float32) for x in (obs, act, following))
    return Transition(t.astype(jnp.int32), obs, act, following, terminal, last, known, round_)


def a_round(data, steps, index, per_round=12, **more):
    """What an algorithm sees in the only turn of round `index`."""
    place = slice(index * per_round, (index + 1) * per_round)
    rolled = jax.tree.map(lambda x: x[place][None], steps)
    history = Replay(steps, jnp.zeros(steps.t.shape), jnp.asarray((index + 1) * per_round))
    return RoundData(data, replay=history, new_steps=rolled, round=jnp.asarray(index), update=jnp.asarray(0), **more)


INIT = jax.jit(lambda algorithm, spec, data: algorithm.init(jax.random.key(0), spec, data), static_argnums=1)
FIT = jax.jit(GaussianKernel.fit, static_argnums=(0, 2))
UPDATE = jax.jit(lambda algorithm, state, data: algorithm.update(state, data, jax.random.key(1)))


def side(steps, episodes, absorbed=0):
    return Side(*(jnp.asarray(x, jnp.float32) for x in (steps, episodes, absorbed)))


@pytest.fixture(scope="module")
def shown():
    """Four episodes, the first of which ends after 4 of 10 steps; the state after the others is not known."""
    return demonstrations()


@pytest.fixture(scope="module")
def data(shown):
    return shown.split([4], 0.0)[0].of(0)


def turn(algorithm, shown, data, steps, index):
    """The state after a round, and what the player saw in it. How it starts depends on one setting alone."""
    start = INIT(watched(truncation_is_terminal=algorithm.truncation_is_terminal), shown.spec, data)
    state, info = UPDATE(algorithm, start, a_round(data, steps, index))
    return state, SimpleNamespace(**info.metrics)


def from_row(batch):
    """Which of the rows each sample is: those of the demonstrations, then FIRST_OWN and on."""
    return np.rint(np.asarray(batch.obs)[..., 0]).astype(int)


# ------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("index", [1, 2, 3])
def test_adrils_rewards_are_by_where_a_step_comes_from(index):
    """1/N_E on the expert's, −1/N_π on earlier rounds', 0 on this round's; N_π grows with the rounds."""
    sides = Sides(expert=side(100, 20), earlier=side(12 * index, 3 * index), current=side(12, 0))
    moments = us.adril(kernel="indicator").moves(None, RoundData(None, round=index), sides, None)
    reward = moments.reward(SimpleNamespace(round=jnp.array([-1, 0, index - 1, index])))
    np.testing.assert_allclose(reward, [1 / 20, -1 / (3 * index), -1 / (3 * index), 0], rtol=1e-6)


def test_in_the_first_round_only_the_experts_steps_are_paid():
    sides = Sides(side(100, 5), side(0, 0), side(12, 1))
    moments = us.adril(kernel="indicator").moves(None, RoundData(None, round=0), sides, None)
    np.testing.assert_allclose(moments.reward(SimpleNamespace(round=jnp.array([-1, 0]))), [1 / 5, 0], rtol=1e-6)


@pytest.mark.parametrize("index", [0, 1, 7])
def test_sqil_is_adril_whose_labels_never_move(index):
    sides = Sides(side(100, 20), side(12 * index, index), side(12, 0))
    moments = us.sqil().moves(SimpleNamespace(kernel=None), RoundData(None, round=index), sides, None)
    rounds = SimpleNamespace(round=jnp.array([-1, 0, index]))
    np.testing.assert_array_equal(moments.reward(rounds), [1, 0, 0])
    # AdRIL's first f, for a demonstration of one trajectory.
    start = us.adril(kernel="indicator").moves(
        None, RoundData(None, round=0), Sides(side(1, 1), side(0, 0), side(1, 0)), None
    )
    np.testing.assert_array_equal(moments.reward(rounds), start.reward(rounds))


def test_trajectories_are_counted_by_their_ends_and_completed_to_the_horizon():
    steps = own_steps(3, ended=[9, 29], terminal=[13, 16])
    assert counted(steps, steps.round < 0, HORIZON) == (0, 0, 0)
    # An episode of 10 steps up to its limit, one that ends at t = 3 and one at t = 2.
    assert counted(steps, steps.round < 2, HORIZON) == (24, 3, (10 - 4) + (10 - 3))
    assert counted(steps, steps.round == 2, HORIZON) == (12, 1, 0)
    cut = steps._replace(last=jnp.zeros_like(steps.last), terminal=jnp.zeros_like(steps.last))
    assert counted(cut, cut.round < 2, HORIZON).episodes == pytest.approx(2.4)


@pytest.mark.parametrize("holdout", [0.0, 0.1, 0.5])
def test_how_long_the_expert_rests_does_not_depend_on_what_is_kept_aside(holdout):
    """Eleven episodes that end, of 3 to 13 steps: with a half of them kept aside, some ends are too."""
    lengths = np.arange(3, 14)
    shown = us.Demonstrations.from_arrays(
        np.zeros((lengths.sum(), 2)), np.zeros((lengths.sum(), 1)), lengths, ends="terminal", horizon=20
    )
    kept, aside = (part.of(0) for part in shown.split([11], holdout))
    assert int(kept.steps.last.sum()) == 11 or holdout > 0
    found = expert_side(kept, aside, jnp.asarray(20))
    np.testing.assert_allclose(found, (lengths.sum(), 11, (20 - lengths).sum()), rtol=1e-6)


@pytest.mark.parametrize("index", [1, 2])
def test_labels_of_samples_follow_the_learners_trajectories(shown, data, index):
    """Through the whole update: one episode of 12 steps ends in each round."""
    steps = own_steps(3, ended=[11, 23, 35])
    _, saw = turn(watched(), shown, data, steps, index)
    row, reward = from_row(saw.sampled), np.asarray(saw.sampled.reward)
    earlier = (row >= FIRST_OWN) & (row < FIRST_OWN + 12 * index)
    np.testing.assert_allclose(reward[row < FIRST_OWN], 1 / 4)
    np.testing.assert_allclose(reward[earlier], -1 / index)
    np.testing.assert_array_equal(reward[row >= FIRST_OWN + 12 * index], 0)
    assert earlier.any()
    np.testing.assert_array_equal(saw.rolled.reward, 0)


# ---------------------------------------------------------------------------------------- functional gradients


def gradients(kernel, data, steps, rounds, at):
    """The functional gradient of each round's payoff, (1/n) Σ k(x_π, ·) − (1/n_E) Σ k(x_E, ·), at some points."""
    points, expert = (np.asarray(kernel.points(x), float) for x in (steps, data.steps))

    def mean(x):
        apart = np.square(np.asarray(at, float)[:, None] - x).sum(-1)
        return np.exp(-apart / (2 * float(kernel.bandwidth) ** 2)).mean(1)

    return np.stack([mean(points[np.asarray(steps.round) == k]) - mean(expert) for k in range(rounds)])


@pytest.fixture(scope="module")
def three_rounds(shown, data):
    """Three rounds that are over and one that begins, in a state with the demonstrations' kernel."""
    steps = own_steps(4)
    steps = steps._replace(obs=steps.obs.at[:, 0].add(15 * steps.round - FIRST_OWN))
    return INIT(watched(), shown.spec, data), steps, a_round(data, steps, 3)


def sides_of(data):
    return Sides(side(34, 4), side(36, 3), side(12, 1))


def test_f_of_a_gaussian_kernel_is_the_running_mean_of_functional_gradients(data, three_rounds):
    """Exact on the points, which are drawn from both sides: so many that chance is small."""
    state, steps, given = three_rounds
    algorithm = us.adril(kernel="gaussian", points=20_000)
    moments = algorithm.moves(state, given, sides_of(data), jax.random.key(0))
    at = state.kernel.points(steps)[::5]
    wanted = -gradients(state.kernel, data, steps, 3, at).mean(0)
    found = state.kernel(at, moments.points) @ moments.weights
    np.testing.assert_allclose(found, wanted, atol=0.03)
    assert np.abs(wanted).max() > 0.2
    np.testing.assert_allclose(moments.weights[:20_000].sum(), 1, rtol=1e-4)
    np.testing.assert_allclose(moments.weights[20_000:].sum(), -1, rtol=1e-4)
    # Nothing is left to chance if the points are all that there are.
    early = steps.round < 3
    points = jnp.concatenate([state.kernel.points(data.steps), state.kernel.points(steps)])
    exact = ByPoints(state.kernel, points, jnp.concatenate([jnp.full(34, 1 / 34), -early.astype(jnp.float32) / 36]))
    np.testing.assert_allclose(exact.reward(jax.tree.map(lambda x: x[::5], steps)), wanted, atol=1e-5)


def test_f_by_features_approaches_the_running_mean_as_there_are_more(shown, data, three_rounds):
    state, steps, given = three_rounds
    at = state.kernel.points(steps)[::5]
    wanted = -gradients(state.kernel, data, steps, 3, at).mean(0)
    errors = []
    for features in (64, 8192):
        kernel = FIT(shown.spec, data, features)
        before = kernel.features(kernel.points(steps))[:36].sum(0)
        grown = state._replace(kernel=kernel, tally=Tally(jnp.zeros(features), before))
        moments = us.adril(kernel="features", round_steps=12, frequency=12).moves(grown, given, sides_of(data), None)
        assert isinstance(moments, ByFeatures)
        errors.append(np.abs(moments.reward(jax.tree.map(lambda x: x[::5], steps)) - wanted).max())
    assert errors[1] < 0.03 < 0.2 * np.abs(wanted).max() + 0.03
    assert errors[1] < errors[0] / 3


def test_sums_of_features_go_over_to_the_earlier_rounds_when_a_round_begins(three_rounds):
    state, steps, _ = three_rounds
    phi = np.asarray(state.kernel.features(state.kernel.points(steps)))
    for place in range(4):  # rounds of two turns, six steps each
        chunk = jax.tree.map(lambda x, p=place: x[6 * p : 6 * p + 6][None], steps)
        state = state._replace(tally=_added(state, chunk, jnp.asarray(place % 2 == 0)))
    np.testing.assert_allclose(state.tally.before, phi[:12].sum(0), atol=1e-4)
    np.testing.assert_allclose(state.tally.round, phi[12:24].sum(0), atol=1e-4)


def test_f_by_features_is_a_mean_over_all_earlier_steps_also_where_the_history_has_let_go_of_some(data, three_rounds):
    """Only the last of three rounds is still in the history; the sums are of all three."""
    state, steps, given = three_rounds
    phi = state.kernel.features(state.kernel.points(steps))
    tally = Tally(jnp.zeros(512), phi[:36].sum(0))
    algorithm = us.adril(kernel="features", round_steps=12, frequency=12, buffer_size=24, rounds=4)
    left = Sides(side(34, 4), side(12, 1), side(12, 1))
    moments = algorithm.moves(state._replace(tally=tally), given, left, None)
    expert = state.kernel.features(state.kernel.points(data.steps)).mean(0)
    np.testing.assert_allclose(moments.weights, expert - phi[:36].mean(0), atol=1e-5)


# ------------------------------------------------------------------------------------------ absorbing states


def test_the_absorbing_states_label_is_the_mean_of_its_samples_labels():
    """Expert: 6 of 40 steps at rest, label 1/4. Earlier: 9 of 33, −1/3. This round: 5 of 17, 0."""
    sides = Sides(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
    labels = Labels(jnp.asarray(1 / 4), jnp.asarray(-1 / 3), jnp.asarray(1))
    np.testing.assert_allclose(labels.at_rest(sides, balanced=False), (6 / 4 - 9 / 3) / 20, rtol=1e-5)
    shares = np.array([6 / 40, 9 / 50, 5 / 50])  # of the expert's half and of the learner's
    expected = (shares[0] / 4 - shares[1] / 3) / shares.sum()
    np.testing.assert_allclose(labels.at_rest(sides, balanced=True), expected, rtol=1e-5)
    np.testing.assert_array_equal(labels.at_rest(Sides(side(34, 4), side(24, 3), side(12, 1)), False), 0)


def test_at_rest_a_gaussian_kernel_sees_the_difference_of_the_two_shares(three_rounds):
    kernel = three_rounds[0].kernel
    sides = Sides(side(34, 4, 6), side(24, 3, 9), side(12, 1, 5))
    for moments in (ByFeatures(kernel, jnp.zeros(512)), ByPoints(kernel, jnp.zeros((1, 3)), jnp.zeros(1))):
        np.testing.assert_allclose(moments.at_rest(sides, False), 6 / 40 - 9 / 33, rtol=1e-5)
        # Nothing to compare with yet.
        assert moments.at_rest(sides._replace(earlier=side(0, 0)), False) == 0


def test_no_reward_is_above_its_bound(data, three_rounds):
    """Rewards wherever both sides have been, of random weights; not so far below it that it says nothing."""
    state, steps, _ = three_rounds
    random = np.random.default_rng(0)
    everywhere = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), data.steps, steps)
    points = state.kernel.points(everywhere)
    found = [Labels(jnp.asarray(0.25), jnp.asarray(-0.5), jnp.asarray(3))]
    # Far apart, so that the largest sum of either sign is reached.
    apart = jnp.arange(4.0)[:, None] * 1000 + points[:1]
    found += [ByPoints(state.kernel, apart, jnp.asarray(weights)) for weights in ([3.0, -1, 2, -1], [1.0, -3, 1, -2])]
    features = state.kernel.features(points)
    longest = features[jnp.argmax(jnp.linalg.norm(features, axis=1))]
    assert jnp.linalg.norm(longest) > 1
    found += [ByFeatures(state.kernel, w) for w in (longest, features.mean(0), jnp.asarray(random.normal(size=512)))]
    for moments in found:
        largest, bound = jnp.abs(moments.reward(everywhere)).max(), moments.bound()
        assert largest <= bound
    assert [float(moments.bound()) for moments in found[1:3]] == [5.0, 5.0]
    np.testing.assert_allclose(found[3].reward(everywhere).max() / found[3].bound(), 2**-0.5, rtol=0.1)
    assert Labels(jnp.asarray(0.25), jnp.asarray(-0.5), jnp.asarray(3)).bound() == 0.5


def test_values_are_bounded_by_what_f_can_pay_for_ever(shown, data):
    state, saw = turn(watched(), shown, data, ENDS, 1)
    np.testing.assert_allclose(saw.sampled.most, state.moments.bound() / (1 - 0.9), rtol=1e-5)
    assert saw.sampled.most.shape == saw.sampled.reward.shape
    kernel = watched(kernel="features")
    at_rest = own_steps(2, terminal=range(12))  # of a learner that ends at once, and again and again
    given = a_round(data, at_rest, 1)._replace(update=jnp.asarray(1))  # so that f stays what it is at the start, 0
    state, info = UPDATE(kernel, INIT(kernel, shown.spec, data), given)
    sides = kernel._sides(state, given)
    rest = float(jnp.abs(state.moments.at_rest(sides, balanced=False)))
    assert rest > float(state.moments.bound()) == 0
    np.testing.assert_allclose(info.metrics["sampled"].most, rest / (1 - 0.9), rtol=1e-5)
    assert np.isinf(us.gail.preset("sac").first(state.kernel, jax.random.key(0)).bound())


ENDS = own_steps(3, ended=[9, 21, 35], terminal=[13])
"""The learner's: a time limit in row 9 (round 0) and in 21 (round 1), a terminal state in row 13 (round 1).

Round 2 is not played yet: there is room for it."""


def test_an_absorbing_state_is_worth_its_reward_for_ever(shown, data):
    algorithm = watched()
    state, saw = turn(algorithm, shown, data, ENDS, 1)
    sides = algorithm._sides(state, a_round(data, ENDS, 1))
    assert (sides.expert.absorbed, sides.earlier.absorbed, sides.current.absorbed) == (6, 0, 6)
    worth = (6 / 4) / 12 / (1 - 0.9)
    np.testing.assert_allclose(state.moments.at_rest(sides, balanced=False), worth * (1 - 0.9), rtol=1e-5)
    row = from_row(saw.sampled)
    ends = np.isin(row, [3, FIRST_OWN + 13])
    assert ends.any()
    np.testing.assert_allclose(saw.sampled.after, np.where(ends, worth, 0), rtol=1e-5)
    np.testing.assert_array_equal(saw.sampled.continues, np.where(ends, 0, 1))
    assert saw.rolled.after[0, 1] == pytest.approx(worth)
    assert saw.rolled.continues[0, 1] == 0


def test_at_a_time_limit_the_value_of_the_next_state_counts(shown, data):
    _, saw = turn(watched(), shown, data, ENDS, 1)
    limits = np.isin(from_row(saw.sampled), [FIRST_OWN + 9, FIRST_OWN + 21])
    assert limits.any()
    np.testing.assert_array_equal(np.asarray(saw.sampled.continues)[limits], 1)
    np.testing.assert_array_equal(np.asarray(saw.sampled.after)[limits], 0)
    assert (saw.rolled.continues[0, 9], saw.rolled.after[0, 9]) == (1, 0)


def test_in_the_released_runs_both_sides_end_at_their_limits_and_nothing_follows_an_end(shown, data):
    """No absorbing states, and time limits for ends. The demonstrations' last steps are used then: the state after them
    does not matter.
    """
    _, saw = turn(watched(**PAPER), shown, data, ENDS, 1)
    row = from_row(saw.sampled)
    ends = [3, 13, 23, 33, *(FIRST_OWN + i for i in (9, 13, 21))]
    assert set(ends) <= set(row.tolist())
    np.testing.assert_array_equal(saw.sampled.continues, np.where(np.isin(row, ends), 0, 1))
    np.testing.assert_array_equal(saw.sampled.after, 0)


# ------------------------------------------------------------------------------------------------- sampling


@pytest.fixture(scope="module")
def two_counts(shown):
    """Minibatches of SQIL, half of them demonstrations, from runs of 2 and of 4 episodes in one program."""
    algorithm = watched(us.sqil)
    both, _ = shown.split([2, 4], 0.0)
    axes = Dataset(None, 0, 0)
    states = jax.lax.map(
        lambda run: algorithm.init(jax.random.key(0), shown.spec, Dataset(both.steps, *run)), (both.size, both.episodes)
    )

    @partial(jax.vmap, in_axes=(0, axes))
    def one(state, data):
        return algorithm.update(state, a_round(data, ENDS, 1), jax.random.key(1))[1].metrics["sampled"]

    return jax.jit(one)(states, both)


def test_steps_whose_next_state_is_unknown_and_padded_rows_are_never_sampled(two_counts):
    """Episodes that are cut by a time limit lack the state after their last step."""
    row = from_row(two_counts)
    assert set(row[0][row[0] < FIRST_OWN]) == set(range(14)) - {13}
    assert set(row[1][row[1] < FIRST_OWN]) == set(range(34)) - {13, 23, 33}
    # Of the history, only what was played.
    assert set(row[row >= FIRST_OWN]) == set(range(FIRST_OWN, FIRST_OWN + 24))


def test_a_balanced_minibatch_has_exactly_half_of_each_side_and_sqils_labels(two_counts):
    row = from_row(two_counts)
    np.testing.assert_array_equal((row < FIRST_OWN).sum(1), 1024)
    np.testing.assert_array_equal(two_counts.reward, row < FIRST_OWN)
    # At rest: 6 of 20 or of 40 demonstrated steps, label 1, and 6 of the learner's 30, label 0.
    for run, expert in enumerate((6 / 20, 6 / 40)):
        worth = expert / (expert + 6 / 30) / (1 - 0.9)
        ends = np.isin(row[run], [3, FIRST_OWN + 13])
        np.testing.assert_allclose(two_counts.after[run], np.where(ends, worth, 0), rtol=1e-5)


def test_the_share_of_standard_sampling_is_that_of_all_steps(shown, data):
    """31 demonstrated steps can be learned from, and 12 were played though there is room for 36."""
    _, saw = turn(watched(), shown, data, ENDS, 0)
    row = from_row(saw.sampled)
    assert row.max() < FIRST_OWN + 12
    share, wanted = (row < FIRST_OWN).mean(), 31 / 43
    assert abs(share - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / 2048)
    counts = np.bincount(np.where(row < FIRST_OWN, row, row - FIRST_OWN + 34), minlength=46)
    assert np.ptp(counts[counts > 0]) < 8 * np.sqrt(2048 / 43)


# ----------------------------------------------------------------------------------------- payoff and schedule


def test_the_payoff_is_near_zero_for_the_experts_own_steps_and_larger_for_others(continuous):
    """The learner plays the first 60 of the steps that it was shown; then in other states, with other actions."""
    training, held = continuous.split([6], 0.3)
    training, held = training.of(0), held.of(0)
    algorithm = watched(round_steps=60, frequency=60)
    state = INIT(watched(), continuous.spec, training)

    def payoff(**changes):
        steps = training.steps._replace(round=jnp.zeros_like(training.steps.round), **changes)
        _, info = UPDATE(algorithm, state, a_round(training, steps, 0, per_round=60, held_out=held))
        return float(info.metrics["payoff"])

    own = payoff()
    assert own < 0.2
    assert payoff(obs=training.steps.obs + 3) > 0.6
    assert payoff(act=-2 * jnp.sign(training.steps.act)) > own + 0.05
    # Ending early is seen too, by the share of time that is spent at rest.
    assert payoff(terminal=training.steps.t % 5 == 4, last=training.steps.t % 5 == 4) > own + 0.3


def test_the_schedule_runs_over_the_run_or_starts_again_in_every_round(shown, data):
    whole, again = (turn(watched(**settings), shown, data, ENDS, 2)[1].progress for settings in ({}, PAPER))
    assert (float(whole), float(again)) == (3 / 4, 1.0)


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
    """A run that can never reach its δ, with the policy after each round; its f is of features of all steps."""
    policies, algorithm = [], us.adril(**SMALL, kernel="features", delta=0.0)

    def visit(done, states):
        policies.append(jax.tree.map(lambda x: np.asarray(x[0]), algorithm.policy(states())))

    return us.imitate(algorithm, continuous, env=us.make("Pendulum"), visit=visit), policies


def test_round_steps_says_how_often_f_moves(finished):
    """Rounded up to whole turns: 30 steps are two turns of 16."""
    assert us.adril(round_steps=1250, frequency=64).schedule.updates == 20
    assert us.adril(**SMALL).schedule.updates == 2
    np.testing.assert_array_equal(finished[0].history["env_steps"], [[32, 64, 96]])


def test_the_policy_of_the_round_of_smallest_payoff_is_handed_over(finished):
    result, policies = finished
    payoffs = result.metrics["payoff"][0]
    best = int(np.argmin(payoffs))
    assert result.runs[0].status == "finished"
    assert result.runs[0].payoff == pytest.approx(payoffs[best])
    handed = jax.tree.leaves(result.policies[0].policy)
    same = [all(np.array_equal(a, b) for a, b in zip(handed, jax.tree.leaves(p), strict=True)) for p in policies]
    assert same == [k == best for k in range(3)]


@pytest.mark.parametrize("average_rounds", [0.0, 1.5])
def test_a_moving_mean_of_the_policies_that_played_is_handed_over(shown, data, averaging):
    """Of all turns alike until there are more than it is a mean of. A round is two turns here, a mean is of three."""
    algorithm = us.adril(**SMALL | {"random_steps": 0, "kernel": "indicator", "average_rounds": averaging})
    assert algorithm.schedule.updates == 2
    last, mean = ([np.full((2, 3), x)] for x in (0.0, 0.0))
    for number, share in enumerate([1, 1 / 2, 1 / 3, 1 / 3, 1 / 3] if averaging else [1] * 5):
        last = [np.full((2, 3), 2.0**number)]
        given = a_round(data, own_steps(4), number // 2)._replace(update=jnp.asarray(number % 2))
        found = algorithm._mean(mean, last, given)
        np.testing.assert_allclose(found[0], mean[0] + share * (last[0] - mean[0]), rtol=1e-5)
        mean = found


def test_the_mean_is_handed_over_and_does_not_play(continuous):
    """With a mean the same is learned as without, from the same steps."""
    seen = {}
    for averaging in (0.0, 2.0):
        algorithm = us.adril(**SMALL, average_rounds=averaging)
        kept = seen[averaging] = []

        def visit(done, states, algorithm=algorithm, kept=kept):
            kept.append([jax.tree.leaves(policy(states())) for policy in (algorithm.acting_policy, algorithm.policy)])

        us.imitate(algorithm, continuous, env=us.make("Pendulum"), visit=visit)
    for (played, last), (also, mean) in zip(seen[0.0], seen[2.0], strict=True):
        for a, b, c in zip(played, last, also, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
        assert any(not np.array_equal(a, b) for a, b in zip(also, mean, strict=True))


def test_a_run_stops_when_its_payoff_has_fallen_to_delta(continuous, finished):
    result = us.imitate(us.adril(**SMALL, kernel="features", delta=10.0), continuous, env=us.make("Pendulum"))
    assert result.runs[0].status == "stopped in round 1: the payoff fell to delta"
    assert np.isfinite(result.metrics["payoff"][0]).sum() == 1
    assert result.metrics["payoff"][0][0] == finished[0].history["payoff"][0][0]


def test_gaussian_kernels_learn_with_either_kind_of_actions(discrete, surroundings, finished):
    """Discrete actions with the exact kernel, continuous ones with its features."""
    algorithm = us.adril(**SMALL | {"rounds": 2}, kernel="gaussian", points=16)
    for result in (us.imitate(algorithm, discrete, env=surroundings["discrete"]["env"]), finished[0]):
        assert result.runs[0].status == "finished"
        assert 0 < result.runs[0].payoff < 2
        assert (result.metrics["critic_loss"] > 0).all()


@pytest.mark.parametrize("settings", [{"rounds": 1}, {"restart_lr_schedule": True, "rounds": 3}])
def test_a_schedule_of_a_single_turn_would_teach_nothing_and_is_refused(continuous, settings):
    """The rate falls to 0 in the last turn, which is the only one."""
    learner = us.adril(**{**SMALL, "round_steps": SMALL["frequency"]} | settings)
    with pytest.raises(SettingError, match=r"round_steps is 16, one turn of 16: .* nothing would be learned"):
        us.imitate(learner, continuous, env=us.make("Pendulum"))


def test_a_table_changes_the_algorithms_own_player():
    """Another SAC would be one without the cool start."""
    assert us.adril(sac={"hidden": (32,)}).sac == us.rl.SAC(hidden=(32,), initial_temperature=0.01)
    assert us.adril.preset("paper", sac={"hidden": (32,)}).sac == us.rl.SAC(hidden=(32,))
    assert us.adril(sac=us.rl.SAC(hidden=(32,))).sac == us.rl.SAC(hidden=(32,))
    assert us.sqil(soft_q={"lr": 1e-3}).soft_q == replace(us.sqil().soft_q, lr=1e-3)
    assert us.gail(ppo={"lr": 1e-3}).ppo == replace(us.gail().ppo, lr=1e-3)
    for make in (us.adril, partial(us.adril.preset, "paper")):
        with pytest.raises(UnknownNameError, match="'hiden' in SAC: did you mean 'hidden'"):
            make(sac={"hiden": (32,)})
        with pytest.raises(UnknownNameError, match="'rond' in AdRIL: did you mean 'rounds'"):
            make(rond=3)
    with pytest.raises(UnknownNameError, match="'hiden' in SAC: did you mean 'hidden'"):
        us.rl.SAC(hiden=(32,))


def test_the_preset_does_what_the_released_runs_did_and_the_defaults_are_table_10():
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
    assert (plain.balanced, paper.balanced, balanced.balanced) == (False, False, True)
    assert (plain.kernel, paper.kernel, balanced.kernel) == ("features", "indicator", "indicator")
    assert (plain.average_rounds, paper.average_rounds, us.sqil().average_rounds, us.gail().average_rounds) == (
        5.0,
        0.0,
        0.0,
        0.0,
    )
    assert (plain.sac.initial_temperature, paper.sac.initial_temperature) == (0.01, 1.0)
    for algorithm in (plain, us.sqil()):  # Tables 9 and 10
        sac = algorithm.sac
        assert (sac.discount, sac.tau, sac.lr, sac.lr_schedule) == (0.98, 0.02, 7.3e-4, "linear")
        assert (algorithm.frequency, sac.gradient_steps, sac.hidden) == (64, 64, (256, 256))
    assert (plain.round_steps, plain.rounds, us.sqil().balanced) == (1250, 400, True)
    # 100 random actions at the start of each round, and nothing learned in turns that have no others.
    left = [int(paper.schedule.random_steps_left(round_, turn)) for round_ in (0, 5) for turn in range(3)]
    assert left == [64, 36, 0] * 2
    assert [int(plain.schedule.random_steps_left(5, turn)) for turn in range(2)] == [0, 0]
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
        {"buffer_size": 2559},  # of less than two rounds
        {"reset_each_round": {"first": True}},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        us.adril(**settings)
