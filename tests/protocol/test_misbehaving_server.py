"""A server changed to misbehave is caught by the client, or with masked uploads gets noise only: a test for each way.

Real participants, a server that the test plays: it shows each client what it likes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secfc import assignments, events, kit, local, provision
from secfc.decoding import Decoder, Distances
from secfc.distances import Labels
from secfc.errors import JobFailed, Malformed, OutOfTurn, Refused, SecfcError, WentBack, WrongSender
from secfc.field import Words
from secfc_client.guard import Guard
from secfc_client.participant import Participant
from secfc_client.policy import Policy
from secfc_server.coordinator import Phase
from tests.protocol.joined import (
    Joined,
    deal,
    digest_of,
    make_federation,
    meet,
    plan_of,
    roster,
    sign,
    strangers,
    unchanged,
)

FEDERATION = make_federation(5, seeding="random")  # R = 3
ROWS = deal(1, [8, 6, 9, 7, 10])
TOTAL = sum(map(len, ROWS))
R = (0, 2, 4)


def labels(seed: int = 0) -> Labels:
    return np.random.default_rng(seed).integers(0, 3, TOTAL, dtype=np.int32)


def show(machine: Participant, number: int, shown: Labels, **changes: Any) -> events.RoundRequest | None:
    """The server shows one client an assignment and a request, truthful but for the changes."""
    data = assignments.encode(shown, FEDERATION.k)
    machine.handle(events.Assignment(number, 0, 0, len(data), data))
    asked = events.RoundRequest(number, 1, R, (0, 1, 2), digest_of(shown), 0, 60.0)
    return machine.handle(dataclasses.replace(asked, **changes))


def answered(machine: Participant, number: int, shown: Labels, **changes: Any) -> Words:
    request = show(machine, number, shown, **changes)
    assert request is not None
    return machine.answer(request)


def gathered(shown: Mapping[int, Labels], asked: Mapping[int, dict[str, Any]] | None = None) -> Distances:
    """What the server decodes if it shows each responder its own assignment (and changes to the request)."""
    machines = meet(FEDERATION, ROWS)
    plan, first = plan_of(FEDERATION), shown[R[0]]
    shape = plan.shape(TOTAL, np.bincount(first, minlength=3), (0, 1, 2))
    decoder, distances = Decoder(shape, R, None), Distances(plan.field, TOTAL, FEDERATION.k)
    for j in R:
        words = answered(machines[j], 1, shown[j], **(asked or {}).get(j, {}))
        decoder.add(j, 0, words[: shape.layout.words])
    decoder.finish(distances)
    return distances


def top_digits(distances: Distances) -> float:
    """The mean of the leading digits, as a part of their range: near 0 for distances, one half for noise."""
    return float(distances.digits[-1].mean() / distances.field.primes[-1])


def is_noise(got: Distances, true: Distances) -> bool:
    """Digits agree no more often than by chance (1 in 2²¹), and the leading ones spread over their whole range."""
    return bool((got.digits == true.digits).mean() < 0.01 and abs(top_digits(got) - 0.5) < 0.15)


def refused(machine: Participant, error: type[SecfcError], words: str, *show_: Any, **changes: Any) -> None:
    with pytest.raises(error, match=words) as caught:
        show(machine, *show_, **changes)
    assert caught.type is error


# --- what is asked for ------------------------------------------------------------------------------------------------


def guarded(policy: Policy, **settings: Any) -> Participant:
    """c2 with a policy, ready for rounds."""
    agreed = make_federation(5, **({"seeding": "random"} | settings))
    machine = meet(agreed, ROWS)[2]
    guard = Guard(agreed, plan_of(agreed), policy)
    guard.begin(machine.session, events.share_sets(machine.members), TOTAL, bytes(32))
    machine.guard = guard
    return machine


def test_requests_that_are_hidden_from_a_client_are_not_counted_by_it() -> None:
    """What no client can prevent where R < n: c1's rows are in what the others answer. It counts them as soon as it is shown
    a later number, as if they had told all they can."""
    machines = meet(FEDERATION, ROWS)
    hidden, limit = machines[1], Policy(max_directions=2)
    hidden.guard = Guard(FEDERATION, plan_of(FEDERATION), limit)
    hidden.guard.begin(hidden.session, events.share_sets(hidden.members), TOTAL, bytes(32))
    assert show(hidden, 1, labels()) is None, "seen, and not asked"
    seen = hidden.guard.ranks
    for number in range(1, 4):
        for j in R:
            answered(machines[j], number, labels(number - 1))
    assert machines[0].guard.ranks > seen
    assert hidden.guard.ranks == seen
    refused(hidden, Refused, "max_directions = 2", 4, labels())


def test_singletons_against_the_policy() -> None:
    machine = guarded(Policy(smallest_cluster=2))
    single = np.where(labels() == 2, 0, labels()).astype(np.int32)
    single[17] = 2
    refused(machine, Refused, r"smallest_cluster = 2, but one has 1", 1, single)
    refused(machine, Refused, r"smallest_cluster = 2, but one has 1", 1, single, columns=(0, 1))
    assert show(machine, 1, labels()) is not None, "an honest question after it is answered"


def test_singletons_when_the_seeding_is_over_or_not_agreed_on() -> None:
    """Whatever the policy: distances to chosen rows are given only while k-means++ was agreed on, k times."""
    single = np.full(TOTAL, -1, dtype=np.int32)
    single[17] = 0
    refused(guarded(Policy()), Malformed, "leaves rows out", 1, single, columns=(0,))
    machine = guarded(Policy(), seeding="k-means++")
    vars(machine.guard)["_check_first"] = lambda request: None
    refused(machine, Malformed, "leaves rows out", 4, single, columns=(0,))


def test_more_than_the_policy_gives_away() -> None:
    machine = guarded(Policy(max_directions=2, max_rounds=2))
    answered(machine, 1, labels(1))
    refused(machine, Refused, r"max_directions = 2, and this request would make it 3 of 3", 2, labels(2))
    answered(machine, 2, labels(1))
    refused(machine, Refused, r"max_rounds = 2, and this is request 3", 3, labels(1))


def test_a_round_repeated_with_another_assignment() -> None:
    machine = meet(FEDERATION, ROWS)[2]
    answered(machine, 3, labels(1))
    refused(machine, OutOfTurn, "something else than before as round 3, attempt 1", 3, labels(2))
    refused(machine, OutOfTurn, "repeats round 3 with another assignment", 3, labels(2), attempt=2)
    refused(machine, WentBack, "goes back to an earlier round", 2, labels(2), attempt=9)


def test_a_round_repeated_with_other_columns() -> None:
    machine = meet(FEDERATION, ROWS)[2]
    answered(machine, 3, labels(1), columns=(0,))
    refused(machine, OutOfTurn, "something else than before as round 3, attempt 1", 3, labels(1), columns=(1,))
    refused(machine, OutOfTurn, "repeats round 3 with other columns", 3, labels(1), columns=(1,), attempt=2)


def test_a_client_that_was_restarted_remembers() -> None:
    machine, later = meet(FEDERATION, ROWS)[2], meet(FEDERATION, ROWS)[2]
    answered(machine, 3, labels(1))
    guard = Guard(FEDERATION, plan_of(FEDERATION), None, machine.guard.kept())
    guard.begin(later.session, events.share_sets(later.members), TOTAL, bytes(32))
    later.guard = guard
    refused(later, OutOfTurn, "something else than before as round 3, attempt 1", 3, labels(2))
    assert answered(later, 3, labels(1)).tobytes() == answered(machine, 3, labels(1)).tobytes()


# --- who is asked -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("responders", [(2,), (0, 2), (0, 2, 2), (2, 2, 2), (0, 1, 2, 4)])
def test_a_small_or_doubled_responder_set(responders: tuple[int, ...]) -> None:
    machine = meet(FEDERATION, ROWS)[2]
    refused(machine, WrongSender, "names a wrong responder set", 1, labels(), responders=responders)


# --- equivocation -----------------------------------------------------------------------------------------------------


def test_honest_requests_decode() -> None:
    """What the tests below compare with: the same request to all gives distances."""
    true = gathered(dict.fromkeys(R, labels()))
    sizes = np.bincount(labels(), minlength=3)
    rows = np.concatenate(ROWS)
    for h in range(3):
        centre = rows[labels() == h].sum(axis=0)
        wanted = ((centre - sizes[h] * rows) ** 2).sum(axis=1)
        first = wanted % true.field.primes[0]
        np.testing.assert_array_equal(true.digits[0, :, h], first)
    assert top_digits(true) < 0.01


def test_another_assignment_for_each_client_gives_noise() -> None:
    """Masks are bound to the hash of S: shown different ones, the responders' masks do not cancel."""
    true = gathered(dict.fromkeys(R, labels()))
    other = labels()
    exchanged = [int(np.flatnonzero(other == h)[0]) for h in (0, 1)]
    other[exchanged] = (1, 0)  # the sizes, and so the uploads' shapes, are the same
    assert (other != labels()).sum() == 2
    for liar in R:
        got = gathered({j: other if j == liar else labels() for j in R})
        assert is_noise(got, true)


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"responders": (0, 1, 2)}])
def test_another_request_for_each_client_gives_noise(changes: dict[str, Any]) -> None:
    true = gathered(dict.fromkeys(R, labels()))
    assert is_noise(gathered(dict.fromkeys(R, labels()), {2: changes}), true)


