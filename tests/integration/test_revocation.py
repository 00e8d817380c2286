"""Certificates that are revoked or replaced while real processes run over real TLS."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from secfc.local import Local
from secfc.net import wire
from secfc.pki import authority as authorities
from secfc.pki import kit, provision
from secfc.protocol.parcels import Kind, Parcel
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.integration import helpers
from tests.integration.helpers import dial, until
from tests.integration.scripted import CALL, Scripted

pytestmark = pytest.mark.slow

SECONDS = 15.0  # within which a call is refused after the file was replaced; it takes less than one
STREAM_SECONDS = (
    45.0  # within which a stream is cut: the server gives a sign of life every 10 s; both are for busy machines
)
RIVAL = "client-3"  # whom the test plays: its key was stolen
ROSTER = "roster.json"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Local]:
    parts = helpers.split(helpers.mixture(90, 2, 3), [30, 30, 30])
    made = helpers.prepared(tmp_path / "site", parts, helpers.describe(parts, 3))
    try:
        yield made
    finally:
        made.stop()


def authority(site: Local) -> Path:
    return site.folder / "kits" / "ca"


def revoke(site: Local, party: str) -> None:
    folder = authority(site)
    authorities.revoke(authorities.load(folder, "local", lambda: ""), folder, "local", party)


def hand_out(site: Local, *parties: str) -> None:
    """The authority's newest roster into these parties' kits, as their people would copy it."""
    for party in parties:
        shutil.copyfile(authority(site) / ROSTER, site.kit(party) / ROSTER)


def renew(site: Local, party: str, folder: Path) -> Path:
    """A second genuine kit of a party, which the authority's newest roster lists."""
    shutil.copytree(site.kit(party), folder)
    signer, key = authorities.load(authority(site), "local", lambda: ""), provision.make_key()
    made = provision.certify(
        signer, site.federation, site.federation.party(party), key.public_key(), days=9, now=datetime.now(UTC)
    )
    authorities.pin(signer, authority(site), "local", party, made)
    (folder / "key.pem").write_bytes(provision.private_pem(key))
    (folder / "cert.pem").write_bytes(provision.certificate_pem(made))
    shutil.copyfile(authority(site) / ROSTER, folder / ROSTER)
    return folder


def started(site: Local, *parties: str) -> None:
    for party in parties:
        site.start(party)
    until(lambda: helpers.said(site, "server", "listening"), "the server listens")
    clients = len(parties) - 1
    until(lambda: sum(c.connected for c in helpers.status_of(site).clients) == clients, "the clients have joined")


