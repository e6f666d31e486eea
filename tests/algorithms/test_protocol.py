"""What holds for every algorithm: it is pure, its seeds are its own, and its card tells the truth."""

import dataclasses
import functools
import inspect
import pkgutil
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy import algorithms
from understudy.core.errors import NeedsError
from understudy.core.types import Replay, RoundData, ActionValues
from understudy.game import NEEDS, Algorithm
from understudy.rl import PPO, SAC, SoftQ
from understudy.train.loop import traced

# Every registered algorithm, small enough for a test. A new one adds a line here.
TINY = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}
PLAYED = {
    "rounds": 2,
    "round_steps": 16,
    "frequency": 8,
    "random_steps": 4,
    "batch_size": 8,
    "sac": SAC(hidden=(8,), gradient_steps=2),
    "soft_q": SoftQ(hidden=(8,), gradient_steps=2, temperature=1.0),  # so warm that no probability is 0
}
ON_POLICY = {
    "rounds": 2,
    "round_steps": 16,
    "frequency": 8,
    "envs": 2,
    "buffer_size": 8,
    "expert_batch_size": 8,
    "discriminator_hidden": (8,),
    "discriminator_steps": 1,
    "ppo": PPO(hidden=(8,), epochs=1, minibatch=8),
}
SMALL = {
    "bc": TINY,
    "advil": TINY,
    "valuedice": TINY,
    "dagger": {**TINY, "episodes_per_round": 2},
    "daequil": {**TINY, "episodes_per_round": 2, "critic_steps": 2, "critic_hidden": (8,)},
    "aggrevate": {**TINY, "episodes_per_round": 2, "critic_steps": 2, "critic_hidden": (8,)},
    "adril": PLAYED,
    "sqil": PLAYED,
    "gail": ON_POLICY,
}

CASES = [(name, kind) for name, cls in us.ALGORITHMS.items() for kind in cls.card.actions]
# One kind of actions for each algorithm, in turn, where a case takes many seconds to compile.
ONE_KIND = [(name, cls.card.actions[i % len(cls.card.actions)]) for i, (name, cls) in enumerate(us.ALGORITHMS.items())]


@pytest.fixture
def demonstrations(request, continuous, discrete):
    return {"continuous": continuous, "discrete": discrete}[request.param]


@pytest.fixture
def imitate(surroundings):
    """`us.imitate` with the environment and the expert that an algorithm asks for."""

    def call(algorithm, demonstrations, **options):
        kind = "discrete" if isinstance(demonstrations.action_space, us.Discrete) else "continuous"
        needed = surroundings[kind] if "environment" in algorithm.card.needs else {}
        return us.imitate(algorithm, demonstrations, **needed, **options)

    return call


def one_round(algorithm, demonstrations, seed):
    """The policy after a round, by the protocol alone.

    (Not the whole state: a payoff does not depend on a constant added to f, so the critic's last bias moves by what
    rounding leaves of a zero gradient, which Adam makes as large as any other.)
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
        rolled = jax.tree.map(lambda x: x[: shape[0] * shape[1]].reshape(*shape, *x.shape[1:]), own)
        history = Replay(own, jnp.zeros(own.t.shape), jnp.asarray(20))
        return RoundData(data, replay=history, new_steps=rolled, task_reward=jnp.zeros(shape))
    if "environment" not in algorithm.card.needs:
        return RoundData(data)
    given = RoundData(data, data._replace(size=jnp.asarray(20)), data.steps.act)
    if algorithm.card.values:
        given = given._replace(expert_actions=None, action_values=ActionValues(data.steps.act, data.steps.obs.sum(1)))
    return given


@functools.cache
def compiled(name, demonstrations):
    """`one_round` of the small algorithm as a program of the seed: one for all tests that need it."""
    return jax.jit(lambda seed: one_round(us.ALGORITHMS[name](**SMALL[name]), demonstrations, seed))


def assert_close(left, right, tolerance=1e-5):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)


def differs(left, right):
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def test_every_algorithm_file_is_registered_and_tested():
    found = set()
    for module in pkgutil.walk_packages(algorithms.__path__, f"{algorithms.__name__}."):
        for _, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            if issubclass(cls, Algorithm) and not inspect.isabstract(cls):
                found.add(cls)
    assert found == set(us.ALGORITHMS.values())
    assert set(SMALL) == set(us.ALGORITHMS)


@pytest.mark.parametrize("name", [name for name in us.ALGORITHMS if name != "sqil"])
def test_jit_agrees_with_no_jit(name, continuous, discrete):
    """For one kind of actions: without jit every operation is compiled by itself, which takes ten seconds.

    (SQIL's round is AdRIL's, but for a constant.)
    """
    demonstrations = continuous if "continuous" in us.ALGORITHMS[name].card.actions else discrete
    with jax.disable_jit():
        plain = one_round(us.ALGORITHMS[name](**SMALL[name]), demonstrations, 0)
    assert_close(plain, compiled(name, demonstrations)(0))


@pytest.mark.parametrize(("name", "demonstrations"), CASES, indirect=["demonstrations"])
def test_vmap_over_seeds_agrees_with_a_loop(name, demonstrations):
    alone = compiled(name, demonstrations)
    together = jax.jit(jax.vmap(alone))(jnp.arange(3))
    for seed in range(3):
        assert_close(jax.tree.map(lambda x, i=seed: x[i], together), alone(seed))


@pytest.mark.parametrize(("name", "demonstrations"), CASES, indirect=["demonstrations"])
def test_the_same_seed_repeats_exactly_and_different_seeds_differ(name, demonstrations, imitate):
    """On two episodes, as the next test's separate calls: on two cores or more, the programs are the same."""
    algorithm = us.ALGORITHMS[name](**SMALL[name])
    first, second = (imitate(algorithm, demonstrations.first(2), seeds=2) for _ in range(2))
    for a, b in zip(first.policies, second.policies, strict=True):
        assert not differs(a.policy, b.policy)
    assert differs(first.policies[0].policy, first.policies[1].policy)


