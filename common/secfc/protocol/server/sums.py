"""One part of every client of a sum over all, as it arrives at the server. Clients are numbers here."""

from __future__ import annotations

from secfc.coding.field import Layout, Words
from secfc.protocol.transfer import GatheredWords


class Parts:
    """Words of n clients, checked residue by residue; handed out once, when nobody's are missing."""

    def __init__(self, layout: Layout, clients: int) -> None:
        self._layout, self._clients = layout, clients
        self._here: dict[int, GatheredWords] = {}
        self._taken = False

    def sink(self, client: int) -> GatheredWords | None:
        """Where a client's part goes; None once all were handed out."""
        return None if self._taken else self._here.setdefault(client, GatheredWords(self._layout))

    def missing(self) -> list[int]:
        """Whose part is not complete."""
        return [j for j in range(self._clients) if j not in self._here or not self._here[j].complete]

    def take(self) -> list[Words] | None:
        """All parts in order, once all are here."""
        if self._taken or self.missing():
            return None
        self._taken = True
        return [self._here[j].words for j in range(self._clients)]
