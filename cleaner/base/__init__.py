"""Small things that every room uses: time, sizes, names, arguments. Imports nothing but `errors`."""
