"""Whether a site is ready: the kit, the plan, the site's policy, its key of linked IDs, its rows; then the network."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from secfc.agreement import federation as federations
from secfc.agreement import plan, policy
from secfc.agreement.federation import SERVER, Federation
from secfc.agreement.job import Job
from secfc.errors import ConfigError, DataError, InvalidInput
from secfc.pki import certificates
from secfc.pki import kit as kits
from secfc.pki.kit import Kit
from secfc.pki.signedroster import NEWEST
from secfc.wording import few
from secfc_client import data as reader
from secfc_client import examine as columns_of
from secfc_client import naming
from secfc_client.commands.checks import columntable
from secfc_client.commands.checks.network import Network
from secfc_client.commands.checks.verdicts import FAIL, OK, SKIP, WARN, Verdict, failed, plain
from secfc_client.datasets import formats, preparation

SOON = timedelta(days=14)  # a kit that expires sooner is worth a warning


@dataclass(frozen=True)
class Data:
    """The rows to look at, and which columns of them."""

    path: Path
    id_column: str | None
    chosen: tuple[str, ...] | None


def examine(kit_path: Path, data: Data | None, timeout: float, policy: Path | None = None) -> list[Verdict]:
    """Every check that can be made, in the order in which a person should fix what failed."""
    results = [plain(finding) for finding in kits.findings(kit_path)]
    if failed(results):
        skipped = Verdict("network", SKIP, "not tried: nobody talks to a party without a valid kit")
        return [*results, *_without_kit(kit_path, data), skipped]
    kit = kits.load(kit_path)
    if kit.party_name == SERVER and data is not None:
        raise click.UsageError("this is the server's kit, and the server holds no rows; leave out --data")
    if kit.party_name == SERVER and policy is not None:
        raise click.UsageError("this is the server's kit, and only clients have a policy; leave out --policy")
    results = [_expiring(result, kit) if result.name == "dates" else result for result in results]
    results = [_lacking(result, kit) if result.name == "roster" else result for result in results]
    network = Network(kit, timeout)
    results += [_plan(kit.federation)]
    results += [_policy(kit, policy)] if kit.party_name != SERVER else []
    linked = kit.federation.job.ids == "linked" and not kit.federation.helps(kit.party_name)
    results += [_link_key(kit)] if kit.party_name != SERVER and linked else []
    if kit.party_name != SERVER and kit.federation.holders:
        results.append(_columns(kit.federation, kit.party_name, data))
    if data and not kit.federation.helps(kit.party_name):
        results += _data(kit.federation, kit.federation.job.of(kit.party_name), data)
    return results + network.results()


def _expiring(dates: Verdict, kit: Kit) -> Verdict:
    if kit.expires - datetime.now(UTC) > SOON:
        return dates
    return Verdict(dates.name, WARN, f"{dates.detail}; {certificates.RENEW} before it expires")


def _lacking(roster: Verdict, kit: Kit) -> Verdict:
    """A roster that is missing, or older than the last party's certificate."""
    found = kit.pins.roster
    if found is None:
        return Verdict(roster.name, WARN, f"{roster.detail}; {NEWEST}")
    parties = (SERVER, *kit.federation.roster)
    lacking = tuple(name for name in parties if name not in found.certificates)
    if not lacking:
        return roster
    return Verdict(roster.name, WARN, f"{roster.detail}; none for {few(lacking)}: {NEWEST}")


def _without_kit(kit_path: Path, data: Data | None) -> list[Verdict]:
    """What can be said of a kit that is not in order, if its federation file can be read."""
    try:
        federation = federations.load(kit_path / "federation.toml")
    except ConfigError:
        return []  # "files" has told
    whole = not federation.holders  # else it takes the kit to say which columns are ours
    return [_plan(federation), *(_data(federation, federation.job, data) if data and whole else ())]


def _plan(federation: Federation) -> Verdict:
    try:
        made = plan.of(federation)
    except InvalidInput as error:
        return Verdict("plan", FAIL, f"federation.toml: {error}")
    what = f"n = {federation.n}, t = {federation.privacy}, ℓ = {made.segments}, {federation.uploads} uploads"
    spare = f"{federation.n - made.responders} may be missing"
    return Verdict("plan", OK, f"{what}: {made.responders} of {federation.n} clients upload each round, {spare}")


