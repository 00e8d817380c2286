"""Jobs that are signed: what every node takes, and what it refuses, whoever brings it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest

from secfc.agreement import submission
from secfc.agreement.submission import Submission
from secfc.errors import ConfigError, Malformed, SecfcError, WrongSender
from secfc.pki import authority, enrolment, kit, provision, submitting
from tests.jobs import JOB, Kits, signed

NOW = time.time()


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits(tmp_path_factory.mktemp("jobs") / "kits")


def job(kits: Kits, who: str = "analyst", **wanted: object) -> Submission:
    return signed(kits[who], clock=NOW, **wanted)  # type: ignore[arg-type]


def refused(kits: Kits, one: Submission, clock: float = NOW) -> SecfcError:
    """Why every node and the server refuse a job, each for itself."""
    found = []
    for party in ("server", "a", "b", "c"):
        with pytest.raises(SecfcError) as caught:
            submitting.verifier(kits[party])(one, clock)
        found.append(caught.value)
    assert len({(type(error), str(error)) for error in found}) == 1
    return found[0]


@pytest.mark.parametrize("who", ["analyst", "b"])
def test_whoever_has_the_role_submits(kits: Kits, who: str) -> None:
    one = job(kits, who)
    for party in ("server", "a", "b", "c"):
        submitting.verifier(kits[party])(one, NOW)
    assert submission.unpack(one.packed()) == one
    assert one.within(kits.federation).agreed() != job(kits, who, token="u").within(kits.federation).agreed()


def test_without_the_role_nobody_does(kits: Kits) -> None:
    with pytest.raises(ConfigError, match="lacks the right to submit jobs"):
        job(kits, "a")
    one = job(kits, "b")
    body = submission.body(one.wanted, kits.federation, "a", "t", one.submitted, one.expires)
    own = kits["a"]
    made = submission.read(body, own.certificate_pem, own.sign(submission.statement(body)))
    assert "a has no right to submit jobs" in str(refused(kits, made))


def test_a_forged_job_is_refused(kits: Kits) -> None:
    """The server, or a site, makes up a job in the analyst's name."""
    one, server = job(kits), kits["server"]
    for changes in (
        {"signature": server.sign(one.statement)},
        {"signature": server.sign(one.statement), "certificate": server.certificate_pem},
        {"certificate": kits["b"].certificate_pem},
        {"signature": b""},
    ):
        assert isinstance(refused(kits, dataclasses.replace(one, **changes)), WrongSender)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "value"), [("job", None), ("dataset", "x"), ("expires", 2**40), ("sites", ["a"])])
def test_an_altered_job_is_refused(kits: Kits, key: str, value: object) -> None:
    one = job(kits)
    fields = json.loads(one.body)
    fields[key] = fields["job"].replace("k = 2", "k = 3") if value is None else value
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert "the signature is not that of 'analyst'" in str(refused(kits, submission.read(body, *_seal(one))))


def _seal(one: Submission) -> tuple[bytes, bytes]:
    return one.certificate, one.signature


def test_a_job_of_another_federation_is_refused(kits: Kits, tmp_path: Path) -> None:
    """Also of one with the same name and authority, but with other parties: what was approved there means nothing here."""
    assert isinstance(refused(kits, job(Kits(tmp_path / "other", "other"))), WrongSender)
    one, own = job(kits), kits["analyst"]
    smaller = dataclasses.replace(kits.federation, clients=kits.federation.clients[:2])
    body = submission.body(one.wanted, smaller, "analyst", "t", one.submitted, one.expires)
    made = submission.read(body, own.certificate_pem, own.sign(submission.statement(body)))
    assert "signed for another federation" in str(refused(kits, made))


def test_a_job_of_another_time_is_refused(kits: Kits) -> None:
    one = job(kits)
    assert "has expired" in str(refused(kits, one, one.expires))
    assert "from the future" in str(refused(kits, one, NOW - 2 * submission.SKEW_SECONDS))
    with pytest.raises(Malformed, match="expires within 720 hours"):
        job(kits, hours=721.0)


