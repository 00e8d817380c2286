"""From gRPC's status to our errors: what to try again, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from grpc import aio

from secfc.errors import (
    ConfigError,
    DataError,
    JobFailed,
    Malformed,
    OutOfTurn,
    SecfcError,
    StorageError,
    Unavailable,
    WrongSender,
)
from secfc.net import rpc


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


def outcome(work: Callable[[], Coroutine[Any, Any, Any]]) -> BaseException | None:
    async def run() -> BaseException | None:
        done, _ = await asyncio.wait({task := asyncio.ensure_future(work())})
        assert done
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    return asyncio.run(run())


def test_a_write_that_grpc_cancels_is_a_broken_connection() -> None:
    async def call() -> None:
        with rpc.link("client-2"):
            raise asyncio.CancelledError

    error = outcome(call)
    assert type(error) is Unavailable
    assert str(error) == "client-2: the connection broke"


def test_a_task_that_is_cancelled_stays_so() -> None:
    async def call() -> None:
        with rpc.link("client-2"):
            await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        task.cancel()
        await task

    assert isinstance(outcome(cancelled), asyncio.CancelledError)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("/etc/secfc/kit/state: cannot keep state there"),
        DataError("/home/dr-x/patients.csv: there is no column"),
        StorageError("/var/lib/secfc: disk full"),
    ],
)
def test_others_do_not_hear_where_our_files_are(error: SecfcError) -> None:
    assert "/" not in rpc.told(error)
    assert rpc.told(Malformed("wrong length")) == "wrong length"


def test_a_full_disk_is_no_fault_of_the_caller() -> None:
    assert rpc.status_of(StorageError("full")) is grpc.StatusCode.UNAVAILABLE
