"""What a sealed round costs against a masked one: CPU of every party, bytes, and what the time goes into.

    python -m experiments.sealed_cost [--rounds 4] [--repeat 3] [--profile]

All parties run in this process, one after the other, on one thread each, so a party's figure is its own CPU time. The masked
figures are those of the same sizes: a responder's upload, and the server's summing, decoding and assigning.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

os.environ.setdefault("SECFC_THREADS", "1")

import numpy as np
import numpy.typing as npt

from experiments.mixtures import mixture
from secfc.coding import kernels
from secfc.coding.field import Field
from secfc.coding.sharing import CodedRows
from secfc.kmeans import fixedpoint, nearest
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters, Shape
from secfc.privacy.sealed import member, server
from secfc.privacy.sealed.context import Context, Purse, pad_key
from secfc.privacy.sealed.member import Ledger, MemberHalf
from secfc.privacy.sealed.messages import SERVER, Said
from secfc.privacy.sealed.questions import Lloyd, trust
from secfc.privacy.sealed.server import DealerHalf
from secfc.privacy.sealed.terms import Terms, Wanted, check, required

Rows = npt.NDArray[np.int64]
SIGMA = 20
ETA_BITS = 11  # η = 2¹¹: three lanes masked, four sealed


@dataclass(frozen=True)
class Size:
    rows: int
    features: int
    clusters: int
    privacy: int
    clients: int
    segments: int


SIZES = (Size(10_000, 100, 4, 3, 9, 1), Size(16_384, 100, 16, 5, 16, 3))


@dataclass
class Bill:
    """CPU seconds and bytes by party."""

    cpu: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def least(self, other: Bill) -> None:
        """Take the other's CPU time of a party where that is less: what a busy machine adds is not the party's."""
        for party, seconds in other.cpu.items():
            self.cpu[party] = min(self.cpu[party], seconds)


def distances(
    rows: Rows, labels: npt.NDArray[np.int32], clusters: int, primes: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """d′ modulo every prime (L, m, k)."""
    sizes = np.bincount(labels, minlength=clusters)
    sums = np.zeros((clusters, rows.shape[1]), dtype=np.int64)
    np.add.at(sums, labels, rows)
    inner, norms, both = rows @ sums.T, (rows**2).sum(axis=1), (sums**2).sum(axis=1)  # all far below 2^63
    out = np.empty((len(primes), len(rows), clusters), dtype=np.int64)
    for lane, p in enumerate(primes):
        out[lane] = (both % p - 2 * (inner % p) * sizes % p + norms[:, None] % p * (sizes**2 % p) % p) % p
    return out


class Sealed:
    """One epoch: halves in memory, every call on its party's bill."""

    def __init__(self, rows: Rows, terms: Terms) -> None:
        self.rows, self.terms, self.number = rows, terms, 0
        self.key, self.seeds = os.urandom(32), [os.urandom(32) for _ in range(terms.members)]
        self.at_server, self.at_members = server.Kept.of(terms), [member.Kept() for _ in range(terms.members)]
        self.ledgers = [Ledger() for _ in range(terms.members)]

    def ask(self, asked: Lloyd) -> tuple[npt.NDArray[np.int32], Bill]:
        self.number += 1
        everyone = tuple(range(self.terms.members))
        context = Context(b"s", b"p", 1, everyone, self.number, 1, everyone, b"a", asked.columns, asked.digest())
        bill = Bill()
        sums = self._sums(asked, context)
        post: deque[tuple[int, Said]] = deque()

        def on(party: int, call: object, *given: object) -> None:
            name = "server" if party == SERVER else f"member {party}"
            began = time.thread_time()
            said = call(*given)  # type: ignore[operator]
            bill.cpu[name] += time.thread_time() - began
            for out in said:
                bill.sent[name] += len(out.message.data)
            post.extend((party, out) for out in said)

        began = time.thread_time()
        referee = DealerHalf(self.terms, asked, context, self.seeds, self.at_server)
        bill.cpu["server"] += time.thread_time() - began
        members = []
        for j in everyone:
            began = time.thread_time()
            mine = self.at_members[j], self.ledgers[j]
            members.append(MemberHalf(self.terms, asked, context, j, self.key, self.seeds[j], *mine))
            bill.cpu[f"member {j}"] += time.thread_time() - began
            on(j, members[j].begin)
        on(SERVER, referee.feed, 0, sums)
        while not (referee.done and all(half.done for half in members)):
            if post:
                sender, out = post.popleft()
                if out.to == SERVER:
                    on(SERVER, referee.take, sender, out.message)
                else:
                    on(out.to, members[out.to].take, out.message)
            else:
                on(SERVER, referee.work)
                for j, half in enumerate(members):
                    on(j, half.work)
        self.at_server, self.at_members = referee.kept, [half.kept for half in members]
        labels = referee.answer.labels
        assert labels is not None
        return labels, bill

    def _sums(self, asked: Lloyd, context: Context) -> npt.NDArray[np.float64]:
        shape = asked.shape(self.terms)
        clear = distances(self.rows, asked.labels, self.terms.clusters, self.terms.field.primes)
        pad = member._stream(member.Pad(pad_key(Purse(self.key, b"s"), context), shape), 0, self.terms.rows)
        parts = [clear[lane][:, list(shape.columns[:width])] for lane, width in enumerate(shape.layout.widths)]
        flat = np.concatenate(parts, axis=1).astype(np.float64) - pad
        return np.asarray(flat % shape.layout.prime_floats)


