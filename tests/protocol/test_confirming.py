"""The clients confirm the union of IDs to each other: a server that changes it must not learn whose ID it changed.

`play` is a whole alignment with a server that lies, and notes everything that anybody outside the owner can see: who calls
whom with how many bytes, in which order, what everybody ends with, and what the server is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from secfc import confirming, events, wire
from secfc.errors import JobFailed, Malformed, OutOfTurn, WrongSender
from secfc.field import Words
from secfc.identifiers import Ids
from secfc_client.participant import Participant, Phase
from secfc_client.past import Past
from tests.protocol.joined import (
    agreements,
    deal,
    introduced,
    make_federation,
    open_confirmation,
    plan_of,
    roster,
    unchanged,
    verifier,
)
from tests.protocol.test_private_membership import exchange

SIZES = [4, 0, 7, 3]
AGREED = make_federation(4, membership="private")
Told = Callable[[list[Ids], int], Ids]  # what the server tells a client, of the true union and the client's number


def aligned(seed: int = 2) -> list[Participant]:
    """Clients whose table of IDs is summed up: the server knows the union and has not told it."""
    machines = introduced(AGREED, deal(seed, SIZES), seed)
    exchange(machines)
    for machine in machines:
        machine.handle(events.Opened(0, sum(SIZES), 0, 0, b""))
    exchange(machines)
    return machines


def tell(machine: Participant, ids: Ids, left: int = 0) -> None:
    data = ids.astype("<u8").tobytes()
    machine.handle(events.Opened(1, left, 0, len(data), data))


def play(machines: list[Participant], told: Callable[[int], Ids]) -> list[tuple[str, ...]]:
    """What is seen from the opened table to the end of everybody."""
    seen = []
    for j, machine in enumerate(machines):
        tell(machine, told(j))
        seen.append((machine.name, machine.phase.value, str(len(machine.past.opened)), str(machine.confirms)))
    seen += meet_all(machines)
    for machine in machines:
        open_confirmation(machine)
    seen += meet_all(machines)
    return seen + [concluded(machine) for machine in machines]


def meet_all(machines: list[Participant]) -> list[tuple[str, ...]]:
    seen = []
    for machine in machines:
        for other in machines:
            if other is not machine:
                seen.append((machine.name, other.name, str(meet(machine, other))))
    return seen


def concluded(machine: Participant) -> tuple[str, ...]:
    """How a client ends that everybody has told everything."""
    assert machine.unconfirmed() == ()
    try:
        machine.conclude_union()
        return (machine.name, "goes on")
    except JobFailed as error:
        return (machine.name, str(error), str(machine.past.dead))


def meet(machine: Participant, other: Participant) -> int:
    message = wire.confirmed_to(machine.confirmation)
    reply = wire.confirmed_to(other.confirm(machine.name, wire.confirmed_from(message)))
    machine.confirm(other.name, wire.confirmed_from(reply))
    return len(message.SerializeToString()) + len(reply.SerializeToString())


def everybody(machines: list[Participant]) -> Ids:
    return np.concatenate([machine.ids for machine in machines])


def without(ids: Ids, gone: int) -> Ids:
    return np.delete(ids, gone, axis=0)


def other(ids: Ids, at: int) -> Ids:
    """Another ID in the place of one."""
    changed = ids.copy()
    changed[at, 1] ^= np.uint64(1)
    return changed


FAILED = [(f"c{j}", confirming.DISPUTED, "True") for j in range(4)]
GOES_ON = [(f"c{j}", "goes on") for j in range(4)]


def test_an_honest_union_is_confirmed_by_all() -> None:
    machines = aligned()
    seen = play(machines, lambda j: everybody(machines))
    assert seen[-4:] == GOES_ON
    assert {machine.phase for machine in machines} == {Phase.SHARING}
    assert [machine._own.tolist() for machine in machines] != []
    assert sorted(slot for machine in machines for slot in machine._own.tolist()) == list(range(14))


def test_whoever_owns_an_exchanged_id_the_server_sees_the_same() -> None:
    """The attack: one ID is another one. Once only its owner broke off, so every owner was found, 14 of 14."""
    views = []
    for at in range(sum(SIZES)):
        machines = aligned()
        views.append(play(machines, lambda j, m=machines, at=at: other(everybody(m), at)))  # type: ignore[misc]
    assert all(view == views[0] for view in views)
    assert views[0][-4:] == FAILED


def test_whoever_owns_an_omitted_id_the_server_sees_the_same() -> None:
    """It also says one row less from the beginning, so that the numbers fit."""
    views = []
    for at in range(sum(SIZES)):
        machines = introduced(AGREED, deal(2, SIZES), 2)
        for machine in machines:
            machine.handle(events.Opened(0, sum(SIZES) - 1, 0, 0, b""))
        views.append(play(machines, lambda j, m=machines, at=at: without(everybody(m), at)))  # type: ignore[misc]
    assert all(view == views[0] for view in views)
    assert views[0][-4:] == FAILED


def test_an_added_id_is_noticed_by_all() -> None:
    machines = introduced(AGREED, deal(2, SIZES), 2)
    for machine in machines:
        machine.handle(events.Opened(0, sum(SIZES) + 1, 0, 0, b""))
    extra = np.concatenate([everybody(machines), other(everybody(machines), 0)[:1]])
    assert play(machines, lambda j: extra)[-4:] == FAILED


@pytest.mark.parametrize("odd", range(4))
def test_one_client_that_is_told_another_union_ends_it_for_all_whoever_owns_what(odd: int) -> None:
    views = []
    for at in range(sum(SIZES)):
        machines = aligned()
        true, lie = everybody(machines), other(everybody(machines), at)
        views.append(play(machines, lambda j, true=true, lie=lie: lie if j == odd else true))  # type: ignore[misc]
    assert all(view == views[0] for view in views)
    assert views[0][-4:] == FAILED


def test_several_owners_numbers_do_not_cancel() -> None:
    machines = aligned()
    ids = everybody(machines)
    ids[:, 1] ^= np.uint64(1)
    assert play(machines, lambda j: ids)[-4:] == FAILED


# --- a client that conspires with the server ----------------------------------------------------------------------------


def balancing(machines: list[Participant], rows: int) -> Words:
    """What makes the sums come out right, for a client that has seen everybody else's words."""
    total = np.zeros((confirming.FIELD.lanes, 1, 2))
    for machine in machines:
        confirming.LAYOUT.unpack(machine.confirmation.words, list(total), add=True)
    expected = confirming.FIELD.from_ints(np.array([[rows, 0]]))
    return confirming.LAYOUT.pack(list(confirming.FIELD.reduce(np.ascontiguousarray(expected - total))))


