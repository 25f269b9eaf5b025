"""Which sandboxes exist, and who may start or end them; see README.md for the boundary."""
