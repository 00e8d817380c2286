"""`secfc check`: every line against real kits, ports, files and gRPC servers with mutual TLS on this machine."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.pki import authority as authorities
from secfc.pki import probe
from secfc.pki.provision import provision
from secfc_client.commands import check
from secfc_client.commands.checks import network, readiness
from tests import parties
from tests.unit.test_status import PATIENCE, Fake, make_federation, on_a_terminal, reply, serving

KIT = ["files", "key permissions", "key matches", "chain", "dates", "identity", "roster", "plan"]
SERVER = ["server name", "server port", "server tls", "server clock", "server accepted"]
ANSWER = ["server answers", "same federation"]
IDS = "whole numbers, all different: an ID?"
ROWS = "patient,x,y\np1,0.5,-1\np2,0.25,1\n"
TIMEOUT = ("--timeout", "10")  # nothing here waits for it, unless the machine is busy


@pytest.fixture
def federation() -> Federation:
    return make_federation()


@pytest.fixture
def kits(federation: Federation, tmp_path: Path) -> Path:
    return provision(federation, tmp_path / "kits").ca.parent


@pytest.fixture
def up(kits: Path, federation: Federation) -> Iterator[Fake]:
    """The server is up."""
    fake = Fake(reply(federation))
    with serving(kits / "server", fake):
        yield fake


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(check.command, ["--kit", str(folder), *TIMEOUT, *options])


def found(folder: Path, *options: str) -> dict[str, tuple[str, str]]:
    """Status and detail by name, from --json; the exit code and "ok" must fit, every detail is one line."""
    result = run(folder, "--json", *options)
    told = json.loads(result.stdout)
    assert set(told) == {"ok", "findings"}
    assert all(set(finding) == {"name", "status", "detail"} for finding in told["findings"])
    assert all(len(finding["detail"].splitlines()) == 1 for finding in told["findings"])
    failed = any(finding["status"] == "fail" for finding in told["findings"])
    assert told["ok"] is not failed
    assert result.exit_code == (1 if failed else 0)
    return {finding["name"]: (finding["status"], finding["detail"]) for finding in told["findings"]}


def failures(lines: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: detail for name, (status, detail) in lines.items() if status == "fail"}


@pytest.mark.usefixtures("up")
class TestClient:
    """A client's kit, and the server is up."""

    def test_everybody_is_up(self, kits: Path, tmp_path: Path) -> None:
        rows = tmp_path / "rows.csv"
        rows.write_text(ROWS)
        with serving(kits / "b"), serving(kits / "c"):
            lines = found(kits / "a", "--data", str(rows), "--id", "patient")
        data = ["data", *(f"column {name!r}" for name in ("patient", "x", "y")), "data bounds", "data rows"]
        assert list(lines) == [*KIT, "policy", *data, "own port", *SERVER, *ANSWER, "client b", "client c", "firewall"]
        assert {status for status, _ in lines.values()} == {"ok"}
        assert "days left" in lines["dates"][1]
        assert "phase joining, 1 of 3 clients have joined" in lines["server answers"][1]

    def test_clients_that_are_not_up_yet_are_warnings(self, kits: Path) -> None:
        with serving(kits / "c"):
            lines = found(kits / "a")
        assert failures(lines) == {}
        assert lines["client c"][0] == "ok"
        status, detail = lines["client b"]
        assert status == "warn"
        assert "a -> b not reachable yet" in detail
        assert "start it" in detail

    def test_a_client_of_another_provisioning_is_a_failure(
        self, kits: Path, federation: Federation, tmp_path: Path
    ) -> None:
        strange = provision(federation, tmp_path / "strange").ca.parent
        with serving(strange / "b"):
            failed = failures(found(kits / "a"))
        assert list(failed) == ["client b"]
        assert "another authority" in failed["client b"]

    def test_a_roster_that_is_missing_or_old_is_a_warning(self, kits: Path, federation: Federation) -> None:
        ca, roster = kits / "ca", kits / "a" / "roster.json"
        signer = authorities.load(ca, federation.name, lambda: "")
        authorities.revoke(signer, ca, federation.name, "c")
        roster.write_bytes((ca / "roster.json").read_bytes())
        status, detail = found(kits / "a")["roster"]
        assert (status, "none for c" in detail) == ("warn", True)
        roster.unlink()
        status, detail = found(kits / "a")["roster"]
        assert (status, "none can be revoked" in detail) == ("warn", True)

    def test_our_port_is_taken(self, kits: Path) -> None:
        with serving(kits / "a"):
            failed = failures(found(kits / "a"))
        assert list(failed) == ["own port"]
        assert "something (perhaps a running secfc-client) is listening on it" in failed["own port"]

    def test_another_federation_file(self, up: Fake, kits: Path, federation: Federation) -> None:
        up.answers.append(reply(federation, federation_digest=b"\1" * 32))
        up.answers.popleft()
        failed = failures(found(kits / "a"))
        assert list(failed) == ["same federation"]
        assert federation.agreed().hex()[:12] in failed["same federation"]

    @pytest.mark.parametrize(
        ("who", "what", "words"),
        [
            ({}, {"k": 3}, "differs from ours in [job] only (digest "),
            ({"dropouts": 1}, {}, "differs from ours in who takes part or in the guarantees, not in [job] (digest "),
            (
                {"dropouts": 1},
                {"k": 3},
                "differs from ours in [job], and in who takes part or in the guarantees (digest ",
            ),
        ],
    )
    def test_which_part_of_the_file_differs(
        self, up: Fake, kits: Path, federation: Federation, who: dict[str, int], what: dict[str, int], words: str
    ) -> None:
        other = dataclasses.replace(federation, **who, job=dataclasses.replace(federation.job, **what))
        up.answers.append(reply(federation, federation_digest=other.agreed(), job_digest=other.job.digest()))
        up.answers.popleft()
        assert words in failures(found(kits / "a"))["same federation"]

    def test_a_server_that_does_not_tell_its_digest(self, up: Fake, kits: Path, federation: Federation) -> None:
        up.answers.append(reply(federation, federation_digest=b""))
        up.answers.popleft()
        assert found(kits / "a")["same federation"][0] == "warn"

    @pytest.mark.parametrize("phase", ["finished", "failed"])
    def test_a_job_that_has_ended(self, up: Fake, kits: Path, federation: Federation, phase: str) -> None:
        up.answers.append(reply(federation, phase, reason="b is gone"))
        up.answers.popleft()
        status, detail = found(kits / "a")["server answers"]
        assert status == "warn"
        assert f"its job has {phase}; for a new one: secfc-server --new (reason: b is gone)" in detail

    def test_somebody_runs_under_our_name(self, up: Fake, kits: Path, federation: Federation) -> None:
        told = reply(federation)
        told.clients[0].connected = True
        up.answers.append(told)
        up.answers.popleft()
        assert found(kits / "a")["server answers"][0] == "warn"

    def test_the_service_refuses(self, up: Fake, kits: Path) -> None:
        up.answers.append(grpc.StatusCode.PERMISSION_DENIED)
        up.answers.popleft()
        lines = found(kits / "a")
        assert list(failures(lines)) == ["server answers"]
        assert "same federation" not in lines


