"""A small job of real processes that is brought to a moment, so that a fault can hit it there.

The moments:

    joining    client-2 has joined, client-4 is not started yet
    sharing    all have joined; nothing gets through to client-1 and client-2, so the exchange cannot end (with private
               membership that of the tables of row IDs, which comes first); with relayed clients the server is slow instead
    round      the third request is answered
    re-ask     client-3 and client-4 were killed, client-4 came back, and the round is asked again of all that are left
    finishing  the last round is done; labels are on their way, and held up

`client-2` is the one that faults hit. All talk to the server, and to client-1 and client-2, through a `Link`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secfc import exits
from secfc.local import Local
from tests.faults.link import Link
from tests.integration import helpers

MOMENTS = ("joining", "sharing", "round", "re-ask", "finishing")
VICTIM, GATED, LATE, LOST = "client-2", "client-1", "client-4", "client-3"
CLUSTERS, ROUNDS = 5, 6
DEADLINES = {"--join-timeout": "240", "--share-timeout": "240", "--round-timeout": "120"}
CELL_SECONDS = 400.0  # a cell that takes longer hangs
SIZES = (150, 200, 1, 149)


@dataclass
class Staged(Local):
    """A local federation in which one party may be started otherwise than the rest."""

    options: dict[str, list[str]] = field(default_factory=dict)
    surroundings: dict[str, dict[str, str]] = field(default_factory=dict)
    lies: dict[str, str] = field(default_factory=dict)
    meddling: str = ""  # how the server misbehaves

    def start(self, party: str, *options: str) -> subprocess.Popen[bytes]:
        if party in self.lies:
            return self._start_liar(party)
        if party == "server" and self.meddling:
            return self._start_meddling()
        common, self.environment = self.environment, self.environment | self.surroundings.get(party, {})
        try:
            return super().start(party, *self.options.get(party, []), *options)
        finally:
            self.environment = common

    def _start_liar(self, party: str) -> subprocess.Popen[bytes]:
        files = ["--kit", self.kit(party), "--data", self.folder / f"{party}.parquet", "--out", self.labels_file(party)]
        return self._start_as(party, ["tests.integration.liar", "--lie", self.lies[party], *map(str, files)])

    def _start_meddling(self) -> subprocess.Popen[bytes]:
        files = ["--kit", str(self.kit("server")), "--out", str(self.folder), *self.server_options]
        return self._start_as("server", ["tests.integration.misbehaving", self.meddling, *files])

    def _start_as(self, party: str, module: list[str]) -> subprocess.Popen[bytes]:
        call = [sys.executable, "-m", *module]
        with open(self.log(party), "ab") as log:
            self.processes[party] = subprocess.Popen(
                [*call, "--log-format", "json"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        return self.processes[party]


class PortTaken(Exception):
    """Another process took a port between its choice and its use: nothing to do with the fault; try again."""


class Scene:
    """One job on its way to a moment."""

    def __init__(self, folder: Path, moment: str, stack: ExitStack, sizes: tuple[int, ...] = SIZES, **settings: Any):
        self.moment, self.first = moment, VICTIM
        self.errors: list[str] = []  # last words of whoever ended in an error
        self.liars: list[str] = []  # who must be named as one
        self.parts = helpers.split(helpers.mixture(sum(sizes), 6, CLUSTERS + 1, seed=5), sizes)
        wishes = {"dropouts": 1, "precision": 8, "segments": 1, "max_rounds": ROUNDS} | settings
        plain = helpers.describe(self.parts, CLUSTERS, **wishes)
        dialled = [name for name in ("server", GATED, VICTIM) if plain.dialled(name)]
        self.links = {name: stack.enter_context(Link(plain.party(name).bind)) for name in dialled}
        made = helpers.readdressed(plain, {name: link.address for name, link in self.links.items()})
        deadlines = [text for pair in DEADLINES.items() for text in pair]
        folder.mkdir(parents=True)
        environment = {"SECFC_THREADS": "1"}
        options = ["--write-ids"] if made.job.membership == "private" else []
        options += ["--open-centers", "clients"] if made.job.centers == "clients" else []
        self.site = Staged(made, folder, server_options=deadlines, client_options=options, environment=environment)
        self.site.prepare(self.parts)
        stack.callback(self.site.stop)
        self.started = time.monotonic()

    def reach(self) -> None:
        """Start everybody and come to the moment."""
        getattr(self, "_" + self.moment.replace("-", "_"))()

    def leave(self) -> None:
        """The fault is there: let the job go on."""
        if self.moment == "joining":
            self.site.start(LATE)
        if self.moment == "sharing":
            self._hold_shares(False)
        if self.moment == "re-ask":
            self.site.start(LOST)
        if self.moment == "finishing":
            self.links["server"].shut = None
            self.links["server"].gate.set()

    def until(self, look: Any, what: str) -> None:
        def look_around() -> Any:
            for name, process in self.site.processes.items():
                if process.poll() == exits.UNAVAILABLE and "cannot listen" in self.site.last_words(name):
                    raise PortTaken(f"{name} found its port taken")
            return look()

        helpers.until(look_around, what, CELL_SECONDS / 2)

    def _all(self, *, but: str = "") -> None:
        for party in ("server", *self.site.federation.roster):
            if party != but:
                self.site.start(party)

    def _joining(self) -> None:
        self._all(but=LATE)
        self.until(lambda: self._joined(self.first), f"{self.first} joins")

    def _joined(self, name: str) -> bool:
        lines = self.site.events("server")
        return any(line["event"] == "joined" and line.get("client") == name for line in lines)

    def _hold_shares(self, hold: bool) -> None:
        """Nothing gets through to two clients; where all goes through the server, it is only slow."""
        for name in (GATED, VICTIM):
            if name not in self.links:
                self.links["server"].delay = 0.5 if hold else 0.0
            elif hold:
                self.links[name].gate.clear()
            else:
                self.links[name].gate.set()

    def _sharing(self) -> None:
        self._hold_shares(True)
        self._all()
        phase = "union" if self.site.federation.job.membership == "private" else "sharing"
        self.until(lambda: helpers.said(self.site, "server", phase), f"{phase} begins")

    def _round(self, number: int = 2) -> None:
        self._all()
        self.until(lambda: helpers.in_rounds(self.site, number), f"round {number}")

    def _re_ask(self) -> None:
        self._round()
        for name in (LOST, LATE):
            self.site.processes[name].kill()
            self.site.processes[name].wait()
        self.until(self._waits, "the server waits for the lost")
        self.site.start(LATE)
        asked = len(self._asked())
        self.until(lambda: len(self._asked()) > asked, "the round is asked again")

    def _waits(self) -> bool:
        lines = self.site.events("server")
        return any(line["event"] == "waiting" and line.get("phase") == "rounds" for line in lines)

    def _asked(self) -> list[int]:
        """The attempts that client-1 has been asked for: while the server waits there are no new ones. The next is a first
        attempt if the clients were killed between two rounds."""
        return [line["attempt"] for line in self.site.events(GATED) if line["event"].startswith("round ")]

    def _finishing(self) -> None:
        """Slow from the start, so that the server's words are in its log before the labels are through."""
        link = self.links["server"]
        link.delay, link.shut = 0.3, self._finished
        self._all()
        self.until(self._finished, "the last round")

    def _finished(self) -> bool:
        return helpers.said(self.site, "server", "finished") is not None
