"""A job as it is submitted to a federation that stays: a file of its own, then a statement that its submitter signs.

    job.toml     version, dataset and sites, and the keys of a [job] table                        (`load`, `parse`)
    Submission   the same with submitter, token, dates and the federation's digest, and a signature over all of it

A job is parameters, never code. The statement's digest names it: the server keeps it under that name, sites approve that
name, and all that is computed in the job is bound to it (`Federation.running`), so nobody can put another job in its place.
Signatures are made and checked in `pki.submitting`; what can be told without a certificate is checked here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secfc.agreement import job as jobs
from secfc.agreement import toml
from secfc.agreement.federation import RESERVED_NAMES, Federation
from secfc.agreement.job import Job
from secfc.errors import ConfigError, Malformed, OutOfTurn
from secfc.framing import framed

VERSION = 1
MOST_HOURS = 720  # between submission and expiry: so long must sites remember what they have seen
SKEW_SECONDS = 3600  # that clocks may differ
MAX_BODY = 32 << 10  # so that all open jobs fit into one message
MAX_TOKEN = 100
ID_DIGITS = 16
_PURPOSE = b"secfc/v1/submission"
_OWN_KEYS = ("version", "dataset", "sites")
_FIELDS = {"version": int, "federation": str, "submitter": str, "token": str, "dataset": str, "sites": list, "job": str}
_FIELDS |= {"submitted": int, "expires": int}


@dataclass(frozen=True)
class Wanted:
    """What job.toml says. `sites`: who takes part, in the federation's order; nobody named: all."""

    job: Job
    dataset: str
    sites: tuple[str, ...] = ()

    def digest(self) -> bytes:
        """Names what is computed, whoever submits it and when."""
        sites = json.dumps(self.sites).encode()
        return hashlib.sha256(framed(b"secfc/v1/wanted", self.job.digest(), self.dataset.encode(), sites)).digest()


@dataclass(frozen=True)
class Submission:
    """A signed job. Made by `read` alone, so `body` is canonical and the other fields are what it says."""

    body: bytes = field(repr=False)
    certificate: bytes = field(repr=False)  # of the submitter, PEM
    signature: bytes = field(repr=False)
    wanted: Wanted
    federation: bytes  # digest
    submitter: str
    token: str
    submitted: int  # seconds since 1970
    expires: int  # a job that has not begun by then never does

    @property
    def digest(self) -> bytes:
        """Names this job."""
        return digest(self.body)

    @property
    def id(self) -> str:
        """The first digits of its name, for folders and people."""
        return self.digest.hex()[:ID_DIGITS]

    @property
    def statement(self) -> bytes:
        """What is signed."""
        return statement(self.body)

    def sites(self, federation: Federation) -> tuple[str, ...]:
        """Who takes part."""
        return self.wanted.sites or federation.roster

    def within(self, federation: Federation) -> Federation:
        """The federation that runs this job."""
        return federation.running(self.wanted.job, self.sites(federation), self.digest)

    def packed(self) -> bytes:
        """All of it, for a file; `unpack` reads it back."""
        return framed(self.body, self.certificate, self.signature)


def load(path: Path) -> Wanted:
    """Read and validate a job file."""
    return parse(toml.read_text(path), str(path))


def parse(text: str, where: str) -> Wanted:
    """Validate a job file's text; `where` names it in errors."""
    raw = toml.read_toml(text, where)
    version = raw.get("version", VERSION)
    if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
        raise ConfigError(
            f"{where}: version = {toml.show(version)} is for a newer SecFC, and this one knows version {VERSION}; upgrade it"
        )
    own = toml.Table({key: raw[key] for key in raw if key in _OWN_KEYS}, where, "", _OWN_KEYS)
    own.integer("version", 1, VERSION, default=VERSION)
    sites = own.strings("sites") if "sites" in raw else ()
    if "sites" in raw and not sites:
        own.fail("sites", "is empty; name the sites that take part, or leave it out for all")
    rest = {key: value for key, value in raw.items() if key not in _OWN_KEYS}
    return Wanted(jobs.parse(rest, where), own.label("dataset"), sites)


def check_sites(wanted: Wanted, federation: Federation) -> Wanted:
    """The same with sites in the federation's order; ConfigError if it has no such site."""
    for name in wanted.sites:
        federation.client(name)
    ordered = tuple(name for name in federation.roster if name in wanted.sites)
    return Wanted(wanted.job, wanted.dataset, ordered)


