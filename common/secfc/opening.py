"""Who consents to opening the centres, and what comes of it: a machine without I/O, the same at every client and the server.

Every client says once, to each party that may see the centres, whether it consents; if so it gives its values for all
clusters above `smallest`, its own floor, never below the federation's. What is said is bound to the session and to the final
assignment. A cluster's centre is opened if ℓ+t clients gave values for it.

A floor counts the rows of a cluster that are left without those of the t sites with most rows in it: rows that colluders
bring do not count. It must be known which site has how many rows in a cluster, so centres are opened with public membership
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secfc import centers, events, masks
from secfc.centers import Opened
from secfc.config import Federation
from secfc.distances import CodedClusters, Labels
from secfc.errors import InvalidInput, JobFailed, Malformed, OutOfTurn
from secfc.field import Words
from secfc.plan import Plan


@dataclass
class _Answer:
    """What one client has said so far; `smallest` is None if it does not consent."""

    smallest: int | None
    words: Words = field(repr=False)
    received: int = 0

    @property
    def complete(self) -> bool:
        return self.received == len(self.words)


class Gathering:
    """The answers that have arrived at one party."""

    def __init__(
        self, federation: Federation, plan: Plan, session: bytes, labels: Labels, members: Sequence[events.Introduction]
    ) -> None:
        """`labels` is the final assignment of all rows, which belong to the `members` in their order."""
        self._federation, self._plan, self._session = federation, plan, session
        self._digest = masks.assignment_digest(labels.astype("<i4").tobytes())
        edges = np.cumsum([member.rows for member in members])
        if edges[-1] != len(labels):
            raise InvalidInput("centres are opened only where it is known which rows are whose")
        parts = np.split(labels, edges[:-1])
        counts = np.stack([np.bincount(part, minlength=federation.k) for part in parts]).astype(np.int64)
        self._sizes = counts.sum(axis=0)
        self._rest = centers.rows_of_others(counts, federation.privacy)  # what floors are compared with
        self._answers: dict[int, _Answer] = {}

    # --- our own answer ---------------------------------------------------------------------------------------------------

    def refusal(self) -> events.CentersPart:
        """What a client says that does not consent."""
        return events.CentersPart(self._session, self._digest, False, 0, events.Chunk(0, 0, np.empty(0, np.uint64)))

    def consent(self, coded: CodedClusters, smallest: int) -> tuple[int, Words]:
        """Our floor and our values for the clusters above it. `coded` must stand at the final assignment."""
        floor = max(smallest, self._federation.centers_smallest)
        return floor, centers.values(self._plan, coded, centers.large_enough(self._rest, floor))

    def part(self, smallest: int, chunk: events.Chunk) -> events.CentersPart:
        """A piece of our values, as it goes to others."""
        return events.CentersPart(self._session, self._digest, True, smallest, chunk)

    # --- others' answers --------------------------------------------------------------------------------------------------

    def take(self, client: int, part: events.CentersPart) -> None:
        """A piece of a client's answer, in order; after a broken stream from the start. The first whole answer counts."""
        if part.session != self._session or part.digest != self._digest:
            raise OutOfTurn("these values belong to another job or another final assignment")
        known = self._answers.get(client)
        if known is not None and known.complete:
            return
        if part.chunk.offset == 0 or known is None:
            known = self._begin(part)
        if part.chunk.offset != known.received or (part.consents, part.smallest) != _told(known):
            raise Malformed(f"words from offset {known.received} are due, not from {part.chunk.offset}")
        if known.smallest is not None:
            clusters = centers.large_enough(self._rest, known.smallest)
            centers.layout(self._plan, clusters).check(part.chunk.words, part.chunk.offset)
        end = part.chunk.offset + len(part.chunk.words)
        known.words[part.chunk.offset : end] = part.chunk.words
        known.received = end
        self._answers[client] = known

    def _begin(self, part: events.CentersPart) -> _Answer:
        floor, due = self._federation.centers_smallest, 0
        if part.consents:
            if part.smallest < floor:
                raise Malformed(
                    f"centres of clusters with fewer than {floor} rows of others are not opened in this federation"
                )
            due = centers.layout(self._plan, centers.large_enough(self._rest, part.smallest)).words
        if part.chunk.total != due:
            raise Malformed(f"{due} words are due for the centres, not {part.chunk.total}")
        return _Answer(part.smallest if part.consents else None, np.zeros(due, dtype=np.uint64))

    def answer(self, client: int) -> events.CentersPart | None:
        """A client's whole answer as one piece, which `take` takes again after a restart; None until it is complete."""
        known = self._answers.get(client)
        if known is None or not known.complete:
            return None
        consents, smallest = _told(known)
        chunk = events.Chunk(0, len(known.words), known.words)
        return events.CentersPart(self._session, self._digest, consents, smallest, chunk)

    # --- what comes of it -------------------------------------------------------------------------------------------------

    @property
    def answered(self) -> list[int]:
        """Clients whose answer is complete."""
        return sorted(j for j, answer in self._answers.items() if answer.complete)

    @property
    def consenting(self) -> list[int]:
        """Clients that consent."""
        return [j for j in self.answered if self._answers[j].smallest is not None]

    @property
    def enough(self) -> bool:
        """Whether ℓ+t clients consent."""
        return len(self.consenting) >= centers.needed(self._plan.code)

    @property
    def decided(self) -> bool:
        """Whether further answers cannot change whether centres are opened: enough consent, or too many have refused."""
        refused = len(self.answered) - len(self.consenting)
        return self.enough or self._federation.n - refused < centers.needed(self._plan.code)

    @property
    def settled(self) -> bool:
        """Whether all have answered."""
        return len(self.answered) == self._federation.n

    def opened(self) -> Opened:
        """The centres. Raises JobFailed if too few consent, Malformed if their values do not fit together."""
        need = centers.needed(self._plan.code)
        if not self.enough:
            raise JobFailed(f"centres were not opened: {len(self.consenting)} of {need} needed clients consent")
        clusters: list[int] = []
        sums: list[tuple[int, ...]] = []
        for group, givers in self._groups():
            if len(givers) >= need:
                clusters += group
                sums += centers.decode(self._plan, group, self._sizes, {j: self._part(j, group) for j in givers})
        if not clusters:
            raise JobFailed(f"centres were not opened: no cluster is above the floor of {need} clients")
        order = np.argsort(clusters).tolist()
        return Opened(
            tuple(clusters[i] for i in order),
            tuple(int(self._sizes[clusters[i]]) for i in order),
            tuple(sums[i] for i in order),
            self._plan.wishes.precision,
        )

    def _groups(self) -> list[tuple[list[int], tuple[int, ...]]]:
        """Clusters by who gave values for them: floors differ from client to client."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for h in centers.large_enough(self._rest, self._federation.centers_smallest):
            floors = ((j, self._answers[j].smallest) for j in self.consenting)
            givers = tuple(j for j, floor in floors if floor is not None and floor <= self._rest[h])
            groups.setdefault(givers, []).append(h)
        return [(group, givers) for givers, group in groups.items()]

    def _part(self, client: int, group: Sequence[int]) -> Words:
        """A client's values for some of the clusters that it gave."""
        answer, field_ = self._answers[client], self._plan.field
        given = centers.large_enough(self._rest, answer.smallest or 1)
        whole = field_.unpack(answer.words, len(given), self._plan.length)
        return field_.pack(np.ascontiguousarray(whole[:, [given.index(h) for h in group]]))


def _told(answer: _Answer) -> tuple[bool, int]:
    return answer.smallest is not None, answer.smallest or 0
