"""
Making numba compile for the baseline.

numba compiles for the processor it runs on unless told otherwise before its first function is decorated, and for all
of a process. What the operator says (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES) comes first, and a process whose numba is
already in use keeps the target it has; the kernels are then compiled for that one. The other way round, what a process
compiles of its own after loading the kernels is for the baseline too.
"""

from __future__ import annotations

from numba.core import config
from numba.core.registry import cpu_target

from cleaner.kernels.baseline import Target, baseline_target, make_target


def _is_numba_in_use() -> bool:
    """Tell whether some function was decorated before: numba has then fixed its target."""
    return "_toplevel_target_context" in vars(cpu_target)


def settle_target() -> Target:
    """
    Fix what numba compiles for in this process, unless that is fixed already, and return it.

    A processor that lacks some of the baseline gets code of its own, as numba would make it.
    """
    baseline = baseline_target()
    is_open = not _is_numba_in_use() and config.CPU_NAME is None and config.CPU_FEATURES is None
    if is_open and baseline is not None:
        config.CPU_NAME, config.CPU_FEATURES = baseline.cpu_name, baseline.cpu_features
    # From numba's own mouth: these three are also its key for an entry of a cache.
    return make_target(*cpu_target.target_context.codegen().magic_tuple())


TARGET = settle_target()
