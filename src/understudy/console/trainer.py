"""The training process: `imitate`, with a person as the expert.

It and the server share the console's directory. The process writes a round's questions and the policies; the server
writes what the person says. Messages between them are short: see `TrainingService.exchange`.

Training is a function of the directory: rounds that were asked before are recalled from their files, so a training that
starts again comes to the same policy, up to rounding, and asks no question twice.
"""

import os
import queue
import threading
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from understudy.console.choosing import choose_states
from understudy.console.episodes import training_data
from understudy.console.rounds import Said, read_round, write_round
from understudy.console.settings import Settings
from understudy.console.store import Store
from understudy.core.errors import DemonstrationError, UnderstudyError
from understudy.core.types import Continuous
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.stepping import Report, no_report, reason
from understudy.evaluation.returns import evaluate
from understudy.experts.expert import Expert
from understudy.experts.respondent import Answers, AskedRound, Respondent, Silent
from understudy.policies.actor import Actor
from understudy.train.imitate import imitate

EVALUATED = 10
"""Episodes that measure a policy's return."""
NICENESS = 5
"""The person's environment goes first if cores are short."""


@dataclass(frozen=True)
class Plan:
    """What to train."""

    env: Environment | GymnasiumEnvironment
    settings: Settings
    out: str
    rounds: int
    """Rounds that the algorithm can do."""
    pause: int
    """Earlier rounds are only repeated. After this one and each later one the process reports, and waits."""
    finish: bool = False
    """End after the round `pause`, and save the result."""


class TrainingService:
    """What the other process holds. Training runs in a thread; the main thread exchanges messages with the server."""

    def __init__(self, report: Report = no_report):
        os.nice(NICENESS)
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            if len(cores) > 1:  # one core is left to the person's environment
                os.sched_setaffinity(0, cores[1:])
        self._events: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._orders: queue.Queue[str] = queue.Queue()

    def begin(self, plan: Plan) -> None:
        threading.Thread(target=self._train, args=(plan,), daemon=True).start()

    def exchange(self, orders: list[str], seconds: float) -> list[tuple[Any, ...]]:
        """Take orders ("next", "answered", "finish"), and return what happened within some seconds.

        ("progress", round, metrics), ("asked", round), ("policy", number, round, episodes, returns, metrics),
        ("saved",) and ("failed", words)
        """
        for order in orders:
            self._orders.put(order)
        events = []
        try:
            events.append(self._events.get(timeout=seconds))
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return events

    def close(self) -> None:
        """The thread is a daemon: it ends with the process."""

    def _train(self, plan: Plan) -> None:
        try:
            _Training(plan, self._events.put, self._orders).run()
        except UnderstudyError as error:
            self._events.put(("failed", str(error)))
        except Exception as error:  # noqa: BLE001 (whatever fails is told to the person)
            traceback.print_exc()
            self._events.put(("failed", reason(error)))


class _Training:
    """One call of `imitate`."""

    def __init__(self, plan: Plan, tell: Any, orders: "queue.Queue[str]"):
        self.plan, self.tell, self.orders = plan, tell, orders
        self.store = Store.beside(Path(plan.out))
        self.metrics: dict[str, float] = {}
        self.count = 0
        """Episodes of the person that it learns from."""
        assert plan.settings.algorithm is not None
        self.algorithm = plan.settings.algorithm
        self.asks = plan.settings.asks
        if plan.rounds != self.algorithm.rounds:
            self.algorithm = replace(self.algorithm, rounds=plan.rounds)

    def run(self) -> None:
        settings, expert = self.plan.settings, None
        episodes = self.store.episodes()
        data = training_data(episodes.values(), settings.demonstrations)
        if data is None:
            raise DemonstrationError("there are no demonstrations: demonstrate an episode first")
        self.count = len(episodes)
        if self.asks:
            person = Person(self.store, settings, data.observations, self.tell, self.orders)
            expert = Expert(person, settings.budget, clip=isinstance(data.action_space, Continuous))
        elif self.algorithm.expert_gates:  # the person has taken over in "watch": those steps are in the data
            expert = Expert(Silent())
            fewest: dict[str, Any] = {"episodes_per_round": 1}  # nobody answers them
            self.algorithm = replace(self.algorithm, **fewest)
        result = imitate(
            self.algorithm,
            data,
            self.plan.env,
            expert,
            seeds=[settings.seed],
            progress=self._progress,
            visit=self._visit if self.asks else None,
            workers=0,
            step_timeout=settings.step_timeout,
        )
        if not self.asks:
            self._report(self.algorithm.rounds, result.policy)
        result.save(self.store.run, replace=True)
        self.tell(("saved",))

    def _progress(self, done: int, total: int, metrics: dict[str, float]) -> None:
        self.metrics = {name: float(value) for name, value in metrics.items()}
        self.tell(("progress", done, self.metrics))

    def _visit(self, number: int, states: Any) -> bool:
        """After a round: report it, and wait for the person."""
        if number < self.plan.pause:
            return False
        if self.plan.finish:
            return True
        state = jax.tree.map(lambda x: np.asarray(x[0]), jax.device_get(states()))
        about = {"algorithm": self.algorithm.card.name, "seed": self.plan.settings.seed, "env": self.plan.env.name}
        self._report(number, Actor(self.algorithm.policy(state), self.plan.env.spec, about))
        order = self.orders.get()
        return order == "finish"

    def _report(self, number: int, actor: Actor) -> None:
        evaluation = evaluate([actor], self.plan.env, EVALUATED, self.plan.settings.seed, workers=0, progress=False)
        returns = [float(x) for x in evaluation.returns[0]]
        policy = max((line["id"] for line in self.store.policies.read()), default=0) + 1
        actor.save(self.store.policy_file(policy))
        self.tell(("policy", policy, number, self.count, returns, self.metrics))


class Person(Respondent):
    """The person at the page. Questions and answers go through the directory."""

    def __init__(self, store: Store, settings: Settings, known: np.ndarray, tell: Any, orders: "queue.Queue[str]"):
        self._store, self._settings, self._tell, self._orders = store, settings, tell, orders
        self._known = [known]
        self.__name__ = "person"

    def recall(self, index: int) -> AskedRound | None:
        file = self._store.round_file(index + 1)
        return read_round(file)[0] if file.exists() else None

    def answer(self, asked: AskedRound, most: int) -> Answers:
        number = asked.round + 1
        file, space = self._store.round_file(number), asked.steps.act
        if not file.exists():
            known = np.concatenate(self._known)
            chosen = choose_states(asked, known, min(self._settings.questions, most), self._settings.choose)
            write_round(file, asked, chosen)
        lines = self._store.said(number)
        said = Said.of(lines.read(), np.asarray)
        if not said.finished and len(read_round(file)[1].rows):
            self._tell(("asked", number))
            while self._orders.get() != "answered":
                continue
            said = Said.of(lines.read(), np.asarray)
        rows = np.array(sorted(said.answers)[:most], int)
        actions = np.array([said.answers[int(row)] for row in rows], space.dtype).reshape(len(rows), *space.shape[1:])
        self._known.append(np.asarray(asked.steps.obs)[rows])
        return Answers(rows, actions)
