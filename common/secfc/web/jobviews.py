"""Submitted jobs as pages show them, drawn from what a hub or a node remembers."""

from __future__ import annotations

from collections.abc import Sequence

from secfc.pki.provision import spoken
from secfc.protocol.jobs.record import Record, State
from secfc.web.view import JobView

Question = Sequence[tuple[str, str]]


def of(
    one: Record, state: State, *, silent: Sequence[str] = (), pending: Sequence[str] = (), question: Question = ()
) -> JobView:
    """`silent`: sites that have not said anything yet; `pending`: sites where a person has to decide."""
    return JobView(
        id=one.job.id,
        digest=spoken(one.digest),
        state=state.value,
        reason=one.reason,
        submitter=one.job.submitter,
        dataset=one.job.wanted.dataset,
        k=one.job.wanted.job.ks,
        submitted=one.job.submitted,
        began=one.began,
        ended=one.ended,
        over=state.over,
        waits_for=(*silent, *pending),
        approvals_of=tuple(pending),
        question=tuple(question),
    )
