"""Standard scaling over the machines: exact labels, restarts, and servers and clients that want to see somebody's own sums.

Real participants; in the second half the test plays server and network, and shows each client what it likes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement.federation import SERVER
from secfc.agreement.policy import Policy
from secfc.coding.field import Words
from secfc.errors import JobFailed, OutOfTurn, WrongSender
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.kmeans.standard import Moments, Unscaled
from secfc.privacy import confirming, scaling
from secfc.protocol import messages
from secfc.protocol.client.phases.scaling import BEYOND
from secfc.protocol.effects import Arrived
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Data, Kind, Parcel, of_words, to_words
from tests.parties import fresh_secrets, make_federation, make_site, sites
from tests.protocol.bench import Bench
from tests.protocol.helpers import Client, agree, agreements, roster

NAMES = ["x1", "x2", "x3"]
SIZES = [8, 6, 9, 7, 10]
FEDERATION = make_federation(5, scale="standard", seeding="random")


def brought(seed: int = 0, sizes: Sequence[int] = SIZES, missing: float = 0.0) -> list[Unscaled]:
    """Rows of every client, with columns of quite different sizes."""
    generator = np.random.default_rng(seed)
    found = []
    for size in sizes:
        values = generator.normal([0.0, 5e6, -3e-4], [1.0, 2e6, 1e-4], (size, 3))
        values[generator.random((size, 3)) < missing] = np.nan
        found.append(Unscaled(values, np.ones(3, bool)))
    return found


def pooled(parts: Sequence[Unscaled]) -> Unscaled:
    return Unscaled(np.concatenate([part.values for part in parts]), parts[0].numeric)


# --- whole jobs ------------------------------------------------------------------------------------------------------------


def check_exact(job: Bench, parts: Sequence[Unscaled]) -> None:
    """Every client's labels are those of central Lloyd on the pooled rows, scaled and quantised."""
    what, every = job.federation.job, pooled(parts)
    rows = every.quantised(every.spread(every.moments(), NAMES), NAMES, (what.clip, what.bound, what.precision))
    seed = job.server.snapshot(job.now).seed
    assert seed is not None
    start = {"start": what.seeding, "coins": Coins(seed), "max_rounds": what.max_rounds}
    [found, *_] = central.runs(rows, what.runs, candidates=what.candidates, **start)
    edges = np.cumsum([0, *map(len, parts)])
    for name, begin, end in zip(job.federation.roster, edges, edges[1:], strict=False):
        labels = np.frombuffer(job.disks[name]["labels"][32:][: 4 * (end - begin)], "<i4")
        assert labels.tolist() == found.labels[begin:end].tolist()


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 9), min_size=5, max_size=5), st.sampled_from([0.0, 0.2]))
def test_labels_are_exact_lloyds_on_the_scaled_rows(seed: int, sizes: list[int], missing: float) -> None:
    sizes[0] += 4
    federation = make_federation(5, scale="standard", clip=2, missing="mean")
    parts = brought(seed, sizes, missing)
    if not all(one.count for one in pooled(parts).moments()):
        return
    job = Bench(federation, parts, seed=seed)  # type: ignore[arg-type]
    job.finish()
    assert job.server.failure is None
    check_exact(job, parts)


@pytest.mark.parametrize("who", [SERVER, "c2"])
@pytest.mark.parametrize("step", range(0, 120, 12))
def test_restarts_while_scaling(who: str, step: int) -> None:
    """Killed after so many steps of the phase, and started again from its disk."""
    parts = brought(1)
    job = Bench(FEDERATION, parts)  # type: ignore[arg-type]
    job.start()
    job.until(lambda: job.server.phase is Phase.SCALING)
    left = step

    def over() -> bool:
        nonlocal left
        left -= 1
        return left < 0 or job.server.phase is not Phase.SCALING

    job.until(over)
    job.restart(who)
    job.until(lambda: job.over)
    check_exact(job, parts)


def test_the_scale_of_a_job_reaches_its_centres() -> None:
    federation = make_federation(5, scale="standard", centers="clients", centers_smallest=1)
    parts = brought(3)
    for part in parts:
        part.values[:, 0] += 100.0
    job = Bench(federation, parts, policies={f"c{j}": Policy(open_centers="clients") for j in range(5)})  # type: ignore[arg-type]
    job.finish()
    lines = job.disks["c0"]["centers"].decode().splitlines()
    assert lines[0] == "cluster,size,x1,x2,x3"
    centers = np.array([line.split(",") for line in lines[1:]], dtype=float)
    labels = np.concatenate([np.frombuffer(job.disks[f"c{j}"]["labels"][32:], "<i4") for j in range(5)])
    every = pooled(parts).values
    for center in centers:
        assert np.allclose(center[2:], every[labels == center[0]].mean(axis=0), atol=0, rtol=0.5), (
            "in the units of the data"
        )
    assert len(centers)


