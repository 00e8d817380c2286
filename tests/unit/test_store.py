"""A client's state folder: what survives, what does not, and who may read it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.errors import ConfigError, StorageError
from secfc.protocol.client.site import Secrets
from secfc.protocol.effects import Drop, Put
from secfc_client import budget, keptlabels
from secfc_client.keptlabels import KeptLabels
from secfc_client.store import Store

ROWS = np.array([[1, -2], [3, 4]], dtype=np.int64)
DIGEST = b"f" * 32


def plain(secrets: Secrets) -> tuple[bytes, ...]:
    return secrets.seed, secrets.x25519.private_bytes_raw(), secrets.nonce, secrets.coin


def put(store: Store, **values: bytes) -> None:
    store.put([Put(key, value) for key, value in values.items()])


SHARES, LASTING, SET = f"shares/b/{b'set'.hex()}", f"lasting/b/{b'set'.hex()}", b"set"
WORDS = bytes(range(40))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kit" / "state"


def test_secrets_survive_the_process(folder: Path) -> None:
    first = plain(Store(folder).secrets(DIGEST, ROWS))
    assert [len(secret) for secret in first] == [32, 32, 32, 32]
    assert len(set(first)) == 4
    assert plain(Store(folder).secrets(DIGEST, ROWS.copy())) == first
    big_endian = ROWS.astype(">i8")
    assert plain(Store(folder).secrets(DIGEST, big_endian)) == first


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_only_the_owner_may_read_them(folder: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        Store(folder).secrets(DIGEST, ROWS)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secrets.json").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["secrets.json"], "nothing temporary is left"


@pytest.mark.parametrize(
    ("digest", "rows"),
    [
        (b"g" * 32, ROWS),
        (DIGEST, ROWS[:1]),
        (DIGEST, ROWS[::-1]),
        (DIGEST, ROWS + 1),
        (DIGEST, ROWS.reshape(4, 1)),
        (DIGEST, ROWS.reshape(1, 4)),
        (DIGEST, ROWS[:0]),
    ],
)
def test_other_rows_or_another_federation_get_fresh_secrets(folder: Path, digest: bytes, rows: np.ndarray) -> None:  # type: ignore[type-arg]
    """Two polynomials through different rows with the same noise would show the difference of the rows."""
    first = plain(Store(folder).secrets(DIGEST, ROWS))
    second = plain(Store(folder).secrets(digest, rows))
    assert not set(first) & set(second)
    assert plain(Store(folder).secrets(digest, rows)) == second
    assert not set(first) & set(plain(Store(folder).secrets(DIGEST, ROWS))), "the first are gone"


def damaged(folder: Path) -> dict[str, bytes]:
    good = (folder / "secrets.json").read_bytes()
    fields = json.loads(good)

    def without(**changes: object) -> bytes:
        return json.dumps(fields | changes).encode()

    return {
        "empty": b"",
        "torn": good[: len(good) // 2],
        "torn at the end": good[:-1],
        "binary": bytes(range(256)),
        "not an object": b"[1]",
        "null": b"null",
        "a number": b"1",
        "no fields": b"{}",
        "another version": without(version=1),
        "no seed": json.dumps({key: value for key, value in fields.items() if key != "seed"}).encode(),
        "a short seed": without(seed="00" * 31),
        "a short nonce": without(nonce="00"),
        "a short coin": without(coin="00" * 31),
        "a short key": without(x25519="00" * 31),
        "not hex": without(seed="zz" * 32),
        "not a string": without(seed=5),
        "not ascii": without(nonce="é" * 32),
    }


KINDS = (
    *("empty", "torn", "torn at the end", "binary", "not an object", "null", "a number", "no fields"),
    *("another version", "no seed", "a short seed", "a short nonce", "a short key", "not hex", "not a string"),
    *("not ascii", "a short coin"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_replaced(folder: Path, kind: str) -> None:
    first = plain(Store(folder).secrets(DIGEST, ROWS))
    (folder / "secrets.json").write_bytes(damaged(folder)[kind])
    second = plain(Store(folder).secrets(DIGEST, ROWS))
    assert not set(first) & set(second)
    assert plain(Store(folder).secrets(DIGEST, ROWS)) == second


def test_a_deeply_nested_file_is_replaced(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "secrets.json").write_bytes(b"[" * 4096)
    Store(folder).secrets(DIGEST, ROWS)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300))
def test_garbage_is_replaced(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "garbage"
    folder.mkdir(exist_ok=True)
    (folder / "secrets.json").write_bytes(data)
    first = plain(Store(folder).secrets(DIGEST, ROWS))
    assert plain(Store(folder).secrets(DIGEST, ROWS)) == first


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="check the state folder"):
        Store(file / "state").secrets(DIGEST, ROWS)
    with pytest.raises(ConfigError, match="check the state folder"):
        Store(file).secrets(DIGEST, ROWS)
    (tmp_path / "state" / "secrets.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match="check the state folder"):
        Store(tmp_path / "state").secrets(DIGEST, ROWS)
    store = Store(tmp_path / "other")
    store.secrets(DIGEST, ROWS)
    (tmp_path / "other" / "given").mkdir()
    with pytest.raises(ConfigError, match="choose another --state"):
        put(store, given=b"what was asked")


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """A folder of a user that is not root, who may read and write everything; we are that user meanwhile."""
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    if user == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    yield folder
    if user == 0:
        os.seteuid(0)
    shutil.rmtree(folder)


def test_a_folder_without_permissions(nobodys: Path) -> None:
    folder = nobodys / "state"
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.raises(ConfigError, match="choose another --state"):
        Store(folder).secrets(DIGEST, ROWS)
    folder.chmod(0o000)
    with pytest.raises(ConfigError, match="check the state folder"):
        Store(folder).secrets(DIGEST, ROWS)
    folder.chmod(0o700)


def test_a_full_disk_is_told_and_the_old_file_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = plain(Store(folder).secrets(DIGEST, ROWS))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"No space left on device.*nothing is lost"):
            Store(folder).secrets(DIGEST, ROWS + 1)
    assert plain(Store(folder).secrets(DIGEST, ROWS)) == first


def test_secrets_are_never_printed(folder: Path) -> None:
    store = Store(folder)
    secrets = store.secrets(DIGEST, ROWS)
    for shown in (repr(secrets), str(secrets), f"{secrets!r}", repr(store), repr([secrets])):
        assert secrets.seed.hex() not in shown
        assert repr(secrets.seed)[2:-1] not in shown
        assert secrets.nonce.hex() not in shown
        assert secrets.coin.hex() not in shown
    assert repr(secrets) == "Secrets(…)"


def test_clear_gives_the_next_job_fresh_secrets(folder: Path) -> None:
    store = Store(folder)
    store.finish(keep=False)  # nothing there yet
    first = plain(store.secrets(DIGEST, ROWS))
    store.finish(keep=False)
    assert not (folder / "secrets.json").exists()
    store.finish(keep=False)
    assert not set(first) & set(plain(store.secrets(DIGEST, ROWS)))


def test_written_labels_are_noted_until_the_job_is_cleared(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    assert "written" not in store.kept()
    put(store, written=b"")
    again = Store(folder)
    again.secrets(DIGEST, ROWS)
    assert (again.resumed, again.kept()) == (True, {"written": b""})
    again.finish(keep=False)
    assert list(folder.iterdir()) == []
    again.secrets(DIGEST, ROWS)
    assert (again.resumed, again.kept()) == (False, {})


def test_other_rows_are_another_job_and_take_over_nothing(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, written=b"")
    store.secrets(DIGEST, ROWS + 1)
    assert (store.resumed, store.kept()) == (False, {})
    assert sorted(path.name for path in folder.iterdir()) == ["secrets.json"]


def test_where_a_coin_was_revealed_is_known_until_there_is_another(folder: Path) -> None:
    first = Store(folder)
    coin = first.secrets(DIGEST, ROWS).coin
    put(first, revealed=b"s" * 32)
    again = Store(folder).secrets(DIGEST, ROWS)
    assert (again.coin, again.revealed) == (coin, b"s" * 32)
    fresh = Store(folder).secrets(DIGEST, ROWS + 1)
    assert fresh.coin != coin
    assert fresh.revealed == Store(folder).secrets(DIGEST, ROWS + 1).revealed == b""
    put(first, revealed=b"s" * 32)
    first.finish(keep=False)
    assert list(folder.iterdir()) == []


def test_the_last_epoch_of_sealed_rounds_survives_the_process_and_not_the_job(folder: Path) -> None:
    """A member refuses an epoch that is not above its last; a new job counts from the beginning."""
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, noted=b"session 7")
    again = Store(folder)
    again.secrets(DIGEST, ROWS)
    assert again.kept()["noted"] == b"session 7"
    again.finish(keep=True)
    assert "noted" not in Store(folder).kept()


def test_kept_shares_mean_the_same_seed_and_a_fresh_session(folder: Path) -> None:
    store = Store(folder)
    first = plain(store.secrets(DIGEST, ROWS))
    store.put([Put(LASTING, WORDS)])
    put(store, given=b"what was asked", written=b"", joined=b"")
    store.finish(keep=True)
    again = Store(folder)
    second = plain(again.secrets(DIGEST, ROWS))
    assert second[0] == first[0], "the same shares"
    assert not set(first[1:]) & set(second[1:]), "fresh keys and a fresh nonce"
    assert (again.resumed, again.kept()) == (True, {"given": b"what was asked"})
    assert again.get(SHARES) == again.get(LASTING) == WORDS
    assert again.get(f"shares/b/{b'another'.hex()}") is None
    assert again.get(f"shares/c/{SET.hex()}") is None


def test_shares_of_an_owner_that_lets_them_serve_one_job_do_not_outlive_it(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    store.put([Put(LASTING, WORDS)])
    store.put([Put("this-job-only/b", b"")])
    store.put([Put("this-job-only/c", b"")])  # of whom nothing is here
    assert store.get(SHARES) == WORDS
    store.finish(keep=True)
    assert store.get(SHARES) is None
    store.put([Put(LASTING, WORDS)])
    store.put([Put(SHARES, WORDS[:8])])
    assert store.get(LASTING) == WORDS[:8], "an earlier job's are replaced"


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-1], lambda whole: whole + b"x", lambda whole: b"", bytes.swapcase]
)
def test_torn_shares_are_as_good_as_none(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    store.put([Put(SHARES, b"words")])
    assert store.get(SHARES) == b"words"
    (folder / "b.shares").write_bytes(damage((folder / "b.shares").read_bytes()))
    assert store.get(SHARES) is None


def test_a_note_is_dropped(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, joined=b"")
    store.put([Drop("joined"), Drop("joined")])
    assert (store.kept(), store.begun) == ({}, False)


def test_without_keeping_nothing_is_left(folder: Path) -> None:
    store = Store(folder)
    first = plain(store.secrets(DIGEST, ROWS))
    store.put([Put(SHARES, WORDS)])
    put(store, given=b"what was asked")
    store.finish(keep=False)
    assert list(folder.iterdir()) == []
    assert not set(first) & set(plain(store.secrets(DIGEST, ROWS)))
    assert "given" not in store.kept()


def test_other_rows_have_given_nothing_away(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, given=b"what was asked")
    assert stat.S_IMODE((folder / "given").stat().st_mode) == 0o600
    store.secrets(DIGEST, ROWS + 1)
    assert "given" not in store.kept()


def test_a_damaged_count_is_not_taken_for_none(folder: Path) -> None:
    """Else whoever can damage it could have everything asked once more."""
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, given=b"what was asked")
    (folder / "given").write_bytes((folder / "given").read_bytes()[:-1])
    with pytest.raises(ConfigError, match="what these shares gave away is not known; start once with --new"):
        store.kept()


# --- a job that is under way ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("digest", "rows", "words"),
    [
        (DIGEST, ROWS + 1, "the rows are not what it began with"),
        (b"g" * 32, ROWS, r"federation\.toml, or the --id column"),
    ],
)
def test_changed_rows_are_refused_and_nothing_is_lost(
    folder: Path, digest: bytes, rows: np.ndarray, words: str
) -> None:  # type: ignore[type-arg]
    store = Store(folder)
    first = plain(store.secrets(DIGEST, ROWS))
    store.put([Put(SHARES, WORDS)])
    put(store, given=b"what was asked")
    put(store, joined=b"")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match=f"{words}.*put the old file back.*--new to give it up.*gone") as caught:
        Store(folder).secrets(digest, rows)
    assert len(str(caught.value).splitlines()) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert plain(Store(folder).secrets(DIGEST, ROWS)) == first, "the old file put back goes on"


def test_an_unfinished_job_is_given_up_only_when_told(folder: Path) -> None:
    store = Store(folder)
    first = plain(store.secrets(DIGEST, ROWS))
    put(store, joined=b"")
    put(store, written=b"s" * 32 + b"a" * 32)
    store.put([Put("answer/b", b"an answer")])
    put(store, given=b"what was asked")
    again = Store(folder)
    fresh = plain(again.secrets(DIGEST, ROWS + 1, new=True))
    assert not set(first) & set(fresh)
    assert (again.resumed, again.kept()) == (False, {})
    assert [path.name for path in folder.iterdir()] == ["secrets.json"]
    assert plain(Store(folder).secrets(DIGEST, ROWS + 1)) == fresh


def test_after_a_job_other_rows_are_welcome(folder: Path) -> None:
    for keep in (False, True):
        store = Store(folder)
        store.secrets(DIGEST, ROWS)
        put(store, joined=b"")
        store.finish(keep=keep)
        Store(folder).secrets(DIGEST, ROWS + 1)
        Store(folder).finish(keep=False)


def test_what_is_left_to_do_is_known_after_a_restart(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    notes = {"written": b"s" * 32 + b"a" * 32, "answer/b": b"of this session", "answer/c": b"of another session"}
    put(store, **notes)
    again = Store(folder)
    again.secrets(DIGEST, ROWS)
    assert again.kept() == notes
    (folder / "b.answer").write_bytes((folder / "b.answer").read_bytes()[:-1])
    del notes["answer/b"]
    assert again.kept() == notes, "a torn answer is as good as none"
    put(again, **{"centers-done": b""})
    assert Store(folder).kept() == notes | {"centers-done": b""}
    again.finish(keep=True)
    assert [path.name for path in folder.iterdir()] == ["secrets.json"]


@pytest.mark.parametrize("note", ["joined", "written", "centers-done", "past", "revealed", "given"])
def test_a_damaged_note_is_told_and_not_guessed(folder: Path, note: str) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, **{note: b"something"})
    (folder / note).write_bytes(b"x")
    with pytest.raises(ConfigError, match=f"{note}: damaged, so .* is not known; start once with --new"):
        Store(folder).kept()


def test_clearing_leaves_the_budget_and_the_labels(folder: Path) -> None:
    store = Store(folder)
    store.secrets(DIGEST, ROWS)
    put(store, joined=b"")
    budget.write(folder, {})
    keptlabels.keep(folder, KeptLabels(b"s" * 32, "table", np.array([1, 0], np.int32), None))
    store.finish(keep=False)
    assert sorted(path.name for path in folder.iterdir()) == ["budget.json", f"labels-{'73' * 16}.kept"]
