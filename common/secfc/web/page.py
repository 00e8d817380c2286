"""The HTTP side of a page: one document, its style and script, a stream of views, and metrics. Nothing is changed here but by
decisions of a person at a site that stays (`deciding`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import resources
from typing import Any

from aiohttp import web

from secfc.errors import Unavailable
from secfc.logs import say
from secfc.web import metrics
from secfc.web.deciding import Deciding
from secfc.web.door import COOKIE, Door
from secfc.web.guests import SILENT_SECONDS, Guests
from secfc.web.view import View

log = logging.getLogger("secfc.web")
PACE_SECONDS = 0.5  # between two views of a stream
BEAT_SECONDS = 1.0  # after which a stream says that it lives
MOST_STREAMS = 32
MOST_BODY = 4096
_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page:
    """Serves the views that `look` gives, until it is closed. `look` runs in the event loop, at most once per PACE_SECONDS
    for all streams together, and not at all if nobody looks."""

    def __init__(self, door: Door, look: Callable[[], View], deciding: Deciding | None = None) -> None:
        self._door, self._look, self._deciding = door, look, deciding
        self._closing = asyncio.Event()
        self._streams = 0
        self._drawn: tuple[float, bytes] = (-1.0, b"")
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._metrics = metrics.Exporter(look)

    async def open(self) -> None:
        """Listen; raises Unavailable if that cannot be."""
        app = web.Application(middlewares=[self._guarded], client_max_size=MOST_BODY)
        app.router.add_get("/", self._asset)
        app.router.add_get("/assets/{name}", self._asset)
        app.router.add_get("/view", self._view)
        app.router.add_get("/events", self._events, allow_head=False)
        app.router.add_get("/metrics", self._exported)
        if self._deciding is not None:
            app.router.add_post("/decide", partial(self._decided, self._deciding))
        quiet = logging.getLogger("secfc.web.http")
        quiet.setLevel(logging.CRITICAL)  # whatever a stranger sends is not worth a line
        limits: dict[str, Any] = {"shutdown_timeout": 0.5, "keepalive_timeout": SILENT_SECONDS, "lingering_time": 0.5}
        self._runner = web.AppRunner(app, access_log=None, logger=quiet, **limits)
        await self._runner.setup()
        make: Any = self._runner.server  # there once it is set up
        self._guests, door = Guests(make), self._door
        handshake = SILENT_SECONDS if door.tls else None
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._guests, door.host, door.port, ssl=door.tls, ssl_handshake_timeout=handshake
            )
        except OSError as error:
            await self._runner.cleanup()
            raise Unavailable(f"cannot listen on --web {door.host}:{door.port} ({error.strerror})") from None
        say(log, "page", url=self.url)

    @property
    def url(self) -> str:
        """Where the page is; with port 0, the one the system has chosen."""
        port = self._listener.sockets[0].getsockname()[1] if self._listener else self._door.port
        host = f"[{self._door.host}]" if ":" in self._door.host else self._door.host
        return f"http{'s' if self._door.tls else ''}://{host}:{port}/"

    async def close(self) -> None:
        """Streams get the last view, then everything ends."""
        self._closing.set()
        if self._runner is not None and self._listener is not None:
            await asyncio.sleep(0.05)
            self._listener.close()
            await self._runner.cleanup()

    # --- who and how ---------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every answer passes here: known hosts and guests only, and never more than a line about what is wrong."""
        self._guests.asked(request.transport)
        try:
            response = self._refusal(request) or await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("an internal error while answering a page's request")
            response = web.Response(status=500, text="internal error; the log says more\n")
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._door.knows(request.headers.get("Host", "")):
            return web.Response(status=421, text="this host name is not one of this party's; ask for its address\n")
        if self._door.tls is None:
            return None
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        shown = request.query.get("token", "")
        if not self._door.admits(certificate, bearer or shown or request.cookies.get(COOKIE, "")):
            text = "show a certificate of this federation, or the token that the log names the file of: ?token=…\n"
            return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
        if not shown:
            return None
        place = "/" + request.rel_url.raw_path.lstrip(
            "/\\"
        )  # as it was sent, and of this page: two slashes name a host
        answer = web.Response(status=303, headers={"Location": place})  # the token is in no history or referrer
        answer.set_cookie(COOKIE, shown, httponly=True, secure=True, samesite="Strict", max_age=86400)
        return answer

    # --- what ----------------------------------------------------------------------------------------------------------

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "page.html")
        if name not in _TYPES:
            raise web.HTTPNotFound
        body = resources.files("secfc.web").joinpath("assets", name).read_bytes()
        return web.Response(body=body, content_type=_TYPES[name], charset="utf-8")

    async def _view(self, request: web.Request) -> web.Response:
        return web.Response(body=self._current(), content_type="application/json")

    async def _exported(self, request: web.Request) -> web.Response:
        body, kind = self._metrics.render()
        return web.Response(body=body, headers={"Content-Type": kind})

    async def _decided(self, deciding: Deciding, request: web.Request) -> web.Response:
        scheme = "https" if self._door.tls else "http"
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                body = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        code, text = await deciding.asked(request.headers, scheme, body)
        if code == 200:
            self._drawn = (-1.0, b"")  # the next view shows it
        return web.Response(status=code, text=f"{text}\n")

    def _current(self) -> bytes:
        now = time.monotonic()
        if now - self._drawn[0] >= PACE_SECONDS or self._closing.is_set():
            self._drawn = now, self._look().to_json()
        return self._drawn[1]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= MOST_STREAMS:
            raise web.HTTPServiceUnavailable
        stream = web.StreamResponse(headers=_HEADERS | {"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        self._streams += 1
        try:
            await self._tell(stream)
        except ConnectionError:
            pass
        finally:
            self._streams -= 1
        return stream

    async def _tell(self, stream: web.StreamResponse) -> None:
        last, quiet = b"", 0.0
        await stream.write(b"retry: 700\n\n")
        while True:
            closing = self._closing.is_set()
            now, view = time.monotonic(), self._current()
            if view != last:
                await stream.write(b"data: " + view + b"\n\n")
                last, quiet = view, now
            elif now - quiet >= BEAT_SECONDS:
                await stream.write(b"event: beat\ndata: \n\n")
                quiet = now
            if closing:
                return
            try:
                await asyncio.wait_for(self._closing.wait(), PACE_SECONDS)
            except TimeoutError:
                continue
