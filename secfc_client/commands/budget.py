"""`secfc budget`: what this site's rows have given away over all jobs, and the only way to count from zero again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click

from secfc.agreement.federation import SERVER
from secfc.commands import options
from secfc.errors import ConfigError, InvalidInput
from secfc.lock import Lock
from secfc.pki import kit as kits
from secfc.privacy.leakage import Tally
from secfc_client import budget
from secfc_client.budget import Entry

_SHOWN = 12  # digits of a name


@click.command("budget")
@options.kit("This client's kit folder.")
@options.state
@click.option("--reset", is_flag=True, help="Start counting from zero; asks first.")
@click.option("--only", metavar="NAME", default=None, help="Reset one entry only; the beginning of its name is enough.")
@click.option("--yes", is_flag=True, help="Reset without asking.")
@options.as_json("Print one JSON object instead of lines.")
def command(kit_path: Path, state: Path | None, reset: bool, only: str | None, yes: bool, as_json: bool) -> None:
    """Show what this site's rows have given away, added up over all jobs, or reset that count: how many directions of their
    geometry the server may know (0 after sealed rounds, if nobody on the committee helps it), how many assignments of all
    rows everybody has seen, and how many inertias sealed rounds have opened. A reset is refused while a client is running
    with this state.

    What has been given away stays given away: a reset makes the client forget it, not the server. Reset only if you accept
    that, for example because the server's operator has deleted what it knew.

    \b
    Exit codes:
      0  shown, or reset
      2  the kit or the file is not in order, or the reset was not confirmed
      3  a client is running with this state, so nothing was reset

    \b
    Examples:
      secfc budget --kit /etc/secfc/kit
      secfc budget --kit /etc/secfc/kit --reset --only 3fa4
    """
    if kits.load(kit_path).party_name == SERVER:
        raise ConfigError(f"{kit_path} is the server's kit; a budget belongs to a client's rows")
    if only is not None and not reset:
        raise InvalidInput("--only says what to reset; give --reset too")
    folder = state or kit_path / "state"
    if reset:
        with Lock(folder, "secfc-client"):  # a client that runs would put back what it knows
            _reset(folder, only, yes)
    entries = budget.read(folder)
    click.echo(_as_json(entries) if as_json else _as_text(entries))


def _reset(folder: Path, only: str | None, yes: bool) -> None:
    try:
        entries = budget.read(folder)
    except ConfigError:
        if only is not None:
            raise
        entries = {}  # damaged: all that can be done is to begin again
    chosen = [key for key in entries if only is None or key.startswith(only)]
    if only is not None and len(chosen) != 1:
        raise InvalidInput(f"--only {only} matches {len(chosen)} entries; give more digits of a name that is shown")
    what = f"the entry {chosen[0][:_SHOWN]}" if only is not None else "the whole budget"
    if not yes and not click.confirm(f"Reset {what}? The server may still know what was given away.", default=False):
        raise InvalidInput("not confirmed; nothing was reset")
    nothing = asdict(Tally())
    budget.write(folder, {key: replace(e, **nothing, holder="") if key in chosen else e for key, e in entries.items()})


def _as_json(entries: Mapping[str, Entry]) -> str:
    fields = {
        key: {
            "directions": e.directions,
            "of": e.features,
            "assignments": e.assignments,
            "inertias": e.inertias,
            "rows": e.rows,
            "file": e.file,
        }
        for key, e in entries.items()
    }
    return json.dumps(fields)


def _as_text(entries: Mapping[str, Entry]) -> str:
    if not entries:
        return "nothing has been given away by the rows of this state folder"
    return "\n".join(
        f"{key[:_SHOWN]}  at most {e.directions} of {e.features} directions known; {e.tally.text()}"
        f"  ({e.rows} rows of {e.file})"
        for key, e in entries.items()
    )
