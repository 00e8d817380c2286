"""The server's end of the steps: dealer of its shares and referee of the members' answers (docs/sealed.md, Section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.errors import JobFailed
from secfc.privacy.sealed import sides, steps
from secfc.privacy.sealed.context import Line, Purse
from secfc.privacy.sealed.messages import Kind, Talk, Wait, known, octets
from secfc.privacy.sealed.sides import Side, Values
from secfc.privacy.sealed.steps import Counts, Crossings, Digits
from secfc.privacy.sealed.streams import SLACK, Bytes, Residues32, SmallStream, add_residues
from secfc.privacy.sealed.terms import Pairs, Terms


class Referee(Side):
    """The server in one conversation; `seeds[j]` is what it shares with member j."""

    serves = True

    def __init__(self, terms: Terms, line: Line, request: int, seeds: Sequence[Purse]) -> None:
        super().__init__(terms, line, request)
        self._seeds = seeds
        self._all = tuple(range(terms.members))

    def _keys(self, purpose: str) -> list[bytes]:
        """The keys of the streams that all members but the last take for their shares."""
        at = self.line.context, self.line.stage, self.line.chunk, self.line.step
        return [seed.key(purpose, *at) for j, seed in enumerate(self._seeds) if j != self.last]

    def compare(self, parts: Sequence[Digits]) -> Talk[Bytes]:
        self.line.next()
        total = sum(len(part) for part in parts)
        if not total:
            return np.empty(0, dtype=np.uint8)
        self.say(self.last, Kind.DIGITS, self._deal(parts))
        size = sum(len(part) * self.terms.places(part.lanes) for part in parts)
        messages = yield Wait(Kind.TEST, self._all, size, self.terms.small)
        out, done = [], 0
        for part in parts:
            out.append(self._zeros(part, done, messages) ^ part.parity)
            done += len(part) * self.terms.places(part.lanes)
        return np.concatenate(out)

    def _zeros(self, part: Digits, done: int, messages: Sequence[Bytes]) -> Bytes:
        """Which comparisons of a part, whose tests begin at `done`, show a zero."""
        places = self.terms.places(part.lanes)
        out = np.empty(len(part), dtype=np.uint8)
        for first, end in sides.blocks(len(part), len(messages) * places):
            here = slice(done + first * places, done + end * places)
            mine = np.stack([message[here] for message in messages])
            if steps.find_zeros(self.terms, mine, part.lanes, out[first:end]) > 1:
                raise JobFailed("a comparison shows two zeros, so a member computes wrongly; start a new job")
        return out

    def _deal(self, parts: Sequence[Digits]) -> Bytes:
        streams = [SmallStream(key) for key in self._keys("digits")]
        widths = [self.terms.thresholds(part.lanes) for part in parts]
        out = np.empty(sum(len(part) * width for part, width in zip(parts, widths, strict=True)), dtype=np.uint8)
        done, shares = 0, np.empty((len(streams), 0), dtype=np.uint8)
        for part, width in zip(parts, widths, strict=True):
            for first, end in sides.blocks(len(part), len(streams) * width):
                size = (end - first) * width
                if shares.shape[1] < size + SLACK:
                    shares = np.empty((len(streams), size + SLACK), dtype=np.uint8)
                for stream, share in zip(streams, shares, strict=True):
                    stream.read(size, share)
                steps.deal_digits(self.terms, part.part(first, end), shares, out[done : done + size])
                done += size
        return out

    def zero(self, bits: Bytes, tests: Counts) -> Talk[npt.NDArray[np.bool_] | None]:
        self.line.next()
        if not tests.count:
            return np.empty(0, dtype=np.bool_)
        streams = [SmallStream(key).read(len(bits)) for key in self._keys("bits")]  # each has memory of its own
        self.say(self.last, Kind.BITS, steps.deal_bits(self.terms.small, bits, streams))
        messages = yield Wait(Kind.COUNTS, self._all, tests.count, self.terms.small)
        total = np.zeros(tests.count, dtype=np.int64)
        for message in messages:
            total += message
        return np.asarray(total % self.terms.small == 0)

    def select(self, field: Field, bits: Bytes, values: Residues32) -> Talk[Residues32]:
        self.line.next()
        dealt = steps.selection(field, bits, values)
        return (yield from self._resharing(field, dealt, len(values)))

    def again(self, field: Field, chosen: Residues32) -> Callable[[], Residues32]:
        return lambda: chosen

    def _resharing(self, field: Field, dealt: Values, count: int) -> Talk[Residues32]:
        """Deal residues, and take the negated sum of the answers for the fresh ρ′."""
        if not count:
            return np.empty((0, field.lanes), dtype=np.uint32)
        flat = dealt.reshape(-1, field.lanes)
        self.say(self.last, Kind.SELECT, sides.pack(field, add_residues(flat, self._negative("select"), field)))
        messages = yield Wait(Kind.SELECTED, self._all, sides.packed_size(field, count))
        return steps.negated_sum(field, [sides.unpack(field, message, count) for message in messages])

    def _negative(self, purpose: str) -> list[tuple[bytes, int]]:
        return [(key, -1) for key in self._keys(purpose)]

    def turns(self, size: int, count: int) -> Bytes | None:
        self.line.next()
        return None

    def pick(self, field: Field, pairs: Pairs, crossings: Crossings, own: Values, at: Bytes) -> Talk[Residues32]:
        self.line.next()
        forms = crossings.forms(field, pairs, own)
        dealt = steps.pick(forms, at.astype(np.int32), crossings.sizes)
        return (yield from self._resharing(field, dealt, len(forms)))

    def winning_turns(self, winners: Bytes | None, turns: Bytes | None, count: int) -> Talk[Bytes | None]:
        self.line.next()
        self.say(0, Kind.WINNERS, octets(known(winners)))
        [found] = yield Wait(Kind.TURNS, (0,), count)
        return found

    def tell(self, told: Bytes | None, size: int, below: int = 256) -> Talk[Bytes]:
        yield from ()
        self.line.next()
        learnt = known(told)
        for j in self._all:
            self.say(j, Kind.TOLD, learnt)
        self.line.bind(sides.digest(learnt))
        return learnt

    def reveal(self, bits: Bytes) -> Talk[npt.NDArray[np.bool_] | None]:
        self.line.next()
        [beta] = yield Wait(Kind.BETA, (0,), -(-len(bits) // 8))
        return np.asarray(sides.unpack_bits(beta, len(bits)) ^ bits.astype(np.bool_))

    def blur(self, bits: int) -> int:
        self.line.next()
        return 0

    def open(self, field: Field, values: Residues32) -> Talk[Residues32 | None]:
        self.line.next()
        [message] = yield Wait(Kind.VALUE, (0,), sides.packed_size(field, len(values)))
        return steps.minus(field, sides.unpack(field, message, len(values)), values)
