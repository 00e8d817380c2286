"""What the parties tell each other in one piece, as plain values; `net.wire` turns them into bytes and back.

What needs several pieces is a parcel (`parcels`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from secfc.framing import framed
from secfc.protocol.parcels import Data, Parcel

MAX_TEXT = 500


def line(text: str) -> str:
    """A peer's text for a person: one printable line, not too long."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT])


class Phase(Enum):
    """Where a job stands, for the server and for each client."""

    JOINING = "joining"
    AGREEING = "agreeing"
    SCALING = "scaling"
    UNION = "union"
    SHARING = "sharing"
    CHECKING = "checking"
    ROUNDS = "rounds"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Introduction:
    """A client's signed statement about itself."""

    name: str
    rows: int
    share_set: bytes
    x25519: bytes
    nonce: bytes
    commitment: bytes
    certificate: bytes = field(repr=False)
    signature: bytes = field(repr=False, default=b"")
    keeps: bool = False  # whether those who hold its shares may keep them for another job
    features: bytes = b""  # see `feature_digest`
    keeps_clusters: bool = False  # whether everybody may keep its share of the final clusters' sums, for later rows

    def statement(self, federation_digest: bytes) -> bytes:
        """What is signed. The first part keeps it apart from anything else the key may sign."""
        return framed(
            b"secfc/v1/introduction",
            federation_digest,
            self.name.encode(),
            b"%d" % self.rows,
            self.share_set,
            self.x25519,
            self.nonce,
            self.commitment,
            b"%d" % (self.keeps + 2 * self.keeps_clusters),
            self.features,
        )


@dataclass(frozen=True)
class Agreement:
    """A client's signature under the session: it takes part in this very job, now. Without all n of them nobody computes, so
    introductions of an earlier job are worth nothing when their owner is away."""

    name: str
    session: bytes
    certificate: bytes = field(repr=False)
    signature: bytes = field(repr=False, default=b"")

    def statement(self, federation_digest: bytes) -> bytes:
        """What is signed; see `Introduction.statement`."""
        return framed(b"secfc/v1/agreement", federation_digest, self.name.encode(), self.session)


Signed = Introduction | Agreement


def feature_digest(names: Sequence[str]) -> bytes:
    """Names the feature columns in their order: rows of clients that differ in it must not be compared with each other."""
    return hashlib.sha256(framed(b"secfc/v1/features", *(name.encode() for name in names))).digest()


def other_features(name: str, others: Sequence[str]) -> str:
    """What is wrong, and what to do, where clients' feature digests differ."""
    shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
    return (
        f"the feature columns of {name} and of {shown} differ in their names or their order; compare what `secfc check"
        ' --data` shows at these sites, and give the names to all: features = ["…", "…"] in federation.toml'
    )


def session(federation_digest: bytes, members: Sequence[Introduction]) -> bytes:
    """Names this job: a hash of everybody's statement, so that nobody alone chooses it and a lie changes it."""
    return hashlib.sha256(framed(b"secfc/v1/session", *(m.statement(federation_digest) for m in members))).digest()


def share_sets(members: Sequence[Introduction]) -> bytes:
    """Names all rows of a job: the same share sets in another job are the same rows."""
    return hashlib.sha256(framed(b"secfc/v1/share-sets", *(m.share_set for m in members))).digest()


def holdings(session_id: bytes, names: Sequence[bytes]) -> bytes:
    """What a client that holds everybody's shares reports; `names` are those of the share sets, in roster order."""
    return hashlib.sha256(framed(b"secfc/v1/held", session_id, *names)).digest()


def stage_id(share_set: bytes, context: bytes) -> bytes:
    """Names what a client shares in one stage of a job with private membership; see `count_context` and below."""
    return hashlib.sha256(framed(b"secfc/v1/stage", share_set, context)).digest()[:16]


def scaled_sets(share_sets: Sequence[bytes], scale: bytes) -> list[bytes]:
    """Names the share sets of rows that were scaled so: shares of rows that were not are refused by their name."""
    context = hashlib.sha256(framed(b"secfc/v1/scaled", scale)).digest()
    return [stage_id(one, context) for one in share_sets]


def count_context(session_id: bytes) -> bytes:
    """The first stage: how many rows there are. A table's context is its `union.TableShape.digest`."""
    return hashlib.sha256(framed(b"secfc/v1/count", session_id)).digest()


