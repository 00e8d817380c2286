"""One exchange of shares among all clients, as one of them sees it: what it gives, what is due from whom, what has arrived.

A job has one such stage for its rows; with private membership, others before it. An owner's words are checked residue by
residue as they arrive, kept once they are complete, and used after that, exactly once: they may be added to a sum. The heavy
calls that use them run one at a time. Clients are numbers here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from secfc.coding.blocks import Packed, Spool
from secfc.coding.field import Layout, Words
from secfc.coding.sharing import Shares
from secfc.errors import Unavailable
from secfc.protocol.effects import Effects, Load, Put, PutSpool, Send, Work, Worked
from secfc.protocol.parcels import Data, Kind, Parcel, Whole, in_bytes, of_words, to_words
from secfc.protocol.transfer import GatheredWords, Here, Sink, SpooledWords


@dataclass(frozen=True)
class ShareBody:
    """Our shares for a client, made while they are sent: what nobody reads is not made."""

    shares: Shares = field(repr=False)
    receiver: int

    @property
    def total(self) -> int:
        return 8 * self.shares.layout.words

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        return in_bytes(self.shares.pieces(self.receiver, first // 8))


class Stage:
    """`names[j]` is client j, `ids[j]` names what it shares, `layouts[j]` says how its shares lie; `put` takes an owner's
    whole shares (heavy): words, or packed elsewhere. `lasting(j)`: whether j's shares may outlive the job here; `spool`:
    where they are gathered, if not in memory, by the key that they are kept under."""

    def __init__(
        self,
        me: int,
        names: Sequence[str],
        session: bytes,
        ids: Sequence[bytes],
        layouts: Sequence[Layout],
        shares: Shares,
        put: Callable[[int, Any], None],
        lasting: Callable[[int], bool] = lambda _: False,
        spool: Callable[[str], Spool] | None = None,
    ) -> None:
        self._me, self._names, self._session, self.ids = me, names, session, tuple(ids)
        self._layouts, self._shares, self._put, self._lasting = layouts, shares, put, lasting
        self._spool = spool
        self._arriving: dict[int, GatheredWords | SpooledWords] = {}
        self._queue: list[
            tuple[int, Words | Packed | None]
        ] = []  # complete, kept, not used yet; None: ours, not made yet
        self._busy = False
        self._held: set[int] = set()
        self._restoring: set[int] = set()  # whose shares are being looked for on our disk
        self._lacking: list[int] = []  # whose shares were not there
        self.received_bytes = 0

    @property
    def id(self) -> bytes:
        """Names what we share."""
        return self.ids[self._me]

    def missing(self) -> list[int]:
        """Whose shares we do not hold."""
        return [j for j in range(len(self.ids)) if j not in self._held]

    # --- giving ----------------------------------------------------------------------------------------------------------

    def outgoing(self, receiver: int) -> Send:
        """Our shares for a client."""
        body = ShareBody(self._shares, receiver)
        return Send(self._names[receiver], Parcel(self._session, Kind.SHARES, self.id), body)

    def begin(self, resumed: bool, out: Effects) -> list[Send]:
        """Our shares for everybody. `resumed`: an earlier process may have kept what others gave it."""
        others = [j for j in range(len(self.ids)) if j != self._me]
        if resumed:
            self._restoring = set(others)
            out.work += [Load(("kept", self.id, j), self._key(j)) for j in others]
        self._queue.append((self._me, None))
        self._use(out)
        return [self.outgoing(j) for j in others]

    def _key(self, owner: int) -> str:
        return f"{'lasting' if self._lasting(owner) else 'shares'}/{self._names[owner]}/{self.ids[owner].hex()}"

    # --- taking ----------------------------------------------------------------------------------------------------------

    def sink(self, owner: int, name: bytes) -> Sink | None:
        """Where an owner's shares go; None if it shares something else now."""
        if name != self.ids[owner] or owner == self._me:
            return None
        if owner in self._held or any(j == owner for j, _ in self._queue):
            return Here(8 * self._layouts[owner].words)
        if owner in self._restoring:  # what we may hold already need not be sent: its owner tries again in a moment
            return None
        if owner not in self._arriving:
            self._arriving[owner] = self._gathering(owner)
        return self._arriving[owner]

    def _gathering(self, owner: int) -> GatheredWords | SpooledWords:
        layout = self._layouts[owner]
        return GatheredWords(layout) if self._spool is None else SpooledWords(layout, self._spool(self._key(owner)))

    def arrived(self, owner: int, out: Effects) -> None:
        """An owner's shares are complete: to be kept, then used."""
        sink = self._arriving.pop(owner)
        self.received_bytes += sink.received
        if isinstance(sink, SpooledWords):
            out.keep.append(PutSpool(self._key(owner), spool=sink.words))
        else:
            out.keep.append(Put(self._key(owner), of_words(sink.words).data))
        self._queue.append((owner, sink.words))
        self._use(out)

    def _loaded(self, owner: int, value: bytes | Packed | None, out: Effects) -> Send | None:
        """What an earlier process kept of an owner's shares; if that is nothing of use, the owner is asked for them."""
        if owner in self._held or any(j == owner for j, _ in self._queue):
            return None
        if value is None or len(value) != 8 * self._layouts[owner].words:
            self._lacking.append(owner)
            wanted = Parcel(self._session, Kind.WANTED, self.ids[owner])
            return Send(self._names[owner], wanted, Whole(b""))
        self._arriving.pop(owner, None)
        self._queue.append((owner, to_words(value) if isinstance(value, bytes) else value))
        self._use(out)
        return None

    def _use(self, out: Effects) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        owner, words = self._queue[0]
        out.work.append(Work(("used", self.id, owner), lambda: self._run(owner, words)))

    def _run(self, owner: int, words: Words | Packed | None) -> None:
        """On a thread, and one at a time. Checks every residue."""
        self._put(owner, self._ours() if words is None else words)

    def _ours(self) -> Words | Packed:
        return self._shares.of(self._me) if self._spool else self._shares.shares([self._me])[0]

    def worked(self, given: Worked, out: Effects) -> Send | None:
        """Heavy work of this stage is done; returns what is to be asked for."""
        what, stage, owner = given.name
        if stage != self.id:
            return None
        if what == "kept":
            wanted = self._loaded(owner, given.result, out)
            self._restoring.discard(owner)
            if not self._restoring:
                out.say("resuming after a restart", lacking=[self._names[j] for j in sorted(self._lacking)])
            return wanted
        if given.error is not None:
            raise given.error
        self._held.add(owner)
        self._queue.pop(0)
        self._busy = False
        self._use(out)
        return None


class Patience:
    """A deadline that moves on as long as there is progress."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds, self._seen, self._since = seconds, -1, now

    def check(self, progress: int, now: float, whom: str) -> None:
        """Raise Unavailable if nothing has moved for too long. `progress` is any number that grows."""
        if progress != self._seen:
            self._seen, self._since = progress, now
        if now - self._since > self._seconds:
            raise Unavailable(f"{whom} for {self._seconds:.0f} s; start the same command again to go on")
