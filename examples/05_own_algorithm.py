"""Write your own algorithm in one file: cloning with the absolute error, which bad labels disturb less.

One of five actions in the demonstrations is replaced by a random one. The squared error of `us.bc` learns the mean of
good and bad actions, the absolute error their median. Expect a smaller error of ours against the true expert.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import understudy as us
from understudy.core.types import Info
from understudy.game.players import gradient, repeat
from understudy.policies import Carry, Deterministic, Normalization, Normalized, deterministic_policy


class MedianState(NamedTuple):
    policy: Deterministic
    memory: optax.OptState
    normalization: Normalization


class MedianCloning(us.Algorithm):
    """Gradient steps on |π(s) − a|, averaged over minibatches of the demonstrations."""

    card: ClassVar[us.Card] = us.Card(
        name="median_cloning",
        title="Median cloning",
        moments="off-Q",
        solver="-",
        needs=("demonstrations",),
        actions=("continuous",),
        collects="nothing",
        reference="this example",
        fixed=True,
    )
    lr: float = 1e-3
    """Learning rate of Adam. A float can change without compiling again."""
    rounds: int = eqx.field(static=True, default=20)
    """Training rounds. Metrics are logged once a round."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Gradient steps per round."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers. Static, because they change shapes."""

    def init(self, key, spec, demonstrations):
        policy = deterministic_policy(key, spec, self.hidden)
        return MedianState(policy, self._player().init(policy), Normalization.fit(spec, demonstrations))

    def update(self, state, data, key):
        def loss(policy, key):
            batch = state.normalization.encode(data.demonstrations.sample(key, (128,)))
            predicted = jax.vmap(policy.mode)(Carry(batch.t, jnp.zeros_like(batch.t)), batch.obs)
            return jnp.abs(predicted - batch.act).mean()

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)
        return MedianState(policy, memory, state.normalization), Info({"loss": value})

    def policy(self, state):
        return Normalized(state.policy, state.normalization)

    def _player(self):
        return repeat(gradient(optax.adam(self.lr)), self.gradient_steps)


clean = us.load("Pendulum", episodes=20)
random = np.random.default_rng(0)
bad = random.random(clean.steps) < 0.2
actions = np.where(bad[:, None], random.uniform(-2, 2, clean.actions.shape), clean.actions)
demos = us.Demonstrations.from_arrays(
    clean.observations, actions, clean.lengths, action_space=us.Continuous((-2.0,), (2.0,)), env="Pendulum"
)
print(f"{bad.mean():.0%} of {clean.steps} actions are random")

fresh = us.record("Pendulum", episodes=10, seed=1)  # the true expert, in states that nobody trained on
same = {"lr": 1e-3, "rounds": 20, "gradient_steps": 500, "batch_size": 128, "hidden": (64, 64)}
squared = us.bc(**same, weight_decay=0.0, ema_decay=0.0)  # only the loss differs
for name, learner in (("absolute error", MedianCloning()), ("squared error", squared)):
    result = us.imitate(learner, demos, "Pendulum", seeds=3)
    errors = [np.abs(policy(fresh.observations) - fresh.actions).mean() for policy in result.policies]
    returns = result.evaluate(episodes=20).scores()[0].learner
    print(f"{name}: distance to the true expert's actions {np.mean(errors):.3f}, return {returns.mean:.1f}")
