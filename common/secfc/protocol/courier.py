"""A client's end of the relay: questions to other clients and their answers, in envelopes; a machine without I/O.

Everything that two clients say to each other is a question (a piece of a parcel; how much of it is there) and its answer.
What goes wrong on the way ends every question that is open between the two, and they begin again: a parcel goes on where
its receiver stands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from secfc.errors import SecfcError, Unavailable
from secfc.privacy.envelopes import Altered, Envelope, Lost, Pair, Sort, Stale

_NUMBER = struct.Struct(">Q")


@dataclass(frozen=True)
class Asked:
    """The peer asks, or hands over a piece. `generation` goes back with the answer."""

    peer: str
    number: int
    generation: bytes = field(repr=False)
    sort: Sort
    total: int
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Answered:
    """The peer's answer to a question of ours."""

    peer: str
    number: int
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Met:
    """From now on the peer can be asked."""

    peer: str


@dataclass(frozen=True)
class Broke:
    """All questions that were open to this peer are lost."""

    peer: str
    why: Unavailable


@dataclass(frozen=True)
class Noticed:
    """Something that no honest server does, unless a connection broke (`usual`)."""

    peer: str
    what: str
    usual: bool = False


Outcome = Asked | Answered | Met | Broke | Noticed


class Courier:
    """One connection to the relay, with all other clients of a session. What is to be carried piles up in `out`."""

    def __init__(self, me: str, session: bytes, secrets: Mapping[str, bytes], entropy: Callable[[int], bytes]) -> None:
        """`secrets`: by client, what we share with it (`secfc.privacy.keys`)."""
        self._pairs = {peer: Pair(secret, session, me, peer, entropy) for peer, secret in secrets.items()}
        self.out: list[Envelope] = [pair.hello() for pair in self._pairs.values()]

    def ready(self, peer: str) -> bool:
        return self._pairs[peer].trusted

    def greet(self, peer: str) -> None:
        """Try once more to meet a peer that is not ready."""
        self.out.append(self._pairs[peer].hello())

    def ask(self, peer: str, sort: Sort, total: int, content: bytes) -> int:
        """The number of the question. Pre-condition: the peer is ready."""
        envelope = self._pairs[peer].seal(sort, total, content)
        self.out.append(envelope)
        return envelope.number

    def answer(self, asked: Asked, content: bytes) -> None:
        pair = self._pairs[asked.peer]
        if pair.trusted and pair.generation == asked.generation:  # else its number means another question by now
            self.out.append(pair.seal(Sort.REPLY, 0, _NUMBER.pack(asked.number) + content))

    def give_up(self, peer: str, why: str) -> list[Outcome]:
        """Begin again with a peer that does not answer."""
        self.out.append(self._pairs[peer].restart())
        return [Broke(peer, Unavailable(why))]

    def away(self, peer: str) -> list[Outcome]:
        """The server says that the peer is not connected to it."""
        if peer not in self._pairs:
            return []
        self._pairs[peer].doubt()
        return [Broke(peer, Unavailable(f"{peer} is not connected to the server"))]

    def take(self, envelope: Envelope) -> list[Outcome]:
        """What the server says comes from a peer."""
        pair = self._pairs.get(envelope.peer)
        if pair is None:
            return [Noticed("the server", "it carries an envelope of somebody who is no other client of this session")]
        try:
            return self._greeted(pair, envelope) if envelope.sort is Sort.HELLO else self._opened(pair, envelope)
        except (Altered, Lost) as error:
            again = [] if envelope.sort is Sort.HELLO else self.give_up(pair.peer, f"on its way: {error}")
            return [Noticed(pair.peer, str(error)), *again]
        except Stale as error:
            self.out.append(pair.hello())  # else, if a hello was dropped, each would go on as the other does not expect
            return [Noticed(pair.peer, str(error), usual=True)]
        except SecfcError as error:  # not taken, and nothing is missing
            return [Noticed(pair.peer, str(error))]

    def _greeted(self, pair: Pair, hello: Envelope) -> list[Outcome]:
        begins, wants = pair.greeted(hello)
        if wants:
            self.out.append(pair.hello())
        why = Unavailable(f"{pair.peer} has connected to the server again")
        return [Broke(pair.peer, why), Met(pair.peer)] if begins else []

    def _opened(self, pair: Pair, envelope: Envelope) -> list[Outcome]:
        content = pair.open(envelope)
        if envelope.sort is not Sort.REPLY:
            number, total = envelope.number, envelope.total
            return [Asked(pair.peer, number, pair.generation, envelope.sort, total, content)]
        if len(content) < _NUMBER.size:
            return [Noticed(pair.peer, f"{pair.peer} has sealed an answer that is too short")]
        (number,) = _NUMBER.unpack_from(content)
        return [Answered(pair.peer, number, content[_NUMBER.size :])]
