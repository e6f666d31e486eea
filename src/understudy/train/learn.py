"""Reinforcement learning: train a player of `rl` on the task reward, for experts and for comparison.

`us.learn(us.rl.SAC(), env, steps=...)` runs the same training loop as imitation (`train.loop`). In imitation the reward
of a step is −f; here it is the environment's:

    1. for each update: collect some steps, D ← D ∪ D'
    2.     π improves on D (SAC, SoftQ) or on D' alone (PPO), with the environment's rewards

Actions are mapped to [-1, 1]. Observations are not normalized: there are no demonstrations to compute statistics from,
and statistics that change during training would change the policy. A truncated episode bootstraps from the value of its
last state, unless `truncation_is_terminal` is set.
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

from understudy.collect.choose import collector_for
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import SettingError, SpecError, check_kind, check_not_negative, check_whole
from understudy.core.progress import ProgressOption, check_progress
from understudy.core.types import Continuous, Dataset, Info, MultiDiscrete, RoundData, Spec, Transition
from understudy.envs import Environment, GymnasiumEnvironment, make, named_env, public_name
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.game import Algorithm, Card
from understudy.game.schedule import Schedule
from understudy.policies import Normalized, Policy
from understudy.policies.actor import Actor
from understudy.policies.normalization import Normalization
from understudy.rl.base import Batch, Experience, PlayerState, RLPlayer, make_batch, update_when_ready
from understudy.rl.ppo import PPO
from understudy.train import loop
from understudy.train.checkpoints import Checkpoint
from understudy.train.imitate import as_seeds, number_of
from understudy.train.results import hyperparameters
from understudy.train.sizes import check_size
from understudy.train.tables import provenance

ROUNDS = 50
"""Rounds of a training call, roughly: each is a row of the metrics, and can be resumed from."""


class TaskRewardState(NamedTuple):
    player: PlayerState
    normalization: Normalization


class TaskReward(Algorithm):
    """Reinforcement learning as an `Algorithm`, so that the training loop can run it. It uses no demonstrations."""

    card: ClassVar[Card] = Card(
        name="rl",
        title="Reinforcement learning",
        moments="reward",
        solver="-",
        needs=("environment",),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="",
    )

    player: RLPlayer
    rounds: int = eqx.field(static=True)
    round_steps: int = eqx.field(static=True)
    """Environment steps of a run per round, a multiple of `frequency`."""
    frequency: int = eqx.field(static=True)
    """Environment steps of a run between updates."""
    envs: int = eqx.field(static=True)
    """Parallel environments of a run."""
    batch_size: int = eqx.field(static=True)
    """Minibatch size."""
    random_steps: int = eqx.field(static=True)
    """Random exploration steps at the start; updates that follow only random steps are skipped."""
    buffer_size: int | None = eqx.field(static=True)
    """Replay buffer size of a run, in steps; None: all steps."""
    truncation_is_terminal: bool = eqx.field(static=True)
    """Treat truncation as termination: do not bootstrap from a truncated episode's last state."""
    staleness: int = eqx.field(static=True)
    """Updates by which the acting policy lags the learner, in a Gymnasium environment."""

    def __check_init__(self) -> None:
        check_kind(RLPlayer, player=self.player)
        check_whole(1, batch_size=self.batch_size)
        if isinstance(self.player, PPO) and (self.random_steps or self.staleness):
            given = f"random_steps is {self.random_steps} and staleness is {self.staleness}"
            raise SettingError(f"{given}: PPO is on-policy, so both must be 0")
        _ = self.schedule  # checks the other settings

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
        return TaskRewardState(self.player.init(key, spec), Normalization.fit(spec, demonstrations, "none"))

    def update(self, state: TaskRewardState, data: RoundData, key: Key[Array, ""]) -> tuple[TaskRewardState, Info]:
        replay, new_steps, schedule = data.replay, data.new_steps, self.schedule
        assert replay is not None
        assert new_steps is not None

        def batch(steps: Transition, reward: Float[Array, "..."]) -> Batch:
            return make_batch(state.normalization.encode(steps), reward, self.truncation_is_terminal)

        def sample(k: Key[Array, ""]) -> Batch:
            rows = jax.random.randint(k, (self.batch_size,), 0, replay.size)
            return batch(jax.tree.map(lambda x: x[rows], replay.steps), replay.reward[rows])

        update, updates = data.round * schedule.updates + data.update, self.rounds * schedule.updates
        progress = (jnp.asarray(update, jnp.float32) + 1) / updates
        experience = Experience(sample, batch(new_steps, jnp.asarray(data.task_reward)), new_steps.last)
        ready = schedule.random_steps_left(data.round, data.update) < schedule.steps_per_env
        player, metrics = update_when_ready(self.player, state.player, experience, progress, ready, key)  # line 2
        return state._replace(player=player), Info(metrics)

    def policy(self, state: TaskRewardState) -> Policy:
        return Normalized(self.player.policy(state.player), state.normalization)


