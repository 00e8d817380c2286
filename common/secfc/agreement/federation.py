"""The federation file: who takes part and under which guarantees, and the job all parties agree on before anybody starts.

`federation.toml` becomes one frozen `Federation`, validated once, here; whoever holds one need not check again. What is
computed stands in its [job] table and is `Federation.job`. Every party has the same file, and compares
`Federation.agreed()` when it joins, so nobody computes with other parties or parameters than the rest. Whether the
parameters fit together *mathematically* is the plan's business.

A federation that stays has no [job] table: jobs are submitted to it (`submission`), and `Federation.running` is the
federation of one of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from secfc.agreement import job, parties, toml
from secfc.agreement.job import Job
from secfc.agreement.parties import CLIENT_KEYS, IDENTITY_DOMAIN, SERVER_KEYS, Party
from secfc.agreement.toml import first_repeated, show
from secfc.agreement.uploads import UPLOADS
from secfc.errors import ConfigError
from secfc.framing import framed
from secfc.kmeans.indices import CHOICES

SERVER = "server"
LINK_KEY = "link.key"  # in a client's kit: the clients' common key for linked IDs
RESERVED_NAMES = (SERVER, "ca")  # "ca" is the authority's folder beside the kits

RELAYS = ("never", "fallback", "only")  # whether clients' messages to each other may go through the server, sealed

_OWN_KEYS = ("name", "privacy", "dropouts", "liars", "uploads", "relay")
_TOP_KEYS = (*_OWN_KEYS, "job", "server", "client")


class _NoJob(Job):
    """Stands for the job of a federation that has none: whoever asks what it computes hears why nobody can tell."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("__"):
            raise ConfigError(
                "federation.toml has no [job] table: it is a federation that stays, to which jobs are submitted; submit one"
                " with secfc submit, or add the table to run one job"
            )
        return super().__getattribute__(name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "no job"


_NO_JOB: Job = object.__new__(_NoJob)


@dataclass(frozen=True)
class Federation:
    """What `federation.toml` says. Made by `parse` or `load`, which validate; names are the file's."""

    name: str
    privacy: int
    dropouts: int
    liars: int
    uploads: str
    server: Party
    clients: tuple[Party, ...]
    job: Job  # _NO_JOB of a federation that stays
    relay: str = "never"
    submission: bytes = b""  # digest of the signed job that this federation runs, if it was submitted; not in the file

    @property
    def stays(self) -> bool:
        """Whether the file has no [job] table, because jobs are submitted."""
        return self.job is _NO_JOB

    def running(self, one: Job, sites: tuple[str, ...], submission: bytes) -> Federation:
        """The federation of one submitted job: with that job, and with those sites only."""
        clients = tuple(client for client in self.clients if client.name in sites)
        federation = dataclasses.replace(self, job=one, clients=clients, submission=submission)
        _check_choice(federation, "the job: ")
        return federation

    @property
    def n(self) -> int:
        """The number of clients."""
        return len(self.clients)

    @cached_property
    def roster(self) -> tuple[str, ...]:
        """The clients' names in the file's order, which is also the order of their rows."""
        return tuple(client.name for client in self.clients)

    @cached_property
    def holders(self) -> tuple[str, ...]:
        """The clients that hold a column, in the roster's order, if columns are split over the clients; else none."""
        return tuple(name for name in self.roster if name in self.job.holders)

    def helps(self, name: str) -> bool:
        """Whether a client has no column, and only computes for those that have."""
        return bool(self.holders) and name not in self.holders

    def client(self, name: str) -> Party:
        """The client of that name."""
        for client in self.clients:
            if client.name == name:
                return client
        raise ConfigError(f"{show(name)} is not a client of {self.name}; clients: {', '.join(self.roster)}")

    def party(self, name: str) -> Party:
        """The client of that name, or the server for "server"."""
        return self.server if name == SERVER else self.client(name)

    def dialled(self, name: str) -> bool:
        """Whether others connect to this party, so that it listens."""
        return name == SERVER or (self.relay != "only" and self.client(name).address != "")

    def digest(self) -> bytes:
        """SHA-256 of who takes part and under which guarantees, without the job: spacing, comments and key order do not
        matter, client order does."""
        fields = _plain(self)
        if self.relay == "never":  # as before there was a choice: jobs and kits of then go on
            del fields["relay"]
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).digest()

    def agreed(self) -> bytes:
        """SHA-256 of all that the parties agree on, the federation and the job: what they compare, sign and keep. Of a
        submitted job also who submitted it and when: two submissions of the same parameters are two jobs."""
        return self._agreed

    @cached_property
    def _agreed(self) -> bytes:
        if self.stays:
            return self.digest()
        both = agreed(self.digest(), self.job.digest())
        return (
            hashlib.sha256(framed(b"secfc/v1/submitted", both, self.submission)).digest() if self.submission else both
        )


def agreed(federation: bytes, job: bytes) -> bytes:
    """The digest of both, from the digest of each."""
    return hashlib.sha256(framed(b"secfc/v1/agreed", federation, job)).digest()


