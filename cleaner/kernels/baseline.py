"""
Which processor the kernels are compiled for: one every machine of our time is, so that a cache of machine code made on
one serves all of them.

The baseline costs little: kernels wait for memory and shift bytes, and wide vectors help with neither. What the
operator says (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES) comes first, see `target.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from llvmlite import binding


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


_BASELINES = {
    # Nehalem has what x86-64-v2 stands for. Under that name LLVM tunes for no processor at all, and the digest loop
    # takes 40 ns a record where it takes 28. crc32 is the instruction that came with SSE4.2.
    "x86_64": _Baseline("nehalem", "+crc32", ("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2", "crc32")),
    # armv8-a: what LLVM calls generic
    "aarch64": _Baseline("generic", "+crc", ("neon", "crc")),
}
_CRC_FEATURES = {"x86_64": ("crc32", "x86"), "aarch64": ("crc", "arm")}


def _architecture() -> str:
    return binding.get_process_triple().partition("-")[0]


def _host_has(*features: str) -> bool:
    host = binding.get_host_cpu_features()
    return all(host.get(feature) for feature in features)


def _crc_instruction(cpu_features: str) -> str:
    """Return which CRC instruction the target promises and this processor has."""
    if _architecture() not in _CRC_FEATURES:
        return ""
    feature, instruction = _CRC_FEATURES[_architecture()]
    # LLVM does not tell what a processor named by the operator can do: only what is spelt out counts.
    promised = {word[1:]: word[0] == "+" for word in cpu_features.split(",") if word}
    is_promised = promised.get(feature, False)
    return instruction if is_promised and _host_has(feature) else ""


def make_target(triple: str, cpu_name: str, cpu_features: str) -> Target:
    """Return a target given by what numba's cache knows it by."""
    return Target(triple, cpu_name, cpu_features, _crc_instruction(cpu_features))


def baseline_target() -> Target | None:
    """Return what kernels are compiled for unless somebody has decided otherwise; None if this processor lacks it."""
    baseline = _BASELINES.get(_architecture())
    if baseline is None or not _host_has(*baseline.needs):
        return None
    return make_target(binding.get_process_triple(), baseline.cpu_name, baseline.cpu_features)


def numba_is_as_always() -> bool:
    """Tell whether nobody has asked numba to work in a special way; where it keeps its code is no such matter."""
    special = [name for name in os.environ if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR"]
    return not special and not Path(".numba_config.yaml").exists()
