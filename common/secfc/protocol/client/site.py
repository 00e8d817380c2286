"""What makes a client itself in one job, and what all phases of its machine share."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.plan import Plan
from secfc.coding import summing
from secfc.coding.blocks import Blocks
from secfc.coding.field import Field
from secfc.coding.sharing import CodedRows, Shares, ShareSet
from secfc.errors import JobFailed, Unavailable, WrongSender
from secfc.kmeans.distances import Frozen
from secfc.kmeans.standard import Rows, Spread, Unscaled
from secfc.privacy import identifiers
from secfc.privacy.identifiers import Ids
from secfc.protocol import messages, start
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.inputs import Sent
from secfc.protocol.client.past import Past
from secfc.protocol.effects import Effects, Send
from secfc.protocol.outbox import Outbox
from secfc.protocol.parcels import Kind, Parcel

SHARE_SECONDS = 3600.0  # without any progress, at the least


@dataclass(frozen=True)
class Secrets:
    """What must outlive a client's process."""

    seed: bytes
    x25519: X25519PrivateKey
    nonce: bytes
    coin: bytes
    revealed: bytes = b""  # the session in which an earlier process revealed the coin

    def __repr__(self) -> str:
        return "Secrets(…)"

    @classmethod
    def fresh(cls, seed: bytes) -> Secrets:
        """All new but the seed, which makes the shares."""
        return cls(seed, X25519PrivateKey.generate(), os.urandom(32), os.urandom(start.COIN_BYTES))

    @property
    def public(self) -> bytes:
        return self.x25519.public_key().public_bytes_raw()


@dataclass(frozen=True, eq=False)
class Site:
    """One client: who it is, its rows and its rules.

    `rows` are quantised, or with standard scaling as they are before the sites have met; `verify` raises unless a statement
    is signed by the client it names, `sign` signs one of ours; `ids(session)` names our rows where membership is private
    (default: fresh IDs); `columns` are the names of our features in their order (default: the job's); `patience`: seconds to
    go on trying to reach the server; `publishes`: whether we tell the server at the end which rows are ours.
    """

    federation: Federation
    plan: Plan
    name: str
    rows: Rows | Unscaled = field(repr=False)
    secrets: Secrets
    guard: Guard
    verify: Callable[[messages.Signed], None]
    sign: Callable[[bytes], bytes]
    certificate: bytes = field(repr=False)
    instance: bytes
    chance: random.Random = field(repr=False)
    ids: Callable[[bytes], Ids] | None = None
    columns: tuple[str, ...] = ()
    patience: float = 600.0
    publishes: bool = False
    places: tuple[npt.NDArray[np.int64], ...] | None = None  # of all rows, if not by roster; in one process only
    any_start: bool = False  # whether the server may begin anywhere; in one process only
    hold: Callable[[Field, int, int], Blocks] = CodedRows  # where the shares of so many rows of a length are to be
    frozen: Frozen | None = None  # what we kept of an earlier job's clusters, if rows are only assigned to those

    @property
    def index(self) -> int:
        return self.federation.roster.index(self.name)

    @property
    def share_set(self) -> Shares:
        """What we share; before the scale is known, no more than its name and shape."""
        if isinstance(self.rows, Unscaled):
            return Shares(self.plan.code, len(self.rows), self.plan.wishes.features, self.secrets.seed)
        return ShareSet(self.plan.code, self.rows, self.secrets.seed)

    @property
    def features(self) -> bytes:
        return messages.feature_digest(self.columns or self.federation.job.feature_names or ())

    @property
    def keeps(self) -> bool:
        """Whether our shares may serve another job, here and wherever they are held. Slots are another order of rows in every
        job, and another scale makes other rows, so with private membership or standard scaling they cannot."""
        return self.guard.policy.keep_shares and not self.plan.private and not isinstance(self.rows, Unscaled)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """For people."""
        job = self.federation.job
        return self.columns or job.feature_names or tuple(f"x{f + 1}" for f in range(job.features))

    @property
    def keeps_clusters(self) -> bool:
        """Whether shares of sums over our rows may be kept, here and by all others, to assign rows later. With private
        membership nobody can count whose rows are in a cluster, and with standard scaling new rows would be measured
        otherwise, so there they may not."""
        comparable = not self.plan.private and not isinstance(self.rows, Unscaled)
        return self.guard.policy.keep_clusters and comparable and not self.plan.frozen

    def introduction(self) -> messages.Introduction:
        """Our signed statement. With private membership nobody learns how many rows we bring."""
        secrets = self.secrets
        bare = messages.Introduction(
            self.name,
            0 if self.plan.private else len(self.rows),
            self.share_set.id,
            secrets.public,
            secrets.nonce,
            start.commitment(self.name, secrets.coin),
            self.certificate,
            keeps=self.keeps,
            features=self.features,
            keeps_clusters=self.keeps_clusters,
        )
        signature = self.sign(bare.statement(self.federation.agreed()))
        return messages.Introduction(**{**vars(bare), "signature": signature})

    def ids_in(self, session: bytes) -> Ids:
        """Our rows' names in a session."""
        if self.ids is not None:
            return self.ids(session)
        return identifiers.fresh(len(self.rows), summing.noise_seed(self.secrets.seed, b"ids", session))

    def peer(self, name: str) -> int:
        """The place of another client in the roster."""
        if name not in self.federation.roster or name == self.name:
            raise WrongSender("only the other clients of the roster exchange shares")
        return self.federation.roster.index(name)


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Our rows by the mean and deviation of all sites' rows; `digest` names these."""

    digest: bytes
    spread: Spread
    rows: Rows = field(repr=False)


