"""What `secfc describe` and `secfc check --data` tell of a file's columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from secfc.agreement import job
from secfc.errors import DataError
from secfc_client.commands import describe


def test_a_first_section_of_features_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = [f"{i};{i / 8:.3f};{'fm'[i % 2]};p{i};1;{'' if i else 'x'}".replace(".", ",") for i in range(40)]
    path.write_text("id;height, m;sex;patient;one;rare\n" + "\n".join(lines))
    told = CliRunner().invoke(describe.command, [str(path)])
    assert told.exit_code == 0
    found = job.parse("k = 2\nmax_rows = 99\n" + told.output.replace("[job.", "["), "x")
    assert [one.name for one in found.agreed] == ["height, m", "sex"]
    assert found.agreed[0].range == (0.0, 6.0)
    assert found.agreed[1].levels == ("f", "m")
    assert "# patient = {}  # nearly unique: an ID?" in told.output
    assert "# one = {}  # constant" in told.output


def test_few_large_values_are_remarked(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("income,shifted\n" + "".join(f"{1.5**i:.6f},{1.5**i - 1:.6f}\n" for i in range(30)))
    lines = CliRunner().invoke(describe.command, [str(path)]).output.splitlines()
    assert "log = true?" in lines[1]
    assert "log" not in lines[2]  # begins at 0, which has no logarithm


def test_columns_that_are_no_features_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = {
        "day": ["2024-01-31", "1.2.24", None],
        "sex": ["f", None, "m"],
        "at": pa.array([1, 2, 3], pa.timestamp("s")),
    }
    pq.write_table(pa.table(table), path)
    lines = CliRunner().invoke(describe.command, [str(path)]).output.splitlines()
    assert lines[1] == "# day = {}  # date or time, 2 different values; 1 missing"
    assert lines[2] == 'sex = { levels = ["f", "m"] }  # 1 missing'
    assert lines[3] == "# at = {}  # date or time, 3 different values"


def test_nothing_is_printed_of_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,a\n1,2,3\n")
    told = CliRunner().invoke(describe.command, [str(path)])
    assert isinstance(told.exception, DataError)
    assert "two columns are called 'a'" in str(told.exception)
    assert told.output == ""
