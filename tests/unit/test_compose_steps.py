"""The steps of `docker compose up` around the parties: nothing of a finished job is gone before its successor is there."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.agreement.uploads import MEANING
from secfc.protocol.effects import Put
from secfc_client import data
from secfc_server.journal import Journal
from tests.parties import make_federation

STEPS = Path(__file__).parents[2] / "deploy" / "compose"
PARTIES = ("server", "client-1", "client-2")


class Compose:
    """The volumes and ./out, and the steps as modules that work on them."""

    def __init__(self, folder: Path) -> None:
        self.kits, self.out = folder / "kits", folder / "out"
        self.provision, self.summary = self.step("provision"), self.step("summary")
        for party in PARTIES:
            (self.kits / party / "state").mkdir(parents=True)
            (self.out / party).mkdir(parents=True)

    def step(self, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"compose_{name}", STEPS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        vars(module).update(KITS=self.kits, OUT=self.out)
        return module

    def place(self, party: str) -> Path:
        return self.out / party / ("result.json" if party == "server" else "labels.csv")

    def write(self, job: str, *parties: str, when: int = 0) -> None:
        """As the parties do: a new file in place of whatever is there."""
        result = {"cluster_sizes": [1, 1], "state": "finished", "rounds": 3, "inertia": 1.0, "clients": 2, "job": job}
        for party in parties:
            new = self.place(party).with_suffix(".new")
            new.write_text(json.dumps(result) if party == "server" else job)
            os.utime(new, (when, when))
            new.replace(self.place(party))

    def read(self, path: Path) -> str:
        text = path.read_text()
        return str(json.loads(text)["job"]) if path.name == "result.json" else text

    def seen(self) -> dict[str, str]:
        """What stands at the usual places."""
        return {party: self.read(self.place(party)) for party in PARTIES if self.place(party).exists()}

    def kept(self) -> dict[str, list[str]]:
        """What is kept, by folder."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.out.glob("*/*/*")):
            found.setdefault(path.parent.name, []).append(f"{path.parts[-3]}: {self.read(path)}")
        return found


@pytest.fixture
def compose(tmp_path: Path) -> Compose:
    return Compose(tmp_path)


def test_a_new_job_keeps_the_results_of_the_last(compose: Compose) -> None:
    compose.write("one", *PARTIES, when=1_000_000_000)
    compose.provision.new_job()
    assert compose.seen() == dict.fromkeys(PARTIES, "one")  # still there, until the new ones are
    assert compose.kept() == {"2001-09-09_014640": ["client-1: one", "client-2: one", "server: one"]}
    assert not list(compose.kits.glob("*/state"))
    compose.write("two", "client-2", when=1_000_000_100)
    assert compose.seen() == {"server": "one", "client-1": "one", "client-2": "two"}
    assert compose.kept() == {"2001-09-09_014640": ["client-1: one", "client-2: one", "server: one"]}


def test_every_job_has_a_folder_of_its_own(compose: Compose) -> None:
    for number, job in enumerate(("one", "two", "three")):
        compose.write(job, *PARTIES, when=1_000_000_000 + number)
        compose.provision.new_job()
    assert [texts[0] for texts in compose.kept().values()] == ["client-1: one", "client-1: two", "client-1: three"]
    assert compose.seen() == dict.fromkeys(PARTIES, "three")


def test_a_half_written_job_does_not_replace_what_is_kept(compose: Compose) -> None:
    """Say the settings were changed before the second job was over; even if the clock stands still."""
    compose.write("one", *PARTIES, when=1_000_000_000)
    compose.provision.new_job()
    compose.write("two", "client-1", when=1_000_000_000)
    compose.provision.new_job()
    assert compose.kept() == {
        "2001-09-09_014640": ["client-1: one", "client-2: one", "server: one"],
        "2001-09-09_014640-2": ["client-1: two"],
    }


def test_nothing_to_keep(compose: Compose) -> None:
    compose.provision.new_job()
    assert compose.kept() == compose.seen() == {}


def test_cut_short_while_results_are_moved_nothing_is_lost(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    compose.write("one", *PARTIES, when=1_000_000_000)
    rename, left = Path.rename, [1]

    def failing(self: Path, target: Path) -> Path:
        if not left:
            raise OSError(28, "No space left on device", str(self))
        left.pop()
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="No space"):
            compose.provision.new_job()
    assert compose.seen() == dict.fromkeys(PARTIES, "one")
    assert len(list(compose.kits.glob("*/state"))) == 3  # so the next try finds the finished job again
    compose.provision.new_job()
    assert compose.kept() == {"2001-09-09_014640": ["client-1: one", "client-2: one", "server: one"]}


