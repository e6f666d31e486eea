"""ValueDICE: match the expert's distribution of (s, a) from demonstrations alone.

It matches off-Q moments (section 4.3). Like AdVIL it trains a policy against a critic in the demonstrated states, and
telescopes a difference of rewards into values (supplement, "AdVIL Derivation"). It bounds a divergence instead of an
IPM: the Donsker–Varadhan form of KL(d_π ‖ d_E), over x = f − γ B^π f,

    L(π, f) = (1 − γ) E_{s_0} [ f(s_0, π(s_0)) ] − log E_{(s, a, s') ~ D_E} [ exp( f(s, a) − γ f(s', π(s')) ) ]

The policy minimises L, and the cost f maximises it.

    Input: demonstrations D_E with next states, policy class Π, moment functions F, learning rates η_f > η_π
    1. for each step:
    2.     draw (s, a, s') ~ D_E and s_0
    3.     f ← f + η_f ∇_f [ L(π, f) − w_g · E (‖∇f‖ − g)² ]
    4.     π ← π − η_π ∇_π [ L(π, f) + w_o · R_⊥(π) ]

After a terminal step, s' is an absorbing state that follows itself forever. An extra observation dimension marks it,
its actions are zero, and D_E contains its step to itself once for each terminated episode. A last step without
a recorded next state is left out. Any demonstrated state may serve as s_0 (`starts="all"`), as in the reference. The
gradient penalty is taken between an expert's (s, a) and the learner's (s', π(s')) of another step, as in the paper's
released code.

Reference: Kostrikov, Nachum and Tompson, "Imitation Learning via Off-Policy Distribution Matching" (2020), in the truly
off-policy form that the paper evaluates: no replay buffer, no environment (replay regularisation 0).

Deviations: the players alternate, critic first; the reference takes both gradients at once. D_E contains the absorbing
state's step to itself once per episode, not several times.

The paper uses the reference's settings, with 500,000 steps. The default differs from the preset `paper`, which has
them, in

    setting        default        paper
    ema_decay      0.999          0        a moving average of the weights is returned
    obs_scaling    standardize    paper    standard deviations have a relative floor; the released code adds 1e-3
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.core.errors import (
    check_choice,
    check_fraction,
    check_kind,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Dataset, Info, Pair, RoundData, Samples, Spec
from understudy.game import QUICK, Algorithm, Card
from understudy.game.critics import MLPCritic, as_vector, penalty_between
from understudy.game.payoffs import off_q_vectors
from understudy.game.players import Averaged, Player, averaging, gradient
from understudy.game.sampling import Rows, draw_from_both, take
from understudy.game.stopping import CollapseDetector, CollapseState
from understudy.policies import NetworkPolicy, Normalized, Policy, stochastic_policy
from understudy.policies.networks import orthogonal_penalty
from understudy.policies.normalization import Normalization, Scaling, check_scaling


class ValueDICEState(NamedTuple):
    policy: NetworkPolicy
    policy_memory: Averaged
    critic: MLPCritic
    critic_memory: optax.OptState
    normalization: Normalization
    collapse_state: CollapseState


class ValueDICEBatch(NamedTuple):
    """A minibatch in normalized coordinates. The last observation marks the absorbing state."""

    expert: Samples
    """(s, a), weighted."""
    following: Samples
    """s'; its actions are not used."""
    start: Samples
    """s_0; its actions are not used."""


