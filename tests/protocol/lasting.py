"""A job in memory whose server and clients may be killed and started again at any moment.

`Lasting` is `Joined` with what survives a process: the server's journal (the real one, in a folder) and each client's
secrets and received shares (`disk`). It also watches over the job from outside, across all restarts: which key masked what,
which bytes the server took from whom, and what a finished job said.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from secfc import central, events, masks, wire
from secfc.errors import AlreadyJoined, Malformed, OutOfTurn
from secfc.field import Words
from secfc.v1 import secfc_pb2 as pb
from secfc_client.participant import Phase as ClientPhase
from secfc_server.coordinator import Coordinator, Phase
from secfc_server.journal import Journal
from secfc_server.rounds import Work
from tests.protocol.joined import BEFORE_SHARES, Action, Joined, Site, agreement, settle, small_chunks, verifier


class Lasting(Joined):
    """See the module's docstring."""

    def keep_in(self, folder: Path) -> None:
        """Give the server a journal; call it before anything happens."""
        self.folder = folder
        self.journal = Journal(folder, self.federation.digest())
        self.journal.begin()
        self.disk: dict[str, dict[str, Words]] = defaultdict(dict)
        self.resumed: set[str] = set()
        self.starts = {"server": 1}
        self.taken: dict[tuple[int, int], dict[str, bytes]] = defaultdict(lambda: defaultdict(bytes))
        self.sent: dict[tuple[str, int, int], bytes] = {}
        self.ending: object = None
        self.keys = Keys()

    # --- the server ----------------------------------------------------------------------------------------------------

    def join(self, site: Site) -> None:
        try:
            super().join(site)
        except AlreadyJoined:  # only as long as the server has not noticed that the process before is gone
            assert any(name == site.name and instance != site.instance for name, instance, _ in self.unnoticed)
            return
        if roster := self.coordinator.roster():
            self.journal.joined(roster)

    def upload(self, name: str, data: bytes) -> None:
        message = pb.UploadChunk.FromString(data)
        super().upload(name, data)
        self.taken[message.round, message.attempt][name] += message.words

    def check_work(self, work: Work) -> None:
        """What is decoded are the whole uploads of exactly R clients for this very attempt, as they sent them."""
        super().check_work(work)
        assert self.coordinator.rounds is not None
        assert self.coordinator.rounds.attempt is not None
        asked = self.coordinator.rounds.attempt.name
        senders = {self.federation.roster[j] for j in self.coordinator.rounds.attempt.responders}
        assert set(self.taken[asked]) == senders
        assert len(senders) == self.plan.responders
        for name in senders:
            assert self.taken[asked][name] == self.sent[name, *asked]

    def finish_work(self, *, die: bool = False) -> None:
        """Decode, write down, go on; or be killed between the last two."""
        assert self.work is not None
        work, progress = self.work, self.work.run()
        self.work = None
        record = self.coordinator.record(progress, 0.001, self.now)
        self.journal.advanced(work.clustering.state(), record, self.coordinator.kept_leakage(work))
        if die:
            self.restart_server()
        else:
            self.coordinator.complete(record, self.now)

    def tell_agreed(self, site: Site) -> None:
        try:
            agreed = agreement(site.participant)
            self.coordinator.check_agreement(site.name, agreed)
            self.journal.agreed(site.name, agreed)
            self.report(site, agreed)
        except OutOfTurn:  # as below
            assert not site.joined

    def finish_comparison(self) -> None:
        """Compare, write down, go on; now and then be killed between the last two."""
        assert self.comparison is not None
        self.comparison.run()
        self.journal.verified()
        self.comparison = None
        if self.random.random() < 0.3:
            self.restart_server()
        else:
            self.coordinator.compared(self.now)

    def tell_held(self, site: Site) -> None:
        try:
            assert site.held is not None
            self.coordinator.check_coin(self.coordinator.member(site.name), site.held.coin)
            self.journal.revealed(site.name, site.held.coin)
            super().tell_held(site)
        except OutOfTurn:  # a restarted server wants it to join first; it tells again then
            assert not site.joined

    def tell_done(self, site: Site) -> None:
        if not site.joined:  # a restarted server wants it to join first
            self.join(site)
        if site.joined:
            super().tell_done(site)
            self.journal.done(site.name)

    def restart_server(self) -> None:
        """kill -9, and the same command again: only the journal is left, and everybody's connection is lost."""
        finished = self.coordinator.phase is Phase.FINISHED
        self.journal.close()
        self.journal = Journal(self.folder, self.federation.digest())
        kept = self.journal.begin()
        old = self.coordinator
        self.coordinator = Coordinator(
            self.federation,
            self.plan,
            verifier(self.federation),
            deadlines=old.deadlines,
            now=self.now,
        )
        self.coordinator.resume(
            kept.introductions,
            kept.done,
            kept.state,
            kept.records,
            kept.epoch - 1,
            self.now,
            leakage=kept.leakage,
            agreed=kept.agreed,
            coins=kept.coins,
            verified=kept.verified,
        )
        assert not finished or self.coordinator.phase is Phase.FINISHED
        self._seen_phases = [self.coordinator.phase]
        self.work, self.comparison, self.followers, self.unnoticed = None, None, {}, []
        self.starts["server"] += 1
        for site in self.sites.values():
            site.stream, site.sending, site.joined = None, None, False

    # --- the clients ---------------------------------------------------------------------------------------------------

    def restart_client(self, name: str, *, tear: bool = False) -> None:
        """kill -9, and the same command again: secrets and received shares are left, of those one may be torn."""
        old = self.sites[name]
        if not old.started or old.done_told:
            return
        self.drop(old)
        secrets = old.participant._secrets
        if old.held is not None:
            secrets = dataclasses.replace(secrets, revealed=old.participant.session)
        self.sites[name] = self.make_site(name, secrets, old.participant.past)
        self.sites[name].parts = old.parts
        self.resumed.add(name)
        self.starts[name] = self.starts.get(name, 1) + 1
        if tear and self.disk[name]:
            del self.disk[name][self.random.choice(sorted(self.disk[name]))]
        for other in self.sites.values():
            other.deliveries.pop(name, None)

    def read(self, site: Site) -> None:
        assert site.stream is not None
        event = wire.event_from(pb.Event.FromString(site.stream.queue[0]))
        super().read(site)
        if isinstance(event, events.Roster) and site.held is not None:
            self.tell_held(site)  # the server may have restarted since it heard that

    def answer(self, site: Site, request: events.RoundRequest) -> None:
        with self.keys.answering(site.name) as used:
            super().answer(site, request)
        upload = site.answered[request.number, request.attempt]
        self.sent[site.name, request.number, request.attempt] = upload
        self.keys.masked(site.name, used, upload)

    def deliver(self, site: Site, peer: Site) -> None:
        if peer.done_told:
            return
        before = set(peer.participant.missing())
        if peer.name not in site.deliveries:
            settle(peer.participant, site.name)  # Progress does, if an earlier delivery broke after its last word
        try:
            super().deliver(site, peer)
        except Malformed:  # it fetches the same words at the same time
            site.deliveries.pop(peer.name)
            return
        if site.name in before and site.name not in peer.participant.missing():
            self.disk[peer.name][site.name] = site.participant.outgoing(peer.name)

    def restore(self, site: Site) -> None:
        for owner, words in self.disk[site.name].items():
            site.participant.settle(owner, words)

    def fetch(self, site: Site, owner: Site) -> None:
        """Ask an owner for its shares once more; the stream may break after any piece."""
        me, other = site.participant, owner.participant
        other.asked(site.name, me.session, other.stage.id)
        words = other.outgoing(site.name)
        pieces = list(wire.chunks(words, me.progress(owner.name, me.session, other.stage.id)))
        for chunk in pieces[: self.random.randint(1, len(pieces))]:
            me.receive(owner.name, me.session, other.stage.id, chunk)
        whole = me.complete(owner.name)
        if whole is not None:
            self.disk[site.name][owner.name] = whole.copy()
            me.settle(owner.name, whole)

    def _following(self, site: Site) -> list[Action]:
        """A restarted client takes assignments before it holds all shares: the job may be over and the others gone."""
        if site.name in self.resumed and site.joined and site.stream and site.stream.queue:
            first = pb.Event.FromString(site.stream.queue[0]).WhichOneof("kind")
            ready = first != "round" or site.held_taken
            return [lambda: self.read(site)] if ready else []
        return super()._following(site)

    def _enabled(self, site: Site) -> list[Action]:
        out = super()._enabled(site)
        if site.name in self.resumed and site.started and site.participant.phase is ClientPhase.ROUNDS:
            out += self._deliveries(site)  # a restarted client delivers in the background
        return out

    def _sharing(self, site: Site) -> list[Action]:
        if site.name not in self.resumed:
            return super()._sharing(site)
        me, missing = site.participant, site.participant.missing()
        out = self._deliveries(site)
        if set(missing) & set(self.disk[site.name]):
            return [*out, lambda: self.restore(site)]
        if me.name in missing:
            out.append(me.keep_own)
        owners = [self.sites[name] for name in missing if name != me.name]
        out += [
            lambda owner=owner: self.fetch(site, owner)  # type: ignore[misc]
            for owner in owners
            if owner.started and not owner.done_told and owner.participant.phase not in BEFORE_SHARES
        ]
        if not missing:
            out.append(lambda: self.hold(site))
        return out

    def _deliveries(self, site: Site) -> list[Action]:
        return [
            lambda peer=peer: self.deliver(site, peer)  # type: ignore[misc]
            for peer in self.sites.values()
            if peer is not site
            and peer.started
            and peer.name not in site.delivered
            and peer.participant.phase not in BEFORE_SHARES
            and not peer.done_told
        ]

    # --- what holds ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        if self.coordinator.phase is Phase.FINISHED:
            rounds = self.coordinator.rounds
            assert rounds is not None
            now = (rounds.clustering.labels.tolist(), rounds.version, [r.inertia for r in rounds.records])
            assert self.ending in (None, now), "a finished job never changes"
            self.ending = now

    def check_result(self) -> None:
        """The labels are central Lloyd's, at the server and at every client."""
        assert self.coordinator.phase is Phase.FINISHED, str(self.coordinator.failure)
        agreed = self.federation
        pooled = central.run(
            np.concatenate(self.rows), agreed.k, start=agreed.seeding, coins=self.coins, max_rounds=agreed.max_rounds
        )
        assert self.coordinator.rounds is not None
        assert self.coordinator.rounds.clustering.labels.tolist() == pooled.labels.tolist()
        assert [label for part in self.labels() for label in part] == pooled.labels.tolist()
        for site in self.sites.values():
            assert site.participant.finished is not None
            assert site.participant.finished.rounds == pooled.rounds
        self.keys.check()

    def until(self, condition: Callable[[], bool], limit: int = 20_000) -> None:
        with small_chunks():
            super().until(condition, limit)


class Keys:
    """Every mask that was ever used, and what it masked."""

    def __init__(self) -> None:
        self._uploads: dict[tuple[str, bytes], bytes] = {}
        self._contexts: dict[bytes, masks.Context] = {}
        self._users: dict[bytes, set[str]] = defaultdict(set)

    @contextmanager
    def answering(self, name: str) -> Iterator[list[bytes]]:
        """Notes the keys that a client derives meanwhile."""
        used: list[bytes] = []
        derive = masks.stream_key

        def noting(secret: bytes, context: masks.Context) -> bytes:
            key = derive(secret, context)
            assert self._contexts.setdefault(key, context) == context, "one key, one context"
            self._users[key].add(name)
            used.append(key)
            return key

        with mock.patch.object(masks, "stream_key", noting):
            yield used

    def masked(self, name: str, used: list[bytes], upload: bytes) -> None:
        assert len(set(used)) == len(used)
        digest = hashlib.sha256(upload).digest()
        for key in used:
            assert self._uploads.setdefault((name, key), digest) == digest, "a mask was used for two different uploads"

    def check(self) -> None:
        assert all(len(users) <= 2 for users in self._users.values()), "a mask is known to its two ends only"
