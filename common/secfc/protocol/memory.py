"""The whole protocol in one process, readable as its specification: the real machines of a server and n clients.

What happens is Algorithm 1 of the paper with the choices of docs/protocol.md: every client shares its rows, all shares are
checked to fit together, then round after round R responders answer, and the next assignment goes to everybody. With private
membership (Section 5), the clients first agree on the sorted list of all row IDs, and every client shares all m slots, zeros
where the row is not its own. The machines are those of the networked system; here a queue takes the place of the network, a
dictionary that of the disk, and time passes when nothing else is left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from secfc.agreement.features import SCALES
from secfc.agreement.federation import SERVER
from secfc.agreement.plan import Plan
from secfc.coding import prg
from secfc.coding.field import Words
from secfc.errors import InvalidInput, JobFailed, SecfcError, Unavailable
from secfc.kmeans.distances import CodedClusters, Labels
from secfc.kmeans.lloyd import Clustering, Question
from secfc.kmeans.runs import Runs
from secfc.kmeans.standard import Rows, Unscaled
from secfc.privacy import centers
from secfc.privacy.centers import Centers
from secfc.privacy.identifiers import Ids
from secfc.protocol import memorysites, messages, transfer
from secfc.protocol.client.inputs import Linked, Lost, Sent, Told, Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Secrets
from secfc.protocol.effects import Arrived, Effects, Load, Send, Started, Tick, Worked
from secfc.protocol.memorysites import Positions
from secfc.protocol.parcels import Parcel, Whole
from secfc.protocol.server.asking import RequestRecord
from secfc.protocol.server.attempt import Attempt
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import Followed, Joined, Reported, Unfollowed
from secfc.protocol.server.news import Cursor
from secfc.protocol.watching import Answered, Uploads, Watch

_LONGEST = 1e6  # virtual seconds: nothing in one process takes that long


@dataclass(frozen=True)
class Result:
    """The clustering, of the run that is chosen. `inertia` is in the units of the data; `rounds` counts Lloyd rounds, seeding
    apart; `liars` are the clients whose uploads were wrong."""

    labels: Labels
    sizes: npt.NDArray[np.int64]
    inertia: float
    rounds: int
    converged: bool
    history: list[Answered] = field(repr=False)
    slots: list[Positions] = field(repr=False)  # where each client's rows stand in `labels`; each knows its own only
    liars: tuple[int, ...] = ()
    centers: Centers | None = None  # only if they are opened
    runs: Runs | None = field(default=None, repr=False)  # all of them, as they ended


class Memory:
    """A server and its clients, joined without a network. `seeds` are those of the clients' shares: the same seeds and rows
    are the same shares."""

    runs: Runs | None = None  # once they have begun

    def __init__(
        self,
        plan: Plan,
        rows: Sequence[Rows | Unscaled],
        clustering: Callable[[int], Clustering | Runs],
        *,
        clusters: Sequence[int] | None = None,
        starts: int = 1,
        positions: Sequence[Positions] | None = None,
        ids: Sequence[Ids] | None = None,
        seeds: Sequence[bytes] | None = None,
        columns: Sequence[int] | None = None,
        clip: float | None = None,
    ) -> None:
        scale = "standard" if any(isinstance(part, Unscaled) for part in rows) else SCALES[0]
        job = memorysites.job_of(plan, clusters or [plan.wishes.clusters], starts, scale, clip, columns)
        self.plan, self.federation = plan, memorysites.federation_of(plan, job)
        self.now = 0.0
        self.server = Coordinator(self.federation, plan, lambda _: None)
        self.server.job.own_runs = self._begin
        self._clustering = clustering
        self.clients: dict[str, Participant] = {}
        for j, name in enumerate(self.federation.roster):
            secrets = Secrets.fresh(prg.fresh_key() if seeds is None else seeds[j])
            own = None if ids is None else (lambda _, own=ids[j]: own)
            self.clients[name] = Participant(
                memorysites.site_of(self.federation, plan, name, rows[j], secrets, own, positions)
            )
        self._todo: deque[Callable[[], None]] = deque()
        self._cursors: dict[str, Cursor] = {}
        self.alter: Callable[[str, Send], Send] = lambda _, send: send  # what a sender's message becomes on its way
        self.asked: Callable[[Attempt], None] = lambda _: None  # is shown every attempt
        self.finished: Callable[[Runs, RequestRecord], None] = lambda *_: None  # is shown every finished request
        self._seen: tuple[int, int] = (0, 0)
        self._records = 0

    def run(self) -> None:
        """Until the job is over for everybody. Raises what it failed with."""
        self._carry_out(SERVER, self.server.handle(Started(), self.now))
        for name, client in self.clients.items():
            self._carry_out(name, client.handle(Started(), self.now))
        while not all(client.ended for client in self.clients.values()):
            while self._todo:
                self._todo.popleft()()
            self.now += 0.1
            if self.now > _LONGEST:
                raise JobFailed("the protocol is stuck")
            for name in (SERVER, *self.clients):
                self._give(name, Tick())
            if self.server.failure is not None:
                raise self.server.failure
        for client in self.clients.values():
            if client.ended is not None and client.ended.error is not None:
                raise self.server.failure or client.ended.error

    def _begin(self, rows: int) -> Runs:
        made = self._clustering(rows)
        self.runs = made if isinstance(made, Runs) else Runs([made])
        return self.runs

    # --- the network, the disk and the clock -------------------------------------------------------------------------------

    def _machine(self, name: str) -> Any:
        return self.server if name == SERVER else self.clients[name]

    def _give(self, name: str, given: Any) -> None:
        """Hand an input to a machine, and carry out what it wants done; raises what it refuses."""
        effects = self._machine(name).handle(given, self.now)
        self._carry_out(name, effects)
        if effects.refusal is not None:
            raise effects.refusal

    def _carry_out(self, name: str, effects: Effects) -> None:
        for send in effects.send:
            self._todo.append(partial(self._transmit, name, send))
        for work in effects.work:
            self._todo.append(partial(self._work, name, work))
        if name == SERVER:
            self._todo.append(self._tell)

    def _work(self, name: str, work: Any) -> None:
        try:
            given = Worked(work.name, None if isinstance(work, Load) else work.run())
        except SecfcError as error:
            given = Worked(work.name, error=error)
        self._give(name, given)
        if name == SERVER and self.runs is not None:
            records = self.server.snapshot(self.now).records
            if len(records) > self._records:
                self._records = len(records)
                self.finished(self.runs, records[-1])

    def _transmit(self, sender: str, send: Send) -> None:
        send = self.alter(sender, send)
        if isinstance(send.message, messages.Join):
            self._join(sender, send.message)
            return
        try:
            if isinstance(send.message, Parcel):
                self._deliver(sender, send.to, send.message, send.body or Whole(b""))
            else:
                self._give(SERVER, Reported(sender, self.clients[sender].site.instance, send.message))
        except SecfcError as error:
            self._give(sender, Unsent(send, error))
        else:
            self._give(sender, Sent(send))

    def _deliver(self, sender: str, to: str, parcel: Parcel, body: Any) -> None:
        seconds = body.seconds if isinstance(body, Whole) else 0.0
        for offset, data in transfer.pieces(body):
            self._give(to, Arrived(sender, parcel, offset, body.total, data, seconds))

    def _join(self, name: str, join: messages.Join) -> None:
        try:
            self._give(SERVER, Joined(name, join))
        except SecfcError as error:
            self._give(name, Lost(error))
            return
        self._give(name, Linked())
        self._cursors[name] = Cursor()
        self._give(SERVER, Followed(name, join.instance))

    def _tell(self) -> None:
        """Everybody hears the server's news."""
        for name, cursor in list(self._cursors.items()):
            for event in self.server.news(name, cursor, self.now):
                self._give(name, Told(event))
            if cursor.ended and name in self._cursors:
                del self._cursors[name]
                self._give(SERVER, Unfollowed(name, self.clients[name].site.instance))
                self._give(name, Lost(Unavailable("the server ended the stream")))
        self._look()

    def _look(self) -> None:
        attempt = self.server.attempt
        if attempt is not None and attempt.name != self._seen:
            self._seen = attempt.name
            self.asked(attempt)


