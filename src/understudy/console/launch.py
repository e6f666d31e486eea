"""`console`: open a directory, start the server, wait until the person ends it."""

import asyncio
import errno
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from understudy.collect.worker import STEP_TIMEOUT
from understudy.console.choosing import Choice
from understudy.console.settings import Settings
from understudy.console.store import Store
from understudy.core import display
from understudy.core.errors import RunError, SettingError, check_whole, missing_extra
from understudy.core.notices import notice
from understudy.core.text import is_line, quoted
from understudy.data import Demonstrations, load
from understudy.envs import Environment, GymnasiumEnvironment, make
from understudy.game import Algorithm
from understudy.train.results import Result, load_run

HOST, PORT = "127.0.0.1", 8710
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str = HOST
    port: int = PORT
    """0: any free port."""

    def __post_init__(self) -> None:
        check_whole(0, port=self.port)
        if self.port > 65535:
            raise SettingError(f"port is {self.port}: a number up to 65535 is needed")
        if not is_line(self.host) or not self.host:
            raise SettingError(f"host is '{quoted(self.host)}': an address such as 127.0.0.1 is needed")


def console(
    env: Any,
    algorithm: Algorithm | None = None,
    out: str | os.PathLike[str] = "runs/console",
    demonstrations: Demonstrations | str | os.PathLike[str] | None = None,
    budget: int | None = None,
    questions: int = 20,
    choose: Choice = "novelty",
    seed: int = 0,
    host: str = HOST,
    port: int = PORT,
    browser: bool = True,
    step_timeout: float = STEP_TIMEOUT,
    ready: Callable[[str], None] | None = None,
) -> Result | None:
    """Open a page where a person demonstrates, takes over, answers and compares, while training goes on beside it.

    Args:
        env: The environment: all that `understudy.make` takes, if it can be sent to another process.
        algorithm: A value such as `us.dagger()`. One that queries an expert asks the person; another one learns from
            demonstrations and corrections alone. None: only demonstrate.
        out: Directory of the session. If there is one of the same environment and algorithm, it goes on.
        demonstrations: Episodes to learn from besides those of the person, or what `understudy.load` takes.
        budget: The most answers of all rounds together (None: no limit).
        questions: The most questions of a round.
        choose: How these are chosen: "novelty" or "spread" (`console.choosing`).
        seed: Of training, and of the starting states.
        host: Address to listen on. Everyone who can reach it and has the token controls the console.
        port: Port to listen on; 0: a free one.
        browser: Open the page in a browser, if there is a display.
        step_timeout: Seconds that a step, reset or picture of the environment may take (0: no limit).
        ready: Called with the address of the page, in place of printing it.

    Returns:
        The `Result` of training when the person ends the console, as `understudy.load_run(out + "/run")` reads it; None
        if nothing was trained. Demonstrations are in `out`, see docs/console.md.
    """
    made = make(env)
    address = Address(host, port)
    given = _demonstrations(demonstrations, made)
    settings = Settings(algorithm, given, seed, budget, questions, choose, step_timeout)
    try:
        from understudy.console import server as _  # noqa: F401
    except ImportError as error:
        raise missing_extra("console", "the console needs Starlette, uvicorn and websockets") from error
    store = Store.open(out, made.name, None if algorithm is None else algorithm.card.name)
    try:
        with _listening(address) as listener:
            work = _serve(made, store, settings, address, listener, browser, ready)
            _run(work)
        return load_run(store.run) if store.run.is_dir() else None
    finally:
        store.close()


async def _serve(
    env: Environment | GymnasiumEnvironment,
    store: Store,
    settings: Settings,
    address: Address,
    listener: socket.socket,
    browser: bool,
    ready: Callable[[str], None] | None,
) -> None:
    import uvicorn

    from understudy.console.protocol import LONGEST_MESSAGE
    from understudy.console.server import application, own_address
    from understudy.console.session import Session

    port = listener.getsockname()[1]
    session = Session(env, store, settings)
    app = application(session, own_address(address.host, port), port)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=LONGEST_MESSAGE,
        ws_ping_interval=5.0,
        ws_ping_timeout=10.0,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=2,
    )

    class Server(uvicorn.Server):
        """Leaves the signals alone."""

        def capture_signals(self) -> Any:
            return nullcontext()

    server = Server(config)
    with _stopped_by_signals(session.over.set):
        await session.open()
        serving = asyncio.create_task(server.serve([listener]))
        over = asyncio.create_task(session.over.wait())
        try:
            shown = f"[{address.host}]" if ":" in address.host else address.host
            _announce(f"http://{shown}:{port}/?token={store.token}", address, browser, ready)
            await asyncio.wait((serving, over), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # raises what ended it
        finally:
            session.over.set()
            await asyncio.sleep(0.1)  # connections are closed with their code first
            server.should_exit = True
            await serving
            over.cancel()
            await session.close()


def _announce(url: str, address: Address, browser: bool, ready: Callable[[str], None] | None) -> None:
    if address.host not in LOCAL:
        notice(f"the console listens on {address.host}: everyone who can reach it and has the token controls it")
    if ready is not None:
        ready(url)
    else:
        display.say(f"The console is open: {url}\nCtrl-C, or End on the page, ends it. Nothing is lost.")
        sys.stdout.flush()  # it may be a file that somebody waits for
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if browser and screen:
        with suppress(webbrowser.Error):
            webbrowser.open(url)


def _listening(address: Address) -> socket.socket:
    """A socket that listens on the address."""
    kind = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(kind, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise RunError(f"port {address.port} of {address.host} is in use: pass another port, --port N") from error
        reason = error.strerror or error
        raise RunError(
            f"cannot listen on {address.host}:{address.port} ({reason}): pass another host or port"
        ) from error
    return listener


class _stopped_by_signals:
    """Ctrl-C and SIGTERM end the console, if this is the main thread."""

    def __init__(self, stop: Callable[[], Any]):
        self._stop, self._previous = stop, dict[int, Any]()

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.getsignal(number)
            loop.add_signal_handler(number, self._stop)

    def __exit__(self, *details: object) -> None:
        loop = asyncio.get_running_loop()
        for number, previous in self._previous.items():
            loop.remove_signal_handler(number)
            signal.signal(number, previous)


def _run(work: Any) -> None:
    """Run a coroutine to its end, also where a loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    failures: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:  # noqa: BLE001 (raised again by the caller's thread)
            failures.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _demonstrations(given: Any, env: Environment | GymnasiumEnvironment) -> Demonstrations | None:
    if given is None:
        return None
    loaded = given if isinstance(given, Demonstrations) else load(given)
    return loaded.for_task(env.spec, env.name)
