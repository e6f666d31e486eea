"""A player by itself: trained on the environment's own reward, without demonstrations, for experts and for comparison.

It goes through the same loop as every imitation (`run.train`). In a game a step's reward is −f; here it is what the
environment paid for it:

    1. for each turn: play some steps, D ← D ∪ D'
    2.     π improves on D (SAC, SoftQ) or on D' alone (PPO), rewards being the environment's

Actions are mapped to [-1, 1], and observations are left as they are: there are no demonstrations to standardise them
with, and statistics that move while a policy learns would move the policy. A time limit cuts the record and not the
task: the value of the state after it counts, unless `truncation_is_terminal` says otherwise.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from understudy.core.errors import SettingError, SpecError, check_kind, check_whole
from understudy.core.progress import Progress
from understudy.core.types import Continuous, Dataset, Info, RoundData, Spec, Transition
from understudy.envs import Environment, GymnasiumEnvironment, make, public_name
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.game import Algorithm, Card
from understudy.game.schedule import Schedule
from understudy.policies import Normalized, Policy
from understudy.policies.actor import Actor
from understudy.policies.normalization import Normalization
from understudy.rl.base import Batch, Experience, PlayerState, RLPlayer, make_batch, update_when_ready
from understudy.rl.ppo import PPO
from understudy.train import loop as run
from understudy.train.checkpoints import Checkpoint
from understudy.collect.choose import collector_for
from understudy.train.imitate import as_seeds
from understudy.train.results import hyperparameters, provenance

ROUNDS = 20
"""A training call is cut into about so many rounds: lines of its history, and places to go on from."""


class TaskRewardState(NamedTuple):
    player: PlayerState
    normalization: Normalization


class TaskReward(Algorithm):
    """Reinforcement learning as the loop sees it. It is no imitation, and so not among the algorithms."""

    card: ClassVar[Card] = Card(
        name="rl",
        title="Reinforcement learning",
        moments="reward",
        solver="-",
        needs=("environment",),
        actions=("continuous", "discrete"),
        collects="steps of the learner, while it learns",
        reference="",
    )

    player: RLPlayer
    rounds: int = eqx.field(static=True)
    round_steps: int = eqx.field(static=True)
    """Environment steps of a run in a round, whole turns."""
    frequency: int = eqx.field(static=True)
    """Environment steps of a run in a turn, between updates."""
    envs: int = eqx.field(static=True)
    """Environments of a run that step together."""
    batch_size: int = eqx.field(static=True)
    """Steps in a minibatch that is drawn from the history."""
    random_steps: int = eqx.field(static=True)
    """Steps at the start that take any action; nothing is learned in turns with no others."""
    buffer_size: int | None = eqx.field(static=True)
    """Steps of a run that are remembered; none: all."""
    truncation_is_terminal: bool = eqx.field(static=True)
    """Time limits are taken for ends: nothing follows them."""
    staleness: int = eqx.field(static=True)
    """Updates that the policy that plays is behind, in a Gymnasium environment."""

    def __check_init__(self) -> None:
        check_kind(RLPlayer, player=self.player)
        check_whole(1, batch_size=self.batch_size)
        if isinstance(self.player, PPO) and (self.random_steps or self.staleness):
            raise SettingError(
                f"random_steps is {self.random_steps} and staleness is {self.staleness}: PPO learns from the steps of the policy "
                "as it is, so both must be 0"
            )
        _ = self.schedule  # which checks the rest

    @property
    def schedule(self) -> Schedule:
        return Schedule.of(
            self.round_steps,
            self.frequency,
            self.envs,
            self.rounds,
            self.buffer_size,
            random_steps=self.random_steps,
            staleness=self.staleness,
        )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> TaskRewardState:
        return TaskRewardState(
            self.player.init(key, spec), Normalization.fit(spec, demonstrations, normalize_obs=False)
        )

    def update(self, state: TaskRewardState, data: RoundData, key: Key[Array, ""]) -> tuple[TaskRewardState, Info]:
        played, rolled, schedule = data.replay, data.new_steps, self.schedule
        assert played is not None
        assert rolled is not None

        def paid(steps: Transition, reward: Float[Array, "..."]) -> Batch:
            return make_batch(state.normalization.encode(steps), reward, self.truncation_is_terminal)

        def sample(k: Key[Array, ""]) -> Batch:
            place = jax.random.randint(k, (self.batch_size,), 0, played.size)
            return paid(jax.tree.map(lambda x: x[place], played.steps), played.reward[place])

        turn, turns = data.round * schedule.updates + data.update, self.rounds * schedule.updates
        progress = (jnp.asarray(turn, jnp.float32) + 1) / turns
        experience = Experience(sample, paid(rolled, jnp.asarray(data.task_reward)), rolled.last)
        warm = schedule.random_steps_left(data.round, data.update) < schedule.steps_per_env
        player, metrics = update_when_ready(self.player, state.player, experience, progress, warm, key)  # line 2
        return state._replace(player=player), Info(metrics)

    def policy(self, state: TaskRewardState) -> Policy:
        return Normalized(self.player.policy(state.player), state.normalization)


@dataclass(frozen=True)
class Learned:
    """The policies of a call of `learn`, one for each seed, and how they came to be."""

    config: dict[str, Any]
    seeds: list[int]
    policies: list[Actor]
    """As they are at the end: no choice is made among rounds or seeds."""
    metrics: dict[str, np.ndarray]
    """name → (seeds, rounds). `return` is that of the episodes that were played on the way, exploring."""
    statuses: list[str]
    """A few words a seed: finished, diverged, interrupted, and when."""
    seconds: float
    interrupted: bool
    env: Environment | GymnasiumEnvironment

    def evaluate(
        self,
        env: Any = None,
        episodes: int = 10,
        seed: int = 0,
        workers: int = 1,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Returns of all policies without exploring; `env` defaults to where they learned."""
        chosen = self.env if env is None else env
        return evaluate(self.policies, chosen, episodes, seed, workers=workers, progress=progress)

    def __repr__(self) -> str:
        return f"Learned({self.config['player']['class']} in {self.env.name}, seeds {self.seeds}, {self.statuses})"


