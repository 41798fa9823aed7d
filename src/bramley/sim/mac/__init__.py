"""A simulated Mac: its programs, its processes and its reboots."""
