"""How a committee gets its key (docs/sealed.md, Section 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.errors import Malformed, OutOfTurn, WrongSender
from secfc.privacy import keys
from secfc.privacy.sealed import epochs
from secfc.privacy.sealed.epochs import Epoch

SESSION = b"s" * 32
PRIVATE = [X25519PrivateKey.generate() for _ in range(4)]
PARTIES = [(f"client {j}", key.public_key().public_bytes_raw()) for j, key in enumerate(PRIVATE)]
PAIRS = [keys.pair_keys(key, SESSION, PARTIES, j) for j, key in enumerate(PRIVATE)]
EPOCH = Epoch(SESSION, b"plan", 1, (0, 2, 3))


def agreed(epoch: Epoch) -> list[bytes]:
    own = {a: epochs.contribution() for a in epoch.committee}
    out = []
    for b in epoch.committee:
        shares = {b: own[b]}
        for a in epoch.committee:
            if a != b:
                wrapped = epochs.wrap(epoch, PAIRS[a][b], a, b, own[a])
                assert len(wrapped) == 60
                shares[a] = epochs.unwrap(epoch, PAIRS[b][a], a, b, wrapped)
        out.append(epochs.committee_key(epoch, shares))
    return out


def test_all_members_get_one_key_and_every_epoch_another() -> None:
    first, second = agreed(EPOCH), agreed(replace(EPOCH, number=2))
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    assert epochs.agree([epochs.check_value(EPOCH, key) for key in first])
    assert not epochs.agree([epochs.check_value(EPOCH, first[0]), epochs.check_value(EPOCH, second[0])])
    assert epochs.check_value(EPOCH, first[0]) != first[0]


@pytest.mark.parametrize(
    "change", [{"session": b"t" * 32}, {"plan": b"other"}, {"number": 2}, {"committee": (0, 2, 1)}]
)
def test_a_contribution_is_bound_to_its_epoch(change: dict[str, object]) -> None:
    wrapped = epochs.wrap(EPOCH, PAIRS[0][2], 0, 2, bytes(32))
    with pytest.raises(WrongSender, match="is not client 1's for us"):
        epochs.unwrap(replace(EPOCH, **change), PAIRS[2][0], 0, 2, wrapped)  # type: ignore[arg-type]
    with pytest.raises(WrongSender):
        epochs.unwrap(EPOCH, PAIRS[2][0], 2, 0, wrapped)  # the other direction
    with pytest.raises(WrongSender):
        epochs.unwrap(EPOCH, PAIRS[2][0], 0, 2, wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    with pytest.raises(Malformed, match="60 bytes"):
        epochs.unwrap(EPOCH, PAIRS[2][0], 0, 2, wrapped[:-1])


def test_committees() -> None:
    EPOCH.check(4, 2)
    for wrong in ((0, 2), (0, 2, 2), (0, 2, 3, 1), (0, 2, 4)):
        with pytest.raises(Malformed, match="committee"):
            replace(EPOCH, committee=wrong).check(4, 2)
    EPOCH.check_number(0)
    with pytest.raises(OutOfTurn, match="does not come after"):
        EPOCH.check_number(1)
    with pytest.raises(Malformed, match="exactly its members"):
        epochs.committee_key(EPOCH, {0: bytes(32)})
