"""The budget of a site's rows: whatever the server says or restarts, what was given away is counted on."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from secfc.agreement.policy import Policy
from secfc.errors import ConfigError, Refused, StorageError
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Distances
from secfc.kmeans.lloyd import Clustering, Step, solve
from secfc.pki import provision
from secfc.privacy.leakage import Leakage, Tally
from secfc.protocol.client.guard import Guard
from secfc.protocol.effects import Put
from secfc_client import budget
from secfc_client.budget import Account, Entry
from secfc_client.commands.budget import command
from secfc_client.store import Store
from tests.parties import deal, make_federation, plan_of
from tests.unit.test_guard import admit, ask, decode

FEATURES, K, LIMIT = 10, 3, 4
SIZES = [12, 9, 7]
AGREED = make_federation(3, features=FEATURES, seeding="random")
MINE = deal(0, SIZES, FEATURES, spread=4)[0]
NAMES = tuple(f"x{j}" for j in range(FEATURES))
KEY = budget.key_of(NAMES, MINE.astype(float))


class Site:
    """What a client process does with its state: the same steps, in the same order, as `secfc-client`."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.folder, self.policy, self.given = folder, policy, 0
        self.store = Store(folder)
        self.begin()

    def begin(self) -> None:
        """A process starts, or the server has said that it begins a new job."""
        self.store.secrets(AGREED.agreed(), MINE)
        self.guard = Guard(AGREED, plan_of(AGREED), self.policy, self.store.kept().get("given", b""))
        self.account = Account(self.folder, KEY, Entry(0, "", len(MINE), FEATURES, "rows.csv"))
        self.guard.charge(self.account.before(self.store.holder, self.guard.tally))

    def answer(self, number: int, labels: Any, columns: Any) -> None:
        request = ask(number, labels, columns)
        admit(self.guard, request, labels)
        self.account.spend(self.guard.tally)
        self.store.put([Put("given", self.guard.kept())])


def lloyd(site: Site, seed: int, session: bytes) -> list[tuple[Any, Any]]:
    """One job with that start until the site refuses; what it has answered."""
    rows = np.concatenate(deal(0, SIZES, FEATURES, spread=4))
    made, total = plan_of(AGREED), sum(SIZES)
    machine, distances = (
        Clustering(total, K, start="random", coins=Coins(bytes([seed]))),
        Distances(made.field, total, K),
    )
    site.guard.begin(session, os.urandom(32), total, bytes(32))
    given = []
    while machine.step is not Step.DONE:
        request = machine.question
        try:
            site.answer(request.number, request.labels, request.columns)
        except Refused:
            return given
        given.append((request.labels, request.columns))
        decode(request, rows, distances)
        machine.absorb(solve(request, distances))
    return given


def known(given: list[tuple[Any, Any]]) -> int:
    """How many directions a server knows that remembers everything: all sessions on one meter."""
    meter = Leakage(sum(SIZES), FEATURES)
    for labels, columns in given:
        meter = meter.after(labels, columns)
    return meter.count


def attack(site: Site, forget: Any) -> int:
    """Six jobs, each with another start; `forget` is what happens between two of them. What the server knows at the end."""
    given: list[tuple[Any, Any]] = []
    for seed in range(6):
        given += lloyd(site, seed, bytes([seed]) * 32)
        with suppress(ConfigError):  # it ends before it joins, or it answers nothing
            forget(site)
    return known(given)


def joining_again(site: Site) -> None:
    site.store.finish(keep=False)
    site.begin()


def joining_again_with_kept_shares(site: Site) -> None:
    site.store.finish(keep=True)
    site.begin()


def cleared_and_restarted(site: Site) -> None:
    site.store.finish(keep=False)
    site.store = Store(site.folder)
    site.begin()


def given_up(site: Site) -> None:
    site.store.secrets(AGREED.agreed(), MINE, new=True)
    site.begin()


def restarted(site: Site) -> None:
    site.store = Store(site.folder)
    site.begin()


WAYS = [joining_again, joining_again_with_kept_shares, cleared_and_restarted, given_up, restarted]


@pytest.mark.parametrize("forget", WAYS)
def test_a_server_that_begins_again_and_again_never_knows_more_than_the_limit(tmp_path: Path, forget: Any) -> None:
    limited = attack(Site(tmp_path / "limited", Policy(max_directions=LIMIT)), forget)
    assert 0 < limited <= LIMIT
    free = attack(Site(tmp_path / "free", Policy()), forget)
    assert free > LIMIT, "else the attack is none"
    [entry] = budget.read(tmp_path / "free").values()
    assert entry.directions >= free, "what is counted is never less than what is known"


