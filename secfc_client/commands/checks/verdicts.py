"""One line of `secfc check`: what was looked at, and what came of it.

Statuses: ok; warn, it may be in order later (a client that is not started yet); fail, the job would not work; skip, it could
not be tried because of another failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from secfc.pki.kit import Finding

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"


@dataclass(frozen=True)
class Verdict:
    """One line of the check; `detail` says what to do, unless it is ok."""

    name: str
    status: str
    detail: str


def plain(finding: Finding) -> Verdict:
    """A finding about the kit or a connection, which is in order or is not."""
    return Verdict(finding.name, OK if finding.ok else FAIL, finding.detail)


def failed(results: list[Verdict]) -> list[Verdict]:
    """Those that would keep the job from working."""
    return [result for result in results if result.status == FAIL]
