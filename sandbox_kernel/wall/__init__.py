"""The output wall: what a sandbox prints can draw anything and act on nothing."""
