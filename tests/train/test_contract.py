"""Mistakes in an algorithm are reported with its name."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import understudy as us
from understudy.core.errors import AlgorithmError
from understudy.core.types import Info
from understudy.game import Algorithm, Card
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
        outputs = 2 if self.mistake == "shape" else spec.action_size
        policy = Deterministic.init(key, spec.obs_size, outputs, (4,), squash=True)
        return State(policy, Normalization.fit(spec, demonstrations), jnp.zeros((), jnp.int32))

    def update(self, state, data, key):
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
    ],
)
def test_a_mistake_is_reported_with_the_algorithms_name(continuous, mistake, named):
    with pytest.raises(AlgorithmError, match=rf"mistaken\..*{named}"):
        us.imitate(Mistaken(mistake), continuous)


def test_without_a_mistake_it_trains_and_update_knows_its_round(continuous):
    result = us.imitate(Mistaken(rounds=3), continuous, seeds=2)
    assert [run.status for run in result.runs] == ["finished", "finished"]
    assert result.metrics["round"].tolist() == [[0, 1, 2], [0, 1, 2]]
