"""What is in deploy/ and docker-compose.yml says what it should; nothing here needs a container engine or a cluster."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from secfc import exits

ROOT = Path(__file__).parents[2]
PARTIES = ("server", "client")
KIT = ("federation.toml", "ca.pem", "cert.pem", "key.pem", "roster.json")
OPTIONAL = ("policy.toml", "link.key")  # of a client
VERSIONS = ("1.29", "1.33", "1.37")


def manifests(party: str) -> list[dict[str, Any]]:
    folder = ROOT / "deploy" / "kubernetes" / party
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [one for name in names for one in yaml.safe_load_all((folder / name).read_text())]


def of_kind(party: str, kind: str) -> dict[str, Any]:
    return next(one for one in manifests(party) if one["kind"] == kind)


def pod(party: str) -> dict[str, Any]:
    found: dict[str, Any] = of_kind(party, "Job")["spec"]["template"]["spec"]
    return found


class Composed(yaml.SafeLoader):
    """Knows the tag by which compose takes away what an earlier file says."""


Composed.add_constructor("!reset", lambda loader, node: loader.construct_sequence(node))


# --- kubernetes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("party", PARTIES)
def test_manifests_are_what_the_api_takes(party: str, version: str) -> None:
    for one in manifests(party):
        kubernetes_validate.validate(one, version, strict=True)


def test_the_schema_would_notice() -> None:
    job = of_kind("client", "Job")
    job["spec"]["template"]["spec"]["containers"][0]["startupProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def kubectl(*words: str | Path, cwd: Path) -> list[dict[str, Any]]:
    """What it would send to a cluster."""
    call = ["kubectl", *words]
    done = subprocess.run(call, cwd=cwd, capture_output=True, text=True, timeout=60, check=True)
    return list(yaml.safe_load_all(done.stdout))


@needs_kubectl
def test_a_client_that_only_dials_out_has_no_service_and_nothing_comes_in() -> None:
    made = kubectl("kustomize", ".", cwd=ROOT / "deploy" / "kubernetes" / "client-dial-out")
    by_kind = {one["kind"]: one for one in made}
    assert "Service" not in by_kind
    assert "ingress" not in by_kind["NetworkPolicy"]["spec"]
    assert "Ingress" in by_kind["NetworkPolicy"]["spec"]["policyTypes"], "what is not allowed is denied"
    (container,) = by_kind["Job"]["spec"]["template"]["spec"]["containers"]
    assert not any("bind" in argument for argument in container["args"])
    assert "ports" not in container
    assert "--require-policy" in container["args"]
    for one in made:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)


@needs_kubectl
@pytest.mark.parametrize("party", PARTIES)
def test_a_party_that_stays_is_a_deployment_of_one_pod(party: str) -> None:
    made = kubectl("kustomize", ".", cwd=ROOT / "deploy" / "kubernetes" / f"{party}-standing")
    for one in made:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
    assert not [one for one in made if one["kind"] == "Job"]
    (deployment,) = [one["spec"] for one in made if one["kind"] == "Deployment"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"}), "one process has the state"
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    check_arguments_of_a_party_that_stays(deployment["template"]["spec"]["containers"][0]["args"])
    for of_one_job in (one for one in manifests(party) if one["kind"] != "Job"):
        names = {one["metadata"]["name"] for one in made if one["kind"] == of_one_job["kind"]}
        assert of_one_job["metadata"]["name"] in names


def check_arguments_of_a_party_that_stays(arguments: list[str]) -> None:
    """The program itself parses them, and ends where it finds no kit."""
    from click.testing import CliRunner

    from secfc_client.__main__ import command as client
    from secfc_server.__main__ import command as server

    program, *rest = arguments
    assert "--dataset" in " ".join(rest) or program.endswith("server")
    assert "--require-policy" in rest or program.endswith("server")
    plain = [one for one in rest if "log-format" not in one]
    error = CliRunner().invoke(server if program.endswith("server") else client, plain).exception
    assert "federation.toml" in str(error), "it got as far as the kit"


def test_compose_and_systemd_run_parties_that_stay(tmp_path: Path) -> None:
    node = yaml.safe_load((ROOT / "deploy" / "site" / "node.yml").read_text())["services"]["client"]
    dials = yaml.load((ROOT / "deploy" / "site" / "node-dial-out.yml").read_text(), Composed)["services"]["client"]
    assert dials["command"] == [one for one in node["command"] if not one.startswith("--bind")]
    assert len(dials["command"]) == len(node["command"]) - 1, "a client without an address refuses --bind"
    assert (dials["restart"], dials["ports"], dials["healthcheck"]) == ("unless-stopped", [], {"disable": True})
    hub = yaml.safe_load((ROOT / "deploy" / "server" / "standing.yml").read_text())["services"]["server"]
    assert node["restart"] == hub["restart"] == "unless-stopped"
    check_arguments_of_a_party_that_stays([one.replace("${DATASET:-patients}", "patients") for one in node["command"]])
    lines = (ROOT / "deploy" / "site" / "node.conf").read_text().splitlines()
    (reset, started) = [line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")]
    assert reset == "", "else systemd would have two programs"
    check_arguments_of_a_party_that_stays(started.split())


@needs_kubectl
@pytest.mark.parametrize("party", PARTIES)
def test_kustomize_renders_what_the_api_takes(party: str) -> None:
    made = kubectl("kustomize", ".", cwd=ROOT / "deploy" / "kubernetes" / party)
    for one in made:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "secfc"
    job = next(one for one in made if one["kind"] == "Job")["spec"]["template"]["spec"]
    assert {one["image"] for one in job["containers"] + job["initContainers"]} == {"registry.example/secfc:0.1"}


def steps(party: str) -> list[list[str]]:
    """The commands at the top of a kustomization, each up to its first pipe."""
    lines = (ROOT / "deploy" / "kubernetes" / party / "kustomization.yaml").read_text().splitlines()
    return [shlex.split(line.removeprefix("#").partition("|")[0]) for line in lines if line.startswith("#   kubectl")]


@needs_kubectl
@pytest.mark.parametrize("optional", [(), OPTIONAL[:1], OPTIONAL])
@pytest.mark.parametrize("party", PARTIES)
def test_the_secret_holds_the_whole_kit(party: str, optional: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever is in it, above all policy.toml: a site's rules must not get lost on the way."""
    (tmp_path / "kit" / "state").mkdir(parents=True)
    for name in (*KIT, *optional):
        (tmp_path / "kit" / name).write_text(name)
    _, (_, *words) = steps(party)
    (secret,) = kubectl(*words, cwd=tmp_path)
    kubernetes_validate.validate(secret, VERSIONS[-1], strict=True)
    assert set(secret["data"]) == {*KIT, *optional}
    assert secret["metadata"]["namespace"] == "secfc"
    assert secret["metadata"]["name"] == pod(party)["volumes"][0]["secret"]["secretName"]


