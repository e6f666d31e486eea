"""The learned algorithms on finite MDPs, with tables as networks and enumerated pairs as minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.tabular import random_game
from understudy.core.errors import SettingError, SpecError
from understudy.core.types import Samples, Transition
from understudy.game.critics import MLPCritic
from understudy.game.losses import cloning_loss
from understudy.policies import Categorical
from understudy.policies.networks import MLP
from understudy.tabular import FiniteMDP, exact, samples
from understudy.tabular.daequil import current_loss, history_loss, mismatch_on_any_states, mismatch_on_own_states
from understudy.tabular.games import Game
from understudy.tabular.moments import induced, q_box


def pairs_of(state, act):
    return jnp.outer(state, act).ravel()


def table_network(table):
    return MLP((jnp.asarray(table),), (jnp.zeros(table.shape[1]),), "identity")


def tabular_parts(mdp, expert, logits, f):
    """A categorical policy and a critic that are tables, on one-hot (t, s), and the expert's exact weighted samples."""
    horizon, states, actions = mdp.shape
    policy = Categorical(table_network(logits.reshape(-1, actions)))
    critic = MLPCritic(table_network(f.reshape(-1, 1)), pairs_of, actions)
    every = samples(mdp, expert)
    obs = jax.nn.one_hot(every.t * states + every.obs, horizon * states, dtype=every.weight.dtype)
    return policy, critic, Samples(every.t, obs, every.act, every.weight)


