"""The faults: what each does to a job at a moment, and how it is fixed again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from secfc import exits
from tests.faults.link import BASE_RATE
from tests.faults.scene import GATED, MOMENTS, SIZES, VICTIM, Scene

DOWN_SECONDS = 2.0  # between a kill and the restart


class NotRun(Exception):
    """The fault cannot be made here; says why."""


@dataclass(frozen=True)
class Fault:
    """`apply(scene)` makes it and returns how to fix it; None: there is nothing to fix. `before` comes before the start."""

    name: str
    apply: Callable[[Scene], Callable[[], None] | None]
    before: Callable[[Scene, ExitStack], None] | None = None
    never: dict[str, str] = field(default_factory=dict)  # moments in which it makes no sense, and why
    settings: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = SIZES
    without: str = "none"  # the row that is the same without the fault


def nothing(_: Scene) -> None:
    return None


# --- processes ---------------------------------------------------------------------------------------------------------


def restart(scene: Scene, party: str) -> None:
    """Start a party that we ended with the same command, unless it had nothing left to do."""
    state = scene.site.kit(party) / "state"
    if party != "server" and not (state / "secrets.json").exists():
        scene.site.processes.pop(party)  # it was through, and the server knew: this would be a new job
    else:
        scene.site.start(party)


def kill(party: str, number: signal.Signals) -> Callable[[Scene], None]:
    def apply(scene: Scene) -> None:
        process = scene.site.processes[party]
        process.send_signal(number)
        process.wait(60)
        time.sleep(DOWN_SECONDS)
        restart(scene, party)

    return apply


def kill_together(*parties: str) -> Callable[[Scene], None]:
    """Kill −9 all of them at once; none is back before all are gone."""

    def apply(scene: Scene) -> None:
        for party in parties:
            scene.site.processes[party].kill()
        for party in parties:
            scene.site.processes[party].wait(60)
        time.sleep(DOWN_SECONDS)
        for party in parties:
            restart(scene, party)

    return apply


def freeze(scene: Scene, party: str = VICTIM) -> Callable[[], None]:
    process, started = scene.site.processes[party], time.monotonic()
    process.send_signal(signal.SIGSTOP)

    def thaw() -> None:
        time.sleep(max(started + 30.0 - time.monotonic(), 0))
        process.send_signal(signal.SIGCONT)

    return thaw


# --- links -------------------------------------------------------------------------------------------------------------


def for_seconds(seconds: float, apply: Callable[[Scene], Callable[[], None]]) -> Callable[[Scene], Callable[[], None]]:
    """A fault that passes by itself."""

    def timed(scene: Scene) -> Callable[[], None]:
        timer = threading.Timer(seconds, apply(scene))
        timer.start()
        return timer.join

    return timed


def tune(**knobs: float | bool) -> Callable[[Scene], Callable[[], None]]:
    """Of the links of the server and of the victim; fixed, they are as before."""

    def apply(scene: Scene) -> Callable[[], None]:
        links = [scene.links[name] for name in ("server", VICTIM) if name in scene.links]
        before = [(link, knob, getattr(link, knob)) for link in links for knob in knobs]
        for link, knob, _ in before:
            setattr(link, knob, knobs[knob])

        def fix() -> None:
            for link, knob, value in before:
                setattr(link, knob, value)

        return fix

    return apply


def for_good(apply: Callable[[Scene], object]) -> Callable[[Scene], None]:
    """A fault that stays."""

    def applied(scene: Scene) -> None:
        apply(scene)

    return applied


def refuse(scene: Scene) -> Callable[[], None]:
    links = [scene.links[name] for name in ("server", VICTIM) if name in scene.links]
    for link in links:
        link.refuse()

    def fix() -> None:
        for link in links:
            link.accept()

    return fix


def meanwhile(
    first: Callable[[Scene], Callable[[], None]], second: Callable[[Scene], None]
) -> Callable[[Scene], Callable[[], None]]:
    """The second fault happens, and is over, while the first lasts."""

    def apply(scene: Scene) -> Callable[[], None]:
        fix = first(scene)
        second(scene)
        return fix

    return apply


# --- a full disk ---------------------------------------------------------------------------------------------------------


def small_disk(scene: Scene, stack: ExitStack, party: str) -> None:
    """That party keeps its state on a file system of 1 MiB."""
    disk = scene.site.folder / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    call = [str(mount), "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if mount is None or subprocess.run(call, capture_output=True, check=False).returncode:
        raise NotRun("no small file system can be mounted here (it takes root)")
    stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)
    scene.site.options[party] = ["--state", str(disk / "state")]
    (scene.site.kit(party) / "state").symlink_to(disk / "state")


def small_client_disk(scene: Scene, stack: ExitStack) -> None:
    """The victim writes its labels there too."""
    small_disk(scene, stack, VICTIM)
    labels = scene.site.folder / "disk" / "labels.parquet"
    scene.site.options[VICTIM] += ["--out", str(labels)]
    scene.site.labels_file(VICTIM).symlink_to(labels)
    if scene.moment == "joining":
        fill(VICTIM, "No space left on device")(scene)
        scene.first = GATED  # the victim will not get so far


def small_server_disk(scene: Scene, stack: ExitStack) -> None:
    small_disk(scene, stack, "server")


def fill(party: str, complaint: str) -> Callable[[Scene], Callable[[], None]]:
    """Leave not a byte free; fixed once the party has said so and ended."""

    def apply(scene: Scene) -> Callable[[], None]:
        filler = scene.site.folder / "disk" / "filler"
        try:
            with open(filler, "ab", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass

        def fix() -> None:
            process = scene.site.processes[party]
            process.wait(200)
            words = scene.site.last_words(party)
            assert process.returncode == exits.UNAVAILABLE, f"it ended with {process.returncode}: {words}"
            assert complaint in words, words
            scene.errors.append(words)
            filler.unlink()
            scene.site.start(party)

        return fix

    return apply


# --- clocks ----------------------------------------------------------------------------------------------------------------


def faketime() -> Path:
    """libfaketime: the one that is there, or on Debian, as root, one that is installed for it."""
    found = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if found is None and os.geteuid() == 0 and (apt := shutil.which("apt-get")) is not None:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for call in ([apt, "-q", "update"], [apt, "-q", "install", "-y", "--no-install-recommends", "faketime"]):
            subprocess.run(call, capture_output=True, timeout=600, check=False, env=environment)
        found = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if found is None:
        raise NotRun("libfaketime is not installed (Debian package: faketime)")
    return found


def own_clock(scene: Scene, stack: ExitStack) -> None:
    """The victim's wall clock is what a file says (libfaketime); its monotonic clock is left alone, as by a real jump."""
    library = faketime()
    clock = scene.site.folder / "clock"
    clock.write_text("+0\n")
    scene.site.surroundings[VICTIM] = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def jump(seconds: int) -> Callable[[Scene], None]:
    def apply(scene: Scene) -> None:
        (scene.site.folder / "clock").write_text(f"{seconds:+d}\n")
        if scene.moment in (
            "round",
            "re-ask",
        ):  # also with new connections, whose certificates are checked by that clock
            scene.links["server"].cut()

    return apply


