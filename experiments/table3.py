"""Table 3 of the paper: MNIST digits 2 and 3, each image turned by 0, 90, 180 and 270 degrees, over ten clients.

The rows are the same in every run; the start, the deal and k-FED's own draws are the run's. `--quick` takes the 8×8 digits
that come with scikit-learn, so that nothing needs to be fetched.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import click

from experiments import mnist, output, tables
from experiments.mixtures import Rows
from experiments.tables import Setting
from secfc.errors import InvalidInput

RUNS, QUICK_RUNS = 10, 2
DIGITS = (2, 3)
MOST = (1, 2, 4)
PAPER: dict[int, dict[str, tuple[tuple[float, float], ...]]] = {
    2: {
        "central": ((99.5, 0.1),) * 3,
        "kfed": ((50.5, 0.0), (90.3, 10.4), (25.8, 0.1)),
        "secfc": ((99.5, 0.1),) * 3,
    },
    3: {
        "central": ((98.1, 0.0),) * 3,
        "kfed": ((97.7, 0.0), (98.1, 0.0), (68.2, 9.4)),
        "secfc": ((98.1, 0.0),) * 3,
    },
}


def settings(folder: Path | None, openml: bool) -> list[Setting]:
    """The two halves of the table."""
    load = cache(mnist.from_openml if folder is None else partial(mnist.from_folder, folder))
    if folder is None and not openml:
        raise InvalidInput(f"Table 3 needs MNIST: {mnist.HELP}")
    load()  # what is wrong with the files is said before anything runs

    def rows(digit: int, _seed: int) -> Rows:
        images, labels = load()
        return mnist.rotated(images[labels == digit], 255)

    return [
        Setting(f"digit {digit}", {"data": "mnist", "digit": digit}, 10, 3, MOST, partial(rows, digit), PAPER[digit])
        for digit in DIGITS
    ]


def quick_settings() -> list[Setting]:
    """The same with scikit-learn's 8×8 digits and five clients."""

    def rows(digit: int, _seed: int) -> Rows:
        from sklearn.datasets import load_digits

        data = load_digits()
        return mnist.rotated(data.images[data.target == digit].astype("uint8"), 16)

    return [
        Setting(f"digit {digit}, 8×8", {"data": "8x8", "digit": digit}, 5, 1, MOST, partial(rows, digit), {})
        for digit in DIGITS
    ]


def run(runs: int, seed: int, quick: bool, out: Path, folder: Path | None, openml: bool) -> output.Row:
    """Table 3."""
    chosen = quick_settings() if quick else settings(folder, openml)
    asked = {"runs": min(runs, QUICK_RUNS) if quick else runs, "seed": seed, "quick": quick}
    title = "Rotated digits of scikit-learn" if quick else "Rotated MNIST digits"
    return tables.run("table3", title, chosen, asked, out)


@click.command("table3")
@click.option("--mnist", "folder", type=click.Path(path_type=Path), help="Folder with the original idx files.")
@click.option("--openml", is_flag=True, help="Fetch the images from OpenML instead.")
@output.options(RUNS)
def command(runs: int, seed: int, quick: bool, out: Path, as_json: bool, folder: Path | None, openml: bool) -> None:
    """Accuracy on rotated MNIST digits: central Lloyd, k-FED and SecFC beside the paper's figures."""
    result = run(runs, seed, quick, out, folder, openml)
    output.show(result, tables.table(result), as_json)
