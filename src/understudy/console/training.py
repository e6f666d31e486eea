"""Training as the server sees it: a process that is started, asked and ended, and the policies that it has made."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from understudy.collect.worker import Worker
from understudy.console.clips import Clips
from understudy.console.episodes import Episodes
from understudy.console.protocol import Refused
from understudy.console.questions import Questions
from understudy.console.settings import Settings
from understudy.console.store import Store
from understudy.console.trainer import Plan, TrainingService
from understudy.core.errors import UnderstudyError
from understudy.core.statistics import Interval, Sample, imitation_gap, interval
from understudy.core.text import quoted
from understudy.envs import Environment, GymnasiumEnvironment

POLL_SECONDS = 0.2
MOST_POINTS = 2000
"""Points of the curves within a training."""


class Training:
    """Starts and ends the process, and keeps what it reports."""

    def __init__(
        self,
        env: Environment | GymnasiumEnvironment,
        store: Store,
        settings: Settings,
        episodes: Episodes,
        questions: Questions,
        clips: Clips,
        changed: Callable[[], None],
        curves_changed: Callable[[], None],
    ):
        self._env, self._store, self._settings = env, store, settings
        self._episodes, self._questions, self._clips = episodes, questions, clips
        self._changed, self._curves_changed = changed, curves_changed
        self._status, self._message = "idle", ""
        self._round: int | None = None
        self._records = store.policies.read()
        self._points: list[dict[str, Any]] = []
        self.saved: str | None = str(store.run) if store.run.is_dir() else None
        self._orders: list[str] = []
        self._planned = 0
        """Rounds that the process can do."""
        self._watcher: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._finished = asyncio.Event()
        questions.closed = self._answered

    # What clients see

    def state(self) -> dict[str, Any]:
        return {
            "status": self._status,
            "round": self._round,
            "message": self._message,
            "new_data": self._new_data,
            "needs": self._needs,
        }

    def policies(self) -> list[dict[str, Any]]:
        return [
            {
                "id": one["id"],
                "round": one["round"],
                "episodes": one["episodes"],
                "answers": one["answers"],
                "return": _interval(Sample.of(one["returns"])),
                "clip": self._clips.of_policy(one["id"]),
            }
            for one in self._records
        ]

    def curves(self) -> dict[str, Any]:
        expert = self._episodes.expert_return
        rounds = []
        for one in self._records:
            learner, metrics = Sample.of(one["returns"]), one["metrics"]
            loss = next((value for name, value in metrics.items() if name.endswith("loss")), None)
            gap = None if expert is None else imitation_gap(expert, learner).mean
            spread = interval(learner)
            rounds.append(
                {
                    "policy": one["id"],
                    "round": one["round"],
                    "loss": loss,
                    "payoff": metrics.get("payoff"),
                    "return": spread.mean,
                    "low": spread.low,
                    "high": spread.high,
                    "gap": gap,
                    "answers": one["answers"],
                    "interventions": self._episodes.intervened(one["id"]),
                }
            )
        shown = None if expert is None else _interval(expert)
        return {"type": "curves", "expert": shown, "rounds": rounds, "steps": self._points}

    def policy(self, number: int | None) -> int:
        """The number of a policy; None: the newest. Raises if there is none."""
        known = [one["id"] for one in self._records]
        if not known:
            raise Refused("not-now", "there is no policy yet: train first")
        if number is not None and number not in known:
            raise Refused("wrong-field", f"there is no policy {number}")
        return known[-1] if number is None else number

    @property
    def can_save(self) -> bool:
        """Whether there is a policy that is not in the saved run."""
        return bool(self._records) and self._settings.algorithm is not None and not self._saved_newest

    # What the person does

    async def train(self) -> None:
        """Start training, or let it do the next round."""
        if self._needs:
            raise Refused("not-now", self._needs)
        if self._status not in ("idle", "waiting", "failed"):
            raise Refused("not-now", f"training is {self._status}: wait, or stop it")
        if self._status == "waiting" and not self._new_data and self._done < self._planned:
            self._set("training")
            self._orders.append("next")
            return
        done = self._done
        repeat = done > 0 and self._new_data
        await self._start(Plan(self._env, self._settings, str(self._store.path), self._rounds, done + (not repeat)))

    async def stop(self) -> None:
        """End the process at once. All that matters is on the disk."""
        if self._watcher is None:
            raise Refused("not-now", "training does not run")
        await self.close()
        self._set("idle")

    async def save(self) -> None:
        """Let training end at the last finished round, and save the result."""
        if not self._records:
            raise Refused("not-now", "there is nothing to save yet: demonstrate or train first")
        if self._settings.asks:
            if self._status == "saving":
                await self._finished.wait()
                return
            self._finished.clear()
            if self._status == "waiting":
                self._set("saving")
                self._orders.append("finish")
            else:
                await self.close()
                plan = Plan(self._env, self._settings, str(self._store.path), self._rounds, self._done, finish=True)
                await self._start(plan, "saving")
            await self._finished.wait()
            if not self._saved_newest:
                raise Refused("failed", self._message or "training was stopped before it was saved")
        elif not self._saved_newest:
            raise Refused("not-now", f"training is {self._status}: the run is saved when it ends")
        self._changed()

    async def close(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            if self._worker is not None:
                self._worker.process.kill()
            await watcher
        self._finished.set()

    # The process

    @property
    def _done(self) -> int:
        """Finished rounds."""
        return max((one["round"] for one in self._records), default=0)

    @property
    def _rounds(self) -> int:
        """Rounds for the algorithm: its own number, or more if that many are done. It sizes its data by this."""
        assert self._settings.algorithm is not None
        planned = self._settings.algorithm.rounds
        return planned if not self._settings.asks or self._done < planned else 2 * self._done

    @property
    def _new_data(self) -> bool:
        """Whether there are episodes that the newest policy has not seen."""
        return not self._records or self._records[-1]["episodes"] != self._episodes.count

    @property
    def _saved_newest(self) -> bool:
        return self.saved is not None and bool(self._records) and self._records[-1].get("saved", False)

    @property
    def _needs(self) -> str:
        if self._settings.algorithm is None:
            return "this console only demonstrates: start it with --algorithm to train"
        if not self._episodes.useful:
            return "demonstrate at least one episode first"
        budget = self._settings.budget
        if budget is not None and self._questions.spent >= budget and not self._new_data and not self._unfinished:
            return f"the budget of {budget} answers is spent"
        return ""

    @property
    def _unfinished(self) -> bool:
        """Whether a round was answered whose policy is not there yet."""
        rounds = self._store.rounds()
        return bool(rounds) and rounds[-1] > self._done

    def _answered(self, number: int) -> None:
        if self._status == "asking":
            self._set("training")
            self._orders.append("answered")

    async def _start(self, plan: Plan, status: str = "starting") -> None:
        await self.close()
        self._finished.clear()
        self._orders.clear()
        self._points = []
        self._planned = plan.rounds
        self._set(status)
        self._watcher = asyncio.create_task(self._watch(plan))

    async def _watch(self, plan: Plan) -> None:
        """The process from its start to its end."""
        worker = None
        try:
            variables = {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "")}
            self._worker = worker = Worker("training", 0.0, TrainingService, variables=variables)
            await asyncio.to_thread(worker.call, "begin", plan)
            while self._watcher is not None:
                orders, self._orders[:] = list(self._orders), []
                for event in await asyncio.to_thread(worker.call, "exchange", orders, POLL_SECONDS):
                    await self._handle(*event)
                if self._status in ("idle", "failed"):
                    break
        except (UnderstudyError, OSError) as error:
            if self._watcher is not None:
                self._set("failed", quoted(str(error).splitlines()[0], 400))
        finally:
            if worker is not None:
                await asyncio.to_thread(worker.close)
            self._worker = None
            if self._watcher is asyncio.current_task():
                self._watcher = None
            self._finished.set()
            self._changed()

    async def _handle(self, kind: str, *facts: Any) -> None:
        if kind == "progress":
            self._round = facts[0]
            self._points = [*self._points, {"round": facts[0], "metrics": facts[1]}][-MOST_POINTS:]
            if self._status == "starting":
                self._set("training")
            self._curves_changed()
        elif kind == "asked":
            self._questions.open_round(facts[0])
            self._round = facts[0]
            self._set("asking")
        elif kind == "policy":
            number, round_, episodes, returns, metrics = facts
            self._round = round_
            record = {"id": number, "round": round_, "returns": returns, "metrics": metrics, "saved": False}
            record |= {"episodes": episodes, "answers": self._questions.spent}
            await asyncio.to_thread(self._store.policies.append, record)
            self._records.append(record)
            self._set("waiting")
            self._curves_changed()
        elif kind == "saved":
            self.saved = str(self._store.run)
            if self._records:
                self._records[-1]["saved"] = True
            self._set("idle")
        elif kind == "failed":
            self._set("failed", quoted(str(facts[0]).splitlines()[0], 400))
        self._changed()

    def _set(self, status: str, message: str = "") -> None:
        self._status, self._message = status, message
        self._changed()


def _interval(sample: Sample) -> dict[str, Any]:
    found: Interval = interval(sample)
    return {"mean": found.mean, "low": found.low, "high": found.high, "episodes": sample.size}
