"""Which settings make k-FED fall as far as the paper's tables say, above all at k′ = k?

Its authors leave nothing open, the paper that we reproduce does: it does not say how centres of the mixtures are drawn, how
k-FED's clients and server start, nor how rows get their labels. So we vary these, one at a time and together, and put the
paper's figures beside. Two further lines are no settings of k-FED but yardsticks:

* `chance`: labels dealt by lot, in clusters of equal size: the accuracy of labels that have nothing to do with the rows;
* `other order`: k-FED as its authors have it, whose labels (all clients' in turn) are held against the classes in the order
  of the rows before they were dealt: an easy slip where rows are shuffled, as they are for k′ = k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from experiments import kmeans_fed, output, plots, table1
from experiments.accuracy import accuracy, mean_std
from experiments.kmeans_fed import Settings
from experiments.mixtures import BOX, Rows, deal, mixture
from experiments.output import Cells, Row
from experiments.tables import gather

RUNS, QUICK_RUNS = 5, 1


@dataclass(frozen=True)
class Variant:
    """A way to set things up, with its name in the table."""

    name: str
    settings: Settings | None = None  # None: no k-FED at all
    box: float = BOX
    aligned: bool = True


VARIANTS = (
    Variant("as its authors have it", Settings()),
    Variant("clients: k-means++, no separation", Settings(local="k-means++")),
    Variant("clients: random rows", Settings(local="random rows")),
    Variant("clients: random assignment", Settings(local="random assignment")),
    Variant("server: random centres", Settings(server="random centres")),
    Variant("server: random assignment", Settings(server="random assignment")),
    Variant("both: random assignment", Settings("random assignment", "random assignment")),
    Variant("labels: nearest final centre", Settings(labels="nearest centre")),
    Variant("server: random centres; labels: nearest", Settings(server="random centres", labels="nearest centre")),
    Variant("centres in ±1", Settings(), box=1.0),
    Variant("centres in ±5", Settings(), box=5.0),
    Variant("centres in ±100", Settings(), box=100.0),
    Variant("other order", Settings(), aligned=False),
    Variant("chance"),
)
Sizes = tuple[int, int, int, int, tuple[int, ...]]  # m, d, k, n, every k′
SIZES: tuple[Sizes, ...] = ((10000, 100, 4, 10, (1, 2, 4)), (16384, 100, 16, 16, (2, 4, 16)))
QUICK: tuple[Sizes, ...] = ((400, 20, 4, 5, (1, 4)),)
SIGMAS = (1.0, 20.0)


def labels(
    rows: Rows, variant: Variant, n: int, most: int, k: int, seed: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The variant's labels, in the order that its accuracy is taken in."""
    if variant.settings is None:
        return np.random.default_rng((4, seed)).permutation(np.arange(len(rows.truth)) % k)
    parts = deal(rows.truth, n, most, seed)
    found = kmeans_fed.cluster([rows.values[at] for at in parts], most, k, seed, variant.settings)
    return gather(parts, found.labels) if variant.aligned else np.concatenate(found.labels)


def measure(sizes: Sequence[Sizes], runs: int, seed: int, folder: Path) -> list[Row]:
    """One row a variant, σ, k and k′."""
    cells, rows = Cells(folder, "kfed"), []
    wanted = [
        (variant, sigma, size, most) for sigma in SIGMAS for size in sizes for most in size[4] for variant in VARIANTS
    ]
    with output.progress("kfed", len(wanted) * runs) as step:
        for variant, sigma, (m, d, k, n, every), most in wanted:
            asked = {"m": m, "d": d, "k": k, "n": n, "most": most, "sigma": sigma, "box": variant.box}
            figures = []
            for number in range(seed, seed + runs):
                step(f"σ = {sigma:g}, k = {k}, k′ = {most}, seed {number}: {variant.name}")

                def work(v: Variant = variant, a: Row = asked, s: int = number) -> Row:
                    data = mixture(a["m"], a["d"], a["k"], a["sigma"], s, box=v.box)
                    return {"accuracy": accuracy(data.truth, labels(data, v, a["n"], a["most"], a["k"], s))}

                key = asked | {"seed": number, "aligned": variant.aligned}
                key |= asdict(variant.settings) if variant.settings else {"chance": True}
                figures.append(cells.get(f"s{sigma:g}-k{k}-{most}-seed{number}", key, work)["accuracy"])
            mean, std = mean_std(figures)
            paper = table1.PAPER.get((sigma, k), {}).get("kfed") if d == 100 else None
            row: Row = {"variant": variant.name} | asked | {"mean": mean, "std": std}
            rows.append(row | {"paper_mean": paper[every.index(most)][0] if paper else None})
    return rows


def table(result: Row) -> Table:
    """Variants down, cells across, the paper's figures last."""
    rows = result["rows"]
    out = Table(title="k-FED's accuracy (%) by setting", title_justify="left")
    cells = list(dict.fromkeys((row["sigma"], row["k"], row["most"]) for row in rows))
    out.add_column("", no_wrap=True)
    for sigma, k, most in cells:
        out.add_column(f"σ={sigma:g} k={k}\nk′={most}", justify="right")
    for variant in VARIANTS:
        own = [row for row in rows if row["variant"] == variant.name]
        out.add_row(variant.name, *(f"{row['mean']:.1f}" for row in own))
    own = [row for row in rows if row["variant"] == VARIANTS[0].name]
    out.add_section()
    out.add_row("the paper", *("–" if row["paper_mean"] is None else f"{row['paper_mean']:.1f}" for row in own))
    return out


@click.command("kfed")
@output.options(RUNS)
def command(runs: int, seed: int, quick: bool, out: Path, as_json: bool) -> None:
    """k-FED's accuracy under other starts, centre ranges and ways to label, beside the paper's figures and chance."""
    result = run(runs, seed, quick, out)
    output.show(result, table(result), as_json)


def run(runs: int, seed: int, quick: bool, out: Path) -> Row:
    """Measure, write and draw."""
    asked = {"runs": min(runs, QUICK_RUNS) if quick else runs, "seed": seed, "quick": quick}
    output.say_seeds("kfed", seed, asked["runs"])
    rows = measure(QUICK if quick else SIZES, asked["runs"], seed, out)
    plots.settings(rows, out / "kfed.png")
    return output.write(out, "kfed", asked, rows)
