"""Shares on disk are the same shares: whatever holds the blocks, every operation finds the same bytes."""

import os
import pickle
import resource
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import secfc
from secfc.coding.blocks import Blocks
from secfc.coding.field import Field, Layout
from secfc.coding.lagrange import Code
from secfc.coding.sharing import CodedRows, ShareSet, SlotShares
from secfc.errors import ConfigError, InvalidInput, SecfcError, StorageError, Unavailable
from secfc.kmeans.blockwork import Answer
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import CodedClusters, Shape
from secfc.privacy import verification
from secfc.protocol.effects import PutSpool
from secfc.protocol.parcels import of_words
from secfc_client.engines import dask, engine
from secfc_client.engines.engine import Engine, Wishes, bytes_of
from secfc_client.engines.spool import FileSpool
from secfc_client.engines.stored import StoredRows, unpacked
from secfc_client.store import Store

CODE = Code(Field.of(2), clients=5, segments=2, privacy=1)
ROWS, FEATURES, LENGTH, ME = 3500, 5, 3, 3  # more rows than are shared at a time, and no multiple of a word
KEY = f"shares/b/{'ab' * 16}"
Hold = Callable[..., Blocks]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def stored(store: Store, rows: int, block_bytes: int = 8 * 2 * 5 * 300) -> StoredRows:
    """On disk, 300 rows a block."""
    return StoredRows(store.folder, CODE.field, rows, LENGTH, block_bytes, store.spool)


def spooled(store: Store, words: np.ndarray, key: str = KEY) -> FileSpool:
    """Shares that have arrived and are kept."""
    spool = store.spool(key)
    for piece in np.array_split(words, 7):
        spool.write(of_words(piece).data)
    store.put([PutSpool(key, spool=spool)])
    return spool


def shares_of(rows: int, seed: int = 0) -> ShareSet:
    values = np.random.default_rng(seed).integers(-1000, 1000, (rows, FEATURES))
    return ShareSet(CODE, values, bytes([seed]) * 32)


def both(store: Store) -> tuple[CodedRows, StoredRows]:
    """The same shares of three owners, whose rows begin anywhere in a word and in a block, in memory and on disk."""
    held, disk, at = CodedRows(CODE.field, ROWS, LENGTH), stored(store, ROWS), 0
    for owner, rows in enumerate((1001, 2000, 499)):
        shares, place = shares_of(rows, owner), slice(at, at + rows)
        [words] = shares.shares([ME])
        held.put(place, words)
        disk.put(place, shares.of(ME) if owner == 1 else spooled(store, words))
        at += rows
    held.finish()
    disk.finish()
    return held, disk


def test_blocks_on_disk_give_the_same_sums_and_answers(store: Store) -> None:
    held, disk = both(store)
    assert (np.concatenate([unpacked(*disk.packed(i)) for i in range(12)], axis=1) == held.matrix).all()
    random, keys = np.random.default_rng(1), [(b"k" * 32, 1), (b"l" * 32, -1)]
    one, other = CodedClusters(held, 4), CodedClusters(disk, 4)
    for _ in range(3):
        labels = random.integers(-1, 4, ROWS).astype(np.int32)
        assert one.assign(labels) == other.assign(labels)
        assert (one.sums == other.sums).all()
        shape = Shape.of(CODE.field, ROWS, one.sizes, (0, 2, 3), FEATURES * 4)
        weights = np.array([3, 5])
        assert (other.upload(shape, weights, keys) == one.upload(shape, weights, keys)).all()
        assert (other.upload(shape) == one.upload(shape)).all()


def test_an_answer_is_read_from_any_word_on_and_later_moves_do_not_change_it(store: Store) -> None:
    _, disk = both(store)
    clusters = CodedClusters(disk, 2)
    clusters.assign((np.arange(ROWS) % 2).astype(np.int32))
    shape = Shape.of(CODE.field, ROWS, clusters.sizes, (0, 1), FEATURES * 4)
    whole, answer = clusters.upload(shape), clusters.answer(shape)
    clusters.assign(np.zeros(ROWS, dtype=np.int32))
    for first in (0, 1, 399, 400, 401, len(whole) - 1):
        pieces = list(answer.pieces(first))
        assert pieces[0][0] == first
        assert (np.concatenate([words for _, words in pieces]) == whole[first:]).all()
    assert list(answer.pieces(len(whole))) == []


