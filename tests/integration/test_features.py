"""Sites whose files have the columns in another order: found by name, or noticed; never taken for the others'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from secfc import local
from secfc.errors import JobFailed
from secfc.local import Local
from tests.integration import helpers

pytestmark = pytest.mark.slow
SIZES = [40, 40, 40]


def reordered(folder: Path, **settings: object) -> tuple[Local, helpers.Parts]:
    """Three clients, of which the second has its columns in another order."""
    parts = helpers.split(helpers.mixture(sum(SIZES), 3, 3), SIZES)
    site = helpers.prepared(folder, parts, helpers.describe(parts, 3, **settings))
    path = site.folder / "client-2.parquet"
    pq.write_table(pq.read_table(path).select(["x3", "x1", "x2"]), path)
    return site, parts


def test_agreed_names_are_found_in_any_order(tmp_path: Path) -> None:
    site, parts = reordered(tmp_path)
    with local.running(site):
        site.wait(120)
    assert np.array_equal(site.labels(), helpers.pooled(site.federation, parts).labels)


def test_with_a_number_of_features_another_order_ends_the_client_with_one_line(tmp_path: Path) -> None:
    site, _ = reordered(tmp_path, feature_names=None)
    try:
        site.start("server")
        site.start("client-1")
        helpers.until(lambda: helpers.said(site, "client-1", "joined"), "client-1 has joined")
        second = site.start("client-2")
        assert second.wait(helpers.PATIENCE) == 4
        words = site.last_words("client-2")
        assert "of client-2 and of client-1 differ in their names or their order" in words
        assert words.startswith("error: ")
        assert "differ in their names or their order" in helpers.text(site, "server")
        site.start("client-2", "--features", "x1,x2,x3")  # as the others have them: the job goes on
        site.start("client-3")
        site.wait(120)
    except JobFailed as error:
        pytest.fail(str(error))
    finally:
        site.stop()
