"""What a round kind is: two halves that exchange as many messages as they need until the server has its answer.

The clustering above asks a question (`lloyd.Question`) and gets an assignment; it does not know the kind. A question is asked
as attempt 1, 2, … of some responders each, and every attempt is an `Exchange` of its own, at the server and at every
responder: what belongs to two attempts is never mixed. Messages are named by request, attempt and the kind's own words.

A kind derives from these classes and leaves alone what it has no use for; with one upload per responder, that is half of it.
Clients are numbers here, their positions in the roster. Halves know nothing of sockets, files, threads or clocks; heavy
computing is handed out (`due`, or what `ask` and `take` return to be run) and its result handed back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from secfc.agreement.plan import Plan
from secfc.coding.blocks import Blocks
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Frozen, Labels
from secfc.kmeans.lloyd import Answer, Question
from secfc.kmeans.seeding import DRAW_BITS
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Body
from secfc.protocol.transfer import Sink

SERVER = -1  # beside the clients' numbers


@dataclass(frozen=True)
class Lies:
    """What work finds instead of an answer: these clients' uploads are wrong."""

    clients: tuple[int, ...]


@dataclass(frozen=True)
class Void:
    """What work finds instead of an answer: these clients do not fit together, and the question is asked again."""

    clients: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Outgoing:
    """A message of an exchange: to a client, or to SERVER. `name` tells the exchange's messages apart; empty: its first."""

    to: int
    name: bytes
    body: Body = field(repr=False)


class ServerExchange(Protocol):
    """One attempt, as the server sees it."""

    def sink(self, client: int, name: bytes) -> Sink | None:
        """Where a message of a client goes; None if it is not due."""

    def arrived(self, client: int, name: bytes) -> None:
        """A message is here whole."""

    def missing(self) -> list[int]:
        """Whose messages are not here."""

    def told(self, client: int) -> Sequence[Outgoing | None]:
        """All that this client has to be told in this attempt so far, in order; None stands for what it has answered."""
        return ()

    def due(self) -> Callable[[], Any] | None:
        """Heavy computing that can begin now; handed out once."""

    def worked(self, result: Any) -> Answer | Lies | Void | None:
        """What it found; None if more is to come."""
        found: Answer | Lies | Void | None = result
        return found

    @property
    def upload_bytes(self) -> int:
        """What all responders send together."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The clusters whose columns are asked for."""

    @property
    def detail(self) -> bytes:
        """What the kind tells everybody besides, in the request."""
        return b""

    @property
    def rows(self) -> bytes:
        """Which rows of the columns are asked for (`kmeans.rowsets`); empty: all of them."""
        return b""

    @property
    def pairs(self) -> int:
        """How many distances of a row to a cluster are asked for."""


class ServerHalf(Protocol):
    """The server's half over all requests of a clustering."""

    def ask(
        self, question: Question, responders: tuple[int, ...], liars_left: int, attempt: int, quickest: Sequence[int]
    ) -> ServerExchange:
        """Begin an attempt; the one before it counts for nothing. `quickest`: the responders, those to rely on first."""

    def lost(self, client: int) -> bool:
        """A client has lost what it knew, or is not to be relied on: whether that ends what is asked now."""
        return False

    def whole(self) -> None:
        """What it would ask for next is too long to be said: ask for all rows."""

    @property
    def committee(self) -> tuple[int, ...]:
        """Clients that it would rather ask again."""
        return ()


class ClientExchange(Protocol):
    """One attempt, as a responder sees it."""

    def begin(self) -> Sequence[Outgoing]:
        """Its first messages (heavy). The same request gives the same bytes, or nothing if they are on their way."""

    def sink(self, sender: int, name: bytes) -> Sink | None:
        """Where a message of the server or of another responder goes; None if it is not due."""
        return None

    def take(self, sender: int, name: bytes) -> Sequence[Outgoing]:
        """A message is here whole: what follows from it (heavy)."""
        return ()

    def due(self) -> Callable[[], Sequence[Outgoing]] | None:
        """What can be computed besides, now that the first messages are on their way; handed out once."""
        return None


@dataclass(frozen=True, eq=False)
class Holding:
    """What a client brings to a round: who it is, the shares it holds, and what it has in common with each other client."""

    plan: Plan
    index: int
    session: bytes
    coded: Blocks
    pairs: Mapping[int, bytes] = field(repr=False)
    noted: bytes = b""  # what an earlier process had to note
    frozen: Frozen | None = None  # clusters of an earlier job, if rows are only assigned to those
    coins: Callable[[], Coins | None] = lambda: None  # of all draws; None if a job may begin anywhere


class ClientHalf(Protocol):
    """A client's half over all requests of a job."""

    def note(self, request: RoundRequest) -> bytes:
        """What must be on disk before a request is answered; nothing if nothing must."""
        return b""

    def answer(self, request: RoundRequest, labels: Labels) -> ClientExchange:
        """Begin to answer; raises Malformed for a request that no honest server makes."""


@dataclass(frozen=True)
class RoundKind:
    """A pair of halves. `server(plan, rows, session, before)`: what it numbers, it numbers above `before`.
    `shows_distances`: whether the server sees distances; `shows_segments`: those of every segment of a row."""

    server: Callable[[Plan, int, bytes, int], ServerHalf]
    client: Callable[[Holding], ClientHalf]
    shows_segments: bool
    shows_distances: bool = True
    opens_inertia: Callable[[RoundRequest], bool] = lambda _: False  # whether a request does, instead of giving labels
    empties: str = "furthest"  # the rule for empty clusters (`kmeans.empties`)
    members: Callable[[Plan], int] = lambda _: 0  # how many clients are on a committee
    draw_bits: Callable[[Plan], int] = lambda _: DRAW_BITS  # κ of a k-means++ draw
    committee: Callable[[Plan, RoundRequest], tuple[int, ...]] = (
        lambda _, __: ()
    )  # who, with the server, could see more
