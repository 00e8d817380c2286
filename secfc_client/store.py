"""A client's state folder: what must survive its process, written atomically and readable by its owner only.

The seed of the shares' noise is here before the first share leaves, bound to a digest of the rows: with it a restarted
client makes the same shares again, and changed rows get a fresh seed, so that two polynomials are never mixed. Shares that
others delivered are here before their receipt is given; a file that is torn or of another share set is as good as none.
The coin for the start is here too, and in which session it was revealed: it must not serve in another. What `guard` must know
of earlier requests is here before an answer leaves, and so is what the client has seen and said in a session (`past`).
Once the labels are written that is noted as well, so that a client killed before it could say so need not follow the job
again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import prg
from secfc.errors import ConfigError
from secfc.field import Words
from secfc.framing import framed
from secfc.start import COIN_BYTES
from secfc_client.participant import Secrets
from secfc_client.past import Past

_FILE = "secrets.json"
_SHARES = ".shares"
_WRITTEN = "written"
_REVEALED = "revealed"
_GIVEN = "given"
_PAST = "past"
_VERSION = 1
_MAX_BYTES = 4096


class Store:
    """One client's state for one federation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / _FILE
        self.resumed = False  # whether an earlier process left its secrets here
        self.written = False  # whether that process had written the labels already
        self.fresh = False  # whether this process made the secrets, and nothing was given away with them yet
        self._current: tuple[str, Secrets] | None = None

    def secrets(self, federation_digest: bytes, rows: npt.NDArray[np.int64]) -> Secrets:
        """The secrets kept for these very rows in this federation, or fresh ones, safely on disk."""
        subject = _subject(federation_digest, rows)
        kept = self._read(subject)
        self.resumed = kept is not None
        self.written = self.resumed and (self._folder / _WRITTEN).exists()
        if kept is not None:
            self._current = (subject, kept)
            return kept
        fresh = _fresh(prg.fresh_key())
        self._current, self.fresh = (subject, fresh), True
        for name in (_WRITTEN, _REVEALED, _PAST):
            (self._folder / name).unlink(missing_ok=True)
        self._write(subject, fresh)
        (self._folder / _GIVEN).unlink(missing_ok=True)  # last: fresh secrets beside an old file only count too much
        return fresh

    def finish(self, *, keep: bool) -> None:
        """The job is over. `keep`: the next one on these rows has the same seed, and so the same shares, and others' shares
        and what was given away stay here; its keys and nonce are fresh all the same."""
        if not keep or self._current is None:
            self.clear()
            return
        subject, secrets = self._current
        self._write(subject, _fresh(secrets.seed))
        for name in (_WRITTEN, _REVEALED, _PAST):
            (self._folder / name).unlink(missing_ok=True)
        self.fresh = True

    def note_written(self) -> None:
        """The labels of the job these secrets belong to are written."""
        self._replace(self._folder / _WRITTEN, [])

    def note_revealed(self, session: bytes) -> None:
        """Our coin is about to be revealed in this session; it is worth nothing in another."""
        self._replace(self._folder / _REVEALED, [session])

    def clear(self) -> None:
        """The job is over: the next one gets fresh secrets."""
        try:
            notes = (self._folder / name for name in (_WRITTEN, _REVEALED, _GIVEN, _PAST))
            for path in (self._path, *notes, *self._folder.glob("*" + _SHARES)):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self._folder}: cannot be cleared ({error.strerror}); remove it by hand") from None

    def keep_given(self, content: bytes) -> None:
        """Put what `guard` must know of the requests so far on disk."""
        self.fresh = False
        self._replace(self._folder / _GIVEN, [_seal(b"", _GIVEN, content), content])

    def given(self) -> bytes:
        """What `guard` kept; empty if nothing was ever answered with these shares."""
        return self._sealed(_GIVEN, "what these shares gave away")

    def keep_past(self, past: Past) -> None:
        """Put what was seen and said in a session on disk."""
        content = past.kept()
        self._replace(self._folder / _PAST, [_seal(b"", _PAST, content), content])

    def past(self) -> Past:
        """What an earlier process with these secrets has seen and said."""
        return Past.restored(self._sealed(_PAST, "what was said in this job"))

    def _sealed(self, name: str, what: str) -> bytes:
        """A small file, whole or not there at all."""
        path = self._folder / name
        try:
            whole = path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the state folder") from None
        if whole[:32] != _seal(b"", name, whole[32:]):
            raise ConfigError(f"{path}: damaged, so {what} is not known; remove {self._folder} for fresh shares")
        return whole[32:]

    def keep_shares(self, share_set: bytes, owner: str, words: Words) -> None:
        """Put an owner's shares on disk."""
        content = words.astype("<u8", copy=False).tobytes()
        self._replace(self._folder / (owner + _SHARES), [_seal(share_set, owner, content), content])

    def shares(self, share_set: bytes, owner: str, count: int) -> Words | None:
        """An owner's shares of this share set, if they are here, whole and `count` words long."""
        try:
            with open(self._folder / (owner + _SHARES), "rb") as file:
                seal = file.read(32)
                content = file.read(8 * count + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self._folder}: cannot be read ({error.strerror}); check the state folder") from None
        if len(content) != 8 * count or seal != _seal(share_set, owner, content):
            return None
        return np.frombuffer(content, dtype="<u8").astype(np.uint64)

    def _read(self, subject: str) -> Secrets | None:
        """What is kept, if it is whole and about the same rows; anything else is replaced."""
        try:
            with open(self._path, "rb") as file:
                fields = json.loads(file.read(_MAX_BYTES))
            if fields["version"] != _VERSION or fields["subject"] != subject:
                return None
            seed, private, nonce, coin = (bytes.fromhex(fields[name]) for name in ("seed", "x25519", "nonce", "coin"))
            if (len(seed), len(nonce), len(coin)) != (prg.KEY_BYTES, 32, COIN_BYTES):
                return None
            return Secrets(seed, X25519PrivateKey.from_private_bytes(private), nonce, coin, self._revealed())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read ({error.strerror}); check the state folder") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def _revealed(self) -> bytes:
        path = self._folder / _REVEALED
        return path.read_bytes()[:32] if path.exists() else b""

    def _write(self, subject: str, secrets: Secrets) -> None:
        fields = {
            "version": _VERSION,
            "subject": subject,
            "seed": secrets.seed.hex(),
            "x25519": secrets.x25519.private_bytes_raw().hex(),
            "nonce": secrets.nonce.hex(),
            "coin": secrets.coin.hex(),
        }
        self._replace(self._path, [json.dumps(fields).encode()])

    def _replace(self, path: Path, parts: Sequence[bytes]) -> None:
        """Write a file so that it is there as a whole or not at all, whenever the machine stops."""
        temporary = path.with_name(path.name + ".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(self._folder)
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: cannot keep state there ({error.strerror}); make room there or choose another --state"
            ) from None


def _fresh(seed: bytes) -> Secrets:
    return Secrets(seed, X25519PrivateKey.generate(), os.urandom(32), os.urandom(COIN_BYTES))


def _subject(federation_digest: bytes, rows: npt.NDArray[np.int64]) -> str:
    """Names the rows that secrets belong to."""
    return hashlib.sha256(
        framed(b"secfc/v1/rows", federation_digest, b"%d,%d" % rows.shape, rows.astype("<i8").tobytes())
    ).hexdigest()


def _seal(share_set: bytes, owner: str, content: bytes) -> bytes:
    """Tells a whole file of this share set and owner from any other."""
    digest = hashlib.sha256(framed(b"secfc/v1/kept-shares", share_set, owner.encode()))
    digest.update(content)
    return digest.digest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