def test_a_value_beyond_the_bound_ends_the_job_without_telling_where() -> None:
    federation = make_federation(5, scale="standard", bound=1.5, precision=8)
    job = Bench(federation, brought(4))  # type: ignore[arg-type]
    job.start()
    job.until(lambda: job.server.failure is not None and job.over)
    assert str(job.server.failure).endswith(BEYOND)
    errors = [str(client.ended.error) for client in job.clients.values() if client.ended is not None]
    assert any("data row" in error and "column x" in error for error in errors), "its own operator hears which row"
    assert "row" not in str(job.server.failure)


# --- who sees what ---------------------------------------------------------------------------------------------------------


def introduced(parts: Sequence[Unscaled], seed: int = 0) -> list[Client]:
    """Clients that have met and agreed, and now say what they have."""
    clients = [Client(site) for site in sites(FEDERATION, parts, seed)]  # type: ignore[arg-type]
    agree(clients)
    return clients


def say(receiver: Client, sender: str, about: Parcel, data: Data) -> None:
    receiver.give(Arrived(sender, about, 0, len(data), data))


def kind(client: Client, which: Kind) -> dict[str, Any]:
    found = [send for send in client.waiting if isinstance(send.message, Parcel) and send.message.kind is which]
    return {send.to: send for send in found}


def pass_on(clients: Sequence[Client], which: Kind, to: Sequence[Client]) -> None:
    for sender in clients:
        for name, send in kind(sender, which).items():
            for client in to:
                if client.name == name:
                    say(client, sender.name, send.message, send.body.data)


def words_of(client: Client) -> Words:
    return to_words(next(iter(kind(client, Kind.MOMENTS).values())).body.data)


def signed(words: Words) -> list[list[int]]:
    """What an adversary reads in a vector or a sum of some."""
    return [[one.count, one.total, one.squares] for one in scaling.totals(3, b"", words).moments]


def test_the_totals_are_those_of_everybody_and_the_server_is_told_no_number() -> None:
    parts = brought(5)
    clients = introduced(parts)
    pass_on(clients, Kind.PLEDGE, clients)
    pass_on(clients, Kind.MOMENTS, clients)
    expected = [[one.count, one.total, one.squares] for one in pooled(parts).moments()]
    assert signed(scaling.added(3, [words_of(client) for client in clients])) == expected
    reports = [client.report(messages.Scaled) for client in clients]
    assert len({report.digest for report in reports}) == 1
    for client in clients:
        assert {type(send.message) for send in client.told} <= {messages.Agreed, messages.Scaled}, "nothing else leaves"


def test_the_digest_that_the_server_sees_is_not_of_the_sums_alone() -> None:
    """Who guesses all sums cannot test the guess: the same sums with other secrets have another digest."""
    parts = brought(5)
    digests, vectors = set(), []
    for seed in (0, 1):
        clients = introduced(parts, seed)
        pass_on(clients, Kind.PLEDGE, clients)
        pass_on(clients, Kind.MOMENTS, clients)
        total = scaling.added(3, [words_of(client) for client in clients])
        vectors.append(scaling.FIELD.unpack(total, 4, 3))
        digests.add(scaling.totals(3, b"the same", total).digest)
    assert (vectors[0][:, :3] == vectors[1][:, :3]).all(), "the same sums"
    assert (vectors[0][:, 3] != vectors[1][:, 3]).any()
    assert len(digests) == 2


def test_two_jobs_show_the_row_that_was_added_between_them() -> None:
    """What no mask prevents: everybody knows the totals of both jobs."""
    parts = brought(16)
    row = np.array([[1.5, 4e6, -2e-4]])
    more = [*parts[:2], Unscaled(np.vstack([parts[2].values, row]), parts[2].numeric), *parts[3:]]
    seen = []
    for brings in (parts, more):
        clients = introduced(brings)
        pass_on(clients, Kind.PLEDGE, clients)
        seen.append(signed(scaling.added(3, [words_of(client) for client in clients])))
    shown = [(after[1] - before[1]) / 2**80 for before, after in zip(*seen, strict=True)]
    assert shown == row[0].tolist()