def test_the_check_of_all_shares_gives_the_same_values(store: Store) -> None:
    held, disk = both(store)
    assert (verification.combined(disk, Coins(b"c")) == verification.combined(held, Coins(b"c"))).all()


def test_several_owners_of_all_slots_are_added_up(store: Store) -> None:
    held, disk = CodedRows(CODE.field, 700, LENGTH), stored(store, 700)
    for owner in range(3):
        values = np.random.default_rng(owner).integers(-9, 9, (200, FEATURES))
        slots = np.arange(200) * 3 + owner
        shares = SlotShares(CODE, values, slots, 700, bytes([owner]) * 32)
        held.put(slice(0, 700), shares.shares([ME])[0], add=True)
        disk.put(slice(0, 700), shares.of(ME), add=True)
    held.finish()
    assert (np.concatenate([unpacked(*disk.packed(i)) for i in range(3)], axis=1) == held.matrix).all()


def test_shares_of_too_few_rows_are_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="2 rows are needed, not of 1"):
        stored(store, 2).put(slice(0, 2), shares_of(1).of(ME))


def test_files_are_the_owners_alone_and_gone_with_the_process(store: Store) -> None:
    disk = stored(store, ROWS)
    assert list(store.folder.iterdir()) == []
    assert os.fstat(disk._file).st_mode & 0o777 == 0o600
    spool = store.spool(KEY)
    [path] = store.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    del spool
    assert list(store.folder.iterdir()) == []


def test_gathered_shares_are_kept_as_others_are_and_read_again(store: Store) -> None:
    [words] = shares_of(100).shares([ME])
    spooled(store, words)
    found = store.packed(KEY)
    assert store.get(KEY) == words.tobytes()
    assert found is not None
    assert len(found) == 8 * len(words)
    pieces = list(found.pieces(2 * LENGTH))
    assert (np.concatenate([piece for _, piece in pieces]) == words).all()
    assert store.packed(KEY.replace("ab", "cd")) is None
    path = store.folder / "b.shares"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert store.packed(KEY) is None


def test_what_a_killed_process_has_gathered_is_removed(store: Store) -> None:
    spool = store.spool(KEY)
    spool.write(b"12345678")
    assert len(list(store.folder.iterdir())) == 1
    store.forget_spools()
    assert list(store.folder.iterdir()) == []


def test_a_disk_that_takes_no_more_is_told_when_the_shares_are_to_be_kept(store: Store) -> None:
    spool = store.spool(KEY)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        spool.write(bytes(1 << 16))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(StorageError, match="make room there"):
        store.put([PutSpool(KEY, spool=spool)])
    assert len(spool) == 1 << 16


def test_a_file_that_cannot_be_opened_is_told_when_the_shares_are_to_be_kept(store: Store) -> None:
    """Not to whoever sends them."""
    store.folder.parent.mkdir(exist_ok=True)
    store.folder.write_text("no folder")
    spool = store.spool(KEY)
    spool.write(b"12345678")
    with pytest.raises(SecfcError, match="cannot keep shares there"):
        store.put([PutSpool(KEY, spool=spool)])


def test_shares_of_no_rows_are_kept_too(store: Store) -> None:
    spooled(store, np.empty(0, dtype=np.uint64))
    assert store.packed(KEY) is not None


def test_nobody_holds_a_block_while_it_is_waited_for(store: Store) -> None:
    disk = stored(store, 600)
    seen: list[weakref.ref[np.ndarray]] = []
    asked = disk.each(lambda *_: lambda _, matrix: seen.append(weakref.ref(matrix)))
    next(asked)
    assert seen[0]() is None


def test_shares_go_to_disk_when_they_would_not_fit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "taken", lambda: 100 << 20)
    row = 8 * 2 * (LENGTH + 2) + 8 * 2 * LENGTH // 3 + 10
    fits = Engine(Wishes((100 << 20) + 1000 * row), store, 10)
    assert isinstance(fits.hold(CODE.field, 1000, LENGTH), CodedRows)
    assert isinstance(fits.hold(CODE.field, 1001, LENGTH), StoredRows)
    assert isinstance(Engine(Wishes(None), store, 10).hold(CODE.field, 1001, LENGTH), CodedRows)


