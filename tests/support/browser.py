"""A headless Chromium for tests, controlled through its DevTools pipe. Needs pytest and the standard library only."""

import base64
import functools
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--mute-audio",
    ),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe"),
)
TIMEOUT = 30.0
POLL = 0.02
KEPT = (
    "Page.loadEventFired",
    "Runtime.exceptionThrown",
    "Runtime.consoleAPICalled",
    "Log.entryAdded",
    "Network.requestWillBeSent",
)
"""Events that are kept. A page with a WebSocket has thousands of others."""
NO_CHROMIUM = "no Chromium found (apt-get install chromium)"
"""Reason for skipping browser tests."""


@functools.cache
def find_chromium() -> str | None:
    """Path of a Chromium that starts, or None."""
    for path in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([path, "--version"], capture_output=True, timeout=TIMEOUT).returncode == 0:
            return path
    return None


@contextmanager
def running() -> "Iterator[Browser]":
    """A browser for a test. Skips it where there is no Chromium."""
    path = find_chromium()
    if path is None:
        pytest.skip(NO_CHROMIUM)
    with Browser(path) as started:
        yield started


class Browser:
    """A browser process, used in a `with` block. `page` opens a page."""

    def __init__(self, program: str):
        self._numbers, self._rest = itertools.count(1), b""
        self._events: list[dict[str, Any]] = []
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        child_read, self._write = (_high(end) for end in os.pipe())
        self._read, child_write = (_high(end) for end in os.pipe())
        # Chromium expects the pipe on descriptors 3 and 4.
        line = f'exec "$0" "$@" 3<&{child_read} 4>&{child_write} {child_read}<&- {child_write}>&-'
        flags = [*FLAGS, f"--user-data-dir={self._home.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", line, program, *flags],
            pass_fds=(child_read, child_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_read)
        os.close(child_write)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        self._process.wait(TIMEOUT)
        self._home.cleanup()

    def call(self, method: str, session: str | None = None, **arguments: Any) -> dict[str, Any]:
        """The result of a DevTools command. Events that arrive meanwhile are kept for `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": arguments} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT
        while True:
            answer = self._message(until)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._keep(answer)

    def load(self, session: str, method: str, **arguments: Any) -> None:
        """Call a command that loads a page, and wait until it is loaded."""
        loaded = ("Page.loadEventFired", session)
        self._events = [event for event in self._events if (event["method"], event.get("sessionId")) != loaded]
        self.call(method, session, **arguments)
        until = time.monotonic() + TIMEOUT
        while not any((event["method"], event.get("sessionId")) == loaded for event in self._events):
            self._keep(self._message(until))

    def events(self, session: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event.get("sessionId") == session]

    def page(self, address: Path | str, width: int = 1100, height: int = 900, dark: bool = False) -> "Page":
        """A page, of a file or a URL."""
        return Page(self, address if isinstance(address, str) else address.resolve().as_uri(), width, height, dark)

    def _keep(self, event: dict[str, Any]) -> None:
        if event.get("method") in KEPT:
            self._events.append(event)

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self._read, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError("Chromium did not answer in time" if not ready else "Chromium has ended")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


class Page:
    """A loaded page: its values, input, errors and network requests."""

    def __init__(self, browser: Browser, url: str, width: int, height: int, dark: bool):
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.look(width, height, dark)
        browser.load(self._session, "Page.navigate", url=url)

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window and the colour scheme."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **arguments)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = TIMEOUT) -> Any:
        """Wait until a JavaScript expression is true, and return its value. It may throw before."""
        end = time.monotonic() + seconds
        while True:
            answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
            value = answer["result"].get("value")
            if value and "exceptionDetails" not in answer:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not true after {seconds:g} s: {script}")
            time.sleep(POLL)

    def reload(self) -> None:
        self._browser.load(self._session, "Page.reload")

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element, which must be there, visible and enabled."""
        where = self.run(f"""(() => {{
            const node = document.querySelector({json.dumps(selector)});
            node.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = node.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            const hit = document.elementFromPoint(x, y);
            return [x, y, Boolean(hit && (node === hit || node.contains(hit) || hit.contains(node))) && !node.disabled];
        }})()""")
        if not where[2]:
            raise AssertionError(f"{selector} cannot be clicked")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1)

    def key(self, code: str, down: bool = True, up: bool = True) -> None:
        """Press a key and release it, or one of the two. `code` is a KeyboardEvent.code."""
        text = {"Space": " ", "Enter": "\r"}.get(code, "")
        name = code.removeprefix("Key").lower() if code.startswith("Key") else text.strip() or code
        number = {"Space": 32, "Enter": 13, "Backspace": 8, "Tab": 9, "Escape": 27}.get(code, 0)
        more: dict[str, Any] = {"code": code, "key": name, "windowsVirtualKeyCode": number}
        if down:
            kind = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
            self.call("Input.dispatchKeyEvent", **more, **kind)
        if up:
            self.call("Input.dispatchKeyEvent", **more, type="keyUp")

    def screenshot(self, file: Path, whole: bool = True) -> None:
        """Write a PNG of the whole page, or of the window."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    @property
    def errors(self) -> list[str]:
        """Exceptions, console errors and warnings, and browser log entries."""
        errors = []
        for event in self._browser.events(self._session):
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                errors.append(params["exceptionDetails"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                errors.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                errors.append(params["entry"]["text"])
        return errors

    @property
    def requests(self) -> list[str]:
        """Network requests except for the page itself and data: URLs."""
        sent = [e["params"]["request"]["url"] for e in self._browser.events(self._session) if _is_request(e)]
        return [url for url in sent[1:] if not url.startswith("data:")]


def _is_request(event: dict[str, Any]) -> bool:
    return event["method"] == "Network.requestWillBeSent"


def _high(descriptor: int) -> int:
    """The same pipe on a descriptor other than 3 and 4."""
    import fcntl  # POSIX only

    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return high
