"""Broken links are named, retried and resumed; the labels do not change by a bit.

Proxies stand where federation.toml says a party is; the party listens behind it.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pyarrow.parquet as pq
import pytest

from secfc.agreement import costs, plan
from secfc.agreement import federation as federations
from secfc.local import Local
from secfc.pki import kit
from secfc.protocol import transfer
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.integration import helpers
from tests.integration.helpers import until
from tests.integration.proxy import Proxy, owns
from tests.integration.scripted import CALL, Scripted
from tests.integration.test_membership import check as check_private

pytestmark = pytest.mark.slow


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def behind(made: federations.Federation, proxies: dict[str, Proxy]) -> federations.Federation:
    return helpers.readdressed(made, {name: proxy.address for name, proxy in proxies.items()})


def links(site: Local) -> list[str]:
    return list(helpers.status_of(site, "client-3").broken_links)


def complaints(site: Local, party: str) -> list[dict[str, Any]]:
    return [line for line in site.events(party) if line["event"] == "cannot reach a client"]


REASONS = {"reset": "hangs up during the TLS handshake|Connection reset", "swallow": "does not answer TLS within"}


@pytest.mark.parametrize("how", REASONS)
def test_two_clients_that_cannot_reach_each_other(tmp_path: Path, stack: ExitStack, how: str) -> None:
    parts = helpers.split(helpers.mixture(150, 3, 3), [50, 60, 40])
    plain = helpers.describe(parts, 3)
    pair = ("client-1", "client-2")
    proxies = {name: stack.enter_context(Proxy(plain.client(name).bind)) for name in pair}
    site = helpers.prepared(tmp_path, parts, behind(plain, proxies))
    stack.callback(site.stop)
    for name, other in (pair, pair[::-1]):

        def verdict(port: int, other: str = other) -> str:
            return how if owns(site.processes[other].pid, port) else "pass"

        proxies[name].verdict = verdict
    site.start_all()
    until(lambda: helpers.said(site, "server", "listening"), "the server listens")
    # Named at the server and on both sides, with a reason; nobody else is accused.
    until(lambda: len(links(site)) == 2, "both directions are reported", 90)
    for name, other in (pair, pair[::-1]):
        assert any(line.startswith(f"{name} cannot reach {other}: {other} at 127.0.0.1") for line in links(site))
        told = until(lambda n=name: complaints(site, n), f"{name} complains")
        assert {line["peer"] for line in told} == {other}
        assert any(re.search(REASONS[how], line["reason"]) for line in told)
        assert any(
            (line["event"], line.get("client"), line.get("peer")) == ("broken link", name, other)
            for line in site.events("server")
        )
    assert not complaints(site, "client-3")
    assert helpers.status_of(site).phase == pb.PHASE_SHARING
    # Tried on and on, and taken up when it works again.
    before = {name: proxies[name].turned_away for name in pair}
    until(lambda: all(proxies[name].turned_away >= before[name] + 2 for name in pair), "both are tried again", 120)
    for name in pair:
        proxies[name].verdict = lambda _: "pass"
        if how == "swallow":
            proxies[name].cut()
    site.wait(120)
    helpers.check_labels(site, parts)
    for name, other in (pair, pair[::-1]):
        assert any(line["event"] == "link is back" and line["peer"] == other for line in site.events(name))
    back = [line for line in site.events("server") if line["event"] == "link is back"]
    assert {(line["client"], line["peer"]) for line in back} == {pair, pair[::-1]}


def test_the_servers_connections_are_cut_in_the_middle_of_uploads(tmp_path: Path, stack: ExitStack) -> None:
    """Twice, each time in the middle of a message; clients come back and go on with the words that are missing."""
    parts = helpers.split(helpers.mixture(12000, 4, 16), [4000, 4000, 4000])
    plain = helpers.describe(parts, 16, max_rounds=6, precision=4)
    layout = costs.of(plan.of(plain))
    assert layout["round_bytes_per_client"] > 1.2 * transfer.PIECE_BYTES
    proxy = stack.enter_context(Proxy(plain.server.bind))
    seeding = 3 * 16 * 12000 * 8  # at most: three clients, 16 single columns
    round_bytes = 3 * layout["round_bytes_per_client"]
    proxy._cut_after = [seeding + round_bytes // 2, seeding + round_bytes * 2]
    site = helpers.prepared(tmp_path, parts, behind(plain, {"server": proxy}))
    stack.callback(site.stop)
    site.start_all()
    site.wait(180)
    assert proxy.cuts == 2
    helpers.check_labels(site, parts)
    for name in plain.roster:
        said = [line["event"] for line in site.events(name)]
        assert said.count("joined") >= 2, said
        assert "cannot reach the server; trying again" in said
    result = site.result()
    assert [step["attempts"] for step in result["history"]] == [1] * len(result["history"])
    exact = sum(step["upload_bytes"] for step in result["history"])
    assert sum(result["bytes"]["uploaded"].values()) == exact  # nothing was counted, hence sent, from the start again


def test_the_servers_connections_are_cut_while_joining_and_sharing(tmp_path: Path, stack: ExitStack) -> None:
    parts = helpers.split(helpers.mixture(150, 3, 3), [50, 60, 40])
    plain = helpers.describe(parts, 3)
    proxies = {name: stack.enter_context(Proxy(plain.party(name).bind)) for name in ("server", "client-1")}
    site = helpers.prepared(tmp_path, parts, behind(plain, proxies))
    stack.callback(site.stop)
    for party in ("server", "client-1", "client-2"):
        site.start(party)
    until(lambda: helpers.said(site, "server", "listening"), "the server listens")
    for times in (1, 2):
        until(lambda: sum(c.connected for c in helpers.status_of(site).clients) == 2, "two have joined")
        joined = len([line for line in site.events("client-1") if line["event"] == "joined"])
        assert joined >= times
        proxies["server"].cut()
        until(
            lambda j=joined: len([line for line in site.events("client-1") if line["event"] == "joined"]) > j,
            "client-1 joins again",
        )
    proxies["client-1"].verdict = lambda _: "reset"
    site.start("client-3")
    until(lambda: helpers.said(site, "server", "sharing"), "sharing begins")
    until(lambda: complaints(site, "client-3"), "client-3 cannot deliver")
    proxies["server"].cut()
    until(lambda: all(c.connected for c in helpers.status_of(site).clients), "all are back")
    proxies["client-1"].verdict = lambda _: "pass"
    site.wait(120)
    helpers.check_labels(site, parts)


def test_a_share_delivery_is_cut_in_the_middle_of_a_chunk(tmp_path: Path, stack: ExitStack) -> None:
    """Twice; what has arrived is not sent again."""
    parts = helpers.split(helpers.mixture(18600, 20, 3), [18000, 300, 300])
    plain = helpers.describe(parts, 3, max_rounds=2, precision=4)
    agreed = plan.of(plain)
    shares = [8 * agreed.share_layout(len(part)).words for part in parts]
    assert shares[0] > 2 * transfer.PIECE_BYTES
    proxy = stack.enter_context(Proxy(plain.client("client-2").bind, cut_after=[1_300_000, 2_800_000]))
    site = helpers.prepared(tmp_path, parts, behind(plain, {"client-2": proxy}))
    stack.callback(site.stop)
    site.start_all()
    site.wait(60)
    assert proxy.cuts == 2
    helpers.check_labels(site, parts)
    counted = site.result()["bytes"]
    assert counted["sharing_received"]["client-2"] == shares[0] + shares[2]
    assert any(line["event"] == "cannot reach a client" for name in plain.roster for line in site.events(name))
    sent = {
        name: value - 2 * share for (name, value), share in zip(counted["sharing_sent"].items(), shares, strict=True)
    }
    assert sent["client-2"] == 0
    assert 0 <= sent["client-1"] + sent["client-3"] <= 8 * transfer.PIECE_BYTES


@pytest.mark.slow
def test_links_that_break_every_200_kilobytes(tmp_path: Path, stack: ExitStack) -> None:
    """Shares, sums over all clients and uploads are each several times as large, and all get across."""
    parts = helpers.split(helpers.mixture(9000, 8, 6), [8000, 600, 400])
    plain = helpers.describe(parts, 6, max_rounds=2, precision=4, membership="private")
    assert costs.of(plan.of(plain))["round_bytes_per_client"] > 200_000
    proxies = {
        name: stack.enter_context(Proxy(plain.party(name).bind, carries=200_000)) for name in ("server", "client-2")
    }
    site = helpers.prepared(tmp_path, parts, behind(plain, proxies), client_options=("--write-ids",))
    stack.callback(site.stop)
    site.start_all()
    site.wait(240)
    check_private(site, parts)
    assert site.result()["bytes"]["sharing_received"]["client-2"] > 1_000_000
    assert proxies["server"].cuts > 20
    assert proxies["client-2"].cuts > 5


# --- what only a client of the test's own can do -------------------------------------------------------------------------


class Trio:
    """A server, two client processes, and client-3 played by the test."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.parts = helpers.split(helpers.mixture(120, 3, 3), [50, 40, 30])
        self.made = helpers.describe(self.parts, 3, **settings)
        self.site = helpers.prepared(folder, self.parts, self.made)
        self.mine = Scripted(self.site.kit("client-3"), self.parts[2])

    def start(self) -> None:
        for party in ("server", "client-1", "client-2"):
            self.site.start(party)
        self.mine.listen()
        until(lambda: helpers.said(self.site, "server", "listening"), "the server listens")
        until(lambda: sum(c.connected for c in helpers.status_of(self.site).clients) == 2, "two have joined")
        self.mine.join()
        self.mine.follow()
        self.mine.met()

    def finish(self) -> None:
        self.mine.go_on()
        self.site.wait(60)
        labels = []
        for name in ("client-1", "client-2"):
            labels += pq.read_table(self.site.labels_file(name)).column("cluster").to_pylist()
        assert labels + list(self.mine.labels) == helpers.pooled(self.made, self.parts).labels.tolist()

    def close(self) -> None:
        self.mine.close()
        self.site.stop()


