"""`secfc check`: what a site's administrator runs before the job, line by line what is in order and what is not.

Statuses: ok; warn, it may be in order later (a client that is not started yet); fail, the job would not work; skip, it could
not be tried because of another failure. Everything on the network is tried at the same time in threads that are given up
after the timeout and `GRACE` seconds, so the check ends then, whatever the network does.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from secfc import config, plan, tlsprobe
from secfc import kit as kits
from secfc.commands import status
from secfc.config import SERVER, Federation, Party, split_address
from secfc.errors import ConfigError, DataError, InvalidInput, SecfcError
from secfc.kit import Finding, Kit
from secfc.signedroster import NEWEST

GRACE = 2.0  # for what the probe does besides waiting, on a busy machine
SOON = timedelta(days=14)  # a kit that expires sooner is worth a warning

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
_MARKS = {OK: ("ok", "green"), WARN: ("WARN", "bold yellow"), FAIL: ("FAIL", "bold red"), SKIP: ("skip", "dim")}
_SERVER_STEPS = {"dns": "server name", "tcp": "server port", "tls": "server tls", "clock": "server clock"}


@dataclass(frozen=True)
class Result:
    """One line of the check; `detail` says what to do, unless it is ok."""

    name: str
    status: str
    detail: str


@dataclass(frozen=True)
class Data:
    """The rows to look at, and which columns of them."""

    path: Path
    id_column: str | None
    chosen: tuple[str, ...] | None


@click.command("check")
@click.option(
    "--kit",
    "kit_path",
    required=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="This party's kit.",
)
@click.option("--data", type=click.Path(path_type=Path), metavar="FILE", help="This client's rows, CSV or Parquet.")
@click.option("--id", "id_column", metavar="COLUMN", help="The column that names rows and is no feature.")
@click.option(
    "--features",
    metavar="A,B,C",
    help="The feature columns, if federation.toml gives only their number; as all clients do.",
)
@click.option(
    "--policy", type=click.Path(path_type=Path), metavar="FILE", help="This site's rules; default: the kit's."
)
@click.option(
    "--timeout",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.1, 600),
    help="How long to wait for others on the network.",
)
@click.option("--json", "as_json", is_flag=True, help='One object: {"ok", "findings": [{name, status, detail}]}.')
@click.pass_context
def command(
    ctx: click.Context,
    kit_path: Path,
    data: Path | None,
    id_column: str | None,
    features: str | None,
    policy: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Check that this machine is ready for the job: the kit, the plan, the site's policy, the port, the data, the way to the
    others.

    On a client the server must be up already; other clients may still be missing (WARN). Nothing is changed,
    and nothing of the data leaves this machine.

    \b
    Exit codes:
      0  nothing failed, though there may be warnings
      1  something failed; its line says what to do
      2  wrong usage

    \b
    Example:
      secfc check --kit kits/hospital-a --data rows.csv --id patient
    """
    if data is None and (id_column is not None or features is not None):
        raise click.UsageError("--id and --features say how to read --data FILE; give that too")
    chosen = None if features is None else tuple(name.strip() for name in features.split(","))
    rows = None if data is None else Data(data, id_column, chosen)
    with Console(stderr=True).status("looking at the kit and trying the network ..."):  # on a terminal only
        results = examine(kit_path, rows, timeout, policy)
    if as_json:
        findings = [dataclasses.asdict(result) for result in results]
        click.echo(json.dumps({"ok": not _failed(results), "findings": findings}))
    else:
        _show(Console(highlight=False), results)
    if _failed(results):
        ctx.exit(1)


# --- examining -------------------------------------------------------------------------------------------------------