def body(wanted: Wanted, federation: Federation, submitter: str, token: str, submitted: int, expires: int) -> bytes:
    """What a submitter signs."""
    fields = {
        "version": VERSION,
        "federation": federation.digest().hex(),
        "submitter": submitter,
        "token": token,
        "dataset": wanted.dataset,
        "sites": list(wanted.sites),
        "job": jobs.dumps(wanted.job),
        "submitted": submitted,
        "expires": expires,
    }
    return _canonical(fields)


def digest(content: bytes) -> bytes:
    """What names a job."""
    return hashlib.sha256(statement(content)).digest()


def statement(content: bytes) -> bytes:
    """What is signed, with its purpose in front: the same key signs other things too."""
    return framed(_PURPOSE, content)


def read(content: bytes, certificate: bytes, signature: bytes) -> Submission:
    """A submission from anywhere; Malformed if no honest submitter would write it. Neither its signature nor whether it fits
    the federation is checked."""
    if len(content) > MAX_BODY:
        raise Malformed(f"a job has at most {MAX_BODY} bytes, not {len(content)}")
    try:
        fields = json.loads(content)
        if not isinstance(fields, dict):
            raise TypeError
        if type(fields["version"]) is int and fields["version"] > VERSION:
            raise Malformed("the job was written by a newer SecFC; upgrade this one")
        if {key: type(value) for key, value in fields.items()} != _FIELDS or _canonical(fields) != content:
            raise ValueError
        return _read(fields, content, certificate, signature)
    except Malformed:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = str(error) if isinstance(error, ConfigError) else "submit it with the same version everywhere"
        raise Malformed(f"this is not a job as `secfc submit` writes it: {reason}") from None


def _read(fields: dict[str, Any], content: bytes, certificate: bytes, signature: bytes) -> Submission:
    job = jobs.parse(fields["job"], "the job")
    if jobs.dumps(job) != fields["job"] or fields["version"] != VERSION:
        raise ValueError
    words = toml.Table(fields, "the job", "", tuple(_FIELDS))
    if not 1 <= len(fields["token"]) <= MAX_TOKEN or not fields["token"].isprintable():
        raise ValueError
    sites = words.strings("sites") if fields["sites"] else ()
    return Submission(
        body=content,
        certificate=certificate,
        signature=signature,
        wanted=Wanted(job, words.label("dataset"), sites),
        federation=bytes.fromhex(fields["federation"]),
        submitter=words.label("submitter"),
        token=fields["token"],
        submitted=words.integer("submitted", 0, 1 << 40),
        expires=words.integer("expires", 0, 1 << 40),
    )


def unpack(content: bytes) -> Submission:
    """What `Submission.packed` made."""
    parts, rest = [], content
    while rest:
        size = int.from_bytes(rest[:8], "big")
        parts.append(rest[8 : 8 + size])
        rest = rest[8 + size :]
    if len(parts) != 3:
        raise Malformed("a kept job is not whole")
    return read(*parts)


def check(one: Submission, federation: Federation, clock: float) -> None:
    """Raise unless this job is for this federation, now: a job of another federation or another time is a replay."""
    if one.federation != federation.digest():
        raise OutOfTurn(
            "the job was signed for another federation, or for another version of federation.toml; give every party the"
            " same file, and submit it again"
        )
    if one.submitter in RESERVED_NAMES:
        raise Malformed(f"{one.submitter} cannot submit jobs")
    if not one.submitted < one.expires <= one.submitted + MOST_HOURS * 3600:
        raise Malformed(f"a job expires within {MOST_HOURS} hours of its submission; submit it again")
    if one.submitted > clock + SKEW_SECONDS:
        raise OutOfTurn("the job comes from the future; set the clocks of submitter and parties, and submit it again")
    if one.expires <= clock:
        raise OutOfTurn("the job has expired; submit it again")
    unknown = [name for name in one.wanted.sites if name not in federation.roster]
    if unknown or one.wanted.sites != tuple(name for name in federation.roster if name in one.wanted.sites):
        raise Malformed("the job names sites that are not in the federation, or not in its order")
    if one.wanted.job.holders:
        raise Malformed("jobs whose columns are at different sites cannot be submitted; run them with a [job] table")


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
