"""Real clients that hold their shares elsewhere than in memory: the labels are those of central Lloyd."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from secfc.local import Local
from secfc_client.engines import trial
from tests.integration import helpers

SIZES = (300, 20000, 19700)


def make(tmp_path: Path, **settings: object) -> tuple[Local, helpers.Parts]:
    """Two clients with many rows, and one with few, which needs little memory but for its shares."""
    parts = helpers.split(helpers.mixture(sum(SIZES), 60, 4, seed=5), SIZES)
    made = helpers.describe(parts, 4, precision=8, **settings)
    return helpers.prepared(tmp_path, parts, made, client_options=["--no-report"]), parts


def least(site: Local) -> str:
    """The lowest --memory that the first client takes."""
    call = helpers.client_call(site.kit("client-1"), site.data_file("client-1"), site.labels_file("client-1"))
    code, _, err = helpers.outcome(helpers.launch([*call, "--memory", "1MiB"]))
    found = re.search(r"need (\d+)MiB before any shares are there", helpers.error_line(err))
    assert code == 2
    assert found
    return f"{int(found[1]) + 8}MiB"


@pytest.mark.slow
@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_shares_on_disk_and_a_kill_in_the_rounds(tmp_path: Path, uploads: str) -> None:
    site, parts = make(tmp_path, uploads=uploads)
    options = ["--memory", least(site)]
    state = site.kit("client-1") / "state"
    try:
        for party in ("server", "client-2", "client-3"):
            site.start(party)
        site.start("client-1", *options)
        helpers.until(lambda: helpers.in_rounds(site, 2), "the second request")
        assert sorted(path.name for path in state.glob("*.shares")) == ["client-2.shares", "client-3.shares"]
        site.processes["client-1"].kill()
        site.processes["client-1"].wait()
        site.start("client-1", *options)
        site.wait(300)
    finally:
        site.stop()
    assert helpers.said(site, "client-1", "shares are held on disk")
    resumed = helpers.said(site, "client-1", "resuming after a restart")
    assert resumed
    assert resumed["lacking"] == [], "what is kept was read again"
    helpers.check_labels(site, parts)
    assert not list(state.glob("*.shares*")), "nor what was still arriving"


def own_authority(folder: Path) -> dict[str, str]:
    """A certificate that everybody of a Dask cluster has and believes, as Dask is told of it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    signed = made.add_extension(x509.BasicConstraints(True, None), critical=True).sign(key, hashes.SHA256())
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(*formats))
    prefix, told = "DASK_DISTRIBUTED__COMM__TLS__", {}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        told |= {f"{prefix}{role}__CERT": str(folder / "cert.pem"), f"{prefix}{role}__KEY": str(folder / "key.pem")}
    return told | {f"{prefix}CA_FILE": str(folder / "cert.pem")}


@pytest.mark.slow
def test_shares_on_a_dask_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    """One client computes on real workers, over TLS, and one of them is killed between two rounds; another one comes."""
    parts = helpers.split(helpers.mixture(20_000, 24, 6, seed=7), (7000, 6000, 7000))
    made = helpers.describe(parts, 6, precision=8, uploads="masked")
    folder = tmp_path / "dask"
    folder.mkdir()
    certificates = own_authority(folder)
    site = helpers.prepared(tmp_path, parts, made, environment=certificates)
    try:
        with trial.running(folder, environment=certificates) as (cluster, url):
            assert url.startswith("tls://")
            for party in ("server", "client-2", "client-3"):
                site.start(party)
            site.start("client-1", "--engine", url)
            helpers.until(lambda: helpers.in_rounds(site, 2), "the second request")
            cluster.processes[1].kill()
            cluster.add_worker()
            site.wait(300)
    finally:
        site.stop()
    assert helpers.said(site, "client-1", "computing on a Dask cluster")
    assert helpers.said(site, "client-1", "a Dask worker was lost; asking again")
    helpers.check_labels(site, parts)


@pytest.mark.slow
def test_a_scheduler_that_dies_in_the_rounds_ends_the_client_that_can_go_on(tmp_path: Path) -> None:
    """It went on for ever, or ended as if it had a bug; Dask itself gives up after a minute."""
    parts = helpers.split(helpers.mixture(20_000, 24, 6, seed=7), (7000, 6000, 7000))
    site = helpers.prepared(tmp_path, parts, helpers.describe(parts, 6, precision=8, uploads="masked"))
    folder = tmp_path / "dask"
    folder.mkdir()
    try:
        with trial.running(folder) as (cluster, url):
            for party in ("server", "client-2", "client-3"):
                site.start(party)
            site.start("client-1", "--engine", url)
            helpers.until(lambda: helpers.in_rounds(site, 2), "the second request")
            cluster.processes[0].kill()
            assert site.processes["client-1"].wait(240) == 3
    finally:
        site.stop()
    assert "the Dask scheduler at" in helpers.text(site, "client-1")


@pytest.mark.slow
def test_the_demo_on_a_dask_cluster() -> None:
    program, job = "from secfc_client.cli import main; main()", ["--clients", "3", "--starts", "1", "--rows", "600"]
    call = [sys.executable, "-c", program, "demo", "--engine", "dask", *job, "--json"]
    code, out, err = helpers.outcome(helpers.launch(call))
    assert code == 0, err
    assert json.loads(out)["identical_to_central"]
