"""Who must not take part, and what nobody may send, is refused with a reason and without effect on the job.

One job of real processes is attacked in every phase: a server and two clients run, the test plays the third client over real
TLS, and so decides when the job goes on. All three must answer every round (n = R = 3). The tests of this file stand in the
order of the job's phases; the last one completes it and compares the labels with central Lloyd.
"""

from __future__ import annotations

import dataclasses
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from secfc.agreement import federation as federations
from secfc.errors import ConfigError
from secfc.local import Local
from secfc.net import wire
from secfc.pki import kit, probe, provision
from secfc.pki.kit import Kit
from secfc.pki.pins import Pins
from secfc.pki.provision import Authority
from secfc.protocol import messages
from secfc.protocol.parcels import Kind, Parcel, attempt_name
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.integration import helpers
from tests.integration.helpers import dial, refusal, until
from tests.integration.scripted import CALL, Scripted, piece

CODE = grpc.StatusCode
RIVAL = "client-3"  # whom the test plays
BECAUSE_OF_US = "hangs up without a reason, probably because of our certificate"  # gRPC's server sends no TLS alert
BIG = (1 << 21) - 1  # a residue that no prime admits


class Trial:
    """The job under attack; each step onward is made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = helpers.split(helpers.mixture(120, 3, 3), [50, 40, 30])
        self.made = helpers.describe(self.parts, 3)
        self.site = helpers.prepared(folder, self.parts, self.made)
        self.rival = Scripted(self.site.kit(RIVAL), self.parts[2])
        self.joined = self.sharing = False
        self.question: messages.RoundRequest | None = None

    def start(self) -> None:
        for party in ("server", "client-1", "client-2"):
            self.site.start(party)
        self.rival.listen()
        until(lambda: helpers.said(self.site, "server", "listening"), "the server listens")
        until(lambda: sum(c.connected for c in self.status().clients) == 2, "two clients have joined")

    def status(self) -> pb.StatusReply:
        return helpers.status_of(self.site)

    def state(self) -> tuple[Any, ...]:
        """What an attack must not change."""
        now = self.status()
        clients = [(c.name, c.joined, c.connected, c.holds_shares, c.done) for c in now.clients]
        alive = [process.poll() for process in self.site.processes.values()]
        return now.phase, now.round, now.attempt, now.rows, clients, list(now.broken_links), now.reason, alive

    def join(self) -> None:
        if not self.joined:
            self.joined = True
            self.rival.join()
            self.rival.follow()
            self.rival.met()

    def to_rounds(self) -> messages.RoundRequest:
        if self.question is None:
            self.join()
            self.rival.share()
            self.question = self.rival.request()
        return self.question

    def close(self) -> None:
        self.rival.close()
        self.site.stop()


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    made = Trial(tmp_path_factory.mktemp("refused"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@contextmanager
def no_effect(trial: Trial) -> Iterator[None]:
    before = trial.state()
    yield
    assert trial.state() == before


# --- certificates --------------------------------------------------------------------------------------------------------


def authority_of(site: Local) -> Authority:
    folder = site.folder / "kits" / "ca"
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    return Authority(x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), key)


def issued(site: Local, folder: Path, names: tuple[str, ...], *, ago: timedelta = timedelta()) -> Kit:
    """A kit with a certificate of the federation's own authority for any names, made some time ago, for a day."""
    key, authority, now = provision.make_key(), authority_of(site), datetime.now(UTC) - ago
    certificate = provision.issue_certificate(authority, key.public_key(), "odd", names, 1, now=now)
    folder.mkdir(parents=True)
    for name, content in {
        "key.pem": provision.private_pem(key),
        "cert.pem": provision.certificate_pem(certificate),
        "ca.pem": provision.certificate_pem(authority.certificate),
        "federation.toml": federations.dumps(site.federation).encode(),
    }.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    read = [(folder / f"{name}.pem").read_bytes() for name in ("cert", "key", "ca")]
    return Kit(folder, site.federation, names[0].partition(".")[0], *read, certificate.not_valid_after_utc)


