"""A committee member's end of the steps (docs/sealed.md, Section 3).

Zero-shares are a chain that begins at the chunk's last member: the member d places after it adds z_d and subtracts z_{d+1},
with z₀ = z_{t+1} = 0. Any t messages are then uniform, and the last member, which has to wait for dealt data, has the least
to make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.errors import Malformed
from secfc.privacy.sealed import sides, steps
from secfc.privacy.sealed.context import Line, Purse
from secfc.privacy.sealed.messages import SERVER, Kind, Talk, Wait, known
from secfc.privacy.sealed.sides import Side, Values
from secfc.privacy.sealed.steps import Counts, Crossings, Digits
from secfc.privacy.sealed.streams import (
    Bytes,
    Keystream,
    Residues32,
    SmallStream,
    add_residues,
    below,
    coins,
    residues,
)
from secfc.privacy.sealed.terms import Pairs, Terms

_EMPTY: Bytes = np.empty(0, dtype=np.uint8)


class _Zeros:
    """A member's zero-share of a step as what it adds and what it subtracts, read in order."""

    def __init__(self, plus: bytes | None, minus: bytes | None) -> None:
        self._plus = None if plus is None else SmallStream(plus)
        self._minus = None if minus is None else SmallStream(minus)

    def read(self, count: int) -> tuple[Bytes, Bytes]:
        plus = _EMPTY if self._plus is None else self._plus.read(count)
        return plus, _EMPTY if self._minus is None else self._minus.read(count)


