"""On-Q moments: what a round collects, who is asked and how often, and DAgger and DAeQuIL against their equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.collectors import Fused, Hosted
from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.core.types import Dataset
from understudy.experts.expert import Expert, as_expert
from understudy.policies import start
from understudy.train.loop import traced

TINY = {"rounds": 4, "gradient_steps": 3, "batch_size": 8, "hidden": (8,), "episodes_per_round": 2}
CRITIC = {"critic_steps": 20, "critic_hidden": (8,)}
FOREST = us.make("Forest")


def keep_heading(obs):
    return obs[:, 3:4]


def states_of(algorithm, rounds=3, **options):
    """The state after each round of one run in Forest."""
    kept = []

    def visit(done, states):
        kept.append(jax.device_get(jax.tree.map(lambda x: x[0], states())))

    result = us.imitate(algorithm, "Forest", FOREST, **{"expert": "scripted", "episodes": 2, "visit": visit, **options})
    return kept, result


def test_a_round_holds_the_learners_steps_in_front_and_none_before_there_is_a_policy():
    algorithm = traced(us.dagger(**TINY))
    data, _ = us.load("Forest").split([2], 0.0)
    state = jax.jit(lambda key: algorithm.init(key, FOREST.spec, data.of(0)))(jax.random.key(0))
    fused = Fused(FOREST, FOREST.expert(), np.int32(1000))

    @jax.jit
    def collect(index, asked):
        return fused.collect(algorithm, state, index, asked, jax.random.key(1))

    nothing = collect(0, 0)
    assert int(nothing.rollouts.size) == 0
    found = collect(2, 0)
    size = int(found.rollouts.size)
    steps = jax.tree.map(lambda x: np.asarray(x)[:size], found.rollouts.steps)
    assert 0 < size < 2 * FOREST.spec.horizon
    assert steps.last.sum() == 2  # two whole episodes, and nothing of what follows their ends
    assert (steps.round == 2).all()
    off = steps.obs[:, 0] < 0.5
    np.testing.assert_allclose(np.asarray(found.expert_actions)[:size][off, 0], steps.obs[off, 3], atol=1e-6)
    short = collect(2, 997)
    assert int(short.rollouts.size) == 3


def test_the_host_collects_what_the_program_does():
    """The same shapes, counts and meaning, for an expert that is a plain function."""
    algorithm = us.dagger(**TINY)
    data, _ = us.load("Forest").split([2, 2], 0.0)
    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.jit(lambda keys: jax.lax.map(lambda k: algorithm.init(k, FOREST.spec, data.of(0)), keys))(keys)
    hosted = Hosted(FOREST, Expert(keep_heading), [0, 1])
    found = hosted.gather(algorithm, states, 3, np.zeros(2, int), np.array([True, False]))
    sizes = found.rollouts.size
    assert sizes[0] > 0
    assert sizes[1] == 0  # it has stopped
    steps = jax.tree.map(lambda x: x[0][: sizes[0]], found.rollouts.steps)
    assert steps.last.sum() == 2
    assert (steps.round == 3).all()
    np.testing.assert_array_equal(found.expert_actions[0][: sizes[0]], steps.obs[:, 3:4])
    state, zero = jax.tree.map(lambda x: x[0], states), jnp.zeros((), jnp.int32)
    collect = Fused(FOREST, FOREST.expert(), np.int32(10)).collect
    fused = jax.eval_shape(lambda state, key: collect(algorithm, state, zero, zero, key), state, keys[0])
    assert jax.tree.structure(fused) == jax.tree.structure(found)
    for ours, theirs in zip(jax.tree.leaves(fused), jax.tree.leaves(found), strict=True):
        assert ours.shape == theirs.shape[1:]
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("expert", ["scripted", keep_heading], ids=["fused", "hosted"])
def test_queries_are_counted_and_a_spent_budget_ends_a_run_cleanly(expert):
    asked = as_expert(expert, FOREST).budget(7)
    _, result = states_of(us.dagger(**TINY), expert=asked, seeds=2)
    for queries, run in zip(result.metrics["queries"], result.runs, strict=True):
        assert queries[0] == 0  # behavioral cloning asks nobody
        assert np.nanmax(queries) == 7
        assert "the budget of 7 queries is spent" in run.status
    _, free = states_of(us.dagger(**TINY), expert=expert)
    assert free.runs[0].status == "finished"
    assert free.history["queries"][0, -1] > 7


def test_dagger_aggregates_the_experts_answers():
    kept, result = states_of(us.dagger(**TINY))
    history = kept[-1].history
    size = int(history.size)
    assert size == result.metrics["queries"][0, -1]
    assert [int(state.history.size) for state in kept] == result.metrics["queries"][0].astype(int).tolist()
    obs, act = history.steps.obs[:size], history.steps.act[:size]
    off = obs[:, 0] < 0.5
    np.testing.assert_allclose(act[off, 0], obs[off, 3], atol=1e-6)  # the expert keeps its heading there
    assert sorted(set(history.steps.round[:size].tolist())) == [1, 2, 3]


def test_dagger_learns_what_the_expert_answers_where_cloning_cannot_know():
    """Demonstrations that all look alike: only the expert's answers tell it to keep the heading elsewhere."""
    settings = {"rounds": 4, "steps": 400, "hidden": (32,), "lr": 3e-3, "episodes_per_round": 5}
    kept, result = states_of(us.dagger(**settings), expert=keep_heading)
    obs = kept[-1].history.steps.obs[: int(kept[-1].history.size)]
    assert np.abs(result.policy(obs) - obs[:, 3:4]).mean() < 0.1


