"""Linked IDs: the clients' common key, the column that names rows, and what `secfc check` says of them."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from secfc import local
from secfc.agreement.federation import LINK_KEY
from secfc.errors import ConfigError, DataError, InvalidInput
from secfc.pki import provision
from secfc.privacy import identifiers
from secfc_client import data, naming
from secfc_client.commands.checks import readiness

KEY = "ab" * 32


def table(tmp_path: Path, ids: list[str], id_column: str | None = "patient") -> data.Table:
    path = tmp_path / "rows.csv"
    path.write_text("patient,x\n" + "".join(f"{name},{j}\n" for j, name in enumerate(ids)))
    return data.load(path, feature_count=1, id_column=id_column, chosen=["x"])


def key_file(tmp_path: Path, text: str = KEY, mode: int = 0o600) -> Path:
    path = tmp_path / "link.key"
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


def test_ids_depend_on_key_name_and_session_only(tmp_path: Path) -> None:
    rows = table(tmp_path, ["a", "b", "c"])
    ids = naming.linked_ids(rows, key_file(tmp_path))
    np.testing.assert_array_equal(ids(b"s"), identifiers.linked(["a", "b", "c"], bytes.fromhex(KEY), b"s"))
    assert (ids(b"s") != ids(b"t")).any()
    other = naming.linked_ids(rows, key_file(tmp_path, "cd" * 32))
    assert (ids(b"s") != other(b"s")).all()


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [(KEY, 0o644, "chmod 600"), ("xyz", 0o600, "hexadecimal"), ("ab" * 8, 0o600, "at least 64")],
)
def test_a_key_that_is_open_or_wrong(tmp_path: Path, text: str, mode: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        naming.read_key(key_file(tmp_path, text, mode))


def test_names_are_needed_and_differ(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--id COLUMN"):
        naming.linked_ids(table(tmp_path, ["a"], id_column=None), key_file(tmp_path))
    with pytest.raises(DataError):
        naming.linked_ids(table(tmp_path, ["a", "a"]), key_file(tmp_path))


def test_other_names_of_the_same_rows_are_another_job(tmp_path: Path) -> None:
    one = naming.subject(b"f" * 32, table(tmp_path, ["a", "b"]))
    assert naming.subject(b"f" * 32, table(tmp_path, ["b", "a"])) != one
    assert naming.subject(b"f" * 32, table(tmp_path, ["a", "b"])) == one
    assert naming.subject(b"f" * 32, table(tmp_path, ["a", "b"], id_column=None)) == b"f" * 32


def test_every_client_has_the_key_and_the_server_has_not(tmp_path: Path) -> None:
    wishes = {"k": 2, "privacy": 1, "max_rows": 9, "features": 1, "bound": 9.0, "precision": 2}
    made = local.describe(3, membership="private", ids="linked", **wishes)
    provision.provision(made, tmp_path / "kits")
    keys = {name: tmp_path / "kits" / name / LINK_KEY for name in made.roster}
    assert len({path.read_bytes() for path in keys.values()}) == 1
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in keys.values())
    assert not (tmp_path / "kits" / "server" / LINK_KEY).exists()
    found = {result.name: result for result in readiness.examine(tmp_path / "kits" / "client-1", None, 0.2)}
    assert found["link key"].status == "ok"
    keys["client-1"].unlink()
    found = {result.name: result for result in readiness.examine(tmp_path / "kits" / "client-1", None, 0.2)}
    assert found["link key"].status == "fail"


def test_linked_ids_need_private_membership() -> None:
    wishes = {"k": 2, "privacy": 1, "max_rows": 9, "features": 1, "bound": 9.0, "precision": 2}
    with pytest.raises(ConfigError, match="needs membership"):
        local.describe(3, ids="linked", **wishes)
