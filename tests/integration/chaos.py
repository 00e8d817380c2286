"""Kills, restarts and cut links at random moments, all from one seed, and a service manager that starts again what ended
with code 3."""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from secfc import exits
from secfc.local import Local
from tests.integration import helpers
from tests.integration.proxy import Proxy

MOMENTS = ("joined", "sharing", "rounds", "round 3", "round 8", "finished")  # what the server says
AGAIN_SECONDS = 1.0  # from an end with code 3 to the next start
LONG_SECONDS = 10.0  # some are away for longer than a round may take
STARTS = 8  # a party that has ended so often with code 3 makes no progress


class Line(Proxy):
    """A link on which every byte arrives `delay` seconds after it was sent, however many are on their way."""

    def __init__(self, target: str, delay: float) -> None:
        self.delay = delay
        super().__init__(target)

    def down(self) -> None:
        self.verdict = lambda _: "reset"
        self.cut()

    def up(self) -> None:
        self.verdict = lambda _: "pass"

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        threading.Thread(target=self._deliver, args=(under_way, source, sink), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                under_way.put((time.monotonic() + self.delay, data))
        under_way.put((time.monotonic() + self.delay, b""))

    @staticmethod
    def _deliver(under_way: queue.SimpleQueue[tuple[float, bytes]], source: socket.socket, sink: socket.socket) -> None:
        try:
            while True:
                due, data = under_way.get()
                time.sleep(max(due - time.monotonic(), 0.0))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
        except OSError:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it
                one.close()


@dataclass(frozen=True)
class Event:
    """`seconds` after the server has said `moment`, `what` happens to `party`; what is gone is back after `away` seconds."""

    moment: str
    seconds: float
    what: str  # "kill", "cut" or "down"
    party: str
    away: float


def plan(rng: random.Random, roster: Sequence[str], count: int) -> list[Event]:
    """So many events in the order of their moments, the first of them early enough to happen in any case; one kill of the
    server and one of a client are always among them."""
    parties = ["server", *roster]
    whats = [("kill", "server"), ("kill", rng.choice(list(roster)))]
    whats += [(rng.choice(("kill", "kill", "cut", "down")), rng.choice(parties)) for _ in range(count - len(whats))]
    rng.shuffle(whats)
    moments = [0, *sorted(rng.choices(range(len(MOMENTS)), k=count - 1))]
    return [
        Event(MOMENTS[at], round(rng.random() ** 2 / 2, 3), what, party, _absence(rng))
        for at, (what, party) in zip(moments, whats, strict=True)
    ]


def _absence(rng: random.Random) -> float:
    return LONG_SECONDS if rng.random() < 0.25 else round(rng.uniform(0.0, 4.0), 3)


class Manager:
    """Runs a job to its end through the events of a plan. Single-threaded: it looks, acts and looks again.

    A process may end with 0, by our own kill, or with code 3 and one line; code 3 is started again with the same command.
    """

    def __init__(self, site: Local, lines: dict[str, Line], events: Sequence[Event]) -> None:
        self.site, self.lines, self.events = site, lines, list(events)
        self.happened: list[Event] = []
        self.errors: list[str] = []
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._ended: Counter[str] = Counter()
        self._down: set[str] = set()  # killed, or ended with code 3, and not started again yet
        self._reached: float | None = None  # when the moment of the next event was seen

    def run(self, seconds: float) -> None:
        """Fails if it takes longer than so many seconds, and names who still runs."""
        deadline = time.monotonic() + seconds
        self.site.start_all()
        while not self._over():
            self._return()
            self._strike()
            self._restart()
            running = [name for name, process in self.site.processes.items() if process.poll() is None]
            assert time.monotonic() < deadline, f"after {seconds:.0f} s still running: {', '.join(running)}"
            time.sleep(0.02)

    def _over(self) -> bool:
        codes = [process.poll() for process in self.site.processes.values()]
        return not self._due and not self._down and all(code == 0 for code in codes)

    def _return(self) -> None:
        now = time.monotonic()
        ready = [act for due, act in self._due if due <= now]
        self._due = [(due, act) for due, act in self._due if due > now]
        for act in ready:
            act()

    def _strike(self) -> None:
        if not self.events:
            return
        if self._reached is None:
            if helpers.said(self.site, "server", self.events[0].moment) is None:
                return
            self._reached = time.monotonic()
        if time.monotonic() >= self._reached + self.events[0].seconds:
            event, self._reached = self.events.pop(0), None
            if self._happens(event):
                self.happened.append(event)

    def _happens(self, event: Event) -> bool:
        if event.what == "kill":
            return self._kill(event.party, event.away)
        line = self.lines[event.party]
        if event.what == "cut":
            line.cut()
        else:
            line.down()
            self._later(event.away, line.up)
        return True

    def _kill(self, party: str, away: float) -> bool:
        process = self.site.processes.get(party)
        if process is None or process.poll() is not None:
            return False
        process.kill()
        if process.wait() >= 0:
            return False  # it was quicker; how it ended is judged like any other end
        if self._through(party):
            self.site.processes.pop(party)
        else:
            self._down.add(party)
            self._later(away, lambda: self._start(party))
        return True

    def _through(self, party: str) -> bool:
        """Whether a client had nothing left to do: started again it would begin a new job."""
        secrets = self.site.kit(party) / "state" / "secrets.json"
        return party != "server" and self.site.labels_file(party).exists() and not secrets.exists()

    def _restart(self) -> None:
        for party, process in self.site.processes.items():
            code = process.poll()
            if party in self._down or code in (None, 0):
                continue
            words = self.site.last_words(party)
            assert code == exits.UNAVAILABLE, f"{party} ended with {code}: {words}"
            assert words.startswith("error: "), f"{party} ended with {code} without a clear line: {words}"
            self.errors.append(f"{party}: {words}")
            self._ended[party] += 1
            assert self._ended[party] < STARTS, f"{party} keeps on ending with {code}: {words}"
            self._down.add(party)
            self._later(AGAIN_SECONDS, lambda party=party: self._start(party))  # type: ignore[misc]

    def _start(self, party: str) -> None:
        self._down.discard(party)
        self.site.start(party)

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        self._due.append((time.monotonic() + seconds, act))
