"""Logs for people and for machines: an event, its fields, and never a secret or a row."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status

FORMATS = ("text", "json")


def say(logger: logging.Logger, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event with its fields."""
    logger.log(level, event, extra={"fields": fields})


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"time": time, "level": record.levelname.lower(), "part": record.name, "event": record.getMessage()}
        return json.dumps(head | getattr(record, "fields", {}), default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = "".join(f"  {name}={_show(value)}" for name, value in getattr(record, "fields", {}).items())
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{time} {mark}{record.getMessage()}{fields}"


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "–"
    return str(value)


def configure(style: str, quiet: bool, stream: TextIO | None = None) -> None:
    """Send the logs of `secfc*` to standard error; `quiet` keeps warnings and errors only."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    root = logging.getLogger("secfc")
    root.handlers = [handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)
    root.propagate = False


def terminal(style: str, quiet: bool) -> AbstractContextManager[Status | None]:
    """A moving status line, where there is a terminal to move it on."""
    if quiet or style == "json" or not sys.stderr.isatty():
        return nullcontext()
    return Console(stderr=True).status("starting")
