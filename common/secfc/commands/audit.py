"""`secfc audit`: what a party has recorded of who asked what, who decided, and what was given away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from secfc import auditfile, limits
from secfc.commands import options
from secfc.errors import InvalidInput, JobFailed
from secfc.protocol import audit
from secfc.protocol.audit import Found

_SHOWN_FIRST = ("number", "time", "event", "job")
_HIDDEN = (*_SHOWN_FIRST, "before", "digest", "parameters")


@click.command("audit")
@options.kit("Any party's kit folder, the server's too.")
@options.state
@click.option(
    "--verify", is_flag=True, help="Check that no line was changed, left out or moved; name the first that was."
)
@click.option(
    "--noted",
    metavar="NUMBER:DIGEST",
    help="With --verify: a head that was noted before; the file must still contain it.",
)
@click.option("--job", "name", metavar="JOB", help="Show the lines of one job; the beginning of its digest is enough.")
@options.as_json("Print one JSON object: with --verify the verdict, else one per line of the file.")
def command(
    kit_path: Path, state: Path | None, verify: bool, noted: str | None, name: str | None, as_json: bool
) -> None:
    """Show a party's audit file (STATE/audit.jsonl), or check it. Its lines are chained by digests, so --verify names the
    first one that was changed, left out or moved.

    What no chain shows is that its last lines are gone, or that somebody has written all of it again: note the head that
    --verify prints, and that the log names after each job, somewhere else, and give it with --noted later.

    \b
    Exit codes:
      0  shown; with --verify: every line follows from the one before
      2  the kit or an option is not in order, or there is no audit file
      4  with --verify: a line is not in order

    \b
    Examples:
      secfc audit --kit /etc/secfc/kit --job 3fa4
      secfc audit --kit /etc/secfc/kit --verify
    """
    path = (state or kit_path / "state") / auditfile.FILE
    if noted is not None and not verify:
        raise InvalidInput("--noted is checked by --verify; give that too")
    if name is not None and (verify or not name):
        raise InvalidInput("--job chooses lines to show, and --verify looks at all; give one of them")
    if not verify:
        _show(path, name or "", as_json)
        return
    found = auditfile.verified(path, audit.noted(noted) if noted is not None else None)
    click.echo(json.dumps(_plain(path, found)) if as_json else _told(path, found))
    if found.fault:
        raise JobFailed(f"{path}: line {found.line}: {found.fault}")


def _told(path: Path, found: Found) -> str:
    good = f"{path}: {found.head.number} lines in order"
    if found.fault:
        return f"{good}, then line {found.line} is not"
    span = f", from {found.first} to {found.last}" if found.first else ""
    return f"{good}{span}; head {found.head}"


def _plain(path: Path, found: Found) -> dict[str, Any]:
    return {
        "file": str(path),
        "in_order": not found.fault,
        "lines": found.head.number,
        "head": str(found.head),
        "first": found.first,
        "last": found.last,
        "events": dict(found.events),
        "wrong_line": found.line,
        "fault": found.fault,
    }


def _show(path: Path, name: str, as_json: bool) -> None:
    texts: Iterator[str] = _lines(path, "".join(name.split()).lower(), as_json)
    while True:
        with limits.telling(f"{path}: cannot be read", "check the path; a party has this file once it has run"):
            text = next(texts, None)
        if text is None:
            return
        click.echo(text)  # outside: that nobody reads on is not the file's fault


def _lines(path: Path, name: str, as_json: bool) -> Iterator[str]:
    for number, line in enumerate(auditfile.lines(path), 1):
        fields = audit.read(line)
        if fields is None:
            yield json.dumps({"damaged_line": number}) if as_json else f"line {number} is damaged; --verify says how"
        elif str(fields.get("job", "")).startswith(name):
            yield json.dumps(fields) if as_json else _line(fields)


def _line(fields: dict[str, Any]) -> str:
    """One line for people: of control characters, which others may have sent, none is left."""
    job = f"  {str(fields['job'])[:16]}" if "job" in fields else ""
    rest = "".join(f"  {name}={_value(value)}" for name, value in fields.items() if name not in _HIDDEN)
    return ascii(f"{fields['number']:6}  {fields['time']}  {fields['event']}{job}{rest}")[1:-1]


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