def foreign(site: Local, folder: Path, *, trusting: bool) -> Kit:
    """client-3's kit of another provisioning of the same file; `trusting` gives it the right authority to trust."""
    provision.provision(site.federation, folder)
    own = kit.load(folder / RIVAL)
    return dataclasses.replace(own, ca_pem=kit.load(site.kit(RIVAL)).ca_pem, pins=Pins()) if trusting else own


def calls(channel: grpc.Channel, rival: Scripted) -> dict[str, Callable[[], Any]]:
    """Every call that the server answers, as the rival would truthfully make it."""
    stub, exchange = stubs.CoordinatorStub(channel), stubs.ExchangeStub(channel)
    introduction = wire.to_message(rival.introduction())
    join = pb.JoinRequest(
        federation_digest=rival.kit.federation.agreed(), instance=rival.instance, introduction=introduction
    )
    stopped = pb.ReportRequest(instance=rival.instance, stopped=pb.Stopped(reason="an attack"))
    parcel = Parcel(bytes(32), Kind.UPLOAD, attempt_name(1, 1))
    return {
        "Join": lambda: stub.Join(join, timeout=CALL),
        "Follow": lambda: list(stub.Follow(pb.FollowRequest(instance=rival.instance), timeout=CALL)),
        "Report": lambda: stub.Report(stopped, timeout=CALL),
        "Status": lambda: stub.Status(pb.StatusRequest(), timeout=CALL),
        "Progress": lambda: exchange.Progress(wire.to_message(parcel), timeout=CALL),
        "Deliver": lambda: exchange.Deliver(iter([piece(parcel, bytes(8))]), timeout=CALL),
        "Hand": lambda: exchange.Hand(piece(parcel, bytes(8)), timeout=CALL),
    }


def refused_everywhere(trial: Trial, channel: grpc.Channel, code: grpc.StatusCode, pattern: str = "") -> None:
    with channel, no_effect(trial):
        for name, call in calls(channel, trial.rival).items():
            got, text = refusal(call)
            assert got is code, f"{name}: {got} {text}"
            assert re.search(pattern, text), f"{name}: {text}"


def probed(own: Kit) -> str:
    """What secfc-client says of a link that gRPC cannot make: the first finding that is not well."""
    found = probe.probe(own, "server", own.federation.server.address)
    return next((finding.detail for finding in found if not finding.ok), "")


def test_no_certificate_is_refused(trial: Trial) -> None:
    channel = dial(trial.rival.kit, "server", certificate=False)
    refused_everywhere(trial, channel, CODE.UNAVAILABLE)


def test_a_certificate_of_another_authority_is_refused(trial: Trial, tmp_path: Path) -> None:
    strange = foreign(trial.site, tmp_path / "trusting", trusting=True)
    refused_everywhere(trial, dial(strange, "server"), CODE.UNAVAILABLE)
    assert BECAUSE_OF_US in probed(strange)


def test_who_belongs_to_another_authority_refuses_the_server_too(trial: Trial, tmp_path: Path) -> None:
    strange = foreign(trial.site, tmp_path / "other", trusting=False)
    refused_everywhere(trial, dial(strange, "server"), CODE.UNAVAILABLE)
    assert "shows a certificate of another authority" in probed(strange)


def test_an_expired_certificate_is_refused(trial: Trial, tmp_path: Path) -> None:
    names = (federations.identity(trial.made.name, RIVAL),)
    expired = issued(trial.site, tmp_path / "expired", names, ago=timedelta(days=3))
    refused_everywhere(trial, dial(expired, "server"), CODE.UNAVAILABLE)
    assert BECAUSE_OF_US in probed(expired)
    with pytest.raises(ConfigError, match="expired"):  # which secfc-client finds before it dials
        kit.load(expired.path)


@pytest.mark.parametrize("name", ["Join", "Follow", "Report", "Status", "Progress", "Deliver", "Hand"])
def test_a_name_outside_the_roster_is_refused(trial: Trial, tmp_path: Path, name: str) -> None:
    stranger = issued(trial.site, tmp_path / "kit", (federations.identity(trial.made.name, "client-9"),))
    with dial(stranger, "server") as channel, no_effect(trial):
        code, text = refusal(calls(channel, trial.rival)[name])
    assert code is CODE.PERMISSION_DENIED
    assert "roster" in text


