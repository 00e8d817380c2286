"""What the server keeps of a job, as bytes and back. Every value is whole when it is read: the journal sees to that.

Keys: introduction/NAME, committee/NAME, agreed/NAME, scale, coin/NAME, opened/STEP, verified, state/RUN, record/NUMBER,
leakage, liars, done/NAME, published/NAME, centers/NAME and starts. What reads them raises ValueError, KeyError or TypeError
for values of another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from secfc.kmeans import assignments
from secfc.kmeans.lloyd import Question, State
from secfc.privacy.intersection import Outside
from secfc.protocol import messages
from secfc.protocol.parcels import Kind
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.attempt import digests, told_parcel
from secfc.protocol.server.unionsums import Shown

_BYTES = ("share_set", "x25519", "nonce", "commitment", "certificate", "signature", "features")


def introduction_to(one: messages.Introduction) -> bytes:
    fields: dict[str, Any] = asdict(one)
    return _text(fields | {name: fields[name].hex() for name in _BYTES})


def introduction_from(value: bytes) -> messages.Introduction:
    fields = json.loads(value)
    return messages.Introduction(**(fields | {name: bytes.fromhex(fields[name]) for name in _BYTES}))


def agreed_to(agreed: messages.Agreed) -> bytes:
    return _text({"signature": agreed.signature.hex(), "proofs": [proof.hex() for proof in agreed.proofs]})


def agreed_from(value: bytes) -> messages.Agreed:
    fields = json.loads(value)
    return messages.Agreed(bytes.fromhex(fields["signature"]), tuple(map(bytes.fromhex, fields["proofs"])))


def shown_to(shown: Shown) -> bytes:
    """Two numbers, the IDs that are told, and what is outside of them: 16 bytes per ID, and 8 for its copies."""
    outside = shown.outside
    numbers = shown.left.to_bytes(8, "little") + len(shown.ids).to_bytes(8, "little")
    arrays = shown.ids, outside.ids, outside.copies
    return numbers + b"".join(one.astype("<u8").tobytes() for one in arrays)


def shown_from(value: bytes) -> Shown:
    left, told = (int.from_bytes(value[at : at + 8], "little") for at in (0, 8))
    words = np.frombuffer(value[16:], dtype="<u8").astype(np.uint64)
    ids, rest = words[: 2 * told].reshape(told, 2), words[2 * told :].reshape(3, -1)
    return Shown(left, ids, Outside(rest[:2].reshape(-1, 2), rest[2].astype(np.int64)))


def state_to(state: State) -> bytes:
    head = _text({name: value for name, value in asdict(state).items() if name != "labels"})
    return len(head).to_bytes(4, "little") + head + state.labels.astype("<i4").tobytes()


def state_from(value: bytes) -> State:
    end = 4 + int.from_bytes(value[:4], "little")
    fields = json.loads(value[4:end])
    labels = np.frombuffer(value[end:], dtype="<i4").astype(np.int32)
    return State(**(fields | {"indices": tuple(fields["indices"])}), labels=labels)


def record_to(record: RequestRecord) -> bytes:
    return _text(asdict(record))


def record_from(value: bytes) -> RequestRecord:
    fields = json.loads(value)
    return RequestRecord(**(fields | {"responders": tuple(fields["responders"])}))


def names_to(names: Sequence[str]) -> bytes:
    return json.dumps(list(names)).encode()


def names_from(value: bytes) -> tuple[str, ...]:
    names = json.loads(value)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of names")
    return tuple(names)


def below(kept: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """What is kept under folder/…, in order, by what follows."""
    return {key.removeprefix(folder + "/"): kept[key] for key in sorted(kept) if key.startswith(folder + "/")}


def beginning(
    session: bytes, first: Mapping[int, Question], slots: Mapping[int, int], responders: tuple[int, ...]
) -> list[messages.Event]:
    """A job's first request as it was asked, with its assignments."""
    data, _ = assignments.encode_all({run: one.labels for run, one in first.items()}, slots, {})
    named = digests(first)
    asked, *more = (messages.RunRequest(run, one.columns, named[run]) for run, one in first.items())
    request = messages.RoundRequest(1, 1, responders, deadline_seconds=1.0, past=True, more=tuple(more), **vars(asked))
    return [*told_parcel(session, Kind.ASSIGNMENT, (1, 0), data), request]


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()
