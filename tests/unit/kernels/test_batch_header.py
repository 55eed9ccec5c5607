"""The single table of a batch's header has Kafka's positions, and no other module has such numbers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from cleaner.kernels import batch_header as header
from tests.support import batch_builder

ROOMS = Path(header.__file__).parents[1]
# Positions and sizes that mean a batch's header and hardly anything else; those of magic 0 and 1, too.
POSITIONS = {header.HEADER_BYTES, header.CRC_AT, header.CRC_FROM, header.COUNT_AT}
POSITIONS |= {header.PRODUCER_ID_AT, header.PRODUCER_EPOCH_AT, header.BASE_SEQUENCE_AT, header.MAX_TIMESTAMP_AT}
POSITIONS |= {header.LAST_OFFSET_DELTA_AT, header.BASE_TIMESTAMP_AT, header.MIN_BATCH_BYTES[0]}
# In places where any number is looked for: a part of some bytes, a position added to another.
CUTS = {header.LENGTH_AT, header.LOG_OVERHEAD_BYTES, header.MAGIC_AT, header.LEGACY_TIMESTAMP_AT}
BITS = {header.COMPRESSION_MASK, header.TIMESTAMP_TYPE_FLAG, header.TRANSACTIONAL_FLAG, header.CONTROL_FLAG}
BITS.add(header.DELETE_HORIZON_FLAG)
# A name of something that is read from a `.log`, and none of an index, a lock or a page.
BATCH_BYTES = re.compile(r"head|header|batch|entry|record")
STRUCT_CODES = ">qii"


def test_header_table_reads_batches_of_another_writer() -> None:
    """The table's struct and dtype read what the tests' own builder writes (R-210)."""
    assert header.HEADER.size == header.HEADER_DTYPE.itemsize == header.HEADER_BYTES == batch_builder.HEADER.size
    values = (1 << 40, 2, 3, 4, 1 << 31, 6, 7, 8 << 33, 9 << 33, 10 << 33, 11, 12, 13)
    data = batch_builder.HEADER.pack(*values)
    assert header.HEADER.unpack(data) == values
    assert tuple(np.frombuffer(data, header.HEADER_DTYPE)[0].tolist()) == values


def test_least_batches_are_as_the_rules_have_them() -> None:
    """A batch has at least 14 bytes behind its length, 22 of magic 1, and 49 of magic 2 (R-202, R-240)."""
    assert [size - 12 for size in header.MIN_BATCH_BYTES] == [14, 22, 49]


@pytest.mark.parametrize("magic, expected", [(0, -1), (1, 77), (2, 77), (3, -1)])
def test_max_timestamp_is_found_by_magic(magic: int, expected: int) -> None:
    """Magic 0 and unknown magics have no timestamp, and neither has a head that ends too early (R-243)."""
    head = bytearray(header.HEADER_BYTES)
    head[16] = magic
    at = 18 if magic == 1 else 35
    head[at : at + 8] = (77).to_bytes(8, "big")
    assert header.max_timestamp_of(bytes(head)) == expected
    assert header.max_timestamp_of(bytes(head[: at + 7])) == -1


def _words(node: ast.AST) -> str:
    """Return all names in some code, including those of fields."""
    found = []
    for each in ast.walk(node):
        found += [str(each.value)] if isinstance(each, ast.Constant) else []
        found += [each.id] if isinstance(each, ast.Name) else [each.attr] if isinstance(each, ast.Attribute) else []
    return " ".join(found).lower()


def _has(node: ast.AST | None, numbers: set[int]) -> bool:
    found = ast.walk(node) if node is not None else ()
    return any(isinstance(each, ast.Constant) and type(each.value) is int and each.value in numbers for each in found)


def _own_numbers(source: str) -> list[int]:
    """Return the lines that parse a header with numbers of their own."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        is_cut = is_bit = is_struct = False
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        if isinstance(node, ast.Subscript):
            is_cut = bool(BATCH_BYTES.search(_words(node.value))) and _has(node.slice, POSITIONS | CUTS)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            is_bit = "attributes" in _words(node) and (_has(node.left, BITS) or _has(node.right, BITS))
        elif isinstance(node, ast.Assign):
            is_constant = all(isinstance(each, ast.Name | ast.Tuple) for each in node.targets)
            is_cut = (
                is_constant
                and _has(node.value, POSITIONS)
                and bool(
                    re.search(r"head|crc|magic|epoch|identity|batch|attributes", " ".join(map(_words, node.targets)))
                )
            )
        elif isinstance(node, ast.Call) and "struct" in _words(node.func):
            is_struct = any(isinstance(a, ast.Constant) and str(a.value).startswith(STRUCT_CODES) for a in node.args)
        if is_cut or is_bit or is_struct:
            lines.append(node.lineno)
    return lines


def test_headers_are_parsed_by_the_table_only() -> None:
    """No other file has positions, sizes, bits or formats of a batch's header."""
    found = [
        f"{path.relative_to(ROOMS)}:{line}"
        for path in sorted(ROOMS.rglob("*.py"))
        if path != Path(header.__file__)
        for line in _own_numbers(path.read_text())
    ]
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "_IDENTITY_BYTES = 61",
        "_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CRC_FROM = 8, 16, 17, 21",
        "_HEAD_BYTES = 17",
        "_HEADER = struct.Struct('>qiibIhiqqqhii')",
        "size = int.from_bytes(head[8:12], 'big')",
        "magic = head[16]",
        "stored = int.from_bytes(entry[12:16], 'big')",
        "is_control = row.attributes & 0x20 != 0",
        "codec = rows['attributes'] & 7",
    ],
)
def test_search_finds_such_numbers(line: str) -> None:
    """The test above finds code as it used to be in other rooms."""
    assert _own_numbers(line)
