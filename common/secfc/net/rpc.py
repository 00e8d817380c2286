"""gRPC with mutual TLS: credentials, channels, who a caller is, and the one table from errors to status codes.

Who a peer is, is the name in its certificate (`<party>.<federation>.secfc.internal`), whatever its address: a channel checks
it by overriding the TLS target name, a server reads it from the verified certificate. Whether that certificate is in
force, the signed roster says (`pins`); both ends ask it (`admission`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import grpc
from grpc import aio

from secfc import limits
from secfc.agreement import federation as federations
from secfc.errors import (
    AlreadyJoined,
    InvalidInput,
    JobFailed,
    Malformed,
    NoSuchJob,
    OutOfTurn,
    SecfcError,
    StorageError,
    Unavailable,
    WrongSender,
    told,
)
from secfc.logs import say
from secfc.net import admission
from secfc.pki import certificates
from secfc.pki.kit import Kit
from secfc.protocol import messages

log = logging.getLogger("secfc.net.rpc")

# A link that says nothing for so long is probed. Below four minutes, after which many firewalls forget a connection.
KEEPALIVE_SECONDS, PROBE_SECONDS = 60, 20

_COMMON = [
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", PROBE_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
HANDSHAKE_SECONDS = 20  # for a peer to show its certificate, over the slowest of lines too
# What a peer may write ahead of what is read, per stream. Left to itself, gRPC lets this grow with the speed of the line, to
# tens of MiB that no limit of ours counts; 4 MiB carry 80 MB/s over a line of 50 ms.
WINDOW_BYTES = 4 << 20

_SERVER = [
    *_COMMON,
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
]

_LOCAL = "Internal error from Core"  # gRPC's own words for a message it could not send, say over a cut connection

FOR_SUBMITTERS = (
    "/secfc.v1.Coordinator/Status",
    *(f"/secfc.v1.Jobs/{call}" for call in ("Submit", "List", "Cancel", "Result")),
)

# First match counts, so a subclass stands before its base.
_TABLE: list[tuple[type[SecfcError], grpc.StatusCode]] = [
    (WrongSender, grpc.StatusCode.PERMISSION_DENIED),
    (Malformed, grpc.StatusCode.INVALID_ARGUMENT),
    (OutOfTurn, grpc.StatusCode.FAILED_PRECONDITION),
    (NoSuchJob, grpc.StatusCode.NOT_FOUND),
    (AlreadyJoined, grpc.StatusCode.ALREADY_EXISTS),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (JobFailed, grpc.StatusCode.ABORTED),
    (InvalidInput, grpc.StatusCode.INVALID_ARGUMENT),
]


def status_of(error: SecfcError) -> grpc.StatusCode:
    """The status code that tells a caller about one of our errors."""
    if isinstance(error, StorageError):
        return grpc.StatusCode.UNAVAILABLE
    return next((code for kind, code in _TABLE if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def error_of(error: aio.AioRpcError, whom: str) -> SecfcError:
    """The error that a peer's status stands for."""
    if isinstance(error, admission.NotInForce):
        return error.error
    text = messages.line(error.details() or "") or error.code().name
    if text.startswith(_LOCAL):
        return Unavailable(f"{whom}: the connection broke")
    return refusal(error.code(), text, whom)


def refusal(code: grpc.StatusCode, text: str, whom: str) -> SecfcError:
    """The error that a status code and its text stand for."""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return WrongSender(f"{whom} refuses us: {text}")
    for kind, its_code in _TABLE:
        if its_code is code and kind is not Unavailable:
            return kind(f"{whom} refuses: {text}")
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED):
        return JobFailed(f"{whom} cannot answer: {text}")
    return Unavailable(f"{whom}: {text}")


@contextmanager
def link(whom: str) -> Iterator[None]:
    """Calls to a peer go in here: what ends them comes out as one of our errors, a broken connection as Unavailable.

    gRPC may raise CancelledError where a write fails. That is a broken connection too, unless our own task is being
    cancelled; taken for that, it would end a task without a word.
    """
    try:
        yield
    except aio.AioRpcError as error:
        raise error_of(error, whom) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Unavailable(f"{whom}: the connection broke") from None


