"""Residue streams: what their description says, bit for bit; uniform; the same whatever the blocks and threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from secfc.coding import prg
from secfc.coding.field import Field, Layout
from secfc.coding.parallel import ROW_GROUP, block_rows
from secfc.errors import InvalidInput
from tests.oracle import flat_order, small_field, stream

KEY = bytes(range(32))
JUST_ABOVE_2_20 = (1048583, 1048589, 1048601)  # half of all 21-bit candidates are rejected


def flat(field: Field, rows: int, columns: int, key: bytes = KEY) -> list[int]:
    return flat_order(Layout.uniform(field, rows, columns), list(prg.uniform(field, rows, columns, key)))


@pytest.mark.parametrize("field", [Field.of(1), Field.of(3), Field.of(6), small_field(*JUST_ABOVE_2_20)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 2), (40, 5)])
def test_streams_follow_their_description(field: Field, rows: int, columns: int) -> None:
    primes = Layout.uniform(field, rows, columns).primes.tolist()
    assert flat(field, rows, columns) == stream(KEY, primes, rows * len(primes))[0]


def test_rejection_is_really_exercised() -> None:
    field = small_field(*JUST_ABOVE_2_20)
    primes = Layout.uniform(field, 300, 2).primes.tolist()
    expected, replaced = stream(KEY, primes, 300 * len(primes))
    assert 0.45 < replaced / len(expected) < 0.55
    assert flat(field, 300, 2) == expected


def test_rejection_in_federations_primes() -> None:
    """There about one candidate in 25 000 is rejected: enough residues for a few, spread over several blocks."""
    field = Field.of(16)
    rows, columns = 9000, 2
    primes = Layout.uniform(field, rows, columns).primes.tolist()
    got = np.array(flat(field, rows, columns))
    block = 6 * 500
    sample, _ = stream(KEY, primes, 600, first=block * len(primes))
    assert got[block * len(primes) :][:600].tolist() == sample
    assert (got.reshape(rows, len(primes)) < np.array(primes)).all()
    raw = np.frombuffer(_raw_stream(8 * 96000), dtype="<u8")
    candidates = np.stack(
        [raw >> s & np.uint64((1 << 21) - 1) for s in (np.uint64(0), np.uint64(21), np.uint64(42))], 1
    )
    tiled = np.tile(np.array(primes), rows)
    rejected = np.flatnonzero(candidates.reshape(-1) >= tiled)
    assert len(rejected) > 5
    for q in rejected.tolist():
        assert got[q] == stream(KEY, primes, 1, first=q)[0][0]
    kept = np.ones(len(tiled), dtype=bool)
    kept[rejected] = False
    assert (got[kept] == candidates.reshape(-1)[kept]).all()


def _raw_stream(size: int) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def test_same_key_same_residues_and_other_key_others() -> None:
    field = Field.of(2)
    assert flat(field, 50, 3) == flat(field, 50, 3)
    other = bytes([1, *KEY[1:]])
    assert sum(a == b for a, b in zip(flat(field, 50, 3), flat(field, 50, 3, other), strict=True)) < 3
    assert flat_order(Layout.uniform(field, 9, 1), list(prg.uniform(field, 9, 1))) != flat(field, 9, 1)


@pytest.mark.parametrize("widths", [(1,), (2,), (3, 3, 1), (5, 2, 0)])
@pytest.mark.parametrize("signs", [[1], [1, -1, 1]])
def test_reading_from_a_later_row_continues_the_stream(widths: tuple[int, ...], signs: list[int]) -> None:
    """Residue q depends on (key, q) alone, so any multiple of six rows is a place to start, at any step."""
    field = small_field(*JUST_ABOVE_2_20[: len(widths)])
    layout = Layout(field, 60, widths)
    keys = [(bytes([i]) * 32, sign) for i, sign in enumerate(signs)]

    def read(first: int, rows: int, step: int) -> list[int]:
        reader = prg.SumReader(keys, layout, first, step)
        out: list[int] = []
        for a in range(first, first + rows, step):
            part = min(step, first + rows - a)
            out += reader.next(part).T.reshape(-1)[: part * layout.row_residues].tolist()
        return out

    whole = read(0, 60, 60)
    singles = [stream(key, layout.primes.tolist(), len(whole))[0] for key, _ in keys]
    assert whole == [sum(s * v for s, v in zip(signs, values, strict=True)) for values in zip(*singles, strict=True)]
    for first in range(0, 60, ROW_GROUP):
        for step in (ROW_GROUP, 3 * ROW_GROUP):
            assert read(first, 60 - first, step) == whole[first * layout.row_residues :]


def test_more_rows_begin_with_the_same_ones() -> None:
    """And blocks do not show: 4000 rows are several blocks and threads, 20 are one."""
    field = Field.of(2)
    assert block_rows(8 * 2 * 2) < 4000
    assert flat(field, 4000, 2)[:80] == flat(field, 20, 2)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_threads_does_not_matter(threads: str) -> None:
    code = (
        "import hashlib; from secfc.coding import parallel, prg; from secfc.coding.field import Field;"
        f"assert parallel.threads() == {threads};"
        "print(hashlib.sha256(prg.uniform(Field.of(2), 5000, 3, bytes(32)).tobytes()).hexdigest())"
    )
    env = os.environ | {"SECFC_THREADS": threads}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    import hashlib

    assert found.strip() == hashlib.sha256(prg.uniform(Field.of(2), 5000, 3, bytes(32)).tobytes()).hexdigest()


@pytest.mark.parametrize("field", [small_field(1048583), Field.of(1)])
def test_residues_are_spread_evenly(field: Field) -> None:
    """A chi-square of 31 cells with a fixed key: 30 degrees of freedom, so below 60 but for one key in a thousand."""
    values = np.array(flat(field, 6200, 5))
    p = field.primes[0]
    assert values.min() >= 0
    assert values.max() < p
    counts = np.bincount(values * 31 // p, minlength=31)
    widths = np.bincount(np.arange(p) * 31 // p, minlength=31) / p * len(values)
    assert 10 < ((counts - widths) ** 2 / widths).sum() < 60


def test_nothing_is_nothing() -> None:
    assert prg.uniform(Field.of(2), 0, 3, KEY).shape == (2, 0, 3)
    assert prg.uniform(Field.of(2), 3, 0, KEY).shape == (2, 3, 0)


def test_bad_keys_and_starts_are_refused() -> None:
    layout = Layout.uniform(Field.of(1), 9, 1)
    with pytest.raises(InvalidInput, match="32-byte key"):
        prg.uniform(Field.of(1), 3, 1, b"short")
    with pytest.raises(InvalidInput, match="whole AES block"):
        prg.SumReader([(KEY, 1)], layout, 3, 3)


def test_secrets_are_not_printed() -> None:
    layout = Layout.uniform(Field.of(1), 6, 1)
    reader = prg.SumReader([(KEY, 1)], layout, 0, 6)
    assert KEY.hex() not in repr(reader) + repr(reader._streams)
    assert len(prg.fresh_key()) == 32
    assert prg.fresh_key() != prg.fresh_key()
