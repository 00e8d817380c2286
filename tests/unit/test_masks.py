"""Masks: the graph, the keys and what they are bound to, and that all of them cancel."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.coding import kernels
from secfc.coding.field import Field, Layout
from secfc.coding.prg import SumReader
from secfc.errors import InvalidInput, PlanError
from secfc.privacy import masks
from secfc.privacy.masks import MaskContext, neighbours, signed_keys, stream_key
from tests.oracle import small_field, stream

CONTEXT = MaskContext(b"session", b"parameters", 3, 1, (0, 2, 3, 5, 6), b"assignment", (1, 0))


def connected(graph: dict[int, list[int]], left: set[int]) -> bool:
    seen, todo = set(), [min(left)]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [other for other in graph[node] if other in left]
    return seen == left


@pytest.mark.parametrize("privacy", range(1, 7))
def test_the_graph_is_hararys(privacy: int) -> None:
    """docs/protocol.md, Section 3: a (t+1)-connected graph of the responders, so t+1 streams each (one client has t+2 when
    t is even). Connectivity by removing every t nodes, for up to 9 responders."""
    for responders in range(2 * privacy + 1, 2 * privacy + 12, 2):
        graph = {i: neighbours(i, responders, privacy) for i in range(responders)}
        for i, near in graph.items():
            assert near == sorted(set(near))
            assert i not in near
            assert all(i in graph[other] for other in near)
        degrees = sorted(len(near) for near in graph.values())
        assert degrees == [privacy + 1] * (responders - 1) + [privacy + (2 if privacy % 2 == 0 else 1)]
        if responders <= 9:
            for gone in itertools.combinations(range(responders), privacy):
                assert connected(graph, set(range(responders)) - set(gone))


@pytest.mark.parametrize("responders", [4, 6, 8])
def test_an_even_number_of_responders_is_connected_too(responders: int) -> None:
    for privacy in range(1, responders - 1):
        graph = {i: neighbours(i, responders, privacy) for i in range(responders)}
        assert {len(near) for near in graph.values()} == {privacy + 1}
        assert all(i in graph[j] for i in graph for j in graph[i])
        for gone in itertools.combinations(range(responders), privacy):
            assert connected(graph, set(range(responders)) - set(gone))


@pytest.mark.parametrize(("responders", "privacy"), [(3, 0), (3, -1), (2, 1), (3, 2)])
def test_too_small_a_graph_is_refused(responders: int, privacy: int) -> None:
    with pytest.raises(PlanError, match="masked uploads need privacy >= 1"):
        neighbours(0, responders, privacy)


def keys_of(context: MaskContext, privacy: int) -> dict[int, list[tuple[bytes, int]]]:
    out = {}
    for me in context.responders:
        secrets = {o: bytes([min(me, o), max(me, o)]) * 16 for o in context.responders if o != me}
        out[me] = signed_keys(me, privacy, context, secrets)
    return out


@pytest.mark.parametrize("privacy", [1, 2])
@pytest.mark.parametrize("widths", [(1, 0, 0), (3, 2, 1), (4, 4, 0), (2, 2, 2)])
@pytest.mark.parametrize("rows", [1, 5, 13])
def test_masks_of_all_responders_cancel_in_every_lane(widths: tuple[int, ...], rows: int, privacy: int) -> None:
    """Σ_j mask_j = 0, lane by lane, in ragged layouts, with and without rejected candidates."""
    for field in (Field.of(3), small_field(1048583, 1048589, 1048601)):
        layout = Layout(field, rows, widths)
        keys = keys_of(CONTEXT, privacy)
        total = np.zeros(layout.residues, dtype=np.int64)
        for mine in keys.values():
            flat = np.zeros(layout.residues, dtype=np.uint32)
            sums = SumReader(mine, layout, 0, rows).next(rows)
            kernels.add_masks(sums, flat.reshape(rows, -1), layout.prime_floats, np.empty(flat.size, dtype=np.int32))
            singles = [stream(key, layout.primes.tolist(), len(flat))[0] for key, _ in mine]
            primes = np.tile(layout.primes, rows).tolist()
            for q, p in enumerate(primes):
                assert flat[q] == sum(sign * one[q] for (_, sign), one in zip(mine, singles, strict=True)) % p
            total += flat
        assert (total % np.tile(layout.primes, rows) == 0).all()
        assert total.any()


def test_every_key_is_shared_by_two_with_opposite_signs() -> None:
    for privacy in (1, 2, 3):
        context = dataclasses.replace(CONTEXT, responders=(0, 1, 2, 4, 5, 7, 9))
        found: dict[bytes, list[int]] = {}
        for mine in keys_of(context, privacy).values():
            for key, sign in mine:
                found.setdefault(key, []).append(sign)
        assert all(sorted(signs) == [-1, 1] for signs in found.values())


OTHERS = {
    "session": b"another",
    "parameters": b"others",
    "round": 4,
    "attempt": 2,
    "responders": (0, 2, 3, 5, 7),
    "assignment": b"another assignment",
    "columns": (0, 1),
    "rows": b"some of them",
}


@pytest.mark.parametrize("component", [field.name for field in dataclasses.fields(MaskContext)])
def test_every_component_of_the_context_changes_every_key(component: str) -> None:
    """docs/protocol.md: bound to session, plan digest, round, attempt, responders, assignment, columns and rows."""
    other = dataclasses.replace(CONTEXT, **{component: OTHERS[component]})
    assert stream_key(b"s" * 32, CONTEXT) != stream_key(b"s" * 32, other)
    before = {key for key, _ in keys_of(CONTEXT, 1)[0]}
    assert not before & {key for key, _ in keys_of(other, 1)[0]}


def test_keys_are_repeatable_and_differ_by_secret() -> None:
    assert keys_of(CONTEXT, 2) == keys_of(CONTEXT, 2)
    assert stream_key(b"a" * 32, CONTEXT) != stream_key(b"b" * 32, CONTEXT)
    assert len(stream_key(b"a" * 32, CONTEXT)) == 32


numbers = st.integers(0, 300)
contexts = st.builds(
    MaskContext,
    session=st.binary(max_size=3),
    parameters=st.binary(max_size=3),
    round=numbers,
    attempt=numbers,
    responders=st.lists(st.integers(0, 12), max_size=3).map(tuple),
    assignment=st.binary(max_size=3),
    columns=st.lists(st.integers(0, 12), max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=100)
@given(contexts, contexts)
def test_two_contexts_share_a_key_exactly_if_they_are_equal(one: MaskContext, two: MaskContext) -> None:
    assert (stream_key(b"s" * 32, one) == stream_key(b"s" * 32, two)) == (one == two)


def test_neighbouring_parts_are_kept_apart() -> None:
    base = MaskContext(b"ab", b"c", 1, 1, (1, 2), b"x", (1,))
    shifted = [
        dataclasses.replace(base, session=b"a", parameters=b"bc"),
        dataclasses.replace(base, round=11, attempt=1),
        dataclasses.replace(base, round=1, attempt=11),
        dataclasses.replace(base, responders=(12,)),
        dataclasses.replace(base, responders=(1,), columns=(2, 1)),
    ]
    assert len({stream_key(b"s" * 32, context) for context in [base, *shifted]}) == 6


def test_only_a_responder_masks() -> None:
    with pytest.raises(InvalidInput, match="only a responder masks"):
        signed_keys(1, 1, CONTEXT, {})


def test_assignment_digest_is_of_the_labels() -> None:
    one = masks.assignment_digest(np.array([0, 1, -1], dtype="<i4").tobytes())
    assert len(one) == 32
    assert one != masks.assignment_digest(np.array([0, 1, 0], dtype="<i4").tobytes())
