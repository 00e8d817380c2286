"""Linked IDs: rows named by a column of the client's own, through a key that all clients hold and the server does not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from secfc import textfile
from secfc.agreement.federation import LINK_KEY
from secfc.errors import ConfigError, InvalidInput
from secfc.framing import framed
from secfc.privacy import identifiers
from secfc.privacy.identifiers import Ids
from secfc_client.data import Table


def linked_ids(table: Table, key_file: Path) -> Callable[[bytes], Ids]:
    """The IDs of these rows in a session. The key is read and the column checked now, not in the middle of a job."""
    if table.ids is None:
        raise InvalidInput('ids = "linked" in federation.toml needs --id COLUMN, the column that names rows')
    key = read_key(key_file)
    names = ["" if name is None else str(name) for name in table.ids.to_pylist()]
    identifiers.linked(names, key, b"")  # complains about missing and repeated names
    return lambda session: identifiers.linked(names, key, session)


def subject(federation_digest: bytes, table: Table) -> bytes:
    """What a client's secrets are for, besides its rows: other names of the same rows are another job."""
    if table.ids is None:
        return federation_digest
    names = (str(name).encode() for name in table.ids.to_pylist())
    return hashlib.sha256(framed(b"secfc/v1/named", federation_digest, *names)).digest()


def read_key(path: Path) -> bytes:
    """The key in a file that only its owner may read."""
    text = textfile.read_small_file(path, 4096)
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path}: users other than its owner can read it; run: chmod 600 {path}")
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        raise ConfigError(f"{path}: not a key in hexadecimal digits; get the clients' common {LINK_KEY}") from None
    if len(key) < identifiers.KEY_BYTES:
        raise ConfigError(f"{path}: a key has at least {2 * identifiers.KEY_BYTES} hexadecimal digits")
    return key
