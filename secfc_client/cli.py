"""`secfc`: planning, provisioning, checking, watching and trying out a federation.

It stands here and not in the common package, because some commands read a site's rows and policy, and the common package
imports neither the client's code nor the server's.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from secfc import __version__, exits

COMMANDS = {  # in the order of the help; each in the module of its name, as a click command called `command`
    "plan": "secfc.commands",
    "provision": "secfc.commands",
    "enroll": "secfc.commands",
    "sign": "secfc.commands",
    "accept": "secfc.commands",
    "revoke": "secfc.commands",
    "describe": "secfc_client.commands",
    "check": "secfc_client.commands",
    "health": "secfc.commands",
    "status": "secfc.commands",
    **dict.fromkeys(("submit", "jobs", "show", "wait", "cancel", "result"), "secfc.commands"),
    **dict.fromkeys(("approve", "refuse"), "secfc_client.commands"),
    "audit": "secfc.commands",
    "budget": "secfc_client.commands",
    "clusters": "secfc_client.commands",
    "report": "secfc_client.commands",
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
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in COMMANDS])


def _summary(name: str) -> str:
    """The first sentence of a command's help, read from its source: to import all commands would take most of a second."""
    spec = find_spec(f"{COMMANDS[name]}.{name}")
    if spec is None or spec.origin is None:
        return ""
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == "command":
            words = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            return re.split(r"(?<=\.) ", words)[0]
    return ""


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="secfc")
def group() -> None:
    """Secure federated k-means: exactly Lloyd's clustering of pooled rows, without pooling the rows.

    Start with `secfc demo`. Then: `secfc plan` (what fits), `secfc provision` (certificates and kits) or `secfc enroll`,
    `secfc sign` and `secfc accept` (the same without any key leaving its site), `secfc describe` (what a file's columns
    are), `secfc check` (before a site starts),
    `secfc-server` and `secfc-client` (the job), `secfc status` (its progress), `secfc submit`, `jobs`, `show`, `wait`,
    `cancel` and `result` (jobs of a federation that stays), `secfc approve` and `refuse` (at a site), `secfc audit` (what a
    party has recorded of all this), `secfc budget` (what a site's rows have given away), `secfc clusters` (what it keeps so
    that new rows can be assigned later), `secfc report` (a finished job as one HTML file), `secfc revoke` (a stolen
    certificate).
    """


def main() -> None:
    """Entry point."""
    exits.run(group, "secfc")
