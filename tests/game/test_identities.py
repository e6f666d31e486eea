"""The identities behind the taxonomy, on random finite MDPs, exact to 1e-10."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.errors import SettingError, SpecError
from understudy.game import payoffs
from understudy.game.critics import TableCritic
from understudy.policies import Tabular, TimeIndexed
from understudy.tabular import (
    FiniteMDP,
    exact,
    imitation_gap,
    mixture,
    occupancy,
    performance,
    q_box,
    q_values,
    samples,
    soft_response,
    stack,
)


def random_instance(seed, states, actions, horizon):
    """An MDP, a time-dependent reward in [-1, 1], an expert and a learner."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP(rng.dirichlet(np.ones(states), (states, actions)), rng.dirichlet(np.ones(states)), horizon)
    reward = rng.uniform(-1, 1, (horizon, states, actions))
    expert, learner = rng.dirichlet(np.full(actions, 0.5), (2, horizon, states))
    return mdp, reward, expert, learner


@jax.jit
def three_payoffs(mdp, reward, expert, learner):
    """U1 at −r, U2 at −Q^π, U3 at −Q^{π_E}, and the gap over T, with the same code as sampled games."""
    learner_policy, expert_policy = TimeIndexed(Tabular(learner)), TimeIndexed(Tabular(expert))
    learner_samples, expert_samples = samples(mdp, learner), samples(mdp, expert)
    key = jax.random.key(0)
    return (
        payoffs.payoff(TableCritic(-reward), payoffs.reward(learner_samples, expert_samples)),
        payoffs.payoff(
            TableCritic(-q_values(mdp, reward, learner)), payoffs.off_q(learner_policy, expert_samples, key)
        ),
        payoffs.payoff(TableCritic(-q_values(mdp, reward, expert)), payoffs.on_q(learner_samples, expert_policy, key)),
        imitation_gap(mdp, reward, expert, learner) / mdp.horizon,
    )


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), shape=st.sampled_from([(1, 1, 1), (2, 3, 1), (4, 2, 5), (6, 4, 12)]))
def test_the_three_payoffs_are_the_gap_over_T(seed, shape):
    """U1(−r) = U2(−Q^π) = U3(−Q^{π_E}) = (J(π_E) − J(π)) / T."""
    mdp, *tables = random_instance(seed, *shape)
    with jax.enable_x64(True):
        *found, gap = three_payoffs(mdp, *map(jnp.asarray, tables))
    assert {value.dtype for value in found} == {np.dtype(np.float64)}
    np.testing.assert_allclose([float(value) for value in found], float(gap), rtol=0, atol=1e-10)


@jax.jit
def telescoped(mdp, v, expert, learner):
    """AdVIL's derivation, display by display: U1 at f_t = v_t − B^π v_{t+1}, then what it telescopes to."""
    policy = TimeIndexed(Tabular(learner))
    after = jnp.concatenate([v[1:], jnp.zeros_like(v[:1])])  # nothing follows the last step
    backed_up = jnp.einsum("saz,tz->tsa", mdp.dynamics.probabilities, (jnp.roll(learner, -1, axis=0) * after).sum(-1))
    substituted = TableCritic(v - backed_up)
    of_learner, of_expert = samples(mdp, learner), samples(mdp, expert)
    first = jnp.einsum("s,sa,sa->", mdp.initial, learner[0], v[0]) / mdp.horizon
    return (
        payoffs.payoff(substituted, payoffs.reward(of_learner, of_expert)),
        first - payoffs.expectation(substituted, of_expert),
        payoffs.payoff(TableCritic(v), payoffs.off_q(policy, of_expert, jax.random.key(0))),
    )


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), shape=st.sampled_from([(1, 2, 1), (4, 2, 5), (6, 4, 12)]))
def test_advils_substitution_telescopes_to_the_off_q_payoff(seed, shape):
    """Σ_t E_π [v − B^π v] − E_E [v − B^π v] = E_π v(s_0, a_0) − Σ_t E_E [v − B^π v] = U2(v) (supplement)."""
    mdp, v, *tables = random_instance(seed, *shape)
    with jax.enable_x64(True):
        found = [float(value) for value in telescoped(mdp, *map(jnp.asarray, (v, *tables)))]
    np.testing.assert_allclose(found, found[-1], rtol=0, atol=1e-10)


def test_the_signs_are_costs():
    """A learner worse than its expert under r has a positive payoff at f = −r."""
    mdp = FiniteMDP(np.ones((1, 2, 1)), [1.0], 3)
    good, bad = np.tile([1.0, 0.0], (3, 1, 1)), np.tile([0.0, 1.0], (3, 1, 1))
    reward = np.tile([1.0, 0.0], (3, 1, 1))
    with jax.enable_x64(True):
        pair = payoffs.reward(samples(mdp, bad), samples(mdp, good))
        assert float(payoffs.payoff(TableCritic(-jnp.asarray(reward)), pair)) == pytest.approx(1.0)


