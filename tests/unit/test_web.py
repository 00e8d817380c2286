"""The page's HTTP side, metrics and reports, without a browser (tests/integration/test_page.py has one)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement.federation import Federation
from secfc.errors import ConfigError, InvalidInput, Unavailable
from secfc.pki import kit as kits
from secfc.pki import provision
from secfc.web import door as doors
from secfc.web import guests, jobreport, metrics, opening
from secfc.web.deciding import Deciding
from secfc.web.document import Document
from secfc.web.door import Door
from secfc.web.page import PACE_SECONDS, Page
from secfc.web.view import MOST_REQUESTS
from secfc_client import report
from secfc_client.data import Table
from secfc_server import result
from secfc_server.view import view
from tests.integration.helpers import describe, mixture, split
from tests.unit.test_coordinator import Server

ROOT = Path(__file__).parents[2]
LOOPBACK = Door("127.0.0.1", 0, frozenset({"localhost", "hub.example"}))


def job() -> Server:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    return server


async def _never(wanted: dict[str, str]) -> None:
    raise AssertionError(f"nobody knows the token, and yet: {wanted}")


@asynccontextmanager
async def page(door: Door = LOOPBACK, server: Server | None = None) -> AsyncIterator[Page]:
    seen = server or job()
    made = Page(door, lambda: view(seen.seen), Deciding(_never, "a token"))
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def exchanged(made: Page, sent: bytes, tls: ssl.SSLContext | None = None, eof: bool = False) -> bytes:
    """The answer to these bytes, until the page closes the connection. `eof`: we say that nothing more comes."""
    port = int(made.url.rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(sent)
    if eof:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def asked(path: str, *headers: str, host: str = "127.0.0.1", method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode(errors="surrogateescape")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def run(test: Callable[[Page], Awaitable[None]], door: Door = LOOPBACK) -> None:
    async def whole() -> None:
        async with page(door) as made:
            await test(made)

    asyncio.run(whole())


# --- answers ---------------------------------------------------------------------------------------------------------------


def test_the_page_comes_with_a_strict_policy_and_names_nothing_elsewhere() -> None:
    async def test(made: Page) -> None:
        for path in ("/", "/assets/page.css", "/assets/page.js", "/assets/icon.svg"):
            head, _, body = (await exchanged(made, asked(path))).partition(b"\r\n\r\n")
            assert status(head) == 200
            assert b"default-src 'none'; script-src 'self'; style-src 'self'" in head
            assert b"unsafe" not in head
            assert set(re.findall(rb"https?://[^\s\"']+", body)) <= {b"http://www.w3.org/2000/svg"}
        assert not re.search(rb"<script(?! src)|<style|style=| on[a-z]+=", (await exchanged(made, asked("/"))))

    run(test)


def test_the_stream_begins_with_the_job_as_it_stands() -> None:
    async def test(made: Page) -> None:
        port = int(made.url.rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked("/events"))
        async with asyncio.timeout(10):
            while not (line := await reader.readline()).startswith(b"data: "):
                pass
        told = json.loads(line.removeprefix(b"data: "))
        assert (told["phase"], told["rows"]) == ("rounds", 12)
        assert [party["name"] for party in told["parties"]] == ["c0", "c1", "c2"]
        writer.close()

    run(test)


def test_a_client_that_is_lost_is_told_as_lost_and_given_away_is_counted() -> None:
    server = job()
    server.lose(1)
    shown = view(server.seen)
    assert [(party.state, party.ok) for party in shown.parties][1] == ("lost: no connection", False)
    assert [one.what for one in shown.given] == [
        "directions of distances",
        "assignments of all rows",
        "inertias opened",
    ]


def test_the_servers_view_has_no_secret_and_no_path() -> None:
    """The start's seed is in result.json, for whoever repeats the job; a page has no use for it."""
    server = job()
    server.finish()
    seen = server.seen
    assert seen.seed is not None
    told = view(seen).to_json().decode()
    assert seen.seed.hex() not in told
    assert "/" not in told.replace(seen.federation.name, "")
    assert "labels" not in json.loads(told)