def test_who_speaks_last_cannot_make_the_owner_break_off_alone() -> None:
    """The attack: the server exchanges an ID, and c3 chooses its numbers when it has seen all others', so that the sums come
    out right. The owner alone broke off, 11 of 11 owners."""
    views = []
    for at in range(sum(SIZES[:3])):
        machines = aligned()
        lie = other(everybody(machines), at)
        for machine in machines:
            tell(machine, lie)
        meet_all(machines)
        honest, spy = machines[:3], machines[3]
        for machine in honest:
            assert not len(machine.confirmation.words), "nothing is shown before everybody has committed itself"
            open_confirmation(machine)
        meet_all(honest)
        forged = dataclasses.replace(spy.confirmation, words=balancing(honest, len(lie)))
        recommitted = confirming.commitment(3, forged.session, forged.digest, forged.words)
        for machine in honest:
            with unchanged(machine), pytest.raises(WrongSender, match="another way than it has committed itself to"):
                machine.confirm("c3", forged)
            with unchanged(machine), pytest.raises(WrongSender, match="not the same way"):
                machine.confirm("c3", dataclasses.replace(forged, commitment=recommitted))
        open_confirmation(spy)
        views.append([(meet(spy, machine), *concluded(machine)) for machine in honest])
    assert all(view == views[0] for view in views)
    assert [view[1:] for view in views[0]] == FAILED[:3]


