"""Guided policy search: a network imitates linear-Gaussian controllers, which improve on a cost and stay near it.

It matches on-Q moments, as DAgger does, and its policy is found by supervised learning; but the expert is computed.
Every fixed start i has a time-varying linear-Gaussian controller p_i, which is queried in the states that it visits
itself. So a cost of (s, a) takes the expert's place. The controllers minimise the cost under fitted linear dynamics,
and the network π imitates all of them, so that it acts from other starts too. λ_{i,t} are dual variables of the
constraint that p_i and π agree:

    Input: cost c, starts 1 … n, policy class Π, KL limit ε, initial weights λ
    1. for each round:
    2.     roll out p_i from start i, several times
    3.     fit x_{t+1} ~ N(F_t (x_t, u_t) + f_t, N_t) to the episodes of start i         (`rl.linear_dynamics`)
    4.     π ← argmin over π of Σ_i Σ_t λ_{i,t} E_{x ~ p_i} KL(π(· | x) ‖ p_i,t(· | x)): squared errors of its mean
           action, weighted by λ_{i,t} C_{i,t}⁻¹, and its covariance is (the mean of those weights)⁻¹
    5.     p_i ← argmin over p of Σ_t E_p [c] + λ_{i,t} KL_t(p ‖ π̄_i)   s.t.   KL(p ‖ p_i) ≤ ε T    (`rl.lqr`)
    6.     λ_{i,t} ← λ_{i,t} + α KL_t(p_i ‖ π̄_i)

C_{i,t} is the covariance of p_i's action, and π̄_i is π, linearised at the states of start i. Line 5 is an LQR problem
whose dual variable η is found by bisection.

Reference: Levine and Abbeel, "Learning Neural Network Policies with Guided Policy Search under Unknown Dynamics"
(2014). Table 3 of "Of Moments and Matching" names guided policy search beside DAgger, as on-Q and primal.

Deviations: the paper's prior of the dynamics is a mixture of Gaussians; here a time step's fit uses the steps near in
time too. The penalty of line 5 is KL(p ‖ π̄), which has an LQR form; the paper's KL(π̄ ‖ p) has none. ε is multiplied
by a factor for each start, which grows if the cost fell as the model predicted, and shrinks if not. KL_t is clipped in
line 6. With `discount` below 1 the controllers' costs fade with time, which avoids some local optima. Costs are divided
by their mean magnitude in the first round, so that λ and α do not depend on units, and actions beyond the bounds cost
`bound_weight` more, because the model does not know of clipping. The policy's mean is squashed with tanh, and the
targets are clipped to the bounds. π keeps its optimizer state from round to round, and acts without noise.
Demonstrations serve to normalize states and to measure held-out payoffs; with `initial="cloned"` the first network
clones them, and acts with noise in round 1 in place of controllers, as in Levine and Koltun, "Guided Policy Search"
(2013), whose controllers start from demonstrations.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.core.errors import SettingError, check_layers, check_not_negative, check_positive, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec
from understudy.game import QUICK, Algorithm, Card
from understudy.game.costs import CostSetting, check_cost, squares
from understudy.game.losses import cloning_loss
from understudy.game.players import Memory, Player, gradient, repeat
from understudy.game.sampling import Rows, take
from understudy.policies import Deterministic, Normalized, Policy, start
from understudy.policies.normalization import Normalization
from understudy.rl.controllers import StartControllers
from understudy.rl.linear_dynamics import fit_controller, fit_dynamics
from understudy.rl.lqr import Controller, Progress, Quadratic, divergence, expected_cost, forward, improved
from understudy.rl.trajectories import Samples, as_episodes, quadratic_cost

LARGEST_STEP = 10.0
"""KL_t is clipped to this where it increases λ_t: an early controller may be arbitrarily far from the network."""


class GPSState(NamedTuple):
    policy: Deterministic
    memory: Memory
    normalization: Normalization
    starts: Int[Array, " n"]
    """The seeds of the starting states."""
    controllers: Controller
    """One for each start, in normalized coordinates."""
    weights: Float[Array, "n t"]
    """λ."""
    progress: Progress
    scale: Float[Array, ""]
    """The mean magnitude of the cost in the first round with episodes. 0: there was none yet."""


class GPS(Algorithm):
    """Guided policy search: imitate linear-Gaussian controllers that improve on a cost."""

    card: ClassVar[Card] = Card(
        name="gps",
        title="GPS",
        moments="on-Q",
        solver="primal",
        needs=("environment", "cost"),
        actions=("continuous",),
        collects="episodes of controllers, from a few fixed starts",
        reference="Levine and Abbeel 2014",
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: {"rounds": 9}}
    has_critic: ClassVar[bool] = False
    small: ClassVar[dict[str, Any]] = {
        "cost": squares,
        "rounds": 2,
        "gradient_steps": 2,
        "batch_size": 8,
        "hidden": (8,),
        "conditions": 1,
        "episodes_per_round": 2,
    }
    learning: ClassVar[dict[str, Any]] = {"rounds": 6, "conditions": 2, "episodes_per_round": 16}

    cost: CostSetting = eqx.field(static=True, default=None)
    """c(obs, act), in the environment's units, or module:function. Default: the environment's own, if it has one."""
    conditions: int = eqx.field(static=True, default=4)
    """Fixed starts. Each has a controller."""
    episodes_per_round: int = eqx.field(static=True, default=20)
    """Episodes collected per round, the same number from each start."""
    rounds: int = eqx.field(static=True, default=21)
    """Rounds. The first has no episodes."""
    discount: float = 1.0
    """Weight of a time step's cost relative to the step before, as the controllers see it."""
    initial: Literal["random", "cloned"] = eqx.field(static=True, default="random")
    """Actions in the first episodes: noise, or those of a network that clones the demonstrations, with noise."""
    initial_std: float = 0.5
    """Standard deviation of that noise. Actions have the range [-1, 1]."""
    least_std: float = 0.15
    """Standard deviation that the controllers' noise has at least."""
    limit: float = 0.3
    """ε: KL divergence of a time step by which a controller may change in a round, on average."""
    weight: float = 0.01
    """Initial λ: what a nat between controller and network costs, as a fraction of the mean cost of a time step."""
    weight_lr: float = 0.01
    """α: learning rate of λ."""
    bound_weight: float = 1.0
    """Cost of actions outside the bounds: this times their squared distance from [-1, 1]."""
    width: int = eqx.field(static=True, default=2)
    """Dynamics are fitted to steps that are near in time; their weight is Gaussian with this width."""
    ridge: float = 1e-4
    """Ridge regularisation of the fitted dynamics, and the smallest variance of their noise."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    batch_size: int = eqx.field(static=True, default=64)
    """Minibatch size."""
    gradient_steps: int = eqx.field(static=True, default=1_000)
    """Gradient steps of the network per round."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers."""

    def __check_init__(self) -> None:
        check_cost(self.cost)
        check_positive(initial_std=self.initial_std, least_std=self.least_std, limit=self.limit, ridge=self.ridge)
        check_positive(weight=self.weight, lr=self.lr)
        check_not_negative(weight_lr=self.weight_lr, bound_weight=self.bound_weight)
        if not 0 < self.discount <= 1:
            raise SettingError(f"discount is {self.discount}: it must be above 0, and at most 1")
        check_whole(1, conditions=self.conditions, rounds=self.rounds, width=self.width, batch_size=self.batch_size)
        check_whole(1, gradient_steps=self.gradient_steps, episodes_per_round=self.episodes_per_round)
        check_layers(hidden=self.hidden)
        if self.episodes_per_round % self.conditions or self.episodes_per_round < 2 * self.conditions:
            raise SettingError(
                f"episodes_per_round is {self.episodes_per_round} with {self.conditions} conditions: "
                f"a multiple of them is needed, at least {2 * self.conditions}"
            )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> GPSState:
        policy_key, start_key = jax.random.split(key)
        policy = Deterministic.init(
            policy_key, spec.obs_size, spec.action_size, self.hidden, squash=True, input_indices=spec.policy_obs
        )
        normalization = replace(Normalization.fit(spec, demonstrations), obs_clip=None)  # controllers are linear
        starts = jax.random.randint(start_key, (), 0, 2**30) + jnp.arange(self.conditions)
        steps, acts = (self.conditions, spec.horizon), spec.action_size
        noise = jnp.broadcast_to(jnp.square(self.initial_std) * jnp.eye(acts), (*steps, acts, acts))
        controllers = Controller(jnp.zeros((*steps, acts, spec.obs_size)), jnp.zeros((*steps, acts)), noise)
        none = jnp.zeros(self.conditions)
        weights = jnp.full(steps, self.weight, jnp.float32)
        memory, progress = self._player().init(policy), Progress(none + 1, none, none)
        return GPSState(policy, memory, normalization, starts, controllers, weights, progress, jnp.zeros(()))

    def update(self, state: GPSState, data: RoundData, key: Key[Array, ""]) -> tuple[GPSState, Info]:
        samples = self._samples(state, data)
        begun = samples.mask.any()  # round 0 has no episodes
        size = samples._replace(cost=jnp.abs(samples.cost)).mean_cost
        scale = jnp.where(state.scale > 0, state.scale, jnp.where(size > 0, size, begun))
        acted = self._acted(state, samples)
        policy, memory, noise, loss = self._imitated(state, acted, samples, data.demonstrations, key)  # line 4
        new = state._replace(policy=policy, memory=memory, scale=scale)
        improve = jax.vmap(partial(self._improved, new, noise))
        controllers, weights, progress, metrics = improve(acted, state.weights, state.progress, samples)
        kept = new._replace(controllers=controllers, weights=weights, progress=progress)
        new = jax.tree.map(lambda after, before: jnp.where(begun, after, before), kept, new)
        return new, Info({"loss": loss} | {name: jnp.where(begun, x.mean(), 0) for name, x in metrics.items()})

    def policy(self, state: GPSState) -> Policy:
        return Normalized(state.policy, state.normalization)

    def acting_policy(self, state: GPSState) -> Policy:
        """The controllers (line 2)."""
        own, network = state.controllers, (state.policy, self._by_network(state))
        factor = jnp.linalg.cholesky(own.noise)
        return StartControllers(state.starts, own.gain, own.offset, factor, state.normalization, *network)

    def start_seeds(self, state: GPSState) -> Int[Array, " episodes"]:
        return jnp.repeat(state.starts, self.episodes_per_round // self.conditions)

    def _by_network(self, state: GPSState) -> Bool[Array, ""]:
        """Whether the network acts in place of the controllers: in the first episodes, if it has been cloned."""
        return jnp.logical_and(self.initial == "cloned", state.scale == 0)

    def _samples(self, state: GPSState, data: RoundData) -> Samples:
        """The round's episodes by start, and what they cost."""
        assert data.rollouts is not None
        padding = jax.tree.map(lambda x: x[0], data.demonstrations.steps)
        steps, mask = as_episodes(data.rollouts, self.episodes_per_round, state.weights.shape[1], padding)
        own, cost = state.normalization.encode(steps), jax.vmap(jax.vmap(self._cost))(steps.obs, steps.act)
        return Samples.by_start(self.conditions, own.obs, own.act, own.next_obs, cost, mask)

    def _acted(self, state: GPSState, samples: Samples) -> Controller:
        """The controllers that have collected the samples."""

        def near(samples: Samples, own: Controller) -> Controller:
            acts = state.policy.mode(start(samples.mask.shape), samples.states)
            return fit_controller(samples.states, acts, own.noise[0], samples.mask, self.width, self.ridge)

        network = jax.vmap(near)(samples, state.controllers)
        return jax.tree.map(partial(jnp.where, self._by_network(state)), network, state.controllers)

    def _imitated(
        self, state: GPSState, acted: Controller, samples: Samples, demonstrations: Dataset, key: Key[Array, ""]
    ) -> tuple[Deterministic, Memory, Float[Array, "u u"], Float[Array, ""]]:
        """Line 4: the network, its optimizer state, the covariance of its actions, and the loss."""
        precision = state.weights[:, :, None, None] * jnp.linalg.inv(acted.noise)
        mean, count = precision.mean((0, 1)), samples.mask.shape[2]
        per_step = (precision / jnp.trace(mean) * len(mean)).reshape(-1, *mean.shape)
        targets = jnp.clip(jax.vmap(Controller.mean)(acted, samples.states), -1, 1)
        rows, pairs = Rows.where(samples.mask.reshape(-1)), jax.tree.map(_flat, (samples.states, targets))

        def loss(policy: Deterministic, k: Key[Array, ""]) -> Float[Array, ""]:
            sample_key, demonstrated_key = jax.random.split(k)
            row = rows.sample(sample_key, (self.batch_size,))
            states, wanted = take(pairs, row)
            apart = policy.mode(start((self.batch_size,)), states) - wanted
            imitation = jnp.einsum("bu,buv,bv->b", apart, per_step[row // count], apart).mean()
            batch = state.normalization.encode(demonstrations.sample(demonstrated_key, (self.batch_size,)))
            cloning = jax.vmap(cloning_loss, (None, 0))(policy, batch).mean() * (self.initial == "cloned")
            return jnp.where(rows.size > 0, imitation, cloning)

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)
        return policy, memory, jnp.linalg.inv(mean) * state.weights.mean(), value

    def _improved(
        self,
        state: GPSState,
        noise: Float[Array, "u u"],
        acted: Controller,
        weights: Float[Array, " t"],
        progress: Progress,
        samples: Samples,
    ) -> tuple[Controller, Float[Array, " t"], Progress, dict[str, Array]]:
        """Lines 3, 5 and 6 for one start: controller, λ, progress and metrics."""
        states, near = samples.states, (samples.mask, self.width, self.ridge)
        dynamics = fit_dynamics(states, samples.actions, samples.following, *near)  # line 3
        network = fit_controller(states, state.policy.mode(start(samples.mask.shape), states), noise, *near)
        # Executed actions are clipped: beyond the bounds only the controller's own mean knows what it would cost.
        cost = quadratic_cost(partial(self._scaled_cost, state), states, acted.mean(states), samples.mask)
        fade = self.discount ** jnp.arange(len(weights))
        fade = fade / fade.mean()
        cost = Quadratic(*(fade.reshape(-1, *(1,) * (x.ndim - 1)) * x for x in cost))
        progress = progress.after(samples._replace(cost=samples.cost * fade[:, None]).mean_cost / state.scale)
        limit = self.limit * progress.factor * len(weights)
        found = improved(dynamics, cost, acted, limit, network, weights, jnp.square(self.least_std))  # line 5
        apart = divergence(found.controller, network, found.marginals)
        apart = jnp.where(jnp.isfinite(apart), apart, LARGEST_STEP)  # an unstable model's states may overflow
        weights = weights + self.weight_lr * jnp.minimum(apart, LARGEST_STEP)  # line 6
        before, after = (expected_cost(cost, z).mean() for z in (forward(dynamics, acted), found.marginals))
        metrics = {"cost": samples.mean_cost, "moved": found.divergence, "apart": apart.mean()}
        metrics |= {"weights": weights.mean(), "factor": progress.factor}
        return (
            found.controller,
            weights,
            progress._replace(promised=jnp.nan_to_num(before - after, nan=0.0, posinf=0.0, neginf=0.0)),
            metrics,
        )

    def _cost(self, obs: Array, act: Array) -> Float[Array, ""]:
        assert callable(self.cost)
        return self.cost(obs, act)

    def _scaled_cost(self, state: GPSState, own: Array, act: Array) -> Float[Array, ""]:
        """The cost of a state and an action in normalized coordinates, in multiples of its scale."""
        obs = state.normalization.obs_mean + state.normalization.obs_std * own
        outside = jnp.square(jnp.maximum(jnp.abs(act) - 1, 0)).sum()
        return self._cost(obs, state.normalization.decode_unclipped(act)) / state.scale + self.bound_weight * outside

    def _player(self) -> Player:
        return repeat(gradient(optax.adam(self.lr)), self.gradient_steps)


def _flat(x: Array) -> Array:
    """Starts, time steps and episodes as one axis."""
    return x.reshape(-1, x.shape[-1])
