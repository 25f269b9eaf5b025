"""The server that runs inside every sandbox; see README.md for the boundary."""
