"""How the tests run: the same way for everybody, or exploring from a seed that is told; in CI nothing may be skipped.

Hypothesis has two profiles. `same`, the default, draws the same examples at every run. `explore` (`make test-slow`) draws
new ones from a seed, which is printed at the start; with `--hypothesis-seed` it draws them again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from secfc import local
from tests import quarantine

_BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}  # machines may be busy
settings.register_profile("same", derandomize=True, **_BUSY)
settings.register_profile("explore", derandomize=False, **_BUSY)
settings.load_profile("same")  # before tests are imported: a test's settings take what they do not say from here


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed here, where processes of pytest-xdist and the plugin of hypothesis still get it."""
    if config.getoption("--hypothesis-profile") == "explore" and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(secrets.randbelow(10**9))


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    seed = config.getoption("--hypothesis-seed")
    if worker is None and seed is not None:
        config.get_terminal_writer().line(f"to draw the same examples again: --hypothesis-seed={seed}")
    if worker is not None:  # each worker takes ports of its own, since one that is free now may soon be the other's
        count, number = int(os.environ["PYTEST_XDIST_WORKER_COUNT"]), int(worker.removeprefix("gw"))
        local.PORTS = local.PORTS[number::count]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("quarantined"):
            item.add_marker(quarantine.may_fail(marker))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped has not shown what it is there to show, so it fails."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI", "").lower() in ("1", "true"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and in CI nothing may be: {reason}"
    return report
