"""
Kafka's public jars and the programs in `java/`, fetched and compiled once into the user's cache.

    python -m tests.kafka.rig          fetches everything the tests need
    Rig.load("4.4").java(CLEANING_ROUND, log_dir, "topic-0", now_ms, settings_file)

Needs Java 17, Maven and, the first time, a Maven repository. `Unavailable` says what is missing; a test that meets it
skips, and a skip is a failure under CI.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
VERSIONS = ("4.3", "4.4", "3.9")
# The releases whose cleaner ours must equal. The programs of `java/` are compiled only for them.
CLEANERS = ("4.3", "4.4")
TOOLS = "tools-4.3"  # there are none of 4.4.0
MIRROR = "mirror-4.3"
STREAMS = "streams-4.3"
SPARK = "spark-4.2"  # its source of Kafka's topics
# Classes that the programs import, by their names in 4.3, and where another release has them.
_MOVED = {
    "4.4": {
        "common.utils.AppInfoParser": "common.utils.internals.AppInfoParser",
        "common.utils.ByteBufferOutputStream": "common.utils.internals.ByteBufferOutputStream",
    }
}
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
CLEANING_ROUND = "org.apache.kafka.storage.internals.log.CleaningRound"
GENERATE_LOG = "org.apache.kafka.storage.internals.log.GenerateLog"
RANDOM_LOGS = "org.apache.kafka.storage.internals.log.RandomLogs"
WARM_BENCH = "org.apache.kafka.storage.internals.log.WarmBench"
CLIENT = "rig.Client"
SMALL_HEAP = "512m"


class Unavailable(Exception):
    """Java, Maven or Kafka's jars are not available; the message says what to do."""


class JavaFailed(Exception):
    """A Java program ended with a status other than 0; carries what it wrote to stderr."""


def cache_root() -> Path:
    """Return the directory for jars and classes: `$KAFKA_RIG_CACHE`, or one in the user's cache."""
    if os.environ.get("KAFKA_RIG_CACHE"):
        return Path(os.environ["KAFKA_RIG_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-log-cleaner" / "kafka"


@dataclass(frozen=True)
class Rig:
    """
    One Kafka version, ready to run.

    3.9 has no compiled programs: 4.3's client talks to every broker.
    """

    version: str
    jars: Path
    classes: Path | None
    logging: Path = HERE  # where log4j's settings are

    @staticmethod
    def load(version: str) -> Rig:
        """Return the rig of one of `VERSIONS`; missing parts are fetched and compiled."""
        missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
        if missing:
            raise Unavailable(f"{', '.join(missing)} not found: install a JDK (17 or later) and Maven")
        root = cache_root()
        root.mkdir(parents=True, exist_ok=True)
        # Test processes run side by side: one fetches, the others wait for it.
        with (root / f"{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            jars = _fetch(version, root, HERE / f"broker-{version}.xml")
            return Rig(version, jars, _compile(version, jars, root) if version in CLEANERS else None)

    @staticmethod
    def load_tools(what: str = TOOLS) -> Rig:
        """Return the jars of Kafka 4.3's tools, or of `MIRROR`, `STREAMS` or `SPARK`, which a broker does without."""
        if shutil.which("java") is None or shutil.which("mvn") is None:
            raise Unavailable("java or mvn not found: install a JDK (17 or later) and Maven")
        root = cache_root()
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{what}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return Rig(VERSIONS[0], _fetch(what, root, HERE / f"{what}.xml"), None)

    @property
    def class_path(self) -> str:
        """Return what Java takes behind `-cp`."""
        return os.pathsep.join([*([str(self.classes)] if self.classes else []), f"{self.jars}/*"])

    def command(self, main: str, *arguments: object, heap: str = SMALL_HEAP, log_level: str = "error") -> list[str]:
        """Return the command line that runs a main class, Kafka's own or one of `java/`."""
        logging = [
            f"-Drig.log.level={log_level}",
            f"-Dlog4j2.configurationFile={self.logging / 'log4j2.properties'}",
            f"-Dlog4j.configuration=file:{self.logging / 'log4j.properties'}",
        ]
        # Short runs start faster without the optimizing compiler; a measurement gets all of Java, and its heap at once.
        quick = heap == SMALL_HEAP
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if quick else [f"-Xms{heap}"]
        return ["java", f"-Xmx{heap}", *options, *logging, "-cp", self.class_path, main, *map(str, arguments)]

    def run(
        self, main: str, *arguments: object, heap: str = SMALL_HEAP, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a main class to its end, whatever that is."""
        command = self.command(main, *arguments, heap=heap)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=900)

    def java(
        self, main: str, *arguments: object, heap: str = SMALL_HEAP, stdin: str = "", ok: tuple[int, ...] = (0,)
    ) -> str:
        """Run a main class to its end and return what it printed; any status not in `ok` raises `JavaFailed`."""
        done = self.run(main, *arguments, heap=heap, stdin=stdin)
        if done.returncode not in ok:
            raise JavaFailed(f"{main} {' '.join(map(str, arguments))}: status {done.returncode}\n{done.stderr[-4000:]}")
        return done.stdout


def _replace_directory(new: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)


def maven_error(output: str) -> str:
    """Return the line of Maven's output that says what is wrong: its advice comes behind it, in colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output).strip().splitlines()
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR]")]
    return next(filter(None, errors), "\n".join(lines)[-600:])


def _fetch(version: str, root: Path, pom: Path) -> Path:
    stamp = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    jars = root / f"jars-{version}-{stamp}"
    if jars.is_dir():
        return jars
    new = root / f"{jars.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = ["mvn", "-q", "-B", "-f", str(pom), goal, "-DincludeScope=runtime", f"-DoutputDirectory={new}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Unavailable(f"Maven could not fetch Kafka {version}: {maven_error(done.stdout + done.stderr)}")
    _replace_directory(new, jars)
    return jars


def _sources(version: str) -> dict[str, str]:
    """Return the programs by file name, with the imports of a version."""
    sources = {path.name: path.read_text() for path in sorted((HERE / "java").glob("*.java"))}
    for old, new in _MOVED.get(version, {}).items():
        sources = {
            name: re.sub(rf"(?<=^import org\.apache\.kafka\.){re.escape(old)};", f"{new};", text, flags=re.M)
            for name, text in sources.items()
        }
    return sources


def _compile(version: str, jars: Path, root: Path) -> Path:
    sources = _sources(version)
    stamp = hashlib.sha256("".join([*sources.values(), jars.name]).encode()).hexdigest()[:16]
    classes = root / f"classes-{stamp}"
    if classes.is_dir():
        return classes
    new = root / f"{classes.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    java = new / "java"
    java.mkdir(parents=True)
    for name, text in sources.items():
        (java / name).write_text(text)
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(new), *(str(java / name) for name in sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise JavaFailed(f"javac, Kafka {version}: {done.stderr[-4000:]}")
    _replace_directory(new, classes)
    return classes


if __name__ == "__main__":
    try:
        for each in VERSIONS:
            print(f"Kafka {each}: {Rig.load(each).jars}")
        print(f"Kafka's tools: {Rig.load_tools().jars}")
    except Unavailable as error:
        sys.exit(str(error))
