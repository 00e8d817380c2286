"""What an adversary makes of what the protocol really transmits, with open, masked and sealed uploads.

(a) the server alone: the geometry of every segment, from φ(β_u);
(b) the server and one client: every row exactly, by linear algebra in each lane;
(c) the server alone: distances between rows, from the distances d′ that open and masked uploads show it, in floats;
(d) is (a) and (b) on masked uploads: they fail, with the error of a guess;
(e) the server and one client that owns more than d rows: as (c), and its own rows say how the cloud lies;
(f) the server alone: every feature of every row, exactly, up to the features' order, signs and shifts, because rows are whole
    numbers and d′ are exact: lattice reduction finds the axes;
(g) the server alone: rows of yes/no features, after one round of Lloyd;
(h) the server and one client that has chosen four of its rows: all yes/no features of all rows;
(i) the server and one client: as (f), and six rows of its own say the rest: every row as it is;
(j), (k) every party: the labels alone (`experiments.labels`), here of sealed rounds, where they are all that is left.

(c) and (e) to (i) work on masked uploads as on open ones: that is what masking does not hide. On sealed ones they fail,
unless a member of the committee helps the server (`experiments.sealedview`): then they work as on masked ones. Errors are
relative to the spread of the rows: 0 is exact, 1 is putting every row at the mean; "guess" is what a random cloud scores when
it is laid over the rows as well as an attack's result is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import labels, lattice, output, recovery, yes_no
from experiments.recovery import Floats
from experiments.transcript import Integers, Setting, Transcript, record

Row = dict[str, Any]
TITLES = {
    "a": "geometry of each segment",
    "b": "every row, in each lane",
    "c": "geometry from distances",
    "e": "rows, with own rows known",
    "f": "features, by lattice reduction",
    "g": "yes/no features",
    "h": "yes/no features, four chosen rows",
    "i": "rows, six own rows known",
}
WITH_CLIENT = "behi"
MEMBER = "sealed, a member helps"


@dataclass(frozen=True)
class Outcome:
    """One attack on the first `requests` of a job. `exact`: the share of the others' rows recovered to the last bit; for
    (f) and (g) up to the order, signs and shifts of the features."""

    attack: str
    uploads: str
    error: float
    exact: float | None
    directions: int
    requests: int
    estimate: Floats = field(repr=False)

    def row(self) -> Row:
        """For machines."""
        names = ("attack", "uploads", "error", "exact", "directions", "requests")
        return {name: getattr(self, name) for name in names}


def iris() -> Setting:
    """Fisher's Iris: 150 flowers, 4 features."""
    from sklearn.datasets import load_iris

    return Setting("Iris", load_iris().data, clusters=3, clients=7, privacy=2, segments=2, bound=8.0, precision=18)


def mixture(features: int, rows: int, clusters: int, clients: int, privacy: int, segments: int) -> Setting:
    """A seeded mixture of six overlapping Gaussians, which takes Lloyd many rounds."""
    pick = np.random.default_rng(features)
    centres = pick.normal(size=(6, features)) * 4 / np.sqrt(features)
    values = np.clip(centres[pick.integers(0, 6, rows)] + pick.normal(size=(rows, features)), -8.0, 8.0)
    name = f"{features}-d mixture"
    return Setting(name, values, clusters, clients, privacy, segments, bound=8.0, precision=18, start="random")


def answers(features: int = 10, rows: int = 1000) -> Setting:
    """Yes/no features, drawn independently; one round of Lloyd from a random start."""
    name = f"{features} yes/no features"
    return Setting(name, _yes_no(features, rows), 3, 5, 1, 1, bound=1.0, precision=8, start="random", max_rounds=1)


def planted(features: int = 40, rows: int = 1250, chosen: int = 4) -> Setting:
    """Yes/no features; the insider, client 0 of 5, has replaced its first rows by chosen ones. A generous bound lets it."""
    values = _yes_no(features, rows)
    values[: 5 * chosen : 5] = yes_no.chosen_rows(features, chosen)
    return Setting(f"{features} yes/no features", values, chosen + 1, 5, 1, 1, bound=1024.0, precision=4, max_rounds=1)


def _yes_no(features: int, rows: int) -> Floats:
    pick = np.random.default_rng(features)
    return (pick.random((rows, features)) < pick.uniform(0.3, 0.7, features)).astype(np.float64)


def settings() -> list[Setting]:
    """What the command attacks in every way but (g) and (h), which have settings of their own."""
    return [iris(), mixture(20, 400, 4, 11, 2, 4), mixture(24, 400, 6, 7, 1, 2), mixture(100, 2000, 8, 16, 5, 3)]


# --- the attacks ------------------------------------------------------------------------------------------------------