@pytest.mark.parametrize("forget", WAYS)
def test_assignments_are_limited_over_all_jobs_too(tmp_path: Path, forget: Any) -> None:
    site = Site(tmp_path, Policy(max_assignments=7))
    given = 0
    for seed in range(4):
        given += len(lloyd(site, seed, bytes([seed]) * 32))
        with suppress(ConfigError):  # it ends before it joins, or it answers nothing
            forget(site)
    assert given == 7
    [entry] = budget.read(tmp_path).values()
    assert entry.assignments == 7


def test_an_entry_of_before_assignments_were_counted_is_read(tmp_path: Path) -> None:
    fields = {"ranks": 3, "holder": "h", "rows": 4, "features": 9, "file": "rows.csv"}
    text = {"version": 1, "seal": budget._seal({"one": fields}), "entries": {"one": fields}}
    (tmp_path / budget.FILE).write_text(json.dumps(text))
    assert budget.read(tmp_path) == {"one": Entry(3, "h", 4, 9, "rows.csv", 0, 0)}


def test_the_count_is_on_disk_before_the_answer(tmp_path: Path) -> None:
    site = Site(tmp_path, Policy())
    given = lloyd(site, 1, b"s" * 32)
    assert site.guard.ranks == budget.read(tmp_path)[KEY].ranks
    assert budget.read(tmp_path)[KEY].directions == known(given)
    assert stat.S_IMODE((tmp_path / "budget.json").stat().st_mode) == 0o600
    directions = f"distance directions given away: {known(given)} of {FEATURES}"
    assert site.guard.text() == f"{directions}; assignments given away: {len(given)}"
    assert budget.read(tmp_path)[KEY].assignments == len(given)
    cleared_and_restarted(site)
    more = lloyd(site, 2, b"t" * 32)
    assert "at most, with what earlier jobs on these rows gave away" in site.guard.text()
    assert site.guard.text().endswith(f"; assignments given away: {len(given) + len(more)}")


def test_a_restart_counts_nothing_twice_and_a_lost_note_counts_on(tmp_path: Path) -> None:
    site = Site(tmp_path, Policy())
    lloyd(site, 1, b"s" * 32)
    before = budget.read(tmp_path)[KEY].ranks
    restarted(site)
    site.account.spend(site.guard.tally)
    assert budget.read(tmp_path)[KEY].ranks == before
    (tmp_path / "given").unlink()
    restarted(site)
    assert site.guard.ranks == 0
    lloyd(site, 2, b"t" * 32)
    assert budget.read(tmp_path)[KEY].ranks == before + site.guard.ranks


def test_open_uploads_count_for_every_segment_in_the_budget_too(tmp_path: Path) -> None:
    """Else a job with masked uploads after it, or a person who looks, is told of fewer directions than the server knows."""
    agreed = make_federation(5, features=FEATURES, seeding="random", uploads="open", segments=2)
    guard = Guard(agreed, plan_of(agreed), Policy())
    account = Account(tmp_path, KEY, Entry(0, "", len(MINE), FEATURES, "rows.csv"))
    guard.charge(account.before("holder", guard.tally))
    guard.begin(bytes(32), bytes(32), sum(SIZES), bytes(32))
    labels = np.arange(sum(SIZES), dtype=np.int32) % K
    admit(guard, ask(1, labels, (0, 1, 2)), labels)
    account.spend(guard.tally)
    assert guard.leakage is not None
    assert guard.leakage.count == 4, "two directions of each of two segments"
    assert budget.read(tmp_path)[KEY].directions >= 4
    again = Guard(agreed, plan_of(agreed), Policy(), guard.kept())
    again.charge(Account(tmp_path, KEY, Entry(0, "", len(MINE), FEATURES, "rows.csv")).before("holder", again.tally))
    assert again.leakage is not None
    assert again.leakage.count == 4, "a restart counts nothing twice"


def test_a_reset_does_not_reach_the_count_of_shares_that_are_kept(tmp_path: Path) -> None:
    """As docs/operations.md says: that goes with the shares, when they are given up."""
    site = Site(tmp_path, Policy())
    given = lloyd(site, 1, b"s" * 32)
    joining_again_with_kept_shares(site)
    budget.write(tmp_path, {KEY: replace(budget.read(tmp_path)[KEY], **asdict(Tally()), holder="")})
    restarted(site)
    assert site.guard.leakage is not None
    assert site.guard.leakage.count == known(given)
    budget.write(tmp_path, {KEY: replace(budget.read(tmp_path)[KEY], **asdict(Tally()), holder="")})
    given_up(site)
    assert site.guard.ranks == 0


