"""Survival bias on a chain: a reward's constant changes episode lengths unless ended episodes continue."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from understudy.core.errors import SettingError, SpecError, UnknownNameError
from understudy.game import payoffs
from understudy.game.critics import TableCritic
from understudy.tabular import occupancy, samples, soft_response, stay_or_end, survival_game, survival_table, uniform
from understudy.tabular.survival import ALIVE, END, ENDED, FORMS, STAY, ending, expected_length, form_reward

HORIZON, ALPHA = 20, 0.01
SHORT, LONG = 0.5, 0.03
CONSTANTS = {
    "AdRIL": 0.0,
    "SQIL": 0.5,
    "SQIL, labels alone": 1.0,
    "GAIL, log D": -np.log(2),
    "GAIL, −log(1 − D)": np.log(2),
    "AIRL": 0.0,
}
GAMES = [form for form in FORMS if form != "SQIL, labels alone"]
every_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def chain():
    return stay_or_end(HORIZON)


@pytest.fixture(scope="module")
def table():
    return survival_table()


def visits(chain, q):
    return occupancy(chain, ending(q, chain.horizon))


def respond(chain, reward, alpha=ALPHA):
    """The soft best response to r[s, a], and its expected length."""
    policy = soft_response(chain, -np.broadcast_to(reward, chain.shape), alpha)
    return policy, expected_length(occupancy(chain, policy))


def constant_reward(constant, absorbing):
    """`constant` for each step alive, and in the end state if it is absorbing."""
    reward = np.full((2, 2), float(constant))
    if not absorbing:
        reward[ENDED] = 0
    return reward


def length_under_a_bonus(constant, alpha=ALPHA):
    """Each of T + 1 episodes has the weight e^{c · length / α}. Lengths are 1, ..., T − 1, and T twice."""
    lengths = np.append(np.arange(1, HORIZON + 1), HORIZON)
    scores = constant * lengths / alpha
    weights = np.exp(scores - scores.max())
    return weights @ lengths / weights.sum()


@pytest.mark.parametrize("q", [SHORT, LONG, 0.9])
def test_the_chains_occupancies_have_a_closed_form(chain, q):
    visited = visits(chain, q)
    alive = (1 - q) ** np.arange(HORIZON)
    np.testing.assert_allclose(visited[:, ALIVE, STAY], (1 - q) * alive, atol=1e-15)
    np.testing.assert_allclose(visited[:, ALIVE, END], q * alive, atol=1e-15)
    np.testing.assert_allclose(visited[:, ENDED, STAY], 1 - alive, atol=1e-14)
    assert expected_length(visited) == pytest.approx((1 - (1 - q) ** HORIZON) / q, abs=1e-12)


@every_form
@pytest.mark.parametrize("q", [SHORT, LONG])
@pytest.mark.parametrize("ends", ["absorbing", "episodes", "steps"])
def test_at_the_experts_occupancy_the_reward_is_a_constant(chain, form, q, ends):
    expert = visits(chain, q)
    reward = form_reward(form, expert, expert, ends)
    expected = constant_reward(CONSTANTS[form], ends == "absorbing")
    expected[ENDED, END] = 0  # the action is not available
    np.testing.assert_allclose(reward, expected, atol=1e-12)


@every_form
@pytest.mark.parametrize("q", [SHORT, LONG])
def test_without_an_absorbing_state_the_constant_is_a_bonus_or_a_penalty(chain, form, q):
    """Compared to no reward, the probability of staying and the length change with the constant's sign."""
    expert = visits(chain, q)
    policy, length = respond(chain, form_reward(form, expert, expert, "episodes"))
    indifferent, middle = respond(chain, np.zeros((2, 2)))
    assert length == pytest.approx(length_under_a_bonus(CONSTANTS[form]), rel=1e-9)
    moved = policy[:-1, ALIVE, STAY] - indifferent[:-1, ALIVE, STAY]
    if CONSTANTS[form] > 0:
        assert (moved > 0).all()
        assert length > max(middle, expected_length(expert) + 4)
        assert length == pytest.approx(HORIZON, abs=0.01)
    elif CONSTANTS[form] < 0:
        assert (moved < 0).all()
        assert length < min(middle, expected_length(expert) - 0.9)
        assert length == pytest.approx(1, abs=0.01)
    else:
        np.testing.assert_allclose(moved, 0, atol=1e-12)
    np.testing.assert_allclose(policy[-1, ALIVE], 0.5, atol=1e-12)  # in the last step both actions pay the same


