"""Gates: where the expert is queried, where it acts, and how many queries that takes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.base import NO_LIMIT, Request
from understudy.collect.episodes import JaxEpisodes
from understudy.collect.gates import HostGate
from understudy.collect.host import HostCollector
from understudy.core.errors import AlgorithmError, SettingError
from understudy.core.types import Dataset, RoundData
from understudy.experts.expert import Expert
from understudy.experts.functions import FEWEST
from understudy.game.best import NO_PAYOFF
from understudy.train.loop import traced

TINY = {"rounds": 4, "gradient_steps": 2, "batch_size": 8, "hidden": (8,), "episodes_per_round": 6}
FOREST = us.make("Forest")


class Counting:
    """An expert that is a function, never gives the same answer twice, and counts the states it was asked about."""

    def __init__(self, kind=np.float32):
        self.queries, self.random, self.kind = 0, np.random.default_rng(0), kind

    def __call__(self, obs):
        self.queries += len(obs)
        if self.kind is np.float32:
            return self.random.uniform(0.5, 2.5, (len(obs), 1)).astype(np.float32)
        return self.random.integers(0, 2, len(obs))


@functools.cache
def learner(env_name, mixing):
    """An algorithm and the states of two runs of it before training."""
    algorithm = traced(us.dagger(**TINY, mixing=mixing))
    env = us.make(env_name)
    if env_name == "Forest":
        demonstrations = us.load("Forest")
    else:
        demonstrations = us.record(env, lambda obs: (obs[:, 2] > 0).astype(int), episodes=2)
    data, _ = demonstrations.split([2, 2], 0.0)
    make = jax.jit(lambda key: algorithm.init(key, env.spec, data.of(0)))
    states = [make(jax.random.key(i)) for i in (0, 1)]
    return env, algorithm, jax.tree.map(lambda *x: jnp.stack(x), *states)


@jax.jit
def collect(inside, algorithm, state, left, index):
    return inside.collect_run(algorithm, state, left, jax.random.key(2), index)


def collected(way, algorithm, env, states, limit=NO_LIMIT, index=1):
    """The answered steps of a run's round, the expert's answers, how many states it was queried at, and all of it."""
    if way == "program":
        inside, state = JaxEpisodes(FOREST, FOREST.expert()), jax.tree.map(lambda x: x[0], states)
        found = collect(inside, algorithm, state, jnp.asarray(limit), jnp.asarray(index))
        found, queries = jax.tree.map(np.asarray, found), int(found.answers)
    else:
        source = Counting(np.float32 if way == "stepwise" else np.int32)
        host = HostCollector(env, Expert(source, None if limit == NO_LIMIT else limit), [3, 4])
        policies = jax.device_get(jax.vmap(algorithm.acting_policy)(states))
        active = np.array([True, False])
        request = Request(
            algorithm, lambda: states, lambda: policies, index, 0, lambda: np.zeros(2, int), lambda: active
        )
        found, queries = jax.tree.map(lambda x: x[0], host.gather(request)), source.queries
    answered = found.answered
    return jax.tree.map(lambda x: x[answered], (found.rollouts.steps, found.expert_actions)), queries, found


def mixed(way, mixing, **options):
    env, algorithm, states = learner("CartPole-v1" if way == "gymnasium" else "Forest", mixing)
    return collected(way, algorithm, env, states, **options)[:2]


def same(steps, answers):
    return (steps.act == answers).reshape(len(answers), -1).all(1)


WAYS = ["program", "stepwise", "gymnasium"]


@pytest.mark.parametrize("way", WAYS)
def test_with_mixing_one_the_expert_acts_everywhere_and_its_actions_are_its_answers(way):
    (steps, answers), queries = mixed(way, 1.0)
    assert same(steps, answers).all()  # the very draws: the expert never answers alike
    assert queries == len(answers)
    if way == "program":  # it keeps its heading where no tree is ahead, as the learner would not
        off = steps.obs[:, 0] < 0.5
        np.testing.assert_array_equal(steps.act[off, 0], steps.obs[off, 3])


@pytest.mark.parametrize("way", WAYS)
def test_with_mixing_zero_the_episodes_are_those_without_mixing(way):
    (alone, _), queries = mixed(way, None)
    (with_zero, _), without = mixed(way, 0.0)
    assert queries == without == len(alone.t)
    # The same steps; where the expert might have acted, in the order of time.
    order = np.argsort(alone.t, kind="stable")
    for ours, theirs in zip(with_zero, alone, strict=True):  # programs that differ round differently
        np.testing.assert_allclose(ours, theirs[order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["program", "gymnasium"])
def test_mixing_decays_from_round_to_round(way):
    """β^i of the steps are the expert's: those where the action played is the label."""
    shares = {}
    for index in (1, 3):
        shares[index] = same(*mixed(way, 0.7, index=index)[0]).mean()
    by_chance = 0.5 if way == "gymnasium" else 0.0  # two actions, of which the learner's may be the expert's too
    for index, share in shares.items():
        expected = 0.7**index + (1 - 0.7**index) * by_chance
        assert share == pytest.approx(expected, abs=0.2)
    assert shares[1] > shares[3]