@pytest.mark.parametrize(
    ("path", "host", "method", "code"),
    [
        ("/", "127.0.0.1:8080", "GET", 200),
        ("/", "localhost:1", "GET", 200),
        ("/", "HUB.example.", "GET", 200),
        ("/", "[::1]:80", "GET", 200),
        ("/", "evil.example", "GET", 421),  # a name that somebody lets resolve to us
        ("/", "127.0.0.1.evil.example", "GET", 421),
        ("/", "", "GET", 421),
        ("/nothing", "127.0.0.1", "GET", 404),
        ("/assets/../door.py", "127.0.0.1", "GET", 404),
        ("/assets/%2e%2e%2fdoor.py", "127.0.0.1", "GET", 404),
        ("/", "127.0.0.1", "POST", 405),
        ("/view", "127.0.0.1", "DELETE", 405),
        ("/events", "127.0.0.1", "HEAD", 405),  # it would hold a stream
    ],
)
def test_who_asks_for_what(path: str, host: str, method: str, code: int) -> None:
    async def test(made: Page) -> None:
        assert status(await exchanged(made, asked(path, host=host, method=method))) == code

    run(test)


def test_a_port_that_is_taken_is_one_line() -> None:
    async def test(made: Page) -> None:
        port = int(made.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(Unavailable, match=f"cannot listen on --web 127.0.0.1:{port}"):
            await Page(Door("127.0.0.1", port, frozenset()), lambda: view(job().seen)).open()

    run(test)


def decision(head: bytes, body: bytes) -> bytes:
    """Some bytes in a header, and a body that may be a decision."""
    lines = [
        b"POST /decide HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Origin: http://127.0.0.1",
        b"Content-Type: application/json",
    ]
    lines += [b"X: " + head, b"Content-Length: %d" % len(body), b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


LINES = st.one_of(
    st.binary(max_size=200),
    st.tuples(st.sampled_from([b"GET", b"POST", b"get", b"\xff"]), st.binary(max_size=60), st.binary(max_size=80)).map(
        lambda parts: (
            parts[0]
            + b" /"
            + parts[1]
            + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            + parts[2]
            + b"\r\nConnection: close\r\n\r\n"
        )
    ),
    st.text(max_size=40).map(lambda text: asked("/assets/" + text)),
    st.tuples(st.binary(max_size=30), st.dictionaries(st.sampled_from(["do", "job", "token", "who"]), st.text())).map(
        lambda parts: decision(parts[0], json.dumps(parts[1]).encode())
    ),
    st.integers(0, 70000).map(lambda n: asked("/", "X: " + "a" * n)),
)


def test_whatever_is_sent_gets_no_more_than_a_4xx() -> None:
    async def test(made: Page) -> None:
        loop = asyncio.get_running_loop()

        @settings(max_examples=150)
        @given(LINES)
        def fuzz(sent: bytes) -> None:
            whole = sent.endswith(b"Connection: close\r\n\r\n") and sent.count(b"\r\n\r\n") == 1
            answer = asyncio.run_coroutine_threadsafe(exchanged(made, sent, eof=not whole), loop).result(20)
            if answer.startswith(b"HTTP/1.") and status(answer) != 200:
                assert 400 <= status(answer) < 500
            assert b"Traceback" not in answer
            assert b".py" not in answer

        await asyncio.to_thread(fuzz)
        assert status(await exchanged(made, asked("/view"))) == 200

    run(test)


def test_connections_that_ask_for_nothing_are_ended_and_so_many_are_taken_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guests, "MOST", 5)
    monkeypatch.setattr(guests, "SILENT_SECONDS", 0.4)

    async def test(made: Page) -> None:
        port = int(made.url.rstrip("/").rpartition(":")[2])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        opened[1][1].write(b"GET /view HTTP/1.1\r\nHo")
        opened[2][1].write(asked("/events"))
        async with asyncio.timeout(10):
            for place in (5, 0, 1):  # one too many; silent; half a request
                with suppress(ConnectionError):
                    assert await opened[place][0].read() == b""
            while not (await opened[2][0].readline()).startswith(b"data: "):
                pass
            while not (await opened[2][0].readline()).startswith(b"event: beat"):  # later than any deadline
                pass
        assert status(await exchanged(made, asked("/view"))) == 200
        for _, writer in opened:
            writer.close()

    run(test)


# --- the door --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, Path]:
    federation = describe(split(mixture(30, 2, 3), (10, 10, 10)), 3)
    folder = tmp_path_factory.mktemp("kits")
    provision.provision(federation, folder / "kits", passphrase=None)
    return federation, folder / "kits"


def calling(kit: Path | None) -> ssl.SSLContext:
    context = ssl._create_unverified_context()  # the page's certificate names the party, not this machine
    if kit is not None:
        context.load_cert_chain(kit / "cert.pem", kit / "key.pem")
    return context


def test_not_on_loopback_it_wants_tls_and_a_certificate_or_the_token(
    made: tuple[Federation, Path], tmp_path: Path
) -> None:
    _, folder = made
    door = doors.of("0.0.0.0:0", kits.load(folder / "client-1"), tmp_path)
    token = (tmp_path / doors.TOKEN_FILE).read_text().strip()
    assert (tmp_path / doors.TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    assert token not in repr(door)

    async def test(opened: Page) -> None:
        async def code(kit: str | None, *headers: str, path: str = "/view") -> int:
            return status(await exchanged(opened, asked(path, *headers), calling(folder / kit if kit else None)))

        assert await code(None) == 401
        assert await code("client-2") == 401  # a site's page shows what its rows are like
        assert await code("server") == 401
        assert await code("client-1") == 200
        assert await code(None, "Authorization: Bearer " + token[:-1]) == 401
        assert await code(None, "Authorization: Bearer \udcff") == 401
        assert await code(None, f"Cookie: {doors.COOKIE}=\udcff") == 401
        assert await code(None, "Authorization: Bearer " + token) == 200
        assert await code(None, f"Cookie: {doors.COOKIE}={token}") == 200
        shown = await exchanged(opened, asked(f"/?token={token}"), calling(None))
        assert status(shown) == 303
        assert b"HttpOnly" in shown
        assert b"SameSite=Strict" in shown
        for place in ("//evil.example/", "/\\evil.example/", "/evil.example/%0d%0aX:y"):  # neither a host nor a header
            sent = await exchanged(opened, asked(f"{place}?token={token}"), calling(None))
            assert status(sent) in (303, 400)
            assert b"\nX:" not in sent
            assert status(sent) == 400 or re.search(rb"\r\nLocation: /(%5C)?evil\.example/", sent)
        assert (await exchanged(opened, asked("/")))[:15] in (b"", b"HTTP/1.1 400 Ba")  # no TLS

    run(test, door)
    assert doors.of("0.0.0.0:0", kits.load(folder / "client-1"), tmp_path).token == token  # after a restart too


def test_the_servers_page_is_for_every_party(made: tuple[Federation, Path], tmp_path: Path) -> None:
    _, folder = made

    async def test(opened: Page) -> None:
        for kit in ("server", "client-2"):
            assert status(await exchanged(opened, asked("/view"), calling(folder / kit))) == 200

    run(test, doors.of("0.0.0.0:0", kits.load(folder / "server"), tmp_path))


@pytest.mark.parametrize(
    "text", ["8080", "127.0.0.1", "127.0.0.1:x", "hub.example:80", "127.0.0.1:70000", ":80", "127.0.0.1:²"]
)
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="--web needs"):
        doors.parse(text)


def test_without_the_extra_it_says_which(
    made: tuple[Federation, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "secfc.web.page")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    loaded = kits.load(made[1] / "server")
    assert opening.prepared(None, loaded, tmp_path) is None
    with pytest.raises(ConfigError, match=re.escape("pip install 'secfc-kmeans[web]'")):
        opening.prepared("127.0.0.1:0", loaded, tmp_path)


# --- metrics ---------------------------------------------------------------------------------------------------------------


def test_the_dashboard_draws_what_is_exported_and_all_of_it() -> None:
    server = job()
    server.finish()
    text = metrics.Exporter(lambda: replace(view(server.seen), stays=True)).render()[0].decode()
    names = {line.split(" ")[0].split("{")[0] for line in text.splitlines() if line and line[0] != "#"}
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "secfc.json").read_text())
    drawn = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:secfc|process)_\w+", target["expr"])
    }
    limits = {"secfc_given_away_limit"}  # a site's, if its policy has any
    assert drawn - names - limits == set()
    family = re.compile(r"_(bucket|count|sum|created)$")
    ours = {family.sub("", name) for name in names if name.startswith("secfc_")}
    assert ours == {family.sub("", name) for name in drawn if name.startswith("secfc_")} - limits


