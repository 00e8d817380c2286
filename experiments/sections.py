"""The sections of docs/results.md, each made from a result; every figure in them comes from the files of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments import figure1, kfed, peers
from experiments.plots import NAMES, seconds_text
from experiments.quality import cells_of

Row = dict[str, Any]
Lines = list[str]
QUIET = 0.8
NEAR = 3.0  # accuracies within so many points of the paper's count as reproducing it
YARDSTICKS = ("chance", "other order")
UNRELATED = (
    "Where only the yardsticks come near the paper's figure, that figure is what labels give that have nothing to do with "
    "the rows. No setting of k-FED that we tried does that there; labels and classes in different orders would. We cannot "
    "know which it was."
)


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> Lines:
    """A Markdown table; the first column is text, the others are figures."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *body)] + [""]


def _spread(row: Row) -> str:
    paper = "" if row["paper_mean"] is None else f" (paper {row['paper_mean']:.1f} ± {row['paper_std']:.1f})"
    return f"**{row['mean']:.1f} ± {row['std']:.1f}**{paper}"


def _quick(result: Row) -> Lines:
    return ["*Measured with `--quick`: small sizes, few runs.*", ""] if result["asked"].get("quick") else []


def accuracy(result: Row, plot: str) -> Lines:
    """One of the three tables."""
    rows, asked = result["rows"], result["asked"]
    cells = list(dict.fromkeys((row["setting"], row["most"]) for row in rows))
    by = {(row["method"], row["setting"], row["most"]): row for row in rows}
    head = ["accuracy, %"] + [f"{setting}, k′ = {most}" for setting, most in cells]
    body = [[name] + [_spread(by[method, *cell]) for cell in cells] for method, name in NAMES.items()]
    out = _quick(result) + grid(head, body) + [f"![{asked['title']}]({plot})", ""]
    equal = [one for row in rows if row["method"] == "secfc" for one in row["equal"]]
    several = {row["setting"]: row["equal"] for row in rows if row["method"] == "secfc10"}
    all_starts = [one for own in several.values() for one in own]
    rounds = [one for row in rows if row["method"] == "secfc" for one in row["rounds"]]
    out += [
        f"{_runs(asked)}. SecFC's labels equalled central Lloyd's in every row in {sum(equal)} of {len(equal)} cells of one "
        f"start, after {min(rounds)} to {max(rounds)} rounds, and in every start of {sum(all_starts)} of {len(all_starts)} "
        "cells of ten.",
        "",
    ]
    if any(row["nearest_mean"] != row["mean"] for row in rows):
        out += ["The same against the closest true centre instead of the component a row was drawn from:", ""]
        nearest = [[name] + [_nearest(by[method, *cell]) for cell in cells] for method, name in NAMES.items()]
        out += grid(head, nearest)
    return out


def _runs(asked: Row) -> str:
    first, runs = asked["seed"], asked["runs"]
    return f"One run, seed {first}" if runs == 1 else f"{runs} runs, seeds {first} to {first + runs - 1}"


def _nearest(row: Row) -> str:
    return f"{row['nearest_mean']:.1f} ± {row['nearest_std']:.1f}"


def settings(result: Row, plot: str) -> Lines:
    """What k-FED does under other settings, and which of them come near the paper's figures."""
    rows = result["rows"]
    cells = list(dict.fromkeys((row["sigma"], row["k"], row["most"]) for row in rows))
    by = {(row["variant"], row["sigma"], row["k"], row["most"]): row for row in rows}
    names = [variant.name for variant in kfed.VARIANTS]
    head = ["k-FED's accuracy, %"] + [f"σ={sigma:g} k={k} k′={most}" for sigma, k, most in cells]
    body = [[name] + [f"{by[name, *cell]['mean']:.1f}" for cell in cells] for name in names]
    paper = {cell: by[names[0], *cell]["paper_mean"] for cell in cells}
    body.append(["*the paper*"] + ["–" if paper[cell] is None else f"*{paper[cell]:.1f}*" for cell in cells])
    out = _quick(result) + grid(head, body) + [f"![k-FED by setting]({plot})", ""]
    known = [cell for cell in cells if paper[cell] is not None]
    near = {cell: [name for name in names if abs(by[name, *cell]["mean"] - paper[cell]) <= NEAR] for cell in known}
    widest = [cell for cell in known if cell[1] == cell[2]]
    out += ["* " + _widest(cell, paper[cell], near[cell], by, names) for cell in widest]
    out += ["* " + _narrower(cell, paper[cell], near[cell]) for cell in known if cell not in widest]
    if any(near[cell] and set(near[cell]) <= set(YARDSTICKS) for cell in widest):
        out += ["", UNRELATED]
    return [*out, ""]


