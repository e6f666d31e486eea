"""The supplement: mixed moments, imitation from observations, reward-plus-Q moments, and PSDP."""

import numpy as np
import pytest

from understudy.core.errors import SettingError, SpecError
from understudy.tabular import FiniteMDP, imitation_gap, occupancy, q_values
from understudy.tabular.examples import cliff, erring
from understudy.tabular.games import Game
from understudy.tabular.mixed import (
    match_states,
    mixed_bound,
    mixed_payoffs,
    mixed_suprema,
    observation_bound,
    observations,
    state_box,
)
from understudy.tabular.moments import q_box
from understudy.tabular.psdp import (
    combined_bound,
    combined_difference,
    combined_payoff,
    combined_suprema,
    expansion,
    moment_errors,
    psdp,
)

pytestmark = pytest.mark.slow  # many finite MDPs

SHAPES = [(1, 2, 1), (4, 2, 5), (6, 4, 12)]
MOMENTS = ["off-Q", "on-Q"]


def random_instances(seed, states, actions, horizon, batch=()):
    """MDPs, time-dependent rewards in [-1, 1], experts, learners and third policies."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(states), (*batch, states, actions))
    mdp = FiniteMDP(transitions, rng.dirichlet(np.ones(states), batch or None), horizon)
    reward = rng.uniform(-1, 1, (*batch, horizon, states, actions))
    return mdp, reward, *rng.dirichlet(np.full(actions, 0.5), (3, *batch, horizon, states))


def later_learner(rng, expert, learner):
    """The expert before a random time, the learner from then on."""
    horizon = expert.shape[-3]
    start = rng.integers(0, horizon, (*expert.shape[:-3], 1, 1, 1))
    return np.where(np.arange(horizon)[:, None, None] < start, expert, learner)


def worst_gap(mdp, expert, policy):
    """The largest J(π_E) − J(π) of any |r_t(s, a)| ≤ 1."""
    return np.abs(np.asarray(occupancy(mdp, expert)) - np.asarray(occupancy(mdp, policy))).sum((-3, -2, -1))


@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_payoffs_add_up_to_the_gap(shape):
    """J(π_E) − J(π) = T [U1(−Q^μ) + U1(V^μ)] for μ the learner, the expert, and any third policy."""
    mdp, reward, expert, learner, third = random_instances(0, *shape, batch=(100,))
    gap = np.asarray(imitation_gap(mdp, reward, expert, learner))
    for valued in (learner, expert, third):
        of_q, of_v = mixed_payoffs(mdp, reward, expert, learner, valued)
        np.testing.assert_allclose(mdp.horizon * (np.asarray(of_q) + np.asarray(of_v)), gap, rtol=0, atol=1e-10)


def test_the_two_terms_are_payoffs_of_the_reward_game():
    mdp, reward, expert, learner, _ = random_instances(1, 4, 2, 5)
    q = np.asarray(q_values(mdp, reward, expert))
    v = np.broadcast_to((expert * q).sum(-1, keepdims=True), mdp.shape)
    game = Game("reward", mdp, expert)
    found = mixed_payoffs(mdp, reward, expert, learner, expert)
    np.testing.assert_allclose(found, [game.payoff(learner, -q), game.payoff(learner, v)], rtol=0, atol=1e-12)
    w = game.difference(learner)
    suprema = mixed_suprema(mdp, expert, learner)
    np.testing.assert_allclose(suprema, [q_box(mdp).sup(w), state_box(mdp).sup(w)], rtol=0, atol=1e-12)


def test_the_mixed_bound_holds_and_is_attained_up_to_a_half():
    """gap ≤ 4T² sup U1 for the worst reward. The sum of the two suprema is tight for errors in the last step."""
    mdp, _, expert, learner, _ = random_instances(2, 4, 3, 6, batch=(2_000,))
    learner = later_learner(np.random.default_rng(2), expert, learner)
    gap, bound = worst_gap(mdp, expert, learner), np.asarray(mixed_bound(mdp, expert, learner))
    assert (gap <= bound).all()
    assert 0.5 - 1e-9 < (gap / bound).max() < 0.5 + 1e-9
    at_last = (learner[:, :-1] == expert[:, :-1]).all((1, 2, 3))
    added = 2 * 6**2 * np.sum([np.asarray(part) for part in mixed_suprema(mdp, expert, learner)], axis=0)
    assert at_last.sum() > 200
    np.testing.assert_allclose(gap[at_last], added[at_last], rtol=1e-10)
    assert (gap <= added + 1e-10).all()


def test_on_cliff_the_mixed_gap_is_linear_in_the_horizon():
    """The supplement's lower bound: an error p in s_0 has payoff ε = p (T + 1) / 2T and gap p T = 2εT² / (T + 1)."""
    for horizon in (1, 2, 8, 64):
        example, p = cliff(horizon), 0.01
        learner = erring(example, p, 0)
        epsilon = max(float(part) for part in mixed_suprema(example.mdp, example.expert, learner))
        gap = float(imitation_gap(example.mdp, example.reward, example.expert, learner))
        assert epsilon == pytest.approx(p * (horizon + 1) / (2 * horizon), abs=1e-12)
        assert gap == pytest.approx(p * horizon, abs=1e-12)
        assert gap >= epsilon * horizon - 1e-12


