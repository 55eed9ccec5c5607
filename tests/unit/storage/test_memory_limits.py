"""The lowest of all memory limits counts, whatever its source."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.memory_limits import anonymous_bytes, lowest_memory_limit

GIB = 1 << 30
V1_UNLIMITED = "9223372036854771712"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root; adds a `meminfo` with 16 GiB unless given."""
    for name, text in {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "size", "source"),
    [
        pytest.param({}, 16 * GIB, "proc/meminfo", id="no-groups"),
        pytest.param(
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n"},
            GIB,
            "sys/fs/cgroup/a/b/memory.max",
            id="own-group",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "2147483648\n",
            },
            2 * GIB,
            "sys/fs/cgroup/a/memory.max",
            id="group-above",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.max": "3221225472\n",
                "sys/fs/cgroup/memory.max": "1073741824\n",
            },
            GIB,
            "sys/fs/cgroup/memory.max",
            id="lowest-of-several",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/host/path/of/container\n", "sys/fs/cgroup/memory.max": "1073741824\n"},
            GIB,
            "sys/fs/cgroup/memory.max",
            id="container-with-the-hosts-path",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/../..\n", "sys/fs/memory.max": "1\n", "sys/fs/cgroup/memory.max": "1073741824\n"},
            GIB,
            "sys/fs/cgroup/memory.max",
            id="group-outside-of-the-namespace",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "12:cpu,memory:/a:b\n3:pids:/\n0::/\n",
                "sys/fs/cgroup/memory/a:b/memory.limit_in_bytes": "1073741824\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_UNLIMITED,
            },
            GIB,
            "sys/fs/cgroup/memory/a:b/memory.limit_in_bytes",
            id="version-1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": V1_UNLIMITED,
            },
            16 * GIB,
            "proc/meminfo",
            id="version-1-unlimited",
        ),
        pytest.param(
            {"proc/self/cgroup": "4:memory:/\n0::/a\n", "sys/fs/cgroup/unified/a/memory.max": "1073741824\n"},
            GIB,
            "sys/fs/cgroup/unified/a/memory.max",
            id="both-versions",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "lots\n"},
            16 * GIB,
            "proc/meminfo",
            id="not-a-number",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": str(64 * GIB)},
            16 * GIB,
            "proc/meminfo",
            id="more-than-there-is",
        ),
        pytest.param({"proc/self/cgroup": "nonsense\n\n::\n"}, 16 * GIB, "proc/meminfo", id="nonsense"),
    ],
)
def test_lowest_limit_is_found_with_its_source(tmp_path: Path, files: dict[str, str], size: int, source: str) -> None:
    """Limits of version 1 and 2, of our group and those above it, and of the machine."""
    found = lowest_memory_limit(FileSystem(), tree(tmp_path, files))
    assert found is not None
    assert (found.size, found.source) == (size, str(tmp_path / source))


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    """And nothing is refused."""
    assert lowest_memory_limit(FileSystem(), tmp_path) is None


def test_real_machine_has_a_limit() -> None:
    """Files that the kernel generates are read, although their status says that they are empty."""
    found = lowest_memory_limit(FileSystem())
    assert found is not None
    assert 64 << 20 < found.size < 1 << 60


def test_anonymous_memory_is_the_kernels_value_for_this_process(tmp_path: Path) -> None:
    """In bytes; None if it does not say."""
    status = "Name:\tcleaner\nVmRSS:\t  201000 kB\nRssAnon:\t   70320 kB\nRssFile:\t  130680 kB\n"
    assert anonymous_bytes(FileSystem(), tree(tmp_path / "some", {"proc/self/status": status})) == 70320 * 1024
    assert anonymous_bytes(FileSystem(), tree(tmp_path / "none", {"proc/self/status": "Name:\tcleaner\n"})) is None


def test_anonymous_memory_counts_touched_pages() -> None:
    """For this process: 64 MiB more after touching 64 MiB."""
    before = anonymous_bytes(FileSystem())
    # Directly from the kernel: an allocator may return memory that was touched before.
    with mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as touched:
        touched.write(bytes([1]) * len(touched))
        after = anonymous_bytes(FileSystem())
    assert before is not None and after is not None
    assert after - before > 0.9 * (64 << 20)
