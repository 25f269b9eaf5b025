"""Isolation engines; see README.md for the boundary."""
