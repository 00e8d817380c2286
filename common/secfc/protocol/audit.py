"""The audit file's chain: what a line looks like, and what is wrong with a file whose lines do not fit together.

    {"before":"9f…","digest":"3a…","event":"request answered","number":17,"time":"2026-11-18T20:05:31Z", …}

A line is JSON in one spelling. `number` counts from 1, `before` is the digest of the line before it (zeros for the first),
`digest` that of everything else in the line, so the last digest, the head, stands for the whole file. What is changed, left
out or moved is found, and the first such line named.

A chain proves nothing against whoever may write the file and takes the trouble to make all later digests again, or leaves
out its last lines: both show only to those who have noted a head somewhere else (`noted`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from secfc.errors import InvalidInput
from secfc.framing import framed

MOST_BYTES = 1 << 20  # of a line
LEAST_DIGITS = 16  # of a head that somebody has noted
_PURPOSE = b"secfc/v1/audit"
_OWN = ("before", "digest", "event", "number", "time")


@dataclass(frozen=True)
class Head:
    """The last line of a file: its number and digest."""

    number: int = 0
    digest: str = "0" * 64

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


@dataclass(frozen=True)
class Found:
    """What was read of a file: where it ends, how often what happened, and what is wrong with it, if anything is."""

    head: Head
    events: Mapping[str, int] = field(default_factory=dict)
    first: str = ""  # time of the first line
    last: str = ""
    line: int = 0  # the first that is wrong, counted in the file from 1; 0: none
    fault: str = ""


def written(head: Head, event: str, fields: Mapping[str, Any], clock: float) -> tuple[bytes, Head]:
    """The line that follows `head`, with its end, and the head that it makes."""
    if wrong := [name for name in fields if name in _OWN]:
        raise ValueError(f"{wrong[0]} is the chain's own")
    time = f"{datetime.fromtimestamp(int(clock), UTC):%Y-%m-%dT%H:%M:%SZ}"
    plain = {**fields, "event": event, "number": head.number + 1, "time": time, "before": head.digest}
    digest = _digest(plain)
    return _spelt({**plain, "digest": digest}) + b"\n", Head(head.number + 1, digest)


def read(line: bytes) -> dict[str, Any] | None:
    """A line's content; None if it is not as `written` made it."""
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict) or len(line) > MOST_BYTES:
            return None
        texts = all(isinstance(fields[name], str) for name in _OWN if name != "number")
        if not texts or type(fields["number"]) is not int or _spelt(fields) != line.removesuffix(b"\n"):
            return None
        rest = {name: value for name, value in fields.items() if name != "digest"}
        return fields if fields["digest"] == _digest(rest) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def head_of(line: bytes) -> Head | None:
    """The head that a line makes; None if it is damaged."""
    fields = read(line)
    return None if fields is None else Head(fields["number"], fields["digest"])


def verified(lines: Iterable[bytes], expected: Head | None = None) -> Found:
    """Read a whole file, and stop at the first line that does not follow from the one before, or is not the one `expected`
    under its number."""
    head, events, first, last, place = Head(), dict[str, int](), "", "", 0
    rest = iter(lines)
    for place, line in enumerate(rest, 1):
        fields = read(line)
        fault = _fault(head, fields, line) or _unexpected(fields, expected)
        if fault:
            if fields is not None and fields["number"] > head.number + 1 and _comes(head.number + 1, rest):
                fault = f"lines are out of order: number {fields['number']} stands where {head.number + 1} should"
            return Found(head, events, first, last, place, fault)
        if fields is not None:
            head, first, last = Head(fields["number"], fields["digest"]), first or fields["time"], fields["time"]
            events[fields["event"]] = events.get(fields["event"], 0) + 1
    missing = "" if expected is None or expected.number <= head.number else _cut(head, expected)
    return Found(head, events, first, last, place + 1 if missing else 0, missing)


def _fault(head: Head, fields: Mapping[str, Any] | None, line: bytes) -> str:
    """Why a line cannot follow `head`; empty if it can."""
    if not line.endswith(b"\n"):
        return "it is not whole: the file was cut off, or a process was killed while it wrote"
    if fields is None:
        return "it was changed: its digest is not that of its content"
    due = head.number + 1
    if fields["number"] > due:
        which = f"line {due} is" if fields["number"] == due + 1 else f"lines {due} to {fields['number'] - 1} are"
        return f"{which} missing before it"
    if fields["number"] < due:
        return f"lines are out of order: number {fields['number']} comes again or too late, after {head.number}"
    if fields["before"] != head.digest:
        return "it does not follow from the line before it: one of the two was written again"
    return ""


def _unexpected(fields: Mapping[str, Any] | None, expected: Head | None) -> str:
    if fields is None or expected is None or fields["number"] != expected.number:
        return ""
    same = fields["digest"].startswith(expected.digest)
    return "" if same else "it is not the line that was noted: from here or from before on, the file was written again"


def _cut(head: Head, expected: Head) -> str:
    return f"it is missing: the file ends with line {head.number}, and line {expected.number} was noted"


def _comes(number: int, rest: Iterable[bytes]) -> bool:
    return any(fields is not None and fields["number"] == number for fields in map(read, rest))


def noted(text: str) -> Head:
    """A head as people have noted it: NUMBER:DIGEST, of which the first digits are enough."""
    number, sign, digits = text.strip().lower().partition(":")
    good = sign and number.isascii() and number.isdigit() and LEAST_DIGITS <= len(digits) <= 64
    if not good or len(number) > 12 or any(one not in "0123456789abcdef" for one in digits):
        raise InvalidInput(
            f"{text[:80]!a} is no head of an audit file; give NUMBER:DIGEST with at least {LEAST_DIGITS} digits, as"
            " secfc audit and the logs show it"
        )
    return Head(int(number), digits)


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(framed(_PURPOSE, _spelt(fields))).hexdigest()


def _spelt(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
