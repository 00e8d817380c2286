"""`secfc health`: whether this party's own process is serving, by the standard gRPC health service; for probes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from secfc.agreement.parties import split_address
from secfc.commands import options
from secfc.errors import Unavailable
from secfc.net import inquiry, rpc
from secfc.pki import kit as kits
from secfc.pki.kit import Kit

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a process that listens everywhere is found


@click.command("health")
@options.kit("The kit the process was started with.")
@click.option("--address", metavar="HOST:PORT", help="Where it listens; default: as in federation.toml.")
@options.timeout("How long to wait for the answer.", 10.0)
@options.as_json("Print one JSON object instead of a line.")
def command(kit_path: Path, address: str | None, timeout: float, as_json: bool) -> None:
    """Ask the process that runs with this kit on this machine whether it is serving. Only a party of the federation gets an
    answer, so the kit's own certificate is used. Meant for a container's health check or a probe. A client that only dials
    out listens nowhere: the server is asked whether it is connected.

    \b
    Exit codes:
      0  it is serving
      2  the kit is not in order
      3  it does not answer, or is not serving

    \b
    Example:
      secfc health --kit /etc/secfc/kit
    """
    kit = kits.load(kit_path)
    if address is None and not kit.federation.dialled(kit.party_name):
        where, state = kit.federation.server.address, _as_the_server_sees(kit, timeout)
    else:
        where = address or local_address(kit)
        split_address(where)
        state = asyncio.run(_ask(kit, where, timeout))
    if state != "SERVING":
        raise Unavailable(f"{kit.party_name} at {where} is {state}")
    click.echo(json.dumps({"party": kit.party_name, "address": where, "state": state}) if as_json else state.lower())


def local_address(kit: Kit) -> str:
    """Where this party's process can be dialled on its own machine."""
    host, port = split_address(kit.federation.party(kit.party_name).bind)
    host = _ANYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _as_the_server_sees(kit: Kit, timeout: float) -> str:
    """Of a client that only dials out."""
    clients = {client.name: client for client in inquiry.ask(kit, timeout).clients}
    one = clients.get(kit.party_name)
    return "SERVING" if one is not None and (one.connected or one.done) else "not connected to the server"


async def _ask(kit: Kit, address: str, timeout: float) -> str:
    async with rpc.channel(kit, kit.party_name, address) as channel:
        try:
            request = health_pb2.HealthCheckRequest()
            reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout)
        except aio.AioRpcError as error:
            raise rpc.error_of(error, f"{kit.party_name} at {address}") from None
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))