def test_daequils_payoff_is_the_critics_gap_at_the_policy_that_was_rolled_out():
    algorithm = us.daequil(**TINY, **CRITIC)
    kept, result = states_of(algorithm)
    last = kept[-1]
    assert result.metrics["payoff"][0, 0] == 0  # nothing was rolled out in round 0
    size = int(last.history.size)
    assert size == result.metrics["queries"][0, -1]
    critics = [jax.tree.map(lambda x, i=i: x[i], last.critics) for i in range(4)]
    assert not np.array_equal(critics[1].net.weights[0], critics[2].net.weights[0])
    lowest = np.argmin(result.metrics["payoff"][0, 1:]) + 1
    assert float(last.payoff) == pytest.approx(result.metrics["payoff"][0, lowest])
    # What is handed over is the policy that was rolled out in the round of the lowest payoff.
    chosen = kept[lowest - 1].policy
    obs = np.asarray(us.load("Forest").observations[:5])
    expected = algorithm.policy(last._replace(policy=chosen)).mode(start((5,)), obs)
    np.testing.assert_allclose(result.policies[0](obs), expected, atol=1e-5)


def test_each_state_keeps_the_critic_of_its_own_round():
    algorithm = us.daequil(**TINY, **CRITIC)
    kept, _ = states_of(algorithm)
    state = jax.tree.map(jnp.asarray, kept[-1])
    rows = [int(np.argmax(np.asarray(state.history.steps.round) == i)) for i in (1, 2)]
    for row, i in zip(rows, (1, 2), strict=True):
        step = jax.tree.map(lambda x, r=row: x[r], state.history.steps)
        critic = jax.tree.map(lambda x, i=i: x[i], state.critics)
        inside = state.normalization.encode_obs(step.obs)
        act = state.policy.mode(start(), inside)
        cost = algorithm._cost(state, state.policy, step)
        assert float(cost) == pytest.approx(float(critic(step.t, inside, act)), rel=1e-5)


def test_a_persons_moments_see_the_environments_own_numbers():
    seen = []

    def moments(obs, act):
        seen.append((obs.shape, act.shape))
        return jnp.stack([obs[0], jnp.abs(act[0] - obs[3])])

    algorithm = us.daequil(moments=moments, **TINY, **CRITIC)
    kept, result = states_of(algorithm)
    assert set(seen) == {((4,), (1,))}
    assert kept[-1].critics.net.weights[0].shape[1] == 2  # two moments
    state = jax.tree.map(jnp.asarray, kept[-1])
    step = jax.tree.map(lambda x: x[0], state.history.steps)
    critic = jax.tree.map(lambda x: x[1], state.critics)
    act = FOREST.spec.action.high[0] / 2 * (1 + state.policy.mode(start(), state.normalization.encode_obs(step.obs)))
    expected = critic(step.t, step.obs, act)
    assert float(algorithm._cost(state, state.policy, step)) == pytest.approx(float(expected), rel=1e-4)
    assert "moments" in str(result.config["algorithm"]["hyperparameters"]["moments"])
    with pytest.raises(SettingError, match="moments is 3"):
        us.daequil(moments=3)


def test_daequil_stops_at_delta():
    _, result = states_of(us.daequil(**TINY, **CRITIC, delta=1e9))
    assert result.runs[0].status == "stopped in round 2: the payoff fell below delta"


def test_an_interrupted_run_goes_on_to_the_same_policy(tmp_path):
    algorithm = us.dagger(**TINY)
    _, whole = states_of(algorithm)
    place = tmp_path / "place.npz"

    def stop(done, states):
        if done == 2:
            raise KeyboardInterrupt

    from understudy.train import checkpoints

    class Often(checkpoints.Checkpoint):
        due = True

    from understudy.train import imitate as front_door

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front_door, "Checkpoint", Often)
        with pytest.raises(KeyboardInterrupt):
            us.imitate(algorithm, "Forest", FOREST, "scripted", episodes=2, checkpoint=place, visit=stop)
        went_on = us.imitate(algorithm, "Forest", FOREST, "scripted", episodes=2, checkpoint=place)
    for a, b in zip(jax.tree.leaves(whole.policy.policy), jax.tree.leaves(went_on.policy.policy), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.metrics["queries"], went_on.history["queries"])


