"""
Render the chart's parts as plain manifests: `python -m tools.manifests`, with helm in .cache/bin or on the PATH.

The chart in deploy/helm is the one place where these manifests are written. Each rendered file carries a digest of
itself and of the chart, so that a test without helm notices when one of them was changed alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "kafka-log-cleaner"
TARGET = ROOT / "deploy" / "kubernetes"
MANIFESTS = {
    "sidecar": ("writer", "writer.enabled=true"),
    "monitoring": ("writer", "monitoring.enabled=true"),
    "cronjob": ("clean-archive", "archive.enabled=true"),
    "strimzi-job": ("strimzi", "strimzi.brokers[0].name=my-cluster-broker-0,strimzi.brokers[0].id=0"),
}
"""By file: the release's name, and the values that differ from the chart's."""

_MARK = "# Made of deploy/helm by `python -m tools.manifests`, "


def helm() -> str | None:
    """Return the path of helm 3; None if it is not here."""
    return shutil.which("helm", path=f"{ROOT / '.cache' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")


def template(program: str, release: str, *options: str) -> str:
    """
    Return what helm renders, without its comments on where that comes from.

    Raises:
        subprocess.CalledProcessError: helm refuses; `stderr` says why.
    """
    command = [program, "template", release, str(CHART), "--kube-version", "1.29.0", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents = (each.split("\n", 1)[1] for each in text.split("---\n")[1:] if each.startswith("# Source: "))
    with_values = (each for each in documents if any(not line.startswith("#") for line in each.splitlines()))
    return "".join(f"---\n{each}" for each in with_values)


def manifest(program: str, name: str) -> str:
    """Return a plain manifest as it has to be: the template's head, the digest, the documents."""
    release, values = MANIFESTS[name]
    lines = (line.rstrip() for line in template(program, release, "--set", values).splitlines())
    body = "".join(f"{line}\n" for line in lines)
    head = (CHART / "templates" / f"{name}.yaml").read_text().split("\n{{-")[0].split("\n---\n")[0]
    comments = "".join(f"{line}\n" for line in head.splitlines()[1:])
    return marked(comments, body)


def marked(comments: str, body: str) -> str:
    """Put a manifest together; its digest tells the chart and this text."""
    digest = hashlib.sha256(f"{comments}{body}".encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(CHART)} {len(content)}\n".encode() + content)
    return f"{comments}#\n{_MARK}{digest.hexdigest()[:16]}\n{body}"


def is_in_step(text: str) -> bool:
    """Tell whether neither a manifest nor the chart was changed since it was rendered."""
    head, _, body = text.partition("---\n")
    comments, mark, _ = head.partition(f"#\n{_MARK}")
    return bool(mark) and marked(comments, f"---\n{body}") == text


def main() -> int:
    """Write them; returns the exit code."""
    program = helm()
    if program is None:
        print("helm is not here: tools/prepare helm", file=sys.stderr)
        return 1
    for name in MANIFESTS:
        (TARGET / f"{name}.yaml").write_text(manifest(program, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
