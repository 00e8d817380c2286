"""Jobs from Python: `secfc.connect(kit)` to a federation that stays, submit, wait, look at what was found.

    federation = secfc.connect("kits/analyst")
    job = federation.submit(dataset="patients", features=["age", "weight"], k=range(2, 7), starts=10, bound=300)
    job.wait()
    job.result.sizes
    secfc.labels(job)           # at a site: its own rows with their cluster

The same calls as `secfc submit`, `jobs`, `wait` and `result`. They work in a notebook too, whose own event loop is running:
each call has a thread and a loop of its own.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from secfc.agreement import job as jobfiles
from secfc.agreement import plan, submission
from secfc.agreement.submission import ID_DIGITS, Wanted
from secfc.commands.jobs import INTERVAL, PATIENCE, lines, status
from secfc.errors import ConfigError, InvalidInput, JobFailed, SecfcError, Unavailable
from secfc.net import inquiry
from secfc.net import jobs as calls
from secfc.net.inquiry import Status
from secfc.net.jobs import Listed
from secfc.pki import kit as kits
from secfc.pki import submitting
from secfc.pki.kit import Kit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

T = TypeVar("T")
FOLDER, LABELS = "jobs", "labels.csv"
MAX_ROWS = 100_000
_STATUS_SECONDS = 5.0


def connect(kit: str | Path) -> Connection:
    """A federation that stays, as the owner of this kit sees it. Nothing is sent yet."""
    own = kits.load(Path(kit))
    if not own.federation.stays:
        raise ConfigError(
            f"{kit}: federation.toml has a [job] table: it is a federation for that one job, to which none is submitted"
        )
    return Connection(own)


def labels(job: Job | str, out: str | Path | None = None) -> pd.DataFrame:
    """At a site: its own rows with their cluster, as the node wrote them. `out`: the folder of secfc-client's --out, if it
    is not KIT/jobs. Nobody else has them."""
    if isinstance(job, Job):
        folder, name = job.federation.folder if out is None else Path(out), job.id
    elif out is None:
        raise InvalidInput("of a job's name alone nobody knows where its labels are; give out, or the job itself")
    else:
        folder, name = Path(out), job[:ID_DIGITS]
    path = folder / name / LABELS
    if not path.exists():
        raise ConfigError(
            f"{path}: no such file; a node writes it when the job has finished there, and keeps it for the last --keep-jobs"
            " jobs; with another --out, give it as out"
        )
    return _needed("pandas").read_csv(path)


class Connection:
    """A federation, and who asks it. Made by `connect`."""

    def __init__(self, own: Kit) -> None:
        self.kit = own

    def __repr__(self) -> str:
        return f"<federation {self.kit.federation.name}, as {self.kit.party_name}>"

    @property
    def folder(self) -> Path:
        """Where the node of this kit writes labels; ConfigError if it is no site's kit."""
        if self.kit.party_name not in self.kit.federation.roster:
            raise ConfigError(
                f"{self.kit.party_name} is no site: labels stay with the owners of the rows; connect with a site's kit, there"
            )
        return self.kit.path / FOLDER

    def submit(
        self,
        *,
        dataset: str,
        features: Sequence[str] | Mapping[str, Mapping[str, Any]],
        k: int | Iterable[int],
        sites: Sequence[str] = (),
        token: str | None = None,
        hours: float = submitting.HOURS,
        max_rows: int = MAX_ROWS,
        **settings: Any,
    ) -> Job:
        """Sign a job and submit it. Settings as in job.toml: `starts`, `bound`, `scale`, `seeding`, …; `features` names
        columns, or says what is agreed about each, as {"age": {"range": [0, 120]}}. `sites`: none named: all. With the same
        `token` a job is submitted once, however often this is called."""
        what = [*map(int, k)] if isinstance(k, Iterable) else int(k)
        columns = dict(features) if isinstance(features, Mapping) else list(features)
        fields = {"k": what, "features": columns, "max_rows": int(max_rows), **settings}
        wanted = Wanted(jobfiles.parse(fields, "the job"), dataset, tuple(sites))
        return self._submitted(wanted, token, hours)

    def submit_file(self, path: str | Path, *, token: str | None = None, hours: float = submitting.HOURS) -> Job:
        """Sign and submit what a job.toml says."""
        return self._submitted(submission.load(Path(path)), token, hours)

    def _submitted(self, wanted: Wanted, token: str | None, hours: float) -> Job:
        signed = submitting.sign(self.kit, wanted, token or secrets.token_hex(16), hours=hours, clock=time.time())
        plan.of(signed.within(self.kit.federation))
        return Job(self, _apart(lambda: calls.submit(self.kit, signed)))

    def jobs(self) -> list[Job]:
        """All that the server knows, the newest first."""
        return [Job(self, one) for one in _apart(lambda: calls.listed(self.kit))]

    def job(self, name: str) -> Job:
        """The one whose digest begins with these digits, four or more."""
        return Job(self, _apart(lambda: calls.named(self.kit, name)))


