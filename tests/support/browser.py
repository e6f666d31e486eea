"""A headless Chromium for tests, controlled through its DevTools pipe. Needs the standard library only."""

import functools
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

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
NO_CHROMIUM = "no Chromium found (apt-get install chromium)"
"""Reason for skipping browser tests."""


@functools.cache
def find_chromium() -> str | None:
    """Path of a Chromium that starts, or None."""
    for path in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([path, "--version"], capture_output=True, timeout=TIMEOUT).returncode == 0:
            return path
    return None


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
            self._events.append(answer)

    def wait(self, method: str, session: str) -> None:
        """Wait for an event."""
        until = time.monotonic() + TIMEOUT
        while not any(e.get("method") == method and e.get("sessionId") == session for e in self._events):
            self._events.append(self._message(until))

    def events(self, session: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event.get("sessionId") == session]

    def page(self, file: Path, width: int = 1100, height: int = 900, dark: bool = False) -> "Page":
        return Page(self, file, width, height, dark)

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
    """A loaded page with its errors and network requests."""

    def __init__(self, browser: Browser, file: Path, width: int, height: int, dark: bool):
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=file.resolve().as_uri())
        browser.wait("Page.loadEventFired", self._session)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **arguments)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

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