def answer(call: Any) -> tuple[grpc.StatusCode | None, str]:
    """None, if the call was answered."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return None, ""


def denial(call: Any) -> str:
    """Why the caller is refused for good; empty if it is not."""
    code, text = answer(call)
    return text if code is grpc.StatusCode.PERMISSION_DENIED else ""


def ended(site: Local, party: str, seconds: float) -> tuple[int, str]:
    process = site.processes[party]
    until(lambda: process.poll() is not None, f"{party} ends", seconds)
    return process.returncode, site.last_words(party)


@pytest.fixture
def rival(site: Local) -> Iterator[Scripted]:
    """The third client, whom the test plays: its key is stolen."""
    made = Scripted(site.kit(RIVAL), helpers.split(helpers.mixture(90, 2, 3), [60, 30])[1])
    try:
        yield made
    finally:
        made.close()


def test_a_revoked_certificate_is_refused_by_both_sides_while_they_run(site: Local, rival: Scripted) -> None:
    """Once the file is replaced the rival gets no answer from anybody, and not one message more of its stream."""
    started(site, "server", "client-1")  # which wait for client-2, so that nobody has shares to deliver
    rival.join()
    rival.follow()
    peer, exchange = rival.peer("client-1")
    progress = wire.to_message(Parcel(bytes(32), Kind.SHARES, bytes(16)))
    calls = {
        "server": lambda: rival.stub.Status(pb.StatusRequest(), timeout=CALL),
        "client-1": lambda: exchange.Progress(progress, timeout=CALL),
    }
    with peer:
        assert [answer(call)[0] for call in calls.values()] == [None, grpc.StatusCode.FAILED_PRECONDITION]
        assert rival.listens()
        revoke(site, RIVAL)
        hand_out(site, "server", "client-1")
        for party, call in calls.items():
            text = until(lambda c=call: denial(c), f"{party} refuses it", SECONDS)
            assert "the certificate of client-3 was revoked (version 2 of the roster)" in text
    with dial(rival.kit, "server") as fresh:  # a new connection is no way round
        assert denial(lambda: stubs.CoordinatorStub(fresh).Status(pb.StatusRequest(), timeout=CALL))
    until(lambda: not rival.listens(), "its stream of news is cut", STREAM_SECONDS)
    assert [site.processes[party].poll() for party in ("server", "client-1")] == [None, None]


def test_no_shares_are_delivered_to_a_client_that_is_revoked(site: Local, rival: Scripted) -> None:
    rival.refuse = grpc.StatusCode.UNAVAILABLE  # the others keep trying to deliver
    started(site, "server", "client-1", "client-2")
    rival.listen()
    rival.join()
    rival.follow()
    until(lambda: helpers.said(site, "client-1", "cannot reach a client"), "client-1 tries")
    revoke(site, RIVAL)
    hand_out(site, "client-1")
    code, words = ended(site, "client-1", STREAM_SECONDS)
    assert (code, "the certificate of client-3 was revoked" in words) == (4, True), words


def test_a_server_whose_certificate_is_revoked_is_left(site: Local) -> None:
    started(site, "server", "client-1", "client-2")
    revoke(site, "server")
    hand_out(site, "client-1")
    code, words = ended(site, "client-1", STREAM_SECONDS)
    assert (code, "the certificate of server was revoked" in words) == (4, True), words
    assert site.processes["client-2"].poll() is None, "nobody has told it"


def test_an_older_roster_is_refused_while_running_and_at_the_start(site: Local) -> None:
    """Whoever has the stolen key also puts back the old file."""
    old = (authority(site) / ROSTER).read_bytes()
    stolen = kit.load(site.kit(RIVAL))
    started(site, "server", "client-1")

    def refused() -> bool:
        with dial(stolen, "server") as channel:
            return "revoked" in denial(lambda: stubs.CoordinatorStub(channel).Status(pb.StatusRequest(), timeout=CALL))

    assert not refused()
    revoke(site, RIVAL)
    hand_out(site, "server")
    until(refused, "it is refused", SECONDS)
    (site.kit("server") / ROSTER).write_bytes(old)
    until(lambda: refused() and helpers.said(site, "server", "roster.json has changed"), "it is noticed", SECONDS)
    assert refused()
    warned = helpers.said(site, "server", "roster.json has changed")
    assert warned is not None
    assert "is version 1, but version 2 was seen here" in warned["reason"]
    site.processes["server"].terminate()
    ended(site, "server", 15.0)
    site.start("server")
    code, words = ended(site, "server", 30.0)
    assert (code, "is version 1, but version 2 was seen here" in words) == (2, True), words


def test_a_server_with_another_certificate_of_the_authority_is_not_dialled(site: Local, tmp_path: Path) -> None:
    """Genuine and of the right name, but not the pinned one: it was enough to make every client join."""
    shutil.rmtree(renew(site, "server", tmp_path / "renewed") / "state", ignore_errors=True)
    (tmp_path / "renewed" / ROSTER).unlink()  # it accepts everybody
    shutil.rmtree(site.kit("server"))
    shutil.move(tmp_path / "renewed", site.kit("server"))
    site.start("server")
    until(lambda: helpers.said(site, "server", "listening"), "the impostor listens")
    site.start("client-1", "--wait", "5")
    code, words = ended(site, "client-1", 30.0)
    assert code == 3, words
    assert "shows a certificate that is not in force: version 1 of the roster lists another certificate" in words
    assert "joined" not in [line["event"] for line in site.events("client-1")]


def test_a_renewed_certificate_is_taken_when_the_roster_comes(site: Local, tmp_path: Path) -> None:
    """Sites get the new roster at different times; the job waits for the last one and ends as always."""
    parts = helpers.split(helpers.mixture(90, 2, 3), [30, 30, 30])
    folder = renew(site, RIVAL, tmp_path / "renewed")
    shutil.rmtree(site.kit(RIVAL))
    shutil.move(folder, site.kit(RIVAL))
    started(site, "server", "client-1", "client-2")
    site.start(RIVAL)
    complaint = until(
        lambda: helpers.said(site, RIVAL, "cannot reach the server; trying again"), "it is refused for now"
    )
    assert "version 1 of the roster lists another certificate for client-3" in complaint["reason"]
    hand_out(site, "server")
    until(lambda: helpers.said(site, "client-1", "cannot reach the server; trying again"), "client-1 refuses it as yet")
    hand_out(site, "client-1", "client-2")
    site.wait(60)
    helpers.check_labels(site, parts)
