"""Record evaluation episodes during training: where they fail, and what the critic, reward and payoff say there.

At regular numbers of environment steps the current policies are evaluated. Let ρ be the expert's mean reward per step.
An episode keeps pace at step t while the mean reward of its next 50 steps is at least ρ / 2. An episode fails if its
return is below half of the expert's; it fails at the start of its longest stretch that does not keep pace. Per episode:

    failed_at                    the step of failure; empty if the episode succeeds
    critic_value                 mean of the smaller critic at the policy's own actions, over the 50 steps from the
                                 failure on, or over the whole of a successful episode
    reward                       mean of −f over the same steps
    critic_value_demonstrated, reward_demonstrated
                                 the same at the demonstrated states
    payoff                       payoff of this episode's steps alone against the demonstrations (`matching`)

With an indicator kernel, −f is 0 on all steps outside the replay buffer, so only the critic can rate new states.

    DIRECTORY/checkpoint.npz             training, as `imitate` saves it
    DIRECTORY/evaluation-STEPS.npz       training states whose policies have not been evaluated yet
    DIRECTORY/episodes.csv               the recorded episodes
    DIRECTORY/records.json               the cells' records, written at the end
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import count_steps
from understudy.algorithms.reward.payoff import distance
from understudy.collect.recorder import Episodes
from understudy.collect.rollout_pool import RolloutPool, rollout_pool
from understudy.collect.rollouts import rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import SettingError
from understudy.core.progress import Progress
from understudy.core.reader import Expected, FileReader
from understudy.core.storage import atomic_file, write_json
from understudy.core.types import State, Transition
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.paper.episodes import FIELDS, WINDOW, Episode, failure_step, format_episode, read_episodes
from understudy.policies import Policy
from understudy.policies.gaussian import Squashed
from understudy.rl.sac import SACState
from understudy.rl.sac_losses import values
from understudy.studies.evaluator import rollout_seed
from understudy.studies.groups import Group
from understudy.studies.points import EvalPoint, due_evaluation, final_point
from understudy.studies.training import holdout_fraction, make_record
from understudy.studies.work import RECORDS
from understudy.train.checkpoints import Checkpoint
from understudy.train.imitate import imitate
from understudy.train.results import Result
from understudy.train.tables import write_csv

DEMONSTRATED_STEPS = 1024
"""Demonstrated steps at which critic values and rewards are averaged."""
EPISODES_FILE = "episodes.csv"
NOT_REPLAYED = 2**30
"""The round number of steps that are not in the replay buffer."""


def train_and_record(
    group: Group,
    demonstrations: Demonstrations,
    env: Environment | GymnasiumEnvironment,
    directory: Path,
    workers: int,
    progress: Progress,
) -> tuple[list[dict[str, Any]], list[Episode]]:
    """Train a group's cells; return their records, as a study stores them, and the recorded evaluation episodes.

    Progress is saved in a directory. Calling it again resumes, and returns at once after the end.
    """
    expert, like = check_group(group, demonstrations, env)
    records_path, checkpoint = directory / RECORDS, directory / "checkpoint.npz"
    if records_path.exists():
        file = FileReader(records_path, "the records of a group", "remove it, and run the command again")
        return file.json([dict]), read_episodes(directory / EPISODES_FILE)
    with _EpisodeRecorder(group, demonstrations, env, directory, workers, expert, like) as recorder:
        result = imitate(
            group.algorithm,
            demonstrations,
            env,
            seeds=[cell.seed for cell in group.cells],
            episodes=group.cells[0].trajectories,
            holdout=holdout_fraction(group.cells[0].config["protocol"]),
            progress=progress,
            checkpoint=checkpoint,
            visit=recorder.visit,
            workers=min(len(group.cells), workers),
        )
        if result.interrupted:
            raise KeyboardInterrupt("progress is saved: rerun the command to resume")
        returns = recorder.returns(result)
    cells = enumerate(group.cells)
    records = [make_record(group, cell, index, result, returns, len(group.cells)) for index, cell in cells]
    write_json(records_path, records)
    Checkpoint.discard(checkpoint)
    return records, recorder.episodes


def check_group(
    group: Group, demonstrations: Demonstrations, env: Environment | GymnasiumEnvironment
) -> tuple[float, RewardState]:
    """The expert's return and the shapes of a run's state. Raises if failures or critic values are undefined."""
    expert, algorithm, label = demonstrations.expert_return, group.algorithm, group.entry.label
    hint = "name adril, sqil or gail:sac, on a task with continuous actions"
    if not isinstance(algorithm, RewardMatching):
        raise SettingError(f"learner '{label}' does not match reward moments by RL: {hint}")
    if len({cell.trajectories for cell in group.cells}) > 1:
        raise SettingError(f"learner '{label}' has several numbers of trajectories: name it once with each, as in @20")
    if not any(due_evaluation(group, rounds + 1) for rounds in range(algorithm.rounds)):
        raise SettingError(f"learner '{label}' ends before its first evaluation: choose a smaller eval_every")
    if expert is None:
        raise SettingError("the demonstrations do not have the expert's return, which defines failures: record it")
    if expert.mean <= 0:
        raise SettingError(f"the expert's return is {expert.mean:.1f}: failures are defined for positive returns only")
    checked = demonstrations.for_task(env.spec, env.name)
    data, _ = checked.split([group.cells[0].trajectories], 0.0)
    like: RewardState = jax.eval_shape(lambda key: algorithm.init(key, checked.spec, data.of(0)), jax.random.key(0))
    if not isinstance(like.player, SACState):
        raise SettingError(f"learner '{label}' does not train by SAC, whose critics are recorded: {hint}")
    return expert.mean, like


class _EpisodeRecorder:
    """Evaluates policies while training goes on, and records their episodes."""

    def __init__(
        self,
        group: Group,
        demonstrations: Demonstrations,
        env: Environment | GymnasiumEnvironment,
        directory: Path,
        workers: int,
        expert: float,
        like: RewardState,
    ):
        self.group, self.env, self.expert = group, env, expert
        self.directory, self.structure = directory, jax.tree.structure(like)
        self.names = [str(i) for i in range(len(jax.tree.leaves(like)))]
        self.episodes = read_episodes(directory / EPISODES_FILE)
        self._evaluated = {episode.steps for episode in self.episodes}
        self._pending: list[tuple[int, list[RewardState], list[Future[Episodes]]]] = []
        self._pool: RolloutPool | None = None
        self._workers = workers
        steps = demonstrations.first(group.cells[0].trajectories).transitions()
        horizon = jnp.asarray(env.spec.horizon)
        self.expert_absorbing = count_steps(steps, jnp.ones(steps.t.shape, bool), horizon).absorbing_share
        subset = np.unique(np.linspace(0, len(steps.t) - 1, min(DEMONSTRATED_STEPS, len(steps.t))).astype(int))
        self.demonstrated = jax.tree.map(lambda x: jnp.asarray(x[subset]), steps)

    def __enter__(self) -> Self:
        self._pool = rollout_pool(self.env, self._workers, self._workers, STEP_TIMEOUT)
        for path in sorted(self.directory.glob("evaluation-*.npz")):
            steps = int(path.stem.rpartition("-")[2])
            if steps in self._evaluated:  # it was recorded, and the process was killed before it removed the file
                path.unlink()
                continue
            file = FileReader(path, "the policies of an evaluation", "remove it, and run the command again")
            arrays = file.npz(dict.fromkeys(self.names, Expected()).get, self.names)
            self._submit(steps, jax.tree.unflatten(self.structure, [arrays[name] for name in self.names]))
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def visit(self, rounds: int, states: Callable[[], State]) -> None:
        """The `visit` callback of `imitate`."""
        due = due_evaluation(self.group, rounds)
        if due is None or due[1] in self._evaluated:
            return
        self._record_pending()
        _, steps = due
        batch = jax.device_get(states())
        # The checkpoint may be newer than these policies when training is killed, so save their states first.
        with atomic_file(self._path(steps)) as temporary, temporary.open("wb") as file:
            np.savez(file, **{str(i): leaf for i, leaf in enumerate(jax.tree.leaves(batch))})
        self._submit(steps, batch)

    def _path(self, steps: int) -> Path:
        return self.directory / f"evaluation-{steps}.npz"

    def _submit(self, steps: int, batch: RewardState) -> None:
        """Start the evaluation of the policies of all runs."""
        states = [jax.tree.map(lambda leaf, i=index: leaf[i], batch) for index in range(len(self.group.cells))]
        futures = [
            self._rollout(self.group.algorithm.policy(state), cell.seed, steps)
            for state, cell in zip(states, self.group.cells, strict=True)
        ]
        self._evaluated.add(steps)
        self._pending.append((steps, states, futures))

    def returns(self, result: Result) -> dict[EvalPoint, np.ndarray]:
        """The returns of all evaluated policies, including the final ones."""
        final = {}
        for cell, run, actor in zip(self.group.cells, result.runs, result.policies, strict=True):
            point = final_point(self.group, cell, run.status)
            if point is not None:
                final[point] = self._rollout(actor.policy, cell.seed, point.x)
        self._record_pending()
        keys = {cell.seed: cell.key for cell in self.group.cells}
        returns: dict[EvalPoint, list[float]] = {}
        for episode in self.episodes:
            point = EvalPoint("env_steps", episode.steps, keys[episode.seed])
            returns.setdefault(point, []).append(episode.episode_return)
        final_returns = {point: future.result().returns for point, future in final.items()}
        return {point: np.array(values) for point, values in returns.items()} | final_returns

    def _rollout(self, policy: Policy, seed: int, steps: int) -> Future[Episodes]:
        episodes = self.group.cells[0].config["protocol"]["eval_episodes"]
        job = (jax.device_get(policy), episodes, rollout_seed(seed, steps))
        if self._pool is not None:
            return self._pool.rollout(*job)
        done: Future[Episodes] = Future()
        done.set_result(rollout(self.env, *job))
        return done

    def _record_pending(self) -> None:
        for steps, states, futures in self._pending:
            for cell, state, future in zip(self.group.cells, states, futures, strict=True):
                self.episodes += diagnose(
                    *(state, future.result(), self.demonstrated, (cell.seed, steps, steps)),
                    *(self.expert, self.env.spec.horizon, self.expert_absorbing),
                )
            write_csv(self.directory / EPISODES_FILE, FIELDS, map(format_episode, self.episodes))
            self._path(steps).unlink(missing_ok=True)
        self._pending.clear()


def diagnose(
    state: RewardState,
    evaluated: Episodes,
    demonstrated: Transition,
    index: tuple[int, int, int],
    expert: float,
    horizon: int,
    expert_absorbing: Any,
) -> list[Episode]:
    """The episodes of one policy with the values of its critic, f and kernel. `index`: seed, x, environment steps."""
    value_demonstrated, reward_demonstrated, theirs = _evaluate_steps(state, demonstrated)
    episodes = []
    for number, length in enumerate(evaluated.lengths):
        steps = jax.tree.map(lambda a, i=number: jnp.asarray(a[i]), evaluated.steps)
        failed = failure_step(evaluated.rewards[number, :length], expert, horizon)
        value, reward, ours = _evaluate_steps(state, steps._replace(round=jnp.full(steps.t.shape, NOT_REPLAYED)))
        where = (
            slice(0, int(length)) if failed is None else slice(min(failed, length - 1), min(failed + WINDOW, length))
        )
        absorbing = count_steps(steps, jnp.arange(len(steps.t)) < length, jnp.asarray(horizon)).absorbing_share
        episodes.append(
            Episode(
                *index,
                *(number, float(evaluated.returns[number]), failed),
                *(float(value[where].mean()), float(value_demonstrated.mean())),
                *(float(reward[where].mean()), float(reward_demonstrated.mean())),
                float(distance(ours[:length].mean(0), theirs.mean(0), absorbing, expert_absorbing)),
            )
        )
    return episodes


@jax.jit
def _evaluate_steps(state: RewardState, steps: Transition) -> tuple[Any, Any, Any]:
    """The smaller critic at the policy's own actions, −f, and the kernel's features of (s, a)."""
    obs = state.normalization.encode_obs(steps.obs)
    assert isinstance(state.mean, Squashed)  # SAC's policy, see `check_group`
    act, _ = state.mean.draw_from(obs, jnp.zeros_like(state.normalization.encode_act(steps.act)))
    value = values(state.player.critics, obs, act).min(0)
    return value, state.moments.reward(steps), state.kernel.features(state.kernel.points(steps))