def free_instance(seed):
    """All actions are available, because a softmax gives each a positive probability."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP(rng.dirichlet(np.ones(4), (4, 3)), rng.dirichlet(np.ones(4)), 5)
    return mdp, rng.dirichlet(np.ones(3), (5, 4)), rng.normal(size=mdp.shape), rng.normal(size=mdp.shape)


def stacked(policy):
    return jax.tree.map(lambda x: x[None], policy)


def test_advils_payoff_on_exact_pairs_is_the_off_q_payoff():
    mdp, expert, logits, f = free_instance(0)
    with jax.enable_x64(True):
        policy, critic, weighted = tabular_parts(mdp, expert, logits, f)
        algorithm = us.advil(ensemble_size=1, batch_size=len(weighted.weight))
        loss = jax.jit(lambda policy, critic: algorithm.critic_loss(policy, weighted, critic, jax.random.key(0)))
        _, payoff = loss(stacked(policy), critic)
        table = np.asarray(jax.nn.softmax(logits))
    assert table.dtype == payoff.dtype == np.float64
    assert float(payoff) == pytest.approx(float(Game("off-Q", mdp, expert).payoff(table, f)), abs=1e-10)


def test_advil_with_tables_solves_the_off_q_game():
    """With its losses and players on exact pairs, the largest off-Q payoff falls below a quarter."""
    mdp, expert, logits, f = free_instance(1)
    game, box = Game("off-Q", mdp, expert), q_box(mdp)

    @exact
    def play(logits, f):
        policy, critic, weighted = tabular_parts(mdp, expert, logits, f)
        algorithm = us.advil(
            ensemble_size=1,
            batch_size=len(weighted.weight),
            policy_lr=3e-3,
            critic_lr=3e-2,
            gradient_target=0.0,
            gradient_weight=0.01,
            cloning_weight=0.0,
            orthogonal_weight=0.0,
            weight_decay=0.0,
            ema_decay=0.999,
        )
        policy_player, critic_player = algorithm._players()
        policy = stacked(policy)
        row = Transition(*(jnp.zeros(len(weighted.weight), int),) * 8)._replace(obs=weighted.obs, act=weighted.act)

        def step(carry, key):
            policy, memory, critic, critic_memory = carry
            first, second = jax.random.split(key)
            critic, critic_memory, _ = critic_player.move(
                first, critic, critic_memory, lambda c, k: algorithm.critic_loss(policy, weighted, c, k)
            )
            policy, memory, _ = policy_player.move(
                second, policy, memory, lambda p, k: algorithm.policy_loss(critic, weighted, row, p, k)
            )
            return (policy, memory, critic, critic_memory), None

        start = (policy, policy_player.init(policy), critic, critic_player.init(critic))
        (_, memory, _, _), _ = jax.lax.scan(step, start, jax.random.split(jax.random.key(0), 4000))
        return jax.nn.softmax(memory.average.net.weights[0][0]).reshape(mdp.shape)

    before = float(box.sup(game.difference(exact(jax.nn.softmax)(logits))))
    after = float(box.sup(game.difference(play(logits, f))))
    assert after < before / 4


def test_the_cloning_loss_on_exact_pairs_has_its_minimum_at_the_expert():
    mdp, expert, _, _ = free_instance(2)
    with jax.enable_x64(True):
        policy, _, weighted = tabular_parts(mdp, expert, np.log(expert), expert)
        row = Transition(*(jnp.zeros(len(weighted.weight), int),) * 8)._replace(obs=weighted.obs, act=weighted.act)

        @jax.jit
        def loss(policy):
            return weighted.weight @ jax.vmap(cloning_loss, (None, 0))(policy, row)

        slope = jax.jit(jax.grad(loss))(policy)
        worse = loss(jax.tree.map(lambda x: x + 0.1 * jax.random.normal(jax.random.key(0), x.shape), policy))
        assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(slope)) < 1e-6
        assert float(worse) > float(loss(policy))


def test_the_two_losses_of_daequil_agree_at_the_collected_policy():
    """There both equal sup U3. For other policies they differ."""
    mdp, expert, learner, _ = random_game(0)
    game, box = Game("on-Q", mdp, expert), q_box(mdp)
    f = box.best(game.difference(learner))
    most = float(box.sup(game.difference(learner)))
    assert float(history_loss(game, f, learner, learner)) == pytest.approx(most, abs=1e-12)
    assert float(current_loss(game, f, learner)) == pytest.approx(most, abs=1e-12)
    other = (expert + learner) / 2
    assert abs(float(history_loss(game, f, learner, other)) - float(current_loss(game, f, other))) > 1e-4
    assert float(history_loss(game, f, learner, expert)) == pytest.approx(0.0, abs=1e-12)
    for other_moments in ("off-Q", "reward"):
        other_game = Game(other_moments, mdp, expert)
        for loss in (
            lambda game: history_loss(game, f, learner, other),
            lambda game: current_loss(game, f, learner),
            lambda game: mismatch_on_own_states(game, box, learner),
            lambda game: mismatch_on_any_states(game, box, learner),
        ):
            with pytest.raises(SettingError, match=f"{other_moments} moments"):
                loss(other_game)


@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_of_daequils_losses_raise():
    mdp, expert, learner, _ = random_game(0)
    game, box, f = Game("on-Q", mdp, expert), q_box(mdp), np.zeros(mdp.shape)
    with pytest.raises(SpecError, match="f has shape"):
        history_loss(game, f[0], learner, learner)
    with pytest.raises(SpecError, match=r"f \[0, 0, 0\] is not"):
        current_loss(game, f + np.nan, learner)
    with pytest.raises(SpecError, match=r"the collected policy.*does not sum to one"):
        history_loss(game, f, 2 * learner, learner)
    for mismatch in (mismatch_on_own_states, mismatch_on_any_states):
        with pytest.raises(SpecError, match=r"the policy.*does not sum to one"):
            mismatch(game, box, 2 * learner)
    longer = FiniteMDP(mdp.dynamics.probabilities, mdp.initial, mdp.horizon + 1)
    with pytest.raises(SpecError, match="the class's bound has shape"):
        mismatch_on_any_states(game, q_box(longer), learner)


def test_matching_on_any_states_is_the_stronger_condition():
    """Its ε is at least the ε on the policy's own states. Both are 0 for the expert."""
    for seed in range(20):
        mdp, expert, learner, _ = random_game(seed)
        game, box = Game("on-Q", mdp, expert), q_box(mdp)
        anywhere, own = mismatch_on_any_states(game, box, learner), mismatch_on_own_states(game, box, learner)
        assert float(anywhere) >= float(own) - 1e-12
        assert float(mismatch_on_any_states(game, box, expert)) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(SettingError, match="q_box"):
        mismatch_on_any_states(game, induced(mdp, expert), learner)


def test_an_error_in_unvisited_states_counts_only_on_any_states():
    """A policy that errs only in states that it never visits."""
    mdp = FiniteMDP(np.array([[0, 1], [1, 1]]), [1.0, 0.0], 4)
    expert = np.zeros(mdp.shape)
    expert[:, :, 0] = 1.0
    policy = expert.copy()
    policy[:, 1] = [0.0, 1.0]
    game, box = Game("on-Q", mdp, expert), q_box(mdp)
    assert float(mismatch_on_own_states(game, box, policy)) == 0.0
    # The worst policy goes to state 1 at once. At t = 1, 2, 3 the two differ by 2 · (T − t) / 2T.
    assert float(mismatch_on_any_states(game, box, policy)) == pytest.approx((3 + 2 + 1) / 4 / 4)
