"""A Lloyd iteration in SPU (three parties, ABY3, simulated in one process), as matrix products and one tournament.

Run by `peers` with an interpreter that has the extra `peers`: `python peer_spu.py IN.npz OUT.json`. It needs numpy and spu
only. Rows, centres, distances and assignment all stay secret; the iteration's centres are shares that go into the next. The
nearest centre is found by a tournament that carries the one-hot assignment along, which is far quicker than argmin and
one-hot encoding of its result; new centres are one more matrix product and k reciprocals.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import spu
from spu import libspu
from spu.utils import frontend

PARTIES = 3
HALVING = 2.0**-12  # keeps cluster sums and sizes in the range where fixed point is most exact


def step(rows: Any, centres: Any) -> Any:
    """The next centres and the one-hot assignment."""
    k = centres.shape[0]
    scores = (centres * centres).sum(axis=1) - 2.0 * (rows @ centres.T)
    hot = _tournament(scores, k)
    sizes = hot.sum(axis=0) * HALVING
    sums = (hot.T @ rows) * HALVING
    return sums * (1.0 / sizes)[:, None], hot


def _tournament(scores: Any, k: int) -> Any:
    """One-hot index of the least score; k is a power of two."""
    hot = jnp.ones((scores.shape[0], k, 1), dtype=jnp.float32)
    while scores.shape[1] > 1:
        left, right = scores[:, 0::2], scores[:, 1::2]
        wins = left <= right
        scores = jnp.where(wins, left, right)
        won = wins[:, :, None].astype(jnp.float32)
        hot = jnp.concatenate([hot[:, 0::2] * won, hot[:, 1::2] * (1.0 - won)], axis=2)
    return hot[:, 0, :]


class Parties:
    """Three runtimes joined in memory; variables stay with them between iterations."""

    def __init__(self, threads: int) -> None:
        config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM64)
        config.max_concurrency = threads
        config.fxp_div_goldschmidt_iters = 4  # of k numbers only, and centres come out more exact
        config.enable_pphlo_profile = True  # logs the bytes sent
        description = libspu.link.Desc()
        for rank in range(PARTIES):
            description.add_party(f"id_{rank}", f"thread_{rank}")
        self.io = spu.Io(PARTIES, config)
        self.runtimes: list[Any] = [None] * PARTIES

        def join(rank: int) -> None:
            link = libspu.link.create_mem(description, rank)
            self.runtimes[rank] = spu.Runtime(link, config)

        self._together(join)

    def put(self, name: str, value: Any) -> None:
        for runtime, share in zip(self.runtimes, self.io.make_shares(value, libspu.Visibility.VIS_SECRET), strict=True):
            runtime.set_var(name, share)

    def open(self, name: str) -> Any:
        return self.io.reconstruct([runtime.get_var(name) for runtime in self.runtimes])

    def rename(self, old: str, new: str) -> None:
        for runtime in self.runtimes:
            runtime.set_var(new, runtime.get_var(old))

    def run(self, executable: Any) -> None:
        self._together(lambda rank: self.runtimes[rank].run(executable))

    @staticmethod
    def _together(work: Any) -> None:
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(PARTIES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main(source: str, target: str) -> None:
    """Run the iterations asked for and write seconds, bytes and the assignment."""
    data = np.load(source)
    rows, centres = data["rows"].astype(np.float32), data["centres"].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "spu.log"
        options = libspu.logging.LogOptions()
        options.system_log_path, options.enable_console_logger = str(log), False
        libspu.logging.setup_logging(options)
        parties = Parties(int(data["threads"]))
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            step,
            (rows, centres),
            {},
            ["rows", "centres"],
            [libspu.Visibility.VIS_SECRET] * 2,
            lambda out: ["next", "hot"],
        )
        parties.put("rows", rows)
        parties.put("centres", centres)
        seconds = []
        for _ in range(int(data["iterations"])):
            begin = time.perf_counter()
            parties.run(executable)
            seconds.append(time.perf_counter() - begin)
            parties.rename("next", "centres")
        labels = parties.open("hot").argmax(axis=1)
        text = log.read_text(encoding="utf-8", errors="replace")
    sent = [int(found) for found in re.findall(r"Link details: total send bytes (\d+)", text)]
    result = {
        "seconds": seconds,
        "bytes": sum(sent) // len(seconds) if sent else None,
        "labels": labels.tolist(),
        "centres": np.asarray(parties.open("centres")).tolist(),
        "version": spu.__version__,
    }
    Path(target).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
