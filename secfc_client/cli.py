"""`secfc`: planning, provisioning, checking, watching and trying out a federation.

It stands here and not in the common package, because some commands read a site's rows and policy, and the common package
imports neither the client's code nor the server's.
"""

from __future__ import annotations

from importlib import import_module

import click

from secfc import __version__, exits

COMMANDS = {  # in the order of the help; each in the module of its name, as a click command called `command`
    "plan": "secfc.commands",
    "provision": "secfc.commands",
    "enroll": "secfc.commands",
    "sign": "secfc.commands",
    "accept": "secfc.commands",
    "revoke": "secfc.commands",
    "check": "secfc_client.commands",
    "health": "secfc.commands",
    "status": "secfc.commands",
    "budget": "secfc_client.commands",
    "demo": "secfc_client.commands",
}


class _Lazy(click.Group):
    """Loads a subcommand's module when it is run or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{COMMANDS[cmd_name]}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole first sentence, folded; click would cut it off."""
        commands = [(name, self.get_command(ctx, name)) for name in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(300)) for name, one in commands if one is not None])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="secfc")
def group() -> None:
    """Secure federated k-means: exactly Lloyd's clustering of pooled rows, without pooling the rows.

    Start with `secfc demo`. Then: `secfc plan` (what fits), `secfc provision` (certificates and kits) or `secfc enroll`,
    `secfc sign` and `secfc accept` (the same without any key leaving its site), `secfc check` (before a site starts),
    `secfc-server` and `secfc-client` (the job), `secfc status` (its progress), `secfc budget` (what a site's rows have
    given away), `secfc revoke` (a stolen certificate).
    """


def main() -> None:
    """Entry point."""
    exits.run(group, "secfc")
