"""Facts that hold for every algorithm: it is pure, its seeds differ, its card is true, and it learns.

The algorithms are those that `algorithms/` holds, and one of another package, for discrete actions only.
"""

import dataclasses
import functools
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import understudy as us
from support.envs import Line
from understudy.algorithms import find
from understudy.core.errors import NeedsError
from understudy.core.types import ActionValues, Replay, RoundData
from understudy.game import INSTEAD, NEEDS, Algorithm
from understudy.rl import SAC, SoftQ
from understudy.train import selection
from understudy.train.programs import traced

OTHERS = "support.algorithms:Classifier"
NAMES = [*us.ALGORITHMS, OTHERS]
CASES = [(name, kind) for name in NAMES for kind in find(name).card.actions]
# One kind of actions for each algorithm, in turn, where a case takes many seconds to compile.
ONE_KIND = [(name, find(name).card.actions[i % len(find(name).card.actions)]) for i, name in enumerate(NAMES)]


def small(name) -> Algorithm:
    return find(name)(**find(name).small)


@pytest.fixture
def demonstrations(request, continuous, discrete):
    return {"continuous": continuous, "discrete": discrete}[request.param]


@pytest.fixture
def imitate(tasks):
    """`us.imitate` with the environment and the expert that an algorithm needs."""

    def call(algorithm, demonstrations, **options):
        kind = "discrete" if isinstance(demonstrations.action_space, us.Discrete) else "continuous"
        needed = tasks[kind] if "environment" in algorithm.card.needs else {}
        return us.imitate(algorithm, demonstrations, **needed, **options)

    return call


def one_round(algorithm, demonstrations, seed):
    """The policy after a round, by the protocol alone.

    Not the whole state: a payoff does not depend on a constant added to f, so the critic's last bias moves by the
    rounding of a zero gradient, which Adam makes as large as any other.
    """
    algorithm = traced(algorithm)
    data, _ = demonstrations.split([demonstrations.episodes], 0.1)
    data = data.of(0)
    init_key, key = jax.random.split(jax.random.key(seed))
    state = algorithm.init(init_key, demonstrations.spec, data)
    return algorithm.policy(algorithm.update(state, stand_in(algorithm, data), key)[0])


def stand_in(algorithm, data):
    """What a round gives an algorithm, with the demonstrations' first steps in place of the learner's."""
    if algorithm.schedule is not None:
        own = data.steps._replace(round=jnp.zeros_like(data.steps.round))
        shape = (algorithm.schedule.envs, algorithm.schedule.steps_per_env)
        new_steps = jax.tree.map(lambda x: x[: shape[0] * shape[1]].reshape(*shape, *x.shape[1:]), own)
        replay = Replay(own, jnp.zeros(own.t.shape), jnp.asarray(20))
        return RoundData(data, replay=replay, new_steps=new_steps, task_reward=jnp.zeros(shape))
    if "environment" not in algorithm.card.needs:
        return RoundData(data)
    answered = jnp.arange(data.steps.t.shape[0]) < 20
    given = RoundData(data, data._replace(size=jnp.asarray(20)), data.steps.act, answered, round=1)
    if algorithm.card.values:
        values = ActionValues(data.steps.act, data.steps.obs.sum(1))
        given = given._replace(expert_actions=None, action_values=values)
    return given


@functools.cache
def compiled(name, demonstrations):
    """`one_round` of the small algorithm as a program of the seed: one for all tests that need it."""
    return jax.jit(lambda seed: one_round(small(name), demonstrations, seed))


def assert_close(left, right, tolerance=1e-5):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)


def differs(left, right):
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "sqil"])
def test_jit_agrees_with_no_jit(name, continuous, discrete):
    """For one kind of actions: without jit every operation is compiled by itself. (SQIL's round is AdRIL's.)"""
    demonstrations = continuous if "continuous" in find(name).card.actions else discrete
    with jax.disable_jit():
        plain = one_round(small(name), demonstrations, 0)
    assert_close(plain, compiled(name, demonstrations)(0))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "demonstrations"), ONE_KIND, indirect=["demonstrations"])
def test_vmap_over_seeds_agrees_with_a_loop(name, demonstrations):
    alone = compiled(name, demonstrations)
    together = jax.jit(jax.vmap(alone))(jnp.arange(2))
    for seed in range(2):
        assert_close(jax.tree.map(lambda x, i=seed: x[i], together), alone(seed))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "demonstrations"), CASES, indirect=["demonstrations"])
def test_the_same_seed_repeats_exactly_and_different_seeds_differ(name, demonstrations, imitate):
    """On two episodes, as the next test's separate calls: on two cores or more, the programs are the same."""
    first, second = (imitate(small(name), demonstrations.first(2), seeds=2) for _ in range(2))
    for a, b in zip(first.policies, second.policies, strict=True):
        assert not differs(a.policy, b.policy)
    assert differs(first.policies[0].policy, first.policies[1].policy)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "demonstrations"), ONE_KIND, indirect=["demonstrations"])
def test_one_program_of_counts_and_seeds_agrees_with_separate_calls(name, demonstrations, imitate):
    together = imitate(small(name), demonstrations, seeds=[3, 5], episodes=[2, 4])
    assert [(run.episodes, run.seed) for run in together.runs] == [(2, 3), (2, 5), (4, 3), (4, 5)]
    # Those of fewer episodes are the padded ones.
    for actor, seed in zip(together.policies[:2], (3, 5), strict=True):
        alone = imitate(small(name), demonstrations.first(2), seeds=[seed])
        assert_close(actor.policy, alone.policies[0].policy)


