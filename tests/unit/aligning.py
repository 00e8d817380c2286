"""For tests: Private ID alignment (docs/protocol.md, Section 2a) in one process, readable as its specification.

    1  every client shares its number of rows; the sum, m, is opened             (left out: tables are sized by max_rows)
    2  every client shares a table of its IDs; the sum is opened and peeled       (`union`)
    3  if IDs are left, step 2 again for those
    4  all know the same m sorted IDs; a row's slot is the place of its ID

Whatever is opened goes one way: a client adds up its n shares and sends the sum to the server; the server decodes all n sums,
and sends what follows to everybody. Nobody learns a sum over fewer than all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from secfc.coding import prg, summing
from secfc.coding.field import Words
from secfc.coding.lagrange import Code
from secfc.coding.sharing import Shares
from secfc.coding.summing import Sum
from secfc.errors import InvalidInput
from secfc.privacy.identifiers import Ids
from secfc.privacy.union import CELLS_PER_ID, IdUnion, peel


def align(
    code: Code,
    ids: Sequence[Ids],
    session: bytes,
    limit: int,
    *,
    count_first: bool = True,
    cells_per_id: float = CELLS_PER_ID,
) -> IdUnion:
    """The union of all clients' IDs; `limit` is the agreed largest number of rows."""
    if len(ids) != code.clients:
        raise InvalidInput(f"the union is for {code.clients} clients, IDs of {len(ids)} were given")
    seeds = [prg.fresh_key() for _ in ids]
    counted = None
    if count_first:
        outgoing = [summing.count_shares(code, len(own), seed, session) for own, seed in zip(ids, seeds, strict=True)]
        counted = summing.opened_count(code, summed(outgoing, lambda: summing.count_sum(code)))
    union = IdUnion(code, session, limit, counted, cells_per_id)
    while not union.finished:
        tables = [union.contribution(own, seed) for own, seed in zip(ids, seeds, strict=True)]
        union.learn(peel(union.shape, union.shape.opened(summed(tables, union.shape.sum))))
    return union


def summed(outgoing: Sequence[Shares], empty: Callable[[], Sum]) -> dict[int, Words]:
    """What every client sends to the server: the sum of its shares of what all n share."""
    everybody = range(len(outgoing))
    sums = [empty() for _ in everybody]
    for i, shares in enumerate(outgoing):
        for held, words in zip(sums, shares.shares(everybody), strict=True):
            held.add(i, words)
    return {j: held.words() for j, held in enumerate(sums)}
