"""Where people at a site decide about jobs: a local socket of the node, for the account that runs it and nobody else.

One line of JSON is asked, one is answered: {"do": "list" | "approve" | "refuse", "job": …, "why": …, "who": …}. The socket is
in the state folder with mode 0600; it is not reachable from another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from secfc import limits
from secfc.errors import ConfigError, InvalidInput, JobFailed, Malformed, SecfcError, Unavailable

FILE = "node.sock"
_MOST_BYTES = 64 << 10
_SECONDS = 10.0
_LONGEST = 100  # bytes of a path that every kernel takes for a socket's name


@asynccontextmanager
async def opened(state: Path, answer: Callable[[dict[str, Any]], Awaitable[Any]]) -> AsyncIterator[None]:
    """The socket is there meanwhile; what `answer` raises on purpose is told in one line."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_SECONDS):
                reply = await _replied(await reader.readline(), answer)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        writer.close()

    path = state / FILE
    with limits.telling(f"{path}: cannot be made", "choose another --state"):
        path.unlink(missing_ok=True)  # of a process that was killed: the lock says that none is running
        own = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with _short(path) as name:
                own.bind(name)
        finally:
            os.umask(before)
    server = await asyncio.start_unix_server(serve, sock=own, limit=_MOST_BYTES)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _replied(line: bytes, answer: Callable[[dict[str, Any]], Awaitable[Any]]) -> dict[str, Any]:
    try:
        asked = json.loads(line)
        if not isinstance(asked, dict) or not all(isinstance(value, str) for value in asked.values()):
            raise Malformed("this is not a question")
        return {"answer": await answer(asked)}
    except SecfcError as error:
        return {"error": str(error), "usage": isinstance(error, InvalidInput)}
    except (ValueError, RecursionError):
        return {"error": "this is not a question", "usage": True}


def ask(state: Path, **asked: str) -> Any:
    """Ask the node that runs with this state folder."""
    path = state / FILE
    try:
        with socket.socket(socket.AF_UNIX) as own, _short(path) as name:
            own.settimeout(_SECONDS)
            own.connect(name)
            own.sendall(json.dumps(asked).encode() + b"\n")
            reply = json.loads(own.makefile("rb").readline(64 * _MOST_BYTES))
    except (FileNotFoundError, ConnectionRefusedError):
        raise Unavailable(
            f"{path}: no node is running with this state; start secfc-client, or give its --state"
        ) from None
    except PermissionError:
        raise ConfigError(
            f"{path}: belongs to another account; run this as the account that runs secfc-client"
        ) from None
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path}: the node does not answer ({error}); see its log") from None
    if "error" in reply:
        raise (InvalidInput if reply["usage"] else JobFailed)(reply["error"])
    return reply["answer"]


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of the socket that fits: kernels take about a hundred bytes."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