# Settings with which every algorithm learns the linear expert of `Line` in seconds; each takes those it has.
LEARNING = {
    "rounds": 4,
    "gradient_steps": 300,
    "critic_steps": 100,
    "batch_size": 64,
    "hidden": (32,),
    "critic_hidden": (32,),
    "policy_lr": 3e-3,
    "lr": 3e-3,
    "ensemble_size": 1,
    "ema_decay": 0.0,
    "weight_decay": 0.0,
    "episodes_per_round": 4,
}
COLLECTING = {
    "rounds": 8,
    "round_steps": 256,
    "frequency": 64,
    "batch_size": 64,
    "random_steps": 64,
    "sac": SAC(hidden=(32, 32), gradient_steps=64, lr=3e-3, discount=0.0, temperature=0.01),
    "soft_q": SoftQ(hidden=(32, 32), gradient_steps=64, lr=3e-3, discount=0.0),
    "average_rounds": 0.0,
}
FRACTION = 0.5
"""What the held-out payoff of the last policy is at most, relative to that of the untrained one."""


def train_line(name):
    """A small run on `Line`: a function that repeats it, its result, and the held-out payoffs of untrained and last
    policies of two seeds."""
    cls = find(name)
    env = Line(discrete="continuous" not in cls.card.actions, shown=cls.card.observations)
    demos, test = (us.record(env, env.expert(), episodes=40, seed=seed) for seed in (0, 1))
    usual = COLLECTING if cls.card.moments == "reward" else LEARNING
    own = {field.name for field in dataclasses.fields(cls)}
    if "ppo" in cls.learning:  # a player that is not used may not be changed
        own -= {"sac", "soft_q"}
    algorithm = cls(**{key: value for key, value in (usual | cls.learning).items() if key in own})
    given = {"env": env} if "environment" in cls.card.needs else {}
    if "expert" in cls.card.needs:
        given["expert"] = env.expert()
    kept = {}

    def train(**options):
        return us.imitate(algorithm, demos, seeds=2, **given, **options)

    result = train(visit=lambda done, states: kept.update(last=states()))
    criterion = selection.held_out(env.spec, *test.split([test.episodes], 0.0), 0)

    def payoff(state):
        return selection.held_out_payoff(us.Actor(algorithm.policy(state), env.spec), criterion)

    training, _ = demos.split([demos.episodes], 0.0)
    fresh = jax.jit(lambda key: algorithm.init(key, env.spec, training.of(0)))
    before = [payoff(fresh(jax.random.key(seed))) for seed in range(2)]
    after = [payoff(jax.tree.map(lambda x, i=i: x[i], kept["last"])) for i in range(2)]
    return train, result, np.array(before), np.array(after)


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_a_linear_expert_and_its_seeds_repeat_and_differ(name):
    train, first, before, after = train_line(name)
    assert np.isfinite(after).all()
    assert after.mean() < FRACTION * before.mean()
    for a, b in zip(first.policies, train().policies, strict=True):
        assert not differs(a.policy, b.policy)
    assert differs(first.policies[0].policy, first.policies[1].policy)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_with_the_sign_of_its_losses_flipped_it_does_not_learn(name, monkeypatch):
    for library in (eqx, optax):
        right = library.apply_updates
        flipped = functools.partial(lambda right, x, updates: right(x, jax.tree.map(lambda u: -u, updates)), right)
        monkeypatch.setattr(library, "apply_updates", flipped)
    jax.clear_caches()  # programs that were traced with the right sign
    try:
        *_, before, after = train_line(name)
    except us.UnderstudyError:  # it diverged
        return
    finally:
        jax.clear_caches()
    assert not after.mean() < FRACTION * before.mean()


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_leaves_so_that_a_sweep_is_a_vmap(name):
    """No float is a constant of the compiled program."""

    def floats(record):
        values = [getattr(record, f.name) for f in dataclasses.fields(record)]
        nested = sum(floats(value) for value in values if dataclasses.is_dataclass(value))
        return nested + sum(isinstance(value, float) for value in values)

    algorithm = small(name)
    assert len([leaf for leaf in jax.tree.leaves(algorithm) if isinstance(leaf, float)]) == floats(algorithm)


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_consistent(name, continuous, discrete, imitate):
    cls = find(name)
    card = cls.card
    needs = {INSTEAD.get(need, need) for need in card.needs}
    assert needs <= set(NEEDS[card.moments])
    assert set(NEEDS[card.moments]) - needs <= {"demonstrations"}
    assert "Deviations" in (inspect.getmodule(cls).__doc__ or "") + (cls.__doc__ or "")
    if name in us.ALGORITHMS:
        assert card.name == name
        assert cls.__module__ == f"understudy.algorithms.{card.moments.replace('-', '_').lower()}.{name}"
        assert getattr(us, name) is cls
    for kind, demonstrations in (("continuous", continuous), ("discrete", discrete)):
        if kind not in card.actions:
            with pytest.raises(NeedsError, match=kind):
                imitate(small(name), demonstrations)
    if "environment" in card.needs:
        with pytest.raises(NeedsError, match="env="):
            us.imitate(small(name), continuous)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_documented(name):
    """The docstring under each field is its help on the command line."""
    cls = find(name)
    sources = [inspect.getsource(base) for base in cls.__mro__ if issubclass(base, Algorithm)]
    for field in (f.name for f in dataclasses.fields(cls)):
        source = next(source for source in sources if f"\n    {field}:" in source)
        declared = source.index(f"\n    {field}:")
        assert source[declared + 1 :].split("\n")[1].strip().startswith('"""'), f"{name}.{field} has no docstring"
