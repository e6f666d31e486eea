"""ValueDICE: match the expert's distribution of (s, a), with the demonstrations alone.

It matches off-Q moments (section 4.3): like AdVIL it plays against a critic on the demonstrations' states, and like
AdVIL it telescopes a difference of rewards into values (supplement, "AdVIL Derivation"), but it bounds a divergence
instead of an IPM. The Donsker–Varadhan form of KL(d_π ‖ d_E), over x = f − γ B^π f, is

    L(π, f) = (1 − γ) E_{s_0} [ f(s_0, π(s_0)) ] − log E_{(s, a, s') ~ D_E} [ exp( f(s, a) − γ f(s', π(s')) ) ]

which the policy minimises and f, a cost, maximises.

    Input: demonstrations D_E with next states, policy class Π, moment functions F, learning rates η_f > η_π
    1. for each step:
    2.     draw (s, a, s') ~ D_E and s_0
    3.     f ← f + η_f ∇_f [ L(π, f) − w_g · E (‖∇f‖ − g)² ]
    4.     π ← π − η_π ∇_π [ L(π, f) + w_o · R_⊥(π) ]

Where an episode ends in a terminal state, s' is an absorbing state that follows itself for ever: one more observation
says so, actions there are zero, and its own step is in D_E once for each such episode. A last step whose next state
was never recorded is left out. Any demonstrated state may serve as s_0 (`starts="all"`), as in the reference. The
gradient penalty is taken between an expert's (s, a) and the learner's (s', π(s')) of another step, as in the code that
the paper's authors released: there is no replay buffer to interpolate with.

Reference: Kostrikov, Nachum and Tompson, "Imitation Learning via Off-Policy Distribution Matching" (2020), in the truly
off-policy form that the paper evaluates: no replay buffer, no environment (replay regularisation 0).

Deviations: the players move in turn, the critic first, where the reference takes both gradients at once, and an
absorbing state's own step is in D_E once for each episode, not several times. An average of the policy's weights is
handed over (the preset `paper` hands over the last).
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.core.errors import (
    check_choice,
    check_fraction,
    check_kind,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Dataset, Discrete, Info, RoundData, Samples, Spec
from understudy.game import Algorithm, Card
from understudy.game.critics import MLPCritic, as_vector, gradient_penalty, interpolate
from understudy.game.payoffs import off_q_vectors
from understudy.game.players import Averaged, Player, averaging, gradient
from understudy.game.stopping import CollapseDetector, CollapseState
from understudy.policies import Categorical, Normalized, Policy
from understudy.policies.gaussian import Gaussian, NetworkPolicy
from understudy.policies.networks import orthogonal_penalty
from understudy.policies.normalization import Normalization


class ValueDICEState(NamedTuple):
    policy: NetworkPolicy
    policy_memory: Averaged
    critic: MLPCritic
    critic_memory: optax.OptState
    normalization: Normalization
    collapse_state: CollapseState


class Batch(NamedTuple):
    """A minibatch in the learner's coordinates; the last observation marks the absorbing state."""

    expert: Samples
    """(s, a), weighted."""
    following: Samples
    """s'."""
    start: Samples
    """s_0."""


