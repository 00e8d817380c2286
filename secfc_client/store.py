"""A client's state folder: what must survive its process, written atomically and readable by its owner only.

The seed of the shares' noise is here before the first share leaves, bound to a digest of the rows: with it a restarted
client makes the same shares again, and other rows get a fresh seed, so that two polynomials are never mixed. While a job is
under way, other rows or another federation are refused and everything stays: the right file put back goes on. Shares that
others delivered are here before their receipt is given; a file that is torn or of another share set is as good as none.
The coin for the start is here too, and in which session it was revealed: it must not serve in another. What `guard` must know
of earlier requests is here before an answer leaves, and so is what the client has seen and said in a session (`past`).
Once the labels are written that is noted with session and final assignment, then others' answers about the centres, then
that the centres are done with: a client killed in between does what is left. All this is cleared last. `budget` and
`keptlabels` have files of their own here, which clearing leaves alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import atomicfile, limits, prg
from secfc.errors import ConfigError
from secfc.field import Words
from secfc.framing import framed
from secfc.start import COIN_BYTES
from secfc_client.participant import Secrets
from secfc_client.past import Past

_FILE = "secrets.json"
_SHARES, _LASTING = ".shares", ".lasting"  # of owners that let them serve this job only, or another as well
_ANSWER = ".answer"
_JOINED = "joined"
_WRITTEN = "written"
_CENTERS = "centers-done"
_REVEALED = "revealed"
_GIVEN = "given"
_PAST = "past"
_NOTES = (_JOINED, _WRITTEN, _CENTERS, _REVEALED, _PAST)
_VERSION = 2
_MAX_BYTES = 4096
_CURE = "make room there or choose another --state"


@dataclass(frozen=True)
class _Subject:
    """What secrets belong to: digests of the federation (with the rows' names, where they have any) and of the rows."""

    federation: str
    rows: str


@dataclass(frozen=True)
class Written:
    """The job whose labels are written: its session and a digest of its final assignment; empty if that is not known."""

    session: bytes = b""
    assignment: bytes = b""


class Store:
    """One client's state for one federation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / _FILE
        self.resumed = False  # whether an earlier process left its secrets here
        self.written = False  # whether that process had written the labels already
        self.fresh = False  # whether this process made the secrets, and nothing was given away with them yet
        self._current: tuple[_Subject, Secrets] | None = None

    def secrets(self, federation_digest: bytes, rows: npt.NDArray[np.int64], *, new: bool = False) -> Secrets:
        """The secrets kept for these very rows in this federation, or fresh ones, safely on disk. `new`: fresh ones in any
        case; what is left of an unfinished job is given up."""
        subject = _subject(federation_digest, rows)
        kept = None if new else self._read()
        if kept is not None and kept[0] != subject:
            self._refuse_change(kept[0], subject)
            kept = None
        self.resumed = kept is not None
        self.written = self.resumed and (self.folder / _WRITTEN).exists()
        if kept is not None:
            self._current = kept
            return kept[1]
        fresh = _fresh(prg.fresh_key())
        self._current, self.fresh = (subject, fresh), True
        self._forget_job()
        self._write(subject, fresh)
        self._remove([self.folder / _GIVEN])  # last: fresh secrets beside an old file only count too much
        return fresh

    def _refuse_change(self, kept: _Subject, subject: _Subject) -> None:
        """Raise if secrets of other rows or another federation are those of a job that is under way."""
        if not self.begun:
            return
        what = "the rows are" if kept.rows != subject.rows else "federation.toml, or the --id column, is"
        raise ConfigError(
            f"{self.folder}: an unfinished job is kept here, and {what} not what it began with; put the old file back to go "
            "on with it, or start once with --new to give it up: its secrets and shares are then gone, and all parties "
            "have to begin a new job"
        )

    @property
    def begun(self) -> bool:
        """Whether a job is under way, as far as is known here."""
        return (self.folder / _JOINED).exists()

    def note_joined(self) -> None:
        """We are about to join: from now on a job is under way that only these secrets can go on with."""
        if not self.begun:
            self._replace(self.folder / _JOINED, [])

    def forget_joined(self) -> None:
        """The server did not let us in: no job is under way."""
        self._remove([self.folder / _JOINED])

    @property
    def holder(self) -> str:
        """Names the seed of the shares, and tells nothing about it."""
        if self._current is None:
            raise ConfigError("the state folder has not been read yet")
        return hashlib.sha256(b"secfc/v1/holder|" + self._current[1].seed).hexdigest()[:32]

    def finish(self, *, keep: bool) -> None:
        """The job is over. `keep`: the next one on these rows has the same seed, and so the same shares; what was given away
        stays here, and so do the shares of others who let them; its keys and nonce are fresh all the same."""
        if not keep or self._current is None:
            self.clear()
            return
        subject, secrets = self._current
        self._write(subject, _fresh(secrets.seed))
        self._remove(list(self.folder.glob("*" + _SHARES)))
        self._forget_job()
        self.fresh = True

    def _forget_job(self) -> None:
        self._remove([*(self.folder / name for name in _NOTES), *self.folder.glob("*" + _ANSWER)])

    def _remove(self, paths: Sequence[Path]) -> None:
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise limits.failure(error, f"{self.folder}: cannot be cleared", "remove what is in it by hand") from None

    def note_written(self, job: Written) -> None:
        """The labels of the job these secrets belong to are written."""
        self._replace(self.folder / _WRITTEN, [job.session, job.assignment])

    def written_for(self) -> Written:
        """The job whose labels an earlier process has written."""
        path = self.folder / _WRITTEN
        content = path.read_bytes() if path.exists() else b""
        return Written(content[:32], content[32:64]) if len(content) == 64 else Written()

    def note_centers(self) -> None:
        """The centres were opened and written, or it is decided that they are not."""
        self._replace(self.folder / _CENTERS, [])

    @property
    def centers_done(self) -> bool:
        return (self.folder / _CENTERS).exists()

    def keep_answer(self, sender: str, session: bytes, messages: Sequence[bytes]) -> None:
        """Put another client's answer about the centres on disk."""
        content = framed(*messages)
        self._replace(self.folder / (sender + _ANSWER), [_seal(session, sender, content), content])

    def answers(self, session: bytes) -> dict[str, list[bytes]]:
        """What others have answered about the centres in this session, as far as it is here and whole."""
        out = {}
        for path in sorted(self.folder.glob("*" + _ANSWER)):
            sender, whole = path.name.removesuffix(_ANSWER), self._bytes(path)
            if whole[:32] == _seal(session, sender, whole[32:]):
                out[sender] = _unframed(whole[32:])
        return out

    def note_revealed(self, session: bytes) -> None:
        """Our coin is about to be revealed in this session; it is worth nothing in another."""
        self._replace(self.folder / _REVEALED, [session])

    def clear(self) -> None:
        """The job is over: the next one gets fresh secrets. The budget of the rows and the labels stay."""
        self._remove([self._path])  # first: what is left without it belongs to nobody
        shares = [path for suffix in (_SHARES, _LASTING) for path in self.folder.glob("*" + suffix)]
        self._remove([self.folder / _GIVEN, *shares])
        self._forget_job()

    def keep_given(self, content: bytes) -> None:
        """Put what `guard` must know of the requests so far on disk."""
        self.fresh = False
        self._replace(self.folder / _GIVEN, [_seal(b"", _GIVEN, content), content])

    def given(self) -> bytes:
        """What `guard` kept; empty if nothing was ever answered with these shares."""
        return self._sealed(_GIVEN, "what these shares gave away")

    def keep_past(self, past: Past) -> None:
        """Put what was seen and said in a session on disk."""
        content = past.kept()
        self._replace(self.folder / _PAST, [_seal(b"", _PAST, content), content])

    def past(self) -> Past:
        """What an earlier process with these secrets has seen and said."""
        return Past.restored(self._sealed(_PAST, "what was said in this job"))

    def _sealed(self, name: str, what: str) -> bytes:
        """A small file, whole or not there at all."""
        path = self.folder / name
        if not path.exists():
            return b""
        whole = self._bytes(path)
        if whole[:32] != _seal(b"", name, whole[32:]):
            raise ConfigError(
                f"{path}: damaged, so {what} is not known; start once with --new for fresh shares, which gives up an "
                "unfinished job"
            )
        return whole[32:]

    def keep_shares(self, share_set: bytes, owner: str, words: Words, *, lasting: bool = False) -> None:
        """Put an owner's shares on disk; `lasting`: its owner and we let them serve another job too."""
        content = words.astype("<u8", copy=False).tobytes()
        self._replace(self._shares_path(owner, lasting), [_seal(share_set, owner, content), content])
        self._remove([self._shares_path(owner, not lasting)])  # of an earlier job, if there is one

    def forget_after_job(self, owner: str) -> None:
        """An owner does not let its shares, which may be here from an earlier job, serve another one any more."""
        path = self._shares_path(owner, True)
        if path.exists():
            path.replace(self._shares_path(owner, False))

    def shares(self, share_set: bytes, owner: str, count: int) -> Words | None:
        """An owner's shares of this share set, if they are here, whole and `count` words long."""
        found = (self._read_shares(share_set, owner, count, lasting) for lasting in (False, True))
        return next((words for words in found if words is not None), None)

    def _shares_path(self, owner: str, lasting: bool) -> Path:
        return self.folder / (owner + (_LASTING if lasting else _SHARES))

    def _read_shares(self, share_set: bytes, owner: str, count: int, lasting: bool) -> Words | None:
        path = self._shares_path(owner, lasting)
        if not path.exists() or path.stat().st_size != 32 + 8 * count:
            return None
        whole = self._bytes(path)
        seal, content = whole[:32], memoryview(whole)[32:]
        if len(content) != 8 * count or seal != _seal(share_set, owner, content):
            return None
        return np.frombuffer(content, dtype="<u8").astype(np.uint64)

    def _read(self) -> tuple[_Subject, Secrets] | None:
        """What is kept and whose, if it is whole; anything else is replaced."""
        atomicfile.remove_stale(self.folder)
        try:
            fields = json.loads(self._bytes(self._path, _MAX_BYTES))
            if fields["version"] != _VERSION:
                return None
            subject = _Subject(str(fields["federation"]), str(fields["rows"]))
            seed, private, nonce, coin = (bytes.fromhex(fields[name]) for name in ("seed", "x25519", "nonce", "coin"))
            if (len(seed), len(nonce), len(coin)) != (prg.KEY_BYTES, 32, COIN_BYTES):
                return None
            key = X25519PrivateKey.from_private_bytes(private)
            return subject, Secrets(seed, key, nonce, coin, self._revealed())
        except FileNotFoundError:
            return None
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def _bytes(self, path: Path, most: int = -1) -> bytes:
        """A file's content; FileNotFoundError if there is none."""

        def read() -> bytes:
            with open(path, "rb") as file:
                return file.read(most)

        try:
            return atomicfile.patiently(read)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise limits.failure(error, f"{path}: cannot be read", "check the state folder") from None

    def _revealed(self) -> bytes:
        path = self.folder / _REVEALED
        return self._bytes(path)[:32] if path.exists() else b""

    def _write(self, subject: _Subject, secrets: Secrets) -> None:
        fields = {
            "version": _VERSION,
            "federation": subject.federation,
            "rows": subject.rows,
            "seed": secrets.seed.hex(),
            "x25519": secrets.x25519.private_bytes_raw().hex(),
            "nonce": secrets.nonce.hex(),
            "coin": secrets.coin.hex(),
        }
        self._replace(self._path, [json.dumps(fields).encode()])

    def _replace(self, path: Path, parts: Sequence[bytes]) -> None:
        """Write a file so that it is there as a whole or not at all, whenever the machine stops."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomicfile.write(path, parts)
        except OSError as error:
            raise limits.failure(error, f"{self.folder}: cannot keep state there", _CURE) from None


def _fresh(seed: bytes) -> Secrets:
    return Secrets(seed, X25519PrivateKey.generate(), os.urandom(32), os.urandom(COIN_BYTES))


def _subject(federation_digest: bytes, rows: npt.NDArray[np.int64]) -> _Subject:
    """Names what secrets belong to."""
    digest = hashlib.sha256(framed(b"secfc/v1/rows", b"%d,%d" % rows.shape, rows.astype("<i8").tobytes()))
    return _Subject(federation_digest.hex(), digest.hexdigest())


def _unframed(data: bytes) -> list[bytes]:
    """The inverse of `framed`, for what we wrote ourselves."""
    out = []
    while data:
        size = int.from_bytes(data[:8], "big")
        out.append(data[8 : 8 + size])
        data = data[8 + size :]
    return out


def _seal(share_set: bytes, owner: str, content: bytes | memoryview) -> bytes:
    """Tells a whole file of this share set and owner from any other."""
    digest = hashlib.sha256(framed(b"secfc/v1/kept-shares", share_set, owner.encode()))
    digest.update(content)
    return digest.digest()
