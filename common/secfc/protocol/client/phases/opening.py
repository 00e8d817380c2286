"""JOINING and AGREEING: from an introduction to a session that everybody has signed."""

from __future__ import annotations

from secfc.errors import JobFailed, Malformed, WrongSender
from secfc.kmeans.standard import Unscaled
from secfc.privacy import confirming, keys
from secfc.protocol import messages, start
from secfc.protocol.client.phases.base import ClientPhase, Seated
from secfc.protocol.client.phases.scaling import Measuring
from secfc.protocol.client.phases.sharing import begin_sharing
from secfc.protocol.client.phases.union import Union
from secfc.protocol.client.site import Desk, Met, Site
from secfc.protocol.effects import Effects
from secfc.protocol.messages import Phase


class Joining(ClientPhase):
    """The roster arrives: everybody's signed introduction is verified, the session follows from them."""

    phase = Phase.JOINING

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if not isinstance(event, messages.Roster):
            return super().told(event, now, out)
        site = self.desk.site
        check_roster(site, event.members)
        session = messages.session(site.federation.agreed(), event.members)
        if site.secrets.revealed not in (b"", session):
            raise WrongSender(
                "our coin was revealed in another job, so this one's start would not be fair; "
                "begin a new job (secfc-server --new), and start this client once with --new"
            )
        if self.desk.past.of(session).dead:
            raise JobFailed(f"this job was aborted earlier and cannot be resumed: {confirming.DISPUTED}")
        parties = [(member.name, member.x25519) for member in event.members]
        pairs = keys.pair_keys(site.secrets.x25519, session, parties, site.index)
        return Agreeing(self.desk, now, Met(event.members, session, pairs))


def check_roster(site: Site, members: tuple[messages.Introduction, ...]) -> None:
    """Raise unless these are all clients of the federation, each as it introduced itself."""
    job = site.federation.job
    if tuple(member.name for member in members) != site.federation.roster:
        raise WrongSender("the roster of the server is not that of federation.toml")
    mine, secrets = members[site.index], site.secrets
    commitment = start.commitment(site.name, secrets.coin)
    promises = (site.keeps, site.keeps_clusters, site.features)
    ours = (site.share_set.id, secrets.public, secrets.nonce, commitment, *promises)
    theirs = (mine.share_set, mine.x25519, mine.nonce, mine.commitment, mine.keeps, mine.keeps_clusters, mine.features)
    if theirs != ours:
        raise WrongSender("the server shows an introduction of ours that we did not make")
    for member in members:
        site.verify(member)
    if len({member.x25519 for member in members}) != len(members):
        raise WrongSender("two clients show the same X25519 key")
    if others := [member.name for member in members if member.features != site.features]:
        raise Malformed(messages.other_features(site.name, others))
    total = sum(member.rows for member in members)
    least, most = (0, 0) if site.plan.private else (1 if site.plan.frozen else max(job.ks), job.max_rows)
    if not least <= total <= most:
        raise Malformed(f"the roster has {total} rows in all, beyond what the job allows")


def _aligned(desk: Desk, now: float, met: Met) -> ClientPhase:
    """What follows when our rows are ready to be shared."""
    return Union(desk, now, met) if desk.site.plan.private else begin_sharing(desk, now, met, None)


class Agreeing(Seated):
    """Everybody's signature under the session arrives, and everybody's proof that its key is its own."""

    phase = Phase.AGREEING

    def begin(self, now: float, out: Effects) -> ClientPhase | None:
        self.again(now, out)
        return None

    def again(self, now: float, out: Effects) -> None:
        site, met = self.desk.site, self.met
        mine = messages.Agreement(site.name, met.session, met.members[site.index].certificate)
        proofs = keys.proofs(met.pairs, met.session, site.federation.roster, site.index)
        signature = site.sign(mine.statement(site.federation.agreed()))
        self.desk.report(messages.Agreed(signature, proofs), now)

    def told(self, event: messages.Event, now: float, out: Effects) -> ClientPhase | None:
        if not isinstance(event, messages.Agreements):
            return super().told(event, now, out)
        self._check(event)
        desk, site = self.desk, self.desk.site
        desk.keep_past(desk.past.of(self.session), out)
        if isinstance(site.rows, Unscaled):
            return Measuring(desk, now, self.met, site.rows, _aligned)
        return _aligned(desk, now, self.met)

    def _check(self, event: messages.Agreements) -> None:
        site, met = self.desk.site, self.met
        if not len(event.signatures) == len(event.proofs) == len(met.members):
            raise Malformed("the session must be signed by every client of the roster, with a proof by each")
        for member, signature in zip(met.members, event.signatures, strict=True):
            site.verify(messages.Agreement(member.name, met.session, member.certificate, signature))
        keys.check_proofs(event.proofs, met.pairs, met.session, site.federation.roster, site.index)

    def missing(self) -> tuple[str, ...]:
        return ()
