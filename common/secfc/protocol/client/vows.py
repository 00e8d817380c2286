"""Words of every client to every other one that nobody can choose after it has seen the others': first a commitment, and once
everybody's are here and noted on our disk, the words.

The exchange has a name, what it is about; a client that was told something else has another, which shows (`agreed`). A client
that restarts asks everybody once more, and says the same again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from secfc.coding.field import Layout, Words
from secfc.errors import Malformed, WrongSender
from secfc.framing import framed
from secfc.privacy import confirming
from secfc.protocol import parcels
from secfc.protocol.client.site import Desk
from secfc.protocol.effects import Send
from secfc.protocol.parcels import Kind, Parcel, Whole, of_words
from secfc.protocol.transfer import Gathered


class Vows:
    """One client's side. `name`: of the exchange; `words`: ours, in this layout; `kinds`: of commitments and of words."""

    def __init__(
        self, desk: Desk, session: bytes, name: bytes, words: Words, layout: Layout, kinds: tuple[Kind, Kind]
    ) -> None:
        self._commitments, self._opened = kinds
        self._desk, self._session, self.name, self._words, self._layout = desk, session, name, words, layout
        me = desk.site.index
        self._mine = confirming.commitment(me, session, name, words)
        self._committed = {me: self._mine}
        self._given = {me: words}
        self._sinks: dict[tuple[str, Kind], Gathered] = {}
        self.revealed = False  # whether our words may be seen

    def begin(self, now: float) -> None:
        for name in self.others:
            self.tell(name, now)
            if self._desk.resumed:
                parcel = Parcel(self._session, Kind.WANTED, self.name)
                self._desk.outbox.post(Send(name, parcel, Whole(b"")), now)

    @property
    def others(self) -> list[str]:
        site = self._desk.site
        return [name for name in site.federation.roster if name != site.name]

    def tell(self, name: str, now: float) -> None:
        """Our commitment, and once it is opened our words."""
        post = self._desk.outbox.post
        post(Send(name, Parcel(self._session, self._commitments, self.name), Whole(self._mine)), now)
        if self.revealed:
            post(Send(name, Parcel(self._session, self._opened, self.name), of_words(self._words)), now)

    def reveal(self, now: float) -> None:
        """Show our words. Pre-condition: `committed` is noted on our disk with what leaves."""
        self.revealed = True
        for name in self.others:
            self.tell(name, now)

    # --- taking ----------------------------------------------------------------------------------------------------------

    def sink(self, sender: str, parcel: Parcel) -> Gathered | None:
        sizes = {self._commitments: 32, self._opened: 8 * self._layout.words, Kind.WANTED: 0}
        if parcel.kind not in sizes:
            return None
        self._desk.site.peer(sender)
        if parcel.kind is Kind.WANTED and parcel.name != self.name:
            return None
        return self._sinks.setdefault((sender, parcel.kind), Gathered(sizes[parcel.kind]))

    def arrived(self, sender: str, parcel: Parcel, now: float) -> None:
        j, data = self._desk.site.peer(sender), self._sinks.pop((sender, parcel.kind)).data
        if parcel.kind is Kind.WANTED:
            self.tell(sender, now)
        elif parcel.kind is self._commitments:
            self._take_commitment(j, parcel.name, data)
        else:
            self._take_words(j, parcel.name, data)

    def _take_commitment(self, j: int, name: bytes, data: bytes) -> None:
        if len(data) != 32:
            raise Malformed("a commitment has 32 bytes")
        self._note(j, name, data, "a client commits itself twice, and not the same way")

    def _take_words(self, j: int, name: bytes, data: bytes) -> None:
        words = parcels.to_words(data)
        if len(words) != self._layout.words:
            raise Malformed(f"{self._layout.words} words are due from every client, not {len(words)}")
        self._layout.check(words, 0)
        said = confirming.commitment(j, self._session, name, words)
        self._note(j, name, said, "a client says this in another way than it has committed itself to")
        self._given[j] = words if name == self.name else words[:0]

    def _note(self, j: int, name: bytes, commitment: bytes, otherwise: str) -> None:
        said = hashlib.sha256(framed(name, commitment)).digest() if name != self.name else commitment
        if self._committed.setdefault(j, said) != said:
            raise WrongSender(otherwise)

    # --- reading ---------------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> list[int]:
        """Whose commitment, or once ours is opened whose words, we lack."""
        here = self._given if self.revealed else self._committed
        return [j for j in range(self._desk.site.federation.n) if j not in here]

    @property
    def committed(self) -> str:
        """Names everybody's commitments. Pre-condition: none is missing. Once an earlier process of ours has opened its own,
        others may have seen it, so the commitments must be those that it had."""
        found = (self._committed[j] for j in range(self._desk.site.federation.n))
        return hashlib.sha256(framed(*found)).hexdigest()

    @property
    def agreed(self) -> bool:
        """Whether everybody's words are about what ours are. Pre-condition: none are missing."""
        return all(len(words) for words in self._given.values())

    @property
    def given(self) -> Sequence[Words]:
        """Everybody's words, by roster. Pre-condition: all agree."""
        return [self._given[j] for j in range(self._desk.site.federation.n)]
