"""Step 2 of `docker compose up`: kits and example rows, made once; a new job, if the last one is finished.

    /kits/<party>   that party's volume: its kit, its state, and for a client its example rows (rows.csv)
    /out/<party>    where it will write

Kits are made when there are none, when the settings have changed or when they have expired. A job that was stopped half-way,
or whose labels are not all written, goes on. After a finished one (the server's journal says so) the next begins: everybody's
state is removed, and what the finished job left is moved to a folder of its own, /out/<party>/<when it ended>. A link stands
in its place until the new job has written its own, so nothing is gone before its successor is there.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from secfc.agreement import federation as federations
from secfc.agreement import plan
from secfc.agreement.features import Feature
from secfc.agreement.federation import RELAYS, Federation
from secfc.agreement.job import SPLITS, Job
from secfc.agreement.parties import Party
from secfc.agreement.uploads import DEFAULT, MEANING, UPLOADS
from secfc.errors import ConfigError, SecfcError
from secfc.pki import kit, provision
from secfc_server.journal import Journal

KITS, OUT = Path("/kits"), Path("/out")
PORT = 7000
PROFILE = "clients-"
RESULTS = ("labels.csv", "labels.profile.csv", "labels.report.html", "result.json")  # the last names the folder


def wanted() -> Federation:
    """The federation that the settings of .env describe."""
    made = Federation(
        name="compose",
        privacy=_number("PRIVACY"),
        dropouts=_number("DROPOUTS"),
        liars=0,
        uploads=_uploads(),
        server=_party("server"),
        clients=tuple(_client(f"client-{j + 1}") for j in range(clients())),
        job=_job(),
        relay=_relay(),
    )
    return federations.parse(federations.dumps(made), ".env")


def _uploads() -> str:
    uploads = _setting("UPLOADS") or DEFAULT
    if uploads not in UPLOADS:
        raise ConfigError(f"UPLOADS must be one of {', '.join(UPLOADS)}, not {uploads!a}; correct it in .env")
    return uploads


def _relay() -> str:
    """Whether clients dial each other (never) or only the server (only)."""
    relay = _setting("RELAY") or "never"
    if relay not in RELAYS:
        raise ConfigError(f"RELAY must be one of {', '.join(RELAYS)}, not {relay!a}; correct it in .env")
    return relay


def _job() -> Job:
    """The job that the settings of .env describe."""
    features = _setting("FEATURES")
    names = tuple(name.strip() for name in features.split(","))
    numbered = features.isdigit()
    if numbered and _split():
        names, numbered = tuple(f"x{f + 1}" for f in range(int(features))), False
    return Job(
        k=_number("K"),
        features=int(features) if numbered else len(names),
        feature_names=None if numbered else names,
        **(_dealt(names) if _split() else {"membership": _setting("MEMBERSHIP")}),
        bound=float(_number("BOUND")),
        precision=_number("PRECISION"),
        max_rows=_number("MAX_ROWS"),
        seed=_setting("SEED") or None,
    )


def _split() -> bool:
    """Whether clients have different columns of the same rows."""
    split = _setting("SPLIT") or SPLITS[0]
    if split not in SPLITS:
        raise ConfigError(f"SPLIT must be one of {', '.join(SPLITS)}, not {split!a}; correct it in .env")
    if split == "columns" and not _setting("ID_COLUMN"):
        raise ConfigError("SPLIT=columns needs ID_COLUMN, the column that names rows, say ID_COLUMN=id; set it in .env")
    return split == "columns"


def _dealt(names: tuple[str, ...]) -> dict[str, Any]:
    """What a job says whose features are dealt over the clients, evenly and in their order."""
    if len(names) < clients():
        raise ConfigError(
            f"SPLIT=columns deals FEATURES over {clients()} clients, and there are {len(names)}; name more"
        )
    parts = np.array_split(np.arange(len(names)), clients())
    agreed = tuple(Feature(names[f], holder=f"client-{j + 1}") for j, part in enumerate(parts) for f in part)
    return {"split": "columns", "membership": "private", "ids": "linked", "agreed": agreed}


def clients() -> int:
    """How many clients the profile starts."""
    profile = _setting("COMPOSE_PROFILES")
    if not profile.startswith(PROFILE) or not profile.removeprefix(PROFILE).isdigit():
        raise ConfigError("COMPOSE_PROFILES must be clients-3, clients-5 or clients-10; correct it in .env")
    return int(profile.removeprefix(PROFILE))


def _party(name: str) -> Party:
    return Party(name=name, address=f"{name}:{PORT}", bind=f"0.0.0.0:{PORT}", names=())


def _client(name: str) -> Party:
    return Party(name, "", "") if _relay() == "only" else _party(name)


def _setting(name: str) -> str:
    return os.environ.get(name, "").strip()


def _number(name: str) -> int:
    try:
        return int(_setting(name))
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {_setting(name)!a}; correct it in .env") from None


def example_rows(federation: Federation, rows: int) -> list[np.ndarray]:
    """A seeded mixture of k clusters, dealt over the clients; if columns are split, all of it for each."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(-0.4, 0.4, size=(federation.job.k, federation.job.features))
    truth = rng.integers(0, federation.job.k, rows if federation.holders else rows * federation.n)
    values = centres[truth] + rng.normal(scale=0.1, size=(len(truth), federation.job.features))
    values = np.clip(values, -1.0, 1.0).round(4) * federation.job.bound
    return [values] * federation.n if federation.holders else np.array_split(values, federation.n)