class ValueDICE(Algorithm):
    """Distribution matching by a telescoped divergence, from demonstrations alone."""

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
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"ema_decay": 0.0, "obs_scaling": "paper"},
        QUICK: {"rounds": 100, "hidden": (64, 64)},
    }
    small: ClassVar[dict[str, Any]] = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}

    discount: float = 0.99
    """Discount factor γ."""
    policy_lr: float = 1e-5
    """Learning rate of the policy's Adam, η_π."""
    critic_lr: float = 1e-3
    """Learning rate of the critic's Adam, η_f."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size."""
    gradient_target: float = 1.0
    """Target norm of the critic's gradient, g."""
    gradient_weight: float = 10.0
    """Weight of the gradient penalty, w_g."""
    orthogonal_weight: float = 1e-4
    """Weight of the orthogonal regularisation of the policy, w_o."""
    starts: Literal["all", "first"] = eqx.field(static=True, default="all")
    """Demonstrated states that serve as s_0: all, or the first of each episode."""
    ema_decay: float = 0.999
    """Decay of the moving average of weights that is returned (0: return the last weights)."""
    rounds: int = eqx.field(static=True, default=500)
    """Training rounds. Metrics are logged once a round."""
    gradient_steps: int = eqx.field(static=True, default=1000)
    """Gradient steps of both players per round."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of policy and critic."""
    obs_scaling: Scaling = eqx.field(static=True, default="standardize")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""
    collapse: CollapseDetector = CollapseDetector(jump=0.0)
    """Stop when the policy's loss jumps. Default: never."""

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
        check_scaling(self.obs_scaling)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> ValueDICEState:
        policy_key, critic_key = jax.random.split(key)
        marked = spec.with_extra_obs(1)  # the mark of the absorbing state
        policy = stochastic_policy(policy_key, marked, self.hidden, gain=1.0)
        critic = MLPCritic.init(critic_key, marked, self.hidden, gain=1.0)
        policy_player, critic_player = self._players()
        return ValueDICEState(
            policy,
            policy_player.init(policy),
            critic,
            critic_player.init(critic),
            Normalization.fit(spec, demonstrations, self.obs_scaling),
            self.collapse.init(),
        )

    def update(self, state: ValueDICEState, data: RoundData, key: Key[Array, ""]) -> tuple[ValueDICEState, Info]:
        policy_player, critic_player = self._players()
        usable = UsableRows.of(data.demonstrations)

        def step(state: ValueDICEState, k: Key[Array, ""]) -> tuple[ValueDICEState, Array]:  # line 1
            batch_key, critic_key, policy_key = jax.random.split(k, 3)
            batch = self._batch(state, data.demonstrations, usable, batch_key)  # line 2

            def critic_loss(critic: MLPCritic, k: Key[Array, ""]) -> Float[Array, ""]:
                payoff_key, mix_key = jax.random.split(k)
                value, following = self.payoff(state.policy, critic, batch, payoff_key)
                other = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), following)  # of another step of the batch
                penalty = penalty_between(critic, Pair(other, batch.expert), self.gradient_target, mix_key)
                return -value + self.gradient_weight * penalty

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
        collapse_state, jumped = self.collapse.update(state.collapse_state, values.mean())
        metrics = {"policy_loss": values.mean()}
        return state._replace(collapse_state=collapse_state), Info(metrics, jnp.where(jumped, 1, 0), undo=jumped)

    def payoff(
        self, policy: Policy, critic: MLPCritic, batch: ValueDICEBatch, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Samples]:
        """L(π, f) on a minibatch, and the learner's (s', π(s')) in it."""
        # One forward pass of the policy and one of f over all samples: fewer and larger matrix products.
        learner = _act(policy, _together(batch.start, batch.following), critic.actions, key)
        sides = _together(learner, batch.expert)
        f_start, f_next, f_expert = jnp.split(jax.vmap(critic)(sides.t, sides.obs, sides.act), 3)
        following: Samples = jax.tree.map(lambda x: x[self.batch_size :], learner)
        residual = f_expert - self.discount * f_next
        expert = jax.nn.logsumexp(residual, b=batch.expert.weight) - jnp.log(batch.expert.weight.sum())
        start = f_start @ batch.start.weight / batch.start.weight.sum()
        return (1 - self.discount) * start - expert, following

    def policy(self, state: ValueDICEState) -> Policy:
        """The policy without its weights for the mark, because it never acts in the absorbing state."""
        policy = state.policy_memory.average
        first, *rest = policy.net.weights
        indices = None if policy.net.input_indices is None else policy.net.input_indices[:-1]
        net = replace(policy.net, weights=(first[:-1], *rest), input_indices=indices)
        return Normalized(eqx.tree_at(lambda p: p.net, policy, net), state.normalization)

    def _batch(self, state: ValueDICEState, data: Dataset, usable: "UsableRows", key: Key[Array, ""]) -> ValueDICEBatch:
        """Steps drawn uniformly from D_E, including the absorbing state's steps to itself, and initial states."""
        step_key, start_key = jax.random.split(key)
        shape = (self.batch_size,)
        draw = draw_from_both(step_key, self.batch_size, usable.steps, usable.absorbing)
        absorbing = ~draw.from_first
        steps = state.normalization.encode(take(data.steps, jnp.where(absorbing, data.size - 1, draw.first)))
        act = jax.vmap(as_vector, (0, None))(steps.act, state.critic.actions)
        weight = jnp.ones(shape, act.dtype)
        expert = Samples(steps.t, _mark(steps.obs, absorbing), jnp.where(absorbing[:, None], 0, act), weight)
        after = Samples(steps.t + 1, _mark(steps.next_obs, absorbing | steps.terminal), act, weight)
        if self.starts == "all":
            return ValueDICEBatch(expert, after, expert)
        row = usable.starts.sample(start_key, shape)
        obs = state.normalization.encode_obs(data.steps.obs[row])
        start = Samples(data.steps.t[row], _mark(obs, jnp.zeros(shape, bool)), act, weight)
        return ValueDICEBatch(expert, after, start)

    def _players(self) -> tuple[Player, Player]:
        policy, critic = gradient(optax.adam(self.policy_lr)), gradient(optax.adam(self.critic_lr))
        return averaging(policy, self.ema_decay), critic


class UsableRows(NamedTuple):
    """Rows of the demonstrations that a minibatch is drawn from."""

    steps: Rows
    """Steps with a known next state."""
    absorbing: Rows
    """The absorbing state's steps to itself, one for each terminated episode. They are not rows of the dataset."""
    starts: Rows
    """The first step of each episode."""

    @classmethod
    def of(cls, data: Dataset) -> "UsableRows":
        known = data.mask & (data.steps.known_next | data.steps.terminal)
        terminated = (data.mask & data.steps.terminal).sum()
        return cls(Rows.where(known), Rows(None, terminated), Rows.where(data.mask & (data.steps.t == 0)))


def _mark(obs: Float[Array, "n obs"], absorbing: Bool[Array, " n"]) -> Float[Array, "n obs_and_mark"]:
    """Observations with the mark appended. The absorbing state is zero except for its mark."""
    flag = absorbing[:, None].astype(obs.dtype)
    return jnp.concatenate([obs * (1 - flag), flag], axis=1)


def _together(*samples: Samples) -> Samples:
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *samples)


def _act(policy: Policy, states: Samples, actions: int | None, key: Key[Array, ""]) -> Samples:
    """The states with the policy's actions. Actions in the absorbing state are zero."""
    learner = off_q_vectors(policy, states, actions, key).learner
    return learner._replace(act=learner.act * (1 - states.obs[:, -1:]))