def test_the_servers_own_certificate_takes_no_part(trial: Trial) -> None:
    server = kit.load(trial.site.kit("server"))
    with dial(server, "server") as channel, no_effect(trial):
        attempts = calls(channel, trial.rival)
        for name in ("Join", "Follow", "Report", "Progress", "Deliver", "Hand"):
            code, text = refusal(attempts[name])
            assert (code, "roster" in text) == (CODE.PERMISSION_DENIED, True), f"{name}: {text}"


@pytest.mark.parametrize(
    "names",
    [
        ("client-3.other.secfc.internal",),
        ("client-3.local.secfc.internal", "client-1.local.secfc.internal"),
        ("127.0.0.1", "localhost"),
    ],
    ids=["another federation", "two identities", "none"],
)
def test_a_certificate_that_names_no_one_party_is_refused(trial: Trial, tmp_path: Path, names: tuple[str, ...]) -> None:
    odd = issued(trial.site, tmp_path / "kit", names)
    refused_everywhere(trial, dial(odd, "server"), CODE.PERMISSION_DENIED, "names no party of the federation local")


def test_plaintext_on_the_tls_port_is_refused(trial: Trial) -> None:
    refused_everywhere(trial, grpc.insecure_channel(trial.made.server.address), CODE.UNAVAILABLE)
    with no_effect(trial), socket.create_connection((trial.made.server.host, trial.made.server.port), 10.0) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
        try:
            answer = raw.recv(4096)
        except ConnectionResetError:
            answer = b""
        assert b"HTTP/1.1 200" not in answer


def test_the_clients_ports_are_guarded_alike(trial: Trial, tmp_path: Path) -> None:
    progress = wire.to_message(Parcel(bytes(32), Kind.SHARES, bytes(16)))
    address = trial.made.client("client-1").address
    names = (federations.identity(trial.made.name, RIVAL),)
    expired = issued(trial.site, tmp_path / "expired", names, ago=timedelta(days=3))
    odd = issued(trial.site, tmp_path / "odd", ("client-3.other.secfc.internal",))
    for channel, expected in (
        (dial(trial.rival.kit, "client-1", certificate=False), CODE.UNAVAILABLE),
        (dial(foreign(trial.site, tmp_path / "foreign", trusting=True), "client-1"), CODE.UNAVAILABLE),
        (dial(expired, "client-1"), CODE.UNAVAILABLE),
        (grpc.insecure_channel(address), CODE.UNAVAILABLE),
        (dial(odd, "client-1"), CODE.PERMISSION_DENIED),
    ):
        with channel:
            code, text = refusal(lambda c=channel: stubs.ExchangeStub(c).Progress(progress, timeout=CALL))
            assert code is expected, text


# --- joining -------------------------------------------------------------------------------------------------------------


def signed(rival: Scripted, **changes: Any) -> pb.Introduction:
    """An introduction that says something else, with a signature of our own key that fits it."""
    bare = dataclasses.replace(rival.introduction(), **changes)
    signature = rival.kit.sign(bare.statement(rival.kit.federation.agreed()))
    return wire.to_message(dataclasses.replace(bare, signature=signature))


