"""Decisions that a site's page takes: with a token that only whoever started the node has been shown, from that page alone.

A browser sends a page's cookies and certificates along with whatever other sites make it ask for, so they do not show that a
person meant it. Therefore a decision is JSON (which a form of another site cannot send), comes from our own origin as the
browser says, and has the token in it, which is in no cookie. The token is drawn at every start of the node.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from secfc import atomicfile, limits, logs
from secfc.errors import InvalidInput, SecfcError
from secfc.logs import say
from secfc.protocol.messages import line

log = logging.getLogger("secfc.web")
FILE = "decide.token"  # in the state folder
WRONG_SECONDS = 0.5  # that a wrong token costs, one after the other
_KEYS = {"token", "do", "job", "why", "who"}
_DIGEST_DIGITS = 64
Answer = tuple[int, str]  # status code, and a line for the person


class Deciding:
    """`decide(asked)` does what is asked: "do" is approve or refuse, "job" a digest in full."""

    def __init__(self, decide: Callable[[dict[str, str]], Awaitable[Any]], token: str) -> None:
        self._decide, self._token = decide, token
        self._wrong = asyncio.Lock()

    def __repr__(self) -> str:
        return "Deciding(…)"

    async def asked(self, headers: Mapping[str, str], scheme: str, body: bytes) -> Answer:
        """Do it, or say why not."""
        if not _own(headers, scheme):
            return 403, "decisions are taken from this page only, not from another site"
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "a decision is sent as JSON"
        if (asked := _parsed(body)) is None:
            return 400, "this is not a decision"
        if not hmac.compare_digest(_bare(asked.pop("token")), _bare(self._token)):
            async with self._wrong:
                await asyncio.sleep(WRONG_SECONDS)
            say(log, "a decision with a wrong token was refused", level=logging.WARNING, job=asked["job"][:16])
            return 403, f"the token is not the one in STATE/{FILE}, which is new at every start of the node"
        try:
            await self._decide(asked)
        except SecfcError as error:
            return 409 if not isinstance(error, InvalidInput) else 400, str(error)
        return 200, "approved" if asked["do"] == "approve" else "refused"


def token(state: Path) -> str:
    """A fresh token: in a file for the account that runs the node, and shown where a person looks on. Never in a log."""
    drawn = secrets.token_hex(10)
    shown = " ".join(drawn[i : i + 4] for i in range(0, len(drawn), 4))
    path = state / FILE
    with limits.telling(f"{path}: cannot be written", "choose another --state, or leave out --web"):
        atomicfile.write(path, [f"{shown}\n".encode()])
    if sys.stderr.isatty() and not logs.for_machines():
        sys.stderr.write(f"token for approving jobs in the page: {shown}\n")
        sys.stderr.flush()
    say(log, "jobs can be approved in the page with a token", token_file=path)
    return shown


def _own(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether the browser says that our own page asks. `Host` is one of our names, or an address: the door has checked."""
    same = headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
    return same and headers.get("Origin", "") == f"{scheme}://{headers.get('Host', '')}"


def _parsed(body: bytes) -> dict[str, str] | None:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict) or not {"token", "do", "job"} <= set(asked) <= _KEYS:
        return None
    if not all(isinstance(value, str) for value in asked.values()) or asked["do"] not in ("approve", "refuse"):
        return None
    asked = {key: line(value) for key, value in asked.items()}
    asked["job"] = _bare(asked["job"]).decode()
    return asked if len(asked["job"]) == _DIGEST_DIGITS else None


def _bare(text: str) -> bytes:
    """Without the spaces that help people to read it."""
    return "".join(text.split()).lower().encode(errors="replace")
