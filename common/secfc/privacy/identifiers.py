"""Row IDs: what stands for a row where nobody may learn whose it is.

An ID is two numbers modulo Q = p₁p₂p₃, six residues in all, uniform: Q² > 2^125.9 values. Among m fresh IDs two are equal
with probability below m²/2^126.9: 2^-87 for a million rows, 2^-64 for two thousand million. An array of IDs has shape (m,
2) and dtype uint64: each word holds the residues of one number, 21 bits per lane, lowest lane first; rows are compared as
(first word, second word).

`fresh` IDs (the default) come from a client's secret seed and say nothing about the row. They are never a plain hash of the
row: anyone could hash a guess and look it up. `linked` IDs are for rows that carry a name of their own and must not be held
twice: HMAC-SHA256 under a key that the clients share and the server does not have. Every client holds that key, so every
client can test guesses: use it only for names whose presence the *clients* may learn.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from secfc.coding import prg
from secfc.coding.field import RESIDUE_BITS, Field, Residues
from secfc.errors import DataError, InvalidInput, Malformed
from secfc.framing import framed

Ids = npt.NDArray[np.uint64]
FIELD = Field.of(3)
ID_BYTES = 16
KEY_BYTES = 32
_MASK = np.uint64((1 << RESIDUE_BITS) - 1)


def none() -> Ids:
    """No IDs."""
    return np.empty((0, 2), dtype=np.uint64)


def fresh(count: int, seed: bytes, field: Field = FIELD) -> Ids:
    """`count` uniform IDs from a secret 32-byte seed: the same again after a restart. Sorted order tells nothing."""
    return _from_residues(field, prg.uniform(field, count, 2, seed))


def linked(names: Sequence[str], key: bytes, context: bytes) -> Ids:
    """IDs of named rows: HMAC-SHA256 of (context, name) under the clients' key, reduced to residues.

    Names are equal if their texts are, after Unicode normalisation (NFC). `context` is public and differs from job to job, so
    that IDs of two jobs cannot be compared. Raises DataError if a name is missing or stands twice in this client's own data.
    """
    if len(key) < KEY_BYTES:
        raise InvalidInput(f"the key of linked IDs must have at least {KEY_BYTES} bytes")
    texts = [unicodedata.normalize("NFC", name).encode() for name in names]
    first: dict[bytes, int] = {}
    for row, text in enumerate(texts, start=1):
        if not text:
            raise DataError(f"row {row} has no ID; linked IDs need one in every row")
        if first.setdefault(text, row) != row:
            raise DataError(f"rows {first[text]} and {row} have the same ID; keep one of them")
    head = framed(b"secfc/v1/linked", context)
    digests = b"".join(hmac.digest(key, head + framed(text), "sha256") for text in texts)
    return _from_digests(np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 32))


def _from_digests(digests: npt.NDArray[np.uint8]) -> Ids:
    """Five bytes a residue: 40 bits modulo a prime of 21 bits are uniform but for 2^-19, which collisions do not feel."""
    weights = np.array([1 << 8 * b for b in range(5)], dtype=np.uint64)
    numbers = (digests[:, :30].reshape(-1, 2, FIELD.lanes, 5) * weights).sum(axis=3, dtype=np.uint64)
    residues = numbers % np.array(FIELD.primes, dtype=np.uint64)
    return _packed(residues)


def _packed(residues: npt.NDArray[np.uint64]) -> Ids:
    """(m, 2, L) residues in [0, p) as IDs."""
    shifts = np.arange(residues.shape[2], dtype=np.uint64) * np.uint64(RESIDUE_BITS)
    return np.asarray((residues << shifts).sum(axis=2, dtype=np.uint64))


def _from_residues(field: Field, residues: Residues) -> Ids:
    """Balanced residues (L, m, 2) as IDs."""
    primes = np.array(field.primes, dtype=np.int64).reshape(-1, 1, 1)
    return _packed((residues.astype(np.int64) % primes).astype(np.uint64).transpose(1, 2, 0))


def texts(ids: Ids) -> list[str]:
    """IDs for people and files: 32 hexadecimal digits each."""
    data = ids.astype(">u8").tobytes().hex()
    return [data[i : i + 2 * ID_BYTES] for i in range(0, len(data), 2 * ID_BYTES)]


def check(ids: Ids, field: Field = FIELD) -> None:
    """Raise Malformed unless these are IDs: two words each, every residue below its prime."""
    if ids.ndim != 2 or ids.shape[1] != 2 or ids.dtype != np.uint64:
        raise Malformed("an ID has two 64-bit words")
    rest = ids
    for p in field.primes:
        if ((rest & _MASK) >= p).any():
            raise Malformed("an ID holds a residue that is not below its prime")
        rest = rest >> np.uint64(RESIDUE_BITS)
    if rest.any():
        raise Malformed("an ID has more bits than its residues")


def order(ids: Ids) -> npt.NDArray[np.int64]:
    """The permutation that sorts IDs."""
    by_first = np.argsort(ids[:, 0])
    first = ids[by_first, 0]
    if (first[1:] == first[:-1]).any():  # never among honest ones, to speak of
        return np.asarray(np.lexsort((ids[:, 1], ids[:, 0])))
    return by_first


def all_differ(in_order: Ids) -> bool:
    """Whether no two of these sorted IDs are equal."""
    return not (in_order[1:] == in_order[:-1]).all(axis=1).any()


def find(in_order: Ids, ids: Ids) -> npt.NDArray[np.int64]:
    """Where `ids` stand among sorted IDs that all differ; -1 for one that is not there."""
    if not len(in_order) or not len(ids):
        return np.full(len(ids), -1, dtype=np.int64)
    known, wanted = _bytes(in_order), _bytes(ids)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at, -1)


def _bytes(ids: Ids) -> npt.NDArray[np.bytes_]:
    """One 16-byte string an ID, in the same order. (numpy drops zero bytes at the end, which changes neither order nor
    equality of strings of one length.)"""
    return np.ascontiguousarray(ids.astype(">u8")).view("S16").reshape(-1)
