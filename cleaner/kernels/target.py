"""
The processor that kernels are compiled for: a baseline that every machine of recent years has, so that machine code
made on one machine, for example in an image, works on all of them.

This baseline costs little: kernels wait for memory and move bytes, and wide vectors help with neither. numba compiles
for the processor it runs on, unless configured otherwise before its first function is decorated; this holds for the
whole process. The operator's setting (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES) comes first. A process that already uses
numba keeps its target, and kernels are compiled for that one. Conversely, functions that a process compiles after
loading the kernels are compiled for the baseline too.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import binding
from numba.core import config
from numba.core.registry import cpu_target


class Target(NamedTuple):
    """The target of machine code; part of the name of the directory that keeps it."""

    triple: str
    cpu_name: str
    cpu_features: str
    crc_instruction: str
    """`x86`, `arm`, or empty if CRC-32C must be computed with tables."""


class _Baseline(NamedTuple):
    cpu_name: str
    cpu_features: str
    needs: tuple[str, ...]  # features that a processor needs to run such code, by LLVM's names
    crc_feature: str
    crc_instruction: str


_BASELINES = {
    # Nehalem has the features of x86-64-v2. For the name x86-64-v2, LLVM tunes for no processor, and the digest loop
    # takes 40 ns a record instead of 28. crc32 is the instruction that came with SSE4.2.
    "x86_64": _Baseline(
        *("nehalem", "+crc32"),
        ("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2", "crc32"),
        *("crc32", "x86"),
    ),
    # armv8-a: LLVM's name for it is generic
    "aarch64": _Baseline("generic", "+crc", ("neon", "crc"), "crc", "arm"),
}


def _baseline() -> _Baseline | None:
    return _BASELINES.get(binding.get_process_triple().partition("-")[0])


def _host_has(*features: str) -> bool:
    host = binding.get_host_cpu_features()
    return all(host.get(feature) for feature in features)


def host_has_baseline() -> bool:
    """Tell whether this processor can run code for the baseline."""
    baseline = _baseline()
    return baseline is not None and _host_has(*baseline.needs)


def _crc_instruction(cpu_features: str) -> str:
    """Return the CRC instruction that the target promises and this processor has."""
    baseline = _baseline()
    if baseline is None:
        return ""
    # LLVM does not say which features a processor named by the operator has: only explicit features count.
    promised = {word[1:]: word[0] == "+" for word in cpu_features.split(",") if word}
    is_usable = promised.get(baseline.crc_feature, False) and _host_has(baseline.crc_feature)
    return baseline.crc_instruction if is_usable else ""


def _is_numba_in_use() -> bool:
    """Tell whether a function was decorated before: then numba's target is fixed."""
    return "_toplevel_target_context" in vars(cpu_target)


def _settle_target() -> Target:
    """
    Set numba's target for this process, unless it is fixed already, and return it.

    A processor that lacks a feature of the baseline gets code for itself, as is numba's default.
    """
    is_open = not _is_numba_in_use() and config.CPU_NAME is None and config.CPU_FEATURES is None
    baseline = _baseline()
    if is_open and baseline is not None and host_has_baseline():
        config.CPU_NAME, config.CPU_FEATURES = baseline.cpu_name, baseline.cpu_features
    # numba itself identifies its machine code by this.
    triple, cpu_name, cpu_features = cpu_target.target_context.codegen().magic_tuple()
    return Target(triple, cpu_name, cpu_features, _crc_instruction(cpu_features))


TARGET = _settle_target()