@dataclass(frozen=True)
class Learned:
    """The result of `learn`: a policy for each seed, the metrics, and the configuration."""

    config: dict[str, Any]
    seeds: list[int]
    policies: list[Actor]
    """The policies after the last round: neither rounds nor seeds are selected."""
    earlier: list[dict[int, Actor]]
    """For each seed: round → the policy after it, of the last rounds but one, as many as `keep` asks for."""
    metrics: dict[str, np.ndarray]
    """name → (seeds, rounds). `return` is the mean return of the training episodes, with exploration."""
    statuses: list[str]
    """How each seed ended: finished, diverged or interrupted, and in which round."""
    seconds: float
    interrupted: bool
    env: Environment | GymnasiumEnvironment

    def evaluate(
        self,
        env: Any = None,
        episodes: int = 10,
        seed: int = 0,
        workers: int | None = None,
        progress: ProgressOption = True,
        step_timeout: float = STEP_TIMEOUT,
    ) -> Evaluation:
        """Evaluate all policies deterministically; `env` defaults to the training environment."""
        env = self.env if env is None else env
        return evaluate(self.policies, env, episodes, seed, None, workers, progress, step_timeout)

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
    progress: ProgressOption = True,
    checkpoint: str | os.PathLike[str] | None = None,
    visit: loop.Visit | None = None,
    workers: int | None = None,
    step_timeout: float = STEP_TIMEOUT,
    keep: int = 0,
) -> Learned:
    """Train a player, such as `rl.SAC()`, on the task reward.

    - `steps`: environment steps per run, rounded up to whole rounds of `round_steps` (default: a fiftieth of them).
    - `seeds`: the number of seeds, or a list of them; all are trained in one compiled program.
    - `envs`: parallel environments per run (default: 8 for PPO, else 1).
    - `frequency`: steps of a run between updates, over all its environments (default: 2,048 for PPO, else one per
      gradient step).
    - `batch_size`, `buffer_size`: minibatch size and replay buffer size of SAC and SoftQ (default: all steps). PPO uses
      neither; it keeps the steps of one update.
    - `random_steps`: random exploration steps at the start (default: 1,000, or a tenth of `steps` if that is less; 0
      for PPO).
    - `truncation_is_terminal`: treat truncation as termination.
    - `keep`: also return the policies after this many rounds before the last one.
    - `staleness`, `progress`, `checkpoint`, `visit`, `workers`, `step_timeout`: as in `imitate`. With a checkpoint, the
      same call resumes after an interruption or a crash.
    """
    given, env = env, make(env)
    if isinstance(env.spec.action, MultiDiscrete):
        raise SpecError(f"{env.name} has multi-discrete actions, {env.spec.action.nvec}: no RL player takes them")
    if len(env.spec.obs_shape) != 1:
        raise SpecError(f"{env.name} has observations of shape {env.spec.obs_shape}: a flat vector is needed")
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
    check_progress("rounds done, all rounds and a dict of metrics", progress)
    check_size(algorithm, env.spec, _no_demonstrations(env.spec, 1), number_of(seeds))
    seed_list, saved = as_seeds(seeds), None
    if checkpoint is not None:
        named = named_env(given, env)
        made = json.dumps(None if named is None else named.to_json())
        task = (env.name, made, env.spec, env if isinstance(env, Environment) else None)
        settings = json.dumps(hyperparameters(algorithm))
        saved = Checkpoint(checkpoint, {"settings": settings, "environment": task, "seeds": seed_list})
    keys = jax.vmap(jax.random.key)(np.array(seed_list, np.uint32))
    check_not_negative(step_timeout=step_timeout)
    check_whole(0, keep=keep)
    collector = collector_for(algorithm, env, None, seed_list, workers, step_timeout)
    empty = _no_demonstrations(env.spec, len(seed_list))
    with display.reporting(f"{type(player).__name__} in {env.name}", progress) as report:
        trained = loop.train(
            algorithm, env.spec, empty, keys, collector, report, saved, visit, parts=algorithm.rounds if keep else 0
        )
    return _learned(algorithm, env, seed_list, trained, keep)


