from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Introduction(_message.Message):
    __slots__ = ("name", "rows", "share_set", "x25519", "nonce", "certificate", "signature", "commitment", "features", "keeps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARE_SET_FIELD_NUMBER: _ClassVar[int]
    X25519_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    KEEPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: int
    share_set: bytes
    x25519: bytes
    nonce: bytes
    certificate: bytes
    signature: bytes
    commitment: bytes
    features: bytes
    keeps: bool
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ..., share_set: _Optional[bytes] = ..., x25519: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., commitment: _Optional[bytes] = ..., features: _Optional[bytes] = ..., keeps: _Optional[bool] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("federation_digest", "instance", "introduction")
    FEDERATION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    federation_digest: bytes
    instance: bytes
    introduction: Introduction
    def __init__(self, federation_digest: _Optional[bytes] = ..., instance: _Optional[bytes] = ..., introduction: _Optional[_Union[Introduction, _Mapping]] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    def __init__(self, instance: _Optional[bytes] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("waiting", "roster", "assignment", "round", "finished", "failed", "reveals", "agreements", "opened")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REVEALS_FIELD_NUMBER: _ClassVar[int]
    AGREEMENTS_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    waiting: Waiting
    roster: Roster
    assignment: AssignmentChunk
    round: RoundRequest
    finished: Finished
    failed: Failed
    reveals: Reveals
    agreements: Agreements
    opened: Opened
    def __init__(self, waiting: _Optional[_Union[Waiting, _Mapping]] = ..., roster: _Optional[_Union[Roster, _Mapping]] = ..., assignment: _Optional[_Union[AssignmentChunk, _Mapping]] = ..., round: _Optional[_Union[RoundRequest, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., reveals: _Optional[_Union[Reveals, _Mapping]] = ..., agreements: _Optional[_Union[Agreements, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("phase", "missing", "unreachable_by")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_BY_FIELD_NUMBER: _ClassVar[int]
    phase: str
    missing: _containers.RepeatedScalarFieldContainer[str]
    unreachable_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[str] = ..., missing: _Optional[_Iterable[str]] = ..., unreachable_by: _Optional[_Iterable[str]] = ...) -> None: ...

class Roster(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Introduction]
    def __init__(self, members: _Optional[_Iterable[_Union[Introduction, _Mapping]]] = ...) -> None: ...

class Agreements(_message.Message):
    __slots__ = ("signatures", "proofs")
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    signatures: _containers.RepeatedScalarFieldContainer[bytes]
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, signatures: _Optional[_Iterable[bytes]] = ..., proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Reveals(_message.Message):
    __slots__ = ("coins",)
    COINS_FIELD_NUMBER: _ClassVar[int]
    coins: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, coins: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("step", "left", "offset", "total", "data")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    step: int
    left: int
    offset: int
    total: int
    data: bytes
    def __init__(self, step: _Optional[int] = ..., left: _Optional[int] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class AssignmentChunk(_message.Message):
    __slots__ = ("version", "base", "offset", "total", "data")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    version: int
    base: int
    offset: int
    total: int
    data: bytes
    def __init__(self, version: _Optional[int] = ..., base: _Optional[int] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class RoundRequest(_message.Message):
    __slots__ = ("number", "attempt", "responders", "columns", "assignment_digest", "received", "deadline_seconds", "past")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESPONDERS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    number: int
    attempt: int
    responders: _containers.RepeatedScalarFieldContainer[int]
    columns: _containers.RepeatedScalarFieldContainer[int]
    assignment_digest: bytes
    received: int
    deadline_seconds: float
    past: bool
    def __init__(self, number: _Optional[int] = ..., attempt: _Optional[int] = ..., responders: _Optional[_Iterable[int]] = ..., columns: _Optional[_Iterable[int]] = ..., assignment_digest: _Optional[bytes] = ..., received: _Optional[int] = ..., deadline_seconds: _Optional[float] = ..., past: _Optional[bool] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("version", "rounds", "converged", "inertia")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    INERTIA_FIELD_NUMBER: _ClassVar[int]
    version: int
    rounds: int
    converged: bool
    inertia: float
    def __init__(self, version: _Optional[int] = ..., rounds: _Optional[int] = ..., converged: _Optional[bool] = ..., inertia: _Optional[float] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("reason", "again")
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    reason: str
    again: bool
    def __init__(self, reason: _Optional[str] = ..., again: _Optional[bool] = ...) -> None: ...

class UploadChunk(_message.Message):
    __slots__ = ("round", "attempt", "offset", "total", "words", "compute_seconds", "session")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    round: int
    attempt: int
    offset: int
    total: int
    words: bytes
    compute_seconds: float
    session: bytes
    def __init__(self, round: _Optional[int] = ..., attempt: _Optional[int] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., words: _Optional[bytes] = ..., compute_seconds: _Optional[float] = ..., session: _Optional[bytes] = ...) -> None: ...

class ContributedRequest(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: bytes
    def __init__(self, context: _Optional[bytes] = ...) -> None: ...

class SumChunk(_message.Message):
    __slots__ = ("context", "offset", "total", "words")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    context: bytes
    offset: int
    total: int
    words: bytes
    def __init__(self, context: _Optional[bytes] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., words: _Optional[bytes] = ...) -> None: ...

class IdChunk(_message.Message):
    __slots__ = ("instance", "offset", "total", "data")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    offset: int
    total: int
    data: bytes
    def __init__(self, instance: _Optional[bytes] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadReply(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("instance", "held", "unreachable", "done", "stopped", "agreed", "refused")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    held: Held
    unreachable: Unreachable
    done: Done
    stopped: Stopped
    agreed: Agreed
    refused: Refused
    def __init__(self, instance: _Optional[bytes] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., unreachable: _Optional[_Union[Unreachable, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., stopped: _Optional[_Union[Stopped, _Mapping]] = ..., agreed: _Optional[_Union[Agreed, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class Agreed(_message.Message):
    __slots__ = ("signature", "proofs")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, signature: _Optional[bytes] = ..., proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("share_sets_digest", "sent_bytes", "received_bytes", "seconds", "coin")
    SHARE_SETS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    COIN_FIELD_NUMBER: _ClassVar[int]
    share_sets_digest: bytes
    sent_bytes: int
    received_bytes: int
    seconds: float
    coin: bytes
    def __init__(self, share_sets_digest: _Optional[bytes] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., seconds: _Optional[float] = ..., coin: _Optional[bytes] = ...) -> None: ...

class Unreachable(_message.Message):
    __slots__ = ("peer", "reason")
    PEER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    peer: str
    reason: str
    def __init__(self, peer: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Stopped(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("federation", "phase", "clients", "round", "attempt", "inertia", "changed", "seconds", "reason", "rows", "step", "broken_links", "federation_digest", "missing")
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INERTIA_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BROKEN_LINKS_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    federation: str
    phase: str
    clients: _containers.RepeatedCompositeFieldContainer[ClientStatus]
    round: int
    attempt: int
    inertia: float
    changed: int
    seconds: float
    reason: str
    rows: int
    step: str
    broken_links: _containers.RepeatedScalarFieldContainer[str]
    federation_digest: bytes
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, federation: _Optional[str] = ..., phase: _Optional[str] = ..., clients: _Optional[_Iterable[_Union[ClientStatus, _Mapping]]] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., inertia: _Optional[float] = ..., changed: _Optional[int] = ..., seconds: _Optional[float] = ..., reason: _Optional[str] = ..., rows: _Optional[int] = ..., step: _Optional[str] = ..., broken_links: _Optional[_Iterable[str]] = ..., federation_digest: _Optional[bytes] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class ClientStatus(_message.Message):
    __slots__ = ("name", "joined", "connected", "holds_shares", "done", "liar", "shares_checked")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    HOLDS_SHARES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    LIAR_FIELD_NUMBER: _ClassVar[int]
    SHARES_CHECKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    joined: bool
    connected: bool
    holds_shares: bool
    done: bool
    liar: bool
    shares_checked: bool
    def __init__(self, name: _Optional[str] = ..., joined: _Optional[bool] = ..., connected: _Optional[bool] = ..., holds_shares: _Optional[bool] = ..., done: _Optional[bool] = ..., liar: _Optional[bool] = ..., shares_checked: _Optional[bool] = ...) -> None: ...

class ProgressRequest(_message.Message):
    __slots__ = ("session", "share_set")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SHARE_SET_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    share_set: bytes
    def __init__(self, session: _Optional[bytes] = ..., share_set: _Optional[bytes] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("session", "share_set", "offset")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SHARE_SET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    share_set: bytes
    offset: int
    def __init__(self, session: _Optional[bytes] = ..., share_set: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class ProgressReply(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class ShareChunk(_message.Message):
    __slots__ = ("session", "share_set", "offset", "total", "words")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SHARE_SET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    share_set: bytes
    offset: int
    total: int
    words: bytes
    def __init__(self, session: _Optional[bytes] = ..., share_set: _Optional[bytes] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., words: _Optional[bytes] = ...) -> None: ...

class ShareReceipt(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class Confirmation(_message.Message):
    __slots__ = ("session", "union_digest", "words", "commitment")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    UNION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    union_digest: bytes
    words: bytes
    commitment: bytes
    def __init__(self, session: _Optional[bytes] = ..., union_digest: _Optional[bytes] = ..., words: _Optional[bytes] = ..., commitment: _Optional[bytes] = ...) -> None: ...

class CentersChunk(_message.Message):
    __slots__ = ("session", "assignment_digest", "consents", "smallest", "offset", "total", "words")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONSENTS_FIELD_NUMBER: _ClassVar[int]
    SMALLEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    assignment_digest: bytes
    consents: bool
    smallest: int
    offset: int
    total: int
    words: bytes
    def __init__(self, session: _Optional[bytes] = ..., assignment_digest: _Optional[bytes] = ..., consents: _Optional[bool] = ..., smallest: _Optional[int] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., words: _Optional[bytes] = ...) -> None: ...

class CentersReceipt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
