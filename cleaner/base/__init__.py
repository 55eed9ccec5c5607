"""Small things that every package uses: time, sizes, names, arguments. Imports only `errors`."""
