"""A node: a site's client that stays, over any number of jobs.

    STATE/jobs/DIGEST.job       what is remembered of a job (`Node`)
    STATE/jobs/JOB/             secrets and shares of the job that is running; gone when it is over
    STATE/shares/               what may serve the next one (`shelf`), if policy.toml keeps shares
    STATE/clusters-NAME.kept    our share of the clusters that a job has found (`keptclusters`)
    STATE/budget.json           what the rows have given away, over all jobs
    STATE/audit.jsonl           who asked what, who decided, and what was given away (`auditfile`)
    STATE/node.sock             where people decide (`desk`)
    OUT/JOB/                    labels.csv, profile.csv, report.html and result.json of each job

It attends to the server, judges what is offered by its own rules, and runs what it has allowed, one job at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from secfc import exits, limits, textfile
from secfc.agreement.federation import LINK_KEY
from secfc.agreement.submission import ID_DIGITS
from secfc.auditfile import AuditFile
from secfc.errors import (
    ConfigError,
    DataError,
    InvalidInput,
    NoSuchJob,
    Refused,
    SecfcError,
    StorageError,
    Unavailable,
)
from secfc.logs import say
from secfc.net.driver import Driver
from secfc.net.exchange import CurrentExchange
from secfc.net.jobs import Attendance
from secfc.pki import submitting
from secfc.pki.kit import Kit
from secfc.protocol.client.phases.base import Ended as PartEnded
from secfc.protocol.effects import Send
from secfc.protocol.jobs import node as nodes
from secfc.protocol.jobs import record
from secfc.protocol.jobs.node import Approved, Ended, Node, Offered
from secfc.protocol.jobs.record import Record, State
from secfc.web import deciding, opening
from secfc.web.deciding import Deciding
from secfc.web.door import Door
from secfc_client import budget, desk, keptclusters, shelf
from secfc_client.datasets.formats.base import shown
from secfc_client.describing import described, origin
from secfc_client.driver import ClientDriver, listen
from secfc_client.engines.engine import AS_NEEDED, Wishes
from secfc_client.job import Files, SiteJob
from secfc_client.jobfiles import JobFiles
from secfc_client.nodeview import NodeView
from secfc_client.offering import Offering
from secfc_client.preparing import prepared, table_of
from secfc_client.shelf import Shelf
from secfc_client.store import Store

log = logging.getLogger("secfc.client")
JOBS = "jobs"
GRACE_SECONDS = 10.0  # for our part of a job that is over at the server to end by itself
_GONE = "the server ended the job while this site was away; submit it again"
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)


class StandingNode:
    """The process around the node's machine."""

    def __init__(
        self,
        kit: Kit,
        offering: Offering,
        state: Path,
        out: Path,
        keep_jobs: int,
        wait: float,
        door: Door | None = None,
        wishes: Wishes = AS_NEEDED,
    ) -> None:
        self._wishes = wishes
        self._kit, self._offering, self._state, self._out, self._wait = kit, offering, state, out, wait
        files = JobFiles(state / JOBS)
        self._node = Node(
            kit.party_name,
            kit.federation,
            submitting.verifier(kit),
            offering.judge,
            kept=files.kept(),
            pending_hours=offering.allowing.pending_hours,
            keep_jobs=keep_jobs,
        )
        self._audit = AuditFile(state, kit.party_name, kit.federation.digest())
        self._driver = Driver(self._node, files, log, ledger=self._audit, transmit=self._tell, clock=time.time)
        self._attendance = Attendance(kit)
        self._port = CurrentExchange()
        self._shelf = Shelf(state)
        if not offering.policy.keep_shares:
            self._shelf.forget()
        self._attending = False  # whether the server has told us what it has since we started
        self._door, self._deciding = door, None if door is None else Deciding(self._answer, deciding.token(state))
        self._page = NodeView(kit, self._node, self._described, offering, state, out)

    async def run(self, bind: str) -> int:
        """Until stopped; the code of the signal. Raises what our own machine lacks."""
        stopped = exits.stop_signals()
        listener = await listen(self._kit, bind, self._port) if bind else None
        names = [one.name for one in self._offering.datasets]
        say(log, "waiting for jobs", bind=bind or "dialling out only", datasets=names, roster=self._kit.pins.describe())
        self._driver.spawn(self._attend())
        self._driver.spawn(self._driver.ticking())
        try:
            async with (
                desk.opened(self._state, self._answer),
                opening.opened(self._door, self._page.view, self._deciding),
            ):
                while not stopped.done():
                    if self._driver.broken is not None:
                        raise self._driver.broken
                    due = self._node.due
                    if due is not None and await self._driver.settled():
                        await self._run(self._node.records[due], stopped)
                    elif self._attending:
                        await self._clean()
                    await asyncio.wait({stopped}, timeout=0.05)
        finally:
            self._driver.end()
            if listener is not None:
                await listener.stop(grace=1.0)
            await self._attendance.close()
        return stopped.result()

    # --- the server --------------------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        tries, said = 0, ""
        while True:
            try:
                async for offers in self._attendance.offers():
                    tries, said = 0, ""
                    self._page.linked = True
                    await self._driver.take(Offered(offers))
                    self._attending = True
            except SecfcError as error:
                if str(error) != said:
                    said = str(error)
                    say(log, "the server cannot be reached; trying again", level=logging.WARNING, reason=said)
            self._page.linked = False
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _tell(self, send: Send) -> None:
        self._driver.spawn(self._told(send.message))

    async def _told(self, decide: nodes.Decide) -> None:
        with suppress(SecfcError):  # what does not get through is told again with the next offer
            await self._attendance.decide(decide)

    # --- a job -------------------------------------------------------------------------------------------------------------

    async def _run(self, one: Record, stopped: asyncio.Future[int]) -> None:
        """Our part in one job, from where it stands."""
        say(log, "taking part in a job", job=one.job.id, submitter=one.job.submitter, dataset=one.job.wanted.dataset)
        try:
            job = await asyncio.to_thread(self._prepared, one)
        except (Refused, InvalidInput) as error:
            say(log, "this site cannot take part", level=logging.WARNING, job=one.job.id, reason=str(error))
            await self._driver.take(nodes.Refused(one.digest, _public(error, one)))
            return
        ended = await self._taking_part(one, job, stopped)
        if ended is None:
            return
        running = self._node.due == one.digest
        if ended.error is None and not (ended.untold and running):
            await self._over(one, State.FINISHED, "", job)
        elif ended.error is None:  # the server does not know that our labels are written: told again
            await asyncio.wait({stopped}, timeout=1.0)
        elif isinstance(ended.error, NoSuchJob) or (not running and isinstance(ended.error, Unavailable)):
            await self._over(one, *_alone(job.store), job)
        elif isinstance(ended.error, Unavailable | StorageError):
            say(log, "trying again", level=logging.WARNING, job=one.job.id, reason=str(ended.error))
            await asyncio.wait({stopped}, timeout=1.0)
        else:
            state = State.REFUSED if isinstance(ended.error, Refused) else State.FAILED
            await self._over(one, state, str(ended.error), job)

    def _prepared(self, one: Record) -> SiteJob:
        federation, dataset = one.job.within(self._kit.federation), self._offering.dataset(one.job.wanted.dataset)
        if dataset is None:
            raise Refused(f'it has no dataset called "{one.job.wanted.dataset}"')
        rules = self._offering.limits(one.job, self._node.decision(one))
        table = table_of(dataset.path, federation, self._kit.party_name, dataset.id_column)
        ready = prepared(table, dataset.path, federation, self._kit.party_name, self._kit.path / LINK_KEY)
        made, frozen = keptclusters.for_job(federation, self._state, self._kit.party_name)
        if frozen is not None:
            keptclusters.check_features(frozen, table.feature_names)
        if len(table) < rules.least_rows and (
            frozen is None or len(table)
        ):  # who has no new row takes part all the same
            raise Refused(f"policy.toml: least_rows = {rules.least_rows}, and it has fewer")
        out = self._out / one.job.id
        with limits.telling(f"{out}: cannot be made", "choose another --out"):
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = Files(dataset.path, out / "labels.csv", out / "centers.csv", out / "profile.csv", out / "report.html")
        keeps = rules.keep_shares and frozen is None
        job = SiteJob(
            replace(self._kit, federation=federation),
            made,
            replace(rules, keep_shares=keeps),
            ready.table,
            ready.rows,
            ready.ids,
            Store(self._state / JOBS / one.job.id),
            files,
            self._wait,
            write_ids=False,
            publish_ids=False,
            all_k=True,
            clusters=frozen,
            dataset=dataset.name,
            subject=shelf.kind(dataset.name, federation, made) if keeps else b"",
            lasting=self._state,
            origin=origin(one, self._node.decision(one).why),
            wishes=self._wishes,
        )
        self._lend(job)
        return job

    def _lend(self, job: SiteJob) -> None:
        """Shares of an earlier job, if this one may use them."""
        if not job.keeps_shares:
            self._shelf.forget(shelf.kind(job.dataset, job.kit.federation, job.plan))
        elif self._shelf.lend(job.subject, job.store.folder):
            say(log, "shares of an earlier job are used again, where their owners' policies keep them")

    async def _taking_part(self, one: Record, job: SiteJob, stopped: asyncio.Future[int]) -> PartEnded | None:
        """How it ended; None if this process is to end first, or the server runs it no more."""
        while True:
            try:
                participant, disk = job.prepare()
            except ConfigError as error:  # a limit of policy.toml that earlier jobs have reached, or a damaged file
                await self._driver.take(nodes.Refused(one.digest, _public(error, one)))
                return None
            leave: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._page.begins(job.table, participant)
            driver = ClientDriver(job.kit, participant, disk, "", self._port, self._audit.about(job=one.digest.hex()))
            part = asyncio.create_task(driver.run(leave))
            await self._watched(one, part, leave, stopped)
            ended = await part
            self._page.ends()
            if stopped.done() and ended.error is not None:
                return None
            # with written labels, the server has heard that we are done, and its answer did not get through
            if not isinstance(ended.error, NoSuchJob) or job.store.written:
                return ended
            job.store.finish(keep=False)

    async def _watched(
        self, one: Record, part: asyncio.Task[PartEnded], leave: asyncio.Future[int], stopped: asyncio.Future[int]
    ) -> None:
        """Until our part is over. If we are stopped, or the server runs the job no more, it is told to end."""
        gone = None
        while not part.done():
            waits: set[asyncio.Future[Any]] = {part} if stopped.done() else {part, stopped}
            await asyncio.wait(waits, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            now = time.monotonic()
            gone = None if self._node.due == one.digest else gone or now
            if not leave.done() and (stopped.done() or (gone is not None and now - gone > GRACE_SECONDS)):
                leave.set_result(0)

    async def _over(self, one: Record, state: State, reason: str, job: SiteJob | None = None) -> None:
        fields: dict[str, Any] = {"job": one.job.id, "digest": one.digest.hex(), "state": state.value, "reason": reason}
        fields |= {"submitter": one.job.submitter, "dataset": one.job.wanted.dataset, "k": list(one.job.wanted.job.ks)}
        out = self._out / one.job.id
        if job is not None:
            fields |= {"rows": len(job.table), "features": list(job.table.feature_names)}
        if out.is_dir():
            textfile.write(out / "result.json", json.dumps(fields, indent=2) + "\n", "make room there")
        await self._driver.take(Ended(one.digest, state, reason))
        say(log, "the audit file stands", job=one.job.id, head=self._audit.head)
        if job is not None and job.keeps_shares:
            self._shelf.give_back(job.subject, job.store)
        shutil.rmtree(self._state / JOBS / one.job.id, ignore_errors=True)

    async def _clean(self) -> None:
        """What began here and is over at the server ended without us; folders of old jobs go."""
        for one in list(self._node.records.values()):
            if one.state is State.RUNNING and one.digest != self._node.due:
                await self._over(one, *_alone(Store(self._state / JOBS / one.job.id)))
        running = {one.job.id for one in self._node.records.values() if one.state is State.RUNNING}
        for folder in (self._state / JOBS).glob("?" * ID_DIGITS):  # of which we were killed before it was removed
            if folder.is_dir() and folder.name not in running:
                shutil.rmtree(folder, ignore_errors=True)
        for one in self._node.forgettable:
            shutil.rmtree(self._out / one.job.id, ignore_errors=True)

    # --- people ------------------------------------------------------------------------------------------------------------

    async def _answer(self, asked: dict[str, Any]) -> Any:
        """What somebody at the local socket wants."""
        known = self._node.records.values()
        match asked.get("do"):
            case "list":
                chosen = [record.find(known, asked["job"])] if asked.get("job") else list(known)
                entries = await asyncio.to_thread(budget.read, self._state)
                return [self._described(one, entries) for one in chosen]
            case "approve":
                one = record.find(known, asked.get("job", ""))
                await self._driver.take(Approved(one.digest, asked.get("who") or "a person at this site"))
            case "refuse":
                one = record.find(known, asked.get("job", ""))
                await self._driver.take(
                    nodes.Refused(one.digest, asked.get("why") or "a person at this site refused it")
                )
            case _:
                raise InvalidInput("this node does not know what that is; install the same version everywhere")
        return self._described(self._node.records[one.digest], {})

    def _described(self, one: Record, entries: Mapping[str, budget.Entry]) -> dict[str, Any]:
        said = self._node.decision(one)
        return described(one, said.verdict.value, said.why, self._kit.federation, self._offering.policy, entries)


def _alone(store: Store) -> tuple[State, str]:
    """How a job ended that the server has ended without our hearing of it. Labels are written only if it has a result."""
    return (State.FINISHED, "") if store.written else (State.FAILED, _GONE)


def _public(error: SecfcError, one: Record) -> str:
    """What others hear of why we refuse: of our files and rows nothing but columns that the job itself names."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, DataError):
        wanted = one.job.wanted.job
        names = [feature.name for feature in wanted.agreed] or list(wanted.feature_names or ())
        if missing := [name for name in names if f"there is no column {shown(name)}" in str(error)]:
            return f'its dataset "{one.job.wanted.dataset}" has no column {shown(missing[0])}'
    return "its rows or files do not fit the job; its log says why"
