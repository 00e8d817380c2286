"""From wishes to parameters: ℓ, R and the field, before anybody starts. What a job will cost is in `costs`.

The inequalities (S dropouts, A liars):

    R = 2ℓ + 2t − 1            uploads that determine φ                              (Theorem 1)
    R + S + 2A ≤ n             and that many are left after losing S and correcting A
    m²·d·(2η)² < Q             nothing wraps around, η = ⌈λ·bound⌉                   (Appendix A)
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.agreement.federation import Federation
from secfc.agreement.job import PRUNE
from secfc.agreement.uploads import MASKED_PRICE
from secfc.agreement.wishes import Wishes, check_count, checked
from secfc.coding.field import MAX_LANES, Field, Layout, lane_primes
from secfc.coding.lagrange import Code
from secfc.coding.sharing import segment_length
from secfc.errors import PlanError, RangeError
from secfc.kmeans import candidates, fixedpoint
from secfc.kmeans.distances import Labels, Pattern, Shape
from secfc.kmeans.pairs import strips
from secfc.kmeans.rowsets import Wanted
from secfc.privacy.sealed import terms
from secfc.privacy.sealed.terms import Terms

__all__ = ["Plan", "Wishes", "make", "of"]
_WIDEST = Field.of(terms.MOST_LANES)  # in which sealed rounds can compare


@dataclass(frozen=True)
class Plan:
    """Parameters that hold together. Made by `make`, never by hand."""

    wishes: Wishes
    segments: int
    eta: int
    field: Field
    frozen: tuple[int, ...] = ()  # sizes of an earlier job's clusters, if rows are only assigned to those

    @property
    def masked(self) -> bool:
        """Whether uploads are weighted and masked, so that only their sum tells anything; those of sealed rounds are."""
        return self.wishes.uploads != "open"

    @property
    def private(self) -> bool:
        """Whether nobody may learn which row is whose."""
        return self.wishes.membership == "private"

    @cached_property
    def code(self) -> Code:
        return Code(self.field, self.wishes.clients, self.segments, self.wishes.privacy)

    @property
    def responders(self) -> int:
        return 2 * self.segments + 2 * self.wishes.privacy - 1

    def asked(self, found: int = 0) -> tuple[int, int]:
        """The least and the most responders of an attempt when so many liars have been found and left out.

        R + 2(A − found) can correct as many liars as are left. What the places of the found ones would have taken is
        asked too, if there is somebody: it costs no tolerance of dropouts, as R + S + 2A ≤ n, and even with A found
        there is something to check against.
        """
        least = self.responders + 2 * (self.wishes.liars - found)
        return least, least + found

    def check_responders(self, responders: Sequence[int]) -> None:
        """Raise InvalidInput unless a client may answer to these: exactly R, with liars (so open uploads) up to R + 2A."""
        self.code.check_responders(responders, spare=2 * self.wishes.liars)

    @property
    def candidates(self) -> int:
        """How many rows each seed of k-means++ is chosen from."""
        return candidates.candidates_per_seed(self.wishes.clusters, self.wishes.seeding, self.wishes.candidates)

    @property
    def slots(self) -> int:
        """How many labels an assignment may have: clusters, and while seeding candidates."""
        return candidates.slots(self.wishes.clusters, self.candidates)

    @property
    def length(self) -> int:
        """s = ⌈d/ℓ⌉, the residues of a share in one lane."""
        return segment_length(self.wishes.features, self.segments)

    @property
    def unit(self) -> int:
        """d·(2η)²: the largest d′ to a cluster of one row."""
        return self.wishes.features * (2 * self.eta) ** 2

    def shape(self, rows: int, sizes: npt.NDArray[np.int64], columns: Sequence[int]) -> Shape:
        """Columns and lanes of an upload."""
        return Shape.of(self.field, rows, sizes, columns, self.unit)

    def shapes(self, labels: Labels, sizes: npt.NDArray[np.int64], wanted: Mapping[int, Wanted]) -> Sequence[Pattern]:
        """The parts of an upload of these rows of some columns: one if all rows are wanted, else strips of pairs."""
        if all(one.others is None for one in wanted.values()):
            return [self.shape(len(labels), sizes, tuple(wanted))]
        return strips(self.field, sizes, wanted, labels, self.unit)

    def share_layout(self, rows: int) -> Layout:
        """How the shares of that many rows lie on the wire."""
        return Layout.uniform(self.field, rows, self.length)

    def sealed(self, rows: int) -> Terms:
        """The public parameters of sealed rounds over so many rows. Pre-condition: the uploads are sealed."""
        w = self.wishes
        bits = terms.draw_bits(self.field.modulus, w.max_rows, self.unit) if w.seeding != "random" else 64
        members, separation = w.privacy + 1, w.seeding == "separation"
        opens = not self.frozen  # the inertia
        return Terms(self.field, rows, w.clusters, self.unit, members, separation, opens, bits, frozen=self.frozen)

    @cached_property
    def digest(self) -> bytes:
        """Names these parameters; masks are bound to it."""
        return hashlib.sha256(json.dumps(self.parameters(), sort_keys=True).encode()).digest()

    def parameters(self) -> dict[str, Any]:
        """The parameters as plain values."""
        wishes = {name: getattr(self.wishes, name) for name in Wishes.__dataclass_fields__}
        derived = {"segments": self.segments, "responders": self.responders, "segment_length": self.length}
        derived["candidates"] = self.candidates
        if self.frozen:
            wishes["frozen"] = self.frozen
        if wishes["prune"] == PRUNE:  # what a job has that says nothing about it
            del wishes["prune"]
        return wishes | derived | {"lanes": self.field.lanes, "eta": self.eta, "primes": list(self.field.primes)}

    def of_run(self, clusters: int) -> Plan:
        """The plan of one run, of so many clusters: the same code and field, for they are those of the shares."""
        if clusters == self.wishes.clusters:
            return self
        return replace(self, wishes=replace(self.wishes, clusters=clusters))

    def assigning_to(self, sizes: Sequence[int]) -> Plan:
        """The plan for rows that are only assigned to clusters of these sizes. Raises PlanError if distances to them could be
        larger than what was planned for."""
        if len(sizes) != self.wishes.clusters or sum(sizes) > self.wishes.max_rows:
            raise PlanError(
                f"{sum(sizes)} rows in {len(sizes)} clusters were planned as k = {self.wishes.clusters}, max_rows ="
                f" {self.wishes.max_rows}; give the job that k, and a max_rows of at least so many"
            )
        return replace(self, frozen=tuple(int(size) for size in sizes))

    def guards(self) -> dict[str, str]:
        """The guards of sealed rounds, and how near the wishes are to each."""
        return terms.guards(self.field, _wanted(self.wishes))


def make(wishes: Wishes) -> Plan:
    """The plan for these wishes. Raises PlanError that names the inequality that fails and what would fit."""
    wishes = checked(wishes)
    eta = fixedpoint.scaled_bound(wishes.bound, wishes.precision)
    return Plan(wishes, _segments(wishes), eta, _field(wishes, eta))


def of(federation: Federation) -> Plan:
    """The plan of a federation file. What a job cannot do yet is refused here, so that no wish is silently ignored."""
    return make(
        Wishes(
            clients=federation.n,
            privacy=federation.privacy,
            clusters=max(federation.job.ks),
            features=federation.job.features,
            max_rows=federation.job.max_rows,
            bound=federation.job.bound,
            precision=federation.job.precision,
            dropouts=federation.dropouts,
            liars=federation.liars,
            uploads=federation.uploads,
            segments=federation.job.segments,
            membership=federation.job.membership,
            seeding=federation.job.seeding,
            candidates=federation.job.candidates,
            prune=federation.job.prune,
        )
    )


def _segments(w: Wishes) -> int:
    """The wished ℓ if it fits; else the largest, or a smaller one that gives shares as short."""
    spare = w.clients - w.dropouts - 2 * w.liars
    most = (spare + 1) // 2 - w.privacy
    wished = 1 if w.segments is None else check_count("segments", w.segments, 1)
    if most < wished:
        raise PlanError(_too_few(w, wished))
    if w.segments is not None:
        if w.segments > w.features:
            raise PlanError(f"segments = {w.segments} cuts {w.features} features too finely; use at most {w.features}")
        return int(w.segments)
    return segment_length(w.features, segment_length(w.features, min(most, w.features)))


def _too_few(w: Wishes, segments: int) -> str:
    need = 2 * w.privacy + 2 * segments - 1
    terms, given = "2t+2ℓ−1", f"n = {w.clients}, t = {w.privacy}"
    if segments > 1:
        given += f", ℓ = {segments}"
    if w.dropouts:
        terms, given = terms + " + dropouts", given + f", dropouts = {w.dropouts}"
    if w.liars:
        terms, given = terms + " + 2·liars", given + f", liars = {w.liars}"
    need += w.dropouts + 2 * w.liars
    ways = []
    fitting = (w.clients - w.dropouts - 2 * w.liars + 1) // 2 - segments
    if fitting >= (0 if w.uploads == "open" else 1):
        ways.append(f"t = {fitting}")
    if segments > 1 and (w.clients - w.dropouts - 2 * w.liars + 1) // 2 - w.privacy >= 1:
        ways.append(f"ℓ = {(w.clients - w.dropouts - 2 * w.liars + 1) // 2 - w.privacy}")
    ways.append(f"{need} clients")
    return f"{given} needs {terms} = {need} clients; use {' or '.join(ways)}"


def _field(w: Wishes, eta: int) -> Field:
    largest = w.max_rows**2 * w.features * (2 * eta) ** 2
    if w.uploads == "sealed":
        largest = max(largest, _sealed_bound(w))
    try:
        lanes = Field.of(MAX_LANES).lanes_for(largest)
    except RangeError:
        capacity = sum(p.bit_length() for p in lane_primes(MAX_LANES)) - MAX_LANES
        raise PlanError(
            f"m²·d·(2η)² has {largest.bit_length()} bits and the largest field about {capacity}; lower the precision"
        ) from None
    return Field.of(lanes)


def _sealed_bound(w: Wishes) -> int:
    """What Q must exceed for sealed rounds. Raises PlanError if no field they can compare in is so large."""
    try:
        terms.check(_WIDEST, _wanted(w))
    except PlanError as error:
        fitting = _fitting(w) or ["smaller k, max_rows and precision"]
        raise PlanError(f"{error}; use {' or '.join(fitting)}, or uploads = 'masked': {MASKED_PRICE}") from None
    return terms.required(_wanted(w))


def _wanted(w: Wishes) -> terms.Wanted:
    unit = w.features * (2 * fixedpoint.scaled_bound(w.bound, w.precision)) ** 2
    return terms.Wanted(w.max_rows, w.clusters, unit, w.privacy, w.clients - w.dropouts, w.seeding)


def _fitting(w: Wishes) -> list[str]:
    """The largest smaller value of each wish with which alone sealed rounds are possible."""
    names = {"clusters": ("k", 1), "precision": ("precision", -60), "max_rows": ("max_rows", w.clusters)}
    ways = []
    for name, (shown, least) in names.items():
        values = range(getattr(w, name) - 1, least - 1, -1)
        found = bisect.bisect_left(values, True, key=partial(_can_be_sealed, w, name))
        if found < len(values):
            ways.append(f"{shown} = {values[found]}")
    return ways


def _can_be_sealed(w: Wishes, name: str, value: int) -> bool:
    smaller: dict[str, Any] = {name: value}
    try:
        terms.check(_WIDEST, _wanted(replace(w, **smaller)))
    except PlanError:
        return False
    return True
