"""What a client keeps of a finished job's clusters, so that rows can be assigned to them later: its share of each cluster's
sum, k vectors, not the shares of any row. Pure: what is kept is a value, and a caller puts it on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from secfc.agreement import clusters
from secfc.agreement.clusters import Clusters
from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.coding.field import Field, Words
from secfc.errors import ConfigError, Malformed
from secfc.kmeans.distances import CodedClusters, Frozen, Labels
from secfc.privacy import centers, masks
from secfc.protocol import parcels
from secfc.protocol.client.site import Met, Site


@dataclass(frozen=True, eq=False)
class KeptClusters:
    """The clusters, whose share this is, the digest of the features' names, lanes and length of a share, and the shares.
    `rows` names the rows of this client that are in them, for its budget; `when`: in seconds since 1970."""

    public: Clusters
    party: str
    features: str
    lanes: int
    length: int
    words: Words = field(repr=False)
    rows: str = ""
    when: float = 0.0

    def to_bytes(self) -> bytes:
        fields = {name: value for name, value in vars(self).items() if name not in ("public", "words")}
        head = json.dumps(fields | {"public": self.public.fields()}).encode()
        return len(head).to_bytes(4, "big") + head + self.words.astype("<u8", copy=False).tobytes()

    @classmethod
    def from_bytes(cls, value: bytes) -> KeptClusters:
        """Raises Malformed for anything that `to_bytes` does not make."""
        try:
            end = 4 + int.from_bytes(value[:4], "big")
            fields: dict[str, Any] = json.loads(value[4:end])
            public = Clusters.of(fields.pop("public"))
            kept = cls(public, **fields, words=parcels.to_words(value[end:]))
            kept.frozen(Field.of(kept.lanes))
            return kept
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Malformed("what is kept of an earlier job's clusters is damaged") from None

    def frozen(self, wanted: Field) -> Frozen:
        """Our shares of the sums, in as many lanes as a job has: the first lanes are the same in every field."""
        whole = Field.of(self.lanes).unpack(self.words, len(self.public.sizes), self.length)
        return Frozen(np.ascontiguousarray(whole[: wanted.lanes]), np.array(self.public.sizes, dtype=np.int64))

    def job(self, agreed: Federation, party: str) -> tuple[Federation, Plan]:
        """The federation and the plan of a job that assigns rows to these clusters. Raises ConfigError if it cannot be."""
        assigning = self.public.federation(agreed)
        made = self.public.plan(assigning)
        if self.party != party:
            raise ConfigError(
                f"the clusters {self.public.name} were kept here for {self.party}, and this is {party}'s kit"
            )
        if made.field.lanes > self.lanes or made.length != self.length:
            raise ConfigError(
                f"the clusters {self.public.name} were kept in {self.lanes} lanes, and the job needs {made.field.lanes};"
                " give it the max_rows and uploads of the job that found them"
            )
        return assigning, made


def refusal(site: Site, met: Met, labels: Labels, k: int) -> str:
    """Why the clusters of a finished job are not kept here; empty if they are. Everybody's rows are in the sums, so everybody
    must agree; and no cluster may be small, for whoever brings rows later learns on which side of its centre they lie."""
    if others := [member.name for member in met.members if not member.keeps_clusters]:
        return f"not all sites agree (keep_clusters in policy.toml): {', '.join(others)[:300]}"
    edges = np.cumsum([member.rows for member in met.members])[:-1]
    counts = np.stack([np.bincount(part, minlength=k) for part in np.split(labels, edges)])
    rest = centers.rows_of_others(counts, site.plan.wishes.privacy)
    floor = max(site.guard.policy.centers_smallest, site.federation.job.centers_smallest)
    if (rest < floor).any():
        h = int(rest.argmin())
        return (
            f"cluster {h} has {rest[h]} rows beside those of the {max(site.plan.wishes.privacy, 1)} sites with most rows in"
            f" it, and centers_smallest = {floor}"
        )
    return ""


def kept(site: Site, session: bytes, coded: CodedClusters) -> KeptClusters:
    """Our share of the sums of the clusters that `coded` stands at."""
    k, plan = len(coded.sizes), site.plan
    name = clusters.name_of(session, masks.assignment_digest(coded.labels.astype("<i4").tobytes()))
    public = Clusters.found(site.federation, plan, name, coded.sizes.tolist())
    words = centers.values(plan, coded, range(k))
    return KeptClusters(public, site.name, site.features.hex(), plan.field.lanes, plan.length, words)


def with_rows(value: bytes, rows: str, when: float) -> KeptClusters:
    """What a machine wants kept, with what only its process knows."""
    return replace(KeptClusters.from_bytes(value), rows=rows, when=when)
