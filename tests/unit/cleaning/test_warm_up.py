"""All kernels of a round are compiled before it begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernels

# In its own process: other tests call kernels with other types.
SCRIPT = """
import importlib, pathlib, pkgutil, sys
import cleaner.kernels
from cleaner.cleaning.round.warm_up import warm_up
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import LogBuilder
from tests.unit.cleaning.logs import clean, context

def versions():
    found = {}
    for module in pkgutil.iter_modules(cleaner.kernels.__path__):
        for name, value in vars(importlib.import_module(f"cleaner.kernels.{module.name}")).items():
            if hasattr(value, "signatures"):
                found[f"{module.name}.{name}"] = len(value.signatures)
    return found

warm_up()
before = versions()
log = LogBuilder(index_interval_bytes=0)
for i in range(40):
    codec = ("none", "gzip", "zstd", "snappy", "lz4")[i % 5]
    log.append(("a", "v"), Record(b"b%d" % i, None, headers=((b"\\xff", b"x"),)), codec=codec)
    log.append(("c", "v"), producer=Producer(1, 0, i, True))
    log.end_transaction(1, 0, commit=i % 2 == 0)
    log.append(("c", "v"), ("d", "old"), magic=i % 2, codec=("none", "gzip", "snappy", "lz4")[i % 4])
    if i % 10 == 9:
        log.roll()
directory = log.write(pathlib.Path(sys.argv[1]))
result = clean(directory, context())
assert result.removed.superseded > 0 and result.removed.aborted > 0
after = versions()
print(sorted(name for name in after if after[name] != before.get(name, 0)))
"""


def test_round_after_warm_up_compiles_nothing(tmp_path: Path) -> None:
    """A process that has given up root, or a daemon, finds every kernel ready with the types a round uses."""
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root)}
    # If kernels are not in the cache, a message says that they are compiled.
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == "[]\n"