@pytest.mark.parametrize("optional", [(), OPTIONAL])
@pytest.mark.parametrize("party", PARTIES)
def test_a_pod_copies_the_whole_kit(party: str, optional: tuple[str, ...], tmp_path: Path) -> None:
    """A secret is mounted as links to files of a hidden folder; the copies are the user's only."""
    (tmp_path / "secret" / "..data").mkdir(parents=True)
    (tmp_path / "kit").mkdir()
    for name in (*KIT, *optional):
        (tmp_path / "secret" / "..data" / name).write_text(name)
        (tmp_path / "secret" / name).symlink_to(f"..data/{name}")
    shell, option, script = pod(party)["initContainers"][0]["command"]
    here = script.replace("/secret/", f"{tmp_path}/secret/").replace(" /kit/", f" {tmp_path}/kit/")
    subprocess.run([shell, option, here], timeout=60, check=True)
    copies = {path.name: (path.read_text(), path.stat().st_mode & 0o777) for path in (tmp_path / "kit").iterdir()}
    assert copies == {name: (name, 0o600) for name in (*KIT, *optional)}


def test_sites_do_not_start_without_a_policy() -> None:
    """Neither in Kubernetes, nor with compose, nor as a systemd service."""
    site = yaml.safe_load((ROOT / "deploy" / "site" / "docker-compose.yml").read_text())["services"]["client"]
    unit = (ROOT / "deploy" / "site" / "secfc-client.service").read_text()
    started = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split()
    for arguments in (pod("client")["containers"][0]["args"], site["command"], started):
        assert "--require-policy" in arguments


