"""Certificates of the imitation gap: the inequality, the permutation test, the classes and what is refused."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

import understudy as us
from understudy.core.errors import DemonstrationError, NeedsError, SettingError, SpecError
from understudy.evaluation.concentration import (
    GRID,
    bootstrap_width,
    one_sample,
    psi,
    randomization_test,
    two_samples,
    width,
)
from understudy.evaluation.embeddings import Kernel, Steps, difference_gram, episode_gram, gram, steps_to_go
from understudy.evaluation.judge import SAMPLE_DIAMETER, ridge
from understudy.policies import MLP, Deterministic
from understudy.policies.actor import Actor
from understudy.tabular import imitation_gap
from understudy.tabular.bounds import random_instances
from understudy.tabular.planning import advantages, occupancy, q_values


@pytest.fixture(scope="module")
def demos():
    return us.load("Pendulum")


@pytest.fixture(scope="module")
def result(demos):
    learner = us.bc(rounds=5, gradient_steps=400, hidden=(32, 32))
    return us.imitate(learner, demos, episodes=10, progress=False)


def always(action, spec):
    net = MLP((jnp.zeros((spec.obs_size, 1)),), (jnp.array([action]),), "identity")
    return Actor(Deterministic(net), spec)


def vectors(random, count, size=5):
    """Unit vectors with entries ≥ 0, as the embeddings of a kernel ≥ 0 have inner products ≥ 0."""
    x = random.dirichlet(np.full(size, 0.3), count)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def contrast_of(*sides):
    both = np.concatenate(sides)
    return two_samples(both @ both.T, tuple(len(side) for side in sides), (1, 1), SAMPLE_DIAMETER)


# The inequality


def test_the_steps_of_the_proof_hold_on_a_grid():
    """e^{−ψ y²} (e^{λy} − λy + λu) ≤ 1 + λu for all |u| ≤ y ≤ 1."""
    lam, y, share = np.meshgrid(np.linspace(0.01, 0.95, 60), np.linspace(0, 1, 60), np.linspace(-1, 1, 21))
    u = share * y
    left = np.exp(-psi(lam) * y**2) * (np.exp(lam * y) - lam * y + lam * u)
    assert (left <= 1 + lam * u + 1e-12).all()
    assert psi(np.array([1e-4]))[0] == pytest.approx(0.5e-8, rel=1e-3), "to second order the variance term is exact"


def test_cosh_of_a_norm_grows_at_most_as_the_proof_says():
    random = np.random.default_rng(0)
    s, d = random.normal(size=(2, 2000, 3)) * random.exponential(2, (2, 2000, 1))
    norm, step = np.linalg.norm(s, axis=1), np.linalg.norm(d, axis=1)
    slope = np.sinh(norm) / norm * (s * d).sum(1)
    most = np.cosh(norm) * (1 + np.expm1(step) - step) + slope
    assert (np.cosh(np.linalg.norm(s + d, axis=1)) <= most * (1 + 1e-12)).all()


def test_width_of_a_hand_checked_sample():
    """Four equal vectors, whose centres go from 0 to 3/4 of them. One κ alone gives an upper bound of the width."""
    contrast = one_sample(np.ones((4, 4)), 1.0)
    np.testing.assert_allclose(contrast.scatter, [1, 0.25, 1 / 9, 1 / 16])
    assert contrast.norm == 1
    kappa = 0.9 * 4
    alone = (np.log(2 * GRID / 0.05) + psi(np.array([0.9]))[0] * contrast.scatter.sum()) / kappa
    assert 0.5 * alone < width(contrast, 0.05) <= alone


def test_centres_are_means_of_earlier_vectors_and_pilots_do_not_count():
    x, y = np.array([[0.0, 0], [2, 0], [4, 0]]), np.array([[0.0, 0], [0, 3], [0, 5]])
    contrast = contrast_of(x, y)
    np.testing.assert_allclose(contrast.scatter[[1, 2, 4, 5]], [4, 9, 9, 3.5**2])
    np.testing.assert_allclose(contrast.weights, [0, 0.5, 0.5, 0, -0.5, -0.5])
    assert contrast.norm == pytest.approx(5)


@pytest.mark.parametrize("count", [6, 25, 100])
def test_the_bound_holds_at_least_95_times_in_100(count):
    random, trials = np.random.default_rng(count), 400
    pool = vectors(random, 20_000)
    errors, widths = [], []
    for _ in range(trials):
        sides = pool[random.integers(len(pool), size=(2, count))]
        contrast = contrast_of(*sides)
        errors.append(contrast.norm)  # both have the same mean
        widths.append(width(contrast, 0.05))
    assert binomtest(int((np.array(errors) <= widths).sum()), trials, 0.95, "less").pvalue > 0.01


def test_the_width_adapts_to_the_variance():
    random = np.random.default_rng(1)
    centre = vectors(random, 1)
    wide = [vectors(random, 400) for _ in range(2)]
    narrow = [centre + 0.01 * (side - centre) for side in wide]
    # With variance the leading term is √(2 ln(2/α) (τ/n + τ/n)); without it the width falls as 1/n.
    spread = sum(side[1:].var(axis=0, ddof=1).sum() / 399 for side in wide)
    leading = np.sqrt(2 * np.log(2 / 0.05) * spread)
    assert leading < width(contrast_of(*wide), 0.05) < 1.5 * leading
    assert width(contrast_of(*narrow), 0.05) < 0.3 * width(contrast_of(*wide), 0.05)


def test_the_bootstrap_is_narrower_and_near_its_level():
    random, trials, inside = np.random.default_rng(2), 200, 0
    for _ in range(trials):
        contrast = contrast_of(vectors(random, 40), vectors(random, 40))
        found = bootstrap_width(contrast, 0.05, random)
        assert found < width(contrast, 0.05)
        inside += contrast.norm <= found
    assert binomtest(inside, trials, 0.95, "two-sided").pvalue > 0.01


def test_certificates_hold_on_random_mdps_with_exact_gaps():
    """The class {r(s, a): ‖r‖₂ ≤ 1}, with the worst reward for each learner: the gap is T times the norm itself."""
    count, horizon, random = 60, 6, np.random.default_rng(3)
    mdp, expert, learner, _ = random_instances(0, count, 4, 2, horizon)
    transitions, initial = np.asarray(mdp.dynamics.probabilities), np.asarray(mdp.initial)
    held = 0
    for index in range(count):
        sides = []
        for policy in (expert[index], learner[index]):
            visits = np.zeros((40, 4, 2))
            for episode in visits:
                state = random.choice(4, p=initial[index])
                for t in range(horizon):
                    action = random.choice(2, p=policy[t, state])
                    episode[state, action] += 1 / horizon
                    state = random.choice(4, p=transitions[index, state, action])
            sides.append(visits.reshape(40, -1))
        contrast = contrast_of(*sides)
        reward = random.normal(size=(4, 2))
        table = np.broadcast_to(reward / np.linalg.norm(reward), mdp.shape)
        one = [np.asarray(x)[index] for x in (transitions, initial)]
        gap = float(imitation_gap(us.tabular.FiniteMDP(*one, horizon), table, expert[index], learner[index]))
        bound = horizon * (contrast.norm + width(contrast, 0.05))
        held += gap <= bound
        assert bound < 2**0.5 * horizon
    assert held == count


def test_the_factors_of_q_moments_bound_exact_gaps():
    """With one-hot (t, s, a): T² ‖U2‖ if Q^π = (T − t) q, T² ‖U3‖ if Q^{π_E} = (T − t) q, where ‖q‖ = 1, and H T ‖U3‖
    if ‖A^{π_E}‖ = H."""
    horizon, height = 6, 2.5
    mdp, expert, learner, reward = random_instances(1, 30, 4, 2, horizon)
    axes = (1, 2, 3)

    def norm(table):
        return np.sqrt(np.square(np.asarray(table)).sum(axes))

    moved, to_go = learner - expert, steps_to_go(np.arange(horizon), horizon)[:, None, None]
    for states, values, size, factor, share in (
        (expert, q_values(mdp, reward, learner), horizon, horizon**2, to_go),
        (learner, q_values(mdp, reward, expert), horizon, horizon**2, to_go),
        (learner, advantages(mdp, reward, expert), height, height * horizon, 1.0),
    ):
        assert (np.abs(q_values(mdp, reward, learner)) <= horizon * to_go + 1e-12).all(), "rewards in [-1, 1]"
        visited = np.asarray(occupancy(mdp, states)).sum(-1, keepdims=True)
        sup = norm(visited * moved * share / horizon)
        gap = np.asarray(imitation_gap(mdp, reward, expert, learner)) * size / norm(values / share)  # scaled reward
        assert (gap <= factor * sup + 1e-12).all()
        worst = np.abs(gap / (factor * sup)).max()
        assert worst > 0.05, "not by a wide margin"


# The permutation test


def test_permutation_test_has_its_size():
    random, trials = np.random.default_rng(4), 300
    rejected = sum(
        randomization_test(contrast_of(vectors(random, 15), vectors(random, 15)), 0.05, random).p_value <= 0.05
        for _ in range(trials)
    )
    assert binomtest(rejected, trials, 0.05, "greater").pvalue > 0.01


def test_permutation_test_has_power_and_says_how_many_episodes_it_needs():
    random = np.random.default_rng(5)

    def shifted(count):
        x = vectors(random, count)
        x[:, 0] += 0.25
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    clear = randomization_test(contrast_of(vectors(random, 400), shifted(400)), 0.05, random)
    assert clear.p_value == 1 / 1000
    # The advice from a large sample, followed: about 80% of the tests reject.
    needed = clear.episodes
    rejected = [
        randomization_test(contrast_of(vectors(random, needed + 1), shifted(needed + 1)), 0.05, random).p_value <= 0.05
        for _ in range(100)
    ]
    assert 0.6 < np.mean(rejected) < 0.97


def test_equal_samples_need_no_number_of_episodes():
    x = vectors(np.random.default_rng(6), 10)
    found = randomization_test(contrast_of(x, x), 0.05, np.random.default_rng(0))
    assert found == (1.0, None)


# Kernels


def steps_of(random, lengths, terminal, horizon):
    total = sum(lengths)
    t = np.concatenate([np.arange(n) for n in lengths])
    obs, act = random.normal(size=(total, 2)), random.uniform(-1, 1, (total, 1))
    return us.Spec((2,), us.Continuous((-1.0,), (1.0,)), horizon), Steps(
        t, obs, act, np.array(lengths), np.array(terminal)
    )


def test_block_sums_are_the_sums_of_the_full_matrix(monkeypatch):
    random = np.random.default_rng(7)
    spec, steps = steps_of(random, [7, 3, 20, 1], [False] * 4, 20)
    kernel = Kernel.fit(spec, steps)
    points = kernel.of(steps)
    full = kernel.values(points, points)
    owner = np.repeat(np.eye(4), steps.lengths, axis=0)
    weights = steps_to_go(steps.t, 20)
    weighted = owner * weights[:, None]
    for block in (2048, 8):  # pieces of episodes
        monkeypatch.setattr("understudy.evaluation.embeddings.BLOCK", block)
        for each, sides in ((None, owner), (weights, weighted)):
            found = gram(points, steps.lengths, kernel.bandwidth, each)
            np.testing.assert_allclose(found, sides.T @ full @ sides, rtol=1e-5)


def test_an_early_end_is_completed_with_the_absorbing_state_and_a_cut_is_not():
    spec, steps = steps_of(np.random.default_rng(8), [4, 10], [True, False], 10)
    kernel = Kernel.fit(spec, steps)
    ended = episode_gram(kernel, steps)
    inside = gram(kernel.of(steps), steps.lengths, kernel.bandwidth)
    assert ended[0, 0] == pytest.approx(inside[0, 0] / 100 + 0.36)
    assert ended[0, 1] == pytest.approx(inside[0, 1] / 100)
    assert (np.diag(ended) <= 1).all()
    cut = steps._replace(terminal=np.array([False, False]))
    assert episode_gram(kernel, cut)[0, 0] == pytest.approx(inside[0, 0] / 16)
    assert (steps.cut(10), cut.cut(10)) == (0, 1)


def test_equal_actions_have_no_difference():
    spec, steps = steps_of(np.random.default_rng(9), [5, 5], [False] * 2, 5)
    kernel = Kernel.fit(spec, steps, timed=True)
    np.testing.assert_allclose(difference_gram(kernel, steps, steps.act, steps.act), 0, atol=1e-6)
    apart = difference_gram(kernel, steps, -steps.act, steps.act)
    assert (np.diag(apart) > 1e-3).all()
    assert (np.linalg.eigvalsh(apart) > -1e-6).all()
    shorter = difference_gram(kernel, steps, -steps.act, steps.act, steps_to_go(steps.t, 5))
    assert (np.diag(shorter) <= 2 * 0.6**2).all(), "the mean of 5 weights is 0.6"
    assert (np.diag(shorter) < np.diag(apart)).all()


def test_ridge_recovers_a_reward_of_the_class_and_its_norm():
    random = np.random.default_rng(10)
    points = random.normal(size=(150, 2))
    inner = np.exp(-((points[:, None] - points) ** 2).sum(-1) / 2)
    truth = np.zeros(150)
    truth[:3] = [1.0, -2.0, 0.5]
    coefficients, norm = ridge(inner, inner @ truth)
    np.testing.assert_allclose(inner @ coefficients, inner @ truth, atol=0.02)
    assert norm == pytest.approx(np.sqrt(truth @ inner @ truth), rel=0.05)


# The call


def test_all_three_kinds_with_their_factors(result):
    found = us.certify(result.policy, env="Pendulum", expert="scripted", episodes=25, progress=False, seed=1)
    assert [one.moments for one in found] == ["reward", "reward", "off-Q", "on-Q"]
    unit, task, off_q, on_q = found
    assert (unit.factor, off_q.factor, on_q.factor) == (200, 200**2, 200**2)
    for one in (unit, off_q, on_q):
        assert one.bound == pytest.approx(one.factor * (one.payoff + one.error))
        assert one.bootstrap < one.bound
        assert one.approximate == ()
        assert (one.learner_episodes, one.expert_episodes) == (23, 23)
    assert unit.largest == pytest.approx(2**0.5 * 200)
    assert not unit.vacuous
    assert off_q.vacuous
    assert "VACUOUS" in str(off_q)
    assert "VACUOUS" not in str(unit)
    assert any("fitted" in reason for reason in task.approximate)
    again = us.certify(result.policy, env="Pendulum", expert="scripted", episodes=25, progress=False, seed=1)
    assert str(again) == str(found), "a seed repeats exactly"
    given = us.certify(
        result.policy,
        env="Pendulum",
        expert="scripted",
        episodes=12,
        moments=["on-Q"],
        recoverability=5.0,
        progress=False,
    )[0]
    assert given.factor == 1000
    assert any("H is taken as given" in reason for reason in given.approximate)


def test_a_policy_far_from_the_expert_is_different(demos):
    found = us.certify(always(2.0, demos.spec), demos, "Pendulum", moments=["reward"], episodes=25)
    assert found[0].different
    assert "different (p = 0.001" in str(found[0])


def test_demonstrations_of_the_run_do_not_count(result, demos):
    with pytest.warns(UserWarning, match="first 10 demonstrations trained"):
        found = result.certificate(demos, moments=["off-Q"])
    assert found[0].expert_episodes == 14, "25 less 10 that trained it less 1 that fits the kernel"
    with pytest.raises(DemonstrationError, match="trained and selected the policy"):
        us.certify(us.imitate(us.bc(rounds=1, gradient_steps=1), demos, progress=False), demos)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh = result.certificate(us.record("Pendulum", episodes=5, seed=9, progress=False), moments=["off-Q"])
    assert fresh[0].expert_episodes == 4


def test_what_cannot_be_done_is_said_and_the_rest_is_done(result, demos):
    found = us.certify(result.policy, demos)
    assert [one.moments for one in found] == ["off-Q"]
    assert "pass env=" in found.missing["reward"]
    assert "pass expert=" in found.missing["on-Q"]
    assert "pass env=" in str(found)


def test_bad_input_is_one_line(result, demos, monkeypatch):
    actor = result.policy
    cartpole = us.load("CartPole-v1")
    broken = always(np.nan, demos.spec)
    cases = [
        (lambda: us.certify(actor), NeedsError, "needs fresh demonstrations"),
        (lambda: us.certify(actor, demos, moments=["reward"]), NeedsError, "pass env="),
        (lambda: us.certify(actor, demos, "Pendulum", moments=["on-Q"]), NeedsError, "pass expert="),
        (lambda: us.certify(actor, demos, expert="scripted"), NeedsError, "pass env="),
        (lambda: us.certify(actor, demos.first(1)), DemonstrationError, "1 demonstrated episode: a certificate needs"),
        (lambda: us.certify(actor, cartpole), SpecError, "pass demonstrations of its own task"),
        (lambda: us.certify(actor, demos, "CartPole-v1"), SpecError, "the policy was trained for"),
        (lambda: us.certify(broken, demos), SpecError, "not finite"),
        (lambda: us.certify(actor, demos, confidence=95), SettingError, "confidence is 95"),
        (lambda: us.certify(actor, demos, moments=["rewards"]), SettingError, "moments is 'rewards'"),
        (lambda: us.certify(actor, demos, episodes=1), SettingError, "episodes is 1"),
        (lambda: us.certify(actor, demos, recoverability=0), SettingError, "recoverability is 0"),
        (lambda: us.certify("runs/bc", demos), SettingError, "policy is a str"),
        (lambda: us.certify(actor, "Pendulum"), DemonstrationError, "demonstrations is a str"),
    ]
    for call, error, message in cases:
        with pytest.raises(error) as raised:
            call()
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_cut_episode_makes_a_certificate_approximate(result, demos):
    ends = np.cumsum(demos.lengths)
    keep = np.ones(demos.steps, bool)
    keep[ends[-1] - 50 :] = False
    lengths = demos.lengths.copy()
    lengths[-1] -= 50
    short = us.Demonstrations.from_arrays(
        demos.observations[keep], demos.actions[keep], lengths, action_space=demos.action_space, horizon=200
    )
    found = us.certify(result.policy, short)
    assert "1 demonstrations were cut before step 200" in found[0].approximate[0]
    assert "95%, approximate" in str(found[0])


def test_an_undecided_test_says_so():
    one = us.Certificate("reward", "r", 1.0, 0.5, 0.95, 2.0, 0.1, 0.4, 2.0, {}, 10, 10, 0.3, 80)
    assert "cannot be told apart with 10 and 10 episodes (p = 0.3); about 80 episodes" in one.verdict
    assert "more episodes would not settle" in dataclasses.replace(one, episodes_to_settle=None).verdict
    assert dataclasses.replace(one, bound=2.0).vacuous
