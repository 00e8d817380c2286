"""Lloyd's algorithm in Python integers and Fractions: slow, plain, and independent of the code under test.

Of `secfc` only the public coins are used, because they are part of a start's definition. Rows are tuples of Python
integers. Everything follows docs/protocol.md, Section 3:

* a row goes to the nearest centre, by exact Fractions, ties to the lowest index; an empty cluster has no centre;
* the empty clusters, in index order, each take the row with the largest distance to its new cluster, among rows whose
  cluster has at least two, each row once, ties to the lowest row; or, with empties = "largest", from the largest cluster
  (ties to the lowest) the row that comes first in an order drawn from the coins, each row once;
* stop when the assignment repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from secfc.kmeans.coins import Coins

Row = tuple[int, ...]
Centre = tuple[Fraction, ...]


@dataclass(frozen=True)
class Step:
    """What one request of the protocol must lead to."""

    phase: str
    labels: list[int]
    inertia: Fraction | None


def as_rows(matrix: object) -> list[Row]:
    """Rows of a numpy matrix (or nested sequence) as tuples of Python integers."""
    return [tuple(int(value) for value in row) for row in matrix]  # type: ignore[attr-defined]


def centres(rows: Sequence[Row], labels: Sequence[int], k: int) -> list[Centre | None]:
    """The exact mean of every cluster; None for an empty one."""
    out: list[Centre | None] = []
    for h in range(k):
        members = [row for row, label in zip(rows, labels, strict=True) if label == h]
        if not members:
            out.append(None)
            continue
        out.append(tuple(Fraction(sum(column), len(members)) for column in zip(*members, strict=True)))
    return out


def squared(row: Row, centre: Centre | Row) -> Fraction:
    """‖row − centre‖², exactly."""
    return sum(((x - c) ** 2 for x, c in zip(row, centre, strict=True)), Fraction(0))


def table(rows: Sequence[Row], labels: Sequence[int], k: int) -> list[list[Fraction | None]]:
    """Distances of all rows to all centres."""
    means = centres(rows, labels, k)
    return [[None if mean is None else squared(row, mean) for mean in means] for row in rows]


def scaled(rows: Sequence[Row], labels: Sequence[int], h: int) -> list[int]:
    """d′ of all rows to cluster h: ‖Σ_{S_h} x − |S_h|·x_i‖², straight from docs/protocol.md, Section 3."""
    members = [row for row, label in zip(rows, labels, strict=True) if label == h]
    total = [sum(column) for column in zip(*members, strict=True)]
    size = len(members)
    return [sum((t - size * x) ** 2 for t, x in zip(total, row, strict=True)) for row in rows]


def nearest(distances: Sequence[Sequence[Fraction | None]]) -> list[int]:
    """The lowest index among the nearest centres of every row."""
    out = []
    for line in distances:
        there = [(value, h) for h, value in enumerate(line) if value is not None]
        out.append(min(there)[1])
    return out


def fill_empty(distances: Sequence[Sequence[Fraction | None]], labels: Sequence[int], k: int) -> list[int]:
    """The rule for empty clusters."""
    out = list(labels)
    away: list[Fraction] = []
    for line, label in zip(distances, labels, strict=True):
        value = line[label]
        assert value is not None
        away.append(value)
    used: set[int] = set()
    for h in range(k):
        if h in out:
            continue
        candidates = [i for i in range(len(out)) if i not in used and out.count(out[i]) >= 2]
        row = max(candidates, key=lambda i: (away[i], -i))
        out[row] = h
        used.add(row)
    return out


def fill_from_largest(labels: Sequence[int], k: int, coins: Coins) -> list[int]:
    """The rule "largest" for empty clusters."""
    out = list(labels)
    drawn = [int(value) for value in coins.integers("ranks of rows", (1 << 31) - 1, len(out))]
    used: set[int] = set()
    for h in range(k):
        if h in out:
            continue
        donor = max(range(k), key=lambda c: (out.count(c), -c))
        row = min((i for i in range(len(out)) if out[i] == donor and i not in used), key=lambda i: (drawn[i], i))
        out[row] = h
        used.add(row)
    return out


def separation(rows: Sequence[Row], labels: Sequence[int], k: int) -> list[int]:
    """S′_h = {i : 9·d(i, h) ≤ d(i, s) for every s ≠ h}; an empty S′_h keeps S_h whole, and again until none is empty."""
    distances = table(rows, labels, k)
    out = []
    for line in distances:
        fitting = [
            h
            for h, mine in enumerate(line)
            if mine is not None
            and all(9 * mine <= other for s, other in enumerate(line) if s != h and other is not None)
        ]
        out.append(fitting[0] if fitting else -1)
    kept: set[int] = set()
    while empty := [h for h in range(k) if h in labels and h not in out and h not in kept]:
        kept.update(empty)
        out = [old if old in empty else new for old, new in zip(labels, out, strict=True)]
    return out


def draw(weights: Sequence[int], coins: Coins, label: str, bits: int) -> int | None:
    """The least i with 2^κ·(w_0 + … + w_i) > u·Σw for κ coins u; None if all weights are 0."""
    u, total, running = coins.below(label, 1 << 64) >> (64 - bits), sum(weights), 0
    for i, weight in enumerate(weights):
        running += weight
        if (running << bits) > u * total:
            return i
    return None


def candidates_of(
    i: int, weights: Sequence[int], taken: Sequence[int], coins: Coins, bits: int, tries: int
) -> list[int]:
    """The rows that seed i is chosen from."""
    labels = [f"k-means++ {i}"] if tries == 1 else [f"k-means++ {i} {q}" for q in range(tries)]
    drawn = [row for label in labels if (row := draw(weights, coins, label, bits)) is not None]
    return drawn or [min(set(range(len(weights))) - set(taken))]


def draws(rows: Sequence[Row], k: int, coins: Coins, bits: int = 64, tries: int = 1) -> Iterator[list[int]]:
    """k-means++: the labels of the chosen rows (all others −1) after 1, 2, … k draws; the best of `tries` candidates each."""
    labels = [-1] * len(rows)
    chosen = [coins.below("k-means++ 0", len(rows))]
    labels[chosen[0]] = 0
    yield list(labels)
    for i in range(1, k):
        weights = [int(min(squared(row, rows[c]) for c in chosen)) for row in rows]
        found = candidates_of(i, weights, chosen, coins, bits, tries)
        left = [sum(min(w, squared(row, rows[c])) for w, row in zip(weights, rows, strict=True)) for c in found]
        pick = found[left.index(min(left))]
        chosen.append(pick)
        labels[pick] = i
        yield list(labels)


def lloyd(
    rows: Sequence[Row], labels: Sequence[int], k: int, max_rounds: int = 300, largest: Coins | None = None
) -> Iterator[Step]:
    """Lloyd rounds from an assignment (−1: in no cluster) until it repeats; with coins, empty clusters are filled by them."""
    current = list(labels)
    for _ in range(max_rounds):
        distances = table(rows, current, k)
        new = nearest(distances)
        loss = sum((d for line, h in zip(distances, new, strict=True) if (d := line[h]) is not None), Fraction(0))
        new = fill_empty(distances, new, k) if largest is None else fill_from_largest(new, k, largest)
        yield Step("lloyd", new, loss)
        if new == current:
            return
        current = new


def run(
    rows: Sequence[Row],
    k: int,
    start: str = "k-means++",
    coins: Coins | None = None,
    initial: Sequence[int] | None = None,
    max_rounds: int = 300,
    empties: str = "furthest",
    bits: int = 64,
    tries: int = 1,
) -> list[Step]:
    """All steps of a clustering, request by request. `bits` is κ of a draw, `tries` the candidates of a seed."""
    steps: list[Step] = []
    assert empties in ("furthest", "largest")
    largest = coins if empties == "largest" else None
    if initial is not None:
        labels = list(initial)
    elif start == "random":
        assert coins is not None
        labels = [int(h) for h in coins.integers("random start", k, len(rows))]
    else:
        assert coins is not None
        chosen = list(draws(rows, k, coins, bits, tries))
        steps += [Step("seed", after, None) for after in chosen[1:]]
        distances = table(rows, chosen[-1], k)
        near = nearest(distances)
        labels = fill_empty(distances, near, k) if largest is None else fill_from_largest(near, k, largest)
        steps.append(Step("seed", labels, None))
        if start == "separation":
            labels = separation(rows, labels, k)
            steps.append(Step("separate", labels, None))
    return steps + list(lloyd(rows, labels, k, max_rounds, largest))
