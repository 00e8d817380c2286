"""What a client has seen and said in one session, and must not see or say otherwise after a restart.

Plain values: `Participant` changes them, and a caller puts them on disk before anything that follows from them leaves.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from secfc.errors import ConfigError

_DAMAGED = "what is kept of this job cannot be read; remove the state folder and begin a new job (secfc-server --new)"


@dataclass(frozen=True)
class Past:
    """Digests in hexadecimal; empty: not yet."""

    session: str = ""
    sums: str = ""  # everybody's commitments on the sums for the scale, once ours is opened
    scale: str = ""  # what all sites have together: words, in hexadecimal
    opened: tuple[str, ...] = ()  # of what the server opened while IDs were aligned, step by step
    committed: str = ""  # everybody's commitments on the union of IDs, once ours is opened
    confirmed: str = ""  # the union of IDs that all clients have confirmed to each other
    verified: str = ""  # our part of the check that all shares fit together
    dead: bool = False  # the clients have broken the session off together

    def of(self, session: bytes) -> Past:
        """What is known of this session: nothing, if it is another one."""
        return self if self.session == session.hex() else Past(session.hex())

    def kept(self) -> bytes:
        """For `restored`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def restored(cls, kept: bytes) -> Past:
        """Raises ConfigError for anything but what `kept` gave; nothing kept is no past."""
        if not kept:
            return cls()
        try:
            fields: dict[str, Any] = json.loads(kept)
            return cls(**fields | {"opened": tuple(fields["opened"])})
        except (ValueError, KeyError, TypeError):
            raise ConfigError(_DAMAGED) from None