def test_a_restarted_client_takes_no_other_commitments_once_its_own_is_opened() -> None:
    """Else a server that makes it restart lets the spy commit itself again, to what it has seen meanwhile."""
    machines = aligned()
    met, rows = roster(machines), deal(2, SIZES)
    lie = other(everybody(machines), 0)
    for machine in machines:
        tell(machine, lie)
    meet_all(machines)
    open_confirmation(machines[0])
    again = rebuilt(machines[0], rows[0], machines[0].past)
    again.handle(met)
    again.handle(agreements([again, *machines[1:]])[0])
    again.handle(events.Opened(0, sum(SIZES), 0, 0, b""))
    tell(again, lie)
    assert not len(again.confirmation.words)
    for machine in machines[1:3]:
        meet(again, machine)
    again.confirm("c3", dataclasses.replace(machines[3].confirmation, commitment=bytes(32)))
    with pytest.raises(JobFailed, match="break off"):
        again.note_commitments()
    assert again.past.dead
    assert not len(again.confirmation.words)


def test_words_are_not_opened_before_the_commitments_are_noted() -> None:
    machines = aligned()
    for machine in machines:
        tell(machine, everybody(machines))
    meet(machines[0], machines[1])
    with unchanged(machines[0]), pytest.raises(OutOfTurn, match="not all clients have committed"):
        machines[0].note_commitments()
    meet_all(machines)
    with unchanged(machines[0]), pytest.raises(OutOfTurn, match="are noted before"):
        machines[0].open_confirmation()


# --- what a single message shows ----------------------------------------------------------------------------------------


def opened(machine: Participant) -> Words:
    """What a client says once it has been told the union, whatever the others do."""
    assert machine._confirming is not None
    return machine._confirming._whole.words


def test_what_an_owner_says_is_masked_and_the_same_after_a_restart() -> None:
    machines, again, elsewhere = aligned(), aligned(), aligned(seed=3)
    for group in (machines, again):
        for machine in group:
            tell(machine, other(everybody(group), 0))
    for machine in elsewhere:
        tell(machine, other(everybody(elsewhere), 0))
    words = [opened(machine).tolist() for machine in machines]
    assert words == [opened(machine).tolist() for machine in again]
    others = [opened(machine).tolist() for machine in elsewhere]
    assert all(a != b for a, b in zip(words, others, strict=True)), "masks belong to one session"
    assert len({tuple(one) for one in words}) == 4, (
        "c1 has no rows and nothing to object to, and still does not say (0, 0)"
    )


def test_masks_depend_on_the_union_that_was_told() -> None:
    one, two = aligned(), aligned()
    tell(one[1], everybody(one))
    tell(two[1], other(everybody(two), 0))
    assert opened(one[1]).tolist() != opened(two[1]).tolist()


def test_nothing_is_confirmed_before_the_union_is_known_nor_concluded_before_all_have() -> None:
    machines = aligned()
    with pytest.raises(OutOfTurn, match="not known here yet"):
        _ = machines[0].confirmation
    for machine in machines:
        tell(machine, everybody(machines))
    meet(machines[0], machines[1])
    assert machines[0].unconfirmed() == ("c2", "c3")
    for stage in ("commitments", "words"):
        with unchanged(machines[0]), pytest.raises(OutOfTurn, match="not all clients have confirmed"):
            machines[0].conclude_union()
        if stage == "commitments":
            meet_all(machines)
            open_confirmation(machines[0])
            assert machines[0].unconfirmed() == ("c1", "c2", "c3")
    with unchanged(machines[0]), pytest.raises(OutOfTurn, match="not all clients have confirmed"):
        machines[0].conclude_union()
    with pytest.raises(OutOfTurn, match="no sum is due"):
        machines[0].contribution()


