"""The live environment: its clock, the attempt on it, and who acts. All in the event loop of the server."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from understudy.collect.worker import Worker
from understudy.console.attempt import Attempt
from understudy.console.protocol import (
    JPEG,
    OVER,
    PERSON,
    RUNNING,
    Refused,
    action_of,
    picture_message,
    plain_action,
)
from understudy.console.stage import About, Moment, Replayed, open_stage
from understudy.console.store import Store
from understudy.core.errors import RunError, UnderstudyError
from understudy.envs import Environment, GymnasiumEnvironment, public_name

OTHER = "did not come to the same states again: keep or discard the attempt as it was"
MOST_SHOWN = 64
"""Numbers of an observation in a message."""
USUAL = 30.0
"""The clock's rate at first: an environment may be faster than a person."""
SYNC_SECONDS = 1.0
"""An attempt's steps are synced to the disk this often. A killed server loses none, a power cut at most these."""


class Picture:
    """A picture of the stage, and the numbers that belong to it."""

    def __init__(self, number: int, message: bytes, numbers: dict[str, Any]):
        self.number, self.message, self.numbers = number, message, numbers


class Live:
    """The stage. `wanted` says whether any client can take a picture now; `show` and `changed` tell the clients."""

    def __init__(
        self,
        env: Environment | GymnasiumEnvironment,
        store: Store,
        step_timeout: float,
        seed: int,
        rest: Any,
        wanted: Callable[[], bool],
        show: Callable[[Picture], None],
        changed: Callable[[], None],
    ):
        self.env, self.store, self.step_timeout, self.seed = env, store, step_timeout, seed
        self._wanted, self._show, self._changed = wanted, show, changed
        self.about = About("numbers", "", 20.0)
        self.rate, self.stepping, self.running, self.busy, self.note = 20.0, False, False, False, ""
        self.attempt: Attempt | None = None
        self.drive = "person"
        self._held, self._seq, self._used = rest, 0, 0
        self._worker: Worker | None = None
        self._lock = asyncio.Lock()
        self._clock: asyncio.Task[None] | None = None
        self._frame = 0
        self.newest: Picture | None = None
        """The last picture, for clients that join later."""
        self._syncing: asyncio.Task[None] | None = None
        self._synced = 0.0

    # Called by the session

    async def open(self) -> None:
        """Start the process, and continue an attempt that a killed server left."""
        await self._open_worker()
        self.rate = float(min(self.about.fps, USUAL))
        lines = self.store.attempt.read()
        if lines:
            await self._recover(lines)

    async def close(self) -> None:
        await self.pause()
        async with self._lock:
            if self._worker is not None:
                await asyncio.to_thread(self._worker.close)
                self._worker = None

    def state(self) -> dict[str, Any]:
        attempt = self.attempt
        status = "busy" if self.busy else "failed" if self.note and self._worker is None else "idle"
        if attempt is not None and status == "idle":
            status = "ended" if attempt.over else "live" if self.running else "paused"
        return {
            "status": status,
            "mode": "demonstrate" if attempt is None else attempt.mode,
            "t": 0 if attempt is None else attempt.t,
            "return": 0.0 if attempt is None else attempt.total,
            "drive": self.drive,
            "policy": None if attempt is None else attempt.policy,
            "rate": self.rate,
            "stepping": self.stepping,
            "interventions": 0 if attempt is None else attempt.interventions,
            "success": None if attempt is None else attempt.success,
            "note": self.note,
        }

    async def start(self, mode: str, seed: int | None, policy: int | None) -> None:
        """Start an attempt, paused."""
        if self.attempt is not None and self.attempt.t:
            raise Refused("not-now", "an attempt is on the stage: keep or discard it first")
        await self.pause()
        number = self.store.next_number()
        start = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0] >> 1) if seed is None else seed
        attempt = Attempt(number, mode, start, policy)
        file = None if policy is None else str(self.store.policy_file(policy))
        moment: Moment = await self._busy("start", start, file)
        attempt.moments.append(moment)
        self.store.drop_empty_attempt()
        await asyncio.to_thread(self.store.attempt.append, attempt.header())
        self.attempt, self.drive = attempt, "person" if mode == "demonstrate" else "policy"
        self._used = 0
        self._publish(moment)

    async def clock(self, running: bool, rate: float | None, stepping: bool | None) -> None:
        self.rate = self.rate if rate is None else rate
        self.stepping = self.stepping if stepping is None else stepping
        if running and not self.stepping:
            attempt = self._on_stage()
            if attempt.over:
                raise Refused("not-now", "the episode is over: keep or discard it")
            if self._clock is None:
                self.running = True
                self._clock = asyncio.create_task(self._run())
        else:
            await self.pause()
        self._changed()

    async def pause(self) -> None:
        """Stop the clock after the step that is being taken, and show its state."""
        clock, self._clock = self._clock, None
        self.running = False
        if clock is not None and clock is not asyncio.current_task():
            await clock
            await self._show_now()

    async def step(self) -> None:
        attempt = self._on_stage()
        if self._clock is not None:
            raise Refused("not-now", "the clock runs: pause it first")
        if attempt.over:
            raise Refused("not-now", "the episode is over: keep or discard it")
        try:
            await self._tick(True)
        except UnderstudyError as error:
            await self._fail(error)
            raise Refused("failed", self.note) from error

    def hold(self, seq: int, action: Any) -> None:
        """The action that the person holds from now on."""
        self._seq, self._held = seq, action

    def take(self, drive: str) -> None:
        if self._on_stage().mode != "watch":
            raise Refused("not-now", "the person always acts in the mode demonstrate")
        self.drive = drive
        self._changed()

    def mark(self, success: bool | None) -> None:
        attempt = self._on_stage()
        self.store.attempt.append({"success": success})
        attempt.success = success
        self._changed()

    async def undo(self, seconds: float | None, steps: int | None) -> None:
        """Go back by replaying the episode up to an earlier step."""
        if (seconds is None) == (steps is None):
            raise Refused("wrong-field", "undo needs either seconds or steps")
        attempt = self._on_stage()
        await self.pause()
        if attempt.frozen:
            raise Refused("not-now", self.note)
        back = steps if steps is not None else int(np.ceil((seconds or 0) * self.rate))
        keep = max(0, attempt.t - back)
        if not await self._replay(attempt, keep):
            raise Refused("failed", f"{self.env.name} did not come to the same states again: nothing was undone")
        self.store.attempt.append({"undo": keep})
        attempt.back_to(keep)
        self._publish(attempt.moments[-1])

    async def end_attempt(self, kept: bool) -> Attempt:
        """Keep or discard the attempt. It is on the disk when this returns."""
        attempt = self._on_stage()
        await self.pause()
        if self._syncing is not None:
            await self._syncing
        if kept and not attempt.t:
            raise Refused("not-now", "the attempt has no steps yet")
        episode, more = None, dict[str, Any]()
        if attempt.t:
            episode, more = attempt.demonstrations(self.env.spec, public_name(self.env), self.rate)
        await asyncio.to_thread(self.store.finish_attempt, attempt.number, episode, more, kept)
        self.attempt, self.drive, self.newest = None, "person", None
        self._changed()
        return attempt

    # The clock

    async def _run(self) -> None:
        """Step at the clock's rate. A step that takes longer delays the next ones; none is made up for."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        try:
            while self.running and self.attempt is not None and not self.attempt.over:
                await self._tick(self._wanted())
                due = max(due + 1 / self.rate, loop.time())
                await asyncio.sleep(due - loop.time())
        except UnderstudyError as error:
            await self._fail(error)
        finally:
            if self._clock is asyncio.current_task():
                self._clock = None
            self.running = False
            self._changed()

    async def _tick(self, draw: bool) -> None:
        attempt = self._on_stage()
        person = self.drive == "person"
        seq, held = self._seq, self._held
        async with self._lock:
            moment: Moment = await self._call("advance", held if person else None, draw)
            attempt.moments.append(moment)
            attempt.by_person.append(person)
            self.store.attempt.append_soon(attempt.line())
        self._used = seq if person else 0
        if moment.picture is not None:
            self._publish(moment)
        if moment.over:
            self.running = False
            await asyncio.to_thread(self.store.attempt.sync)
            self._changed()
        elif self._syncing is None or (self._syncing.done() and time.monotonic() - self._synced > SYNC_SECONDS):
            self._synced = time.monotonic()
            self._syncing = asyncio.create_task(asyncio.to_thread(self.store.attempt.sync))

    async def _show_now(self) -> None:
        """Send the state that the clock stands at."""
        if self.attempt is None or self._worker is None or self.attempt.moments[-1].picture is not None:
            return
        async with self._lock:
            picture = await self._call("picture")
            moments = self.attempt.moments
            moments[-1] = moments[-1]._replace(picture=picture)
        self._publish(moments[-1])

    def _publish(self, moment: Moment) -> None:
        attempt = self._on_stage()
        self._frame += 1
        acted = bool(attempt.by_person) and attempt.by_person[-1]
        flags = RUNNING * self.running | PERSON * acted | OVER * moment.over
        image = moment.picture or b""
        message = picture_message(JPEG, flags, self._frame, attempt.t, self._used, attempt.total, image)
        numbers = {
            "type": "step",
            "frame": self._frame,
            "t": attempt.t,
            "reward": moment.reward,
            "observation": np.asarray(moment.obs, np.float64)[:MOST_SHOWN].tolist(),
            "action": plain_action(moment.action),
            "policy_action": plain_action(moment.policy_action),
            "person_action": plain_action(self._held if self.drive == "person" else None),
        }
        if attempt.t > 1:  # only the last picture is kept: an hour has 100,000
            attempt.moments[-2] = attempt.moments[-2]._replace(picture=None)
        self.newest = Picture(self._frame, message, numbers)
        self._show(self.newest)
        self._changed()

    # The process

    def _on_stage(self) -> Attempt:
        if self.attempt is None:
            raise Refused("not-now", "there is no attempt on the stage: start one first")
        return self.attempt

    async def _open_worker(self) -> None:
        self._worker, self.about = await asyncio.to_thread(open_stage, self.env, self.step_timeout)
        self.note = ""

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call the process. A new one, after the last was lost, is first brought to where the attempt is."""
        if self._worker is None:
            await self._open_worker()
            if self.attempt is not None and method not in ("start", "replay"):
                replayed: Replayed = await self._call("replay", *self._repeat(self.attempt, self.attempt.t))
                self.attempt.frozen = not replayed.same
                if self.attempt.frozen:
                    self.note = f"{self.env.name} {OTHER}"
                    raise Refused("failed", self.note)
        assert self._worker is not None
        return await asyncio.to_thread(self._worker.call, method, *arguments)

    async def _busy(self, method: str, *arguments: Any) -> Any:
        self.busy = True
        self._changed()
        try:
            async with self._lock:
                return await self._call(method, *arguments)
        except UnderstudyError as error:
            await self._fail(error)
            raise Refused("failed", self.note) from error
        finally:
            self.busy = False
            self._changed()

    async def _fail(self, error: UnderstudyError) -> None:
        """The process is lost. The attempt stays: it can be kept, and undo replays it in a new process."""
        self.note, self.running = str(error).splitlines()[0], False
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)
            self._worker = None
        self._changed()

    async def _replay(self, attempt: Attempt, keep: int) -> bool:
        """Bring the stage to step `keep` of the attempt; False, and the stage as it was, if it cannot be done."""
        replayed: Replayed = await self._busy("replay", *self._repeat(attempt, keep))
        if replayed.same:
            attempt.moments[:] = replayed.moments
        return replayed.same

    def _repeat(self, attempt: Attempt, keep: int) -> tuple[Any, ...]:
        """The arguments of `StageService.replay`."""
        file = None if attempt.policy is None else str(self.store.policy_file(attempt.policy))
        return attempt.seed, file, attempt.actions[:keep], attempt.observations[:keep]

    async def _recover(self, lines: list[dict[str, Any]]) -> None:
        """Continue the attempt of a killed server. If the environment has other states now, it can only be kept."""
        try:
            attempt = Attempt.from_lines(lines, action_of(self.env.spec.action))
        except (KeyError, ValueError) as error:
            raise RunError(
                f"'{self.store.attempt.path}' does not fit {self.env.name} ({error}): move it away"
            ) from error
        self.attempt, self.drive = attempt, "person" if attempt.mode == "demonstrate" else "policy"
        attempt.frozen = not await self._replay(attempt, attempt.t)
        if attempt.frozen:
            self.note = f"{self.env.name} {OTHER}"
        else:
            self._publish(attempt.moments[-1])
