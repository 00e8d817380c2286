"""The parts of the experiments that decide what a table says: accuracy, mixtures, dealing, k-FED, MNIST, cells, claims."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import claims, kmeans_fed, mnist, output, tables
from experiments.accuracy import accuracy, mean_std
from experiments.kmeans_fed import Settings
from experiments.mixtures import deal, mixture
from experiments.tables import Run, Setting, gather
from secfc.errors import DataError, JobFailed


def test_accuracy_takes_the_best_match() -> None:
    truth = np.array([0, 0, 0, 1, 1, 2])
    assert accuracy(truth, np.array([2, 2, 2, 0, 0, 1])) == 100.0
    assert accuracy(truth, np.zeros(6, dtype=int)) == 50.0
    assert accuracy(truth, np.array([1, 1, 0, 0, 0, 2])) == pytest.approx(100 * 5 / 6)


def test_mean_and_spread_are_those_of_numpy() -> None:
    values = [99.5, 98.0, 91.25]
    assert mean_std(values) == pytest.approx((np.mean(values), np.std(values)))


def test_a_mixture_is_its_seeds_and_within_its_bound() -> None:
    one, same, other = (mixture(300, 8, 3, 20.0, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.values, same.values)
    assert not np.array_equal(one.values, other.values)
    assert np.abs(one.values).max() <= one.bound
    assert np.bincount(one.truth).tolist() == [100, 100, 100]
    assert (one.truth != one.nearest).any()
    assert one.bound * 2**one.precision == 2**13


@pytest.mark.parametrize(("k", "n", "most"), [(4, 10, 1), (4, 10, 2), (4, 10, 4), (16, 16, 2), (16, 16, 16), (9, 5, 2)])
def test_a_client_is_dealt_at_most_so_many_classes(k: int, n: int, most: int) -> None:
    truth = np.random.default_rng(0).permutation(np.arange(40 * k) % k)
    parts = deal(truth, n, most, 3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(40 * k))
    held = [set(truth[part].tolist()) for part in parts]
    assert {len(classes) for classes in held} == {most}
    owners = [sum(one in classes for classes in held) for one in range(k)]
    assert max(owners) - min(owners) <= 1


def test_too_few_clients_cannot_own_every_class() -> None:
    with pytest.raises(ValueError, match="3 clients of at most 1 classes cannot own 4"):
        deal(np.arange(8) % 4, 3, 1, 0)


@pytest.mark.parametrize(
    ("most", "least"), [(1, 100.0), (2, 100.0), (4, 90.0)]
)  # at k′ = k a client may miss a cluster
@pytest.mark.parametrize("labels", kmeans_fed.LABELS)
def test_kfed_as_its_authors_have_it_finds_clusters_far_apart(most: int, least: float, labels: str) -> None:
    rows = mixture(400, 20, 4, 1.0, 5)
    parts = deal(rows.truth, 6, most, 5)
    found = kmeans_fed.cluster([rows.values[at] for at in parts], most, 4, 5, Settings(labels=labels))
    assert accuracy(rows.truth, gather(parts, found.labels)) >= least
    assert found.bytes_sent == 6 * most * 20 * 8


def test_kfed_server_takes_centres_far_apart() -> None:
    sent = np.array([[0.0], [0.1], [10.0], [10.2], [5.0], [0.2]])
    assert kmeans_fed._far_apart(sent, 1, 3).ravel().tolist() == [0.0, 10.2, 5.0]
    assert kmeans_fed._far_apart(sent, 3, 3).ravel().tolist() == [0.0, 0.1, 10.0]


def test_kfed_settings_are_checked_and_matter() -> None:
    with pytest.raises(ValueError, match="'lucky' is none of"):
        Settings(server="lucky")
    rows = mixture(400, 20, 8, 1.0, 0)
    parts = deal(rows.truth, 8, 2, 0)
    clients = [rows.values[at] for at in parts]
    far, blind = (
        kmeans_fed.cluster(clients, 2, 8, 0, Settings(server=start)) for start in ("far apart", "random centres")
    )
    assert accuracy(rows.truth, gather(parts, far.labels)) > accuracy(rows.truth, gather(parts, blind.labels))


def test_a_client_with_fewer_rows_than_clusters_sends_its_rows() -> None:
    centres, own = kmeans_fed.client(np.eye(3), 5, np.random.default_rng(0), "separation")
    assert np.array_equal(centres, np.eye(3))
    assert own.tolist() == [0, 1, 2]


def small() -> Setting:
    return Setting("small", {"m": 90}, 5, 1, (1, 3), lambda seed: mixture(90, 6, 3, 4.0, seed), {})


def test_a_cell_of_secfc_equals_central_lloyd() -> None:
    run = Run(small(), 7)
    for most in (1, 3):
        figures = run.secfc(most)
        assert figures["equal"]
        assert figures["accuracy"] == run.central()["accuracy"]


def test_a_cell_that_differs_from_central_lloyd_is_an_error() -> None:
    run = Run(small(), 7)
    run.references()[0].labels[3] ^= 1
    with pytest.raises(JobFailed, match="differs from central Lloyd in 1 rows"):
        run.secfc(1)


def test_a_finished_cell_is_not_run_twice(tmp_path: Path) -> None:
    cells, runs = output.Cells(tmp_path, "some"), []

    def work() -> dict[str, Any]:
        runs.append(1)
        return {"figure": len(runs)}

    assert cells.get("a", {"m": 1}, work) == {"figure": 1}
    assert cells.get("a", {"m": 1}, work) == {"figure": 1}
    assert cells.get("a", {"m": 2}, work) == {"figure": 2}
    assert output.Cells(tmp_path, "some").get("a", {"m": 1}, work) == {"figure": 1}


def test_an_interrupted_table_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tables.measure("some", [small()], 1, 0, tmp_path)
    monkeypatch.setattr(tables.memory, "run", lambda *_, **__: pytest.fail("a finished cell was run again"))
    assert tables.measure("some", [small()], 1, 0, tmp_path) == first


# --- MNIST --------------------------------------------------------------------------------------------------------


@pytest.fixture
def idx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three small images in MNIST's format, taken for MNIST."""
    images = np.arange(3 * 4, dtype=np.uint8)
    labels = np.array([2, 3, 2], dtype=np.uint8)
    monkeypatch.setattr(mnist, "COUNT", 3)
    monkeypatch.setattr(mnist, "SIDE", 2)
    sums = {
        name: hashlib.sha256(part.tobytes()).hexdigest()
        for name, part in zip(mnist.SHA256, (images, labels), strict=True)
    }
    monkeypatch.setattr(mnist, "SHA256", sums)
    header = struct.pack(">4B3I", 0, 0, 8, 3, 3, 2, 2)
    (tmp_path / f"{mnist.IMAGES}.gz").write_bytes(gzip.compress(header + images.tobytes()))
    (tmp_path / mnist.LABELS).write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 3) + labels.tobytes())
    return tmp_path