def _learned(
    algorithm: TaskReward, env: Environment | GymnasiumEnvironment, seeds: list[int], trained: loop.Training, keep: int
) -> Learned:
    """The result of a training call: its policies and configuration."""
    states, kept = jax.device_get((trained.states, trained.kept))
    about = {"algorithm": type(algorithm.player).__name__, "env": public_name(env)}
    policies, earlier = [], []
    for i, seed in enumerate(seeds):
        one = {**about, "seed": seed}
        policies.append(Actor(algorithm.policy(jax.tree.map(lambda x, i=i: x[i], states)), env.spec, one))
        rounds = [] if kept is None else [r for r in kept.rounds[i] if r][:-1][-keep:]  # the last one is in `policies`
        earlier.append(
            {
                int(r): Actor(
                    jax.tree.map(lambda x, i=i, r=r: x[i, r - 1], kept.policies), env.spec, {**one, "round": int(r)}
                )
                for r in rounds
            }
        )
    settings = hyperparameters(algorithm)
    config = {
        "player": settings.pop("player"),
        "settings": settings,
        "seeds": seeds,
        "env": public_name(env),
        "spec": asdict(env.spec),
        "seconds": round(trained.seconds, 3),
        **provenance(),
    }
    return Learned(
        config, seeds, policies, earlier, trained.metrics, trained.statuses, trained.seconds, trained.interrupted, env
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
    """The algorithm, with the player's defaults for settings that are None."""
    check_kind(RLPlayer, player=player)
    check_whole(1, steps=steps)
    on_policy = isinstance(player, PPO)
    if envs is None:
        envs = 8 if on_policy else 1
    if frequency is None:
        check_whole(1, envs=envs)
        wanted = 2048 if on_policy else player.gradient_steps
        frequency = -(-wanted // envs) * envs
    if random_steps is None:
        random_steps = 0 if on_policy else min(1000, steps // 10)
    if buffer_size is None and on_policy:
        buffer_size = frequency  # PPO learns from the steps of one update
    check_whole(1, frequency=frequency)
    updates = -(-steps // frequency)
    if round_steps is None:
        round_steps = max(1, updates // ROUNDS) * frequency
    check_whole(1, round_steps=round_steps)
    updates_per_round = -(-round_steps // frequency)
    return TaskReward(
        player=player,
        rounds=-(-updates // updates_per_round),
        round_steps=updates_per_round * frequency,
        frequency=frequency,
        envs=envs,
        batch_size=batch_size,
        random_steps=random_steps,
        buffer_size=buffer_size,
        truncation_is_terminal=truncation_is_terminal,
        staleness=staleness,
    )


def _no_demonstrations(spec: Spec, runs: int) -> Dataset:
    """An empty dataset: one placeholder step, and a size of 0 for each run."""
    obs, count, flag = jnp.zeros((1, *spec.obs_shape)), jnp.zeros(1, jnp.int32), jnp.zeros(1, bool)
    act = jnp.zeros((1, *spec.action.shape), jnp.float32 if isinstance(spec.action, Continuous) else jnp.int32)
    return Dataset(Transition(count, obs, act, obs, flag, flag, flag, count), jnp.zeros(runs, jnp.int32))