@pytest.mark.parametrize("way", WAYS)
def test_a_budget_covers_the_steps_in_which_the_expert_acts(way):
    """8 questions and 6 episodes: the expert may act in the first step of each, and no label is missing there."""
    (steps, answers), queries = mixed(way, 1.0, limit=8)
    assert queries == len(answers) == 8
    np.testing.assert_array_equal(steps.t, [0] * 6 + [1] * 2)
    acted = same(steps, answers)
    assert acted[:6].all()
    assert way == "gymnasium" or not acted[6:].any()  # of two actions, the learner's may be the expert's


def test_the_expert_is_not_queried_about_an_episode_that_is_over():
    source = Counting()
    _, algorithm, states = learner("Forest", 1.0)
    state = jax.tree.map(lambda x: x[0], states)
    gate = HostGate(algorithm, state, 1, 3, 100, lambda obs, t: source(obs), jax.random.key(0))
    alive = np.array([True, False, True])
    actions, decision = gate.choose(0, np.zeros((3, 4), np.float32), np.zeros((3, 1), np.float32), alive)
    assert source.queries == 2
    np.testing.assert_array_equal(decision.by_expert, alive)
    np.testing.assert_array_equal(decision.query, alive)
    np.testing.assert_array_equal(actions[:, 0] > 0, alive)


class EverySecond(us.dagger):
    """DAgger that queries at every second state of an episode, and lets the expert act at every fourth."""

    @property
    def gated(self):
        return True

    def start_gate(self, state, index, key):
        return jnp.zeros((), jnp.int32)

    def gate(self, state, carry, obs, act, key):
        return carry + 1, carry % 2 == 0, carry % 4 == 0


def gated(way, **options):
    env, _, states = learner("CartPole-v1" if way == "gymnasium" else "Forest", None)
    return collected(way, traced(EverySecond(**TINY)), env, states, **options)


@pytest.mark.parametrize("way", WAYS)
def test_a_gate_chooses_the_states_that_are_answered_with_a_memory_of_its_own(way):
    (steps, answers), queries, found = gated(way)
    assert (steps.t % 2 == 0).all()
    assert queries == len(answers) == int(found.answers)
    size = int(found.rollouts.size)
    everything = np.asarray(found.rollouts.steps.t)[:size]
    assert size > queries == (everything % 2 == 0).sum()
    acted = same(steps, answers)
    assert acted[steps.t % 4 == 0].all()
    assert way == "gymnasium" or not acted[steps.t % 4 != 0].any()  # of two actions, the learner's may be the expert's


@pytest.mark.parametrize("way", WAYS)
def test_a_budget_counts_answers_and_not_steps(way):
    (steps, answers), queries, found = gated(way, limit=5)
    assert queries == len(answers) == int(found.answers) == 5
    np.testing.assert_array_equal(steps.t, [0] * 5)
    assert int(found.rollouts.size) > 5
    assert not np.asarray(found.answered)[5:].any()


class AtMostTwo(EverySecond):
    """At the states 0, 2, 4, ... it queries, at most twice in an episode."""

    answers_per_episode = 2


@pytest.mark.parametrize("way", WAYS)
def test_answers_per_episode_limit_a_gate(way):
    env, _, states = learner("CartPole-v1" if way == "gymnasium" else "Forest", None)
    (steps, answers), queries, found = collected(way, traced(AtMostTwo(**TINY)), env, states)
    visited = np.asarray(found.rollouts.steps.t)[: int(found.rollouts.size)]
    assert queries == len(answers) > 0
    np.testing.assert_array_equal(steps.t, np.sort(visited[(visited == 0) | (visited == 2)]))
    assert same(steps, answers)[:6].all()


class ThreeSteps(EverySecond):
    """DAgger that lets the expert act until it has heard three of its actions that are not the learner's."""

    def gate(self, state, carry, obs, act, key):
        return carry, carry < 3, carry < 3

    def expert_acted(self, state, carry, obs, act, answer):
        return carry + (jnp.abs(answer - act).max() >= 0).astype(jnp.int32)


@pytest.mark.parametrize("way", WAYS)
def test_a_gate_hears_the_experts_action_where_it_has_acted(way):
    env, _, states = learner("CartPole-v1" if way == "gymnasium" else "Forest", None)
    (steps, answers), queries, found = collected(way, traced(ThreeSteps(**TINY)), env, states)
    visited = np.asarray(found.rollouts.steps.t)[: int(found.rollouts.size)]
    assert queries == len(answers) > 6
    np.testing.assert_array_equal(steps.t, np.sort(visited[visited < 3]))
    (steps, _), _, _ = collected(way, traced(ThreeSteps(**TINY)), env, states, limit=6)
    np.testing.assert_array_equal(steps.t, np.zeros(6))  # without budget it never hears the others


def test_a_gate_that_changes_its_memory_as_it_hears_is_refused():
    class Wrong(EverySecond):
        def expert_acted(self, state, carry, obs, act, answer):
            return answer

    env, _, states = learner("Forest", None)
    with pytest.raises(AlgorithmError, match=r"dagger\.expert_acted changed its memory"):
        collected("stepwise", traced(Wrong(**TINY)), env, states)


