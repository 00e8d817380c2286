"""The passphrase of the authority's key: from a file, or asked on a terminal, and never waited for where nobody can type."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from secfc import textfile
from secfc.commands import options
from secfc.errors import ConfigError
from secfc.pki import keyfile, kit

MAX_BYTES = 1 << 10

option = options.path(
    "--passphrase-file",
    metavar="FILE",
    help="Its first line is the passphrase of ca.key; default: asked on the terminal.",
)


def of_new_key(file: Path | None, none: bool) -> str | None:
    """The passphrase of an authority that is about to be made, typed twice; None if the user chose to have none."""
    if none and file is not None:
        raise click.UsageError("--passphrase-file and --no-passphrase exclude each other; leave out one")
    if none:
        return None
    if file is not None:
        return keyfile.check_new(_read(file))
    _check_terminal(", or --no-passphrase for a key that serves whoever copies it")
    return keyfile.check_new(click.prompt(_PROMPT, hide_input=True, confirmation_prompt="The same again", err=True))


def of_key(file: Path | None) -> str:
    """The passphrase of an authority that is there."""
    if file is not None:
        return _read(file)
    _check_terminal("")
    return str(click.prompt(_PROMPT, hide_input=True, err=True))


_PROMPT = "Passphrase of the authority's key"


def _check_terminal(otherwise: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"the authority's key needs a passphrase, and there is no terminal; give --passphrase-file FILE{otherwise}"
        )


def _read(file: Path) -> str:
    if file.is_file():
        kit.check_permissions(file)
    try:
        lines = textfile.read_small_file(file, MAX_BYTES).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8 text; save it as UTF-8") from None
    if not lines or not lines[0]:
        raise ConfigError(f"{file}: holds no passphrase; its first line must be the passphrase")
    return lines[0]
