"""What gated on-Q learners share: an ensemble that clones the expert's answers, and its doubt.

A gate decides at each step of an episode whether the expert acts; its action is then its answer. The learners differ in
the gate (`ensemble_dagger`, `thrifty_dagger`, `hg_dagger`). K members, each with its own initialisation and bootstrap:

    1. c_kj ~ Poisson(1)                 how often step j of D is in the bootstrap of member k, drawn once
    2. π_k ← argmin over π' of the mean over j of c_kj ℓ(π', s_j, a_j), by gradient steps from the last π_k
    3. π(s) = the mean of π_k(s) over k  for discrete actions of the probabilities
    4. d(s) = √(Σ_i Var_k π_k(s)_i)      the doubt: the members' standard deviation, of actions in [-1, 1]

ℓ is the loss of behavioral cloning, as in DAgger. Poisson counts are the bootstrap of data that arrive one by one
(Oza and Russell, "Online Bagging and Boosting", 2001).
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from understudy.algorithms.on_q import querying
from understudy.core.errors import check_layers, check_positive, check_whole
from understudy.core.types import Dataset, RoundData, Spec
from understudy.game import Algorithm
from understudy.game.asking import most_answers
from understudy.game.losses import cloning_loss
from understudy.game.players import Memory, Player, gradient, repeat, side_by_side
from understudy.game.sampling import Rows, sample_from_both, with_actions
from understudy.policies import Categorical, EnsembleMember, Normalized, Policy, deterministic_policy, ensemble, start
from understudy.policies.normalization import Normalization

SMALL: dict[str, Any] = {**querying.SMALL, "ensemble_size": 2}
"""Settings for the protocol tests."""


class Member(NamedTuple):
    """A member of the ensemble. The ensemble stacks them along the leading axis."""

    policy: EnsembleMember
    counts: Int[Array, " n"]
    """c_k: the bootstrap counts of the demonstrated steps, then of the answered ones."""


class Cloned(NamedTuple):
    """An ensemble and the data that it has been trained on, besides the demonstrations."""

    members: Member
    memory: Memory
    normalization: Normalization
    aggregated: Dataset
    """The answered steps of all rounds, with the expert's actions."""

    @property
    def policy(self) -> Policy:
        """π, in the environment's units (line 3)."""
        return Normalized(ensemble(self.members.policy), self.normalization)

    def mode(self, obs: Array) -> Array:
        """π's most likely action in one state, in the environment's units. Members are evaluated in one batch."""
        mean = outputs(self.members.policy, self.normalization.encode_obs(obs)).mean(0)
        return mean.argmax() if isinstance(self.members.policy, Categorical) else self.normalization.decode_act(mean)

    def doubt(self, obs: Float[Array, " obs"]) -> Float[Array, ""]:
        """d(s) in one state (line 4)."""
        return disagreement(outputs(self.members.policy, self.normalization.encode_obs(obs)))

    def discrepancy(self, obs: Float[Array, " obs"], act: Array) -> Float[Array, ""]:
        """‖π(s) − a‖² in normalized coordinates; 0 or 1 for discrete actions."""
        own = self.mode(obs)
        if isinstance(self.members.policy, Categorical):
            return (own != act).astype(jnp.float32)
        difference = self.normalization.encode_act(own) - self.normalization.encode_act(act)
        return jnp.sum(jnp.square(difference))


def outputs(members: EnsembleMember, seen: Float[Array, " obs"]) -> Float[Array, "k out"]:
    """What each of stacked policies returns in one normalized state: an action, or probabilities."""
    seen = jnp.asarray(seen)

    def output(policy: EnsembleMember) -> Array:
        return jax.nn.softmax(policy.net(seen)) if isinstance(policy, Categorical) else policy.mode(start(), seen)

    return jax.vmap(output)(members)


def disagreement(found: Float[Array, "k out"]) -> Float[Array, ""]:
    """The standard deviation of the members' outputs (line 4)."""
    return jnp.sqrt(found.var(0).sum())


