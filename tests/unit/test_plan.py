"""The plan: its inequalities at their edges, its messages word for word, and its costs."""

from __future__ import annotations

import dataclasses
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc import local
from secfc.agreement import costs, plan
from secfc.agreement.plan import Wishes, make
from secfc.coding.field import MAX_LANES, Field
from secfc.errors import InvalidInput, PlanError
from secfc.privacy.union import TableShape, union_code

GOOD = Wishes(clients=5, privacy=1, clusters=3, features=4, max_rows=100, bound=8.0, precision=10)


def wish(**changes: object) -> Wishes:
    return dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 12), st.integers(0, 5), st.integers(0, 4), st.integers(1, 30), st.booleans())
def test_theorem_1_decides(n: int, t: int, dropouts: int, liars: int, d: int, masked: bool) -> None:
    """docs/protocol.md, Section 2: 2t + 2ℓ − 1 ≤ n, here with what dropouts and liars take; the largest ℓ is as good as
    any."""
    masked = masked and t > 0 and not liars
    wishes = wish(
        clients=n, privacy=t, dropouts=dropouts, liars=liars, features=d, uploads="masked" if masked else "open"
    )
    room = n - dropouts - 2 * liars
    if 2 * t + 1 > room:
        with pytest.raises(PlanError, match="2t"):
            make(wishes)
        return
    plan = make(wishes)
    assert plan.responders == 2 * plan.segments + 2 * t - 1 <= room
    assert plan.segments <= d
    best = max(segments for segments in range(1, d + 1) if 2 * t + 2 * segments - 1 <= room)
    assert plan.length == -(-d // best)
    assert all(-(-d // fewer) > plan.length for fewer in range(1, plan.segments)), "no smaller ℓ gives shares as short"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 4, "privacy": 2}, "n = 4, t = 2 needs 2t+2ℓ−1 = 5 clients; use t = 1 or 5 clients"),
        ({"clients": 2, "privacy": 1}, "n = 2, t = 1 needs 2t+2ℓ−1 = 3 clients; use 3 clients"),
        (
            {"clients": 2, "privacy": 1, "uploads": "open"},
            "n = 2, t = 1 needs 2t+2ℓ−1 = 3 clients; use t = 0 or 3 clients",
        ),
        (
            {"clients": 5, "privacy": 2, "dropouts": 1},
            "n = 5, t = 2, dropouts = 1 needs 2t+2ℓ−1 + dropouts = 6 clients; use t = 1 or 6 clients",
        ),
        (
            {"clients": 6, "privacy": 2, "liars": 1, "uploads": "open"},
            "n = 6, t = 2, liars = 1 needs 2t+2ℓ−1 + 2·liars = 7 clients; use t = 1 or 7 clients",
        ),
        (
            {"clients": 7, "privacy": 2, "liars": 1, "dropouts": 1, "uploads": "open"},
            "n = 7, t = 2, dropouts = 1, liars = 1 needs 2t+2ℓ−1 + dropouts + 2·liars = 8 clients; use t = 1 or 8 clients",
        ),
        (
            {"clients": 6, "privacy": 2, "segments": 2},
            "n = 6, t = 2, ℓ = 2 needs 2t+2ℓ−1 = 7 clients; use t = 1 or ℓ = 1 or 7 clients",
        ),
    ],
)
def test_too_few_clients_is_said_in_these_words(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        make(wish(**changes))
    assert str(caught.value) == message
    need = int(message.split()[-2])
    assert make(wish(**changes | {"clients": need})).responders <= need, "and what it says to do works"


@pytest.mark.parametrize("name", ["clients", "clusters", "features", "max_rows"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, None])
def test_counts_are_whole_numbers_of_at_least_one(name: str, value: object) -> None:
    with pytest.raises(PlanError, match=f"{name} must be a whole number of at least 1"):
        make(wish(**{name: value}))


@pytest.mark.parametrize("name", ["privacy", "dropouts", "liars"])
@pytest.mark.parametrize("value", [-1, 0.5, False])
def test_other_counts_are_not_negative(name: str, value: object) -> None:
    with pytest.raises(PlanError, match=f"{name} must be a whole number of at least 0"):
        make(wish(**{name: value}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clusters": 101}, "k = 101 clusters need at least as many rows, not 100; lower k"),
        ({"privacy": 0}, "masked uploads need privacy >= 1; use privacy = 1 or uploads = 'open'"),
        ({"liars": 1}, "liars > 0 needs uploads = 'open'"),
        ({"uploads": "secret"}, "uploads is one of sealed, masked, open"),
        ({"membership": "club"}, "membership one of public, private"),
        ({"segments": 0}, "segments must be a whole number of at least 1, not 0"),
        ({"segments": 1.0}, "segments must be a whole number"),
        ({"segments": True}, "segments must be a whole number"),
        ({"segments": 2, "features": 1}, "segments = 2 cuts 1 features too finely; use at most 1"),
        ({"max_rows": 1 << 31}, "at most 2147483647 rows"),
        ({"clients": 2048}, "2047 clients"),
        ({"bound": -1.0}, "bound must be a positive number"),
        ({"precision": 9999}, "precision must be a whole number of bits"),
    ],
)
def test_other_refusals(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        make(wish(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lanes", range(1, 6))
def test_lanes_flip_exactly_where_the_worst_case_stops_fitting(lanes: int) -> None:
    """docs/protocol.md, Section 1: m²·d·(2η)² < Q. One step more of the bound, or one row more, takes one more lane."""
    q = Field.of(lanes).modulus
    for d, m in [(1, 3), (4, 100), (7, 12)]:
        eta = isqrt((q - 1) // (m * m * d)) // 2
        if not 1 <= eta < 1 << 53:
            continue
        base = wish(features=d, max_rows=m, bound=float(eta), precision=0, clusters=1)
        assert make(base).field.lanes == lanes
        assert make(dataclasses.replace(base, bound=float(eta + 1))).field.lanes == lanes + 1
        most = isqrt((q - 1) // (d * (2 * eta) ** 2))
        assert make(dataclasses.replace(base, max_rows=most)).field.lanes == lanes
        assert make(dataclasses.replace(base, max_rows=most + 1)).field.lanes == lanes + 1
        assert make(base).unit * m * m < q


def test_the_largest_jobs_fit_or_are_refused() -> None:
    """Nothing overflows silently: the largest rows and bound allowed still fit; absurd features are refused."""
    plan = make(wish(max_rows=(1 << 31) - 1, bound=2.0**53, precision=0, features=10**6))
    assert plan.unit * plan.wishes.max_rows**2 < plan.field.modulus
    with pytest.raises(
        PlanError, match=r"m²·d·\(2η\)² has .* bits and the largest field about 320; lower the precision"
    ):
        make(wish(max_rows=(1 << 31) - 1, bound=2.0**53, precision=0, features=10**60, segments=1))
    assert plan.field.lanes <= MAX_LANES


def test_numpy_integers_do_not_overflow() -> None:
    """Wishes may come from array shapes; m²·d·(2η)² must not be computed in int64."""
    plain = wish(max_rows=(1 << 31) - 1, features=100, bound=1.0, precision=20)
    numpy = wish(max_rows=np.int64((1 << 31) - 1), features=np.int64(100), bound=1.0, precision=20)
    assert make(numpy).field.lanes == make(plain).field.lanes


def test_numpy_integers_give_the_same_digest() -> None:
    assert make(wish(max_rows=np.int64(100), clients=np.int32(5))).digest == make(GOOD).digest


def test_a_whole_bound_gives_the_same_digest() -> None:
    """8 and 8.0 are the same bound; masks of parties that write it differently must still cancel."""
    assert make(wish(bound=8)).digest == make(GOOD).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 6},
        {"privacy": 2},
        {"clusters": 4},
        {"features": 5},
        {"max_rows": 101},
        {"bound": 8.5},
        {"precision": 11},
        {"dropouts": 1},
        {"uploads": "open"},
        {"segments": 1},
        {"membership": "private"},
    ],
)
def test_every_parameter_is_in_the_digest(changes: dict[str, object]) -> None:
    assert make(wish(**changes)).digest != make(GOOD).digest
    assert make(GOOD).digest == make(wish()).digest


def test_shapes_and_costs() -> None:
    plan = make(GOOD)
    assert (plan.segments, plan.responders, plan.length, plan.eta) == (2, 5, 2, 8192)
    assert plan.unit == 4 * 16384**2
    cost = costs.of(plan)
    assert all(isinstance(value, int) and value >= 0 for value in cost.values())
    assert cost["round_bytes_per_client"] == 8 * -(-100 * 3 * plan.field.lanes // 3)
    assert cost["sharing_bytes_per_client"] == 4 * 8 * plan.share_layout(20).words
    assert costs.of(make(wish(uploads="open")))["round_multiplications_server"] > cost["round_multiplications_server"]
    shape = plan.shape(10, np.array([1, 0, 50]), (2, 0))
    assert shape.layout.rows == 10


def test_private_membership_costs_n_times_the_sharing_and_the_union() -> None:
    public, private = costs.of(make(GOOD)), costs.of(make(wish(membership="private")))
    assert public["union_bytes_per_client"] == public["union_bytes_server"] == 0
    assert private["sharing_bytes_per_client"] == 5 * public["sharing_bytes_per_client"]
    assert private["sharing_multiplications_per_client"] == 5 * public["sharing_multiplications_per_client"]
    assert private["union_bytes_per_client"] == 5 * 8 * TableShape.of(union_code(5, 1), 100, b"").words
    assert private["union_bytes_server"] == 5 * 100 * 16
    assert private["round_bytes_per_client"] == public["round_bytes_per_client"]
    assert private["server_process_bytes"] > public["server_process_bytes"]
    with pytest.raises(PlanError, match="private membership needs privacy >= 1"):
        make(wish(membership="private", privacy=0, uploads="open"))


@pytest.mark.parametrize(
    ("changes", "guard", "ways"),
    [
        ({"clusters": 128, "max_rows": 200}, "k ≤ 127, not k = 128", {"clusters": 127}),
        ({"max_rows": 1 << 20}, "m < 2²⁰ rows, not max_rows = 1048576", {"max_rows": (1 << 20) - 1}),
        (
            {"features": 1 << 70, "bound": 1e15, "precision": 0, "max_rows": 1 << 19, "segments": 1},
            "2·⌊m²/4⌋²·d·(2η)² < Q, but it is 2^244.",
            {"precision": -7, "max_rows": 49166},
        ),
    ],
)
def test_what_cannot_be_sealed_is_refused_with_what_would_fit(
    changes: dict[str, object], guard: str, ways: dict[str, int]
) -> None:
    """The default is not exchanged for a weaker kind: the line says what masked uploads would cost."""
    with pytest.raises(PlanError) as caught:
        make(wish(uploads="sealed", **changes))
    text = str(caught.value)
    assert text.startswith(f"sealed uploads need {guard}")
    shown = [f"{'k' if name == 'clusters' else name} = {value}" for name, value in ways.items()]
    assert f"; use {' or '.join(shown)}, or uploads = 'masked': quicker than sealed, but from the distances" in text
    assert "\n" not in text
    for name, value in ways.items():
        make(wish(uploads="sealed", **changes | {name: value}))
        with pytest.raises(PlanError):
            make(wish(uploads="sealed", **changes | {name: value + 1}))
    make(wish(uploads="masked", **changes))


@pytest.mark.parametrize("uploads", ["open", "masked", "sealed"])
def test_liars_in_a_federation_file_need_open_uploads(uploads: str) -> None:
    wishes = {"k": 2, "privacy": 1, "max_rows": 10, "features": 2, "bound": 1.0, "precision": 4}
    made = local.describe(5, liars=1, uploads=uploads, **wishes)
    if uploads == "open":
        assert plan.of(made).asked() == (5, 5)
    else:
        with pytest.raises(
            PlanError, match=f"{uploads} uploads show the server only their sum, so a wrong one cannot be"
        ):
            plan.of(made)


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))
def test_whom_a_plan_with_liars_asks(t: int, liars: int, dropouts: int, spare: int) -> None:
    """Whatever of its A liars is found and its S dropouts are lost, the rest suffices, and always leaves a check."""
    found = plan.make(
        wish(
            clients=2 * t + 1 + dropouts + 2 * liars + spare,
            privacy=t,
            liars=liars,
            dropouts=dropouts,
            segments=1,
            uploads="open",
        )
    )
    w = found.wishes
    for gone in range(liars + 1):
        least, most = found.asked(gone)
        assert least == found.responders + 2 * (liars - gone)
        assert least <= most <= found.responders + 2 * liars
        assert most <= w.clients - w.dropouts - gone
        assert not liars or most > found.responders
        found.check_responders(range(most))
        found.check_responders(range(least))
    with pytest.raises(InvalidInput, match="distinct responders are needed"):
        found.check_responders(range(found.responders - 1))
    with pytest.raises(InvalidInput, match="distinct responders are needed"):
        found.check_responders([0, *range(found.responders)])
    if spare + dropouts:
        with pytest.raises(InvalidInput, match="distinct responders are needed"):
            found.check_responders(range(found.responders + 2 * liars + 1))
