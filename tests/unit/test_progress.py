"""What the server's log says of a job that does not move."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from secfc_server import result
from secfc_server.progress import REMIND_SECONDS, Monitor, line, rounds_left
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
