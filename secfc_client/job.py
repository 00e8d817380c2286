"""What a client does with its files around a job: secrets and counts before, labels and centres after it."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np

from secfc import textfile
from secfc.agreement.plan import Plan
from secfc.agreement.policy import TO_NOBODY, Policy
from secfc.coding.blocks import Packed
from secfc.errors import ConfigError
from secfc.kmeans.standard import Rows, Unscaled
from secfc.logs import say
from secfc.pki import kit
from secfc.pki.kit import Kit
from secfc.privacy import identifiers
from secfc.privacy.identifiers import ID_BYTES, Ids
from secfc.privacy.leakage import Tally
from secfc.protocol.client import freezing
from secfc.protocol.client.freezing import KeptClusters
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Site
from secfc.protocol.effects import Drop, Put
from secfc_client import budget, data, keptclusters, keptlabels, naming, profile, report
from secfc_client.data import Table
from secfc_client.engines.engine import AS_NEEDED, Engine, Wishes
from secfc_client.keptlabels import KeptLabels
from secfc_client.store import Store

log = logging.getLogger("secfc.client")
_CURE = "choose another --centers"


@dataclass(frozen=True)
class Files:
    """Where the rows come from and where results go."""

    rows: Path
    labels: Path
    centers: Path
    profile: Path
    report: Path | None = None


@dataclass(frozen=True, eq=False)
class SiteJob:
    """One site's part in one job after the other, with the same rows and rules."""

    kit: Kit
    plan: Plan
    rules: Policy
    table: Table
    rows: Rows | Unscaled  # quantised, or to be scaled once all sites have met
    ids: Callable[[bytes], Ids] | None
    store: Store
    files: Files | None  # None: this client only helps others
    wait: float
    write_ids: bool
    publish_ids: bool
    all_k: bool = False  # write the labels of every k
    clusters: KeptClusters | None = None  # those that rows are only assigned to, if they are an earlier job's
    dataset: str = ""  # of a node, that the rows come from
    subject: bytes = b""  # what secrets and shares are for, if not for this one job: jobs of the same kind
    lasting: Path | None = None  # where counts and clusters are kept that outlive the job, if not in its state folder
    origin: Sequence[tuple[str, str]] = ()  # who asked for a submitted job, for its report
    wishes: Wishes = AS_NEEDED  # where shares are held

    @property
    def keeps_shares(self) -> bool:
        """Whether what we hold may serve the next job; slots are another order of rows in every job, and
        another scale makes other rows."""
        return self.rules.keep_shares and not self.plan.private and not isinstance(self.rows, Unscaled)

    def prepare(self, *, new: bool = False) -> tuple[Participant, SiteDisk]:
        """A machine with the secrets kept here, or with fresh ones, and where it keeps things. `new`: with fresh ones,
        whatever is left of another job."""
        federation, store = self.kit.federation, self.store
        if new and store.begun:
            say(log, "giving up what was left of an unfinished job", level=logging.WARNING, state=store.folder)
        subject = naming.subject(self.subject or federation.agreed(), self.table)
        secrets = store.secrets(subject, self.rows, new=new)
        kept = store.kept()
        guard = Guard(federation, self.plan, self.rules, kept.get("given", b""))
        accounts = self._accounts()
        engine = Engine(self.wishes, store, self._row_bytes)
        spent = [account.before(store.holder, guard.tally) for account in accounts]
        guard.charge(reduce(or_, spent))
        site = Site(
            federation=federation,
            plan=self.plan,
            name=self.kit.party_name,
            rows=self.rows,
            secrets=secrets,
            guard=guard,
            verify=kit.verifier(self.kit),
            sign=self.kit.sign,
            certificate=self.kit.certificate_pem,
            instance=os.urandom(16),
            chance=random.SystemRandom(),
            ids=self.ids,
            columns=() if federation.holders else self.table.feature_names,
            patience=self.wait,
            publishes=self.publish_ids,
            hold=engine.hold,
            frozen=None if self.clusters is None else self.clusters.frozen(self.plan.field),
        )
        leaving = self._only_goodbye_left(kept)
        participant = Participant(site, kept=kept, resumed=store.resumed, leaving=leaving, now=time.monotonic())
        return participant, SiteDisk(self, accounts, engine)

    @property
    def _row_bytes(self) -> int:
        """Of all that a request may want of a row."""
        columns = sum(self.plan.of_run(k).slots for k in self.kit.federation.job.runs)
        return 8 * self.plan.field.lanes * columns // 3

    @property
    def account(self) -> str:
        """Names our rows in the budget."""
        return budget.key_of(self.table.feature_names, self.table.features)

    @property
    def lasts(self) -> Path:
        """Where what outlives the job is kept."""
        return self.lasting or self.store.folder

    def _accounts(self) -> list[budget.Account]:
        """Of our rows, of the dataset that they come from, and if they are assigned to clusters of other rows of ours, of
        those."""
        file = self.files.rows.name if self.files is not None else ""
        entry = budget.Entry(0, "", len(self.table), len(self.table.feature_names), file)
        entries = {self.account: entry}
        if self.dataset:
            entries[budget.dataset_key(self.dataset)] = replace(entry, file=f"dataset {self.dataset}")
        if self.clusters is not None:
            gone = f"clusters {self.clusters.public.name}"  # should a person have removed the entry
            older = replace(entry, rows=0, file=gone)
            entries = {self.clusters.rows: budget.read(self.lasts).get(self.clusters.rows, older)} | entries
        return [budget.Account(self.lasts, key, new) for key, new in entries.items()]

    def _only_goodbye_left(self, kept: dict[str, bytes]) -> tuple[bytes, Ids | None] | None:
        """An earlier process wrote the labels: whether all that is left is to tell the server so, and publish IDs. Labels
        that were lost meanwhile are written again."""
        written = kept.get("written", b"")
        if len(written) != 64:
            return None
        if self.files is None:
            return written[:32], None
        last = keptlabels.of_session(self.store.folder, written[:32])
        if last is not None and last.table == keptlabels.table_key(self.table) and not self.files.labels.exists():
            self.write(last)
        opens = self.kit.federation.job.centers != TO_NOBODY
        if not self.files.labels.exists() or (opens and "centers-done" not in kept):
            return None
        return written[:32], last.ids if last is not None and self.publish_ids else None

    # --- results -----------------------------------------------------------------------------------------------------------

    def write(self, kept: KeptLabels) -> None:
        """Write labels, with the rows' IDs if they are wanted and known."""
        files, wanted = self.files, self.write_ids or self.publish_ids
        if files is None:
            return
        table, kept = kept.taken(self.table)
        named = identifiers.texts(kept.ids) if wanted and kept.ids is not None else None
        data.write(table, kept.labels, files.labels, named, kept.others if self.all_k else {})
        profile.write(files.profile, table, kept.labels)
        column, without = data.cluster_column(table), table.dropped
        say(log, "labels written", file=files.labels, column=column, profile=files.profile, rows_without=without)
        if files.report is not None:
            self._report(files.report, table, kept)

    def _report(self, path: Path, table: Table, kept: KeptLabels) -> None:
        given = budget.read(self.lasts).get(self.account)
        federation, name = self.kit.federation, self.kit.party_name
        text = report.report(federation, name, kept.session, table, kept.labels, given, origin=self.origin)
        report.write(path, text)
        say(log, "report written", file=path)

    def write_again(self) -> None:
        """Write the labels of the last finished job on these rows once more; needs no server."""
        kept = keptlabels.latest(self.store.folder, keptlabels.table_key(self.table))
        if kept is None:
            raise ConfigError(f"{self.store.folder}: no labels of these rows, in this order, are kept there")
        self.write(kept)

    def hint(self) -> None:
        """Tell who has lost the labels of a job that is over that a new job is not the only way to have them."""
        lost = not self.store.resumed and self.files is not None and not self.files.labels.exists()
        if lost and keptlabels.latest(self.store.folder, keptlabels.table_key(self.table)) is not None:
            say(
                log,
                "labels of an earlier job on these rows are kept; secfc-client --again writes them without a new job",
            )


