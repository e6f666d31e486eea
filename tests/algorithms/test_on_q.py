"""On-Q algorithms: what a round collects, how queries are counted, and DAgger and DAeQuIL against their equations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.envs import Walk
from support.training import every_round  # noqa: F401
from understudy.collect.base import Request
from understudy.collect.episodes import JaxEpisodes
from understudy.collect.host import HostCollector
from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.core.types import Dataset
from understudy.experts.expert import Expert, as_expert
from understudy.policies import start
from understudy.train.programs import traced

TINY = {"rounds": 4, "gradient_steps": 3, "batch_size": 8, "hidden": (8,), "episodes_per_round": 2}
CRITIC = {"critic_steps": 20, "critic_hidden": (8,)}
FOREST = us.make("Forest")


def keep_heading(obs):
    return obs[:, 3:4]


def train(algorithm, **options):
    """The state after each round of one run in Forest, and the result."""
    states = []

    def visit(done, current):
        states.append(jax.device_get(jax.tree.map(lambda x: x[0], current())))

    options = {"expert": "scripted", "episodes": 2, "visit": visit, **options}
    return states, us.imitate(algorithm, "Forest", FOREST, **options)


@pytest.fixture(scope="module")
def dagger_run():
    return train(us.dagger(**TINY))


@pytest.fixture(scope="module")
def daequil_run():
    """Its δ is never reached, so that it shares a program with a run that stops at δ."""
    return train(us.daequil(**TINY, **CRITIC, delta=-1e9))


@pytest.fixture(scope="module")
def untrained():
    """DAgger and its state before training."""
    algorithm = traced(us.dagger(**TINY))
    data, _ = us.load("Forest").split([2], 0.0)
    return algorithm, jax.jit(lambda key: algorithm.init(key, FOREST.spec, data.of(0)))(jax.random.key(0))


# ---------------------------------------------------------------------------------------------- collecting


def test_a_round_collects_whole_episodes_and_round_zero_none(untrained):
    algorithm, state = untrained
    collector = JaxEpisodes(FOREST, FOREST.expert())

    @jax.jit
    def collect(index, left):
        return collector.collect_run(algorithm, state, left, jax.random.key(1), index)

    index, left = jnp.arange(3, dtype=jnp.int32), jnp.asarray(1000, jnp.int32)
    assert int(collect(index[0], left).rollouts.size) == 0
    found = collect(index[2], left)
    size = int(found.rollouts.size)
    steps = jax.tree.map(lambda x: np.asarray(x)[:size], found.rollouts.steps)
    assert 0 < size < 2 * FOREST.spec.horizon
    assert steps.last.sum() == 2
    assert (steps.round == 2).all()
    off_trail = steps.obs[:, 0] < 0.5  # there the expert keeps its heading
    answers = np.asarray(found.expert_actions)[:size]
    np.testing.assert_allclose(answers[off_trail, 0], steps.obs[off_trail, 3], atol=1e-6)
    assert int(collect(index[2], jnp.asarray(3, jnp.int32)).answers) == 3


def test_the_host_collects_the_same_kind_of_data_as_the_program(untrained):
    algorithm, state = untrained
    states = jax.tree.map(lambda x: np.stack([x, x]), jax.device_get(state))
    policies = jax.tree.map(np.asarray, jax.vmap(algorithm.acting_policy)(states))
    stopped = np.array([True, False])
    request = Request(algorithm, lambda: states, lambda: policies, 3, 0, lambda: np.zeros(2, int), lambda: stopped)
    found = HostCollector(FOREST, Expert(keep_heading), [0, 1]).gather(request)
    sizes = found.rollouts.size
    assert sizes[0] > 0
    assert sizes[1] == 0  # this run has stopped
    steps = jax.tree.map(lambda x: x[0][: sizes[0]], found.rollouts.steps)
    assert steps.last.sum() == 2
    assert (steps.round == 3).all()
    np.testing.assert_array_equal(found.expert_actions[0][: sizes[0]], steps.obs[:, 3:4])
    collector, number = JaxEpisodes(FOREST, FOREST.expert()), jnp.asarray(3, jnp.int32)
    program = jax.eval_shape(
        lambda key: collector.collect_run(algorithm, state, number, key, number), jax.random.key(0)
    )
    assert jax.tree.structure(program) == jax.tree.structure(found)
    for ours, theirs in zip(jax.tree.leaves(program), jax.tree.leaves(found), strict=True):
        assert ours.shape == theirs.shape[1:]


@pytest.mark.parametrize("expert", ["scripted", keep_heading], ids=["program", "host"])
def test_queries_are_counted_and_a_budget_ends_a_run(expert):
    _, result = train(us.dagger(**TINY), expert=as_expert(expert, FOREST).budget(7), seeds=2)
    for queries, run in zip(result.metrics["queries"], result.runs, strict=True):
        assert queries[0] == 0  # round 0 is behavioral cloning
        assert np.nanmax(queries) == 7
        assert "7 queries" in run.status


def test_invalid_experts_are_refused():
    host = us.make("CartPole-v1")
    random = np.random.default_rng(0)
    with pytest.raises(NeedsError, match="scripted"):
        as_expert("scripted", host)
    with pytest.raises(SpecError, match="expert is a int"):
        as_expert(3, FOREST)
    with pytest.raises(SettingError, match="queries is 0"):
        Expert(keep_heading).budget(0)
    with pytest.raises(SpecError, match=r"shape \(2, 4\)"):
        Expert(lambda obs: obs).query(np.zeros((2, 4), np.float32), FOREST.spec, random)
    for answer, spec, named in (
        (np.full((2, 1), 50.0), FOREST.spec, "50"),
        (np.array([0, 2]), host.spec, "2"),
        (np.array([0.5, 1]), host.spec, r"0\.5"),
        (np.full((2, 1), np.nan), FOREST.spec, "NaN"),
    ):
        with pytest.raises(SpecError, match=named):
            Expert(lambda obs, answer=answer: answer).query(np.ones((2, 4), np.float32), spec, random)


def test_a_dataset_is_extended_until_it_is_full():
    data, _ = us.load("Forest").split([2], 0.0)
    some = Dataset(jax.tree.map(lambda x: x[:10], data.steps), jnp.asarray(4, jnp.int32))
    full = Dataset.empty(some, 6).extend(some).extend(some)
    assert int(full.size) == 6
    np.testing.assert_array_equal(full.steps.obs[:4], some.steps.obs[:4])
    np.testing.assert_array_equal(full.steps.obs[4:6], some.steps.obs[:2])


# ------------------------------------------------------------------------------------------------- DAgger


def test_dagger_aggregates_the_experts_answers(dagger_run):
    states, result = dagger_run
    aggregated = states[-1].aggregated
    size = int(aggregated.size)
    assert result.runs[0].status == "finished"
    assert [int(state.aggregated.size) for state in states] == result.metrics["queries"][0].astype(int).tolist()
    obs, act = aggregated.steps.obs[:size], aggregated.steps.act[:size]
    off_trail = obs[:, 0] < 0.5
    np.testing.assert_allclose(act[off_trail, 0], obs[off_trail, 3], atol=1e-6)
    assert sorted(set(aggregated.steps.round[:size].tolist())) == [1, 2, 3]


def test_dagger_learns_the_experts_answers_outside_the_demonstrated_states():
    settings = {"rounds": 4, "gradient_steps": 400, "hidden": (32,), "lr": 3e-3, "episodes_per_round": 5}
    states, result = train(us.dagger(**settings), expert=keep_heading)
    obs = states[-1].aggregated.steps.obs[: int(states[-1].aggregated.size)]
    assert np.abs(result.policy(obs) - obs[:, 3:4]).mean() < 0.1


@pytest.mark.parametrize("components", [1, 2])
def test_a_mixture_holds_both_answers_of_an_expert(components):
    """It turns by a radian to either side. The mean of its answers is straight ahead, which it never takes."""
    obs = np.stack([np.ones(200), np.full(200, 50.0), np.zeros(200), np.full(200, np.pi / 2)], 1)
    turns = np.random.default_rng(0).choice([-1.0, 1.0], (200, 1))
    demonstrations = us.Demonstrations.from_arrays(
        obs, np.pi / 2 + turns, [20] * 10, action_space=FOREST.spec.action, env="Forest"
    )
    learner = us.dagger(components=components, rounds=1, gradient_steps=800, hidden=(32,), lr=3e-3)
    result = us.imitate(learner, demonstrations, FOREST, expert="scripted")
    drawn, _ = result.policy.predict(obs, deterministic=False, random=np.random.default_rng(0))
    at_a_side = np.abs(np.abs(drawn - np.pi / 2) - 1) < 0.3
    assert at_a_side.mean() == (0 if components == 1 else pytest.approx(1, abs=0.05))
    assert components == 1 or 0.25 < (drawn > np.pi / 2).mean() < 0.75


@pytest.mark.usefixtures("every_round")
def test_an_interrupted_run_resumes_to_the_same_policy(tmp_path, dagger_run):
    algorithm, path = us.dagger(**TINY), tmp_path / "checkpoint.npz"
    options = {"episodes": 2, "checkpoint": path}

    def stop(done, states):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        us.imitate(algorithm, "Forest", FOREST, "scripted", visit=stop, **options)
    resumed, whole = us.imitate(algorithm, "Forest", FOREST, "scripted", **options), dagger_run[1]
    for a, b in zip(jax.tree.leaves(whole.policy.policy), jax.tree.leaves(resumed.policy.policy), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.metrics["queries"], resumed.metrics["queries"])


@pytest.mark.slow
def test_discrete_actions_in_gymnasium():
    def balance(obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int32)

    demonstrations = us.record("CartPole-v1", balance, episodes=2, seed=0, workers=0)
    learner = us.dagger(rounds=3, gradient_steps=300, episodes_per_round=2, hidden=(32,), lr=3e-3)
    result = us.imitate(learner, demonstrations, "CartPole-v1", expert=balance, workers=0)
    assert result.metrics["return"][0, -1] > 150
    game = us.daequil(rounds=2, gradient_steps=3, episodes_per_round=2, hidden=(8,), **CRITIC)
    assert np.isfinite(
        us.imitate(game, demonstrations, "CartPole-v1", expert=balance, workers=0).metrics["payoff"]
    ).all()


# ------------------------------------------------------------------------------------------------ DAeQuIL


def test_daequil_returns_the_policy_with_the_smallest_payoff(daequil_run):
    states, result = daequil_run
    last = states[-1]
    assert result.metrics["payoff"][0, 0] == 0  # there are no roll-outs in round 0
    assert int(last.aggregated.size) == result.metrics["queries"][0, -1]
    critics = [jax.tree.map(lambda x, i=i: x[i], last.critics) for i in range(4)]
    assert not np.array_equal(critics[1].net.weights[0], critics[2].net.weights[0])
    lowest = np.argmin(result.metrics["payoff"][0, 1:]) + 1
    assert float(last.best.payoff) == pytest.approx(result.metrics["payoff"][0, lowest])
    # A round's payoff is of the policy that was rolled out, that of the round before.
    chosen = states[lowest - 1].policy
    obs = np.asarray(us.load("Forest").observations[:5])
    expected = us.daequil(**TINY, **CRITIC).policy(last._replace(policy=chosen)).mode(start((5,)), obs)
    np.testing.assert_allclose(result.policies[0](obs), expected, atol=1e-5)


def test_each_state_keeps_the_critic_of_its_round(daequil_run):
    algorithm, state = us.daequil(**TINY, **CRITIC), jax.tree.map(jnp.asarray, daequil_run[0][-1])
    for index in (1, 2):
        row = int(np.argmax(np.asarray(state.aggregated.steps.round) == index))
        step = jax.tree.map(lambda x, r=row: x[r], state.aggregated.steps)
        critic = jax.tree.map(lambda x, i=index: x[i], state.critics)
        obs = state.normalization.encode_obs(step.obs)
        expected = critic(step.t, obs, state.policy.mode(start(), obs))
        assert float(algorithm._cost(state, state.policy, step)) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
def test_user_moments_get_the_environments_units():
    shapes = []

    def moments(obs, act):
        shapes.append((obs.shape, act.shape))
        return jnp.stack([obs[0], jnp.abs(act[0] - obs[3])])

    algorithm = us.daequil(moments=moments, **TINY | {"rounds": 2}, **CRITIC)
    states, result = train(algorithm)
    assert set(shapes) == {((4,), (1,))}
    state = jax.tree.map(jnp.asarray, states[-1])
    assert state.critics.net.weights[0].shape[1] == 2
    step = jax.tree.map(lambda x: x[0], state.aggregated.steps)
    critic = jax.tree.map(lambda x: x[1], state.critics)
    act = FOREST.spec.action.high[0] / 2 * (1 + state.policy.mode(start(), state.normalization.encode_obs(step.obs)))
    expected = critic(step.t, step.obs, act)
    assert float(algorithm._cost(state, state.policy, step)) == pytest.approx(float(expected), rel=1e-4)
    assert "moments" in str(result.config["algorithm"]["hyperparameters"]["moments"])
    with pytest.raises(SettingError, match="moments is 3"):
        us.daequil(moments=3)


def unit(obs, act):
    """Moments that are NaN at a row of zeros, and so is their gradient."""
    return jnp.outer(act, obs / jnp.linalg.norm(obs)).ravel()


def guarded_unit(obs, act):
    """The same at all other rows, and finite everywhere."""
    length = jnp.sqrt(jnp.where(jnp.any(obs != 0), jnp.sum(obs**2), 1.0))
    return jnp.outer(act, obs / length).ravel()


WALK = Walk(0.3 * jax.random.normal(jax.random.key(0), (3, 4)))
SMALL = {"rounds": 3, "gradient_steps": 2, "batch_size": 8, "hidden": (8,), "episodes_per_round": 3}
SMALL_CRITIC = {"critic_steps": 2, "critic_hidden": (8,)}
TASKS = {
    "discrete": (WALK, WALK.expert()),
    "discrete, on the host": (WALK, lambda obs: (obs[:, 0] > 0).astype(np.int64)),
    "continuous": (us.make("Pendulum"), "scripted"),
}


def learn_unit(make, task, moments, seeds=2):
    env, expert = TASKS[task]
    if make is us.aggrevate and callable(expert):
        expert = us.Expert(expert, values=lambda obs, act: obs[:, 0])
    demonstrations = us.record(env, episodes=3)
    algorithm = make(**SMALL, **SMALL_CRITIC, moments=moments)
    return us.imitate(algorithm, demonstrations, env, expert=expert, seeds=seeds)


def test_moments_that_are_nan_at_zeros_never_meet_padding():
    """Walk's episodes end early, and round 0 has none, so most rows that the host collects are zeros."""
    seen = []

    def watched(obs, act):
        jax.debug.callback(lambda length: seen.append(float(length)), jnp.sum(obs**2))
        return unit(obs, act)

    result = learn_unit(partial(us.daequil.preset, "linear"), "discrete, on the host", watched, seeds=1)
    assert {run.status for run in result.runs} == {"finished"}
    assert np.isfinite(result.metrics["loss"]).all()
    assert len(seen) > 100
    assert min(seen) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "task"),
    [
        (us.daequil, "discrete, on the host"),
        (us.aggrevate, "discrete, on the host"),
        (us.aggrevate, "continuous"),
        *((partial(us.daequil.preset, name), "continuous") for name in us.daequil.presets),
        (partial(us.daequil.preset, "linear"), "discrete"),
    ],
)
def test_training_depends_on_moments_at_real_rows_only(make, task):
    nan_at_zeros, finite = (learn_unit(make, task, moments) for moments in (unit, guarded_unit))
    assert {run.status for run in nan_at_zeros.runs} == {"finished"}
    for name, values in finite.metrics.items():
        np.testing.assert_allclose(nan_at_zeros.metrics[name], values, rtol=1e-4, atol=1e-6)
    pairs = zip(nan_at_zeros.policies, finite.policies, strict=True)
    for ours, theirs in pairs:
        for a, b in zip(jax.tree.leaves(ours.policy), jax.tree.leaves(theirs.policy), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_daequil_stops_at_delta():
    _, result = train(us.daequil(**TINY, **CRITIC, delta=1e9))
    assert "round 2" in result.runs[0].status
    assert "delta" in result.runs[0].status


@pytest.mark.slow
def test_the_regulariser_keeps_the_policy_near_the_cloned_one():
    distances = {}
    for anchor in (0.0, 1e4):
        algorithm = us.daequil(
            **TINY | {"gradient_steps": 100, "lr": 3e-3},
            **CRITIC,
            anchor=anchor,
            cloning_weight=0.0,
            gradient_weight=0.01,
        )
        states, _ = train(algorithm)
        state = jax.tree.map(jnp.asarray, states[-1])
        visited = jax.tree.map(lambda x, n=int(state.aggregated.size): x[:n], state.aggregated.steps)
        each = jax.vmap(lambda step, a=algorithm, s=state: a._distance(s, s.policy, step))(visited)
        distances[anchor] = float(each.mean())
        np.testing.assert_array_equal(states[-1].cloned.net.weights[0], states[0].policy.net.weights[0])
    assert distances[1e4] < 0.1 * distances[0.0]


def test_round_zero_is_cloning_whatever_the_cloning_weight(daequil_run):
    without, _ = train(us.daequil(**TINY, **CRITIC, cloning_weight=0.0, delta=-1e9))
    for a, b in zip(*(jax.tree.leaves(states[0].policy) for states in (without, daequil_run[0])), strict=True):
        np.testing.assert_array_equal(a, b)
