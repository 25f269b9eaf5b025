"""What crosses between host and sandbox, as pure functions; see README.md for the boundary."""