def test_the_supremum_over_functions_of_state_depends_on_state_marginals():
    """sup Σ w·f over F_V/2T is Σ_t (T − t)/2T ‖Σ_a w_t‖₁, `best` attains it, and no function of the class is larger."""
    mdp, _, expert, learner, _ = random_instances(3, 4, 3, 5)
    box, game, rng = state_box(mdp), Game("reward", mdp, expert), np.random.default_rng(3)
    w = np.asarray(game.difference(learner))
    left = (5 - np.arange(5)) / 10
    sup = float(box.sup(w))
    assert sup == pytest.approx(left @ np.abs(w.sum(-1)).sum(-1), abs=1e-12)
    best = np.asarray(box.best(w))
    assert (best == best[..., :1]).all()
    assert float(game.payoff(learner, best)) == pytest.approx(sup, abs=1e-12)
    others = rng.uniform(-1, 1, (200, 5, 4)) * left[:, None]
    assert np.einsum("nts,tsa->n", others, w).max() <= sup
    response = game.respond(best)
    rivals = rng.dirichlet(np.ones(3), (50, 5, 4))
    assert float(game.payoff(response, best)) <= min(float(game.payoff(rival, best)) for rival in rivals)


@pytest.mark.parametrize("shape", [(5, 3, 8), (10, 4, 20)])
def test_state_distributions_are_matched_to_the_tolerance(shape):
    """The certificate is met, agrees with the games, and bounds the gap of every reward of the state."""
    mdp, reward, expert, *_ = random_instances(4, *shape)
    found = match_states(mdp, observations(mdp, expert), 1e-3)
    game, critic = Game("reward", mdp, expert), np.asarray(found.critic)
    table = np.broadcast_to(critic[..., None], mdp.shape)
    payoff = float(state_box(mdp).sup(game.difference(found.policy)))
    assert found.certificate <= 1e-3
    assert found.payoff == pytest.approx(payoff, abs=1e-12)
    assert found.certificate == pytest.approx(payoff - float(game.payoff(game.respond(table), table)), abs=1e-12)
    assert payoff <= found.certificate + 1e-12  # the game's value is 0
    gap = float(imitation_gap(mdp, np.broadcast_to(reward[..., :1], mdp.shape), expert, found.policy))
    assert abs(gap) <= float(observation_bound(mdp, expert, found.policy)) <= 2 * mdp.horizon**2 * 1e-3


def test_the_observation_bound_holds_and_is_attained():
    """For the worst reward of the state on 10,000 MDPs; equality where only the last step's states differ."""
    mdp, _, expert, learner, _ = random_instances(5, 4, 3, 6, batch=(2_000,))
    learner = later_learner(np.random.default_rng(5), expert, learner)
    gap = np.abs(np.asarray(observations(mdp, expert)) - np.asarray(observations(mdp, learner))).sum((1, 2))
    bound = np.asarray(observation_bound(mdp, expert, learner))
    assert (gap <= bound + 1e-12).all()
    assert (gap / np.maximum(bound, 1e-9)).max() == pytest.approx(1, abs=1e-6)