def segments(transcript: Transcript) -> Outcome:
    """Attack (a). Every segment is laid over its true one by the best alignment (masked: and scale) of its own."""
    agreed, truth = transcript.plan, transcript.rows.astype(np.float64)
    columns = transcript.independent(agreed.length + 1)
    parts, squares = [], 0.0
    for u in range(agreed.segments):
        own = truth[:, u * agreed.length : (u + 1) * agreed.length]
        found = recovery.geometry(recovery.segment_distances(transcript, columns, u), columns, own.shape[1])
        placed, error = recovery.aligned(found, own, scale=agreed.masked)
        parts.append(placed)
        squares += error**2 * float(((own - own.mean(axis=0)) ** 2).sum())
    whole = float(((truth - truth.mean(axis=0)) ** 2).sum())
    error = float(np.sqrt(squares / whole))
    directions, used = len(columns) - 1, columns[-1].step + 1
    return Outcome("a", agreed.wishes.uploads, error, None, directions, used, np.concatenate(parts, axis=1))


def insider(transcript: Transcript) -> Outcome:
    """Attack (b). Where it gives the rows, they are compared as they are; where it fails, after the best alignment."""
    found = recovery.rows_with_insider(transcript)
    estimate = found.rows.astype(np.float64)
    if found.contradictions:
        estimate, error = recovery.aligned(estimate, transcript.rows.astype(np.float64), scale=True)
    else:
        error = _relative(estimate, transcript)
    exact, directions = _exact(found.rows, transcript), transcript.plan.length
    return Outcome("b", transcript.plan.wishes.uploads, error, exact, directions, found.requests, estimate)


def distances(transcript: Transcript, steps: int | None = None) -> Outcome:
    """Attack (c) after the first steps (all)."""
    found, directions = _geometry(transcript, steps)
    estimate, error = recovery.aligned(found, transcript.rows.astype(np.float64), scale=False)
    used = len(transcript.requests[:steps])
    return Outcome("c", transcript.plan.wishes.uploads, error, None, directions, used, estimate)


def own_rows(transcript: Transcript) -> Outcome:
    """Attack (e), with everything the job gave away."""
    found, directions = _geometry(transcript, None)
    wide = np.zeros(transcript.rows.shape)
    wide[:, :directions] = found
    rows = recovery.placed_by_known_rows(wide, transcript.insider.own, transcript.insider.own_rows)
    estimate = rows.astype(np.float64)
    error, exact, used = _relative(estimate, transcript), _exact(rows, transcript), len(transcript.requests)
    return Outcome("e", transcript.plan.wishes.uploads, error, exact, directions, used, estimate)


def axes(transcript: Transcript) -> Outcome:
    """Attack (f), with everything the job gave away."""
    return _whole("f", transcript, lambda: lattice.placed(lattice.axes(transcript), transcript.rows))


def few_rows(transcript: Transcript, known: int = 6) -> Outcome:
    """Attack (i): as (f), with so many of the insider's own rows."""
    own, rows = transcript.insider.own[:known], transcript.insider.own_rows[:known]
    return _whole("i", transcript, lambda: lattice.settled(lattice.axes(transcript), own, rows))


def bits(transcript: Transcript) -> Outcome:
    """Attack (g), with everything the job gave away."""
    return _whole("g", transcript, lambda: lattice.placed(yes_no.bits_of_all(transcript), transcript.rows))


def chosen(transcript: Transcript) -> Outcome:
    """Attack (h), with the requests of the seeding only: one for each cluster."""
    steps = transcript.plan.wishes.clusters
    return _whole("h", transcript, lambda: yes_no.with_chosen(transcript, steps), steps)


def _whole(
    name: str, transcript: Transcript, run: Callable[[], Integers | Floats], steps: int | None = None
) -> Outcome:
    """An attack that gives exact rows or says that it found none; then every row is put at the mean."""
    try:
        rows = run()
    except lattice.NotFound:
        rows = np.tile(transcript.rows.mean(axis=0), (len(transcript.rows), 1))
    estimate, exact, used = rows.astype(np.float64), _exact(rows, transcript), len(transcript.requests[:steps])
    directions, uploads = transcript.meter(steps).count, transcript.plan.wishes.uploads
    return Outcome(name, uploads, _relative(estimate, transcript), exact, directions, used, estimate)


def curve(transcript: Transcript) -> list[Outcome]:
    """Attack (c) after every step that told something new."""
    out: list[Outcome] = []
    for steps in range(1, len(transcript.requests) + 1):
        if transcript.meter(steps).count > (out[-1].directions if out else 0):
            out.append(distances(transcript, steps))
    return out


def guess(transcript: Transcript) -> float:
    """The error of a random cloud, laid over the rows in the same way as an attack that failed."""
    cloud = np.random.default_rng(0).normal(size=transcript.rows.shape)
    return recovery.aligned(cloud, transcript.rows.astype(np.float64), scale=True)[1]


def _geometry(transcript: Transcript, steps: int | None) -> tuple[Floats, int]:
    columns, directions = transcript.columns(steps), transcript.meter(steps).count
    decoded = [transcript.decoded(step) for step in range(len(transcript.requests[:steps]))]
    return recovery.geometry(np.concatenate(decoded, axis=1), columns, directions), directions