def slots_context(union_digest: bytes) -> bytes:
    """The last stage: rows in the slots of a finished union."""
    return hashlib.sha256(framed(b"secfc/v1/slots", union_digest)).digest()


@dataclass(frozen=True)
class Waiting:
    """Nothing to do yet: the phase, whom the server waits for, and which clients say that they cannot reach the one that is
    told."""

    phase: Phase
    missing: tuple[str, ...]
    unreachable_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Roster:
    """Everybody has joined; members in the order of the federation file."""

    members: tuple[Introduction, ...]


@dataclass(frozen=True)
class Agreements:
    """Everybody has signed the session: the signatures in roster order, and everybody's proof to this client that it has the
    X25519 key it introduced (`secfc.privacy.keys`; ours is empty)."""

    signatures: tuple[bytes, ...] = field(repr=False)
    proofs: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class Scale:
    """Everybody knows each feature's mean and deviation, the same by this digest: rows may be shared."""

    digest: bytes


@dataclass(frozen=True)
class Reveals:
    """Everybody's coin for the start, in roster order."""

    coins: tuple[bytes, ...]


@dataclass(frozen=True)
class RunRequest:
    """What a request asks of one run."""

    run: int
    columns: tuple[int, ...]
    assignment_digest: bytes
    detail: bytes = field(repr=False, default=b"")
    rows: bytes = field(repr=False, default=b"")


@dataclass(frozen=True)
class RoundRequest:
    """Distances wanted for the assignment of version `number`, of the run that is named and of others besides."""

    number: int
    attempt: int
    responders: tuple[int, ...]
    columns: tuple[int, ...]
    assignment_digest: bytes
    deadline_seconds: float
    detail: bytes = field(repr=False, default=b"")  # what the round kind says besides
    rows: bytes = field(repr=False, default=b"")  # which rows of the columns (`kmeans.rowsets`); empty: all of them
    past: bool = False  # it is over, and shown to a client that has not seen where the job began
    run: int = 0
    more: tuple[RunRequest, ...] = ()

    @property
    def by_run(self) -> dict[int, RoundRequest]:
        """The request as every run by itself sees it."""
        alone = replace(self, more=())
        return {self.run: alone} | {one.run: replace(alone, **vars(one)) for one in self.more}


@dataclass(frozen=True)
class Finished:
    """The assignment of that version is final; the rest is of the run that is chosen."""

    version: int
    rounds: int
    converged: bool
    inertia: float
    run: int = 0


@dataclass(frozen=True)
class Failed:
    """The job is over without a result; `again`: the same commands, started again, may go on with it."""

    reason: str
    again: bool = False


@dataclass(frozen=True)
class Piece:
    """A piece of a parcel that the server tells."""

    parcel: Parcel
    offset: int
    total: int
    data: Data = field(repr=False)


Event = Waiting | Roster | Agreements | Scale | Reveals | RoundRequest | Finished | Failed | Piece


@dataclass(frozen=True)
class Join:
    """A client introduces itself. `agreed` names federation and job; `instance` is random per process; `begun`: it has
    secrets that have served, so it comes to go on with a job and not to begin one. `committee`: whom it accepts there."""

    agreed: bytes
    instance: bytes
    introduction: Introduction
    begun: bool = False
    committee: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreed:
    """A client signs the session, and proves to every other client, in roster order, that it has the X25519 key it
    introduced."""

    signature: bytes = field(repr=False)
    proofs: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class Scaled:
    """A client knows each feature's mean and deviation over all sites; the digest tells nothing about them."""

    digest: bytes


@dataclass(frozen=True)
class Held:
    """A client holds a share of every row, and reveals its coin."""

    share_sets_digest: bytes
    sent_bytes: int
    received_bytes: int
    seconds: float
    coin: bytes = field(repr=False, default=b"")


@dataclass(frozen=True)
class Unreachable:
    """A client cannot deliver to another; an empty reason: the link is back."""

    peer: str
    reason: str


@dataclass(frozen=True)
class Done:
    """A client has written its labels."""


@dataclass(frozen=True)
class Stopped:
    """A client goes away on purpose, or cannot go on."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """A client's own policy does not allow what was asked; the reason names the rule. The job cannot go on."""

    reason: str


Report = Agreed | Scaled | Held | Unreachable | Done | Stopped | Refused
