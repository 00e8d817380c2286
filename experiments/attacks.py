"""What an adversary makes of what the protocol really transmits, with open and with masked uploads.

(a) the server alone: the geometry of every segment, from φ(β_u);
(b) the server and one client: every row exactly, by linear algebra in each lane;
(c) the server alone: the geometry of the rows up to a rigid motion, from the distances d′ that every mode shows it;
(d) is (a) and (b) on masked uploads: they fail, with the error of a guess;
(e) the server and one client that owns more than d rows: as (c), and its own rows undo the rigid motion.

(c) and (e) work on masked uploads as on open ones, once d directions are known: that is what masking does not hide. Errors
are relative to the spread of the rows: 0 is exact, 1 is putting every row at the mean; "guess" is what a random cloud scores
when it is laid over the rows as well as an attack's result is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import recovery
from experiments.recovery import Floats
from experiments.transcript import Setting, Transcript, record

Row = dict[str, Any]
TITLES = {
    "a": "geometry of each segment",
    "b": "every row, in each lane",
    "c": "geometry from distances",
    "e": "rows, with own rows known",
}


@dataclass(frozen=True)
class Outcome:
    """One attack on the first `requests` of a job. `exact`: the share of the others' rows recovered to the last bit."""

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


def settings() -> list[Setting]:
    """What the command attacks."""
    return [iris(), mixture(20, 400, 4, 11, 2, 4), mixture(100, 2000, 8, 16, 5, 3)]


# --- the attacks ------------------------------------------------------------------------------------------------------


def segments(transcript: Transcript) -> Outcome:
    """Attack (a). Every segment is laid over its true one by the best rigid motion (masked: and scale) of its own."""
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
        outcomes += [run(transcript) for run in (segments, insider, distances, own_rows)]
    labels = transcript.requests[-1].labels
    return Report(setting, transcript.rows.astype(np.float64), labels, outcomes, curve(transcript), guess(transcript))


def table(reports: Sequence[Report]) -> Table:
    """For people."""
    out = Table(title="What the server, alone or with one client, recovers from what it received", title_justify="left")
    for name in ("data", "attack", "who", "uploads"):
        out.add_column(name)
    for name in ("requests", "directions", "error", "others' rows exact"):
        out.add_column(name, justify="right")
    for report in reports:
        for outcome in report.outcomes:
            who = "server + one client" if outcome.attack in "be" else "server"
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
    """Attack what the protocol transmits: rows and geometry from open uploads, and what masked ones still tell."""
    console = Console(stderr=True)
    with console.status("attacking"):
        reports = [attack(setting) for setting in settings()]
    rows = [report.row() for report in reports]
    if out is not None:
        from experiments import attack_plots

        out.mkdir(parents=True, exist_ok=True)
        (out / "attacks.json").write_text(json.dumps(rows, indent=2) + "\n")
        for path in attack_plots.write(reports, out):
            console.print(f"wrote {path}", highlight=False)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(table(reports))
