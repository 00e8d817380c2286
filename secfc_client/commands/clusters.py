"""`secfc clusters`: the earlier jobs to whose clusters this site can assign new rows, and how to forget them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from secfc.agreement.federation import SERVER
from secfc.commands import options
from secfc.errors import ConfigError, InvalidInput
from secfc.lock import Lock
from secfc.pki import kit as kits
from secfc.protocol.client.freezing import KeptClusters
from secfc_client import keptclusters


@click.command("clusters")
@options.kit("This client's kit folder.")
@options.state
@click.option("--forget", metavar="NAME", help="Remove what is kept of one job; the beginning of its name is enough.")
@click.option("--forget-all", is_flag=True, help="Remove what is kept of all jobs.")
@options.as_json("Print one JSON list instead of lines.")
def command(kit_path: Path, state: Path | None, forget: str | None, forget_all: bool, as_json: bool) -> None:
    """List the jobs of whose clusters this site keeps its share, so that new rows can be assigned to them, or forget some.
    A share by itself says nothing; as many sites as can open centres could open these with theirs. Without this site's share
    no rows are assigned to a job's clusters any more.

    \b
    Exit codes:
      0  shown, or removed
      2  the kit or a file is not in order, or there is nothing of that name
      3  a client is running with this state, so nothing was removed

    \b
    Examples:
      secfc clusters --kit /etc/secfc/kit
      secfc clusters --kit /etc/secfc/kit --forget 3fa4
    """
    if kits.load(kit_path).party_name == SERVER:
        raise ConfigError(f"{kit_path} is the server's kit; shares of clusters belong to clients")
    if forget is not None and forget_all:
        raise InvalidInput("--forget and --forget-all contradict each other; leave one out")
    folder = state or kit_path / "state"
    if forget is not None or forget_all:
        with Lock(folder, "secfc-client"):
            gone = _forget(folder, forget)
        click.echo(f"removed: {', '.join(gone)}" if gone else "nothing is kept")
        return
    kept = keptclusters.every(folder)
    click.echo(json.dumps([_fields(one) for one in kept]) if as_json else _as_text(kept))


def _forget(folder: Path, name: str | None) -> list[str]:
    if name is not None and len(found := keptclusters.named(folder, name)) != 1:
        raise InvalidInput(f"--forget {name[:40]} matches {len(found)} jobs; give more digits of a name that is shown")
    return keptclusters.forget(folder, name)


def _fields(one: KeptClusters) -> dict[str, Any]:
    return {"name": one.public.name, "when": _when(one), "sizes": list(one.public.sizes)}


def _when(one: KeptClusters) -> str:
    return datetime.fromtimestamp(one.when, UTC).isoformat(" ", "seconds")


def _as_text(kept: list[KeptClusters]) -> str:
    if not kept:
        return "nothing is kept here; keep_clusters = true in every site's policy.toml keeps it"
    return "\n".join(_line(one) for one in kept)


def _line(one: KeptClusters) -> str:
    sizes = one.public.sizes
    return f"{one.public.name}  {len(sizes)} clusters of {sum(sizes)} rows, found {_when(one)}"
