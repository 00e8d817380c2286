"""Files that a bad disk, a bad editor or an enemy has been at: loaded, or refused in one line; never a crash or a hang."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc import config, kit, plan
from secfc.errors import ConfigError, DataError, SecfcError
from secfc.lloyd import State
from secfc.provision import provision
from secfc_client import data
from secfc_client.store import Store
from secfc_server.coordinator import Coordinator
from secfc_server.journal import FILE, Journal
from secfc_server.rounds import RoundRecord
from tests.fuzz.hostile import damaged
from tests.protocol.joined import deal, introduce, make_federation, strangers, verifier

EXAMPLES = int(os.environ.get("SECFC_FUZZ", "25"))
calm = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
HANG = 20.0  # seconds of the processor, however busy the machine is; each of these takes far less


def tried(call: Callable[[], Any]) -> Any:
    """What it returns, or None for a refusal of one line. Anything else fails the test."""
    started = time.process_time()
    try:
        return call()
    except SecfcError as error:
        assert str(error).isprintable(), ascii(str(error))  # noqa: PT017
        return None
    finally:
        assert time.process_time() - started < HANG


# --- what every party has ---------------------------------------------------------------------------------------------


TOML = config.dumps(make_federation(3)).encode()


@calm
@given(st.one_of(damaged(TOML), st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_federation_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(content)
    found = tried(lambda: config.load(path))
    if found is not None:
        tried(lambda: plan.of(found))
        assert config.parse(config.dumps(found), "again") == found


SLOW_TOML = {
    "a key of dots": "a." * 60_000 + "a = 1",
    "a quoted key of dots": '"a".' * 60_000 + "a = 1",
    "a table of dots": f"[{'a.' * 60_000}a]",
    "an inline key of dots": f"x = {{{'a . ' * 60_000}a = 1}}",
    "brackets": "x = " + "[" * 200_000,
    "digits": "k = " + "1" * 500_000,
    "tables": "[[client]]\n" * 50_000,
    "quotes": '"' * 500_000,
    "escapes": 'x = "' + "\\" * 500_000,
}


@pytest.mark.parametrize("what", SLOW_TOML)
def test_federation_files_that_a_parser_may_choke_on(what: str) -> None:
    started = time.process_time()
    with pytest.raises(ConfigError):
        config.parse(SLOW_TOML[what], "federation.toml")
    assert time.process_time() - started < HANG


def test_dots_where_they_belong_are_no_offence() -> None:
    names = [f"a.{j}.b.c" for j in range(100)]
    text = TOML.decode().replace("features = 3", f"features = {names}  # {'.' * 100}".replace("'", '"'))
    assert config.parse(text, "x").features == 100


KIT_FILES = ["federation.toml", "ca.pem", "cert.pem", "key.pem", "roster.json"]


@cache
def kits_folder(folder: Path) -> Path:
    return provision(make_federation(3), folder / "kits").ca.parent


@calm
@given(st.data())
def test_kits(tmp_path: Path, data: st.DataObject) -> None:
    whole = kits_folder(tmp_path) / "c1"
    spoiled = tmp_path / "spoiled"
    shutil.rmtree(spoiled, ignore_errors=True)
    shutil.copytree(whole, spoiled)
    for name in data.draw(st.sets(st.sampled_from(KIT_FILES), min_size=1)):
        content = (whole / name).read_bytes()
        (spoiled / name).write_bytes(data.draw(st.one_of(damaged(content), st.binary(max_size=100))))
    found = tried(lambda: kit.load(spoiled))
    assert found is None or found.party_name == "c1"
    assert all(finding.detail.isprintable() for finding in kit.findings(spoiled))


# --- a client's rows -----------------------------------------------------------------------------------------------------


def csv_file() -> bytes:
    return b'id,a,b\n1,2.5,-3\n"x,y",4,5e3\n007,0.1,"7"\n'


def parquet_file(**options: Any) -> bytes:
    table = pa.table({"a": np.linspace(0, 1, 200), "b": np.arange(200), "note": ["x", None] * 100})
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


FILES = {
    "x.csv": csv_file(),
    "x.tsv": csv_file().replace(b",", b"\t"),
    "x.csv.gz": gzip.compress(csv_file()),
    "x.parquet": parquet_file(),
    "y.parquet": parquet_file(compression="gzip", row_group_size=50, use_dictionary=False),
}


@pytest.mark.parametrize("name", FILES)
@calm
@given(st.data())
def test_rows(tmp_path: Path, name: str, data: st.DataObject) -> None:
    path = tmp_path / name
    path.write_bytes(data.draw(damaged(FILES[name])))
    found = tried(lambda: load(path))
    if found is not None:
        assert np.isfinite(found.features).all()


def load(path: Path) -> data.Table:
    return data.load(path, feature_count=2, feature_names=("a", "b"))


SLOW_CSV = {
    "a name of digits": "1" * 300_000 + "x\n1\n",
    "a name of spaces": " " * 300_000 + "1.x\n1\n",
    "one name twice, late": ",".join(f"c{j}" for j in range(60_000)) + ",c59999\n",
    "quotes": '"' * 300_000,
    "ragged rows": "a,b\n" + "1\n" * 60_000,
    "a long number": "a,b\n" + "1" * 300_000 + ".5e" + "9" * 100_000 + ",1\n",
    "blank lines": "\n" * 300_000,
    "no end": "a,b\n" + '1,"' + "2" * 300_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SLOW_CSV)
def test_rows_that_a_parser_may_choke_on(tmp_path: Path, what: str) -> None:
    (tmp_path / "x.csv").write_text(SLOW_CSV[what])
    started = time.process_time()
    with pytest.raises(DataError):
        load(tmp_path / "x.csv")
    assert time.process_time() - started < HANG


# --- what is kept between two starts ----------------------------------------------------------------------------------------


@calm
@given(st.data())
def test_a_clients_state(tmp_path: Path, data: st.DataObject) -> None:
    """Secrets that are whole are taken, any others replaced; shares that are not whole are not there."""
    rows, words = np.arange(6).reshape(2, 3), np.arange(9, dtype=np.uint64)
    store = Store(tmp_path)
    store.clear()
    before = store.secrets(bytes(32), rows)
    store.keep_shares(bytes(32), "c1", words)
    name = data.draw(st.sampled_from(["secrets.json", "c1.shares"]))
    whole = (tmp_path / name).read_bytes()
    spoiled = data.draw(st.one_of(damaged(whole), st.binary(max_size=200)))
    (tmp_path / name).write_bytes(spoiled)
    again = Store(tmp_path)
    secrets = tried(lambda: again.secrets(bytes(32), rows))
    assert len(secrets.seed) == 32
    if name == "c1.shares":
        assert secrets.seed == before.seed
        kept = tried(lambda: again.shares(bytes(32), "c1", len(words)))
        assert (kept is not None) == (spoiled == whole)


AGREED = make_federation(3)


def written(folder: Path) -> None:
    """The journal of a job in its third round."""
    journal = Journal(folder, AGREED.digest())
    journal.begin()
    machines = strangers(AGREED, deal(1, [3, 4, 5]))
    journal.joined(tuple(map(introduce, machines)))
    for machine in machines:
        journal.revealed(machine.name, machine._secrets.coin)
    for number in (1, 2):
        labels = np.array([0, 1, 2] * 4, dtype=np.int32)
        record = RoundRecord(number, "lloyd", 1, (0, 1, 2), 3, 4, 2.5, 0.1, 0.1, 0.1, 0.1, 0.1, 99)
        journal.advanced(State("lloyd", number + 1, number, False, labels), record)
    journal.done("c1")
    journal.close()  # checkpoints: all is in the one file


def resumed(folder: Path) -> Coordinator:
    """As the server starts."""
    journal = Journal(folder, AGREED.digest())
    try:
        kept = journal.begin()
        server = Coordinator(AGREED, plan.of(AGREED), verifier(AGREED))
        server.resume(
            kept.introductions,
            kept.done,
            kept.state,
            kept.records,
            kept.epoch - 1,
            0.0,
            leakage=kept.leakage,
            coins=kept.coins,
            liars=kept.liars,
        )
        return server
    finally:
        journal.close()


@calm
@given(st.data())
def test_journals(tmp_path: Path, data: st.DataObject) -> None:
    Journal.remove(tmp_path)
    written(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    server = tried(lambda: resumed(tmp_path))
    if server is not None and server.rounds is not None:
        assert server.rounds.clustering.labels.tolist() == [0, 1, 2] * 4, "damaged labels are never gone on with"


@calm
@given(
    table=st.sampled_from(["facts", "members", "rounds", "state"]),
    value=st.one_of(
        st.binary(max_size=50), st.text(max_size=50), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False)
    ),
)
def test_values_of_a_journal(tmp_path: Path, table: str, value: Any) -> None:
    Journal.remove(tmp_path)
    written(tmp_path)
    columns = {"facts": "value", "members": "introduction", "rounds": "record", "state": "labels"}
    journal = Journal(tmp_path, AGREED.digest())
    journal._database.execute(f"UPDATE {table} SET {columns[table]} = ?", (value,))
    journal.close()
    assert tried(lambda: resumed(tmp_path)) is None
