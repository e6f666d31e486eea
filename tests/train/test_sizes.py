"""Numbers that no machine can serve are refused with the memory they need, before anything is allocated."""

import jax
import pytest

import understudy as us
from understudy.core import memory
from understudy.train import sizes
from understudy.train.imitate import as_seeds

DEMOS = us.load("Pendulum", episodes=2)


@pytest.fixture(autouse=True)
def a_machine(monkeypatch):
    """16 GB, whatever machine the tests run on."""
    for module in (memory, sizes):
        monkeypatch.setattr(module, "machine_memory", lambda: 16 * 10**9)


def refusal(algorithm, **options):
    with pytest.raises(us.UnderstudyError) as refused:
        us.imitate(algorithm, DEMOS, **options)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("algorithm", "options", "named"),
    [
        (us.bc(), {"seeds": 10**8}, "lower seeds"),
        (us.bc(), {"seeds": 10**27}, "lower seeds"),
        (us.bc(rounds=10**12), {}, "lower rounds"),
        (us.bc(hidden=(10**9,)), {}, "lower hidden"),
        (us.bc(hidden=(10**9, 10**9)), {}, "lower hidden"),
        (us.bc(hidden=(10**20,)), {}, "lower hidden|hidden is too large"),
        (us.bc(batch_size=10**12), {}, "lower batch_size"),
        (us.bc(gradient_steps=10**12), {}, "lower gradient_steps"),
        (us.advil(hidden=(10**7, 10**7)), {"seeds": 5}, "lower hidden"),
        (us.dagger(episodes_per_round=10**9), {"env": "Pendulum", "expert": "scripted"}, "lower episodes_per_round"),
        (us.dagger(rounds=10**9), {"env": "Pendulum", "expert": "scripted"}, "lower rounds"),
        (us.adril(round_steps=10**12), {"env": "Pendulum"}, "round_steps"),
        (us.adril(rounds=2000, round_steps=10**6, buffer_size=None), {"env": "Pendulum"}, "replay buffer"),
    ],
)
def test_a_number_that_no_machine_can_serve_is_refused(algorithm, options, named):
    message = refusal(algorithm, **options)
    assert any(name in message for name in named.split("|")), message
    assert "of memory" in message or "at most" in message or "too large" in message


def test_steps_and_seeds_of_learning_are_refused_too():
    with pytest.raises(us.UnderstudyError, match=r"of memory|at most"):
        us.learn(us.rl.SAC(), "Pendulum", steps=10**14)
    with pytest.raises(us.UnderstudyError, match="lower seeds"):
        us.learn(us.rl.SAC(), "Pendulum", steps=1000, seeds=10**8)
    with pytest.raises(us.UnderstudyError, match="lower seeds"):
        as_seeds(10**12)


def test_episodes_that_do_not_fit_are_refused():
    with pytest.raises(us.UnderstudyError, match="lower episodes"):
        us.record("Pendulum", episodes=10**9)
    with pytest.raises(us.UnderstudyError, match="lower episodes"):
        us.record("CartPole-v1", expert=lambda obs: obs[:, 0] > 0, episodes=10**12)


def test_the_estimate_is_below_what_the_states_take(monkeypatch):
    algorithm = us.bc(hidden=(64,), rounds=2)
    training, _ = DEMOS.split([2], 0.0)
    state = algorithm.init(jax.random.key(0), DEMOS.spec, training.of(0))
    actual = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    needed = {part.what: part.size for part in sizes._parts(algorithm, DEMOS.spec, training)}
    assert needed["networks and data"] == actual
    monkeypatch.setattr(sizes, "machine_memory", lambda: sum(needed.values()) + 2 * sizes.RUN_BYTES)
    sizes.check_size(algorithm, DEMOS.spec, training, 1)
    with pytest.raises(us.UnderstudyError, match="lower seeds"):
        sizes.check_size(algorithm, DEMOS.spec, training, 2)


def test_an_accelerator_has_its_own_memory(monkeypatch):
    class Device:
        platform, device_kind = "gpu", "a small card"

        def memory_stats(self):
            return {"bytes_limit": 10_000}

    monkeypatch.setattr(jax, "devices", lambda *_: [Device()])
    training, _ = DEMOS.split([2], 0.0)
    with pytest.raises(us.UnderstudyError, match=r"on a small card.* there are 10.0 kB"):
        sizes.check_size(us.bc(), DEMOS.spec, training, 1)


def test_sizes_are_read_from_text():
    assert [memory.parse_size(text, "x") for text in ("1", "2kB", " 1.5 GB ", "3 bytes")] == [1, 2000, 15 * 10**8, 3]
    for text in ("", "-1", "x", "1 XB", "1e9"):
        with pytest.raises(us.UnderstudyError, match="x is"):
            memory.parse_size(text, "x")