def expert_share(data: RoundData) -> Float[Array, ""]:
    """The share of a round's steps that the expert answered, by acting or after the episodes. 0 without episodes."""
    assert data.rollouts is not None
    assert data.answered is not None
    return data.answered.sum() / jnp.maximum(data.rollouts.size, 1)


class GatedCloning(Algorithm):
    """Abstract base class of on-Q learners whose gate looks at an ensemble."""

    has_critic: ClassVar[bool] = False
    learning: ClassVar[dict[str, Any]] = {"ensemble_size": 2}

    lr: float = 3e-4
    """Learning rate of Adam."""
    ensemble_size: int = eqx.field(static=True, default=5)
    """Members of the ensemble."""
    batch_size: int = eqx.field(static=True, default=32)
    """Minibatch size of each member."""
    rounds: int = eqx.field(static=True, default=11)
    """Rounds. The first is behavioral cloning on the demonstrations."""
    episodes_per_round: int = eqx.field(static=True, default=10)
    """Episodes collected per round."""
    answers_per_episode: int | None = eqx.field(static=True, default=None)
    """Answers in an episode, at most; then the learner acts alone. None: no limit."""
    gradient_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of each member per round."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: apply tanh to the networks' output."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of each member."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr)
        check_whole(2, ensemble_size=self.ensemble_size)  # a single member is never in doubt
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds, gradient_steps=self.gradient_steps)
        check_whole(1, episodes_per_round=self.episodes_per_round)
        check_layers(hidden=self.hidden)
        if self.answers_per_episode is not None:
            check_whole(1, answers_per_episode=self.answers_per_episode)

    def new_ensemble(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> Cloned:
        """K untrained members, with the bootstrap counts of all steps that they may ever learn from."""
        policy_key, count_key = jax.random.split(key)
        aggregated = Dataset.empty(demonstrations, most_answers(self, spec.horizon))
        policies = [
            deterministic_policy(k, spec, self.hidden, squash=self.squash)
            for k in jax.random.split(policy_key, self.ensemble_size)
        ]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *policies)
        sides = zip(jax.random.split(count_key), (demonstrations, aggregated), strict=True)
        members = Member(stacked, jnp.concatenate([self._counts(k, len(side.steps.t)) for k, side in sides], axis=1))
        return Cloned(
            members, self._members_player().init(members), Normalization.fit(spec, demonstrations), aggregated
        )

    def _counts(self, key: Key[Array, ""], steps: int) -> Int[Array, "k n"]:
        """Line 1. A key for each step, so that padding changes no counts."""
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(steps))
        return jax.vmap(lambda k: jax.random.poisson(k, 1.0, (self.ensemble_size,)))(keys).T.astype(jnp.int32)

    def fit(self, cloned: Cloned, data: RoundData, key: Key[Array, ""]) -> tuple[Cloned, Float[Array, ""]]:
        """The ensemble after a round's answers, and its mean loss."""
        assert data.expert_actions is not None
        aggregated = cloned.aggregated.extend(with_actions(data.queried, data.expert_actions))
        shown = len(data.demonstrations.steps.t)

        def loss(member: Member, k: Key[Array, ""]) -> Float[Array, ""]:
            first = (data.demonstrations.steps, member.counts[:shown]), Rows(None, data.demonstrations.size)
            second = (aggregated.steps, member.counts[shown:]), Rows(None, aggregated.size)
            steps, counts = sample_from_both(k, self.batch_size, first, second)
            losses = jax.vmap(cloning_loss, (None, 0))(member.policy, cloned.normalization.encode(steps))
            return (counts * losses).mean()

        members, memory, value = self._members_player().move(key, cloned.members, cloned.memory, loss)  # line 2
        return cloned._replace(members=members, memory=memory, aggregated=aggregated), value

    def _members_player(self) -> Player:
        return side_by_side(repeat(gradient(optax.adam(self.lr)), self.gradient_steps))
