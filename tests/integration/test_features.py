"""Sites with the same columns in different kinds of files, with categories, other units and missing values."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secfc import local
from secfc.agreement.features import Feature
from tests.integration import helpers

INCOME = Feature("income", range=(1.0, 1e6), log=True)
AGREED = (Feature("age", range=(0.0, 100.0)), Feature("sex", levels=("f", "m")), INCOME)
pytestmark = pytest.mark.slow

NAMES = tuple(name for one in AGREED for name in one.columns)


@pytest.mark.parametrize("membership", ["public", "private"])
def test_labels_are_those_of_the_clean_table(tmp_path: Path, membership: str) -> None:
    ages, sexes, incomes = _people()
    made = local.describe(
        3,
        privacy=1,
        k=3,
        features=len(NAMES),
        feature_names=NAMES,
        agreed=AGREED,
        scale="range",
        missing="drop",
        bound=1.0,
        precision=16,
        max_rows=60,
        membership=membership,
    )
    low, high = np.log(1.0), np.log(1e6)
    logs = (np.log(incomes) - (low / 2 + high / 2)) / (high / 2 - low / 2)
    clean = np.array([[a / 50 - 1, s == "f", s == "m", i] for a, s, i in zip(ages, sexes, logs, strict=True)])
    parts = [clean[0::3], clean[1::3], clean[2::3]]
    named = ["--write-ids"] if membership == "private" else []
    site = helpers.prepared(tmp_path, parts, made, client_options=named)
    files = _files(tmp_path, ages, sexes, incomes)
    try:
        for party, options in zip(
            ("server", *made.roster), ([], *(["--data", str(file)] for file in files)), strict=True
        ):
            site.start(party, *options)
        site.wait(120)
    finally:
        site.stop()
    first, *others = (pq.read_table(site.labels_file(name))["cluster"].to_pylist() for name in made.roster)
    assert [i for i, label in enumerate(first) if label is None] == [5, 21]
    found = [label for label in first if label is not None] + [label for labels in others for label in labels]
    order = np.arange(60)
    if membership == "private":
        order = np.argsort([name for name in site.ids() if name != "None"])
    expected = helpers.pooled(made, [np.concatenate(parts)[order]]).labels
    np.testing.assert_array_equal(np.array(found)[order], expected)
    assert any(event["event"] == "rows with missing values take no part" for event in site.events("client-1"))


def _people() -> tuple[list[float], list[str], list[float]]:
    chance = np.random.default_rng(5)
    ages = np.repeat([20.0, 70.0, 40.0], 20) + chance.integers(-80, 80, 60) / 8
    incomes = np.repeat([1e5, 2e5, 8e5], 20) + chance.integers(-9000, 9000, 60)
    return ages.tolist(), chance.choice(["f", "m"], 60).tolist(), incomes.tolist()


def _files(folder: Path, ages: list[float], sexes: list[str], incomes: list[float]) -> list[Path]:
    """A third each: semicolons, decimal commas and two rows that lack something; gzip by another name; Arrow."""
    files = [folder / "a.csv", folder / "b.csv", folder / "c.arrow"]
    lines = [f"{sexes[i]};x;{ages[i]};{incomes[i]}".replace(".", ",") for i in range(0, 60, 3)]
    lines = ["sex;note;age;income", *lines[:5], "m;lost;;5", *lines[5:], "?;;1;2"]
    files[0].write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    lines = ["income,age,sex", *(f"{incomes[i]},{ages[i]},{sexes[i]}" for i in range(1, 60, 3))]
    files[1].write_bytes(gzip.compress("\n".join(lines).encode()))
    rows = pa.table({"sex": pa.array(sexes[2::3]).dictionary_encode(), "income": incomes[2::3], "age": ages[2::3]})
    with pa.ipc.new_file(files[2], rows.schema) as writer:
        writer.write_table(rows)
    return files
