"""A server that stays: it takes jobs, lets nodes decide about them, and runs them one after the other.

    STATE/journal.sqlite        the list of jobs and their results (`Hub`)
    STATE/clusters.json         the sizes of clusters that new rows can be assigned to (`clusters`)
    STATE/audit.jsonl           who asked what, which sites allow it, and what was given away (`auditfile`)
    STATE/jobs/JOB/             the journal of the job that is running
    OUT/JOB/                    result.json, and centers.csv and published.csv where there are any

Whatever of it is killed goes on: a job that is in the list as running is begun again from its own journal.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from secfc import exits, limits
from secfc.agreement.federation import Federation
from secfc.agreement.plan import Plan
from secfc.agreement.submission import ID_DIGITS, Submission
from secfc.auditfile import AuditFile
from secfc.errors import ConfigError, InvalidInput, JobFailed, SecfcError, StorageError
from secfc.logs import say
from secfc.net.driver import Driver
from secfc.net.exchange import CurrentExchange
from secfc.net.jobs import MAX_RESULT
from secfc.pki import kit as kits
from secfc.pki import submitting
from secfc.pki.kit import Kit
from secfc.protocol.jobs.hub import Ended, Hub
from secfc.protocol.jobs.record import Record, State
from secfc.protocol.messages import Phase
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.job import Deadlines
from secfc.web import opening
from secfc.web.door import Door
from secfc_server import clusters
from secfc_server.current import CurrentCoordinator
from secfc_server.hubview import HubView
from secfc_server.jobs import Jobs
from secfc_server.journal import Journal
from secfc_server.listening import listening
from secfc_server.run import ServerRun

log = logging.getLogger("secfc.server")
JOBS = "jobs"


class Standing:
    """The process around the hub."""

    def __init__(
        self, kit: Kit, state: Path, out: Path, deadlines: Deadlines, keep_jobs: int, style: tuple[str, bool]
    ) -> None:
        self._kit, self._state, self._out, self._deadlines, self._style = kit, state, out, deadlines, style
        self._keep_jobs = keep_jobs
        self._journal = Journal(state, kit.federation.digest())
        self._hub = Hub(kit.federation, _verifier(kit, state), kept=self._journal.kept(), keep_jobs=keep_jobs)
        self._audit = AuditFile(state, kit.party_name, kit.federation.digest())
        self._driver = Driver(self._hub, self._journal, log, ledger=self._audit, look=self._look, clock=time.time)
        self._jobs = Jobs(self._hub, self._driver, self._journal, kit.federation)
        self._coordinator, self._exchange = CurrentCoordinator(), CurrentExchange()
        self._page = HubView(kit.federation, self._hub, self._coordinator, lambda: self._jobs.attending)
        self._seen = -1

    def _look(self) -> None:
        if self._hub.changes != self._seen:
            self._seen = self._hub.changes
            self._jobs.notify()

    async def run(self, bind: str, reflect: bool, door: Door | None = None) -> int:
        """Until stopped; the code of the signal. `door`: of the page. Raises what our own machine lacks."""
        stopped = exits.stop_signals()
        services = (("Jobs", self._jobs), ("Coordinator", self._coordinator), ("Exchange", self._exchange))
        async with (
            listening(self._kit, bind, services, stopped, reflect=reflect),
            opening.opened(door, self._page.view),
        ):
            ticking = self._driver.spawn(self._driver.ticking())
            try:
                while not stopped.done():
                    if self._driver.broken is not None:
                        raise self._driver.broken
                    running = self._hub.running
                    if running is None or not await self._driver.settled():
                        await asyncio.wait({stopped}, timeout=0.05)
                    else:
                        await self._run(running, stopped)
            finally:
                ticking.cancel()
        self._driver.end()
        return stopped.result()

    async def _run(self, one: Record, stopped: asyncio.Future[int]) -> None:
        """One job, from where it stands; the hub hears how it ended, unless we are stopped."""
        folder, out = self._state / JOBS / one.job.id, self._out / one.job.id
        try:
            with limits.telling(f"{out}: cannot be made", "choose another --out"):
                out.mkdir(mode=0o755, parents=True, exist_ok=True)
            journal = Journal(folder, one.job.within(self._kit.federation).agreed())
            try:
                ended = await self._conducted(one, journal, out, stopped)
            finally:
                journal.close()
        except (ConfigError, StorageError):  # of our own disk: what is kept stays, and a person looks after it
            raise
        except SecfcError as error:
            ended = Ended(one.digest, State.FAILED, str(error))
        if ended is not None:
            await self._driver.take(ended)
            say(log, "the audit file stands", job=one.job.id, head=self._audit.head)
            shutil.rmtree(folder, ignore_errors=True)
            self._tidy()

    async def _conducted(self, one: Record, journal: Journal, out: Path, stopped: asyncio.Future[int]) -> Ended | None:
        federation = one.job.within(self._kit.federation)
        own = replace(self._kit, federation=federation)
        coordinator = Coordinator(
            federation,
            _planned(federation, self._state),
            kits.verifier(own),
            kept=journal.kept(),
            deadlines=self._deadlines,
            now=time.monotonic(),
        )
        remember = partial(clusters.remember, self._state)
        ledger = self._audit.about(job=one.digest.hex())
        run = ServerRun(coordinator, journal, out, self._style, ledger=ledger, linger=0.0, remember=remember)
        await run.begin()
        self._coordinator.now = self._coordinator.last = run
        self._exchange.now = run.exchange
        try:
            if await run.drive(stopped, self._called_off(one)):
                return None
        finally:
            self._coordinator.now = self._exchange.now = None
            run.driver.end()
        result = _packed(run.described() | {"job": one.job.id, "digest": one.digest.hex()})
        if coordinator.phase is Phase.FINISHED:
            return Ended(one.digest, State.FINISHED, "", result)
        return Ended(one.digest, State.FAILED, str(coordinator.failure or JobFailed("it was not finished")), result)

    def _called_off(self, one: Record) -> Callable[[], str]:
        def why() -> str:
            now = self._hub.records[one.digest]
            return "" if now.state is State.RUNNING else f"the job is {now.state.value}: {now.reason}"

        return why

    def _tidy(self) -> None:
        """Folders of jobs that are too old; what is not called like a job is none of ours."""
        known = {one.job.id: one for one in self._hub.records.values()}
        ended = sorted((one for one in known.values() if one.state.over), key=lambda one: one.ended)
        old = {one.job.id for one in ended[: max(len(ended) - self._keep_jobs, 0)]}
        for folder in self._out.iterdir():
            if len(folder.name) == ID_DIGITS and folder.name in old:
                shutil.rmtree(folder, ignore_errors=True)


def _verifier(own: Kit, state: Path) -> Callable[[Submission, float], None]:
    """What a node checks, and whether the job can be computed at all: nobody is asked about one that cannot."""
    authentic = submitting.verifier(own)

    def verify(one: Submission, clock: float) -> None:
        authentic(one, clock)
        _planned(one.within(own.federation), state)

    return verify


def _planned(federation: Federation, state: Path) -> Plan:
    """The plan of one job. Raises JobFailed if there is none."""
    try:
        return clusters.plan_of(federation, state)
    except InvalidInput as error:
        raise JobFailed(f"this job cannot be computed: {error}") from None


def _packed(result: dict[str, object]) -> bytes:
    """As JSON; a history that would not fit into one message is left out, and result.json at the server has it."""
    whole = json.dumps(result).encode()
    return whole if len(whole) <= MAX_RESULT else json.dumps(result | {"history": []}).encode()
