"""The documents say what is true: commands, options, make targets, links and the drawn example."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.cli.main import make_parser
from cleaner.cli.parser import Parser
from cleaner.daemon.control.verbs import VERBS
from tests.forked import cleaner_command
from tests.golden.archive import DATA, unpack
from tests.support.batch_reader import batch_info

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def command_help(command: str) -> str:
    """Return what `cleaner COMMAND --help` prints."""
    done = cleaner_command([command, "--help"])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_to_files(document: Path) -> None:
    """No link to a file of the project is dead."""
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", document.read_text())]
    dead = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert dead == []


def anchors(document: Path) -> set[str]:
    """Return the anchors a document's headings have, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_into_a_document_lead_to_headings(document: Path) -> None:
    """A link to a section names one that is there."""
    targets = [target.partition("#") for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text())]
    dead = [
        f"{target}#{anchor}"
        for target, _, anchor in targets
        if anchor and "://" not in target and anchor not in anchors(document.parent / target if target else document)
    ]
    assert dead == []


def test_files_that_documents_name_exist() -> None:
    """A file that is moved takes its mentions along; the settings' room is named from `cleaner/`, the new file of a
    recipe and of a release are still to be made."""
    to_make = {"cleaner/format/trial_frame.py", "cleaner/cli/trial.py", "tests/kafka/broker-4.5.xml"}
    pattern = re.compile(r"`((?:benchmarks|cleaner|config|deploy|docs|examples|tests|tools)/[\w./-]+)`")
    named = {(page, path) for page in DOCUMENTS for path in pattern.findall(page.read_text())}
    assert len({path for _, path in named}) > 100
    gone = {
        (page.name, path)
        for page, path in named
        if path not in to_make and not (ROOT / path).exists() and not (ROOT / "cleaner" / path).exists()
    }
    assert sorted(gone) == []


def test_files_that_the_design_names_exist() -> None:
    """Each path is relative to `cleaner/`, to the room that its chapter is about, or to the top for tests."""
    named = set(re.findall(r"`([\w./]+\.py)`", (ROOT / "docs" / "design.md").read_text()))
    rooms = [ROOT, ROOT / "cleaner", ROOT / "cleaner" / "daemon", ROOT / "cleaner" / "spark" / "source"]
    assert len(named) > 80
    assert sorted(path for path in named if not any((room / path).exists() for room in rooms)) == []