def test_unreachable_states_are_matched_as_well_as_possible():
    """Two absorbing states; the expert is observed in the other from t = 1 on. The value is Σ_{t ≥ 1} (T − t) / T²."""
    mdp = FiniteMDP(np.array([[0, 0], [1, 1]]), [1.0, 0.0], 4)
    found = match_states(mdp, np.array([[1, 0], [0, 1], [0, 1], [0, 1]]), 1e-3)
    assert found.certificate <= 1e-3
    assert found.payoff == pytest.approx(6 / 16, abs=1e-12)


def test_on_cliff_the_states_determine_all_actions_but_the_last():
    example = cliff(6)
    found = match_states(example.mdp, observations(example.mdp, example.expert), 1e-4)
    on_chain = np.asarray(found.policy)[np.arange(6), np.arange(6)]
    assert on_chain[:-1, 0].min() > 1 - 1e-3
    assert on_chain[-1, 0] == pytest.approx(0.5)


def test_a_reward_on_actions_is_not_imitated_from_observations():
    """Two actions with the same successor: every state moment matches, and half of the actions are wrong."""
    mdp = FiniteMDP(np.tile([[1], [0]], (1, 2)), [1.0, 0.0], 10)
    expert = np.broadcast_to([1.0, 0.0], mdp.shape)
    found = match_states(mdp, observations(mdp, expert), 1e-6)
    assert found.payoff == pytest.approx(0, abs=1e-12)
    assert float(observation_bound(mdp, expert, found.policy)) == pytest.approx(0, abs=1e-9)
    assert float(imitation_gap(mdp, expert, expert, found.policy)) == pytest.approx(5)
    assert float(Game("reward", mdp, expert).payoff(found.policy, -expert)) == pytest.approx(0.5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("moments", MOMENTS)
def test_every_cut_gives_the_same_gap(shape, moments):
    """U at f = −r and g = −Q^π (−Q^{π_E}) is (J(π_E) − J(π)) / T from T' = 0 (only Q) to T' ≥ T (only rewards)."""
    mdp, reward, expert, learner, _ = random_instances(6, *shape, batch=(20,))
    gap = np.asarray(imitation_gap(mdp, reward, expert, learner))
    q = np.asarray(q_values(mdp, reward, learner if moments == "off-Q" else expert))
    for cut in range(mdp.horizon + 2):
        found = combined_payoff(mdp, -reward, -q, expert, learner, cut, moments)
        np.testing.assert_allclose(np.asarray(found) * mdp.horizon, gap, rtol=0, atol=1e-10)


def test_the_expansion_is_the_sum_along_the_policys_rollout():
    mdp, f, policy, *_ = random_instances(7, 3, 2, 4)
    g = random_instances(8, 3, 2, 4)[1]
    transitions = np.asarray(mdp.dynamics.probabilities)
    for cut in range(6):
        found = np.asarray(expansion(mdp, f, g, policy, cut))
        for t, s, a in np.ndindex(4, 3, 2):
            at, total = np.zeros((3, 2)), 0.0
            at[s, a] = 1
            for time in range(t, min(t + cut, 4)):
                total += (at * f[time]).sum()
                at = np.einsum("sa,saz->z", at, transitions)[:, None] * policy[min(time + 1, 3)]
            total += (at * g[t + cut]).sum() if t + cut < 4 else 0
            assert found[t, s, a] == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("moments", MOMENTS)
def test_the_payoff_telescopes_from_the_q_game_to_the_reward_game(moments):
    """Σ w·f + Σ v·g is the payoff for any f and g. T' = 0 is U2 (U3) at g, T' ≥ T is U1 at f."""
    mdp, f, expert, learner, g = random_instances(9, 4, 3, 6)
    for cut in range(7):
        w, v = (np.asarray(part) for part in combined_difference(mdp, expert, learner, cut, moments))
        direct = float(combined_payoff(mdp, f, g, expert, learner, cut, moments))
        assert (w * f).sum() + (v * g).sum() == pytest.approx(direct, abs=1e-12)
        if cut == 0:
            assert not w.any()
            np.testing.assert_allclose(v, Game(moments, mdp, expert).difference(learner), rtol=0, atol=1e-14)
    np.testing.assert_allclose(w, Game("reward", mdp, expert).difference(learner), rtol=0, atol=1e-14)
    np.testing.assert_allclose(v, 0, rtol=0, atol=1e-14)


def test_rewards_on_the_experts_states_are_not_the_gap():
    """The supplement's equation at T' = T on CLIFF gives p, but the gap is p T."""
    example, p, horizon = cliff(8), 0.1, 8
    learner = erring(example, p, 0)
    states = np.asarray(observations(example.mdp, example.expert))[..., None]
    per_step = (states * (example.expert - learner) * example.reward).sum((1, 2))
    printed = sum(per_step[t:].sum() for t in range(horizon))
    along = combined_payoff(
        example.mdp, -example.reward, np.zeros(example.mdp.shape), example.expert, learner, horizon, "off-Q"
    )
    assert printed == pytest.approx(p)
    assert float(along) * horizon == pytest.approx(p * horizon)


@pytest.mark.parametrize("moments", MOMENTS)
def test_the_combined_bound_holds_at_every_cut(moments):
    """gap ≤ 2T sup_f U + 2T² sup_g U ≤ 2T² sup U for the worst reward. At T' ≥ T the bound is the gap."""
    mdp, _, expert, learner, _ = random_instances(10, 4, 3, 6, batch=(500,))
    learner = later_learner(np.random.default_rng(10), expert, learner)
    gap = worst_gap(mdp, expert, learner)
    for cut in range(7):
        bound = np.asarray(combined_bound(mdp, expert, learner, cut, moments))
        of_f, of_g = (np.asarray(part) for part in combined_suprema(mdp, expert, learner, cut, moments))
        assert (gap <= bound + 1e-12).all()
        assert (bound <= 2 * 6**2 * (of_f + of_g) + 1e-12).all()
    np.testing.assert_allclose(bound, gap, rtol=1e-10)


def test_psdp_reproduces_an_expert_in_its_class():
    """All errors and the gap of the worst reward are 0, also with aliased states."""
    mdp, _, expert, *_ = random_instances(11, 5, 3, 6)
    found = psdp(mdp, expert)
    assert found.errors.max() < 1e-9
    assert worst_gap(mdp, expert, found.policy) < 1e-9
    observed = np.array([0, 0, 1, 1, 2])
    aliased = expert[:, [0, 0, 2, 2, 4]]
    found = psdp(mdp, aliased, observed=observed)
    assert found.errors.max() < 1e-9
    assert worst_gap(mdp, aliased, found.policy) < 1e-9
    example = cliff(5)
    assert worst_gap(example.mdp, example.expert, psdp(example.mdp, example.expert).policy) < 1e-9


def test_psdps_errors_are_distances_of_future_occupancies():
    """For all rewards, ε_t = Σ_{t' ≥ t} ‖ν^π_{t'} − ν^E_{t'}‖₁: from d^E_t, one step of π_t or π_E, then π."""
    mdp, _, expert, learner, _ = random_instances(12, 4, 3, 5)
    transitions, states = np.asarray(mdp.dynamics.probabilities), np.asarray(observations(mdp, expert))
    for t, error in enumerate(np.asarray(moment_errors(mdp, expert, learner))):
        apart, total = states[t][:, None] * (learner[t] - expert[t]), 0.0
        for later in range(t, 5):
            total += np.abs(apart).sum()
            apart = np.einsum("sa,saz->z", apart, transitions)[:, None] * learner[min(later + 1, 4)]
        assert error == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_an_approximate_match_keeps_the_off_q_bound(seed):
    """With pairs of aliased states: worst gap ≤ Σ_t ε_t ≤ 2T² sup U2, and each step is optimal in its class."""
    mdp, _, expert, *_ = random_instances(20 + seed, 6, 3, 5)
    observed = np.arange(6) // 2
    found = psdp(mdp, expert, observed=observed)
    assert (found.policy[:, ::2] == found.policy[:, 1::2]).all()
    off_q = 2 * 5**2 * float(q_box(mdp).sup(Game("off-Q", mdp, expert).difference(found.policy)))
    assert 0.1 < worst_gap(mdp, expert, found.policy) <= found.errors.sum() <= off_q
    rng = np.random.default_rng(seed)
    for t in range(5):
        for _ in range(4):
            other = found.policy.copy()
            other[t] += 0.1 * (rng.dirichlet(np.full(3, 0.3), 3)[observed] - other[t])
            assert float(moment_errors(mdp, expert, other)[t]) >= found.errors[t] - 1e-9


def test_few_reward_features_can_be_matched_outside_the_experts_class():
    """A reward of the last state does not depend on actions with the same successor; other rewards do."""
    transitions = np.array([[1, 2], [3, 3], [3, 3], [3, 3]])
    mdp = FiniteMDP(transitions, [1.0, 0, 0, 0], 4)
    expert = np.zeros(mdp.shape)
    expert[..., 0] = 1
    expert[:, 0] = 0.5
    expert[:, 2] = [0, 1]
    sparse = np.zeros((4, 2, 1))
    sparse[3] = 1
    observed = [0, 1, 1, 2]
    found = psdp(mdp, expert, sparse, observed)
    assert found.errors.max() < 1e-9
    assert float(imitation_gap(mdp, np.broadcast_to(sparse[..., 0], mdp.shape), expert, found.policy)) == pytest.approx(
        0
    )
    assert psdp(mdp, expert, observed=observed).errors[1] == pytest.approx(1)


def test_the_errors_of_a_span_bound_its_gaps():
    """J(π_E) − J(π) ≤ Σ_t ε_t for r = φ·θ, |θ_k| ≤ 1, with time-dependent features and aliased states."""
    mdp, _, expert, *_ = random_instances(13, 6, 3, 5)
    rng = np.random.default_rng(13)
    features = rng.uniform(-0.5, 0.5, (*mdp.shape, 2))
    found = psdp(mdp, expert, features, np.arange(6) // 3)
    for theta in rng.choice([-1.0, 1.0], (8, 2)):
        assert float(imitation_gap(mdp, features @ theta, expert, found.policy)) <= found.errors.sum() + 1e-12


@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_raise():
    mdp, reward, expert, learner, _ = random_instances(14, 3, 2, 4)
    batch, _, experts, *_ = random_instances(14, 3, 2, 4, batch=(2,))
    apart = FiniteMDP(np.zeros((2, 2), int), [1.0, 0.0], 1, [[True, False], [False, True]])
    with pytest.raises(SpecError, match=r"observed states have shape \(4, 2\)"):
        match_states(mdp, np.full((4, 2), 0.5), 1e-3)
    with pytest.raises(SpecError, match=r"the observed states \[1\] does not sum to one"):
        match_states(mdp, [[1, 0, 0], [0.5, 0, 0], [1, 0, 0], [1, 0, 0]], 1e-3)
    with pytest.raises(SettingError, match="tolerance is 0"):
        match_states(mdp, np.full((4, 3), 1 / 3), 0)
    with pytest.raises(SpecError, match="the observed states are not an array of numbers"):
        match_states(mdp, [[1, 0, 0], [1]], 1e-3)
    for one_at_a_time in (
        lambda: match_states(batch, np.full((4, 3), 1 / 3), 1e-3),
        lambda: psdp(batch, experts),
        lambda: moment_errors(batch, experts, experts),
    ):
        with pytest.raises(SpecError, match=r"a batch of \(2,\) MDPs"):
            one_at_a_time()
    with pytest.raises(SettingError, match="cut is -1"):
        combined_payoff(mdp, reward, reward, expert, learner, -1, "off-Q")
    with pytest.raises(SettingError, match="moments is 'reward'"):
        combined_payoff(mdp, reward, reward, expert, learner, 1, "reward")
    with pytest.raises(SpecError, match=r"features have shape \(3, 3, 1\)"):
        psdp(mdp, expert, np.zeros((3, 3, 1)))
    with pytest.raises(SpecError, match=r"features \[0, 1, 0\] are not finite"):
        psdp(mdp, expert, [[[0.0], [np.nan]]] * 3)
    with pytest.raises(SpecError, match="features are not an array of numbers"):
        moment_errors(mdp, expert, learner, [[[0.0], [1.0, 2.0]]] * 3)
    with pytest.raises(SpecError, match=r"features have shape \(3, 2, 0\)"):
        psdp(mdp, expert, np.zeros((3, 2, 0)))
    with pytest.raises(SpecError, match=r"observed is \[0, -1, 1\]"):
        psdp(mdp, expert, observed=[0, -1, 1])
    with pytest.raises(SpecError, match="the states observed as 0"):
        psdp(apart, np.array([[[1.0, 0.0], [0.0, 1.0]]]), observed=[0, 0])
    with pytest.raises(SpecError, match="the expert has shape"):
        psdp(mdp, expert[:2])
    with pytest.raises(SpecError, match=r"the expert \[0, 0, 1\] is positive"):
        psdp(apart, np.array([[[0.5, 0.5], [0.0, 1.0]]]))


OF_POLICIES = {
    "mixed_payoffs": lambda mdp, r, expert, policy: mixed_payoffs(mdp, r, expert, policy, policy),
    "mixed_suprema": lambda mdp, r, expert, policy: mixed_suprema(mdp, expert, policy),
    "mixed_bound": lambda mdp, r, expert, policy: mixed_bound(mdp, expert, policy),
    "observation_bound": lambda mdp, r, expert, policy: observation_bound(mdp, expert, policy),
    "combined_payoff": lambda mdp, r, expert, policy: combined_payoff(mdp, r, r, expert, policy, 1, "on-Q"),
    "combined_difference": lambda mdp, r, expert, policy: combined_difference(mdp, expert, policy, 1, "on-Q"),
    "combined_suprema": lambda mdp, r, expert, policy: combined_suprema(mdp, expert, policy, 1, "off-Q"),
    "combined_bound": lambda mdp, r, expert, policy: combined_bound(mdp, expert, policy, 1, "off-Q"),
    "moment_errors": lambda mdp, r, expert, policy: moment_errors(mdp, expert, policy),
}


@pytest.mark.parametrize("function", OF_POLICIES.values(), ids=OF_POLICIES)
@pytest.mark.usefixtures("unchecked_types")
def test_an_invalid_policy_raises(function):
    """For one MDP, and for a batch if the function takes batches."""
    mdp, reward, expert, learner, _ = random_instances(15, 3, 2, 4)
    lacking = FiniteMDP(mdp.dynamics.probabilities, mdp.initial, 4, [[True, True], [True, True], [True, False]])
    with pytest.raises(SpecError, match=r"the expert \[0, 0\] does not sum to one"):
        function(mdp, reward, 2 * expert, learner)
    with pytest.raises(SpecError, match=r"the policy.*is negative or not"):
        function(mdp, reward, expert, np.where(learner == learner.max(), np.nan, learner))
    with pytest.raises(SpecError, match=r"the policy has shape \(3, 3, 2\)"):
        function(mdp, reward, expert, learner[1:])
    with pytest.raises(SpecError, match=r"the expert \[0, 2, 1\] is positive"):
        function(lacking, reward, expert, learner)
    if function is not OF_POLICIES["moment_errors"]:
        mdps, rewards, experts, learners, _ = random_instances(15, 3, 2, 4, batch=(2,))
        with pytest.raises(SpecError, match=r"the policy \[0, 0, 0\] does not sum to one"):
            function(mdps, rewards, experts, 2 * learners)


@pytest.mark.usefixtures("unchecked_types")
def test_an_invalid_cost_raises():
    mdp, reward, expert, learner, _ = random_instances(16, 3, 2, 4)
    broken = np.where(reward == reward.max(), np.inf, reward)
    with pytest.raises(SpecError, match=r"the reward.*is not"):
        mixed_payoffs(mdp, broken, expert, learner, expert)
    with pytest.raises(SpecError, match=r"f.*is not"):
        expansion(mdp, broken, reward, expert, 1)
    with pytest.raises(SpecError, match=r"g has shape \(3, 2\)"):
        combined_payoff(mdp, reward, reward[0], expert, learner, 1, "off-Q")


@pytest.mark.parametrize("max_iterations", [1, 49, 120])
def test_matching_stops_after_max_iterations(max_iterations):
    mdp, _, expert, *_ = random_instances(17, 3, 2, 4)
    found = match_states(mdp, observations(mdp, expert), 1e-12, max_iterations)
    assert found.iterations == max_iterations
    assert found.certificate > 1e-12
    payoff = float(state_box(mdp).sup(Game("reward", mdp, expert).difference(found.policy)))
    assert found.payoff == pytest.approx(payoff, abs=1e-12)