class TestServerAway:
    """What a client sees of a server that cannot be used."""

    def test_down(self, kits: Path) -> None:
        failed = failures(found(kits / "a"))
        assert list(failed) == ["server port"]
        assert "start it" in failed["server port"]
        assert "the server must be up for this check" in failed["server port"]

    def test_of_another_authority(self, kits: Path, federation: Federation, tmp_path: Path) -> None:
        strange = provision(federation, tmp_path / "strange").ca.parent
        with serving(strange / "server", Fake(reply(federation))):
            failed = failures(found(kits / "a"))
        assert list(failed) == ["server tls"]
        assert "same provisioning" in failed["server tls"]

    def test_without_the_service(self, kits: Path) -> None:
        with serving(kits / "server"):
            failed = failures(found(kits / "a"))
        assert list(failed) == ["server answers"]

    def test_the_service_says_nothing(self, kits: Path) -> None:
        begin = time.monotonic()
        with serving(kits / "server", Fake(None)):
            failed = failures(found(kits / "a", "--timeout", "1"))
        assert list(failed) == ["server answers"]
        assert time.monotonic() - begin < PATIENCE / 2

    def test_name_does_not_resolve(self, kits: Path) -> None:
        file = kits / "a" / "federation.toml"
        federation = federations.load(file)
        file.write_text(file.read_text().replace(federation.server.address, "nowhere.invalid:7000"))
        failed = failures(found(kits / "a"))
        assert list(failed) == ["server name"]
        assert "nowhere.invalid does not resolve" in failed["server name"]

    def test_accepts_and_says_nothing(self, kits: Path, federation: Federation) -> None:
        with socket.create_server((federation.server.host, federation.server.port)):
            failed = failures(found(kits / "a", "--timeout", "0.5"))
        assert list(failed) == ["server tls"]

    def test_a_hanging_resolver_does_not_hold_up_the_check(self, kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "probe", lambda *_: time.sleep(PATIENCE))
        monkeypatch.setattr(network, "GRACE", 0.1)
        begin = time.monotonic()
        lines = found(kits / "a", "--timeout", "0.2")
        assert time.monotonic() - begin < PATIENCE / 2
        assert list(failures(lines)) == ["server"]
        assert lines["client b"][0] == lines["client c"][0] == "warn"
        assert "DNS probably hangs" in lines["client b"][1]


