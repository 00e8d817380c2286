"""The server's port: who calls gets one of the services, and whoever supervises it hears whether it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from secfc.logs import say
from secfc.net import rpc
from secfc.pki.kit import Kit
from secfc.v1 import secfc_pb2, secfc_pb2_grpc
from secfc_server.relay import Relay

log = logging.getLogger("secfc.server")


@asynccontextmanager
async def listening(
    kit: Kit, bind: str, services: Sequence[tuple[str, Any]], stopped: asyncio.Future[int], *, reflect: bool
) -> AsyncIterator[None]:
    """The port is open meanwhile. `services`: the name of each in the wire definition, and what answers it."""
    listener = rpc.server(kit)
    for name, service in (*services, ("Relay", Relay(kit.federation))):
        getattr(secfc_pb2_grpc, f"add_{name}Servicer_to_server")(service, listener)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
    if reflect:
        names = [f"secfc.v1.{name}" for name, _ in services]
        names += [secfc_pb2.DESCRIPTOR.services_by_name["Relay"].full_name]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], listener)
    port = rpc.listen(listener, kit, bind)
    await listener.start()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    say(log, "listening", bind=bind, port=port, expires=kit.expires.date(), roster=kit.pins.describe())
    try:
        yield
    finally:
        await checks.enter_graceful_shutdown()
        await listener.stop(grace=0.5 if stopped.done() else 2.0)
