"""One unambiguous way to put byte strings together before hashing, signing or deriving from them."""

from __future__ import annotations


def framed(*parts: bytes) -> bytes:
    """Each part after its length: no two different lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