JOINS: dict[str, tuple[Callable[[Scripted], dict[str, Any]], grpc.StatusCode, str]] = {
    "as another client": (
        lambda rival: {"introduction": signed(rival, name="client-1")},
        CODE.PERMISSION_DENIED,
        "the certificate says client-3, the introduction client-1",
    ),
    "as the server": (
        lambda rival: {"introduction": signed(rival, name="server")},
        CODE.PERMISSION_DENIED,
        "the certificate says client-3",
    ),
    "signed for other rows": (
        lambda rival: {"introduction": wire.to_message(dataclasses.replace(rival.introduction(), rows=31))},
        CODE.PERMISSION_DENIED,
        "the signature is not that of 'client-3'",
    ),
    "without signature": (
        lambda rival: {"introduction": wire.to_message(dataclasses.replace(rival.introduction(), signature=b""))},
        CODE.PERMISSION_DENIED,
        "the signature is not that of 'client-3'",
    ),
    "without certificate": (
        lambda rival: {"introduction": signed(rival, certificate=b"")},
        CODE.PERMISSION_DENIED,
        "refused",
    ),
    "another federation file": (
        lambda rival: {"federation_digest": bytes(32)},
        CODE.FAILED_PRECONDITION,
        "your federation.toml differs from the server's",
    ),
    "too many rows": (
        lambda rival: {"introduction": signed(rival, rows=31)},
        CODE.INVALID_ARGUMENT,
        "121 rows in all exceed max_rows = 120",
    ),
    "absurdly many rows": (lambda rival: {"introduction": signed(rival, rows=1 << 40)}, CODE.INVALID_ARGUMENT, "rows"),
    "an instance of no bytes": (
        lambda rival: {"instance": b""},
        CODE.INVALID_ARGUMENT,
        "instance id must have 16 bytes",
    ),
    "a short key": (lambda rival: {"introduction": signed(rival, x25519=bytes(31))}, CODE.INVALID_ARGUMENT, "X25519"),
    "a huge certificate": (
        lambda rival: {"introduction": signed(rival, certificate=bytes(1 << 20))},
        CODE.INVALID_ARGUMENT,
        "a certificate must have 0 to 16384 bytes, not 1048576",
    ),
    "no introduction": (lambda rival: {"introduction": None}, CODE.INVALID_ARGUMENT, "name must have 1 to 64"),
}


@pytest.mark.parametrize("case", JOINS)
def test_joining_wrongly_is_refused(trial: Trial, case: str) -> None:
    changes, expected, pattern = JOINS[case]
    with no_effect(trial):
        code, text = refusal(lambda: trial.rival.join(**changes(trial.rival)))
    assert code is expected, text
    assert pattern in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "report",
    [
        messages.Held(bytes(32), 0, 0, 0.0, bytes(32)),
        messages.Done(),
        messages.Stopped("x"),
        messages.Unreachable("client-1", "x"),
    ],
    ids=lambda report: type(report).__name__,
)
def test_reports_before_joining_or_under_a_guessed_instance_are_refused(trial: Trial, report: messages.Report) -> None:
    """Nobody can report as another: the name is the certificate's, the instance is only known to the process itself."""
    with no_effect(trial):
        assert refusal(lambda: trial.rival.report(report))[0] is CODE.FAILED_PRECONDITION
    alive = kit.load(trial.site.kit("client-1"))
    with dial(alive, "server") as channel, no_effect(trial):
        request = wire.report_to(report, bytes(16))
        code, text = refusal(lambda: stubs.CoordinatorStub(channel).Report(request, timeout=CALL))
    assert (code, "join first" in text) == (CODE.FAILED_PRECONDITION, True)


def test_shares_before_the_roster_are_asked_to_come_later(trial: Trial) -> None:
    channel, stub = trial.rival.peer("client-1")
    with channel:
        parcel = Parcel(bytes(32), Kind.SHARES, trial.rival.me.site.share_set.id)
        code, text = refusal(lambda: stub.Progress(wire.to_message(parcel), timeout=CALL))
    assert (code, "try again" in text) == (CODE.FAILED_PRECONDITION, True)


@pytest.mark.slow
def test_a_second_process_and_a_different_file_end_with_code_4(trial: Trial) -> None:
    """Real processes: client-1's kit carried elsewhere, and client-3's with a federation file that was edited."""
    double = helpers.copied_kit(trial.site.kit("client-1"), trial.folder / "double")
    edited = helpers.copied_kit(trial.site.kit(RIVAL), trial.folder / "edited")
    other = dataclasses.replace(trial.made, job=dataclasses.replace(trial.made.job, max_rounds=299))
    (edited / "federation.toml").write_text(federations.dumps(other), encoding="utf-8")
    bind = ("--bind", "127.0.0.1:0")
    with no_effect(trial):
        started = [
            helpers.launch(
                helpers.client_call(
                    folder, trial.folder / f"{name}.parquet", trial.folder / f"{folder.name}.csv", *bind
                )
            )
            for folder, name in ((double, "client-1"), (edited, RIVAL))
        ]
        ended = [helpers.outcome(process) for process in started]
    assert [code for code, _, _ in ended] == [4, 4]
    assert "another process has joined as client-1 and is alive; stop it first" in helpers.error_line(ended[0][2])
    assert "your federation.toml differs from the server's" in helpers.error_line(ended[1][2])
    assert not (trial.folder / "double.csv").exists()