@pytest.fixture
def trio(tmp_path: Path, stack: ExitStack) -> Trio:
    made = Trio(tmp_path)
    stack.callback(made.close)
    made.start()
    return made


class Held:
    """Messages one after the other, and then no end, until it is released."""

    def __init__(self, *messages: Any) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        for message in messages:
            self._queue.put(message)

    def release(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._queue.get, None)


def deliver_and_break(trio: Trio, stack: ExitStack, count: int) -> None:
    """So many bytes of ours reach client-1, then the connection is reset before the stream has ended."""
    mine = trio.mine
    data = mine.shares("client-1")
    proxy = stack.enter_context(Proxy(trio.made.client("client-1").bind))
    messages = Held(mine.share_piece(data, data=data[:count]))
    with helpers.dial(mine.kit, "client-1", proxy.address) as channel:
        call = stubs.ExchangeStub(channel).Deliver.future(iter(messages), timeout=CALL)
        until(lambda: mine.received_by("client-1") == count, "the bytes have arrived")
        proxy.cut()
        until(call.done, "the delivery breaks off")
        messages.release()
    assert mine.received_by("client-1") == count


def test_a_delivery_whose_last_byte_came_but_whose_end_did_not(trio: Trio, stack: ExitStack) -> None:
    """The receiver has everything, an honest sender hears so and sends nothing more: the job must go on."""
    mine = trio.mine
    deliver_and_break(trio, stack, len(mine.shares("client-1")))
    mine.deliver("client-2")
    mine.hold()
    until(lambda: helpers.said(trio.site, "client-1", "all shares have arrived"), "client-1 has all shares", 15)
    trio.finish()