def test_another_number_for_each_client_gives_noise() -> None:
    machines, plan = meet(FEDERATION, ROWS), plan_of(FEDERATION)
    shape = plan.shape(TOTAL, np.bincount(labels(), minlength=3), (0, 1, 2))
    decoder, got = Decoder(shape, R, None), Distances(plan.field, TOTAL, 3)
    for j in R:
        decoder.add(j, 0, answered(machines[j], 2 if j == 4 else 1, labels()))
    decoder.finish(got)
    assert is_noise(got, gathered(dict.fromkeys(R, labels())))


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_of_the_servers_own_in_the_roster(tmp_path: Path) -> None:
    """Introductions are signed with the certificate of the client they name, and the server has none of those."""
    made = local.describe(3, k=2, privacy=1, max_rows=30, features=3, bound=8.0, precision=4)
    provision.provision(made, tmp_path / "kits")
    kits = {name: kit.load(tmp_path / "kits" / name) for name in ("server", *made.roster)}
    machines = strangers(made, deal(2, [3, 4, 5]))
    for machine in machines:
        machine._verify = kit.verifier(kits[machine.name])
    honest = [m.introduction(kits[m.name].certificate_pem, kits[m.name].sign) for m in machines]
    mine, swapped = b"\x09" + bytes(31), kits["server"]
    bare = dataclasses.replace(honest[0], x25519=mine)
    statement = bare.statement(made.digest())
    lies = [
        bare,
        dataclasses.replace(bare, signature=swapped.sign(statement)),
        dataclasses.replace(bare, signature=swapped.sign(statement), certificate=swapped.certificate_pem),
        dataclasses.replace(bare, signature=kits["client-3"].sign(statement)),
    ]
    for lie in lies:
        with unchanged(machines[1]), pytest.raises(WrongSender):
            machines[1].handle(events.Roster((lie, *honest[1:])))
    machines[1].handle(events.Roster(tuple(honest)))