# --- sharing -------------------------------------------------------------------------------------------------------------


def spoiled(data: bytes, at: int, bits: int = BIG) -> bytes:
    """The bytes of words, with bits set in one of them that make a residue not below its prime."""
    words = np.frombuffer(data, dtype="<u8").copy()
    words[at] |= np.uint64(bits)
    return words.tobytes()


Pieces = Callable[[Scripted, bytes], list[pb.Piece]]
SHARES: dict[str, tuple[Pieces, grpc.StatusCode, str]] = {
    "another session": (
        lambda rival, data: [rival.share_piece(data, session=bytes(32))],
        CODE.FAILED_PRECONDITION,
        "another job",
    ),
    "another owner's share set": (
        lambda rival, data: [rival.share_piece(data, name=rival.members[1].share_set)],
        CODE.FAILED_PRECONDITION,
        "this is not due here",
    ),
    "one word short in all": (
        lambda rival, data: [rival.share_piece(data[:-8])],
        CODE.INVALID_ARGUMENT,
        "bytes are due, not",
    ),
    "one word too many": (
        lambda rival, data: [rival.share_piece(data + data[:8])],
        CODE.INVALID_ARGUMENT,
        "bytes are due, not",
    ),
    "beyond its total": (
        lambda rival, data: [rival.share_piece(data, total=len(data), data=data + bytes(8))],
        CODE.INVALID_ARGUMENT,
        "beyond its total",
    ),
    "a wrong offset": (
        lambda rival, data: [rival.share_piece(data, 8)],
        CODE.INVALID_ARGUMENT,
        "bytes from offset 0 are due, not from 8",
    ),
    "no whole words": (
        lambda rival, data: [rival.share_piece(data, data=bytes(15))],
        CODE.INVALID_ARGUMENT,
        "ends within one",
    ),
    "a residue not below its prime": (
        lambda rival, data: [rival.share_piece(data, data=spoiled(data, 7))],
        CODE.INVALID_ARGUMENT,
        "is not below its prime",
    ),
    "bit 63 set": (
        lambda rival, data: [rival.share_piece(data, data=spoiled(data, 0, 1 << 63))],
        CODE.INVALID_ARGUMENT,
        "is not below its prime",
    ),
    "a piece of 2 MiB": (
        lambda rival, data: [rival.share_piece(data, data=bytes(2 << 20), total=1 << 30)],
        CODE.INVALID_ARGUMENT,
        "must have 0 to 1048576 bytes",
    ),
    "a message beyond gRPC's limit": (
        lambda rival, data: [rival.share_piece(data, data=bytes(5 << 20), total=1 << 30)],
        CODE.RESOURCE_EXHAUSTED,
        "",
    ),
}


@pytest.mark.parametrize("case", SHARES)
def test_wrong_shares_are_refused(trial: Trial, case: str) -> None:
    trial.join()
    parts, expected, pattern = SHARES[case]
    data = trial.rival.shares("client-1")
    with no_effect(trial):
        code, text = refusal(lambda: trial.rival.deliver("client-1", *parts(trial.rival, data)))
    assert code is expected, text
    assert pattern in text
    assert trial.rival.received_by("client-1") == 0


@pytest.mark.parametrize("party", ["server", "client-9"])
def test_shares_come_from_the_other_clients_only(trial: Trial, tmp_path: Path, party: str) -> None:
    """Not from the server, nor from a name outside, not even the right bytes of the right job."""
    trial.join()
    if party == "server":
        sender = kit.load(trial.site.kit("server"))
    else:
        sender = issued(trial.site, tmp_path / "kit", (federations.identity(trial.made.name, party),))
    whole = trial.rival.share_piece(trial.rival.shares("client-1"))
    with dial(sender, "client-1") as channel:
        code, text = refusal(lambda: stubs.ExchangeStub(channel).Deliver(iter([whole]), timeout=CALL))
    why = "only the other clients" if party == "server" else "client-9 is not in the roster"
    assert (code, why in text) == (CODE.PERMISSION_DENIED, True)
    assert trial.rival.received_by("client-1") == 0


