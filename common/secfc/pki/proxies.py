"""The HTTP proxy that gRPC goes through to a host, found by the same rules, and a plain connection through it."""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
from urllib.parse import unquote, urlsplit

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")  # what gRPC looks at, in its order
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
_MOST_BYTES = 16 << 10  # of a proxy's answer


class Proxied(OSError):
    """The proxy can be reached, and does not connect us."""


def named(host: str) -> tuple[str, str] | None:
    """The variable and the URL of the proxy for connections to this host, if there is one."""
    variable = next((name for name in VARIABLES if os.environ.get(name)), None)
    if variable is None or _excepted(host):
        return None
    return variable, os.environ[variable]


def _excepted(host: str) -> bool:
    listed = next((os.environ[name] for name in _EXCEPTIONS if os.environ.get(name)), "")
    return any(_covers(entry.strip(), host) for entry in listed.split(",") if entry.strip())


def _covers(entry: str, host: str) -> bool:
    """A suffix of a name, or a range of addresses."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return host.lower().endswith(entry.lower())


def place(url: str) -> tuple[str, int]:
    """Host and port of a proxy. Raises ValueError if the URL names none."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{parts.scheme}://… is not an http:// proxy")
    return parts.hostname, parts.port or 80


def connect(url: str, host: str, port: int, timeout: float) -> socket.socket:
    """A connection to host and port that the proxy makes for us (HTTP CONNECT). Raises OSError, Proxied if it refuses."""
    raw = socket.create_connection(place(url), timeout)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{_credentials(url)}\r\n".encode("latin-1"))
        status = _answer(raw).split(b"\r\n")[0].decode("latin-1", "replace")
        if status.split(" ")[1:2] != ["200"]:
            raise Proxied(f"the proxy answers {status[:80]!a}")
    except BaseException:
        raw.close()
        raise
    return raw


def _credentials(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


def _answer(raw: socket.socket) -> bytes:
    """Up to the empty line, and not a byte of what follows."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = raw.recv(1)
        if not byte or len(answer) > _MOST_BYTES:
            raise Proxied("the proxy does not speak HTTP")
        answer += byte
    return answer
