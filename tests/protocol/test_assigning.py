"""New rows later: assigned to the frozen clusters of an earlier job, of which clients have kept shares of the sums only."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement import job as jobs
from secfc.agreement.federation import SERVER
from secfc.agreement.policy import Policy, complaints
from secfc.errors import ConfigError, Malformed, OutOfTurn, PlanError, Refused
from secfc.kmeans.frozen import FrozenClusters
from secfc.privacy.leakage import Tally
from secfc.protocol.client.freezing import KeptClusters
from secfc.protocol.client.guard import Guard
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Kind
from tests.parties import Rows, deal, digest_of, make_federation
from tests.protocol.bench import Bench, is_parcel

KINDS = ("open", "masked", "sealed")
KEEPS = Policy(keep_clusters=True, centers_smallest=0)  # below what a file may say: any cluster will do


def finished(rows: list[Rows], policies: dict[str, Policy] | None = None, **changes: Any) -> Bench:
    """A job that has found clusters; all sites keep them unless they say otherwise."""
    federation = make_federation(len(rows), **{"max_rows": 90} | changes)
    if "centers_smallest" not in changes:
        federation = replace(federation, job=replace(federation.job, centers_smallest=0))
    job = Bench(federation, rows, policies=dict.fromkeys(federation.roster, KEEPS) | (policies or {}))
    job.finish()
    return job


def kept(job: Bench) -> dict[str, KeptClusters]:
    return {name: KeptClusters.from_bytes(job.disks[name]["clusters"]) for name in job.clients}


def assigning(job: Bench, rows: list[Rows], policies: dict[str, Policy] | None = None, **options: Any) -> Bench:
    """The job that assigns rows to what another one found."""
    clusters = kept(job)
    federation = clusters["c0"].public.federation(job.federation)
    return Bench(federation, rows, seed=1, policies=policies, clusters=clusters, **options)


def nearest(job: Bench, rows: list[Rows]) -> list[int]:
    """In exact arithmetic, from all rows."""
    labels = np.array(job.labels(), dtype=np.int32)
    clusters = FrozenClusters.of(np.concatenate(job.rows), labels, len(kept(job)["c0"].public.sizes))
    return clusters.nearest(np.concatenate(rows)).tolist()


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([1, 2, 3, 10]),
    st.sampled_from([2, 128]),
    st.lists(st.integers(0, 6), min_size=5, max_size=5).filter(any),
    st.integers(0, 1000),
)
def test_every_row_goes_to_the_nearest_centre(kind: str, k: int, spread: int, sizes: list[int], seed: int) -> None:
    """Whatever the kind of uploads, with ties (small spreads), more or fewer rows than clusters, and sites without rows."""
    job = finished(deal(seed, [6, 5, 7, 4, 6], spread=spread), uploads=kind, k=k)
    rows = deal(seed + 1, sizes, spread=spread)
    later = assigning(job, rows)
    later.finish()
    assert later.labels() == nearest(job, rows)
    assert len(later.server.snapshot(later.now).records) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("party", [SERVER, "c1"])
def test_a_party_that_restarts_in_the_middle_goes_on(kind: str, party: str) -> None:
    rows = deal(2, [6, 0, 3, 2, 1])
    job = finished(deal(1, [8] * 5), uploads=kind)
    later = assigning(job, rows)
    later.start()
    later.until(lambda: later.server.attempt is not None)
    later.restart(party)
    later.until(lambda: later.over)
    assert later.labels() == nearest(job, rows)


@pytest.mark.parametrize("kind", KINDS)
def test_in_any_order_and_over_links_that_break(kind: str) -> None:
    job = finished(deal(29, [8] * 5), uploads=kind)
    for seed in range(2):
        rows = deal(30 + seed, [2, 0, 5, 1, 1])
        later = assigning(job, rows, chance=random.Random(seed), mishap=0.02)
        later.finish()
        assert later.labels() == nearest(job, rows)


def test_only_new_rows_are_shared_and_nothing_but_sums_is_kept() -> None:
    """k vectors of a share's length, however many rows the job had."""
    job = finished(deal(3, [9] * 5))
    later = assigning(job, deal(4, [1, 2, 0, 1, 1]))
    shared: list[int] = []
    plain = later.alter

    def look(sender: str, send: Any) -> Any:
        if is_parcel(send.message, Kind.SHARES):
            shared.append(send.body.total)
        return plain(sender, send)

    later.alter = look
    later.finish()
    assert max(shared) == 8 * later.plan.share_layout(2).words
    one = kept(job)["c0"]
    assert len(one.words) == job.plan.share_layout(3).words
    assert one.public.sizes == tuple(np.bincount(job.labels()).tolist())
    assert "words" not in repr(one)