def test_shares_delivered_as_from_another_client_are_refused(trial: Trial) -> None:
    """client-2's certificate, client-3's shares: who delivers is what the certificate says."""
    trial.join()
    whole = trial.rival.share_piece(trial.rival.shares("client-1"))
    with dial(kit.load(trial.site.kit("client-2")), "client-1") as channel:
        code, text = refusal(lambda: stubs.ExchangeStub(channel).Deliver(iter([whole]), timeout=CALL))
    assert (code, "this is not due here" in text) == (CODE.FAILED_PRECONDITION, True)
    assert trial.rival.received_by("client-1") == 0


def test_what_comes_too_early_or_lies_is_refused_while_sharing(trial: Trial) -> None:
    trial.join()
    rival = trial.rival
    early = piece(Parcel(rival.me.session, Kind.UPLOAD, attempt_name(1, 1)), bytes(8))
    attempts: list[tuple[Callable[[], Any], grpc.StatusCode, str]] = [
        (lambda: rival.upload(early), CODE.FAILED_PRECONDITION, "this is not due"),
        (
            lambda: rival.report(messages.Held(bytes(32), 0, 0, 0.0, rival.me.site.secrets.coin)),
            CODE.INVALID_ARGUMENT,
            "not those of this job",
        ),
        (lambda: rival.report(messages.Held(bytes(31), 0, 0, 0.0)), CODE.INVALID_ARGUMENT, "must have 32 bytes"),
        (lambda: rival.report(messages.Done()), CODE.FAILED_PRECONDITION, "too early or too late"),
        (lambda: rival.report(messages.Unreachable("client-9", "x")), CODE.INVALID_ARGUMENT, "not in the roster"),
        (lambda: rival.join(introduction=signed(rival, rows=29)), CODE.FAILED_PRECONDITION, "the job has begun"),
        (
            lambda: rival.join(introduction=signed(rival, nonce=bytes(32))),
            CODE.FAILED_PRECONDITION,
            "the job has begun",
        ),
        (lambda: rival.join(instance=bytes(16)), CODE.ALREADY_EXISTS, "another process has joined as client-3"),
    ]
    for attempt, expected, pattern in attempts:
        with no_effect(trial):
            code, text = refusal(attempt)
        assert (code, pattern in text) == (expected, True), text


# --- rounds --------------------------------------------------------------------------------------------------------------


Uploads = Callable[[Scripted, messages.RoundRequest, bytes], pb.Piece]
UPLOADS: dict[str, tuple[Uploads, grpc.StatusCode, str]] = {
    "a round to come": (
        lambda rival, asked, data: rival.upload_piece(asked, data, name=attempt_name(asked.number + 1, asked.attempt)),
        CODE.FAILED_PRECONDITION,
        "is over",
    ),
    "another session": (
        lambda rival, asked, data: rival.upload_piece(asked, data, session=bytes(32)),
        CODE.FAILED_PRECONDITION,
        "belongs to another job",
    ),
    "a round before the first": (
        lambda rival, asked, data: rival.upload_piece(asked, data, name=attempt_name(0, asked.attempt)),
        CODE.FAILED_PRECONDITION,
        "is over",
    ),
    "another attempt": (
        lambda rival, asked, data: rival.upload_piece(asked, data, name=attempt_name(asked.number, asked.attempt + 1)),
        CODE.FAILED_PRECONDITION,
        "is over",
    ),
    "no name": (
        lambda rival, asked, data: rival.upload_piece(asked, data, name=b""),
        CODE.INVALID_ARGUMENT,
        "too short",
    ),
    "more than a name": (
        lambda rival, asked, data: rival.upload_piece(asked, data, name=rival.upload_parcel(asked).name + b"more"),
        CODE.FAILED_PRECONDITION,
        "is over",
    ),
    "a name without end": (
        lambda rival, asked, data: rival.upload_piece(asked, data, name=bytes(1 << 10)),
        CODE.INVALID_ARGUMENT,
        "a parcel's name",
    ),
    "another kind": (
        lambda rival, asked, data: rival.upload_piece(asked, data, kind=pb.KIND_SHARES),
        CODE.FAILED_PRECONDITION,
        "this is not due",
    ),
    "a kind that is none": (
        lambda rival, asked, data: rival.upload_piece(asked, data, kind=99),
        CODE.INVALID_ARGUMENT,
        "this version does not know",
    ),
    "one word short in all": (
        lambda rival, asked, data: rival.upload_piece(asked, data[:-8]),
        CODE.INVALID_ARGUMENT,
        "bytes is due, not of",
    ),
    "one word too many": (
        lambda rival, asked, data: rival.upload_piece(asked, data + data[:8]),
        CODE.INVALID_ARGUMENT,
        "bytes is due, not of",
    ),
    "beyond its total": (
        lambda rival, asked, data: rival.upload_piece(asked, data, data=data + bytes(8)),
        CODE.INVALID_ARGUMENT,
        "beyond its total",
    ),
    "a wrong offset": (
        lambda rival, asked, data: rival.upload_piece(asked, data, 8),
        CODE.INVALID_ARGUMENT,
        "bytes from offset 0 are due, not from 8",
    ),
    "no whole words": (
        lambda rival, asked, data: rival.upload_piece(asked, data, data=bytes(9)),
        CODE.INVALID_ARGUMENT,
        "ends within one",
    ),
    "a residue not below its prime": (
        lambda rival, asked, data: rival.upload_piece(asked, data, data=spoiled(data, 3)),
        CODE.INVALID_ARGUMENT,
        "is not below its prime",
    ),
    "bit 63 set": (
        lambda rival, asked, data: rival.upload_piece(asked, data, data=spoiled(data, 0, 1 << 63)),
        CODE.INVALID_ARGUMENT,
        "is not below its prime",
    ),
}