def examine(kit_path: Path, data: Data | None, timeout: float, policy: Path | None = None) -> list[Result]:
    """Every check that can be made, in the order in which a person should fix what failed."""
    results = [_plain(finding) for finding in kits.findings(kit_path)]
    if _failed(results):
        skipped = Result("network", SKIP, "not tried, because nobody talks to a party without a sound kit")
        return [*results, *_without_kit(kit_path, data), skipped]
    kit = kits.load(kit_path)
    if kit.party_name == SERVER and data is not None:
        raise click.UsageError("this is the server's kit, and the server holds no rows; leave out --data")
    if kit.party_name == SERVER and policy is not None:
        raise click.UsageError("this is the server's kit, and only clients have a policy; leave out --policy")
    results = [_expiring(result, kit) if result.name == "dates" else result for result in results]
    results = [_lacking(result, kit) if result.name == "roster" else result for result in results]
    network = _Network(kit, timeout)
    results += [_plan(kit.federation)]
    results += [_policy(kit, policy)] if kit.party_name != SERVER else []
    results += [_link_key(kit)] if kit.party_name != SERVER and kit.federation.ids == "linked" else []
    results += _data(kit.federation, data) if data else []
    return results + network.results()


def _plain(finding: Finding) -> Result:
    return Result(finding.name, OK if finding.ok else FAIL, finding.detail)


def _failed(results: list[Result]) -> list[Result]:
    return [result for result in results if result.status == FAIL]


def _expiring(dates: Result, kit: Kit) -> Result:
    if kit.expires - datetime.now(UTC) > SOON:
        return dates
    return Result(dates.name, WARN, f"{dates.detail}; {kits.RENEW} before it expires")


def _lacking(roster: Result, kit: Kit) -> Result:
    """A roster that is missing, or older than the last party's certificate."""
    found = kit.pins.roster
    if found is None:
        return Result(roster.name, WARN, f"{roster.detail}; {NEWEST}")
    parties = (SERVER, *kit.federation.roster)
    lacking = tuple(name for name in parties if name not in found.certificates)
    if not lacking:
        return roster
    return Result(roster.name, WARN, f"{roster.detail}; none for {status.few(lacking)}: {NEWEST}")


def _without_kit(kit_path: Path, data: Data | None) -> list[Result]:
    """What can be said of a kit that is not in order, if its federation file can be read."""
    try:
        federation = config.load(kit_path / "federation.toml")
    except ConfigError:
        return []  # "files" has told
    return [_plan(federation), *(_data(federation, data) if data else ())]


def _plan(federation: Federation) -> Result:
    try:
        made = plan.of(federation)
    except InvalidInput as error:
        return Result("plan", FAIL, f"federation.toml: {error}")
    what = f"n = {federation.n}, t = {federation.privacy}, ℓ = {made.segments}, {federation.uploads} uploads"
    spare = f"{federation.n - made.responders} may be missing"
    return Result("plan", OK, f"{what}: {made.responders} of {federation.n} clients upload each round, {spare}")


def _link_key(kit: Kit) -> Result:
    """The clients' common key for linked IDs."""
    from secfc_client import naming

    try:
        naming.read_key(kit.path / config.LINK_KEY)
    except ConfigError as error:
        return Result("link key", FAIL, str(error))
    return Result("link key", OK, "the key of linked IDs is here, for this user only; the server must never have it")


def _policy(kit: Kit, chosen: Path | None) -> Result:
    """This site's rules, and whether a job of the federation file can fit them."""
    from secfc_client import policy

    try:
        rules = policy.of_kit(kit.path, chosen)
    except ConfigError as error:
        return Result("policy", FAIL, str(error))
    against = policy.complaints(rules, kit.federation)
    if against:
        return Result("policy", FAIL, f"federation.toml does not fit {policy.FILE}: {'; '.join(against)}")
    held = rules.describe() if policy.source(kit.path, chosen) else f"no {policy.FILE}: {rules.describe()}"
    return Result("policy", OK, f"{held}; federation.toml fits")


def _data(federation: Federation, data: Data) -> list[Result]:
    from secfc_client import data as reader
    from secfc_client import examine as columns_of

    names = federation.feature_names
    try:
        table = reader.load(
            data.path,
            feature_count=federation.features,
            feature_names=names,
            id_column=data.id_column,
            chosen=data.chosen,
        )
    except DataError as error:
        return [Result("data", FAIL, str(error))]
    columns = status.few(table.feature_names)
    results = [Result("data", OK, f"{data.path}: {len(table)} rows, {federation.features} features: {columns}")]
    try:
        reader.check_bounds(table, federation.bound)
        results.append(Result("data bounds", OK, f"every value is within ±{federation.bound:g}"))
    except DataError as error:
        results.append(Result("data bounds", FAIL, str(error)))
    results.append(_row_count(len(table), federation.max_rows))
    rough = columns_of.coarse(table.features, table.feature_names, federation.precision)
    few = columns_of.few_values(table.features, table.feature_names)
    if rough:
        results.append(Result("data precision", WARN, columns_of.coarse_text(rough, federation.precision)))
    if few:
        results.append(Result("data values", WARN, columns_of.few_values_text(few, federation.uploads)))
    return results