def test_idx_files_are_read_zipped_or_not(idx: Path) -> None:
    images, labels = mnist.from_folder(idx)
    assert images[1].tolist() == [[4, 5], [6, 7]]
    assert labels.tolist() == [2, 3, 2]


def test_other_images_are_refused(idx: Path) -> None:
    path = idx / f"{mnist.IMAGES}.gz"
    raw = bytearray(gzip.decompress(path.read_bytes()))
    raw[-1] ^= 1
    path.write_bytes(gzip.compress(bytes(raw)))
    with pytest.raises(DataError, match="SHA-256"):
        mnist.from_folder(idx)


@pytest.mark.parametrize(
    "content", [b"", b"not gzip", gzip.compress(b"", mtime=0)[:12], gzip.compress(b"not idx", mtime=0)]
)
def test_broken_files_are_refused(idx: Path, content: bytes) -> None:
    (idx / f"{mnist.IMAGES}.gz").write_bytes(content)
    with pytest.raises(DataError, match="--mnist"):
        mnist.from_folder(idx)


def test_without_files_the_ways_out_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--openml"):
        mnist.from_folder(tmp_path)


def test_images_are_turned_four_times() -> None:
    rows = mnist.rotated(np.array([[[1, 2], [3, 4]]], dtype=np.uint8), 255)
    assert rows.values.tolist() == [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]
    assert rows.truth.tolist() == [0, 1, 2, 3]


# --- claims -------------------------------------------------------------------------------------------------------


def secfc(most: int, accuracies: list[float], equal: bool = True) -> dict[str, Any]:
    return {"method": "secfc", "setting": "k = 4", "most": most, "accuracies": accuracies, "equal": [equal]}


def test_claims_fail_when_a_cell_differs_or_nothing_was_looked_at() -> None:
    good = claims.check({"table2": {"rows": [secfc(1, [90.0]), secfc(2, [90.0])]}})
    assert [one.holds for one in good] == [True, True]
    bad = claims.check({"table2": {"rows": [secfc(1, [90.0], equal=False), secfc(2, [91.0])]}})
    assert [one.holds for one in bad] == [False, False]
    assert not any(one.holds for one in claims.check({"table3": {"rows": []}}))