def test_two_rosters_for_two_clients_share_nothing() -> None:
    """Old introductions of one client, properly signed, shown to one of the others only: two sessions, so shares and
    uploads of the one are refused or noise in the other."""
    old, new = strangers(FEDERATION, ROWS, seed=1), strangers(FEDERATION, ROWS, seed=1)
    members = list(roster(old).members)
    replaced = strangers(FEDERATION, ROWS, seed=2)[3]
    other = list(members)
    other[3] = roster([replaced]).members[0]
    old[0].handle(events.Roster(tuple(members)))
    new[1].handle(events.Roster(tuple(other)))
    assert old[0].session != new[1].session
    ours = old[0].agreement(lambda text: sign("c0", text))
    theirs = new[1].agreement(lambda text: sign("c1", text))
    signatures = (ours.signature, theirs.signature, *(b"" for _ in range(3)))
    with pytest.raises(WrongSender, match="agreement of c1 is not signed by it"):
        old[0].handle(events.Agreements(signatures, (b"", theirs.proofs[0], *(bytes(32) for _ in range(3)))))
    with pytest.raises(OutOfTurn, match="not agreed on here yet"):
        old[0].outgoing("c1")


# --- how it ends ------------------------------------------------------------------------------------------------------


def played(policies: Sequence[Policy], **settings: Any) -> Joined:
    """A whole job in memory with these policies; a client that refuses says so, as its process does."""
    agreed = make_federation(5, **settings)
    joined = Joined(agreed, ROWS, seed=3)
    for site, rules in zip(joined.sites.values(), policies, strict=True):
        site.participant.guard = Guard(agreed, plan_of(agreed), rules)
    try:
        joined.run()
    except Refused as error:
        refusing = next(s for s, rules in zip(joined.sites.values(), policies, strict=True) if rules != Policy())
        joined.report(refusing, events.Refused(str(error)))
    return joined


def test_a_refused_request_ends_the_job_with_the_rule() -> None:
    policies = [Policy(), Policy(), Policy(max_rounds=4), Policy(), Policy()]
    joined = played(policies)
    assert joined.coordinator.phase is Phase.FAILED
    assert isinstance(joined.coordinator.failure, JobFailed)
    assert str(joined.coordinator.failure) == "c2 refuses: policy.toml: max_rounds = 4, and this is request 5"
    for site in joined.sites.values():
        assert site.stream is not None
        told = joined.coordinator.news(site.name, site.stream.cursor, joined.now)
        assert events.Failed(str(joined.coordinator.failure)) in told


def test_a_job_within_every_policy_ends_as_without_and_all_count_alike() -> None:
    joined = played([Policy(least_privacy=1, uploads=("masked",), max_directions=3)] * 5)
    joined.check_result()
    rounds = joined.coordinator.rounds
    assert rounds is not None
    assert rounds.leakage.text() == "distance directions given away: 3 of 3"
    assert [record.directions for record in rounds.records] == sorted(record.directions for record in rounds.records)
    for site in joined.sites.values():
        leakage = site.participant.guard.leakage
        assert leakage is not None
        assert leakage.text() == rounds.leakage.text()
