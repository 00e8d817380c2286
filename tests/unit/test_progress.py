"""What the server's log says of a job that does not move, and the moving lines of server and client."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from secfc import local
from secfc.outlook import rounds_left
from secfc.protocol.client.snapshot import Snapshot as ClientSnapshot
from secfc.protocol.messages import Phase
from secfc_client.progress import Progress
from secfc_server import result
from secfc_server.progress import REMIND_SECONDS, Monitor, line
from tests.unit.test_coordinator import DEADLINES, Server


def waits(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record)["fields"] for record in caplog.records if record.getMessage() == "waiting"]


def test_whom_a_round_waits_for_is_said_at_once_and_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    monitor = Monitor(server.seen)
    monitor.look(server.seen, server.now)
    server.lose(1)
    server.tick(DEADLINES.lost + 0.1)
    monitor.look(server.seen, server.now)
    assert waits(caplog) == [{"phase": "rounds", "missing": ("c1",), "broken": ()}]
    monitor.look(server.seen, server.now + 1)
    assert len(waits(caplog)) == 1
    monitor.look(server.seen, server.now + REMIND_SECONDS + 1)
    assert len(waits(caplog)) == 2
    assert "waiting for c1" in line(server.seen)


def test_a_frozen_client_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    monitor = Monitor(server.seen)
    monitor.look(server.seen, server.now)
    server.send(0)
    server.send(1)
    server.tick(REMIND_SECONDS + 1)
    monitor.look(server.seen, server.now)
    assert waits(caplog) == [{"phase": "rounds", "missing": ("c2",), "broken": ()}]


def test_nothing_is_waited_for_after_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.finish()
    monitor = Monitor(server.seen)
    monitor.look(server.seen, server.now)
    monitor.look(server.seen, server.now + 10 * REMIND_SECONDS)
    assert waits(caplog) == []


PHASES = ["joining", "agreeing", "sharing", "rounds"]


def test_a_phase_is_told_of_however_short_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    server = Server(3, (3, 4, 5))
    monitor = Monitor(server.seen)
    monitor.look(server.seen, server.now)
    server.begin_rounds()
    monitor.look(server.seen, server.now)
    monitor.look(server.seen, server.now)
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if text in PHASES] == PHASES


def test_a_job_that_ran_out_of_rounds_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    server = Server(3, (3, 4, 5), max_rounds=1)
    server.begin_rounds()
    server.finish()
    outcome = server.seen.outcome
    assert outcome is not None
    moved = replace(server.seen, outcome=replace(outcome, converged=False))  # as where the last round still moved a row
    assert not result.describe(moved, 1.0)["converged"]
    Monitor(server.seen).look(moved, server.now)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == "stopped after max_rounds = 1; not converged"


def test_a_job_that_converged_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    server.finish()
    Monitor(server.seen).look(server.seen, server.now)
    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []


def test_the_moving_line_fits_80_columns_and_says_what_matters_first() -> None:
    server = Server(3, (3, 4, 5))
    server.begin_rounds()
    while not server.seen.over:
        assert len(line(server.seen)) <= 78
        if any(record.step != "seed" for record in server.seen.records):
            assert "rows changed cluster" in line(server.seen)
        server.finish_round()


@pytest.mark.parametrize(
    ("moved", "left"),
    [([], None), ([9, 3], None), ([16, 8, 4], 3), ([100, 10, 1], 1), ([4, 5, 6], None), ([3, 1, 0], None)],
)
def test_how_many_rounds_are_left_is_guessed_from_how_fast_rows_settle(moved: list[int], left: int | None) -> None:
    assert rounds_left(moved) == left


# --- a client's ------------------------------------------------------------------------------------------------------------


def seen(phase: Phase, course: dict[int, int], missing: tuple[str, ...] = (), *, linked: bool = True) -> ClientSnapshot:
    names = [f"hospital-with-a-long-name-{j}" for j in range(9)]
    federation = local.describe(
        9, k=3, starts=1, max_rows=100, features=4, bound=8.0, precision=8, privacy=1, uploads="masked"
    )
    guard = SimpleNamespace(text=lambda: "distance directions given away: 12 of 64; assignments given away: 9")
    site: Any = SimpleNamespace(federation=federation, guard=guard, name=names[0])
    return ClientSnapshot(site, phase, linked, missing, None, (), 0, None, None, 0, course, None)


def test_a_client_s_line_says_round_rows_pace_and_how_long_it_still_takes() -> None:
    shown = Progress()
    seeding = 3
    assert shown.line(seen(Phase.SHARING, {}, ("b", "c")), 0.0) == "sharing: waiting for b, c"
    assert shown.line(seen(Phase.JOINING, {}, linked=False), 0.0).startswith("trying to reach the server at ")
    assert shown.line(seen(Phase.ROUNDS, {1: 0}), 1.0).startswith(f"round 1, seeding 1 of {seeding}")
    course = {1: 0, 2: 0, 3: 0}
    for number, moved in ((4, 16), (5, 8), (6, 4)):
        course[number] = moved
        line = shown.line(seen(Phase.ROUNDS, course), float(2 * number))
        assert len(line) <= 78
    assert line.startswith("round 6, 4 rows changed cluster, 2.2 s each, about 7 s left")
    assert shown.line(seen(Phase.ROUNDS, course, ("d",)), 12.5).endswith(", waiting for d")
    many = tuple(f"hospital-{j}" for j in range(9))
    assert "and 4 more" in shown.line(seen(Phase.ROUNDS, course, many), 13.0)
