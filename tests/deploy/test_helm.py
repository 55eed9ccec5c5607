"""
The chart, the plain manifests that are rendered from it, and what they tell the operator of Prometheus.

Without helm only what can be read: `python -m tools.manifests` leaves a digest in what it renders. The slow tests
render; `make manifests` runs them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import cleaner
from tests.deploy.tools import python_tool
from tools.manifests import CHART, MANIFESTS, ROOT, TARGET, helm, is_in_step, manifest, template

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
EVERYTHING = ",".join(values for _, values in MANIFESTS.values())
OTHERS = (
    "image=registry/cleaner:1,memory=2Gi,writer.webSecret=web,monitoring.labels.release=p,archive.schedule=1 1 * * *"
)


def _documents(name: str) -> dict[str, Any]:
    """Return a manifest's documents by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((TARGET / f"{name}.yaml").read_text())}


def _helm() -> str:
    program = helm()
    if program is None:
        pytest.skip("checks by helm NOT RUN: tools/prepare helm")
    return program


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_and_chart_were_not_changed_apart(name: str) -> None:
    """Rendered since the last change of either; a letter more, and it shows."""
    text = (TARGET / f"{name}.yaml").read_text()
    assert is_in_step(text), "run `python -m tools.manifests`, with helm"
    assert not is_in_step(text.replace("name: ", "name: x", 1))
    assert not is_in_step("\n".join(line for line in text.splitlines() if "Made of" not in line))


def test_chart_has_the_version_and_the_alerts_of_today() -> None:
    """Said once elsewhere."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == cleaner.__version__
    assert (CHART / "rules.yaml").resolve() == ROOT / "deploy" / "prometheus" / "rules.yaml"


def test_values_are_those_of_the_schema() -> None:
    """Each has a type; a misspelt one is refused."""
    jsonschema.validate(VALUES, SCHEMA)
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for name, part in VALUES.items():
        if isinstance(part, dict):
            assert set(SCHEMA["properties"][name]["properties"]) == set(part)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(VALUES | {name: part | {"enabeld": True}}, SCHEMA)


def test_monitor_finds_the_service_of_the_sidecar() -> None:
    """By its labels and the name of its port, with TLS and a password, under the job that the alerts look for."""
    sidecar, monitoring = _documents("sidecar"), _documents("monitoring")
    service, monitor = sidecar["Service"], monitoring["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["scheme"] == "https"
    assert set(endpoint["basicAuth"]) == {"username", "password"}
    secrets = [each["secret"]["secretName"] for each in _volumes(sidecar["StatefulSet"]) if "secret" in each]
    assert [endpoint["tlsConfig"]["ca"]["secret"]["name"]] == secrets
    assert {"targetLabel": "job", "replacement": "cleaner"} in endpoint["relabelings"]


def _volumes(workload: dict[str, Any]) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["volumes"]
    return volumes


def test_rule_has_the_alerts_as_prometheus_gets_them() -> None:
    """Templates in them are Prometheus's, not helm's."""
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text())
    assert _documents("monitoring")["PrometheusRule"]["spec"] == rules


@pytest.mark.slow
def test_chart_is_clean_for_helm() -> None:
    """Lint, warnings counted as errors, off and with everything on."""
    for options in ([], ["--set", EVERYTHING]):
        command = [_helm(), "lint", "--strict", CHART, "--kube-version", "1.29.0", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", MANIFESTS)
def test_plain_manifest_is_what_the_chart_renders(name: str) -> None:
    """To the letter."""
    assert manifest(_helm(), name) == (TARGET / f"{name}.yaml").read_text()


@pytest.mark.slow
def test_nothing_is_rendered_unless_asked_for() -> None:
    """Each part is off by default."""
    assert template(_helm(), "x") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", ["strimzi.brokers[0].id=0", "writer.enabeld=true", "memory=lots", "archive.seconds=1"]
)
def test_wrong_values_are_refused(values: str) -> None:
    """By the chart's schema."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        template(_helm(), "x", "--set", values)
    assert "values don't meet the specifications of the schema" in refused.value.stderr


@pytest.mark.slow
def test_all_parts_with_other_values_fit_the_schemas(tmp_path: Path) -> None:
    """Kubernetes' own, and those of the operator of Prometheus from its Go module."""
    brokers = "strimzi.brokers[1].name=other-0,strimzi.brokers[1].id=1"
    text = template(_helm(), "other", "--set", EVERYTHING, "--set", f"{OTHERS},{brokers}")
    documents = list(yaml.safe_load_all(text))
    ours = [each for each in documents if not each["apiVersion"].startswith("monitoring.coreos.com")]
    assert [each["kind"] for each in ours] == ["ConfigMap", "Service", "StatefulSet", "Job", "Job", "CronJob"]
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(ours))
    validate = [python_tool("kubernetes-validate", "kubernetes-validate"), "-k", "1.29", "--strict", path]
    done = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    schemas = _operator_schemas(tmp_path)
    for each in documents:
        if each not in ours:
            jsonschema.validate(each, schemas[each["kind"]])
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(each | {"spec": each["spec"] | {"endpionts": []}}, schemas[each["kind"]])
    assert {each["metadata"]["labels"].get("release") for each in documents if each not in ours} == {"p"}


def _operator_schemas(scratch: Path) -> dict[str, Any]:
    """Return the schemas of its kinds, closed to unknown fields."""
    (scratch / "go.mod").write_text("module scratch\n\ngo 1.22\n")
    module = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=scratch, check=True, capture_output=True, text=True)
    folder = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    found = {}
    for name in ("servicemonitors", "prometheusrules"):
        text = (folder / f"monitoring.coreos.com_{name}.yaml").read_text()
        crd = yaml.safe_load(text.replace("^(?i)", "(?i)^"))  # as Go writes it
        (version,) = crd["spec"]["versions"]
        found[crd["spec"]["names"]["kind"]] = _closed(version["schema"]["openAPIV3Schema"])
    return found


def _closed(schema: Any) -> Any:
    """Kubernetes prunes fields that a schema does not name; here they are mistakes."""
    if not isinstance(schema, dict):
        return [_closed(each) for each in schema] if isinstance(schema, list) else schema
    closed = {key: _closed(value) for key, value in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    # An object of which nothing is said (metadata) is checked elsewhere.
    return closed | {"additionalProperties": False} if is_object and "additionalProperties" not in schema else closed
