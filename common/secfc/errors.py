"""Every error SecFC raises on purpose.

    SecfcError                      anything below
    ├── InvalidInput (ValueError)   what *our own user* gave is wrong: a value, file, option or parameter
    │   ├── PlanError               the wished-for parameters cannot hold together; names the inequality
    │   ├── ConfigError             federation.toml, a policy or a kit is malformed
    │   ├── DataError               rows are out of bounds, not finite, missing or of the wrong shape
    │   └── RangeError              a number would leave the field or float64's exact range
    ├── PeerError                   what *another party* sent is wrong: it is refused, our state is unchanged
    │   ├── WrongSender             the certificate's name does not fit what the message claims
    │   ├── Malformed               sizes, offsets, residues or words that no honest party sends
    │   ├── OutOfTurn               the right kind of message at the wrong round, attempt or phase
    │   │   └── WentBack            the server asks for what was answered before; no waiting and no restart heals that
    │   ├── NoSuchJob               the job we have begun is not known there: a new one begins, which needs fresh secrets
    │   ├── AlreadyJoined           another live process has joined under this name
    │   └── Refused                 nothing is wrong with it, but this site's own policy does not allow it; names the rule
    ├── Unavailable                 somebody or something could not be reached before the deadline; names whom
    ├── StorageError                a file cannot be kept for now (disk full, too many files open); a restart may heal it
    └── JobFailed                   the job as a whole ended without a result; says why and what is kept

Messages are one line, say what is wrong and what to do, and never hold a secret or a private value's neighbours.
"""

from __future__ import annotations


class SecfcError(Exception):
    """Base of every deliberate error."""


class InvalidInput(SecfcError, ValueError):
    """Our own user gave something wrong."""


class PlanError(InvalidInput):
    """The wished-for parameters cannot hold together."""


class ConfigError(InvalidInput):
    """A federation file, policy or kit is malformed."""


class DataError(InvalidInput):
    """Rows are out of bounds, not finite, missing or of the wrong shape."""


class RangeError(InvalidInput):
    """A number would leave the field or float64's exact range."""


class PeerError(SecfcError):
    """Another party sent something wrong."""


class WrongSender(PeerError):
    """The certificate's name does not fit what the message claims."""


class Malformed(PeerError, ValueError):
    """Sizes, offsets, residues or words that no honest party sends."""


class OutOfTurn(PeerError):
    """The right kind of message at the wrong round, attempt or phase."""


class WentBack(OutOfTurn):
    """The server goes back to a round that we have answered."""


class NoSuchJob(PeerError):
    """The job that we have begun is not known there: a new one begins."""


class AlreadyJoined(PeerError):
    """Another live process has joined under this name."""


class Refused(PeerError):
    """A site's own policy does not allow what another party asked for."""


class Unavailable(SecfcError):
    """Somebody or something could not be reached before the deadline."""


class StorageError(SecfcError):
    """A file cannot be kept for now; nothing is lost, and a restart may heal it."""


class JobFailed(SecfcError):
    """The job as a whole ended without a result."""


OWN_FILES = "it has a problem with its own files; its log says which"


def told(error: SecfcError) -> str:
    """What another party hears of an error: its text, unless it is about files of ours, whose names are nobody's business."""
    if isinstance(error, ConfigError | DataError | StorageError):
        return OWN_FILES
    return str(error)