class SiteDisk:
    """Where the machine's values go: the state folder, the budget, and the files that the user asked for."""

    def __init__(self, job: SiteJob, accounts: Sequence[budget.Account], engine: Engine) -> None:
        self._job, self._accounts, self._engine = job, accounts, engine

    def get(self, key: str) -> bytes | Packed | None:
        return self._engine.get(key)

    def put(self, keep: Sequence[Put | Drop]) -> None:
        """In their order: what is noted is done."""
        for one in keep:
            match one:
                case Put("labels", value):
                    self._labels(bytes(value))
                case Put("centers", value) if self._job.files is not None:
                    _write_centers(self._job.files.centers, bytes(value))
                case Put("no-centers") if self._job.files is not None:
                    textfile.remove(self._job.files.centers, _CURE)
                case Put("tally", value):
                    for account in self._accounts:
                        account.spend(Tally.from_bytes(bytes(value)))
                case Put("clusters", value):
                    kept = freezing.with_rows(bytes(value), self._job.account, time.time())
                    keptclusters.keep(self._job.lasts, kept)
                case _:
                    self._job.store.put([one])

    def _labels(self, value: bytes) -> None:
        job, session, rest = self._job, value[:32], value[32:]
        middle = 4 * len(job.rows)
        last = middle + (ID_BYTES * len(job.rows) if job.plan.private else 0)
        labels = np.frombuffer(rest[:middle], "<i4").astype(np.int32)
        ids = np.frombuffer(rest[middle:last], "<u8").astype(np.uint64).reshape(-1, ID_BYTES // 8)
        more = np.frombuffer(rest[last:], "<i4").astype(np.int32).reshape(-1, 1 + len(job.rows))
        others = {int(one[0]): one[1:] for one in more}
        table = keptlabels.table_key(job.table)
        own = KeptLabels(session, table, labels, ids if job.plan.private else None, others)
        keptlabels.keep(job.store.folder, own)
        job.write(own)


def _write_centers(path: Path, text: bytes) -> None:
    textfile.write(path, text.decode(), _CURE)
    say(log, "centres written", file=path, clusters=text.count(b"\n") - 1)
