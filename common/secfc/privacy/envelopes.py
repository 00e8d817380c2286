"""Envelopes that two clients send each other through the server: sealed end to end, each of them once and in order.

The server carries them and sees their headers: who to whom, sort, number, total, length. It can delay and drop them. What it
alters, repeats, reorders, or puts in another's place does not open here, or opens and is out of order, and is named.

    key a → b   HKDF(pair key of a and b; salt session; info "relay", session, a, b, epoch of a, epoch of b)
    hello key   HKDF(pair key of a and b; salt session; info "relay-hello", session, a, b, epoch of a)
    sealed      AES-256-GCM(key; nonce number; associated data sort, number, total, a, b, both epochs; content)

The pair key (`keys`) is bound to the session, both names and both public keys of the signed introductions. An epoch is 32
random bytes that one end draws when it begins with the other, and again whenever something went wrong in between. So a key
serves one life of both ends: numbers begin at 1 under every key, no nonce is used twice, whoever restarts, and what was sent
in an earlier life does not pass for something new.

Both learn each other's epoch from hellos. Whoever shows our epoch in its own hello (`yours`) has made that hello after we
drew ours, so its epoch is no old one; only then is it trusted. `total` of a hello is 1 where an answer is wanted; who shows
another epoch than ours gets one too, for it does not know ours: both may have begun again at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secfc.errors import Malformed, OutOfTurn, SecfcError
from secfc.framing import framed
from secfc.privacy import keys

EPOCH_BYTES = 32
TAG_BYTES = 16


class Sort(Enum):
    """What an envelope holds."""

    HELLO = 1  # nothing; it shows epochs
    ASK = 2  # the name of a parcel: how much of it has arrived?
    PIECE = 3  # of a parcel, whose bytes are its total
    REPLY = 4  # to one of the two


@dataclass(frozen=True)
class Envelope:
    """`peer`: whom it is for; once it is carried, whom it is from. `ours` and `yours` are its sender's words."""

    peer: str
    sort: Sort
    number: int
    total: int
    ours: bytes
    yours: bytes
    sealed: bytes = field(repr=False)

    def bound(self, sender: str, receiver: str) -> bytes:
        """The associated data."""
        numbers = b"%d,%d,%d" % (self.sort.value, self.number, self.total)
        return framed(b"secfc/v1/envelope", numbers, sender.encode(), receiver.encode(), self.ours, self.yours)


class Altered(Malformed):
    """What came is not what the peer sealed for us."""


class Lost(SecfcError):
    """An envelope is missing before this one."""


class Repeated(OutOfTurn):
    """An envelope came a second time, or after a later one."""


class Stale(OutOfTurn):
    """The peer's, and whole, but of an earlier connection."""


