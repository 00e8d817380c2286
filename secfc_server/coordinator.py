"""The server's side of a job as a machine: no sockets, threads, files or clocks; time comes in as a number.

Phases and what moves them:

    JOINING   every client of the roster has introduced itself                              → AGREEING
    AGREEING  every client has signed the session that follows from all introductions       → SHARING, or with private
              membership UNION
    UNION     `Alignment` has opened sums over all clients until every row has its slot     → SHARING
    SHARING   every client holds every other's shares, of the very share sets introduced,
              and has revealed its coin                                                     → CHECKING
    CHECKING  `Verifying` has added up every client's part of the check that all shares
              fit together                                                                  → ROUNDS
    ROUNDS    `Rounds` asks, gathers and decodes until the assignment repeats               → FINISHED
    any       a deadline passes, or nothing can go on                                       → FAILED

Invariants: a message from a wrong sender, for another attempt or with a wrong length changes nothing; FINISHED and FAILED
are final; a client whose upload was found wrong is never asked again. What a client needs to know is not queued but derived:
`news` compares what a follower has been told with where the job stands, so a client that reconnects, or was no responder,
catches up by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import nan

import numpy as np

from secfc import assignments, events, identifiers, masks, start, verification, wire
from secfc.centers import Opened, needed
from secfc.coins import Coins
from secfc.config import SERVER, Federation
from secfc.confirming import DISPUTED
from secfc.distances import Labels
from secfc.errors import AlreadyJoined, JobFailed, Malformed, OutOfTurn, SecfcError, Unavailable, WrongSender, told
from secfc.identifiers import Ids
from secfc.leakage import Leakage
from secfc.lloyd import Clustering, Progress, State
from secfc.opening import Gathering
from secfc.plan import Plan
from secfc_server.alignment import Alignment, Opening
from secfc_server.alignment import Result as Aligned
from secfc_server.members import Cursor, Deadlines, Member, Phase
from secfc_server.rounds import Lies, RoundRecord, Rounds, Work
from secfc_server.verifying import Comparison, Verifying

SLOWER = 5.0  # a responder so many times slower than the others is replaced, if others can take its place
ATTEMPTS_A_START = 1 << 16  # attempts of one process of the server are numbered in a range of their own


__all__ = ["Coordinator", "Cursor", "Deadlines", "Member", "Phase"]


class Coordinator:
    """See the module's docstring."""

    def __init__(
        self,
        federation: Federation,
        plan: Plan,
        verify: Callable[[events.Signed], None],
        *,
        deadlines: Deadlines | None = None,
        now: float = 0.0,
    ) -> None:
        """`verify` raises unless a statement is signed by the certificate of the client it names."""
        self.federation, self.plan = federation, plan
        self.deadlines = deadlines or Deadlines()
        self.phase = Phase.JOINING
        self.failure: SecfcError | None = None
        self.members = {name: Member() for name in federation.roster}
        self.phase_seconds: dict[str, float] = {}
        self.alignment: Alignment | None = None  # with private membership, from the roster on
        self.verifying: Verifying | None = None  # while shares are checked
        self.verified = False  # whether they were found to fit together
        self.rounds: Rounds | None = None
        self.liars: tuple[str, ...] = ()  # found and left out: they get assignments and labels, and are asked nothing
        self.centers: Gathering | None = None
        self.changes = 0  # grows with everything a follower may want to know
        self._verify = verify
        self._since = now
        self._digest = federation.digest()
        self._session = b""  # once everybody has joined
        self._attempts_before = 0
        self._kept_leakage: tuple[bytes, Leakage] | None = None
        self._short_since: float | None = None  # when too few clients were ready, for the first time in this round
        self._index = {name: j for j, name in enumerate(federation.roster)}

    # --- joining -----------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows of all clients that have joined; with private membership, once they are counted."""
        if self.plan.private:
            return self.alignment.rows if self.alignment is not None else 0
        return sum(introduction.rows for introduction in self._introductions())

    def join(self, sender: str, digest: bytes, instance: bytes, introduction: events.Introduction, now: float) -> None:
        """A client introduces itself."""
        member = self.member(sender)
        if introduction.name != sender:
            raise WrongSender(f"the certificate says {sender}, the introduction {wire.line(introduction.name)}")
        if digest != self._digest:
            raise OutOfTurn("your federation.toml differs from the server's; get the same file to every party")
        if member.introduction and member.instance != instance and member.connected:
            raise AlreadyJoined(f"another process has joined as {sender} and is alive; stop it first")
        self._verify(introduction)
        if self.failure is not None:  # whoever comes too late keeps trying if the server, started again, will go on
            again = isinstance(self.failure, Unavailable)
            raise (Unavailable if again else JobFailed)(told(self.failure))
        if self.phase is Phase.JOINING:
            self._check_rows(sender, introduction)
            self._check_features(sender, introduction)
        elif member.introduction is None or not _same(member.introduction, introduction, digest):
            if member.done:
                raise OutOfTurn(f"this job is finished and {sender} has its labels; a new one needs secfc-server --new")
            raise OutOfTurn(f"the job has begun with other shares of {sender}; a new job needs secfc-server --new")
        if member.instance != instance:
            member.held = None  # a new process tells by itself what it holds
        member.introduction, member.instance, member.seen, member.stopped = introduction, instance, now, ""
        self._changed()
        if self.phase is Phase.JOINING and all(m.introduction for m in self.members.values()):
            self._begin_agreeing(now)

    def _check_rows(self, sender: str, introduction: events.Introduction) -> None:
        if self.plan.private and introduction.rows:
            raise Malformed("with private membership nobody tells how many rows it brings")
        total = introduction.rows + sum(other.rows for other in self._introductions() if other.name != sender)
        if total > self.federation.max_rows:
            raise Malformed(f"{total} rows in all exceed max_rows = {self.federation.max_rows} of federation.toml")

    def _check_features(self, sender: str, introduction: events.Introduction) -> None:
        """The agreed columns; where the federation file has no names, those of everybody who is here."""
        agreed = self.federation.feature_names
        if agreed is not None and introduction.features != events.feature_digest(agreed):
            raise Malformed(
                f"the feature columns of {sender} are not those of federation.toml: {', '.join(agreed)[:300]}"
            )
        joined = [one for one in self._introductions() if one.name != sender]
        if others := [one.name for one in joined if one.features != introduction.features]:
            raise Malformed(events.other_features(sender, others))

    def _begin_agreeing(self, now: float) -> None:
        self._session = events.session(self._digest, self._introductions())
        if not self.plan.private and self.rows < self.federation.k:
            self.fail(JobFailed(f"{self.rows} rows in all cannot make k = {self.federation.k} clusters"), now)
            return
        self._enter(Phase.AGREEING, now)
        self._share_if_agreed(now)

    def _share_if_agreed(self, now: float) -> None:
        if not all(member.agreed for member in self.members.values()):
            return
        if self.plan.private:
            self.alignment = Alignment(self.plan, self._session)
        self._enter(Phase.UNION if self.plan.private else Phase.SHARING, now)

    def roster(self) -> tuple[events.Introduction, ...]:
        """Everybody's introduction, once all have joined; empty before."""
        return () if self.phase is Phase.JOINING else self._introductions()

    def _introductions(self) -> tuple[events.Introduction, ...]:
        return tuple(m.introduction for m in self.members.values() if m.introduction)

    # --- coming, going and reporting -----------------------------------------------------------------------------------

    def connected(self, sender: str, instance: bytes, now: float) -> None:
        """A client follows the job."""
        member = self._own(sender, instance)
        member.connected, member.seen = True, now
        self._changed()
        self._ask_if_idle(now)

    def disconnected(self, sender: str, instance: bytes, now: float) -> None:
        """A client's stream has ended."""
        member = self.member(sender)
        if member.instance == instance:
            member.connected, member.seen = False, now
            self._changed()

    def report(self, sender: str, instance: bytes, report: events.Report, now: float) -> None:
        """A client tells something besides an upload."""
        member = self._own(sender, instance)
        match report:
            case events.Agreed():
                self.check_agreement(sender, report)
                member.agreed = member.agreed or report
                if self.phase is Phase.AGREEING:
                    self._share_if_agreed(now)
            case events.Held():
                self._held(member, report, now)
            case events.Unreachable():
                self._unreachable(member, report)
            case events.Done():
                if self.phase is not Phase.FINISHED:
                    raise OutOfTurn("the job is not finished")
                member.done = True
            case events.Stopped():
                self._stopped(member, report.reason, now)
            case events.Refused():
                alike = report.reason == DISPUTED  # all say the same, and who was first says nothing
                self.fail(JobFailed(report.reason if alike else f"{sender} refuses: {report.reason}"), now)
        self._changed()

    def check_agreement(self, sender: str, agreed: events.Agreed) -> None:
        """Raise unless the client has signed this very session, with a proof for every other client."""
        introduction = self.member(sender).introduction
        if introduction is None or self.phase is Phase.JOINING:
            raise OutOfTurn("there is no session to agree to before everybody has joined")
        signed = events.Agreement(sender, self._session, introduction.certificate, agreed.signature)
        self._verify(signed)
        if [bool(proof) for proof in agreed.proofs] != [name != sender for name in self.members]:
            raise Malformed("one proof for every other client is due, in roster order")

    def _held(self, member: Member, report: events.Held, now: float) -> None:
        if self.phase in (Phase.JOINING, Phase.AGREEING):
            raise OutOfTurn("nobody can hold everybody's shares before everybody has joined and agreed")
        members = self._introductions()
        share_sets = [one.share_set for one in members]
        if self.alignment is not None:
            share_sets = self.alignment.held(share_sets)
        if report.digest != events.holdings(self._session, share_sets):
            raise Malformed("the share sets you hold are not those of this job; start the client again")
        self.check_coin(member, report.coin)
        member.held, member.coin = report, report.coin
        if self.phase is Phase.SHARING and all(m.held for m in self.members.values()):
            self._begin_checking(now)
        self._ask_if_idle(now)

    def check_coin(self, member: Member, coin: bytes) -> None:
        """Raise unless this is what the client committed to."""
        if member.introduction is None or self.phase is Phase.JOINING:
            raise OutOfTurn("nobody reveals a coin before everybody has joined")
        start.check_coin(member.introduction, coin)

    @property
    def coins(self) -> Coins | None:
        """What decides the start: the federation file's seed, or everybody's coin; None until that is known."""
        return self.tossed if self.federation.seed is None else start.agreed(self.federation.seed)

    @property
    def tossed(self) -> Coins | None:
        """What everybody's coins make together; None until all are revealed."""
        coins = [member.coin for member in self.members.values()]
        if self.phase is Phase.JOINING or not all(coins):
            return None
        return start.tossed(self._session, self._introductions(), coins)

    def _unreachable(self, member: Member, report: events.Unreachable) -> None:
        if report.peer not in self.members:
            raise Malformed("the unreachable client is not in the roster")
        if report.reason:
            member.broken[report.peer] = report.reason
        else:
            member.broken.pop(report.peer, None)

    def _stopped(self, member: Member, reason: str, now: float) -> None:
        """It goes away, on purpose or not; whoever has joined is waited for, because it can come back and go on."""
        member.connected, member.seen, member.stopped = False, now, reason
        if self.phase is Phase.JOINING:
            member.introduction, member.instance = None, b""

    # --- aligning IDs ----------------------------------------------------------------------------------------------------

    def contribute(self, sender: str, context: bytes, chunk: events.Chunk, now: float) -> int:
        """A piece of a client's share of a sum over all clients; returns how many words have arrived."""
        member = self.member(sender)
        received = self._gathers().contribute(self._index[sender], context, chunk)
        member.seen = now
        return received

    def contributed(self, sender: str, context: bytes) -> int:
        """How many words of a client's share of the sum that is due have arrived."""
        self.member(sender)
        return self._gathers().contributed(self._index[sender], context)

    def _gathers(self) -> Alignment | Verifying:
        """What gathers the sum that is due."""
        gathers = {Phase.UNION: self.alignment, Phase.CHECKING: self.verifying}.get(self.phase)
        if gathers is None:
            raise OutOfTurn("no sum is due now")
        return gathers

    def published_piece(self, sender: str, before: bytes, offset: int, total: int, data: bytes) -> bytes:
        """A further piece of the IDs that a client publishes; returns all so far."""
        self.member(sender)
        if offset != len(before) or offset + len(data) > total or total > identifiers.ID_BYTES * self.rows:
            raise Malformed("a piece of published IDs is out of order or too long")
        return before + data

    def publish(self, sender: str, instance: bytes, data: bytes) -> Ids:
        """A client tells, of its own free will, which rows are its own."""
        member = self._own(sender, instance)
        if self.phase is not Phase.FINISHED or self.alignment is None:
            raise OutOfTurn("IDs are published after a job with private membership is finished")
        if len(data) % identifiers.ID_BYTES:
            raise Malformed("published IDs have 16 bytes each")
        ids = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)
        self.alignment.labels(ids, self.labels())
        member.published = ids
        return ids

    def labels(self) -> Labels:
        """The final assignment."""
        if self.phase is not Phase.FINISHED or self.rounds is None:
            raise OutOfTurn("the job is not finished")
        return self.rounds.clustering.labels

    def take_opening(self) -> Opening | None:
        """The opening of a sum to which all clients have contributed; handed out once."""
        return self.alignment.take_work() if self.phase is Phase.UNION and self.alignment is not None else None

    def opened(self, result: Aligned, now: float) -> None:
        """A sum is open and written down: go on."""
        if self.alignment is None:
            raise OutOfTurn("no opening was handed out")
        self.alignment.complete(result)
        if self.phase is Phase.UNION and self.alignment.finished:
            self._enter(Phase.SHARING, now)
        self._changed()

    # --- checking shares -------------------------------------------------------------------------------------------------

    def _begin_checking(self, now: float) -> None:
        if self.verified or not verification.checks(self.plan.code) or (coins := self.tossed) is None:
            self._begin_rounds(now)
            return
        session = events.session(self._digest, self._introductions())
        self.verifying = Verifying(self.plan, self.federation.roster, session, coins)
        self._enter(Phase.CHECKING, now)

    def take_comparison(self) -> Comparison | None:
        """The check of all shares, once every client has given its part; handed out once."""
        return self.verifying.take_work() if self.phase is Phase.CHECKING and self.verifying is not None else None

    def compared(self, now: float) -> None:
        """The shares fit together, and that is written down: go on."""
        self.verified, self.verifying = True, None
        if self.phase is Phase.CHECKING:
            self._begin_rounds(now)

    # --- rounds --------------------------------------------------------------------------------------------------------

    def _begin_rounds(self, now: float) -> None:
        self.rounds = self._rounds(self._clustering())
        self._enter(Phase.ROUNDS, now)
        self._ask_if_idle(now)

    def _rounds(self, clustering: Clustering) -> Rounds:
        before = self._attempts_before
        return Rounds(self.plan, clustering, attempts_before=before, leakage=self._leakage_before())

    def _leakage_before(self) -> Leakage | None:
        """What an earlier request or job made known of the very same shares."""
        share_sets, leakage = self._kept_leakage or (b"", None)
        return leakage if share_sets == events.share_sets(self._introductions()) else None

    def kept_leakage(self, work: Work) -> bytes:
        """What to write down of the meter once work is done, for `resume`; nothing if it has not moved."""
        if self.rounds is not None and work.leakage is self.rounds.leakage:
            return b""
        return events.share_sets(self._introductions()) + work.leakage.to_bytes()

    def _clustering(self) -> Clustering:
        f, coins = self.federation, self.coins
        if coins is None:
            raise OutOfTurn("the start's coins are not all revealed")
        return Clustering(self.rows, f.k, start=f.seeding, coins=coins, max_rounds=f.max_rounds)

    def resume(
        self,
        introductions: Mapping[str, events.Introduction],
        done: Collection[str],
        state: State | None,
        records: Sequence[RoundRecord],
        starts: int,
        now: float,
        *,
        leakage: bytes = b"",
        agreed: Mapping[str, events.Agreed] | None = None,
        coins: Mapping[str, bytes] | None = None,
        opened: Sequence[Aligned] = (),
        published: Mapping[str, Ids] | None = None,
        centers: Mapping[str, events.CentersPart] | None = None,
        liars: Collection[str] = (),
        verified: bool = False,
    ) -> None:
        """Go on with a job that an earlier process of this server began. `starts` counts the processes before; `leakage`
        may also be an earlier job's."""
        self._attempts_before = starts * ATTEMPTS_A_START
        self._kept_leakage = (leakage[:32], Leakage.from_bytes(leakage[32:])) if leakage else None
        if set(introductions) != set(self.members):
            return  # nobody was told a roster, so everybody simply joins again
        for name, member in self.members.items():
            member.introduction, member.done = introductions[name], name in done
            member.published = (published or {}).get(name)
            member.agreed = (agreed or {}).get(name)
            member.coin = (coins or {}).get(name, b"")
            member.seen = now
        self.liars = self.suspects(tuple(liars))
        self.verified = verified or state is not None
        self._begin_agreeing(now)
        for result in opened:
            self.opened(result, now)
        if state is None or self.phase is not Phase.SHARING:
            return
        clustering = self._clustering()
        clustering.resume(state)
        self.rounds = self._rounds(clustering)
        self.rounds.records = list(records)
        self._enter(Phase.FINISHED if self.rounds.done else Phase.ROUNDS, now)
        for name, answer in (centers or {}).items():
            self.open_centers(name, answer)

    def _ask(self, rounds: Rounds, now: float) -> None:
        names = [name for name, member in self.members.items() if member.ready and name not in self.liars]
        names.sort(key=lambda name: self.members[name].pace)
        if not rounds.ask([self._index[name] for name in names], now, len(self.liars)):
            self._too_few(now)
        self._changed()

    def _too_few(self, now: float) -> None:
        """A deadline for the whole round, so that a client that comes and goes cannot make it last for ever."""
        if self._short_since is None:
            self._short_since = now
        short, need = now - self._short_since, self.plan.asked(len(self.liars))[0]
        if short > self.deadlines.round:
            self._give_up(f"after {short:.0f} s fewer than {need} clients are ready; missing: {self._named()}", now)

    def _ask_if_idle(self, now: float) -> None:
        idle = self.rounds is not None and self.rounds.attempt is None and not self.rounds.busy
        if self.phase is Phase.ROUNDS and self.rounds is not None and idle:
            self._ask(self.rounds, now)

    def upload(
        self, sender: str, name: tuple[int, int], chunk: events.Chunk, compute_seconds: float, now: float
    ) -> bool:
        """A piece of a responder's upload for (request, attempt); True when that upload is complete."""
        member = self.member(sender)
        if self.phase is not Phase.ROUNDS or self.rounds is None or self.rounds.attempt is None:
            raise OutOfTurn("no distances are wanted now")
        attempt, before = self.rounds.attempt, self.rounds.attempt.decoder.received(self._index[sender])
        complete = self.rounds.upload(self._index[sender], name, chunk, compute_seconds, now)
        member.uploaded_bytes += 8 * (attempt.decoder.received(self._index[sender]) - before)
        member.seen = now
        if complete:
            taken = now - attempt.started
            member.pace = (member.pace + taken) / 2 if member.pace else taken
        return complete

    def check_session(self, sender: str, session: bytes) -> None:
        """Raise unless an upload comes from a client of the roster and belongs to this job."""
        self.member(sender)
        if self.phase is not Phase.ROUNDS:
            raise OutOfTurn("no distances are wanted now")
        if session != self._session:
            raise OutOfTurn("this upload belongs to another job; follow this one for its rounds")

    def open_centers(self, sender: str, part: events.CentersPart) -> events.CentersPart | None:
        """A piece of a client's answer to opening the centres, if the server may see them; the whole once it is complete."""
        self.member(sender)
        if self.federation.centers != SERVER:
            raise OutOfTurn("the centres of this federation are not for the server")
        if self.phase is not Phase.FINISHED or self.rounds is None:
            raise OutOfTurn("the job is not finished; try again in a moment")
        if self.centers is None:
            labels = self.rounds.clustering.labels
            self.centers = Gathering(self.federation, self.plan, self._session, labels, self._introductions())
        self.centers.take(self._index[sender], part)
        return self.centers.answer(self._index[sender])

    def opened_centers(self) -> Opened:
        """The centres, from what clients have given; raises JobFailed, saying who is lacking, or Malformed."""
        if self.centers is None:
            raise JobFailed(f"centres were not opened: 0 of {needed(self.plan.code)} needed clients consent")
        return self.centers.opened()

    def take_work(self) -> Work | None:
        """The decoding of a round whose uploads are complete; handed out once."""
        return self.rounds.take_work() if self.phase is Phase.ROUNDS and self.rounds is not None else None

    def was_due(self, sender: str, name: tuple[int, int], offset: int) -> bool:
        """Whether a chunk refused as malformed came in its turn, so that no broken connection explains it."""
        attempt, index = self.rounds.attempt if self.rounds else None, self._index.get(sender, -1)
        if attempt is None or attempt.name != name or index not in attempt.responders:
            return False
        return attempt.decoder.received(index) == offset

    def suspects(self, clients: Sequence[str]) -> tuple[str, ...]:
        """The liars there would be with these; unchanged if that is more than planned for, or liars are not looked for."""
        together = tuple(name for name in self.members if name in (*self.liars, *clients))
        return together if len(together) <= self.plan.wishes.liars else self.liars

    def leave_out(self, clients: Sequence[str], now: float) -> None:
        """These have sent what no honest client sends: ask the round again without them, and never ask them again."""
        liars = self.suspects(clients)
        if self.rounds is None or self.phase is not Phase.ROUNDS or liars == self.liars:
            return
        self.liars = liars
        if not self.rounds.busy:  # else the attempt that is being decoded was asked without them
            self._ask(self.rounds, now)
        self._changed()

    def discard(self, lies: Lies, now: float) -> None:
        """The work has found liars and nothing else."""
        if self.rounds is None:
            raise OutOfTurn("no work was handed out")
        self.rounds.discard()
        names = [self.federation.roster[j] for j in lies.clients]
        if not set(names) <= set(self.suspects(names)):  # others were left out while the work was done
            self.fail(JobFailed(f"more clients send wrong distances than liars = {self.plan.wishes.liars}"), now)
        self.leave_out(names, now)

    def record(self, progress: Progress, decode_seconds: float, now: float) -> RoundRecord:
        """What to write down of a round whose work is done, before `complete`."""
        if self.rounds is None:
            raise OutOfTurn("no work was handed out")
        return self.rounds.record(progress, decode_seconds, now)

    def complete(self, record: RoundRecord, now: float) -> None:
        """The work is done and written down: go on."""
        if self.rounds is None:
            raise OutOfTurn("no work was handed out")
        self.rounds.complete(record)
        self._short_since = None
        if self.phase is not Phase.ROUNDS:  # it has failed meanwhile, and stays so
            return
        if self.rounds.done:
            self._enter(Phase.FINISHED, now)
        else:
            self._ask(self.rounds, now)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Deadlines. Call it about once a second."""
        waited = now - self._since
        if self.phase is Phase.JOINING and waited > self.deadlines.join:
            self._give_up(f"after {waited:.0f} s these have not joined: {self._named()}", now)
        elif self.phase is Phase.AGREEING and waited > self.deadlines.join:
            self._give_up(f"after {waited:.0f} s these have not signed the session: {self._named()}", now)
        elif self.phase is Phase.UNION and waited > self.deadlines.share:
            late = f"after {waited:.0f} s these have not given their share of a sum: {self._named()}"
            self._give_up("; ".join([late, *self.broken_links()]), now)
        elif self.phase is Phase.SHARING and waited > self.deadlines.share:
            late = f"after {waited:.0f} s these do not hold all shares or are gone: {self._named()}"
            self._give_up("; ".join([late, *self.broken_links()]), now)
        elif self.phase is Phase.CHECKING and waited > self.deadlines.share:
            self._give_up(f"after {waited:.0f} s these have not given their part of the check: {self._named()}", now)
        elif self.phase is Phase.ROUNDS and self.rounds is not None and not self.rounds.busy:
            self._tick_round(self.rounds, now)

    def _give_up(self, reason: str, now: float) -> None:
        """A deadline has passed. What was done is kept, by the clients too."""
        self.fail(Unavailable(f"{reason}; start the server and the clients again to go on"), now)

    def _named(self) -> str:
        """Whom the job waits for, for people."""
        stopped = {name: self.members[name].stopped for name in self.missing()}
        return ", ".join(f"{name} (stopped: {why})" if why else name for name, why in stopped.items())

    def _tick_round(self, rounds: Rounds, now: float) -> None:
        attempt = rounds.attempt
        if attempt is None:
            self._ask(rounds, now)
            return
        names = self.federation.roster
        late = [names[j] for j in attempt.decoder.missing()]
        gone = [n for n in late if not self.members[n].connected and now - self.members[n].seen > self.deadlines.lost]
        waited = now - attempt.started
        quick = [n for n in names if self.members[n].ready and n not in (*late, *self.liars)]
        replaceable = len(quick) >= self.plan.asked(len(self.liars))[0]
        if waited > self.deadlines.round and not replaceable:
            self._give_up(f"no upload for round {attempt.request.number} from: {', '.join(late)}", now)
        elif gone or (replaceable and waited > self._patience(quick)):
            for name in late:  # whoever kept us waiting is asked last from now on
                self.members[name].pace = max(self.members[name].pace, waited)
            self._ask(rounds, now)

    def _patience(self, quick: Sequence[str]) -> float:
        """How long a round may hang on a client that is connected but silent (frozen, swapping, cut off without a word)."""
        return max(self.deadlines.lost, SLOWER * max(self.members[name].pace for name in quick))

    @property
    def short(self) -> bool:
        """Whether a round cannot be asked, because fewer than R clients are ready."""
        rounds = self.rounds
        return self.phase is Phase.ROUNDS and rounds is not None and rounds.attempt is None and not rounds.busy

    def missing(self) -> tuple[str, ...]:
        """Whom the job waits for now."""
        if self.phase is Phase.ROUNDS and self.rounds is not None and self.rounds.attempt is not None:
            return tuple(self.federation.roster[j] for j in self.rounds.attempt.decoder.missing())
        if self.phase is Phase.UNION and self.alignment is not None:
            return tuple(self.federation.roster[j] for j in self.alignment.missing())
        if self.phase is Phase.CHECKING and self.verifying is not None:
            return tuple(self.federation.roster[j] for j in self.verifying.missing())
        waits_for: dict[Phase, Callable[[Member], bool]] = {
            Phase.JOINING: lambda member: member.introduction is None,
            Phase.AGREEING: lambda member: member.agreed is None,
            Phase.SHARING: lambda member: not member.ready,
            Phase.ROUNDS: lambda member: not member.ready,
        }
        waits_for |= dict.fromkeys((Phase.FINISHED, Phase.FAILED), lambda member: not member.done)
        idle = self.liars if self.phase is Phase.ROUNDS else ()
        return tuple(name for name, m in self.members.items() if waits_for[self.phase](m) and name not in idle)

    def waits_for(self) -> tuple[str, ...]:
        """Clients the job cannot go on without: a round that is asked can do without some, so then nobody is named."""
        return () if self.phase is Phase.ROUNDS and not self.short else self.missing()

    def broken_links(self) -> list[str]:
        """Links that clients reported as broken, for people."""
        return [f"{a} cannot reach {b}: {why}" for a, m in self.members.items() for b, why in m.broken.items()]

    def fail(self, error: SecfcError, now: float) -> None:
        """End the job without a result; once it has ended, nothing changes."""
        if self.phase not in (Phase.FINISHED, Phase.FAILED):
            self.failure = error
            self._enter(Phase.FAILED, now)

    def _enter(self, phase: Phase, now: float) -> None:
        self.phase_seconds[self.phase.value] = now - self._since
        self.phase, self._since = phase, now
        self._changed()

    def _changed(self) -> None:
        self.changes += 1

    def member(self, sender: str) -> Member:
        """The client of that name; raises WrongSender if it is not in the roster."""
        if sender not in self.members:
            raise WrongSender("only clients of the roster take part in a job")
        return self.members[sender]

    def process(self, sender: str, instance: bytes) -> Member:
        """The client of that name; raises OutOfTurn unless this very process of it has joined."""
        return self._own(sender, instance)

    def _own(self, sender: str, instance: bytes) -> Member:
        member = self.member(sender)
        if member.introduction is None or member.instance != instance:
            raise OutOfTurn("join first; another process may have joined under this name since")
        return member

    # --- what a follower should know ------------------------------------------------------------------------------------

    def news(self, sender: str, cursor: Cursor, now: float) -> list[events.Event]:
        """What this client has not been told yet; moves the cursor."""
        out: list[events.Event] = []
        if self.phase not in (Phase.JOINING, Phase.FAILED) and not cursor.roster:
            cursor.roster = True
            out.append(events.Roster(self._introductions()))
        if self.phase not in (Phase.JOINING, Phase.AGREEING, Phase.FAILED) and not cursor.agreements:
            cursor.agreements = True
            out.append(self._agreements(sender))
        if self.phase is not Phase.FAILED and self.alignment is not None:
            out += self.alignment.news(cursor.opened, wire.CHUNK_BYTES)
            cursor.opened = self.alignment.step
        if self.phase in (Phase.CHECKING, Phase.ROUNDS, Phase.FINISHED) and not cursor.reveals:
            cursor.reveals = True
            out.append(events.Reveals(tuple(member.coin for member in self.members.values())))
        if self.phase in (Phase.ROUNDS, Phase.FINISHED) and self.rounds is not None:
            out += self._round_news(self.rounds, sender, cursor, now)
        if self.phase in (Phase.FINISHED, Phase.FAILED) and not cursor.ended:
            cursor.ended = True
            out.append(self._failed(self.failure) if self.failure else self._finished())
        waiting = self.waiting(sender)
        before_rounds = (Phase.JOINING, Phase.AGREEING, Phase.UNION, Phase.SHARING, Phase.CHECKING)
        idle = self.phase in before_rounds or self.short
        if idle and waiting != cursor.waiting:
            cursor.waiting = waiting
            out.append(waiting)
        return out

    def _agreements(self, receiver: str) -> events.Agreements:
        given = [member.agreed for member in self.members.values() if member.agreed is not None]
        at = self._index[receiver]
        return events.Agreements(tuple(one.signature for one in given), tuple(one.proofs[at] for one in given))

    def waiting(self, sender: str) -> events.Waiting:
        """Where the job stands, for one client; who is behind a firewall hears it from here only."""
        unreachable_by = tuple(name for name, member in self.members.items() if sender in member.broken)
        return events.Waiting(self.phase.value, self.missing(), unreachable_by)

    def _round_news(self, rounds: Rounds, sender: str, cursor: Cursor, now: float) -> list[events.Event]:
        out: list[events.Event] = []
        if rounds.version > 1 and rounds.attempt is not None and not rounds.busy and not cursor.began:
            out += self._beginning(rounds)
            cursor.began, cursor.version = True, 1
        if cursor.version != rounds.version and not rounds.busy:
            out += rounds.assignment(cursor.version, wire.CHUNK_BYTES)
            cursor.version = rounds.version
        holds = self.members[sender].held is not None  # a client that has restarted first takes up its shares
        if holds and rounds.attempt is not None and rounds.attempt.name != cursor.asked:
            left = self.deadlines.round - (now - rounds.attempt.started)
            question = rounds.question(self._index[sender], left)
            if question is not None:
                out.append(question)
                cursor.asked, cursor.began = rounds.attempt.name, True
        return out

    def _beginning(self, rounds: Rounds) -> list[events.Event]:
        """The first request once more, for a follower that may have missed it: clients answer none before they have seen that
        the job began where the coins say."""
        first, k = self._clustering().request, self.federation.k
        data, digest = (
            assignments.encode(first.labels, k),
            masks.assignment_digest(first.labels.astype("<i4").tobytes()),
        )
        pieces = range(0, len(data), wire.CHUNK_BYTES)
        shown = [events.Assignment(1, 0, at, len(data), data[at : at + wire.CHUNK_BYTES]) for at in pieces]
        responders = rounds.records[0].responders
        return [*shown, events.RoundRequest(1, 1, responders, first.columns, digest, 0, 1.0, past=True)]

    @staticmethod
    def _failed(failure: SecfcError) -> events.Failed:
        return events.Failed(told(failure), again=isinstance(failure, Unavailable))

    def _finished(self) -> events.Finished:
        if self.rounds is None or not self.rounds.records:
            raise JobFailed("a job cannot finish without a round")
        loss = self.rounds.records[-1].inertia
        clustering = self.rounds.clustering
        inertia = nan if loss is None else loss
        return events.Finished(self.rounds.version, clustering.rounds, clustering.converged, inertia)


def _same(one: events.Introduction, other: events.Introduction, digest: bytes) -> bool:
    return one.statement(digest) == other.statement(digest)
