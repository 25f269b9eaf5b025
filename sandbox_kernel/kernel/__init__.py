"""The relay between Jupyter clients and an interpreter in a sandbox; see README.md."""