class TestKit:
    """Kits that are not in order: everything else that can be looked at is."""

    def test_expired(self, federation: Federation, tmp_path: Path) -> None:
        old = provision(federation, tmp_path / "old", days=10, now=datetime.now(UTC) - timedelta(days=20)).ca.parent
        lines = found(old / "a")
        assert list(failures(lines)) == ["dates"]
        assert "expired on" in lines["dates"][1]
        assert lines["plan"][0] == "ok"
        assert lines["network"][0] == "skip"

    def test_expires_soon(self, federation: Federation, tmp_path: Path) -> None:
        short = provision(federation, tmp_path / "short", days=10).ca.parent
        status, detail = found(short / "server")["dates"]
        assert status == "warn"
        assert "9 days left; ask whoever provisions the federation for a new kit" in detail

    def test_key_permissions(self, kits: Path) -> None:
        (kits / "a" / "key.pem").chmod(0o644)
        failed = failures(found(kits / "a"))
        assert list(failed) == ["key permissions"]
        assert "chmod 600" in failed["key permissions"]

    def test_another_partys_key(self, kits: Path) -> None:
        shutil.copy(kits / "b" / "key.pem", kits / "a" / "key.pem")
        assert list(failures(found(kits / "a"))) == ["key matches"]

    def test_empty_folder(self, tmp_path: Path) -> None:
        lines = found(tmp_path)
        assert {"files", "key permissions"} <= set(failures(lines))
        assert "plan" not in lines

    def test_no_folder(self, tmp_path: Path) -> None:
        assert run(tmp_path / "nowhere").exit_code == 2

    def test_a_plan_that_does_not_hold_together(self, tmp_path: Path) -> None:
        federation = make_federation(privacy=2)
        kits = provision(federation, tmp_path / "kits").ca.parent
        failed = failures(found(kits / "server"))
        assert list(failed) == ["plan"]
        assert "use t = 1 or 5 clients" in failed["plan"]


class TestPolicy:
    """A site's own rules."""

    def test_none(self, kits: Path) -> None:
        assert found(kits / "a")["policy"] == ("ok", "no policy.toml: the defaults; federation.toml fits")

    def test_rules_that_fit(self, kits: Path) -> None:
        (kits / "a" / "policy.toml").write_text('uploads = ["sealed"]\nmax_directions = 5\n')
        assert found(kits / "a")["policy"] == ("ok", 'uploads = ["sealed"], max_directions = 5; federation.toml fits')

    def test_rules_that_do_not_fit(self, kits: Path, tmp_path: Path) -> None:
        own = tmp_path / "strict.toml"
        own.write_text("least_privacy = 3\nsmallest_cluster = 5\n")
        status, detail = found(kits / "a", "--policy", str(own))["policy"]
        assert status == "fail"
        assert "least_privacy = 3, but privacy = 1" in detail
        assert "asks for distances to single rows; it needs 1" in detail

    def test_a_file_that_is_wrong(self, kits: Path) -> None:
        (kits / "a" / "policy.toml").write_text("max_request = 5\n")
        status, detail = found(kits / "a")["policy"]
        assert status == "fail"
        assert "unknown key 'max_request'; did you mean \"max_requests\"?" in detail

    def test_the_server_has_none(self, kits: Path, tmp_path: Path) -> None:
        result = run(kits / "server", "--policy", str(tmp_path / "policy.toml"))
        assert result.exit_code == 2
        assert "only clients have a policy" in result.output