# --- liars -----------------------------------------------------------------------------------------------------------------


def lying(kind: str) -> Callable[[Scene, ExitStack], None]:
    def before(scene: Scene, _: ExitStack) -> None:
        if find_spec("tests.integration.liar") is None:
            raise NotRun("this version does not look for liars")
        if kind:
            scene.site.lies[VICTIM] = kind

    return before


def caught(scene: Scene) -> None:
    scene.liars = [VICTIM]


# --- relay ---------------------------------------------------------------------------------------------------------------


def meddling(scene: Scene, _: ExitStack) -> None:
    scene.site.meddling = "relay"


def noticed(scene: Scene) -> None:
    """Whoever gets an envelope that the server has altered, repeated or put elsewhere has said so."""

    def said() -> bool:
        lines = [line for name in scene.site.federation.roster for line in scene.site.events(name)]
        return any("does not carry faithfully" in line["event"] for line in lines)

    scene.until(said, "somebody notices")


# --- sealed rounds -----------------------------------------------------------------------------------------------------


def who(scene: Scene, role: str) -> str:
    """Of the committee that compares now: its leader, another member, or a client that is on none."""
    committees = [line["members"] for line in scene.site.events("server") if line["event"] == "committee"]
    leader, member = sorted(committees[-1])
    alive = [name for name in scene.site.federation.roster if scene.site.processes[name].poll() is None]
    other = next(name for name in alive if name not in (leader, member))
    return {"leader": leader, "member": member, "other": other}[role]


def of_role(role: str, fault: Callable[[Scene, str], Callable[[], None] | None]) -> Callable[[Scene], Any]:
    def apply(scene: Scene) -> Callable[[], None] | None:
        return fault(scene, who(scene, role))

    return apply


def kill_at_once(scene: Scene, party: str) -> None:
    kill(party, signal.SIGKILL)(scene)


