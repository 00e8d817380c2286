"""What a machine runs out of is no mistake of anybody's, and strangers cannot use it up."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from secfc import exits, limits, local, textfile
from secfc.errors import ConfigError, StorageError, Unavailable
from secfc.net import rpc
from secfc.pki import kit, provision
from secfc.pki.kit import Kit


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_what_a_machine_lacks_is_an_error_that_a_restart_heals(number: int) -> None:
    """Service managers restart code 3, and take code 2 as something for a person."""
    error = limits.failure(OSError(number, os.strerror(number)), "a.csv: cannot be written", "do otherwise")
    assert isinstance(error, StorageError)
    assert exits.code_for(error) == exits.UNAVAILABLE
    assert f"cannot be written ({os.strerror(number)})" in str(error)
    assert "start the same command again" in str(error)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.ENOENT])
def test_a_person_has_to_fix_it(number: int) -> None:
    error = limits.failure(OSError(number, os.strerror(number)), "a", "choose another")
    assert isinstance(error, ConfigError)
    assert exits.code_for(error) == exits.USAGE


def test_what_a_person_must_change_is_not(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "result.json", Path("/proc/result.json")):
        with pytest.raises(ConfigError, match=r"cannot be written .*; do otherwise") as caught:
            textfile.preflight(path, "do otherwise")
        assert exits.code_for(caught.value) == 2


def test_looking_whether_a_file_can_be_written_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    textfile.preflight(path, "do otherwise")
    assert list(tmp_path.iterdir()) == []
    path.write_text("kept")
    textfile.preflight(path, "do otherwise")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("kept", [path])


def test_descriptors_are_raised_and_half_of_them_kept_for_ourselves() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 300), hard))
        limits.raise_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert limits.connections() <= hard // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- connections without a certificate -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits") / "kits"
    made = local.describe(3, k=2, privacy=1, max_rows=10, features=2, bound=1.0, precision=8)
    provision.provision(made, folder)
    return folder


class Failing(health.aio.HealthServicer):  # type: ignore[misc]
    """A service whose machine has no descriptors left."""

    async def Check(self, request: object, context: object) -> None:
        async with rpc.refusing(context):
            raise OSError(errno.EMFILE, "Too many open files")


async def serving(own: Kit, checks: health.aio.HealthServicer) -> tuple[aio.Server, str]:
    listener = rpc.server(own)
    health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
    port = rpc.listen(listener, own, "127.0.0.1:0")
    await listener.start()
    return listener, f"127.0.0.1:{port}"


async def ask(own: Kit, address: str) -> object:
    async with rpc.channel(own, "server", address) as channel:
        request = health_pb2.HealthCheckRequest()
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=20.0, wait_for_ready=True)
        return answer.status


def still_open(idle: list[socket.socket]) -> int:
    count = 0
    for one in idle:
        one.setblocking(False)
        try:
            count += one.recv(1) != b""
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def test_idle_strangers_are_few_and_do_not_stay(kits: Path) -> None:
    """Without a bound each of them costs a descriptor for two minutes (gRPC's default) and there is none left for files."""

    async def scene() -> None:
        checks = health.aio.HealthServicer()
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        listener, address = await serving(kit.load(kits / "server"), checks)
        host, port = address.split(":")
        idle = [socket.create_connection((host, int(port)), 5.0) for _ in range(60)]
        try:
            await asyncio.sleep(0.5)
            assert still_open(idle) <= 10
            began = time.monotonic()
            own = kit.load(kits / "client-1")
            assert await ask(own, address) == health_pb2.HealthCheckResponse.SERVING  # as soon as they are turned away
            assert time.monotonic() - began < 15.0
            assert still_open(idle) == 0
        finally:
            for one in idle:
                one.close()
            await listener.stop(grace=None)

    hurried = [("grpc.server_handshake_timeout_ms", 1000)]
    options = [pair for pair in rpc._SERVER if pair[0] != hurried[0][0]]
    assert len(options) == len(rpc._SERVER) - 1
    with (
        mock.patch.object(rpc, "_SERVER", options + hurried),
        mock.patch.object(limits, "connections", return_value=10),
    ):
        asyncio.run(scene())


def test_a_caller_is_told_to_try_again_where_descriptors_are_short(kits: Path) -> None:
    """Anything else would end it with code 4, for nothing that it has done."""

    async def scene() -> None:
        listener, address = await serving(kit.load(kits / "server"), Failing())
        try:
            with pytest.raises(aio.AioRpcError) as caught:
                await ask(kit.load(kits / "client-1"), address)
        finally:
            await listener.stop(grace=None)
        assert isinstance(rpc.error_of(caught.value, "the server"), Unavailable)

    asyncio.run(scene())


FAULTS = """
import resource
from secfc import limits
def use():
    for _ in range(20):
        [bytes(bytearray(1 << 20)) for _ in range(8)]
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), end=" ")
limits.keep_memory()
use()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_memory_is_used_again() -> None:
    """Twenty times eight buffers of 1 MiB are 40,960 pages and as many again: they are faulted in once, not every time."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, env=_plain())
    before, after = map(int, done.stdout.split())
    assert after < 2000 < before


def _plain() -> dict[str, str]:
    """Without settings of the allocator's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
