"""
Compiled loops over arrays: arrays in, arrays out, a status and a position for an error.

A kernel does arithmetic and nothing else. It releases the GIL, never raises, never allocates more than a few words,
and never touches memory outside the arrays it was given, whatever bytes they hold. Whoever calls it proves the bounds
before and turns its status into an error after. `numba` is imported in this package only, and rooms above get
kernels from `ready.py`, which mostly does without it.

Buffers handed to kernels end with `PAD_BYTES` spare bytes, so that eight bytes may be loaded at any position of the
data.
"""

PAD_BYTES = 64
