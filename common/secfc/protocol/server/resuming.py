"""Going on with what an earlier process of the server has kept."""

from __future__ import annotations

from collections.abc import Mapping

from secfc.errors import ConfigError
from secfc.privacy.leakage import Leakage
from secfc.protocol.effects import Effects, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.server import records
from secfc.protocol.server.job import ServerJob
from secfc.protocol.server.phases.base import JobPhase
from secfc.protocol.server.phases.finished import Finished
from secfc.protocol.server.phases.rounds import RoundsPhase

_INCOMPLETE = (
    "the journal lacks something of this job, so that it cannot go on; begin a new one with --new, then start the clients "
    "again"
)


def started(job: ServerJob, joining: JobPhase, kept: Mapping[str, bytes], now: float, out: Effects) -> JobPhase | None:
    """Count the start, and find where an earlier process stood. Without everybody's introduction nobody was told a roster, so
    everybody simply joins again."""
    try:
        return _started(job, joining, kept, now, out)
    except (ValueError, KeyError, TypeError, IndexError):
        raise ConfigError(_INCOMPLETE) from None


def _started(job: ServerJob, joining: JobPhase, kept: Mapping[str, bytes], now: float, out: Effects) -> JobPhase | None:
    job.starts = int(kept.get("starts", b"0")) + 1
    out.put("starts", b"%d" % job.starts)
    if leakage := kept.get("leakage"):
        job.carried = (leakage[:32], Leakage.from_bytes(leakage[32:]))
    known = records.below(kept, "introduction")
    if set(known) != set(job.members):
        return None
    for name, member in job.members.items():
        member.introduction, member.seen = records.introduction_from(known[name]), now
        member.agreed = records.agreed_from(kept[f"agreed/{name}"]) if f"agreed/{name}" in kept else None
        member.coin, member.done = kept.get(f"coin/{name}", b""), f"done/{name}" in kept
        member.committee = records.names_from(kept[f"committee/{name}"])
    job.scale = kept.get("scale", b"")
    job.verified = "verified" in kept
    job.liars = job.suspects(records.names_from(kept.get("liars", b"[]")))
    return _resumed(job, joining, kept, now, out)


def _resumed(job: ServerJob, joining: JobPhase, kept: Mapping[str, bytes], now: float, out: Effects) -> JobPhase | None:
    phase = joining.connected(now, Effects())
    while phase is not None and (following := phase.begin(now, Effects())) is not None:
        phase = following
    for value in records.below(kept, "opened").values():
        if phase is not None and phase.union is not None:
            phase = phase.worked(Worked(("open", phase.union.step), records.shown_from(value)), now, Effects()) or phase
    states = {int(run): records.state_from(value) for run, value in records.below(kept, "state").items()}
    if not states or phase is None or phase.phase is not Phase.SHARING:
        return phase
    rounds = RoundsPhase(job, now, phase, states)
    done = [records.record_from(value) for value in records.below(kept, "record").values()]
    if [record.number for record in done] != list(range(1, max(one.number for one in states.values()))):
        raise ConfigError(_INCOMPLETE)
    if rounds.asking is not None:
        rounds.asking.records = done
    ended = rounds.begin(now, out)
    if isinstance(ended, Finished):
        for kind in ("published", "centers"):
            for name, value in records.below(kept, kind).items():
                ended.restore(name, kind, value)
    return ended or rounds