def test_a_limit_that_leaves_no_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "taken", lambda: 100 << 20)
    engine.check(None)
    engine.check(132 << 20)
    with pytest.raises(InvalidInput, match="need 132MiB before any shares"):
        engine.check((132 << 20) - 1)


def test_sizes() -> None:
    assert bytes_of("2GiB") == 2 << 30
    assert bytes_of("512MiB") == 512 << 20
    for wrong in ("2", "2GB", "0MiB", "-1MiB", "1.5GiB", ""):
        with pytest.raises(InvalidInput, match="such as 512MiB"):
            bytes_of(wrong)


LARGE = """
import sys
import numpy as np
from pathlib import Path
from secfc.coding import kernels
from secfc.coding.blocks import Blocks
from secfc.coding.field import Field, Layout
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import CodedClusters, Shape
from secfc.privacy import verification
from secfc.protocol.effects import PutSpool
from secfc_client.engines.engine import Engine, Wishes, taken
from secfc_client.store import Store

field, length, owners, share = Field.of(3), 160, 3, bytes(1 << 20)
kernels.warm()
Path("/proc/self/clear_refs").write_text("5")  # what compiling took is no peak of ours
store, limit = Store(Path(sys.argv[1])), taken() + (64 << 20)
rows = 5 * limit // (8 * field.lanes * (length + 2)) // owners * owners
blocks = Engine(Wishes(limit), store, 50).hold(field, rows, length)
for owner in range(owners):
    key = f"shares/{owner}/{'00' * 16}"
    spool, left = blocks.spool(key), 8 * Layout.uniform(field, rows // owners, length).words
    while left:
        spool.write(share[:left])
        left -= len(share[:left])
    store.put([PutSpool(key, spool=spool)])
    blocks.put(slice(owner * rows // owners, (owner + 1) * rows // owners), spool)
blocks.finish()
assert not verification.combined(blocks, Coins(b"c")).any()
clusters = CodedClusters(blocks, 4)
for shift in range(2):
    clusters.assign(((np.arange(rows, dtype=np.int32) + shift) % 4))
    shape = Shape.of(field, rows, clusters.sizes, range(4), 1 << 20)
    assert sum(len(words) for _, words in clusters.answer(shape, masks=[(bytes(32), 1)]).pieces()) == shape.layout.words
peak = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(limit, peak, rows * 8 * field.lanes * (length + 2))
"""


@pytest.mark.parametrize("writable", [True, False])
def test_a_worker_takes_a_block_that_begins_anywhere_in_memory(writable: bool) -> None:
    """As one does that has come from another worker: kernels take none of these."""
    block = np.random.default_rng(0).integers(-9, 9, (2, 300, 5)).astype(np.float64)
    raw = bytearray(3) + block.tobytes()
    moved = np.frombuffer(raw if writable else bytes(raw), dtype=np.float64, offset=3).reshape(block.shape)
    assert not moved.flags.aligned
    answer = Answer(Layout(CODE.field, 300, (4, 4)), [np.ones((5, 4)), np.ones((5, 4))], [(bytes(32), 1)])
    assert (dask._done(secfc.__version__, pickle.dumps(answer), 0, moved) == answer(0, block)).all()


class Pretended:
    """A Dask client that is told what becomes of its cluster."""

    made: ClassVar[list[Any]] = []
    workers: ClassVar[dict[str, str]] = {}
    unable: ClassVar[Exception | None] = None

    def __init__(self, address: str, **_: object) -> None:
        self.status = "running"
        self.error: Exception | None = None
        self.made.append(self)

    def wait_for_workers(self, *_: object, **__: object) -> None:
        pass

    def run(self, _: object) -> dict[str, str]:
        if self.unable is not None:
            raise self.unable
        return self.workers

    def nthreads(self) -> dict[str, int]:
        self._any()
        return {"one": 1, "other": 2}

    def _any(self, *_: object, **__: object) -> Any:
        if self.error is not None:
            raise self.error
        return self

    scatter = submit = result = _any

    def done(self) -> bool:
        return True


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
    inner = SimpleNamespace(FutureCancelledError=KeyError)
    module = SimpleNamespace(Client=Pretended, KilledWorker=KeyError, client=inner)
    monkeypatch.setitem(sys.modules, "distributed", module)
    monkeypatch.setattr(Pretended, "made", [])
    monkeypatch.setattr(Pretended, "workers", {"tcp://127.0.0.1:1": secfc.__version__})
    return Pretended