def server(kit: Kit) -> aio.Server:
    """A gRPC server, not listening yet; it answers nobody whose certificate is not in force. Who connects and shows no
    certificate is turned away after HANDSHAKE_SECONDS, and at once beyond `limits.connections`, so that descriptors are left
    for our files and for those who have one."""
    options = [*_SERVER, ("grpc.max_allowed_incoming_connections", limits.connections())]
    return aio.server(interceptors=[admission.Admission(partial(_judge, kit), refusing)], options=options)


def listen(listener: aio.Server, kit: Kit, bind: str) -> int:
    """Open a port that nobody gets through without a certificate of this federation's CA; returns its number."""
    credentials = grpc.ssl_server_credentials(
        [(kit.key_pem, kit.certificate_pem)], root_certificates=kit.ca_pem, require_client_auth=True
    )
    try:
        return int(listener.add_secure_port(bind, credentials))
    except RuntimeError:
        raise Unavailable(f"cannot listen on {bind}: the port is taken or the address is not this machine's") from None


def channel(kit: Kit, party: str, address: str) -> admission.Channel:
    """A channel to one party: it connects to `address` and accepts no certificate but the one in force for that party."""
    return admission.Channel(partial(_dial, kit, party, address), lambda: kit.pins.anchor(party) or kit.ca_pem)


def _dial(kit: Kit, party: str, address: str, anchor: bytes) -> aio.Channel:
    credentials = grpc.ssl_channel_credentials(anchor, kit.key_pem, kit.certificate_pem)
    options = [
        *_COMMON,
        ("grpc.ssl_target_name_override", federations.identity(kit.federation.name, party)),
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    return aio.secure_channel(address, credentials, options=options)


def caller(context: Any, federation_name: str) -> str:
    """The party whose verified certificate the caller showed."""
    names = context.auth_context().get("x509_subject_alternative_name", [])
    suffix = federations.identity(federation_name, "")
    texts: list[str] = [name.decode("ascii", "replace") for name in names]
    found = [text.removesuffix(suffix) for text in texts if text.endswith(suffix)]
    if len(found) != 1:
        raise WrongSender(f"your certificate names no party of the federation {federation_name}")
    return found[0]


def _judge(kit: Kit, context: Any, method: str) -> admission.Check:
    """The check of a caller's certificate, which TLS has found to be of our authority. Somebody who is no party of the
    federation file, but may submit jobs, may call what a submitter needs."""
    party = caller(context, kit.federation.name)
    (pem,) = context.auth_context()["x509_pem_cert"]
    parties = (federations.SERVER, *kit.federation.roster)
    if party not in parties and not (method in FOR_SUBMITTERS and submits(context)):
        raise WrongSender(f"{messages.line(party)} is not in the roster of {kit.federation.name}")
    return partial(kit.pins.check_pem, party, pem)


def submits(context: Any) -> bool:
    """Whether the caller's verified certificate has the right to submit jobs."""
    (pem,) = context.auth_context()["x509_pem_cert"]
    return certificates.may_submit(certificates.parse_certificate(pem, "your certificate"))


def _shown(context: Any) -> str:
    """Who a caller says it is, for the log; its certificate is verified, its name may be anybody's."""
    names = [name.decode("ascii", "replace") for name in context.auth_context().get("x509_common_name", [])]
    return messages.line(f"{','.join(names)} at {context.peer()}")


@asynccontextmanager
async def refusing(context: Any) -> AsyncIterator[None]:
    """Answer our deliberate errors with their status code and one line."""
    try:
        yield
    except SecfcError as error:
        say(log, "refused", level=logging.WARNING, caller=_shown(context), reason=str(error))
        await context.abort(status_of(error), told(error))
    except aio.AbortError:
        raise
    except (OSError, MemoryError) as error:  # what our machine lacks is not the caller's fault, and may pass
        say(log, "cannot answer a call", level=logging.WARNING, caller=_shown(context), reason=str(error))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "it is short of descriptors, memory or disk; try again")
    except Exception:  # the boundary: a peer is told that we failed, our log how
        log.exception("an internal error while answering a call")
        await context.abort(grpc.StatusCode.INTERNAL, "internal error; the log of that party says more")
