"""Labels from client processes over TLS are central Lloyd's on the pooled rows, whatever the split; and what is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pytest

from secfc import local
from secfc.agreement import costs, plan
from secfc.local import Local
from tests.integration import helpers


def run(folder: Path, parts: helpers.Parts, k: int, **settings: Any) -> Local:
    """A whole job; its labels are checked."""
    site = helpers.prepared(folder, parts, helpers.describe(parts, k, **settings))
    with local.running(site):
        site.wait(120)
    helpers.check_labels(site, parts)
    return site


def check_result(site: Local, parts: helpers.Parts) -> None:
    """`result.json` says what was done and what it cost, by the plan's formulas."""
    result, made, agreed = site.result(), site.federation, plan.of(site.federation)
    names, n = list(made.roster), made.n
    assert (result["federation"], result["federation_digest"]) == (made.name, made.agreed().hex())
    assert (result["clients"], result["k"], result["uploads"]) == (n, made.job.k, made.uploads)
    assert (result["rows"], result["privacy"]) == (sum(map(len, parts)), made.privacy)
    assert (result["segments"], result["responders"]) == (agreed.segments, agreed.responders)
    assert result["lanes"] == agreed.field.lanes
    assert sorted(result["labels_written"]) == sorted(names)
    check_bytes(site, parts)
    check_history(site)
    seconds = result["seconds"]
    assert set(seconds) == {"joining", "agreeing", "sharing", "checking", "rounds", "total"}
    assert 0 < sum(each for phase, each in seconds.items() if phase != "total") <= seconds["total"]
    assert all(0 < value <= seconds["total"] for value in result["sharing_seconds"].values())


def check_bytes(site: Local, parts: helpers.Parts) -> None:
    """Sharing costs (n − 1)·m_j·⌈d/ℓ⌉ residues a lane; every responder's upload is counted as it is recorded."""
    result, made, agreed = site.result(), site.federation, plan.of(site.federation)
    one = {name: 8 * agreed.share_layout(len(part)).words for name, part in zip(made.roster, parts, strict=True)}
    assert result["bytes"]["sharing_sent"] == {name: (made.n - 1) * size for name, size in one.items()}
    everything = sum(one.values())
    assert result["bytes"]["sharing_received"] == {name: everything - size for name, size in one.items()}
    uploaded = dict.fromkeys(made.roster, 0)
    for step in result["history"]:
        for name in step["responders"]:
            uploaded[name] += step["upload_bytes"] // len(step["responders"])
    assert result["bytes"]["uploaded"] == uploaded
    assert all(step["upload_bytes"] <= agreed.responders * costs.of(agreed)["round_bytes_per_client"]
               for step in result["history"])  # fmt: skip


def check_history(site: Local) -> None:
    """Requests are numbered from 1, exactly R responders each; seeding has no inertia, Lloyd's never rises."""
    result, made, agreed = site.result(), site.federation, plan.of(site.federation)
    history = result["history"]
    assert [step["request"] for step in history] == list(range(1, len(history) + 1))
    for step in history:
        assert len(set(step["responders"])) == agreed.responders
        assert set(step["responders"]) <= set(made.roster)
        assert 1 <= step["columns"] <= made.job.k
        assert step["attempts"] == 1
        assert 0 <= step["compute_seconds"] <= step["seconds"]
        assert 0 <= step["decode_seconds"] <= step["seconds"]
    lloyd = [step for step in history if step["step"] == "lloyd"]
    assert len(lloyd) == result["rounds"]
    assert all(step["inertia"] is None for step in history if step["step"] == "seed")
    inertia = [step["inertia"] for step in lloyd]
    assert inertia == sorted(inertia, reverse=True)
    assert inertia[-1] == result["inertia"]
    assert (lloyd[-1]["changed"] == 0) == result["converged"]


def test_three_clients_with_masked_uploads(tmp_path: Path) -> None:
    parts = helpers.split(helpers.mixture(300, 5, 4), [120, 179, 1])
    check_result(run(tmp_path, parts, 4, seed=None), parts)  # from the clients' own coins


CASES = {
    "three-open-without-privacy": ([100, 140, 60], 5, {"uploads": "open", "privacy": 0, "segments": 2}),
    "five-masked-one-row-and-none": ([150, 1, 0, 249, 100], 8, {}),
    "five-open-one-row-and-none": ([0, 1, 200, 200, 99], 8, {"uploads": "open", "seeding": "random", "seed": None}),
    "five-masked-k32-with-a-spare": ([300, 1, 0, 199, 100], 32, {"dropouts": 1, "max_rounds": 12}),
    "five-masked-separation": ([100, 100, 100, 100, 100], 6, {"seeding": "separation", "seed": None}),
    "ten-masked-k32": ([90, 1, 0, 109, 100, 100, 50, 150, 200, 200], 32, {"privacy": 2}),
    "ten-open-with-spares": (
        [90, 1, 0, 109, 100, 100, 50, 150, 200, 200],
        16,
        {"uploads": "open", "privacy": 3, "dropouts": 1},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_labels_are_central_lloyds(tmp_path: Path, case: str) -> None:
    sizes, k, settings = CASES[case]
    parts = helpers.split(helpers.mixture(sum(sizes), 7, k, seed=len(sizes) + k), sizes)
    check_result(run(tmp_path, parts, k, **settings), parts)


@pytest.mark.slow
def test_duplicates_ties_and_empty_clusters(tmp_path: Path) -> None:
    """Few distinct rows on a grid: ties everywhere, and more clusters than k-means++ finds distinct rows."""
    rng = np.random.default_rng(3)
    parts = helpers.split(rng.integers(0, 3, size=(90, 2)).astype(np.float64), [40, 50, 0])
    check_result(run(tmp_path, parts, 12, precision=0), parts)


@pytest.mark.slow
def test_csv_with_ids_keeps_every_column_as_it_stands(tmp_path: Path) -> None:
    parts = helpers.split(np.round(helpers.mixture(120, 2, 3), 3), [50, 69, 1])
    made = helpers.describe(parts, 3, feature_names=("height", "weight"), features=2)
    site = helpers.prepared(tmp_path, parts, made)
    written = {}
    for client, part in zip(made.roster, parts, strict=True):
        lines = [f"{x!r},00{client}-{i},{y!r},café" for i, (y, x) in enumerate(part.tolist())]
        written[client] = lines
        (tmp_path / f"{client}.csv").write_text(
            "weight,patient,height,note\n" + "\n".join(lines) + "\n", encoding="utf-8"
        )
    options = {
        client: [
            "--data",
            str(tmp_path / f"{client}.csv"),
            "--out",
            str(tmp_path / f"{client}.out.csv"),
            "--id",
            "patient",
        ]
        for client in made.roster
    }
    try:
        site.start("server")
        for client in made.roster:
            site.start(client, *options[client])
        site.wait(120)
    finally:
        site.stop()
    labels = []
    for client in made.roster:
        lines = (tmp_path / f"{client}.out.csv").read_text(encoding="utf-8").splitlines()
        assert lines[0].replace('"', "") == "weight,patient,height,note,cluster"
        cells = [line.replace('"', "").rpartition(",") for line in lines[1:]]
        assert [cell[0] for cell in cells] == written[client]
        labels += [int(cell[2]) for cell in cells]
        assert pacsv.read_csv(tmp_path / f"{client}.out.csv").num_rows == len(written[client])
    np.testing.assert_array_equal(labels, helpers.pooled(made, parts).labels)
