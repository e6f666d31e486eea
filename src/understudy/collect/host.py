"""Collecting whole episodes on the host: any environment, any expert."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np

from understudy.collect.base import NO_LIMIT, Collected, Collector, Request
from understudy.collect.episodes import GivenEpisodes, tried_actions, uniforms_needed
from understudy.collect.gates import HostGate
from understudy.collect.recorder import Episodes
from understudy.collect.rollout_pool import RolloutPool, rollout_pool
from understudy.collect.rollouts import MakeVector, rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import SettingError
from understudy.core.types import ActionValues, Continuous, Dataset, State, Transition
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.experts.expert import Expert
from understudy.experts.respondent import AskedRound, Respondent
from understudy.game import Algorithm, asking
from understudy.game.asking import Questions


class HostCollector(Collector):
    """Collects a round's episodes and the expert's answers before the compiled round.

    A Gymnasium environment steps in `workers` processes, by default in as many as there are runs or cores.
    """

    waits_for_round = True

    def __init__(
        self,
        env: Environment | GymnasiumEnvironment,
        expert: Expert | None,
        seeds: list[int],
        workers: int | None = None,
        step_timeout: float = STEP_TIMEOUT,
    ):
        if expert is not None and expert.respondent is not None and len(seeds) > 1:
            raise SettingError(f"there are {len(seeds)} runs, and {expert.name} answers for one: pass a single seed")
        super().__init__(GivenEpisodes(), NO_LIMIT if expert is None or expert.limit is None else expert.limit)
        self.env, self.expert, self.seeds, self.workers, self.step_timeout = env, expert, seeds, workers, step_timeout
        self._pool: RolloutPool | None = None

    @contextmanager
    def opened(self, first_round: int) -> Iterator[None]:
        """Start the worker processes. Without this, environments step in this process."""
        self._pool = rollout_pool(self.env, len(self.seeds), self.workers, self.step_timeout)
        try:
            yield
        finally:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def gather(self, request: Request) -> Collected:
        """The data of all runs, stacked. A run that has stopped collects nothing."""
        algorithm, index = request.algorithm, request.round
        capacity = algorithm.episodes_per_round * self.env.spec.horizon
        policies = request.policies() if index else None
        choosing = self.expert is not None and asking.chooses(algorithm)
        needs_state = algorithm.gated or choosing or algorithm.has_fixed_starts
        states = request.states() if index and needs_state else None
        queries, active = request.queries(), request.active()
        respondent = None if self.expert is None else self.expert.respondent
        if respondent is not None and policies is not None and active[0]:
            return jax.tree.map(lambda x: np.asarray(x)[None], self._asked(request, respondent, policies, states))
        sent: dict[int, Future[Episodes]] = {}
        if self._pool is not None and policies is not None and not algorithm.gated:
            for run in np.flatnonzero(active).tolist():  # the workers' episodes, while the expert answers
                policy, seed = _row(policies, run), self.seeds[run]
                job = (policy, algorithm.episodes_per_round, _streams(seed, index)[0], False, seed)
                sent[run] = self._pool.rollout(*job, _starts(algorithm, states, run))
        runs = []
        for run, seed in enumerate(self.seeds):
            if policies is None or not active[run]:
                runs.append(self._nothing(algorithm, capacity))
                continue
            left = self.limit - int(queries[run])
            state = None if states is None else _row(states, run)
            gate_state = state if algorithm.gated else None
            starts = _starts(algorithm, states, run)
            play = partial(self._episodes, algorithm, _row(policies, run), gate_state, seed, index, left, starts)
            if run in sent:
                episodes, random = sent[run].result(), np.random.default_rng(_streams(seed, index)[1])
            elif self._pool is not None:
                episodes, random = self._pool.stepwise(play, seed)
            else:
                episodes, random = play(None, 0)
            chosen = _questions(algorithm, state, episodes, capacity, seed, index) if choosing else None
            runs.append(self._answered(algorithm, episodes, capacity, index, left, random, chosen))
        return jax.tree.map(lambda *parts: np.stack(parts), *runs)

    def _asked(self, request: Request, respondent: Respondent, policies: Any, states: State | None) -> Collected:
        """The data of the only run, with the answers of an expert that declines some queries."""
        algorithm, index, seed = request.algorithm, request.round, self.seeds[0]
        capacity, left = algorithm.episodes_per_round * self.env.spec.horizon, self.limit - int(request.queries()[0])
        asked = respondent.recall(index)
        if asked is None:
            state = None if states is None else _row(states, 0)
            gate_state = state if algorithm.gated else None
            starts = _starts(algorithm, states, 0)
            play = partial(self._episodes, algorithm, _row(policies, 0), gate_state, seed, index, left, starts)
            episodes, _ = play(None, 0) if self._pool is None else self._pool.stepwise(play, seed)
            chosen = None
            if state is not None and asking.chooses(algorithm):
                chosen = _questions(algorithm, state, episodes, capacity, seed, index)
            asked = _asked_round(episodes, index, _streams(seed, index)[0], chosen)
        if len(asked.steps.t) > capacity:
            raise SettingError(
                f"round {index} has {len(asked.steps.t)} steps, and {algorithm.episodes_per_round} episodes have "
                f"{capacity}: set episodes_per_round as it was"
            )
        assert self.expert is not None
        answers = self.expert.query_some(asked, left, self.env.spec)
        count, rest = len(answers.rows), np.setdiff1d(np.arange(len(asked.steps.t)), answers.rows)
        order = np.concatenate([answers.rows, rest])
        padded = Transition(*(_padded(np.asarray(column)[order], capacity) for column in asked.steps))
        padded = padded._replace(round=np.full(capacity, index, np.int32))
        return Collected(
            Dataset(padded, np.int32(len(order))),
            success=np.full(capacity, np.nan, np.float32),
            expert_actions=_padded(answers.actions, capacity),
            answered=np.arange(capacity) < count,
            mean_return=np.float32(asked.mean_return),
            answers=np.int32(count),
        )

    def _episodes(
        self,
        algorithm: Algorithm,
        policy: Any,
        state: State | None,
        seed: int,
        index: int,
        left: int,
        starts: np.ndarray | None,
        vector: MakeVector | None,
        attempt: int,
    ) -> tuple[Episodes, np.random.Generator]:
        """The episodes of a run, and the random numbers for the expert's answers."""
        first, answers, gating = _streams(seed, index, attempt)
        random, gate = np.random.default_rng(answers), None
        if state is not None:
            gate = self._gate(algorithm, state, index, left, random, int(gating.generate_state(1)[0]))
        if vector is None and isinstance(self.env, GymnasiumEnvironment):
            vector = partial(self.env.vector, run=seed)
        count = algorithm.episodes_per_round
        return rollout(self.env, policy, count, first, False, gate, vector, starts), random

    def _gate(
        self, algorithm: Algorithm, state: State, index: int, left: int, random: np.random.Generator, seed: int
    ) -> HostGate | None:
        if self.expert is None:
            return None
        expert, count = self.expert, algorithm.episodes_per_round
        if expert.respondent is not None:  # it answers afterwards: the learner acts everywhere
            return HostGate(algorithm, state, index, count, 0, _nobody, jax.random.key(seed))

        def query(obs: np.ndarray, t: np.ndarray) -> np.ndarray:
            return expert.query(obs, self.env.spec, random, t)

        return HostGate(algorithm, state, index, count, left // count, query, jax.random.key(seed))

    def _answered(
        self,
        algorithm: Algorithm,
        episodes: Episodes,
        capacity: int,
        index: int,
        left: int,
        random: np.random.Generator,
        questions: Questions | None = None,
    ) -> Collected:
        """The episodes of a run, with at most `left` answers of the expert. Answered steps come first."""
        steps = Transition(*(np.asarray(episodes.flat(column)) for column in episodes.steps))
        by_expert, chosen = np.zeros(len(steps.t), bool), len(steps.t)
        success = np.full(len(steps.t), np.nan) if episodes.reported is None else episodes.flat(episodes.reported)
        if episodes.decisions is not None:  # in the order of `episodes.JaxEpisodes`
            query, rank, by_expert = (episodes.flat(np.asarray(column)) for column in episodes.decisions)
            order = np.argsort(np.where(query, rank, self.env.spec.horizon), kind="stable")
            steps, by_expert = Transition(*(column[order] for column in steps)), by_expert[order]
            success = success[order]
            chosen = int(query.sum())
        if questions is not None:
            steps, chosen = Transition(*(column[questions.order] for column in steps)), int(questions.count)
            success = success[questions.order]
        padded = Transition(*(_padded(column, capacity) for column in steps))
        padded = padded._replace(round=np.full(capacity, index, np.int32))
        mean_return = np.float32(episodes.returns.mean())
        data = Dataset(padded, np.int32(len(steps.t)))
        collected = Collected(data, success=_padded(success, capacity), mean_return=mean_return)
        if self.expert is None:
            return collected
        count = min(chosen, left)
        answers = np.int32(count)
        collected = collected._replace(answered=np.arange(capacity) < count, answers=answers)
        here, by_expert = Transition(*(column[:count] for column in steps)), by_expert[:count]
        actions = np.array(here.act)
        if not by_expert.all():  # if the expert acted, its action is its answer
            actions[~by_expert] = self.expert.query(here.obs[~by_expert], self.env.spec, random, here.t[~by_expert])
        if not algorithm.card.values:
            return collected._replace(expert_actions=_padded(actions, capacity))
        space = self.env.spec.action
        uniform = random.random((count, uniforms_needed(space)))
        tried = tried_actions(space, algorithm.exploring, here.act, actions, uniform)
        values = self.expert.query_values(here.obs, tried)
        return collected._replace(action_values=ActionValues(_padded(tried, capacity), _padded(values, capacity)))

    def _nothing(self, algorithm: Algorithm, capacity: int) -> Collected:
        spec = self.env.spec
        obs = np.zeros((capacity, *spec.obs_shape), np.float32)
        kind = np.float32 if isinstance(spec.action, Continuous) else np.int32
        act = np.zeros((capacity, *spec.action.shape), kind)
        flag, count = np.zeros(capacity, bool), np.zeros(capacity, np.int32)
        steps = Transition(count, obs, act, obs, flag, flag, flag, count)
        unknown = np.full(capacity, np.nan, np.float32)
        collected = Collected(Dataset(steps, np.int32(0)), success=unknown, mean_return=np.float32("nan"))
        if self.expert is None:
            return collected
        collected = collected._replace(answered=flag, answers=np.int32(0))
        if algorithm.card.values:
            return collected._replace(action_values=ActionValues(act, np.zeros(capacity, np.float32)))
        return collected._replace(expert_actions=act)


def _starts(algorithm: Algorithm, states: State | None, run: int) -> np.ndarray | None:
    """The seeds of the states in which a run's episodes start; None: new ones."""
    return np.asarray(algorithm.start_seeds(_row(states, run))) if algorithm.has_fixed_starts else None


def _questions(
    algorithm: Algorithm, state: State, episodes: Episodes, capacity: int, seed: int, index: int
) -> Questions:
    """The steps at which to query the expert. The arrays are padded, so that the program is compiled once."""
    steps = Transition(*(_padded(episodes.flat(np.asarray(column)), capacity) for column in episodes.steps))
    size = int(episodes.lengths.sum())
    stream = _streams(seed, index)[2]  # the gate's, and there is none
    key = jax.random.key(int(stream.generate_state(1)[0]))
    order, count = jax.device_get(_choose(algorithm, state, steps, np.arange(capacity) < size, key))
    return Questions(order[:size], count)


_choose = jax.jit(asking.questions)


def _asked_round(episodes: Episodes, index: int, seed: int, questions: Questions | None = None) -> AskedRound:
    """A round's episodes, end to end, with the rows that the algorithm chose in the order in which they are asked."""
    steps = Transition(*(np.asarray(episodes.flat(column)) for column in episodes.steps))
    candidates = np.arange(len(steps.t)) if questions is None else np.asarray(questions.order[: int(questions.count)])
    if episodes.decisions is not None:
        query, rank = (episodes.flat(np.asarray(column)) for column in episodes.decisions[:2])
        order = np.argsort(rank, kind="stable")
        candidates = order[query[order]]
    rewards = episodes.flat(episodes.rewards)
    chosen = episodes.decisions is not None or questions is not None
    return AskedRound(index, steps, episodes.lengths, rewards, candidates, chosen, seed)


def _nobody(obs: np.ndarray, t: np.ndarray) -> np.ndarray:
    raise AssertionError("an expert without a budget acts nowhere")


def _row(batch: Any, run: Any) -> Any:
    return jax.tree.map(lambda x: x[run], batch)


def _streams(seed: int, index: int, attempt: int = 0) -> tuple[int, np.random.SeedSequence, np.random.SeedSequence]:
    """The seed of a round's episodes, and the entropy of the expert's answers and of the gate.

    An attempt after the first one, because a worker was lost, has its own.
    """
    entropy = [seed, index, attempt] if attempt else [seed, index]
    start, answers, gating = np.random.SeedSequence(entropy).spawn(3)
    return int(start.generate_state(1)[0]), answers, gating


def _padded(column: np.ndarray, capacity: int) -> np.ndarray:
    column = np.asarray(column)
    kind = np.int32 if column.dtype == np.int64 else np.float32 if column.dtype == np.float64 else column.dtype
    out = np.zeros((capacity, *column.shape[1:]), kind)
    out[: len(column)] = column
    return out
