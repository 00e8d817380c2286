"""`secfc describe`: a first `features` section of a job, from one site's file, for people to edit and agree on."""

from __future__ import annotations

from pathlib import Path

import click

from secfc.agreement import toml


@click.command("describe")
@click.argument("file", type=click.Path(path_type=Path, readable=False))
def command(file: Path) -> None:
    """Print a first [job.features] section for FILE, to edit and agree on with the other sites.

    Ranges are rounded outward, levels are those found in the file: what you pass on tells the others about your rows, so
    replace what they should not know by what is known to all, e.g. range = [0, 120] for an age. Columns that are no
    features, or not without work, are comments.

    \b
    Example:
      secfc describe rows.csv
    """
    from secfc_client.datasets import description, formats  # loads pyarrow, which `secfc --help` can do without

    suggested = description.suggested(file, formats.read(file))
    click.echo("[job.features]")
    for feature, column in suggested:
        key = toml.dump_key(column.name)
        gone = f"; {column.missing} missing" if column.missing else ""
        if feature is None:
            why = column.remark or f"{column.kind}, {column.distinct} different values"
            click.echo(f"# {key} = {{}}  # {why}{gone}")
        else:
            notes = [f"{column.missing} missing"] if column.missing else []
            notes += ["few are large; with a range that begins above 0: log = true?"] if column.skewed else []
            click.echo(f"{key} = {toml.dump(feature.plain())}" + (f"  # {'; '.join(notes)}" if notes else ""))