def test_a_job_with_several_k_keeps_the_clusters_that_were_chosen() -> None:
    job = finished(deal(5, [9] * 5), k=[3, 2, 4], starts=2, choose="silhouette")
    rows = deal(6, [3] * 5)
    later = assigning(job, rows)
    later.finish()
    assert later.federation.job.ks == (len(kept(job)["c0"].public.sizes),)
    assert later.labels() == nearest(job, rows)


# --- who keeps what --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policies", "changes"),
    [
        ({"c3": Policy()}, {}),  # one does not agree: nobody keeps anything
        (dict.fromkeys([f"c{j}" for j in range(5)], Policy(keep_clusters=True)), {}),  # the floor of 11
        ({}, {"centers_smallest": 30}),
        ({}, {"membership": "private"}),
    ],
)
def test_nothing_is_kept_unless_all_agree_and_clusters_are_large(policies: Any, changes: Any) -> None:
    job = finished(deal(7, [9] * 5), policies, **changes)
    assert not any("clusters" in disk for disk in job.disks.values())
    assert len(job.labels()) == 45


def test_the_default_keeps_nothing() -> None:
    federation = make_federation(5)
    job = Bench(federation, deal(8, [9] * 5))
    job.finish()
    assert not any("clusters" in disk for disk in job.disks.values())
    assert job.server.ending is not None
    assert job.server.ending.clusters is None


def test_server_and_clients_know_the_same_clusters_by_one_name() -> None:
    job = finished(deal(9, [9] * 5))
    assert job.server.ending is not None
    assert {one.public for one in kept(job).values()} == {job.server.ending.clusters}


# --- what it gives away ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "ranks"), [("open", 3), ("masked", 3), ("sealed", 0)])
def test_one_assignment_is_counted_and_a_direction_for_every_further_cluster(kind: str, ranks: int) -> None:
    job = finished(deal(10, [9] * 5), uploads=kind)
    later = assigning(job, deal(11, [4] * 5))
    later.finish()
    for client in later.clients.values():
        assert client.site.guard.tally == Tally(ranks, 1, 0)
    outcome = later.server.snapshot(later.now).outcome
    assert outcome is not None
    assert (outcome.directions, outcome.given) == (max(ranks - 1, 0), Tally(0, 1, 0))


def test_policies_bound_it() -> None:
    job = finished(deal(12, [9] * 5))
    for policy, words in ((Policy(max_directions=1), "max_directions = 1"), (Policy(smallest_cluster=40), "smallest")):
        later = assigning(job, deal(13, [4] * 5), {"c1": policy})
        later.finish()
        assert words in str(later.server.failure)
    guard = Guard(later.federation, later.plan, Policy(max_assignments=2))
    with pytest.raises(ConfigError, match=r"max_assignments = 2.*or on those that made the clusters"):
        guard.charge(Tally(0, 1, 0) | Tally(0, 2, 0))


def test_the_guard_answers_one_request_about_clusters_that_stay_as_they_are() -> None:
    later = assigning(finished(deal(14, [9] * 5)), deal(15, [1] * 5))
    guard = later.clients["c0"].site.guard
    guard.begin(bytes(32), bytes(32), 5, bytes(32))

    def request(number: int) -> RoundRequest:
        digest = digest_of(np.full(5, -1, dtype=np.int32))
        return RoundRequest(
            number, 1, (0, 1, 2), run=0, columns=(0, 1, 2), assignment_digest=digest, deadline_seconds=1.0
        )

    none, some = np.full(5, -1, dtype=np.int32), np.array([0, -1, -1, -1, -1], dtype=np.int32)
    with pytest.raises(Malformed, match="stay as they are"):
        guard.examine(request(1), {0: some})
    examined = guard.examine(request(1), {0: none})
    assert examined is not None
    guard.admit(examined, examined.count())
    with pytest.raises(OutOfTurn, match="one request"):
        guard.examine(request(2), {0: none})


