"""Which file system a directory is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.mounts import kind_of_file_system, missing_guarantee

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /mnt/a\040b rw master:3 propagate_from:1 - nfs4 server:/logs rw
31 22 8:17 / /data rw - xfs /dev/sdb1 rw
32 31 0:44 / /data rw - tmpfs tmpfs rw
nonsense
""".strip()


@pytest.mark.parametrize(
    ("path", "kind", "is_fine"),
    [
        pytest.param("/var/lib/kafka", "ext4", True, id="root"),
        pytest.param("/mnt/a b/kafka", "nfs4", False, id="name-with-a-space"),
        pytest.param("/data/kafka", "tmpfs", False, id="mounted-over"),
        pytest.param("/database", "ext4", True, id="name-that-begins-alike"),
    ],
)
def test_kind_is_that_of_the_nearest_mount(tmp_path: Path, path: str, kind: str, is_fine: bool) -> None:
    """Its missing promises follow from its type."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    found = kind_of_file_system(FileSystem(), Path(path), table)
    assert (found, not missing_guarantee(found)) == (kind, is_fine)


def test_kind_without_a_table_is_not_known(tmp_path: Path) -> None:
    """Then there is no warning either."""
    assert kind_of_file_system(FileSystem(), tmp_path, tmp_path / "none") == ""
    assert missing_guarantee("") == ""
