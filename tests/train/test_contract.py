"""Mistakes in an algorithm are reported with its name."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import AlgorithmError
from understudy.core.types import Info
from understudy.game import Algorithm, Card, gating
from understudy.policies import Deterministic, Normalization, Normalized


class State(NamedTuple):
    policy: Deterministic
    normalization: Normalization
    rounds: jax.Array


class Mistaken(Algorithm):
    """An algorithm that does nothing, with one mistake."""

    card: ClassVar[Card] = Card(
        "mistaken", "Mistaken", "off-Q", "-", ("demonstrations",), ("continuous",), "nothing", ""
    )
    mistake: str = eqx.field(static=True, default="")
    rounds: int = eqx.field(static=True, default=2)

    def init(self, key, spec, demonstrations):
        if self.mistake == "init":
            np.asarray(demonstrations.steps.obs)
        outputs = 2 if self.mistake == "shape" else spec.action_size
        policy = Deterministic.init(key, spec.obs_size, outputs, (4,), squash=True)
        return State(policy, Normalization.fit(spec, demonstrations), jnp.zeros((), jnp.int32))

    def update(self, state, data, key):
        if self.mistake == "numpy":
            return state, Info({"loss": np.square(data.demonstrations.steps.obs).mean()})
        if self.mistake == "if":
            return state, Info({"loss": jnp.ones(()) if state.rounds > 0 else jnp.zeros(())})
        if self.mistake == "own":
            raise LookupError("nothing\nfound")
        loss = jnp.ones(2) if self.mistake == "metric" else jnp.ones(())
        info = Info({"loss": loss, "round": jnp.asarray(data.round, jnp.float32)})
        if self.mistake == "one value":
            return state
        if self.mistake == "structure":
            return (state.policy, state.normalization), info
        if self.mistake == "dtype":
            return state._replace(rounds=state.rounds + 1.5), info
        return state._replace(rounds=state.rounds + 1), info

    def policy(self, state):
        if self.mistake == "coordinates":
            return state.policy
        if self.mistake == "no policy":
            return state.policy.net
        if self.mistake == "range":
            wide = Normalization(
                state.normalization.obs_mean, state.normalization.obs_std, jnp.full(1, 9.0), jnp.full(1, 0.5)
            )
            return Normalized(state.policy, wide)
        normalization = state.normalization
        if self.mistake == "shape":
            normalization = Normalization(normalization.obs_mean, normalization.obs_std, jnp.zeros(2), jnp.ones(2))
        return Normalized(state.policy, normalization)


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ("one value", "update returned"),
        ("metric", r"'loss' of shape \(2,\)"),
        ("structure", "structure"),
        ("dtype", r"rounds from int32\[\] to float32"),
        ("coordinates", "Normalized"),
        ("no policy", "MLP"),
        ("shape", r"\(2,\)"),
        ("range", "outside"),
        ("init", r"init failed: it calls NumPy .*\(test_contract\.py, line"),
        ("numpy", r"update failed: it calls NumPy .*\(test_contract\.py, line"),
        ("if", r"update failed: it uses `if`"),
        ("own", r"update failed: it raised LookupError: nothing \(test_contract\.py, line"),
    ],
)
def test_a_mistake_is_reported_with_the_algorithms_name(continuous, mistake, named):
    with pytest.raises(AlgorithmError, match=rf"mistaken\..*{named}") as caught:
        us.imitate(Mistaken(mistake), continuous)
    assert "\n" not in str(caught.value)


def test_without_a_mistake_it_trains_and_update_knows_its_round(continuous):
    result = us.imitate(Mistaken(rounds=3), continuous, seeds=2)
    assert [run.status for run in result.runs] == ["finished", "finished"]
    assert result.metrics["round"].tolist() == [[0, 1, 2], [0, 1, 2]]


class Gated(Mistaken):
    def start_gate(self, state, index, key):
        return object() if self.mistake == "start" else jnp.zeros(())

    def gate(self, state, carry, obs, act, key):
        answers = {
            "two": (carry, True),
            "none": None,
            "number": (carry, 1.0, True),
            "vector": (carry, jnp.ones(2, bool), True),
            "memory": (jnp.ones(3), True, False),
            "numpy": lambda: (carry, np.abs(obs)[0] > 0, False),
        }
        chosen = answers.get(self.mistake, (carry + 1, obs[0] > 0, False))
        return chosen() if callable(chosen) else chosen


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ("start", r"start_gate returned a object: return a pytree of arrays"),
        ("two", r"gate returned a tuple of 2: return \(memory, query, expert_acts\)"),
        ("none", "gate returned a NoneType"),
        ("number", "gate returned a float for query: a boolean scalar"),
        ("vector", r"gate returned bool\[2\] for query"),
        ("memory", r"gate changed its memory from float32\[\] to float32\[3\]"),
        ("numpy", r"gate failed: it calls NumPy .*\(test_contract\.py, line"),
    ],
)
def test_a_mistake_of_a_gate_is_reported_with_the_algorithms_name(mistake, named):
    def both(key, obs):
        carry = gating.start_gate(Gated(mistake), None, jnp.zeros((), int), key)
        return gating.decide(Gated(mistake), None, carry, obs, obs[:1], key)

    with pytest.raises(AlgorithmError, match=rf"^mistaken\.{named}"):
        jax.eval_shape(both, jax.random.key(0), jnp.ones(3))


def test_a_gate_without_a_mistake_may_return_python_booleans():
    carry, query, expert_acts = gating.decide(Gated(), None, jnp.zeros(()), jnp.ones(3), jnp.ones(1), jax.random.key(0))
    assert (float(carry), bool(query), bool(expert_acts)) == (1, True, False)