@pytest.mark.parametrize("left_out", range(5))
def test_fewer_than_all_vectors_are_noise(left_out: int) -> None:
    """Somebody who has all vectors but one, and leaves a client out, sees numbers that have nothing to do with any sums."""
    parts = brought(6)
    clients = introduced(parts)
    pass_on(clients, Kind.PLEDGE, clients)
    some = [words_of(client) for j, client in enumerate(clients) if j != left_out]
    others = pooled([part for j, part in enumerate(parts) if j != left_out])
    for vector in (*some, scaling.added(3, some)):
        for row, true in zip(signed(vector), others.moments(), strict=True):
            assert not {true.count, true.total, true.squares} & set(row)
            assert all(abs(number) > 1 << 200 for number in row), "uniform in 335 bits"


def test_a_colluder_sees_the_sum_over_all_others_and_no_more() -> None:
    """c4 takes its own masks and numbers out: what is left is the total of the honest four. Any fewer stay covered."""
    parts = brought(7)
    clients = introduced(parts)
    pass_on(clients, Kind.PLEDGE, clients)
    honest = clients[:4]
    site, met = clients[4].site, clients[4].machine._phase.met  # type: ignore[attr-defined]
    nothing = [Moments(0, 0, 0)] * 3
    masks_alone = scaling.vector(site.plan, 4, met.session, nothing, site.secrets.seed, met.pairs)
    seen = scaling.added(3, [*(words_of(client) for client in honest), masks_alone])
    assert signed(seen) == [[one.count, one.total, one.squares] for one in pooled(parts[:4]).moments()]
    for j in range(4):
        fewer = [words_of(client) for i, client in enumerate(honest) if i != j]
        seen = scaling.added(3, [*fewer, masks_alone])
        assert all(abs(number) > 1 << 200 for row in signed(seen) for number in row)


def test_a_server_cannot_repeat_the_exchange_with_others() -> None:
    """Another set of clients is another session, with other masks: vectors of the two cannot be subtracted. Here c4 has new
    secrets and other rows, as in a job that the server begins without the old c4."""
    parts = brought(8)
    first = introduced(parts)
    pass_on(first, Kind.PLEDGE, first)
    generator = random.Random(99)
    changed = [client.site for client in first]
    changed[4] = make_site(FEDERATION, "c4", brought(9)[4], fresh_secrets(generator))  # type: ignore[arg-type]
    second = [Client(site) for site in changed]
    agree(second)
    pass_on(second, Kind.PLEDGE, second)
    for one, other in zip(first[:4], second[:4], strict=True):
        a, b = (scaling.FIELD.unpack(words_of(client), 4, 3) for client in (one, other))
        difference = scaling.FIELD.reduce(np.ascontiguousarray(a - b))
        assert (difference[:, :3] != 0).mean() > 0.99, "the same rows, and nothing cancels"


def test_a_server_that_shows_another_roster_in_the_middle_is_refused() -> None:
    clients = introduced(brought(8))
    others = introduced(brought(8), seed=5)
    clients[0].tell(roster(others))
    assert isinstance(clients[0].error, WrongSender)


def test_a_server_that_lets_a_client_go_on_too_early_or_with_another_scale() -> None:
    clients = introduced(brought(10))
    clients[0].tell(messages.Scale(bytes(32)))
    assert clients[0].phase is Phase.SCALING, "it has nobody's sums yet, and shares no row"
    assert not kind(clients[0], Kind.SHARES)
    pass_on(clients, Kind.PLEDGE, clients)
    pass_on(clients[1:], Kind.MOMENTS, [clients[0]])
    assert isinstance(clients[0].error, WrongSender)
    assert "another scale than ours" in str(clients[0].error)
    assert not kind(clients[0], Kind.SHARES)


def test_no_row_is_shared_before_all_have_the_same_scale() -> None:
    clients = introduced(brought(11))
    pass_on(clients, Kind.PLEDGE, clients)
    pass_on(clients, Kind.MOMENTS, clients)
    assert not any(kind(client, Kind.SHARES) for client in clients)
    digest = clients[0].report(messages.Scaled).digest
    for client in clients:
        client.tell(messages.Scale(digest))
        assert client.phase is Phase.SHARING
        assert kind(client, Kind.SHARES)