def test_an_earlier_jobs_labels_are_not_taken_for_this_ones(
    compose: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    compose.write("one", *PARTIES, when=1_000_000_000)
    assert compose.summary.main() == 0
    compose.provision.new_job()
    compose.write("two", "server", "client-1", when=1_000_000_100)
    capsys.readouterr()
    assert compose.summary.main() == 1
    said = capsys.readouterr()
    assert said.err == "error: no labels of client-2; see their logs\n"
    assert "out/client-1/labels.csv" in said.out
    assert "out/client-2/labels.csv" not in said.out
    assert "kept from an earlier job: out/*/2001-09-09_014640\n" in said.out


@pytest.mark.parametrize(("done", "over"), [(("c0", "c1", "c2"), True), (("c0", "c2"), False), ((), False)])
def test_a_job_is_over_when_all_clients_have_their_labels(compose: Compose, done: tuple[str, ...], over: bool) -> None:
    agreed = make_federation(3)
    journal = Journal(compose.kits / "server" / "state", agreed.agreed())
    journal.put([Put("state", b"some"), *(Put(f"done/{name}", b"") for name in done)])
    journal.close()
    assert compose.provision.finished(agreed) is over


def test_without_a_journal_no_job_is_over(compose: Compose) -> None:
    (compose.kits / "server" / "state").rmdir()
    assert compose.provision.finished(make_federation(3)) is False


def settings(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    lines = (STEPS.parents[1] / ".env").read_text().splitlines()
    pairs = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    for name, value in (pairs | changes).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("features", "names"), [("4", None), ("age, bmi", ("age", "bmi"))])
def test_a_number_of_features_or_their_names(
    compose: Compose, features: str, names: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch, FEATURES=features)
    made: Federation = compose.provision.wanted()
    assert made.job.feature_names == names
    assert federations.parse(federations.dumps(made), "") == made


def test_relayed_clients_have_no_address(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(monkeypatch, RELAY="only")
    made = compose.provision.wanted()
    assert made.relay == "only"
    assert {client.address for client in made.clients} == {""}


def test_columns_are_dealt_over_the_clients_and_rows_are_named(
    compose: Compose, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3, 6):
        (compose.kits / f"client-{number}").mkdir()
    settings(monkeypatch, SPLIT="columns", ID_COLUMN="person", FEATURES="7", ROWS="20")
    assert compose.provision.main() == 0, capsys.readouterr().err
    made = compose.provision.wanted()
    assert made.holders == made.roster
    assert [len(made.job.columns_of(name)) for name in made.roster] == [2, 2, 1, 1, 1]
    for name in made.roster:
        table = data.of_job(compose.kits / name / "rows.csv", made.job.of(name), "person", None)
        assert (len(table), table.ids.to_pylist()[:2]) == (20, ["0", "1"])


@pytest.mark.parametrize(
    ("value", "uploads"), [(None, "sealed"), ("", "sealed"), ("masked", "masked"), ("open", "open")]
)
def test_uploads_are_sealed_unless_the_settings_say_otherwise(
    compose: Compose, value: str | None, uploads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch, **({} if value is None else {"UPLOADS": value}))
    assert compose.provision.wanted().uploads == uploads


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SPLIT": "both"}, "SPLIT must be one of rows, columns, not 'both'; correct it in .env"),
        (
            {"SPLIT": "columns"},
            "SPLIT=columns needs ID_COLUMN, the column that names rows, say ID_COLUMN=id; set it in",
        ),
        (
            {"SPLIT": "columns", "ID_COLUMN": "id"},
            "SPLIT=columns deals FEATURES over 5 clients, and there are 4; name more",
        ),
        ({"RELAY": "maybe"}, "RELAY must be one of never, fallback, only, not 'maybe'; correct it in .env"),
        ({"UPLOADS": "hidden"}, "UPLOADS must be one of sealed, masked, open, not 'hidden'; correct it in .env"),
        (
            {"MAX_ROWS": "2000000"},
            "sealed uploads need m < 2²⁰ rows, not max_rows = 2000000; use max_rows = 1048575, or",
        ),
        ({"PRIVACY": "0"}, "sealed uploads need privacy >= 1; use privacy = 1 or uploads = 'open'"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(
    compose: Compose,
    changes: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings(monkeypatch, **changes)
    assert compose.provision.main() == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith(f"error: {words}")


def test_weaker_uploads_are_made_with_a_warning(
    compose: Compose, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3, 6):
        (compose.kits / f"client-{number}").mkdir()
    for uploads in ("sealed", "masked"):
        settings(monkeypatch, UPLOADS=uploads)
        assert compose.provision.main() == 0
        said = capsys.readouterr()
        assert f"privacy = 1, {uploads} uploads: new kits and example rows" in said.out
        assert said.err == ("" if uploads == "sealed" else f"warning: {MEANING['masked']}\n")