def learn(
    player: RLPlayer,
    env: Any,
    steps: int,
    seeds: int | Sequence[int] = 1,
    envs: int | None = None,
    frequency: int | None = None,
    batch_size: int = 256,
    random_steps: int | None = None,
    buffer_size: int | None = None,
    round_steps: int | None = None,
    truncation_is_terminal: bool = False,
    staleness: int = 0,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    visit: run.Visit | None = None,
    workers: int | None = None,
) -> Learned:
    """Train a player, such as `rl.SAC()`, on the environment's own reward.

    Each run takes `steps` environment steps, rounded up to whole rounds of `round_steps` (default: a twentieth of
    them). `seeds=5` trains five policies in one compiled program, a list names the seeds; each steps in `envs`
    environments. Between updates a run plays `frequency` steps, of all its environments together: by default as many
    as SAC and SoftQ take gradient steps, in one environment, and for PPO 2,048 in eight. SAC and SoftQ take any actions
    in their first `random_steps` (default: 1,000, or a tenth of `steps` where that is less), and learn from minibatches
    of `batch_size` out of the last `buffer_size` steps (default: all); PPO uses neither, and remembers a turn. With
    `truncation_is_terminal` a time limit counts as an end. `staleness`, `progress`, `checkpoint`, `visit` and `workers` are as in
    `imitate`: with a checkpoint, the same call goes on after an interruption or a crash.
    """
    made = make(env)
    if len(made.spec.obs_shape) != 1:
        raise SpecError(f"{made.name} observes {made.spec.obs_shape}: players need a flat vector of numbers")
    algorithm = _algorithm(
        player,
        steps,
        envs,
        frequency,
        batch_size,
        random_steps,
        buffer_size,
        round_steps,
        truncation_is_terminal,
        staleness,
    )
    seed_list = as_seeds(seeds)
    settings, kept = hyperparameters(algorithm), None
    if checkpoint is not None:
        task = (made.name, made.spec, made if isinstance(made, Environment) else None)
        identity = {"settings": json.dumps(settings), "environment": task, "seeds": seed_list}
        kept = Checkpoint(checkpoint, identity)
    keys = jax.vmap(jax.random.key)(np.array(seed_list, np.uint32))
    collector = collector_for(algorithm, made, None, seed_list, workers)
    nothing = _no_demonstrations(made.spec, len(seed_list))
    trained = run.train(algorithm, made.spec, nothing, keys, collector, progress, kept, visit)

    states, named = jax.device_get(trained.states), {"algorithm": type(player).__name__, "env": public_name(made)}
    policies = [
        Actor(algorithm.policy(jax.tree.map(lambda x, i=i: x[i], states)), made.spec, {**named, "seed": seed})
        for i, seed in enumerate(seed_list)
    ]
    config = {
        "player": settings.pop("player"),
        "settings": settings,
        "seeds": seed_list,
        "env": public_name(made),
        "spec": asdict(made.spec),
        "seconds": round(trained.seconds, 3),
        **provenance(),
    }
    return Learned(
        config, seed_list, policies, trained.metrics, trained.statuses, trained.seconds, trained.interrupted, made
    )


def _algorithm(
    player: Any,
    steps: int,
    envs: int | None,
    frequency: int | None,
    batch_size: int,
    random_steps: int | None,
    buffer_size: int | None,
    round_steps: int | None,
    truncation_is_terminal: bool,
    staleness: int,
) -> TaskReward:
    """With what was not said: what suits the player."""
    check_kind(RLPlayer, player=player)
    check_whole(1, steps=steps)
    on_policy = isinstance(player, PPO)
    if envs is None:
        envs = 8 if on_policy else 1
    if frequency is None:
        check_whole(1, envs=envs)
        least = 2048 if on_policy else player.gradient_steps
        frequency = -(-least // envs) * envs
    if random_steps is None:
        random_steps = 0 if on_policy else min(1000, steps // 10)
    if buffer_size is None and on_policy:
        buffer_size = frequency  # a turn: it looks at nothing older
    check_whole(1, frequency=frequency)
    turns = -(-steps // frequency)
    if round_steps is None:
        round_steps = max(1, turns // ROUNDS) * frequency
    check_whole(1, round_steps=round_steps)
    a_round = -(-round_steps // frequency)
    return TaskReward(
        player=player,
        rounds=-(-turns // a_round),
        round_steps=a_round * frequency,
        frequency=frequency,
        envs=envs,
        batch_size=batch_size,
        random_steps=random_steps,
        buffer_size=buffer_size,
        truncation_is_terminal=truncation_is_terminal,
        staleness=staleness,
    )


def _no_demonstrations(spec: Spec, runs: int) -> Dataset:
    """A stand-in of a single step, none of it real."""
    obs, count, flag = jnp.zeros((1, *spec.obs_shape)), jnp.zeros(1, jnp.int32), jnp.zeros(1, bool)
    act = jnp.zeros((1, *spec.action.shape), jnp.float32 if isinstance(spec.action, Continuous) else jnp.int32)
    return Dataset(Transition(count, obs, act, obs, flag, flag, flag, count), jnp.zeros(runs, jnp.int32))
