"""The runs of a job in one exchange, whatever the kind of round: one half of it per run, and messages that find their run.

A request asks about every run that moves, with one attempt number and one set of responders for all, so in sealed rounds with
one committee. Each run's half has a session of its own, derived from the job's, so that masks, pads, keys and every other
stream of two runs differ without the kind knowing of runs. If one run's attempt comes to nothing, so does that of all.

A responder's first uploads travel together, one run's after the other's, as one parcel: a call costs more than most uploads.
Other messages carry the number of their run in front of their name. A job of one run adds no byte to either.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from secfc.errors import Malformed
from secfc.framing import framed
from secfc.protocol.rounds.kinds import Outgoing

_RUN = struct.Struct(">H")


def session_of(session: bytes, run: int) -> bytes:
    """What the streams of a run are bound to; of the first, and so of one that is alone, the session itself."""
    return hashlib.sha256(framed(b"secfc/v1/run", session, b"%d" % run)).digest() if run else session


class Names:
    """How a job's messages are named: with the run in front, if there are several."""

    def __init__(self, runs: int) -> None:
        self._several = runs > 1

    def named(self, run: int, one: Outgoing) -> Outgoing:
        return replace(one, name=_RUN.pack(run) + one.name) if self._several else one

    def run_of(self, name: bytes, known: Mapping[int, Any]) -> tuple[int, bytes]:
        """Which run a message is about, and its name there. Raises Malformed for one that is asked about nothing."""
        if not self._several:
            return next(iter(known)), name
        run = _RUN.unpack_from(name)[0] if len(name) >= _RUN.size else -1
        if run not in known:
            raise Malformed("a message is about a run that nothing is asked about")
        return run, name[_RUN.size :]
