"""The HTTP and WebSocket server of a console: access, limits, and the files of the page."""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from understudy.console.clients import Client
from understudy.console.protocol import LONGEST_MESSAGE, Refused
from understudy.console.session import MOST_ERRORS, Session

PAGE = Path(__file__).parent / "page"
REPORT_STYLE = Path(__file__).parents[1] / "studies" / "report" / "page.css"
"""The look that the page shares with study reports."""
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LOCAL, EVERYWHERE = ("127.0.0.1", "localhost", "::1"), ("0.0.0.0", "::")
MOST_CLIENTS, MOST_TASKS = 20, 200
"""Connections, and messages of one of them that are being worked on."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FOREVER = "private, max-age=31536000, immutable"


class Guard:
    """Lets a request through only with the right Host, Origin and token."""

    def __init__(self, app: ASGIApp, own: Callable[[str], bool], token: str, cookie: str):
        self.app, self.own, self.token, self.cookie = app, own, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        refusal = self._refusal(connection)
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
            await send({"type": "websocket.http.response.body", "body": refusal.encode()})
        else:
            await PlainTextResponse(f"{refusal}\n", 403, HEADERS)(scope, receive, send)

    def _refusal(self, connection: HTTPConnection) -> str | None:
        headers = connection.headers
        if len(headers.getlist("host")) != 1 or not self.own(headers["host"].lower()):
            return "wrong Host: open the printed address"
        origin = headers.get("origin")
        if origin is not None and not (origin.startswith("http://") and self.own(origin[7:].lower())):
            return "wrong Origin: open the printed address"
        if not any(_same(self.token, given) for given in self._tokens(connection)):
            return "wrong token: open the printed address, with its token"
        return None

    def _tokens(self, connection: HTTPConnection) -> list[str]:
        found = [
            connection.cookies.get(self.cookie),
            connection.headers.get("authorization", "").removeprefix("Bearer "),
        ]
        if connection.url.path in ("/", "/socket"):
            found.append(connection.query_params.get("token"))
        return [token for token in found if token]


def _same(token: str, given: str) -> bool:
    return hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogateescape"))


class WithHeaders:
    """Adds the security headers to every answer."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in given)]
            await send(message)

        await self.app(scope, receive, with_headers)


def own_address(host: str, port: int) -> Callable[[str], bool]:
    """Whether a value of Host is the server's own. `localhost` is another name of 127.0.0.1 and ::1.

    A server that listens on all addresses takes any number as an address, but no name: a page of a stranger can be
    reached under a name that leads here, never under our number.
    """
    names = {host.lower()} | ({"127.0.0.1", "::1", "localhost"} if host in LOCAL else set())

    def own(given: str) -> bool:
        name, _, number = given.rpartition(":")
        name = name.removeprefix("[").removesuffix("]")
        if number != str(port):
            return False
        return name in names or (host in EVERYWHERE and (name == "localhost" or _is_number(name)))

    return own


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def application(session: Session, own: Callable[[str], bool], port: int) -> ASGIApp:
    """The ASGI application of a session."""
    cookie = f"understudy-{port}"

    async def page(request: Request) -> Response:
        if request.url.path == "/" and "token" in request.query_params:
            answer: Response = RedirectResponse("/", 303)
            answer.set_cookie(cookie, session.store.token, httponly=True, samesite="strict", path="/")
            return answer
        file = files[request.url.path]
        return FileResponse(file, media_type=f"{KINDS[file.suffix]}; charset=utf-8")

    async def picture(request: Request) -> Response:
        clip, number = request.path_params["clip"], request.path_params["number"]
        if re.fullmatch("[0-9a-z-]{1,80}", clip) is None:
            return PlainTextResponse("no such clip\n", 404)
        try:
            found = await asyncio.wait_for(session.clips.get(clip), 30)
        except TimeoutError:
            return PlainTextResponse("still being drawn\n", 503, {"Retry-After": "1"})
        except Refused as refused:
            return PlainTextResponse(f"{refused}\n", 404)
        if number >= len(found.pictures):
            return PlainTextResponse("no such picture\n", 404)
        return Response(found.pictures[number], media_type="image/jpeg", headers={"Cache-Control": FOREVER})

    async def socket(websocket: WebSocket) -> None:
        await serve_client(session, websocket)

    files = {f"/{file.name}": file for file in sorted(PAGE.iterdir()) if file.suffix in KINDS}
    files["/"] = files.pop("/index.html")
    files["/report.css"] = REPORT_STYLE
    routes = [Route(path, page, methods=["GET"]) for path in files]
    routes.append(Route("/frames/{clip}/{number:int}", picture, methods=["GET"]))
    app = Starlette(routes=[*routes, WebSocketRoute("/socket", socket)])
    return WithHeaders(Guard(app, own, session.store.token, cookie))


async def serve_client(session: Session, websocket: WebSocket) -> None:
    """One connection, from its first message to its last."""
    if len(session.clients.all) >= MOST_CLIENTS or session.over.is_set():
        await websocket.close(1013)
        return
    await websocket.accept()
    client = session.clients.join(websocket)
    session.joined(client)
    sender = asyncio.create_task(client.pump())
    reader = asyncio.create_task(_read(session, websocket, client))
    over = asyncio.create_task(session.over.wait())
    try:
        await asyncio.wait((sender, reader, over), return_when=asyncio.FIRST_COMPLETED)
        if session.over.is_set():
            await asyncio.sleep(0.05)  # the answer to `end` is sent first
            await _close(websocket, 4000 if session.ended.by_person else 1001)
    finally:
        for task in (sender, reader, over):
            task.cancel()
        await session.left(client)


async def _read(session: Session, websocket: WebSocket, client: Client) -> None:
    """Read messages. Each is a task, so that `seen` does not wait for one that takes long; their order is kept."""
    tasks: set[asyncio.Task[None]] = set()
    while True:
        try:
            text = await websocket.receive_text()
        except (WebSocketDisconnect, RuntimeError):
            return
        except KeyError:  # a binary message
            await _close(websocket, 1003)
            return
        if len(text) > LONGEST_MESSAGE:
            await _close(websocket, 1009)
            return
        task = asyncio.create_task(session.handle(client, text))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(0)
        if client.errors >= MOST_ERRORS or client.full or len(tasks) > MOST_TASKS:
            await _close(websocket, 1008)
            return


async def _close(websocket: WebSocket, code: int) -> None:
    try:
        await websocket.close(code)
    except (RuntimeError, WebSocketDisconnect):  # it has been closed by the client
        return
