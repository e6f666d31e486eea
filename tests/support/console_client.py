"""A scripted person for the console: a client of its WebSocket, and consoles in a thread or in a process."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from understudy.console.launch import console
from understudy.console.protocol import HEADER

SECONDS = 240.0


class Page:
    """One connection. It acknowledges pictures, and keeps the newest message of each type."""

    def __init__(self, url: str, **options: Any):
        self.port, self.token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(\w+)", url).groups()
        address = f"ws://127.0.0.1:{self.port}/socket?token={self.token}"
        self._stack = ExitStack()
        self.socket = self._stack.enter_context(connect(address, max_size=None, **options))
        self.newest: dict[str, Any] = {}
        self.replies: dict[int | None, Any] = {}
        self.errors: list[dict[str, Any]] = []
        self.pictures: list[tuple[tuple[Any, ...], bytes]] = []
        self.acknowledge = True
        self._count = 0
        self.until(lambda page: "state" in page.newest)

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave, as a page that is closed or reloaded."""
        self._stack.close()

    @property
    def state(self) -> dict[str, Any]:
        return self.newest["state"]

    def read(self, seconds: float = SECONDS) -> None:
        """Receive one message."""
        message = self.socket.recv(timeout=seconds)
        if isinstance(message, bytes):
            header = HEADER.unpack(message[: HEADER.size])
            self.pictures.append((header, message[HEADER.size :]))
            if self.acknowledge:
                self.send(type="seen", frame=header[3])
            return
        value = json.loads(message)
        if value["type"] in ("done", "error"):
            self.replies[value["ref"]] = value
            if value["type"] == "error":
                self.errors.append(value)
        else:
            self.newest[value["type"]] = value

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def reply(self, **message: Any) -> dict[str, Any]:
        """The answer to a message."""
        self._count += 1
        self.send(**message, id=self._count)
        self.until(lambda page: self._count in page.replies)
        return self.replies[self._count]

    def ask(self, **message: Any) -> None:
        """Send a message that must be accepted."""
        answer = self.reply(**message)
        assert answer["type"] == "done", answer

    def refusal(self, **message: Any) -> str:
        """The code of a message that must be refused."""
        answer = self.reply(**message)
        assert answer["type"] == "error", answer
        return answer["code"]

    def until(self, test: Callable[["Page"], bool], seconds: float = SECONDS) -> None:
        """Receive until something is true."""
        end = time.monotonic() + seconds
        while not test(self):
            left = end - time.monotonic()
            assert left > 0, self.newest.get("state")
            self.read(left)

    def closing(self) -> int:
        """Receive until the server closes the connection; the code."""
        try:
            while True:
                self.read(30.0)
        except ConnectionClosed:
            return self.socket.close_code or 0

    def drive(self, act: Callable[[np.ndarray], Any], most: int = 10_000, **start: Any) -> int:
        """Start an attempt and drive it step by step to its end, or for `most` steps; the number of steps."""
        self.newest.pop("step", None)
        self.ask(type="start", **start)
        self.until(lambda page: page.newest.get("step", {}).get("t") == 0)
        for t in range(most):
            observation = np.array(self.newest["step"]["observation"], np.float32)
            self.send(type="act", seq=t + 1, action=act(observation))
            self.ask(type="step")
            self.until(lambda page, t=t: page.newest["step"]["t"] == t + 1)
            if self.pictures[-1][0][2] & 4:
                return t + 1
        return most

    def trained(self, status: str = "waiting") -> None:
        """Wait until training has this status."""
        self.until(lambda page: page.state["training"]["status"] in (status, "failed"))
        assert self.state["training"]["status"] == status, self.state["training"]


@contextmanager
def running(*arguments: Any, **options: Any) -> Iterator[str]:
    """A console in a thread of this process; the address of its page. It is ended by the caller's client, or here."""
    found: list[str] = []
    results: list[Any] = []
    opened = threading.Event()

    def ready(url: str) -> None:
        found.append(url)
        opened.set()

    def target() -> None:
        try:
            results.append(console(*arguments, port=0, browser=False, ready=ready, **options))
        except BaseException as error:  # noqa: BLE001 (raised by the test's thread)
            results.append(error)
        finally:
            opened.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    assert opened.wait(SECONDS)
    if not found:
        thread.join()
        raise results[0]
    try:
        yield found[0]
    finally:
        if thread.is_alive():
            with Page(found[0]) as page:
                page.reply(type="take-control")
                page.send(type="end")
                page.closing()
        thread.join(SECONDS)
        assert not thread.is_alive()
        if isinstance(results[0], BaseException):
            raise results[0]


@contextmanager
def process(out: Path, *words: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A console in a process of its own, which a test may kill."""
    command = [sys.executable, "-m", "understudy", "console", "--out", str(out), "--port", "0", "--no-browser", *words]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        yield re.search(r"http\S+", line)[0], started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()