def test_map_of_the_documents_has_every_one() -> None:
    """`docs/README.md` leads to each document."""
    page = ROOT / "docs" / "README.md"
    linked = {(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", page.read_text())}
    assert sorted(str(each) for each in (ROOT / "docs").rglob("*.md") if each not in {page, *linked}) == []


def test_readme_options_are_the_commands_options() -> None:
    """Every option the README names is one of a command it shows, or of none of ours."""
    shown = ("clean", "plan", "verify", "erase", "bulk", "topics", "produce", "consume")
    known = {option for command in shown for option in re.findall(r"--[a-z-]+", command_help(command))}
    not_ours = {"--constraint"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", (ROOT / "README.md").read_text()))
    assert named - known - not_ours == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_a_document_are_understood(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command line, as it stands there, is one that `cleaner` takes: no option is misspelt or gone."""
    parser = make_parser()
    refused = []
    for words in commands_shown(document.read_text()):
        try:
            parser.parse_known_args(words)
        except SystemExit:
            refused.append((words, capsys.readouterr().err.splitlines()[-1]))
    assert refused == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_named_in_sentences_are_understood(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So is each `cleaner ...` between backticks: its options, and its arguments as far as they are named."""
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    refused = []
    for named in re.findall(r"`cleaner ([a-z][^`]*)`", prose):
        if "--help" in named:
            continue
        named_whole = re.sub(r"\[-PARTITION\]|TOPIC-PARTITION", "topic-0", " ".join(named.split()))
        words = shlex.split(re.sub(r"\[|\]|\.\.\.|\|[a-z]+", "", re.sub("RATE|BYTES|SECONDS", "1", named_whole)))
        try:
            make_parser().parse_known_args(words)
        except SystemExit:
            said = capsys.readouterr().err.splitlines()[-1]
            if "arguments are required" not in said and "expected one argument" not in said:
                refused.append((named, said))
    assert refused == []


def commands_shown(text: str) -> list[list[str]]:
    """Return the words behind `cleaner` of each command in a block, up to a pipe, a comment or the like."""
    lines = re.findall(r"^(?: {4}|\$ | {4}\$ )cleaner ((?:[^\n]*\\\n)*[^\n]*)$", text, flags=re.MULTILINE)
    cut = [re.split(r" {2,}| \||[<>&;#]", line.replace("\\\n", " "))[0] for line in lines]
    return [shlex.split(line) for line in cut if "..." not in line and "[" not in line]


def files_of_the_project() -> Iterator[Path]:
    """Find what users read or run: documents, code with its messages, images, units."""
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(".") or top.name == "tests" or top.name.endswith(".egg-info"):
            continue
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        yield from (path for path in files if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc"))


def test_install_commands_name_this_distribution() -> None:
    """Whoever follows a `pip install` of ours gets this project or a locked package, never a stranger's."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    option = r"(?:-\S+ (?:requirements\.lock\b ?)?+)*+"
    install = re.compile(rf"pip install {option}['\"]?([A-Za-z0-9][\w.-]*)")
    extra = re.compile(rf"([\w.-]+)\[(?:{'|'.join(about['optional-dependencies'])})\]")
    named = [
        (str(path.relative_to(ROOT)), name, pattern is extra)
        for path in files_of_the_project()
        for pattern in (install, extra)
        for name in pattern.findall(path.read_text())
    ]
    ours = {path for path, name, _ in named if name == about["name"]}
    assert {"README.md", "docs/spark.md", "cleaner/spark/clean/available.py"} <= ours
    allowed = {False: {about["name"], *locked}, True: {about["name"], "."}}
    assert [(path, name) for path, name, is_extra in named if name not in allowed[is_extra]] == []


def test_documented_name_is_the_installed_one() -> None:
    """`pip install 'NAME[extra]'` beside an installation finds it, and asks an index for what the extra adds only."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--disable-pip-version-check"]
    done = subprocess.run([*pip, f"{name}[test]"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_beside_the_code_are_in_the_wheel() -> None:
    """Each template, style, script and source that is no Python is package data, or the installed product lacks it."""
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packaged = {path for package, names in globs.items() for name in names
                for path in (ROOT / package.replace(".", "/")).glob(name)}  # fmt: skip
    files = {path for path in (ROOT / "cleaner").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} == packaged


def test_readme_make_targets_exist() -> None:
    """Every `make` target named in the README or in the Makefile's head is one."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"^# make ([a-z-]+)", makefile, flags=re.MULTILINE))
    named |= set(re.findall(r"(?:`| {4})make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ({"HOME": "/nonexistent"}, str(ROOT / ".cache" / "kernels")),
        ({}, str(ROOT / ".cache" / "kernels")),
        ({"HOME": "{}"}, ""),
        ({"HOME": "/nonexistent", "XDG_CACHE_HOME": "{}"}, ""),
        ({"HOME": "/nonexistent", "NUMBA_CACHE_DIR": "{}"}, "{}"),
    ],
    ids=["no-home", "unset", "home", "cache", "named"],
)
def test_make_keeps_kernels_in_the_clone_where_no_home_can_be_written(
    tmp_path: Path, environment: dict[str, str], kept: str
) -> None:
    """`make demo` as a user without a home ended at `cleaner warm`, after minutes: nothing could be kept."""
    names = ("HOME", "NUMBA_CACHE_DIR", "CACHE_DIRECTORY", "XDG_CACHE_HOME", "MAKEFLAGS", "MAKELEVEL")
    given = {name: value for name, value in os.environ.items() if name not in names}
    given |= {name: value.format(tmp_path) for name, value in environment.items()}
    words = ["make", "-s", "--eval", "show: ; @echo $$NUMBA_CACHE_DIR", "show"]
    done = subprocess.run(words, cwd=ROOT, env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kept.format(tmp_path)


def _options(parser: Parser, name: str) -> Iterator[tuple[str, list[str]]]:
    for action in parser._actions:
        if isinstance(action.choices, dict):  # a command of two words
            yield from (each for word, below in action.choices.items() for each in _options(below, f"{name} {word}"))
        elif action.help != argparse.SUPPRESS and (spelt := [word for word in action.option_strings if word[1] == "-"]):
            yield name, spelt


def test_documents_name_every_option() -> None:
    """A page says what each is for, or that it is Kafka's and does nothing; `--help` is for those who know its name."""
    told = "".join(document.read_text() for document in DOCUMENTS if document.name != "CHANGELOG.md")
    options = [each for name, parser in make_parser().commands().items() for each in _options(parser, name)]
    assert len(options) > 200
    assert [each for each in options if not any(re.search(rf"{word}(?![\w-])", told) for word in each[1])] == []


def test_documents_name_every_command() -> None:
    """The parser has no command that the README and the documents leave out."""
    told = "".join(document.read_text() for document in DOCUMENTS if document.name != "CHANGELOG.md")
    assert [name for name in make_parser().commands() if not re.search(rf"cleaner {name}(?![\w-])", told)] == []


def test_steering_document_has_every_verb_and_no_other() -> None:
    """The table of the protocol is the server's."""
    table = (ROOT / "docs" / "steering.md").read_text().partition("| `do` |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `([a-z]+)` \|", table, flags=re.MULTILINE)) == sorted(VERBS)


def test_drawn_batch_is_the_golden_logs_first(tmp_path: Path) -> None:
    """The bytes in docs/format.md are those of the first batch of the price log."""
    drawing = (ROOT / "docs" / "format.md").read_text().partition("### An example")[2].partition("##")[0]
    rows = re.findall(r"^    ((?:[0-9a-f]{2} ?)+)(?:  |$)", drawing, flags=re.MULTILINE)
    drawn = bytes.fromhex("".join(rows))
    unpacked = unpack(DATA / "latest-product-price.tar.xz", tmp_path)
    log = unpacked / "before" / "latest-product-price-0" / "00000000000000000000.log"
    assert log.read_bytes()[: len(drawn)] == drawn
    assert (batch_info(drawn).base_offset, batch_info(drawn).record_count) == (0, 1)
