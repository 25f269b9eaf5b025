"""Ways to reach a runtime; see README.md for the boundary."""
