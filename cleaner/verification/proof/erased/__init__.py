"""
Looks for erased keys in every byte of some directories, and writes down what was read.

The search knows nothing of rounds, indexes or transactions: it takes every file for record batches as far as it can,
and the rest for mere bytes. So what hides a record from readers does not hide it here.
"""
