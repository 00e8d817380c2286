"""What a node offers to jobs: its datasets, its rules, and where things are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from secfc.agreement import policy as policies
from secfc.agreement import toml
from secfc.agreement.allowing import Allowing
from secfc.agreement.federation import Federation
from secfc.agreement.policy import Policy
from secfc.agreement.submission import Submission
from secfc.errors import InvalidInput, Refused
from secfc.protocol.jobs.record import Decision, Verdict

_RULE = "allowed by rule "


@dataclass(frozen=True)
class Dataset:
    """A file of rows under a name that jobs use."""

    name: str
    path: Path
    id_column: str | None = None


@dataclass(frozen=True)
class Offering:
    """A site's datasets, its limits, and what it allows without asking."""

    federation: Federation
    datasets: tuple[Dataset, ...]
    policy: Policy
    allowing: Allowing

    def dataset(self, name: str) -> Dataset | None:
        return next((one for one in self.datasets if one.name == name), None)

    def judge(self, job: Submission) -> Decision:
        """What the site's rules say of a job. No row is read for it."""
        running = job.within(self.federation)
        if self.dataset(job.wanted.dataset) is None:
            return Decision(Verdict.REFUSED, f'it has no dataset called "{job.wanted.dataset}"')
        if found := policies.complaints(self.policy, running):
            return Decision(Verdict.REFUSED, f"policy.toml does not allow it: {found[0]}")
        rule = self.allowing.first(job, running)
        if rule is not None and (found := policies.complaints(rule.limits(self.policy), running)):
            return Decision(Verdict.PENDING, f"rule {rule.name} does not allow it: {found[0]}")
        if rule is not None:
            return Decision(Verdict.ALLOWED, _RULE + rule.name)
        return Decision(Verdict.PENDING, self.allowing.why_not(job, running))

    def limits(self, job: Submission, decision: Decision) -> Policy:
        """What holds while the job runs. A job that a person approved is held to the site's own limits, not to a rule's; one
        that a rule allowed, to those of the rule that allows it now. Raises Refused if none does any more."""
        if not decision.why.startswith(_RULE):
            return self.policy
        rule = self.allowing.first(job, job.within(self.federation))
        if rule is None:
            raise Refused("policy.toml: no [[allow]] rule allows it any more")
        return rule.limits(self.policy)


def datasets(given: tuple[str, ...], ids: tuple[str, ...]) -> tuple[Dataset, ...]:
    """The datasets that options name: NAME=FILE each, and [NAME=]COLUMN for the columns that name rows."""
    files = dict(_pair(one, "--dataset") for one in given)
    if len(files) < len(given):
        raise InvalidInput("--dataset gives two files the same name; give every dataset its own")
    named = [_pair(one, "--id") if "=" in one else ("", one) for one in ids]
    columns = {name: column for own, column in named for name in ([own] if own else files)}
    if unknown := [name for name in columns if name not in files]:
        raise InvalidInput(f"--id: there is no dataset called {unknown[0]}; name one that --dataset gives")
    return tuple(Dataset(name, Path(path), columns.get(name)) for name, path in files.items())


def _pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not value:
        raise InvalidInput(f"{option} {text[:80]!a}: write NAME=VALUE, as in --dataset patients=rows.parquet")
    return toml.Table({"name": name}, option, "", ("name",)).label("name"), value
