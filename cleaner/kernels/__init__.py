"""
Compiled loops over arrays: arrays in, arrays out, a status and a position for an error.

A kernel does arithmetic and nothing else. It releases the GIL, never raises, never allocates more than a few words,
and never touches memory outside the arrays it was given, whatever bytes they hold. The caller proves the bounds before
and turns its status into an error after. `numba` is imported in this package only. That takes a quarter of a second, so
code that commands without kernels run, as `plan`, must not import a module of kernels at its top. Tables and
words without loops need no numba: `batch_header.py`, `codec_table.py`, `scan_status.py`, `announce.py`.

Buffers handed to kernels end with `PAD_BYTES` spare bytes, so that eight bytes may be loaded at any position of the
data.
"""

PAD_BYTES = 64
