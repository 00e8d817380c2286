"""Submitted jobs for tests: a federation that stays, kits, and jobs that are signed for real."""

from __future__ import annotations

from pathlib import Path

from secfc.agreement import federation as federations
from secfc.agreement import submission
from secfc.agreement.federation import Federation
from secfc.agreement.submission import Submission
from secfc.pki import kit, provision, submitting
from secfc.pki.kit import Kit

FEDERATION = """
name = "{name}"
privacy = 1
[server]
address = "server.test:1"
[[client]]
name = "a"
address = "a.test:1"
[[client]]
name = "b"
address = "b.test:1"
[[client]]
name = "c"
address = "c.test:1"
"""
JOB = 'dataset = "patients"\nk = 2\nstarts = 1\nfeatures = ["age", "weight"]\nbound = 16.0\nmax_rows = 100\n'
NOW = 2_000_000_000.0


def standing(name: str = "trial") -> Federation:
    return federations.parse(FEDERATION.format(name=name), "federation.toml")


class Kits:
    """Kits of all parties, and of analyst and b, who may submit."""

    def __init__(self, folder: Path, name: str = "trial") -> None:
        self.federation, self.folder = standing(name), folder
        provision.provision(self.federation, folder, submitters=("analyst", "b"))

    def __getitem__(self, party: str) -> Kit:
        return kit.load(self.folder / party)


def signed(own: Kit, token: str = "t", text: str = JOB, *, clock: float = NOW, hours: float = 72.0) -> Submission:
    return submitting.sign(own, submission.parse(text, "job.toml"), token, hours=hours, clock=clock)