@pytest.mark.parametrize(("name", "demonstrations"), ONE_KIND, indirect=["demonstrations"])
def test_one_program_of_counts_and_seeds_agrees_with_separate_calls(name, demonstrations, imitate):
    algorithm = us.ALGORITHMS[name](**SMALL[name])
    together = imitate(algorithm, demonstrations, seeds=[3, 5], episodes=[2, 4])
    assert [(run.episodes, run.seed) for run in together.runs] == [(2, 3), (2, 5), (4, 3), (4, 5)]
    # Those of fewer episodes are the padded ones.
    for actor, seed in zip(together.policies[:2], (3, 5), strict=True):
        alone = imitate(algorithm, demonstrations.first(2), seeds=[seed])
        assert_close(actor.policy, alone.policies[0].policy)


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_numbers_are_leaves_so_that_a_sweep_is_a_vmap(name):
    """No float is a constant of the compiled program."""
    algorithm = us.ALGORITHMS[name](**SMALL[name])

    def floats(record):
        values = [getattr(record, f.name) for f in dataclasses.fields(record)]
        nested = sum(floats(value) for value in values if dataclasses.is_dataclass(value))
        return nested + sum(isinstance(value, float) for value in values)

    assert len([leaf for leaf in jax.tree.leaves(algorithm) if isinstance(leaf, float)]) == floats(algorithm)


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_the_card_is_consistent(name, continuous, discrete):
    cls = us.ALGORITHMS[name]
    card = cls.card
    assert card.name == name
    assert set(card.needs) <= set(NEEDS[card.moments])
    assert set(NEEDS[card.moments]) - set(card.needs) <= {"demonstrations"}
    assert cls.__module__ == f"understudy.algorithms.{card.moments.replace('-', '_').lower()}.{name}"
    assert "Deviations" in inspect.getmodule(cls).__doc__
    for kind, demonstrations in (("continuous", continuous), ("discrete", discrete)):
        if kind not in card.actions:
            with pytest.raises(NeedsError, match=kind):
                us.imitate(cls(**SMALL[name]), demonstrations)
    if "environment" in card.needs:
        with pytest.raises(NeedsError, match="env="):
            us.imitate(cls(**SMALL[name]), continuous)
    else:
        assert us.imitate(cls(**SMALL[name]), continuous.first(2)).policies


@pytest.mark.parametrize("name", us.ALGORITHMS)
def test_every_setting_is_documented(name):
    """The docstring under each field is its help on the command line."""
    cls = us.ALGORITHMS[name]
    sources = [inspect.getsource(base) for base in cls.__mro__ if issubclass(base, Algorithm)]
    for field in (f.name for f in dataclasses.fields(cls)):
        source = next(source for source in sources if f"\n    {field}:" in source)
        declared = source.index(f"\n    {field}:")
        assert source[declared + 1 :].split("\n")[1].strip().startswith('"""'), f"{name}.{field} has no docstring"
