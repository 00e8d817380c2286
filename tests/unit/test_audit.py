"""The audit file: any line that is changed, left out, added or moved is named; a kill at any byte spoils nothing."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from secfc import atomicfile, auditfile, exits
from secfc.auditfile import AuditFile
from secfc.commands import audit as audit_command
from secfc.errors import ConfigError, InvalidInput, Refused, SecfcError, StorageError
from secfc.protocol import audit
from secfc.protocol.audit import Head
from secfc.protocol.effects import Fact

NOW = 1_800_000_000.0
FACTS = [Fact("request answered", {"request": number, "job": "3fa4" * 16}) for number in range(1, 9)]


def chain(count: int = 8) -> list[bytes]:
    head, lines = Head(), []
    for number in range(count):
        line, head = audit.written(head, "e", {"what": number, "text": "a “b”\n"}, NOW + number)
        lines.append(line)
    return lines


def opened(folder: Path) -> AuditFile:
    return AuditFile(folder, "a", b"\1" * 32, lambda: NOW)


def fault(lines: list[bytes], expected: Head | None = None) -> tuple[int, str]:
    found = audit.verified(lines, expected)
    return found.line, found.fault


def test_a_line_is_as_described() -> None:
    """What docs/operations.md tells whoever checks a file with a program of their own."""
    line, head = audit.written(Head(), "job approved", {"job": "3fa4", "by": "nora"}, 0.0)
    fields = json.loads(line)
    digest = fields.pop("digest")
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    purpose = b"secfc/v1/audit"
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in (purpose, plain))
    assert hashlib.sha256(framed).hexdigest() == digest == head.digest
    assert fields["before"] == "0" * 64
    assert (fields["number"], fields["time"]) == (1, "1970-01-01T00:00:00Z")
    with pytest.raises(ValueError, match="the chain's own"):
        audit.written(Head(), "e", {"number": 3}, 0.0)


def test_a_whole_chain_is_in_order() -> None:
    found = audit.verified(chain())
    assert (found.line, found.fault, found.head.number, found.events) == (0, "", 8, {"e": 8})
    assert (found.first, found.last) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:07Z")
    assert audit.verified([]).head == Head()


@given(st.data())
def test_whatever_byte_is_changed_its_line_is_named(data: st.DataObject) -> None:
    lines = chain(4)
    at = data.draw(st.integers(0, 3))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != lines[at][place]))
    changed = bytearray(lines[at])
    changed[place] = value
    whole = b"".join([*lines[:at], bytes(changed), *lines[at + 1 :]])
    assert audit.verified(io.BytesIO(whole).readlines()).line == at + 1


@pytest.mark.parametrize("at", range(7))
def test_a_line_that_is_left_out_comes_twice_or_is_moved_is_named(at: int) -> None:
    lines = chain()
    assert fault([*lines[:at], *lines[at + 1 :]]) == (at + 1, f"line {at + 1} is missing before it")
    if at < 6:
        assert fault([*lines[:at], *lines[at + 2 :]]) == (at + 1, f"lines {at + 1} to {at + 2} are missing before it")
    line, why = fault([*lines[: at + 1], *lines[at:]])
    assert (line, why) == (
        at + 2,
        f"lines are out of order: number {at + 1} comes again or too late, after {at + 1}",
    )
    line, why = fault([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]])
    assert (line, why) == (at + 1, f"lines are out of order: number {at + 2} stands where {at + 1} should")


def test_a_line_that_was_made_again_does_not_fit() -> None:
    """Whoever changes a line and makes its digest again has to make all later ones again."""
    lines = chain()
    before = audit.head_of(lines[3])
    assert before is not None
    lines[4] = audit.written(before, "e", {"what": "something else"}, NOW)[0]
    line, why = fault(lines)
    assert (line, why) == (6, "it does not follow from the line before it: one of the two was written again")


def test_what_a_chain_does_not_show_a_noted_head_does() -> None:
    lines = chain()
    head = audit.head_of(lines[-1])
    assert head is not None
    assert fault(lines[:5]) == (0, ""), "the end is gone, and nothing shows it"
    assert fault(lines[:5], head) == (6, "it is missing: the file ends with line 5, and line 8 was noted")
    again, made = Head(), []
    for number in range(8):
        line, again = audit.written(again, "e", {"what": -number}, NOW)
        made.append(line)
    assert fault(made) == (0, ""), "all of it was written again, and nothing shows it"
    line, why = fault(made, audit.noted(str(head)[:30]))
    assert (line, why.partition(":")[0]) == (8, "it is not the line that was noted")
    longer = [*lines, audit.written(head, "e", {}, NOW)[0]]
    assert fault(longer, audit.noted(f" {head}\n".upper())) == (0, "")


@pytest.mark.parametrize(
    "text", ["", "8", "8:", "8:12", f"x:{'0' * 64}", f"8:{'0' * 65}", f"8:{'g' * 64}", "²:" + "0" * 20]
)
def test_what_is_no_head(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no head of an audit file"):
        audit.noted(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_damaged_lines(line: bytes) -> None:
    assert audit.read(line) is None
    assert audit.read(b"[" * 10_000) is None


def test_a_file_goes_on_where_it_was_left(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.append(FACTS[:3])
    one.about(job="77" * 32).append([Fact("labels written")])
    again = opened(tmp_path)
    assert again.head == one.head
    again.append(FACTS[3:])
    found = auditfile.verified(again.path)
    assert (found.fault, found.head) == ("", again.head)
    assert found.events == {"the audit begins": 1, "request answered": 8, "labels written": 1}
    first, *_, labels = map(json.loads, again.path.read_text().splitlines()[:5])
    assert (first["party"], first["federation"], labels["job"]) == ("a", "01" * 32, "77" * 32)
    assert again.path.stat().st_mode & 0o777 == 0o600


def test_a_kill_at_any_byte_of_a_line_leaves_what_was_there_before(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.append(FACTS[:1])
    head, size = one.head, one.path.stat().st_size
    one.append(FACTS[1:2])
    whole = one.path.read_bytes()
    for length in range(size, len(whole)):
        one.path.write_bytes(whole[:length])
        again = opened(tmp_path)
        assert (again.head, one.path.stat().st_size) == (head, size)
    again.append(FACTS[1:2])
    assert one.path.read_bytes() == whole
    one.path.write_bytes(whole[:20])  # not even the first line
    assert opened(tmp_path).head.number == 1


def test_a_damaged_end_is_not_written_on(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.append(FACTS)
    content = one.path.read_bytes()
    for damaged in (content[:-20] + b"x" * 19 + b"\n", b"\n", b"y" * (3 << 20)):
        one.path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="its last line is damaged; move it"):
            opened(tmp_path)
        assert one.path.read_bytes() == damaged, "nothing was touched"


def test_somebody_else_writes_it_or_takes_it_away(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.append(FACTS[:2])
    content = one.path.read_bytes()
    for spoil in (lambda: one.path.write_bytes(content + b"x"), lambda: one.path.write_bytes(b""), one.path.unlink):
        spoil()
        with pytest.raises(ConfigError, match="was changed or removed by somebody else"):
            one.append(FACTS[2:3])
    one.path.write_bytes(content)
    one.append(FACTS[2:3])
    assert auditfile.verified(one.path).head.number == 4


def test_a_full_disk_leaves_no_half_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(tmp_path)
    before = one.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(atomicfile.os, "fsync", full)
        with pytest.raises(StorageError, match="make room there"):
            one.append(FACTS)
    assert one.path.read_bytes() == before
    one.append(FACTS)
    assert auditfile.verified(one.path).head.number == 9


def test_a_job_of_one_process(tmp_path: Path) -> None:
    file = opened(tmp_path)
    job = file.about(job="5" * 64)
    job.begins("k = 2")
    job.over(Refused("policy.toml: max_requests = 1"))
    begun, over = map(json.loads, file.path.read_text().splitlines()[1:])
    assert (begun["event"], begun["parameters"]) == ("job begins", "k = 2")
    assert (over["state"], over["why"]) == ("refused", "policy.toml: max_requests = 1")


def command(*call: str) -> tuple[int, str, str]:
    """Exit code, output, and the line of an error."""
    result = CliRunner().invoke(audit_command.command, list(call))
    error = result.exception
    return exits.code_for(error) if isinstance(error, SecfcError) else result.exit_code, result.stdout, str(error or "")


def test_the_command(tmp_path: Path) -> None:
    file = opened(tmp_path / "state")
    file.append([Fact("job offered", {"job": "3fa4" * 16, "submitter": "analyst", "why": "\x1b[2Jno rule"}), *FACTS])
    file.append([Fact("job offered", {"job": "55" * 32})])
    kit = ("--kit", str(tmp_path))
    code, out, _ = command(*kit, "--verify")
    whole = "audit.jsonl: 11 lines in order, from 2027-01-15T08:00:00Z to 2027-01-15T08:00:00Z; head "
    assert (code, out.strip().endswith(f"{whole}{file.head}")) == (0, True)
    _, out, _ = command(*kit, "--verify", "--json", "--noted", str(file.head))
    told: dict[str, Any] = json.loads(out)
    assert (told["in_order"], told["lines"], told["events"]["job offered"]) == (True, 11, 2)
    _, out, _ = command(*kit, "--job", "3FA4")
    assert len(out.splitlines()) == 9
    assert "\x1b" not in out
    assert "submitter=analyst" in out
    _, out, _ = command(*kit, "--json")
    assert [json.loads(line)["number"] for line in out.splitlines()] == list(range(1, 12))
    nowhere = ("--state", str(tmp_path / "nowhere"))
    for wrong in (("--noted", str(file.head)), ("--job", "3", "--verify"), ("--noted", "x", "--verify"), nowhere):
        assert command(*kit, *wrong)[0] == 2
    assert command(*kit, *nowhere, "--verify")[0] == 2


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    file, kit = opened(tmp_path / "state"), ("--kit", str(tmp_path))
    file.append(FACTS)
    lines = file.path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"request":3', b'"request":7')
    file.path.write_bytes(b"".join(lines))
    code, out, error = command(*kit, "--verify")
    assert out.strip().endswith("3 lines in order, then line 4 is not")
    assert (code, error) == (4, f"{file.path}: line 4: it was changed: its digest is not that of its content")
    code, out, _ = command(*kit, "--verify", "--json")
    assert (code, json.loads(out)["wrong_line"], json.loads(out)["in_order"]) == (4, 4, False)
    assert "line 4 is damaged" in command(*kit)[1]
