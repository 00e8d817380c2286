"""The page of a node that stays: the job that runs or ran last, those that wait for a person here, and all it knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from secfc.agreement.federation import SERVER
from secfc.agreement.policy import Policy
from secfc.errors import OWN_FILES, ConfigError
from secfc.pki.kit import Kit
from secfc.protocol.client.participant import Participant
from secfc.protocol.jobs.node import Node
from secfc.protocol.jobs.record import Record, State, Verdict
from secfc.web import jobviews
from secfc.web import view as views
from secfc.web.view import GivenView, JobView, PartyView, View
from secfc_client import budget, describing
from secfc_client.budget import Entry
from secfc_client.data import Table
from secfc_client.offering import Offering
from secfc_client.view import SiteView

_NOTE = (
    "What this site’s datasets have given away, over all jobs: directions to the server, the rest to every party of a job."
    " policy.toml sets limits; secfc budget shows the same."
)
_DAMAGED = (
    "The file that counts what was given away is damaged: no job can run here before a person has looked after it."
)
Described = Callable[[Record, Mapping[str, Entry]], dict[str, Any]]


class NodeView:
    """Draws views. `described`: a job as somebody sees it who has to decide about it."""

    def __init__(self, kit: Kit, node: Node, described: Described, offering: Offering, state: Path, out: Path) -> None:
        self._kit, self._node, self._described = kit, node, described
        self._offering, self._state = offering, state
        self._paths = _naming((kit.path, state, out, *(one.path for one in offering.datasets)))
        self.linked = False  # whether the server tells us what it has
        self._running: Callable[[], View] | None = None
        self._last = views.idle("client", kit.party_name, kit.federation)
        self._drawn: dict[bytes, tuple[Record, Entry | None, JobView]] = {}

    def begins(self, table: Table, participant: Participant) -> None:
        """We take part in a job."""
        site = SiteView(table)
        self._running = lambda: site.of_machine(participant)

    def ends(self) -> None:
        """It is over: how it ended is still shown, but its rows are let go."""
        if self._running is not None:
            self._last, self._running = self._running(), None

    def view(self) -> View:
        """What this site's page shows."""
        base = self._last if self._running is None else self._running()
        try:
            entries, note = budget.read(self._state), _NOTE
        except ConfigError:
            entries, note = {}, _DAMAGED
        return replace(
            base,
            stays=True,
            over=False,
            decides=True,
            parties=self._own() if self._running is None else base.parties,
            jobs=self._jobs(entries),
            given=tuple(self._given(entries)) if note is _NOTE else (),
            given_note=note,
        )

    def _own(self) -> tuple[PartyView, PartyView]:
        server = PartyView(SERVER, "connected" if self.linked else "lost: no connection", self.linked)
        return server, PartyView(self._kit.party_name, "this site", True)

    def _given(self, entries: Mapping[str, Entry]) -> list[GivenView]:
        names = [one.name for one in self._offering.datasets]
        counted = [(f"{name}: " if len(names) > 1 else "", entries.get(budget.dataset_key(name))) for name in names]
        return [one for prefix, entry in counted for one in _of_dataset(prefix, entry, self._offering.policy)]

    def _jobs(self, entries: Mapping[str, Entry]) -> tuple[JobView, ...]:
        self._drawn = {digest: self._job(digest, one, entries) for digest, one in self._node.records.items()}
        ordered = sorted(self._drawn.values(), key=lambda drawn: -drawn[0].number)
        return tuple(shown for *_, shown in ordered)

    def _job(self, digest: bytes, one: Record, entries: Mapping[str, Entry]) -> tuple[Record, Entry | None, JobView]:
        """Drawn again only if something is new: the job, or what its dataset has given away."""
        given = entries.get(budget.dataset_key(one.job.wanted.dataset))
        known = self._drawn.get(digest)
        if known is not None and known[0] is one and known[1] == given:
            return known
        return one, given, self._shown(one, entries)

    def _shown(self, one: Record, entries: Mapping[str, Entry]) -> JobView:
        if one.state is State.SUBMITTED and self._node.decision(one).verdict is Verdict.PENDING:
            question = tuple(describing.facts(self._described(one, entries)))
            return jobviews.of(one, State.WAITING, pending=(self._kit.party_name,), question=question)
        reason = OWN_FILES if self._paths.search(one.reason) else one.reason
        shown = jobviews.of(one, State.QUEUED if one.state is State.SUBMITTED else one.state)
        return replace(shown, reason=reason, began=0)  # a node remembers when it heard of a job, not when that began


def _naming(paths: Iterable[Path]) -> re.Pattern[str]:
    """Finds where a text names one of these files or something in them; a name without a slash may be a word of the text."""
    forms = {str(form) for path in paths for form in (path, path.absolute(), path.resolve())} - {".", "/"}
    whole = [re.escape(form) + (r"(?![\w-])" if "/" in form else "(?=[/:])") for form in sorted(forms)]
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(whole)})")


def _of_dataset(prefix: str, entry: Entry | None, rules: Policy) -> tuple[GivenView, ...]:
    directions, most = (entry.directions, entry.features) if entry is not None else (0, None)
    assignments, inertias = (entry.assignments, entry.inertias) if entry is not None else (0, 0)
    return (
        GivenView(f"{prefix}directions of distances", directions, most, rules.max_directions),
        GivenView(f"{prefix}assignments of all rows", assignments, None, rules.max_assignments),
        GivenView(f"{prefix}inertias opened", inertias),
    )