def test_metrics_say_what_the_job_says() -> None:
    server = job()
    exporter = metrics.Exporter(lambda: view(server.seen))
    logging.getLogger("secfc.net").warning("refused")
    server.finish()
    text = exporter.render()[0].decode()
    requests = len(server.seen.records)
    assert 'secfc_phase{phase="finished"} 1.0' in text
    assert f"secfc_requests_total {float(requests)}" in text
    assert f"secfc_request_seconds_count {float(requests)}" in text
    assert "secfc_refusals_total 1.0" in text


def test_a_long_job_is_counted_whole_and_shown_by_its_end() -> None:
    """A counter that falls looks like a restart."""
    server = job()
    server.finish()
    (first, *_) = server.seen.records
    long = replace(server.seen, records=tuple(replace(first, number=n + 1) for n in range(MOST_REQUESTS + 100)))
    text = metrics.Exporter(lambda: view(long)).render()[0].decode()
    for name in ("secfc_requests_total", "secfc_attempts_total", "secfc_request_seconds_count"):
        assert f"{name} {float(MOST_REQUESTS + 100)}" in text
    shown = json.loads(view(long).to_json())["requests"]
    assert [shown[0]["number"], shown[-1]["number"]] == [101, MOST_REQUESTS + 100]


def test_drawing_a_view_costs_less_than_a_fiftieth_of_the_time_between_two() -> None:
    """CPU time, of a job with a long history: with at most two views per second, a page then costs less than 2 % of a core,
    however many look."""
    server = job()
    server.finish()
    (first, *_) = server.seen.records
    long = replace(server.seen, records=tuple(replace(first, number=n + 1) for n in range(2 * MOST_REQUESTS)))
    took = []
    for _ in range(10):
        began = time.process_time()
        view(long).to_json()
        took.append(time.process_time() - began)
    assert min(took) < 0.02 * PACE_SECONDS