class Comparer(Side):
    """Member `place` in one conversation; `committee` holds K, `seed` what it shares with the server."""

    serves = False

    def __init__(self, terms: Terms, line: Line, request: int, place: int, committee: Purse, seed: Purse) -> None:
        super().__init__(terms, line, request)
        self.place, self._committee, self._seed = place, committee, seed
        self._is_last, self._is_first = place == self.last, place == 0
        self._link = (place - self.last) % terms.members
        self._pad = b""  # the key of the latest fresh Y′

    def _key(self, purpose: str) -> bytes:
        return self._committee.key(purpose, self.line.context, self.line.stage, self.line.chunk, self.line.step)

    def _share(self, purpose: str) -> bytes:
        return self._seed.key(purpose, self.line.context, self.line.stage, self.line.chunk, self.line.step)

    def _chain(self, purpose: str) -> tuple[bytes | None, bytes | None]:
        """The keys of what this member adds and subtracts for its zero-share."""
        plus = self._key(f"{purpose}/{self._link}") if self._link else None
        ends = self._link == self.terms.members - 1
        return plus, None if ends else self._key(f"{purpose}/{self._link + 1}")

    def compare(self, parts: Sequence[Digits]) -> Talk[Bytes]:
        self.line.next()
        if not sum(len(part) for part in parts):
            return _EMPTY
        dealt = None
        if self._is_last:
            size = sum(len(part) * self.terms.thresholds(part.lanes) for part in parts)
            [dealt] = yield Wait(Kind.DIGITS, (SERVER,), size, self.terms.small)
        direction = coins(self._key("dir"), sum(len(part) for part in parts))
        self.say(SERVER, Kind.TEST, self._answer(parts, dealt, direction))
        return np.asarray(direction ^ np.concatenate([part.parity for part in parts]))

    def _answer(self, parts: Sequence[Digits], dealt: Bytes | None, direction: Bytes) -> Bytes:
        shares = _Given(dealt) if dealt is not None else SmallStream(self._share("digits"))
        factors, zeros = SmallStream(self._key("factor"), nonzero=True), _Zeros(*self._chain("zero"))
        out = np.empty(sum(len(part) * self.terms.places(part.lanes) for part in parts), dtype=np.uint8)
        done = at = 0
        for number, part in enumerate(parts):
            turn = below(self._key(f"turn/{number}"), self.terms.places(part.lanes), len(part))
            width, places = self.terms.thresholds(part.lanes), self.terms.places(part.lanes)
            for first, end in sides.blocks(len(part), width + 3 * places):
                some, n = part.part(first, end), end - first
                share, factor, zero = shares.read(n * width), factors.read(n * places), zeros.read(n * places)
                way, off, to = direction[done : done + n], turn[first:end], out[at : at + n * places]
                steps.answer_tests(self.terms, some, share, factor, zero, way, off, self._is_first, to)
                done, at = done + n, at + n * places
        return out

    def zero(self, bits: Bytes, tests: Counts) -> Talk[npt.NDArray[np.bool_] | None]:
        self.line.next()
        if not tests.count:
            return None
        if self._is_last:
            [shares] = yield Wait(Kind.BITS, (SERVER,), len(bits), self.terms.small)
        else:
            shares = SmallStream(self._share("bits")).read(len(bits))
        factors = SmallStream(self._key("count-factor"), nonzero=True).read(tests.count)
        zero = _Zeros(*self._chain("count-zero")).read(tests.count)
        message = steps.answer_counts(self.terms.small, shares, bits, tests, factors, zero, self._is_first)
        self.say(SERVER, Kind.COUNTS, message)
        return None

    def select(self, field: Field, bits: Bytes, values: Residues32) -> Talk[Residues32]:
        self.line.next()
        count = len(values)
        if not count:
            return values
        dealt = yield from self._dealt(field, 3 * count)
        pad, zero = self._fresh(field, count)
        message = steps.answer_selection(
            field, values, bits, dealt.reshape(count, 3, field.lanes), pad, zero, self._is_first
        )
        self.say(SERVER, Kind.SELECTED, sides.pack(field, message))
        return pad

    def again(self, field: Field, chosen: Residues32) -> Callable[[], Residues32]:
        key, count = self._pad, len(chosen)
        return lambda: residues(key, field, count)

    def _dealt(self, field: Field, count: int) -> Talk[Residues32]:
        """This member's share of dealt residues (count, l)."""
        if not self._is_last:
            return residues(self._share("select"), field, count)
        [data] = yield Wait(Kind.SELECT, (SERVER,), sides.packed_size(field, count))
        return sides.unpack(field, data, count)

    def _fresh(self, field: Field, count: int) -> tuple[Residues32, Residues32]:
        """The fresh Y′ of `count` values, and this member's zero-share."""
        plus, minus = self._chain("select-zero")
        signed = [(key, sign) for key, sign in ((plus, 1), (minus, -1)) if key is not None]
        zero = add_residues(np.zeros((count, field.lanes), dtype=np.uint32), signed, field)
        self._pad = self._key("select-pad")
        return residues(self._pad, field, count), zero

    def turns(self, size: int, count: int) -> Bytes | None:
        self.line.next()
        return below(self._key("group-turn"), size, count)

    def pick(self, field: Field, pairs: Pairs, crossings: Crossings, own: Values, at: Bytes) -> Talk[Residues32]:
        self.line.next()
        count, width = len(crossings.rows), crossings.one.shape[1]
        if not count:
            return np.empty((0, field.lanes), dtype=np.uint32)
        forms = crossings.forms(field, pairs, own)
        dealt = (yield from self._dealt(field, 2 * width**2 * count)).reshape(count, 2, width**2, field.lanes)
        pad, zero = self._fresh(field, count)
        turns = at.astype(np.int32)
        message = steps.answer_pick(field, forms, turns, crossings.sizes, dealt, pad, zero, self._is_first)
        self.say(SERVER, Kind.SELECTED, sides.pack(field, message))
        return pad

    def winning_turns(self, winners: Bytes | None, turns: Bytes | None, count: int) -> Talk[Bytes | None]:
        self.line.next()
        if not self._is_first:
            return None
        mine = known(turns)
        [won] = yield Wait(Kind.WINNERS, (SERVER,), count, mine.shape[1])
        self.say(SERVER, Kind.TURNS, mine[np.arange(count), won])
        return None

    def tell(self, told: Bytes | None, size: int, below: int = 256) -> Talk[Bytes]:
        self.line.next()
        [data] = yield Wait(Kind.TOLD, (SERVER,), size, below)
        self.line.bind(sides.digest(data))
        return data

    def reveal(self, bits: Bytes) -> Talk[npt.NDArray[np.bool_] | None]:
        yield from ()
        self.line.next()
        if self._is_first:
            self.say(SERVER, Kind.BETA, sides.pack_bits(bits))
        return None

    def blur(self, bits: int) -> int:
        self.line.next()
        data = Keystream(self._key("blur")).read(-(-bits // 8)).tobytes()
        return int.from_bytes(data, "big") >> -bits % 8

    def open(self, field: Field, values: Residues32) -> Talk[Residues32 | None]:
        yield from ()
        self.line.next()
        if self._is_first:
            self.say(SERVER, Kind.VALUE, sides.pack(field, values))
        return None


class _Given:
    """Dealt shares, read in order like a stream."""

    def __init__(self, data: Bytes) -> None:
        self._data, self._at = data, 0

    def read(self, count: int) -> Bytes:
        self._at += count
        if self._at > len(self._data):
            raise Malformed("fewer shares were dealt than the step needs")
        return self._data[self._at - count : self._at]
