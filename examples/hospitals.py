"""Made-up rows for three hospitals: the data of docs/tutorial.md.

    python examples/hospitals.py FOLDER

Each hospital sees four kinds of patients, in proportions of its own. `kind` says which, so that a result can be compared with
it; it is no feature of the clustering.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

# age, sex (share of women), body mass index, systolic blood pressure, fasting glucose: means and deviations
KINDS = {
    "young and healthy": ((28, 6), 0.5, (22, 2), (115, 8), (85, 6)),
    "hypertensive": ((63, 8), 0.45, (27, 3), (165, 12), (98, 8)),
    "diabetic": ((58, 9), 0.4, (33, 4), (140, 12), (180, 22)),
    "old and frail": ((84, 5), 0.7, (20, 2), (125, 10), (95, 8)),
}
HOSPITALS = {"hospital-a": (200, 90, 80, 30), "hospital-b": (60, 120, 150, 20), "hospital-c": (20, 80, 30, 170)}


def rows(counts: tuple[int, ...], random: np.random.Generator) -> list[tuple[object, ...]]:
    """Of one hospital, in random order."""
    made: list[tuple[object, ...]] = []
    for (kind, (age, women, bmi, pressure, glucose)), count in zip(KINDS.items(), counts, strict=True):
        for _ in range(count):
            values = [random.normal(*one) for one in (age, bmi, pressure, glucose)]
            years, index, systolic, sugar = np.clip(values, (18, 12, 80, 50), (110, 60, 250, 400))
            sex = "f" if random.random() < women else "m"
            made.append((round(years), sex, round(index, 1), round(systolic), round(sugar), kind))
    random.shuffle(made)
    return made


def main(folder: Path) -> None:
    random = np.random.default_rng(2026)
    for name, counts in HOSPITALS.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        with open(place / "patients.csv", "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(("patient", "age", "sex", "bmi", "pressure", "glucose", "kind"))
            for number, row in enumerate(rows(counts, random), 1):
                out.writerow((f"{name[-1].upper()}{number:04d}", *row))
        print(f"{place / 'patients.csv'}: {sum(counts)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
