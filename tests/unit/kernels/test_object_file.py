"""The names in object files."""

from __future__ import annotations

import pytest
from llvmlite import binding

from cleaner.kernels.object_file import read_symbols

SOURCE = """
@variable = common global ptr null
@unseen = internal global i64 7
declare i64 @elsewhere(ptr)
define internal i64 @hidden(i64 %x) noinline { ret i64 %x }
define i64 @entry(i64 %x) {
  %a = call i64 @hidden(i64 %x)
  %b = call i64 @elsewhere(ptr @variable)
  %c = load volatile i64, ptr @unseen
  %d = add i64 %a, %b
  %e = add i64 %c, %d
  ret i64 %e
}
"""


@pytest.fixture(scope="module")
def content() -> bytes:
    """Compile an object file that calls, defines and hides something."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    emitted: bytes = machine.emit_object(binding.parse_assembly(SOURCE))
    return emitted


def test_global_names_are_told_apart(content: bytes) -> None:
    """What the linker has to provide, and what can be asked for; nothing of what is the file's own."""
    symbols = read_symbols(content)
    assert symbols.defined == {"entry", "variable"}
    assert symbols.needed - {"_GLOBAL_OFFSET_TABLE_"} == {"elsewhere"}


def test_other_files_are_refused(content: bytes) -> None:
    """Object files of other systems, programs, and what is cut short."""
    for other in (
        b"",
        b"\xcf\xfa\xed\xfe" + bytes(100),
        b"\x7fELF\x01" + content[5:],
        content[:16] + b"\2" + content[17:],
    ):
        with pytest.raises(ValueError, match="not a relocatable ELF file"):
            read_symbols(other)


def test_cut_file_is_refused_or_lacks_names(content: bytes) -> None:
    """Wherever it was cut: no other error, and no name that was not there."""
    whole = read_symbols(content)
    for size in range(0, len(content), 7):
        try:
            symbols = read_symbols(content[:size])
        except ValueError:
            continue
        assert symbols.defined <= whole.defined