def _link_key(kit: Kit) -> Verdict:
    """The clients' common key for linked IDs."""
    try:
        naming.read_key(kit.path / federations.LINK_KEY)
    except ConfigError as error:
        return Verdict("link key", FAIL, str(error))
    return Verdict("link key", OK, "the key of linked IDs is here, for this user only; the server must never have it")


def _policy(kit: Kit, chosen: Path | None) -> Verdict:
    """This site's rules, and whether a job of the federation file can fit them."""
    try:
        rules = policy.of_kit(kit.path, chosen)
    except ConfigError as error:
        return Verdict("policy", FAIL, str(error))
    against = policy.complaints(rules, kit.federation)
    if against:
        return Verdict("policy", FAIL, f"federation.toml does not fit {policy.FILE}: {'; '.join(against)}")
    held = rules.describe() if policy.source(kit.path, chosen) else f"no {policy.FILE}: {rules.describe()}"
    return Verdict("policy", OK, f"{held}; federation.toml fits")


def _columns(federation: Federation, name: str, data: Data | None) -> Verdict:
    """Where columns are split over the clients: what this one brings."""
    if federation.helps(name):
        if data is not None:
            return Verdict("columns", FAIL, "this client holds no column, it only helps; leave out --data")
        return Verdict("columns", OK, f"none: this client only computes for {few(federation.holders)}, without rows")
    held = few([one.name for one in federation.job.agreed if one.holder == name])
    if data is not None and data.id_column is None:
        return Verdict(
            "columns", FAIL, f"this client holds {held}; give --id COLUMN too, by which rows find each other"
        )
    return Verdict("columns", OK, f"this client holds {held}; rows are those that {few(federation.holders)} all have")


def _data(federation: Federation, job: Job, data: Data) -> list[Verdict]:
    """`job`: what this client has to bring of the federation's."""
    try:
        table = reader.load(
            data.path,
            feature_count=job.features,
            feature_names=job.feature_names,
            agreed=job.agreed,
            missing=job.missing,
            scale=job.scale,
            id_column=data.id_column,
            chosen=data.chosen,
        )
    except DataError as error:
        return [Verdict("data", FAIL, str(error)), *_columns_of(data, job)]
    columns = few(table.feature_names)
    values = preparation.scaled(job, table.features)
    results = [Verdict("data", OK, f"{data.path}: {len(table)} rows, {job.features} features: {columns}")]
    results += columntable.verdicts(data.path, table.rows, job, data.id_column)
    if table.dropped:
        what = f"{table.dropped} rows lack a value and take no part; their label will be empty"
        results.append(Verdict("data missing", WARN, what))
    if found := columns_of.dominant(values, table.feature_names):
        results.append(Verdict("data scale", WARN, columns_of.dominant_text(*found)))
    try:
        reader.check_bounds(table, values, job.bound)
        results.append(Verdict("data bounds", OK, f"every value is within ±{job.bound:g}"))
    except DataError as error:
        results.append(Verdict("data bounds", FAIL, str(error)))
    results.append(_row_count(len(table), job.max_rows))
    rough = columns_of.coarse(values, table.feature_names, job.precision)
    alike = columns_of.few_values(values, table.feature_names)
    if rough:
        results.append(Verdict("data precision", WARN, columns_of.coarse_text(rough, job.precision)))
    if alike:
        results.append(Verdict("data values", WARN, columns_of.few_values_text(alike, federation.uploads)))
    return results


def _columns_of(data: Data, job: Job) -> list[Verdict]:
    """The table of columns of a file that cannot be taken as it is, as far as it can be read."""
    try:
        return columntable.verdicts(data.path, formats.read(data.path), job, data.id_column)
    except DataError:
        return []  # the reason was just told


def _row_count(rows: int, most: int) -> Verdict:
    if rows > most:
        cure = "agree on a larger max_rows in federation.toml, or leave rows out"
        return Verdict("data rows", FAIL, f"{rows} rows, but max_rows = {most} for all clients together; {cure}")
    if rows == 0:
        return Verdict(
            "data rows", WARN, "there are none, so this client would only compute for the others; is that meant?"
        )
    return Verdict("data rows", OK, f"{rows} of at most {most} of all clients together")
