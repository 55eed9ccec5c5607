"""The examples for containers and Kubernetes: valid, as hardened as they can be, and with their warning first."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cleaner.app.configuration import load_settings
from cleaner.cleaning.round.memory_budget import MemoryBudget
from cleaner.cli.main import make_parser
from cleaner.config.table import BROKER_SETTINGS
from cleaner.config.values import CleanerConfig
from cleaner.errors import ConfigError
from cleaner.present.http.web_config import load
from cleaner.storage.fs.file_system import FileSystem
from tests.deploy.dockerfile import read_stages
from tests.deploy.installed import ROOT
from tests.deploy.tools import python_tool

DEPLOY = ROOT / "deploy"
# monitoring.yaml has kinds that are not Kubernetes' own: test_helm.py.
KUBERNETES = sorted(set((DEPLOY / "kubernetes").glob("*.yaml")) - {DEPLOY / "kubernetes" / "monitoring.yaml"})
# Written by `tools.manuals`: pages of the commands, which say themselves what they are for.
WRITTEN = {DEPLOY / "man", DEPLOY / "completion"}
EXAMPLES = [
    ROOT / "Dockerfile",
    *(
        path
        for path in sorted(DEPLOY.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent not in WRITTEN
    ),
]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every container of the Kubernetes examples: whose file, its pod's spec, and itself."""
    for path in KUBERNETES:
        for document in yaml.safe_load_all(path.read_text()):
            spec = document.get("spec", {})
            spec = spec.get("jobTemplate", {}).get("spec", spec).get("template", {}).get("spec")
            for container in [*spec.get("initContainers", ()), *spec["containers"]] if spec else ():
                yield path.name, spec, container


@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_example_says_first_what_it_is_not_for(example: Path) -> None:
    """Nobody copies an example without having read it. JSON has no comments: there it is the description."""
    lines = example.read_text().splitlines()
    assert "live broker" in (" ".join(lines[:4]) if example.suffix == ".json" else lines[0])


def test_examples_are_clean_for_yamllint() -> None:
    """All of them, with warnings counted as errors."""
    yamllint = python_tool("yamllint", "yamllint")
    command = [yamllint, "--strict", "--config-file", DEPLOY / ".yamllint.yaml", DEPLOY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


# Native sidecars came with 1.29.
@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize("example", KUBERNETES, ids=_name)
def test_kubernetes_example_fits_the_schema(example: Path, version: str) -> None:
    """Every document, no unknown field."""
    command = [python_tool("kubernetes-validate", "kubernetes-validate"), "-k", version, "--strict", example]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    documents = example.read_text().count("\n---\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed ") == documents


def test_kubernetes_example_with_a_misspelt_field_is_noticed(tmp_path: Path) -> None:
    """The check above sees a slip of the pen."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(KUBERNETES[0].read_text().replace("restartPolicy:", "restartPolcy:"))
    command = [python_tool("kubernetes-validate", "kubernetes-validate"), "--strict", bad]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode != 0


def test_kubernetes_containers_may_do_nothing_special() -> None:
    """Not root, no capability, no token; ours with a read-only root and a limit of memory, none of the CPU."""
    seen = 0
    for where, pod, container in _containers():
        rights = container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] is True, where
        assert pod["securityContext"]["runAsUser"] == (1001 if "strimzi" in where else 1000), where
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert pod["automountServiceAccountToken"] is False, where
        assert rights["allowPrivilegeEscalation"] is False, where
        assert rights["capabilities"] == {"drop": ["ALL"]}, where
        if container["image"].startswith("cleaner:"):
            seen += 1
            assert rights["readOnlyRootFilesystem"] is True, where
            assert list(container["resources"]["limits"]) == ["memory"], where
    assert seen == len(KUBERNETES)


def test_compose_service_may_do_nothing_special() -> None:
    """The same for docker compose; its port is published on this host's loopback only."""
    service = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]["cleaner"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"]["core"] == 0
    assert not service["user"].startswith("0")
    assert [port for port in service["ports"] if not port.startswith("127.0.0.1:")] == []


def _memory_limits() -> Iterator[tuple[str, int]]:
    """Bytes that each example leaves the process: its limit, less what its /tmp may take of it."""
    units = {"m": 1 << 20, "Mi": 1 << 20, "g": 1 << 30, "Gi": 1 << 30, "G": 1 << 30}

    def bytes_of(text: str) -> int:
        number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()  # type: ignore[union-attr]
        return int(number) * units[unit]

    for where, pod, container in _containers():
        if container["image"].startswith("cleaner:"):
            volumes = {each["name"]: each["emptyDir"] for each in pod["volumes"] if "emptyDir" in each}
            mounted = [volumes[each["name"]] for each in container["volumeMounts"] if each["name"] in volumes]
            in_memory = sum(bytes_of(each["sizeLimit"]) for each in mounted if each["medium"] == "Memory")
            yield where, bytes_of(container["resources"]["limits"]["memory"]) - in_memory
    service = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]["cleaner"]
    (scratch,) = (re.search(r"size=(\w+)", each)[1] for each in service["tmpfs"])  # type: ignore[index]
    yield "compose", bytes_of(service["mem_limit"]) - bytes_of(scratch)
    drop_in = (DEPLOY / "systemd" / "cleaner.service.d" / "log-dirs.conf").read_text()
    yield "systemd", bytes_of(re.search(r"^#MemoryMax=(\w+)$", drop_in, re.MULTILINE)[1])  # type: ignore[index]


