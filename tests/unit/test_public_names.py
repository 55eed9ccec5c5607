"""The front door: every public name is listed, loaded when it is used, and known to type checkers."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import cleaner

ROOT = Path(__file__).resolve().parents[2]
# What only a `LogManager` or a report makes and gives out; docs/library.md has what may be asked of them.
PARTS = {"CleanerConfig", "InProcessCleaner", "SettingInForce", "TopicConfig", "Upkeep"}


def test_every_public_name_is_listed_and_can_be_had() -> None:
    """`dir` and `__all__` show each, also before it is loaded, and type checkers get each from where it lives."""
    code = (
        "import cleaner; print(sorted(set(cleaner.__all__) - set(dir(cleaner))), 'numpy' in __import__('sys').modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said == "[] False\n"
    assert [name for name in cleaner.__all__ if getattr(cleaner, name, None) is None] == []
    tree = ast.parse(Path(cleaner.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(cleaner.__all__)
    assert list(cleaner.__all__) == sorted(cleaner.__all__)


def test_no_room_has_the_name_of_a_call() -> None:
    """Python puts a room that is loaded into its package, in the place of the call."""
    rooms = {module.name for module in pkgutil.iter_modules(cleaner.__path__)}
    assert rooms & set(cleaner.__all__) == {"errors"}


def calls() -> Iterator[object]:
    """Yield every public function, method and property."""
    for name in cleaner.__all__:
        value = getattr(cleaner, name)
        if inspect.isfunction(value):
            yield value
        elif inspect.isclass(value):
            ours = [each for each in value.__mro__ if each.__module__.startswith("cleaner.")]
            members = (member for each in ours for key, member in vars(each).items() if not key.startswith("_"))
            yield from (member.fget if isinstance(member, property) else member for member in members)


def test_what_public_calls_give_back_is_public() -> None:
    """A caller can name the type of every answer."""
    trees = (ast.parse(path.read_text()) for path in Path(cleaner.__file__).parent.rglob("*.py"))
    ours = {node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    given = {
        word
        for call in calls()
        if inspect.isfunction(call)
        for word in re.findall(r"\w+", str(inspect.signature(call).return_annotation))
    }
    assert {"CleanReport", "PlanEntry", "Log"} <= given & ours
    assert (given & ours) - set(cleaner.__all__) == PARTS


def test_types_are_shipped() -> None:
    """Type checkers of programs that use the library read its annotations (PEP 561)."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "py.typed" in data["cleaner"]
    assert (ROOT / "cleaner" / "py.typed").exists()