def test_a_client_that_says_different_things_to_different_clients_is_noticed() -> None:
    """c4 adds one more to what it tells c0: c0 has another scale, another digest, and refuses everybody's shares."""
    clients = introduced(brought(12))
    about = next(iter(kind(clients[4], Kind.PLEDGE).values())).message
    session = clients[4].machine.session
    site, met = clients[4].site, clients[4].machine._phase.met  # type: ignore[attr-defined]
    own = list(site.rows.moments())  # type: ignore[union-attr]
    own[0] = replace(own[0], total=own[0].total + (1 << 80))
    lie = scaling.vector(site.plan, 4, session, own, site.secrets.seed, met.pairs)
    pledge = confirming.commitment(4, session, about.name, lie)
    pass_on(clients[:4], Kind.PLEDGE, clients)
    pass_on(clients[4:], Kind.PLEDGE, clients[1:])
    say(clients[0], "c4", about, pledge)
    pass_on(clients[:4], Kind.MOMENTS, clients)
    pass_on(clients[4:], Kind.MOMENTS, clients[1:])
    say(clients[0], "c4", replace(about, kind=Kind.MOMENTS), of_words(lie).data)
    digests = [client.report(messages.Scaled).digest for client in clients]
    assert digests[0] != digests[1]
    assert len(set(digests[1:])) == 1
    for client, digest in zip(clients, digests, strict=True):  # a server that conspires lets everybody go on
        client.tell(messages.Scale(digest))
    [shares] = [send for name, send in kind(clients[0], Kind.SHARES).items() if name == "c1"]
    with pytest.raises(OutOfTurn):
        say(clients[1], "c0", shares.message, next(iter(shares.body.pieces(0)))[1])


def test_nobody_chooses_its_sums_after_it_has_seen_the_others() -> None:
    clients = introduced(brought(13))
    assert not any(kind(client, Kind.MOMENTS) for client in clients), "before everybody is committed"
    pass_on(clients[1:], Kind.PLEDGE, clients)
    assert not kind(clients[1], Kind.MOMENTS), "c0 is not yet"
    pass_on(clients[:1], Kind.PLEDGE, clients)
    chosen = words_of(clients[0]).copy()
    chosen[0] ^= np.uint64(1)
    about = replace(next(iter(kind(clients[0], Kind.PLEDGE).values())).message, kind=Kind.MOMENTS)
    with pytest.raises(WrongSender, match="another way than it has committed itself"):
        say(clients[1], "c0", about, of_words(chosen).data)


def test_a_restarted_client_says_the_same_again_and_notices_other_commitments() -> None:
    clients = introduced(brought(14))
    pass_on(clients, Kind.PLEDGE, clients)
    before = words_of(clients[0])
    again = clients[0].restarted()
    again.tell(roster(clients))
    again.tell(agreements(clients)[0])
    about = next(iter(kind(again, Kind.PLEDGE).values())).message
    pass_on(clients[1:4], Kind.PLEDGE, [again])
    same = again.copy()
    pass_on(clients[4:], Kind.PLEDGE, [same])
    assert (words_of(same) == before).all()
    say(again, "c4", about, bytes(32))
    assert not kind(again, Kind.MOMENTS), "c4 has changed its mind, having seen our words"


def test_sums_that_count_other_rows_than_there_are() -> None:
    """A client cannot weigh more than the rows it has introduced."""
    parts = brought(15)
    heavier = Unscaled(np.vstack([parts[4].values] * 2), parts[4].numeric)
    clients = introduced(parts)
    site, met = clients[4].site, clients[4].machine._phase.met  # type: ignore[attr-defined]
    lie = scaling.vector(site.plan, 4, met.session, heavier.moments(), site.secrets.seed, met.pairs)
    about = next(iter(kind(clients[4], Kind.PLEDGE).values())).message
    pass_on(clients[:4], Kind.PLEDGE, clients[:4])
    for client in clients[:4]:
        say(client, "c4", about, confirming.commitment(4, met.session, about.name, lie))
    pass_on(clients[:4], Kind.MOMENTS, clients[:4])
    for client in clients[:4]:
        say(client, "c4", replace(about, kind=Kind.MOMENTS), of_words(lie).data)
        assert isinstance(client.error, JobFailed)
        assert "count other rows than there are" in str(client.error)


def test_numbers_are_wide_enough_for_the_largest_job() -> None:
    assert scaling.FIELD.modulus > 2 * (1 << 31) * (1 << 144) ** 2
    assert math.log2(scaling.FIELD.modulus) > 335