def _widest(
    cell: tuple[float, int, int], paper: float, near: Sequence[str], by: dict[Any, Row], names: Sequence[str]
) -> str:
    sigma, k, _ = cell
    means = {name: by[name, *cell]["mean"] for name in names if name not in YARDSTICKS}
    least = min(means, key=lambda name: means[name])
    return (
        f"σ = {sigma:g}, k = k′ = {k}: the paper has {paper:.1f} %. Within {NEAR:g} points of it: "
        f"{'; '.join(near) or 'none'}. As its authors have it: {means[names[0]]:.1f} %; the worst setting of k-FED tried "
        f"({least}): {means[least]:.1f} %; labels dealt by lot: {by['chance', *cell]['mean']:.1f} %."
    )


def _narrower(cell: tuple[float, int, int], paper: float, near: Sequence[str]) -> str:
    sigma, k, most = cell
    return f"σ = {sigma:g}, k = {k}, k′ = {most}: the paper has {paper:.1f} %. Near it: {'; '.join(near) or 'none'}."


def run_times(result: Row, plot: str) -> Lines:
    """Figure 1."""
    rows = result["rows"]
    head = ["varied", "n", "t", "d", "m", *figure1.PARTS.values(), "upload", "quiet"]
    body = []
    for row in rows:
        told = ["–" if row.get(name) is None else seconds_text(row[name]) for name in figure1.PARTS]
        times = [_fair(text, row["quiet"]) for text in told]
        sizes = [str(row[name]) for name in "ntdm"]
        body.append([row["sweep"], *sizes, *times, f"{row['upload_bytes'] / 1e6:.2f} MB", f"{row['quiet']:.2f}"])
    fair = [row for row in rows if row["quiet"] >= QUIET]
    compute = ("client_round_s", "client_masked_round_s", "server_s")
    out = [*_quick(result), *_picture("Run time", plot, rows), *grid(head, body)]
    if fair:
        network = [row["network_round_s"] for row in fair if row["network_round_s"] is not None]
        out += [
            f"The slowest part of an iteration took {seconds_text(max(row[name] for row in fair for name in compute))}, "
            f"the slowest whole round over TLS {seconds_text(max(network)) if network else '(not measured)'}; the paper: "
            f"under {figure1.PAPER_SECONDS:g} s.",
            "",
        ]
    return out + _noise([row["quiet"] for row in rows])


def _picture(title: str, plot: str, rows: Sequence[Row]) -> Lines:
    """A plot of seconds, if all of them count."""
    return [f"![{title}]({plot})", ""] if all(row["quiet"] >= QUIET for row in rows) else []


def _fair(text: str, quiet: float) -> str:
    """A figure in seconds, if the machine was quiet enough for it to mean something."""
    return text if quiet >= QUIET else "–"


def contest(result: Row, plot: str) -> Lines:
    """SecFC and its peers."""
    rows = result["rows"]
    out = [*_quick(result), *_picture("Peers", plot, [row for row in rows if row["seconds"] is not None])]
    for size in dict.fromkeys(row["size"] for row in rows):
        own = [row for row in rows if row["size"] == size]
        some = next(row for row in own if row["seconds"] is not None)
        out += [
            f"{size}, n = {some['n']}, t = {some['t']}, {some['threads']} threads, {some['iterations']} iterations:",
            "",
        ]
        body = [_peer(row) for row in own]
        head = [
            "",
            "seconds an iteration",
            "bytes an iteration",
            "accuracy",
            "rows unlike Lloyd",
            "quiet",
            "who learns what",
        ]
        out += grid(head, body)
    return out + _noise([row["quiet"] for row in rows if row["seconds"] is not None])


