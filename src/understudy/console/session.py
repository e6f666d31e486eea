"""A session: what the clients see, and what each of their messages does. It runs in the event loop of the server."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from understudy.console import mapping, protocol
from understudy.console.clients import Client, Clients
from understudy.console.clips import Clips
from understudy.console.comparing import Comparisons
from understudy.console.episodes import Episodes, join
from understudy.console.live import Live
from understudy.console.protocol import Refused
from understudy.console.questions import Questions
from understudy.console.settings import Settings
from understudy.console.store import Store
from understudy.console.training import Training
from understudy.core.errors import UnderstudyError
from understudy.core.notices import notice
from understudy.core.text import quoted
from understudy.core.types import Continuous, Discrete
from understudy.core.version import __version__
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.evaluation.pictures import number_names

PUBLISH_SECONDS = 0.1
"""`state` is sent at most this often."""
ANYONE = ("seen", "clip", "take-control")
"""Messages of clients that watch."""
AT_ONCE = ("seen", "act")
"""Messages that wait for nothing and are not answered."""
BESIDE = ("clip", "save", "end")
"""Messages that take long: others do not wait for them."""
MOST_ERRORS = 100


@dataclass
class Ended:
    """How the console ended."""

    by_person: bool = False


class Session:
    """The parts of a console, and the messages that reach them."""

    def __init__(self, env: Environment | GymnasiumEnvironment, store: Store, settings: Settings):
        self.env, self.store, self.settings = env, store, settings
        self.clients, self.mode = Clients(), "demonstrate"
        space = env.spec.action
        self.messages = protocol.messages_for(space)
        self.guess = mapping.guess(space, env.name)
        stored = store.read_mapping()
        self.mapping = self.guess if stored is None else _stored(stored, protocol.mapping_of(space))
        rest = protocol.action_of(space)(self.mapping["rest"])
        self.live = Live(
            env,
            store,
            settings.step_timeout,
            settings.seed,
            rest,
            lambda: self.clients.ready,
            self.clients.show,
            self.changed,
        )
        self.episodes = Episodes(store, settings.demonstrations)
        self.clips = Clips(env, store, settings.step_timeout)
        self.questions = Questions(store, settings, space, self.clips, self.clients.tell)
        self.comparing = Comparisons(store, settings.seed, self.clips)
        parts = (self.episodes, self.questions, self.clips)
        self.training = Training(env, store, settings, *parts, self.changed, self._tell_curves)
        self.over = asyncio.Event()
        self.ended = Ended()
        self._publisher: asyncio.Task[None] | None = None
        self._dirty = asyncio.Event()
        self._lock = asyncio.Lock()

    # The life of a session

    async def open(self) -> None:
        await self.live.open()
        self._publisher = asyncio.create_task(self._publish())

    async def close(self) -> None:
        await self.live.close()
        await self.training.close()
        await self.clips.close()
        if self._publisher is not None:
            self._publisher.cancel()

    def changed(self) -> None:
        self._dirty.set()

    async def _publish(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self.clients.tell("state", self.state())
            await asyncio.sleep(PUBLISH_SECONDS)

    # What clients see

    def joined(self, client: Client) -> None:
        """Tell a new client everything."""
        client.tell("welcome", self.welcome(client.role))
        client.tell("state", self.state())
        client.tell("curves", self.training.curves())
        questions, pair = self.questions.message(), self.comparing.message()
        if questions is not None:
            client.tell("questions", questions)
        if pair is not None:
            client.tell("pair", pair)
        picture = self.live.newest
        if picture is not None:
            client.show(picture)

    async def left(self, client: Client) -> None:
        """A client has gone. If it had control, the clock pauses."""
        control = client.role == "control"
        self.clients.leave(client)
        if control:
            await self.live.pause()
            self.changed()

    def welcome(self, role: str) -> dict[str, Any]:
        spec, about = self.env.spec, self.live.about
        algorithm = self.settings.algorithm
        return {
            "type": "welcome",
            "protocol": protocol.PROTOCOL,
            "version": __version__,
            "role": role,
            "out": str(self.store.path),
            "env": {
                "name": quoted(self.env.name),
                "horizon": spec.horizon,
                "fps": about.fps,
                "picture": about.picture,
                "note": about.note,
                "observation": {
                    "size": spec.obs_shape[0],
                    "names": number_names(spec.obs_shape[0], spec.obs_parts)[:64],
                },
                "action": _described(spec.action),
            },
            "algorithm": None
            if algorithm is None
            else {
                "name": algorithm.card.name,
                "title": algorithm.card.title,
                "asks": self.settings.asks,
                "rounds": algorithm.rounds,
                "note": self.settings.note,
            },
            "mapping": self.mapping,
            "guess": self.guess,
        }

    def state(self) -> dict[str, Any]:
        return {
            "type": "state",
            "mode": self.mode,
            "stage": self.live.state(),
            "episodes": self.episodes.state(),
            "questions": self.questions.state(),
            "training": self.training.state(),
            "policies": self.training.policies(),
            "comparisons": self.comparing.state(),
            "saved": self.training.saved or (str(self.store.path) if self.store.demonstrations.exists() else None),
        }

    def _tell_state(self) -> None:
        """Before an answer, so that a client that reads the answer knows the state that its message led to."""
        if self._dirty.is_set():
            self._dirty.clear()
            self.clients.tell("state", self.state())

    def _tell_curves(self) -> None:
        self.clients.tell("curves", self.training.curves())

    # What messages do

    async def handle(self, client: Client, text: str) -> None:
        """Act on a client's message, and answer it. Calls take effect in the order in which they begin."""
        ref = None
        try:
            message = protocol.parse(text, self.messages)
            ref = message.id
            if client.role != "control" and message.type not in ANYONE:
                raise Refused("watching", "this page watches: another one has control")
            act = self._action(message.type)
            async with nullcontext() if message.type in (*AT_ONCE, *BESIDE) else self._lock:
                await act(client, message.fields)
        except Refused as refused:
            client.errors += 1
            ref = ref if ref is not None else refused.__dict__.get("ref")
            self._tell_state()
            client.reply({"type": "error", "ref": ref, "code": refused.code, "message": str(refused)})
            return
        except (UnderstudyError, OSError) as error:
            client.errors += 1
            words = quoted(str(error).splitlines()[0] if str(error) else type(error).__name__, 400)
            self._tell_state()
            client.reply({"type": "error", "ref": ref, "code": "failed", "message": words})
            return
        client.errors = 0
        if message.type not in AT_ONCE:
            self._tell_state()
        if ref is not None and message.type not in AT_ONCE:
            client.reply({"type": "done", "ref": ref})

    def _action(self, kind: str) -> Callable[[Client, dict[str, Any]], Awaitable[None]]:
        found: Callable[[Client, dict[str, Any]], Awaitable[None]] = getattr(self, f"_on_{kind.replace('-', '_')}")
        return found

    async def _on_mode(self, client: Client, fields: dict[str, Any]) -> None:
        await self.live.pause()
        self.mode = fields["mode"]
        self.changed()

    async def _on_take_control(self, client: Client, fields: dict[str, Any]) -> None:
        if client.role != "control":
            await self.live.pause()
            self.clients.give_control(client)
            self.changed()

    async def _on_mapping(self, client: Client, fields: dict[str, Any]) -> None:
        await asyncio.to_thread(self.store.write_mapping, fields["mapping"])
        self.mapping = fields["mapping"]
        for one in self.clients.all:
            if one is not client:
                one.tell("welcome", self.welcome(one.role))

    async def _on_end(self, client: Client, fields: dict[str, Any]) -> None:
        await self.live.pause()
        if self.episodes.count:
            await asyncio.to_thread(self._write_demonstrations)
        if self.training.can_save:
            try:
                await self.training.save()
            except Refused as refused:
                notice(f"the run was not saved: {refused}")
        self.ended.by_person = True
        self.over.set()

    async def _on_start(self, client: Client, fields: dict[str, Any]) -> None:
        if self.mode not in ("demonstrate", "watch"):
            raise Refused("not-now", f"the mode is {self.mode}: choose demonstrate or watch")
        policy = self.training.policy(fields["policy"]) if self.mode == "watch" else None
        await self.live.start(self.mode, fields["seed"], policy)

    async def _on_clock(self, client: Client, fields: dict[str, Any]) -> None:
        await self.live.clock(fields["running"], fields["rate"], fields["stepping"])

    async def _on_step(self, client: Client, fields: dict[str, Any]) -> None:
        await self.live.step()

    async def _on_act(self, client: Client, fields: dict[str, Any]) -> None:
        self.live.hold(fields["seq"], fields["action"])

    async def _on_take(self, client: Client, fields: dict[str, Any]) -> None:
        self.live.take("person")

    async def _on_hand_back(self, client: Client, fields: dict[str, Any]) -> None:
        self.live.take("policy")

    async def _on_undo(self, client: Client, fields: dict[str, Any]) -> None:
        await self.live.undo(fields["seconds"], fields["steps"])

    async def _on_success(self, client: Client, fields: dict[str, Any]) -> None:
        self.live.mark(fields["success"])

    async def _on_keep(self, client: Client, fields: dict[str, Any]) -> None:
        attempt = await self.live.end_attempt(kept=True)
        self.episodes.add(attempt)
        self.changed()
        self._tell_curves()

    async def _on_discard(self, client: Client, fields: dict[str, Any]) -> None:
        await self.live.end_attempt(kept=False)
        self.episodes.discarded = self.store.discarded
        self.changed()

    async def _on_seen(self, client: Client, fields: dict[str, Any]) -> None:
        client.seen(fields["frame"])

    async def _on_answer(self, client: Client, fields: dict[str, Any]) -> None:
        await self.questions.answer(fields["question"], fields["action"])
        self.changed()

    async def _on_skip(self, client: Client, fields: dict[str, Any]) -> None:
        await self.questions.skip(fields["question"])
        self.changed()

    async def _on_reopen(self, client: Client, fields: dict[str, Any]) -> None:
        await self.questions.reopen(fields["question"])
        self.changed()

    async def _on_finish(self, client: Client, fields: dict[str, Any]) -> None:
        await self.questions.finish()
        self.changed()

    async def _on_clip(self, client: Client, fields: dict[str, Any]) -> None:
        clip = await self.clips.get(fields["clip"])
        client.tell(("clip", fields["clip"]), clip.message(fields["clip"], self.live.about.fps))

    async def _on_next_pair(self, client: Client, fields: dict[str, Any]) -> None:
        await asyncio.to_thread(self.comparing.next_pair, [one["id"] for one in self.training.policies()])
        self.changed()
        self._tell_state()  # the win rates, before the pair that says which policies they were
        self.clients.tell("pair", self.comparing.message() or {})

    async def _on_prefer(self, client: Client, fields: dict[str, Any]) -> None:
        await asyncio.to_thread(self.comparing.prefer, fields["pair"], fields["choice"])
        self.changed()
        self._tell_state()  # the win rates, before the pair that says which policies they were
        self.clients.tell("pair", self.comparing.message() or {})

    async def _on_train(self, client: Client, fields: dict[str, Any]) -> None:
        await self.training.train()

    async def _on_stop(self, client: Client, fields: dict[str, Any]) -> None:
        await self.training.stop()

    async def _on_save(self, client: Client, fields: dict[str, Any]) -> None:
        if self.episodes.count:
            await asyncio.to_thread(self._write_demonstrations)
        if self.training.policies() or not self.episodes.count:
            await self.training.save()
        self.changed()

    def _write_demonstrations(self) -> None:
        join(list(self.store.episodes().values())).save(self.store.demonstrations)


def _described(space: Any) -> dict[str, Any]:
    if isinstance(space, Continuous):
        names = [str(index) for index in range(len(space.low))]
        return {"kind": "continuous", "low": list(space.low), "high": list(space.high), "names": names}
    if isinstance(space, Discrete):
        return {"kind": "discrete", "n": space.n, "names": [str(index) for index in range(min(space.n, 1000))]}
    return {"kind": "multi-discrete", "nvec": list(space.nvec), "names": [str(i) for i in range(len(space.nvec))]}


def _stored(value: Any, check: protocol.Check) -> dict[str, Any]:
    try:
        checked: dict[str, Any] = check(value)
    except ValueError as error:
        raise UnderstudyError(f"mapping.json does not fit the environment ({error}): remove it") from error
    return checked
