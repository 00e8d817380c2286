"""A server changed to misbehave is caught by the client, or with masked uploads gets noise only: a test for each way.

Real participants, a server that the test plays: it shows each client what it likes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secfc import local
from secfc.agreement.policy import Policy
from secfc.coding.field import Words
from secfc.errors import JobFailed, Malformed, OutOfTurn, Refused, SecfcError, WentBack, WrongSender
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import Labels
from secfc.pki import kit, provision
from secfc.protocol import messages
from secfc.protocol.messages import Phase
from tests.parties import deal, fresh_secrets, make_federation, make_site, plan_of
from tests.protocol.helpers import Client, agreements, answer, asked, met, reveals, roster, strangers
from tests.protocol.helpers import refused as refused_by
from tests.simulation.scene import Scene
from tests.simulation.world import World

FEDERATION = make_federation(5, seeding="random")  # R = 3
ROWS = deal(1, [8, 6, 9, 7, 10])
TOTAL = sum(map(len, ROWS))
R = (0, 2, 4)


def labels(seed: int = 0) -> Labels:
    return np.random.default_rng(seed).integers(0, 3, TOTAL, dtype=np.int32)


def show(client: Client, number: int, shown: Labels, **changes: Any) -> Words | None:
    """The server shows one client an assignment and a request, truthful but for the changes; what it uploads."""
    client.tell(*asked(client, number, shown, R, **changes))
    return answer(client, number, changes.get("attempt", 1))


def answered(client: Client, number: int, shown: Labels, **changes: Any) -> Words:
    words = show(client, number, shown, **changes)
    assert words is not None, client.error
    return words


def gathered(shown: Mapping[int, Labels], asked: Mapping[int, dict[str, Any]] | None = None) -> Distances:
    """What the server decodes if it shows each responder its own assignment (and changes to the request)."""
    machines = met(FEDERATION, ROWS)
    plan, first = plan_of(FEDERATION), shown[R[0]]
    shape = plan.shape(TOTAL, np.bincount(first, minlength=3), (0, 1, 2))
    decoder, distances = Decoder(shape, R, None), Distances(plan.field, TOTAL, FEDERATION.job.k)
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


def refused(client: Client, error: type[SecfcError], words: str, *show_: Any, **changes: Any) -> None:
    number, shown = show_
    refused_by(client, asked(client, number, shown, R, **changes), error, words)


# --- what is asked for ------------------------------------------------------------------------------------------------


def guarded(policy: Policy, **settings: Any) -> Client:
    """c2 with a policy, ready for rounds."""
    agreed = make_federation(5, **({"seeding": "random"} | settings))
    return met(agreed, ROWS, policy=policy)[2]


def test_requests_that_are_hidden_from_a_client_are_not_counted_by_it() -> None:
    """What no client can prevent where R < n: c1's rows are in what the others answer. It counts them as soon as it is shown
    a later number, as if they had told all they can."""
    clients = met(FEDERATION, ROWS)
    hidden = met(FEDERATION, ROWS, policy=Policy(max_directions=2))[1]
    assert show(hidden, 1, labels()) is None, "seen, and not asked"
    seen = hidden.site.guard.ranks
    assert seen > 0
    for number in range(1, 4):
        for j in R:
            answered(clients[j], number, labels(number - 1))
    assert clients[0].site.guard.ranks > seen
    assert hidden.site.guard.ranks == seen
    refused(hidden, Refused, "max_directions = 2", 4, labels())


def test_singletons_against_the_policy() -> None:
    client = guarded(Policy(smallest_cluster=2))
    single = np.where(labels() == 2, 0, labels()).astype(np.int32)
    single[17] = 2
    refused(client, Refused, r"smallest_cluster = 2, but one has 1", 1, single)
    refused(client, Refused, r"smallest_cluster = 2, but one has 1", 1, single, columns=(0, 1))
    assert show(client, 1, labels()) is not None, "an honest question is answered"


def test_singletons_when_the_seeding_is_over_or_not_agreed_on() -> None:
    """Whatever the policy: distances to chosen rows are given only while k-means++ was agreed on, k times."""
    single = np.full(TOTAL, -1, dtype=np.int32)
    single[17] = 0
    refused(guarded(Policy()), Malformed, "leaves rows out", 1, single, columns=(0,))
    refused(guarded(Policy(), seeding="k-means++"), Malformed, "leaves rows out", 4, single, columns=(0,))


def test_more_than_the_policy_gives_away() -> None:
    client = guarded(Policy(max_directions=2, max_requests=2))
    answered(client, 1, labels(1))
    refused(client, Refused, r"max_directions = 2, and this request would make it 3 of 3", 2, labels(2))
    answered(client, 2, labels(1))
    refused(client, Refused, r"max_requests = 2, and this is request 3", 3, labels(1))


def test_a_round_repeated_with_another_assignment() -> None:
    client = met(FEDERATION, ROWS)[2]
    answered(client, 3, labels(1))
    refused(client, OutOfTurn, "something else than before as request 3, attempt 1", 3, labels(2))
    refused(client, OutOfTurn, "repeats request 3 with another assignment", 3, labels(2), attempt=2)
    refused(client, WentBack, "goes back to an earlier request", 2, labels(2), attempt=9)


def test_a_round_repeated_with_other_columns() -> None:
    client = met(FEDERATION, ROWS)[2]
    answered(client, 3, labels(1), columns=(0,))
    refused(client, OutOfTurn, "something else than before as request 3, attempt 1", 3, labels(1), columns=(1,))
    refused(client, OutOfTurn, "repeats request 3 with other columns", 3, labels(1), columns=(1,), attempt=2)


def test_a_request_for_an_assignment_that_is_not_the_one_it_speaks_of() -> None:
    client = met(FEDERATION, ROWS)[2]
    refused(client, Malformed, "not the one the request speaks of", 1, labels(1), assignment_digest=bytes(32))


def test_a_client_that_was_restarted_remembers() -> None:
    clients = met(FEDERATION, ROWS)
    client = clients[2]
    before = answered(client, 3, labels(1))
    later = back(clients, 2)
    refused(later, OutOfTurn, "something else than before as request 3, attempt 1", 3, labels(2))
    assert np.array_equal(answered(later, 3, labels(1)), before)


def back(clients: list[Client], at: int) -> Client:
    """The next process of a client, told by the server what it was told before."""
    said, coins = agreements(clients)[at], reveals(clients)
    later = clients[at].restarted()
    later.tell(roster(clients), said, coins)
    assert later.phase is Phase.ROUNDS, "it had kept all shares"
    return later


# --- who is asked -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("responders", [(2,), (0, 2), (0, 2, 2), (2, 2, 2), (0, 1, 2, 4)])
def test_a_small_or_doubled_responder_set(responders: tuple[int, ...]) -> None:
    client = met(FEDERATION, ROWS)[2]
    refused(client, WrongSender, "names a wrong responder set", 1, labels(), responders=responders)


def test_responders_out_of_order() -> None:
    client = met(FEDERATION, ROWS)[2]
    refused(client, Malformed, "responders must be in roster order", 1, labels(), responders=(2, 0, 4))


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
    machines, plan = met(FEDERATION, ROWS), plan_of(FEDERATION)
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
    generator = random.Random(0)
    clients = [
        Client(
            make_site(
                made,
                name,
                rows,
                fresh_secrets(generator),
                verify=kit.verifier(kits[name]),
                sign=kits[name].sign,
                certificate=kits[name].certificate_pem,
            )
        )
        for name, rows in zip(made.roster, deal(2, [3, 4, 5]), strict=True)
    ]
    honest = roster(clients).members
    mine, swapped = b"\x09" + bytes(31), kits["server"]
    bare = dataclasses.replace(honest[0], x25519=mine)
    statement = bare.statement(made.agreed())
    lies = [
        bare,
        dataclasses.replace(bare, signature=swapped.sign(statement)),
        dataclasses.replace(bare, signature=swapped.sign(statement), certificate=swapped.certificate_pem),
        dataclasses.replace(bare, signature=kits["client-3"].sign(statement)),
    ]
    for lie in lies:
        refused_by(clients[1], messages.Roster((lie, *honest[1:])), WrongSender, "client-1|signature")
    clients[1].tell(messages.Roster(honest))
    assert clients[1].phase is Phase.AGREEING


def test_two_rosters_for_two_clients_share_nothing() -> None:
    """Old introductions of one client, properly signed, shown to one of the others only: two sessions, so shares and
    uploads of the one are refused or noise in the other."""
    clients = strangers(FEDERATION, ROWS, seed=1)
    members = list(roster(clients).members)
    other = list(members)
    other[3] = strangers(FEDERATION, ROWS, seed=2)[3].site.introduction()
    clients[0].tell(messages.Roster(tuple(members)))
    clients[1].tell(messages.Roster(tuple(other)))
    assert clients[0].machine.session != clients[1].machine.session
    ours, theirs = (client.report(messages.Agreed) for client in clients[:2])
    signatures = (ours.signature, theirs.signature, *(b"" for _ in range(3)))
    said = messages.Agreements(signatures, (b"", theirs.proofs[0], *(bytes(32) for _ in range(3))))
    refused_by(clients[0], said, WrongSender, "agreement of c1 is not signed by it")
    assert not clients[0].waiting, "no share leaves"


def test_a_client_is_shown_one_roster_only() -> None:
    clients = met(FEDERATION, ROWS)
    other = roster([*clients[:4], strangers(FEDERATION, ROWS, seed=2)[4]])
    refused_by(clients[0], other, WrongSender, "another roster than before")
    clients[0].tell(roster(clients))
    assert clients[0].error is None, "the same once more, after a lost connection"


# --- how it ends ------------------------------------------------------------------------------------------------------


def played(policies: Sequence[Policy], **settings: Any) -> World:
    """A whole job with these policies, until everybody has ended."""
    agreed = make_federation(5, **settings)
    world = World(Scene(agreed, tuple(ROWS)), 3)
    world.policies = dict(zip(agreed.roster, policies, strict=True))
    world.start()
    world.until(lambda: not any(process.alive for process in world.clients))
    return world


def test_a_refused_request_ends_the_job_with_the_rule() -> None:
    world = played([Policy(), Policy(), Policy(max_requests=4), Policy(), Policy()])
    assert world.server.phase is Phase.FAILED
    assert isinstance(world.server.failure, JobFailed)
    text = "c2 refuses: policy.toml: max_requests = 4, and this is request 5"
    assert str(world.server.failure) == text
    for process in world.clients:
        if process.name == "c2":
            assert isinstance(process.error, Refused)
        else:
            assert isinstance(process.error, JobFailed)
            assert text in str(process.error)


def test_a_job_within_every_policy_ends_as_without_and_all_count_alike() -> None:
    ended: dict[str, str] = {}
    world = World(Scene(make_federation(5), tuple(ROWS)), 3)
    rules = Policy(least_privacy=1, uploads=("masked",), max_directions=3)
    world.policies = dict.fromkeys(world.scene.federation.roster, rules)
    world.start()
    guards = {name: world.client(name).site.guard for name in world.scene.federation.roster}
    world.until(lambda: world.finished)
    world.check_labels()
    rounds = world.server._phase.asking
    assert rounds is not None
    assert rounds.leakage.text() == "distance directions given away: 3 of 3"
    assert [record.directions for record in rounds.records] == sorted(record.directions for record in rounds.records)
    for name, guard in guards.items():
        assert guard.leakage is not None
        ended[name] = guard.leakage.text()
    assert set(ended.values()) == {rounds.leakage.text()}
