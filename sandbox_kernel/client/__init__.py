"""What people hold in Python: sandboxes and processes; see README.md for the boundary."""