class ValueDICE(Algorithm):
    """Distribution matching by a telescoped divergence, on demonstrations alone."""

    card: ClassVar[Card] = Card(
        name="valuedice",
        title="ValueDICE",
        moments="off-Q",
        solver="primal",
        needs=("demonstrations",),
        actions=("continuous", "discrete"),
        collects="nothing",
        reference="Kostrikov et al. 2020",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("the policy's loss jumped",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"ema_decay": 0.0}}

    discount: float = 0.99
    """γ."""
    policy_lr: float = 1e-5
    """Adam's learning rate of the policy, η_π."""
    critic_lr: float = 1e-3
    """Adam's learning rate of the critic, η_f."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps in a minibatch."""
    gradient_target: float = 1.0
    """What the penalty pulls the norm of the critic's gradient towards, g."""
    gradient_weight: float = 10.0
    """Weight of the gradient penalty, w_g."""
    orthogonal_weight: float = 1e-4
    """Weight of the policy's orthogonal regularisation, w_o."""
    starts: Literal["all", "first"] = eqx.field(static=True, default="all")
    """Which demonstrated states may serve as s_0: all of them, or the first of each episode."""
    ema_decay: float = 0.999
    """Decay of the average of the policy's weights that is handed over; 0 hands over the last policy."""
    rounds: int = eqx.field(static=True, default=500)
    """Rounds of training; a round is a line of the metrics."""
    gradient_steps: int = eqx.field(static=True, default=1000)
    """Steps of both players in a round."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of policy and critic."""
    collapse: CollapseDetector = CollapseDetector(jump=0.0)
    """When the policy's loss says that it has collapsed."""

    def __check_init__(self) -> None:
        check_positive(policy_lr=self.policy_lr, critic_lr=self.critic_lr)
        check_not_negative(
            gradient_target=self.gradient_target,
            gradient_weight=self.gradient_weight,
            orthogonal_weight=self.orthogonal_weight,
        )
        check_fraction(discount=self.discount, ema_decay=self.ema_decay)
        check_choice(("all", "first"), starts=self.starts)
        check_kind(CollapseDetector, collapse=self.collapse)
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds, gradient_steps=self.gradient_steps)
        check_layers(hidden=self.hidden)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> ValueDICEState:
        policy_key, critic_key = jax.random.split(key)
        inside = spec.with_extra_obs(1)  # the absorbing state's mark
        outputs = spec.action.n if isinstance(spec.action, Discrete) else spec.action.shape[0]
        kind = Categorical if isinstance(spec.action, Discrete) else Gaussian
        policy: NetworkPolicy = kind.init(
            policy_key, inside.obs_size, outputs, self.hidden, gain=1.0, reads=inside.policy_obs
        )
        critic = MLPCritic.init(critic_key, inside, self.hidden, gain=1.0)
        policy_player, critic_player = self._players()
        return ValueDICEState(
            policy,
            policy_player.init(policy),
            critic,
            critic_player.init(critic),
            Normalization.fit(spec, demonstrations),
            self.collapse.init(),
        )

    def update(self, state: ValueDICEState, data: RoundData, key: Key[Array, ""]) -> tuple[ValueDICEState, Info]:
        policy_player, critic_player = self._players()
        places = Places.of(data.demonstrations)

        def step(state: ValueDICEState, k: Key[Array, ""]) -> tuple[ValueDICEState, Array]:  # line 1
            batch_key, critic_key, policy_key = jax.random.split(k, 3)
            batch = self._batch(state, data.demonstrations, places, batch_key)  # line 2

            def critic_loss(critic: MLPCritic, k: Key[Array, ""]) -> Float[Array, ""]:
                payoff_key, mix_key = jax.random.split(k)
                value, following = self.payoff(state.policy, critic, batch, payoff_key)
                mix_keys = jax.random.split(mix_key, self.batch_size)
                other = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), following)  # of another step of the batch
                between = jax.vmap(interpolate)(mix_keys, other, batch.expert)
                penalty = jax.vmap(gradient_penalty, (None, 0, 0, 0, None))(
                    critic, batch.expert.t, *between, self.gradient_target
                )
                return -value + self.gradient_weight * penalty.mean()

            def policy_loss(policy: NetworkPolicy, k: Key[Array, ""]) -> Float[Array, ""]:
                value, _ = self.payoff(policy, critic, batch, k)
                return value + self.orthogonal_weight * orthogonal_penalty(policy.net, between="outputs")

            critic, critic_memory, _ = critic_player.move(  # line 3
                critic_key, state.critic, state.critic_memory, critic_loss
            )
            policy, policy_memory, value = policy_player.move(  # line 4
                policy_key, state.policy, state.policy_memory, policy_loss
            )
            return ValueDICEState(
                policy, policy_memory, critic, critic_memory, state.normalization, state.collapse_state
            ), value

        state, values = jax.lax.scan(step, state, jax.random.split(key, self.gradient_steps))
        collapse_state, jumped = self.collapse.look(state.collapse_state, values.mean())
        metrics = {"policy_loss": values.mean()}
        return state._replace(collapse_state=collapse_state), Info(metrics, jnp.where(jumped, 1, 0), undo=jumped)

    def payoff(
        self, policy: Policy, critic: MLPCritic, batch: Batch, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Samples]:
        """L(π, f) on a minibatch, and the learner's (s', π(s')) in it."""
        # One pass of the policy, and one of f, over all sides: fewer and larger products.
        learner = _act(policy, _together(batch.start, batch.following), critic.actions, key)
        sides = _together(learner, batch.expert)
        f_start, f_next, f_expert = jnp.split(jax.vmap(critic)(sides.t, sides.obs, sides.act), 3)
        following: Samples = jax.tree.map(lambda x: x[self.batch_size :], learner)
        residual = f_expert - self.discount * f_next
        expert = jax.nn.logsumexp(residual, b=batch.expert.weight) - jnp.log(batch.expert.weight.sum())
        start = f_start @ batch.start.weight / batch.start.weight.sum()
        return (1 - self.discount) * start - expert, following

    def policy(self, state: ValueDICEState) -> Policy:
        """The absorbing state is never acted in: the policy's weights for its mark are dropped."""
        inside = state.policy_memory.average
        first, *rest = inside.net.weights
        reads = None if inside.net.reads is None else inside.net.reads[:-1]
        net = replace(inside.net, weights=(first[:-1], *rest), reads=reads)
        return Normalized(eqx.tree_at(lambda p: p.net, inside, net), state.normalization)

    def _batch(self, state: ValueDICEState, data: Dataset, places: "Places", key: Key[Array, ""]) -> Batch:
        """Steps drawn uniformly from D_E and the absorbing state's own, and starts."""
        step_key, start_key = jax.random.split(key)
        shape = (self.batch_size,)
        row = places.draw(step_key, shape, data.size)
        absorbing = row >= data.size
        steps = state.normalization.encode(jax.tree.map(lambda x: x[jnp.minimum(row, data.size - 1)], data.steps))
        act = jax.vmap(as_vector, (0, None))(steps.act, state.critic.actions)
        weight = jnp.ones(shape, act.dtype)
        expert = Samples(steps.t, _mark(steps.obs, absorbing), jnp.where(absorbing[:, None], 0, act), weight)
        after = Samples(steps.t + 1, _mark(steps.next_obs, absorbing | steps.terminal), act, weight)
        if self.starts == "all":
            return Batch(expert, after, expert)
        chosen = places.starts[jax.random.randint(start_key, shape, 0, places.start_count)]
        obs = state.normalization.encode_obs(data.steps.obs[chosen])
        start = Samples(data.steps.t[chosen], _mark(obs, jnp.zeros(shape, bool)), act, weight)
        return Batch(expert, after, start)

    def _players(self) -> tuple[Player, Player]:
        policy, critic = gradient(optax.adam(self.policy_lr)), gradient(optax.adam(self.critic_lr))
        return averaging(policy, self.ema_decay), critic


