"""Reading, checking and writing a client's rows (secfc_client.data)."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.agreement import job as jobs
from secfc.agreement.features import Feature
from secfc.errors import DataError, StorageError
from secfc_client import data
from secfc_client.datasets import formats, preparation

SUFFIXES = [".csv", ".csv.gz", ".tsv", ".parquet", ".pq"]
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)


def load(path: Path, count: int = 2, **options: Any) -> data.Table:
    return data.load(path, feature_count=count, **{"feature_names": None, "id_column": None, "chosen": None, **options})


def put(folder: Path, text: str | bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def put_columns(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def fails(call: Callable[[], object], *words: str) -> str:
    with pytest.raises(DataError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def labels(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


# Reading what is fine


@pytest.mark.parametrize(("name", "mark"), [("r.csv", ","), ("r.csv.gz", ","), ("r.tsv", "\t"), ("R.CSV", ",")])
def test_delimited_text(tmp_path: Path, name: str, mark: str) -> None:
    text = "id,a,b\n007,1,2.5\n008,-3e2, +4 \n".replace(",", mark)
    table = load(put(tmp_path, text, name), id_column="id")
    assert table.features.tolist() == [[1.0, 2.5], [-300.0, 4.0]]
    assert table.features.dtype == np.float64
    assert table.features.flags.c_contiguous
    assert table.feature_names == ("a", "b")
    assert table.ids.to_pylist() == ["007", "008"]
    assert len(table) == 2


@pytest.mark.parametrize("name", ["rows.parquet", "rows.pq"])
def test_parquet_of_every_numeric_type(tmp_path: Path, name: str) -> None:
    types = [
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(9, 2),
        pa.bool_(),
    ]
    one: list[Any] = [1, 1, np.float16(1), 1.0, 1.0, Decimal("1.00"), True]
    columns = {f"c{i}": pa.array([v], t) for i, (v, t) in enumerate(zip(one, types, strict=True))}
    pq.write_table(pa.table({"id": ["x"], **columns}), tmp_path / name)
    table = load(tmp_path / name, len(types), id_column="id")
    assert table.features.tolist() == [[1.0] * len(types)]
    assert table.ids.to_pylist() == ["x"]


def test_decimals_are_rounded_correctly(tmp_path: Path) -> None:
    texts = ["0.1", "0.3", "2.675", "123456789.012345678", "-0.000000000000001"]
    column = pa.array([Decimal(text) for text in texts], pa.decimal128(38, 18))
    table = load(put_columns(tmp_path, a=column), 1)
    assert table.features[:, 0].tolist() == [float(text) for text in texts]


def test_words_for_booleans(tmp_path: Path) -> None:
    assert load(put(tmp_path, "a,b\nTrue,false\nFalse,true\n")).features.tolist() == [[1, 0], [0, 1]]


def test_the_agreed_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    for text in ("a,note,b,c\n1,x,2,3\n", "c,b,a,note\n3,2,1,x\n"):
        table = load(put(tmp_path, text), feature_names=["b", "a"])
        assert (table.features.tolist(), table.feature_names) == ([[2, 1]], ("b", "a"))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [(["a", "b"], "in another order than"), (["c", "a"], "which are not"), (["b"], "which are not")],
)
def test_a_site_cannot_choose_other_columns_than_the_agreed(tmp_path: Path, chosen: list[str], words: str) -> None:
    path = put(tmp_path, "a,note,b,c\n1,x,2,3\n")
    fails(
        lambda: load(path, feature_names=["b", "a"], chosen=chosen),
        f"{words} the features of federation.toml, 'b', 'a'",
    )
    assert load(path, feature_names=["b", "a"], chosen=["b", "a"]).features.tolist() == [[2, 1]]


def test_without_agreed_names_the_choice_sets_the_order(tmp_path: Path) -> None:
    table = load(put(tmp_path, "a,note,b,c\n1,x,2,3\n"), chosen=["c", "a"])
    assert (table.features.tolist(), table.feature_names) == ([[3, 1]], ("c", "a"))


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "a,b\r\n", '"a","b"\n\n'])
def test_a_header_alone_is_a_client_without_rows(tmp_path: Path, text: str) -> None:
    table = load(put(tmp_path, text))
    assert table.features.shape == (0, 2)
    data.check_bounds(table, table.features, 1.0)
    data.write(table, labels(), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a,b,cluster\n"


def test_parquet_without_rows(tmp_path: Path) -> None:
    path = put_columns(tmp_path, id=pa.array([], pa.string()), a=pa.array([], pa.float64()))
    table = load(path, 1, id_column="id")
    assert table.features.shape == (0, 1)
    assert len(table.ids) == 0


def test_byte_order_mark_blank_lines_and_crlf(tmp_path: Path) -> None:
    table = load(put(tmp_path, b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4\r\n\r\n"))
    assert table.feature_names == ("a", "b")
    assert table.features.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("header", ["0,1", "1,2"])
def test_counted_column_names_are_names(tmp_path: Path, header: str) -> None:
    assert len(load(put(tmp_path, f"{header}\n5,6\n"))) == 1


def test_printing_a_table_shows_no_value(tmp_path: Path) -> None:
    table = load(put(tmp_path, "id,a,b\nsecret-id,12345.5,2\n"), id_column="id")
    assert "12345" not in repr(table)
    assert "secret-id" not in repr(table)


@QUICK
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_floats_survive_csv_bit_for_bit(tmp_path: Path, values: list[float]) -> None:
    path = put(tmp_path, "x\n" + "".join(f"{value!r}\n" for value in values))
    table = load(path, 1)
    assert table.features[:, 0].tobytes() == np.array(values).tobytes()
    data.write(table, np.zeros(len(values), np.int64), tmp_path / "out.parquet")
    again = load(tmp_path / "out.parquet", 1, chosen=["x"])
    assert again.features.tobytes() == table.features.tobytes()


# Reading what is not


@pytest.mark.parametrize("name", ["rows.txt", "rows", "rows.xlsx", "rows.gz"])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("a,b\n1,2\n")
    fails(lambda: load(path), *SUFFIXES)


def test_missing_file_folder_and_unreadable_file(tmp_path: Path) -> None:
    fails(lambda: load(tmp_path / "no.csv"), "no.csv", "No such file")
    (tmp_path / "folder.csv").mkdir()
    fails(lambda: load(tmp_path / "folder.csv"), "folder")
    path = put(tmp_path, "a,b\n1,2\n")
    path.chmod(0)
    if not os.access(path, os.R_OK):  # root reads everything
        fails(lambda: load(path), "Permission denied")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"r{suffix}").write_bytes(b"")
    fails(lambda: load(tmp_path / f"r{suffix}"), f"r{suffix}")


@pytest.mark.parametrize(
    "raw", ["a,b\n1,é\n".encode("latin1"), "é,b\n1,2\n".encode("latin1"), "a,b\n".encode("utf-16")]
)
def test_wrong_encoding(tmp_path: Path, raw: bytes) -> None:
    fails(lambda: load(put(tmp_path, raw)), "UTF-8")


def test_cut_or_mislabelled_files(tmp_path: Path) -> None:
    whole = put_columns(tmp_path, a=[1.0] * 99, b=[2.0] * 99).read_bytes()
    fails(lambda: load(put(tmp_path, whole[:-20], "r.parquet")), "Parquet", "cut short")
    fails(lambda: load(put(tmp_path, "a,b\n1,2\n", "r.parquet")), "not a Parquet file")
    assert load(put(tmp_path, whole, "r.csv")).features.shape == (99, 2)  # what it is, not how it is called
    assert load(put(tmp_path, gzip.compress(b"a,b\n1,2\n"), "r.csv")).features.tolist() == [[1, 2]]
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 999)
    (tmp_path / "r.csv.gz").write_bytes(packed[:-9])
    fails(lambda: load(tmp_path / "r.csv.gz"), "complete gzip file")
    (tmp_path / "r.csv.gz").write_bytes(b"a,b\n1,2\n")
    assert load(tmp_path / "r.csv.gz").features.tolist() == [[1, 2]]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_separators_line_ends_and_marks_of_byte_order(tmp_path: Path, mark: str, end: str, bom: bytes) -> None:
    lines = [
        mark.join(cells) for cells in (["note, first", "b", '"a"'], ["x,y;z", "2.5", "1"], ['"u|v\t"', "-3", "4e1"])
    ]
    lines = [line.replace("note, first", '"note, first"').replace("x,y;z", '"x,y;z"') for line in lines]
    table = load(put(tmp_path, bom + (end.join(lines) + end).encode()), feature_names=["a", "b"])
    assert table.features.tolist() == [[1, 2.5], [40, -3]]


def test_decimal_commas(tmp_path: Path) -> None:
    assert load(put(tmp_path, "a;b\n1,5;2\n-,25;3e1\n")).features.tolist() == [[1.5, 2], [-0.25, 30]]
    fails(lambda: load(put(tmp_path, "a;b\n1,5;1.234\n2,5;2.000\n")), "'a'", "decimal commas", "'b'", "points")
    fails(lambda: load(put(tmp_path, 'a,b\n"1,234,567",2\n')), "'a'", "thousands")


def test_a_comma_where_commas_separate_fields_is_no_decimal_comma(tmp_path: Path) -> None:
    """What is meant cannot be known, and 1.234 in place of 1234 would go unnoticed."""
    fails(lambda: load(put(tmp_path, 'a,b\n"1,234",2\n"5,678",2\n')), "data rows 1, 2", "'a'", "thousands")
    fails(lambda: load(put_columns(tmp_path, a=["1,234"], b=["2"])), "'a'", "thousands")
    table = load(put(tmp_path, "a\tb\n1,234\t2\n"))
    data.write(table, labels(0), tmp_path / "out.parquet")
    assert load(tmp_path / "out.parquet", feature_names=["a", "b"]).features.tolist() == [[1.234, 2]]


def test_what_to_do_about_other_encodings(tmp_path: Path) -> None:
    fails(lambda: load(put(tmp_path, "größe,b\n1,2\n".encode("latin-1"))), "Latin-1", "iconv")
    fails(lambda: load(put(tmp_path, "a,b\n1,2\n".encode("utf-16"))), "UTF-16")


def test_arrow_files_by_either_name(tmp_path: Path) -> None:
    rows = pa.table({"b": pa.array([1, 2], pa.int16()), "a": pa.array([Decimal("1.5"), Decimal("2.5")])})
    for name in ("r.arrow", "r.feather", "r.csv"):
        with pa.ipc.new_file(tmp_path / name, rows.schema) as writer:
            writer.write_table(rows)
        table = load(tmp_path / name, feature_names=["a", "b"])
        assert table.features.tolist() == [[1.5, 1], [2.5, 2]]
    data.write(table, labels(1, 0), tmp_path / "out.feather")
    assert pa.ipc.open_file(tmp_path / "out.feather").read_all()["cluster"].to_pylist() == [1, 0]
    fails(lambda: load(put(tmp_path, "ARROW", "cut.arrow")), "Arrow file")


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        (["yes", "no"], "levels"),
        (["2024-01-31", "2024-02-01"], "days since"),
        (["31.1.2024", "1.2.24"], "days since"),
        (["1'000", "2'000"], "thousands"),
        (["low", "high"], "levels"),
    ],
)
def test_what_to_do_about_values_that_are_no_numbers(tmp_path: Path, cells: list[str], word: str) -> None:
    fails(lambda: load(put(tmp_path, "a,b\n" + "".join(f"1,{cell}\n" for cell in cells))), "data rows 1, 2", word)


@pytest.mark.parametrize("text", ["5.1,3.5\n4.9,3.0\n", "7,3\n1,2\n", "-1,2\n1,2\n", "5.1,5.1\n1,2\n"])
@pytest.mark.parametrize("chosen", [None, ["a", "b"]])
def test_a_first_line_of_numbers_is_no_header_and_is_not_shown(
    tmp_path: Path, text: str, chosen: list[str] | None
) -> None:
    message = fails(lambda: load(put(tmp_path, text), chosen=chosen), "first line", "header")
    assert "5.1" not in message


def test_numbers_may_be_names_if_the_user_says_so(tmp_path: Path) -> None:
    path = put(tmp_path, "id,2019,0.5\nx,1,2\n")
    assert load(path, chosen=["2019", "0.5"]).features.tolist() == [[1, 2]]
    assert load(path, id_column="id").features.tolist() == [[1, 2]]


def test_rows_of_the_wrong_length(tmp_path: Path) -> None:
    message = fails(
        lambda: load(put(tmp_path, "a,b\n1,2\n\n71828,88,99\n5\n")), "data row 2", "3 fields", "2 such rows"
    )
    assert "71828" not in message


def test_a_quote_left_open(tmp_path: Path) -> None:
    fails(lambda: load(put(tmp_path, 'a,note\n1,"x\n2,y\n3,z\n'), 1, chosen=["a"]), "quoted field", "open")


def test_duplicate_columns(tmp_path: Path) -> None:
    fails(lambda: load(put(tmp_path, "a,b,a\n1,2,3\n"), chosen=["a", "b"]), "'a'", "must differ")


def test_missing_column_suggests_the_closest(tmp_path: Path) -> None:
    path = put(tmp_path, "sepal_length,sepal_width\n1,2\n")
    fails(
        lambda: load(path, chosen=["sepal_lenght", "sepal_width"]),
        "'sepal_lenght'",
        "did you mean 'sepal_length'",
    )
    fails(lambda: load(path, id_column="zzz"), "no column 'zzz'")


def test_wrong_number_of_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "name,a,b\nx,1,2\n")
    fails(lambda: load(path), "3 feature columns", "2 features", "not numeric: 'name'", "--id", "--features")
    fails(lambda: load(path, chosen=["a"]), "1 feature columns", "2 features")
    fails(lambda: load(path, feature_names=["a", "a"]), "twice")
    fails(lambda: load(path, chosen=["name", "a"], id_column="name"), "'name'", "cannot be a feature too")
    folder = tmp_path / "p"
    folder.mkdir()
    fails(lambda: load(put_columns(folder, name=["x"], a=[1], b=[2])), "not numeric: 'name'")


def test_text_where_a_number_should_be(tmp_path: Path) -> None:
    body = "".join(f"{i},{'secret' if i in (700, 800) else i}\n" for i in range(1, 1000))
    message = fails(
        lambda: load(put(tmp_path, "a,b\n" + body)), "data rows 700, 800", "'b'", "not a number", "--features"
    )
    assert "secret" not in message
    assert load(put_columns(tmp_path, a=[1.0], b=["1"])).features.tolist() == [[1, 1]]
    dates = pa.array([0], pa.date32())
    fails(lambda: load(put_columns(tmp_path, a=[1.0], b=dates)), "'b'", "date32", "not numeric", "days since")


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("", "missing"),
        ("  ", "missing"),
        ("nan", "missing"),
        ("NA", "missing"),
        ("?", "missing"),
        ("-inf", "finite"),
        ("1e999", "finite"),
    ],
)
def test_missing_and_infinite_cells_in_csv(tmp_path: Path, cell: str, word: str) -> None:
    text = f"id,a,b\nk1,1,2\nk2,3,{cell}\n"
    message = fails(lambda: load(put(tmp_path, text), id_column="id"), "rows.csv", "data row 2", "'b'", word)
    assert "k2" not in message


@pytest.mark.parametrize(("cell", "word"), [(None, "missing"), (float("nan"), "finite"), (float("inf"), "finite")])
def test_missing_and_infinite_cells_in_parquet(tmp_path: Path, cell: float | None, word: str) -> None:
    path = put_columns(tmp_path, a=[1, 2], b=pa.array([0.5, cell], pa.float64()))
    fails(lambda: load(path), "data row 2", "'b'", word)


def test_an_empty_line_in_a_lone_column_is_a_missing_value(tmp_path: Path) -> None:
    fails(lambda: load(put(tmp_path, "a\n1\n\n2\n"), 1), "data row 2", "missing")


@pytest.mark.parametrize("value", [2**53, -(2**53) - 2, 2**60, 2**63 - 1024, 10**22, 10**20])
@pytest.mark.parametrize("off", [0, 1])
def test_integers_must_fit_float64_exactly(tmp_path: Path, value: int, off: int) -> None:
    paths = [put(tmp_path, f"a,b\n1,1\n1,{value + off}\n")]
    if abs(value) < 2**63:
        paths.append(put_columns(tmp_path, a=[1, 1], b=pa.array([1, value + off], pa.int64())))
    folder = tmp_path / "decimal"
    folder.mkdir()
    paths.append(put_columns(folder, a=[1, 1], b=pa.array([1, value + off], pa.decimal128(38, 0))))
    for path in paths:
        if off:
            fails(lambda path=path: load(path), "data row 2", "'b'", "exactly")  # type: ignore[misc]
        else:
            assert load(path).features[1, 1] == value


def test_absurdly_long_integers(tmp_path: Path) -> None:
    fails(lambda: load(put(tmp_path, f"a\n{'9' * 100}\n"), 1), "exactly")
    fails(lambda: load(put(tmp_path, f"a\n{'9' * 9999}\n"), 1), "finite")
    assert load(put(tmp_path, f"a\n{'0' * 9999}9\n"), 1).features.tolist() == [[9]]


def test_ids_are_unique_and_present(tmp_path: Path) -> None:
    message = fails(
        lambda: load(put(tmp_path, "id,a\nx,1\nkey,2\ny,3\nkey,4\n"), 1, id_column="id"),
        "data rows 2 and 4",
        "'id'",
    )
    assert "key" not in message
    fails(lambda: load(put(tmp_path, "id,a\nx,1\n,2\n"), 1, id_column="id"), "data row 2", "id is missing")
    fails(
        lambda: load(put_columns(tmp_path, id=["x", None], a=[1, 2]), 1, id_column="id"),
        "data row 2",
        "missing",
    )
    fails(lambda: load(put_columns(tmp_path, id=[7, 7], a=[1, 2]), 1, id_column="id"), "rows 1 and 2")
    fails(lambda: load(put_columns(tmp_path, id=[[7], [8]], a=[1, 2]), 1, id_column="id"), "cannot be the id")


@QUICK
@given(
    raw=st.binary(max_size=80) | st.text(alphabet='ab01,.-"\n\r\t ;e', max_size=40).map(str.encode),
    suffix=st.sampled_from(SUFFIXES),
    id_column=st.sampled_from([None, "a"]),
    packed=st.booleans(),
)
def test_any_bytes_load_or_are_a_data_error(
    tmp_path: Path, raw: bytes, suffix: str, id_column: str | None, packed: bool
) -> None:
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(gzip.compress(raw) if packed and suffix.endswith(".gz") else raw)
    check_survives(path, id_column)


@QUICK
@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_parquet_loads_or_is_a_data_error(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(put_columns(tmp_path, a=["x", "y"] * 9, b=[1.0, 2.0] * 9).read_bytes())
    for place, byte in changes:
        raw[place % len(raw)] = byte
    check_survives(put(tmp_path, bytes(raw), "fuzz.parquet"), None)


def check_survives(path: Path, id_column: str | None) -> None:
    message = ""
    try:
        table = load(path, 1, id_column=id_column)
    except DataError as error:
        message = str(error)
    else:
        assert table.features.shape == (table.rows.num_rows, 1)
        assert np.isfinite(table.features).all()
    assert "\n" not in message


# Bounds


def test_bounds(tmp_path: Path) -> None:
    table = load(put(tmp_path, "a,b\n1,2\n3,-4.25\n9,9\n"))
    data.check_bounds(table, table.features, 9.0)
    message = fails(
        lambda: data.check_bounds(table, table.features, 3.0),
        "data row 2",
        "'b'",
        "±3",
        "3 such",
        "federation.toml",
        "rescale",
    )
    assert "4.25" not in message


# Writing

NASTY = 'id,a,note,b\n007, 1.50 ,"x, ""y""\nz",1e3\n008,-0,\'t\tab,+2\n009,7,NA,8\n'


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_from_csv(tmp_path: Path, suffix: str) -> None:
    table = load(put(tmp_path, NASTY), id_column="id", chosen=["a", "b"])
    out = tmp_path / f"out{suffix}"
    data.write(table, labels(1, 0, 1), out)
    again = load(out, id_column="id", chosen=["a", "b"])
    assert again.features.tobytes() == table.features.tobytes()
    assert again.ids.to_pylist() == ["007", "008", "009"]
    assert again.rows.column_names == ["id", "a", "note", "b", "cluster"]
    assert again.rows["note"].to_pylist() == ['x, "y"\nz', "'t\tab", "NA"]
    assert [int(value) for value in again.rows["cluster"].to_pylist()] == [1, 0, 1]
    if suffix in (".parquet", ".pq"):
        assert again.rows.schema.field("cluster").type == pa.int32()
        assert again.rows.schema.field("a").type == pa.float64()


def test_csv_text_goes_back_unchanged(tmp_path: Path) -> None:
    table = load(put(tmp_path, NASTY), id_column="id", chosen=["b", "a"])
    data.write(table, labels(5, 6, 7), tmp_path / "out.csv")
    expected = (
        NASTY.replace("id,a,note,b", "id,a,note,b,cluster")
        .replace("1e3", "1e3,5")
        .replace("+2", "+2,6")
        .replace("NA,8", "NA,8,7")
    )
    assert (tmp_path / "out.csv").read_bytes() == expected.encode()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_from_parquet(tmp_path: Path, suffix: str) -> None:
    floats = [0.1, 1e300, -5e-324]
    path = put_columns(tmp_path, a=floats, b=pa.array([1, 2, 2**53], pa.int64()), note=["x", None, "a,b"])
    table = load(path, chosen=["a", "b"])
    out = tmp_path / f"out{suffix}"
    data.preflight_output(out, table)
    data.write(table, labels(0, 1, 2), out)
    again = load(out, chosen=["a", "b"])
    assert again.features.tobytes() == table.features.tobytes()
    if suffix in (".parquet", ".pq"):
        assert again.rows.drop_columns(["cluster"]).equals(table.rows)


@QUICK
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=6))
def test_any_text_survives_csv(tmp_path: Path, notes: list[str]) -> None:
    path = put_columns(tmp_path, note=notes, a=[1.0] * len(notes))
    out = tmp_path / "out.csv"
    data.write(load(path, 1, chosen=["a"]), np.zeros(len(notes), np.int64), out)
    assert load(out, 1, chosen=["a"]).rows["note"].to_pylist() == notes


def test_more_rows_than_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secfc_client.datasets.formats.delimited.BATCH_ROWS", 3)
    table = load(put(tmp_path, "a\n" + "".join(f"{i}\n" for i in range(10))), 1)
    data.write(table, np.arange(10), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a,cluster\n" + "".join(f"{i},{i}\n" for i in range(10))


def test_a_column_called_cluster_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for header, name in [("cluster", "secfc_cluster"), ("cluster,secfc_cluster", "secfc_cluster_2")]:
        table = load(put(tmp_path, f"a,{header}\n1,{header}\n"), 1, chosen=["a"])
        assert data.cluster_column(table) == name
        data.write(table, labels(3), out)
        assert out.read_text() == f"a,{header},{name}\n1,{header},3\n"


def test_written_whole_private_and_without_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load(put(tmp_path, "a\n1\n"), 1)
    out = tmp_path / "out.csv"
    out.write_text("old")
    out.chmod(0o644)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"out\.csv: cannot be written \(No space left.*same command again"):
            data.write(table, labels(0), out)
    assert out.read_text() == "old"
    data.write(table, labels(0), out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "rows.csv"]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    table = load(put(tmp_path, "a\n1\n"), 1)
    fails(lambda: data.write(table, labels(0), tmp_path / "no" / "out.csv"), "folder", "does not exist")
    fails(lambda: data.write(table, labels(0), tmp_path / "out.xls"), *SUFFIXES)
    fails(lambda: data.write(table, labels(0, 1), tmp_path / "out.csv"), "1 integer labels")
    fails(lambda: data.write(table, np.zeros(1), tmp_path / "out.csv"), "float64")  # type: ignore[arg-type]
    assert not (tmp_path / "out.csv").exists()


def test_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.preflight_output(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []
    fails(lambda: data.preflight_output(tmp_path / "out.xls"), *SUFFIXES)
    fails(lambda: data.preflight_output(tmp_path / "no" / "out.csv"), "does not exist")
    (tmp_path / "folder.csv").mkdir()
    fails(lambda: data.preflight_output(tmp_path / "folder.csv"), "is a folder")

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)  # root may write anywhere
    fails(lambda: data.preflight_output(tmp_path / "out.csv"), "cannot write", "Permission denied")


def test_preflight_of_a_table(tmp_path: Path) -> None:
    path = put_columns(tmp_path, a=[1.0], many=[[1, 2]])
    table = load(path, 1, chosen=["a"])
    fails(lambda: data.preflight_output(tmp_path / "out.csv", table), "'many'", "list", ".parquet")
    fails(lambda: data.write(table, labels(0), tmp_path / "out.csv"), "'many'", ".parquet")
    fails(lambda: data.preflight_output(path, table), "input file itself")
    data.preflight_output(tmp_path / "out.parquet", table)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


# What is agreed about features

AGREED = (Feature("age", range=(0.0, 100.0)), Feature("sex", levels=("f", "m")))


def test_ranges_and_levels(tmp_path: Path) -> None:
    path = put(tmp_path, "sex,note,age\n m ,x,25\nf,y,100\n")
    table = load(path, agreed=AGREED)
    assert table.feature_names == ("age", "sex=f", "sex=m")
    assert table.features.tolist() == [[25, 0, 1], [100, 1, 0]]
    job = jobs.parse(
        "k = 1\nmax_rows = 9\nfeatures = { age = { range = [0, 100] }, sex = { levels = ['f', 'm'] } }", "x"
    )
    assert job.agreed == AGREED
    assert preparation.scaled(job, table.features).tolist() == [[-0.5, 0, 1], [1, 1, 0]]
    fails(lambda: load(put(tmp_path, "sex,age\nd,1\nf,2\nx,3\n"), agreed=AGREED), "data rows 1, 3", "'sex'", "f, m")
    fails(lambda: load(put(tmp_path, "sex,age\nf,101\nf,-1\n"), agreed=AGREED), "data rows 1, 2", "from 0 to 100")


def test_missing_values_as_agreed(tmp_path: Path) -> None:
    path = put(tmp_path, "id,sex,age\na,f,\nb,m,20\nc,NA,?\nd,f,40\n")
    fails(lambda: load(path, agreed=AGREED), "data row 1", "column 'age'", "'age' 2, 'sex' 1)", "drop")
    filled = load(path, agreed=AGREED, missing="mean")
    assert filled.features.tolist() == [[50, 1, 0], [20, 0, 1], [50, 0.5, 0.5], [40, 1, 0]]
    table = load(path, agreed=AGREED, missing="drop", id_column="id")
    assert table.features.tolist() == [[20, 0, 1], [40, 1, 0]]
    assert table.dropped == 2
    assert table.ids.to_pylist() == ["b", "d"]
    data.write(table, labels(1, 0), tmp_path / "out.csv", ["one", "two"])
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines == ["id,sex,age,secfc_id,cluster", "a,f,,,", "b,m,20,one,1", "c,NA,?,,", "d,f,40,two,0"]
    data.write(table, labels(1, 0), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["cluster"].to_pylist() == [None, 1, None, 0]


def test_logarithms(tmp_path: Path) -> None:
    lines = (
        "k = 1\nmax_rows = 9\nfeatures = { income = { range = [1, 1e6], log = true }, age = { range = [0, 100] } }\n"
    )
    job = jobs.parse(lines, "x")
    path = put(tmp_path, "age,income\n50,1000\n0,1e6\n100,1\n50,NA\n")
    table = load(path, agreed=job.agreed, missing="mean")
    assert table.feature_names == ("log(income)", "age")
    np.testing.assert_allclose(table.features[:, 0], np.log([1000, 1e6, 1, 1000]))
    np.testing.assert_allclose(preparation.scaled(job, table.features), [[0, 0], [1, -1], [-1, 1], [0, 0]], atol=1e-15)
    fails(lambda: load(put(tmp_path, "age,income\n1,2e6\n"), agreed=job.agreed), "'income'", "from 1 to 1e+06")
    free = (Feature("income", log=True), Feature("age"))
    fails(
        lambda: load(put(tmp_path, "age,income\n1,0\n2,5\n3,-1\n"), agreed=free),
        "data rows 1, 3",
        "'income'",
        "logarithm",
    )
    standard = load(put(tmp_path, "age,income\n1,NA\n2,5\n"), agreed=free, missing="mean", scale="standard")
    assert np.isnan(standard.features[0, 0])
    path = put(tmp_path, "age,income\n50,1000\n0,1e6\n100,1\n50,NA\n")
    data.write(load(path, agreed=free, missing="drop"), labels(1, 0, 1), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["50,1000,1", "0,1e6,0", "100,1,1", "50,NA,"]


@QUICK
@given(st.floats(1e-300, 1e298), st.floats(1.0001, 1e8))
def test_the_ends_of_a_range_are_within_the_bound_that_follows(tmp_path: Path, low: float, times: float) -> None:
    high = min(low * times, 1e299)
    for scale in ("range", "none"):
        about = f"range = [{low!r}, {high!r}], log = true"
        lines = f"k = 1\nmax_rows = 9\nscale = '{scale}'\nfeatures = {{ x = {{ {about} }} }}\n"
        job = jobs.parse(lines, "x")
        table = load(put(tmp_path, f"x\n{low!r}\n{high!r}\n"), 1, agreed=job.agreed)
        data.check_bounds(table, preparation.scaled(job, table.features), job.bound)


def test_nothing_at_all_in_a_text_column_is_a_missing_value(tmp_path: Path) -> None:
    """Files with types have nulls, and dictionaries of texts."""
    words = pa.array(["f", None, "m"])
    for sex in (words, words.dictionary_encode()):
        path = put_columns(tmp_path, age=["20", None, "40"], sex=sex)
        assert load(path, agreed=AGREED, missing="drop").features.tolist() == [[20, 1, 0], [40, 0, 1]]
        fails(lambda path=path: load(path, agreed=AGREED), "data row 2", "'age' 1, 'sex' 1)")


CELLS = st.tuples(st.none() | st.integers(0, 1000).map(lambda i: i / 8), st.none() | st.sampled_from(["f", "m"]))


@QUICK
@given(
    st.lists(CELLS, min_size=1, max_size=8),
    st.permutations(["age", "sex", "note"]),
    st.sampled_from([*SUFFIXES, ".arrow", ";", "|"]),
)
def test_any_format_and_order_of_columns_gives_the_same_rows(
    tmp_path: Path, cells: list[tuple[float | None, str | None]], order: list[str], kind: str
) -> None:
    wide = (Feature("age", range=(0.0, 125.0)), AGREED[1])
    columns = {"age": [age for age, _ in cells], "sex": [sex for _, sex in cells], "note": ["n,o;t"] * len(cells)}
    kinds = {"age": pa.float64(), "sex": pa.string(), "note": pa.string()}
    rows = pa.table({name: pa.array(columns[name], kinds[name]) for name in order})
    if kind.startswith("."):
        path = tmp_path / f"rows{kind}"
        with path.open("wb") as file:
            formats.write(rows, kind, file)
    else:
        cell = {name: ['"NA"' if x is None else f'"{x}"'.replace(".", ",") for x in columns[name]] for name in order}
        lines = ([cell[name][i] for name in order] for i in range(len(cells)))
        path = put(tmp_path, "\r\n".join(kind.join(line) for line in [order, *lines]))
    expected = [[age, sex == "f", sex == "m"] for age, sex in cells if None not in (age, sex)]
    table = load(path, agreed=wide, missing="drop")
    assert table.features.tolist() == expected
    assert table.dropped == len(cells) - len(expected)


@pytest.mark.parametrize("name", ["r.csv.gz", "r.parquet", "r.arrow"])
def test_a_file_that_unpacks_to_absurdly_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, rows = tmp_path / name, pa.table({"a": np.zeros(1 << 20, np.int64), "b": np.ones(1 << 20, np.int64)})
    with path.open("wb") as file:
        if name == "r.arrow":
            with pa.ipc.new_file(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                writer.write_table(rows)
        else:
            formats.write(rows, formats.suffix_of(path), file)
    assert len(load(path)) == 1 << 20
    monkeypatch.setattr(formats.base, "ALWAYS_FITS", 1 << 20)
    monkeypatch.setattr(formats.base, "MOST_TIMES", 20)
    fails(lambda: load(path), "more than 20 times its size")
