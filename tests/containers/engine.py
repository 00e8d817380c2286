"""A container engine for the tests: the one that runs, or one that is installed and started here, on Debian as root.

Whatever is particular to the machine the tests run on stays in this file: where no image registry can be reached, the base
image is made of Debian packages, with the machine's own certificates and package index, so that pip works in a build.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PUBLIC_BASE = "python:3.12-slim"
OWN_BASE = "secfc-test-base:latest"
PACKAGES = ("docker.io", "docker-compose", "debootstrap", "iptables", "ca-certificates")
HELP = (
    "the container tests need Docker: install and start it, or run them as root on Debian, where they do so themselves"
)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NEWER_SUITE = "trixie"  # its docker-compose is version 2, Debian 12's is 1.29


def run(
    *call: str | Path, timeout: float = 600, check: bool = True, **options: object
) -> subprocess.CompletedProcess[str]:
    """A command with its output; what it said is in the failure."""
    done = subprocess.run(list(map(str, call)), capture_output=True, text=True, timeout=timeout, check=False, **options)  # type: ignore[call-overload]
    if check and done.returncode != 0:
        raise AssertionError(
            f"{' '.join(map(str, call))}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    return done


def runs() -> bool:
    """Whether an engine answers."""
    return shutil.which("docker") is not None and run("docker", "info", check=False, timeout=60).returncode == 0


def start() -> subprocess.Popen[bytes] | None:
    """See to it that an engine runs; the process, if it had to be started and is to be ended."""
    if runs():
        return None
    if os.geteuid() != 0:
        pytest.exit(HELP, returncode=2)
    if shutil.which("dockerd") is None or shutil.which("docker-compose") is None:
        _install()
    path = Path(tempfile.gettempdir()) / "secfc-dockerd.log"
    with open(path, "wb") as log:
        daemon = subprocess.Popen(["dockerd"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not runs():
        if daemon.poll() is not None or time.monotonic() > deadline:
            daemon.kill()
            pytest.exit(f"dockerd does not start, see {path}; {HELP}", returncode=2)
        time.sleep(0.5)
    return daemon


def stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(60)
    except subprocess.TimeoutExpired:
        daemon.kill()


def _install() -> None:
    if shutil.which("apt-get") is None:
        pytest.exit(HELP, returncode=2)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "-q", "update", env=environment)
    run("apt-get", "-q", "install", "-y", "--no-install-recommends", *PACKAGES, env=environment, timeout=1200)


# --- the base image ------------------------------------------------------------------------------------------------------


def base() -> str:
    """The image to build on: SECFC_TEST_BASE, the public one where it can be had, else one of our own making."""
    if named := os.environ.get("SECFC_TEST_BASE"):
        return named
    for image in (PUBLIC_BASE, OWN_BASE):
        if run("docker", "image", "inspect", image, check=False).returncode == 0:
            return image
    try:
        if run("docker", "pull", PUBLIC_BASE, check=False, timeout=300).returncode == 0:
            return PUBLIC_BASE
    except subprocess.TimeoutExpired:
        pass
    _make_base()
    return OWN_BASE


def _make_base() -> None:
    if os.geteuid() != 0:
        pytest.exit(f"no registry can be reached, and a base image is made as root only; {HELP}", returncode=2)
    if shutil.which("debootstrap") is None:
        _install()
    with tempfile.TemporaryDirectory(prefix="secfc-base-") as name:
        root = Path(name) / "root"
        run(
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv,ca-certificates",
            _suite(),
            root,
            timeout=1800,
        )
        shutil.copyfile(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
        (root / "etc" / "pip.conf").write_text(_pip_settings())
        for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(root / waste, ignore_errors=True)
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as pack:
            run("docker", "import", "-", OWN_BASE, stdin=pack.stdout)
        assert pack.returncode == 0


def _suite() -> str:
    """This machine's Debian, whose key and mirror work here."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return fields.get("VERSION_CODENAME", "").strip('"') or "bookworm"


def _pip_settings() -> str:
    """Of this machine's pip configuration what also works inside a container: its index, if it is one on the network."""
    told = run(sys.executable, "-m", "pip", "config", "list", check=False).stdout
    made = configparser.ConfigParser(interpolation=None)
    made["global"] = {"cert": str(CERTIFICATES)}
    for line in told.splitlines():
        key, _, value = line.partition("=")
        option, value = key.rpartition(".")[2], value.strip("'\"")
        if option in ("index-url", "extra-index-url", "trusted-host") and "file:" not in value:
            made["global"][option] = value
    lines = [f"{option} = {value}" for option, value in made["global"].items()]
    return "[global]\n" + "\n".join(lines) + "\n"


# --- compose -------------------------------------------------------------------------------------------------------------


def compose_v1() -> list[str] | None:
    """The command of version 1.29, or None."""
    found = shutil.which("docker-compose")
    told = run(found, "version", "--short", check=False).stdout if found else ""
    return [found] if found and told.startswith("1.29") else None


def compose_v2(folder: Path) -> list[str] | None:
    """The command of version 2: docker's own plugin, else the program of a newer Debian, unpacked in `folder`."""
    if run("docker", "compose", "version", check=False).returncode == 0:
        return ["docker", "compose"]
    found = shutil.which("docker-compose")
    if found and compose_v1() is None:
        return [found]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    mirror = _mirror()
    if not mirror:
        return None
    options = _apt_aside(folder, mirror)
    run("apt-get", *options, "update", cwd=folder)
    run("apt-get", *options, "download", "docker-compose", cwd=folder)
    run("dpkg-deb", "-x", next(folder.glob("docker-compose_*.deb")), folder / "unpacked")
    program = next((folder / "unpacked").rglob("cli-plugins/docker-compose"))
    return [str(program)] if run(program, "version", check=False).returncode == 0 else None


def _mirror() -> str:
    """Where this machine's apt gets Debian from."""
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        words = path.read_text(encoding="utf-8").split() if path.exists() else []
        for word in words:
            if "://" in word and word.rstrip("/").endswith("/debian"):
                return word
    return ""


def _apt_aside(folder: Path, mirror: str) -> list[str]:
    """apt with lists of its own: nothing of the machine's own apt changes."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (folder / "sources.list").write_text(f"deb {signed}{mirror} {NEWER_SUITE} main\n")
    paths = {
        "Etc::sourcelist": folder / "sources.list",
        "Etc::sourceparts": "/dev/null",
        "State::Lists": folder / "lists",
    }
    paths["Cache"] = folder / "cache"
    return ["-q", *(part for name, path in paths.items() for part in ("-o", f"Dir::{name}={path}"))]
