"""Who consents to opening the centres, and what comes of it: a machine without I/O, the same at every client and the server.

Every client says once, to each party that may see the centres, whether it consents; if so it gives its values for all
clusters above `smallest`, its own floor, never below the job's. What is said is bound to the session and to the final
assignment (the parcel's name). A cluster's centre is opened if ℓ+t clients gave values for it.

A floor counts the rows of a cluster that are left without those of the t sites with most rows in it: rows that colluders
bring do not count. It must be known which site has how many rows in a cluster, so centres are opened with public membership
only.

An answer is one byte whether the client consents, its floor (8 bytes, little-endian), and its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.coding.field import Words
from secfc.errors import InvalidInput, JobFailed, Malformed
from secfc.kmeans.distances import CodedClusters, Labels
from secfc.privacy import centers, masks
from secfc.privacy.centers import Centers
from secfc.protocol import messages, parcels

_HEAD = 9
REFUSAL = bytes(_HEAD)  # what a client says that does not consent


@dataclass(frozen=True)
class _Answer:
    """What one client has said; `smallest` is None if it does not consent."""

    smallest: int | None
    words: Words = field(repr=False)


class Gathering:
    """The answers that have arrived at one party."""

    def __init__(
        self, federation: Federation, plan: Plan, labels: Labels, members: Sequence[messages.Introduction]
    ) -> None:
        """`labels` is the final assignment of all rows, which belong to the `members` in their order."""
        self._plan, self._clients, self._floor = plan, federation.n, federation.job.centers_smallest
        self.digest = masks.assignment_digest(labels.astype("<i4").tobytes())
        edges = np.cumsum([member.rows for member in members])
        if edges[-1] != len(labels):
            raise InvalidInput("centres are opened only where it is known which rows are whose")
        parts = np.split(labels, edges[:-1])
        counts = np.stack([np.bincount(part, minlength=federation.job.k) for part in parts]).astype(np.int64)
        self._sizes = counts.sum(axis=0)
        self._rest = centers.rows_of_others(counts, federation.privacy)  # what floors are compared with
        self._answers: dict[int, _Answer] = {}

    @property
    def most(self) -> int:
        """Bytes of the longest honest answer."""
        return _HEAD + 8 * self._words(self._floor)

    def _words(self, smallest: int) -> int:
        return centers.layout(self._plan, centers.large_enough(self._rest, smallest)).words

    def consent(self, coded: CodedClusters, smallest: int) -> bytes:
        """Our values for the clusters above our floor, as we say them. `coded` must stand at the final assignment."""
        floor = max(smallest, self._floor)
        words = centers.values(self._plan, coded, centers.large_enough(self._rest, floor))
        return b"\x01" + floor.to_bytes(8, "little") + words.astype("<u8", copy=False).tobytes()

    def take(self, client: int, answer: bytes) -> None:
        """A client's whole answer. The first one counts; what is malformed raises and changes nothing."""
        if len(answer) < _HEAD or answer[0] > 1:
            raise Malformed("an answer about the centres begins with whether its sender consents, and a size floor")
        smallest, words = int.from_bytes(answer[1:_HEAD], "little"), parcels.to_words(answer[_HEAD:])
        if answer[0]:
            self._check(smallest, words)
        elif answer != REFUSAL:
            raise Malformed("a client that does not consent to opening the centres must send no values")
        self._answers.setdefault(client, _Answer(smallest if answer[0] else None, words))

    def _check(self, smallest: int, words: Words) -> None:
        if not self._floor <= smallest <= 1 << 31:
            raise Malformed(
                f"centres of clusters with fewer than {self._floor} rows of others are not opened in this job"
            )
        if len(words) != (due := self._words(smallest)):
            raise Malformed(f"{due} words are due for the centres, not {len(words)}")
        centers.layout(self._plan, centers.large_enough(self._rest, smallest)).check(words, 0)

    # --- what comes of it -------------------------------------------------------------------------------------------------

    @property
    def answered(self) -> list[int]:
        """Clients that have answered."""
        return sorted(self._answers)

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
        return self.enough or self._clients - refused < centers.needed(self._plan.code)

    @property
    def settled(self) -> bool:
        """Whether all have answered."""
        return len(self.answered) == self._clients

    def opened_centers(self) -> Centers:
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
        return Centers(
            tuple(clusters[i] for i in order),
            tuple(int(self._sizes[clusters[i]]) for i in order),
            tuple(sums[i] for i in order),
            self._plan.wishes.precision,
        )

    def _groups(self) -> list[tuple[list[int], tuple[int, ...]]]:
        """Clusters by who gave values for them: floors differ from client to client."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for h in centers.large_enough(self._rest, self._floor):
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
