"""`secfc`: planning, provisioning, checking, watching and trying out a federation."""

from __future__ import annotations

from importlib import import_module

import click

from secfc import __version__, exits

COMMANDS = ("plan", "provision", "enroll", "sign", "check", "health", "status", "budget", "demo")


class _Lazy(click.Group):
    """Loads a subcommand's module when it is run or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"secfc.commands.{cmd_name}").command
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="secfc")
def group() -> None:
    """Secure federated k-means: exactly Lloyd's clustering of pooled rows, without pooling the rows.

    Start with `secfc demo`. Then: `secfc plan` (what fits), `secfc provision` (certificates and kits) or `secfc enroll`
    and `secfc sign` (the same, and no key leaves its site), `secfc check` (before a site starts), `secfc-server` and
    `secfc-client` (the job), `secfc status` (its progress), `secfc budget` (what a site's rows have given away).
    """


def main() -> None:
    """Entry point."""
    exits.run(group, "secfc")