@every_form
@pytest.mark.parametrize("q", [SHORT, LONG])
def test_with_an_absorbing_state_the_constant_has_no_effect(chain, form, q):
    """The response is the policy of largest entropy: all T + 1 episodes have equal probability."""
    expert = visits(chain, q)
    policy, length = respond(chain, form_reward(form, expert, expert))
    left = HORIZON - np.arange(HORIZON)
    np.testing.assert_allclose(policy[:, ALIVE, STAY], left / (left + 1), atol=1e-9)
    assert length == pytest.approx(HORIZON / 2 + HORIZON / (HORIZON + 1), abs=1e-9)


def test_constants_change_the_length_only_without_an_absorbing_state(chain):
    constants = [-3.0, -0.02, -0.001, 0.0, 0.001, 0.02, 3.0]
    without = [respond(chain, constant_reward(c, absorbing=False))[1] for c in constants]
    assert without == pytest.approx([length_under_a_bonus(c) for c in constants], rel=1e-9)
    assert (np.diff(without) > 0).all()
    policies = [respond(chain, constant_reward(c, absorbing=True))[0] for c in constants]
    for policy in policies:
        np.testing.assert_allclose(policy, policies[3], atol=1e-9)


def test_adding_a_constant_to_a_reward_has_no_effect_with_an_absorbing_state(chain):
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(2, 2))
    plain, length = respond(chain, reward, alpha=0.5)
    shifted, _ = respond(chain, reward + constant_reward(-0.4, absorbing=True), alpha=0.5)
    np.testing.assert_allclose(shifted, plain, atol=1e-12)
    assert respond(chain, reward + constant_reward(-0.4, absorbing=False), alpha=0.5)[1] < length - 0.3


def test_the_payoff_is_the_same_for_f_plus_a_constant(chain):
    """The expectation is over all T steps, including those in the absorbing state."""
    rng = np.random.default_rng(1)
    f = rng.normal(size=chain.shape)
    with jax.enable_x64(True):
        pair = payoffs.reward(samples(chain, uniform(chain)), samples(chain, ending(LONG)))
        plain, shifted, alive_only = (
            float(payoffs.payoff(TableCritic(jnp.asarray(f + c)), pair))
            for c in (0.0, 5.0, constant_reward(5.0, absorbing=False))
        )
    assert shifted == pytest.approx(plain, abs=1e-12)
    lengths = expected_length(occupancy(chain, uniform(chain))), expected_length(visits(chain, LONG))
    assert alive_only - plain == pytest.approx(5 * (lengths[0] - lengths[1]) / HORIZON, abs=1e-12)


DIVERGENCES = {
    "AdRIL": lambda e, d: jnp.sum((d - e) ** 2) / 2,
    "SQIL": lambda e, d: -jnp.sum(e * jnp.log(d + e)),
    "GAIL, log D": lambda e, d: jnp.sum((d + e) * jnp.log((d + e) / e) - d),
    "GAIL, −log(1 − D)": lambda e, d: jnp.sum(d * jnp.log(d / (d + e)) + e * jnp.log(e / (d + e))),
    "AIRL": lambda e, d: jnp.sum(d * jnp.log(d / e) - d),
}


@pytest.mark.parametrize("form", GAMES)
def test_a_form_is_the_negative_gradient_of_a_convex_function_with_its_minimum_at_the_expert(form):
    def compare(e, d):
        """The form, the gradient and its derivative in d, and g at d and at e."""
        g = DIVERGENCES[form]
        gradient = jax.grad(g, argnums=1)
        return FORMS[form](e, d), gradient(e, d), jnp.diag(jax.jacobian(gradient, argnums=1)(e, d)), g(e, d), g(e, e)

    with jax.enable_x64(True):
        e, d = np.random.default_rng(2).dirichlet(np.ones(4), (2, 5))
        reward, gradient, curvature, value, smallest = map(np.asarray, jax.jit(jax.vmap(compare))(e, d))
    np.testing.assert_allclose(reward, -gradient, atol=1e-12)
    assert (value > smallest).all()
    assert (curvature > 0).all()


def test_with_absorbing_states_every_game_reaches_the_experts_length(table):
    rows = [row for row in table if row.form in GAMES]
    assert len(rows) == 10
    for row in rows:
        assert row.absorbing == pytest.approx(row.expert, abs=0.11), row
    assert [row.expert for row in rows[:2]] == pytest.approx([2.0, 15.2], abs=0.02)


@pytest.mark.parametrize("form", GAMES)
def test_the_remaining_error_shrinks_with_the_entropy_weight(form):
    coarse, fine = (survival_game(form, SHORT, alpha=alpha) for alpha in (0.05, 0.002))
    assert coarse.length - coarse.expert_length > 0.02
    assert abs(fine.length - fine.expert_length) < 0.02


def test_without_absorbing_states_the_length_follows_the_sign_of_the_constant(table):
    """With a positive constant the learner never ends, with a negative one it ends at once, for any expert."""
    for row in table:
        if row.constant > 0:
            assert min(row.episodes, row.steps) > HORIZON - 0.05, row
        elif row.constant < 0:
            assert max(row.episodes, row.steps) < min(row.expert - 0.9, 2), row
    assert {np.sign(row.constant) for row in table} == {-1, 0, 1}