def _peer(row: Row) -> list[str]:
    name, seconds, *figures, learns = peers.cells_of(row)
    version = f" {row['version']}" if row.get("version") else ""
    if row["seconds"] is None:
        return [name + version, seconds, *figures, "–", learns]
    return [name + version, _fair(seconds, row["quiet"]), *figures, f"{row['quiet']:.2f}", learns]


def _noise(quiet: Sequence[float]) -> Lines:
    busy = sum(one < QUIET for one in quiet)
    if not busy:
        return ["The machine was quiet throughout.", ""]
    return [
        f"`quiet` is 1 when no other job ran. In {busy} of {len(quiet)} measurements it was below {QUIET:g}, because the "
        "machine was shared with other work: their seconds are not published (–).",
        "",
    ]


def speed(rows: Sequence[Row]) -> Lines:
    """One round against one scikit-learn iteration."""
    head = ["", *(f"m={row['m']} d={row['d']} k={row['k']}" for row in rows)]
    figures: dict[str, Callable[[Row], str]] = {
        "one scikit-learn iteration": lambda row: seconds_text(row["sklearn_iteration_s"]),
        "a client's round": lambda row: f"{row['client_round_ratio']:.2f} ×",
        "a client's round, masked": lambda row: f"{row['client_masked_round_ratio']:.2f} ×",
        "the server's round": lambda row: f"{row['server_ratio']:.2f} ×",
        "… after the last chunk": lambda row: f"{row['server_after_last_ratio']:.2f} ×",
        "masks over bare AES-CTR": lambda row: f"{row['mask_over_aes']:.2f} ×",
        "quiet": lambda row: f"{row['quiet']:.2f}",
    }
    body = [
        [name, *(text(row) if name == "quiet" else _fair(text(row), row["quiet"]) for row in rows)]
        for name, text in figures.items()
    ]
    return grid(head, body) + _noise([row["quiet"] for row in rows])


def labels(rows: Sequence[Row]) -> Lines:
    """What labels tell, of those data sets on which that was tried."""
    head = [
        "R² of the rows",
        "jobs",
        "assignments",
        "any party, best case",
        "one client, others' rows",
        "a random cloud",
    ]
    body = []
    for row in rows:
        name = f"{row['data']}, {row['m']} × {row['d']}, k = {row['k']}"
        for one in row["labels"]:
            figures = (f"{one['r2']:.2f}", f"{one['others_r2']:.2f}", f"{row['guess_r2']:.2f}")
            body.append([name, str(one["jobs"]), str(one["assignments"]), *figures])
    return grid(head, body)


def quality(result: Row) -> Lines:
    """Default settings beside scikit-learn's."""
    runs, first = result["asked"]["runs"], result["asked"]["seed"]
    head = ["", "m × d, k", "inertia, `KMeans()`", "inertia, SecFC", "ratio", "index, `KMeans()`", "index, SecFC"]
    head += ["same start: other rows", "same start: inertia"]
    body = [cells_of(row) for row in result["rows"]]
    return [*grid(head, body), f"Means over {runs} seeds, {first} to {first + runs - 1}.", ""]


def network(rows: Sequence[Row]) -> Lines:
    """Whole rounds over TLS, masked and sealed."""
    head = [
        "m × d, k",
        "n, t",
        "uploads",
        "typical round",
        "first, random start",
        "first after k-means++",
        "a client sends",
    ]
    names = ("typical_round", "first_round", "first_after_seeding")
    body = []
    for row in rows:
        told = [f"{seconds_text(row[f'{name}_s'])} ({row[f'{name}_ratio']:.1f} ×)" for name in names]
        times = [_fair(text, row["quiet"]) for text in told]
        who = [f"{row['m']} × {row['d']}, {row['k']}", f"{row['n']}, {row['t']}", row["uploads"]]
        body.append([*who, *times, f"{row['uploaded_bytes_most'] / 1e6:.2f} MB"])
    return grid(head, body) + _noise([row["quiet"] for row in rows])
