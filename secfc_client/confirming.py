"""One client's part of confirming the union of IDs (`secfc.confirming`), as a machine: what it says, and who has answered.

It stays until the end of the job: a client that restarts asks everybody once more.
"""

from __future__ import annotations

import numpy as np

from secfc import confirming, events
from secfc.errors import Malformed, OutOfTurn, WrongSender


class Confirming:
    """`mine` is what we say, `rows` how many IDs the union has; clients are numbers here."""

    def __init__(self, me: int, clients: int, mine: events.Confirmed, rows: int) -> None:
        self.mine, self._rows, self._clients = mine, rows, clients
        self._given = {me: mine}

    def take(self, sender: int, given: events.Confirmed) -> None:
        """What another client says. Again is fine; something else is not, and changes nothing."""
        if given.session != self.mine.session:
            raise OutOfTurn("this belongs to another job")
        if len(given.words) != confirming.LAYOUT.words:
            raise Malformed(f"a confirmation has {confirming.LAYOUT.words} words, not {len(given.words)}")
        confirming.LAYOUT.check(given.words, 0)
        known = self._given.setdefault(sender, given)
        if known.digest != given.digest or not np.array_equal(known.words, given.words):
            raise WrongSender("a client confirms the list of row IDs twice, and not the same way")

    def missing(self) -> list[int]:
        """Who has not said anything yet."""
        return [j for j in range(self._clients) if j not in self._given]

    def agreed(self) -> bool:
        """Whether all go on; the same for every client that was told the same. Pre-condition: nobody is missing."""
        if self.missing():
            raise OutOfTurn("not all clients have confirmed the list of row IDs")
        return confirming.agree(self._rows, self.mine.digest, [self._given[j] for j in range(self._clients)])
