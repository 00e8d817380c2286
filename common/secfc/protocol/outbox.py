"""Messages on their way, tried again until they are taken: the one retry of the system, as a machine without I/O.

A link makes one try at a message and says how it went. One that cannot get through is tried again after a pause that doubles;
where the receiver says that it is too early, soon; and what nobody wants any more is given up. Large parcels take turns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from secfc.errors import Malformed, OutOfTurn, SecfcError, Unavailable
from secfc.protocol.effects import Effects, Send
from secfc.protocol.parcels import Kind, Parcel

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
BULK_AT_ONCE = 2  # parcels of shares under way: bounds memory, and two already fill a link
AT_ONCE = 12  # messages under way to one receiver, which serves a few more (`net.exchange`); many runs have many to say
_REFUSALS = 5  # a receiver that has restarted may refuse a piece of what it is sent by two ways at once

Key = tuple[str, object]


@dataclass
class _Waiting:
    send: Send
    at: float
    pause: float = FIRST_PAUSE
    under_way: bool = False
    refusals: int = 0
    moved: float | None = None  # when it was first tried, or something of it last got through
    broken: str = field(default="")  # why it does not get through, as last told


class Outbox:
    """Everything a party has to say and nobody has taken yet. The same message posted again replaces the first."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: dict[Key, _Waiting] = {}
        self._links: dict[str, str] = {}

    def links(self) -> dict[str, str]:
        """Links that have broken since this was asked last, and why; with an empty reason, links that are back."""
        links, self._links = self._links, {}
        return links

    def post(self, send: Send, now: float, after: float = 0.0) -> None:
        """Send this as soon as can be."""
        key = _key(send)
        if key not in self._waiting or not self._waiting[key].under_way:
            self._waiting[key] = _Waiting(send, now + after)

    def cancel(self, unwanted: Callable[[Send], bool]) -> None:
        """Give up what nobody wants any more."""
        self._waiting = {key: one for key, one in self._waiting.items() if not unwanted(one.send)}

    def __contains__(self, send: Send) -> bool:
        return _key(send) in self._waiting

    def ready(self, now: float, out: Effects) -> None:
        """Hand out what is due."""
        due = [one for one in self._waiting.values() if not one.under_way and one.at <= now]
        if not due:
            return
        bulk = sum(one.under_way and _bulky(one.send) for one in self._waiting.values())
        under_way = Counter(one.send.to for one in self._waiting.values() if one.under_way)
        for one in due:
            if (_bulky(one.send) and bulk >= BULK_AT_ONCE) or under_way[one.send.to] >= AT_ONCE:
                continue
            under_way[one.send.to] += 1
            bulk += _bulky(one.send)
            one.under_way, one.moved = True, now if one.moved is None else one.moved
            out.send.append(one.send)

    def stuck(self, since: float) -> list[str]:
        """Who has taken nothing of our shares since then, however often they were tried."""
        waits = [one for one in self._waiting.values() if _bulky(one.send) and not one.under_way]
        return sorted({one.send.to for one in waits if one.moved is not None and one.moved < since})

    def sent(self, send: Send) -> bool:
        """A message was taken; False if it was given up before."""
        one = self._waiting.pop(_key(send), None)
        if one is None:
            return False
        if one.broken:
            self._links[send.to] = ""
        return True

    def unsent(self, send: Send, error: SecfcError, progressed: bool, now: float) -> SecfcError | None:
        """A try has failed. Returns the error if it is final and the message is given up. What was given up meanwhile may
        still be found malformed, which is a mistake of ours that must not pass unnoticed."""
        one = self._waiting.get(_key(send))
        if one is None:
            return error if isinstance(error, Malformed) and not _once_more(send) else None
        one.under_way = False
        if isinstance(error, Unavailable):
            if str(error) != one.broken:
                one.broken = str(error)
                self._links[send.to] = one.broken
            if progressed:  # a link that breaks often, but carries something in between
                one.pause, one.refusals, one.moved = FIRST_PAUSE, 0, now
            self._again(one, now)
        elif isinstance(error, OutOfTurn) and send.patient:
            one.pause = FIRST_PAUSE
            self._again(one, now)
        elif isinstance(error, Malformed) and one.refusals < _REFUSALS and _once_more(send):
            one.refusals += 1
            self._again(one, now)
        else:
            del self._waiting[_key(send)]
            return error
        return None

    def _again(self, one: _Waiting, now: float) -> None:
        one.at = now + one.pause * self._chance.uniform(0.7, 1.3)
        one.pause = min(2 * one.pause, LONGEST_PAUSE)


def _key(send: Send) -> Key:
    message = send.message
    return send.to, message if isinstance(message, Parcel) else (type(message), getattr(message, "peer", ""))


def _once_more(send: Send) -> bool:
    """Whether a receiver may refuse it and be right to take it later: a parcel to another client."""
    return send.patient and isinstance(send.message, Parcel)


def _bulky(send: Send) -> bool:
    return isinstance(send.message, Parcel) and send.message.kind is Kind.SHARES