# --- reports ---------------------------------------------------------------------------------------------------------------


def table(rows: int = 40) -> Table:
    values = mixture(rows, 2, 3)
    return Table(Path("rows.csv"), values, ("<b>age</b>", "bmi"), None, pa.table({"x": values[:, 0]}), np.arange(rows))


def test_a_site_without_rows_gets_a_report(made: tuple[Federation, Path]) -> None:
    text = report.report(made[0], "client-1", bytes(32), table(0), np.zeros(0, np.int32), None)
    assert "took part without rows" in text


def test_a_report_needs_nothing_else_and_takes_no_name_as_markup(made: tuple[Federation, Path]) -> None:
    labels = (np.arange(40) % 3).astype(np.int32)
    text = report.report(made[0], "client-1", bytes(32), table(), labels, None)
    assert "<b>" not in text
    assert "&lt;b&gt;age&lt;/b&gt;" in text
    assert not re.search(r"<script|<link|<img|src=|https?://", text)
    for title in (
        "What was asked",
        "means by cluster",
        "A picture of this site",
        "What the server has learnt",
        "digests",
    ):
        assert title in text


def test_the_servers_result_is_part_of_it_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    server = job()
    server.finish()
    path = tmp_path / result.FILE
    result.write(path, result.describe(server.seen, 1.0))
    document = Document("x")
    jobreport.sections(document, jobreport.load(path))
    assert "Rows per cluster, all sites" in document.html()
    with pytest.raises(ConfigError, match="of another federation"):
        jobreport.load(path, "00")
    whole = json.loads(path.read_text())
    for damaged in ([], {}, whole | {"history": [1]}, whole | {"uploads": "none"}, whole | {"runs": [1]}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(ConfigError, match=re.escape("not a result.json")):
            jobreport.load(path)
