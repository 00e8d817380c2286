"""Files that a bad disk, a bad editor or an enemy has been at: loaded, or refused in one line; never a crash or a hang."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import tempfile
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

from secfc import local
from secfc.agreement import federation as federations
from secfc.agreement import job, plan
from secfc.errors import ConfigError, DataError, SecfcError
from secfc.pki import kit
from secfc.pki.provision import provision
from secfc.protocol.effects import Effects, Put, Started
from secfc.protocol.server.coordinator import Coordinator
from secfc_client import data
from secfc_client.commands.checks import columntable
from secfc_client.datasets import description, formats
from secfc_client.store import Store
from secfc_server.journal import FILE, Journal
from tests.fuzz.hostile import damaged
from tests.fuzz.trial import Trial

EXAMPLES = int(os.environ.get("SECFC_FUZZ", "15"))
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


AGREED = local.describe(3, k=3, privacy=1, max_rows=64, features=3, bound=32.0, precision=0)
TOML = federations.dumps(AGREED).encode()


@calm
@given(st.one_of(damaged(TOML), st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_federation_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(content)
    found = tried(lambda: federations.load(path))
    if found is not None:
        tried(lambda: plan.of(found))
        assert federations.parse(federations.dumps(found), "again") == found


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
        federations.parse(SLOW_TOML[what], "federation.toml")
    assert time.process_time() - started < HANG


def test_dots_where_they_belong_are_no_offence() -> None:
    names = [f"a.{j}.b.c" for j in range(100)]
    listed = f"features = {names}  # {'.' * 100}".replace("'", '"')
    text = re.sub(r"^features = .*$", lambda _: listed, TOML.decode(), flags=re.MULTILINE)
    assert federations.parse(text, "x").job.features == 100


KIT_FILES = ["federation.toml", "ca.pem", "cert.pem", "key.pem", "roster.json"]


@cache
def kits_folder(folder: Path) -> Path:
    return provision(AGREED, folder / "kits").ca.parent


@calm
@given(st.data())
def test_kits(tmp_path: Path, data: st.DataObject) -> None:
    whole = kits_folder(tmp_path) / "client-1"
    spoiled = tmp_path / "spoiled"
    shutil.rmtree(spoiled, ignore_errors=True)
    shutil.copytree(whole, spoiled)
    for name in data.draw(st.sets(st.sampled_from(KIT_FILES), min_size=1)):
        content = (whole / name).read_bytes()
        (spoiled / name).write_bytes(data.draw(st.one_of(damaged(content), st.binary(max_size=100))))
    found = tried(lambda: kit.load(spoiled))
    assert found is None or found.party_name == "client-1"
    assert all(finding.detail.isprintable() for finding in kit.findings(spoiled))


# --- a client's rows -----------------------------------------------------------------------------------------------------


def csv_file() -> bytes:
    return b'id,a,b\n1,2.5,-3\n"x,y",4,5e3\n007,0.1,"7"\n'


def parquet_file(**options: Any) -> bytes:
    table = pa.table({"a": np.linspace(0, 1, 200), "b": np.arange(200), "note": ["x", None] * 100})
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def arrow_file() -> bytes:
    words = pa.array(["x", None, "y"] * 20)
    table = pa.table(
        {"a": pa.array([None, 1, 2] * 20), "b": ["1.5", None, "2"] * 20, "note": words.dictionary_encode()}
    )
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=25)
    return out.getvalue()


FILES = {
    "x.csv": csv_file(),
    "semicolons.csv": b'id;a;b;note\r\n1;2,5;-3;"x;y"\r\n2;NA;5e3;\r\n007;0,1;"7";x\r\n',
    "x.arrow": arrow_file(),
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
    tried(lambda: description.suggested(path, formats.read(path)))
    tried(lambda: columntable.verdicts(path, formats.read(path), JOB, "id"))


def load(path: Path) -> data.Table:
    return data.load(path, feature_count=2, feature_names=("a", "b"), missing="drop")


JOB = job.parse('k = 1\nmax_rows = 9\nbound = 9.0\nfeatures = ["a", "b"]\n', "x")


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
    rows, words = np.arange(6).reshape(2, 3), bytes(range(72))
    shutil.rmtree(tmp_path)
    store = Store(tmp_path)
    before = store.secrets(bytes(32), rows)
    key = f"shares/c1/{bytes(16).hex()}"
    store.put([Put(key, words)])
    name = data.draw(st.sampled_from(["secrets.json", "c1.shares"]))
    whole = (tmp_path / name).read_bytes()
    spoiled = data.draw(st.one_of(damaged(whole), st.binary(max_size=200)))
    (tmp_path / name).write_bytes(spoiled)
    again = Store(tmp_path)
    secrets = tried(lambda: again.secrets(bytes(32), rows))
    assert len(secrets.seed) == 32
    if name == "c1.shares":
        assert secrets.seed == before.seed
        kept = tried(lambda: again.get(key))
        assert kept == (words if spoiled == whole else None)


NOTES = ("joined", "written", "revealed", "past", "given")


@calm
@given(st.data())
def test_what_a_client_has_noted(tmp_path: Path, data: st.DataObject) -> None:
    """A note that is damaged is refused, and never taken for another or for none."""
    shutil.rmtree(tmp_path)
    store = Store(tmp_path)
    store.secrets(bytes(32), np.arange(6).reshape(2, 3))
    name = data.draw(st.sampled_from(NOTES))
    store.put([Put(name, b"a note")])
    whole = (tmp_path / name).read_bytes()
    spoiled = data.draw(st.one_of(damaged(whole), st.binary(max_size=200)))
    (tmp_path / name).write_bytes(spoiled)
    kept = tried(Store(tmp_path).kept)
    assert kept == ({name: b"a note"} if spoiled == whole else None)


class Kept(Trial):
    """A job whose server's machine keeps what it wants kept."""

    def __init__(self, folder: Path, agreed: bytes) -> None:
        self._journal = Journal(folder, agreed)
        super().__init__()

    def _carry_out(self, name: str, effects: Effects) -> None:
        if name == federations.SERVER and effects.keep:
            self._journal.put(effects.keep)
        super()._carry_out(name, effects)

    def close(self) -> None:
        self._journal.close()  # checkpoints: all is in the one file