def write_example(federation: Federation) -> None:
    """Each client's rows into its own volume, named as the federation names them."""
    names = federation.job.feature_names or [f"x{f + 1}" for f in range(federation.job.features)]
    for client, part in zip(federation.roster, example_rows(federation, _number("ROWS")), strict=True):
        path, own = KITS / client / "rows.csv", list(federation.job.columns_of(client))
        header, values = [names[f] for f in own], part[:, own]
        if federation.holders:  # rows find each other by their number
            header, values = [_setting("ID_COLUMN"), *header], np.insert(values, 0, np.arange(len(part)), axis=1)
        np.savetxt(path, values, fmt="%.6g", delimiter=",", header=",".join(header), comments="")
        path.chmod(0o600)


def as_wanted(federation: Federation, party: str) -> bool:
    """Whether this party's volume holds a sound kit of this federation."""
    try:
        loaded = kit.load(KITS / party)
    except SecfcError:
        return False
    return (loaded.party_name, loaded.federation) == (party, federation)


def finished(federation: Federation) -> bool:
    """Whether the server has finished the job it has a journal of, and every client has its labels."""
    state = KITS / "server" / "state"
    if not state.exists():
        return False
    journal = Journal(state, federation.agreed())
    try:
        kept = journal.kept()
        return all(f"done/{client}" in kept for client in federation.roster)
    finally:
        journal.close()


def make_kits(federation: Federation) -> None:
    """A fresh authority, of which nothing is kept, and every party's kit in its own volume."""
    for volume in KITS.iterdir():
        for path in volume.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with tempfile.TemporaryDirectory() as name:
        made = provision.provision(federation, Path(name) / "kits", passphrase=None)  # gone when the kits are copied
        for folder in made.kits:
            for path in folder.iterdir():
                shutil.copy2(path, KITS / folder.name / path.name)
    write_example(federation)


def new_job() -> None:
    """Keep what the last job wrote, then remove its state."""
    keep_results()
    for volume in KITS.iterdir():
        shutil.rmtree(volume / "state", ignore_errors=True)


def keep_results() -> None:
    """Move the results that are files (links lead to those kept before) to a folder named after the last one's time."""
    places = [OUT / volume.name / name for name in RESULTS for volume in sorted(KITS.iterdir())]
    files = [path for path in places if path.is_file() and not path.is_symlink()]
    if files:
        ended = datetime.fromtimestamp(max(path.stat().st_mtime for path in files), UTC)
        for path in files:
            _keep(path, f"{ended:%Y-%m-%d_%H%M%S}")


def _keep(path: Path, name: str) -> None:
    """Move one file and leave a link to it. We may not own it (the last step gives it to whoever owns ./out): renaming
    needs no right but the folder's."""
    names = (name, *(f"{name}-{i}" for i in range(2, 1000)))
    folder = next(path.parent / one for one in names if not (path.parent / one / path.name).exists())
    folder.mkdir(exist_ok=True)
    link = path.with_name(f".{path.name}.link")
    link.unlink(missing_ok=True)
    link.symlink_to(Path(folder.name, path.name))
    path.rename(folder / path.name)
    link.replace(path)


def main() -> int:
    try:
        federation = wanted()
        plan.of(federation)
        if not all(as_wanted(federation, party) for party in ("server", *federation.roster)):
            make_kits(federation)
            new_job()
            said = "new kits and example rows"
        elif finished(federation):
            new_job()
            said = "the kits are in order; a new job begins"
        else:
            said = "the kits are in order; an unfinished job goes on"
    except SecfcError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}; the last job's results are where they were\n")
        return 2
    terms = f"k = {federation.job.k}, privacy = {federation.privacy}, {federation.uploads} uploads"
    sys.stdout.write(f"{federation.n} clients, {terms}: {said}\n")
    if federation.uploads != DEFAULT:
        sys.stderr.write(f"warning: {MEANING[federation.uploads]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
