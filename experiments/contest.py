"""One clustering job that SecFC and its peers all do: rows, start and number of iterations; and how each of ours is timed.

Each function gives a row: seconds of the quickest iteration (of all parties together on this machine; what disturbs a
measurement only ever adds to it), bytes that travel in an iteration, and the labels after the last one, None where they
are not comparable.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from experiments import kmeans_fed, network
from experiments.mixtures import deal, mixture
from experiments.tables import gather
from experiments.timing import clock
from experiments.workload import Size
from secfc.agreement import plan
from secfc.coding import parallel
from secfc.kmeans import assignments, central, fixedpoint
from secfc.kmeans.lloyd import Clustering
from secfc.protocol import memory
from secfc.protocol.watching import Answered

Labels = npt.NDArray[np.int32]
Row = dict[str, Any]
CLIENTS, PRIVACY, SIGMA = 10, 3, 20.0
REPETITIONS = 5


class Job:
    """A mixture, quantised, so that all compute on the very same numbers; the start is a public assignment."""

    def __init__(
        self, size: Size, seed: int, iterations: int, *, clients: int = CLIENTS, privacy: int = PRIVACY
    ) -> None:
        self.size, self.seed, self.iterations = size, seed, iterations
        self.clients, self.privacy = clients, privacy
        self.drawn = mixture(size.m, size.d, size.k, SIGMA, seed)
        self.quantised = fixedpoint.quantise(self.drawn.values, self.drawn.bound, self.drawn.precision)
        self.rows = fixedpoint.dequantise(self.quantised, self.drawn.precision)
        first = self.rows[np.random.default_rng((5, seed)).choice(size.m, size.k, replace=False)]
        self.start: Labels = ((first * first).sum(axis=1) - 2 * self.rows @ first.T).argmin(axis=1).astype(np.int32)
        self.centres = np.stack([self.rows[self.start == h].mean(axis=0) for h in range(size.k)])
        self.expected = central.run(self.quantised, size.k, initial=self.start, max_rounds=iterations).labels

    def plan(self, uploads: str) -> plan.Plan:
        return plan.make(
            plan.Wishes(
                self.clients,
                self.privacy,
                self.size.k,
                self.size.d,
                self.size.m,
                bound=self.drawn.bound,
                precision=self.drawn.precision,
                uploads=uploads,
            )
        )


def scikit_learn(job: Job) -> Row:
    """One iteration is (a fit of N+1 − a fit of one) / N, each the quickest of several; where noise is larger than that,
    a fit divided by its iterations, which is too much rather than too little."""
    from sklearn.cluster import KMeans

    def fit(iterations: int, threads: int = 1) -> Any:
        with threadpool_limits(threads):
            return KMeans(job.size.k, init=job.centres, n_init=1, max_iter=iterations, tol=0).fit(job.rows)

    more = int(fit(21).n_iter_) - 1

    def iteration(threads: int) -> float:
        one = min(clock(lambda: fit(1, threads)) for _ in range(REPETITIONS))
        many = min(clock(lambda: fit(more + 1, threads)) for _ in range(REPETITIONS))
        return (many - one) / more if many > one else many / (more + 1)

    return {"seconds": min(iteration(threads) for threads in _threads()), "bytes": 0, "labels": _lloyd_labels(job)}


def _threads() -> set[int]:
    """One thread and all: scikit-learn's wait for each other at every step, so on a busy machine one can be quicker."""
    return {1, parallel.threads()}


def _lloyd_labels(job: Job) -> Labels:
    """scikit-learn's labels after so many iterations: `labels_` are nearest to the final centres, so one less is asked."""
    from sklearn.cluster import KMeans

    if job.iterations == 1:
        scores = (job.centres**2).sum(axis=1) - 2 * job.rows @ job.centres.T
        return np.asarray(scores.argmin(axis=1), dtype=np.int32)
    model = KMeans(job.size.k, init=job.centres, n_init=1, max_iter=job.iterations - 1, tol=0).fit(job.rows)
    return np.asarray(model.labels_, dtype=np.int32)


def k_fed(job: Job) -> Row:
    """All of k-FED, whose clients are told k′ = √k, for which its authors prove it good."""
    told = round(job.size.k**0.5)
    parts = deal(job.drawn.truth, job.clients, told, job.seed)
    rows = [job.rows[at] for at in parts]

    def once(threads: int = 1) -> kmeans_fed.Clustered:
        return kmeans_fed.cluster(rows, told, job.size.k, job.seed, threads=threads)

    found = once()
    seconds = min(clock(lambda threads=threads: once(threads)) for threads in _threads() for _ in range(REPETITIONS))  # type: ignore[misc]
    return {"seconds": seconds, "bytes": found.bytes_sent, "labels": gather(parts, found.labels)}


def secfc(job: Job, uploads: str) -> Row:
    """The protocol in memory: all clients one after another, then the server, from one assignment to the next; masks included
    if there are."""
    agreed = job.plan(uploads)
    rounds: list[float] = []
    sent: list[int] = []
    begun, base = [0.0], [job.start]

    def observe(done: Answered) -> None:
        rounds.append(perf_counter() - begun[0])
        sizes = np.bincount(base[0], minlength=job.size.k)
        words = agreed.shape(job.size.m, sizes, done.columns).layout.words
        told = len(assignments.encode(done.labels, job.size.k, base[0]))
        sent.append(8 * words * agreed.responders + told * job.clients)
        base[0] = done.labels
        begun[0] = perf_counter()

    def once() -> memory.Result:
        base[0] = job.start
        parts = np.array_split(job.quantised, job.clients)

        def machine(count: int) -> Clustering:
            begun[0] = perf_counter()
            return Clustering(count, job.size.k, initial=job.start, max_rounds=job.iterations)

        return memory.run(agreed, parts, machine, observe=observe)

    results = [once() for _ in range(3)]
    return {"seconds": min(rounds), "bytes": round(sum(sent) / len(sent)), "labels": results[-1].labels}


def secfc_over_tls(job: Job, uploads: str) -> Row:
    """Rounds of client processes and a server on this machine; they draw their own start, so labels are not compared."""
    values = (job.rows, job.drawn.bound, job.drawn.precision)
    rounds = max(job.iterations, 5)
    row = network.measure(job.clients, job.privacy, rounds, lambda _what: None, job.size, values, uploads)
    sent = round(row["uploaded_bytes"] + row["dealt_bytes"])
    return {"seconds": row["quickest_round_s"], "bytes": sent, "labels": None}
