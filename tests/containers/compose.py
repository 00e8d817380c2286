"""Driving compose and containers from tests: every wait has an end, every project is removed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.containers.engine import run


class Composer:
    """One compose project with settings of its own."""

    def __init__(self, command: Sequence[str], file: Path, *, base: str, **settings: str) -> None:
        self.project = f"secfctest{secrets.token_hex(4)}"
        self._command, self._file = command, file
        self.settings = {"BASE": base, **settings}

    def call(self, *words: str) -> list[str]:
        return [*self._command, "-p", self.project, "-f", str(self._file), *words]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | self.settings

    def run(self, *words: str, timeout: float = 600, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run(*self.call(*words), timeout=timeout, check=check, env=self.environment, cwd=self._file.parent)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """In the background, as at a terminal: it can be interrupted."""
        return subprocess.Popen(
            self.call(*words),
            env=self.environment,
            cwd=self._file.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def container(self, service: str) -> str:
        """The id of a service's container, running or not; empty if there is none."""
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return run("docker", "ps", "-aq", "--no-trunc", *filters).stdout.strip()

    def logs(self, service: str) -> str:
        container = self.container(service)
        if not container:
            return ""
        done = run("docker", "logs", container)
        return done.stdout + done.stderr

    def inspect(self, service: str) -> dict[str, Any]:
        return inspect(self.container(service))

    def network(self) -> str:
        """The one network of a project that has one."""
        filters = ["--filter", f"label=com.docker.compose.project={self.project}"]
        (name,) = run("docker", "network", "ls", "--format", "{{.Name}}", *filters).stdout.split()
        return name

    def remove(self) -> None:
        """Containers, volumes and networks of the project."""
        self.run("down", "-v", "--remove-orphans", "-t", "2", check=False, timeout=300)


def inspect(container: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(run("docker", "inspect", container).stdout)[0]
    return made


def interrupt(process: subprocess.Popen[str], timeout: float = 120) -> str:
    """Ctrl-C, and what it wrote until it ended."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=timeout)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