class Places(NamedTuple):
    """Which rows of the demonstrations are what, in front of an order of all rows, and how many."""

    usable: Int[Array, " n"]
    """Those whose next state is known."""
    usable_count: Int[Array, ""]
    starts: Int[Array, " n"]
    """The first of each episode."""
    start_count: Int[Array, ""]
    ends: Int[Array, ""]
    """How many episodes end in a terminal state."""

    @classmethod
    def of(cls, data: Dataset) -> "Places":
        known = data.mask & (data.steps.known_next | data.steps.terminal)
        start = data.mask & (data.steps.t == 0)

        def front(chosen: Bool[Array, " n"]) -> Int[Array, " n"]:
            return jnp.argsort(~chosen, stable=True)

        ends = (data.mask & data.steps.terminal).sum()
        return cls(front(known), known.sum(), front(start), jnp.maximum(start.sum(), 1), ends)

    def draw(self, key: Key[Array, ""], shape: tuple[int, ...], size: Int[Array, ""]) -> Int[Array, " b"]:
        """Rows, uniformly; from `size` on they stand for the absorbing state's own step."""
        index = jax.random.randint(key, shape, 0, self.usable_count + self.ends)
        inside = self.usable[jnp.minimum(index, self.usable_count - 1)]
        return jnp.where(index < self.usable_count, inside, size)


def _mark(obs: Float[Array, "n obs"], absorbing: Bool[Array, " n"]) -> Float[Array, "n obs_and_mark"]:
    """Observations with the absorbing state's mark; that state itself is all zeros but for it."""
    flag = absorbing[:, None].astype(obs.dtype)
    return jnp.concatenate([obs * (1 - flag), flag], axis=1)


def _together(*samples: Samples) -> Samples:
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *samples)


def _act(policy: Policy, states: Samples, actions: int | None, key: Key[Array, ""]) -> Samples:
    """The states with the policy's actions, which are zero in the absorbing state."""
    learner = off_q_vectors(policy, states, actions, key).learner
    return learner._replace(act=learner.act * (1 - states.obs[:, -1:]))
