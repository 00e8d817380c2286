"""Columns at different sites, with real processes: two holders that share most of their people, and a client that helps."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from secfc import local
from secfc.agreement.features import Feature
from secfc.local import Local
from tests.integration import helpers

pytestmark = pytest.mark.slow

AGREED = (
    Feature("age", range=(0.0, 100.0), holder="client-1"),
    Feature("income", range=(0.0, 1e6), holder="client-2"),
    Feature("sex", levels=("f", "m"), holder="client-1"),
)
NAMES = tuple(name for one in AGREED for name in one.columns)
COMMON = [f"person {i}" for i in range(60)]


class People:
    """What the sites know. Everybody has an age, a sex and an income; not everybody is known at both sites."""

    def __init__(self, seed: int = 5) -> None:
        chance = np.random.default_rng(seed)
        self.names = COMMON + [f"other {i}" for i in range(12)]
        kinds = np.arange(len(self.names)) % 3
        self.age = np.array([20.0, 70.0, 40.0])[kinds] + chance.integers(-80, 80, len(kinds)) / 8
        self.income = np.array([1e5, 2e5, 8e5])[kinds] + chance.integers(-9000, 9000, len(kinds))
        self.sex = chance.choice(["f", "m"], len(kinds)).tolist()
        self.order = chance.permutation(len(kinds))

    def first(self) -> list[list[str]]:
        """The clinic has five people of its own; of one more, and of one whom both have, it does not know the age."""
        own = [*range(60), *range(60, 66)]
        lacking = {3, 65}
        return [[self.names[i], "" if i in lacking else f"{self.age[i]}", self.sex[i]] for i in own]

    def second(self) -> list[list[str]]:
        """The bank lacks two of the clinic's people and has six more; its rows are in another order."""
        return [[f"{self.income[i]}", self.names[i]] for i in self.order if i not in (7, 8, *range(60, 66))]

    @property
    def joined(self) -> list[int]:
        return [i for i in range(60) if i not in (3, 7, 8)]

    def values(self) -> np.ndarray:
        columns = self.age / 50 - 1, self.income / 5e5 - 1, [s == "f" for s in self.sex], [s == "m" for s in self.sex]
        return np.stack([np.asarray(one, dtype=float) for one in columns], axis=1)


def make(folder: Path, people: People, **settings: object) -> Local:
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
        max_rows=80,
        split="columns",
        **settings,
    )
    site = helpers.prepared(folder, [np.zeros((1, len(NAMES)))] * 2, made)
    for client, header, rows in (
        ("client-1", ["id", "age", "sex"], people.first()),
        ("client-2", ["income", "id"], people.second()),
    ):
        with open(folder / f"{client}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    return site


def start(site: Local, party: str) -> None:
    files = {name: ("--data", str(site.folder / f"{name}.csv")) for name in site.federation.holders}
    site.start(party, *files.get(party, ()), *(["--write-ids"] if party in files else []))


def found(site: Local, client: str) -> tuple[dict[str, int | None], dict[str, str | None]]:
    """Clusters and IDs of a site's people, by name."""
    table = pq.read_table(site.labels_file(client))
    columns = {name: table[name].to_pylist() for name in ("id", "cluster", "secfc_id")}
    return (
        dict(zip(columns["id"], columns["cluster"], strict=True)),
        dict(zip(columns["id"], columns["secfc_id"], strict=True)),
    )


def check(site: Local, people: People) -> None:
    """Both have, of the same people, the labels of central Lloyd on the joined table; others have none."""
    (first, ids), (second, others) = found(site, "client-1"), found(site, "client-2")
    names = [people.names[i] for i in people.joined]
    assert {name for name, label in first.items() if label is not None} == set(names)
    assert {name for name, label in second.items() if label is not None} == set(names)
    assert [ids[name] for name in names] == [others[name] for name in names]
    order = np.argsort([str(ids[name]) for name in names])
    expected = helpers.pooled(site.federation, [people.values()[people.joined][order]]).labels
    for labels in (first, second):
        assert [labels[names[i]] for i in order] == expected.tolist()
    result = site.result()
    assert (result["rows"], result["split"], result["holders"]) == (57, "columns", ["client-1", "client-2"])
    assert not site.labels_file("client-3").exists()
    outside = [event["ours_outside"] for event in site.events("client-1") if "ours_outside" in event]
    assert outside
    assert set(outside) == {7}, "five of its own, two that the bank lacks; the rest lack a value"
    assert not any("ours_outside" in event for party in ("server", "client-3") for event in site.events(party))


@pytest.mark.parametrize("uploads", ["sealed", "masked"])
def test_labels_are_those_of_the_joined_table(tmp_path: Path, uploads: str) -> None:
    people = People()
    site = make(tmp_path, people, uploads=uploads, relay="only" if uploads == "sealed" else "never")
    assert [(site.kit(name) / "link.key").exists() for name in ("server", *site.federation.roster)] == [
        *(False, True, True),
        False,
    ]
    try:
        for party in ("server", *site.federation.roster):
            start(site, party)
        site.wait(240)
    finally:
        site.stop()
    check(site, people)
    for name in people.names[60:]:
        assert all(name not in helpers.text(site, party) for party in ("server", *site.federation.roster))


@pytest.mark.parametrize("party", ["client-1", "client-3", "server"])
@pytest.mark.parametrize("moment", ["union", "sharing"])
def test_killed_and_started_again(tmp_path: Path, party: str, moment: str) -> None:
    people = People()
    site = make(tmp_path, people)
    try:
        for one in ("server", *site.federation.roster):
            start(site, one)
        helpers.until(lambda: helpers.said(site, "server", moment), f"the server says {moment}", 120)
        site.processes[party].kill()
        site.processes[party].wait()
        start(site, party)
        site.wait(240)
    finally:
        site.stop()
    check(site, people)
