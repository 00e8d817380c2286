"""One client's part of confirming the union of IDs (`secfc.confirming`), as a machine: what it says, and who has answered.

First everybody's commitment is gathered; once it is `opened`, our words may be seen, and everybody's are gathered. It stays
until the end of the job: a client that restarts asks everybody once more.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from secfc import confirming, events
from secfc.errors import Malformed, OutOfTurn, WrongSender
from secfc.framing import framed

_UNSAID = np.empty(0, np.uint64)


class Confirming:
    """`whole` is what we say in the end, `rows` how many IDs the union has; clients are numbers here."""

    def __init__(self, me: int, clients: int, whole: events.Confirmed, rows: int) -> None:
        self._whole, self._rows, self._clients = whole, rows, clients
        self._committed = {me: whole.commitment}
        self._given = {me: whole}
        self.opened = False  # whether our words may be seen

    @property
    def mine(self) -> events.Confirmed:
        """What we say now."""
        return self._whole if self.opened else replace(self._whole, words=_UNSAID)

    def take(self, sender: int, given: events.Confirmed) -> None:
        """What another client says. Again is fine; something else is not, and changes nothing."""
        self._check(sender, given)
        if self._committed.get(sender, given.commitment) != given.commitment:
            raise WrongSender("a client confirms the list of row IDs twice, and not the same way")
        self._committed[sender] = given.commitment
        if len(given.words):
            self._given[sender] = given

    def _check(self, sender: int, given: events.Confirmed) -> None:
        if given.session != self._whole.session:
            raise OutOfTurn("this belongs to another job")
        if not len(given.words):
            return
        if len(given.words) != confirming.LAYOUT.words:
            raise Malformed(f"a confirmation has {confirming.LAYOUT.words} words, not {len(given.words)}")
        confirming.LAYOUT.check(given.words, 0)
        if confirming.commitment(sender, given.session, given.digest, given.words) != given.commitment:
            raise WrongSender("a client confirms the list of row IDs in another way than it has committed itself to")

    def missing(self) -> list[int]:
        """Who has not committed itself yet; once we have opened ours, who has not opened its own."""
        return [j for j in range(self._clients) if j not in (self._given if self.opened else self._committed)]

    def commitments(self) -> str:
        """Names everybody's commitments, in hexadecimal. Pre-condition: nobody's is missing."""
        if self.missing():
            raise OutOfTurn("not all clients have committed themselves on the list of row IDs")
        return hashlib.sha256(framed(*(self._committed[j] for j in range(self._clients)))).hexdigest()

    def agreed(self) -> bool:
        """Whether all go on; the same for every client that was told the same. Pre-condition: nobody is missing."""
        if not self.opened or self.missing():
            raise OutOfTurn("not all clients have confirmed the list of row IDs")
        return confirming.agree(self._rows, self._whole.digest, [self._given[j] for j in range(self._clients)])
