"""The check that all clients hold shares of the same polynomials: what passes, what is noticed and named, what is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement import plan
from secfc.coding import zerosum
from secfc.coding.field import Field, Words
from secfc.errors import JobFailed
from secfc.kmeans.coins import Coins
from secfc.kmeans.lloyd import Clustering
from secfc.privacy import checking, verification
from secfc.protocol.effects import Send
from secfc.protocol.memory import Memory
from secfc.protocol.parcels import Kind, Parcel, Whole
from tests import holders
from tests.holders import Holder

SESSION = b"s" * 32
COINS = Coins(b"c" * 32)


def planned(n: int, t: int, segments: int = 1, features: int = 3, uploads: str = "open", rows: int = 40) -> plan.Plan:
    return plan.make(plan.Wishes(n, t, 2, features, rows, 100.0, 0, uploads=uploads, segments=segments))


def dealt(
    made: plan.Plan, rows: int = 12, seed: int = 0, tamper: Callable[[int, int, Words], Words] | None = None
) -> list[Holder]:
    """Members that hold everybody's shares; `tamper(owner, receiver, shares)` may falsify some on their way."""
    rng = np.random.default_rng(seed)
    n, d = made.wishes.clients, made.wishes.features
    parts = [rng.integers(-100, 101, (rows // n + 1, d)) for _ in range(n)]
    return holders.share(made, parts, tamper, fixed=True)


def names(made: plan.Plan) -> list[str]:
    return [f"c{j}" for j in range(made.wishes.clients)]


def outcome(members: list[Holder], coins: Coins = COINS) -> str:
    """What the server says; nothing if all shares fit together."""
    made = members[0].plan
    try:
        verification.verify(made, names(made), [member.verification(SESSION, coins) for member in members])
    except JobFailed as error:
        return str(error)
    return ""


def add(members: list[Holder], client: int, lane: int, row: int, column: int, value: float = 1.0) -> None:
    """Something is wrong in what a client holds."""
    members[client].coded.matrix[lane, row, column] += value


# --- honest -----------------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(
    t=st.integers(0, 3),
    segments=st.integers(1, 3),
    spare=st.integers(0, 3),
    features=st.integers(1, 7),
    rows=st.integers(1, 30),
    seed=st.integers(0, 100),
)
def test_honest_shares_always_fit(t: int, segments: int, spare: int, features: int, rows: int, seed: int) -> None:
    segments = min(segments, features)
    n = 2 * segments + 2 * t - 1 + spare
    assert outcome(dealt(planned(n, t, segments, features, rows=100), rows, seed), Coins(bytes([seed]) * 32)) == ""


@pytest.mark.parametrize("rows", [3071, 3072, 3073, 9000])
def test_rows_in_several_blocks(rows: int) -> None:
    members = dealt(planned(3, 1, rows=2 * rows), rows)
    assert outcome(members) == ""
    add(members, 1, 0, rows - 1, 2)
    assert "do not fit together" in outcome(members)


def test_a_job_checks_too() -> None:
    made = planned(5, 1)
    rng = np.random.default_rng(0)
    rows = [rng.integers(-100, 101, (3, 3)) for _ in range(5)]
    memory = Memory(made, rows, lambda total: Clustering(total, 2), seeds=[bytes([j]) * 32 for j in range(5)])

    def alter(sender: str, send: Send) -> Send:
        if sender != "client-1" or send.to != "client-4" or not isinstance(send.message, Parcel):
            return send
        if send.message.kind is not Kind.SHARES or send.body is None:
            return send
        data = bytearray(b"".join(bytes(piece) for _, piece in send.body.pieces(0)))
        data[0] ^= 1
        return replace(send, body=Whole(bytes(data)))

    memory.alter = alter
    with pytest.raises(JobFailed, match="the shares held by client-4 do not fit those of the others"):
        memory.run()


def test_a_client_alone_has_nothing_to_compare() -> None:
    made = planned(1, 0)
    assert verification.checks(made.code) == 0
    assert outcome(dealt(made)) == ""


def test_a_miss_is_less_likely_than_two_to_the_minus_forty() -> None:
    for lanes in range(1, 17):
        field = Field.of(lanes)
        assert verification.repetitions(field) == 2
        assert min(field.primes) ** 2 > 1 << 40


# --- what is noticed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.parametrize("client", [0, 2, 6])
def test_one_wrong_residue_is_noticed_and_its_holder_named(lane: int, client: int) -> None:
    members = dealt(planned(7, 1))
    add(members, client, lane, 5, 1)
    said = outcome(members)
    assert said.startswith(
        f"the shares held by c{client} do not fit those of the others: a copy is damaged, or somebody"
    )
    assert said.endswith("start a new job (secfc-server --new)")


def test_as_many_as_half_the_checks_are_named_in_whatever_columns_and_lanes() -> None:
    members = dealt(planned(8, 1))  # six checks
    add(members, 1, 0, 0, 0)
    add(members, 4, 0, 3, 2)
    add(members, 6, 1, 7, 1, 5.0)
    assert "held by c1, c4, c6 do not" in outcome(members)


def test_more_than_can_be_named_are_noticed_without_names() -> None:
    members = dealt(planned(6, 1))  # four checks name two
    for client in (0, 2, 5):
        add(members, client, 0, client, 0)
    assert "whose are wrong cannot be told" in outcome(members)
    members = dealt(planned(3, 1))  # one check names nobody
    add(members, 1, 0, 0, 0)
    assert "whose are wrong cannot be told" in outcome(members)


def lying(receivers: set[int], lane: int | None = None) -> Callable[[int, int, Words], Words]:
    """A dealer, c2, that is off its polynomial for some receivers, in all lanes or in one."""

    def tamper(owner: int, receiver: int, words: Words) -> Words:
        if owner != 2 or receiver not in receivers:
            return words
        made = planned(7, 1)
        layout = made.share_layout(3 * len(words) // made.field.lanes // made.length)
        field, rows = made.field, layout.rows
        residues = field.unpack(words, rows, made.length)
        for at in range(field.lanes):
            if lane in (None, at):
                residues[at, 0, 1] += 17.0
        return field.pack(field.reduce(residues))

    return tamper


@pytest.mark.parametrize("lane", [None, 0, 1])
@pytest.mark.parametrize("receivers", [{4}, {0, 5}])
def test_a_dealer_off_its_polynomial(receivers: set[int], lane: int | None) -> None:
    said = outcome(dealt(planned(7, 1), tamper=lying(receivers, lane)))
    assert f"held by {', '.join(f'c{j}' for j in sorted(receivers))} do not fit" in said


def test_a_dealer_off_its_polynomial_for_many_is_noticed() -> None:
    assert "do not fit together" in outcome(dealt(planned(7, 1), tamper=lying({0, 3, 4, 6})))


def test_what_one_repetition_misses_the_other_shows() -> None:
    """A dealer that knew the factors of one repetition could hide; it does not know any."""
    made = planned(7, 1)
    members = dealt(made)
    factors = verification.factors(made.field, 0, members[0].coded.rows, COINS)[0].astype(np.int64)
    p = made.field.primes[0]
    add(members, 1, 0, 0, 0, float(factors[1, 0]))
    value = -int(factors[0, 0]) % p
    add(members, 1, 0, 1, 0, float(value - p if value > p // 2 else value))
    combined = verification.combined(members[1].coded, COINS)[0]
    honest = verification.combined(dealt(made)[1].coded, COINS)[0]
    assert combined[0].tolist() == honest[0].tolist(), "the first repetition does not see it"
    assert "held by c1 do not fit" in outcome(members)


# --- what is shown --------------------------------------------------------------------------------------------------------


def test_the_servers_sum_does_not_depend_on_the_rows() -> None:
    made = planned(5, 1, uploads="masked")
    for seed in (1, 2):
        members = dealt(made, seed=seed)
        found = verification.syndromes(made, [member.verification(SESSION, COINS) for member in members])
        assert not found.any()


def test_the_sum_of_odd_shares_depends_on_what_is_odd_alone() -> None:
    made = planned(5, 1)
    sums = []
    for seed in (1, 2):
        members = dealt(made, seed=seed)
        add(members, 3, 0, 2, 1)
        sums.append(verification.syndromes(made, [member.verification(SESSION, COINS) for member in members]).tolist())
    assert sums[0] == sums[1]


@pytest.mark.parametrize(("n", "t"), [(2, 0), (3, 0), (4, 0), (3, 1), (7, 3)])
def test_what_a_client_gives_is_masked_and_the_masks_cancel(n: int, t: int) -> None:
    made = planned(n, t)
    members = dealt(made)
    plain = [verification.combined(member.coded, COINS) for member in members]
    for member, bare in zip(members, plain, strict=True):
        given = made.field.unpack(
            member.verification(SESSION, COINS), verification.checks(made.code), verification.layout(made).widths[0]
        )
        weights = np.stack(
            [
                checking.parity(p, made.code.alphas[lane], made.segments + t)[:, member.index : member.index + 1]
                for lane, p in enumerate(made.field.primes)
            ]
        )
        open_values = made.field.matmul(weights, bare.reshape(made.field.lanes, 1, -1))
        assert (given != open_values).mean() > 0.7
        assert member.verification(SESSION, COINS).tolist() == member.verification(SESSION, COINS).tolist()
        again = member.verification(b"t" * 32, COINS)
        assert (again != member.verification(SESSION, COINS)).any(), "another session, other masks"


def test_parts_look_uniform() -> None:
    made = planned(9, 1, features=30, uploads="masked")
    members = dealt(made)
    layout = verification.layout(made)
    given = made.field.unpack(members[0].verification(SESSION, COINS), layout.rows, layout.widths[0])
    for lane, p in enumerate(made.field.primes):
        share = given[lane].ravel() / p  # balanced: uniform in (-1/2, 1/2), standard deviation 1/√12
        assert abs(share.mean()) < 8 * 0.2887 / np.sqrt(share.size)
        assert abs(share.std() - 0.2887) < 0.05


def test_masks_of_one_purpose_are_not_those_of_another() -> None:
    made = planned(3, 1)
    secrets = {1: b"1" * 32, 2: b"2" * 32}
    uses = [zerosum.purpose(b"verify shares", SESSION), zerosum.purpose(b"confirm union", SESSION), b"x" * 32]
    keys = [key for use in uses for key, _ in zerosum.keys(made, 0, SESSION, use, secrets)]
    assert len(set(keys)) == 6
