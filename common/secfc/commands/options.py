"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from secfc import logs
from secfc.errors import InvalidInput
from secfc.pki.provision import MAX_DAYS
from secfc.pki.roles import SUBMITTER

Function = TypeVar("Function", bound=Callable[..., object])
PATH = click.Path(readable=False, path_type=Path)  # whoever opens it says what is wrong

path = partial(click.option, type=PATH)  # passed as a Path; None if it is left out
federation = click.argument("federation_file", metavar="FEDERATION.TOML", type=PATH)
authority = path("--ca", required=True, metavar="DIR", help="The authority `secfc provision` made.")
state = path("--state", help="State folder; default: KIT/state.")
bind = click.option("--bind", help="Address to listen on; default: as in federation.toml.")

web = click.option(
    "--web",
    metavar="ADDRESS:PORT",
    help="Show a live page and metrics there, e.g. 127.0.0.1:8080; other than loopback with TLS and a certificate or token.",
)


def kit(whose: str) -> Callable[[Function], Function]:
    """`--kit DIR`, passed as `kit_path`; `whose` is the help text."""
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--kit", "kit_path", required=True, metavar="DIR", type=folder, help=whose)


def new_folder(what: str = "New or empty folder.") -> Callable[[Function], Function]:
    """`--out DIR`."""
    return path("--out", required=True, metavar="DIR", help=what)


def days(what: str) -> Callable[[Function], Function]:
    """`--days N`, how long certificates last."""
    return click.option("--days", default=365, show_default=True, type=click.IntRange(1, MAX_DAYS), help=what)


def role(what: str) -> Callable[[Function], Function]:
    """`--role submitter`."""
    return click.option("--role", type=click.Choice([SUBMITTER]), help=what)


def timeout(what: str, seconds: float) -> Callable[[Function], Function]:
    """`--timeout SECONDS`."""
    limits = click.FloatRange(0.1, 600)
    return click.option("--timeout", default=seconds, show_default=True, metavar="SECONDS", type=limits, help=what)


def as_json(instead: str = "Print one JSON object instead of text.") -> Callable[[Function], Function]:
    """`--json`, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=instead)


def logging(command: Function) -> Function:
    """`--log-format` and `--quiet`."""
    quiet = click.option("--quiet", is_flag=True, help="Warnings and errors only.")
    style = click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
    return style(quiet(command))


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Distinct whole numbers from 1 on with commas between them; what they mean is checked by who uses them."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"{option} must be a whole number, or several with commas, not {text[:60]!a}") from None
    if min(found) < 1:
        raise InvalidInput(f"{option} must be a whole number of at least 1, not {min(found)}")
    if len(set(found)) < len(found):
        raise InvalidInput(f"{option} names a number twice; name each once")
    return found
