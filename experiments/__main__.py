"""`python -m experiments NAME`: one subcommand an experiment, loaded when it is asked for.

Every experiment is a module of this package with a click command called `command`; its line below is all it takes to add
one. Help lists them without importing any, so scikit-learn, galois and matplotlib are loaded by those who use them.
"""

from __future__ import annotations

from importlib import import_module

import click

from secfc import exits

EXPERIMENTS = {
    "table1": "the paper's Table 1: Gaussian mixtures with σ = 1, against central Lloyd and k-FED",
    "table2": "the paper's Table 2: the same with σ = 20",
    "table3": "the paper's Table 3: rotated MNIST digits",
    "figure1": "the paper's Figure 1: run time against n, d and m, and what it left out: the network",
    "kfed": "which settings make k-FED fall as far as the paper's tables say",
    "quality": "inertia and adjusted Rand index with default settings, beside scikit-learn's KMeans()",
    "peers": "scikit-learn, k-FED, SecFC, SPU and MPyC on the same rows in one run",
    "all": "all of the above and speed, then what must hold is checked",
    "report": "write docs/results.md and its plots from the files of a run",
    "speed": "one round of client and server against one scikit-learn iteration, and masks against bare AES",
    "startup": "from process start to the first round of a tiny job, and how quick commands answer",
    "relay": "sharing through the server against sharing directly: seconds, CPU, memory of the server",
    "scale": "how time, bytes and memory grow with rows and with clients, and the fitted exponents",
    "recording": "`secfc demo` in a terminal, as the animated picture of the README",
    "union": "seconds and bytes per ID of the private set union of row IDs",
    "attacks": "what the server, alone or with one client, recovers from all kinds of uploads, and everybody from labels",
}


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(EXPERIMENTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in EXPERIMENTS:
            return None
        command = import_module(f"experiments.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"experiments.{cmd_name}.command is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Experiments"):
            formatter.write_dl(list(EXPERIMENTS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Experiments with SecFC. Tables go to stdout, progress to stderr; --json gives machines what they need."""


if __name__ == "__main__":
    exits.run(main, "python -m experiments")
