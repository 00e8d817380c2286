"""The server's half of the runs of a job (`several`): one attempt is one exchange per run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from secfc.agreement.plan import Plan
from secfc.errors import Malformed
from secfc.kmeans.lloyd import Answer, Question
from secfc.kmeans.rowsets import MOST_BYTES
from secfc.protocol.messages import RunRequest
from secfc.protocol.parcels import Data
from secfc.protocol.rounds.kinds import Lies, Outgoing, RoundKind, ServerExchange, ServerHalf, Void
from secfc.protocol.rounds.several import Names, session_of
from secfc.protocol.rounds.uploads import UploadSink
from secfc.protocol.transfer import Here, Sink


class _Together:
    """Where uploads that travel together go: one sink after the other."""

    def __init__(self, sinks: Sequence[UploadSink]) -> None:
        self._sinks = sinks

    @property
    def received(self) -> int:
        return sum(sink.received for sink in self._sinks)

    def begin(self, total: int) -> None:
        due = sum(sink.due for sink in self._sinks)
        if total != due:
            raise Malformed(f"uploads of {due} bytes in all are due, not of {total}")

    def write(self, data: Data) -> None:
        for sink in self._sinks:
            part = memoryview(data)[: sink.due - sink.received]
            if part:
                sink.write(part)
                data = memoryview(data)[len(part) :]


class _Told(Sequence[Outgoing | None]):
    """What a client is told about all runs, in the order in which it came up."""

    def __init__(self, names: Names, exchanges: Mapping[int, ServerExchange], client: int) -> None:
        self._names, self._exchanges, self._client = names, exchanges, client
        self._order: list[tuple[int, int]] = []
        self._known = dict.fromkeys(exchanges, 0)

    def look(self) -> _Told:
        for run, exchange in self._exchanges.items():
            now = len(exchange.told(self._client))
            self._order += [(run, place) for place in range(self._known[run], now)]
            self._known[run] = now
        return self

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Outgoing | None: ...
    @overload
    def __getitem__(self, at: slice) -> list[Outgoing | None]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self._one(*where) for where in self._order[at]]
        return self._one(*self._order[at])

    def _one(self, run: int, place: int) -> Outgoing | None:
        one = self._exchanges[run].told(self._client)[place]
        return None if one is None else self._names.named(run, one)


class ServerRounds:
    """The server's half over all requests of a job; `clusters` of every run, by its number."""

    def __init__(
        self, kind: RoundKind, plan: Plan, clusters: Sequence[int], rows: int, session: bytes, before: int
    ) -> None:
        self._names = Names(len(clusters))
        self._halves: dict[int, ServerHalf] = {
            run: kind.server(plan.of_run(k), rows, session_of(session, run), before) for run, k in enumerate(clusters)
        }
        self._last: Exchange | None = None

    def ask(
        self,
        questions: Mapping[int, Question],
        responders: tuple[int, ...],
        liars_left: int,
        attempt: int,
        quickest: Sequence[int],
    ) -> Exchange:
        """Begin an attempt; see `ServerHalf.ask`. Runs that nothing is asked about are over, and what they held is freed."""
        self._halves = {run: self._halves[run] for run in questions}
        if self._last is not None and self._last.half_done:
            # what a run has found in an attempt that counts for nothing, its members have to forget with it
            for client in self.committee:
                self.lost(client)
        asked = (responders, liars_left, attempt, quickest)
        exchanges = {run: half.ask(questions[run], *asked) for run, half in self._halves.items()}
        while sum(len(one.rows) for one in exchanges.values()) > MOST_BYTES:
            longest = max(exchanges, key=lambda run: len(exchanges[run].rows))
            self._halves[longest].whole()
            exchanges[longest] = self._halves[longest].ask(questions[longest], *asked)
        self._last = Exchange(self._names, exchanges)
        return self._last

    def lost(self, client: int) -> bool:
        """See `ServerHalf.lost`."""
        ended = [half.lost(client) for half in self._halves.values()]  # every half hears it
        return any(ended)

    @property
    def committee(self) -> tuple[int, ...]:
        """Clients that it would rather ask again: the same for every run."""
        return next((half.committee for half in self._halves.values()), ())