@dataclass(frozen=True)
class Met:
    """Everybody's verified introduction, the session that follows from them, and what we have in common with each; with
    standard scaling besides, once it is known, how rows are scaled."""

    members: tuple[messages.Introduction, ...]
    session: bytes
    pairs: Mapping[int, bytes] = field(repr=False)
    scaled: ScaledRows | None = None

    @property
    def share_sets(self) -> list[bytes]:
        """Names of what everybody shares."""
        names = [member.share_set for member in self.members]
        return names if self.scaled is None else messages.scaled_sets(names, self.scaled.digest)

    def rows(self, site: Site) -> Rows:
        """What we share. Pre-condition: it is known."""
        rows = site.rows if self.scaled is None else self.scaled.rows
        if isinstance(rows, Unscaled):
            raise JobFailed("the rows are not scaled yet")
        return rows

    def seed(self, site: Site) -> bytes:
        """Of the noise: other rows must never have the same."""
        seed = site.secrets.seed
        return seed if self.scaled is None else summing.noise_seed(seed, b"scaled", self.scaled.digest)


@dataclass
class Desk:
    """What all phases share: the site, what it has to say, and what it must not see or say otherwise after a restart."""

    site: Site
    outbox: Outbox
    past: Past
    resumed: bool  # whether an earlier process had these secrets
    kept: Mapping[str, bytes]
    redial: bool = False  # whether the server is to be joined once more

    sent_bytes: int = 0  # of shares

    def count(self, sent: Sent) -> None:
        """Shares were taken. A client that has restarted counts what really went: others may have had them."""
        send = sent.send
        if self.resumed and isinstance(send.message, Parcel) and send.message.kind is Kind.SHARES:
            total = send.body.total if send.body is not None else 0
            self.sent_bytes += total if sent.carried is None else sent.carried

    def deliver(self, sends: Sequence[Send], now: float) -> None:
        """Our shares, to everybody."""
        for send in sends:
            self.outbox.post(send, now)
            if not self.resumed and send.body is not None:
                self.sent_bytes += send.body.total

    def check_deliveries(self, now: float) -> None:
        """Raise Unavailable if somebody takes nothing of our shares for too long."""
        seconds = max(SHARE_SECONDS, self.site.patience)
        if stuck := ", ".join(self.outbox.stuck(now - seconds)):
            raise Unavailable(
                f"our shares could not be delivered to {stuck} for {seconds:.0f} s; start the same command again to go on"
            )

    def keep_past(self, past: Past, out: Effects) -> None:
        if past != self.past:
            self.past = past
            out.put("past", past.kept())

    def report(self, report: messages.Report, now: float) -> None:
        """Tell the server; what it must know is told again whenever the roster is."""
        self.outbox.post(Send(SERVER, report, patient=False), now)

    @property
    def used(self) -> bool:
        """Whether our secrets have served: we had joined with them, and a coin was shown, a request was seen, or the
        session is dead. Of kept shares the guard remembers earlier jobs, in which keys and nonce were others."""
        served = self.site.guard.began or bool(self.site.secrets.revealed) or self.past.dead
        return served and "joined" in self.kept
