"""
Compiled loops over arrays: arrays in, arrays out, a status and a position for an error.

A kernel only computes. It releases the GIL, never raises, never allocates more than a few words, and never accesses
memory outside its arrays, whatever bytes they contain. The caller checks the bounds before, and converts the status to
an error after. `numba` is imported in this package only. That takes a quarter of a second, so code of commands without
kernels, such as `plan`, must not import a module of kernels at its top. Modules without loops need no numba:
`batch_header.py`, `codec_table.py`, `scan_status.py`, `announce.py`, `config_file.py`.

Buffers passed to kernels end with `PAD_BYTES` spare bytes, so that eight bytes may be loaded at any position of the
data.
"""

from cleaner.kernels.config_file import pass_over

PAD_BYTES = 64

pass_over()