class Pair:
    """What one client knows of its exchange with one other."""

    def __init__(self, secret: bytes, session: bytes, me: str, peer: str, entropy: Callable[[int], bytes]) -> None:
        """`secret`: the pair key of both; `entropy(size)`: random bytes."""
        self._secret, self._session, self._me, self.peer, self._entropy = secret, session, me, peer, entropy
        self._own, self._theirs = entropy(EPOCH_BYTES), b""
        self.trusted = False  # whether `theirs` is its epoch now
        self._over: set[bytes] = set()  # epochs of theirs that are over
        self._greeting = (b"", 0)  # its last hello
        self._hellos, self._sent, self._received = 0, 0, 0
        self._ciphers: dict[str, AESGCM] = {}  # by sender, under the epochs of now

    def __repr__(self) -> str:
        return f"Pair({self._me}, {self.peer})"

    @property
    def generation(self) -> bytes:
        """Changes whenever numbers begin again."""
        return self._own + self._theirs

    # --- sending ---------------------------------------------------------------------------------------------------------

    def restart(self) -> Envelope:
        """Begin again with an epoch of our own; the hello that says so."""
        self._own = self._entropy(EPOCH_BYTES)
        self._hellos = 0
        self._from_one()
        return self.hello()

    def doubt(self) -> None:
        """The peer has gone, or so we hear: it must show once more that it knows us."""
        self.restart()
        self.trusted = False

    def hello(self) -> Envelope:
        """Our epoch, and theirs as last heard, whether or not we trust it."""
        self._hellos += 1
        heard, _ = self._greeting
        wants = int(not self.trusted or heard != self._theirs)
        bare = Envelope(self.peer, Sort.HELLO, self._hellos, wants, self._own, heard, b"")
        return self._sealed(bare, self._hello_cipher(self._me, self.peer, self._own), b"")

    def seal(self, sort: Sort, total: int, content: bytes) -> Envelope:
        """Pre-condition: `trusted`."""
        self._sent += 1
        bare = Envelope(self.peer, sort, self._sent, total, self._own, self._theirs, b"")
        return self._sealed(bare, self._cipher(self._me, self.peer, self._own, self._theirs), content)

    def _sealed(self, bare: Envelope, cipher: AESGCM, content: bytes) -> Envelope:
        sealed = cipher.encrypt(_nonce(bare.number), content, bare.bound(self._me, self.peer))
        return replace(bare, sealed=sealed)

    # --- receiving -------------------------------------------------------------------------------------------------------

    def greeted(self, hello: Envelope) -> tuple[bool, bool]:
        """Take a hello: whether the peer begins again, and whether it wants an answer."""
        self._open(hello, self._hello_cipher(self.peer, self._me, hello.ours))
        epoch, number = self._greeting
        if hello.ours == epoch and hello.number <= number:
            raise Repeated(f"hello {hello.number} from {self.peer} came a second time")
        if hello.ours in self._over:
            raise Stale(f"a hello from {self.peer} is of an earlier connection")
        self._greeting = hello.ours, hello.number
        return self._meet(hello), bool(hello.total) or hello.yours != self._own

    def _meet(self, hello: Envelope) -> bool:
        if hello.yours != self._own:
            return False
        known = self.trusted and hello.ours == self._theirs
        if self._theirs != hello.ours:
            self._over.add(self._theirs)
            self._theirs = hello.ours
            self._from_one()
        self.trusted = True
        return not known

    def open(self, envelope: Envelope) -> bytes:
        """What the next envelope of the peer holds. Raises Altered, Lost, Repeated or Stale."""
        content = self._open(envelope, self._cipher(self.peer, self._me, envelope.ours, envelope.yours))
        if not self.trusted or (envelope.ours, envelope.yours) != (self._theirs, self._own):
            raise Stale(f"an envelope from {self.peer} is of an earlier connection")
        due = self._received + 1
        if envelope.number < due:
            raise Repeated(f"envelope {envelope.number} from {self.peer} came a second time, or after a later one")
        if envelope.number > due:
            what = f"envelope {due} from {self.peer} is missing where {envelope.number} came"
            raise Lost(f"{what}: the server has dropped it, or changed the order")
        self._received = due
        return content

    def _open(self, envelope: Envelope, cipher: AESGCM) -> bytes:
        try:
            return cipher.decrypt(_nonce(envelope.number), envelope.sealed, envelope.bound(self.peer, self._me))
        except InvalidTag:
            raise Altered(
                f"what the server says is envelope {envelope.number} from {self.peer} is not what {self.peer} sealed for us: "
                "altered, or put in another's place"
            ) from None

    # --- keys ------------------------------------------------------------------------------------------------------------

    def _from_one(self) -> None:
        self._sent = self._received = 0
        self._ciphers = {}

    def _hello_cipher(self, sender: str, receiver: str, epoch: bytes) -> AESGCM:
        return self._derived(b"relay-hello", sender, receiver, epoch)

    def _cipher(self, sender: str, receiver: str, epoch: bytes, other: bytes) -> AESGCM:
        now = (self._own, self._theirs) if sender == self._me else (self._theirs, self._own)
        if (epoch, other) != now:
            return self._derived(b"relay", sender, receiver, epoch, other)
        if sender not in self._ciphers:
            self._ciphers[sender] = self._derived(b"relay", sender, receiver, epoch, other)
        return self._ciphers[sender]

    def _derived(self, purpose: bytes, sender: str, receiver: str, *epochs: bytes) -> AESGCM:
        return AESGCM(keys.derive(self._secret, self._session, purpose, sender.encode(), receiver.encode(), *epochs))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