class TestServer:
    """The server's kit."""

    def test_in_order(self, kits: Path) -> None:
        lines = found(kits / "server")
        assert list(lines) == [*KIT, "own port", "client a", "client b", "client c", "firewall"]
        assert {status for status, _ in lines.values()} == {"ok"}

    @pytest.mark.usefixtures("up")
    def test_port_is_taken(self, kits: Path) -> None:
        assert "perhaps a running secfc-server" in failures(found(kits / "server"))["own port"]

    def test_bind_is_not_ours(self, kits: Path) -> None:
        file = kits / "server" / "federation.toml"
        bind = federations.load(file).server.bind
        file.write_text(file.read_text().replace(f'bind = "{bind}"', 'bind = "192.0.2.1:7000"'))
        assert "not this machine's" in failures(found(kits / "server"))["own port"]

    def test_a_clients_name_does_not_resolve(self, kits: Path) -> None:
        file = kits / "server" / "federation.toml"
        address = federations.load(file).client("b").address
        file.write_text(file.read_text().replace(f'address = "{address}"', 'address = "nowhere.invalid:7000"'))
        lines = found(kits / "server")
        assert failures(lines) == {}
        assert lines["client b"][0] == "warn"

    def test_it_holds_no_rows(self, kits: Path) -> None:
        result = run(kits / "server", "--data", "rows.csv")
        assert result.exit_code == 2
        assert "holds no rows" in result.output


class TestData:
    """Rows; nothing else matters here, so the kit may be without a server."""

    def lines(self, kits: Path, content: str, *options: str) -> dict[str, tuple[str, str]]:
        file = kits / "rows.csv"
        file.write_text(content)
        lines = found(kits / "a", "--data", str(file), *options)
        return {name: line for name, line in lines.items() if name.startswith(("data", "column"))}

    def test_in_order(self, kits: Path) -> None:
        lines = self.lines(kits, ROWS, "--features", "x, y")
        assert {status for status, _ in lines.values()} == {"ok"}
        assert "2 rows, 2 features: x, y" in lines["data"][1]
        assert lines["column 'x'"][1] == "number  0.25 to 0.5  2 distinct  0 missing  feature"
        assert lines["column 'patient'"][1] == "text                 2 distinct  0 missing  kept, not used"

    def test_what_the_table_of_columns_warns_about(self, kits: Path) -> None:
        rows = "".join(f"{i},{i % 2},2024-01-{i + 1:02},5,p{i}\n" for i in range(20))
        lines = self.lines(kits, "x,y,day,one,who\n" + rows, "--id", "who")
        assert lines["column 'x'"] == ("warn", "number        0 to 19  20 distinct  0 missing  feature         " + IDS)
        assert lines["column 'y'"][1].endswith("feature         few values")
        assert lines["column 'day'"][1].startswith("date or time  ")
        assert lines["column 'one'"] == (
            "ok",
            "number        5 to 5    1 distinct  0 missing  kept, not used  constant",
        )
        assert lines["column 'who'"][1].endswith("id")

    def test_columns_that_are_not_used_are_not_all_shown(self, kits: Path) -> None:
        lines = self.lines(kits, "x,y," + ",".join(f"c{i}" for i in range(40)) + "\n" + ",".join("1" * 42) + "\n")
        assert sum(name.startswith("column '") for name in lines) == 2 + 30
        assert lines["columns"][1] == "10 more, which are kept and not used"

    def test_one_column_that_decides_alone(self, kits: Path) -> None:
        lines = self.lines(kits, "x,y\n" + "".join(f"{i % 2},{i % 3 / 1000}\n" for i in range(30)))
        assert lines["data scale"][0] == "warn"
        assert "x carries 100.0 % of the variance" in lines["data scale"][1]

    def test_another_order_than_agreed(self, kits: Path) -> None:
        lines = self.lines(kits, ROWS, "--features", "y, x")
        assert lines["data"][0] == "fail"
        assert "in another order than the features of federation.toml, 'x', 'y'" in lines["data"][1]

    def test_out_of_bounds(self, kits: Path) -> None:
        lines = self.lines(kits, "x,y\n0.5,0.5\n0.5,7.25\n")
        assert list(failures(lines)) == ["data bounds"]
        assert "data row 2, column 'y'" in lines["data bounds"][1]
        assert "7.25" not in lines["data bounds"][1]

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [("x,z\n1,1\n", "there is no column 'y'"), ("x,y\n1,nan\n", "the value is missing"), ("x,y\n1,\n", "missing")],
    )
    def test_unusable(self, kits: Path, content: str, complaint: str) -> None:
        lines = self.lines(kits, content)
        assert list(lines) == ["data", "column 'x'", f"column '{content[2]}'"]
        assert list(failures(lines)) == ["data"]
        assert complaint in failures(lines)["data"]

    def test_a_file_whose_columns_cannot_be_told_apart(self, kits: Path) -> None:
        assert list(self.lines(kits, "x,y,x\n1,1,1\n")) == ["data"]

    def test_missing_file(self, kits: Path) -> None:
        assert "cannot be opened" in failures(found(kits / "a", "--data", "nowhere.csv"))["data"]

    def test_too_many_rows(self, kits: Path) -> None:
        failed = failures(self.lines(kits, "x,y\n" + "0,0\n" * 11))
        assert "11 rows, but max_rows = 10" in failed["data rows"]

    def test_columns_that_are_too_coarse_or_have_few_values_are_warnings(self, kits: Path) -> None:
        """Yes/no features, and a deviation of a few quantisation steps: the numbers are told, nothing fails."""
        lines = self.lines(kits, "x,y\n" + "".join(f"{j % 2},{0.001 * j:.3f}\n" for j in range(8)))
        assert failures(lines) == {}
        assert lines["data values"][0] == lines["data precision"][0] == "warn"
        assert (
            "x (2); with sealed uploads the server together with a member of the committee can"
            in lines["data values"][1]
        )
        assert re.search(r"is too coarse for y \(0\.\d+\): .* agree on precision = 12 ", lines["data precision"][1])

    def test_no_rows(self, kits: Path) -> None:
        assert self.lines(kits, "x,y\n")["data rows"][0] == "warn"

    def test_columns_without_a_file(self, kits: Path) -> None:
        assert run(kits / "a", "--id", "patient").exit_code == 2

    def test_rows_are_looked_at_even_if_the_kit_is_broken(self, kits: Path) -> None:
        (kits / "a" / "key.pem").chmod(0o644)
        assert self.lines(kits, ROWS, "--id", "patient")["data"][0] == "ok"