@pytest.mark.parametrize("case", UPLOADS)
def test_wrong_uploads_are_refused(trial: Trial, case: str) -> None:
    asked = trial.to_rounds()
    made, expected, pattern = UPLOADS[case]
    data = trial.rival.answer(asked)
    with no_effect(trial):
        code, text = refusal(lambda: trial.rival.upload(made(trial.rival, asked, data)))
    assert code is expected, text
    assert pattern in text
    assert trial.rival.uploaded(asked) == 0


@pytest.mark.parametrize("party", ["server", "client-9"])
def test_uploads_come_from_the_roster_only(trial: Trial, tmp_path: Path, party: str) -> None:
    asked = trial.to_rounds()
    whole = trial.rival.upload_piece(asked, trial.rival.answer(asked))
    if party == "server":
        sender = kit.load(trial.site.kit("server"))
    else:
        sender = issued(trial.site, tmp_path / "kit", (federations.identity(trial.made.name, party),))
    with dial(sender, "server") as channel, no_effect(trial):
        code, text = refusal(lambda: stubs.ExchangeStub(channel).Deliver(iter([whole]), timeout=CALL))
    assert (code, "roster" in text) == (CODE.PERMISSION_DENIED, True)


def test_an_upload_counts_for_its_sender_only(trial: Trial) -> None:
    """client-1 has answered: client-3's part under client-1's certificate is a repetition, of which nothing is taken."""
    asked, rival = trial.to_rounds(), trial.rival
    whole = rival.upload_piece(asked, rival.answer(asked))
    other = kit.load(trial.site.kit("client-1"))
    until(lambda: rival.uploaded(asked, other) == whole.total, "client-1 has answered")
    with dial(other, "server") as channel, no_effect(trial):
        stubs.ExchangeStub(channel).Deliver(iter([whole]), timeout=CALL)
    assert rival.uploaded(asked) == 0


def test_an_upload_for_a_round_that_is_over_is_refused(trial: Trial) -> None:
    asked = trial.to_rounds()
    data = trial.rival.answer(asked)
    first = trial.rival.upload_piece(asked, data)
    assert trial.rival.upload(first) == len(data)
    trial.question = trial.rival.request()
    assert trial.question.number == asked.number + 1
    with no_effect(trial):
        code, text = refusal(lambda: trial.rival.upload(first))
    assert (code, f"request {asked.number}, attempt {asked.attempt} is over" in text) == (
        CODE.FAILED_PRECONDITION,
        True,
    )


