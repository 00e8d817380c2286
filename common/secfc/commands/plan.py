"""`secfc plan`: which parameters fit, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from secfc.agreement import costs
from secfc.agreement import federation as federations
from secfc.agreement.job import MEMBERSHIPS, MOST_RUNS, STARTS
from secfc.agreement.plan import Plan, Wishes, make, of
from secfc.agreement.uploads import DEFAULT, MEANING, SEES, UPLOADS
from secfc.commands import options
from secfc.errors import PlanError


@click.command("plan")
@click.argument("federation", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--clients", "-n", type=int, help="How many clients hold rows (n).")
@click.option(
    "--privacy",
    "-t",
    type=int,
    default=1,
    show_default=True,
    help="t: any t clients may collude and learn nothing about others' rows from their shares.",
)
@click.option("--clusters", "-k", default="8", show_default=True, help="Clusters (k), or several with commas.")
@click.option(
    "--starts", type=click.IntRange(1, MOST_RUNS), default=STARTS, show_default=True, help="Starts of every k."
)
@click.option("--features", "-d", type=int, default=100, show_default=True, help="Features of a row (d).")
@click.option("--rows", "-m", type=int, default=10_000, show_default=True, help="Largest number of rows in all (m).")
@click.option("--bound", type=float, default=1.0, show_default=True, help="Public bound on every |x|.")
@click.option("--precision", type=int, default=12, show_default=True, help="Fractional bits kept of a value.")
@click.option("--dropouts", type=int, default=0, show_default=True, help="Clients that may be lost after sharing.")
@click.option("--liars", type=int, default=0, show_default=True, help="Wrong uploads to correct (open uploads only).")
@click.option("--uploads", type=click.Choice(UPLOADS), default=DEFAULT, show_default=True)
@click.option("--segments", type=int, default=None, help="Pieces a row is cut into (ℓ); default: the most that fit.")
@click.option("--candidates", type=int, help="Candidate rows per seed of k-means++; default: 2 + ⌊ln k⌋.")
@click.option("--membership", type=click.Choice(MEMBERSHIPS), default="public", show_default=True)
@options.as_json()
def command(federation: Path | None, clients: int | None, as_json: bool, **wishes: Any) -> None:
    """Show the parameters and the cost of a job before anybody starts: either of FEDERATION (a federation.toml) or of
    what the options say."""
    wishes["max_rows"] = wishes.pop("rows")
    starts, clusters = wishes.pop("starts"), options.numbers(wishes.pop("clusters"), "--clusters")
    runs = tuple(k for k in clusters for _ in range(starts))
    holders = 0
    if federation:
        agreed = federations.load(federation)
        made, runs, holders = of(agreed), agreed.job.runs, len(agreed.holders)
    else:
        made = make(_from_options(clients, wishes | {"clusters": max(clusters)}))
    if as_json:
        click.echo(json.dumps(_report(made, runs, holders)))
        return
    tables = [
        _parameters(made, runs, holders),
        _cost(made, runs, holders),
        *([_guards(made), _sealed(made, runs)] if made.wishes.uploads == "sealed" else []),
    ]
    Console().print(*tables)
    click.echo(f"{'note' if made.wishes.uploads == DEFAULT else 'warning'}: {MEANING[made.wishes.uploads]}", err=True)


def _report(made: Plan, runs: Sequence[int], holders: int) -> dict[str, Any]:
    """All of it, for machines."""
    found = costs.sealed_runs(made, runs) | {"guards": made.guards()} if made.wishes.uploads == "sealed" else None
    sealed = {} if found is None else {"sealed": found}
    shown = made.parameters() | {"runs": list(runs)}
    return shown | {"cost": costs.of(made, runs, holders)} | sealed | {"warnings": [MEANING[made.wishes.uploads]]}


def _from_options(clients: int | None, wishes: dict[str, Any]) -> Wishes:
    if clients is None:
        raise PlanError("say how many clients there are (--clients N), or give a federation.toml")
    return Wishes(clients=clients, **wishes)


def _parameters(made: Plan, runs: Sequence[int], holders: int) -> Table:
    w = made.wishes
    spare = w.clients - made.asked()[1]
    table = Table(title="Parameters", title_justify="left", show_header=False)
    bits = made.field.modulus.bit_length() - 1
    rows = [
        ("clients n", f"{w.clients}", "hold rows and compute on everybody's shares"),
        ("privacy t", f"{w.privacy}", "any t may collude and learn nothing about others' rows from their shares"),
        (
            "segments ℓ",
            f"{made.segments}",
            f"a share has ⌈{w.features}/{made.segments}⌉ = {made.length} residues per lane",
        ),
        (
            "responders R",
            f"{made.responders}",
            f"2ℓ+2t−1 uploads per round; {spare} of {w.clients} clients may be missing",
        ),
        (
            "uploads",
            w.uploads,
            SEES[w.uploads],
        ),
        ("field", f"{made.field.lanes} lanes", f"Q ≈ 2^{bits} > m²·d·(2η)², with η = {made.eta}"),
    ]
    if w.uploads == "sealed":
        rows.append(("committee", f"{w.privacy + 1} clients", "t+1 of the responders compare; the server chooses them"))
    if w.seeding == "k-means++":
        tried = (
            f"k-means++ chooses every seed from {made.candidates} rows" if made.candidates > 1 else "plain k-means++"
        )
        rows.append(("candidates", f"{made.candidates}", f"{tried}; the server learns which they are"))
    if len(runs) > 1:
        tried = ", ".join(f"{k}" for k in dict.fromkeys(runs))
        rows.append(
            ("runs", f"{len(runs)}", f"k = {tried}, side by side from one sharing; each gives assignments away")
        )
    if w.liars:
        asked = f"R+2A = {made.asked()[1]} are asked"
        rows.append(("liars A", f"{w.liars}", f"wrong uploads that are found and left out; {asked}"))
    if w.membership == "private":
        rows.append(("membership", "private", "every client shares all m slots: sharing costs n times as much"))
    if holders:
        rows.append(
            ("columns", f"{holders} holders", f"rows are those that all have; the other {w.clients - holders} help")
        )
    for row in rows:
        table.add_row(*row)
    return table


def _cost(made: Plan, runs: Sequence[int], holders: int) -> Table:
    cost = costs.of(made, runs, holders)
    beside = f", while all {len(runs)} runs move" if len(runs) > 1 else ""
    table = Table(
        title=f"Cost at m = {made.wishes.max_rows} rows{'' if holders else ', dealt evenly'}{beside}",
        title_justify="left",
    )
    for column in ("", "one client", "server"):
        table.add_column(column, justify="left" if not column else "right")
    if made.private:
        table.add_row("union of IDs, sent", size(cost["union_bytes_per_client"]), size(cost["union_bytes_server"]))
    table.add_row("sharing, sent", size(cost["sharing_bytes_per_client"]), "–")
    if cost["seeding_bytes_per_client"]:
        table.add_row("seeding, sent (all requests)", size(cost["seeding_bytes_per_client"]), "chosen rows")
    if made.wishes.uploads != "sealed":
        table.add_row("per round, sent (all columns)", size(cost["round_bytes_per_client"]), "labels that changed")
        table.add_row("per round, received", "labels that changed", size(cost["round_bytes_server"]))
    table.add_row("memory of the process", size(cost["client_process_bytes"]), size(cost["server_process_bytes"]))
    table.add_row("sharing, multiplications", count(cost["sharing_multiplications_per_client"]), "–")
    table.add_row(
        "per round, multiplications",
        count(cost["round_multiplications_per_client"]),
        "–" if made.wishes.uploads == "sealed" else count(cost["round_multiplications_server"]),
    )
    return table


_ROUNDS = {"first_round": "first round", "usual_round": "5 % of rows move", "seeding": "seeding (all requests)"}


def _guards(made: Plan) -> Table:
    """How near the wishes are to what sealed rounds can compare."""
    table = Table(title="Guards of sealed rounds", title_justify="left", show_header=False)
    for guard, found in made.guards().items():
        table.add_row(guard, found)
    return table


def _sealed(made: Plan, runs: Sequence[int]) -> Table:
    """What the parties of a sealed round send and take; labels that changed go to everybody besides."""
    table = Table(title="Sealed rounds, clusters of m/k rows", title_justify="left")
    for column in ("", "member", "other client", "server"):
        table.add_column(column, justify="left" if not column else "right")
    for name, found in costs.sealed_runs(made, runs).items():
        words = _ROUNDS[name]
        table.add_row(f"{words}, sent", *(size(found[f"{party}_sent"]) for party in ("member", "client", "server")))
        table.add_row(f"{words}, received", size(found["member_received"]), "–", size(found["server_received"]))
        messages = (f"{found[f'{party}_messages']}" for party in ("member", "client", "server"))
        table.add_row(f"{words}, messages", *messages)
    return table


def size(number: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def count(number: float) -> str:
    """Numbers for people."""
    for unit in ("", " thousand", " million"):
        if number < 1000:
            return f"{number:.0f}{unit}" if not unit else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.1f} billion"
