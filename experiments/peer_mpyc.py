"""A Lloyd iteration in MPyC with Shamir sharing, in the form that suits it best: distances opened to one party.

Run by `peers` with an interpreter that has the extra `peers`: `python peer_mpyc.py -M10 -T3 IN.npz OUT.json` starts ten
processes that talk over TCP on this machine (without TLS). It needs numpy and mpyc only. It computes what SecFC computes, in
one prime field: rows are shared once, ‖x‖² once; in an iteration every party sums its shares by cluster, one matrix product
with its resharing gives the scaled distances, party 0 opens them, assigns exactly and tells all. MPyC can also keep the
distances secret, but its comparisons of m·k numbers would take minutes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mpyc
import numpy as np
from mpyc.runtime import mpc


def nearest(scaled: Any, sizes: Any) -> Any:
    """The cluster with the least d′/|S|², in floating point: near-ties do not occur in these rows."""
    return (scaled.astype(np.float64) / sizes.astype(np.float64) ** 2).argmin(axis=1)


async def distances(rows: Any, norms: Any, labels: Any, k: int) -> Any:
    """‖Σ x − |S|·x_i‖² of all rows and clusters, opened to party 0."""
    sizes = np.bincount(labels, minlength=k)
    members = [np.flatnonzero(labels == h) for h in range(k)]
    sums = mpc.np_vstack([mpc.np_sum(rows[one], axis=0) for one in members])
    own = mpc.np_sum(sums * sums, axis=1)
    weights = (-2 * sizes).astype(object)
    field = type(rows).sectype.field
    scaled = mpc.np_transpose(sums) * field.array(weights % field.modulus)
    found = rows @ scaled
    found = found + norms * field.array((sizes.astype(object) ** 2) % field.modulus) + own
    opened = await mpc.output(found, receivers=[0])
    return None if opened is None else (np.asarray(opened.value), sizes)


async def main(source: str, target: str) -> None:
    """Run the iterations asked for and write seconds, bytes and the assignment."""
    data = np.load(source)
    quantised, labels, k = data["quantised"], data["labels"], int(data["k"])
    secure = mpc.SecFld(modulus=int(data["modulus"]))
    await mpc.start()
    field = secure.field
    mine = secure.array(field.array(quantised.astype(object) % field.modulus))
    rows = mpc.input(mine, senders=0)
    norms = mpc.np_sum(rows * rows, axis=1).reshape(len(quantised), 1)
    await mpc.gather(norms)
    seconds, before = [], _sent()
    for _ in range(int(data["iterations"])):
        await mpc.barrier()
        begin = time.perf_counter()
        found = await distances(rows, norms, labels, k)
        chosen = None if found is None else nearest(*found).astype(np.int32)
        labels = await mpc.transfer(chosen, senders=0)
        seconds.append(time.perf_counter() - begin)
    sent = await mpc.transfer(_sent() - before)
    if mpc.pid == 0:
        each = sum(sent) // len(seconds)
        result = {"seconds": seconds, "bytes": each, "labels": labels.tolist(), "version": mpyc.__version__}
        Path(target).write_text(json.dumps(result), encoding="utf-8")
    await mpc.shutdown()


def _sent() -> int:
    return sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)


if __name__ == "__main__":
    mpc.run(main(*sys.argv[1:3]))