def test_known_new_rows_and_their_distances_give_the_centres() -> None:
    """Masked and open uploads: a server that works with whoever brings d + 1 new rows has every centre, exactly."""
    job = finished(deal(16, [9] * 5))
    labels = np.array(job.labels())
    rows = np.concatenate(job.rows)
    chosen = np.vstack([np.zeros((1, 3), np.int64), 64 * np.eye(3, dtype=np.int64)])
    later = assigning(job, [chosen, *deal(17, [1] * 4)])
    later.finish()
    asking = later.server._phase.asking
    assert asking is not None
    half: Any = asking._half._halves[0]
    sizes = kept(job)["c0"].public.sizes
    found = half.distances.integers(range(3))[:4]
    for h, size in enumerate(sizes):
        squares = [int(v) / size**2 for v in found[:, h]]
        centre = [(squares[0] - squares[1 + f] + 64**2) / 128 for f in range(3)]
        np.testing.assert_allclose(centre, rows[labels == h].mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_chosen_rows_tell_where_the_planes_between_centres_lie(kind: str) -> None:
    """Sealed uploads too: rows along a line find the point where the nearest centre changes, to the last step."""
    job = finished(deal(18, [9] * 5), uploads=kind, k=2, max_rows=300)
    line = np.zeros((257, 3), np.int64)
    line[:, 0] = np.arange(-128, 129)
    later = assigning(job, [line, *deal(19, [1] * 4)])
    later.finish()
    own = np.array(later.labels()[:257])
    changes = np.flatnonzero(np.diff(own))
    rows, labels = np.concatenate(job.rows).astype(float), np.array(job.labels())
    one, two = (rows[labels == h].mean(axis=0) for h in range(2))
    cut = (two @ two - one @ one) / (2 * (two - one)[0])
    assert (len(changes) == 1) == (-128 <= cut <= 128)
    assert all(line[at, 0] <= cut <= line[at + 1, 0] for at in changes)


def test_planes_between_many_centres_fix_the_centres() -> None:
    """Each plane is known up to a factor. Of d + 2 centres in d dimensions the planes of all pairs leave one solution."""
    rng, d = np.random.default_rng(26), 3
    centres = rng.integers(-100, 101, (d + 2, d)).astype(float)
    normals = {(a, b): centres[b] - centres[a] for a in range(d + 2) for b in range(a)}
    planes = {  # what probing gives: a unit normal, and where the plane stands along it
        pair: (normal / np.linalg.norm(normal), normal @ centres[list(pair)].mean(axis=0) / np.linalg.norm(normal))
        for pair, normal in normals.items()
    }
    # reflections: centre b is centre a mirrored at their plane, so b − a = −2(⟨n, a⟩ − o)·n, linear in a
    unknown = d * (d + 2)
    equations, right = [], []
    for (a, b), (normal, offset) in planes.items():
        for f in range(d):
            row = np.zeros(unknown)
            row[b * d + f] += 1
            row[a * d + f] -= 1
            row[a * d : a * d + d] += 2 * normal[f] * normal
            equations.append(row)
            right.append(2 * normal[f] * offset)
    found, _, rank, _ = np.linalg.lstsq(np.array(equations), np.array(right), rcond=None)
    assert rank == unknown
    np.testing.assert_allclose(found.reshape(d + 2, d), centres, atol=1e-6)


def test_a_job_takes_no_more_new_rows_than_agreed() -> None:
    later = assigning(finished(deal(27, [9] * 5)), deal(28, [19] * 5))
    later.start()
    later.until(lambda: any(client.ended for client in later.clients.values()), 2000)
    assert "95 rows in all exceed max_rows = 90" in str(
        [client.ended and client.ended.error for client in later.clients.values()]
    )


# --- what cannot be --------------------------------------------------------------------------------------------------------


def test_jobs_that_do_not_fit_the_clusters_are_told_so_in_one_line() -> None:
    job = finished(deal(20, [9] * 5))
    one = kept(job)["c0"]
    agreed, _ = one.job(job.federation, "c0")
    what = agreed.job
    for other, words in [
        (replace(agreed, job=replace(what, precision=3)), "other features, scale, bound or precision"),
        (
            replace(agreed, job=replace(what, feature_names=("a", "b", "c"))),
            "other features, scale, bound or precision",
        ),
        (replace(agreed, job=replace(what, k=4)), "give it k = 3"),
        (replace(agreed, clients=agreed.clients[::-1]), "only the same clients"),
        (replace(agreed, privacy=2), "privacy = 1 and segments = 1"),
        (replace(agreed, job=replace(what, max_rows=1 << 20)), "lanes"),
    ]:
        with pytest.raises(ConfigError, match=words) as raised:
            one.job(other, "c0")
        assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="kept here for c0"):
        one.job(agreed, "c1")
    with pytest.raises(PlanError, match="max_rows of at least"):
        one.job(replace(agreed, job=replace(what, max_rows=44)), "c0")