def test_occupancies_are_distributions_and_values_agree_with_them():
    mdp, reward, _, learner = random_instance(3, 5, 3, 9)
    np.testing.assert_allclose(np.asarray(occupancy(mdp, learner)).sum((1, 2)), 1, atol=1e-12)
    value = (np.asarray(q_values(mdp, reward, learner))[0] * learner[0]).sum(1) @ np.asarray(mdp.initial)
    np.testing.assert_allclose(performance(mdp, reward, learner), value, atol=1e-12)
    expert = np.roll(learner, 1, axis=2)
    apart = performance(mdp, reward, expert) - performance(mdp, reward, learner)
    np.testing.assert_allclose(imitation_gap(mdp, reward, expert, learner), apart, atol=1e-12)


def test_exactness_is_scoped():
    """Tabular calls compute in float64 and leave float32 as the default elsewhere."""

    @exact
    def inside():
        return jnp.zeros(())

    assert inside().dtype == np.float64
    assert jnp.zeros(()).dtype == np.float32


@pytest.mark.parametrize(
    ("transitions", "initial", "horizon", "words"),
    [
        (np.full((2, 1, 2), 0.4), [1, 0], 3, r"transitions \[0, 0\]"),
        ([[[1.5, -0.5]], [[0, 1]]], [1, 0], 3, r"transitions \[0, 0, 1\]"),
        (np.full((2, 1, 2), 0.5), [0.5, 0.4], 3, "does not sum to one"),
        (np.full((2, 1, 2), 0.5), [1, 0], 0, "horizon is 0"),
        (np.full((2, 2), 0.5), [1, 0], 3, "shape"),
    ],
)
def test_a_broken_mdp_is_named(transitions, initial, horizon, words):
    with pytest.raises(SpecError, match=words):
        FiniteMDP(transitions, initial, horizon)


def tables(seed=0):
    mdp, reward, expert, learner = random_instance(seed, 4, 3, 6)
    return mdp, reward, expert, learner


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r, e, p: (r[0], e[0], p[0]), r"the reward has shape \(4, 3\)"),
        (lambda r, e, p: (r, 2 * e, p), r"the expert \[0, 0\]"),
        (lambda r, e, p: (r, e, p[:3]), r"the policy has shape \(3, 4, 3\)"),
        (lambda r, e, p: (r, e, p - 1), r"the policy \[0, 0, 0\]"),
        (lambda r, e, p: (np.where(r > 0.9, np.nan, r), e, p), "the reward"),
        (lambda r, e, p: (r, e.astype(np.float32), p), "float64"),
    ],
)
def test_a_broken_table_is_named_and_never_computed_with(change, words):
    mdp, *given_tables = tables()
    with pytest.raises(SpecError, match=words):
        imitation_gap(mdp, *change(*given_tables))


def test_batches_are_one_result_each_and_numbers_serve_all():
    mdps, rewards, experts, learners = zip(*(tables(seed) for seed in range(5)), strict=True)
    together = stack(mdps)
    found = imitation_gap(together, np.stack(rewards), np.stack(experts), np.stack(learners))
    alone = [imitation_gap(*each) for each in zip(mdps, rewards, experts, learners, strict=True)]
    np.testing.assert_allclose(found, alone, atol=1e-12)
    soft = soft_response(together, np.stack(rewards), 0.5)
    np.testing.assert_allclose(soft[3], soft_response(mdps[3], rewards[3], 0.5), atol=1e-12)
    with pytest.raises(SpecError, match="the policy has shape"):
        performance(together, np.stack(rewards), learners[0])
    with pytest.raises(SpecError, match="MDPs of 2 shapes"):
        stack([mdps[0], random_instance(0, 4, 3, 7)[0]])
    with pytest.raises(SettingError, match="temperature is 0"):
        soft_response(mdps[0], rewards[0], 0.0)
    with pytest.raises(SpecError, match=r"a batch of \(5,\) MDPs"):
        q_box(together)


def test_a_mixture_is_the_policy_with_its_occupancy():
    mdp, _, expert, learner = tables()
    policy = mixture(mdp, [expert, learner], [0.25, 0.75])
    mean = 0.25 * occupancy(mdp, expert) + 0.75 * occupancy(mdp, learner)
    np.testing.assert_allclose(occupancy(mdp, policy), mean, atol=1e-12)
    assert mean.dtype == policy.dtype == np.float64
    with pytest.raises(SpecError, match="weights does not sum to one"):
        mixture(mdp, [expert, learner], [0.5, 0.75])