def least(call: Callable[[], object], repeat: int) -> float:
    """The least CPU time of a call."""
    times = []
    for _ in range(repeat):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return min(times)


def masked(size: Size, field_: Field, unit: int, repeat: int) -> dict[str, float]:
    """Least CPU of one responder's upload of all columns with t+1 masks, and of the server for all R uploads."""
    coded = CodedRows(field_, size.rows, -(-size.features // size.segments))
    random = np.random.default_rng(0)
    coded.matrix[:, :, : coded.length] = random.integers(-(1 << 19), 1 << 19, (field_.lanes, size.rows, coded.length))
    clusters = CodedClusters(coded, size.clusters)
    clusters.assign(random.integers(0, size.clusters, size.rows).astype(np.int32))
    shape = Shape.of(field_, size.rows, clusters.sizes, range(size.clusters), unit)
    keys = [(os.urandom(32), (-1) ** j) for j in range(size.privacy + 1)]
    weights = np.ones(field_.lanes)
    words = clusters.upload(shape, weights, keys)
    responders = 2 * size.segments + 2 * size.privacy - 1
    found = Distances(field_, size.rows, size.clusters)

    def serve() -> None:
        decoder = Decoder(shape, range(responders), None)
        for j in range(responders):
            decoder.add(j, 0, words)
        decoder.finish(found)
        nearest.nearest(found, clusters.sizes)

    return {
        "responder": least(lambda: clusters.upload(shape, weights, keys), repeat),
        "server": least(serve, repeat),
        "bytes": 8.0 * len(words),
        "R": float(responders),
    }


def measure(size: Size, rounds: int, repeat: int, profile: bool) -> None:
    drawn = mixture(size.rows, size.features, size.clusters, SIGMA, 1)
    precision = ETA_BITS - int(np.log2(drawn.bound))
    rows = fixedpoint.quantise(drawn.values, drawn.bound, precision)
    eta = fixedpoint.scaled_bound(drawn.bound, precision)
    unit = size.features * (2 * eta) ** 2
    wanted = Wanted(size.rows, size.clusters, unit, size.privacy, size.clients, "random", False)
    lanes = Field.of(11).lanes_for(required(wanted))
    check(Field.of(lanes), wanted)
    terms = Terms(Field.of(lanes), size.rows, size.clusters, unit, size.privacy + 1)
    flat = masked(size, Field.of(Field.of(11).lanes_for(size.rows**2 * unit)), unit, repeat)
    base = flat["R"] * flat["responder"] + flat["server"]
    text = f"masked: responder {1e3 * flat['responder']:.1f} ms × {flat['R']:.0f}, server {1e3 * flat['server']:.1f} ms"
    print(f"\n{size}, L = {lanes}, eta = {eta}\n{text}, upload {flat['bytes'] / 1e6:.2f} MB")
    wide = masked(size, terms.field, unit, repeat)  # uploads of a sealed round have the sealed plan's lanes
    epoch = Sealed(rows, terms)
    labels = np.random.default_rng(5).integers(0, size.clusters, size.rows).astype(np.int32)
    changed, trusted = np.ones(size.clusters, dtype=bool), np.zeros(size.rows, dtype=bool)
    for number in range(1, rounds + 1):
        sizes = np.bincount(labels, minlength=size.clusters)
        columns = tuple(h for h in range(size.clusters) if changed[h])
        asked = Lloyd(labels, sizes, columns, changed, trusted)
        profiler = cProfile.Profile() if profile else None
        if profiler:
            profiler.enable()
        began = time.perf_counter()
        found, bill = epoch.ask(asked)
        for _ in range(repeat - 1):
            bill.least(epoch.ask(asked)[1])
        wall = time.perf_counter() - began
        if profiler:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(14)
        report(number, labels, found, bill, wall, size, base, wide)
        moved = np.flatnonzero(found != labels)
        if not len(moved):
            break
        changed = np.zeros(size.clusters, dtype=bool)
        changed[labels[moved]] = changed[found[moved]] = True
        trusted, labels = trust(found, found), found


def report(
    number: int,
    before: npt.NDArray[np.int32],
    found: npt.NDArray[np.int32],
    bill: Bill,
    wall: float,
    size: Size,
    base: float,
    wide: dict[str, float],
) -> None:
    cpu = {name: 1e3 * value for name, value in bill.cpu.items()}
    members = [value for name, value in cpu.items() if name != "server"]
    uploads = 1e3 * wide["R"] * wide["responder"]
    total = sum(cpu.values()) + uploads
    sent = [value / 1e6 for name, value in bill.sent.items() if name != "server"]
    print(
        f"round {number}: {int((before != found).sum())} moved; CPU ms: server {cpu['server']:.0f}, members"
        f" {min(members):.0f}-{max(members):.0f}, all with uploads {total:.0f} ({total / 1e3 / base:.2f} × masked);"
        f" MB: server to all {bill.sent['server'] / 1e6:.1f}, each member {max(sent):.2f}; all measurements {wall:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3, help="take the least of so many measurements")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    kernels.warm()
    for size in SIZES:
        measure(size, options.rounds, options.repeat, options.profile)


if __name__ == "__main__":
    main()
