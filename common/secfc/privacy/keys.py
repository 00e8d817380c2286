"""What two clients know and nobody else does: a key for each pair, bound to who they are, and a proof of having it.

X25519 alone binds nothing: a public key has equivalents that anybody can compute and that give the same secret (RFC 7748,
Section 7), so whoever introduces itself with an equivalent of another's key would share that other's secrets without
knowing them, which is enough to make masks cancel. Therefore

    pair key      HKDF(X25519 secret; salt session; info "pair", session, and both names and both public keys in roster order)
    proof a → b   HKDF(pair key;      salt session; info "possession", session, a, b)

and nobody computes before everybody's proof is here: only who has a private key of its own can make it. Everything else that
a pair uses (`masks`) is derived from the pair key, so no two pairs, sessions or purposes share a key.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secfc.errors import WrongSender
from secfc.framing import framed

PROOF_BYTES = 32
Party = tuple[str, bytes]  # a client's name and its X25519 public key


def pair_keys(private: X25519PrivateKey, session: bytes, roster: Sequence[Party], me: int) -> dict[int, bytes]:
    """What client `me` shares with each other client of the roster. Raises WrongSender for a public key that is malformed or
    of low order."""
    return {j: _pair_key(private, session, roster, me, j) for j in range(len(roster)) if j != me}


def _pair_key(private: X25519PrivateKey, session: bytes, roster: Sequence[Party], me: int, other: int) -> bytes:
    both = [roster[j] for j in sorted((me, other))]
    bound = [part for name, public in both for part in (name.encode(), public)]
    return derive(_exchange(private, *roster[other]), session, b"pair", *bound)


def _exchange(private: X25519PrivateKey, name: str, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise WrongSender(
            f"the X25519 public key of {name} is not valid; it must join again with a fresh one"
        ) from None


def derive(secret: bytes, session: bytes, purpose: bytes, *bound: bytes) -> bytes:
    """A key for one purpose in one session, bound to all that is named: HKDF-SHA256 (RFC 5869)."""
    return expand(extract(secret, session), session, purpose, *bound)


def extract(secret: bytes, session: bytes) -> bytes:
    """The first half of `derive`, for whoever derives many keys from one secret."""
    return hmac.digest(session, secret, "sha256")


def expand(extracted: bytes, session: bytes, purpose: bytes, *bound: bytes) -> bytes:
    """The second half: one block of HKDF's output, which is a key's 32 bytes."""
    return hmac.digest(extracted, framed(b"secfc/v1/" + purpose, session, *bound) + b"\x01", "sha256")


def proofs(pairs: Mapping[int, bytes], session: bytes, names: Sequence[str], me: int) -> tuple[bytes, ...]:
    """Our proof to every client, in roster order; empty for ourselves."""
    return tuple(b"" if j == me else _proof(pairs[j], session, name, names[me]) for j, name in enumerate(names))


def check_proofs(
    given: Sequence[bytes], pairs: Mapping[int, bytes], session: bytes, names: Sequence[str], me: int
) -> None:
    """Raise WrongSender unless everybody has proved to us that it has the key it introduced."""
    for j, name in enumerate(names):
        if j != me and not hmac.compare_digest(_proof(pairs[j], session, names[me], name), given[j]):
            raise WrongSender(f"{name} does not prove that the X25519 key it introduced is its own; nothing is shared")


def _proof(pair: bytes, session: bytes, receiver: str, sender: str) -> bytes:
    return derive(pair, session, b"possession", sender.encode(), receiver.encode())
