"""The connections of a console: who has control, and what waits to be sent to each.

Nothing is queued without bound. Of messages that describe a state, only the newest of each kind waits; of pictures,
only the newest, and at most two that the client has not drawn yet are under way.
"""

import asyncio
import time
from collections import deque
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from understudy.console.live import Picture
from understudy.console.protocol import dumps

UNDER_WAY = 2
"""Pictures that a client has not acknowledged."""
MOST_REPLIES = 1000


class Client:
    """One connection."""

    def __init__(self, socket: WebSocket, role: str):
        self.socket, self.role = socket, role
        self._replies: deque[dict[str, Any]] = deque()
        self._newest: dict[Any, dict[str, Any]] = {}
        self._picture: Picture | None = None
        self._sent = self._seen = 0
        self._times: deque[float] = deque(maxlen=240)
        self._awake = asyncio.Event()
        self._under_way: deque[int] = deque()
        self.errors = 0

    def reply(self, message: dict[str, Any]) -> None:
        """Send an answer. A client that asks and does not read is closed by `full`."""
        self._replies.append(message)
        self._awake.set()

    @property
    def full(self) -> bool:
        return len(self._replies) > MOST_REPLIES

    def tell(self, key: Any, message: dict[str, Any]) -> None:
        """Send a message; it replaces an older one of the same key that still waits."""
        self._newest.pop(key, None)
        self._newest[key] = message
        self._awake.set()

    def show(self, picture: Picture) -> None:
        self._picture = picture
        self._awake.set()

    def seen(self, frame: int) -> None:
        """The client has drawn this picture, and so all earlier ones."""
        while self._under_way and self._under_way[0] <= frame:
            self._under_way.popleft()
        self._awake.set()

    @property
    def ready(self) -> bool:
        """Whether it can take another picture."""
        return len(self._under_way) < UNDER_WAY

    async def pump(self) -> None:
        """Send what waits, until the connection ends."""
        try:
            while True:
                await self._awake.wait()
                self._awake.clear()
                while self._newest:  # first: a client that reads `done` knows the state that its message led to
                    await self.socket.send_text(dumps(self._newest.pop(next(iter(self._newest)))))
                while self._replies:
                    await self.socket.send_text(dumps(self._replies.popleft()))
                picture = self._picture
                if picture is not None and self.ready:
                    self._picture = None
                    self._under_way.append(picture.number)
                    self._times.append(time.monotonic())
                    await self.socket.send_bytes(picture.message)
                    await self.socket.send_text(dumps({**picture.numbers, "fps": self._fps()}))
        except (WebSocketDisconnect, RuntimeError, OSError):  # the connection is gone: its reader ends too
            return

    def _fps(self) -> float:
        since = time.monotonic() - 1.0
        return float(sum(at > since for at in self._times))


class Clients:
    """All connections, in the order in which they came."""

    def __init__(self) -> None:
        self.all: list[Client] = []

    def join(self, socket: WebSocket) -> Client:
        client = Client(socket, "watch" if any(one.role == "control" for one in self.all) else "control")
        self.all.append(client)
        return client

    def leave(self, client: Client) -> None:
        """The one that has waited longest gets control."""
        self.all.remove(client)
        if client.role == "control" and self.all:
            self._set(self.all[0], "control")

    def give_control(self, client: Client) -> None:
        for one in self.all:
            if one.role != (role := "control" if one is client else "watch"):
                self._set(one, role)

    def tell(self, key: Any, message: dict[str, Any]) -> None:
        for client in self.all:
            client.tell(key, message)

    def show(self, picture: Picture) -> None:
        for client in self.all:
            client.show(picture)

    @property
    def ready(self) -> bool:
        """Whether any client can take a picture."""
        return any(client.ready for client in self.all)

    def _set(self, client: Client, role: str) -> None:
        client.role = role
        client.tell("role", {"type": "role", "role": role})
