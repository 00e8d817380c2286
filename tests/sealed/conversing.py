"""Scripts run by a server and a committee in memory, and comparisons in the tiled layout of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.coding.field import Field
from secfc.privacy.sealed import steps
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.context import Line, Purse
from secfc.privacy.sealed.messages import SERVER, Talk
from secfc.privacy.sealed.referee import Referee
from secfc.privacy.sealed.sides import Side
from secfc.privacy.sealed.terms import Terms

TILE = 256


def converse(terms: Terms, script: Callable[[Side], Talk[Any]], chunk: int = 0) -> list[Any]:
    """Run a script at all ends; the server's result, then the members'."""
    committee, seeds = Purse(bytes(32), b"s"), [Purse(bytes([j + 1] * 32), b"s") for j in range(terms.members)]
    sides: list[Side] = [Referee(terms, Line(b"C", chunk), 1, seeds)]
    sides += [Comparer(terms, Line(b"C", chunk), 1, j, committee, seed) for j, seed in enumerate(seeds)]
    talks, waits, results = [script(side) for side in sides], [None] * len(sides), [None] * len(sides)
    mail: dict[tuple[int, Any, int], Any] = {}
    over, data = [False] * len(sides), [None] * len(sides)
    while not all(over):
        for i, talk in enumerate(talks):
            if over[i]:
                continue
            if waits[i] is not None:
                wait = waits[i]
                keys = [(i, (sides[i].line.stage, sides[i].line.step, wait.kind), sender) for sender in wait.senders]
                if not all(key in mail for key in keys):
                    continue
                data[i] = [mail.pop(key) for key in keys]
            try:
                waits[i] = talk.send(data[i])
            except StopIteration as end:
                over[i], results[i] = True, end.value
            for out in sides[i].out:
                message = out.message
                receiver = 0 if out.to == SERVER else out.to + 1
                mail[receiver, (message.stage, message.step, message.kind), i - 1 if i else SERVER] = message.data
            sides[i].out = []
    return results


def residues(field: Field, values: Sequence[int]) -> npt.NDArray[np.uint32]:
    return np.array([[value % p for p in field.primes] for value in values], dtype=np.uint32).reshape(-1, field.lanes)


def compare(terms: Terms, y: Sequence[int], rho: Sequence[int], chunk: int = 0) -> npt.NDArray[np.bool_]:
    """[E < 0] for v = E = y − ρ, by the product's COMPARE."""

    def script(side: Side) -> Talk[Any]:
        own = residues(terms.field, rho if side.serves else y)
        return (yield from side.compare([steps.digits_of(terms.field, own)]))

    g, *betas = converse(terms, script, chunk)
    assert all((beta == betas[0]).all() for beta in betas)
    return np.asarray((g ^ betas[0]).astype(bool))


def tiled(matrix: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """(r, N) in the kernels' order."""
    matrix = np.asarray(matrix, dtype=np.uint8)
    return np.concatenate([matrix[:, a : a + TILE].reshape(-1) for a in range(0, matrix.shape[1], TILE)])


def untiled(flat: npt.NDArray[np.uint8], rows: int) -> npt.NDArray[np.int64]:
    """The inverse: (N, r)."""
    count = len(flat) // rows
    edges = range(0, count, TILE)
    parts = [flat[a * rows : min(a + TILE, count) * rows].reshape(rows, -1) for a in edges]
    return np.concatenate(parts, axis=1).T.astype(np.int64)
