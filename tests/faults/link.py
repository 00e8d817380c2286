"""A TCP link that a fault can slow, stop, cut or refuse while it carries a job."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from tests.integration.proxy import Proxy

BASE_DELAY = 0.02  # seconds a piece takes each way: stretches rounds of milliseconds, so that a fault can hit one
BASE_RATE = 400_000.0  # bytes a second and connection
PIECE = 1 << 14


class Link(Proxy):
    """A proxy with knobs: `delay`, `rate`, `gate` (closed: nothing passes), `cut_next` (in the middle of a message), `shut`
    (closes the gate by itself: asked for every piece, so that nothing passes however late somebody looks)."""

    def __init__(self, target: str) -> None:
        self.delay, self.rate, self.cut_next = BASE_DELAY, BASE_RATE, False
        self.gate = threading.Event()
        self.gate.set()
        self.shut: Callable[[], bool] | None = None
        super().__init__(target)

    def refuse(self) -> None:
        """Cut what is open, and turn away whoever connects."""
        self.verdict = lambda _: "reset"
        self.cut()

    def accept(self) -> None:
        self.verdict = lambda _: "pass"

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(PIECE):
                time.sleep(self.delay + len(data) / self.rate)
                if self.shut is not None and self.shut():
                    self.gate.clear()
                self.gate.wait()
                if self.cut_next and counted and len(data) > 200:
                    self.cut_next = False
                    self.cuts += 1
                    sink.sendall(data[: len(data) // 2])
                    self.cut()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # a close alone says nothing while the other thread reads from it
                one.close()
