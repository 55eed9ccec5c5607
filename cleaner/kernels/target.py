"""
Which processor the kernels are compiled for: one that every machine of the last years is, so that machine code made on
one, as in an image, serves all of them.

This baseline costs little: kernels wait for memory and shift bytes, and wide vectors help with neither. numba compiles
for the processor it runs on unless it is told otherwise before its first function is decorated, and for all of a
process. What the operator says (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES) comes first, and a process whose numba is in use
already keeps the target it has; the kernels are then compiled for that one. The other way round, what a process
compiles of its own after loading the kernels is for the baseline too.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import binding
from numba.core import config
from numba.core.registry import cpu_target


class Target(NamedTuple):
    """What machine code is made for; part of the name of the directory that keeps it."""

    triple: str
    cpu_name: str
    cpu_features: str
    crc_instruction: str
    """`x86`, `arm`, or nothing where CRC-32C has to be computed from tables."""


class _Baseline(NamedTuple):
    cpu_name: str
    cpu_features: str
    needs: tuple[str, ...]  # what a processor must have to run such code, in LLVM's words
    crc_feature: str
    crc_instruction: str


_BASELINES = {
    # Nehalem has what x86-64-v2 stands for. Under that name LLVM tunes for no processor at all, and the digest loop
    # takes 40 ns a record where it takes 28. crc32 is the instruction that came with SSE4.2.
    "x86_64": _Baseline(
        *("nehalem", "+crc32"),
        ("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2", "crc32"),
        *("crc32", "x86"),
    ),
    # armv8-a: what LLVM calls generic
    "aarch64": _Baseline("generic", "+crc", ("neon", "crc"), "crc", "arm"),
}


def _baseline() -> _Baseline | None:
    return _BASELINES.get(binding.get_process_triple().partition("-")[0])


def _host_has(*features: str) -> bool:
    host = binding.get_host_cpu_features()
    return all(host.get(feature) for feature in features)


def host_has_baseline() -> bool:
    """Tell whether this processor runs what kernels are compiled for unless somebody has decided otherwise."""
    baseline = _baseline()
    return baseline is not None and _host_has(*baseline.needs)


def _crc_instruction(cpu_features: str) -> str:
    """Return which CRC instruction the target promises and this processor has."""
    baseline = _baseline()
    if baseline is None:
        return ""
    # LLVM does not tell what a processor named by the operator can do: only what is spelt out counts.
    promised = {word[1:]: word[0] == "+" for word in cpu_features.split(",") if word}
    is_usable = promised.get(baseline.crc_feature, False) and _host_has(baseline.crc_feature)
    return baseline.crc_instruction if is_usable else ""


def _is_numba_in_use() -> bool:
    """Tell whether some function was decorated before: numba has then fixed its target."""
    return "_toplevel_target_context" in vars(cpu_target)


def _settle_target() -> Target:
    """
    Fix what numba compiles for in this process, unless that is fixed already, and return it.

    A processor that lacks some of the baseline gets code of its own, as numba would make it.
    """
    is_open = not _is_numba_in_use() and config.CPU_NAME is None and config.CPU_FEATURES is None
    baseline = _baseline()
    if is_open and baseline is not None and host_has_baseline():
        config.CPU_NAME, config.CPU_FEATURES = baseline.cpu_name, baseline.cpu_features
    # What numba itself knows its machine code by.
    triple, cpu_name, cpu_features = cpu_target.target_context.codegen().magic_tuple()
    return Target(triple, cpu_name, cpu_features, _crc_instruction(cpu_features))


TARGET = _settle_target()
