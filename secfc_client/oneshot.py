"""One job with one dataset, from the first connection to the labels; where the server begins a new job, that one too."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

from secfc import exits, logs
from secfc.agreement import job as jobs
from secfc.auditfile import AuditFile
from secfc.errors import NoSuchJob
from secfc.logs import say
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.phases.base import Ended
from secfc.protocol.messages import Phase
from secfc.web import opening
from secfc.web.door import Door
from secfc_client.driver import ClientDriver
from secfc_client.job import SiteJob
from secfc_client.progress import Progress
from secfc_client.view import SiteView

log = logging.getLogger("secfc.client")


async def run(job: SiteJob, bind: str, new: bool, style: tuple[str, bool], door: Door | None = None) -> int:
    """Until the job is over for this client; raises why it has no result."""
    stopped = exits.stop_signals()
    participant, disk = job.prepare(new=new)
    job.hint()
    site, federation = SiteView(job.table), job.kit.federation
    ledger = AuditFile(job.store.folder, job.kit.party_name, federation.digest()).about(job=federation.agreed().hex())
    while True:
        leaving = participant.phase is Phase.FINISHED  # an earlier process was killed before it could end
        ledger.begins(jobs.dumps(federation.job))
        task = asyncio.create_task(ClientDriver(job.kit, participant, disk, bind, ledger=ledger).run(stopped))
        async with opening.opened(door, partial(site.of_machine, participant)):
            ended = await _watched(task, participant, style)
        if stopped.done() and ended.error is not None:
            logs.last_words("stopped; start the same command again to go on", code=stopped.result(), error=False)
            return stopped.result()
        if not isinstance(ended.error, NoSuchJob):
            break
        if leaving and job.publish_ids:
            say(log, "the server runs another job; the IDs of the last one are not published", level=logging.WARNING)
        say(log, "the server begins a new job", shares="kept" if job.keeps_shares else "fresh")
        job.store.finish(keep=job.keeps_shares)
        participant, disk = job.prepare()
    ledger.over(ended.error)
    if ended.error is not None:
        raise ended.error
    if not ended.untold:  # last of all: until the server knows, the same command must be able to go on
        job.store.finish(keep=job.keeps_shares)
    if leaving and job.files is not None:
        say(log, "the labels are already written; the job is over", file=job.files.labels)
    return 0


async def _watched(task: asyncio.Task[Ended], participant: Participant, style: tuple[str, bool]) -> Ended:
    """Until the task is done, with its progress on a terminal."""
    shown = Progress()
    with logs.terminal(*style) as line:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if line is not None:
                line.update(shown.line(participant.snapshot(), time.monotonic()))
    return task.result()