def test_the_attacked_job_completes_with_identical_labels(trial: Trial) -> None:
    asked = trial.to_rounds()
    trial.rival.requests.put(asked)
    trial.rival.go_on()
    trial.site.wait(60)
    written = [
        pq.read_table(trial.site.labels_file(name)).column("cluster").to_numpy() for name in trial.made.roster[:2]
    ]
    expected = helpers.pooled(trial.made, trial.parts)
    np.testing.assert_array_equal(np.concatenate([*written, trial.rival.labels]), expected.labels)
    result = trial.site.result()
    assert (result["state"], result["rounds"]) == ("finished", expected.rounds)
    assert [step["attempts"] for step in result["history"]] == [1] * len(result["history"])
    for party in trial.site.processes:
        assert "Traceback" not in helpers.text(trial.site, party)


# --- a client's own troubles ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Local:
    """A federation of which nothing runs."""
    parts = helpers.split(helpers.mixture(60, 2, 3), [20, 20, 20])
    return helpers.prepared(tmp_path_factory.mktemp("idle"), parts, helpers.describe(parts, 3))


def test_a_kit_out_of_order_ends_with_code_2_and_one_line(idle: Local, tmp_path: Path) -> None:
    names = (federations.identity(idle.federation.name, "client-1"),)
    issued(idle, tmp_path / "expired", names, ago=timedelta(days=3))
    loose = helpers.copied_kit(idle.kit("client-1"), tmp_path / "loose")
    (loose / "key.pem").chmod(0o640)
    data = idle.folder / "client-1.parquet"
    cases = {
        tmp_path / "expired": "expired on .*; ask whoever provisions the federation for a new kit",
        loose: "users other than its owner have access .*; run: chmod 600",
        idle.kit("server"): "is the server's kit; secfc-client needs a client's",
    }
    started = [helpers.launch(helpers.client_call(folder, data, tmp_path / "out.csv")) for folder in cases]
    for pattern, process in zip(cases.values(), started, strict=True):
        code, out, err = helpers.outcome(process)
        assert (code, out) == (2, "")
        assert re.fullmatch(f"error: .*{pattern}.*", helpers.error_line(err))


@pytest.mark.slow
def test_nobody_at_the_address_ends_with_code_3_at_the_deadline(idle: Local, tmp_path: Path) -> None:
    """It says what it tried, while it tries and at the end."""
    call = helpers.client_call(
        idle.kit("client-1"), idle.folder / "client-1.parquet", tmp_path / "out.csv", "--wait", "1"
    )
    code, _, err = helpers.outcome(helpers.launch(call), 40.0)
    assert code == 3
    port = idle.federation.server.port
    where = f"server at 127.0.0.1 port {port} refuses: nothing listens there"
    assert where in helpers.error_line(err)
    assert "gave up on the server after 1 s" in helpers.error_line(err)
    assert "cannot reach the server; trying again" in err


@pytest.mark.slow
def test_a_service_that_is_not_the_server_is_named(idle: Local, tmp_path: Path) -> None:
    """Something listens there, but not in TLS."""
    with socket.create_server(("127.0.0.1", idle.federation.server.port)) as plain:
        plain.listen()
        files = (idle.kit("client-2"), idle.folder / "client-2.parquet", tmp_path / "out.csv")
        process = helpers.launch(helpers.client_call(*files, "--wait", "0.5"))
        plain.settimeout(0.1)
        while process.poll() is None:
            try:
                answered, _ = plain.accept()
            except TimeoutError:
                continue
            with answered:
                answered.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        code, _, err = helpers.outcome(process)
    assert code == 3
    assert re.search("answers, but not in TLS|hangs up during the TLS handshake", helpers.error_line(err))


@pytest.mark.slow
def test_a_server_that_starts_later_and_a_client_that_starts_last(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(90, 2, 3), [30, 30, 30])
    site = helpers.prepared(tmp_path, parts, helpers.describe(parts, 3))
    try:
        site.start("client-1")
        until(lambda: helpers.said(site, "client-1", "cannot reach the server; trying again"), "client-1 complains")
        site.start("server")
        site.start("client-2")
        until(lambda: helpers.said(site, "server", "listening"), "the server listens")
        until(lambda: [c.connected for c in helpers.status_of(site).clients] == [True, True, False], "two have joined")
        site.start("client-3")
        site.wait(60)
    finally:
        site.stop()
    helpers.check_labels(site, parts)
