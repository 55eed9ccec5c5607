"""
A Dockerfile read, and its steps run in directories instead of a container engine's layers.

Knows the instructions that ours uses, and refuses others: what is not run is not proved.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_WITHOUT_STEPS = {"EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
_CERTIFICATES = "/run/certificates-of-this-machine.crt"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name in capitals, and the rest of its lines as one."""

    name: str
    rest: str


@dataclass
class Image:
    """
    What a stage leaves.

    Attributes:
        root: its files.
        environment, user, directory: what programs in it get.
        words: of HEALTHCHECK, ENTRYPOINT and CMD, as last set.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    user: str = "0:0"
    directory: str = "/"
    words: dict[str, list[str]] = field(default_factory=dict)


def read_stages(text: str) -> dict[str, list[Instruction]]:
    """Return each stage's instructions, FROM first, by its name."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    stages: dict[str, list[Instruction]] = {}
    for line in re.sub(r"\\\n\s*", " ", code).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.partition(" ")
        if name == "FROM":
            _, _, stage = rest.partition(" AS ")
            stages[stage] = []
        stages[stage].append(Instruction(name, rest.strip()))
    return stages


def build(text: str, target: str, context: Path, work: Path, bases: Mapping[str, Path]) -> Image:
    """
    Run the steps that a target needs, with the network as it is on this machine.

    Args:
        text: the Dockerfile.
        target: a stage's name.
        context: what COPY copies from.
        work: where each stage's root is made, by its name.
        bases: roots of the images that FROM names; copied, not changed.
    """
    stages = read_stages(text)
    work.mkdir(parents=True, exist_ok=True)
    built: dict[str, Image] = {}

    def stage(name: str) -> Image:
        if name not in built:
            built[name] = _build_stage(stages[name])
        return built[name]

    def _build_stage(steps: list[Instruction]) -> Image:
        base, _, name = steps[0].rest.partition(" AS ")
        image = Image(work / name)
        source = bases.get(base)
        if source is None:
            parent = stage(base)
            source = parent.root
            image = Image(work / name, dict(parent.environment), parent.user, parent.directory, dict(parent.words))
        subprocess.run(["cp", "-a", "--reflink=auto", source, image.root], check=True)
        for step in steps[1:]:
            _run_step(step, image, context, stage)
        return image

    return stage(target)


def run_in(image: Image, command: str) -> str:
    """Run a shell command in an image as its RUN would; returns what it printed."""
    # Copies: packages set up in there write to what they find, and must not find this machine's own files.
    certificates = os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
    script = f"""
set -e
mount --make-rprivate /
mount -t proc proc {image.root}/proc
mount -t tmpfs -o mode=755 tmpfs {image.root}/dev
for device in null zero full random urandom; do
    : > {image.root}/dev/$device
    mount --bind /dev/$device {image.root}/dev/$device
done
mount -t tmpfs -o mode=755 tmpfs {image.root}/run
cp {certificates} {image.root}{_CERTIFICATES}
cp /etc/resolv.conf {image.root}/etc/resolv.conf
exec chroot --userspec={image.user} {image.root} /bin/sh -c {shlex.quote(f"cd {image.directory} && {command}")}
"""
    network = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", script],
        env={**network, "PIP_CERT": _CERTIFICATES, **image.environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def _run_step(step: Instruction, image: Image, context: Path, stage: Callable[[str], Image]) -> None:
    if step.name == "RUN":
        run_in(image, step.rest)
    elif step.name == "COPY":
        words = shlex.split(step.rest)
        if words[0].startswith("--from="):
            _copy(stage(words[0].removeprefix("--from=")).root, words[1:-1], image, words[-1])
        else:  # .dockerignore keeps the caches of this checkout out
            _copy(context, words[:-1], image, words[-1], "__pycache__")
    elif step.name == "ENV":
        for assignment in shlex.split(step.rest):
            name, _, value = assignment.partition("=")
            for known, known_value in image.environment.items():
                value = value.replace(f"${known}", known_value)
            image.environment[name] = value
    elif step.name == "USER":
        image.user = step.rest
    elif step.name == "WORKDIR":
        image.directory = step.rest
        (image.root / step.rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif step.name in _WITHOUT_STEPS:
        _, _, words_of = step.rest.partition("CMD ") if step.name == "HEALTHCHECK" else ("", "", step.rest)
        image.words[step.name] = json.loads(words_of) if words_of.startswith("[") else words_of.split()
    else:
        raise ValueError(f"{step.name} is not known here")


def _copy(source: Path, names: list[str], image: Image, target: str, *ignored: str) -> None:
    """Copy as COPY does: the content of a directory, a file into a directory or to a name; all becomes root's."""
    into = image.root / str(Path(image.directory) / target).lstrip("/")
    (into if target.endswith("/") else into.parent).mkdir(parents=True, exist_ok=True)
    for name in names:
        path = source / name.lstrip("/")
        if path.is_dir():
            shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*ignored))
        else:
            shutil.copy2(path, into / path.name if target.endswith("/") else into)