@cache
def journalled() -> tuple[bytes, list[int]]:
    """The journal of a job after its fourth request, and its assignment then."""
    with tempfile.TemporaryDirectory() as name:
        job = Kept(Path(name), AGREED.agreed())
        while len(job.server.snapshot(job.now).records) < 4:
            assert not job.over
            job.step()
        job.close()
        outcome = job.server.snapshot(job.now).outcome
        assert outcome is not None
        return (Path(name) / FILE).read_bytes(), outcome.labels.tolist()


def resumed(folder: Path) -> Coordinator:
    """As the server starts."""
    journal = Journal(folder, AGREED.agreed())
    try:
        server = Trial().make_server(journal.kept())
        server.handle(Started(), 0.0)
        return server
    finally:
        journal.close()


def labels_of(server: Coordinator) -> list[int] | None:
    outcome = server.snapshot(0.0).outcome
    return None if outcome is None else outcome.labels.tolist()


def test_a_whole_journal_goes_on(tmp_path: Path) -> None:
    content, labels = journalled()
    (tmp_path / FILE).write_bytes(content)
    assert labels_of(resumed(tmp_path)) == labels


@calm
@given(st.data())
def test_journals(tmp_path: Path, data: st.DataObject) -> None:
    Journal.remove(tmp_path)
    content, labels = journalled()
    (tmp_path / FILE).write_bytes(data.draw(damaged(content)))
    server = tried(lambda: resumed(tmp_path))
    if server is not None:
        assert labels_of(server) in (None, labels), "damaged labels are never gone on with"


VALUES = st.one_of(
    st.binary(max_size=50), st.text(max_size=50), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False)
)


@calm
@given(value=VALUES, data=st.data())
def test_values_of_a_journal(tmp_path: Path, value: Any, data: st.DataObject) -> None:
    Journal.remove(tmp_path)
    (tmp_path / FILE).write_bytes(journalled()[0])
    journal = Journal(tmp_path, AGREED.agreed())
    key = data.draw(st.sampled_from(sorted(journal.kept())))
    journal._database.execute("UPDATE kept SET value = ? WHERE key = ?", (value, key))
    journal.close()
    assert tried(lambda: resumed(tmp_path)) is None


@calm
@given(data=st.data())
def test_journals_that_lack_something(tmp_path: Path, data: st.DataObject) -> None:
    """Gone on with from where all is known, or refused; never from something else."""
    Journal.remove(tmp_path)
    content, labels = journalled()
    (tmp_path / FILE).write_bytes(content)
    journal = Journal(tmp_path, AGREED.agreed())
    keys = sorted(set(journal.kept()) - {"version", "agreed"})
    for key in data.draw(st.sets(st.sampled_from(keys), min_size=1)):
        journal._database.execute("DELETE FROM kept WHERE key = ?", (key,))
    journal.close()
    server = tried(lambda: resumed(tmp_path))
    if server is not None:
        assert labels_of(server) in (None, labels)