@pytest.mark.parametrize(("where", "limit_bytes"), list(_memory_limits()), ids=lambda value: str(value))
def test_memory_limit_of_an_example_fits_the_budget(where: str, limit_bytes: int) -> None:
    """With the default settings on many processors, and a tenth more: the kernel's own memory counts too."""
    needed = MemoryBudget.of(CleanerConfig(configured_pipeline_threads=4)).total
    assert needed * 11 // 10 <= limit_bytes, where


def _settings_of_examples() -> Iterator[tuple[str, dict[str, str]]]:
    environment = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]["cleaner"][
        "environment"
    ]
    yield "compose", {name: str(value) for name, value in environment.items()}
    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / "sidecar.yaml").read_text()):
        if document["kind"] == "ConfigMap":
            lines = document["data"]["cleaner.properties"].splitlines()
            yield "sidecar", dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize(("where", "settings"), list(_settings_of_examples()), ids=lambda value: str(value)[:8])
def test_metrics_beyond_loopback_have_tls_and_a_password(where: str, settings: dict[str, str]) -> None:
    """An example that listens on all addresses names a web.config."""
    as_keys = {key.lower().replace("_", ".").removeprefix("cleaner."): value for key, value in settings.items()}
    assert not as_keys["http.listen"].startswith("127."), where
    assert as_keys["http.web.config.file"]


@pytest.mark.parametrize(("where", "settings"), list(_settings_of_examples()), ids=lambda value: str(value)[:8])
def test_settings_of_an_example_are_taken(where: str, settings: dict[str, str], tmp_path: Path) -> None:
    """The daemon finds no mistake in them, and nothing it does not know."""
    known = set(BROKER_SETTINGS)
    variables = {f"CLEANER_{key.removeprefix('cleaner.').upper().replace('.', '_').replace('-', '_')}" for key in known}
    assert set(settings) - known - variables == set()
    here = {key: value.replace("/data", str(tmp_path)) for key, value in settings.items()}
    file = tmp_path / "cleaner.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in here.items() if key in known))
    loaded = load_settings(file, (), {key: value for key, value in here.items() if key in variables})
    assert list(loaded.warnings) == []
    assert loaded.config.http_listen == "0.0.0.0:9404"
    assert [str(path) for path in loaded.config.log_dirs] == [str(tmp_path)]


def _command_lines() -> Iterator[tuple[str, str]]:
    """Every call of the cleaner in an example, as a shell would get it."""
    for where, _, container in _containers():
        words = [*container.get("command", ()), *container.get("args", ())]
        if container["image"].startswith("cleaner:") and words:
            yield where, " ".join(words) if "cleaner" in " ".join(words) else f"cleaner {' '.join(words)}"
        for probe in ("startupProbe", "livenessProbe"):
            if probe in container:
                yield where, " ".join(container[probe]["exec"]["command"])
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        for line in unit.read_text().splitlines():
            if line.startswith("ExecStart="):
                yield unit.name, line
    for stage in ("slim", "spark"):
        for step in read_stages((ROOT / "Dockerfile").read_text())[stage]:
            if step.name in ("CMD", "HEALTHCHECK"):
                words = json.loads(step.rest[step.rest.index("[") :])
                yield "Dockerfile", " ".join(["cleaner", *(word for word in words if word != "cleaner")])


@pytest.mark.parametrize(("where", "line"), list(_command_lines()))
def test_command_line_of_an_example_is_understood(where: str, line: str) -> None:
    """Commands and options are ours, today's."""
    words = shlex.split(re.split(r"\bcleaner (?=[a-z])", line)[-1].partition("||")[0])
    assert make_parser().parse_args(words).command == words[0], where


def test_sample_of_the_web_config_has_no_password_to_forget(tmp_path: Path) -> None:
    """What stands there is no hash, so a start with it fails."""
    sample = tmp_path / "web.yaml"
    sample.write_text((DEPLOY / "compose" / "web.sample.yaml").read_text())
    with pytest.raises(ConfigError, match="prometheus"):
        load(FileSystem(), sample)
