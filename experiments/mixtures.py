"""The rows of Tables 1 and 2, and how rows are dealt to clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BOX = 10.0


@dataclass(frozen=True)
class Rows:
    """Rows, a public bound on their values, the bits kept of a value, and the class of each row.

    `nearest` is the index of the closest true centre, which is what the paper's text calls the ground truth; `truth` is the
    component that a row was drawn from, which is what gives the paper's figures (see docs/results.md). Where there is no
    true centre, the two are the same.
    """

    values: Floats
    bound: float
    precision: int
    truth: Ints
    nearest: Ints

    @property
    def clusters(self) -> int:
        return int(self.truth.max()) + 1


def mixture(m: int, d: int, k: int, sigma: float, seed: int, *, box: float = BOX) -> Rows:
    """An isotropic Gaussian mixture of k components of equal weight, centres uniform in [−box, box]^d.

    The paper says only that centres are "randomly chosen"; ±10 is what scikit-learn's `make_blobs` takes. Values beyond the
    public bound (six σ outside the box, so next to never) are clipped to it, as a site would have to.
    """
    random = np.random.default_rng((1, seed))
    centres = random.uniform(-box, box, (k, d))
    truth = random.permutation(np.arange(m) % k)
    values = centres[truth] + random.normal(scale=sigma, size=(m, d))
    bound = float(2 ** int(np.ceil(np.log2(box + 6 * sigma))))
    precision = 13 - int(np.log2(bound))  # η = 2^13: m²·d·(2η)² stays below 2^63 at the paper's sizes
    values = np.clip(values, -bound, bound)
    squared = (centres * centres).sum(axis=1) - 2 * (values @ centres.T)
    return Rows(values, bound, precision, truth, squared.argmin(axis=1))


def deal(truth: Ints, clients: int, most: int, seed: int) -> list[Ints]:
    """The positions of each client's rows, dealt so that a client has rows of at most `most` (k′) classes.

    Client after client takes the k′ classes that have the fewest owners so far, ties broken by lot; so every class has an
    owner (n·k′ ≥ k) and the numbers of owners differ by at most one. Then the rows of a class, shuffled, are dealt evenly to
    its owners. With k′ = k every client owns every class: rows are then dealt independently of their class (i.i.d.).
    """
    random = np.random.default_rng((2, seed))
    classes = int(truth.max()) + 1
    owners: list[list[int]] = [[] for _ in range(classes)]
    for client in range(clients):
        load = np.array([len(one) for one in owners]) + random.uniform(0, 0.5, classes)
        for chosen in np.argsort(load)[:most]:
            owners[chosen].append(client)
    if not all(owners):
        raise ValueError(f"{clients} clients of at most {most} classes cannot own {classes} classes")
    parts: list[list[Ints]] = [[] for _ in range(clients)]
    for one, its_owners in enumerate(owners):
        rows = random.permutation(np.flatnonzero(truth == one))
        for client, part in zip(its_owners, np.array_split(rows, len(its_owners)), strict=True):
            parts[client].append(part)
    return [random.permutation(np.concatenate(part)) for part in parts]
