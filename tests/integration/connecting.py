"""A small HTTP proxy that only knows CONNECT, as hospitals have them."""

from __future__ import annotations

import contextlib
import socket
import threading


class ConnectProxy:
    """`asked`: where its clients wanted to be connected to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return f"http://{host}:{port}"

    def __enter__(self) -> ConnectProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = near.recv(1)
            if not byte:
                return near.close()
            head += byte
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.asked.append(f"{method} {target}")
        host, _, port = target.rpartition(":")
        try:
            far = socket.create_connection((host, int(port)), 5.0)
        except OSError:
            near.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return near.close()
        far.settimeout(None)
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with near, far:
            back = threading.Thread(target=_pump, args=(far, near), daemon=True)
            back.start()
            _pump(near, far)
            back.join()
        return None


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