def test_forms_with_constant_zero_have_no_bias_by_episodes(table):
    rows = [row for row in table if row.constant == 0]
    assert {row.form for row in rows} == {"AdRIL", "AIRL"}
    for row in rows:
        assert row.episodes == pytest.approx(row.expert, abs=0.25), row


def test_by_steps_learners_of_different_lengths_have_the_same_reward(chain, table):
    """A learner that ends only at its last step, with probability 0.6, has the expert's fraction of ends per step."""
    late = np.tile([1.0, 0.0], (HORIZON, 2, 1))
    late[-1, ALIVE] = [0.4, 0.6]
    learner, expert = occupancy(chain, late), visits(chain, LONG)
    assert expected_length(learner) == pytest.approx(HORIZON)
    for form in FORMS:
        same = form_reward(form, expert, expert, "steps")
        np.testing.assert_allclose(form_reward(form, expert, learner, "steps"), same, atol=1e-9)
    assert not np.allclose(form_reward("AdRIL", expert, learner, "episodes"), 0, atol=0.01)
    found = {row.form: row.steps - row.expert for row in table if row.constant == 0 and row.expert > 10}
    assert min(found.values()) > 1


def test_fixed_labels_do_not_imitate_the_length(table):
    """SQIL if no state occurs twice: with absorbing states its reward is a constant."""
    rows = [row for row in table if row.form == "SQIL, labels alone"]
    assert rows[0].absorbing == rows[1].absorbing == pytest.approx(length_under_a_bonus(0), abs=0.01)
    assert min(abs(row.absorbing - row.expert) for row in rows) > 4


def test_a_single_game_equals_its_row_of_the_table(table):
    game = survival_game("GAIL, log D", LONG, "episodes")
    (row,) = [row for row in table if row.form == "GAIL, log D" and row.expert > 10]
    assert game.length == pytest.approx(row.episodes, abs=1e-9)
    assert game.length == expected_length(game.visited)
    assert game.visited.dtype == np.float64
    np.testing.assert_allclose(game.visited.sum((1, 2)), 1, atol=1e-12)
    assert (game.reward[ALIVE] < 0).all()
    assert (game.reward[ENDED] == 0).all()


def test_averaged_labels_of_the_absorbing_state_equal_sqils_form(chain):
    """The mean label is Σ share · absorbed · reward / Σ share · absorbed: D for labels 1 and 0, 2D − 1 for 1 and −1."""
    expert, learner = visits(chain, LONG), visits(chain, SHORT)
    absorbed = np.array([visited[:, ENDED].sum() / HORIZON for visited in (expert, learner)])
    share = np.array([0.5, 0.5])
    sqil, adril = (share * absorbed) @ np.array([[1.0, 1.0], [0.0, -1.0]]) / (share * absorbed).sum()
    assert form_reward("SQIL", expert, learner)[ENDED, STAY] == pytest.approx(sqil, abs=1e-14)
    assert adril == pytest.approx(2 * sqil - 1, abs=1e-14)
    assert adril * form_reward("AdRIL", expert, learner)[ENDED, STAY] > 0


def test_the_table_on_the_page_is_current(table):
    """docs/absorbing.md shows the numbers of `survival_table`."""
    page = (Path(__file__).parents[2] / "docs/absorbing.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ") and line.split(" | ")[0][2:] in FORMS]
    assert lines == [f"| {row.form} | {' | '.join(f'{number:.2f}' for number in row[1:])} |" for row in table]


@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_raise(chain):
    expert = visits(chain, SHORT)
    for q in (0, 1, -0.5, "often"):
        with pytest.raises(SettingError, match=r"q is"):
            survival_game("AdRIL", q)
    with pytest.raises(SettingError, match="ends is 'never'"):
        survival_game("AdRIL", SHORT, "never")
    with pytest.raises(SettingError, match="alpha is 0"):
        survival_table(alpha=0)
    with pytest.raises(SettingError, match="rounds is 0"):
        survival_table(rounds=0)
    with pytest.raises(SettingError, match="horizon is 1"):
        stay_or_end(1)
    with pytest.raises(UnknownNameError, match="did you mean 'AdRIL'"):
        survival_game("adril", SHORT)
    with pytest.raises(SpecError, match=r"the learner's occupancy has shape \(20, 2\)"):
        form_reward("AdRIL", expert, expert[:, 0])
    never = np.zeros_like(expert)
    never[:, ALIVE, STAY] = 1
    with pytest.raises(SpecError, match="reward of 'AIRL'"):
        form_reward("AIRL", expert, never)