@dataclass(frozen=True)
class Result:
    """What a job found. `plain`: all of the server's result.json."""

    k: int
    rows: int
    sizes: tuple[int, ...]
    inertia: float | None
    rounds: int
    converged: bool
    best: Mapping[int, float | None] = field(default_factory=dict)  # inertia of the best start, by k
    plain: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Job:
    """A submitted job. Only what was submitted is signed; how it stands, the server says."""

    def __init__(self, federation: Connection, told: Listed) -> None:
        self.federation, self._told = federation, told
        self._result: Result | None = None

    @property
    def id(self) -> str:
        """The first digits of its digest, which name it everywhere."""
        return self._told.job.id

    @property
    def digest(self) -> str:
        return self._told.job.digest.hex()

    @property
    def state(self) -> str:
        """As last asked: submitted, waiting, queued, running, finished, failed, refused, cancelled or expired."""
        return self._told.state

    @property
    def over(self) -> bool:
        return self._told.over

    def __repr__(self) -> str:
        return f"<job {self.id}: {status(self._told)}>"

    def _repr_html_(self) -> str:
        rows = (
            line.strip().partition("  ") if line[0] != " " else ("", "", line.strip()) for line in lines(self._told)
        )
        cells = "".join(f"<tr><th>{escape(head)}</th><td>{escape(text.strip())}</td></tr>" for head, _, text in rows)
        found = f"<p>{escape(str(self._result))}</p>" if self._result is not None else ""
        return f'<table style="text-align:left">{cells}</table>{found}'

    def refresh(self) -> Job:
        """Ask the server how it stands."""
        own = self.federation.kit
        self._told = _apart(lambda: calls.named(own, self.digest))
        return self

    def cancel(self) -> Job:
        """Call it off. What it has given away by then stays given away."""
        own = self.federation.kit
        self._told = _apart(lambda: calls.cancel(own, self.digest))
        return self

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Job:
        """Until it is over, with a progress bar; a server that is gone for a while is waited for. Unavailable after `timeout`
        seconds. How it has ended, `state` says: `result` raises if it did not finish."""
        deadline, seen = None if timeout is None else time.monotonic() + timeout, time.monotonic()
        with _Bar(self.id, progress) as bar:
            while True:
                try:
                    self.refresh()
                    seen = time.monotonic()
                except Unavailable:
                    if time.monotonic() - seen > PATIENCE:
                        raise
                bar.show(status(self._told), self._running(), self.over)
                if self.over:
                    return self
                if deadline is not None and time.monotonic() > deadline:
                    raise Unavailable(f"job {self.id} is not over after {timeout:g} s: it is {status(self._told)}")
                time.sleep(INTERVAL)

    def _running(self) -> Status | None:
        """What the server does for it now."""
        own, now = self.federation.kit, None
        if self.state == "running":
            with suppress(SecfcError):
                now = _apart(lambda: inquiry.ask(own, _STATUS_SECONDS))
        agreed = self._told.job.within(own.federation).agreed().hex()
        return now if now is not None and now.federation_digest == agreed else None

    @property
    def result(self) -> Result:
        """What it found; JobFailed if it did not finish, or has not yet."""
        if self._result is None:
            if not self.over:
                self.refresh()
            if self.state != "finished":
                raise JobFailed(f"job {self.id} has no result: it is {status(self._told)}")
            own = self.federation.kit
            self._result = _found(_apart(lambda: calls.result(own, self.digest)))
        return self._result

    def plot(self) -> Figure:
        """Rows per cluster and, if several k were tried, the best inertia of each."""
        found, pyplot = self.result, _needed("matplotlib.pyplot")
        known = {k: value for k, value in sorted(found.best.items()) if value is not None}
        figure, axes = pyplot.subplots(1, 2 if len(known) > 1 else 1, squeeze=False, figsize=(9, 3.2))
        axes[0][0].bar(range(found.k), found.sizes)
        axes[0][0].set(
            xlabel="cluster", ylabel="rows", xticks=range(found.k), title=f"k = {found.k}, {found.rows} rows"
        )
        if len(known) > 1:
            axes[0][1].plot(list(known), list(known.values()), marker="o")
            axes[0][1].set(xlabel="k", ylabel="inertia", xticks=list(known), title="best start of each k")
        figure.tight_layout()
        pyplot.close(figure)  # a notebook shows what is returned, and would show it twice
        return figure  # type: ignore[no-any-return]


class _Bar:
    """On a terminal or in a notebook: how a job stands, how many of its runs are done, and for how long that has taken."""

    def __init__(self, name: str, wanted: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        self._progress = Progress(text, BarColumn(), TimeElapsedColumn(), disable=not wanted)
        self._name, self._task = name, self._progress.add_task(name, total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, text: str, now: Status | None, over: bool) -> None:
        if over:
            self._progress.update(self._task, description=f"{self._name}  {text}", total=1, completed=1)
        elif now is not None and now.runs:
            said = f"{self._name}  {now.phase}, request {now.round}, {now.runs - now.moving} of {now.runs} runs done"
            self._progress.update(self._task, description=said, total=now.runs, completed=now.runs - now.moving)
        else:
            self._progress.update(self._task, description=f"{self._name}  {now.phase if now else text}")


def _found(content: bytes) -> Result:
    try:
        plain = json.loads(content)
        runs = [plain["runs"][number] for number in plain["best_runs"]]
        return Result(
            k=int(plain["k"]),
            rows=int(plain["rows"]),
            sizes=tuple(map(int, plain["cluster_sizes"])),
            inertia=plain["inertia"],
            rounds=int(plain["rounds"]),
            converged=bool(plain["converged"]),
            best={int(run["k"]): run["inertia"] for run in runs},
            plain=plain,
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise JobFailed("the server's result cannot be read; install the same version everywhere") from None


def _apart(call: Callable[[], T]) -> T:
    """In a thread of its own, where no event loop is running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def _needed(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError:
        name = module.partition(".")[0]
        raise ConfigError(f"this needs {name}, which is not installed: pip install 'secfc-kmeans[notebook]'") from None
