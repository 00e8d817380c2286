from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_JOINING: _ClassVar[Phase]
    PHASE_AGREEING: _ClassVar[Phase]
    PHASE_UNION: _ClassVar[Phase]
    PHASE_SHARING: _ClassVar[Phase]
    PHASE_CHECKING: _ClassVar[Phase]
    PHASE_ROUNDS: _ClassVar[Phase]
    PHASE_FINISHED: _ClassVar[Phase]
    PHASE_FAILED: _ClassVar[Phase]
    PHASE_SCALING: _ClassVar[Phase]

class Sort(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SORT_UNSPECIFIED: _ClassVar[Sort]
    SORT_HELLO: _ClassVar[Sort]
    SORT_ASK: _ClassVar[Sort]
    SORT_PIECE: _ClassVar[Sort]
    SORT_REPLY: _ClassVar[Sort]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_SHARES: _ClassVar[Kind]
    KIND_WANTED: _ClassVar[Kind]
    KIND_COMMITMENT: _ClassVar[Kind]
    KIND_CONFIRMATION: _ClassVar[Kind]
    KIND_CENTERS: _ClassVar[Kind]
    KIND_UPLOAD: _ClassVar[Kind]
    KIND_SUM: _ClassVar[Kind]
    KIND_IDS: _ClassVar[Kind]
    KIND_ASSIGNMENT: _ClassVar[Kind]
    KIND_OPENED: _ClassVar[Kind]
    KIND_STEP: _ClassVar[Kind]
    KIND_PLEDGE: _ClassVar[Kind]
    KIND_MOMENTS: _ClassVar[Kind]
PHASE_UNSPECIFIED: Phase
PHASE_JOINING: Phase
PHASE_AGREEING: Phase
PHASE_UNION: Phase
PHASE_SHARING: Phase
PHASE_CHECKING: Phase
PHASE_ROUNDS: Phase
PHASE_FINISHED: Phase
PHASE_FAILED: Phase
PHASE_SCALING: Phase
SORT_UNSPECIFIED: Sort
SORT_HELLO: Sort
SORT_ASK: Sort
SORT_PIECE: Sort
SORT_REPLY: Sort
KIND_UNSPECIFIED: Kind
KIND_SHARES: Kind
KIND_WANTED: Kind
KIND_COMMITMENT: Kind
KIND_CONFIRMATION: Kind
KIND_CENTERS: Kind
KIND_UPLOAD: Kind
KIND_SUM: Kind
KIND_IDS: Kind
KIND_ASSIGNMENT: Kind
KIND_OPENED: Kind
KIND_STEP: Kind
KIND_PLEDGE: Kind
KIND_MOMENTS: Kind

class SignedJob(_message.Message):
    __slots__ = ("body", "certificate", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobReply]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobReply, _Mapping]]] = ...) -> None: ...

class JobReply(_message.Message):
    __slots__ = ("signed", "state", "reason", "waiting_for", "began", "ended", "decisions")
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    signed: SignedJob
    state: str
    reason: str
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    began: int
    ended: int
    decisions: _containers.RepeatedCompositeFieldContainer[SiteDecision]
    def __init__(self, signed: _Optional[_Union[SignedJob, _Mapping]] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., waiting_for: _Optional[_Iterable[str]] = ..., began: _Optional[int] = ..., ended: _Optional[int] = ..., decisions: _Optional[_Iterable[_Union[SiteDecision, _Mapping]]] = ...) -> None: ...

