"""What a client shows on a terminal while it runs: one moving line."""

from __future__ import annotations

from collections.abc import Iterator

from secfc.agreement.policy import seeding_requests
from secfc.outlook import line_of, rounds_left
from secfc.protocol.client.snapshot import Snapshot
from secfc.protocol.messages import Phase
from secfc.wording import few

_KEPT = 5  # requests from whose times the pace is taken


class Progress:
    """Draws the line, and keeps how long the last requests took. Call `line` often."""

    def __init__(self) -> None:
        self._came: list[tuple[int, float]] = []  # the latest requests that moved rows, and when we heard of it

    def line(self, now: Snapshot, clock: float, width: int = 78) -> str:
        """What matters most first, and no more than fits."""
        if not now.linked and now.phase not in (Phase.FINISHED, Phase.FAILED):
            return f"trying to reach the server at {now.site.federation.server.address}"
        waiting = f"waiting for {few(now.missing)}" if now.missing else ""
        if now.phase is not Phase.ROUNDS or not now.course:
            return f"{now.phase.value}: {waiting}" if waiting else now.phase.value
        number = max(now.course)
        if not self._came or self._came[-1][0] != number:
            self._came = [*self._came, (number, clock)][-_KEPT:]
        return line_of(f"round {number}", [*self._parts(now, number), waiting, now.site.guard.text()], waiting, width)

    def _parts(self, now: Snapshot, number: int) -> Iterator[str]:
        job = now.site.federation.job
        seeding = max(seeding_requests(job, k) for k in job.ks)
        pace = self._pace()
        if number <= seeding:
            yield f"seeding {number} of {seeding}"
            return
        yield f"{now.course[number]} rows changed cluster"
        if pace is not None:
            left = rounds_left([now.course[one] for one in sorted(now.course) if one > seeding])
            yield f"{pace:.2g} s each" + (f", about {left * pace:.0f} s left" if left is not None else "")

    def _pace(self) -> float | None:
        """Seconds per request, as far as that can be told."""
        (first, began), (last, ended) = self._came[0], self._came[-1]
        return (ended - began) / (last - first) if last > first else None
