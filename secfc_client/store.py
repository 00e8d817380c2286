"""A client's state folder: what must survive its process, written atomically and readable by its owner only.

The seed of the shares' noise is here before the first share leaves, bound to a digest of the rows: with it a restarted
client makes the same shares again, and other rows get a fresh seed, so that two polynomials are never mixed. While a job is
under way, other rows or another federation are refused and everything stays: the right file put back goes on. Everything else
is what the machine wants kept (`put`): a file per key, whole or not there at all; of shares, one that is torn or of another
share set is as good as none. All this is cleared last (`finish`). `budget` and `keptlabels` have files of their own here,
which clearing leaves alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc import atomicfile, limits
from secfc.coding import prg
from secfc.errors import ConfigError
from secfc.framing import framed
from secfc.kmeans.standard import Rows, Unscaled
from secfc.protocol.client.site import Secrets
from secfc.protocol.effects import Drop, Put, PutSpool
from secfc.protocol.start import COIN_BYTES
from secfc_client import statefiles
from secfc_client.engines.spool import FileSpool, SealedWords, opened

SECRETS, LASTING = "secrets.json", ".lasting"
_GIVEN = "given"
_NOTES = ("joined", "written", "centers-done", "revealed", "past", "noted", _GIVEN)
_WHAT = {_GIVEN: "what these shares gave away", "past": "what was said in this job"}
_SUFFIX = {
    "shares": ".shares",
    "lasting": LASTING,
    "answer": ".answer",
}  # of keys with an owner: this job's, or for others too
_SHARES = ("shares", "lasting")
_VERSION = 2


@dataclass(frozen=True)
class _Subject:
    """What secrets belong to: digests of the federation (with the rows' names, where they have any) and of the rows."""

    federation: str
    rows: str


class Store:
    """One client's state for one federation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / SECRETS
        self.resumed = False  # whether an earlier process left its secrets here
        self._current: tuple[_Subject, Secrets] | None = None

    # --- secrets ---------------------------------------------------------------------------------------------------------

    def secrets(self, federation_digest: bytes, rows: Rows | Unscaled, *, new: bool = False) -> Secrets:
        """The secrets kept for these very rows in this federation, or fresh ones, safely on disk. `new`: fresh ones in any
        case; what is left of an unfinished job is given up."""
        subject = _subject(federation_digest, rows)
        kept = None if new else self._read()
        if kept is not None and kept[0] != subject:
            self._refuse_change(kept[0], subject)
            kept = None
        self.resumed = kept is not None
        if kept is not None:
            self._current = kept
            return kept[1]
        fresh = Secrets.fresh(prg.fresh_key())
        self._current = (subject, fresh)
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
        return (self.folder / "joined").exists()

    @property
    def written(self) -> bool:
        """Whether the labels of the job that is kept here are written."""
        return (self.folder / "written").exists()

    @property
    def holder(self) -> str:
        """Names the seed of the shares, and tells nothing about it."""
        if self._current is None:
            raise ConfigError("the state folder has not been read yet")
        return hashlib.sha256(b"secfc/v1/holder|" + self._current[1].seed).hexdigest()[:32]

    # --- what the machine keeps ------------------------------------------------------------------------------------------

    def kept(self) -> dict[str, bytes]:
        """All that is kept of a job, but shares."""
        notes = {name: self._note(name) for name in _NOTES if (self.folder / name).exists()}
        paths = sorted(self.folder.glob("*" + _SUFFIX["answer"]))
        answers = {f"answer/{path.stem}": statefiles.kept(path, *_kind(path.stem)) for path in paths}
        return notes | {key: value for key, value in answers.items() if value}

    def put(self, keep: Sequence[Put | Drop]) -> None:
        """One file after the other; each is whole when the next is begun."""
        for one in keep:
            if isinstance(one, PutSpool):
                one.spool.seal()
                self._remove_other(*one.key.split("/")[:2])
            elif isinstance(one, Drop):
                self._remove([self.folder / one.key])
            elif "/" in one.key:
                self._put_owned(*one.key.split("/"), value=one.value)
            else:
                statefiles.keep(self.folder / one.key, one.value, *_kind(one.key))

    def _put_owned(self, kind: str, owner: str, name: str = "", *, value: bytes | memoryview) -> None:
        if kind == "this-job-only":  # shares that may be here from an earlier job, and must not serve another one
            path = self.folder / (owner + _SUFFIX["lasting"])
            if path.exists():
                path.replace(self.folder / (owner + _SUFFIX["shares"]))
            return
        path = self.folder / (owner + _SUFFIX[kind])
        statefiles.keep(path, value, *_kind(owner, bytes.fromhex(name)))
        if kind in _SHARES:
            self._remove_other(kind, owner)

    def _remove_other(self, kind: str, owner: str) -> None:
        """Shares of an earlier job, if there are any."""
        self._remove([self.folder / (owner + _SUFFIX["lasting" if kind == "shares" else "shares"])])

    def spool(self, key: str) -> FileSpool:
        """Where an owner's shares are gathered; key as in `put`."""
        kind, owner, name = key.split("/")
        return FileSpool(self.folder / (owner + _SUFFIX[kind]), *_kind(owner, bytes.fromhex(name)))

    def forget_spools(self) -> None:
        """Remove what a process that was killed has gathered."""
        self._remove([path for kind in _SHARES for path in self.folder.glob(f".*{_SUFFIX[kind]}.*.new")])

    def packed(self, key: str) -> SealedWords | None:
        """As `get`, to be read piece by piece."""
        return next((found for path, seal in self._places(key) if (found := opened(path, *seal)) is not None), None)

    def get(self, key: str) -> bytes | None:
        """An owner's shares of a share set, if they are here and whole; key as in `put`."""
        found = (statefiles.kept(path, *seal) for path, seal in self._places(key))
        return next((value for value in found if value is not None), None)

    def _places(self, key: str) -> list[tuple[Path, tuple[bytes, ...]]]:
        """The files that may hold an owner's shares, and what they are then."""
        _, owner, name = key.split("/")
        return [(self.folder / (owner + _SUFFIX[kind]), _kind(owner, bytes.fromhex(name))) for kind in _SHARES]

    def _note(self, name: str) -> bytes:
        """A small file that must not be lost."""
        path = self.folder / name
        value = statefiles.kept(path, *_kind(name))
        if value is None:
            what = _WHAT.get(name, "where this job stands")
            raise ConfigError(
                f"{path}: damaged, so {what} is not known; start once with --new for fresh shares, which gives up an "
                "unfinished job"
            )
        return value

    # --- the end ---------------------------------------------------------------------------------------------------------

    def finish(self, *, keep: bool) -> None:
        """The job is over. `keep`: the next one on these rows has the same seed, and so the same shares; what was given away
        stays here, and so do the shares of others who let them; its keys and nonce are fresh all the same."""
        if not keep or self._current is None:
            self._clear()
            return
        subject, secrets = self._current
        self._write(subject, Secrets.fresh(secrets.seed))
        self._remove(list(self.folder.glob("*.shares")))
        self._forget_job()

    def _clear(self) -> None:
        """The next job gets fresh secrets. The budget of the rows and the labels stay."""
        self._remove([self._path])  # first: what is left without it belongs to nobody
        shares = [path for kind in _SHARES for path in self.folder.glob("*" + _SUFFIX[kind])]
        self._remove([self.folder / _GIVEN, *shares])
        self._forget_job()

    def _forget_job(self) -> None:
        names = [self.folder / name for name in _NOTES if name != _GIVEN]
        self._remove([*names, *self.folder.glob("*" + _SUFFIX["answer"])])

    # --- files -----------------------------------------------------------------------------------------------------------

    def _remove(self, paths: Sequence[Path]) -> None:
        with limits.telling(f"{self.folder}: cannot be cleared", "remove what is in it by hand"):
            for path in paths:
                path.unlink(missing_ok=True)

    def _read(self) -> tuple[_Subject, Secrets] | None:
        """What is kept and whose, if it is whole; anything else is replaced."""
        atomicfile.remove_stale(self.folder)
        try:
            fields = json.loads(statefiles.read(self._path) or b"null")
            if fields["version"] != _VERSION:
                return None
            subject = _Subject(str(fields["federation"]), str(fields["rows"]))
            seed, private, nonce, coin = (bytes.fromhex(fields[name]) for name in ("seed", "x25519", "nonce", "coin"))
            if (len(seed), len(nonce), len(coin)) != (prg.KEY_BYTES, 32, COIN_BYTES):
                return None
            key = X25519PrivateKey.from_private_bytes(private)
            revealed = self._note("revealed") if (self.folder / "revealed").exists() else b""
            return subject, Secrets(seed, key, nonce, coin, revealed)
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

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
        statefiles.write(self._path, [json.dumps(fields).encode()])


def _subject(federation_digest: bytes, rows: Rows | Unscaled) -> _Subject:
    """Names what secrets belong to."""
    values = rows.values.view(np.int64) if isinstance(rows, Unscaled) else rows  # of which it is, the job's digest says
    digest = hashlib.sha256(framed(b"secfc/v1/rows", b"%d,%d" % values.shape, values.astype("<i8").tobytes()))
    return _Subject(federation_digest.hex(), digest.hexdigest())


def _kind(owner: str, share_set: bytes = b"") -> tuple[bytes, ...]:
    """What a sealed file is: an owner's shares of a share set, or a note by its name."""
    return b"secfc/v1/kept-shares", share_set, owner.encode()
