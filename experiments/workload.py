"""One job of a given size, set up so that each part of one of its rounds can be run again and again.

Everything is real: rows are uniform (no structure, so Lloyd does not converge early), shared by n clients under the plan;
the assignment is that of ten Lloyd iterations with 5 % of the rows moved elsewhere, as between two rounds; uploads are those
of R responders. `Workload.check` compares what is decoded with distances computed in Python integers.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from threadpoolctl import threadpool_limits

from experiments.timing import Seconds, clock
from secfc.agreement import plan
from secfc.coding import kernels, parallel, prg
from secfc.coding.field import CHUNK_WORDS, Words
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.kmeans import fixedpoint
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters, Labels, Shape
from secfc.kmeans.lloyd import Clustering, solve
from secfc.privacy.checking import Check

CLIENTS, PRIVACY, SEGMENTS, LANES = 16, 5, 3, 3
MOVED = 0.05
_BOUND = 1.0
_AES_CHUNK = 1 << 16


@dataclass(frozen=True)
class Size:
    """m rows, d features, k clusters."""

    m: int
    d: int
    k: int

    def __str__(self) -> str:
        return f"m={self.m} d={self.d} k={self.k}"


@dataclass(frozen=True)
class Parties:
    """n clients, of whom t may collude; ℓ segments, None: as many as fit."""

    n: int = CLIENTS
    t: int = PRIVACY
    segments: int | None = SEGMENTS


def plan_for(size: Size, who: Parties) -> plan.Plan:
    """The federation at this size, with the finest precision that needs no more than three lanes."""
    for precision in range(40, -1, -1):
        wishes = plan.Wishes(
            who.n, who.t, size.k, size.d, size.m, bound=_BOUND, precision=precision, segments=who.segments
        )
        made = plan.make(wishes)
        if made.field.lanes <= LANES:
            break
    return made


class Workload:
    """A job after sharing: one client's shares, its labels before and after, and the uploads of R responders."""

    def __init__(self, size: Size, seed: int = 1, who: Parties | None = None) -> None:
        self.who = who or Parties()
        self.size, self.plan = size, plan_for(size, self.who)
        self._random = np.random.default_rng(seed)
        self.rows = self._random.uniform(-_BOUND, _BOUND, (size.m, size.d))
        self.quantised = fixedpoint.quantise(self.rows, _BOUND, self.plan.wishes.precision)
        self.initial = self.rows[self._random.choice(size.m, size.k, replace=False)]
        self.labels = self._lloyd(10).labels_.astype(np.int32)
        self.moved = self._move(self.labels)
        self.sizes = np.bincount(self.moved, minlength=size.k)
        self.columns = tuple(range(size.k))
        self.shape: Shape = self.plan.shape(size.m, self.sizes, self.columns)
        self.keys = [(os.urandom(32), 1 if i % 2 else -1) for i in range(self.who.t + 1)]
        self.owners = np.array_split(np.arange(size.m), self.who.n)
        self.share_sets = [ShareSet(self.plan.code, self.quantised[part], prg.fresh_key()) for part in self.owners]
        self.responders = tuple(range(self.plan.responders))
        self._share()

    def _move(self, labels: Labels) -> Labels:
        rows = self._random.choice(len(labels), max(int(MOVED * len(labels)), 1), replace=False)
        out = labels.copy()
        out[rows] = (out[rows] + self._random.integers(1, self.size.k, len(rows))) % self.size.k
        return out

    # --- scikit-learn -------------------------------------------------------------------------------------------

    def _lloyd(self, iterations: int) -> Any:
        from sklearn.cluster import KMeans

        model = KMeans(
            self.size.k, init=self.initial, n_init=1, max_iter=iterations, tol=0, algorithm="lloyd", copy_x=True
        )
        with threadpool_limits(parallel.threads()):
            return model.fit(self.rows)

    @cached_property
    def sklearn_iterations(self) -> int:
        """N: so many more iterations that they outweigh what a fit does besides, before it converges."""
        wish = 40 if self.size.m * self.size.d * self.size.k < 1 << 24 else 20
        return min(wish, int(self._lloyd(wish + 2).n_iter_) - 2)

    def sklearn(self) -> Seconds:
        """One Lloyd iteration: (fit of N+1 iterations − fit of 1) / N, each the quickest of three, since what disturbs a fit
        only ever adds to it. On a machine so busy that the short fit takes as long as the long one, it is what it can be at
        most: the long fit over its iterations."""
        more = self.sklearn_iterations
        fitted = self._lloyd(more + 1).n_iter_
        if fitted != more + 1:
            raise RuntimeError(f"scikit-learn stopped after {fitted} of {more + 1} iterations")
        one = min(clock(lambda: self._lloyd(1)) for _ in range(3))
        many = min(clock(lambda: self._lloyd(more + 1)) for _ in range(3))
        return {"sklearn_iteration_s": (many - one) / more if many > one else many / (more + 1)}

    # --- the client ---------------------------------------------------------------------------------------------

    def _share(self) -> None:
        """Every client shares its rows; the first responder's shares are kept, of the others their uploads."""
        outgoing = [share_set.shares(self.responders) for share_set in self.share_sets]
        weights = self.plan.code.weights(self.responders)
        self.open_uploads: dict[int, Words] = {}
        self.masked_uploads: dict[int, Words] = {}
        for j in reversed(self.responders):
            self.received = [words[j] for words in outgoing]
            self.coded = self.receive()
            self.clusters = CodedClusters(self.coded, self.size.k)
            self.clusters.assign(self.moved)
            self.open_uploads[j] = self.clusters.upload(self.shape)
            mask = [(self.keys[0][0], (j == 0) - (j == 1))] if j < 2 else []
            self.masked_uploads[j] = self.clusters.upload(self.shape, weights[:, j], mask)

    def receive(self) -> CodedRows:
        """Take in everybody's shares."""
        coded = CodedRows(self.plan.field, self.size.m, self.plan.length)
        for part, words in zip(self.owners, self.received, strict=True):
            coded.put(slice(int(part[0]), int(part[-1]) + 1), words)
        coded.finish()
        return coded

    def client(self) -> Seconds:
        """Take over an assignment that moves 5 % of the rows, compute all columns, pack them."""
        self.clusters.assign(self.labels)
        seconds = clock(lambda: self.round(self.clusters, self.moved))
        return {"client_round_s": seconds}

    def client_first(self) -> Seconds:
        """The same with centre sums from scratch."""
        clusters = CodedClusters(self.coded, self.size.k)
        return {"client_first_round_s": clock(lambda: self.round(clusters, self.moved))}

    def client_masked(self) -> Seconds:
        """The same with t+1 masks."""
        self.clusters.assign(self.labels)
        return {"client_masked_round_s": clock(lambda: self.round(self.clusters, self.moved, masked=True))}

    def round(self, clusters: CodedClusters, labels: Labels, *, masked: bool = False) -> Words:
        """One client's part of a round."""
        clusters.assign(labels)
        shape = self.plan.shape(self.size.m, clusters.sizes, self.columns)
        if not masked:
            return clusters.upload(shape)
        return clusters.upload(shape, self.plan.code.weights(self.responders)[:, 0], self.keys)

    # --- masks --------------------------------------------------------------------------------------------------

    def masks(self) -> Seconds:
        """What masking adds to an upload: t+1 streams expanded, summed and added to residues, on all threads."""
        layout = self.shape.layout
        block = prg.block_rows(layout)

        def work(first: int, end: int) -> None:
            flat = np.zeros((block, layout.row_residues), dtype=np.uint32)
            scratch = np.empty(flat.size, dtype=np.int32)
            reader = prg.SumReader(self.keys, layout, first, block)
            for a in range(first, end, block):
                part = flat[: min(block, end - a)]
                kernels.add_masks(reader.next(len(part)), part, layout.prime_floats, scratch)

        return {"masks_s": clock(lambda: parallel.for_row_ranges(layout.rows, block, work))}

    def aes(self) -> Seconds:
        """AES-256-CTR alone, of as many bytes: t+1 streams, 64 KiB a call, on the same threads."""
        layout, zeros = self.shape.layout, bytes(_AES_CHUNK)

        def work(first: int, end: int) -> None:
            buffer = bytearray(_AES_CHUNK + 16)
            size = 8 * (end - first) * layout.row_residues // 3
            for key, _ in self.keys:
                stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
                for _ in range(size // _AES_CHUNK):
                    stream.update_into(zeros, buffer)
                stream.update_into(zeros[: size % _AES_CHUNK], buffer)

        return {"aes_s": clock(lambda: parallel.for_row_ranges(layout.rows, parallel.ROW_GROUP, work))}

    # --- the server ---------------------------------------------------------------------------------------------

    def server(self) -> Seconds:
        """Add R masked uploads in 1 MiB chunks, decode, assign; all of it, and what is left after the last chunk."""
        before, after = self._decode(self.masked_uploads, None)
        return {"server_s": before + after, "server_after_last_s": after}

    def server_open(self) -> Seconds:
        """The same for open uploads, whose weights the server applies."""
        before, after = self._decode(self.open_uploads, self.plan.code.weights(self.responders))
        return {"server_open_s": before + after, "server_open_after_last_s": after}

    def server_checked(self) -> Seconds:
        """The same with the check for liars, of the same R uploads (a job that plans for A liars has 2A more)."""
        before, after = self._decode(self.open_uploads, self.plan.code.weights(self.responders), checked=True)
        return {"server_checked_s": before + after, "server_checked_after_last_s": after}

    def _decode(
        self, uploads: dict[int, Words], weights: npt.NDArray[np.float64] | None, *, checked: bool = False
    ) -> tuple[float, float]:
        machine = Clustering(self.size.m, self.size.k, initial=self.moved)
        self.distances = Distances(self.plan.field, self.size.m, self.size.k)
        self.distances.digits.fill(0)
        words = self.shape.layout.words
        chunks = [(j, first) for first in range(0, words, CHUNK_WORDS) for j in self.responders]
        begin = time.perf_counter()
        check = Check(self.plan.code, self.shape.layout, self.responders) if checked else None
        decoder = Decoder(self.shape, self.responders, weights, check)
        before = time.perf_counter() - begin
        for j, first in chunks[:-1]:
            chunk = uploads[j][
                first : first + CHUNK_WORDS
            ].copy()  # not timed: a chunk has just arrived, so it is cached
            begin = time.perf_counter()
            decoder.add(j, first, chunk)
            decoder.advance(self.distances)
            before += time.perf_counter() - begin
        j, first = chunks[-1]
        chunk = uploads[j][first:].copy()
        begin = time.perf_counter()
        decoder.add(j, first, chunk)
        if check is not None and check.liars(0):
            raise RuntimeError("honest uploads do not pass the check")
        decoder.finish(self.distances)
        machine.absorb(solve(machine.question, self.distances))
        return before, time.perf_counter() - begin

    def check(self, sample: int = 50) -> None:
        """Raise RuntimeError unless all kinds of uploads decode to d′ as Python integers give it."""
        rows = self._random.choice(self.size.m, min(sample, self.size.m), replace=False)
        sums = np.zeros((self.size.k, self.size.d), dtype=np.int64)
        np.add.at(sums, self.moved, self.quantised)
        difference = sums[None] - self.sizes[None, :, None] * self.quantised[rows, None]
        expected = (difference.astype(object) ** 2).sum(axis=2)
        for decode in (self.server, self.server_open, self.server_checked):
            decode()
            if not (self.distances.integers(self.columns)[rows] == expected).all():
                raise RuntimeError(f"{decode.__name__} does not decode to the exact distances")

    # --- sharing ------------------------------------------------------------------------------------------------

    def sharing(self) -> Seconds:
        """One client's rows, encoded and packed for all n clients."""
        return {"sharing_s": clock(lambda: self.share_sets[0].shares(range(self.who.n)))}
