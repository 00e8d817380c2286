"""The server's part of the check that everybody's shares fit together (`secfc.verification`), as a machine of its own.

It lasts from the moment all coins are known until every client's contribution has been added up. Clients are numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secfc import events, verification
from secfc.coins import Coins
from secfc.errors import OutOfTurn
from secfc.field import Words
from secfc.plan import Plan
from secfc_server.contributions import Contributions


@dataclass(frozen=True)
class Comparison:
    """The heavy part, to be run on a thread."""

    plan: Plan
    names: Sequence[str]
    given: dict[int, Words]

    def run(self) -> None:
        """Raises JobFailed unless all shares fit together."""
        verification.verify(self.plan, self.names, [self.given[j] for j in range(len(self.names))])


class Verifying:
    """See the module's docstring."""

    def __init__(self, plan: Plan, names: Sequence[str], session: bytes, coins: Coins) -> None:
        self._plan, self._names = plan, names
        self._purpose = verification.purpose(plan, session, coins)
        self._contributions = Contributions(verification.layout(plan), len(names))
        self._busy = False

    def contribute(self, client: int, purpose: bytes, chunk: events.Chunk) -> int:
        """A piece of a client's contribution; returns how many words have arrived."""
        if self._busy or purpose != self._purpose:
            raise OutOfTurn("this sum is not due; follow the job for what is")
        return self._contributions.take(client, chunk)

    def contributed(self, client: int, purpose: bytes) -> int:
        """How many words of a client's contribution have arrived."""
        if self._busy or purpose != self._purpose:
            raise OutOfTurn("this sum is not due; follow the job for what is")
        return self._contributions.received(client)

    def missing(self) -> list[int]:
        """Whose contribution is not complete."""
        return self._contributions.missing()

    def take_work(self) -> Comparison | None:
        """The comparison, once every client's contribution is here; handed out once."""
        if self._busy or self.missing():
            return None
        self._busy = True
        return Comparison(self._plan, self._names, self._contributions.words())
