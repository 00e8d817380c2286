"""Epochs: a committee agrees on its key K, which the server never sees (docs/sealed.md, Section 2).

Every member a draws κ_a, 32 random bytes, and sends it to every other member under a key derived from what the two share
(`privacy.keys.pair_keys`), bound to session, plan, committee, epoch and direction. K is derived from all of them in the
committee's order. As every member's bytes are fresh in every epoch, no K returns. Keys live in memory only; who runs an epoch
writes its number down before using it, and refuses one that is not above its last (`check_number`).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secfc.coding.prg import KEY_BYTES
from secfc.errors import Malformed, OutOfTurn, WrongSender
from secfc.privacy import keys
from secfc.privacy.sealed.context import numbers

_NONCE = 12
WRAPPED_BYTES = _NONCE + KEY_BYTES + 16


@dataclass(frozen=True)
class Epoch:
    """A committee and the number of its epoch; `committee` are t+1 clients of the roster, in the members' order."""

    session: bytes
    plan: bytes
    number: int
    committee: tuple[int, ...]

    def check(self, clients: int, privacy: int) -> None:
        """Raise Malformed unless these are t+1 distinct clients."""
        if len(set(self.committee)) != len(self.committee) or len(self.committee) != privacy + 1:
            raise Malformed(f"a committee is {privacy + 1} distinct clients, not {len(self.committee)}")
        if not all(0 <= client < clients for client in self.committee):
            raise Malformed(f"a committee member is not among the {clients} clients")

    def check_number(self, last: int) -> None:
        """Raise OutOfTurn unless this epoch is above the last one used."""
        if self.number <= last:
            raise OutOfTurn(f"epoch {self.number} does not come after epoch {last}; its keys would be used twice")

    def _bound(self) -> tuple[bytes, ...]:
        return self.plan, numbers(self.committee), b"%d" % self.number


def contribution() -> bytes:
    """κ_a."""
    return os.urandom(KEY_BYTES)


def _wrapping(epoch: Epoch, pair: bytes, sender: int, receiver: int) -> AESGCM:
    direction = b"%d>%d" % (sender, receiver)
    return AESGCM(keys.derive(pair, epoch.session, b"sealed/wrap", *epoch._bound(), direction))


def wrap(epoch: Epoch, pair: bytes, sender: int, receiver: int, share: bytes) -> bytes:
    """κ_a for one other member: 60 bytes. `pair` is what the two clients share."""
    nonce = os.urandom(_NONCE)
    return nonce + _wrapping(epoch, pair, sender, receiver).encrypt(nonce, share, None)


def unwrap(epoch: Epoch, pair: bytes, sender: int, receiver: int, wrapped: bytes) -> bytes:
    """κ of another member. Raises WrongSender if it was not made for us, in this epoch, by that client."""
    if len(wrapped) != WRAPPED_BYTES:
        raise Malformed(f"a member's contribution has {WRAPPED_BYTES} bytes, not {len(wrapped)}")
    try:
        return _wrapping(epoch, pair, sender, receiver).decrypt(wrapped[:_NONCE], wrapped[_NONCE:], None)
    except InvalidTag:
        raise WrongSender(f"the contribution to epoch {epoch.number} is not client {sender + 1}'s for us") from None


def committee_key(epoch: Epoch, shares: Mapping[int, bytes]) -> bytes:
    """K, from the contributions of all members by client."""
    if set(shares) != set(epoch.committee):
        raise Malformed("the key of a committee needs exactly its members' contributions")
    joined = b"".join(shares[client] for client in epoch.committee)
    return keys.derive(joined, epoch.session, b"sealed/K", *epoch._bound())


def check_value(epoch: Epoch, key: bytes) -> bytes:
    """What a member shows the server, so that all can be seen to have the same K."""
    return keys.derive(key, epoch.session, b"sealed/check", *epoch._bound())


def agree(values: Sequence[bytes]) -> bool:
    """Whether all check values are the same; if not, the next epoch begins."""
    return all(hmac.compare_digest(values[0], value) for value in values[1:])