def test_what_is_wrong_with_an_expert_is_named():
    host = us.make("CartPole-v1")
    with pytest.raises(NeedsError, match="no scripted expert"):
        as_expert("scripted", host)
    with pytest.raises(SpecError, match="expert is a int"):
        as_expert(3, FOREST)
    with pytest.raises(SettingError, match="queries is 0"):
        Expert(keep_heading).budget(0)
    with pytest.raises(SpecError, match=r"the expert answered with shape \(2, 4\) to 2 states"):
        Expert(lambda obs: obs).query(np.zeros((2, 4), np.float32), FOREST.spec, np.random.default_rng(0))
    with pytest.raises(SpecError, match=r"2 actions outside the range, the first 50: actions are from 0 to 3\.14159"):
        Expert(lambda obs: np.full((2, 1), 50.0)).query(np.ones((2, 4)), FOREST.spec, np.random.default_rng(0))
    with pytest.raises(SpecError, match="1 actions outside the range, the first 2: actions are from 0 to 1"):
        Expert(lambda obs: np.array([0, 2])).query(np.ones((2, 4)), host.spec, np.random.default_rng(0))
    with pytest.raises(SpecError, match=r"1 actions outside the range, the first 0\.5"):
        Expert(lambda obs: np.array([0.5, 1])).query(np.ones((2, 4)), host.spec, np.random.default_rng(0))
    with pytest.raises(SpecError, match="NaN"):
        Expert(lambda obs: obs[:, 3:] * np.nan).query(np.ones((2, 4)), FOREST.spec, np.random.default_rng(0))


def test_a_discrete_task_on_the_host():
    """CartPole under Gymnasium, with an expert that is a function: DAgger follows it."""

    def balance(obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int32)

    demonstrations = us.record("CartPole-v1", balance, episodes=2, seed=0)
    learner = us.dagger(rounds=3, gradient_steps=300, episodes_per_round=2, hidden=(32,), lr=3e-3)
    result = us.imitate(learner, demonstrations, "CartPole-v1", expert=balance)
    assert result.metrics["return"][0, -1] > 150
    game = us.daequil(rounds=2, gradient_steps=3, episodes_per_round=2, hidden=(8,), **CRITIC)
    played = us.imitate(game, demonstrations, "CartPole-v1", expert=balance)
    assert np.isfinite(played.history["payoff"]).all()


def test_a_dataset_takes_more_steps_until_it_is_full():
    data, _ = us.load("Forest").split([2], 0.0)
    some = Dataset(jax.tree.map(lambda x: x[:10], data.steps), jnp.asarray(4, jnp.int32))
    room = Dataset.empty(some, 6).extend(some).extend(some)
    assert int(room.size) == 6
    np.testing.assert_array_equal(room.steps.obs[:4], some.steps.obs[:4])
    np.testing.assert_array_equal(room.steps.obs[4:6], some.steps.obs[:2])


def test_the_regulariser_holds_the_policy_to_the_cloned_one():
    """In the states that were visited, a heavy R leaves the policy where cloning left it."""
    distances = {}
    for anchor in (0.0, 1e4):
        settings = {**TINY, "steps": 100, "lr": 3e-3}
        kept, _ = states_of(us.daequil(**settings, **CRITIC, anchor=anchor, cloning_weight=0.0, gradient_weight=0.01))
        state = jax.tree.map(jnp.asarray, kept[-1])
        algorithm = us.daequil(**TINY, **CRITIC)
        visited = jax.tree.map(lambda x, n=int(state.history.size): x[:n], state.history.steps)
        apart = jax.vmap(lambda step, a=algorithm, s=state: a._apart(s, s.policy, step))(visited)
        distances[anchor] = float(apart.mean())
        cloned = kept[0].policy
        np.testing.assert_array_equal(kept[-1].first.net.weights[0], cloned.net.weights[0])
    assert distances[1e4] < 0.1 * distances[0.0]


def test_the_start_is_cloning_whatever_the_weight_of_cloning_later():
    """Line 1 comes before there is anything to weigh ℓ_BC against."""
    settings = {**TINY, "steps": 100}
    policies = [states_of(us.daequil(**settings, **CRITIC, cloning_weight=w))[0][0].policy for w in (0.0, 1.0)]
    for none, whole in zip(*map(jax.tree.leaves, policies), strict=True):
        np.testing.assert_array_equal(none, whole)
    moved, _ = states_of(us.daequil(**TINY, **CRITIC))
    assert not np.array_equal(moved[0].policy.net.weights[0], policies[0].net.weights[0])
