"""What all phases of a job share: who takes part, what the server knows of each client, how long it waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.errors import Malformed, OutOfTurn, WrongSender
from secfc.kmeans.assigning import Assigning
from secfc.kmeans.coins import Coins
from secfc.kmeans.runs import Runs
from secfc.privacy.leakage import Leakage
from secfc.protocol import messages, start
from secfc.protocol.rounds import kind_of


@dataclass(frozen=True)
class Deadlines:
    """Seconds the server waits before it gives up or asks others."""

    join: float = 600.0
    share: float = 3600.0
    round: float = 300.0
    lost: float = 5.0  # a responder that has been gone for so long is replaced, if others can take its place
    finish: float = 120.0


@dataclass
class Member:
    """What the server knows of one client."""

    introduction: messages.Introduction | None = None
    instance: bytes = b""
    connected: bool = False
    seen: float = 0.0  # when it last came, went or sent something
    agreed: messages.Agreed | None = None
    scaled: bytes = b""  # the digest of what it has added up
    held: messages.Held | None = None
    coin: bytes = b""
    done: bool = False
    pace: float = 0.0  # smoothed seconds from question to complete answer; the quick are asked first
    uploaded_bytes: int = 0
    told_bytes: int = 0  # of further messages of its attempts
    broken: dict[str, str] = field(default_factory=dict)
    stopped: str = ""  # why its process went away, if it said so
    committee: tuple[str, ...] = ()  # whom its policy accepts there; nobody named: anybody

    @property
    def ready(self) -> bool:
        """Whether it can answer a request."""
        return self.connected and self.held is not None


@dataclass(frozen=True)
class Met:
    """Everybody has introduced itself: the roster of the job, and the session that follows from it."""

    introductions: tuple[messages.Introduction, ...]
    session: bytes

    @property
    def share_sets(self) -> bytes:
        return messages.share_sets(self.introductions)


@dataclass
class ServerJob:
    """See the module's docstring. `verify` raises unless a statement is signed by the certificate of the client it names."""

    federation: Federation
    plan: Plan
    verify: Callable[[messages.Signed], None]
    deadlines: Deadlines
    members: dict[str, Member]
    starts: int = 1  # processes of the server that this job has had
    liars: tuple[str, ...] = ()  # found and left out: they get assignments and labels, and are asked nothing
    scale: bytes = b""  # names the mean and deviation of every feature that all clients have, once they do
    verified: bool = False  # whether all shares were found to fit together
    carried: tuple[bytes, Leakage] | None = None  # what these share sets have told before
    own_runs: Callable[[int], Runs] | None = None  # of so many rows, if not the job's; in one process
    changes: int = 0  # grows with everything a follower may want to know
    steps: int = 0  # grows with what only some are told in an attempt

    def touch(self) -> None:
        self.changes += 1

    @property
    def names(self) -> tuple[str, ...]:
        return self.federation.roster

    def index(self, name: str) -> int:
        return self.names.index(name)

    def member(self, sender: str) -> Member:
        """The client of that name; raises WrongSender if it is not in the roster."""
        if sender not in self.members:
            raise WrongSender("only clients of the roster take part in a job")
        return self.members[sender]

    def process(self, sender: str, instance: bytes) -> Member:
        """The same; raises OutOfTurn unless this very process of it has joined."""
        member = self.member(sender)
        if member.introduction is None or member.instance != instance:
            raise OutOfTurn("join first; another process may have joined under this name since")
        return member

    def introductions(self) -> tuple[messages.Introduction, ...]:
        return tuple(member.introduction for member in self.members.values() if member.introduction)

    def meet(self) -> Met:
        """Pre-condition: everybody has introduced itself."""
        everybody = self.introductions()
        return Met(everybody, messages.session(self.federation.agreed(), everybody))

    def tossed(self, met: Met) -> Coins:
        """What everybody's coins make together. Pre-condition: all are revealed."""
        return start.tossed(met.session, met.introductions, [member.coin for member in self.members.values()])

    def coins(self, tossed: Coins) -> Coins:
        """What decides the start: the job's seed, or everybody's coin."""
        seed = self.federation.job.seed
        return tossed if seed is None else start.agreed(seed)

    def runs(self, rows: int, coins: Coins) -> Runs:
        """All runs of the job, none of which has begun."""
        what = self.federation.job
        if self.own_runs is not None:
            return self.own_runs(rows)
        if self.plan.frozen:
            return Runs([Assigning(rows, self.plan.frozen, coins)])
        return Runs.of(
            rows,
            what.runs,
            coins,
            start=what.seeding,
            max_rounds=what.max_rounds,
            candidates=what.candidates,
            choose=what.choose,
        )

    @property
    def keeps_clusters(self) -> bool:
        """Whether every client has agreed that shares of the final clusters' sums are kept, to assign rows later."""
        return all(member.introduction and member.introduction.keeps_clusters for member in self.members.values())

    @property
    def comparing(self) -> int:
        """How many clients are on a committee; 0 if there is none."""
        return kind_of(self.plan).members(self.plan)

    @property
    def accepted(self) -> tuple[str, ...]:
        """Clients that every site accepts on a committee."""
        lists = [member.committee for member in self.members.values() if member.committee]
        return tuple(name for name in self.names if all(name in one for one in lists))

    def accepting(self, sender: str, committee: Sequence[str]) -> bool:
        """Take note of whom a client accepts; whether that is new. Raises Malformed, and changes nothing, if no committee
        would be left."""
        member = self.members[sender]
        before, member.committee = member.committee, tuple(name for name in self.names if name in committee)
        if set(committee) <= set(self.names) and len(self.accepted) >= self.comparing:
            return member.committee != before
        lists = [f"{name} accepts {', '.join(one.committee)}" for name, one in self.members.items() if one.committee]
        member.committee = before
        if not set(committee) <= set(self.names):
            raise Malformed("a site accepts somebody on the committee who is not a client of the federation")
        raise Malformed(
            f"fewer than {self.comparing} clients are accepted on the committee by every site: {'; '.join(lists)}; agree on "
            "committee in policy.toml"
        )

    def suspects(self, clients: Sequence[str]) -> tuple[str, ...]:
        """The liars there would be with these; unchanged if that is more than planned for, or liars are not looked for."""
        together = tuple(name for name in self.members if name in (*self.liars, *clients))
        return together if len(together) <= self.plan.wishes.liars else self.liars

    def named(self, names: Sequence[str]) -> str:
        """Whom the job waits for, for people."""
        stopped = {name: self.members[name].stopped for name in names}
        return ", ".join(f"{name} (stopped: {why})" if why else name for name, why in stopped.items())

    def broken_links(self) -> list[str]:
        """Links that clients reported as broken, for people."""
        return [f"{a} cannot reach {b}: {why}" for a, m in self.members.items() for b, why in m.broken.items()]