NAME = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f'from = "{NAME}"', r"from: needs kind = \"assign\""),
        ('kind = "assign"', "from: is missing"),
        ('kind = "assign"\nfrom = "../zz"', "from: must be 32 hexadecimal digits"),
        (f'kind = "assign"\nfrom = "{NAME}"\nstarts = 3', "starts: has no meaning"),
        (f'kind = "assign"\nfrom = "{NAME}"\ncenters = "clients"', "centers: has no meaning"),
        (f'kind = "assign"\nfrom = "{NAME}"\nk = [2, 3]', "k: must be one number"),
        ('kind = "guess"', "kind: must be one of cluster, assign"),
    ],
)
def test_a_job_file_that_cannot_be_meant(lines: str, words: str) -> None:
    text = lines + ("" if "k = " in lines else "\nk = 3") + "\nfeatures = 3\nbound = 8.0\nmax_rows = 90"
    with pytest.raises(ConfigError, match=words) as raised:
        jobs.parse(text, "job.toml")
    assert "\n" not in str(raised.value)


def test_a_job_file_that_assigns_is_the_job_that_follows_from_the_one_before() -> None:
    common = "k = 3\nfeatures = 3\nbound = 8.0\nprecision = 4\nmax_rows = 90\n"
    made = jobs.parse(f'kind = "assign"\nfrom = "{NAME}"\n' + common, "job.toml")
    assert (
        jobs.parse(jobs.dumps(made), "again") == made == jobs.parse(common + "starts = 9", "before").assigning(NAME, 3)
    )
    assert made.digest() != replace(made, source=NAME[::-1]).digest()
    federation = replace(make_federation(5, uploads="sealed"), job=made)
    assert not complaints(Policy(max_requests=1, max_assignments=1), federation)


def test_nobody_brings_a_row() -> None:
    later = assigning(finished(deal(21, [9] * 5)), deal(22, [0] * 5))
    later.finish()
    assert "no client brings a row" in str(later.server.failure)


@settings(deadline=None)
@given(st.data())
def test_what_is_kept_is_read_back_or_refused(data: st.DataObject) -> None:
    value = bytearray(_KEPT)
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(value)))
    for damaged in (bytes(value), bytes(value[:cut])):
        try:
            KeptClusters.from_bytes(damaged)
        except Malformed:
            continue  # a change in the values or a name may pass here: the file's seal notices it


_KEPT = KeptClusters.from_bytes(finished(deal(23, [9] * 5)).disks["c0"]["clusters"]).to_bytes()


def test_a_policy_that_refuses_is_told_to_everybody() -> None:
    job = finished(deal(24, [9] * 5))
    later = assigning(job, deal(25, [2] * 5), {"c2": Policy(max_requests=1, max_directions=0)})
    later.finish()
    ended = later.clients["c2"].ended
    assert ended is not None
    assert isinstance(ended.error, Refused)
    assert "labels" not in later.disks["c0"]
