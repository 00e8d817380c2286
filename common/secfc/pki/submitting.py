"""Jobs that are signed: by a submitter's kit, and checked by every node and by the server, each for itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from secfc.agreement import submission
from secfc.agreement.submission import Submission, Wanted
from secfc.errors import ConfigError, WrongSender
from secfc.pki import certificates, kit
from secfc.pki.kit import Kit

HOURS = 72.0


def sign(own: Kit, wanted: Wanted, token: str, *, hours: float = HOURS, clock: float) -> Submission:
    """The job as this kit's party submits it, once it is sure that nodes would take it."""
    if not own.submits:
        raise ConfigError(
            f"{own.path}: the certificate of {own.party_name} lacks the right to submit jobs; ask whoever keeps the authority"
            " for one: secfc enroll --role submitter"
        )
    begin = int(clock)
    ordered = submission.check_sites(wanted, own.federation)
    body = submission.body(ordered, own.federation, own.party_name, token, begin, begin + int(hours * 3600))
    made = submission.read(body, own.certificate_pem, own.sign(submission.statement(body)))
    submission.check(made, own.federation, clock)
    return made


def verifier(own: Kit) -> Callable[[Submission, float], None]:
    """Checks, given the time, that a job is signed by the submitter it names, whose certificate is in force and has the
    right, and that it is for this federation, now. Raises a PeerError; Unavailable where a newer roster may put it right."""

    def verify(one: Submission, clock: float) -> None:
        now = datetime.fromtimestamp(clock, UTC)
        name = own.federation.name
        kit.verify_signature(own.ca_pem, one.certificate, name, one.submitter, one.statement, one.signature, now)
        if not certificates.may_submit(certificates.parse_certificate(one.certificate, "the certificate")):
            raise WrongSender(f"{one.submitter} has no right to submit jobs: its certificate lacks the role")
        own.pins.check_pem(one.submitter, one.certificate)
        submission.check(one, own.federation, clock)

    return verify
