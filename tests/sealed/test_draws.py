"""Members hold the server to everybody's coins: the points of a draw, and the seeds that follow from what they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from secfc.errors import Malformed
from secfc.privacy.sealed.messages import Kind as Said
from secfc.protocol import messages
from secfc.protocol.messages import RoundRequest
from secfc.protocol.rounds.sealing import Detail
from tests.sealed.test_failures import Watched, dealt


def seeding(**settings: Any) -> Watched:
    return Watched(**{"seeding": "k-means++", "k": 4, "dropouts": 0} | settings)


def refusals(job: Watched) -> dict[str, BaseException]:
    job.world.until(lambda: not any(process.alive for process in job.world.clients))
    return {process.name: process.error for process in job.world.clients if process.error is not None}


@pytest.mark.parametrize("change", [lambda u: u ^ 1, lambda u: 0])
def test_a_draw_with_other_points_than_the_coins_is_refused(change: Callable[[int], int]) -> None:
    """With points of its choice the server could search D² for whatever it likes."""
    job = seeding()

    def hear(client: str, event: messages.Event) -> messages.Event:
        if isinstance(event, RoundRequest) and event.number == 2 and not event.past:
            detail = Detail.from_bytes(event.detail)
            [asked] = detail.asked
            points = [change(asked["points"][0]), *asked["points"][1:]]
            return replace(event, detail=replace(detail, asked=(asked | {"points": points},)).to_bytes())
        return event

    job.hear = hear
    found = refusals(job)
    assert found
    assert all(isinstance(error, Malformed) for error in found.values())
    assert all("other numbers than everybody's coins" in str(error) for error in found.values())


@pytest.mark.parametrize("place", [0, 1])
def test_a_server_that_tells_members_different_rows_gets_no_further(place: int) -> None:
    """What follows in the chunk is noise, as streams are bound to what was told; and a member that was told of another row
    than the next request begins with refuses it."""
    job = seeding(k=3)
    told: list[str] = []

    def hear(client: str, event: messages.Event) -> messages.Event:
        if dealt(event, Said.TOLD) and job.names(job.detail((1, 1)).committee)[place] == client:
            assert isinstance(event, messages.Piece)
            data = bytearray(event.data)
            told.append(client)
            if len(told) == 2:  # where in its block the second seed's first candidate is
                data[0] = data[0] - 1 if data[0] else 1
            return replace(event, data=bytes(data))
        return event

    job.hear = hear
    found = refusals(job)
    assert told
    assert "other seeds than it told the committee" in str(found[told[0]])
    assert not any(process.done for process in job.world.clients)
