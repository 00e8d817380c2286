"""The end of enrolment: the site checks the authority's answer before its kit is one.

Whoever carries the answer can swap all of it, and everything in it would fit together: another authority's ca.pem, a cert.pem
that it signed for the site's own public key, a roster that it signed. Then the site would trust that authority's parties. So
the site compares the fingerprint of ca.pem with what the authority's holder reads out, and only then are the files put into
the kit and the request removed. Until then `kit.load` refuses the folder.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from secfc import textfile
from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.errors import ConfigError, SecfcError
from secfc.pki import certificates, enrolment, kit, provision, signedroster
from secfc.pki.pins import Pins, Source

FILES = ("ca.pem", "cert.pem", signedroster.FILE)
_AGAIN = "ask whoever keeps the authority to send the answer again"
_CURE = "make room there, and run the same command again"


@dataclass(frozen=True)
class _Answer:
    """What came from the authority, parsed and nothing more."""

    folder: Path
    content: dict[str, bytes]
    ca: x509.Certificate
    certificate: x509.Certificate


def accept(own: Path, answer: Path, heard: str | None, *, now: datetime | None = None) -> str:
    """Put the answer in folder `answer` into the kit `own` if it is the authority's to this kit's own request; the party's
    name. `heard` is the authority's fingerprint as read out; None will do if the kit has accepted this authority before."""
    read = _read(answer)
    federation = federations.load(own / "federation.toml")
    _check_authority(own, read, heard)
    name = _check_certificate(own, read, federation, now or datetime.now(UTC))
    content = read.content | {signedroster.FILE: _newest_roster(own, read, federation, name)}
    for file in FILES:
        textfile.write(own / file, content[file], _CURE)
    textfile.remove(own / kit.REQUEST, _CURE)  # last: from now on this is a kit
    return name


def _read(folder: Path) -> _Answer:
    limits = {
        name: signedroster.MAX_BYTES if name == signedroster.FILE else certificates.MAX_PEM_BYTES for name in FILES
    }
    content = {name: textfile.read_small_file(folder / name, limit) for name, limit in limits.items()}
    ca, certificate = (
        certificates.parse_certificate(content[name], str(folder / name)) for name in ("ca.pem", "cert.pem")
    )
    return _Answer(folder, content, ca, certificate)


def _check_authority(own: Path, answer: _Answer, heard: str | None) -> None:
    """The fingerprint people compared, or the very authority that this kit trusts already."""
    if heard is None:
        if (own / kit.REQUEST).exists() or not _trusted(own, answer.ca):
            raise ConfigError(
                "this kit has not accepted that authority before; ask its holder to read out its fingerprint, and give it as "
                "--authority-fingerprint"
            )
    elif not enrolment.same_fingerprint(heard, provision.authority_fingerprint(answer.ca)):
        advice = "ask its holder again, on a channel you trust; somebody may have swapped the answer"
        raise ConfigError(f"the fingerprint you heard is not that of {answer.folder / 'ca.pem'}; {advice}")


def _trusted(own: Path, ca: x509.Certificate) -> bool:
    try:
        return certificates.load(own / "ca.pem") == ca
    except ConfigError:
        return False


def _check_certificate(own: Path, answer: _Answer, federation: Federation, now: datetime) -> str:
    """Signed by that authority, for this kit's key, for a party of this kit's federation file: whose it is."""
    key, where = certificates.load_key(own / "key.pem"), answer.folder / "cert.pem"
    if certificates.p256(answer.certificate) != key.public_key():
        raise ConfigError(f"{where}: does not answer this kit's request, it is for another key; {_AGAIN}")
    name = certificates.check_certificate(answer.certificate, answer.ca, federation, now)
    if (own / kit.REQUEST).exists():
        asked = enrolment.read_request(certificates.read_pem(own / kit.REQUEST), federation).party.name
        if asked != name:
            raise ConfigError(f"{where}: is for {name}, but this kit asked to be {asked}; {_AGAIN}")
    return name


def _newest_roster(own: Path, answer: _Answer, federation: Federation, name: str) -> bytes:
    """The answer's roster, or a newer one of that authority that the kit got meanwhile; it must list the certificate."""
    sent, held = (Source(folder / signedroster.FILE, answer.ca, federation.name) for folder in (answer.folder, own))
    newest = sent
    with contextlib.suppress(ConfigError):  # none yet, or another authority's
        newest = max(sent, held, key=lambda source: source.read()[0].version)
    try:
        Pins(newest).check_pem(name, answer.content["cert.pem"])
        return newest.read()[1]
    except ConfigError:
        raise
    except SecfcError as error:
        raise ConfigError(f"{newest.path}: {error}") from None
