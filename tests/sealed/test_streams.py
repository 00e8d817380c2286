"""Streams and what they are bound to (docs/sealed.md, Section 2)."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import count as count_up
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secfc.coding.field import Field
from secfc.privacy.sealed import streams
from secfc.privacy.sealed.context import Context, Line, Purse, leader_pad, pad_key
from tests import oracle
from tests.sealed.committee import Job

PURPOSES = [
    *("pad", "dir", "turn/0", "factor", "zero/1", "zero/2", "count-factor", "count-zero/1", "count-zero/2"),
    *("select-pad", "select-zero/1", "select-zero/2", "group-turn", "blur", "digits", "bits", "select"),
]
CONTEXT = Context(b"s", b"p", 1, (0, 2), 5, 1, (0, 1, 2), b"a", (0, 1), b"q")


def plain(key: bytes, count: int, nonzero: bool) -> list[int]:
    """Small values from their description, one by one."""
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    spares = (b & 127 for n in count_up() for b in blocks.update(((1 << 127) + n).to_bytes(16, "big")))
    good = (value for value in spares if nonzero <= value < 127)
    values = (blocks.update((q // 16).to_bytes(16, "big"))[q % 16] & 127 for q in range(count))
    return [value if nonzero <= value < 127 else next(good) for value in values]


@pytest.mark.parametrize("nonzero", [False, True])
@pytest.mark.parametrize("cut", [1, 7, 64, 1000])
def test_small_values_depend_on_key_and_position_alone(nonzero: bool, cut: int) -> None:
    key = bytes(range(32))
    stream = streams.SmallStream(key, nonzero=nonzero)
    found = np.concatenate([stream.read(cut).copy() for _ in range(3000 // cut + 1)])[:3000]
    assert found.tolist() == plain(key, 3000, nonzero)
    assert "secret" in repr(stream)


def test_small_values_are_uniform() -> None:
    for nonzero in (False, True):
        counts = np.bincount(streams.SmallStream(bytes(32), nonzero=nonzero).read(1 << 20), minlength=128)
        kinds = counts[nonzero:127]
        assert counts[127] == 0
        assert not nonzero or counts[0] == 0
        assert ((kinds - kinds.mean()) ** 2 / kinds.mean()).sum() < 220  # 126 degrees of freedom: below with 1 − 10⁻⁶


@pytest.mark.parametrize("bound", [1, 2, 3, 12, 45, 122, 128])
def test_numbers_below_a_bound(bound: int) -> None:
    found = streams.below(bytes(32), bound, 1 << 16)
    counts = np.bincount(found, minlength=bound)
    assert len(counts) == bound
    assert (abs(counts - 65536 / bound) < 6 * (65536 / bound) ** 0.5 + 1).all()
    assert (streams.below(bytes(32), bound, 100) == found[:100]).all()


def test_residues_are_those_of_masks() -> None:
    field, key = Field.of(3), bytes(range(32))
    wanted, _ = oracle.stream(key, field.primes, 300)
    assert streams.residues(key, field, 100).reshape(-1).tolist() == wanted
    values = np.ones((100, 3), dtype=np.uint32)
    both = streams.add_residues(values, [(key, 1), (key, -1)], field)
    assert (both == 1).all()


def test_every_part_of_the_context_changes_every_stream() -> None:
    other: dict[str, Any] = {
        "session": b"t",
        "plan": b"o",
        "epoch": 2,
        "committee": (0, 1),
        "request": 6,
        "attempt": 2,
        "responders": (0, 1, 3),
        "assignment": b"b",
        "columns": (0, 2),
        "question": b"r",
    }
    assert set(other) == {field.name for field in fields(Context)}
    contexts = [CONTEXT, *(replace(CONTEXT, **{name: value}) for name, value in other.items())]
    assert len({context.digest for context in contexts}) == len(contexts)
    keys = {
        Purse(secret, context.session).key(purpose, context.digest, stage, chunk, step)
        for secret in (b"K" * 32, b"s" * 32)
        for context in contexts
        for purpose in PURPOSES
        for stage in (1, 2)
        for chunk in (0, 1)
        for step in (1, 2)
    }
    assert len(keys) == 2 * len(contexts) * len(PURPOSES) * 8
    pads = {pad_key(Purse(secret, one.session), one) for secret in (b"K" * 32, b"s" * 32) for one in contexts}
    assert len(pads) == 2 * len(contexts)


@pytest.mark.parametrize(("clusters", "seeding"), [(12, "k-means++"), (4, "separation")])
def test_these_are_all_streams_that_jobs_draw_from(
    clusters: int, seeding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above leaves none out: each has a purpose listed there, and the job's context in its name."""
    used: set[tuple[str, bytes]] = set()
    derive = Purse.key

    def noted(self: Purse, purpose: str, context: bytes, *place: int) -> bytes:
        used.add((re.sub("turn/[0-9]+", "turn/0", purpose), context))
        return derive(self, purpose, context, *place)

    monkeypatch.setattr(Purse, "key", noted)
    rows = np.random.default_rng(2).integers(-50, 51, (40, 2))
    Job(rows, clusters, 3, seeding, greedy=True).run(4)
    purposes = {purpose for purpose, _ in used}
    missing = {"group-turn"} if clusters < 9 else set()
    assert purposes == set(PURPOSES) - missing
    assert all(len(context) == 32 for _, context in used)


def test_what_is_told_changes_what_follows() -> None:
    lines = [Line(b"C", 0) for _ in range(3)]
    lines[1].bind(b"x")
    lines[2].bind(b"y")
    assert len({line.context for line in lines}) == 3
    assert (lines[1].stage, lines[1].step) == (2, 0)


def test_the_leaders_pad() -> None:
    purse = Purse(b"K" * 32, b"s")
    assert CONTEXT.leader == 0
    assert replace(CONTEXT, responders=(1, 3)).leader is None
    assert leader_pad(purse, CONTEXT) == (pad_key(purse, CONTEXT), -1)
    assert "K" not in repr(purse).replace("Key", "")


@pytest.mark.parametrize("seed", range(4))
def test_no_stream_serves_two_attempts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of all keys, while attempts and members are lost at random: each is of one attempt, step and purpose."""
    registry: dict[bytes, tuple[Any, ...]] = {}
    derive = Purse.key
    rows = np.random.default_rng(seed).integers(-50, 51, (30, 2))
    job = Job(rows, 4, 3, ("random", "k-means++")[seed % 2], seed=seed, losses=0.05)

    def noted(self: Purse, *name: Any) -> bytes:
        key = derive(self, *name)
        attempt = None if name[0] == "blur" else job.committee.attempt  # all attempts of an epoch add it to one total
        use = (job.committee.epoch, attempt, self._extracted, *name)
        assert registry.setdefault(key, use) == use
        return key

    monkeypatch.setattr(Purse, "key", noted)
    job.run(5)
    assert job.committee.attempt > job.committee.request  # some were lost
    assert len(registry) > 100