@pytest.mark.parametrize("party", PARTIES)
def test_pods_are_contained_and_looked_after(party: str) -> None:
    spec = pod(party)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["automountServiceAccountToken"] is False
    for one in spec["containers"] + spec["initContainers"]:
        context = one["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in one["resources"]["limits"]
        assert {"cpu", "memory"} <= set(one["resources"]["requests"])
    main = spec["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert main[probe]["exec"]["command"][:2] == ["secfc", "health"]
    mounted = {mount["name"]: mount for mount in main["volumeMounts"]}
    assert mounted["kit"]["readOnly"] is True
    assert "secret" not in mounted  # only its copy, which belongs to the user alone


@pytest.mark.parametrize("party", PARTIES)
def test_names_in_manifests_fit_together(party: str) -> None:
    job, service, policy = (of_kind(party, kind) for kind in ("Job", "Service", "NetworkPolicy"))
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    port = job["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == policy["spec"]["ingress"][0]["ports"][0]["port"] == port
    claims = {one["metadata"]["name"] for one in manifests(party) if one["kind"] == "PersistentVolumeClaim"}
    volumes = pod(party)["volumes"]
    assert {v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v} == claims


DASK = ROOT / "deploy" / "kubernetes" / "client-dask"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dask_cluster_is_what_the_api_takes_and_contained(version: str) -> None:
    made = list(yaml.safe_load_all((DASK / "dask.yaml").read_text()))
    for one in made:
        kubernetes_validate.validate(one, version, strict=True)
    pods = [one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment"]
    assert len(pods) == 2
    for spec in pods:
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["envFrom"] == [{"configMapRef": {"name": "secfc-dask-tls"}}]
        assert any("tls" in word for word in container["command"]), "shares travel encrypted"


@needs_kubectl
def test_a_client_on_a_dask_cluster_is_rendered() -> None:
    made = kubectl("kustomize", ".", cwd=DASK)
    for one in made:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
    (container,) = next(one for one in made if one["kind"] == "Job")["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--engine=tls://secfc-dask:8786"
    assert {"--require-policy", "--bind=0.0.0.0:7000"} <= set(container["args"])


def test_a_dask_cluster_beside_a_client_has_the_same_certificate_and_a_network_of_its_own() -> None:
    folder = ROOT / "deploy" / "site"
    more, site = (yaml.safe_load((folder / name).read_text()) for name in ("dask.yml", "docker-compose.yml"))
    services = more["services"]
    assert services["client"]["command"] == [*site["services"]["client"]["command"], "--engine=tls://scheduler:8786"]
    for name in ("scheduler", "worker-1", "worker-2"):
        assert services[name]["networks"] == ["dask"]
        assert services[name]["read_only"] is True
        assert services[name]["environment"].items() >= services["client"]["environment"].items()
    assert more["networks"]["dask"]["internal"] is True


# --- compose -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return made


def test_a_volume_is_mounted_by_its_party_only(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name in ("folders", "provision", "summary"):
            assert service["network_mode"] == "none"
            continue
        number = name.removeprefix("client-")
        expected = [f"{name}:/kit", f"./out/{name}:/out"]
        if name != "server":
            expected.insert(1, f"${{DATA_{number}:-{name}}}:/data:ro")
        assert service["volumes"] == expected
        assert "user" not in service  # the image's, which is nobody in particular


def test_profiles_start_3_5_or_10_clients(compose: dict[str, Any]) -> None:
    def started(profile: str) -> int:
        clients = [s for name, s in compose["services"].items() if name.startswith("client-")]
        return sum(profile in s.get("profiles", [profile]) for s in clients)

    assert [started(f"clients-{n}") for n in (3, 5, 10)] == [3, 5, 10]


def test_every_service_is_contained(compose: dict[str, Any]) -> None:
    for folder in ("site", "server"):
        one = yaml.safe_load((ROOT / "deploy" / folder / "docker-compose.yml").read_text())
        compose = {"services": {**compose["services"], **{f"{folder}/{n}": s for n, s in one["services"].items()}}}
    assert len(compose["services"]) == 16
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged")
    roots = {name for name, service in compose["services"].items() if service.get("user") == "0:0"}
    assert roots == {"folders", "summary"}


def test_settings_are_all_used_and_documented(compose: dict[str, Any]) -> None:
    text, page = (ROOT / "docker-compose.yml").read_text(), (ROOT / "docs" / "operations.md").read_text()
    for line in (ROOT / ".env").read_text().splitlines():
        name = line.removeprefix("# ").partition("=")[0]
        if "=" in line and name.replace("_", "").isalnum() and name.isupper():
            assert f"${{{name}:-" in text or f"${{{name}-" in text, name
            assert f"`{name.rstrip('0123456789')}" in page, name


@pytest.mark.parametrize("party", PARTIES)
def test_kubernetes_starts_again_what_waiting_may_heal_and_nothing_else(party: str) -> None:
    spec = of_kind(party, "Job")["spec"]
    ends = [rule for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert [rule["onExitCodes"]["values"] for rule in ends] == [[exits.USAGE, exits.FAILED]]
    assert ends[0]["onExitCodes"]["containerName"] == party
    assert spec["backoffLimit"] >= 100  # with up to six minutes between two starts, for somebody who is hours late


# --- systemd -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["site/secfc-client.service", "server/secfc-server.service"])
def test_systemd_starts_again_what_waiting_may_heal_and_nothing_else(unit: str) -> None:
    settings = dict(line.split("=", 1) for line in (ROOT / "deploy" / unit).read_text().splitlines() if "=" in line)
    assert settings["Restart"] == "on-failure"
    assert [int(code) for code in settings["RestartPreventExitStatus"].split()] == [exits.USAGE, exits.FAILED]
    assert float(settings["RestartSec"]) * 5 > 10  # else systemd gives up after five starts in ten seconds
    assert int(settings["LimitNOFILE"]) >= 65536


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", ["site/secfc-client.service", "server/secfc-server.service"])
def test_systemd_knows_every_line(unit: str, tmp_path: Path) -> None:
    """Verified with a program that exists; the hardening is rated by systemd itself (0 is best, 10 worst)."""
    text = (ROOT / "deploy" / unit).read_text()
    program = next(line for line in text.splitlines() if line.startswith("ExecStart=")).split()[0].partition("=")[2]
    assert program == f"/opt/secfc/bin/{Path(unit).stem}"
    path = tmp_path / Path(unit).name
    path.write_text(text.replace(program, "/bin/true").replace("User=secfc", "User=daemon"))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rating = ["systemd-analyze", "security", "--offline=true", "--threshold=15", path]
    done = subprocess.run(rating, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-300:]