def _row_count(rows: int, most: int) -> Result:
    if rows > most:
        cure = "agree on a larger max_rows in federation.toml, or leave rows out"
        return Result("data rows", FAIL, f"{rows} rows, but max_rows = {most} for all clients together; {cure}")
    if rows == 0:
        return Result(
            "data rows", WARN, "there are none, so this client would only compute for the others; is that meant?"
        )
    return Result("data rows", OK, f"{rows} of at most {most} of all clients together")


# --- the network -----------------------------------------------------------------------------------------------------


class _Network:
    """Everything that is tried on the network, begun at once; `results` waits, but not for long."""

    def __init__(self, kit: Kit, timeout: float) -> None:
        self._kit, self._timeout = kit, timeout
        self._deadline = time.monotonic() + timeout + GRACE
        self._tasks: list[tuple[str, str, Future[list[Result]]]] = []  # name, status if given up, task
        me = kit.federation.party(kit.party_name)
        others = [party for party in kit.federation.clients if party is not me]
        self._begin("own port", FAIL, lambda: [_own_port(me)])
        if me.name != SERVER:
            self._begin("server", FAIL, self._server)
        for other in others:
            self._begin(f"client {other.name}", WARN, partial(self._client, other))

    def _begin(self, name: str, given_up: str, task: Callable[[], list[Result]]) -> None:
        self._tasks.append((name, given_up, status.in_background(task)))

    def results(self) -> list[Result]:
        """What came of it, in the order in which it was begun."""
        collected: list[Result] = []
        for name, given_up, task in self._tasks:
            try:
                collected += task.result(max(0.0, self._deadline - time.monotonic()))
            except TimeoutError:
                seconds = f"{self._timeout + GRACE:g} s"
                detail = f"no end of it within {seconds}; probably DNS hangs: check this machine's resolver and network"
                collected.append(Result(name, given_up, detail))
        return collected

    def _server(self) -> list[Result]:
        """Step by step, then the service itself."""
        kit = self._kit
        found = tlsprobe.probe(kit, SERVER, kit.federation.server.address, self._timeout)
        results = [_server_step(finding) for finding in found]
        if _failed(results):
            return results
        try:
            reply = status.ask(kit, max(0.5, self._deadline - time.monotonic() - GRACE / 2))
        except SecfcError as error:
            return [*results, Result("server answers", FAIL, f"{error}; look at the server's log, compare versions")]
        return [*results, _service(reply, kit), _same_federation(reply, kit.federation)]

    def _client(self, client: Party) -> list[Result]:
        return [_resolves(client) if self._kit.party_name == SERVER else self._peer(client)]

    def _peer(self, peer: Party) -> Result:
        """Name and port may come with the client's start; if it answers, it must be the right one."""
        found = tlsprobe.probe(self._kit, peer.name, peer.address, self._timeout)
        name, link = f"client {peer.name}", f"{self._kit.party_name} -> {peer.name}"
        for finding in found:
            if finding.ok:
                continue
            if finding.name in ("dns", "tcp"):
                return Result(name, WARN, f"{link} not reachable yet: {finding.detail}")
            return Result(name, FAIL, f"{link}: {finding.detail}")
        return Result(name, OK, f"{link} at {peer.address}: {found[-1].detail}")


def _server_step(finding: Finding) -> Result:
    name = _SERVER_STEPS.get(finding.name, f"server {finding.name}")
    if finding.ok:
        return Result(name, OK, finding.detail)
    up = "; the server must be up for this check" if finding.name == "tcp" else ""
    return Result(name, FAIL, finding.detail + up)