def test_confirmations_that_no_honest_client_sends() -> None:
    machines = aligned()
    for machine in machines:
        tell(machine, everybody(machines))
    meet_all(machines)
    open_confirmation(machines[1])
    me, fair = machines[0], machines[1].confirmation
    me.confirm("c1", fair)
    me.confirm("c1", fair)
    lies = [
        (dataclasses.replace(fair, words=fair.words ^ np.uint64(1)), WrongSender, "another way"),
        (dataclasses.replace(fair, digest=bytes(32)), WrongSender, "another way"),
        (dataclasses.replace(fair, commitment=bytes(32), words=fair.words[:0]), WrongSender, "not the same way"),
        (dataclasses.replace(fair, session=bytes(32)), OutOfTurn, "another job"),
        (dataclasses.replace(fair, words=np.full(2, (1 << 63) - 1, np.uint64)), Malformed, "not below its prime"),
        (dataclasses.replace(fair, words=fair.words[:1]), Malformed, "2 words"),
    ]
    for lie, kind, words in lies:
        with unchanged(me), pytest.raises(kind, match=words):
            me.confirm("c1", lie)
    for stranger in ("c0", "server", "c9"):
        with unchanged(me), pytest.raises(WrongSender):
            me.confirm(stranger, fair)


# --- restarts -------------------------------------------------------------------------------------------------------------


def rebuilt(machine: Participant, rows: np.ndarray, past: Past) -> Participant:
    """The same client from its state folder."""
    kept = Past.restored(past.kept())
    return Participant(AGREED, plan_of(AGREED), machine.name, rows, machine._secrets, verifier(AGREED), past=kept)


def test_a_session_that_was_broken_off_stays_dead() -> None:
    """Else the server shows the rebuilt machine the true union, and goes on with what it has learnt."""
    machines = aligned()
    met = roster(machines)
    play(machines, lambda j: other(everybody(machines), 0))
    for machine, rows in zip(machines, deal(2, SIZES), strict=True):
        again = rebuilt(machine, rows, machine.past)
        with pytest.raises(JobFailed, match="broken off before and is not taken up again"):
            again.handle(met)
        assert again.phase is Phase.JOINING
        assert again.used, "a new job gets fresh secrets, and so another session"


def test_what_was_opened_is_not_opened_differently_to_a_rebuilt_machine() -> None:
    machines = aligned()
    met, rows = roster(machines), deal(2, SIZES)
    tell(machines[0], everybody(machines), left=0)
    again = rebuilt(machines[0], rows[0], machines[0].past)
    again.handle(met)
    again.handle(agreements([again, *machines[1:]])[0])
    with pytest.raises(WrongSender, match="another opened sum than before"):
        again.handle(events.Opened(0, sum(SIZES) - 1, 0, 0, b""))
    again.handle(events.Opened(0, sum(SIZES), 0, 0, b""))
    with pytest.raises(WrongSender, match="another opened sum than before"):
        tell(again, other(everybody(machines), 0))
    tell(again, everybody(machines))
    assert again.confirmation.commitment == machines[0].confirmation.commitment, "the same bytes again"
    assert again.past == machines[0].past


def test_a_rebuilt_machine_that_had_confirmed_goes_on_without_the_others() -> None:
    """They may be done and gone, and it still gets its labels."""
    machines = aligned()
    met, rows = roster(machines), deal(2, SIZES)
    play(machines, lambda j: everybody(machines))
    again = rebuilt(machines[3], rows[3], machines[3].past)
    again.handle(met)
    again.handle(agreements([*machines[:3], again])[3])
    again.handle(events.Opened(0, sum(SIZES), 0, 0, b""))
    tell(again, everybody(machines))
    assert again.phase is Phase.SHARING
    said = again.confirm("c0", machines[0].confirmation).words.tolist()
    assert said == machines[3].confirmation.words.tolist() != []


def test_the_server_ends_the_job_with_the_words_and_no_name() -> None:
    from tests.unit.test_coordinator import Server

    server = Server(4, tuple(SIZES), membership="private")
    server.join(0, 1, 2, 3)
    server.report(2, events.Refused(confirming.DISPUTED))
    assert str(server.coordinator.failure) == confirming.DISPUTED
