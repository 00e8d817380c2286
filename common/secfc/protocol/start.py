"""The start's coins: tossed by the clients together, so that nobody alone chooses where a clustering begins.

Every client commits to a coin in its signed introduction and reveals it once the roster, and with it every commitment, is
fixed. The seed of `Coins` follows from all coins and the session: as long as one client's coin is random and unknown until
the others are committed, so is the start. If the federation file holds a `seed`, all parties have agreed on the start
beforehand; the coins are tossed all the same, for the check of the shares (`verification`).

A client can check what follows from the coins alone: all of a `random` start, and the first row chosen by k-means++ (and by
`separation`, which begins with it). The later rows are drawn in proportion to distances, which clients do not know.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np

from secfc.errors import WrongSender
from secfc.framing import framed
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Labels
from secfc.kmeans.lloyd import Clustering
from secfc.protocol import messages

COIN_BYTES = 32


def commitment(name: str, coin: bytes) -> bytes:
    """What a client signs before the others show theirs. Its name keeps it from being copied by another client."""
    return hashlib.sha256(framed(b"secfc/v1/coin", name.encode(), coin)).digest()


def check_coin(member: messages.Introduction, coin: bytes) -> None:
    """Raise WrongSender unless this is the coin that the member committed to."""
    if len(coin) != COIN_BYTES or not hmac.compare_digest(commitment(member.name, coin), member.commitment):
        raise WrongSender(
            f"the coin shown for {member.name} is not the one it committed to; the start would not be fair"
        )


def agreed(seed: str) -> Coins:
    """The coins of a start that the federation file fixes."""
    return Coins(seed.encode())


def tossed(session: bytes, members: Sequence[messages.Introduction], coins: Sequence[bytes]) -> Coins:
    """The coins that follow from everybody's, in roster order; checks each against its commitment."""
    if len(coins) != len(members):
        raise WrongSender(f"coins of {len(members)} clients are due for the start, not of {len(coins)}")
    for member, coin in zip(members, coins, strict=True):
        check_coin(member, coin)
    return Coins(hashlib.sha256(framed(b"secfc/v1/start", session, *coins)).digest())


def check_assignment(seeding: str, coins: Coins, clusters: int, version: int, labels: Labels) -> None:
    """Raise WrongSender if an assignment that the coins determine, whole or in part, is another one."""
    choosing = seeding != "random" and version <= clusters  # k-means++ still chooses rows, and goes on from the first
    if version > 1 and not choosing:
        return
    first = Clustering(len(labels), clusters, start=seeding, coins=coins).labels
    if not np.array_equal(*((labels, first) if version <= 1 else (labels == 0, first == 0))):
        raise WrongSender(
            "the server does not begin where the clients' coins say; it is not honest, or runs another version"
        )
