"""What `secfc-server` refuses before anybody is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from secfc import local
from secfc.errors import InvalidInput
from secfc.pki import provision
from secfc_server.__main__ import command


def test_an_output_folder_that_cannot_be_written_is_found_before_the_job(tmp_path: Path) -> None:
    made = local.describe(3, k=2, privacy=1, max_rows=9, features=2, bound=1.0, precision=4)
    provision.provision(made, tmp_path / "kits")
    kit, taken = tmp_path / "kits" / "server", tmp_path / "taken"
    (taken / "result.json").mkdir(parents=True)
    for out in (taken, Path("/proc")):
        with pytest.raises(InvalidInput, match=r"result\.json: cannot be written"):
            command.main(["--kit", str(kit), "--out", str(out)], standalone_mode=False)
        assert not (kit / "state").exists()
