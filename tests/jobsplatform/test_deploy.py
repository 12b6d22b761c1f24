"""`deploy/`: each file is read as its program reads it, and says what the platform needs."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").iterdir())
KNOBS = set(re.findall(r'env(?:\.\w+)?\("(\w+)"', (ROOT / "jobsplatform/settings.py").read_text("utf-8")))
NOT_OURS = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PATH", "PROMETHEUS_MULTIPROC_DIR"}


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one]


def assert_knobs_exist(names: set[str]) -> None:
    assert {name.removesuffix("_FILE") for name in names} - NOT_OURS <= KNOBS


def assert_command_parses(words: list[str]) -> None:
    """A command line of ours is one that its command takes; gunicorn's is gunicorn's with our configuration."""
    if words[0] == "gunicorn" or "gunicorn" in words[:3]:
        assert words[words.index("-c") + 1] == "gunicorn.conf.py"
        return
    name, arguments = words[words.index("manage.py") + 1], words[words.index("manage.py") + 2 :]
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    parser.parse_args(arguments)


# Docker


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_image_is_built_from_hashes_and_runs_as_nobody_in_particular() -> None:
    found = instructions()
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "CMD"}
    assert {name for name, _ in found} <= known
    words = dict(found)
    assert words["USER"] == "10001:10001"
    assert words["STOPSIGNAL"] == "SIGTERM"
    assert any("--require-hashes" in text for name, text in found if name == "RUN")
    assert all(":" in text for name, text in found if name == "FROM")
    assert [name for name, _ in found].index("USER") > max(i for i, (n, _) in enumerate(found) if n == "RUN")


def test_everything_that_the_image_copies_is_there_and_not_ignored() -> None:
    allowed = {
        line.removeprefix("!")
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }
    sources = [
        word
        for name, text in instructions()
        if name == "COPY" and not text.startswith("--from")
        for word in text.split()[:-1]
    ]
    assert sources
    assert set(sources) <= allowed
    assert all((ROOT / source).exists() for source in sources)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    assert packages <= set(sources)


def test_the_image_s_settings_and_command_are_ours() -> None:
    words = dict(instructions())
    assert_knobs_exist(set(re.findall(r"(\w+)=", words["ENV"])))
    assert_command_parses(yaml.safe_load(words["CMD"]))


# Compose


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = documents(DEPLOY / "compose.yaml")[0]["services"]
    return found


OURS = ("migrate", "web", "worker", "dispatcher", "reaper")


@pytest.mark.parametrize("name", OURS)
def test_each_service_writes_nowhere_and_runs_a_command_of_ours(name: str, services: dict[str, Any]) -> None:
    service = services[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert_command_parses(service["command"])
    assert_knobs_exist(set(service["environment"]))


def test_everything_starts_after_the_migrations_and_they_after_the_server(services: dict[str, Any]) -> None:
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in OURS[1:]:
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        assert services[name]["healthcheck"]["test"][0] == "CMD"


def test_secrets_are_files_and_every_one_that_is_named_is_declared(services: dict[str, Any]) -> None:
    declared = documents(DEPLOY / "compose.yaml")[0]["secrets"]
    used = {secret for service in services.values() for secret in service.get("secrets", ())}
    assert used <= set(declared)
    assert {Path(one["file"]).parts[0] for one in declared.values()} == {"secrets"}
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    assert not re.search(r"(PASSWORD|SECRET_KEY|PEPPER): (?!/run)", text)


def test_a_service_is_given_longer_to_end_than_it_drains(services: dict[str, Any]) -> None:
    assert int(services["web"]["stop_grace_period"].rstrip("s")) > settings.JOBS_DRAIN_SECONDS
    command = services["worker"]["command"]
    grace = int(command[command.index("--grace") + 1])
    assert int(services["worker"]["stop_grace_period"].rstrip("s")) > grace


# Kubernetes


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in KUBERNETES:
        for one in documents(path):
            if one["kind"] in ("Deployment", "Job"):
                yield f"{one['kind']} {one['metadata']['name']}", one["spec"]["template"]["spec"]


def test_every_manifest_is_one_and_the_kustomization_names_them_all() -> None:
    for path in KUBERNETES:
        for one in documents(path):
            assert {"apiVersion", "kind"} <= set(one)
    (kustomization,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert set(kustomization["resources"]) == {path.name for path in KUBERNETES} - {"kustomization.yaml"}


@pytest.mark.parametrize(("name", "pod"), list(pods()), ids=[name for name, _ in pods()])
def test_every_pod_runs_without_rights_and_with_limits(name: str, pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in container["resources"]["limits"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]} == {"tmp", "data", "secrets"}
    assert_command_parses(container["args"])


@pytest.mark.parametrize("name", ["web", "worker", "dispatcher", "reaper"])
def test_every_deployment_is_probed_where_it_listens_and_selects_its_own_pods(name: str) -> None:
    deployment = documents(DEPLOY / "kubernetes" / f"{name}.yaml")[0]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [value for key, value in container.items() if key.endswith("Probe")]
    assert {probe["httpGet"]["port"] for probe in probes} <= set(ports)
    paths = {probe["httpGet"]["path"] for probe in probes}
    assert paths == ({"/livez", "/readyz"} if name == "web" else {"/healthz"})
    if name != "web":
        assert str(ports["probe"]) in container["args"]
    # A database that is away restarts nobody: liveness asks none, and readiness is the web's alone.
    assert container["livenessProbe"]["httpGet"]["path"] in ("/livez", "/healthz")


def test_pods_are_given_longer_to_end_than_they_drain() -> None:
    worker = documents(DEPLOY / "kubernetes" / "worker.yaml")[0]["spec"]["template"]["spec"]
    arguments = worker["containers"][0]["args"]
    assert worker["terminationGracePeriodSeconds"] > int(arguments[arguments.index("--grace") + 1])
    web = documents(DEPLOY / "kubernetes" / "web.yaml")[0]["spec"]["template"]["spec"]
    assert web["terminationGracePeriodSeconds"] > settings.JOBS_DRAIN_SECONDS


def test_the_scaler_asks_a_route_of_ours_for_a_member_that_it_has() -> None:
    from django.urls import resolve

    from jobqueue.api.queues import SCALE

    _, scaled = documents(DEPLOY / "kubernetes" / "scale.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == "worker"
    (trigger,) = scaled["spec"]["triggers"]
    url = trigger["metadata"]["url"]
    assert resolve("/" + url.split("/", 3)[3]).route == "v1/queues/<str:queue>/scale"
    assert trigger["metadata"]["valueLocation"] in str(SCALE)
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    replicas = documents(DEPLOY / "kubernetes" / "worker.yaml")[0]["spec"]
    assert "replicas" not in replicas, "two would fight for it"


def test_the_configuration_names_knobs_and_no_secret() -> None:
    (config,) = documents(DEPLOY / "kubernetes" / "config.yaml")
    assert_knobs_exist(set(config["data"]))
    assert all(isinstance(value, str) for value in config["data"].values())
    assert not any(one["kind"] == "Secret" for path in KUBERNETES for one in documents(path))


def test_migrations_run_before_pods_of_a_new_version() -> None:
    (job,) = documents(DEPLOY / "kubernetes" / "migrate.yaml")
    assert job["kind"] == "Job"
    assert "pre-upgrade" in job["metadata"]["annotations"]["helm.sh/hook"]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


# systemd


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text("utf-8"))
    return parser


SERVICES = [path for path in UNITS if path.suffix == ".service"]


@pytest.mark.parametrize("path", SERVICES, ids=[path.stem for path in SERVICES])
def test_each_unit_is_confined_and_runs_a_command_of_ours(path: Path) -> None:
    service = unit(path)["Service"]
    assert service["User"] == "jobs"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert_command_parses(service["ExecStart"].split()[1:])
    assert_knobs_exist({pair.split("=")[0] for pair in service["Environment"].split()})
    assert unit(path)["Install"]["WantedBy"] == "jobsplatform.target"


@pytest.mark.needs("systemd-analyze")
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        text = path.read_text("utf-8").replace("/opt/jobsplatform/.venv/bin/python", sys.executable)
        text = text.replace("WorkingDirectory=/opt/jobsplatform", f"WorkingDirectory={ROOT}")
        (tmp_path / path.name).write_text(text.replace("file:/opt/jobsplatform", f"file:{ROOT}"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "jobsplatform" in line]
    assert ours == []


# PgBouncer and Patroni


def test_the_pooler_is_in_transaction_mode_and_waits_no_longer_than_it_should() -> None:
    parser = configparser.ConfigParser()
    parser.read_string((DEPLOY / "pgbouncer" / "pgbouncer.ini").read_text("utf-8"))
    pooler = parser["pgbouncer"]
    assert pooler["pool_mode"] == "transaction"
    assert int(pooler["query_wait_timeout"]) <= 10
    assert pooler["auth_type"] == "scram-sha-256"
    assert list(parser["databases"])


@pytest.mark.needs("pgbouncer")
def test_pgbouncer_starts_with_it(tmp_path: Path) -> None:
    import os
    import socket

    from tests.pooler import _wait_until_open

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "userlist.txt").write_text('"jobs" "x"\n')
    text = (DEPLOY / "pgbouncer" / "pgbouncer.ini").read_text("utf-8")
    text = text.replace("6432", str(port)).replace("/etc/pgbouncer", str(tmp_path)) + "unix_socket_dir =\n"
    (tmp_path / "pgbouncer.ini").write_text(text)
    command = [shutil.which("pgbouncer") or "", "-q", str(tmp_path / "pgbouncer.ini")]
    if os.getuid() == 0:
        for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
            folder.chmod(0o755)
        command[1:1] = ["-u", "nobody"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait_until_open(port, process)
    finally:
        process.terminate()
        process.wait(30)


def test_patroni_confirms_nothing_that_only_the_primary_has() -> None:
    (patroni,) = documents(DEPLOY / "patroni" / "patroni.yaml")
    shared = patroni["bootstrap"]["dcs"]
    assert shared["synchronous_mode"]
    assert shared["synchronous_mode_strict"]
    assert shared["loop_wait"] + 2 * shared["retry_timeout"] <= shared["ttl"], "Patroni's own rule"
    assert shared["postgresql"]["parameters"]["synchronous_commit"] == "on"
    text = (DEPLOY / "patroni" / "patroni.yaml").read_text("utf-8")
    assert "target_session_attrs=read-write" in text


# Prometheus


def test_prometheus_reads_the_rules_and_asks_with_a_token() -> None:
    (config,) = documents(DEPLOY / "prometheus" / "prometheus.yaml")
    for name in config["rule_files"]:
        assert (DEPLOY / "prometheus" / name).exists()
    (job,) = config["scrape_configs"]
    assert job["authorization"]["credentials_file"].startswith("/run/secrets/")
