"""What the server of a job with sealed rounds holds, and what it holds if one member of the committee helps it.

A `Transcript` whose distances are what an adversary has in their place: the sum of the uploads, which is d′ less the pad
(−ρ of docs/sealed.md), or with `member` the same once a member has put its pad Y back. So every attack on masked uploads can
be tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from experiments.recovery import crt
from experiments.transcript import Insider, Integers, Transcript
from secfc.agreement import plan
from secfc.kmeans.decoding import Decoder
from secfc.privacy.sealed import member
from secfc.privacy.sealed.context import Context, Purse, pad_key
from secfc.privacy.sealed.questions import Asked, Seed, places
from secfc.protocol.effects import Send
from secfc.protocol.memory import Memory
from secfc.protocol.parcels import Kind, Parcel, Whole, attempt_name
from secfc.protocol.rounds import sealing
from secfc.protocol.server.attempt import Attempt

_HEAD = len(attempt_name(0, 0))


@dataclass
class Seen:
    """One request: what was asked, what its streams are bound to, what members said, and the key that they share."""

    question: Asked
    context: Context
    messages: list[tuple[str, bytes, bytes]] = field(default_factory=list)  # sender, name, data
    key: bytes = field(default=b"", repr=False)  # a member's; the server never has it


class SealedTranscript(Transcript):
    """See the module's docstring. The insider, client 0, is on the committee: it is the lowest responder."""

    def __init__(self, agreed: plan.Plan, rows: Integers, insider: Insider) -> None:
        super().__init__(agreed, rows, insider)
        self.member = False  # whether the insider helps with what it knows as a member
        self.seen: list[Seen] = []
        self._terms = agreed.sealed(len(rows))

    def asked(self, memory: Memory, attempt: Attempt) -> None:
        super().asked(memory, attempt)
        asked, session = attempt.question, memory.clients[memory.federation.roster[0]].session
        [told] = attempt.exchange.requests(attempt.digests)
        detail = sealing.Detail.from_bytes(told.detail)
        question = detail.questions(asked.labels, told.columns, self._terms, self.plan.candidates)[-1]
        name = (detail, *attempt.name, attempt.responders, question, len(self.rows))
        self.seen.append(Seen(question, sealing.context_of(self.plan, session, *name)))

    def sent(self, memory: Memory, sender: str, send: Send) -> Send:
        if isinstance(send.message, Parcel) and send.message.kind is Kind.STEP and isinstance(send.body, Whole):
            self.seen[-1].messages.append((sender, send.message.name[_HEAD:], bytes(send.body.data)))
        if self.seen and sender == memory.federation.roster[self.insider.index]:
            rounds = getattr(memory.clients[sender]._phase, "_half", None)
            membership = getattr(rounds._halves[0], "_membership", None) if rounds is not None else None
            self.seen[-1].key = membership.key if membership is not None else self.seen[-1].key
        return super().sent(memory, sender, send)

    def integers(self, step: int) -> npt.NDArray[np.object_]:
        """What stands for d′ (m, columns): the sums of the uploads, with the pad or without it."""
        request, seen = self.requests[step], self.seen[step]
        shape, responders = seen.question.shape(self._terms), tuple(self.uploads[step])
        if not request.columns:
            return np.empty((len(self.rows), 0), dtype=object)
        decoder = Decoder(shape, responders, None)
        for j, words in self.uploads[step].items():
            decoder.add(j, 0, words)
        sums = decoder.sums(0, len(self.rows)).astype(np.int64)
        if self.member:
            pad = member.Pad(pad_key(Purse(seen.key, seen.context.session), seen.context), shape)
            sums = sums + member._stream(pad, 0, len(self.rows))
        wanted = (0,) if isinstance(seen.question, Seed) else request.columns
        return np.stack([self._column(sums, *places(shape), h) for h in wanted], axis=1)

    def _column(self, sums: Integers, columns: Integers, lanes: Integers, wanted: int) -> npt.NDArray[np.object_]:
        at = np.flatnonzero(columns == wanted)
        primes = tuple(self.plan.field.primes[lane] for lane in lanes[at])
        return crt([sums[:, place] % p for place, p in zip(at, primes, strict=True)], primes)
