"""A TCP proxy that a test puts in front of a party: it lets through, cuts, refuses or swallows, also by who connects."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Proxy:
    """Listens on a port of its own and forwards to `target`.

    `verdict(source_port)` says what happens to a connection: "pass", "reset" or "swallow" (accepted, then silence).
    `cut_after` are totals of bytes towards the target; when one is reached, in the middle of whatever is being sent, all
    connections are reset, once. `carries`: how many bytes towards the target any one connection carries before it is reset.
    """

    def __init__(
        self,
        target: str,
        verdict: Callable[[int], str] | None = None,
        cut_after: list[int] | None = None,
        carries: int | None = None,
    ):
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.verdict = verdict or (lambda _: "pass")
        self._cut_after = sorted(cut_after or [])
        self._carries = carries
        self.cuts = 0
        self.turned_away = 0
        self._forwarded = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """Reset every connection, those swallowed too."""
        with self._lock:
            victims, self._open = self._open, set()
        for one in victims:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it
            one.close()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, (_, port) = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, port), daemon=True).start()

    def _serve(self, near: socket.socket, port: int) -> None:
        verdict = self.verdict(port)
        if verdict != "pass":
            self.turned_away += 1
        if verdict == "reset":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            near.close()
            return
        self._remember(near)
        if verdict == "swallow":
            return
        try:
            far = socket.create_connection(self._target, 5.0)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        self._remember(far)
        threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()
        self._pump(near, far, True)

    def _remember(self, one: socket.socket) -> None:
        with self._lock:
            self._open.add(one)

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        carried = 0
        try:
            while data := source.recv(1 << 14):
                carried += len(data)
                if counted and self._carries is not None and carried > self._carries:
                    self.cuts += 1
                    raise OSError
                if counted and self._reached(len(data)):
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

    def _reached(self, count: int) -> bool:
        with self._lock:
            self._forwarded += count
            if self._cut_after and self._forwarded >= self._cut_after[0]:
                self._cut_after.pop(0)
                return True
        return False


def owns(pid: int, port: int) -> bool:
    """Whether that process holds the loopback connection with this local port (Linux). gRPC dials from IPv6 sockets."""
    inodes = set()
    lines = [line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    for fields in map(str.split, lines):
        if int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(f"socket:[{fields[9]}]")
    try:
        return any(os.readlink(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
