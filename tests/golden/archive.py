"""
Archives of log directories: the same directory always makes the same bytes.

File times are not in the archive, each scenario lists them in its JSON. Packing is done by hand, once:
`python -m tests.golden.archive DIRECTORY ARCHIVE.tar.xz [NAME ...]` packs the directory, or only its entries NAME.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
RANDOM_LOGS = Path(__file__).parent / "random_kafka_logs.tar.xz"
# Several stages of one log hold mostly the same bytes: a dictionary larger than any scenario finds them again.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20}]


def pack(directory: Path, archive: Path, names: list[str] | None = None) -> None:
    """Write a directory's entries (those of `names`, in that order) as a `.tar.xz` without owners, modes and times."""
    tops = names or sorted(path.name for path in directory.iterdir())
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in (path for top in tops for path in [directory / top, *sorted((directory / top).rglob("*"))]):
            about = tarfile.TarInfo(str(path.relative_to(directory)))
            if path.is_dir():
                about.type, about.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(about)
            else:
                data = path.read_bytes()
                about.size, about.mode = len(data), 0o644
                tar.addfile(about, io.BytesIO(data))
    archive.write_bytes(lzma.compress(plain.getvalue(), format=lzma.FORMAT_XZ, filters=_FILTERS))


def unpack(archive: Path, directory: Path) -> Path:
    """Unpack an archive into a directory, which is returned."""
    with tarfile.open(archive, mode="r:xz") as tar:
        # Filters came with Python 3.11.4; a Debian 12 has 3.11.2, and these archives are our own.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(directory)  # noqa: S202
    return directory


def first_file(archive: Path) -> bytes:
    """Return the content of an archive's first member without unpacking the rest."""
    with tarfile.open(archive, mode="r|xz") as tar:
        member = tar.next()
        content = tar.extractfile(member) if member else None
        if content is None:
            raise ValueError(f"{archive} does not begin with a file")
        return content.read()


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or None)