GONE = [RuntimeError("ConnectionPool is closed"), AttributeError("'NoneType' object has no attribute 'send'")]
AWAY = [OSError("x"), TimeoutError("No valid workers found")]


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [*((e, "closed", "the Dask scheduler at .* is gone") for e in GONE), *((e, "running", "workers") for e in AWAY)],
)
def test_a_cluster_that_is_lost_is_told_as_such_whatever_dask_raises(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, why: str
) -> None:
    monkeypatch.setattr(dask, "PATIENCE_SECONDS", -1.0)
    cluster = dask.Cluster("dask://127.0.0.1:1")
    assert cluster.threads == 3
    [client] = pretended.made
    client.error, client.status = error, status
    layout = Layout.uniform(CODE.field, 1, 1)
    asking: list[Callable[[], Any]] = [
        lambda: cluster.place(np.zeros(1, dtype=np.uint64), layout),
        lambda: cluster.ask(Answer(layout, [], []), 0, None),
        lambda: cluster.result(client, lambda: None),
    ]
    for ask in asking:
        with pytest.raises(Unavailable, match=f"{why}.*start the same command again to go on"):
            ask()
    assert cluster.threads == 1


def test_what_an_operation_raises_is_no_lost_cluster(pretended: type[Pretended]) -> None:
    cluster = dask.Cluster("dask://127.0.0.1:1")
    cluster.client.error = ValueError("x")
    with pytest.raises(ValueError, match="x"):
        cluster.result(cluster.client, lambda: None)


def test_a_node_connects_anew_for_the_next_job(pretended: type[Pretended]) -> None:
    cluster = dask.Cluster("dask://127.0.0.1:1")
    cluster.revive()
    assert len(pretended.made) == 1
    cluster.client.status = "closed"
    cluster.revive()
    assert len(pretended.made) == 2
    assert cluster.client is pretended.made[1]


def test_workers_without_the_same_secfc_are_refused(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pretended, "workers", {"tcp://127.0.0.1:1": "0.0.1"})
    with pytest.raises(ConfigError, match=r"have SecFC 0\.0\.1, and this is"):
        dask.Cluster("dask://127.0.0.1:1")
    monkeypatch.setattr(Pretended, "unable", ModuleNotFoundError("No module named 'secfc_client'"))
    with pytest.raises(ConfigError, match=r"cannot run SecFC \(No module .*install the same version there"):
        dask.Cluster("dask://127.0.0.1:1")


def test_a_worker_that_comes_later_with_another_version_refuses() -> None:
    refuses = r"a worker has SecFC .*, and the client 0\.0\.1"
    with pytest.raises(ConfigError, match=refuses):
        dask._done("0.0.1", b"", 0, np.zeros(1))
    with pytest.raises(ConfigError, match=refuses):
        dask._unpacked("0.0.1", np.zeros(1, dtype=np.uint64), b"")


@pytest.mark.parametrize(
    ("engine", "worker", "warned"),
    [
        ("dask://127.0.0.1:1", "tcp://127.0.0.1:2", False),
        ("dask://127.0.0.1:1", "tcp://10.0.0.5:2", True),
        ("dask://10.0.0.5:1", "tcp://127.0.0.1:2", True),
        ("tls://10.0.0.5:1", "tls://10.0.0.6:2", False),
    ],
)
def test_shares_that_would_travel_unencrypted_are_warned_of(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch, engine: str, worker: str, warned: bool
) -> None:
    said: list[str] = []
    monkeypatch.setattr(dask, "say", lambda _, text, **__: said.append(text))
    monkeypatch.setattr(Pretended, "workers", {worker: secfc.__version__})
    dask.Cluster(engine)
    assert any("unencrypted" in text for text in said) == warned


@pytest.mark.slow
def test_peak_memory_stays_near_the_limit_with_five_times_its_size_of_shares(tmp_path: Path) -> None:
    """As the operating system counts: receiving, the check of all shares and rounds."""
    done = subprocess.run([sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=True)
    limit, peak, shares = map(int, done.stdout.split())
    assert shares >= 4.99 * limit
    assert peak <= 1.3 * limit, f"{peak >> 20} MiB of {limit >> 20} MiB"