class Exchange:
    """One attempt about all runs, as the server sees it; see `ServerExchange`."""

    def __init__(self, names: Names, exchanges: Mapping[int, ServerExchange]) -> None:
        self._names, self._exchanges = names, exchanges
        self._answers: dict[int, Answer] = {}
        self._uploaded: set[int] = set()  # whose first uploads are here
        self._told: dict[int, _Told] = {}

    @property
    def half_done(self) -> bool:
        """Whether some runs have their answers and others have not."""
        return 0 < len(self._answers) < len(self._exchanges)

    def sink(self, client: int, name: bytes) -> Sink | None:
        """Where a message of a client goes; None if it is not due."""
        if len(self._exchanges) > 1 and not name:
            return self._first(client)
        run, rest = self._names.run_of(name, self._exchanges) if name else (next(iter(self._exchanges)), name)
        if name and not rest:
            raise Malformed("an upload about one of several runs comes with those about the others")
        if run in self._answers:  # nothing that a member says of it is needed any more; others go on
            return Here()
        return self._exchanges[run].sink(client, rest)

    def _first(self, client: int) -> Sink | None:
        if client in self._uploaded:
            return Here()
        sinks = [exchange.sink(client, b"") for exchange in self._exchanges.values()]
        uploads = [sink for sink in sinks if isinstance(sink, UploadSink)]
        return _Together(uploads) if len(uploads) == len(sinks) else None

    def arrived(self, client: int, name: bytes) -> None:
        """A message is here whole."""
        if name:
            run, rest = self._names.run_of(name, self._exchanges)
            self._exchanges[run].arrived(client, rest)
            return
        self._uploaded.add(client)
        for exchange in self._exchanges.values():
            exchange.arrived(client, name)

    def missing(self) -> list[int]:
        """Whose messages are not here, for whatever run."""
        return sorted({client for exchange in self._exchanges.values() for client in exchange.missing()})

    def told(self, client: int) -> Sequence[Outgoing | None]:
        """All that this client has to be told in this attempt so far, in order; None stands for what it has answered."""
        return self._told.setdefault(client, _Told(self._names, self._exchanges, client)).look()

    def due(self) -> Callable[[], dict[int, Any]] | None:
        """Heavy computing that can begin now; handed out once."""
        due = {run: work for run, exchange in self._exchanges.items() if (work := exchange.due()) is not None}
        return (lambda: {run: work() for run, work in due.items()}) if due else None

    def worked(self, found: Mapping[int, Any]) -> dict[int, Answer] | Lies | Void | None:
        """What it found: answers once every run has one; None if more is to come."""
        for run, result in found.items():
            answer = self._exchanges[run].worked(result)
            if isinstance(answer, Lies | Void):
                return answer
            if answer is not None:
                self._answers[run] = answer
        return self._answers if len(self._answers) == len(self._exchanges) else None

    @property
    def upload_bytes(self) -> int:
        """What all responders send together."""
        return sum(exchange.upload_bytes for exchange in self._exchanges.values())

    @property
    def columns(self) -> int:
        """How many columns are asked for, of all rows or of some."""
        return sum(map(len, self.columns_of.values()))

    @property
    def columns_of(self) -> dict[int, tuple[int, ...]]:
        """They themselves, by run."""
        return {run: exchange.columns for run, exchange in self._exchanges.items()}

    @property
    def pairs(self) -> int:
        """How many distances of a row to a cluster are asked for."""
        return sum(exchange.pairs for exchange in self._exchanges.values())

    def requests(self, digests: Mapping[int, bytes]) -> list[RunRequest]:
        """What everybody is told that is asked, by run; `digests` of the assignments."""
        return [
            RunRequest(run, exchange.columns, digests[run], exchange.detail, exchange.rows)
            for run, exchange in self._exchanges.items()
        ]