def test_rows_are_known_by_their_values() -> None:
    values = MINE.astype(float)
    shuffled = np.random.default_rng(0).permutation(len(values))
    columns = [3, 1, 2, 0, *range(4, FEATURES)]
    assert budget.key_of(NAMES, values[shuffled]) == KEY
    assert budget.key_of(tuple(NAMES[j] for j in columns), values[:, columns]) == KEY
    assert budget.key_of(NAMES, values[:-1]) != KEY
    assert budget.key_of(NAMES, values[:, columns]) != KEY
    values[3, 4] += 0.5
    assert budget.key_of(NAMES, values) != KEY
    assert budget.key_of(NAMES, values[:0]) != KEY
    assert budget.key_of(("a",), np.array([[0.0]])) == budget.key_of(("a",), np.array([[-0.0]]))


def test_other_rows_have_an_entry_of_their_own(tmp_path: Path) -> None:
    for key, ranks in (("one", 3), ("two", 5)):
        account = Account(tmp_path, key, Entry(0, "", 4, 9, "rows.csv"))
        account.before("holder", Tally())
        account.spend(Tally(ranks))
    assert {key: entry.ranks for key, entry in budget.read(tmp_path).items()} == {"one": 3, "two": 5}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"ranks": 3', '"ranks": 0'),
        lambda text: text.replace('"version": 1', '"version": 9'),
        lambda text: "{}",
        lambda text: "[]",
        lambda text: "",
        lambda text: "[" * 5000,
    ],
)
def test_a_damaged_budget_is_told_and_never_taken_for_none(tmp_path: Path, spoil: Any) -> None:
    account = Account(tmp_path, "one", Entry(0, "", 4, 9, "rows.csv"))
    account.before("holder", Tally())
    account.spend(Tally(3))
    path = tmp_path / budget.FILE
    path.write_text(spoil(path.read_text()))
    with pytest.raises(
        ConfigError, match=r"budget\.json: damaged, so .* is not known; .*secfc budget --kit KIT --reset"
    ):
        Account(tmp_path, "one", Entry(0, "", 4, 9, "rows.csv"))
    with pytest.raises(ConfigError, match="damaged"):
        account.spend(Tally(4))


def test_a_budget_that_cannot_be_kept_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(tmp_path, "one", Entry(0, "", 4, 9, "rows.csv"))
    account.before("holder", Tally())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        account.spend(Tally(3))


# --- the command -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits") / "kits"
    provision.provision(AGREED, folder)
    return folder / AGREED.roster[0]


def run(kit: Path, *options: str, answer: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(command, ["--kit", str(kit), *options], input=answer)
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def test_the_command_shows_and_resets_only_when_told(kit: Path) -> None:
    assert run(kit) == (0, "nothing has been given away by the rows of this state folder\n")
    for key, tally in (("aa" * 32, Tally(4, 7)), ("bb" * 32, Tally(99, 7, 2))):
        account = Account(kit / "state", key, Entry(0, "", 40, 9, "rows.csv"))
        account.before("holder", Tally())
        account.spend(tally)
    code, text = run(kit)
    assert code == 0
    assert text.splitlines() == [
        "aaaaaaaaaaaa  at most 3 of 9 directions known; assignments given away: 7  (40 rows of rows.csv)",
        "bbbbbbbbbbbb  at most 9 of 9 directions known; assignments given away: 7; inertias opened: 2"
        "  (40 rows of rows.csv)",
    ]
    about = {"of": 9, "rows": 40, "file": "rows.csv"}
    assert json.loads(run(kit, "--json")[1]) == {
        "aa" * 32: {"directions": 3, "assignments": 7, "inertias": 0} | about,
        "bb" * 32: {"directions": 9, "assignments": 7, "inertias": 2} | about,
    }
    code, text = run(kit, "--reset", answer="n\n")
    assert code != 0
    assert "not confirmed; nothing was reset" in text
    assert "give --reset too" in run(kit, "--only", "aa")[1]
    assert "matches 0 entries" in run(kit, "--reset", "--only", "cc", "--yes")[1]
    assert [e.ranks for e in budget.read(kit / "state").values()] == [4, 99]
    assert run(kit, "--reset", "--only", "aa", answer="y\n")[0] == 0
    assert [e.tally for e in budget.read(kit / "state").values()] == [Tally(), Tally(99, 7, 2)]
    (kit / "state" / budget.FILE).write_text("torn")
    assert run(kit)[0] != 0
    assert run(kit, "--reset", "--yes")[0] == 0
    assert budget.read(kit / "state") == {}
