"""From gRPC's status to our errors: what to try again, and what not."""

from __future__ import annotations

import grpc
import pytest
from grpc import aio

from secfc import rpc
from secfc.errors import JobFailed, Malformed, OutOfTurn, SecfcError, Unavailable, WrongSender


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", Unavailable),
        (grpc.StatusCode.INTERNAL, "Internal error from Core.", Unavailable),  # ours: a message that was not sent
        (grpc.StatusCode.INTERNAL, "an internal error", JobFailed),
        (grpc.StatusCode.UNIMPLEMENTED, "", JobFailed),
        (grpc.StatusCode.FAILED_PRECONDITION, "round 3 is over", OutOfTurn),
        (grpc.StatusCode.INVALID_ARGUMENT, "wrong length", Malformed),
        (grpc.StatusCode.UNAUTHENTICATED, "no certificate", WrongSender),
    ],
)
def test_what_a_status_stands_for(code: grpc.StatusCode, details: str, kind: type[SecfcError]) -> None:
    error = rpc.error_of(aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details), "client-2")
    assert type(error) is kind
    assert str(error).startswith("client-2")