def _service(reply: status.Status, kit: Kit) -> Result:
    """The gRPC service answers; is it a job that this client can still join?"""
    if reply.phase in ("finished", "failed"):
        detail = f"its job has {reply.phase}; for a new one: secfc-server --new"
        return Result("server answers", WARN, detail + (f" (reason: {reply.reason})" if reply.reason else ""))
    if any(client.name == kit.party_name and client.connected for client in reply.clients):
        detail = f"a process is connected as {kit.party_name} already, and a second one would be refused; stop it first"
        return Result("server answers", WARN, detail)
    joined = sum(client.joined for client in reply.clients)
    return Result("server answers", OK, f"phase {reply.phase}, {joined} of {len(reply.clients)} clients have joined")


def _same_federation(reply: status.Status, federation: Federation) -> Result:
    name, ours, theirs = "same federation", federation.digest().hex(), reply.federation_digest
    if not theirs:
        return Result(name, WARN, "the server does not tell its digest of federation.toml; joining will compare it")
    if theirs != ours:
        detail = f"the server's federation.toml differs from ours (digest {theirs[:12]}, ours {ours[:12]})"
        return Result(name, FAIL, f"{detail}; get the same file to every party")
    return Result(name, OK, f"the server has the same federation.toml (digest {ours[:12]})")


def _own_port(me: Party) -> Result:
    """Bind as gRPC would, and let go; without listening, lest another site's check meets us."""
    host, port = split_address(me.bind)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with closing(socket.socket(family, kind, protocol)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections are no listener
            listener.bind(place)
    except (OSError, UnicodeError) as error:
        return Result("own port", FAIL, f"cannot listen on {me.bind}: {_bind_advice(error, me)}")
    return Result("own port", OK, f"{me.bind} is free to listen on; others dial {me.address}")


def _bind_advice(error: OSError | UnicodeError, me: Party) -> str:
    code = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if code == errno.EADDRINUSE:
        running = "secfc-server" if me.name == SERVER else "secfc-client"
        return f"something (perhaps a running {running}) listens on it; stop that, or choose another port"
    if code == errno.EADDRNOTAVAIL:
        return "the address is not this machine's; correct bind in federation.toml"
    if code in (errno.EACCES, errno.EPERM):
        return "not permitted; ports below 1024 are for root, choose another"
    return f"{getattr(error, 'strerror', None) or 'not a usable name'}; correct bind in federation.toml"


def _resolves(client: Party) -> Result:
    """The server dials no client, but a name that nobody knows is a mistake in the file all parties share."""
    name = f"client {client.name}"
    try:
        infos = socket.getaddrinfo(client.host, client.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        advice = "the other clients must be able to resolve it: check federation.toml and DNS"
        return Result(name, WARN, f"{client.host} does not resolve here; {advice}")
    return Result(name, OK, f"{client.host} is {', '.join(dict.fromkeys(str(info[4][0]) for info in infos))}")


# --- showing ---------------------------------------------------------------------------------------------------------


def _show(console: Console, results: list[Result]) -> None:
    """A line each: on a terminal coloured and folded under its column, else whole."""
    width = max(len(result.name) for result in results)
    if not console.is_terminal:
        for result in results:
            click.echo(f"{_MARKS[result.status][0]:4}  {result.name:{width}}  {result.detail}")
        click.echo(_summary(results)[0])
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for result in results:
        table.add_row(Text(*_MARKS[result.status]), Text(result.name), Text(result.detail))
    console.print(table)
    console.print(Text(*_summary(results)))


def _summary(results: list[Result]) -> tuple[str, str]:
    """The last line and its colour."""
    failed, warned = len(_failed(results)), sum(result.status == WARN for result in results)
    warnings = f"{warned} warning{'' if warned == 1 else 's'}"
    if failed:
        also = f", {warnings}" if warned else ""
        return f"{failed} of {len(results)} checks failed{also}: see FAIL above, fix it and check again", "bold red"
    if warned:
        return f"ready, with {warnings}: nothing failed", "bold yellow"
    return "ready: everything is in order", "bold green"