def test_jobs_that_only_run_from_the_federations_file_are_refused(kits: Kits) -> None:
    text = JOB.replace("starts = 1\n", 'starts = 1\nsplit = "columns"\n')
    text = text.replace('["age", "weight"]', '{ age = { holder = "a" }, weight = { holder = "b" } }')
    with pytest.raises(Malformed, match="columns are at different sites"):
        job(kits, text=text)


def test_a_job_that_assigns_rows_may_be_submitted(kits: Kits) -> None:
    one = job(kits, text=JOB.replace("starts = 1\n", f'kind = "assign"\nfrom = "{"0" * 32}"\n'))
    for party in ("server", "a", "b", "c"):
        submitting.verifier(kits[party])(one, NOW)
    assert one.wanted.job.source == "0" * 32


def test_a_revoked_submitter_is_refused(tmp_path: Path) -> None:
    kits = Kits(tmp_path / "kits")
    one, ca = job(kits), kits.folder / "ca"
    roster = authority.revoke(authority.load(ca, "trial", str), ca, "trial", "analyst")
    for party in ("server", "a", "b", "c"):
        (kits.folder / party / "roster.json").write_bytes(roster)
    assert "the certificate of analyst was revoked" in str(refused(kits, one))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b"\xff" * 10,
        b"[" * 5000,
        b"x" * (submission.MAX_BODY + 1),
    ],
)
def test_what_is_no_job_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        submission.read(body, b"", b"")


def test_one_job_has_one_spelling(kits: Kits) -> None:
    """Or the same signed words could be two jobs with two digests."""
    one = job(kits)
    for body in (
        b" " + one.body,
        one.body.replace(b'"k = 2', b'"k  = 2'),
        one.body.replace(b'"version":1', b'"version":1.0'),
    ):
        with pytest.raises(Malformed, match="as `secfc submit` writes it"):
            submission.read(body, *_seal(one))
    with pytest.raises(Malformed, match="newer SecFC"):
        submission.read(one.body.replace(b'"version":1', b'"version":2'), *_seal(one))


def test_sites_are_named_in_any_order_and_kept_in_one(kits: Kits) -> None:
    one = job(kits, text=JOB + 'sites = ["c", "a", "b"]')
    assert one.wanted.sites == ("a", "b", "c")
    with pytest.raises(ConfigError, match="'d' is not a client"):
        job(kits, text=JOB + 'sites = ["d"]')


def test_the_role_comes_from_the_authority_not_from_the_request(tmp_path: Path) -> None:
    kits = Kits(tmp_path / "kits")
    ca, federation = kits.folder / "ca", kits.federation
    opened = authority.load(ca, "trial", str)
    for name, submits in (("guest", True), ("a", True), ("a", False)):
        folder = tmp_path / f"{name}-{submits}"
        asked = enrolment.enrol(federation, name, folder / "kit", submits=submits)
        request = enrolment.read_request((folder / "kit" / kit.REQUEST).read_bytes(), federation)
        assert request.submits is submits
        with pytest.raises(ConfigError, match="the right to submit jobs"):
            enrolment.sign(opened, ca, federation, request, asked.fingerprint, folder / "no", submits=not submits)
        enrolment.sign(opened, ca, federation, request, asked.fingerprint, folder / "answer", submits=submits)
        for file in (folder / "answer").iterdir():
            (folder / "kit" / file.name).write_bytes(file.read_bytes())
        (folder / "kit" / kit.REQUEST).unlink()
        made = kit.load(folder / "kit")
        assert (made.party_name, made.submits) == (name, submits)
    for name, complaint in (("server", "the server cannot submit"), ("ca", "reserved"), ("Big", "must be a-z")):
        with pytest.raises(ConfigError, match=complaint):
            enrolment.enrol(federation, name, tmp_path / "never", submits=True)
    with pytest.raises(ConfigError, match="is not a client"):
        enrolment.enrol(federation, "guest", tmp_path / "never")
    assert provision.subject_names("trial", federation.clients[0])[0] == "a.trial.secfc.internal"