def test_a_delivery_that_breaks_off_is_resumed(trio: Trio, stack: ExitStack) -> None:
    """Half the bytes arrive, then the connection breaks; the other half follows on another connection."""
    mine = trio.mine
    data = mine.shares("client-1")
    half = len(data) // 16 * 8
    deliver_and_break(trio, stack, half)
    assert mine.deliver("client-1", mine.share_piece(data, half)) == len(data)
    mine.deliver("client-2")
    mine.hold()
    trio.finish()


def test_a_client_that_refuses_our_shares_ends_our_process_with_its_reason(tmp_path: Path, stack: ExitStack) -> None:
    """Refused for good (INVALID_ARGUMENT, do not retry): nothing can come of this job, and somebody must say so."""
    trio = Trio(tmp_path)
    trio.mine.refuse = grpc.StatusCode.INVALID_ARGUMENT
    stack.callback(trio.close)
    trio.start()
    process = trio.site.processes["client-1"]
    until(lambda: process.poll() is not None, "client-1 ends", 20)
    assert process.returncode == 4
    assert "client-3 refuses: refused by the script" in helpers.text(trio.site, "client-1")


def test_an_upload_whose_last_byte_came_but_whose_end_did_not(trio: Trio) -> None:
    """The last bytes of the round are there: it goes on, whatever becomes of the connection."""
    mine = trio.mine
    mine.share()
    asked = mine.request()
    answer = mine.answer(asked)
    for name in ("client-1", "client-2"):
        other = kit.load(trio.site.kit(name))
        until(lambda o=other: mine.uploaded(asked, o) == len(answer), f"{name} has answered")
    messages = Held(mine.upload_piece(asked, answer))
    call = mine.exchange.Deliver.future(iter(messages), timeout=CALL)
    try:
        following = mine.request(10.0)
    finally:
        messages.release()
        call.cancel()
    assert following.number == asked.number + 1
    mine.requests.put(following)
    trio.finish()


def test_an_upload_that_breaks_off_is_resumed_where_it_stopped(trio: Trio) -> None:
    mine = trio.mine
    mine.share()
    asked = mine.request()
    answer = mine.answer(asked)
    half = len(answer) // 16 * 8
    messages = Held(mine.upload_piece(asked, answer, data=answer[:half]))
    call = mine.exchange.Deliver.future(iter(messages), timeout=CALL)
    until(lambda: mine.uploaded(asked) == half, "half of the bytes have arrived")
    call.cancel()
    messages.release()
    mine.upload(mine.upload_piece(asked, answer, half))
    trio.finish()


def test_a_client_that_follows_again_while_its_old_stream_lives_stays_connected(trio: Trio) -> None:
    """The newer stream counts: when the older one ends, the client is not taken for gone."""
    mine = trio.mine
    mine.share()
    asked = mine.request()
    old = mine._stream
    mine.follow()
    assert mine.request().number == asked.number
    old.cancel()
    ended = threading.Event()
    old.add_callback(ended.set) or ended.set()  # already over
    assert ended.wait(10)
    until(lambda: helpers.status_of(trio.site).clients[2].connected, "client-3 counts as connected")
    mine.requests.put(asked)
    trio.finish()
