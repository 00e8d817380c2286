"""What `secfc-client` says and refuses before it joins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from click.testing import CliRunner

from secfc import local
from secfc.agreement.features import Feature
from secfc.coding import kernels
from secfc.errors import ConfigError, InvalidInput, SecfcError, Unavailable
from secfc.lock import Lock
from secfc.pki import provision
from secfc.protocol.effects import Put
from secfc_client.__main__ import command
from secfc_client.commands import budget
from secfc_client.store import Store


class Joining(Exception):
    """The client has looked at everything and would join now."""


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def joining(**_: bool) -> NoReturn:
        raise Joining

    monkeypatch.setattr(kernels, "warm", joining)
    made = local.describe(3, k=2, privacy=1, max_rows=9, features=2, bound=1.0, precision=4)
    provision.provision(made, tmp_path / "kits")
    return tmp_path / "kits" / "client-1"


def start(kit: Path, rows: str, *options: str) -> None:
    (kit / "rows.csv").write_text(rows)
    files = ["--kit", str(kit), "--data", str(kit / "rows.csv"), "--out", str(kit / "labels.csv")]
    command.main([*files, *options], standalone_mode=False)


ROWS = "x2,x1\n0.25,0.5\n"


def said(kit: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(Joining):
        start(kit, ROWS, *options)
    return capsys.readouterr().err


def test_without_a_policy_the_log_says_so(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no policy.toml in the kit  rules=the defaults\n" in said(kit, capsys)
    assert 'rules=open_centers = "clients"\n' in said(kit, capsys, "--open-centers", "clients")


def test_the_log_says_which_rules_hold(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kit / "policy.toml").write_text("max_requests = 60\nsmallest_cluster = 1\n")
    assert f"policy in force  file={kit}/policy.toml  rules=max_requests = 60\n" in said(
        kit, capsys, "--require-policy"
    )
    (kit / "policy.toml").write_text("")
    assert f"policy in force  file={kit}/policy.toml  rules=the defaults\n" in said(kit, capsys, "--require-policy")


def test_an_output_file_that_is_somebody_elses_is_replaced(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `docker compose up`, which gives the labels to whoever owns ./out: only the folder must be ours."""
    for name in ("labels.csv", "centers.csv"):
        (kit / name).write_text("an earlier job's")
    access = os.access
    unreadable = {str(kit / "labels.csv"), str(kit / "centers.csv")}
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) not in unreadable and access(path, mode))
    with pytest.raises(Joining):
        start(kit, ROWS, "--centers", str(kit / "centers.csv"))


def test_a_required_policy(kit: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.toml: there is no such file, and --require-policy asks for one"):
        start(kit, ROWS, "--require-policy")


def test_rules_that_cannot_fit_are_told_before_joining(kit: Path) -> None:
    (kit / "strict.toml").write_text("least_privacy = 2\n")
    reason = r"policy\.toml does not allow this federation\.toml: least_privacy = 2, but privacy = 1"
    with pytest.raises(ConfigError, match=f"^{reason}$"):
        start(kit, ROWS, "--policy", str(kit / "strict.toml"))


def test_columns_that_are_too_coarse_or_have_few_values_are_told_before_joining(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "x1,x2\n" + "".join(f"{j % 2},{0.001 * j}\n" for j in range(8))
    with pytest.raises(Joining):
        start(kit, rows)
    said = capsys.readouterr().err
    assert "precision = 4 is too coarse for x2 (0.037): standard deviation" in said
    assert "few distinct values: x1 (2); with masked uploads the server can compute" in said


def test_the_log_names_the_features_in_the_agreed_order(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "features  columns=x1,x2\n" in said(kit, capsys)


def test_a_second_client_with_the_same_state_is_told_so_and_touches_nothing(kit: Path) -> None:
    """With --new it would have removed the secrets and shares of a job under way."""
    store = Store(kit / "state")
    store.secrets(bytes(32), np.zeros((2, 2), dtype=np.int64))
    store.put([Put("joined", b"")])
    before = {path: path.read_bytes() for path in (kit / "state").iterdir()}
    lock = Lock(kit / "state", "secfc-client")
    for options in ((), ("--new",)):
        with pytest.raises(Unavailable, match="another secfc-client runs with this state"):
            start(kit, ROWS, *options)
    done = CliRunner().invoke(budget.command, ["--kit", str(kit), "--reset", "--yes"])
    assert "another secfc-client runs with this state" in str(done.exception)
    assert {path: path.read_bytes() for path in before} == before
    lock.release()
    with pytest.raises(Joining):
        start(kit, ROWS)


# --- columns at different sites -------------------------------------------------------------------------------------------


@pytest.fixture
def split(tmp_path: Path, kit: Path) -> Path:
    """Kits of two holders and a helper."""
    agreed = (Feature("x1", holder="client-1"), Feature("x2", holder="client-2"))
    shape = {"max_rows": 9, "features": 2, "bound": 1.0, "precision": 4}
    made = local.describe(3, k=2, privacy=1, split="columns", agreed=agreed, **shape)
    provision.provision(made, tmp_path / "split")
    return tmp_path / "split"


OWN = "person,x1\nann,0.5\nbob,0.25\n"


def test_a_holder_brings_its_own_columns_and_a_helper_no_files(split: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Joining):
        start(split / "client-1", OWN, "--id", "person")
    with pytest.raises(Joining):
        command.main(["--kit", str(split / "client-3")], standalone_mode=False)
    assert "holds no column and only computes for others  holders=client-1,client-2" in capsys.readouterr().err
    assert not (split / "client-3" / "link.key").exists()


@pytest.mark.parametrize(
    ("rows", "options", "complaint"),
    [
        (OWN, [], "needs --id COLUMN, the column that names rows"),
        (OWN, ["--id", "person", "--publish-ids"], "every holder has every row, so there is nothing to publish"),
        (
            "person,x1\nann,0.5\nann,0.25\n",
            ["--id", "person"],
            "the same id in column 'person' occurs in data rows 1 and 2",
        ),
        ("person,x1\nann,0.5\n,0.25\n", ["--id", "person"], "row"),
        ("person,x2\nann,0.5\n", ["--id", "person"], "there is no column"),
    ],
)
def test_one_line_for_rows_that_cannot_be_linked(split: Path, rows: str, options: list[str], complaint: str) -> None:
    with pytest.raises(SecfcError) as caught:
        start(split / "client-1", rows, *options)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_what_a_client_holds(split: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"client-3 holds no feature of federation\.toml, so it only computes for client-1"
    ):
        start(split / "client-3", OWN)
    with pytest.raises(InvalidInput, match="--data FILE with this client's rows and --out FILE"):
        command.main(["--kit", str(split / "client-1")], standalone_mode=False)
    with pytest.raises(InvalidInput, match="has no labels to write; leave out --again"):
        command.main(["--kit", str(split / "client-3"), "--again"], standalone_mode=False)
