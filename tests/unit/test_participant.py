"""A client's machine on its own: what it answers, and everything a dishonest server or client cannot get from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secfc import assignments, events
from secfc.distances import Labels
from secfc.errors import JobFailed, Malformed, OutOfTurn, PeerError, WentBack, WrongSender
from secfc_client.participant import Participant, Phase, Secrets
from tests.protocol.joined import (
    deal,
    digest_of,
    introduce,
    introduced,
    make_federation,
    meet,
    resigned,
    roster,
    settle,
    strangers,
    unchanged,
)

FEDERATION = make_federation(5, max_rows=30, seeding="random")  # R = 3
ROWS = deal(5, [3, 0, 4, 2, 3])
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 1, 2], dtype=np.int32)


@pytest.fixture
def newcomers() -> list[Participant]:
    return strangers(FEDERATION, ROWS)


@pytest.fixture
def sharers() -> list[Participant]:
    machines = introduced(FEDERATION, ROWS)
    for machine in machines:  # where a start may begin is tested in test_start
        vars(machine)["_check_start"] = lambda version, labels: None
    return machines


@pytest.fixture
def me() -> Participant:
    """c2, ready for rounds."""
    return meet(FEDERATION, ROWS)[2]


def refused(machine: Participant, event: events.Event, error: type[PeerError], words: str) -> None:
    with unchanged(machine), pytest.raises(error, match=words) as caught:
        machine.handle(event)
    assert caught.type is error


def piece(labels: Labels, version: int = 1) -> events.Assignment:
    data = assignments.encode(labels, FEDERATION.k)
    return events.Assignment(version, 0, 0, len(data), data)


def request(labels: Labels = LABELS, **changes: Any) -> events.RoundRequest:
    asked = events.RoundRequest(1, 1, (0, 2, 4), (0, 1, 2), digest_of(labels), 0, 60.0)
    return dataclasses.replace(asked, **changes)


def ask(machine: Participant, labels: Labels = LABELS, **changes: Any) -> npt.NDArray[np.uint64] | None:
    machine.handle(piece(labels, changes.get("number", 1)))
    asked = machine.handle(request(labels, **changes))
    return None if asked is None else machine.answer(asked)


# --- the roster -------------------------------------------------------------------------------------------------------


def changed(members: Sequence[events.Introduction], at: int, **changes: Any) -> events.Roster:
    """A roster in which one introduction, properly signed by its owner, says something else."""
    out = list(members)
    out[at] = resigned(out[at], FEDERATION, **changes)
    return events.Roster(tuple(out))


def test_an_honest_roster_is_taken_once_and_may_be_repeated(newcomers: list[Participant]) -> None:
    met = roster(newcomers)
    for machine in newcomers:
        assert machine.handle(met) is None
        assert machine.phase is Phase.AGREEING
        with unchanged(machine):
            machine.handle(met)
    assert {machine.session for machine in newcomers} == {events.session(FEDERATION.digest(), met.members)}


@pytest.mark.parametrize("order", [(1, 0, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2, 3, 4, 4), (0, 0, 2, 3, 4), ()])
def test_other_names_or_another_order(newcomers: list[Participant], order: tuple[int, ...]) -> None:
    members = roster(newcomers).members
    wrong = events.Roster(tuple(members[j] for j in order))
    refused(newcomers[2], wrong, WrongSender, r"not that of federation\.toml")


@pytest.mark.parametrize(
    "change", [{"share_set": bytes(16)}, {"x25519": b"\7" * 32}, {"nonce": bytes(32)}, {"commitment": bytes(32)}]
)
def test_an_introduction_of_ours_that_we_did_not_make(newcomers: list[Participant], change: dict[str, bytes]) -> None:
    wrong = changed(roster(newcomers).members, 2, **change)
    refused(newcomers[2], wrong, WrongSender, "an introduction of ours that we did not make")


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("change", [{"rows": 1}, {"signature": b""}, {"signature": bytes(32)}, {"nonce": b"\1" * 32}])
def test_an_introduction_that_is_not_signed(newcomers: list[Participant], at: int, change: dict[str, Any]) -> None:
    members = list(roster(newcomers).members)
    members[at] = dataclasses.replace(members[at], **change)
    words = "that we did not make" if at == 2 and "nonce" in change else "not signed by it"
    refused(newcomers[2], events.Roster(tuple(members)), WrongSender, words)


def test_two_clients_with_one_key(newcomers: list[Participant]) -> None:
    members = roster(newcomers).members
    refused(newcomers[2], changed(members, 3, x25519=members[0].x25519), WrongSender, "the same X25519 key")
    refused(newcomers[2], changed(members, 3, x25519=members[2].x25519), WrongSender, "the same X25519 key")


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
]


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order(newcomers: list[Participant], point: bytes) -> None:
    wrong = changed(roster(newcomers).members, 4, x25519=point)
    with pytest.raises(WrongSender, match="X25519 public key of c4 is not valid"):
        newcomers[2].handle(wrong)
    assert newcomers[2].phase is Phase.JOINING
    with pytest.raises(OutOfTurn, match="the session is not agreed on here yet"):
        newcomers[2].progress("c0", newcomers[2].session, wrong.members[0].share_set)
    newcomers[2].handle(roster(newcomers))
    assert newcomers[2].phase is Phase.AGREEING


def test_a_key_of_low_order_changes_nothing(newcomers: list[Participant]) -> None:
    wrong = changed(roster(newcomers).members, 4, x25519=bytes(32))
    refused(newcomers[2], wrong, WrongSender, "X25519 public key of c4 is not valid")


@pytest.mark.parametrize(("rows", "total"), [(31, 40), (1 << 31, (1 << 31) + 9)])
def test_more_rows_than_allowed(newcomers: list[Participant], rows: int, total: int) -> None:
    wrong = changed(roster(newcomers).members, 4, rows=rows)
    refused(newcomers[2], wrong, Malformed, f"{total} rows in all, beyond what federation.toml allows")


def test_fewer_rows_than_clusters() -> None:
    machines = strangers(FEDERATION, deal(5, [1, 0, 1, 0, 0]))
    refused(machines[2], roster(machines), Malformed, "2 rows in all, beyond what")


def test_a_second_roster(sharers: list[Participant], me: Participant) -> None:
    for machine in (sharers[2], me):
        members = list(machine.members)
        refused(machine, changed(members, 0, nonce=bytes(32)), WrongSender, "shows another roster than before")
        refused(machine, events.Roster(()), WrongSender, "shows another roster than before")


# --- shares -------------------------------------------------------------------------------------------------------------


def part(machine: Participant, to: Participant, first: int = 0, end: int | None = None) -> events.Chunk:
    words = machine.outgoing(to.name)
    return events.Chunk(first, len(words), words[first:end])


def give(owner: Participant, to: Participant, chunk: events.Chunk, **changes: Any) -> int:
    known = {"name": owner.name, "session": owner.session, "share_set": owner.share_set.id} | changes
    return to.receive(known["name"], known["session"], known["share_set"], chunk)


def test_shares_come_in_pieces_and_may_be_repeated_when_they_are_complete(sharers: list[Participant]) -> None:
    owner, to = sharers[0], sharers[2]
    total = len(owner.outgoing(to.name))
    assert to.progress("c0", owner.session, owner.share_set.id) == 0
    assert give(owner, to, part(owner, to, 0, 2)) == 2
    assert to.progress("c0", owner.session, owner.share_set.id) == 2
    with unchanged(to):
        settle(to, "c0")  # not complete: nothing happens
    assert give(owner, to, part(owner, to, 2)) == total
    settle(to, "c0")
    with unchanged(to):
        settle(to, "c0")
        assert give(owner, to, part(owner, to)) == total
        assert to.progress("c0", owner.session, owner.share_set.id) == total
    assert "c0" not in to.missing()


def test_shares_that_are_not_due(sharers: list[Participant]) -> None:
    owner, to = sharers[0], sharers[2]
    give(owner, to, part(owner, to, 0, 2))
    good, total = part(owner, to, 2), len(owner.outgoing(to.name))
    cases: list[tuple[dict[str, Any], events.Chunk, type[PeerError], str]] = [
        ({"session": bytes(32)}, good, OutOfTurn, "another job"),
        ({"session": b""}, good, OutOfTurn, "another job"),
        ({"share_set": sharers[3].share_set.id}, good, OutOfTurn, "another job"),
        ({"share_set": b""}, good, OutOfTurn, "another job"),
        ({"name": "c2"}, good, WrongSender, "only the other clients"),
        ({"name": "server"}, good, WrongSender, "only the other clients"),
        ({"name": "mallory"}, good, WrongSender, "only the other clients"),
        ({"name": "c3"}, good, OutOfTurn, "another job"),
        ({}, dataclasses.replace(good, total=total + 1), Malformed, f"{total} words of shares are due from c0"),
        ({}, dataclasses.replace(good, total=1 << 63), Malformed, "words of shares are due"),
        ({}, part(owner, to, 0, 2), Malformed, "from offset 2 are due, not from 0"),
        ({}, part(owner, to, 3), Malformed, "from offset 2 are due, not from 3"),
        ({}, events.Chunk(2, total, np.zeros(total, np.uint64)), Malformed, "do not fit"),
        ({}, events.Chunk(2, total, np.array([0x1FFFFF], np.uint64)), Malformed, "not below its prime"),
        ({}, events.Chunk(2, total, np.array([1 << 63], np.uint64)), Malformed, "not below its prime"),
    ]
    for changes, chunk, error, words in cases:
        with unchanged(to), pytest.raises(error, match=words) as caught:
            give(owner, to, chunk, **changes)
        assert caught.type is error
    assert give(owner, to, good) == total


def test_shares_before_the_roster(newcomers: list[Participant], sharers: list[Participant]) -> None:
    with unchanged(newcomers[2]), pytest.raises(OutOfTurn, match="the session is not agreed on here yet"):
        give(sharers[0], newcomers[2], part(sharers[0], newcomers[2]))
    with unchanged(newcomers[2]), pytest.raises(OutOfTurn, match="the session is not agreed on here yet"):
        newcomers[2].progress("c0", b"", sharers[0].share_set.id)


def test_rounds_wait_for_all_shares(sharers: list[Participant]) -> None:
    assert sharers[2].missing() == ("c0", "c1", "c2", "c3", "c4")
    with unchanged(sharers[2]), pytest.raises(OutOfTurn, match="shares are still missing"):
        sharers[2].holdings()
    sharers[2].keep_own()
    sharers[2].keep_own()
    assert sharers[2].missing() == ("c0", "c1", "c3", "c4")
    refused(sharers[2], request(), OutOfTurn, "an assignment it did not send")
    refused(sharers[2], events.Finished(1, 1, True, 0.0), OutOfTurn, "an assignment it did not send")
    sharers[2].handle(piece(LABELS))
    refused(sharers[2], request(), OutOfTurn, "before all shares are here")


def test_a_client_that_comes_back_after_the_end_needs_no_shares_for_its_labels(sharers: list[Participant]) -> None:
    final = np.maximum(LABELS, 0)
    sharers[2].handle(piece(final))
    sharers[2].handle(events.Finished(1, 1, True, 0.0))
    start = len(ROWS[0]) + len(ROWS[1])
    assert sharers[2].own_labels().tolist() == final[start : start + len(ROWS[2])].tolist()


def test_empty_pieces_of_an_assignment_take_no_memory(me: Participant) -> None:
    for _ in range(1000):
        me.handle(events.Assignment(1, 0, 0, 4, b""))
    assert not me._pending


def test_a_restarted_client_makes_the_same_shares_again() -> None:
    first, again = introduced(FEDERATION, ROWS)[0], introduced(FEDERATION, ROWS)[0]
    assert first.share_set.id == again.share_set.id
    assert introduce(first) == introduce(again)
    assert all((first.outgoing(name) == again.outgoing(name)).all() for name in ("c1", "c2", "c3", "c4"))


# --- assignments ----------------------------------------------------------------------------------------------------------


def test_an_assignment_in_pieces(me: Participant) -> None:
    data = assignments.encode(LABELS, 3)
    for at in range(len(data)):
        me.handle(events.Assignment(1, 0, at, len(data), data[at : at + 1]))
    assert me.handle(request()) == request()
    assert me._labels(1).tolist() == LABELS.tolist()


def test_an_assignment_that_starts_again(me: Participant) -> None:
    """As after a lost connection, in the middle of one."""
    data = assignments.encode(LABELS, 3)
    me.handle(events.Assignment(1, 0, 0, len(data), data[:2]))
    for at in range(len(data)):
        me.handle(events.Assignment(1, 0, at, len(data), data[at : at + 1]))
    assert me.handle(request()) == request()


def test_only_the_last_assignment_is_kept(me: Participant) -> None:
    """DESIGN.md: memory is flat over rounds."""
    for version in range(1, 20):
        me.handle(piece(LABELS, version))
    assert list(me._versions) == [19]


def test_pieces_out_of_order_or_too_long(me: Participant) -> None:
    data = assignments.encode(LABELS, 3)
    longest = assignments.largest(len(LABELS), 3)
    me.handle(events.Assignment(1, 0, 0, len(data), data[:2]))
    words = "out of order or too long"
    refused(me, events.Assignment(1, 0, 3, len(data), data[3:]), Malformed, words)
    refused(me, events.Assignment(1, 0, 1, len(data), data[1:]), Malformed, words)
    refused(me, events.Assignment(1, 0, 2, len(data) + 1, data[2:]), Malformed, "do not belong together")
    refused(me, events.Assignment(2, 0, 2, len(data), data[2:]), Malformed, "do not belong together")
    refused(me, events.Assignment(1, 0, 0, longest + 1, data), Malformed, words)
    refused(me, events.Assignment(1, 0, 0, 1 << 63, data[:2]), Malformed, words)


def test_a_change_of_an_assignment_we_do_not_hold(me: Participant) -> None:
    base = np.zeros(12, dtype=np.int32)
    data = bytes([1, 1, 0, 0, 0, 0, 2])  # row 0 goes to cluster 1
    with pytest.raises(Malformed, match="neither whole nor a change of one we hold"):
        me.handle(events.Assignment(2, 1, 0, len(data), data))
    me.handle(piece(base))
    with pytest.raises(Malformed, match="neither whole nor a change of one we hold"):
        me.handle(events.Assignment(3, 2, 0, len(data), data))
    me.handle(events.Assignment(2, 1, 0, len(data), data))
    assert me._labels(2).tolist() == [1] + [0] * 11


def test_a_request_for_an_assignment_that_was_not_sent(me: Participant) -> None:
    refused(me, request(), OutOfTurn, "an assignment it did not send")
    me.handle(piece(LABELS))
    refused(me, request(number=2), OutOfTurn, "an assignment it did not send")


def test_a_request_for_another_assignment(me: Participant) -> None:
    me.handle(piece(LABELS))
    other = LABELS.copy()
    other[0] = 1
    refused(me, request(assignment_digest=digest_of(other)), Malformed, "not the one the request speaks of")


# --- requests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("responders", "error"),
    [
        ((0, 2), WrongSender),
        ((0, 1, 2, 4), WrongSender),
        ((), WrongSender),
        ((0, 2, 2), WrongSender),
        ((2, 2, 2), WrongSender),
        ((0, 2, 5), WrongSender),
        ((0, 2, 1 << 31), WrongSender),
        ((-1, 0, 2), WrongSender),
        ((2, 0, 4), Malformed),
        ((4, 2, 0), Malformed),
    ],
)
def test_a_wrong_responder_set(me: Participant, responders: tuple[int, ...], error: type[PeerError]) -> None:
    """DESIGN.md: a client "refuses a responder set that is not exactly R distinct names of the roster"."""
    me.handle(piece(LABELS))
    words = "names a wrong responder set" if error is WrongSender else "roster order"
    refused(me, request(responders=responders), error, words)


def test_who_is_not_asked_does_not_answer(me: Participant) -> None:
    me.handle(piece(LABELS))
    assert me.handle(request(responders=(0, 1, 3))) is None


def test_going_back_to_an_earlier_round(me: Participant) -> None:
    assert ask(me, number=3, attempt=2) is not None
    me.handle(piece(LABELS, version=2))
    refused(me, request(number=2), WentBack, "goes back to an earlier round")
    me.handle(piece(LABELS, version=3))
    refused(me, request(number=3, attempt=1), WentBack, "goes back to an earlier round")
    assert me.handle(request(number=3, attempt=2)) is not None


@pytest.mark.parametrize("columns", [(3,), (0, 0), (0, 1 << 31), (-1,), (2,)])
def test_impossible_columns(me: Participant, columns: tuple[int, ...]) -> None:
    """Out of range, twice, or of a cluster without rows; the next honest request is answered as if nothing had been."""
    labels = np.where(LABELS == 2, 0, LABELS).astype(np.int32)
    me.handle(piece(labels))
    refused(me, request(labels, columns=columns), Malformed, "impossible columns")
    honest = ask(me, labels, columns=(0, 1))
    assert honest is not None
    fresh = ask(meet(FEDERATION, ROWS)[2], labels, columns=(0, 1))
    assert fresh is not None
    assert honest.tobytes() == fresh.tobytes()


# --- answers --------------------------------------------------------------------------------------------------------------


def test_the_same_request_gives_the_same_bytes(me: Participant) -> None:
    first = ask(me)
    assert first is not None
    again = me.answer(request(received=7, deadline_seconds=1.0))
    assert first.tobytes() == again.tobytes()
    other = ask(meet(FEDERATION, ROWS)[2])
    assert other is not None
    assert first.tobytes() == other.tobytes(), "a restarted client gives the same bytes, too"


@pytest.mark.parametrize(
    "changes", [{"attempt": 2}, {"number": 2}, {"responders": (1, 2, 4)}, {"columns": (0, 1)}, {"columns": (1, 2)}]
)
def test_another_request_gives_other_masks(me: Participant, changes: dict[str, Any]) -> None:
    first, second = ask(me), ask(meet(FEDERATION, ROWS)[2], **changes)
    assert first is not None
    assert second is not None
    same = min(len(first), len(second))
    assert (first[:same] != second[:same]).mean() > 0.9


def test_open_answers_do_not_depend_on_the_attempt() -> None:
    agreed = make_federation(5, max_rows=30, uploads="open", seeding="random")
    me = meet(agreed, ROWS)[2]
    first, second = ask(me), ask(me, attempt=2)
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()


def test_no_columns_is_an_empty_answer(me: Participant) -> None:
    answer = ask(me, columns=())
    assert answer is not None
    assert len(answer) == 0


# --- the end ----------------------------------------------------------------------------------------------------------------


def test_own_labels_are_those_of_our_rows() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2], dtype=np.int32)
    found = []
    for machine in meet(FEDERATION, ROWS):
        with pytest.raises(JobFailed, match="not finished"):
            machine.own_labels()
        machine.handle(piece(labels, 9))
        machine.handle(events.Finished(9, 4, True, 1.5))
        assert machine.phase is Phase.FINISHED
        found.append(machine.own_labels().tolist())
    assert found == [[0, 1, 2], [], [0, 1, 2, 2], [1, 0], [0, 1, 2]]


def test_a_final_assignment_that_leaves_rows_out(me: Participant) -> None:
    me.handle(piece(np.where(LABELS == 2, -1, LABELS).astype(np.int32)))
    refused(me, events.Finished(2, 4, True, 1.5), OutOfTurn, "an assignment it did not send")
    refused(me, events.Finished(1, 4, True, 1.5), Malformed, "leaves rows without a cluster")


@pytest.mark.parametrize("last", [events.Finished(1, 4, True, 1.5), events.Failed("no")])
def test_nothing_is_taken_after_the_end(me: Participant, last: events.Event) -> None:
    labels = np.abs(LABELS)
    me.handle(piece(labels))
    me.handle(last)
    others: list[events.Event] = [
        events.Roster(()),
        events.Finished(5, 1, False, 0.0),
        events.Failed("another reason"),
        piece(LABELS, 2),
        request(),
        events.Waiting("rounds", ()),
    ]
    with unchanged(me):
        for event in others:
            assert me.handle(event) is None


def test_a_failure_is_told(newcomers: list[Participant]) -> None:
    newcomers[0].handle(events.Failed("after 600 s these have not joined: c1"))
    assert newcomers[0].phase is Phase.FAILED
    assert newcomers[0].failure == "after 600 s these have not joined: c1"
    with pytest.raises(JobFailed):
        newcomers[0].own_labels()


def test_secrets_are_not_printed(me: Participant) -> None:
    secrets: Secrets = me._secrets
    assert repr(secrets) == str(secrets) == f"{secrets}" == "Secrets(…)"
    assert secrets.seed.hex() not in repr(vars(me))
    assert repr(secrets.seed) not in repr(me.share_set)