def identity(federation_name: str, party_name: str) -> str:
    """The DNS name that carries who a party is in its certificate. It is never looked up."""
    return f"{party_name}.{federation_name}.{IDENTITY_DOMAIN}"


def load(path: str | Path) -> Federation:
    """Read and validate a federation file."""
    return parse(toml.read_text(path), str(path))


def parse(text: str, where: str) -> Federation:
    """Validate a federation file's text; `where` names it in errors."""
    raw = toml.read_toml(text, where)
    _check_places(raw, where)
    top = toml.Table(raw, where, "", _TOP_KEYS)
    federation = Federation(
        name=top.label("name"),
        privacy=top.integer("privacy", 0),
        dropouts=top.integer("dropouts", 0, default=0),
        liars=top.integer("liars", 0, default=0),
        uploads=top.choice("uploads", UPLOADS),
        job=job.parse(top.table("job"), where, "[job] ") if "job" in raw else _NO_JOB,
        server=parties.of(toml.Table(top.table("server"), where, "[server] ", SERVER_KEYS), SERVER),
        clients=(clients := _clients(top)),
        relay=_relay(top, clients),
    )
    _check_distinct((federation.server, *federation.clients), where)
    if not federation.stays:
        _check_choice(federation, f"{where}: [job] ")
        _check_holders(federation, where)
    return federation


def _check_choice(federation: Federation, place: str) -> None:
    if federation.uploads == "sealed" and federation.job.choose != CHOICES[0]:
        raise ConfigError(
            f'{place}choose = "{federation.job.choose}" needs distances, which the server does not get with sealed'
            ' uploads; leave choose out and compare the inertia of every k, or use uploads = "masked"'
        )


def _plain(federation: Federation) -> dict[str, object]:
    """All that the file says besides the job."""
    fields = {one.name: getattr(federation, one.name) for one in dataclasses.fields(federation)}
    del fields["job"], fields["submission"]
    parties = {
        "server": dataclasses.asdict(federation.server),
        "clients": list(map(dataclasses.asdict, federation.clients)),
    }
    return fields | parties


def dumps(federation: Federation) -> str:
    """TOML text that `parse` reads back as an equal value."""
    lines = toml.lines(_plain(federation), _OWN_KEYS)
    if not federation.stays:
        lines += ["", "[job]", *job.dumps(federation.job).splitlines()]
    lines += ["", "[server]", *toml.lines(dataclasses.asdict(federation.server), SERVER_KEYS)]
    for client in federation.clients:
        fields = dataclasses.asdict(client)
        lines += ["", "[[client]]", *toml.lines({key: fields[key] or None for key in fields}, CLIENT_KEYS)]
    return "\n".join(lines) + "\n"


def _check_places(raw: Mapping[str, object], where: str) -> None:
    """Earlier versions had the job's keys among the federation's: say what goes where, in one line."""
    if outside := [key for key in raw if key in job.KEYS]:
        cure = "move them below a line [job] that follows the other keys"
        raise ConfigError(f"{where}: keys that now belong in the [job] table: {', '.join(outside)}; {cure}")
    table = raw.get("job")
    if isinstance(table, dict) and (inside := [key for key in table if key in _OWN_KEYS]):
        cure = "move them above the line [job]"
        raise ConfigError(f"{where}: keys that do not belong in the [job] table: {', '.join(inside)}; {cure}")


def _clients(top: toml.Table) -> tuple[Party, ...]:
    tables = [
        toml.Table(raw, top.where, f"[[client]] number {number} ", CLIENT_KEYS)
        for number, raw in enumerate(top.tables("client"), 1)
    ]
    return tuple(parties.client(table) for table in tables)


def _relay(top: toml.Table, clients: tuple[Party, ...]) -> str:
    """By default only where a client has no address: nothing passes through the server without need."""
    lacking = [client.name for client in clients if not client.address]
    relay = top.choice("relay", RELAYS) if "relay" in top.raw else "fallback" if lacking else "never"
    if relay == "never" and lacking:
        top.fail("relay", f'"never" needs an address for every client, and {lacking[0]} has none')
    return relay


def _check_distinct(parties: tuple[Party, ...], where: str) -> None:
    names = [party.name for party in parties]
    for name in names[1:]:
        if name in RESERVED_NAMES:
            raise ConfigError(f'{where}: a client cannot be called "{name}", the name is reserved; choose another')
    for what, values in (("name", names), ("address", [party.address for party in parties if party.address])):
        if twice := first_repeated(values):
            raise ConfigError(f"{where}: {what} {show(twice)} is used twice; give every party its own")


def _check_holders(federation: Federation, where: str) -> None:
    """Every feature's holder takes part, and so do enough clients to hide two holders' columns from each other."""
    for one in federation.job.agreed:
        if one.holder and one.holder not in federation.roster:
            raise ConfigError(
                f"{where}: [job] features: {show(one.name)} is held by {show(one.holder)}, which is no client of the"
                f" federation; clients: {', '.join(federation.roster)}"
            )
    if federation.holders and federation.n < 3:
        raise ConfigError(
            f'{where}: split = "columns" needs at least 3 clients, and there are {federation.n}; add a client that holds no'
            " column as a helper"
        )
