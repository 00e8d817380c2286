"""Keys of pairs of clients: bound to names, public keys, session and purpose, and proved."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secfc.errors import WrongSender
from secfc.framing import framed
from secfc.privacy import keys, masks

P = 2**255 - 19
NAMES = ("a", "b", "c")
SESSION = b"s" * 32


def equivalent(public: bytes) -> bytes:
    """1/u of a public key u: the same point of the curve but for one of order two, which clamping removes."""
    return pow(int.from_bytes(public, "little"), -1, P).to_bytes(32, "little")


class Trio:
    """Three clients, of which the last may show any public key."""

    def __init__(self, session: bytes = SESSION, last: bytes | None = None, names: Any = NAMES) -> None:
        self.privates = [X25519PrivateKey.from_private_bytes(bytes([j + 1]) * 32) for j in range(3)]
        publics = [own.public_key().public_bytes_raw() for own in self.privates]
        self.parties = list(zip(names, [*publics[:2], last or publics[2]], strict=True))
        self.pairs = [keys.pair_keys(own, session, self.parties, j) for j, own in enumerate(self.privates)]


@pytest.mark.parametrize("session", [b"", b"s", SESSION, b"s" * 65])
def test_keys_are_those_of_hkdf(session: bytes) -> None:
    info = framed(b"secfc/v1/purpose", session, b"bound")
    wanted = HKDF(SHA256(), length=32, salt=session, info=info).derive(b"secret")
    assert keys.derive(b"secret", session, b"purpose", b"bound") == wanted


def test_both_ends_have_the_same_key_and_no_other_pair_has_it() -> None:
    pairs = Trio().pairs
    found = [(pairs[i][j], pairs[j][i]) for i, j in itertools.combinations(range(3), 2)]
    assert all(one == other for one, other in found)
    assert len({one for one, _ in found}) == 3


def test_an_equivalent_public_key_gives_the_same_secret() -> None:
    """The premise of the attack (RFC 7748, Section 7): without it the next test would show nothing."""
    trio = Trio()
    a, b = trio.privates[0], trio.parties[1][1]
    other = equivalent(b)
    assert other != b
    assert int.from_bytes(other, "little") < P
    assert a.exchange(X25519PublicKey.from_public_bytes(b)) == a.exchange(X25519PublicKey.from_public_bytes(other))


def test_an_equivalent_public_key_gives_another_pair_key() -> None:
    """Were they equal, a's streams with b and with c would cancel where a stands between them in the graph."""
    honest = Trio()
    trio = Trio(last=equivalent(honest.parties[1][1]))
    assert trio.pairs[0][1] != trio.pairs[0][2]
    context = masks.MaskContext(SESSION, b"", 1, 1, (0, 1, 2), b"", (0,))
    streams = masks.signed_keys(0, 1, context, trio.pairs[0])
    assert len({key for key, _ in streams}) == 2


def test_who_does_not_have_the_key_it_shows_cannot_prove_it() -> None:
    """c shows an equivalent of b's key. What it can send a: what b proves, what it makes with its own key, or anything."""
    trio = Trio(last=equivalent(Trio().parties[1][1]))
    given = [keys.proofs(trio.pairs[j], SESSION, NAMES, j) for j in range(3)]
    for forged in (given[1][0], given[2][0], bytes(32), b""):
        with pytest.raises(WrongSender, match="c does not prove"):
            keys.check_proofs([b"", given[1][0], forged], trio.pairs[0], SESSION, NAMES, 0)


def test_honest_proofs_are_taken_and_fit_one_receiver_only() -> None:
    trio = Trio()
    given = [keys.proofs(trio.pairs[j], SESSION, NAMES, j) for j in range(3)]
    assert [len(proof) for proof in given[0]] == [0, 32, 32]
    for me in range(3):
        keys.check_proofs([one[me] for one in given], trio.pairs[me], SESSION, NAMES, me)
    with pytest.raises(WrongSender, match="b does not prove"):
        keys.check_proofs([b"", given[0][1], given[2][0]], trio.pairs[0], SESSION, NAMES, 0)  # our own, sent back


@pytest.mark.parametrize(
    "other",
    [
        {"session": b"t" * 32},
        {"names": ("a", "b", "d")},
        {"last": X25519PrivateKey.from_private_bytes(b"9" * 32).public_key().public_bytes_raw()},
    ],
    ids=["session", "name", "public key"],
)
def test_whatever_a_pair_key_is_bound_to_changes_it(other: dict[str, Any]) -> None:
    assert Trio(**other).pairs[0][2] != Trio().pairs[0][2]


def test_a_key_of_one_purpose_is_none_of_another() -> None:
    secret = bytes(32)
    made = {keys.derive(secret, SESSION, purpose, b"x") for purpose in (b"pair", b"mask", b"possession")}
    assert len(made) == 3
    assert keys.derive(secret, SESSION, b"mask", b"x", b"y") != keys.derive(secret, SESSION, b"mask", b"xy")


@pytest.mark.parametrize("bad", [b"", b"short", bytes(32), bytes(33), (1).to_bytes(32, "little")])
def test_a_key_that_is_none_is_refused(bad: bytes) -> None:
    with pytest.raises(WrongSender, match="X25519 public key of b is not valid"):
        keys.pair_keys(X25519PrivateKey.generate(), SESSION, [("a", bytes(32)), ("b", bad)], 0)