def _exact(rows: Any, transcript: Transcript) -> float:
    others = np.setdiff1d(np.arange(len(rows)), transcript.insider.own)
    return float((rows[others] == transcript.rows[others]).all(axis=1).mean())


def _relative(estimate: Floats, transcript: Transcript) -> float:
    truth = transcript.rows.astype(np.float64)
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth - truth.mean(axis=0)))


# --- the command ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """All attacks on one setting."""

    setting: Setting
    rows: Floats
    labels: Any
    outcomes: list[Outcome]
    curve: list[Outcome]
    guess: float

    def row(self) -> Row:
        """For machines."""
        s = self.setting
        about = {"data": s.name, "m": len(self.rows), "d": self.rows.shape[1], "k": s.clusters, "n": s.clients}
        names = ("requests", "directions", "error")
        steps = [{name: getattr(step, name) for name in names} for step in self.curve]
        found = [outcome.row() for outcome in self.outcomes]
        return about | {"t": s.privacy, "segments": s.segments, "guess": self.guess, "attacks": found, "curve": steps}


def attack(setting: Setting) -> Report:
    """Run the protocol with open and with masked uploads, and all attacks on both."""
    outcomes: list[Outcome] = []
    for uploads in ("open", "masked"):
        transcript = record(setting, uploads)
        outcomes += [run(transcript) for run in (segments, insider, distances, own_rows, axes, few_rows)]
    last = transcript.requests[-1].labels
    return Report(setting, transcript.rows.astype(np.float64), last, outcomes, curve(transcript), guess(transcript))


def attack_answers() -> list[Report]:
    """Attacks (g) and (h), on masked uploads."""
    out = []
    for setting, run in ((answers(), bits), (planted(), chosen)):
        transcript = record(setting, "masked")
        last, rows = transcript.requests[-1].labels, transcript.rows.astype(np.float64)
        out.append(Report(setting, rows, last, [run(transcript)], [], guess(transcript)))
    return out


def attack_sealed() -> list[Report]:
    """What works on masked uploads, on sealed ones: by the server as above, and with the help of a committee member."""
    small = mixture(6, 80, 6, 5, 1, 1)
    tried: list[tuple[Setting, list[Callable[[Transcript], Outcome]]]] = [
        (iris(), [distances, own_rows, axes, few_rows]),
        (small, [distances, own_rows, axes, few_rows]),
        (answers(6, 80), [bits]),
        (planted(24, 100, 3), [chosen]),
    ]
    return [_sealed(setting, runs) for setting, runs in tried]


def _sealed(setting: Setting, runs: Sequence[Callable[[Transcript], Outcome]]) -> Report:
    transcript = record(setting, "sealed")
    outcomes = [replace(run(transcript), directions=0) for run in runs]
    vars(transcript)["member"] = True
    outcomes += [replace(run(transcript), uploads=MEMBER) for run in runs]
    rows = transcript.rows.astype(np.float64)
    return Report(setting, rows, transcript.requests[-1].labels, outcomes, [], guess(transcript))


def table(reports: Sequence[Report]) -> Table:
    """For people."""
    out = Table(title="What the server, alone or with one client, recovers from what it received", title_justify="left")
    for name in ("data", "attack", "who", "uploads"):
        out.add_column(name)
    for name in ("requests", "directions", "error", "others' rows exact"):
        out.add_column(name, justify="right")
    for report in reports:
        for outcome in report.outcomes:
            who = "server + one client" if outcome.attack in WITH_CLIENT else "server"
            exact = "" if outcome.exact is None else f"{100 * outcome.exact:.0f} %"
            colour = "red" if outcome.error < 0.5 * report.guess else "green"
            out.add_row(
                report.setting.name,
                f"({outcome.attack}) {TITLES[outcome.attack]}",
                who,
                outcome.uploads,
                str(outcome.requests),
                f"{outcome.directions} of {report.rows.shape[1]}",
                f"[{colour}]{outcome.error:.2g}[/]",
                exact,
            )
        out.add_row("", "a random guess", "", "", "", "", f"{report.guess:.2g}", "", end_section=True)
    return out


@click.command("attacks")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON list of one object a data set instead of the table."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the figures as JSON and plots of original against recovered as PNG here.",
)
def command(as_json: bool, out: Path | None) -> None:
    """Attack what the protocol transmits, with open, masked and sealed uploads: which rows and features come out, and what
    labels alone tell."""
    console = Console(stderr=True)
    with console.status("attacking"):
        reports = [attack(setting) for setting in settings()]
        drawn, reports = list(reports), [*reports, *attack_answers(), *attack_sealed()]
        told = [labels.attack(setting) for setting in labels.settings()]
    rows = [report.row() for report in reports] + [report.row() for report in told]
    if out is not None:
        from experiments import attack_plots

        output.write_text(out / "attacks.json", json.dumps(rows, indent=2) + "\n")
        for path in attack_plots.write(drawn, out):
            console.print(f"wrote {path}", highlight=False)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(table(reports), labels.table(told))
