"""Logs for people and for machines: an event, its fields, and never a secret or a row."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.status import Status

FORMATS = ("text", "json")
_OTHERS = ("grpc", "asyncio", "concurrent.futures")  # what the libraries we run on may have to say


def say(logger: logging.Logger, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event with its fields."""
    logger.log(level, event, extra={"fields": fields})


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"time": time, "level": record.levelname.lower(), "part": record.name, "event": record.getMessage()}
        trouble = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(head | getattr(record, "fields", {}) | trouble, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = "".join(f"  {name}={_show(value)}" for name, value in getattr(record, "fields", {}).items())
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        trouble = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{time} {mark}{record.getMessage()}{fields}{trouble}"


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "–"
    return str(value)


def configure(style: str, quiet: bool, stream: TextIO | None = None) -> None:
    """Send the logs of `secfc*` and warnings of the libraries below to standard error; `quiet` keeps warnings and errors."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    for name in ("secfc", *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING if quiet or name in _OTHERS else logging.INFO)
    if style == "json":
        sys.excepthook = _uncaught


def for_machines() -> bool:
    """Whether logs are written as JSON."""
    return any(isinstance(handler.formatter, _Json) for handler in logging.getLogger("secfc").handlers)


def last_words(text: str, *, code: int, error: bool = True) -> None:
    """The line that a program ends with, on standard error: for a machine if its logs are, else for a person."""
    if for_machines():
        level = logging.ERROR if error else logging.WARNING
        say(logging.getLogger("secfc"), text, level=level, exit_code=code)
    else:
        sys.stderr.write(f"error: {text}\n" if error else f"{text}\n")
        sys.stderr.flush()


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("secfc").critical("an unexpected error", exc_info=(kind, error, trace))


def terminal(style: str, quiet: bool) -> AbstractContextManager[Status | None]:
    """A moving status line, where there is a terminal to move it on."""
    if quiet or style == "json" or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console  # takes longer to load than `secfc --help` to run

    return Console(stderr=True).status("starting")