@pytest.mark.parametrize("way", WAYS)
def test_a_round_says_after_which_steps_the_task_was_solved(way):
    """Forest reports success in each step, CartPole nothing. Steps keep their report as they are sorted."""
    _, _, found = gated(way)
    size = int(found.rollouts.size)
    success, steps = np.asarray(found.success)[:size], jax.tree.map(lambda x: x[:size], found.rollouts.steps)
    if way == "gymnasium":
        assert np.isnan(success).all()
    else:
        assert set(success.tolist()) <= {0.0, 1.0}
        assert not success[~steps.terminal].any()


def test_a_gated_run_trains_on_the_answers_alone():
    forest = us.load("Forest")
    result = us.imitate(EverySecond(**TINY), forest, FOREST, Expert(FOREST.expert()).budget(50), seeds=2)
    queries = result.metrics["queries"]
    assert queries[:, 0].max() == 0
    assert np.nanmax(queries) <= 50
    assert (np.diff(queries, axis=1)[np.isfinite(np.diff(queries, axis=1))] >= 0).all()


def test_a_run_asks_without_as_it_says():
    source = Counting(np.int32)
    shown = us.record("CartPole-v1", lambda obs: (obs[:, 2] > 0).astype(int), episodes=1, workers=0)
    result = us.imitate(us.dagger(**TINY, mixing=0.5), shown, "CartPole-v1", Expert(source).budget(300), workers=0)
    answered = source.queries - FEWEST  # the trial call does not count
    assert answered == np.nanmax(result.metrics["queries"]) > 0
    assert answered <= 300
    assert result.config["algorithm"]["hyperparameters"]["mixing"] == 0.5


def test_mixing_above_one_is_refused():
    with pytest.raises(SettingError, match=r"mixing is 1\.5: a number from 0 to 1 is needed"):
        us.dagger(mixing=1.5)


def asked(way, ask, limit=NO_LIMIT, **settings):
    """A round of DAgger with `ask`; its six episodes in the forest are all alike."""
    env, _, states = learner("CartPole-v1" if way == "gymnasium" else "Forest", None)
    return collected(way, traced(us.dagger(**TINY, ask=ask, **settings)), env, states, limit=limit)


@pytest.mark.parametrize("way", WAYS)
def test_novel_states_are_queried_once_although_episodes_repeat_them(way):
    (steps, answers), queries, found = asked(way, "novel")
    size = int(found.rollouts.size)
    assert queries == len(answers) == int(found.answers)
    assert len(np.unique(steps.obs, axis=0)) == queries
    if way != "gymnasium":  # a deterministic policy always flies the same path
        assert queries * TINY["episodes_per_round"] == size
        assert sorted(steps.t.tolist()) == list(range(queries))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ask", ["all", "spread", "novel"])
def test_queries_per_round_and_the_budget_both_limit_the_answers(way, ask):
    (first, _), queries, found = asked(way, ask, queries_per_round=2)
    assert queries == int(found.answers) == 2
    assert int(found.rollouts.size) > 2  # the other steps are there, unanswered
    assert not np.asarray(found.answered)[2:].any()
    (only, _), queries, _ = asked(way, ask, limit=1, queries_per_round=2)
    assert queries == 1
    np.testing.assert_array_equal(only.obs[0], first.obs[0])  # the budget keeps the first questions


def test_a_run_does_not_query_a_state_of_an_earlier_round_again():
    states = []
    result = us.imitate(
        us.daequil(**{**us.daequil.small, "rounds": 5}, critic="linear", ask="novel", queries_per_round=4),
        us.load("Forest").first(2),
        FOREST,
        Expert(FOREST.expert()).budget(9),
        visit=lambda done, batch: states.append(jax.device_get(batch())),
    )
    aggregated = jax.tree.map(lambda x: x[0], states[-1].aggregated)
    obs = aggregated.steps.obs[: int(aggregated.size)]
    assert len(obs) == result.metrics["queries"][0].max() <= 9
    assert len(np.unique(obs, axis=0)) == len(obs) > 0


def test_a_later_round_without_answers_is_not_a_cloning_round():
    """The anchor stays at the policy after round 0, and the round is not judged."""
    algorithm = us.daequil(**us.daequil.small, critic="linear")
    demonstrations, _ = us.load("Forest").first(2).split([2], 0.0)
    data = demonstrations.of(0)
    state = algorithm.init(jax.random.key(0), FOREST.spec, data)
    nothing = jax.tree.map(lambda x: x[:3], data.steps)
    empty = RoundData(data, Dataset(nothing, jnp.asarray(3)), nothing.act, jnp.zeros(3, bool))
    first, _ = algorithm.update(state, empty, jax.random.key(1))
    second, _ = algorithm.update(first, empty, jax.random.key(2))
    for cloned, policy in zip(jax.tree.leaves(second.cloned), jax.tree.leaves(first.policy), strict=True):
        np.testing.assert_array_equal(cloned, policy)
    assert second.best.payoff == NO_PAYOFF