def test_plain_output_is_one_line_a_check(up: Fake, kits: Path) -> None:
    result = run(kits / "a")
    lines = result.stdout.splitlines()
    assert "\x1b" not in result.stdout
    assert all(line.split()[0] in ("ok", "WARN") for line in lines[:-1])
    assert lines[-1] == "ready, with 2 warnings: nothing failed"
    assert result.exit_code == 0


def test_plain_output_of_a_failure(kits: Path) -> None:
    result = run(kits / "a")
    assert result.exit_code == 1
    assert [line for line in result.stdout.splitlines() if line.startswith("FAIL  server port")]
    assert "1 of 18 checks failed, 2 warnings" in result.stdout.splitlines()[-1]


def test_on_a_terminal_it_is_coloured_and_folds(kits: Path) -> None:
    code, seen = on_a_terminal("check", "--kit", str(kits / "a"), columns=60)
    assert code == 1
    assert "\x1b[1;31mFAIL" in seen
    assert "\x1b[32mok" in seen


def test_columns_at_different_sites(tmp_path: Path) -> None:
    """A holder is told what it brings, and looked at for that alone; a helper brings nothing."""
    held = {"x": {"holder": "c0"}, "y": {"holder": "c1"}}
    made = parties.make_federation(3, split="columns", features=held)
    (rows := tmp_path / "rows.csv").write_text("patient,x\np1,0.5\np2,0.25\n")
    own, nameless = readiness.Data(rows, "patient", None), readiness.Data(rows, None, None)
    told = [
        readiness._columns(made, name, data)
        for name, data in (("c0", own), ("c0", nameless), ("c2", None), ("c2", own))
    ]
    assert [one.status for one in told] == ["ok", "fail", "ok", "fail"]
    assert "holds x; rows are those that c0, c1 all have" in told[0].detail
    assert "give --id COLUMN too" in told[1].detail
    assert "only computes for c0, c1" in told[2].detail
    lines = {one.name: one for one in readiness._data(made, made.job.of("c0"), own)}
    assert "2 rows, 1 features: x" in lines["data"].detail
    assert not [name for name, one in lines.items() if one.status == "fail"]
