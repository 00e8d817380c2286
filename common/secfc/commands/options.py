"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., object])


def kit(whose: str) -> Callable[[Function], Function]:
    """`--kit DIR`, passed as `kit_path`; `whose` is the help text."""
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--kit", "kit_path", required=True, metavar="DIR", type=folder, help=whose)