HONEST, SIX = "none (open uploads, six clients)", (150, 100, 100, 1, 99, 50)
OPEN = {"uploads": "open", "liars": 1, "dropouts": 1}
ONLY_ROUNDS = dict.fromkeys(("joining", "sharing", "finishing"), "a client lies in what it uploads, in a round") | {
    "re-ask": "a lie is what makes the server ask again"
}
HIDDEN, PRIVATE = "none (private membership)", {"membership": "private"}
SEEN, CENTRES = "none (centres)", {"centers": "clients"}
CARRIED, RELAYED = "none (relayed)", {"relay": "only"}
BOTH_WAYS, MIXED = "none (mixed: two of four clients dial out)", {"dial_out": (1, 4)}
COVERED, SEALED = "none (sealed)", {"uploads": "sealed"}
ONLY_WHILE_COMPARING = dict.fromkeys(("joining", "sharing", "finishing"), "sealed rounds differ in the rounds only")
ONLY_THE_END = dict.fromkeys(MOMENTS[:-1], "centres are opened after the last round")
FAULTS = [
    Fault("none", nothing),
    Fault("client: kill −9, started again", kill(VICTIM, signal.SIGKILL)),
    Fault("client: frozen for 30 s", freeze),
    Fault("client: stopped and started again", kill(VICTIM, signal.SIGTERM)),
    Fault("server: kill −9, started again", kill("server", signal.SIGKILL)),
    Fault("links: down for 5 s", for_seconds(5.0, refuse)),
    Fault("links: 2 s late, for 10 s", for_seconds(10.0, tune(delay=2.0))),
    Fault("links: half the bandwidth", for_good(tune(rate=BASE_RATE / 2))),
    Fault("links: cut in a message", for_good(tune(cut_next=True))),
    Fault("client: disk full", fill(VICTIM, "No space left on device"), before=small_client_disk),
    Fault("server: disk full", fill("server", "disk is full"), before=small_server_disk),
    Fault("client and server: kill −9 together, started again", kill_together("server", VICTIM)),
    Fault(
        "links: down for 5 s, client killed and started again meanwhile",
        meanwhile(for_seconds(5.0, refuse), kill(VICTIM, signal.SIGKILL)),
    ),
    Fault("client: clock jumps +1 h", jump(3600), before=own_clock),
    Fault("client: clock jumps −1 h", jump(-3600), before=own_clock),
    Fault(HONEST, nothing, before=lying(""), never=ONLY_ROUNDS, settings=OPEN, sizes=SIX),
    *(
        Fault(f"liar: {name}", caught, lying(kind), ONLY_ROUNDS, OPEN, SIX, HONEST)
        for kind, name in (("random", "random values"), ("one", "one entry wrong"), ("offset", "constant offset"))
    ),
    Fault(HIDDEN, nothing, settings=PRIVATE),
    Fault(
        "private membership: client kill −9, started again",
        kill(VICTIM, signal.SIGKILL),
        settings=PRIVATE,
        without=HIDDEN,
    ),
    Fault(
        "private membership: server kill −9, started again",
        kill("server", signal.SIGKILL),
        settings=PRIVATE,
        without=HIDDEN,
    ),
    Fault(SEEN, nothing, never=ONLY_THE_END, settings=CENTRES),
    Fault(
        "centres: client kill −9, started again",
        kill(VICTIM, signal.SIGKILL),
        never=ONLY_THE_END,
        settings=CENTRES,
        without=SEEN,
    ),
    Fault(
        "centres: server kill −9, started again",
        kill("server", signal.SIGKILL),
        never=ONLY_THE_END,
        settings=CENTRES,
        without=SEEN,
    ),
    Fault(CARRIED, nothing, settings=RELAYED),
    *(
        Fault(f"relayed: {name}", apply, settings=RELAYED, without=CARRIED)
        for name, apply in (
            ("client kill −9, started again", kill(VICTIM, signal.SIGKILL)),
            ("server kill −9, started again", kill("server", signal.SIGKILL)),
            ("links: down for 5 s", for_seconds(5.0, refuse)),
            ("links: cut in a message", for_good(tune(cut_next=True))),
        )
    ),
    Fault(
        "relayed: the server alters, repeats and misdirects envelopes",
        noticed,
        meddling,
        {"joining": "nothing is carried before all have joined"},
        RELAYED,
        without=CARRIED,
    ),
    Fault(BOTH_WAYS, nothing, settings=MIXED),
    *(
        Fault(f"mixed: {name}", apply, settings=MIXED, without=BOTH_WAYS)
        for name, apply in (
            ("client kill −9, started again", kill(VICTIM, signal.SIGKILL)),
            ("client that dials out kill −9, started again", kill(GATED, signal.SIGKILL)),
            ("server kill −9, started again", kill("server", signal.SIGKILL)),
            ("links: down for 5 s", for_seconds(5.0, refuse)),
        )
    ),
    Fault(COVERED, nothing, never=ONLY_WHILE_COMPARING, settings=SEALED),
    *(
        Fault(f"sealed: {name}", apply, never=ONLY_WHILE_COMPARING, settings=SEALED, without=COVERED)
        for name, apply in (
            ("leader kill −9, started again", of_role("leader", kill_at_once)),
            ("member kill −9, started again", of_role("member", kill_at_once)),
            ("client on no committee kill −9, started again", of_role("other", kill_at_once)),
            ("server kill −9, started again", kill("server", signal.SIGKILL)),
            ("member frozen for 30 s", of_role("member", freeze)),
            ("links: down for 5 s", for_seconds(5.0, refuse)),
            ("links: cut in a message", for_good(tune(cut_next=True))),
        )
    ),
]
