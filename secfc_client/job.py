"""What a client does with its files around a job: secrets and counts before, labels and centres after it.

At the end, in this order, and each noted as soon as it is done: labels, centres, IDs if they are published, "done" at the
server; then the state is cleared. A process that is killed in between leaves the rest to the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secfc import identifiers, kit, textfile
from secfc.centers import Opened
from secfc.errors import ConfigError
from secfc.identifiers import Ids
from secfc.kit import Kit
from secfc.logs import say
from secfc.plan import Plan
from secfc_client import budget, data, keptlabels, naming
from secfc_client.data import Table
from secfc_client.guard import Guard
from secfc_client.keptlabels import Kept
from secfc_client.opening import Opener
from secfc_client.participant import Participant
from secfc_client.policy import TO_NOBODY, Policy
from secfc_client.runner import Runner
from secfc_client.store import Store, Written

log = logging.getLogger("secfc.client")
_CURE = "choose another --centers"


@dataclass(frozen=True)
class Files:
    """Where the rows come from and where results go."""

    rows: Path
    labels: Path
    centers: Path


@dataclass(frozen=True, eq=False)
class Job:
    """One site's part in one job after the other, with the same rows and rules."""

    kit: Kit
    plan: Plan
    rules: Policy
    table: Table
    rows: npt.NDArray[np.int64]  # quantised
    ids: Callable[[bytes], Ids] | None
    store: Store
    files: Files
    bind: str
    wait: float
    write_ids: bool
    publish_ids: bool

    @property
    def keeps_shares(self) -> bool:
        """Whether what we hold may serve the next job; slots are another order of rows in every job."""
        return self.rules.keep_shares and not self.plan.private

    @property
    def opens(self) -> bool:
        """Whether the federation opens the centres to anybody."""
        return self.kit.federation.centers != TO_NOBODY

    def prepare(self, *, new: bool = False) -> tuple[Participant, Runner]:
        """A machine with the secrets kept here, or with fresh ones, and what drives it. `new`: with fresh ones, whatever is
        left of another job."""
        federation, store, name = self.kit.federation, self.store, self.kit.party_name
        if new and store.begun:
            say(log, "what was left of an unfinished job is given up", level=logging.WARNING, state=store.folder)
        secrets = store.secrets(naming.subject(federation.digest(), self.table), self.rows, new=new)
        guard = Guard(federation, self.plan, self.rules, store.given())
        account = self._account()
        guard.charge(account.before(store.holder, guard.ranks))
        verify = kit.verifier(self.kit)
        columns = self.table.feature_names
        participant = Participant(
            federation,
            self.plan,
            name,
            self.rows,
            secrets,
            verify,
            self.ids,
            guard=guard,
            columns=columns,
            past=store.past(),
        )
        return participant, Runner(self.kit, participant, store, self.bind, self.wait, account=account)

    def _account(self) -> budget.Account:
        key = budget.key_of(self.table.feature_names, self.table.features)
        entry = budget.Entry(0, "", len(self.table), len(self.table.feature_names), self.files.rows.name)
        return budget.Account(self.store.folder, key, entry)

    # --- the end -------------------------------------------------------------------------------------------------------

    async def finish(self, participant: Participant, runner: Runner) -> None:
        """The labels first: they do not depend on anybody's consent. Then the centres."""
        ids = participant.ids if self.plan.private else None
        own = Kept(participant.session, keptlabels.table_key(self.table), participant.own_labels(), ids)
        now = Written(participant.session, participant.final_digest())
        # an earlier process may have given its values: the same are given again, but none for another assignment
        other = self.store.written and self.store.written_for() != now
        rules = replace(self.rules, open_centers=TO_NOBODY) if other else self.rules
        runner.publishes = ids if self.publish_ids else None
        await asyncio.to_thread(self._finish_labels, own, now)
        if self.opens and not self.store.centers_done:
            runner.restore_answers()
            await Opener(self.kit, participant, rules).run(self._write_centers)
            await asyncio.to_thread(self.store.note_centers)

    def _finish_labels(self, own: Kept, now: Written) -> None:
        keptlabels.keep(self.store.folder, own)
        self.write(own)
        if self.store.written:
            return
        if self.opens:
            textfile.remove(self.files.centers, _CURE)  # an earlier job's centres are not this one's
        self.store.note_written(now)

    def write(self, kept: Kept) -> None:
        """Write labels, with the rows' IDs if they are wanted and known."""
        wanted = self.write_ids or self.publish_ids
        named = identifiers.texts(kept.ids) if wanted and kept.ids is not None else None
        data.write(self.table, kept.labels, self.files.labels, named)
        say(log, "labels written", file=self.files.labels, column=data.cluster_column(self.table))

    def _write_centers(self, opened: Opened) -> None:
        textfile.write(self.files.centers, opened.table(self.table.feature_names), _CURE)
        say(log, "centres written", file=self.files.centers, clusters=len(opened.clusters))

    # --- after the end ---------------------------------------------------------------------------------------------------

    def only_goodbye_left(self, runner: Runner) -> bool:
        """An earlier process wrote the labels: whether all that is left is to tell the server so. Labels that were lost
        meanwhile are written again."""
        last = keptlabels.of_session(self.store.folder, self.store.written_for().session)
        mine = last is not None and last.table == keptlabels.table_key(self.table)
        if last is not None and mine and not self.files.labels.exists():
            self.write(last)
        runner.publishes = last.ids if last is not None and self.publish_ids else None
        return self.files.labels.exists() and (not self.opens or self.store.centers_done)

    def write_again(self) -> None:
        """Write the labels of the last finished job on these rows once more; needs no server."""
        kept = keptlabels.latest(self.store.folder, keptlabels.table_key(self.table))
        if kept is None:
            raise ConfigError(f"{self.store.folder}: no labels of these rows, in this order, are kept there")
        self.write(kept)

    def hint(self) -> None:
        """Tell who has lost the labels of a job that is over that a new job is not the only way to have them."""
        lost = not self.store.resumed and not self.files.labels.exists()
        if lost and keptlabels.latest(self.store.folder, keptlabels.table_key(self.table)) is not None:
            say(
                log,
                "labels of an earlier job on these rows are kept; secfc-client --again writes them without a new job",
            )