class SiteDecision(_message.Message):
    __slots__ = ("site", "verdict", "why")
    SITE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    site: str
    verdict: str
    why: str
    def __init__(self, site: _Optional[str] = ..., verdict: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ResultReply(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    def __init__(self, result: _Optional[bytes] = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Offers(_message.Message):
    __slots__ = ("offers",)
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    offers: _containers.RepeatedCompositeFieldContainer[JobOffer]
    def __init__(self, offers: _Optional[_Iterable[_Union[JobOffer, _Mapping]]] = ...) -> None: ...

class JobOffer(_message.Message):
    __slots__ = ("signed", "running", "known")
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    signed: SignedJob
    running: bool
    known: SiteDecision
    def __init__(self, signed: _Optional[_Union[SignedJob, _Mapping]] = ..., running: _Optional[bool] = ..., known: _Optional[_Union[SiteDecision, _Mapping]] = ...) -> None: ...

class DecideRequest(_message.Message):
    __slots__ = ("digest", "decision")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    decision: SiteDecision
    def __init__(self, digest: _Optional[bytes] = ..., decision: _Optional[_Union[SiteDecision, _Mapping]] = ...) -> None: ...

class DecideReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("peer", "sort", "number", "total", "epoch", "peer_epoch", "sealed")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PEER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    peer: str
    sort: Sort
    number: int
    total: int
    epoch: bytes
    peer_epoch: bytes
    sealed: bytes
    def __init__(self, peer: _Optional[str] = ..., sort: _Optional[_Union[Sort, str]] = ..., number: _Optional[int] = ..., total: _Optional[int] = ..., epoch: _Optional[bytes] = ..., peer_epoch: _Optional[bytes] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class Carried(_message.Message):
    __slots__ = ("envelope", "away")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    away: Away
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ..., away: _Optional[_Union[Away, _Mapping]] = ...) -> None: ...

class Away(_message.Message):
    __slots__ = ("peer",)
    PEER_FIELD_NUMBER: _ClassVar[int]
    peer: str
    def __init__(self, peer: _Optional[str] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("received", "code", "text")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    received: int
    code: int
    text: str
    def __init__(self, received: _Optional[int] = ..., code: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("session", "kind", "name")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    kind: Kind
    name: bytes
    def __init__(self, session: _Optional[bytes] = ..., kind: _Optional[_Union[Kind, str]] = ..., name: _Optional[bytes] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("parcel", "offset", "total", "data", "compute_seconds")
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    parcel: Parcel
    offset: int
    total: int
    data: bytes
    compute_seconds: float
    def __init__(self, parcel: _Optional[_Union[Parcel, _Mapping]] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., data: _Optional[bytes] = ..., compute_seconds: _Optional[float] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class Introduction(_message.Message):
    __slots__ = ("name", "rows", "share_set", "x25519", "nonce", "certificate", "signature", "commitment", "features", "keeps", "keeps_clusters")
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
    KEEPS_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
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
    keeps_clusters: bool
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ..., share_set: _Optional[bytes] = ..., x25519: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., commitment: _Optional[bytes] = ..., features: _Optional[bytes] = ..., keeps: _Optional[bool] = ..., keeps_clusters: _Optional[bool] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("federation_digest", "instance", "introduction", "begun", "committee")
    FEDERATION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    federation_digest: bytes
    instance: bytes
    introduction: Introduction
    begun: bool
    committee: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, federation_digest: _Optional[bytes] = ..., instance: _Optional[bytes] = ..., introduction: _Optional[_Union[Introduction, _Mapping]] = ..., begun: _Optional[bool] = ..., committee: _Optional[_Iterable[str]] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    def __init__(self, instance: _Optional[bytes] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("waiting", "roster", "piece", "round", "finished", "failed", "reveals", "agreements", "scale")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REVEALS_FIELD_NUMBER: _ClassVar[int]
    AGREEMENTS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    waiting: Waiting
    roster: Roster
    piece: Piece
    round: RoundRequest
    finished: Finished
    failed: Failed
    reveals: Reveals
    agreements: Agreements
    scale: Scale
    def __init__(self, waiting: _Optional[_Union[Waiting, _Mapping]] = ..., roster: _Optional[_Union[Roster, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., round: _Optional[_Union[RoundRequest, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., reveals: _Optional[_Union[Reveals, _Mapping]] = ..., agreements: _Optional[_Union[Agreements, _Mapping]] = ..., scale: _Optional[_Union[Scale, _Mapping]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("phase", "missing", "unreachable_by")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_BY_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    missing: _containers.RepeatedScalarFieldContainer[str]
    unreachable_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., missing: _Optional[_Iterable[str]] = ..., unreachable_by: _Optional[_Iterable[str]] = ...) -> None: ...

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

class Scale(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class Reveals(_message.Message):
    __slots__ = ("coins",)
    COINS_FIELD_NUMBER: _ClassVar[int]
    coins: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, coins: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RoundRequest(_message.Message):
    __slots__ = ("number", "attempt", "responders", "columns", "assignment_digest", "deadline_seconds", "past", "detail", "run", "more", "rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESPONDERS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    attempt: int
    responders: _containers.RepeatedScalarFieldContainer[int]
    columns: _containers.RepeatedScalarFieldContainer[int]
    assignment_digest: bytes
    deadline_seconds: float
    past: bool
    detail: bytes
    run: int
    more: _containers.RepeatedCompositeFieldContainer[RunRequest]
    rows: bytes
    def __init__(self, number: _Optional[int] = ..., attempt: _Optional[int] = ..., responders: _Optional[_Iterable[int]] = ..., columns: _Optional[_Iterable[int]] = ..., assignment_digest: _Optional[bytes] = ..., deadline_seconds: _Optional[float] = ..., past: _Optional[bool] = ..., detail: _Optional[bytes] = ..., run: _Optional[int] = ..., more: _Optional[_Iterable[_Union[RunRequest, _Mapping]]] = ..., rows: _Optional[bytes] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("run", "columns", "assignment_digest", "detail", "rows")
    RUN_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    run: int
    columns: _containers.RepeatedScalarFieldContainer[int]
    assignment_digest: bytes
    detail: bytes
    rows: bytes
    def __init__(self, run: _Optional[int] = ..., columns: _Optional[_Iterable[int]] = ..., assignment_digest: _Optional[bytes] = ..., detail: _Optional[bytes] = ..., rows: _Optional[bytes] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("version", "rounds", "converged", "inertia", "run")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    INERTIA_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    version: int
    rounds: int
    converged: bool
    inertia: float
    run: int
    def __init__(self, version: _Optional[int] = ..., rounds: _Optional[int] = ..., converged: _Optional[bool] = ..., inertia: _Optional[float] = ..., run: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("reason", "again")
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    reason: str
    again: bool
    def __init__(self, reason: _Optional[str] = ..., again: _Optional[bool] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("instance", "held", "unreachable", "done", "stopped", "agreed", "scaled", "refused")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    SCALED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    held: Held
    unreachable: Unreachable
    done: Done
    stopped: Stopped
    agreed: Agreed
    scaled: Scaled
    refused: Refused
    def __init__(self, instance: _Optional[bytes] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., unreachable: _Optional[_Union[Unreachable, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., stopped: _Optional[_Union[Stopped, _Mapping]] = ..., agreed: _Optional[_Union[Agreed, _Mapping]] = ..., scaled: _Optional[_Union[Scaled, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class Agreed(_message.Message):
    __slots__ = ("signature", "proofs")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, signature: _Optional[bytes] = ..., proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Scaled(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

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
    __slots__ = ("federation", "phase", "clients", "round", "attempt", "inertia", "changed", "seconds", "reason", "rows", "step", "broken_links", "federation_digest", "missing", "job_digest", "committee", "directions", "of_directions", "assignments", "runs", "moving")
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
    JOB_DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMMITTEE_FIELD_NUMBER: _ClassVar[int]
    DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    OF_DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    federation: str
    phase: Phase
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
    job_digest: bytes
    committee: _containers.RepeatedScalarFieldContainer[str]
    directions: int
    of_directions: int
    assignments: int
    runs: int
    moving: int
    def __init__(self, federation: _Optional[str] = ..., phase: _Optional[_Union[Phase, str]] = ..., clients: _Optional[_Iterable[_Union[ClientStatus, _Mapping]]] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., inertia: _Optional[float] = ..., changed: _Optional[int] = ..., seconds: _Optional[float] = ..., reason: _Optional[str] = ..., rows: _Optional[int] = ..., step: _Optional[str] = ..., broken_links: _Optional[_Iterable[str]] = ..., federation_digest: _Optional[bytes] = ..., missing: _Optional[_Iterable[str]] = ..., job_digest: _Optional[bytes] = ..., committee: _Optional[_Iterable[str]] = ..., directions: _Optional[int] = ..., of_directions: _Optional[int] = ..., assignments: _Optional[int] = ..., runs: _Optional[int] = ..., moving: _Optional[int] = ...) -> None: ...

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