def run(
    plan: Plan,
    rows: Sequence[Rows | Unscaled],
    clustering: Callable[[int], Clustering | Runs],
    *,
    clusters: Sequence[int] | None = None,
    starts: int = 1,
    positions: Sequence[Positions] | None = None,
    ids: Sequence[Ids] | None = None,
    choose: Callable[[int], Sequence[int]] | None = None,
    observe: Callable[[Answered], None] | None = None,
    tap: Callable[[Question, Uploads], None] | None = None,
    seeds: Sequence[bytes] | None = None,
    lie: Callable[[int, Question, Words], Words] | None = None,
    reveal_centers: bool = False,
    columns: Sequence[int] | None = None,
    clip: float | None = None,
) -> Result:
    """Cluster the quantised rows of all clients, or rows that they first scale by mean and deviation, to at most `clip`.

    `clustering` makes the server's machine once the number of rows is known: one run, or as many `starts` of each of the
    `clusters` as there are, in that order; the plan is for the largest. `positions[j]` says where client j's rows stand
    in the order of all rows (default: by client, then as given). `choose` says whom to ask first in a request.
    `tap` is shown all that the server receives in an attempt: what it asked for, and every responder's upload, byte for byte.
    `seeds` are those of an earlier run's shares of these rows: another job on the same shares. With `plan.wishes.liars`,
    wrong uploads are found, and the request is asked again without their senders, who stay left out; `lie(client, question,
    upload)` may falsify what a client sends, to try that. `reveal_centers` opens the centres at the end.

    With private membership rows are ordered by their IDs instead: `ids[j]` are those of client j's rows (default: fresh).
    `columns` splits the columns over the clients: the holder of each. Rows are then those whose ID all holders have, and what
    a client brings in columns of others must be zero.
    """
    if (positions if plan.private else ids) is not None:
        raise InvalidInput("rows have positions with public membership and IDs with private membership")
    if ids is not None and [len(part) for part in ids] != [len(part) for part in rows]:
        raise InvalidInput("ids must hold one ID for each row of each client")
    if columns is not None:
        memorysites.check_columns(plan, rows, columns, ids)
    parts, places = memorysites.checked(plan, rows, positions, split=columns is not None)
    placed = None if plan.private else places
    memory = Memory(
        plan,
        parts,
        clustering,
        clusters=clusters,
        starts=starts,
        positions=placed,
        ids=ids,
        seeds=seeds,
        columns=columns,
        clip=clip,
    )
    watch = Watch(memory, choose, observe, tap, lie)
    memory.run()
    outcome = memory.server.snapshot(memory.now).outcome
    if outcome is None or outcome.inertia is None:
        raise InvalidInput("a clustering ends with a Lloyd round")
    slots = [client.own for client in memory.clients.values()]
    return Result(
        outcome.labels,
        np.array(outcome.sizes, dtype=np.int64),
        outcome.inertia,
        outcome.rounds,
        outcome.converged,
        watch.history,
        slots,
        tuple(memory.federation.roster.index(name) for name in memory.server.job.liars),
        _opened_centers(memory, outcome.labels, outcome.clusters) if reveal_centers else None,
        memory.runs,
    )


def _opened_centers(memory: Memory, labels: Labels, k: int) -> Centers:
    """The exact means of the final clusters, from everybody's values (ℓ+t would do; the others are checked)."""
    plan = memory.plan
    sizes = np.bincount(labels, minlength=k).astype(np.int64)
    clusters = centers.large_enough(sizes, 1)
    given = {}
    for client in memory.clients.values():
        coded = CodedClusters(client.coded, k)
        coded.assign(labels)
        given[client.site.index] = centers.values(plan, coded, clusters)
    sums = centers.decode(plan, clusters, sizes, given)
    return Centers(clusters, tuple(sizes[list(clusters)].tolist()), sums, plan.wishes.precision)
